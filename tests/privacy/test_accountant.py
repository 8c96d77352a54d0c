import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpadmm.privacy import accountant
from dpadmm.privacy.accountant import (
    Guarantee,
    delta_spent,
    epsilon_curve,
    epsilon_spent,
    joint_label_delta,
    joint_label_guarantee,
    larger,
    network_guarantee,
    spend_over_rounds,
    total_mu,
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
from dpadmm.privacy.gaussian import gaussian_delta, gaussian_epsilon

OBJECTIVE = GaussianObjectivePerturbation(0.05, 0.25 / (8000 * 2.01))
SAMPLED = SubsampledGaussian(1, 1000, 1.0, 0.8)


def spent(events, delta=1e-5, **options):
    return epsilon_spent(events, delta, **options).epsilon


# Known figures -----------------------------------------------------------------------------------


def test_gaussian_releases_compose_exactly():
    events = [GaussianRelease(1.0, sigma) for sigma in np.linspace(5, 50, 40)]
    mu = math.sqrt(sum((1 / event.sigma) ** 2 for event in events))
    guarantee = epsilon_spent(events, 1e-5)
    assert guarantee.accountant == "exact-gaussian"
    assert guarantee.epsilon == pytest.approx(float(gaussian_epsilon(mu, 1e-5)), rel=1e-12)
    assert total_mu(events) == pytest.approx(mu)
    assert spent([(GaussianRelease(1.0, 20.0), 50)]) == pytest.approx(1.356, abs=5e-4)


def test_objective_perturbation():
    guarantee = epsilon_spent([(OBJECTIVE, 50)], 1e-5)
    assert guarantee.accountant == "renyi"
    assert 1 < guarantee.order < 1 + 1 / OBJECTIVE.kappa
    assert guarantee.epsilon == pytest.approx(1.478, abs=5e-4)
    for strength, figure in [(2.044, 1.900), (2.01, 1.913)]:
        event = GaussianObjectivePerturbation(0.05, 1750 * 0.25 / (8000 * strength))
        assert spent([(event, 50)]) == pytest.approx(figure, abs=5e-4)


def test_pure_releases_compose_optimally():
    guarantee = epsilon_spent([(PureRelease(0.1), 50)], 1e-4)
    assert guarantee.accountant == "optimal-pure"
    assert guarantee.epsilon == pytest.approx(2.479, abs=5e-4)
    assert spent([(PureRelease(0.1), 50)], 0.0) == pytest.approx(5.0)
    assert spent([(PureRelease(0.1), 2)], 1e-9) <= 0.2


def test_subsampling_without_replacement():
    guarantee = epsilon_spent([(SAMPLED, 5000)], 1e-5)
    assert guarantee.accountant == "privacy-loss"
    assert guarantee.epsilon == pytest.approx(0.695, abs=5e-4)


def test_an_inexact_solve_adds_its_mu():
    solve = InexactSolve(1e-10, 1.0, 1e-6)
    one_round = Composed((OBJECTIVE, solve))
    base, with_solve = spent([(OBJECTIVE, 50)]), spent([(one_round, 50)])
    assert base < with_solve < base * 1.001
    assert total_mu([(solve, 4)]) == pytest.approx(4e-4)


# Second opinions ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("level", "count"), [(0.1, 50), (0.01, 5000), (1.0, 7), (2.5, 1)])
def test_optimal_pure_composition_agrees_with_another_library(level, count):
    from dp_accounting.pld import common, privacy_loss_distribution

    # A power of two keeps the grid exact, so that the other library rounds nothing.
    other = privacy_loss_distribution.from_privacy_parameters(
        common.DifferentialPrivacyParameters(level), level / 64
    ).self_compose(count)
    for delta in (1e-8, 1e-5, 0.01, 0.3):
        ours = spent([(PureRelease(level), count)], delta)
        assert ours == pytest.approx(other.get_epsilon_for_delta(delta), rel=1e-5, abs=1e-6)
        if ours > 0:
            back = delta_spent([(PureRelease(level), count)], ours).delta
            assert back == pytest.approx(delta, rel=1e-3)


def test_optimal_pure_composition_matches_a_direct_sum():
    level, count = 0.7, 5
    p = 1 / (1 + math.exp(-level))
    for epsilon in (0.0, 0.3, 1.0, 2.4, 3.4, 4.0):
        direct = sum(
            math.comb(count, j)
            * p ** (count - j)
            * (1 - p) ** j
            * max(0.0, 1 - math.exp(epsilon - (count - 2 * j) * level))
            for j in range(count + 1)
        )
        ours = delta_spent([(PureRelease(level), count)], epsilon).delta
        assert ours == pytest.approx(direct, rel=1e-7)


def test_different_pure_releases_agree_with_exact_enumeration():
    levels = [0.1, 0.23, 0.5, 0.77, 1.1]
    losses, masses = np.zeros(1), np.ones(1)
    for level in levels:
        p = 1 / (1 + math.exp(-level))
        losses = np.concatenate([losses + level, losses - level])
        masses = np.concatenate([masses * p, masses * (1 - p)])
    for epsilon in (0.2, 1.0, 2.0):
        true = masses @ np.maximum(0, -np.expm1(np.minimum(epsilon - losses, 0)))
        ours = delta_spent([PureRelease(level) for level in levels], epsilon).delta
        assert true <= ours <= true * 1.002


def test_the_numerical_composition_of_gaussians_is_close_to_exact_and_above():
    """A mixture whose pure part is negligible: the privacy-loss path must give the Gaussian's."""
    from dpadmm.privacy.curves import PrivacyLoss

    for mu in (0.05, 0.3, 2.0):
        event = GaussianRelease(mu, 1.0)
        for delta in (1e-8, 1e-5, 1e-2):
            exact = float(gaussian_epsilon(mu * 3, delta))
            ours = PrivacyLoss([(event, 9)], 1, delta * 1e-4).epsilon(delta)
            assert exact <= ours <= exact * (1 + 1e-3)


def test_subsampling_agrees_with_another_accountant():
    """The library's Renyi bound for sampling without replacement is valid, and looser."""
    import dp_accounting
    from dp_accounting import rdp

    relation = dp_accounting.NeighboringRelation.REPLACE_ONE
    accountant = rdp.RdpAccountant(neighboring_relation=relation)
    accountant.compose(
        dp_accounting.SampledWithoutReplacementDpEvent(1000, 1, dp_accounting.GaussianDpEvent(0.8)),
        5000,
    )
    looser = accountant.get_epsilon(1e-5)
    ours = spent([(SAMPLED, 5000)])
    assert 0.666 < ours < looser
    assert looser == pytest.approx(1.432, abs=0.01)


def test_objective_perturbation_without_curvature_is_the_renyi_gaussian():
    import dp_accounting
    from dp_accounting import rdp

    mu = 0.05 * math.sqrt(50)
    accountant = rdp.RdpAccountant(np.linspace(5, 25, 2001))
    accountant.compose(dp_accounting.GaussianDpEvent(20.0), 50)
    ours = spent([(GaussianObjectivePerturbation(0.05, 0.0), 50)])
    assert ours == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-6)
    assert ours >= float(gaussian_epsilon(mu, 1e-5))


# Properties --------------------------------------------------------------------------------------

rounds_of = st.lists(
    st.one_of(
        st.builds(GaussianRelease, st.floats(0, 1), st.floats(0.5, 50)),
        st.builds(InexactSolve, st.floats(0, 1e-3), st.floats(0.5, 5), st.floats(0.01, 1)),
        st.builds(GaussianObjectivePerturbation, st.floats(0, 1), st.floats(0, 0.3)),
        st.just(PostProcessing()),
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=50, deadline=None)
@given(rounds_of, st.randoms(use_true_random=False))
def test_order_does_not_matter(events, random):
    shuffled = list(events)
    random.shuffle(shuffled)
    assert spent(shuffled) == pytest.approx(spent(events), rel=1e-9, abs=1e-12)


@settings(max_examples=50, deadline=None)
@given(rounds_of, st.integers(1, 30))
def test_single_events_cost_what_a_count_costs(events, count):
    assert spent(events * count) == pytest.approx(
        spent([(event, count) for event in events]), rel=1e-9, abs=1e-12
    )


@pytest.mark.parametrize(
    "event",
    [
        GaussianRelease(1.0, 20.0),
        PureRelease(0.1),
        OBJECTIVE,
        SubsampledGaussian(5, 100, 1.0, 2.0),
        InexactSolve(1e-3, 1.0, 0.1),
        PostProcessing(),
        NonPrivate(),
        Composed((PureRelease(0.1), GaussianRelease(1.0, 20.0))),
    ],
    ids=lambda event: event.kind,
)
def test_no_event_forgets_its_count(event):
    once, counted, listed = spent([event]), spent([(event, 12)]), spent([event] * 12)
    assert counted == listed
    assert counted > once or event.kind in ("post-processing", "non-private")
    assert spent([(event, 0)]) == 0


@settings(max_examples=40, deadline=None)
@given(rounds_of, st.floats(1e-10, 0.1), st.floats(1.01, 9))
def test_epsilon_falls_in_delta_and_rises_with_rows_per_person(events, delta, factor):
    assert spent(events, delta * factor) <= spent(events, delta) + 1e-9
    assert spent(events, delta, rows_per_person=2) >= spent(events, delta) - 1e-9


@settings(max_examples=20, deadline=None)
@given(st.floats(0.5, 5), st.floats(1.01, 2), st.floats(0.01, 0.5))
def test_more_noise_never_costs_more(sigma, factor, level):
    def costs(noise):
        return [
            spent([(GaussianRelease(1.0, noise), 10)]),
            spent([(GaussianObjectivePerturbation(1 / noise, 0.01), 10)]),
            spent([(PureRelease(level / noise), 10)]),
            spent([(PureRelease(level / noise), 10), GaussianRelease(1.0, noise)]),
        ]

    # Grids of the numerical composition differ: it may lose its last digit, no more.
    for noisy, noisier in zip(costs(sigma), costs(sigma * factor), strict=True):
        assert noisier <= noisy * (1 + 1e-4)


@settings(max_examples=40, deadline=None)
@given(rounds_of, st.floats(1e-8, 0.01))
def test_delta_and_epsilon_are_consistent(events, delta):
    guarantee = epsilon_spent(events, delta)
    if 0 < guarantee.epsilon < math.inf:
        assert delta_spent(events, guarantee.epsilon).delta == pytest.approx(delta, rel=1e-3)


def test_a_mixture_costs_at_least_its_parts_and_at_most_their_sum():
    parts = [
        [(PureRelease(0.05), 20)],
        [(GaussianRelease(1.0, 20.0), 10)],
        [(SubsampledGaussian(5, 500, 1.0, 1.0), 100)],
    ]
    together = epsilon_spent([event for part in parts for event in part], 1e-5)
    assert together.accountant == "privacy-loss"
    alone = [spent(part) for part in parts]
    assert max(alone) <= together.epsilon <= sum(alone)
    with_objective = epsilon_spent([(PureRelease(0.05), 20), (OBJECTIVE, 10)], 1e-5)
    assert with_objective.accountant in ("renyi", "basic")
    assert with_objective.events == ("gaussian-objective", "pure")
    assert with_objective.epsilon <= 1.0 + spent([(OBJECTIVE, 10)])


@pytest.mark.parametrize(
    "largest", [GaussianRelease(1.0, 0.5), PureRelease(5.0), SubsampledGaussian(5, 500, 1.0, 0.3)]
)
def test_no_part_of_a_mixture_is_left_out(largest):
    """Whichever part costs most, and once or several times."""
    small = [GaussianRelease(1.0, 20.0), PureRelease(0.1), SubsampledGaussian(5, 500, 1.0, 5.0)]
    for count in (1, 3):
        together = epsilon_spent([*small, (largest, count)], 1e-5)
        assert together.accountant == "privacy-loss"
        assert spent([(largest, count)]) <= together.epsilon


def test_a_delta_below_the_numerical_accuracy_falls_back_to_renyi():
    history = [(SubsampledGaussian(1, 100, 1.0, 2.0), 1000)]
    guarantee = epsilon_spent(history, 1e-13)
    assert guarantee.accountant == "renyi"
    assert spent(history, 1e-9) < guarantee.epsilon < math.inf


def test_a_tiny_delta_is_not_stuck_at_the_numerical_floor():
    history = [(SubsampledGaussian(1, 100, 1.0, 2.0), 100)]
    assert 0 < delta_spent(history, 4.0).delta < 1e-20
    gaussian = delta_spent([GaussianRelease(1.0, 1.0)], 1e4)
    assert 0 < gaussian.delta < 1e-300


def test_many_different_sizes_are_rounded_up_only_slightly():
    levels = np.linspace(0.005, 0.02, 3000)
    ladder = spent([PureRelease(level) for level in levels])
    half = spent([(PureRelease(level), 2) for level in levels[::2]])
    assert ladder == pytest.approx(half, rel=2e-3)
    merged = [(SubsampledGaussian(1, 100, 1.0, sigma), 2) for sigma in np.linspace(3, 3.5, 80)]
    several = [(SubsampledGaussian(1, 100, 1.0, sigma), 20) for sigma in np.linspace(3, 3.5, 8)]
    assert spent(merged) == pytest.approx(spent(several), rel=1e-2)


# Groups, curves, rounds, networks ----------------------------------------------------------------


def test_rows_per_person():
    assert spent([GaussianRelease(1.0, 20.0)], rows_per_person=3) == pytest.approx(
        spent([GaussianRelease(3.0, 20.0)])
    )
    assert spent([(PureRelease(0.1), 5)], rows_per_person=3) == pytest.approx(
        spent([(PureRelease(0.3), 5)])
    )
    solve = [(InexactSolve(1e-3, 1.0, 0.1), 5)]
    assert spent(solve, rows_per_person=3) == spent(solve)
    one = spent([(SubsampledGaussian(5, 500, 1.0, 2.0), 100)])
    two = spent([(SubsampledGaussian(5, 500, 1.0, 2.0), 100)], rows_per_person=2)
    assert 2 * one < two < 4 * one
    mixed = [GaussianRelease(0.1, 1.0), PureRelease(0.05), SubsampledGaussian(5, 500, 1.0, 2.0)]
    assert spent(mixed, rows_per_person=2) > spent(mixed)
    for wrong in (0, 1.5, True):
        with pytest.raises(ValueError, match="rows_per_person"):
            spent(mixed, rows_per_person=wrong)


def test_epsilon_curve_matches_single_queries():
    deltas = [1e-8, 1e-6, 1e-3]
    for events in (
        [(GaussianRelease(1.0, 20.0), 50)],
        [(OBJECTIVE, 50)],
        [(PureRelease(0.1), 20), GaussianRelease(1.0, 10.0)],
    ):
        curve = epsilon_curve(events, deltas)
        np.testing.assert_allclose(curve, [spent(events, delta) for delta in deltas], rtol=1e-4)


def test_a_curve_is_refused_for_one_delta_and_infinite_at_none():
    events = [(PureRelease(0.1), 20), GaussianRelease(1.0, 10.0)]
    for wrong in (1.0, -1e-9, math.nan):
        for history in (events, events[:1]):
            with pytest.raises(ValueError, match=r"delta must be in \[0, 1\)"):
                epsilon_curve(history, [1e-5, wrong])
    at_none, at_some = epsilon_curve(events, [0.0, 1e-5])
    assert at_none == math.inf
    assert at_some == pytest.approx(spent(events, 1e-5), rel=1e-4)


@pytest.mark.parametrize(
    "event",
    [
        GaussianRelease(1.0, 20.0),
        PureRelease(0.1),
        OBJECTIVE,
        Composed((PureRelease(0.1), InexactSolve(1e-10, 1.0, 1e-6))),
    ],
    ids=lambda event: event.kind,
)
def test_spend_over_rounds_rises_to_the_total(event):
    rounds = [event, PostProcessing(), event, event]
    epsilons = spend_over_rounds(rounds, 1e-5)
    assert epsilons.shape == (4,)
    assert (np.diff(epsilons) >= 0).all()
    assert epsilons[0] == pytest.approx(epsilons[1])
    assert epsilons[-1] == pytest.approx(spent([(event, 3)]), rel=1e-6)
    assert spend_over_rounds([NonPrivate(), event], 1e-5).tolist() == [math.inf, math.inf]


def test_spend_over_rounds_at_delta_zero():
    assert spend_over_rounds([PureRelease(0.5)] * 3, 0.0) == pytest.approx([0.5, 1.0, 1.5])
    assert spend_over_rounds([PostProcessing()], 0.0) == pytest.approx([0.0])


def test_the_network_has_the_largest_epsilon_not_the_sum():
    parties = [epsilon_spent([GaussianRelease(1.0, sigma)], 1e-5) for sigma in (5.0, 10.0)]
    assert network_guarantee(parties) == parties[0]
    with pytest.raises(ValueError, match="one scope"):
        network_guarantee([parties[0], Guarantee(1.0, 0.0, "", "", scope="label")])
    with pytest.raises(ValueError, match="one scope"):
        network_guarantee([])


# Refusals ----------------------------------------------------------------------------------------


def test_nothing_costs_nothing_and_a_bare_release_everything():
    assert spent([]) == 0
    assert spent([PostProcessing()], 0.0) == 0
    assert delta_spent([PostProcessing()], 0.0).delta == 0
    bare = epsilon_spent([NonPrivate(), GaussianRelease(1.0, 1.0)], 1e-5)
    assert bare.epsilon == math.inf
    assert bare.accountant == "none"
    assert delta_spent([NonPrivate()], 10.0).delta == 1
    assert spent([GaussianRelease(1.0, 1.0)], 0.0) == math.inf
    assert spent([(PureRelease(0.1), 3), GaussianRelease(1.0, 1.0)], 0.0) == math.inf
    assert spent([OBJECTIVE], 0.0) == math.inf
    assert spent([GaussianRelease(1e300, 1e-300)]) == math.inf
    assert spent([(GaussianRelease(1e154, 1.0), 5)] * 2) == math.inf
    assert spent([GaussianObjectivePerturbation(1e200, 0.1)]) == math.inf


def test_what_costs_nothing_leaves_the_rest_its_exact_figure():
    gaussian = [(GaussianRelease(1.0, 20.0), 50)]
    free = [
        PureRelease(0.0),
        SubsampledGaussian(1, 10, 0.0, 1.0),
        (PureRelease(0.1), 0),
        (SAMPLED, 0),
        (OBJECTIVE, 0),
        (NonPrivate(), 0),
    ]
    found = epsilon_spent([*free, *gaussian], 1e-5)
    assert (found.accountant, found.epsilon) == ("exact-gaussian", spent(gaussian))
    assert total_mu([*free, *gaussian]) == total_mu(gaussian)


def test_mu_is_infinite_without_noise_and_none_of_other_releases():
    assert total_mu([GaussianRelease(1.0, 2.0), NonPrivate()]) == math.inf
    for event in (PureRelease(0.1), SAMPLED, OBJECTIVE):
        with pytest.raises(ValueError, match="Gaussian events only"):
            total_mu([GaussianRelease(1.0, 2.0), event])


@pytest.mark.parametrize(
    "events",
    [
        [(GaussianRelease(1.0, 2.0), 3)],
        [(GaussianRelease(1.0, 2.0), 60), (PureRelease(0.3), 2)],
        [(SubsampledGaussian(5, 50, 1.0, 0.5), 4), (GaussianRelease(1.0, 3.0), 1)],
        [(GaussianRelease(1.0, sigma), 1) for sigma in np.linspace(0.5, 2, 30).tolist()],
    ],
)
@pytest.mark.parametrize("rows", [1, 2])
def test_no_mass_is_lost_in_a_numerical_composition(events, rows):
    """Tails so large that they show: what is cut off counts as an infinite loss."""
    from dpadmm.privacy.curves import PrivacyLoss, loss_masses

    bound = PrivacyLoss(events, rows, 0.2)
    number = sum(count for _, count in events)
    beyond = [loss_masses(event, bound.step, 0.1 / number, rows)[2] for event, _ in events]
    cut = 1 - math.prod(
        (1 - each) ** count for each, (_, count) in zip(beyond, events, strict=True)
    )
    assert cut > 1e-3
    assert cut * (1 - 1e-9) <= bound.delta(1e6) <= 0.2 * (1 + 1e-9)
    assert bound.delta(-1e3) == pytest.approx(1, abs=1e-9)


def test_an_unknown_event_is_refused_never_ignored():
    @dataclass(frozen=True, slots=True)
    class Foreign(Event):
        kind: ClassVar[str] = "foreign"

    @dataclass(frozen=True, slots=True)
    class Cheaper(GaussianRelease):
        kind: ClassVar[str] = "cheaper"

    for event in (Foreign(), Composed((Foreign(),)), Cheaper(1.0, 1.0), "gaussian", None):
        with pytest.raises(TypeError, match="no theorem"):
            spent([event])
    for count in (-1, 1.5, None):
        with pytest.raises(ValueError, match="count must be"):
            spent([(PureRelease(1.0), count)])
    with pytest.raises(TypeError):
        spent(PureRelease(1.0))


def test_labels_are_never_mixed_with_rows():
    for events in ([LabelRandomizedResponse(1.0)], [Composed((LabelRandomizedResponse(1.0),))]):
        with pytest.raises(ValueError, match="labels only"):
            spent(events)


@pytest.mark.parametrize("delta", [-1e-9, 1.0, float("nan")])
def test_a_bad_delta_or_epsilon_is_refused(delta):
    with pytest.raises(ValueError, match="delta must be in"):
        spent([PureRelease(0.1)], delta)
    with pytest.raises(ValueError, match="epsilon must be"):
        delta_spent([PureRelease(0.1)], -1.0)


# Labels ------------------------------------------------------------------------------------------


def test_joint_label_guarantee():
    randomization = LabelRandomizedResponse(1.0)
    releases = [(GaussianRelease(0.1, 1.0), 25)]
    guarantee = joint_label_guarantee(randomization, releases, 1e-5)
    assert guarantee.scope == "label"
    assert guarantee.epsilon < min(1.0, spent(releases))
    assert joint_label_delta(1.0, 0.5, guarantee.epsilon) == pytest.approx(1e-5, rel=1e-6)
    assert joint_label_guarantee(randomization, [], 0.0).epsilon == 0
    assert joint_label_guarantee(randomization, releases, 0.0).epsilon == 1
    assert joint_label_guarantee(randomization, [NonPrivate()], 1e-5).epsilon <= 1
    with pytest.raises(ValueError, match="Gaussian events only"):
        joint_label_guarantee(randomization, [PureRelease(1.0)], 1e-5)
    with pytest.raises(ValueError, match="delta must be in"):
        joint_label_guarantee(randomization, releases, 1.0)
    with pytest.raises(ValueError, match="label_epsilon must be positive"):
        joint_label_delta(0.0, 1.0, 1.0)


@pytest.mark.parametrize("mu", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.2, 0.9, 1.0, 1.5])
def test_joint_label_delta_matches_the_mixtures(mu, epsilon):
    from scipy.stats import norm

    flip = 1 / (1 + math.e)
    x = np.linspace(-12, 12 + mu, 400001)
    low, high = norm.pdf(x), norm.pdf(x, mu)
    p, q = (1 - flip) * high + flip * low, (1 - flip) * low + flip * high
    true = np.trapezoid(np.maximum(p - math.exp(epsilon) * q, 0), x)
    assert joint_label_delta(1.0, mu, epsilon) == pytest.approx(true, abs=1e-8)
    assert joint_label_delta(50.0, mu, epsilon) == pytest.approx(
        float(gaussian_delta(epsilon, mu)), rel=1e-6
    )


def test_a_repeated_event_costs_what_its_count_costs():
    parts = [(SubsampledGaussian(3, 90, 1.0, 1.2), 12), (GaussianRelease(0.1, 1.0), 3)]
    step = Composed((Repeated(parts[0][0], 4), GaussianRelease(0.1, 1.0)))
    for people in (1, 2):
        flat = epsilon_spent(parts, 1e-5, rows_per_person=people)
        nested = epsilon_spent([step] * 3, 1e-5, rows_per_person=people)
        counted = epsilon_spent([Repeated(step, 3)], 1e-5, rows_per_person=people)
        assert flat.epsilon == nested.epsilon == counted.epsilon
        assert flat.events == nested.events


def test_a_subclass_is_no_event_that_is_known():
    class Cheaper(GaussianRelease):
        """Something else than its parent, whatever it says."""

    class Bundle(Composed):
        """Perhaps more than its parts."""

    for event in (Cheaper(1.0, 2.0), Bundle((GaussianRelease(1.0, 2.0),))):
        for history in ([event], [Composed((event,))], [(Repeated(event, 3), 2)]):
            with pytest.raises(TypeError, match="no theorem is known"):
                epsilon_spent(history, 1e-5)


@pytest.mark.parametrize("noise", [1e-4, 1e-5, 1e-20])
def test_next_to_no_noise_has_a_huge_or_infinite_epsilon_and_no_error(noise):
    event = SubsampledGaussian(10, 1000, 1.0, noise)
    found = epsilon_spent([event, event], 1e-5).epsilon
    # One release without amplification costs at least as much as its loss at the mean.
    assert found > 0.1 / noise


@pytest.mark.parametrize("rows", [True, False, 0, 1.5, "2"])
def test_rows_per_person_that_are_no_number_of_rows_are_refused(rows):
    with pytest.raises(ValueError, match="rows_per_person must be a positive integer"):
        epsilon_spent([GaussianRelease(1.0, 1.0)], 1e-5, rows_per_person=rows)


def test_squares_whose_sum_is_no_double_are_no_guarantee():
    assert spent([GaussianRelease(1.3e154, 1.0)] * 2) == math.inf


@pytest.mark.parametrize("sigmas", [(1e4, 1.0), (1.0, 1e4), (3e7, 1.0, 3e7)])
def test_a_running_sum_keeps_small_rounds_beside_large_ones(sigmas):
    events = [GaussianRelease(1.0, sigma) for sigma in sigmas]
    assert spend_over_rounds(events, 1e-5)[-1] == pytest.approx(spent(events), rel=1e-13)


# What no other test would miss -------------------------------------------------------------------


@pytest.mark.parametrize(
    "rounds",
    [
        [PureRelease(0.1), GaussianRelease(1.0, 1.0), GaussianRelease(1.0, 1.0)],
        [PureRelease(0.2), PureRelease(0.3), PostProcessing(), PureRelease(0.1)],
        [PostProcessing(), OBJECTIVE, OBJECTIVE, PostProcessing()],
    ],
)
@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_every_round_is_charged_with_those_before_it(rounds, delta):
    found = spend_over_rounds(rounds, delta)
    prefixes = [spent(rounds[: number + 1], delta) for number in range(len(rounds))]
    # Grids of the numerical composition differ.
    np.testing.assert_allclose(found, prefixes, rtol=1e-4)
    assert (found <= prefixes).all()


@pytest.mark.parametrize("events", [[], [GaussianRelease(1.0, 1.0)], [PureRelease(0.1)]])
def test_rounds_are_refused_as_a_whole_history_is(events):
    for delta in (-1e-9, 1.0, math.nan):
        with pytest.raises(ValueError, match=r"delta must be in \[0, 1\)"):
            spend_over_rounds(events, delta)
    for rows in (0, 1.5, True):
        with pytest.raises(ValueError, match="rows_per_person must be a positive integer"):
            spend_over_rounds(events, 1e-5, rows_per_person=rows)


LONG = [PureRelease(0.01 + 0.001 * (t % 7)) for t in range(60)]


@pytest.mark.parametrize("rounds", [LONG, [OBJECTIVE] * 60, [NonPrivate(), *LONG[1:]]])
@pytest.mark.parametrize("most", [1, 2, 5])
def test_few_histories_bound_every_round(rounds, most, monkeypatch):
    every = spend_over_rounds(rounds, 1e-5)
    composed = []

    def counted(events, *given, **named):
        composed.append(len(events))
        return epsilon_spent(events, *given, **named)

    monkeypatch.setattr(accountant, "epsilon_spent", counted)
    found = spend_over_rounds(rounds, 1e-5, most=most)
    assert composed == np.unique(np.linspace(60, 1, most).astype(int)).tolist()
    # Where it was composed it is exact; before that the next one holds.
    following = np.searchsorted(composed, np.arange(1, 61))
    np.testing.assert_allclose(found, every[np.array(composed)[following] - 1], rtol=1e-12)
    assert (found >= every * (1 - 1e-12)).all()


def test_gaussian_rounds_are_exact_however_few_may_be_composed():
    rounds = [GaussianRelease(1.0, 5.0 + t) for t in range(50)]
    assert (spend_over_rounds(rounds, 1e-5, most=1) == spend_over_rounds(rounds, 1e-5)).all()


@pytest.mark.parametrize("most", [0, -1, 1.5, True])
def test_how_many_are_composed_is_a_number_of_at_least_one(most):
    with pytest.raises(ValueError, match="most must be a whole number of at least 1"):
        spend_over_rounds(LONG, 1e-5, most=most)


def test_an_infinite_or_negative_epsilon_has_no_delta():
    for epsilon in (-1e-9, math.inf, math.nan):
        with pytest.raises(ValueError, match="epsilon must be a non-negative finite number"):
            delta_spent([GaussianRelease(1.0, 1.0)], epsilon)


def test_the_larger_of_two_guarantees_has_the_larger_epsilon_and_the_larger_delta():
    one = Guarantee(1.0, 1e-6, "a", "A", events=("pure",))
    other = Guarantee(2.0, 1e-7, "b", "B", events=("gaussian",))
    both = Guarantee(2.0, 1e-6, "a; b", "A; B", events=("pure", "gaussian"))
    assert larger(one, other) == both
    assert larger(other, one).epsilon == 2.0
    assert larger(other, one).delta == 1e-6
    assert network_guarantee([one, other]).delta == 1e-6


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_gaussian_releases_in_a_mixture_count_once_for_all_rows_of_a_person(rows):
    mixture = [(GaussianRelease(1.0, 40.0), 4), PureRelease(1e-6)]
    found = epsilon_spent(mixture, 1e-5, rows_per_person=rows)
    exact = float(gaussian_epsilon(rows / 20, 1e-5))
    assert found.accountant == "privacy-loss"
    assert exact <= found.epsilon <= exact * (1 + 1e-4)


def test_one_release_without_any_order_among_others_guarantees_nothing():
    """Theorem OP needs orders that doubles tell from 1, for every release and all rows."""
    known = GaussianObjectivePerturbation(0.1, 0.1)
    border, beyond = (GaussianObjectivePerturbation(0.1, kappa) for kappa in (1e12, 1.1e12))
    assert epsilon_spent([known, border], 1e-5).accountant == "renyi"
    assert epsilon_spent([known, border], 1e-5).epsilon < math.inf
    for history, rows in (([known, beyond], 1), ([beyond, known], 1), ([known, border], 2)):
        found = epsilon_spent(history, 1e-5, rows_per_person=rows)
        assert (found.accountant, found.epsilon) == ("none", math.inf)
        assert delta_spent(history, 1e20, rows_per_person=rows).delta == 1


@pytest.mark.parametrize(
    ("event", "accountant"),
    [(GaussianRelease(1.0, 1.0), "exact-gaussian"), (SAMPLED, "privacy-loss")],
)
def test_without_delta_no_other_theorem_steps_in(event, accountant):
    found = epsilon_spent([event], 0.0)
    assert (found.epsilon, found.accountant, found.order) == (math.inf, accountant, None)


def test_a_loss_too_large_for_a_grid_leaves_no_delta():
    """Noise so small that no grid holds its losses."""
    history = [GaussianRelease(1.0, 1e-5), PureRelease(0.1)]
    assert delta_spent(history, 1.0).delta == 1
    assert delta_spent(history, 1e9).delta == 1


def test_a_basic_bound_adds_an_epsilon_to_the_pure_ones():
    """Where pure releases are huge beside objective perturbation, nothing else is as good."""
    history = [PureRelease(40.0), (OBJECTIVE, 50)]
    found = epsilon_spent(history, 1e-5)
    assert found.accountant == "basic"
    assert found.epsilon == pytest.approx(40 + spent([(OBJECTIVE, 50)]), rel=1e-12)


@pytest.mark.parametrize("kappa", [0.0, 0.1, 2.0, 1e6])
def test_objective_perturbation_without_delta_has_no_epsilon(kappa):
    event = GaussianObjectivePerturbation(0.1, kappa)
    assert spent([event], 0.0) == math.inf
    assert spent([event, PureRelease(0.1)], 0.0) == math.inf


def test_an_event_that_is_listed_but_has_no_rule_is_refused(monkeypatch):
    @dataclass(frozen=True, slots=True)
    class Listed(Event):
        kind: ClassVar[str] = "listed"

    monkeypatch.setattr(accountant, "_KNOWN", accountant._KNOWN | {Listed})
    for history in ([Listed()], [(Listed(), 0)], [Composed((PureRelease(0.1), Listed()))]):
        with pytest.raises(TypeError, match="cannot be accounted"):
            spent(history)


def test_a_guarantee_is_for_one_row_unless_it_says_more():
    assert Guarantee(1.0, 0.0, "", "").rows_per_person == 1
    assert epsilon_spent([PureRelease(0.1)], 0.0).rows_per_person == 1
    assert epsilon_spent([PureRelease(0.1)], 0.0, rows_per_person=3).rows_per_person == 3


@pytest.mark.parametrize(
    ("function", "at"),
    [
        (epsilon_spent, [1e-5]),
        (delta_spent, [1.0]),
        (total_mu, []),
        (epsilon_curve, [[1e-5]]),
        (spend_over_rounds, [1e-5]),
    ],
)
def test_rows_per_person_are_given_by_name(function, at):
    """A number by position could be taken for anything."""
    history = [GaussianRelease(1.0, 5.0)]
    assert function(history, *at, rows_per_person=1) == function(history, *at)
    assert function(history, *at, rows_per_person=2) != function(history, *at)
    with pytest.raises(TypeError, match="positional argument"):
        function(history, *at, 2)
