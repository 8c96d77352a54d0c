"""Three words: from intervals, and joined."""

from itertools import product

import numpy as np
import pytest

from dpadmm.experiments.measures import Interval, mean_interval
from dpadmm_papers.verdicts import (
    VERDICTS,
    above,
    all_above,
    all_below,
    all_within,
    at_least,
    below,
    best_or_immaterial,
    certain,
    close_to,
    every,
    is_ahead,
    is_best,
    lower_in_most,
    many_idle,
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


def runs(mean, spread=0.001):
    return mean + spread * np.array([-1.0, 0.0, 1.0, 0.5, -0.5])


def both(mean, **other):
    return {"testing": runs(mean), "training": runs(other.get("training", mean))}


def test_best_needs_a_lead_over_every_other_value_in_both_measures():
    samples = {"1": both(0.80), "2": both(0.75), "5": both(0.70)}
    assert is_best("1", samples).verdict == "stands"
    assert is_best("2", samples).verdict == "does not stand"
    assert is_best("1", samples | {"5": both(0.70, training=0.81)}).verdict == "does not stand"
    assert is_best("1", samples | {"5": both(0.7999)}).verdict == "not decided"
    found = is_best("2", samples)
    assert "testing over 1: -5.00 [" in found.number
    assert "Highest mean: testing 1, training 1." in found.number


def test_values_that_make_no_difference_are_not_best():
    same = {"testing": np.full(5, 0.764), "training": np.full(5, 0.752)}
    found = is_best("1", {"1": same, "2": same})
    assert found.verdict == "does not stand"
    assert "Highest mean: testing the same for all" in found.number


def test_ahead_counts_budgets_and_allows_the_margin():
    proposed = {"Per": [both(0.8)] * 5, "Iter": [both(0.79)] * 5}
    level = {"DVP": [both(0.795)] * 5}
    assert is_ahead(proposed, level, margin=0.01, share=0.8).verdict == "stands"
    assert is_ahead(proposed, level, margin=0.0, share=1.0).verdict == "does not stand"
    one_worse = {"DVP": [both(0.78)] * 4 + [both(0.9)]}
    four = is_ahead(proposed, one_worse, margin=0.01, share=0.8)
    assert four.verdict == "stands"
    assert four.number.startswith("4 of 5 budgets; worst: Iter minus DVP, testing, -11.00")
    assert is_ahead(proposed, one_worse, margin=0.0, share=1.0).verdict == "does not stand"
    far = {"DVP": [both(0.7)] * 5}
    assert is_ahead(proposed, far, margin=0.0, share=1.0).verdict == "stands"
    close = {"DVP": [both(0.7899)] * 5}
    assert is_ahead(proposed, close, margin=0.0, share=1.0).verdict == "not decided"


def test_courses_are_compared_iteration_by_iteration():
    low, high = np.stack([runs(0.4)] * 10), np.stack([runs(0.5)] * 10)
    assert lower_in_most({"Per": low}, {"DVP": high}, share=0.9).verdict == "stands"
    crossing = high.copy()
    crossing[:2] = runs(0.3)
    found = lower_in_most({"Per": low}, {"DVP": high, "R": crossing}, share=0.9)
    assert found.verdict == "does not stand"
    assert found.number == "Fewest: Per below R in 8 of 10 iterations"
    crossing[:2] = runs(0.4)
    found = lower_in_most({"Per": low}, {"DVP": high, "R": crossing}, share=0.9)
    assert found.verdict == "not decided"
    assert found.number == "Fewest: Per below R in 8 of 10 iterations, 2 not decided"
    best = np.full((10, 1), 0.39)
    assert close_to({"Per": low}, best, factor=1.05, share=0.9).verdict == "stands"
    both_of_them = close_to({"Per": low, "Iter": high}, best, factor=1.05, share=0.9)
    assert both_of_them.verdict == "does not stand"


def test_idle_steps_are_those_that_do_not_lower_the_mean_of_the_papers_runs():
    falling = np.linspace(0.6, 0.4, 9)[:, None] + runs(0.0)[None]
    assert many_idle(falling, share=0.25, runs=5).verdict == "does not stand"
    every_second = np.repeat(falling[:5], 2, axis=0)
    found = many_idle(every_second, share=0.25, runs=5)
    assert found.verdict == "stands"
    assert found.number == "The mean loss does not fall in 5 of 9 steps"
    # Runs of a second look do not change what the paper's own number of runs shows.
    more = np.concatenate([every_second, np.cumsum(-np.ones((10, 25)), axis=0)], axis=1)
    assert many_idle(more, share=0.25, runs=5) == found


def test_a_choice_of_the_best_is_immaterial_where_the_paper_s_runs_could_not_tell():
    gaps = {"1 less 2": Interval(-0.1, -0.2, -0.05), "1 less 3": Interval(0.002, 0.001, 0.003)}
    seen = {name: Interval(0.0, -0.04, 0.04) for name in gaps}
    found = best_or_immaterial(gaps, seen)
    assert found.verdict == "immaterial"
    assert "what ten runs tell apart is 0.04" in found.number
    # A tenth of what is seen is 0.004: a gap of more is one that matters.
    wider = gaps | {"1 less 3": Interval(0.004, 0.003, 0.005)}
    assert best_or_immaterial(wider, seen).verdict == "does not stand"
    assert best_or_immaterial({"1 less 2": gaps["1 less 2"]}, seen).verdict == "stands"
