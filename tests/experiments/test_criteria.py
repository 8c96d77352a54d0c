"""Criteria about several competitors: each verdict in all its words."""

import numpy as np

from dpadmm.experiments.criteria import close_to, is_ahead, is_best, lower_in_most, many_idle


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
