"""Table I: our accuracies beside the paper's, and what its conclusions come to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from dpadmm.experiments.experiment import Finding
from dpadmm.experiments.figures import Curve, Panel
from dpadmm.experiments.statistics import Interval, mean_interval, prediction_interval
from dpadmm.plain import Array
from dpadmm.privacy.figures import Given
from dpadmm.report.tables import Table
from dpadmm_papers.pdml.printed import COLUMNS, PRINTED, SETS
from dpadmm_papers.pdml.scheme import paired

__all__ = ["Accuracies", "by_preparation", "by_spread", "cell_by_cell", "judge", "panels"]

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
            f"ours proven (row epsilon {Given(row_epsilon)}), %: mean and its 95% interval",
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
    own = float((_column("without privacy", found) - _column("epsilon 0.4, R 9", found)).mean())
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
            highest = {heading: mean_interval(values) for heading, values in found[name].items()}
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


def _column(heading: str, sets: Iterable[str]) -> Array:
    """The paper's accuracies of a column."""
    return np.array([PRINTED[name][list(COLUMNS).index(heading)] for name in sets])


def by_spread(published: Accuracies, spreads: Mapping[float, Accuracies]) -> Table:
    """Two of the conclusions, by eta's bound as a share of R; the paper leaves its law open.

    Parameters
    ----------
    published
        All columns.
    spreads
        Those with the larger R, by the bound of the uniform eta as a share of R.
    """
    reference, weaker, stronger = "without privacy", "epsilon 1, R 9", "epsilon 0.4, R 9"

    def mean(found: Accuracies, heading: str) -> Array:
        return np.asarray(np.mean([columns[heading] for columns in found.values()], axis=0))

    rows = [
        (
            f"ours, deviation {share / np.sqrt(3):.2f} R",
            f"{paired(mean(published, reference), mean(found, stronger)):.1f}",
            f"{paired(mean(found, weaker), mean(found, stronger)):.1f}",
        )
        for share, found in spreads.items()
    ]
    own = {
        heading: float(_column(heading, published).mean())
        for heading in (reference, weaker, stronger)
    }
    rows.append(
        (
            "the paper",
            f"{own[reference] - own[stronger]:.1f}",
            f"{own[weaker] - own[stronger]:.1f}",
        )
    )
    return Table.of(
        ("eta", f"{reference} minus {stronger}: points", f"{weaker} minus {stronger}: points"), rows
    )


def by_preparation(found: Mapping[tuple[str, float], Accuracies], headings: Sequence[str]) -> Table:
    """How far columns are from the paper's under each preparation and a.

    Splice, and the sets of which it cannot be told, are left out.
    """
    rows = []
    for (preparation, a), accuracies in found.items():
        sets = [name for name in accuracies if not SETS[name].unknown and name != "splice"]
        apart = [
            np.abs([accuracies[name][heading].mean() for name in sets] - _column(heading, sets))
            for heading in headings
        ]
        rows.append((preparation, a, *(float(each.mean()) for each in apart)))
    return Table.of(("preparation", "a", *(f"{each}: points apart" for each in headings)), rows)


def panels(published: Accuracies, proven: Accuracies) -> tuple[Panel, ...]:
    """A panel per data set."""
    drawn = []
    for name in published:
        ranges = [prediction_interval(values) for values in published[name].values()]
        drawn.append(
            Panel(
                name,
                "epsilon of the labels (local, proven), R",
                "accuracy on held-back rows, %",
                (
                    Curve("the paper", _TICKS, PRINTED[name]),
                    _ranged("ours, range of one draw", ranges, "published"),
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
