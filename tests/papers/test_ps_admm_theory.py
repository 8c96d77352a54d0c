import math

import numpy as np
import pytest

from dpadmm.errors import ParameterError
from dpadmm.privacy.gaussian import gaussian_epsilon
from dpadmm_papers.ps_admm import theory


def test_theorem_1_and_2_agree_for_one_row_batches():
    one = theory.subsampled_noise(1, 6838, 2500, 0.5, 1e-3)
    assert math.isclose(one, theory.privacy_noise(6838, 50, 50, 0.5, 1e-3))


def test_theorem_2_in_the_paper_s_experiment():
    assert math.isclose(theory.privacy_noise(6838, 50, 50, 0.5, 1e-3), 0.0384, rel_tol=2e-3)
    assert math.isclose(theory.privacy_noise(6838, 50, 50, 1.0, 1e-5), 0.0248, rel_tol=2e-3)
    assert math.isclose(theory.privacy_condition(6838, 50, 50, 0.5), 9.35e3, rel_tol=1e-3)


def test_the_full_gradients_alone_exceed_the_claim():
    mu = theory.gradient_mu(0.5, 1e-3)
    sigma = theory.privacy_noise(6838, 50, 50, 0.5, 1e-3)
    assert math.isclose(mu, math.sqrt(2500) * (2 / 6838) / sigma)
    assert math.isclose(float(gaussian_epsilon(mu, 1e-3)), 0.976, abs_tol=2e-3)


@pytest.mark.parametrize("product", [0.01, 0.2, 0.45, 0.49])
def test_the_printed_average_is_an_extrapolation(product):
    zeta, xi = theory.printed_coefficients(product / 0.35, 0.35)
    eta = product / 0.35
    assert zeta <= -2 * eta
    assert math.isclose(xi / (2 * eta), 2 / (1 - 2 * product))
    assert xi / (2 * eta) > 2


@pytest.mark.parametrize("product", [0.01, 0.45, 1.0])
def test_the_repaired_average_is_convex(product):
    eta = product / 0.35
    zeta, xi = theory.repaired_coefficients(eta, 0.35)
    assert zeta >= 0
    assert xi > 0
    assert math.isclose(zeta + xi, 2 * eta)
    assert math.isclose(zeta, 2 * eta * (1 - product) / (2 - product), abs_tol=1e-15)


def test_theorem_3_is_empty_without_strong_convexity():
    assert theory.largest_step(0.75, 0.0) == 0
    assert theory.smallest_inner_steps(0.75, 0.0, 0.5) == math.inf


def test_theorem_3_needs_far_more_inner_steps_than_theorem_4_says():
    steps = theory.smallest_inner_steps(0.75, 0.01, 0.5)
    assert math.isclose(steps, 3.6e5, rel_tol=0.02)
    assert 0.25 / 0.01 == 25
    best = min(
        theory.smallest_inner_steps(0.75, 0.01, 0.5, step_size=eta)
        for eta in np.linspace(0.05, 0.95, 181) * theory.largest_step(0.75, 0.01)
    )
    assert math.isclose(best, steps, rel_tol=0.01)
    # The condition as printed, at that S and just below it.
    eta = theory.largest_step(0.75, 0.01) / 2
    xi = theory.printed_coefficients(eta, 0.75).xi
    for factor, holds in ((1 + 1e-9, True), (1 - 1e-6, False)):
        inner = factor * steps
        left = 1 - 0.5 * xi / 2 - 0.01 * xi / 4
        left += 4 * eta**2 * 0.75**2 * inner / (1 - 2 * eta * 0.75)
        assert (left <= inner * eta * 0.01 / 2) == holds


def test_no_number_of_inner_steps_satisfies_theorem_3_at_its_largest_step():
    largest = theory.largest_step(0.75, 0.01)
    assert theory.smallest_inner_steps(0.75, 0.01, 0.5, step_size=largest * (1 + 1e-9)) == math.inf


def test_the_optimal_number_of_messages_balances_start_and_noise():
    eta, smooth, features = 0.3, 0.35, 105
    sigma = theory.privacy_noise(6838, 1, 50, 1.0, 1e-5)
    growth = theory.noise_growth(eta, smooth, features, sigma, parties=5)
    best, bound = theory.optimal_rounds(3.0, growth)
    assert math.isclose(bound, theory.convergence_bound(3.0, best, growth))
    for other in (best / 1.1, best * 1.1):
        assert theory.convergence_bound(3.0, other, growth) > bound
    printed = theory.noise_growth(eta, smooth, features, sigma, parties=5, repaired=False)
    assert printed == pytest.approx(
        5 * features * sigma**2 * 2 * eta / (1 - 2 * eta * smooth), rel=1e-12
    )
    assert growth < printed / 2


def test_theorem_4_has_the_order_of_the_optimum():
    first = theory.order_of_rounds(6838, 1.0, 1e-5, 105, 0.25, 0.01)
    assert math.isclose(theory.order_of_rounds(13676, 1.0, 1e-5, 105, 0.25, 0.01), 2 * first)
    assert math.isclose(theory.order_of_rounds(6838, 1.0, 1e-5, 420, 0.25, 0.01), first / 2)


def test_a_step_outside_its_range_is_refused():
    with pytest.raises(ParameterError, match="step_size times smoothness"):
        theory.printed_coefficients(0.5, 1.0)
    with pytest.raises(ParameterError, match="step_size times smoothness"):
        theory.repaired_coefficients(1.1, 1.0)
    assert theory.repaired_coefficients(1.0, 1.0).zeta == 0


@pytest.mark.parametrize("eta", [0.02, 0.1])
def test_the_repair_s_noise_term_bounds_one_noisy_step(eta):
    # The step's inequality for a quadratic L(v) = v_L |v|^2 / 2 and exact gradients plus noise:
    # E|v'-x|^2 + zeta <v-x, grad> + xi E[L(v') - L(x)] <= |v-x|^2 + eta xi p sigma^2 at x = 0,
    # with equality up to the strong convexity terms; both sides in closed form.
    smooth, sigma, features = 4.0, 0.7, 3
    point = np.array([1.0, -2.0, 0.5])
    zeta, xi = theory.repaired_coefficients(eta, smooth)
    spread = features * sigma**2
    after = (1 - eta * smooth) ** 2 * point @ point + eta**2 * spread
    left = after + zeta * smooth * point @ point + xi * smooth / 2 * after
    assert left <= point @ point + eta * xi * spread + 1e-12
