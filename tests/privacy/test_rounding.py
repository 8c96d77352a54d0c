"""Every figure errs towards a larger cost: held against the same formulas in a hundred digits."""

import math
from collections import Counter
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from mpmath import mp, mpf

from dpadmm.ledger.filters import Policy
from dpadmm.privacy.accountant import _ladder
from dpadmm.privacy.calibration import exponential_rate, pure_level
from dpadmm.privacy.composition import (
    Basic,
    ExactGaussian,
    OptimalPure,
    PrivacyLoss,
    renyi_to_delta,
    renyi_to_epsilon,
)
from dpadmm.privacy.curves import loss_masses, objective_jacobian_rdp, rdp
from dpadmm.privacy.events import (
    GaussianRelease,
    LabelRandomizedResponse,
    PureRelease,
    SubsampledGaussian,
)
from dpadmm.privacy.gaussian import (
    gaussian_delta,
    gaussian_epsilon,
    gaussian_log_delta,
    gaussian_mu,
)
from dpadmm.privacy.labels import joint_label_guarantee
from dpadmm.privacy.odds import attacker_odds


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
        # A sum of epsilons is the double nearest to it.
        assert exact_pure_delta(math.nextafter(epsilon, math.inf), level, count) <= mpf(delta)
        assert epsilon <= level * count
        if epsilon > 1e-6:
            assert exact_pure_delta(epsilon * (1 - 1e-6), level, count) > mpf(delta) * (1 - 1e-6)
    assert bound.epsilon(0.0) >= count * mpf(level) * (1 - mpf("1e-15"))
    assert bound.delta(count * level * (1 + 1e-12)) == 0


@pytest.mark.parametrize("epsilon", [1e-7, 0.01, 1.0, 30.0, 700.0])
@pytest.mark.parametrize("order", [1.001, 2.0, 19.9, 20.1, 500.0])
def test_the_renyi_curve_of_a_pure_release_is_rounded_up(order, epsilon):
    e, a = mpf(epsilon), mpf(order)
    true = mp.log((mp.exp(a * e) + mp.exp((1 - a) * e)) / (1 + mp.exp(e))) / (a - 1)
    ours = mpf(float(rdp(PureRelease(epsilon), order)[0]))
    assert min(true, e) <= ours <= min(true * (1 + mpf("1e-11")), e)
    twice = rdp(PureRelease(epsilon / 2), order, rows=2)
    assert float(twice[0]) == pytest.approx(float(ours), rel=1e-12)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.3, 20.0])
@pytest.mark.parametrize("rounds", [1, 3, 7, 49, 1000])
@pytest.mark.parametrize("rows", [1, 3])
def test_pure_levels_without_delta_add_up_to_the_budget_at_most(epsilon, rounds, rows):
    level = float(pure_level(epsilon, 0.0, rounds, rows_per_person=rows))
    assert Fraction(level) * rounds * rows <= Fraction(epsilon)
    assert level * rounds * rows >= epsilon * (1 - 1e-14)


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
    assert true * (1 - mpf("1e-12")) <= ours <= true * (1 + mpf("1e-6")) + mpf("1e-12") * k


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


def test_basic_composition_adds_what_the_pure_releases_cost():
    exact = ExactGaussian(0.7)
    both = Basic(0.4, exact)
    assert both.epsilon(1e-5) == 0.4 + exact.epsilon(1e-5)
    assert both.delta(1.4) == exact.delta(1.4 - 0.4)
    assert both.delta(0.4) == exact.delta(0.0)
    assert both.delta(0.39) == 1


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
