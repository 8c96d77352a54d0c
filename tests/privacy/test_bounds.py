"""Bounds at the places where their formulas have nothing left to divide by or to take off."""

import math

import mpmath
import numpy as np
import pytest
from mpmath import mp, mpf

from dpadmm.privacy.curves import OptimalPure, PrivacyLoss
from dpadmm.privacy.events import GaussianRelease, PureRelease


@pytest.mark.parametrize("flips", [0, 1])
def test_a_delta_of_exactly_some_masses_has_the_epsilon_of_the_next_loss_at_least(flips):
    """What the masses leave of delta is 0 or less there, as doubles; of its logarithm nothing."""
    count = 20_000
    for level in np.linspace(17, 19.5, 26).tolist():
        bound = OptimalPure(level, count)
        border = math.exp(bound._masses[1][flips]) / (1 - bound._rounding)
        for delta in (math.nextafter(border, 0.0), border, math.nextafter(border, 1.0)):
            epsilon = bound.epsilon(delta)
            least, most = ((count - 2 * number) * level for number in (flips + 1, flips))
            assert least <= epsilon <= most * (1 + 1e-11)
            with mpmath.workdps(50):
                wrong = 1 / (1 + mp.exp(mpf(level)))
                true = mp.fsum(
                    mp.binomial(count, number)
                    * (1 - wrong) ** (count - number)
                    * wrong**number
                    * max(1 - mp.exp(mpf(epsilon) - (count - 2 * number) * mpf(level)), 0)
                    for number in range(flips + 2)
                )
                assert true <= mpf(delta)


def test_a_delta_of_twice_the_error_of_the_transforms_has_no_epsilon():
    bound = PrivacyLoss([(PureRelease(0.5), 1), (PureRelease(0.3), 1)], 1, 1e-20)
    composed, rounding = bound._composed
    assert bound.epsilon(0.0) == math.inf
    assert bound.epsilon(2 * rounding) == math.inf
    for delta in (math.nextafter(2 * rounding, 1.0), 3 * rounding):
        epsilon = bound.epsilon(delta)
        assert epsilon == composed.get_epsilon_for_delta(delta - rounding)
        assert 0.8 - 1e-9 <= epsilon < 0.81
    assert bound.delta(1.0) == rounding


def test_losses_too_large_for_a_grid_have_no_epsilon_and_a_delta_of_one():
    bound = PrivacyLoss([(GaussianRelease(1.0, 1e-5), 1)], 1, 1e-9)
    assert bound.epsilon(0.5) == math.inf
    assert bound.delta(1e9) == 1
