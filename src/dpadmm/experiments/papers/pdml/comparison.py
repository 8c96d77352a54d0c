"""Table I: our accuracies beside the paper's, and what its conclusions come to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from dpadmm.arrays import Array
from dpadmm.experiments.experiment import Finding
from dpadmm.experiments.figures import Curve, Panel
from dpadmm.experiments.papers.pdml.printed import COLUMNS, PRINTED, SETS
from dpadmm.experiments.papers.pdml.scheme import paired
from dpadmm.experiments.statistics import Interval, mean_interval, prediction_interval
from dpadmm.experiments.tables import Table

__all__ = ["Accuracies", "cell_by_cell", "judge", "panels"]

#: Accuracy in percent, one per draw, by data set and column.
Accuracies = Mapping[str, Mapping[str, Array]]

_NEAR_CHANCE: Final = 60.0
# Short names of the columns, for the figure.
_TICKS: Final = ("none", "0.4", "1", "0.4, R 1", "0.4, R 9", "1, R 1", "1, R 9")


def cell_by_cell(published: Accuracies, proven: Accuracies, row_epsilon: float) -> Table:
    """Our accuracies beside those of the paper."""
    rows = []
    for name, columns in published.items():
        for (heading, values), printed in zip(columns.items(), PRINTED[name], strict=True):
            one = prediction_interval(values)
            agrees = one.low <= printed <= one.high
            verdict = "agrees" if agrees else "differs"
            rows.append(
                (
                    name,
                    heading,
                    printed,
                    f"{one:.1f}",
                    "cannot be told" if SETS[name].unknown else verdict,
                    f"{mean_interval(proven[name][heading]):.1f}"
                    if COLUMNS[heading].kind == "published"
                    else "as published: no phase 2",
                )
            )
    return Table.of(
        (
            "data set",
            "setting",
            "the paper, %",
            "ours as published, %: mean and 95% range of one draw",
            "the paper's figure in that range?",
            f"ours proven (row epsilon {row_epsilon:g}), %: mean and its 95% interval",
        ),
        rows,
    )


def judge(calibration: str, found: Accuracies) -> tuple[Finding, ...]:
    """What the conclusions came to."""
    mean = {
        heading: np.mean([columns[heading] for columns in found.values()], axis=0)
        for heading in COLUMNS
    }
    comparisons = [
        ("epsilon 1, R 1", "epsilon 0.4, R 1"),
        ("epsilon 1, R 9", "epsilon 0.4, R 9"),
        ("epsilon 0.4, R 1", "epsilon 0.4, R 9"),
        ("epsilon 1, R 1", "epsilon 1, R 9"),
    ]
    if calibration == "published":
        comparisons.append(("epsilon 1, no phase 2", "epsilon 0.4, no phase 2"))
    better = {
        f"{first} over {second}": paired(mean[first], mean[second]) for first, second in comparisons
    }
    gap = paired(mean["without privacy"], mean["epsilon 0.4, R 9"])
    places = [list(COLUMNS).index(name) for name in ("without privacy", "epsilon 0.4, R 9")]
    own = float(np.mean([PRINTED[name][places[0]] - PRINTED[name][places[1]] for name in found]))
    findings = [
        Finding.judged(
            "epsilon and R",
            calibration,
            all(each.low > 0 for each in better.values()),
            f"Points: {_words(better)}",
        ),
        Finding.judged(
            "strongest",
            calibration,
            gap.high <= own,
            f"Below the reference by {gap:.1f} points; in the paper by {own:.1f}.",
        ),
    ]
    for name in ("banana", "splice"):
        if name in found:
            highest = {
                heading: mean_interval(values)
                for heading, values in found[name].items()
                if calibration == "published" or COLUMNS[heading].kind == "published"
            }
            heading = max(highest, key=lambda each: highest[each].high)
            findings.append(
                Finding.judged(
                    name,
                    calibration,
                    highest[heading].high < _NEAR_CHANCE,
                    f"The best, {heading}: {highest[heading]:.1f}%.",
                )
            )
    return tuple(findings)


def panels(published: Accuracies, proven: Accuracies) -> tuple[Panel, ...]:
    """A panel per data set."""
    drawn = []
    for name in published:
        ranges = [prediction_interval(values) for values in published[name].values()]
        drawn.append(
            Panel(
                name,
                "epsilon of the labels, R",
                "accuracy on held-back rows, %",
                (
                    Curve("the paper", _TICKS, PRINTED[name]),
                    _ranged("ours", ranges, "published"),
                    Curve.of_runs("ours", _TICKS, list(proven[name].values()), "proven"),
                ),
            )
        )
    return tuple(drawn)


def _ranged(label: str, ranges: list[Interval], calibration: str) -> Curve:
    """Means with the range of one draw."""
    means, lows, highs = (tuple(side) for side in zip(*ranges, strict=True))
    return Curve(label, _TICKS, means, lows, highs, calibration)


def _words(intervals: Mapping[str, Interval]) -> str:
    return "; ".join(f"{name}: {interval:.1f}" for name, interval in intervals.items()) + "."
