"""Bounds on an attacker's guesses against mechanisms that attain them."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from dpadmm.privacy.accountant import Odds, attacker_odds
from dpadmm.privacy.gaussian import gaussian_epsilon


def every_test(epsilon, delta):
    """False alarms and detections of all tests of the mechanism that attains (epsilon, delta).

    With probability delta it tells which candidate it is, else it answers at random, the truth
    e^epsilon times as often.
    """
    truth = math.exp(epsilon) / (1 + math.exp(epsilon))
    one = [delta, 0.0, (1 - delta) * truth, (1 - delta) * (1 - truth)]
    other = [0.0, delta, (1 - delta) * (1 - truth), (1 - delta) * truth]
    for chosen in itertools.product([0, 1], repeat=4):
        yield (
            sum(p for p, c in zip(other, chosen, strict=True) if c),
            sum(p for p, c in zip(one, chosen, strict=True) if c),
        )


@given(st.floats(0, 12), st.floats(0, 0.5))
def test_the_pair_is_attained_and_never_beaten(epsilon, delta):
    odds = attacker_odds(epsilon, delta, "renyi")
    points = list(every_test(epsilon, delta))
    best = max(0.5 * found + 0.5 * (1 - alarms) for alarms, found in points)
    assert odds.right == pytest.approx(best, abs=1e-12)
    for alarms, found in points:
        assert found <= odds.detections(min(alarms, 1.0)) + 1e-10


@given(st.floats(0.01, 8), st.floats(1e-12, 1e-2))
def test_gaussian_releases_are_bounded_exactly(mu, delta):
    odds = attacker_odds(float(gaussian_epsilon(mu, delta)), delta, "exact-gaussian")
    # The best test is a threshold in the middle of the two means.
    best = 0.5 * norm.cdf(mu / 2) + 0.5 * norm.sf(-mu / 2)
    # Where epsilon is 0, delta alone says how large mu may be.
    if odds.epsilon > 0:
        assert odds.right == pytest.approx(best, rel=1e-6)
    assert odds.right >= best - 1e-15
    alarms = np.linspace(0, 1, 50)
    real = norm.sf(norm.isf(alarms) - mu)
    assert np.all(odds.detections(alarms) >= real - 1e-12)


@given(st.floats(0, 600), st.floats(0, 1), st.sampled_from(["exact-gaussian", "privacy-loss"]))
def test_bounds_are_probabilities_and_no_worse_than_chance(epsilon, delta, accountant):
    odds = attacker_odds(epsilon, delta, accountant)
    alarms = np.linspace(0, 1, 101)
    found = odds.detections(alarms)
    assert 0.5 <= odds.right <= 1
    assert np.all((found >= alarms - 1e-12) & (found <= 1))
    assert np.all(np.diff(found) >= -1e-12)
    # Knowing that noise was Gaussian can only help.
    assert odds.right <= Odds(epsilon, delta).right


def test_without_a_guarantee_nothing_is_bounded():
    odds = attacker_odds(math.inf, 0.0, "none")
    assert odds.right == 1
    assert odds.detections([0.0, 0.5]).tolist() == [1, 1]
    assert odds.theorem == "none"


def test_the_gaussian_bound_is_the_smaller_one():
    exact, pair = attacker_odds(1, 1e-5, "exact-gaussian"), attacker_odds(1, 1e-5, "renyi")
    assert pair.right == pytest.approx(0.731061, abs=1e-6)
    assert exact.right == pytest.approx(0.5533, abs=1e-3)
    assert "Dong, Roth, Su" in exact.theorem
    assert "Kairouz" in pair.theorem


def test_a_sampler_that_is_not_ideal_is_counted():
    """Added to the exact trade-off: a billionth of delta, which shows where delta is large."""
    odds = Odds(3.0, 0.5, mu=1.0)
    assert odds.right - norm.cdf(0.5) == pytest.approx(5e-10, rel=1e-5)
    assert odds.detections(0.2) - norm.sf(norm.isf(0.2) - 1) == pytest.approx(5e-10, rel=1e-5)


def test_detections_under_the_pair_are_the_two_lines_of_the_theorem():
    odds = Odds(1.0, 0.01)
    assert odds.detections(0.0) == 0.01
    assert odds.detections(0.1) == pytest.approx(math.e * 0.1 + 0.01, rel=1e-12)
    assert odds.detections(0.7) == pytest.approx(1 - (1 - 0.01 - 0.7) / math.e, rel=1e-12)
    assert odds.detections(1.0) == 1
    assert Odds(2000.0, 0.01).detections([0.0, 1e-9]).tolist() == [0.01, 1.0]


@pytest.mark.parametrize(
    ("delta", "known"), [(1e-299, True), (1e-301, False), (0.0, False), (0.99, True), (1.0, False)]
)
def test_mu_is_known_where_delta_has_its_digits(delta, known):
    assert (attacker_odds(1.0, delta, "exact-gaussian").mu is not None) == known
    assert attacker_odds(1.0, delta, "renyi").mu is None
    assert attacker_odds(math.inf, delta, "exact-gaussian").mu is None
