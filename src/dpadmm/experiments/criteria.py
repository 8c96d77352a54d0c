"""Criteria of conclusions about several competitors: best, ahead, lower throughout, idle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dpadmm.experiments.statistics import Interval, difference, mean_interval
from dpadmm.experiments.verdicts import (
    Judged,
    VerdictWord,
    above,
    all_above,
    at_least,
    below,
    certain,
    every,
)
from dpadmm.plain import Array

__all__ = ["close_to", "is_ahead", "is_best", "lower_in_most", "many_idle", "points"]

#: By measure, one figure a run.
Sample = Mapping[str, Array]


def points(gap: Interval) -> Interval:
    """A difference of shares, in percentage points."""
    return Interval(*(100 * each for each in gap))


def is_best(claimed: str, samples: Mapping[str, Sample]) -> Judged:
    """Every measure of ``claimed`` exceeds that of every other by an interval above 0."""
    leads = {
        f"{measure} over {name}": points(difference(sample, other[measure]))
        for name, other in samples.items()
        if name != claimed
        for measure, sample in samples[claimed].items()
    }
    verdict, number = all_above(leads, ".2f")
    highest = ", ".join(
        f"{measure} {_highest({name: sample[measure] for name, sample in samples.items()})}"
        for measure in samples[claimed]
    )
    return Judged(verdict, f"Leads in points: {number} Highest mean: {highest}.")


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
    words: list[VerdictWord] = []
    gaps: dict[str, Interval] = {}
    for budget in range(len(next(iter(ours.values())))):
        here = {
            f"{who} minus {other}, {measure}": difference(sample, rival[budget][measure])
            for who, mine in ours.items()
            for other, rival in theirs.items()
            for measure, sample in mine[budget].items()
        }
        words.append(every(above(gap, -margin) for gap in here.values()))
        worst = min(here, key=lambda name: here[name].low)
        if not gaps or here[worst].low < next(iter(gaps.values())).low:
            gaps = {worst: here[worst]}
    ((name, gap),) = gaps.items()
    number = f"{_counted(words, 'budgets')}; worst: {name}, {points(gap):.2f} points"
    return Judged(at_least(words, share), number)


def lower_in_most(
    ours: Mapping[str, Array], theirs: Mapping[str, Array], *, share: float
) -> Judged:
    """In a ``share`` of the iterations, each course of ``ours`` is below each of ``theirs``.

    Courses are ``(iterations, runs)``; the interval of the difference must lie below 0.
    """
    words = {
        f"{who} below {other}": [
            below(difference(one, two)) for one, two in zip(mine, rival, strict=True)
        ]
        for who, mine in ours.items()
        for other, rival in theirs.items()
    }
    fewest = min(words, key=lambda pair: words[pair].count("stands"))
    verdict = every(at_least(found, share) for found in words.values())
    return Judged(verdict, f"Fewest: {fewest} in {_counted(words[fewest], 'iterations')}")


def close_to(ours: Mapping[str, Array], best: Array, *, factor: float, share: float) -> Judged:
    """In a ``share`` of the iterations, the mean of each course is at most ``factor`` times best.

    By its interval.
    """
    words = {
        who: [
            below(mean_interval(one), factor * float(np.mean(least)))
            for one, least in zip(mine, best, strict=True)
        ]
        for who, mine in ours.items()
    }
    who = min(words, key=lambda name: words[name].count("stands"))
    last = float(np.mean(ours[who][-1])), float(np.mean(best[-1]))
    return Judged(
        every(at_least(found, share) for found in words.values()),
        f"Fewest: {who} in {_counted(words[who], 'iterations')}; at the end {last[0]:.4g} "
        f"against {last[1]:.4g}",
    )


def many_idle(course: Array, *, share: float, runs: int) -> Judged:
    """In a ``share`` of the steps, the mean over the paper's own number of runs does not fall.

    As one reads it off the figure: a count, without an interval.
    """
    idle = np.diff(course[:, :runs].mean(axis=1)) >= 0
    number = f"The mean loss does not fall in {idle.sum()} of {len(idle)} steps"
    return Judged(certain(bool(idle.mean() >= share)), number)


def _counted(words: Sequence[VerdictWord], what: str) -> str:
    """How many stand, and how many are not decided."""
    left = words.count("not decided")
    also = f", {left} not decided" if left else ""
    return f"{words.count('stands')} of {len(words)} {what}{also}"
