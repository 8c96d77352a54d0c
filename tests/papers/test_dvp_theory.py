"""DVP's formulas: what the paper prints, what its proof needs, what is proven."""

import math

import numpy as np
import pytest

from dpadmm_papers.dvp.theory import (
    attained_loss,
    corrected,
    printed,
    proof,
    rows_needed,
    rows_needed_without_noise,
)

# alpha = .1, B/C = 100, rho + 2 eta V = 2.01.
SETTING = (0.1, 100.0, 2.01)


def test_algorithm_2_to_the_letter_lowers_the_convexity():
    found = printed(*SETTING)
    assert found.alpha_hat == pytest.approx(-5.1, abs=0.01)
    assert found.phi == pytest.approx(-1.91, abs=0.005)
    assert SETTING[2] + found.phi == pytest.approx(0.099, abs=5e-4)
    assert found.zeta == 0.05


def test_the_proof_s_perturbation_keeps_its_promise():
    found = proof(*SETTING)
    assert found.phi == 0
    assert found.alpha_hat == pytest.approx(0.0975, abs=1e-4)
    assert found.zeta == found.alpha_hat / 2
    for radius in (10, 100, 1000, 1e6):
        assert attained_loss(found.zeta, radius) <= 0.0975 + 1e-4


def test_zeta_as_algorithm_2_prints_it_loses_almost_twice_alpha():
    zeta = proof(*SETTING).alpha_hat
    losses = [attained_loss(zeta, radius) for radius in (10, 100, 1000)]
    np.testing.assert_allclose(losses, [0.1776, 0.1944, 0.1950], atol=1e-4)


def test_the_attained_loss_is_the_largest_over_pairs_of_rows():
    # Any two rows of norm 1 at an output of norm r; the loss's gradients are y l'(y o.x) x.
    radius, angles = 3.0, np.linspace(0, 2 * math.pi, 721)
    units = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    gradients = -units / (1 + np.exp(radius * units[:, :1]))
    apart = np.linalg.norm(gradients[:, None] - gradients[None], axis=-1).max()
    assert attained_loss(1.0, radius) == pytest.approx(apart, rel=1e-4)


@pytest.mark.parametrize("alpha", [0.001, 0.01, 0.1, 1.0])
@pytest.mark.parametrize("ratio", [10.0, 8000.0])
def test_the_corrected_round_costs_alpha(alpha, ratio):
    convexity = 0.05
    found = corrected(alpha, ratio, convexity)
    jacobian = math.log1p(0.25 / (ratio * (convexity + found.phi)))
    assert found.phi >= 0
    assert jacobian <= alpha / 2 * (1 + 1e-12)
    assert 2 * found.zeta + jacobian == pytest.approx(alpha)
    # Phi is no larger than needed.
    assert found.phi == 0 or jacobian == pytest.approx(alpha / 2)


def test_the_theorems_numbers_of_rows_grow_as_they_say():
    base = rows_needed(1.0, 0.1, 0.05, 0.1, 10)
    assert base == pytest.approx(10 * math.log(200) / 0.01)
    assert rows_needed(1.0, 0.1, 0.05, 0.05, 10) == pytest.approx(2 * base)
    assert rows_needed(1.0, 0.1, 0.05, 0.1, 10, constant=3.0) == pytest.approx(3 * base)
    plain = rows_needed_without_noise(1.0, 0.1, 0.05)
    assert plain == pytest.approx(math.log(20) / 0.01)
    assert rows_needed(1.0, 0.1, 0.05, 1e9, 10) == pytest.approx(plain)
    large = rows_needed(100.0, 0.1, 0.05, 0.001, 10, scale=1750)
    assert large == pytest.approx(1750 * 0.25 * 100**2 / 1e-4)
