"""Verdicts: three words, how they follow from intervals, and how they join.

A statement about a mean *stands* where the whole interval lies where it should, *does not stand*
where the whole interval lies elsewhere, and is *not decided* in between. "For every" and "for some"
join the words as Kleene's logic does: one counterexample is enough against "for every", whatever
else is not decided.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from dpadmm.experiments.statistics import Interval

__all__ = [
    "VERDICTS",
    "Judged",
    "VerdictWord",
    "above",
    "all_above",
    "all_below",
    "all_within",
    "at_least",
    "below",
    "certain",
    "every",
    "listed",
    "opposite",
    "some",
    "within",
]

VerdictWord = Literal["stands", "does not stand", "not decided"]
VERDICTS: Final[tuple[VerdictWord, ...]] = ("stands", "does not stand", "not decided")
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
    if "does not stand" in found:
        return "does not stand"
    return "not decided" if "not decided" in found else "stands"


def some(verdicts: Iterable[VerdictWord]) -> VerdictWord:
    """For some: stands by one, falls by all."""
    return opposite(every(map(opposite, verdicts)))


def opposite(verdict: VerdictWord) -> VerdictWord:
    """The verdict on the opposite claim."""
    swapped: dict[VerdictWord, VerdictWord] = {
        "stands": "does not stand",
        "does not stand": "stands",
        "not decided": "not decided",
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
