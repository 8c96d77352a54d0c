"""Table I: our accuracies beside the paper's, and what its conclusions come to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from dpadmm.experiments.figures import Curve, Panel
from dpadmm.experiments.measures import Interval, mean_interval
from dpadmm.plain import Array
from dpadmm.privacy.figures import Given
from dpadmm.report.document import Table
from dpadmm_papers.experiment import Finding
from dpadmm_papers.pdml.scheme import Variant
from dpadmm_papers.statistics import paired, prediction_interval
from dpadmm_papers.verdicts import all_above, all_below, below


class BenchmarkSet(NamedTuple):
    """A data set of the table.

    Attributes
    ----------
    rows
        As the paper states them.
    test_rows
        The smallest number that leaves ten equal groups to train on and of which all seven printed
        accuracies are whole multiples. Each is thus of one classifier on one split.
    columns
        Of a row.
    unknown
        Why it cannot be told whether our rows are the paper's, where that is so.
    """

    rows: int
    test_rows: int
    columns: int
    unknown: str = ""


SETS: Final[dict[str, BenchmarkSet]] = {
    "german": BenchmarkSet(1000, 300, 20),
    "image": BenchmarkSet(
        2086, 626, 18, "which of the seven classes the benchmark joined is not documented"
    ),
    "ringnorm": BenchmarkSet(7400, 3900, 20),
    "banana": BenchmarkSet(5300, 1800, 2),
    "splice": BenchmarkSet(2991, 901, 60),
    "twonorm": BenchmarkSet(7400, 3900, 20),
    "waveform": BenchmarkSet(5000, 1500, 21),
}

#: The table's columns: their headings and what they are.
COLUMNS: Final[dict[str, Variant]] = {
    "without privacy": Variant("reference"),
    "epsilon 0.4, no phase 2": Variant("phase 1", 0.4),
    "epsilon 1, no phase 2": Variant("phase 1", 1.0),
    "epsilon 0.4, R 1": Variant("published", 0.4, 1.0),
    "epsilon 0.4, R 9": Variant("published", 0.4, 9.0),
    "epsilon 1, R 1": Variant("published", 1.0, 1.0),
    "epsilon 1, R 9": Variant("published", 1.0, 9.0),
}

#: Accuracies in percent, in the order of the columns.
PRINTED: Final[dict[str, tuple[float, ...]]] = {
    "german": (75.00, 71.00, 74.00, 69.67, 64.00, 74.33, 67.67),
    "image": (75.56, 70.13, 72.84, 69.33, 63.10, 70.45, 65.50),
    "ringnorm": (77.38, 73.44, 76.82, 73.74, 66.18, 75.77, 70.23),
    "banana": (58.22, 54.33, 56.06, 54.28, 43.11, 55.89, 54.44),
    "splice": (56.60, 46.84, 56.60, 54.94, 46.39, 55.83, 52.50),
    "twonorm": (97.90, 96.59, 97.38, 96.51, 92.28, 97.41, 94.77),
    "waveform": (88.93, 84.60, 87.93, 84.07, 80.47, 87.67, 81.73),
}


#: Accuracy in percent, one per draw, by data set and column.
Accuracies = Mapping[str, Mapping[str, Array]]

_NEAR_CHANCE: Final = 60.0
#: "Comparable" is a threshold of ours: the paper's own gap, and others.
COMPARABLE: Final = "what counts as comparable"
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
            "ours as published, %: mean and 97.5% range of one draw",
            "the paper's figure in that range?",
            f"ours proven (row epsilon {Given(row_epsilon)}), %: mean and its interval",
        ),
        rows,
    )


def judge(calibration: str, found: Accuracies, labels: Mapping[str, list[str]]) -> list[Finding]:
    """What the conclusions came to; ``labels`` are those of each data set's cells."""
    mean = mean_of_sets(found)
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
    every_label = [label for each in labels.values() for label in each]
    findings = [
        Finding.judged(
            "epsilon and R", calibration, *all_above(better, ".1f"), rests_on=every_label
        ),
        judge_strongest(calibration, mean, found, rests_on=every_label),
        *(
            judge_strongest(
                calibration,
                mean,
                found,
                times=times,
                choice=COMPARABLE,
                variant=f"{times:g} times the paper's gap",
                rests_on=every_label,
            )
            for times in (0.5, 2.0)
        ),
    ]
    return findings + [
        judge_chance(name, calibration, found[name], rests_on=labels[name])
        for name in ("banana", "splice")
        if name in found
    ]


def judge_strongest(
    calibration: str,
    mean: Mapping[str, Array],
    sets: Iterable[str],
    *,
    times: float = 1.0,
    **about: Any,
) -> Finding:
    """Whether the strongest setting is as near to the reference as in the paper, or ``times``."""
    reference, strongest = "without privacy", "epsilon 0.4, R 9"
    gap = paired(mean[reference], mean[strongest])
    own = float((_column(reference, sets) - _column(strongest, sets)).mean())
    number = f"Below the reference by {gap:.1f} points; in the paper by {own:.1f}."
    return Finding.judged("strongest", calibration, below(gap, times * own), number, **about)


def judge_chance(
    name: str, calibration: str, columns: Mapping[str, Array], **about: Any
) -> Finding:
    """Whether every column of a data set is near chance."""
    found = {heading: mean_interval(values) for heading, values in columns.items()}
    return Finding.judged(name, calibration, *all_below(found, ".1f", _NEAR_CHANCE), **about)


def mean_of_sets(found: Accuracies) -> dict[str, Array]:
    """Of every column, the mean over data sets, draw by draw; of the draws that all sets have."""
    means = {}
    for heading in next(iter(found.values())):
        values = [columns[heading] for columns in found.values()]
        draws = min(map(len, values))
        means[heading] = np.mean([each[:draws] for each in values], axis=0)
    return means


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

    alone = mean_of_sets(published)[reference]
    rows = [
        (
            f"ours, deviation {share / np.sqrt(3):.2f} R",
            f"{paired(alone, mean_of_sets(found)[stronger]):.1f}",
            f"{paired(mean_of_sets(found)[weaker], mean_of_sets(found)[stronger]):.1f}",
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
