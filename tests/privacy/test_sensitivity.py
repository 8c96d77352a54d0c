"""Public constants of a subproblem: what is refused, and the errors that a table adds."""

import math

import numpy as np
import pytest
from scipy.special import expit

from dpadmm.privacy.calibration import gaussian_sigma
from dpadmm.privacy.sensitivity import (
    argmin_sensitivity,
    gradient_sensitivity,
    jacobian_ratio,
    public_norm_factor,
)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_one_number_that_is_not_finite_among_others_is_refused(value):
    for refused in (
        lambda: gradient_sensitivity([100, 50], weight=[1.0, value]),
        lambda: argmin_sensitivity([100, 50], 1.0, weight=[1.0, value]),
        lambda: jacobian_ratio([100, 50], 1.0, weight=[1.0, value]),
        lambda: gaussian_sigma(1.0, 1e-5, [1.0, value]),
    ):
        with pytest.raises(ValueError, match="and finite; got"):
            refused()


def test_weight_and_slope_are_one_where_they_are_not_given():
    assert gradient_sensitivity(10.0) == 0.2
    assert argmin_sensitivity(10.0, 2.0) == 0.1
    assert jacobian_ratio(10.0, 1.0) == 0.025


def test_a_loss_without_curvature_adds_nothing_to_a_hessian():
    assert jacobian_ratio([100, 50], 1.0, curvature=0.0).tolist() == [0.0, 0.0]
    with pytest.raises(ValueError, match="gradient sensitivity must be positive"):
        gradient_sensitivity(100, slope=0.0)


@pytest.mark.parametrize("radius", [-1e-9, -1.0, np.nan])
def test_one_radius_that_is_none_among_others_is_refused(radius):
    with pytest.raises(ValueError, match="radius must be non-negative"):
        public_norm_factor([1.0, radius])


@pytest.mark.parametrize("knot", [0, 100, 300, 500, 600, 700, 800, 830])
def test_the_errors_of_both_grids_are_part_of_the_bound(knot):
    """What the proof adds: the curve's bend between angles, the gap between directions.

    The bend is worked out here for the radius; the bound has one that holds for all curves.
    """
    radius = float(np.expm1(np.linspace(0, np.log1p(256), 1024))[knot])
    step, half_gap = 2 * np.pi / 1024, np.pi / 4 / 95
    angles = step * np.arange(1024)
    heights = np.cos(angles - 2 * half_gap * np.arange(96)[:, None]) * expit(
        -radius * np.cos(angles)
    )
    width = np.ptp(heights, axis=1).max()
    fine = np.linspace(0, np.pi, 20_001)
    slope = expit(-radius * np.cos(fine))
    first = slope * (1 - slope) * radius * np.sin(fine)
    second = first * (1 - 2 * slope) * radius * np.sin(fine)
    second += slope * (1 - slope) * radius * np.cos(fine)
    # (u s)'' = u (s'' - s) + 2 u' s' for the unit vector u.
    bend = np.hypot(second - slope, 2 * first).max()
    least = (width + 2 * bend * (step / 2) ** 2 / 2) / math.cos(half_gap)
    assert least <= float(public_norm_factor(radius)) <= least + 7e-4


def test_the_factor_is_half_a_percent_too_large_at_most():
    """Against the largest distance of points that mirror each other, the diameter of the curve."""
    angles = np.linspace(np.pi / 2, np.pi, 4001)
    for radius in np.geomspace(0.01, 400, 40).tolist():
        largest = 2 * (np.sin(angles) * expit(-radius * np.cos(angles))).max()
        assert largest <= public_norm_factor(radius) <= largest * 1.005
