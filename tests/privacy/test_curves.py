import math
import sys
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import log_ndtr, ndtr
from scipy.stats import norm

from dpadmm.privacy.curves import (
    amplified,
    gaussian_mu_squared,
    group_sampling_rate,
    loss_masses,
    loss_reach,
    rdp,
)
from dpadmm.privacy.events import (
    Composed,
    Event,
    GaussianObjectivePerturbation,
    GaussianRelease,
    InexactSolve,
    LabelRandomizedResponse,
    NonPrivate,
    PostProcessing,
    PureRelease,
    Repeated,
    SubsampledGaussian,
)
from dpadmm.privacy.gaussian import (
    gaussian_delta,
    gaussian_epsilon,
    gaussian_log_delta,
    gaussian_mu,
    zcdp_epsilon,
)

MUS = np.logspace(-8, 2, 41)
DELTAS = np.array([1e-300, 1e-100, 1e-30, 1e-12, 1e-5, 1e-2, 0.5])
ORDERS = np.array([1.01, 1.5, 2.0, 4.0, 16.0, 100.0])


def log_delta_by_quadrature(epsilon, mu):
    """Return ln of phi(l) int_0^inf exp(-l s - s^2/2) (1 - exp(-mu s)) ds with l as below."""
    lower = epsilon / mu - mu / 2
    scale = 1 / max(1.0, lower)
    value, _ = quad(
        lambda s: math.exp(-lower * s - s * s / 2) * -math.expm1(-mu * s),
        0,
        60 * scale,
        epsabs=0,
        epsrel=1e-12,
        limit=500,
        points=[scale / 10, scale, 5 * scale],
    )
    return norm.logpdf(lower) + math.log(value)


@pytest.mark.parametrize("mu", [1e-8, 1e-4, 0.1, 0.49, 0.51, 1.0, 3.0])
@pytest.mark.parametrize("ratio", [0.0, 0.3, 3.0, 20.0, 37.0, 99.0])
def test_gaussian_delta_agrees_with_quadrature(mu, ratio):
    epsilon = mu * ratio
    ours = float(gaussian_log_delta(epsilon, mu))
    assert ours == pytest.approx(log_delta_by_quadrature(epsilon, mu), abs=2e-10)


def test_gaussian_delta_agrees_with_the_textbook_formula_and_its_limits():
    for epsilon, mu in [(0.0, 30.0), (10.0, 8.0), (300.0, 30.0), (0.5, 1.0), (5000.0, 100.0)]:
        plain = norm.cdf(mu / 2 - epsilon / mu) - math.exp(
            epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))
        )
        assert float(gaussian_delta(epsilon, mu)) == pytest.approx(plain, rel=1e-9)
    assert gaussian_delta(1.0, 0.0) == 0
    assert gaussian_delta(1.0, np.inf) == 1
    assert 0 < gaussian_delta(1e5, 1.0) < 1e-300
    assert gaussian_delta(1e300, 1e-300) > 0


def test_gaussian_delta_agrees_with_a_second_library():
    from autodp import dp_bank

    for epsilon, mu in [(1.0, 0.268), (0.1, 0.05), (4.0, 1.0), (10.0, 2.0)]:
        other = dp_bank.get_logdelta_ana_gaussian(1 / mu, epsilon)
        assert float(gaussian_log_delta(epsilon, mu)) == pytest.approx(float(other), abs=1e-8)


def test_epsilon_and_mu_invert_delta_in_extreme_ranges():
    mu, delta = np.meshgrid(MUS, DELTAS)
    epsilon = gaussian_epsilon(mu, delta)
    slack = np.log(delta) - gaussian_log_delta(epsilon, mu)
    assert (slack >= 0).all()
    assert (slack[epsilon > 0] <= 1e-9).all()
    positive = epsilon > 0
    back = gaussian_mu(epsilon[positive], delta[positive])
    np.testing.assert_allclose(back, mu[positive], rtol=1e-9)


def test_mu_is_rounded_down():
    epsilon, delta = np.meshgrid(np.concatenate([[0], np.logspace(-10, 3, 40)]), DELTAS)
    mu = gaussian_mu(epsilon, delta)
    assert (gaussian_log_delta(epsilon, mu) <= np.log(delta)).all()
    assert (gaussian_log_delta(epsilon, mu * (1 + 1e-8)) > np.log(delta)).all()
    np.testing.assert_allclose(mu[:, 0], 2 * norm.ppf((1 + DELTAS) / 2), rtol=1e-9, atol=1e-15)


def test_the_known_pairs():
    assert float(gaussian_mu(1, 1e-5)) == pytest.approx(0.26805, abs=5e-6)
    rho = np.array([0.05, 0.5, 2.0])
    np.testing.assert_allclose(zcdp_epsilon(rho, 1e-5), [1.567, 5.299, 11.60], atol=0.005)
    exact = gaussian_epsilon(np.sqrt(2 * rho), 1e-5)
    np.testing.assert_allclose(exact, [1.199, 4.377, 10.00], atol=0.005)


@given(st.floats(1e-6, 50), st.floats(1e-12, 0.3), st.floats(1.0001, 3))
def test_gaussian_epsilon_is_monotone(mu, delta, factor):
    epsilon = gaussian_epsilon(mu, delta)
    assert gaussian_epsilon(mu * factor, delta) >= epsilon
    assert gaussian_epsilon(mu, delta * factor) <= epsilon


@pytest.mark.parametrize("call", [gaussian_epsilon, gaussian_mu])
@pytest.mark.parametrize("delta", [0.0, 1.0, -1.0, float("nan")])
def test_gaussian_inverses_refuse_an_impossible_delta(call, delta):
    with pytest.raises(ValueError, match="delta must be in"):
        call(1.0, delta)


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        (gaussian_epsilon, (1.0, [1e-5, 0.0])),
        (gaussian_mu, (1.0, [1e-5, 1.0])),
        (gaussian_mu, ([1.0, -1.0], 1e-5)),
        (gaussian_mu, ([1.0, math.inf], 1e-5)),
        (gaussian_mu, ([1.0, math.nan], 1e-5)),
        (gaussian_mu, (1.0, [1e-5, 1e-310])),
        (gaussian_log_delta, ([1.0, -1.0], 1.0)),
        (gaussian_log_delta, (1.0, [1.0, -1.0])),
        (gaussian_log_delta, (1.0, [1.0, math.nan])),
    ],
)
def test_one_impossible_party_among_others_is_refused(call, arguments):
    with pytest.raises(ValueError, match="must be"):
        call(*arguments)


@pytest.mark.parametrize("delta", [5e-324, 1e-310])
@pytest.mark.parametrize("epsilon", [0.0, 1.0])
def test_a_delta_without_digits_is_not_calibrated_for(epsilon, delta):
    with pytest.raises(ValueError, match=r"delta must be at least 2\.23e-308"):
        gaussian_mu(epsilon, delta)
    smallest = sys.float_info.min
    mu = gaussian_mu(epsilon, smallest)
    assert mu > 0
    assert gaussian_log_delta(epsilon, mu) <= math.log(smallest)


def test_renyi_of_pure_events_is_that_of_randomised_response():
    for epsilon in (1e-6, 0.1, 2.0, 50.0):
        log_p, log_q = -math.log1p(math.exp(-epsilon)), -epsilon - math.log1p(math.exp(-epsilon))
        with np.errstate(over="ignore"):
            direct = np.logaddexp(
                ORDERS * log_p + (1 - ORDERS) * log_q, ORDERS * log_q + (1 - ORDERS) * log_p
            ) / (ORDERS - 1)
        ours = rdp(PureRelease(epsilon), ORDERS)
        np.testing.assert_allclose(ours, direct, rtol=1e-9, atol=1e-13)
        assert (ours <= epsilon).all()


@pytest.mark.parametrize(("epsilon", "order"), [(1.0, 700.0), (0.3, 2e4), (6.0, 101.0), (2.0, 1e9)])
def test_renyi_of_pure_events_at_large_orders_is_that_of_the_likelier_answer(epsilon, order):
    """The other answer is e^(order epsilon) times less likely."""
    direct = (order * epsilon - math.log1p(math.exp(epsilon))) / (order - 1)
    assert float(rdp(PureRelease(epsilon), order)[0]) == pytest.approx(direct, rel=1e-11)
    assert float(rdp(PureRelease(epsilon), order)[0]) >= direct * (1 - 1e-15)


@pytest.mark.parametrize("epsilon", [1e-60, 1e-90, 1e-140])
def test_renyi_of_a_tiny_pure_event_is_its_square(epsilon):
    found = rdp(PureRelease(epsilon), ORDERS)
    np.testing.assert_allclose(found, ORDERS * epsilon**2 / 2, rtol=1e-11)
    assert (found >= ORDERS * epsilon**2 / 2 * (1 - 1e-15)).all()


def test_renyi_of_a_repeated_event_is_multiplied():
    for event in (GaussianRelease(0.3, 1.0), SubsampledGaussian(2, 50, 1.0, 1.5)):
        np.testing.assert_allclose(rdp(Repeated(event, 7), ORDERS, 2), 7 * rdp(event, ORDERS, 2))


def test_renyi_of_gaussian_parts_adds_up():
    parts = (GaussianRelease(0.3, 1.0), InexactSolve(1e-3, 2.0, 0.01), PostProcessing())
    expected = ORDERS * (0.3**2 + 0.1**2) / 2
    np.testing.assert_allclose(rdp(Composed(parts), ORDERS), expected)
    assert gaussian_mu_squared(parts[1], rows=7) == pytest.approx(0.01)
    assert gaussian_mu_squared(parts[0], rows=7) == pytest.approx(2.1**2)
    assert gaussian_mu_squared(parts[0]) == pytest.approx(0.3**2)
    assert gaussian_mu_squared(PureRelease(1.0)) is None
    assert np.isinf(rdp(NonPrivate(), ORDERS)).all()


def test_renyi_of_a_batch_of_one_matches_the_true_pair():
    """With one row a batch the pair is a mixture of two Gaussians: integrate it directly."""
    population, sigma = 20, 0.8
    event = SubsampledGaussian(1, population, 1.0, sigma)
    orders = np.array([1.5, 2.0, 4.0])
    bound = rdp(event, orders)
    # The worst outputs of the replaced row: +1 against 0, all others far enough to be 0.
    rate = 1 / population

    x = np.linspace(-15, 25, 40001)

    def log_density(center):
        return np.logaddexp(
            math.log(1 - rate) + norm.logpdf(x, 0, sigma),
            math.log(rate) + norm.logpdf(x, center, sigma),
        )

    for order, value in zip(orders, bound, strict=True):
        for first, second in [(1.0, 0.0), (0.0, 1.0)]:
            logs = order * log_density(first) + (1 - order) * log_density(second)
            moment = np.trapezoid(np.exp(logs), x)
            assert math.log(moment) / (order - 1) <= value * (1 + 1e-9)
    assert (bound < 0.2 * orders / (2 * sigma**2)).all()
    np.testing.assert_allclose(
        rdp(SubsampledGaussian(20, 20, 1.0, sigma), orders), orders / (2 * sigma**2)
    )


def test_renyi_of_many_rows_in_a_batch_is_its_integral():
    """Twenty hits cost twenty times the mu of one: the curve has details of both sizes."""
    rows, batch, population, mu = 40, 20, 1000, 0.01
    hits = np.arange(1, batch + 1)
    ways = [math.comb(rows, j) * math.comb(population - rows, batch - j) for j in hits.tolist()]
    rate = sum(ways) / math.comb(population, batch)
    weights = np.array([number / sum(ways) for number in ways])
    nodes, shares = np.polynomial.legendre.leggauss(20)
    width = mu / 4
    t = (width * np.arange(1200)[:, None] + width * (1 + nodes) / 2).ravel()[:, None]
    deltas = ndtr(hits * mu / 2 - t / (hits * mu))
    deltas -= np.exp(t) * ndtr(-hits * mu / 2 - t / (hits * mu))
    mixture = (1 + (1 + rate * np.expm1(t)) ** -3.0) * rate**2 * np.exp(t) * deltas * weights
    integral = mixture.sum(axis=1) @ np.tile(shares * width / 2, 1200)
    found = float(rdp(SubsampledGaussian(batch, population, 1.0, 1 / mu), 2.0, rows)[0])
    assert found == pytest.approx(math.log1p(2 * integral), rel=1e-8)


@pytest.mark.parametrize(("batch", "rows"), [(5, 2), (2, 5), (4, 4)])
def test_renyi_of_next_to_no_noise_is_that_of_all_hits(batch, rows):
    event = SubsampledGaussian(batch, 100, 1.0, 0.01)
    assert float(rdp(event, 3.0, rows)[0]) == pytest.approx(3 * (min(batch, rows) * 100) ** 2 / 2)


@pytest.mark.parametrize(
    ("rows", "population", "order", "mu"),
    [(60, 10**7, 10.0, 60.0), (60, 10**40, 2.5, 300.0), (8, 10**50, 25.0, 3.5)],
)
def test_hits_too_rare_for_doubles_count_in_the_renyi_curve(rows, population, order, mu):
    """All rows are hit with a weight below 1e-308; gamma >= q e^t leaves a sum in closed form."""
    event = SubsampledGaussian(rows, population, 1.0, rows / mu)
    rate = group_sampling_rate(event, rows)
    weight = -math.log(math.comb(population, rows)) - math.log(rate)
    most = order * mu**2 / 2
    least = most + (order * math.log(rate) + weight) / (order - 1)
    assert weight < math.log(sys.float_info.min)
    found = float(rdp(event, order, rows)[0])
    assert 0 < least * (1 - 1e-9) <= found <= most * (1 + 1e-12)
    if rows == 8:  # few enough for the integral: their weight is rounded up to 1e-300
        assert found <= least + (math.log(1e-300) - weight) / (order - 1) + 1e-6
    curve = amplified(event, rows)
    assert min(curve.weights) >= sys.float_info.min
    assert sum(curve.weights) == pytest.approx(1, rel=1e-12)


@pytest.mark.parametrize("sensitivity", [0.0, 1e160])
def test_batches_that_cost_nothing_or_everything(sensitivity):
    event = SubsampledGaussian(5, 100, sensitivity, 1.0)
    for rows in (1, 3):
        assert (rdp(event, ORDERS, rows) == (math.inf if sensitivity else 0.0)).all()


def test_each_order_has_its_own_value():
    """In any order of them; at the first one here the curve of a batch is not amplified."""
    event = SubsampledGaussian(5, 100, 1.0, 1.0)
    values = rdp(event, [1e5, 2.0, 4.0])
    assert values.tolist() == [5e4, *rdp(event, [2.0, 4.0]).tolist()]
    assert values[2] < 1


def test_renyi_of_subsampling_matches_the_discretised_pair():
    event = SubsampledGaussian(10, 1000, 1.0, 0.9)
    step = 1e-3
    first, masses, infinite = loss_masses(event, step, 1e-25)
    losses = step * (first + np.arange(masses.size))
    assert infinite <= 1e-25
    for order in (1.5, 2.0, 5.0):
        discretised = math.log(masses @ np.exp((order - 1) * losses)) / (order - 1)
        assert float(rdp(event, order)[0]) == pytest.approx(discretised, rel=2e-3)


GRID = np.linspace(-14, 14, 100_001)


def objective_divergence(kappa, mu, order, center, rows):
    """Return the true Renyi divergence of the argmin, by quadrature in one dimension.

    The subproblem has strong convexity 1 and noise N(0, 1) in the gradient. A row adds to the
    gradient ``bend`` times an arctangent between -mu/2 and mu/2 whose steepest rise is kappa, plus
    ``shift`` times mu/2: both within the slope and the curvature that the theorem allows.
    """
    t = kappa * math.pi / mu * (GRID - center)

    def log_density(bend, shift):
        gradient = GRID + bend * mu / math.pi * np.arctan(t) + shift * mu / 2
        return norm.logpdf(gradient) + np.log1p(bend * kappa / (1 + t * t))

    first, second = rows
    logs = order * log_density(*first) + (1 - order) * log_density(*second)
    return math.log(np.trapezoid(np.exp(logs), GRID)) / (order - 1)


ROW_PAIRS = [
    ((1, 0), (0, 0)),
    ((0, 0), (1, 0)),
    ((1, 0), (0, 1)),
    ((0, 1), (1, 0)),
    ((0, -1), (1, 0)),
    ((0, -1), (0, 1)),
]


@pytest.mark.parametrize("kappa", [0.01, 0.3, 0.87])
@pytest.mark.parametrize("mu", [0.04, 0.5])
def test_theorem_op_bounds_the_true_divergence_in_one_dimension(kappa, mu):
    for order in (1.5, 2.0, min(1 + 0.9 / kappa, 8.0)):
        bound = float(rdp(GaussianObjectivePerturbation(mu, kappa), order)[0])
        for center in (-1.0, 0.0, 0.7):
            for pair in ROW_PAIRS:
                assert objective_divergence(kappa, mu, order, center, pair) <= bound * (1 + 1e-7)


def test_the_jacobian_may_not_be_dropped():
    kappa, mu = 0.87, 0.04
    true = objective_divergence(kappa, mu, 2.0, 0.0, ((1, 0), (0, 0)))
    assert true > 2 * mu**2 / 2


@pytest.mark.parametrize("rows", [2, 3])
def test_theorem_op_for_several_rows_bounds_one_dimensional_truth(rows):
    """In one dimension k equal rows act as one of k times the height and the steepness."""
    kappa, mu = 0.1, 0.1
    for order in (1.5, 2.0, 1 + 0.9 / (rows * kappa)):
        bound = float(rdp(GaussianObjectivePerturbation(mu, kappa), order, rows)[0])
        for pair in ROW_PAIRS:
            true = objective_divergence(rows * kappa, rows * mu, order, 0.0, pair)
            assert true <= bound * (1 + 1e-7)


def test_theorem_op_has_no_value_beyond_its_orders():
    event = GaussianObjectivePerturbation(0.1, 0.5)
    values = rdp(event, [2.9, 3.0, 4.0])
    assert np.isfinite(values[0])
    assert np.isinf(values[1:]).all()
    assert np.isinf(rdp(event, 2.5, rows=2)).all()


@given(st.integers(1, 5), st.floats(1e-6, 0.2), st.floats(1.01, 3))
def test_theorem_op_costs_more_for_more_rows(rows, kappa, order):
    event = GaussianObjectivePerturbation(0.1, kappa)
    assert rdp(event, order, rows + 1)[0] >= rdp(event, order, rows)[0]


@given(
    st.lists(st.floats(0, 0.15), min_size=2, max_size=4),
    st.floats(1.05, 2.5),
)
def test_the_jacobian_bound_for_several_rows_holds_for_every_spectrum(shares, order):
    """The sum of psi over eigenvalues that k rows allow never exceeds the bound at their sum."""
    from dpadmm.privacy.curves import objective_jacobian_rdp, psi

    rows, kappa = len(shares), 0.15
    a = np.array([order])
    spectrum = sum(float(psi(a, t)[0]) + float(psi(a, -t / (1 + t))[0]) for t in shares)
    assert spectrum <= float(objective_jacobian_rdp(a, kappa, rows)[0]) * (1 + 1e-9) + 1e-12


def test_the_curve_of_one_row_is_the_statement():
    event, epsilon = SubsampledGaussian(5, 100, 1.0, 0.7), 0.3
    stated = 0.05 * float(gaussian_delta(math.log1p(math.expm1(epsilon) / 0.05), 1 / 0.7))
    ours = math.exp(amplified(event).log_delta(np.array(epsilon)))
    assert ours == pytest.approx(stated, rel=1e-9)


def test_a_group_that_every_batch_meets_is_not_amplified():
    """Of six rows four are replaced: a batch of three holds one of them at least, or all three."""
    curve = amplified(SubsampledGaussian(3, 6, 1.0, 0.7), rows=4)
    epsilon = np.array([0.0, 0.5, 3.0])
    np.testing.assert_allclose(
        curve.log_delta(epsilon), gaussian_log_delta(epsilon, 3 / 0.7), rtol=1e-12
    )


def test_a_group_that_one_batch_misses_is_amplified():
    """Of six rows three are replaced: one batch of twenty holds none of them, another all three."""
    curve = amplified(SubsampledGaussian(3, 6, 1.0, 0.7), rows=3)
    assert curve.rate == pytest.approx(0.95)
    assert curve.weights == pytest.approx((9 / 19, 9 / 19, 1 / 19))
    assert curve.mus == pytest.approx((1 / 0.7, 2 / 0.7, 3 / 0.7))


def test_the_rate_of_one_row_is_its_share_to_the_last_bit():
    for batch in range(1, 101):
        assert amplified(SubsampledGaussian(batch, 100, 1.0, 1.0)).rate == batch / 100


def test_a_curve_reaches_no_further_than_its_tail():
    event = SubsampledGaussian(5, 100, 1.0, 0.7)
    assert amplified(SubsampledGaussian(3, 10, 1e-9, 0.7)).reach(1e-3) == 0
    assert loss_reach(PureRelease(0.4), 1e-9) == 0.4
    assert loss_reach(PureRelease(0.4), 1e-9, 3) == pytest.approx(1.2)
    assert loss_reach(GaussianRelease(1.0, 1.0), 1e-5) == float(gaussian_epsilon(1.0, 1e-5))
    assert amplified(event).reach(0.05) == amplified(event).reach(0.06) == 0
    assert amplified(SubsampledGaussian(5, 100, 0.0, 0.7)).reach(1e-9) == 0
    for rows in (1, 3):
        curve = amplified(event, rows)
        for tail in (1e-3, 1e-12):
            reach = curve.reach(tail)
            assert math.exp(curve.log_delta(np.array(reach))) <= tail * (1 + 1e-12)
            if rows == 1:
                assert math.exp(curve.log_delta(np.array(0.99 * reach))) > tail


def test_group_sampling_rate_is_hypergeometric():
    event = SubsampledGaussian(10, 100, 1.0, 1.0)
    for rows in (1, 2, 5):
        missed = math.comb(100 - rows, 10) / math.comb(100, 10)
        assert group_sampling_rate(event, rows) == pytest.approx(1 - missed, rel=1e-12)
    assert group_sampling_rate(event, 91) == 1
    event = SubsampledGaussian(3, 6, 1.0, 1.0)
    rates = [group_sampling_rate(event, rows) for rows in range(1, 7)]
    assert rates == pytest.approx([0.5, 0.8, 0.95, 1, 1, 1])


@pytest.mark.parametrize(
    "event",
    [
        GaussianRelease(1.0, 2.0),
        PureRelease(0.377),
        SubsampledGaussian(5, 100, 1.0, 0.7),
        SubsampledGaussian(1, 5000, 1.0, 0.5),
    ],
)
@pytest.mark.parametrize("rows", [1, 3])
def test_discretised_losses_dominate_the_curve(event, rows):
    step = 0.01
    first, masses, infinite = loss_masses(event, step, 1e-12, rows)
    losses = step * (first + np.arange(masses.size))
    assert masses.sum() + infinite == pytest.approx(1, abs=1e-9)
    for epsilon in np.linspace(0, 1.2, 50):
        above = losses > epsilon
        ours = infinite + masses[above] @ -np.expm1(epsilon - losses[above])
        if isinstance(event, PureRelease):
            level = rows * event.epsilon
            true = max(0.0, (math.exp(level) - math.exp(epsilon)) / (1 + math.exp(level)))
        else:
            true = math.exp(amplified(event, rows).log_delta(np.array(epsilon)))
        assert ours >= true * (1 - 1e-9) - 1e-12
        assert ours <= true * 1.01 + 1e-4


@pytest.mark.parametrize("event", [GaussianRelease(0.0, 1.0), SubsampledGaussian(1, 9, 1e-9, 1.0)])
def test_losses_within_the_tail_are_one_step_of_the_grid(event):
    first, masses, infinite = loss_masses(event, 0.1, 1e-3)
    assert -1 <= first <= 0
    assert first + masses.size == 2
    assert masses.sum() + infinite == pytest.approx(1, rel=1e-12)
    assert infinite <= 1e-3


@pytest.mark.parametrize("tail", [1e-2, 1e-6])
def test_the_lowest_losses_are_moved_up_as_far_as_they_do_not_matter(tail):
    """Losses of a Gaussian are Gaussian: a thousandth of the tail is moved, and no more."""
    mu, step = 4.0, 0.02
    first, masses, _ = loss_masses(GaussianRelease(mu, 1.0), step, tail)
    share = norm.cdf((step * first - mu**2 / 2) / mu)
    assert 0.8e-3 * tail < share < 1.2e-3 * tail
    assert masses[0] == pytest.approx(share, rel=0.2)


@settings(max_examples=25)
@given(st.integers(1, 4), st.floats(0.3, 3), st.floats(0, 2))
def test_group_curve_of_subsampling_bounds_small_populations(batch, sigma, epsilon):
    """Two of six rows replaced, sums of the batch: compare with the explicit mixtures."""
    population, rows = 6, 2
    event = SubsampledGaussian(batch, population, 1.0, sigma)
    # Replaced rows go from 0 to 1; the others are 0, so the batch's sum counts them.
    weights = [
        math.comb(rows, hits)
        * math.comb(population - rows, batch - hits)
        / math.comb(population, batch)
        if 0 <= batch - hits <= population - rows
        else 0.0
        for hits in range(rows + 1)
    ]
    x = np.linspace(-12 * sigma, 2 + 12 * sigma, 20001)
    changed = sum(w * norm.pdf(x, hits, sigma) for hits, w in enumerate(weights))
    original = norm.pdf(x, 0, sigma)
    bound = math.exp(amplified(event, rows).log_delta(np.array(epsilon)))
    for p, q in [(changed, original), (original, changed)]:
        true = np.trapezoid(np.maximum(p - math.exp(epsilon) * q, 0), x)
        assert true <= bound + 1e-6


def test_unknown_and_label_events_have_no_row_curve():
    @dataclass(frozen=True, slots=True)
    class Foreign(Event):
        kind: ClassVar[str] = "foreign"

    for event in (Foreign(), LabelRandomizedResponse(1.0), Composed((Foreign(),))):
        with pytest.raises(TypeError, match="no Renyi curve"):
            rdp(event, 2.0)
    with pytest.raises(TypeError, match="no privacy-loss"):
        loss_masses(GaussianObjectivePerturbation(0.1, 0.1), 0.1, 1e-9)


@pytest.mark.parametrize("order", [1.0, 0.5, -2.0, math.inf, math.nan])
def test_one_impossible_order_among_others_is_refused(order):
    for orders in (order, [2.0, order], [order, 2.0]):
        with pytest.raises(ValueError, match="orders must be"):
            rdp(PureRelease(1.0), orders)
