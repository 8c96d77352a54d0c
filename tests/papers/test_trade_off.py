"""The alpha that is best for one's own costs: the fit against scipy, the choice by calculus."""

import math

import numpy as np
import pytest
from scipy.optimize import curve_fit

from dpadmm.errors import ParameterError
from dpadmm_papers.trade_off import LossCurve, PrivacyUtility, design_alpha, fit_loss

ALPHAS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)


def test_the_fit_finds_what_made_the_points():
    truth = LossCurve(0.2, 25.0, 0.4)
    found = fit_loss(ALPHAS, truth(ALPHAS))
    assert (found.height, found.rate, found.floor) == pytest.approx((0.2, 25.0, 0.4), rel=0.01)


def test_the_fit_agrees_with_scipy():
    losses = LossCurve(0.3, 40.0, 0.37)(ALPHAS) + 0.01 * np.array([1, -1, 1, 0, -1, 1, 0])
    found = fit_loss(ALPHAS, losses)

    def curve(alpha, height, rate, floor):
        return height * np.exp(-rate * alpha) + floor

    expected, _ = curve_fit(curve, np.array(ALPHAS), losses, p0=(0.3, 40, 0.37))
    assert (found.height, found.rate, found.floor) == pytest.approx(tuple(expected), rel=0.01)


def test_constants_are_not_negative():
    rising = fit_loss(ALPHAS, 0.3 + np.array(ALPHAS))
    assert rising.height == 0
    steep = fit_loss((0.1, 0.2, 0.3), [1.0, 0.5, 0.0])
    assert steep.floor == 0
    assert steep.height > 0


def test_the_alpha_chosen_is_where_the_slopes_agree():
    curve = LossCurve(0.2, 25.0, 0.4)
    alpha, value, inside = design_alpha(curve, lowest=0.01, highest=0.5)
    assert inside
    slope = 0.02 * (9 + 2 * alpha) / (9 * alpha + alpha**2)
    assert slope == pytest.approx(0.2 * 25 * math.exp(-25 * alpha), rel=1e-4)
    assert value == pytest.approx(float(PrivacyUtility()(alpha) - curve(alpha)))
    assert float(PrivacyUtility()(0.5)) == pytest.approx(0.02 * math.log(6 / 4.75))


def test_costs_may_be_any_functions():
    # Whatever the range and the scale of the costs, the parabola's top is found.
    found = design_alpha(lambda a: 7 * (a - 0.3) ** 2, lambda a: 0 * a, lowest=0.1, highest=2.0)
    assert found.alpha == pytest.approx(0.3, rel=1e-6)


@pytest.mark.parametrize("top", np.geomspace(3e-4, 3.1e-4, 7).tolist())
def test_the_top_is_found_between_any_two_points_of_the_grid(top):
    found = design_alpha(lambda a: (a / top - 1) ** 2, lambda a: 0 * a, lowest=1e-4, highest=2.0)
    assert found.inside
    assert found.alpha == pytest.approx(top, rel=1e-6)


def test_an_end_of_the_range_is_said_to_be_one():
    # Nothing is lost with a smaller alpha: the lower end is chosen.
    low = design_alpha(LossCurve(0.0, 25.0, 0.4), lowest=0.01, highest=0.5)
    assert (low.alpha, low.inside) == (pytest.approx(0.01), False)
    # Privacy is worth nothing: the upper end is.
    high = design_alpha(LossCurve(0.2, 5.0, 0.4), lambda a: 0 * a, lowest=0.01, highest=0.5)
    assert (high.alpha, high.inside) == (pytest.approx(0.5), False)
    assert high.value == pytest.approx(-0.2 * math.exp(-2.5) - 0.4)


@pytest.mark.parametrize(
    ("ends", "words"),
    [
        ((0.0, 1.0), "lowest must be"),
        ((1.0, 0.5), "lowest must be below highest"),
        ((0.5, 0.5), "lowest must be below highest"),
    ],
)
def test_ranges_that_mean_nothing_are_refused(ends, words):
    with pytest.raises(ParameterError, match=words):
        design_alpha(LossCurve(0.2, 25.0, 0.4), lowest=ends[0], highest=ends[1])


def test_what_cannot_be_fitted_or_computed_is_refused():
    with pytest.raises(ParameterError, match="at least three different alphas"):
        fit_loss((0.1, 0.2), [1.0, 0.5])
    with pytest.raises(ParameterError, match="must be finite"):
        design_alpha(lambda alpha: np.where(alpha > 0.3, np.nan, 1.0), lowest=0.05, highest=0.5)
