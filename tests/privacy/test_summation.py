"""Summands and their sums: multiples of one step, exact in any order, as doubles and as words."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.special import ndtr

from dpadmm.errors import ExchangeError, ParameterError
from dpadmm.privacy.sensitivity import Summation, finest_step, least_steps

STEP = 2.0**-40


def summands(parties=7, seed=0):
    """Numbers of all sizes up to the bound of a summand, on the grid."""
    random = np.random.default_rng(seed)
    sizes = 2.0 ** random.integers(-38, 9, (parties, 50))
    return np.rint(random.uniform(-1, 1, (parties, 50)) * sizes / STEP) * STEP


def summation(parties=7, bound=3600.0):
    return Summation(STEP, parties, 3, bound)


def test_sums_are_exact_in_any_order_and_equal_to_those_of_words():
    values = summands()
    exact = [float(sum((Fraction(each) for each in column), Fraction(0))) for column in values.T]
    random = np.random.default_rng(1)
    for _ in range(20):
        order = random.permutation(len(values))
        np.testing.assert_array_equal(values[order].sum(axis=0), exact)
    words = summation().to_words(values)
    masks = random.integers(0, 2**64, words.shape, dtype=np.uint64)
    masked = words + masks
    total = masked.sum(axis=0, dtype=np.uint64) - masks.sum(axis=0, dtype=np.uint64)
    np.testing.assert_array_equal(summation().from_words(total), exact)


def test_words_are_two_s_complement():
    words = Summation(0.5, 3, 1, 10.0).to_words(np.array([0.0, 0.5, -0.5, -10.0]))
    assert words.tolist() == [0, 1, 2**64 - 1, 2**64 - 20]


@pytest.mark.parametrize("bound", [1e-9, 0.7, 1.0, 123.4, 2.0**20])
def test_the_finest_step_is_the_finest(bound):
    step = finest_step(bound)
    assert math.log2(step) == round(math.log2(step))
    assert bound < 2**52 * step
    assert not bound < 2**52 * step / 2
    Summation(step, 3, 1, bound)
    with pytest.raises(ParameterError, match="bound must be positive and below"):
        Summation(step / 2, 3, 1, bound)


@pytest.mark.parametrize("step", [0.0, -0.5, 0.3, math.nan, math.inf])
def test_a_step_is_a_power_of_two(step):
    with pytest.raises(ParameterError, match="step must be a power of two"):
        Summation(step, 3, 1, 1.0)


def test_a_sum_out_of_range_is_refused():
    for steps in (3600 * 2**40 + 1, -3600 * 2**40 - 1, 2**63 - 1, -(2**63)):
        word = np.array([steps % 2**64], dtype=np.uint64)
        with pytest.raises(ExchangeError, match="a sum must be at most 3600"):
            summation().from_words(word)


def test_a_sum_at_its_bound_is_one():
    for steps in (3600 * 2**40, -3600 * 2**40):
        word = np.array([steps % 2**64], dtype=np.uint64)
        assert abs(summation().from_words(word)) == 3600
    tiny = Summation(0.25, 3, 1, 0.5)
    assert tiny.from_words(np.zeros(0, dtype=np.uint64)).size == 0
    assert tiny.from_words(np.array([2, 0], dtype=np.uint64)).tolist() == [0.5, 0.0]


@pytest.mark.parametrize("bound", [0.0, -0.5, math.nan, 2.0**12])
def test_a_bound_is_positive_and_below_what_doubles_count(bound):
    with pytest.raises(ParameterError, match="bound must be positive and below"):
        Summation(STEP, 3, 1, bound)
    assert Summation(STEP, 3, 1, math.nextafter(2.0**12, 0)).bound < 2.0**12


@pytest.mark.parametrize("value", [STEP / 2, math.nan])
def test_a_summand_off_the_grid_is_not_sent(value):
    with pytest.raises(ParameterError, match="multiples of"):
        summation().to_words(np.array([0.0, value]))


def test_a_summand_beyond_the_bound_is_seen_in_the_sum_alone():
    """Refusing it would tell of one party's rows and noise."""
    words = summation().to_words(np.array([4000.0]))
    with pytest.raises(ExchangeError, match="a sum must be at most 3600"):
        summation().from_words(words)
    others = summation().to_words(np.array([-1000.0]))
    assert summation().from_words(words + others) == 3000.0


@pytest.mark.parametrize("numbers", [1.0, 1e7, 1e9, 1e12])
def test_discrete_noise_costs_next_to_nothing_more_than_rounded_noise(numbers):
    steps = least_steps(numbers)
    assert steps >= 2**24
    loss = (2 * math.sqrt(100 * numbers) + 200) / (24 * steps**2)
    assert loss <= 1.0000001e-11
    # And no more steps than that takes.
    assert steps == 2**24 or loss == pytest.approx(1e-11, rel=1e-9, abs=0)


@pytest.mark.parametrize("spread", [4.0, 8.0, 16.0])
def test_a_discrete_gaussian_is_a_rounded_one_times_what_the_statement_says(spread):
    """exp((1 - x^2) / 24 s^2), to the next order in 1 / s^2, at places in the bulk."""
    places = np.arange(-5 * spread, 5 * spread + 1)
    discrete = np.exp(-(places**2) / (2 * spread**2)) / (math.sqrt(2 * math.pi) * spread)
    rounded = ndtr((places + 0.5) / spread) - ndtr((places - 0.5) / spread)
    loss = np.log(discrete / rounded)
    stated = (1 - (places / spread) ** 2) / (24 * spread**2)
    assert np.abs(loss - stated).max() < 1 / spread**4
    assert np.abs(loss).max() > 10 / spread**4
