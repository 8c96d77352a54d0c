"""The criteria of section V's conclusions, as functions of what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from dpadmm.experiments.statistics import Interval, difference, mean_interval
from dpadmm.plain import Array

__all__ = ["Judged", "close_to", "is_ahead", "is_best", "lower_in_most", "many_idle"]

#: By measure, one figure a run.
Sample = Mapping[str, Array]


class Judged(NamedTuple):
    """Whether a criterion is met, and the number that shows it."""

    holds: bool
    number: str


def is_best(claimed: str, samples: Mapping[str, Sample]) -> Judged:
    """Every measure of ``claimed`` exceeds that of every other by an interval above 0."""
    gaps = [
        (difference(sample, other[measure]), name, measure)
        for name, other in samples.items()
        if name != claimed
        for measure, sample in samples[claimed].items()
    ]
    worst, name, measure = min(gaps, key=lambda gap: gap[0].low)
    highest = ", ".join(
        f"{measure} {_highest({name: sample[measure] for name, sample in samples.items()})}"
        for measure in samples[claimed]
    )
    number = f"Least lead: over {name}, {measure}, {_points(worst)}; highest mean: {highest}"
    return Judged(worst.low > 0, number)


def _highest(sample: Mapping[str, Array]) -> str:
    means = {name: float(np.mean(values)) for name, values in sample.items()}
    best = [name for name, mean in means.items() if np.isclose(mean, max(means.values()))]
    return "the same for all" if len(best) == len(means) > 1 else " and ".join(best)


def is_ahead(
    ours: Mapping[str, Sequence[Sample]],
    theirs: Mapping[str, Sequence[Sample]],
    *,
    margin: float,
    share: float,
) -> Judged:
    """At a ``share`` of the budgets, nobody of ``ours`` trails any of ``theirs`` by ``margin``.

    Sequences are over budgets; an interval of a difference must lie above ``-margin``.
    """
    budgets = len(next(iter(ours.values())))
    met, gaps = 0, []
    for budget in range(budgets):
        here = [
            (difference(sample, rival[budget][measure]), who, other, measure)
            for who, mine in ours.items()
            for other, rival in theirs.items()
            for measure, sample in mine[budget].items()
        ]
        met += all(gap[0].low > -margin for gap in here)
        gaps += here
    worst, who, other, measure = min(gaps, key=lambda gap: gap[0].low)
    number = f"At {met} of {budgets} budgets; worst: {who} minus {other}, {measure}, "
    return Judged(met >= share * budgets, number + _points(worst))


def lower_in_most(
    ours: Mapping[str, Array], theirs: Mapping[str, Array], *, share: float
) -> Judged:
    """In a ``share`` of the iterations, each course of ``ours`` is below each of ``theirs``.

    Courses are ``(iterations, runs)``; the interval of the difference must lie below 0.
    """
    counts = {
        f"{who} below {other}": sum(
            difference(one, two).high < 0 for one, two in zip(mine, rival, strict=True)
        )
        for who, mine in ours.items()
        for other, rival in theirs.items()
    }
    iterations = len(next(iter(ours.values())))
    pair = min(counts, key=counts.__getitem__)
    return Judged(
        counts[pair] >= share * iterations,
        f"Fewest: {pair} in {counts[pair]} of {iterations} iterations",
    )


def close_to(ours: Mapping[str, Array], best: Array, *, factor: float, share: float) -> Judged:
    """In a ``share`` of the iterations, the mean of each course is at most ``factor`` times best.

    By the upper end of its interval.
    """
    reached = {
        who: sum(
            mean_interval(one).high <= factor * float(np.mean(least))
            for one, least in zip(mine, best, strict=True)
        )
        for who, mine in ours.items()
    }
    who = min(reached, key=reached.__getitem__)
    last = float(np.mean(ours[who][-1])), float(np.mean(best[-1]))
    return Judged(
        reached[who] >= share * len(best),
        f"Fewest: {who} in {reached[who]} of {len(best)} iterations; at the end {last[0]:.4g} "
        f"against {last[1]:.4g}",
    )


def many_idle(course: Array, *, share: float) -> Judged:
    """In a ``share`` of the steps, the interval of the change is not below 0."""
    steps = np.diff(course, axis=0)
    idle = sum(not mean_interval(step).high < 0 for step in steps)
    return Judged(idle >= share * len(steps), f"{idle} of {len(steps)} steps")


def _points(gap: Interval) -> str:
    """A difference of shares, in percentage points."""
    return f"{100 * gap.mean:.2f} points [{100 * gap.low:.2f}, {100 * gap.high:.2f}]"
