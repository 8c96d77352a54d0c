import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.helpers import oracles

from dpadmm.errors import ParameterError
from dpadmm.problem.losses import LOSSES, get_loss

GRID = np.concatenate([np.linspace(-60, 60, 24_001), np.linspace(0.4, 1.6, 1_201)])
MARGINS = st.floats(-1e6, 1e6)


@pytest.fixture(params=sorted(LOSSES))
def loss(request):
    return get_loss(request.param)


def test_values_are_those_of_the_formulas(loss):
    expected = [oracles.VALUES[loss.name](margin) for margin in GRID]
    np.testing.assert_allclose(loss.value(GRID), expected, rtol=1e-13, atol=1e-300)


def test_slope_is_the_derivative_of_the_value(loss):
    step = 1e-5
    numerical = (loss.value(GRID + step) - loss.value(GRID - step)) / (2 * step)
    # A corner of the second derivative within the difference costs half a step.
    np.testing.assert_allclose(loss.slope(GRID), numerical, atol=1e-5, rtol=1e-8)


def test_curvature_is_the_derivative_of_the_slope(loss):
    smooth = GRID[(np.abs(GRID - 0.5) > 1e-4) & (np.abs(GRID - 1.5) > 1e-4)]
    step = 1e-6
    numerical = (loss.slope(smooth + step) - loss.slope(smooth - step)) / (2 * step)
    np.testing.assert_allclose(loss.curvature(smooth), numerical, atol=1e-7)


@given(name=st.sampled_from(sorted(LOSSES)), first=MARGINS, second=MARGINS)
def test_convex_with_the_stated_bounds(name, first, second):
    loss = get_loss(name)
    low, high = np.array([min(first, second)]), np.array([max(first, second)])
    rise = (loss.slope(high) - loss.slope(low))[0]
    rounding = 1e-9 * (1 + abs(first) + abs(second))
    assert rise >= -rounding
    assert rise <= loss.curvature_bound * (high - low)[0] + rounding
    assert rise <= loss.slope_range
    for margin in (low, high):
        assert abs(loss.slope(margin)[0]) <= loss.slope_bound
        assert 0 <= loss.curvature(margin)[0] <= loss.curvature_bound
        assert np.isfinite(loss.value(margin)).all()
        assert loss.value(margin)[0] >= 0


def test_the_bounds_are_attained(loss):
    slopes, bends = loss.slope(GRID), loss.curvature(GRID)
    assert bends.max() == pytest.approx(loss.curvature_bound, rel=1e-6)
    if np.isfinite(loss.slope_bound):
        assert np.abs(slopes).max() == pytest.approx(loss.slope_bound, rel=1e-6)
        assert slopes.max() - slopes.min() == pytest.approx(loss.slope_range, rel=1e-6)
    else:
        assert np.abs(loss.slope(np.array([1e12])))[0] > 1e11
        assert loss.slope_range == np.inf


def test_symmetric_curvature_means_what_it_says(loss):
    symmetric = np.allclose(loss.curvature(GRID), loss.curvature(-GRID), atol=1e-12)
    assert loss.symmetric_curvature == symmetric


def test_only_the_logistic_loss_is_probabilistic():
    assert [name for name, loss in LOSSES.items() if loss.probabilistic] == ["logistic"]


def test_extreme_margins_stay_finite_and_silent(loss):
    # Far beyond what a row of norm 1 and a bounded message can make of a margin.
    margins = np.array([-1e150, -1e16, -800.0, 0.0, 800.0, 1e16, 1e150])
    for function in (loss.value, loss.slope, loss.curvature):
        assert np.isfinite(function(margins)).all()


def test_functions_keep_shape_and_leave_their_argument_alone(loss):
    margins = np.linspace(-2, 2, 24).reshape(2, 3, 4)
    before = margins.copy()
    for function in (loss.value, loss.slope, loss.curvature):
        assert function(margins).shape == (2, 3, 4)
        np.testing.assert_array_equal(margins, before)


def test_a_loss_is_frozen_and_printable(loss):
    with pytest.raises(dataclasses.FrozenInstanceError):
        loss.slope_bound = 0.5
    assert loss.name in repr(loss)


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ParameterError, match="loss must be one of") as refusal:
        get_loss("logistics")
    for name in LOSSES:
        assert name in str(refusal.value)
    assert "'logistics'" in str(refusal.value)
    assert "Did you mean 'logistic'?" in str(refusal.value)
