import numpy as np
import pytest

from dpadmm.algorithms.base import penalty_growth
from dpadmm.algorithms.pr_admm import (
    constant,
    inverse_variance_sum,
    iteration,
    largest_share,
    periodic,
)


@pytest.mark.parametrize(("period", "total"), [(1, 595.79), (10, 58.79)])
def test_periodic_schedule_has_the_exact_sum(period, total):
    decay, blocks = 0.925, 50 // period
    ratios = periodic(50, decay, period)
    closed = period * (1 - decay**blocks) / (decay ** (blocks - 1) - decay**blocks)
    assert inverse_variance_sum(ratios) == pytest.approx(closed, rel=1e-12)
    assert closed == pytest.approx(total, abs=0.006)


def test_iteration_schedule_starts_at_one_and_has_theorem_4s_sum():
    ratios = iteration(50, 0.015)
    assert ratios[0] == 1
    assert ratios[1] == pytest.approx(33.33, abs=0.01)
    assert inverse_variance_sum(ratios) == pytest.approx(0.015 * 50 * 2499 / 3 + 1)


def test_geometric_schedule_grows_exponentially_in_cost():
    for decay, rounds, total in [(0.8, 50, 2.8e5), (0.9, 50, 1.7e3), (0.9, 100, 3.4e5)]:
        assert inverse_variance_sum(periodic(rounds, decay)) == pytest.approx(total, rel=0.03)
    assert largest_share(periodic(50, 0.4)) > 0.5
    assert largest_share(constant(50)) == pytest.approx(0.02)


def test_penalty_growth_is_geometric():
    np.testing.assert_allclose(penalty_growth(0.5, 1.1, 3), [0.5, 0.55, 0.605])


@pytest.mark.parametrize("schedule", [constant, iteration, periodic])
def test_every_schedule_starts_at_one_and_has_one_ratio_a_round(schedule):
    arguments = () if schedule is constant else (0.9,)
    for rounds in (1, 7):
        ratios = schedule(rounds, *arguments)
        assert ratios.shape == (rounds,)
        assert ratios[0] == 1
        assert (ratios > 0).all()


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: constant(0), "rounds must be a positive integer; got 0"),
        (lambda: periodic(5, 1.5), r"decay must be in \(0, 1\]; got 1.5"),
        (lambda: periodic(5, 0.5, 0), "period must be a positive integer; got 0"),
        (lambda: periodic(5000, 0.5), "keep the noise above zero for 5000 rounds"),
        (lambda: penalty_growth(1, 0.9, 5), "growth must be .* got 0.9"),
        (lambda: penalty_growth(0, 1, 5), "initial must be .* got 0"),
        (lambda: penalty_growth(1, 10.0, 500), "finite for 500 rounds"),
    ],
)
def test_a_bad_schedule_is_refused(build, words):
    with pytest.raises(ValueError, match=words):
        build()
