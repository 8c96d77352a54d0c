"""Every figure errs towards a larger cost: held against the same formulas in a hundred digits."""

import itertools
import math
import sys
from collections import Counter
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp, mpf
from scipy.special import ndtri

from dpadmm.errors import ParameterError
from dpadmm.ledger.filters import Policy
from dpadmm.privacy.accountant import (
    Odds,
    _ladder,
    _renyi,
    _split,
    attacker_odds,
    delta_spent,
    epsilon_spent,
    joint_label_delta,
    joint_label_guarantee,
    spend_over_rounds,
    total_mu,
)
from dpadmm.privacy.calibration import (
    InfeasibleBudgetError,
    exponential_rate,
    objective_sigma,
    pure_level,
)
from dpadmm.privacy.curves import (
    Basic,
    ExactGaussian,
    OptimalPure,
    PrivacyLoss,
    gaussian_mu_squared,
    group_sampling_rate,
    loss_masses,
    objective_jacobian_rdp,
    rdp,
    renyi_to_delta,
    renyi_to_epsilon,
)
from dpadmm.privacy.events import (
    GaussianObjectivePerturbation,
    GaussianRelease,
    InexactSolve,
    LabelRandomizedResponse,
    PostProcessing,
    PureRelease,
    SharedGaussian,
    SubsampledGaussian,
)
from dpadmm.privacy.gaussian import (
    exp_up,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_log_delta,
    gaussian_mu,
    round_down,
    round_up,
    steepness,
    sum_up,
)
from dpadmm.privacy.mechanisms import ObjectivePerturbation
from dpadmm.privacy.sensitivity import jacobian_epsilon, jacobian_ratio


@pytest.fixture(autouse=True)
def _digits():
    with mpmath.workdps(100):
        yield


def exact_delta(epsilon, mu):
    """The Gaussian curve, as its formula says."""
    epsilon, mu = mpf(epsilon), mpf(mu)
    if not epsilon:
        return mp.erf(mu / mp.sqrt(8))
    below = mp.ncdf(-mu / 2 - epsilon / mu)
    return mp.ncdf(mu / 2 - epsilon / mu) - mp.exp(epsilon) * below


def powers(draw, low, high, size):
    """Numbers of every size between two powers of ten."""
    return (10.0 ** draw.uniform(low, high, size)).tolist()


# Sums and products -------------------------------------------------------------------------------

positive = st.floats(5e-324, 1e300)


@given(st.fractions(), st.integers(-1200, 1200))
def test_a_fraction_is_rounded_up_to_the_next_double(value, exponent):
    value *= Fraction(2) ** exponent
    above, below = round_up(value), round_down(value)
    assert below <= value <= above
    assert above in (below, math.nextafter(below, math.inf))


def test_a_double_is_rounded_to_itself():
    for value in (0.0, 5e-324, 0.1, 1.0, 1e300, sys.float_info.max):
        assert round_up(Fraction(value)) == round_down(Fraction(value)) == value
    assert round_up(2 * Fraction(sys.float_info.max)) == math.inf
    assert round_up(Fraction(1, 10**400)) == 5e-324


@given(st.lists(positive, max_size=20))
def test_sums_are_the_least_double_that_is_no_less(terms):
    exact = sum(map(Fraction, terms), Fraction(0))
    assert sum_up(iter(terms)) == round_up(exact)
    assert sum_up([*terms, math.inf]) == math.inf


@pytest.mark.parametrize(
    "logarithm", [-1e4, -745.2, -745.0, -744.0, -710.0, -1.0, -1e-17, 0.0, 3.0]
)
def test_exponentials_are_rounded_up(logarithm):
    found = exp_up(logarithm)
    assert found >= mp.exp(mpf(logarithm))
    assert found <= mp.exp(mpf(logarithm)) * (1 + mpf("5e-16")) + mpf("1e-323")
    assert exp_up(0.0) == 1


@given(
    st.lists(st.tuples(st.floats(1e-9, 1e3), st.integers(1, 9)), min_size=1, max_size=8),
    st.integers(1, 9),
)
def test_pure_releases_without_delta_cost_their_sum_rounded_up_once(sizes, rows):
    history = [(PureRelease(epsilon), count) for epsilon, count in sizes]
    exact = rows * sum(count * Fraction(epsilon) for epsilon, count in sizes)
    found = epsilon_spent(history, 0.0, rows_per_person=rows).epsilon
    if len({epsilon for epsilon, _ in sizes}) > 1 or rows == 1:
        assert found == round_up(exact)
    else:  # first for all rows, then for all releases
        assert round_up(exact) <= found <= float(exact) * (1 + 1e-15)


@pytest.mark.parametrize("rows", [1, 7])
def test_thousands_of_different_epsilons_cost_their_sum(rows):
    draw = np.random.default_rng(rows)
    sizes = powers(draw, -12, 1, 3000)
    history = [(PureRelease(epsilon), int(draw.integers(1, 50))) for epsilon in sizes]
    exact = rows * sum(count * Fraction(event.epsilon) for event, count in history)
    assert epsilon_spent(history, 0.0, rows_per_person=rows).epsilon == round_up(exact)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.3])
def test_one_pure_release_costs_what_it_says(epsilon):
    event = PureRelease(epsilon)
    assert epsilon_spent([event], 0.0).epsilon == epsilon
    assert epsilon_spent([event, event], 0.0).epsilon == 2 * epsilon
    assert delta_spent([event], epsilon).delta == 0


def test_sums_of_epsilons_that_were_rounded_to_nearest_are_not():
    """Nine times 0.1 is more than 0.9; a tiny release beside a large one is not lost."""
    assert epsilon_spent([(PureRelease(0.1), 9)], 0.0).epsilon >= 9 * Fraction(0.1)
    assert epsilon_spent([PureRelease(1.0), PureRelease(1e-17)], 0.0).epsilon > 1
    lost = Basic(1.0, ExactGaussian(1e-20))
    rest = lost.rest.epsilon(1e-30)
    assert 0 < rest < 1e-17
    assert lost.epsilon(1e-30) == math.nextafter(1.0, 2.0)
    # 1 - 1e-17 is 1 as a double: that much is not left for the rest.
    assert Basic(1e-17, OptimalPure(1.0, 1)).delta(1.0) > 0
    assert Basic(math.inf, ExactGaussian(1.0)).delta(1.0) == 1
    assert Basic(1.0, ExactGaussian(1.0)).epsilon(0.0) == math.inf


# Gaussian releases -------------------------------------------------------------------------------

# At both sides of every place where the way of computing changes.
LOWER = [-20.0, -3.001, -3.0, -2.999, -1.0, 0.0, 1.0, 20.0, 36.0, 99.9, 100.1, 150.0]


@pytest.mark.parametrize("mu", [1e-8, 1e-3, 0.4999, 0.5, 0.5001, 2.0, 7.0, 60.0])
@pytest.mark.parametrize("lower", LOWER)
def test_the_gaussian_curve_is_rounded_up(lower, mu):
    epsilon = mu * (lower + mu / 2)
    if epsilon < 0:
        epsilon = 0.0
    true = mp.log(exact_delta(epsilon, mu))
    ours = mpf(float(gaussian_log_delta(epsilon, mu)))
    # So far out, where delta is below 1e-2000, a bound takes the place of the curve.
    assert true <= ours <= true + mpf("3e-4" if lower > 100 else "3e-11")
    assert float(gaussian_delta(epsilon, mu)) >= mp.exp(true)


@pytest.mark.parametrize("seed", range(6))
def test_steep_curves_are_rounded_up_for_a_mu_that_is_short_of_its_sum(seed):
    """Any size of mu, at both ends of delta; a relative error of mu counts steepness times."""
    draw = np.random.default_rng(seed)
    for mu, lower in zip(powers(draw, -10, 7, 40), draw.uniform(-8, 40, 40), strict=True):
        epsilon = max(mu * (lower + mu / 2), 0.0)
        exact, larger = mpf(mu), mpf(mu) * (1 + mpf("1e-15"))
        there = mpf(epsilon) / exact - exact / 2
        true = exact_delta(epsilon, mu)
        assert exact * mp.npdf(there) <= true * mpf(float(steepness(float(there), mu))) * 1.0001
        above = exact_delta(epsilon, larger)
        assert mp.log(above) <= mpf(float(gaussian_log_delta(epsilon, mu)))
        assert above <= mpf(float(gaussian_delta(epsilon, mu)))


@pytest.mark.parametrize("lower", [37.4, 37.9, 38.2, 38.4, 38.45, 38.5, 39.0])
@pytest.mark.parametrize("mu", [1e-3, 1.0, 30.0])
def test_a_delta_of_few_digits_is_rounded_up(mu, lower):
    epsilon = mu * (lower + mu / 2)
    true, found = exact_delta(epsilon, mu), mpf(float(gaussian_delta(epsilon, mu)))
    assert true <= found <= true * (1 + mpf("1e-9")) + mpf("1.1e-323")


def exact_mu(history, rows):
    """The formulas of the events, added up."""
    squares = []
    for event, count in history:
        if isinstance(event, InexactSolve):
            mu = 2 * mpf(event.tolerance) / mpf(event.strong_convexity) / mpf(event.output_sigma)
        else:
            mu = rows * mpf(event.sensitivity) / mpf(event.sigma)
        squares.append(count * mu**2)
    return mp.sqrt(mp.fsum(squares))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("rows", [1, 3])
def test_histories_of_gaussians_are_rounded_up(seed, rows):
    draw = np.random.default_rng(seed)
    for size in powers(draw, -9, 4, 5):
        history = [
            (kind(float(size * draw.uniform(0.1, 1)), *map(float, draw.uniform(0.5, 2, n))), count)
            for kind, n in [(GaussianRelease, 1), (InexactSolve, 2), (GaussianRelease, 1)]
            for count in (1, int(draw.integers(2, 900)))
        ]
        mu = exact_mu(history, rows)
        assert abs(mpf(total_mu(history, rows_per_person=rows)) - mu) <= mpf("1e-15") * mu
        for delta in (*powers(draw, -300, -12, 1), *powers(draw, -12, -0.1, 1)):
            epsilon = epsilon_spent(history, delta, rows_per_person=rows).epsilon
            assert exact_delta(epsilon, mu) <= mpf(delta)
        epsilon = float(mu * (mu / 2 + draw.uniform(0, 38)))
        assert exact_delta(epsilon, mu) <= mpf(
            delta_spent(history, epsilon, rows_per_person=rows).delta
        )


@pytest.mark.parametrize("parties", [3, 7, 1000])
def test_shared_noise_alone_is_rounded_up(parties):
    event = SharedGaussian(0.37, 4.1, parties, 1)
    mu = mp.sqrt(parties - 1) * mpf(0.37) / mpf(4.1)
    for delta in (1e-300, 1e-12, 1e-3):
        assert exact_delta(epsilon_spent([event.alone], delta).epsilon, mu) <= mpf(delta)


def test_rounds_add_up_exactly_after_each():
    """Squares below the last bit of the first: a running sum of doubles would lose them all."""
    many = 30_000
    rounds = [GaussianRelease(1.0, 1.0), *[GaussianRelease(1e-8, 1.0)] * many]
    delta = 1e-5
    spent = spend_over_rounds(rounds, delta)
    for place in (0, many // 2, many):
        mu = mp.sqrt(1 + place * mpf(1e-8) ** 2)
        assert exact_delta(spent[place], mu) <= mpf(delta)
    assert spent[0] == gaussian_epsilon(1.0, delta)
    assert spent[-1] == pytest.approx(epsilon_spent(rounds, delta).epsilon, rel=1e-15)
    huge = spend_over_rounds([GaussianRelease(1e160, 1.0)] * 2, delta)
    assert huge.tolist() == [math.inf] * 2
    assert spend_over_rounds([], delta).shape == (0,)


@pytest.mark.parametrize(
    "event",
    [
        GaussianRelease(5e-324, 10.0),
        GaussianRelease(1e-170, 1.0),
        SharedGaussian(1e-200, 1e100, 3, 1),
        InexactSolve(1e-300, 1e200, 1e-100),
        InexactSolve(1e-200, 1.0, 1.0),
        PureRelease(1e-200),
        SubsampledGaussian(1, 10, 1e-200, 1e150),
        GaussianObjectivePerturbation(1e-200, 0.0),
    ],
)
def test_costs_too_small_for_a_double_are_not_free(event):
    square = gaussian_mu_squared(event)
    assert square is None or sys.float_info.min <= square <= 1e-290
    assert 0 < float(rdp(event, 2.0)[0]) <= 1e-199
    assert gaussian_mu_squared(GaussianRelease(0.0, 1.0)) == 0
    assert gaussian_mu_squared(InexactSolve(0.0, 1.0, 1.0)) == 0
    assert gaussian_mu_squared(PostProcessing()) == 0


@pytest.mark.parametrize("mu", [1e6, 1e7, 1e20, 1e150])
def test_next_to_no_noise_has_an_epsilon_that_is_rounded_up(mu):
    epsilon = float(gaussian_epsilon(mu, 1e-5))
    with mpmath.workdps(700):
        assert exact_delta(epsilon, mu) <= mpf(1e-5)
    assert epsilon <= mu * mu / 2 * (1 + 1e-5)


@pytest.mark.parametrize("mu", [1e-6, 1e-3, 0.1, 0.5, 1.0, 5.0, 50.0])
@pytest.mark.parametrize("delta", [1e-300, 1e-100, 1e-12, 1e-5, 0.1, 0.9])
def test_epsilon_of_a_gaussian_is_rounded_up(mu, delta):
    epsilon = float(gaussian_epsilon(mu, delta))
    assert exact_delta(epsilon, mu) <= mpf(delta)
    if epsilon:
        assert exact_delta(epsilon * (1 - 1e-9), mu) > mpf(delta)


@pytest.mark.parametrize("epsilon", [0.0, 1e-9, 1e-3, 0.3, 1.0, 8.0, 300.0])
@pytest.mark.parametrize("delta", [1e-300, 1e-12, 1e-5, 0.1, 0.9])
def test_mu_of_a_budget_is_rounded_down(epsilon, delta):
    mu = float(gaussian_mu(epsilon, delta))
    assert exact_delta(epsilon, mu) <= mpf(delta)
    assert exact_delta(epsilon, mu * (1 + 1e-8)) > mpf(delta)


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 10.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-5, 1e-2])
def test_what_a_ledger_may_spend_is_within_its_budget(epsilon, delta):
    limit = Policy(epsilon, delta).make_filter().limit
    assert exact_delta(epsilon, mp.sqrt(mpf(limit))) <= mpf(delta)
    renyi = Policy(epsilon, delta, filter="renyi").make_filter()
    a = mpf(renyi.order)
    assert renyi.limit > 0
    assert mpf(renyi.limit) + mp.log(1 - 1 / a) - (mp.log(delta) + mp.log(a)) / (a - 1) <= epsilon


@pytest.mark.parametrize("seed", range(6))
def test_limits_of_any_budget_hold_for_costs_that_are_rounded(seed):
    """Steep curves and orders near 1 among them; costs may be short by 1e-15 and 2e-15."""
    draw = np.random.default_rng(seed)
    for epsilon, delta in zip(powers(draw, -6, 7, 15), powers(draw, -19, -0.1, 15), strict=True):
        limit = Policy(epsilon, delta).make_filter().limit
        mu = mp.sqrt(mpf(limit) * (1 + mpf("1e-15")))
        assert exact_delta(epsilon, mu) <= mpf(delta)
        for order in powers(draw, -9, 9, 4):
            try:
                renyi = Policy(epsilon, delta, filter="renyi", order=1 + order).make_filter()
            except ParameterError:
                continue  # nothing would be left to spend
            a, most = mpf(1 + order), mpf(renyi.limit) * (1 + mpf("2e-15"))
            assert most + mp.log(1 - 1 / a) - (mp.log(delta) + mp.log(a)) / (a - 1) <= epsilon


def test_a_limit_leaves_a_run_of_exactly_the_budget_its_rounding():
    mu = float(gaussian_mu(1.0, 1e-5))
    limit = Policy(1.0, 1e-5).make_filter().limit
    assert mu**2 * (1 + 9e-15) < limit < mu**2 * (1 + 1.1e-14)
    # Not where the curve is so steep that there is no room for it.
    assert Policy(1e5, 1e-5).make_filter().limit == float(gaussian_mu(1e5, 1e-5)) ** 2
    assert Policy(1e4, 1e-5).make_filter().limit > float(gaussian_mu(1e4, 1e-5)) ** 2


def exact_quantile(share):
    """The normal quantile, also of a share far below 1e-100."""
    return mp.findroot(lambda z: mp.log(mp.ncdf(z) / share), float(ndtri(share)))


@pytest.mark.parametrize("seed", range(4))
def test_the_odds_of_a_pair_are_rounded_up(seed):
    draw = np.random.default_rng(seed)
    for epsilon, delta in zip(
        powers(draw, -17, 2.8, 40), powers(draw, -300, -0.01, 40), strict=True
    ):
        for odds in (Odds(epsilon, delta), Odds(epsilon, 0.0)):
            grown, rest = mp.exp(mpf(epsilon)), mpf(odds.delta)
            assert odds.right >= (grown + rest) / (1 + grown)
            for alarms in (0.0, *powers(draw, -300, 0, 2), 1.0):
                lines = (grown * mpf(alarms) + rest, 1 - (1 - rest - mpf(alarms)) / grown)
                assert mpf(float(odds.detections(alarms))) >= min(*lines, 1)
        ((mu,), (alarms,)) = powers(draw, -9, 1, 1), powers(draw, -300, 0, 1)
        exact = Odds(800.0, 0.0, mu=mu)
        assert exact.right >= mp.ncdf(mpf(mu) / 2)
        quantile = exact_quantile(alarms)
        assert mpf(float(exact.detections(alarms))) >= mp.ncdf(quantile + mpf(mu))
    assert Odds(0.0, 0.0).right == 0.5


@pytest.mark.parametrize("mu", [0.01, 0.3, 1.0, 3.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-5, 1e-3])
def test_the_odds_of_an_attacker_are_rounded_up(mu, delta):
    epsilon = float(gaussian_epsilon(mu, delta))
    odds = attacker_odds(epsilon, delta, ExactGaussian.name)
    # Any mu that the pair allows, up to the largest.
    assert exact_delta(epsilon, odds.mu) > mpf(delta)
    if epsilon:
        assert odds.mu >= mu
        assert odds.right >= mp.ncdf(mpf(mu) / 2)
        assert odds.right >= float(mp.ncdf(mpf(mu) / 2)) + 0.9e-9 * delta
    for alarms in (1e-6, 0.01, 0.5):
        quantile = -mp.sqrt(2) * mp.erfinv(1 - 2 * mpf(alarms))
        assert odds.detections(alarms) >= mp.ncdf(quantile + mu) or epsilon == 0


# Pure releases -----------------------------------------------------------------------------------


def exact_pure_delta(epsilon, level, count):
    """Optimal composition, term by term."""
    epsilon, level = mpf(epsilon), mpf(level)
    truth = 1 / (1 + mp.exp(-level))
    terms = (
        mp.binomial(count, j)
        * truth ** (count - j)
        * (1 - truth) ** j
        * max(1 - mp.exp(epsilon - (count - 2 * j) * level), 0)
        for j in range(count + 1)
    )
    return mp.fsum(terms)


@pytest.mark.parametrize("level", [1e-4, 0.03, 0.5, 3.0])
@pytest.mark.parametrize("count", [1, 2, 7, 60])
def test_composed_pure_releases_are_rounded_up(level, count):
    bound = OptimalPure(level, count)
    for share in (0.0, 0.2, 0.5, 0.9, 0.999):
        epsilon = share * level * count
        true = exact_pure_delta(epsilon, level, count)
        assert true <= mpf(bound.delta(epsilon)) <= true * (1 + mpf("1e-6")) + mpf("1e-11")
    for delta in (1e-30, 1e-12, 1e-5, 0.1):
        epsilon = bound.epsilon(delta)
        assert exact_pure_delta(epsilon, level, count) <= mpf(delta)
        assert epsilon <= round_up(count * Fraction(level))
        if epsilon > 1e-6:
            assert exact_pure_delta(epsilon * (1 - 1e-6), level, count) > mpf(delta) * (1 - 1e-6)
    total = bound.epsilon(0.0)
    assert total == round_up(count * Fraction(level))
    assert bound.delta(total) == 0
    below = math.nextafter(total, 0.0)
    assert exact_pure_delta(below, level, count) <= mpf(bound.delta(below)) <= mpf("1e-11")


@pytest.mark.parametrize("seed", range(6))
def test_composed_pure_releases_of_any_size_are_rounded_up(seed):
    draw = np.random.default_rng(seed)
    for level, count in zip(
        powers(draw, -9, 4, 20), draw.integers(1, 80, 20).tolist(), strict=True
    ):
        bound = OptimalPure(level, count)
        for share in (draw.random(), 1 - 10 ** draw.uniform(-15, -1), 1.0):
            epsilon = share * level * count
            # Where delta is 1 to all digits, the hundred of the sum are not enough.
            true = min(exact_pure_delta(epsilon, level, count), 1)
            assert true <= mpf(bound.delta(epsilon))
        for delta in (*powers(draw, -300, 0, 2), 1 - 10 ** draw.uniform(-9, -1)):
            assert exact_pure_delta(bound.epsilon(delta), level, count) <= mpf(delta)


def pure_delta_from_the_border(epsilon, level, count):
    """Optimal composition from the smallest loss above epsilon on, as far as terms count."""
    epsilon, level = mpf(epsilon), mpf(level)
    flips = int(mp.ceil((count - epsilon / level) / 2)) - 1
    truth, total = 1 / (1 + mp.exp(-level)), mpf(0)
    mass = mp.binomial(count, flips) * truth ** (count - flips) * (1 - truth) ** flips
    while flips >= 0 and mass > total * mpf("1e-25"):
        total += mass * (1 - mp.exp(epsilon - (count - 2 * flips) * level))
        mass *= mp.exp(level) * flips / (count - flips + 1)
        flips -= 1
    return total


def test_both_sums_over_pure_releases_agree():
    for epsilon in (0.3, 3.0, 9.7):
        direct, short = (
            total(epsilon, 0.2, 50) for total in (exact_pure_delta, pure_delta_from_the_border)
        )
        assert abs(direct - short) <= direct * mpf("1e-22")


@pytest.mark.parametrize("level", [0.03, 0.1])
def test_a_hundred_thousand_composed_pure_releases_are_rounded_up(level):
    """Logarithms of factorials have six digits before the point, and lose as many behind it."""
    bound = OptimalPure(level, 100_000)
    with mpmath.workdps(40):
        for delta in (1e-9, 0.3):
            epsilon = bound.epsilon(delta)
            true = pure_delta_from_the_border(epsilon, level, 100_000)
            assert mpf(delta) * (1 - mpf("1e-7")) <= true <= mpf(delta)
            assert true <= mpf(bound.delta(epsilon)) <= true * (1 + mpf("1e-8"))


@pytest.mark.parametrize("seed", range(3))
def test_composed_pure_releases_of_huge_epsilons_are_rounded_up(seed):
    """Losses of millions have few digits left behind the point."""
    draw = np.random.default_rng(seed)
    for level in powers(draw, 6, 7, 30):
        bound = OptimalPure(level, 9)
        for flips in (0, 2):
            epsilon = (9 - 2 * flips) * level - float(draw.uniform(0, 1e-3))
            true = pure_delta_from_the_border(epsilon, level, 9)
            assert true <= mpf(bound.delta(epsilon))


def test_levels_beyond_all_digits_cost_their_sum():
    assert OptimalPure(1e17, 3).epsilon(1e-5) == 3e17
    assert OptimalPure(1e17, 3).delta(1.0) == 1
    assert epsilon_spent([(PureRelease(1e17), 3)], 1e-5).epsilon == 3e17


@pytest.mark.parametrize("epsilon", [1e-7, 0.01, 1.0, 30.0, 700.0])
@pytest.mark.parametrize("order", [1.001, 2.0, 19.9, 20.1, 500.0])
def test_the_renyi_curve_of_a_pure_release_is_rounded_up(order, epsilon):
    e, a = mpf(epsilon), mpf(order)
    true = mp.log((mp.exp(a * e) + mp.exp((1 - a) * e)) / (1 + mp.exp(e))) / (a - 1)
    ours = mpf(float(rdp(PureRelease(epsilon), order)[0]))
    assert min(true, e) <= ours <= min(true * (1 + mpf("1e-11")), e)
    twice = rdp(PureRelease(epsilon / 2), order, rows=2)
    assert float(twice[0]) == pytest.approx(float(ours), rel=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_the_renyi_curve_of_pure_releases_near_order_1_is_rounded_up(seed):
    draw = np.random.default_rng(seed)
    for epsilon, order in zip(powers(draw, -9, 4, 60), powers(draw, -9, 6, 60), strict=True):
        rows = int(draw.choice([1, 3, 7]))
        e, a = rows * mpf(epsilon), mpf(1 + order)
        true = mp.log((mp.exp(a * e) + mp.exp((1 - a) * e)) / (1 + mp.exp(e))) / (a - 1)
        assert mpf(float(rdp(PureRelease(epsilon), 1 + order, rows)[0])) >= min(true, e)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.3, 20.0])
@pytest.mark.parametrize("rounds", [1, 3, 7, 49, 1000])
@pytest.mark.parametrize("rows", [1, 3])
def test_pure_levels_without_delta_add_up_to_the_budget_at_most(epsilon, rounds, rows):
    level = float(pure_level(epsilon, 0.0, rounds, rows_per_person=rows))
    assert Fraction(level) * rounds * rows <= Fraction(epsilon)
    assert level * rounds * rows >= epsilon * (1 - 1e-14)


@given(
    st.floats(1e-12, 1e6),
    st.floats(1e-9, 10.0),
    st.integers(1, 10**7),
    st.floats(1e-6, 1e6),
)
def test_what_exponential_noise_is_charged_is_rounded_up(convexity, scale, rows, weight):
    """Also kappa, which is worked out from public numbers and rounded on the way."""
    kappa = jacobian_ratio(rows, convexity, weight=weight)
    one = np.ones(1)
    perturbation = ObjectivePerturbation(
        "exp-norm", one, kappa.reshape(1), scale * one, one, one, one
    )
    ((charged,),) = [event.events[:1] for event in perturbation.events()]
    exact = 1 / mpf(scale) + mpmath.log1p(mpf(weight) / 4 / (rows * mpf(convexity)))
    # The rounding of mu is what sensitivities have to spare.
    assert charged.epsilon >= exact * (1 - mpf(2) ** -52)
    assert charged.epsilon <= exact * (1 + mpf(10) ** -14)
    assert jacobian_epsilon(kappa) >= mpmath.log1p(mpf(weight) / 4 / (rows * mpf(convexity)))


@pytest.mark.parametrize("kappa", [2e12, 1e16, 1e300])
def test_a_kappa_that_leaves_no_order_guarantees_nothing(kappa):
    event = GaussianObjectivePerturbation(0.1, kappa)
    for history in ([event], [event, PureRelease(0.1)], [event, GaussianRelease(0.1, 1.0)]):
        assert epsilon_spent(history, 1e-5).epsilon == math.inf
        assert delta_spent(history, 1.0).delta == 1.0
    assert np.all(rdp(event, np.array([1.1, 2.0]), 1) == math.inf)
    with pytest.raises(InfeasibleBudgetError, match="a larger penalty or more rows"):
        objective_sigma(1.0, 1e-5, 1.0, kappa)


@pytest.mark.parametrize("seed", range(5))
def test_the_charge_of_exponential_noise_is_its_level_at_most(seed):
    draw = np.random.default_rng(seed)
    level, kappa = draw.uniform(0.05, 2, 50), draw.uniform(0, 0.05, 50)
    rows, slope = draw.integers(1, 10_000, 50), float(draw.uniform(0.3, 2))
    rates = exponential_rate(level, rows, kappa, weight=0.7, slope=slope)
    for each, k, n, rate in zip(level, kappa, rows.tolist(), rates, strict=True):
        charged = mpf(rate) * 2 * mpf(slope) * mpf(0.7) / n + mp.log(1 + mpf(k))
        assert mpf(each) * (1 - mpf("1e-10")) <= charged <= mpf(each)


# Objective perturbation, conversions -------------------------------------------------------------


@pytest.mark.parametrize("kappa", [1e-9, 1e-4, 0.02, 0.3])
@pytest.mark.parametrize("share", [0.001, 0.5, 0.99])
def test_the_term_of_the_jacobian_is_rounded_up(kappa, share):
    order = 1 + share / kappa
    a, k = mpf(order), mpf(kappa)

    def psi(t):
        return -mp.log(1 + t) - mp.log(1 - (a - 1) * t) / (a - 1)

    true = psi(k) + psi(-k / (1 + k))
    ours = mpf(float(objective_jacobian_rdp(np.array([order]), kappa)[0]))
    # One unit of rounding in (a - 1) kappa counts close to the pole.
    assert true <= ours <= true * (1 + mpf("1e-6")) + mpf("1e-12") * k


@pytest.mark.parametrize("seed", range(6))
def test_close_to_the_pole_the_term_of_the_jacobian_is_rounded_up(seed):
    """Up to the last bit of the order, and beyond it, where no theorem holds."""
    draw = np.random.default_rng(seed)
    for kappa, slack in zip(powers(draw, -9, 1, 80), powers(draw, -16, 0, 80), strict=True):
        rows = int(draw.choice([1, 1, 2, 5]))
        order = 1 + (1 - slack) / (kappa * rows)
        if order == 1:
            continue
        a, k = mpf(order), rows * mpf(kappa)
        ours = float(objective_jacobian_rdp(np.array([order]), kappa, rows)[0])
        if (a - 1) * k >= 1:
            assert ours == math.inf
            continue
        one, t = -mp.log(1 + k) - mp.log(1 - (a - 1) * k) / (a - 1), -k / (1 + k)
        other = -mp.log(1 + t) - mp.log(1 - (a - 1) * t) / (a - 1)
        if rows > 1 and k * mp.sqrt(a) > 1:
            other = a * k**2 / 2
        # What conversions leave room for.
        assert (one + other) * (1 - mpf("2e-15")) <= ours
        if slack > 1e-9:
            assert ours <= (one + other) * (1 + mpf("1e-5")) + mpf("1e-12") * k


@pytest.mark.parametrize(
    ("rows", "kappa", "order"), [(1, 0.7, 2.4), (2, 0.35, 2.4), (2, 0.3, 1.5), (7, 0.1, 2.4)]
)
def test_the_term_of_the_jacobian_for_several_rows(rows, kappa, order):
    """Above 1 / sqrt(order) the second term is another one, for several rows alone."""
    a, k = mpf(order), rows * mpf(kappa)
    one = -mp.log(1 + k) - mp.log(1 - (a - 1) * k) / (a - 1)
    t = -k / (1 + k)
    other = -mp.log(1 + t) - mp.log(1 - (a - 1) * t) / (a - 1)
    if rows > 1 and k * mp.sqrt(a) > 1:
        assert a * k**2 / 2 > other
        other = a * k**2 / 2
    found = float(objective_jacobian_rdp(np.array([order]), kappa, rows)[0])
    assert found == pytest.approx(float(one + other), rel=1e-12)


@pytest.mark.parametrize(
    ("batch", "rows", "sigma", "order"),
    [(3, 1, 0.9, 12.0), (3, 2, 0.9, 4.0), (40, 3, 2.5, 2.0), (5, 1, 50.0, 3.0)],
)
def test_the_renyi_curve_of_a_batch_is_its_integral(batch, rows, sigma, order):
    """Of the curve averaged over how many of the rows a batch holds, given that it holds one."""
    event = SubsampledGaussian(batch, 100, 1.0, sigma)
    with mpmath.workdps(30):
        ways = [mp.binomial(rows, j) * mp.binomial(100 - rows, batch - j) for j in range(rows + 1)]
        q, a = 1 - ways[0] / sum(ways), mpf(order)

        def integrand(t):
            gamma = 1 + q * mp.expm1(t)
            hits = sum(
                number * exact_delta(t, j / mpf(sigma)) for j, number in enumerate(ways) if j
            )
            powers = gamma ** (a - 2) + gamma ** (-a - 1)
            return powers * q**2 * mp.exp(t) * hits / sum(ways[1:])

        mu = rows / mpf(sigma)
        edges = [(a * mu * mu + 14 * mu) * k / 12 for k in range(13)]
        true = mp.log(1 + a * (a - 1) * mp.quad(integrand, edges, maxdegree=4)) / (a - 1)
        ours = mpf(float(rdp(event, order, rows)[0]))
        assert true <= ours * (1 + mpf("1e-13")) <= true * (1 + mpf("2e-9"))
        assert ours < order * mu**2 / 2


@pytest.mark.parametrize(("sigma", "order"), [(0.2, 30.0), (0.1, 12.0), (0.5, 60.0)])
def test_the_renyi_curve_of_a_batch_reaches_what_hits_alone_cost(sigma, order):
    """(q P + (1 - q) Q)^a Q^(1 - a) >= q^a P^a Q^(1 - a), far out of the mixture's centre."""
    event = SubsampledGaussian(3, 100, 1.0, sigma)
    least = order / (2 * sigma**2) + order * math.log(0.03) / (order - 1)
    found = float(rdp(event, order)[0])
    assert least <= found < order / (2 * sigma**2)


@pytest.mark.parametrize(("batch", "sigma", "order"), [(3, 1e7, 1.5e9), (30, 1e7, 1.5e8)])
def test_the_renyi_curve_of_a_batch_is_rounded_up_at_large_orders(batch, sigma, order):
    """There a last bit of gamma counts a billion times: integrate around the peak."""
    with mpmath.workdps(30):
        q, a, mu = mpf(batch) / 100, mpf(order), 1 / mpf(sigma)
        peak = a * q * mu**2
        for _ in range(20):
            peak = mu**2 * (a - 1) * q * mp.exp(peak) / (1 + q * mp.expm1(peak))

        def integrand(t):
            gamma = 1 + q * mp.expm1(t)
            return (gamma ** (a - 2) + gamma ** (-a - 1)) * mp.exp(t) * exact_delta(t, mu)

        low, high = max(peak - 12 * mu, 0), peak + 12 * mu
        edges = [low + (high - low) * k / 6 for k in range(7)]
        integral = q**2 * mp.quad(integrand, edges, maxdegree=4)
        true = mp.log(1 + a * (a - 1) * integral) / (a - 1)
        ours = mpf(float(rdp(SubsampledGaussian(batch, 100, 1.0, sigma), order)[0]))
        assert true <= ours <= true * (1 + mpf("1e-5"))


@pytest.mark.parametrize("order", [1.01, 1.5, 3.0, 40.0, 1e4])
@pytest.mark.parametrize("delta", [1e-12, 1e-5, 0.1])
def test_the_conversion_of_renyi_curves_is_its_formula(order, delta):
    a = mpf(order)
    for divergence in (1e-3, 0.2, 5.0):
        epsilon, at = renyi_to_epsilon([order], [divergence], delta)
        true = mpf(divergence) + mp.log(1 - 1 / a) - (mp.log(delta) + mp.log(a)) / (a - 1)
        assert at == order
        assert epsilon == pytest.approx(max(float(true), 0.0), rel=1e-12)
        for target in (0.1, 1.0, 4.0):
            found, at = renyi_to_delta([order], [divergence], target)
            log = (a - 1) * (mpf(divergence) - mpf(target) + mp.log(1 - 1 / a)) - mp.log(a)
            expected = max(min(float(log), 0.0), math.log(5e-324))
            assert at == order
            assert math.log(found) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_conversions_of_renyi_curves_are_rounded_up(seed):
    """Orders near 1, where all terms are huge, and far out; divergences may be short by 2e-15."""
    draw = np.random.default_rng(seed)
    orders = [1 + each for each in powers(draw, -12, 12, 150)]
    for order, divergence, delta, target in zip(
        orders,
        powers(draw, -8, 4, 150),
        powers(draw, -300, -1e-6, 150),
        powers(draw, -6, 3, 150),
        strict=True,
    ):
        a, r = mpf(order), mpf(divergence) * (1 + mpf("2e-15"))
        # Where the terms cancel, too.
        for log in (mp.log(delta), -mp.log(a) * (1 - mpf("1e-9"))):
            at = float(mp.exp(log))
            if 0 < at < 1:
                true = r + mp.log(1 - 1 / a) - (mp.log(mpf(at)) + mp.log(a)) / (a - 1)
                found = mpf(renyi_to_epsilon([order], [divergence], at)[0])
                assert max(true, 0) <= found
                size = r + (1 + abs(mp.log(mpf(at))) + mp.log(a)) / (a - 1)
                assert found <= max(true, 0) + mpf("1e-14") * (size + abs(mp.log(a - 1)))
        true = mp.exp((a - 1) * (r - mpf(target) + mp.log(1 - 1 / a)) - mp.log(a))
        assert min(true, 1) <= mpf(renyi_to_delta([order], [divergence], target)[0])


@pytest.mark.parametrize("rows", [1, 3])
def test_histories_with_objective_perturbation_are_rounded_up(rows):
    """The order that was found, in a hundred digits: thousands of different releases."""
    draw = np.random.default_rng(rows)
    history = [
        *(
            GaussianObjectivePerturbation(*each)
            for each in draw.uniform(1e-3, 2e-2, (800, 2)) / rows
        ),
        *(PureRelease(epsilon) for epsilon in draw.uniform(1e-4, 1e-3, 200).tolist()),
        GaussianRelease(0.1, 1.3),
    ]
    delta = 1e-7
    found = epsilon_spent(history, delta, rows_per_person=rows)
    a, total = mpf(found.order), mpf(0)
    assert found.accountant == "renyi"
    for event in history:
        match event:
            case GaussianObjectivePerturbation():
                k = rows * mpf(event.kappa)
                total += a * (rows * mpf(event.mu)) ** 2 / 2
                for t in (k, -k / (1 + k)):
                    total += -mp.log(1 + t) - mp.log(1 - (a - 1) * t) / (a - 1)
            case PureRelease():
                e = rows * mpf(event.epsilon)
                total += mp.log((mp.exp(a * e) + mp.exp((1 - a) * e)) / (1 + mp.exp(e))) / (a - 1)
            case GaussianRelease():
                total += a * (rows * mpf(event.sensitivity) / mpf(event.sigma)) ** 2 / 2
    true = total + mp.log(1 - 1 / a) - (mp.log(mpf(delta)) + mp.log(a)) / (a - 1)
    assert true <= mpf(found.epsilon) <= true * (1 + mpf("1e-11"))


@pytest.mark.parametrize("epsilon", [0.01, 0.03, 0.05])
def test_a_renyi_curve_is_no_less_than_the_sum_of_many(epsilon):
    """Hundreds of additions, each of which may round down."""
    sizes = [epsilon]
    while len(sizes) < 400:
        sizes.append(math.nextafter(sizes[-1], 1.0))
    history, orders = list(map(PureRelease, sizes)), np.array([2.0, 7.0, 30.0])
    each = np.array([rdp(event, orders, 1) for event in history])
    added = [math.fsum(column) for column in each.T]
    assert (_renyi(_split(history, 1)).curve(orders) >= added).all()


def test_the_smallest_of_several_orders_counts():
    orders, curve = [1.5, 4.0, 30.0], [0.1, 0.2, 2.0]
    single = [renyi_to_epsilon([a], [r], 1e-5)[0] for a, r in zip(orders, curve, strict=True)]
    epsilon, order = renyi_to_epsilon(orders, curve, 1e-5)
    assert (epsilon, order) == (min(single), orders[single.index(min(single))])
    single = [renyi_to_delta([a], [r], 3.0)[0] for a, r in zip(orders, curve, strict=True)]
    delta, order = renyi_to_delta(orders, curve, 3.0)
    assert (delta, order) == (min(single), orders[single.index(min(single))])


# Numerical composition ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "event", [GaussianRelease(1.0, 0.5), SubsampledGaussian(5, 100, 1.0, 0.5), PureRelease(0.4)]
)
@pytest.mark.parametrize("tail", [1e-2, 1e-6])
def test_cutting_off_tails_loses_no_mass(event, tail):
    first, masses, infinite = loss_masses(event, 0.05, tail)
    assert masses.sum() + infinite == pytest.approx(1, abs=1e-12)
    assert 0 <= infinite <= tail
    assert (masses >= 0).all()
    assert first <= 0 < first + masses.size


@pytest.mark.parametrize("mu", [0.02, 0.3])
@pytest.mark.parametrize("count", [1, 40])
def test_numerical_composition_is_above_the_exact_one(mu, count):
    bound = PrivacyLoss([(GaussianRelease(mu, 1.0), count)], 1, 1e-11)
    exact = ExactGaussian(mu * math.sqrt(count))
    for delta in (1e-9, 1e-5, 1e-2):
        assert exact.epsilon(delta) <= bound.epsilon(delta) <= exact.epsilon(delta) * 1.01 + 1e-3
    for epsilon in (0.0, 0.5, 2.0):
        assert bound.delta(epsilon) >= exact.delta(epsilon)
    # The error of the transforms is taken off delta, and added to it.
    composed, rounding = bound._composed
    assert rounding > 0
    assert bound.epsilon(3 * rounding) == composed.get_epsilon_for_delta(2 * rounding)
    assert bound.epsilon(2 * rounding) == math.inf
    assert bound.delta(50.0) >= rounding


@pytest.mark.parametrize("largest", range(6))
def test_no_release_is_lost_where_many_are_composed_in_pairs(largest):
    """Each is too long for a direct convolution; one of them costs more than all others."""
    sizes = [0.2 + 0.01 * number for number in range(6)]
    sizes[largest] = 2.0
    bound = PrivacyLoss([(GaussianRelease(mu, 1.0), 1) for mu in sizes], 1, 1e-9)
    exact = ExactGaussian(math.hypot(*sizes)).epsilon(1e-5)
    assert exact <= bound.epsilon(1e-5) <= exact * (1 + 1e-3)


def test_basic_composition_adds_what_the_pure_releases_cost():
    exact = ExactGaussian(0.7)
    both = Basic(0.4, exact)
    assert both.epsilon(1e-5) == round_up(Fraction(0.4) + Fraction(exact.epsilon(1e-5)))
    assert both.delta(1.4) == exact.delta(round_down(Fraction(1.4) - Fraction(0.4)))
    assert both.delta(0.4) == exact.delta(0.0)
    assert both.delta(0.39) == 1


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("mu", [0.0, 0.4])
def test_mixtures_with_pure_releases_are_above_the_exact_curve(mu, rows):
    """All signs of the losses of a few pure releases, beside a Gaussian."""
    sizes = [0.1, 0.7 / 3, 1.1]
    history = [*map(PureRelease, sizes), GaussianRelease(mu, 1.0)]

    def true(epsilon):
        total = mpf(0)
        for signs in itertools.product((1, -1), repeat=len(sizes)):
            losses = [sign * rows * mpf(size) for sign, size in zip(signs, sizes, strict=True)]
            left = mpf(epsilon) - mp.fsum(losses)
            part = exact_delta(left, rows * mu) if mu else max(1 - mp.exp(left), 0)
            total += mp.fprod(1 / (1 + mp.exp(-loss)) for loss in losses) * part
        return total

    with mpmath.workdps(50):
        for delta in (1e-12, 1e-5, 0.1):
            epsilon = epsilon_spent(history, delta, rows_per_person=rows).epsilon
            assert true(epsilon) <= mpf(delta)
        most = rows * sum(map(Fraction, sizes))
        for epsilon in (0.0, 1.0, float(most), math.nextafter(float(most), 0.0)):
            assert true(epsilon) <= mpf(delta_spent(history, epsilon, rows_per_person=rows).delta)


@pytest.mark.parametrize("rows", [1, 2, 1000, 100_000])
def test_the_rate_of_a_batch_that_holds_any_row_has_its_digits(rows):
    event = SubsampledGaussian(7, 10**6, 1.0, 1.0)
    missed = mp.fprod(1 - mpf(7) / (10**6 - row) for row in range(rows))
    found = mpf(group_sampling_rate(event, rows))
    assert abs(found - (1 - missed)) <= mpf("1e-15") * (1 - missed)


@pytest.mark.parametrize("most", [2, 5, 40])
def test_sizes_on_a_ladder_are_rounded_up(most):
    sizes = Counter({float(v): 1 + i % 3 for i, v in enumerate(np.geomspace(1e-3, 2.0, 50))})
    rungs = _ladder(sizes, most)
    assert len(rungs) <= most
    before = sorted(sizes.elements())
    after = sorted(Counter(dict(rungs)).elements())
    assert len(before) == len(after)
    step = (before[-1] / before[0]) ** (1 / (most - 1))
    for small, large in zip(before, after, strict=True):
        assert small <= large <= small * step * (1 + 1e-9)


# Labels ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mu", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("delta", [1e-8, 1e-3])
def test_epsilon_of_a_label_is_rounded_up(mu, delta):
    strength = mpf(2)
    found = joint_label_guarantee(LabelRandomizedResponse(2.0), [GaussianRelease(mu, 1.0)], delta)
    flip = 1 / (1 + mp.exp(strength))

    def true(epsilon):
        grown = mp.exp(mpf(epsilon))
        share = 1 - flip - flip * grown
        return share * exact_delta(mp.log(((1 - flip) * grown - flip) / share), mu)

    assert true(found.epsilon) <= mpf(delta)
    assert found.epsilon == 0 or true(found.epsilon * (1 - 1e-6)) > mpf(delta)


@pytest.mark.parametrize("seed", range(4))
def test_the_delta_of_a_label_is_rounded_up(seed):
    """Up to the label's own epsilon, for a mu of any size."""
    draw = np.random.default_rng(seed)
    for label, mu in zip(powers(draw, -3, 1.5, 15), powers(draw, -6, 3, 15), strict=True):
        flip = 1 / (1 + mp.exp(mpf(label)))

        def true(epsilon, mu=mu, flip=flip):
            grown = mp.exp(mpf(epsilon))
            share = 1 - flip - flip * grown
            return share * exact_delta(mp.log(((1 - flip) * grown - flip) / share), mu)

        for share in (0.0, draw.random(), 1 - 10 ** draw.uniform(-15, -2)):
            assert true(share * label) <= mpf(joint_label_delta(label, mu, share * label))
        for delta in (*powers(draw, -50, -12, 1), *powers(draw, -12, 0, 1)):
            response, releases = LabelRandomizedResponse(label), [GaussianRelease(mu, 1.0)]
            found = joint_label_guarantee(response, releases, delta).epsilon
            assert found == label or true(found) <= mpf(delta)


def test_the_delta_of_a_label_is_never_rounded_to_nothing():
    assert joint_label_delta(1.0, 1e-3, 0.5) > 0
    assert joint_label_delta(1.0, 1e-3, math.nextafter(1.0, 0.0)) > 0
