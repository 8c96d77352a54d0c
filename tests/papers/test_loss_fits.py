"""Fits of a loss over alpha: constants that are near, far, or not told apart."""

import numpy as np

from dpadmm_papers.loss_fits import fit_resampled
from dpadmm_papers.trade_off import LossCurve, PrivacyUtility, design_alpha

ALPHAS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)


def test_constants_are_the_papers_if_they_are_near():
    truth, draw = LossCurve(0.2, 25.0, 0.4), np.random.default_rng(0)
    samples = {alpha: truth(alpha) + 0.005 * draw.normal(size=20) for alpha in ALPHAS}
    fitted = fit_resampled(samples, draws=500, name="near")
    assert fitted.has(0.2, 25.0) == "stands"
    assert fitted.has(0.4, 25.0) == fitted.has(0.2, 50.0) == "does not stand"
    assert fitted.follows(0.05).verdict == "stands"
    assert fitted.agrees(fitted) == "stands"
    # Few and noisy runs do not decide: their wide interval holds much, and confirms nothing.
    noisy = {alpha: truth(alpha) + 0.1 * draw.normal(size=3) for alpha in ALPHAS}
    assert fit_resampled(noisy, draws=500, name="wide").has(0.2, 25.0) == "not decided"


def test_the_alpha_that_fits_choose_lies_around_that_of_the_truth():
    truth, draw = LossCurve(0.2, 25.0, 0.4), np.random.default_rng(0)
    samples = {alpha: truth(alpha) + 0.005 * draw.normal(size=20) for alpha in ALPHAS}
    fitted = fit_resampled(samples, draws=100, name="design")
    chosen, inside = fitted.chosen(PrivacyUtility(), (0.01, 0.5))
    assert chosen.low < design_alpha(truth, lowest=0.01, highest=0.5).alpha < chosen.high
    assert inside == 1.0
    # A range that ends before the best alpha decides itself.
    _, inside = fitted.chosen(PrivacyUtility(), (0.01, 0.05))
    assert inside == 0.0


def test_fits_without_a_trade_off_agree():
    rising = {alpha: np.full(3, 0.4 + alpha) for alpha in ALPHAS}
    fitted = fit_resampled(rising, draws=50, name="rising")
    assert fitted.curve.height == 0
    assert fitted.agrees(fitted) == "stands"
