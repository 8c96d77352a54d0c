import numpy as np
import pytest
from scipy import stats

from dpadmm.experiments.statistics import difference, mean_interval, prediction_interval


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
