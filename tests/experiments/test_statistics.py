import math

import numpy as np
import pytest
from scipy import stats

from dpadmm.experiments.measures import (
    BEATS,
    BELOW,
    LEVEL_WITH,
    Interval,
    mean_interval,
    percent,
    standing,
)
from dpadmm_papers.statistics import difference, prediction_interval


def test_intervals_are_student_s_and_welch_s():
    generator = np.random.default_rng(0)
    one, two = generator.normal(1, 2, 12), generator.normal(0, 1, 7)
    expected = stats.ttest_1samp(one, 0).confidence_interval(0.975)
    assert mean_interval(one)[1:] == pytest.approx((expected.low, expected.high))
    expected = stats.ttest_ind(one, two, equal_var=False).confidence_interval(0.975)
    found = difference(one, two)
    assert found[1:] == pytest.approx((expected.low, expected.high))
    assert found.mean == pytest.approx(one.mean() - two.mean())
    assert difference(one, 0.25) == pytest.approx(mean_interval(one - 0.25))


def test_a_single_figure_has_no_known_width():
    assert mean_interval([3.0]) == (3.0, -np.inf, np.inf)
    assert difference([3.0], [1.0, 2.0]).low == -np.inf
    assert difference([2.0, 2.0], [1.0, 1.0]) == (1.0, 1.0, 1.0)


def test_an_interval_is_shown_with_its_ends():
    assert f"{mean_interval([1.0, 1.0]):.2f}" == "1.00 [1.00, 1.00]"


def test_a_prediction_interval_holds_the_next_figure_as_often_as_it_says():
    samples = np.random.default_rng(1).normal(5, 3, size=(4000, 8))
    intervals = [prediction_interval(sample[:-1]) for sample in samples]
    held = np.mean(
        [i.low <= new <= i.high for i, new in zip(intervals, samples[:, -1], strict=True)]
    )
    assert held == pytest.approx(0.975, abs=0.008)
    assert prediction_interval([3.0]) == (3.0, -np.inf, np.inf)


@pytest.mark.parametrize(
    ("interval", "found"),
    [
        (Interval(0.82, 0.81, 0.83), BEATS),
        (Interval(0.81, 0.79, 0.83), LEVEL_WITH),
        (Interval(0.79, 0.77, 0.81), LEVEL_WITH),
        (Interval(0.78, 0.77, 0.79), BELOW),
        (Interval(0.80, 0.80, 0.80), BELOW),
        # A single run has no width that is known: its value decides.
        (Interval(0.81, -math.inf, math.inf), BEATS),
        (Interval(0.80, -math.inf, math.inf), BELOW),
    ],
)
def test_the_interval_decides(interval, found):
    assert standing(interval, 0.8) == found


def test_shares_are_told_in_percent():
    assert percent(0.8349) == "83.5%"
