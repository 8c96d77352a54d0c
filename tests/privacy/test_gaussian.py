"""The Gaussian curve where it is steep, and at its ends."""

import math

import mpmath
import numpy as np
import pytest
from mpmath import mp, mpf

from dpadmm.privacy.gaussian import gaussian_delta, gaussian_log_delta, steepness


def exact_delta(epsilon, mu):
    """The curve, as its formula says."""
    below = mp.ncdf(-mu / 2 - epsilon / mu)
    return mp.ncdf(mu / 2 - epsilon / mu) - mp.exp(epsilon) * below


@pytest.mark.parametrize("mu", [1e-6, 0.1, 1.0, 10.0, 1e3])
@pytest.mark.parametrize("lower", [0.0, 0.3, 1.0, 5.0, 30.0])
def test_steepness_is_a_bound_that_is_not_far_off(lower, mu):
    with mpmath.workdps(50):
        epsilon = mpf(mu) * (mpf(lower) + mpf(mu) / 2)
        true = mpf(mu) * mp.npdf(lower) / exact_delta(epsilon, mpf(mu))
        assert true <= mpf(float(steepness(lower, mu))) <= mpf(1.5) * true


@pytest.mark.parametrize("mu", [1e4, 3e5, 9.5e5, 7e6])
@pytest.mark.parametrize("lower", [0.1, 0.7, 4.0, 37.0])
def test_a_steep_curve_is_rounded_up(lower, mu):
    """Also for a mu that is short of its sum by 1e-15: more than the margin where it is flat."""
    with mpmath.workdps(60):
        for epsilon in (mu * (lower + mu / 2) * (1 + np.arange(5) * 1e-15)).tolist():
            true = mp.log(exact_delta(mpf(epsilon), mpf(mu) * (1 + mpf("1e-15"))))
            found = mpf(float(gaussian_log_delta(epsilon, mu)))
            assert true <= found <= true + mpf("3e-15") * float(steepness(lower, mu)) + mpf("2e-11")


def test_a_delta_is_at_most_one_and_never_undefined():
    log_delta = gaussian_log_delta(0.0, [20.0, 60.0, 1e6, math.inf])
    assert (log_delta <= 0).all()
    assert log_delta[1:].tolist() == [0.0] * 3
    for epsilon in (1e149, 1e152, 1e160, 1e300):
        assert gaussian_log_delta(epsilon, 1.0) < -1e297
        assert 0 < gaussian_delta(epsilon, 1.0) < 1e-300


def test_a_delta_of_all_digits_is_that_of_its_logarithm():
    epsilon, mu = np.array([0.0, 1.0, 8.0]), np.array([0.5, 1.0, 0.7])
    assert gaussian_delta(epsilon, mu).tolist() == np.exp(gaussian_log_delta(epsilon, mu)).tolist()
