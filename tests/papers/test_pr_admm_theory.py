"""PR-ADMM's totals, threshold and bounds, as printed and as corrected."""

import math

import numpy as np
import pytest

from dpadmm.problem.site import build_topology
from dpadmm_papers.pr_admm.theory import (
    convergence_bound,
    deviation_bound,
    iteration_total,
    noise_accumulated,
    noise_accumulated_printed,
    periodic_total,
    periodic_total_printed,
    threshold,
    zcdp_epsilon,
    zcdp_rho,
)


def test_theorem_3_forgets_an_iteration():
    assert periodic_total_printed(50, 0.925, 1) == pytest.approx(594.79, abs=0.005)
    assert periodic_total(50, 0.925, 1) == pytest.approx(595.79, abs=0.005)
    assert periodic_total_printed(50, 0.925, 10) == pytest.approx(57.79, abs=0.005)
    assert periodic_total(50, 0.925, 10) == pytest.approx(58.79, abs=0.005)
    assert periodic_total_printed(1, 0.925) == pytest.approx(0)
    assert periodic_total(1, 0.925) == 1
    assert periodic_total(5, 0.5, 2) == 1 + 1 + 2 + 2 + 4


def test_theorem_4_is_right_with_the_first_variance_at_the_first_iteration():
    summed = 1 + sum(0.015 * k * (k + 1) for k in range(1, 50))
    assert iteration_total(50, 0.015) == pytest.approx(625.75)
    assert summed == pytest.approx(625.75)


def test_the_conversion_and_its_inverse():
    assert zcdp_epsilon(0.5, 1e-5) == pytest.approx(5.299, abs=5e-4)
    for epsilon in (1e-6, 0.1, 10.0, 1e6):
        assert zcdp_epsilon(zcdp_rho(epsilon, 1e-4), 1e-4) == pytest.approx(epsilon)


def test_lemma_4_s_threshold_is_far_from_the_paper_s_choices():
    # A ring of 5, eta = .5, each party's gradient at most 1: V_2^2 = 5. The paper uses .1 and 1.
    ring, gradient = build_topology("ring", 5), math.sqrt(5)
    assert threshold(ring, 0.5, 1.0, gradient) == pytest.approx(5.2, abs=0.05)
    assert threshold(ring, 0.5, 11.0, gradient) == pytest.approx(118.7, abs=0.05)
    # By hand: 4 and 3.618 are the largest eigenvalues, 1.382 the least.
    expected = (4 + 2 * math.sqrt(3.618034 / 2)) + 2 * 5 / (0.25 * 1.381966) + 1
    assert deviation_bound(ring, 0.5, 1.0, gradient) == pytest.approx(expected, rel=1e-6)


def test_accumulated_noise():
    assert noise_accumulated_printed("periodic", 0.9, 2) == pytest.approx(20)
    assert noise_accumulated("periodic", 4, 0.9, 2) == pytest.approx(2 + 1.8)
    assert noise_accumulated("periodic", 5000, 0.9, 2) == pytest.approx(20)
    assert noise_accumulated_printed("iteration", 0.5) == 2
    # The variances after the first add up to 1 / R_T; the first is missing in Theorem 6.
    assert noise_accumulated("iteration", 100_000, 0.5) == pytest.approx(3, abs=1e-4)


def test_the_bounds_fall_as_one_over_the_rounds():
    ring = build_topology("ring", 5)
    optimum, zero = np.array([1.0, -2.0, 0.5, 0.0]), np.zeros((5, 4))
    known = {"optimum": optimum, "deviation": 3.0, "accumulated": 7.0}
    quiet = convergence_bound(ring, 0.5, 10, first=zero, **known, first_variances=0.0)
    # From 0: 1' L+ 1 / 2 is the number of edges times 2, and ||x*||^2 = 5.25.
    assert quiet == pytest.approx(0.05 * (10 * 5.25 + 18))
    noisy = convergence_bound(ring, 0.5, 10, first=zero, **known, first_variances=0.5)
    extra = 4 * 16 * 0.5 * 7 / (2 * 1.381966)
    assert noisy == pytest.approx(0.05 * (10 * 5.25 + 18 + extra), rel=1e-6)
    twice = convergence_bound(ring, 0.5, 20, first=zero, **known, first_variances=0.5)
    assert twice == pytest.approx(noisy / 2)


def test_the_printed_norm_does_not_see_how_far_the_optimum_is():
    ring, zero = build_topology("ring", 5), np.zeros((5, 4))
    quiet = {"deviation": 0.0, "first_variances": 0.0, "accumulated": 0.0}
    for length in (0.0, 1.0, 100.0):
        told = {"first": zero, "optimum": np.full(4, length), **quiet}
        printed = convergence_bound(ring, 0.5, 10, **told, corrected=False)
        assert printed == pytest.approx(0.0, abs=1e-9)
        assert convergence_bound(ring, 0.5, 10, **told) == pytest.approx(0.05 * 10 * 4 * length**2)
    # Parties that start apart: ||Q x0||^2 is the sum over edges of half their squared distance.
    first = np.arange(5.0)[:, None]
    told = {"first": first, "optimum": np.zeros(1), **quiet}
    sums = sum((first[i, 0] + first[j, 0]) ** 2 for i, j in ring.edges) / 2
    differences = sum((first[i, 0] - first[j, 0]) ** 2 for i, j in ring.edges) / 2
    assert convergence_bound(ring, 0.5, 10, **told) == pytest.approx(0.05 * (differences + sums))
    assert convergence_bound(ring, 0.5, 10, **told, corrected=False) == pytest.approx(
        0.05 * 2 * differences
    )
