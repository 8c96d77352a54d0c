import itertools
import math
import re
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from dpadmm.algorithms import pr_admm
from dpadmm.privacy.accountant import epsilon_spent
from dpadmm.privacy.calibration import (
    InfeasibleBudgetError,
    InnerReleases,
    best_split,
    exponential_rate,
    gaussian_sigma,
    least_noise,
    objective_sigma,
    one_release_noise,
    pure_level,
    pure_noise,
    split_history,
    split_noise,
    subsampled_sigma,
)
from dpadmm.privacy.events import (
    GaussianObjectivePerturbation,
    GaussianRelease,
    InexactSolve,
    PureRelease,
    SubsampledGaussian,
)
from dpadmm.privacy.gaussian import gaussian_mu
from dpadmm.privacy.sensitivity import (
    argmin_sensitivity,
    gradient_sensitivity,
    jacobian_epsilon,
    jacobian_ratio,
    public_norm_factor,
)

budgets = st.floats(0.01, 20)
deltas = st.floats(1e-12, 0.01)


def spent(events, delta, **options):
    return epsilon_spent(events, delta, **options).epsilon


def assert_calibrated(epsilon, target, accuracy=1e-6):
    assert epsilon <= target
    assert epsilon >= target * (1 - accuracy)


# Sensitivities -----------------------------------------------------------------------------------


def test_the_local_problems_constants():
    convexity = np.array([2.2, 1.2])
    np.testing.assert_allclose(gradient_sensitivity([100, 200], weight=2), [0.04, 0.02])
    np.testing.assert_allclose(argmin_sensitivity(100, convexity), 0.02 / convexity)
    np.testing.assert_allclose(
        argmin_sensitivity(100, convexity, tolerance=1e-3), 0.022 / convexity
    )
    np.testing.assert_allclose(jacobian_ratio(100, convexity), 0.0025 / convexity)
    # PR-ADMM's setting: 1.25e-4 for eta = 0.5, V = 2, n = 8000 and no regularisation.
    assert float(argmin_sensitivity(8000, 2.0)) == pytest.approx(1.25e-4)
    with pytest.raises(ValueError, match="gradient sensitivity must be"):
        gradient_sensitivity(-1)


def test_public_norm_factor_known_values():
    radii = [0, 1, 2, 3, 5, 10]
    known = np.array([1.0, 1.099, 1.270, 1.419, 1.617, 1.821])
    factors = public_norm_factor(radii)
    assert (factors >= known - 5e-4).all()
    assert (factors <= known * 1.003).all()
    assert public_norm_factor(1e9) == 2
    assert public_norm_factor(np.inf) == 2
    for radius in (-1.0, float("nan")):
        with pytest.raises(ValueError, match="radius must be non-negative"):
            public_norm_factor(radius)


def test_public_norm_factor_is_above_the_two_parameter_maximum_and_monotone():
    angle = np.linspace(0, np.pi, 701)
    for radius in (0.0, 0.123, 0.9, 2.7, 6.1, 33.0, 150.0):
        slope = 1 / (1 + np.exp(radius * np.cos(angle)))
        along, across = slope * np.cos(angle), slope * np.sin(angle)
        squares = (along[:, None] - along) ** 2 + (across[:, None] + across) ** 2
        largest = math.sqrt(squares.max())
        assert largest <= public_norm_factor(radius) <= largest * 1.004
    values = public_norm_factor(np.linspace(0, 300, 5000))
    assert (np.diff(values) >= 0).all()


@pytest.mark.parametrize("knot", [0, 1, 100, 400, 700, 1000, 1023])
def test_public_norm_factor_is_an_upper_bound_where_it_is_tabulated(knot):
    """Between its knots it is read at the next larger one, which would hide what it lacks."""
    radius = float(np.expm1(np.linspace(0, np.log1p(256), 1024))[knot])

    def distance(angles):
        (one, other), slopes = angles, 1 / (1 + np.exp(radius * np.cos(angles)))
        ends = [slopes[0] * np.exp(1j * one), slopes[1] * np.exp(1j * other)]
        return -abs(ends[0] - ends[1])

    starts = itertools.product(np.linspace(0, 2 * np.pi, 40), repeat=2)
    start = min(starts, key=lambda angles: distance(np.array(angles)))
    found = minimize(distance, start, method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-15})
    # Two steps of the table at most are smaller than the largest of all radii.
    assert -found.fun <= float(public_norm_factor(radius)) <= -found.fun * 1.004


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: gradient_sensitivity(100, weight=-0.1), "gradient sensitivity"),
        (lambda: gradient_sensitivity([100, np.inf]), "gradient sensitivity"),
        (lambda: jacobian_ratio(100, 1.0, curvature=-0.1), "kappa"),
        (lambda: gaussian_sigma(1.0, 1e-5, [1.0, -0.5]), "sensitivity"),
        (lambda: gaussian_sigma(1.0, 1e-5, 1.0, [1.0, -0.5]), "ratios"),
        (lambda: pure_level([1.0, -0.5], 0.0, 3), "epsilon"),
        (lambda: pure_noise(1.0, 1e-5, [1.0, -0.5], 0.0), "shares"),
        (lambda: pure_noise(1.0, 1e-5, 1.0, [0.0, -0.5]), "fixed"),
        (lambda: objective_sigma(1.0, 1e-5, 0.01, [0.1, -0.5]), "kappa"),
        (lambda: objective_sigma([1.0, -0.5], 1e-5, 0.01, 0.1), "epsilon"),
        (lambda: objective_sigma(1.0, 1e-5, [0.01, -0.5], 0.1), "sensitivity"),
        (lambda: subsampled_sigma([1.0, -0.5], 1e-5, 2, 1, 10, 1.0), "epsilon"),
    ],
)
def test_one_number_out_of_range_among_others_is_refused(call, name):
    with pytest.raises(ValueError, match=f"{name} must be (positive|non-negative) and finite"):
        call()


@settings(max_examples=200)
@given(st.floats(0, 50), st.floats(0, 6.3), st.floats(0, 6.3), st.floats(0, 1), st.floats(0, 1))
def test_public_norm_factor_bounds_random_rows(radius, angle, other, length, length2):
    point = np.array([radius, 0.0])
    u = length * np.array([np.cos(angle), np.sin(angle)])
    v = length2 * np.array([np.cos(other), np.sin(other)])
    gap = u / (1 + np.exp(point @ u)) - v / (1 + np.exp(point @ v))
    assert np.linalg.norm(gap) <= public_norm_factor(radius)


# Gaussian noise ----------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(budgets, deltas, st.floats(0.3, 1), st.integers(1, 40), st.integers(1, 3))
def test_gaussian_calibration_meets_the_budget(epsilon, delta, decay, rounds, rows):
    ratios = pr_admm.periodic(rounds, decay, 3)
    sigma = float(gaussian_sigma(epsilon, delta, 0.01, ratios, rows_per_person=rows))
    events = [GaussianRelease(0.01, sigma * math.sqrt(ratio)) for ratio in ratios]
    assert_calibrated(spent(events, delta, rows_per_person=rows), epsilon)


def test_gaussian_calibration_over_parties():
    epsilon, delta = np.array([0.5, 1.0, 3.0]), np.array([1e-5, 1e-6, 1e-7])
    sensitivity = argmin_sensitivity([100, 1000, 50], [2.0, 1.0, 4.0])
    sigma = gaussian_sigma(epsilon, delta, sensitivity, np.ones(50))
    np.testing.assert_allclose(
        sigma, sensitivity * math.sqrt(50) / gaussian_mu(epsilon, delta), rtol=1e-6
    )
    for party in range(3):
        events = [(GaussianRelease(sensitivity[party], sigma[party]), 50)]
        assert_calibrated(spent(events, delta[party]), epsilon[party])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((0.0, 0.0, 1.0), "delta must be in"),
        ((-1.0, 1e-5, 1.0), "epsilon must be"),
        ((1.0, 1e-5, 0.0), "sensitivity must be positive"),
        ((1.0, 1e-5, 1.0, [1.0, 0.0]), "ratios must be positive"),
    ],
)
def test_gaussian_calibration_refuses_bad_input(arguments, words):
    with pytest.raises(ValueError, match=words):
        gaussian_sigma(*arguments)


# Pure noise --------------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(budgets, st.one_of(st.just(0.0), deltas), st.integers(1, 200), st.integers(1, 3))
def test_pure_calibration_meets_the_budget(epsilon, delta, rounds, rows):
    level = float(pure_level(epsilon, delta, rounds, rows_per_person=rows))
    assert level >= epsilon / rounds / rows * (1 - 1e-9)
    cost = spent([(PureRelease(level), rounds)], delta, rows_per_person=rows)
    assert_calibrated(cost, epsilon)


def test_discretised_calibrations_over_parties():
    epsilon, delta = np.array([1.0, 2.0, 1.0]), np.array([1e-5, 1e-6, 1e-5])
    level = pure_level(epsilon, delta, 20)
    assert level.shape == (3,)
    assert level[0] == level[2]
    sigma = subsampled_sigma(epsilon, delta, 50, 10, [500, 500, 1000], [1.0, 2.0, 1.0])
    for party in range(3):
        assert_calibrated(spent([(PureRelease(level[party]), 20)], delta[party]), epsilon[party])
        event = SubsampledGaussian(
            10, [500, 500, 1000][party], [1.0, 2.0, 1.0][party], sigma[party]
        )
        assert_calibrated(spent([(event, 50)], delta[party]), epsilon[party], 1e-3)


def test_pure_calibration_with_inexact_solves():
    extra = [(InexactSolve(1e-10, 1.0, 1e-6), 50)]
    level = pure_level(1.0, 1e-5, 50, extra=extra)
    assert_calibrated(spent([(PureRelease(level), 50), *extra], 1e-5), 1.0, 1e-3)
    assert 0.99 * pure_level(1.0, 1e-5, 50) < level < pure_level(1.0, 1e-5, 50)
    with pytest.raises(InfeasibleBudgetError, match="other releases cost") as caught:
        pure_level(0.1, 1e-5, 50, extra=[GaussianRelease(1.0, 5.0)])
    assert caught.value.smallest_epsilon > 0.1
    with pytest.raises(ValueError, match="rounds must be"):
        pure_level(1.0, 0.0, 0)


def test_exponential_rate_is_the_third_lemma():
    rows, kappa = np.array([100, 1000]), np.array([0.01, 0.001])
    rate = exponential_rate(0.1, rows, kappa)
    np.testing.assert_allclose(rate * 2 / rows + np.log1p(kappa), 0.1, rtol=1e-9)
    assert (rate * 2 / rows + np.log1p(kappa) <= 0.1).all()
    with pytest.raises(InfeasibleBudgetError, match=r"must exceed ln\(1 \+ kappa\)") as caught:
        exponential_rate(0.1, rows, [0.01, 0.2])
    assert caught.value.smallest_epsilon == pytest.approx(math.log(1.2))


# Objective perturbation --------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(
    st.floats(0.1, 10),
    deltas,
    st.floats(0, 1e-3),
    st.integers(1, 30),
    st.floats(0, 1e-3),
    st.integers(1, 2),
)
def test_objective_calibration_meets_the_budget(epsilon, delta, kappa, rounds, inexact, rows):
    ratios = pr_admm.periodic(rounds, 0.9)
    sigma = float(
        objective_sigma(
            epsilon, delta, 0.01, kappa, ratios, inexact_mu=inexact, rows_per_person=rows
        )
    )
    events = [
        GaussianObjectivePerturbation(0.01 / (sigma * math.sqrt(ratio)), kappa) for ratio in ratios
    ]
    solves = [(InexactSolve(inexact / 2, 1.0, 1.0), rounds)]
    assert_calibrated(spent([*events, *solves], delta, rows_per_person=rows), epsilon, 1e-5)


def test_objective_calibration_over_parties_and_rounds():
    kappa = np.array([[1e-3, 5e-4, 1e-4], [1e-2, 5e-3, 1e-3]])
    sigma = objective_sigma([1.0, 2.0], 1e-6, [0.01, 0.02], kappa, np.ones(3))
    for party, target in enumerate([1.0, 2.0]):
        mu = [0.01, 0.02][party] / sigma[party]
        events = [GaussianObjectivePerturbation(mu, value) for value in kappa[party]]
        assert_calibrated(spent(events, 1e-6), target, 1e-5)
    with pytest.raises(ValueError, match="1 or 4 columns; got 3"):
        objective_sigma(1.0, 1e-6, 0.01, kappa, np.ones(4))
    with pytest.raises(ValueError, match="delta must be in"):
        objective_sigma(1.0, 0.0, 0.01, 0.1)


def test_objective_calibration_says_what_would_be_feasible():
    with pytest.raises(InfeasibleBudgetError, match="epsilon must exceed") as caught:
        objective_sigma(0.01, 1e-5, 0.01, 0.1, np.ones(50))
    least = caught.value.smallest_epsilon
    sigma = objective_sigma(least * 1.01, 1e-5, 0.01, 0.1, np.ones(50))
    event = GaussianObjectivePerturbation(0.01 / float(sigma), 0.1)
    assert_calibrated(spent([(event, 50)], 1e-5), least * 1.01, 1e-5)


# Subsampling -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("epsilon", "steps", "batch", "population", "rows"),
    [(1.0, 500, 20, 2000, 1), (0.2, 100, 1, 300, 1), (8.0, 50, 10, 100, 2)],
)
def test_subsampled_calibration_meets_the_budget(epsilon, steps, batch, population, rows):
    sigma = subsampled_sigma(epsilon, 1e-5, steps, batch, population, 2.0, rows_per_person=rows)
    event = SubsampledGaussian(batch, population, 2.0, sigma)
    assert_calibrated(spent([(event, steps)], 1e-5, rows_per_person=rows), epsilon, 1e-3)


def test_subsampled_calibration_leaves_room_for_other_releases():
    extra = [(GaussianRelease(1.0, 50.0), 10)]
    sigma = subsampled_sigma(1.0, 1e-5, 200, 10, 1000, 1.0, extra=extra)
    history = [(SubsampledGaussian(10, 1000, 1.0, sigma), 200), *extra]
    assert_calibrated(spent(history, 1e-5), 1.0, 1e-3)
    with pytest.raises(InfeasibleBudgetError, match="other releases cost"):
        subsampled_sigma(0.1, 1e-5, 200, 10, 1000, 1.0, extra=[GaussianRelease(1.0, 5.0)])


def test_a_batch_rare_enough_needs_no_noise_to_speak_of():
    assert subsampled_sigma(1.0, 0.3, 1, 1, 10, 1.0) <= 1e-3


def test_split_and_one_release_histories():
    def history(share):
        return split_history(InnerReleases(5, 4, 5, 500), 0.5, 0.4, 0.004, share)

    share, guarantee = best_split(history, 1e-5)
    assert 0 < share < 1
    for other in (0.05, 0.5, 0.95):
        assert guarantee.epsilon <= spent(history(other), 1e-5) * (1 + 1e-3)
    assert [count for _, count in history(0.5)] == [15, 20]


@pytest.mark.parametrize("rows", [1, 2])
def test_both_noises_of_one_release_spend_the_budget(rows):
    run = InnerReleases(outer=6, inner=4, batch=5, population=300)
    gradient, difference = one_release_noise(1.0, 1e-5, run, share=0.4, rows_per_person=rows)
    full = [(GaussianRelease(1.0, gradient), 6)]
    steps = [(SubsampledGaussian(5, 300, 1.0, difference), 18)]
    # The gradients get their share of mu^2, the batches what is left.
    mu = float(gaussian_mu(1.0, 1e-5))
    assert rows**2 * 6 / gradient**2 == pytest.approx(0.4 * mu**2, rel=1e-9)
    assert_calibrated(spent([*full, *steps], 1e-5, rows_per_person=rows), 1.0, 2e-3)


@pytest.mark.parametrize("rows", [1, 3])
def test_one_inner_step_gives_gradients_the_whole_budget(rows):
    run = InnerReleases(outer=7, inner=1, batch=5, population=300)
    gradient, difference = one_release_noise(2.0, 1e-6, run, share=0.4, rows_per_person=rows)
    assert difference == 0
    assert_calibrated(spent([(GaussianRelease(1.0, gradient), 7)], 1e-6, rows_per_person=rows), 2.0)


@pytest.mark.parametrize("rows", [1, 2])
def test_split_noise_spends_the_budget(rows):
    run = InnerReleases(outer=3, inner=3, batch=4, population=200)
    sigma, share = split_noise(1.5, 1e-5, run, 0.2, 0.01, rows_per_person=rows)
    assert 0 < share < 1
    history = [
        (SubsampledGaussian(4, 200, 0.2, sigma * math.sqrt(share)), 6),
        (GaussianRelease(0.01, sigma * math.sqrt(1 - share)), 9),
    ]
    assert_calibrated(spent(history, 1e-5, rows_per_person=rows), 1.5, 2e-3)
    assert spent(split_history(run, sigma, 0.2, 0.01, share), 1e-5, rows_per_person=rows) == (
        spent(history, 1e-5, rows_per_person=rows)
    )


# Pure releases of different sizes ----------------------------------------------------------------


@settings(max_examples=25)
@given(budgets, deltas, st.integers(1, 60), st.floats(1.0, 1.1), st.integers(1, 3))
def test_noise_in_proportion_spends_the_budget(epsilon, delta, rounds, growth, rows):
    shares = 0.7 / growth ** np.arange(rounds)
    fixed = np.full(rounds, epsilon / (20 * rounds * rows))
    extra = [(InexactSolve(1e-4 * float(gaussian_mu(epsilon, delta)), 2.0, 1.0), rounds)]
    noise = pure_noise(epsilon, delta, shares, fixed, rows_per_person=rows, extra=extra)
    history = [*(PureRelease(level) for level in shares / noise + fixed), *extra]
    found = spent(history, delta, rows_per_person=rows)
    assert found <= epsilon
    # The search stops early only below a thousandth of the noise that basic composition needs.
    assert found >= 0.998 * epsilon or noise <= 1.1e-3 * shares.sum() * rows / epsilon


def test_equal_proportions_are_equal_levels():
    noise = pure_noise(1.0, 1e-5, np.full(50, 0.3), 0.0)
    assert 0.3 / noise == pytest.approx(float(pure_level(1.0, 1e-5, 50)), rel=2e-3)


def test_a_budget_below_the_sum_of_what_is_fixed_may_do():
    """What noise does not lower adds up to 2, composes to less, and leaves room for the rest."""
    noise = pure_noise(1.5, 1e-5, np.full(200, 0.3), 0.01)
    assert_calibrated(spent([(PureRelease(0.3 / noise + 0.01), 200)], 1e-5), 1.5, 2e-3)


@pytest.mark.parametrize("cheap", [0.0, 0.5])
@pytest.mark.parametrize("dear", [10.0, math.inf])
@pytest.mark.parametrize("border", [0.02, 1.0, 1.05, 300.0])
def test_the_search_for_noise_stays_on_the_safe_side_of_a_jump(cheap, dear, border):
    found = least_noise(lambda noise: cheap if noise >= border else dear, 1.0, start=1.0)
    assert border <= found <= border * (1 + 1e-9)


def test_a_budget_below_what_noise_does_not_lower_is_refused():
    with pytest.raises(InfeasibleBudgetError, match="a larger penalty or more rows") as refusal:
        pure_noise(0.1, 1e-5, np.ones(4), np.full(4, 0.05))
    assert refusal.value.smallest_epsilon == pytest.approx(0.2, abs=0.01)
    with pytest.raises(ValueError, match="shares must be positive"):
        pure_noise(1.0, 1e-5, [1.0, 0.0], 0.0)


# What no other test would miss -------------------------------------------------------------------


def test_a_budget_of_exactly_what_noise_does_not_lower_is_refused():
    """Of no more than the other releases cost nothing is left for noise to spend."""
    pure, gaussian = [PureRelease(0.5)], [GaussianRelease(1.0, 20.0)]
    calls = [
        (0.5, lambda budget: pure_level(budget, 0.0, 3, extra=pure)),
        (0.5, lambda budget: pure_noise(budget, 0.0, [1.0, 1.0], 0.0, extra=pure)),
        (
            spent(gaussian, 1e-5),
            lambda budget: subsampled_sigma(budget, 1e-5, 3, 1, 10, 1.0, extra=gaussian),
        ),
        (
            float(jacobian_epsilon(0.1)),
            lambda budget: exponential_rate([1.0, budget], 10, [0.0, 0.1]),
        ),
    ]
    for least, call in calls:
        for budget in (least, 0.8 * least):
            with pytest.raises(InfeasibleBudgetError, match="must exceed") as refusal:
                call(budget)
            assert refusal.value.smallest_epsilon == least


def test_pure_levels_without_delta_leave_room_for_other_releases():
    for other, left in ((0.4, 0.2), (0.97, 0.01)):
        level = float(pure_level(1.0, 0.0, 3, extra=[PureRelease(other)]))
        assert 3 * Fraction(level) + Fraction(other) <= 1
        assert level == pytest.approx(left, rel=2e-3)


@pytest.mark.parametrize("seed", range(5))
def test_noise_without_delta_makes_sums_of_the_budget_at_most(seed):
    """In fractions: nothing is lost to the order in which a charge is worked out."""
    draw = np.random.default_rng(seed)
    for _ in range(20):
        epsilon, shares = float(draw.uniform(0.1, 5)), draw.uniform(0.1, 2, 3)
        fixed = draw.uniform(0, epsilon / 12, 3)
        noise = Fraction(pure_noise(epsilon, 0.0, shares, fixed, rows_per_person=2))
        each = [Fraction(share) / noise for share in shares.tolist()]
        total = 2 * (sum(each) + sum(map(Fraction, fixed.tolist())))
        assert Fraction(0.998 * epsilon) <= total <= Fraction(epsilon)


def test_costs_on_the_border_end_the_search_for_noise():
    assert least_noise(lambda noise: 1 / noise, 1.0, start=1.0) == 1
    assert least_noise(lambda noise: 0.999, 1.0, start=1.0) == 1
    assert least_noise(lambda noise: 0.0, 1.0, start=1e-3) == 1e-3


@pytest.mark.parametrize("kappa", [0.002, [0.002, 0.001], [[0.002, 0.001, 0.003]]])
@pytest.mark.parametrize("rows", [1, 2])
def test_every_round_of_every_party_pays_for_its_jacobian(kappa, rows):
    sigma = np.atleast_1d(objective_sigma(1.0, 1e-6, 0.01, kappa, np.ones(3), rows_per_person=rows))
    columns = np.atleast_1d(kappa) if np.ndim(kappa) < 2 else np.array(kappa).T
    for party, noise in enumerate(sigma.tolist()):
        ratios = columns[:, 0] if np.ndim(kappa) == 2 else np.repeat(columns[party], 3)
        events = [GaussianObjectivePerturbation(0.01 / noise, ratio) for ratio in ratios.tolist()]
        assert_calibrated(spent(events, 1e-6, rows_per_person=rows), 1.0, 1e-5)


@pytest.mark.parametrize("rows", [1, 2])
def test_the_party_whose_budget_is_too_small_is_told_what_would_do(rows):
    kappa = np.array([[0.01, 0.02, 0.03], [0.2, 0.1, 0.15], [0.01, 0.01, 0.01]])
    with pytest.raises(InfeasibleBudgetError) as refusal:
        objective_sigma(
            [50.0, 1.0, 60.0],
            1e-5,
            0.01,
            kappa,
            np.ones(3),
            inexact_mu=[0.1, 0.3, 0.2],
            rows_per_person=rows,
        )
    # The solver's tolerance is the same for one row and for several.
    floor = [GaussianObjectivePerturbation(0.0, each) for each in kappa[1].tolist()]
    floor.append((InexactSolve(0.15, 1.0, 1.0), 3))
    least = spent(floor, 1e-5, rows_per_person=rows)
    assert refusal.value.smallest_epsilon == pytest.approx(least, rel=1e-9)
    assert str(refusal.value).startswith("epsilon must exceed")
    # What is shown suffices.
    (shown,) = re.findall(r"epsilon must exceed ([0-9.]+), what", str(refusal.value))
    assert least <= float(shown) <= least * (1 + 1e-5)
    assert "got 1.0;" in str(refusal.value)


def test_inexact_solves_that_cost_a_little_too_much_are_refused():
    mu = float(gaussian_mu(1.0, 1e-5))
    for inexact in (1.001 * mu, [0.0, 1.1 * mu]):
        with pytest.raises(InfeasibleBudgetError, match="the inexact solves of 1 rounds cost"):
            objective_sigma(1.0, 1e-5, 0.01, 0.0, inexact_mu=inexact)


def test_one_delta_that_is_none_among_others_is_refused():
    for wrong in (0.0, 1.0, 1.5, math.nan):
        with pytest.raises(ValueError, match=r"delta must be in \(0, 1\) for Gaussian noise"):
            objective_sigma(1.0, [1e-5, wrong], 0.01, 0.1)


def test_one_release_without_any_order_is_refused_whatever_the_budget():
    """Theorem OP needs orders that doubles tell from 1, for every release and all rows."""
    sigma = float(objective_sigma(1e14, 1e-5, 0.01, [[0.1, 1e12]], np.ones(2))[0])
    events = [GaussianObjectivePerturbation(0.01 / sigma, kappa) for kappa in (0.1, 1e12)]
    assert_calibrated(spent(events, 1e-5), 1e14, 1e-3)
    for kappa, rows in (([[0.1, 2e12]], 1), ([[2e12, 0.1]], 1), ([[0.1, 0.9e12]], 2)):
        for epsilon in (1e14, 1e20):
            with pytest.raises(InfeasibleBudgetError) as refusal:
                objective_sigma(epsilon, 1e-5, 0.01, kappa, np.ones(2), rows_per_person=rows)
            assert refusal.value.smallest_epsilon == math.inf


def test_noise_is_for_one_round_unless_more_are_named():
    for find in (gaussian_sigma, lambda *budget: objective_sigma(*budget, 0.01)):
        sigma = float(find(1.0, 1e-5, 0.01))
        event = GaussianRelease(0.01, sigma)
        if find is not gaussian_sigma:
            event = GaussianObjectivePerturbation(0.01 / sigma, 0.01)
        assert_calibrated(spent([event], 1e-5), 1.0, 1e-5)


@pytest.mark.parametrize(
    ("function", "arguments", "name"),
    [
        (gaussian_sigma, (1.0, 1e-5, 0.01, 1.0), "rows_per_person"),
        (pure_level, (1.0, 0.0, 3), "rows_per_person"),
        (pure_noise, (1.0, 0.0, 1.0, 0.0), "rows_per_person"),
        (objective_sigma, (1.0, 1e-5, 0.01, 0.01, 1.0), "rows_per_person"),
        (subsampled_sigma, (1.0, 0.3, 1, 1, 10, 1.0), "rows_per_person"),
        (exponential_rate, (1.0, 10, 0.1), "weight"),
    ],
)
def test_what_is_one_unless_told_is_given_by_name(function, arguments, name):
    """A number by position could be taken for anything."""
    assert function(*arguments, **{name: 1}) == function(*arguments)
    with pytest.raises(TypeError, match="positional argument"):
        function(*arguments, 2)
