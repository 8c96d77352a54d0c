"""Verdicts: four words, how they follow from intervals, and how they join.

A statement about a mean *stands* where the whole interval lies where it should, *does not stand*
where the whole interval lies elsewhere, and is *not decided* in between. "For every" and "for some"
join the words as Kleene's logic does: one counterexample is enough against "for every", whatever
else is not decided.

A choice of the best is *immaterial* where what it gains or loses is far below what the paper's own
number of runs resolves: neither the paper's runs nor a user could tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, NamedTuple

import numpy as np

from dpadmm.experiments.measures import Interval, mean_interval
from dpadmm.plain import Array
from dpadmm_papers.statistics import difference

VerdictWord = Literal["stands", "does not stand", "not decided", "immaterial"]
#: What an interval can come to.
VERDICTS: Final[tuple[VerdictWord, ...]] = ("stands", "does not stand", "not decided")
#: What a finding can say.
WORDS: Final[tuple[VerdictWord, ...]] = (*VERDICTS, "immaterial")
# Up to so many intervals are all said; of more, how many are as claimed and the closest call.
_MOST_SAID: Final = 4


class Judged(NamedTuple):
    """A verdict and the number that shows it, in words."""

    verdict: VerdictWord
    number: str


def certain(holds: bool) -> VerdictWord:
    """The verdict on what has no noise."""
    return "stands" if holds else "does not stand"


def above(interval: Interval, bound: float = 0.0) -> VerdictWord:
    """Whether the mean is above ``bound``."""
    if interval.low > bound:
        return "stands"
    return "does not stand" if interval.high <= bound else "not decided"


def below(interval: Interval, bound: float = 0.0) -> VerdictWord:
    """Whether the mean is below ``bound``."""
    if interval.high < bound:
        return "stands"
    return "does not stand" if interval.low >= bound else "not decided"


def within(interval: Interval, low: float, high: float) -> VerdictWord:
    """Whether the mean is between ``low`` and ``high``."""
    return every([above(interval, low), below(interval, high)])


def every(verdicts: Iterable[VerdictWord]) -> VerdictWord:
    """For every: falls by one that does not stand, stands by all."""
    found = set(verdicts)
    weakest: tuple[VerdictWord, ...] = ("does not stand", "not decided", "immaterial")
    return next((word for word in weakest if word in found), "stands")


def some(verdicts: Iterable[VerdictWord]) -> VerdictWord:
    """For some: stands by one, falls by all."""
    return opposite(every(map(opposite, verdicts)))


def opposite(verdict: VerdictWord) -> VerdictWord:
    """The verdict on the opposite claim."""
    swapped: dict[VerdictWord, VerdictWord] = {
        "stands": "does not stand",
        "does not stand": "stands",
        "not decided": "not decided",
        "immaterial": "immaterial",
    }
    return swapped[verdict]


def at_least(verdicts: Sequence[VerdictWord], share: float) -> VerdictWord:
    """For a share of all, such as 90% of the iterations."""
    needed = share * len(verdicts)
    if verdicts.count("stands") >= needed:
        return "stands"
    possible = len(verdicts) - verdicts.count("does not stand")
    return "not decided" if possible >= needed else "does not stand"


def all_above(found: Mapping[str, Interval], form: str = ".4f", bound: float = 0.0) -> Judged:
    """Whether every interval is above ``bound``, with the intervals or the closest call."""
    words = [above(each, bound) for each in found.values()]
    lowest = min(found, key=lambda name: found[name].low)
    return Judged(every(words), _said(found, words, form, f"above {bound:g}", "lowest", lowest))


def all_below(found: Mapping[str, Interval], form: str = ".4f", bound: float = 0.0) -> Judged:
    """Whether every interval is below ``bound``, with the intervals or the closest call."""
    words = [below(each, bound) for each in found.values()]
    highest = max(found, key=lambda name: found[name].high)
    return Judged(every(words), _said(found, words, form, f"below {bound:g}", "highest", highest))


#: What is below this part of what a paper's own runs tell apart is far below it.
FAR: Final = 0.1


def best_or_immaterial(
    gaps: Mapping[str, Interval], seen: Mapping[str, Interval], form: str = ".4f"
) -> Judged:
    """Whether every gap is below 0; or whether it matters nothing which it is.

    Immaterial where each gap that is not below 0 lies, with its interval, within a tenth of the
    half width of the interval in ``seen``: that of the same gap as the paper's own runs show it.
    """
    verdict, number = all_below(gaps, form)
    if verdict == "stands":
        return Judged(verdict, number)
    rivals = [name for name, gap in gaps.items() if below(gap) != "stands"]
    reach = {name: (seen[name].high - seen[name].low) / 2 for name in rivals}
    if any(
        within(gaps[name], -FAR * reach[name], FAR * reach[name]) != "stands" for name in rivals
    ):
        return Judged(verdict, number)
    words = f"what ten runs tell apart is {min(reach.values()):.2g}"
    return Judged("immaterial", f"{number} Beside it, {words}.")


def all_within(found: Mapping[str, Interval], reach: float, form: str = ".4f") -> Judged:
    """Whether every interval is within ``reach`` of 0, with the intervals or the closest call."""
    words = [within(each, -reach, reach) for each in found.values()]
    furthest = max(found, key=lambda name: max(abs(found[name].low), abs(found[name].high)))
    claim = f"within {reach:g} of 0"
    return Judged(every(words), _said(found, words, form, claim, "furthest", furthest))


def listed(found: Mapping[str, Interval], form: str = ".4f") -> str:
    """Every interval with its name."""
    return "; ".join(f"{name}: {format(each, form)}" for name, each in found.items())


def _said(
    found: Mapping[str, Interval],
    words: Sequence[VerdictWord],
    form: str,
    claim: str,
    extreme: str,
    name: str,
) -> str:
    if len(found) <= _MOST_SAID:
        return f"{listed(found, form)}."
    return (
        f"{words.count('stands')} of {len(words)} intervals are {claim}, "
        f"{words.count('does not stand')} are not; the {extreme} is {name}: "
        f"{format(found[name], form)}."
    )


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
