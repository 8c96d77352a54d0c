"""Three words: from intervals, and joined."""

from itertools import product

import numpy as np
import pytest

from dpadmm.experiments.statistics import Interval, mean_interval
from dpadmm.experiments.verdicts import (
    VERDICTS,
    above,
    all_above,
    all_below,
    all_within,
    at_least,
    below,
    certain,
    every,
    opposite,
    some,
    within,
)

UP, DOWN, ACROSS = Interval(2, 1, 3), Interval(-2, -3, -1), Interval(0.5, -1, 2)
# What each word may turn out to be.
POSSIBLE = {"stands": {True}, "does not stand": {False}, "not decided": {True, False}}


@pytest.mark.parametrize(
    ("interval", "verdict"),
    [(UP, "stands"), (DOWN, "does not stand"), (ACROSS, "not decided")],
)
def test_an_interval_decides_if_all_of_it_lies_on_one_side(interval, verdict):
    assert above(interval) == verdict
    assert below(interval) == opposite(verdict)
    assert above(Interval(0, 0, 0)) == below(Interval(0, 0, 0)) == "does not stand"


@pytest.mark.parametrize(
    ("bounds", "verdict"),
    [((0, 4), "stands"), ((3.5, 4), "does not stand"), ((2, 4), "not decided")],
)
def test_between_two_bounds(bounds, verdict):
    assert within(UP, *bounds) == verdict


@pytest.mark.parametrize("words", list(product(VERDICTS, repeat=3)))
def test_joined_words_say_what_all_completions_agree_on(words):
    # The oracle: whatever is not decided may turn out either way.
    for join, oracle in (
        (every, all),
        (some, any),
        (lambda given: at_least(given, 0.6), lambda truths: sum(truths) >= 0.6 * len(truths)),
    ):
        outcomes = {oracle(truths) for truths in product(*(POSSIBLE[word] for word in words))}
        assert POSSIBLE[join(words)] == outcomes


def test_what_has_no_noise_is_certain():
    assert (certain(True), certain(False)) == ("stands", "does not stand")


def test_the_number_says_the_closest_call():
    few = all_above({"a": UP, "b": ACROSS}, ".1f")
    assert few == ("not decided", "a: 2.0 [1.0, 3.0]; b: 0.5 [-1.0, 2.0].")
    many = all_below({**{str(n): DOWN for n in range(5)}, "high": UP}, ".0f")
    assert many.verdict == "does not stand"
    assert "5 of 6 intervals are below 0, 1 are not; the highest is high: 2 [1, 3]" in many.number
    assert all_within({"a": DOWN}, 4).verdict == "stands"
    assert all_within({"a": DOWN}, 2).verdict == "not decided"


def test_two_looks_are_wrong_as_seldom_as_they_say():
    # A true mean of 0 must be called above or below at most 5% of the time over both looks.
    runs = np.random.default_rng(3).normal(size=(4000, 60))
    first = np.array([above(mean_interval(run[:10])) != "not decided" for run in runs])
    second = np.array([above(mean_interval(run)) != "not decided" for run in runs])
    assert 0.03 < (first | second).mean() < 0.055
