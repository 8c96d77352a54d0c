"""The auditor: its bounds are valid, it finds most of what is lost, it refutes what is false."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.special import expit

from dpadmm.algorithms import REGISTRY
from dpadmm.algorithms.base import Budget, ObjectiveRelease, Settings
from dpadmm.algorithms.pr_admm import PRADMM
from dpadmm.audit.algorithms import MECHANISMS, AlgorithmCase, mechanism_case
from dpadmm.audit.cases import (
    audit_case,
    exp_norm_case,
    gaussian_case,
    gaussian_objective_case,
    randomized_response_case,
)
from dpadmm.audit.scene import Candidate, canary_rows, one_party
from dpadmm.audit.verdict import (
    AuditSetting,
    EpsilonClaim,
    GaussianClaim,
    ScoreCounts,
    audit_scores,
    choose_attack,
    clopper_pearson_lower,
    clopper_pearson_upper,
)
from dpadmm.audit.witness import SharedNoise, SilentNoise
from dpadmm.errors import ParameterError
from dpadmm.privacy.accountant import epsilon_spent
from dpadmm.privacy.events import GaussianObjectivePerturbation
from dpadmm.privacy.gaussian import gaussian_delta, gaussian_epsilon
from dpadmm.privacy.mechanisms import ObjectivePerturbation
from dpadmm.privacy.noise import SimulatedNoise
from dpadmm.problem.rows import Shard

SETTING = AuditSetting("a mechanism", "worst case", "score")
ERRORS = st.floats(1e-6, 0.49)
FORMS = ("accuracy", "forward", "backward")


# Limits on probabilities -----------------------------------------------------------------------


@given(st.integers(1, 10_000), st.floats(0, 1), ERRORS)
def test_limits_are_clopper_and_pearsons(trials, share, error):
    successes = round(share * trials)
    interval = stats.binomtest(successes, trials).proportion_ci(1 - 2 * error, method="exact")
    lower = clopper_pearson_lower(successes, trials, error)
    upper = clopper_pearson_upper(successes, trials, error)
    # That function searches for its limits to 2e-12; the tails that define them say more.
    assert lower == pytest.approx(interval.low, rel=1e-9, abs=1e-11)
    assert upper == pytest.approx(interval.high, rel=1e-9, abs=1e-11)
    if successes > 0:
        assert stats.binom.sf(successes - 1, trials, lower) == pytest.approx(error, rel=1e-6)
    if successes < trials:
        assert stats.binom.cdf(successes, trials, upper) == pytest.approx(error, rel=1e-6)


def test_limits_take_arrays_and_reach_the_ends():
    lower = clopper_pearson_lower([0, 5, 10], 10, 0.05)
    upper = clopper_pearson_upper([0, 5, 10], 10, 0.05)
    assert lower[0] == 0
    assert upper[2] == 1
    assert lower[2] == pytest.approx(0.05 ** (1 / 10))
    assert upper[0] == pytest.approx(1 - 0.05 ** (1 / 10))
    with pytest.raises(ParameterError, match="error must be between"):
        clopper_pearson_lower(1, 2, 0.5)


# What rates say about a claim ------------------------------------------------------------------


@given(st.floats(0.01, 5), st.floats(-3, 3))
def test_a_gaussians_rates_give_its_mu_at_every_threshold(mu, offset):
    # Within 5.5 of both means: closer to 1 than 1e-8 a rate in a double has few digits left.
    claim, threshold = GaussianClaim(mu), mu / 2 + offset
    rates = stats.norm.sf(threshold - mu), stats.norm.sf(threshold)
    assert claim.from_rates(*rates) == pytest.approx(mu, rel=1e-6)
    assert claim.from_accuracy(stats.norm.cdf(mu / 2)) == pytest.approx(mu, rel=1e-9)
    accuracy = (rates[0] + 1 - rates[1]) / 2
    assert claim.from_accuracy(accuracy) <= mu * (1 + 1e-9)


@given(st.floats(0.05, 3), st.floats(0, 4), st.floats(-5, 5))
def test_no_rate_of_a_gaussian_exceeds_its_epsilon(mu, epsilon, threshold):
    claim = EpsilonClaim(epsilon, min(float(gaussian_delta(epsilon, mu)), 0.999))
    hit, miss = stats.norm.sf(threshold - mu), stats.norm.sf(threshold)
    assert claim.from_rates(hit, miss) <= epsilon + 1e-6
    assert claim.from_accuracy((hit + 1 - miss) / 2) <= epsilon + 1e-6


@given(st.floats(0.01, 6))
def test_randomised_responses_rates_give_its_epsilon(epsilon):
    claim = EpsilonClaim(epsilon)
    keep = expit(epsilon)
    assert claim.from_rates(keep, 1 - keep) == pytest.approx(epsilon)
    assert claim.from_accuracy(keep) == pytest.approx(epsilon)


def test_rates_that_say_nothing_give_zero_and_impossible_ones_infinity():
    for claim in (EpsilonClaim(1.0, 1e-3), GaussianClaim(1.0)):
        assert claim.from_rates(0.0, 0.3) == 0
        assert claim.from_rates(0.3, 1.0) == 0
        assert claim.from_rates(0.2, 0.3) == 0
        assert claim.from_accuracy(0.4) == 0
        assert claim.from_rates(0.5, 0.0) == math.inf


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: EpsilonClaim(-1.0), "epsilon must be a non-negative number"),
        (lambda: EpsilonClaim(1.0, 1.0), "delta must be in"),
        (lambda: GaussianClaim(math.inf), "mu must be a non-negative number"),
        (lambda: GaussianClaim(1.0, 0.0), "delta must be in"),
    ],
)
def test_impossible_claims_are_refused(build, words):
    with pytest.raises(ParameterError, match=words):
        build()


# Validity, without any simulation --------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("error", [0.01, 0.1, 0.3])
@pytest.mark.parametrize("claim", [EpsilonClaim(1.0), EpsilonClaim(1.0, 0.05), GaussianClaim(1.0)])
def test_the_bound_exceeds_the_truth_no_more_often_than_stated(claim, form, error):
    """All counts of two binomials are enumerated, for the rates of every kind of event."""
    for trials in (7, 30):
        null, alternative = np.meshgrid(np.arange(trials + 1), np.arange(trials + 1))
        bound = ScoreCounts(null, alternative, trials).lower_bound(claim, form, error)
        for hit in (0.02, 0.3, 0.5, 0.7, 0.9, 1.0):
            for miss in (0.01, 0.1, 0.3, 0.5, 0.69, 0.98):
                # A mechanism that is exactly as private as its most telling event.
                forward = float(claim.from_rates(hit, miss))
                truth = max(forward, float(claim.from_rates(1 - miss, 1 - hit)))
                chance = (
                    stats.binom.pmf(null, trials, miss) * stats.binom.pmf(alternative, trials, hit)
                )[bound > truth + 1e-12].sum()
                assert chance <= error + 1e-12, (trials, hit, miss)


CORRECT = {
    "gaussian": (lambda: gaussian_case(1.0, 1e-5), 500),
    "randomized-response": (lambda: randomized_response_case(1.0), 500),
    "exp-norm": (lambda: exp_norm_case(1.0), 500),
    "subsampled-gaussian": (lambda: mechanism_case("subsampled-gaussian", 1.0, 1e-3), 2000),
    "gaussian-objective": (lambda: gaussian_objective_case(1.0, 1e-2), 500),
    "pr-admm": (lambda: AlgorithmCase("pr-admm", 4.0, 1e-5, rounds=4), 200),
    "dvp": (lambda: AlgorithmCase("dvp", 4.0, 1e-5, rounds=2), 500),
    "r-admm": (lambda: AlgorithmCase("r-admm", 4.0, 1e-5, rounds=3), 500),
}


@pytest.mark.parametrize("name", CORRECT)
def test_correct_mechanisms_are_refuted_no_more_often_than_stated(name):
    build, samples = CORRECT[name]
    case, repetitions, confidence = build(), 200, 0.9
    scores = [
        np.concatenate(
            [
                case.scores(SimulatedNoise(10 * part + replaced), 10 * samples, replaced=replaced)
                for part in range(repetitions // 10)
            ]
        ).reshape(repetitions, samples)
        for replaced in (False, True)
    ]
    verdicts = [
        audit_scores(case.claim, null, alternative, setting=SETTING, confidence=confidence)
        for null, alternative in zip(*scores, strict=True)
    ]
    alarms = sum(verdict.refuted for verdict in verdicts)
    assert alarms <= stats.binom.isf(1e-3, repetitions, 1 - confidence)


def test_scores_that_ignore_the_data_bound_next_to_nothing():
    random = np.random.default_rng(5)
    for claim in (EpsilonClaim(1.0), GaussianClaim(1.0)):
        found = audit_scores(
            claim, random.standard_normal(4000), random.standard_normal(4000), setting=SETTING
        )
        assert found.lower_bound < 0.01
        assert not found.refuted


def test_the_attack_is_chosen_on_runs_of_its_own():
    random = np.random.default_rng(6)
    null, alternative = random.normal([[0.0], [1.0]], 1.0, (2, 4000))
    claim = GaussianClaim(1.0)
    first = audit_scores(claim, null, alternative, setting=SETTING)
    changed = null.copy()
    changed[1000:] = 50.0
    second = audit_scores(claim, changed, alternative, setting=SETTING)
    assert second.attack == first.attack
    assert second.lower_bound == 0
    assert first.attack == choose_attack(claim, null[:1000], alternative[:1000], 0.002)


def test_a_rare_leak_is_found_in_either_direction():
    """With probability 0.02 the output gives the data set away: a delta, whatever epsilon."""
    random = np.random.default_rng(7)
    null, alternative = random.standard_normal((2, 20_000))
    leaks = random.random(20_000) < 0.02
    claim = EpsilonClaim(1.0, 1e-3)
    up = audit_scores(claim, null, np.where(leaks, np.inf, alternative), setting=SETTING)
    down = audit_scores(claim, np.where(leaks, -np.inf, null), alternative, setting=SETTING)
    assert up.refuted
    assert up.attack.form == "forward"
    assert down.refuted
    assert down.attack.form == "backward"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"confidence": 1.0}, "confidence must be between 0.5 and 1"),
        ({"null": np.zeros(50)}, "two equally long lists"),
        ({"null": np.full(100, np.nan)}, "scores must be numbers"),
        ({"null": np.zeros(10), "alternative": np.zeros(10)}, "samples must be at least 40"),
    ],
)
def test_scores_that_cannot_be_judged_are_refused(change, words):
    arguments = {"null": np.zeros(100), "alternative": np.zeros(100), "confidence": 0.9} | change
    with pytest.raises(ParameterError, match=words):
        audit_scores(EpsilonClaim(1.0), setting=SETTING, **arguments)


# Power and refutation --------------------------------------------------------------------------

# Budget, runs, and the least share of the claim that is found.
POWER = {
    "gaussian": (1.0, 1e-5, 50_000, 0.8),
    "inexact-solve": (1.0, 1e-5, 50_000, 0.8),
    "randomized-response": (1.0, 0.0, 20_000, 0.9),
    "exp-norm": (1.0, 0.0, 50_000, 0.7),
    "gaussian-objective": (1.0, 1e-3, 200_000, 0.5),
    "subsampled-gaussian": (1.0, 1e-3, 200_000, 0.5),
    "describe": (1.0, 1e-5, 50_000, 0.8),
    "infer-gaussian": (1.0, 1e-5, 50_000, 0.8),
    "infer-binomial": (1.0, 1e-5, 50_000, 0.8),
    "infer-poisson": (1.0, 1e-5, 50_000, 0.6),
    "infer-survival": (1.0, 1e-5, 50_000, 0.75),
}


@pytest.mark.parametrize("name", MECHANISMS)
def test_the_worst_case_shows_most_of_the_claim(name):
    epsilon, delta, samples, share = POWER[name]
    found = audit_case(mechanism_case(name, epsilon, delta), samples=samples)
    assert share <= found.recovered <= 1
    assert found.verdict == "consistent with the claim"


@pytest.mark.parametrize("name", MECHANISMS)
def test_half_the_noise_is_refuted(name):
    epsilon, delta, samples, _ = POWER[name]
    case = mechanism_case(name, epsilon, delta, noise_scale=0.5)
    found = audit_case(case, samples=samples)
    assert found.refuted
    assert found.verdict == "refuted"
    assert "Refuted" in found.words()


@pytest.mark.parametrize(("epsilon", "samples"), [(0.1, 200_000), (1.0, 20_000)])
def test_the_rate_that_dvp_prints_is_refuted(epsilon, samples):
    case = mechanism_case("exp-norm", epsilon, 0.0, calibration="published")
    found = audit_case(case, samples=samples, confidence=0.999)
    assert found.refuted
    # The largest loss of an output: 2 (epsilon - 2 ln(1 + kappa)), twice what the proof allows.
    losses = case.scores(SimulatedNoise(1), 20_000, replaced=True)
    assert losses.max() == pytest.approx(1.95 * epsilon, rel=0.03)


def test_the_noise_that_ps_admm_prints_is_refuted():
    """One outer iteration in one dimension, with batches of one row; only x^1 is seen."""
    rows, steps, epsilon, delta, penalty, step = 6838, 50, 0.5, 1e-3, 0.5, 0.2
    sigma = math.sqrt(steps * math.log(1 / delta)) / (rows * epsilon)
    start, server = 10.0, -10.0
    newer = 2 / (1 - 2 * step * (0.25 + penalty))  # the weight xi / (2 eta) of the newer iterate

    def released(row, runs, seed):
        random = np.random.default_rng(seed)
        slope = -expit(-start * row) * row
        point, total = np.full(runs, start), np.zeros(runs)
        for _ in range(steps):
            chosen = random.random(runs) < 1 / rows  # every other row is zero
            change = np.where(chosen, -expit(-point * row) * row - slope, 0.0)
            gradient = change + slope / rows + penalty * (point - server)
            moved = point - step * (gradient + sigma * random.standard_normal(runs))
            total += (1 - newer) * point + newer * moved
            point = moved
        return total / steps

    claim = EpsilonClaim(epsilon, delta)
    null, alternative = released(0.0, 40_000, 0), released(1.0, 40_000, 1)
    found = audit_scores(claim, null, alternative, setting=SETTING)
    assert found.refuted
    # An event that hardly ever happens without the row has more than six times delta with it.
    above = np.mean(alternative > null.max())
    assert above > 6 * delta


def test_pure_losses_never_exceed_epsilon_and_densities_integrate_to_one():
    case = exp_norm_case(1.0)
    null = case.scores(SimulatedNoise(2), 50_000, replaced=False)
    alternative = case.scores(SimulatedNoise(3), 50_000, replaced=True)
    assert max(np.abs(null).max(), np.abs(alternative).max()) <= 1.0
    for likelihood in (np.exp(null), np.exp(-alternative)):
        assert likelihood.mean() == pytest.approx(1, abs=5 * likelihood.std() / math.sqrt(50_000))


@pytest.mark.parametrize("case", [exp_norm_case(0.1), exp_norm_case(1.0)])
def test_the_claim_of_objective_perturbation_is_what_its_events_cost(case):
    events = case.perturbation.events()
    assert epsilon_spent(events, case.claim.delta).epsilon <= case.claim.epsilon
    exact = GaussianObjectivePerturbation
    gaussian = gaussian_objective_case(1.0, 1e-5)
    parts = gaussian.perturbation.events()
    assert any(isinstance(part, exact) for part in parts[0].events)
    spent = epsilon_spent(parts, 1e-5).epsilon
    assert spent == pytest.approx(1.0, rel=1e-3)
    assert spent <= 1


def test_a_seed_repeats_a_verdict_and_another_does_not():
    case = gaussian_case(1.0, 1e-5)
    first, again, other = (audit_case(case, samples=5000, seed=seed) for seed in (3, 3, 4))
    assert first == again
    assert other != first
    seen = []
    audit_case(case, samples=case.batch + 100, on_progress=seen.append)
    assert seen == [case.batch, case.batch, 100, 100]


def test_a_verdict_says_what_was_tested():
    found = audit_case(gaussian_case(1.0, 1e-5), samples=5000)
    data = json.loads(json.dumps(found.to_dict()))
    assert data["claimed"]["epsilon"] == pytest.approx(1.0, rel=1e-6)
    assert data["quantity"] == "mu"
    assert data["adjacency"] == "one row of one party is replaced (features and label)"
    assert data["verdict"] == "consistent with the claim"
    assert data["samples"] == 5000
    assert "cannot prove" in found.words()
    assert float(gaussian_epsilon(found.claim.mu, 1e-5)) == pytest.approx(1.0, rel=1e-6)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("gausian", 1.0, 1e-5), "Did you mean 'gaussian'"),
        (("gaussian", 0.0, 1e-5), "epsilon must be a positive number"),
        (("gaussian", 1.0, 0.0), "delta must be between 0 and 1"),
    ],
)
def test_mechanisms_that_make_no_sense_are_refused(arguments, words):
    with pytest.raises(ParameterError, match=words):
        mechanism_case(*arguments)


def test_parameters_out_of_reach_are_refused():
    with pytest.raises(ParameterError, match="no paper prints another"):
        mechanism_case("gaussian", 1.0, 1e-5, calibration="published")
    with pytest.raises(ParameterError, match="calibration must be one of"):
        mechanism_case("gaussian", 1.0, 1e-5, calibration="guessed")
    with pytest.raises(ParameterError, match="epsilon must exceed"):
        mechanism_case("exp-norm", 1e-4, 0.0, calibration="published")
    with pytest.raises(ParameterError, match="samples must be at least 40"):
        audit_case(gaussian_case(1.0, 1e-5), samples=39)
    with pytest.raises(ParameterError, match="seed must be"):
        audit_case(gaussian_case(1.0, 1e-5), samples=100, seed=-1)


# Whole algorithms ------------------------------------------------------------------------------


def test_a_run_of_pr_admm_shows_most_of_its_mu():
    found = audit_case(AlgorithmCase("pr-admm", 1.0, 1e-5, rounds=5), samples=40_000)
    assert found.claim == GaussianClaim(found.claim.mu, 1e-5)
    # The first round starts from zero and is worth half: sqrt((1/4 + 4) / 5) = 0.92 in all.
    assert 0.75 <= found.recovered <= 1
    assert found.estimate / found.claim.mu == pytest.approx(0.92, abs=0.12)


def test_a_run_of_pr_admm_with_half_its_noise_is_refuted():
    case = AlgorithmCase("pr-admm", 1.0, 1e-5, rounds=5, noise_scale=0.5)
    assert audit_case(case, samples=20_000).refuted


def test_the_public_norms_sensitivity_is_tight_from_the_first_round():
    """Noise scaled to the public norm leaves a tenth of slack in the first round, not a half."""
    options = {"public_norm": True}
    case = AlgorithmCase("pr-admm", 1.0, 1e-5, rounds=1, options=options)
    found = audit_case(case, samples=100_000)
    assert 0.75 <= found.recovered <= 1


def test_many_rows_cost_and_show_as_much_as_few():
    case = AlgorithmCase("pr-admm", 1.0, 1e-5, rounds=5, rows=100_000, penalty=0.02)
    found = audit_case(case, samples=20_000)
    assert "100000 rows" in found.setting.subject
    assert 0.6 <= found.recovered <= 1


def test_the_adversarys_evidence_is_a_privacy_loss():
    case = AlgorithmCase("pr-admm", 1.0, 1e-5, rounds=3)
    null = case.scores(SimulatedNoise(4), 20_000, replaced=False)
    alternative = case.scores(SimulatedNoise(5), 20_000, replaced=True)
    mu = case.claim.mu * math.sqrt((0.25 + 2) / 3)
    allowed = 5 * mu / math.sqrt(20_000) + 0.1 * mu**2
    assert null.mean() == pytest.approx(-(mu**2) / 2, abs=allowed)
    assert alternative.mean() == pytest.approx(mu**2 / 2, abs=allowed)
    assert np.exp(null).mean() == pytest.approx(1, abs=5 * np.exp(null).std() / math.sqrt(20_000))


def test_far_out_the_sensitivity_is_nearly_attained_and_never_exceeded():
    from dpadmm.solvers.workspace import Workspace

    site = one_party(20)
    budget = Budget(np.array([1.0]), np.array([1e-5]))
    algorithm = PRADMM.configure(site, Settings(rounds=2, penalty=0.5, budget=budget))
    state = algorithm.init(site)
    gaps = []
    for t in range(2):
        released = []
        for row in canary_rows(0.02):
            rows = np.vstack([row, np.tile([1.0, 0.0], (19, 1))])
            workspace = Workspace(Shard.from_parties([(rows, np.ones((20, 1)))]), site)
            released.append(algorithm.local_step(state, workspace, site, SilentNoise(), t).values)
        gaps.append(np.linalg.norm(released[1] - released[0]) / algorithm.sensitivity[0])
        inbox = np.array([1000.0, 0.0]).reshape(1, 1, 1, 2)
        state = algorithm.absorb(state, released[0], inbox, site, t)
    assert gaps[0] == pytest.approx(0.5, abs=0.02)
    assert 0.997 <= gaps[1] <= 1


# What perturbs its objective: the algorithm, its options.
PERTURBED = [
    ("dvp", {"noise": "exp-norm"}),
    ("dvp", {"noise": "gaussian"}),
    ("m-admm", {"noise": "exp-norm", "penalty_growth": 1.3, "dual_step": 0.2}),
    ("m-admm", {"noise": "gaussian"}),
    ("r-admm", {"noise": "exp-norm"}),
    ("r-admm", {"noise": "gaussian"}),
    ("mr-admm", {"noise": "exp-norm", "gamma": 0.0}),
]


@pytest.mark.parametrize(("name", "options"), PERTURBED)
@pytest.mark.parametrize("rows", [10, 100])
def test_losses_of_perturbed_objectives_are_logarithms_of_density_ratios(name, options, rows):
    """E_D[p'/p] = E_D'[p/p'] = 1, which a wrong rate, gradient or determinant would not give."""
    case = AlgorithmCase(name, 2.0, 1e-5, rounds=3, rows=rows, options=options)
    assert case.setting.statistic == "the privacy loss of all messages"
    null = case.scores(SimulatedNoise(4), 10_000, replaced=False)
    alternative = case.scores(SimulatedNoise(5), 10_000, replaced=True)
    for ratio in (np.exp(null), np.exp(-alternative)):
        assert ratio.mean() == pytest.approx(1, abs=5 * ratio.std() / math.sqrt(10_000))
        assert ratio.std() > 0.1
    if "noise" not in options:
        # Pure releases add up to no more than epsilon but for what optimal composition saves.
        assert max(np.abs(null).max(), np.abs(alternative).max()) <= 2.02


@pytest.mark.parametrize("kind", ["exp-norm", "gaussian"])
def test_the_density_of_a_minimiser_is_that_of_its_noise_times_the_jacobian(kind):
    random = np.random.default_rng(9)
    site = replace(one_party(7, weight=3.0), runs=4)
    rows, labels = random.normal(size=(7, 2)), np.sign(random.normal(size=(7, 1)))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    candidate = Candidate(Shard.from_parties([(rows, labels)]), site)
    scale, convexity, nothing = 0.3, 0.2, np.zeros(1)
    perturbation = ObjectivePerturbation(
        kind, nothing, nothing, np.array([scale]), nothing, np.array([convexity]), nothing
    )
    linear, points = random.normal(size=(2, *site.shape))

    def noise_for(point, tilt):
        margins = labels[:, 0] * (rows @ point)
        slopes = -expit(-margins) * labels[:, 0]
        return -(3.0 / 7 * slopes @ rows + convexity * point + tilt)

    def log_density(point, tilt, step=1e-5):
        columns = [
            (noise_for(point + step * axis, tilt) - noise_for(point - step * axis, tilt)) / step / 2
            for axis in np.eye(2)
        ]
        size = np.linalg.norm(noise_for(point, tilt)) / scale
        log_noise = -size if kind == "exp-norm" else -(size**2) / 2
        return log_noise + np.log(abs(np.linalg.det(columns)))

    expected = [log_density(points[0, run, 0], linear[0, run, 0]) for run in range(4)]
    found = candidate.log_density(ObjectiveRelease(linear, perturbation), points)
    assert found == pytest.approx(expected, rel=1e-6)


def test_a_recycled_round_carries_no_evidence():
    one, two = (AlgorithmCase("r-admm", 1.0, 1e-5, rounds=rounds) for rounds in (1, 2))
    once, again = (case.scores(SimulatedNoise(6), 100, replaced=True) for case in (one, two))
    assert np.ptp(once) > 0
    assert again == pytest.approx(once)


@pytest.mark.parametrize("name", [name for name, kind in REGISTRY.items() if kind.private])
def test_every_algorithm_but_ps_admm_is_weighed_by_its_privacy_loss(name):
    case = AlgorithmCase(name, 2.0, 1e-5, rounds=2)
    assert ("privacy loss" in case.setting.statistic) == (name != "ps-admm")


@pytest.mark.parametrize("noise", ["own", "shared"])
def test_dp_gd_stands_and_falls_with_half_its_noise(noise):
    facts = {"rounds": 4, "options": {"noise": noise}}
    honest = audit_case(AlgorithmCase("dp-gd", 1.0, 1e-5, **facts), samples=40_000)
    assert 0.75 <= honest.recovered <= 1
    cheated = AlgorithmCase("dp-gd", 1.0, 1e-5, noise_scale=0.5, **facts)
    assert audit_case(cheated, samples=20_000).refuted


def test_shared_noise_is_refuted_where_the_other_honest_parties_leave_out_theirs():
    """Of five parties two collude: the two honest ones beside the audited one are missing."""
    facts = {"rounds": 4, "options": {"noise": "shared"}}
    case = AlgorithmCase("dp-gd", 1.0, 1e-5, skipping=2, **facts)
    found = audit_case(case, samples=40_000)
    assert found.refuted
    # What is left is the guarantee alone, sqrt(3) times mu; at 0, in the first of four rounds, the
    # slope of the logistic loss is half of its bound.
    assert found.estimate == pytest.approx(math.sqrt(3 * 3.25 / 4) * 0.26805, rel=0.06)
    assert "the noise of 2 of 5 parties" in case.setting.worst_case


@pytest.mark.parametrize("name", ["dvp", "m-admm", "r-admm", "mr-admm"])
def test_a_perturbed_objective_stands_and_falls_with_half_its_noise(name):
    # Every release has a largest loss, which is found sooner than the tail of Gaussian noise.
    told = {"rounds": 3, "options": {"noise": "exp-norm"}}
    honest = audit_case(AlgorithmCase(name, 1.0, 1e-5, **told), samples=50_000)
    assert 0.4 <= honest.recovered <= 1
    cheated = AlgorithmCase(name, 1.0, 1e-5, noise_scale=0.5, **told)
    assert audit_case(cheated, samples=50_000).refuted


def test_a_run_of_dvp_as_published_is_refuted():
    case = AlgorithmCase("dvp", 1.0, 1e-5, rounds=3, calibration="published")
    assert audit_case(case, samples=50_000).refuted
    # Twice alpha - 2 ln(1 + kappa) in the two rounds far out, half of that in the first.
    losses = case.scores(SimulatedNoise(7), 20_000, replaced=True)
    rounds = (0.5 + 1 + 1) * 2 * (1 / 3 - 2 * math.log1p(0.25 / 100))
    assert losses.max() == pytest.approx(rounds, rel=0.03)


@pytest.mark.slow
def test_dvp_as_published_is_refuted_whatever_the_seed():
    case = AlgorithmCase("dvp", 1.0, 1e-5, rounds=3, calibration="published")
    bounds = [audit_case(case, samples=50_000, seed=seed).lower_bound for seed in range(10)]
    assert min(bounds) > 1.05


@pytest.mark.slow
@pytest.mark.parametrize(("name", "options"), PERTURBED)
def test_perturbed_objectives_stand_whatever_the_seed(name, options):
    case = AlgorithmCase(name, 1.0, 1e-5, rounds=3, options=options)
    alarms = [
        audit_case(case, samples=5000, confidence=0.9, seed=seed).refuted for seed in range(100)
    ]
    assert sum(alarms) <= stats.binom.isf(1e-3, 100, 0.1)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "rounds"), [("dvp", 5), ("r-admm", 9)])
def test_half_of_gaussian_gradient_noise_is_refuted(name, rounds):
    """The claim (1, 1e-5) holds Gaussian noise to account in its thin tails only: many runs."""
    options = {"noise": "gaussian"}
    case = AlgorithmCase(name, 1.0, 1e-5, rounds=rounds, options=options, noise_scale=0.5)
    assert audit_case(case, samples=500_000).refuted


@settings(max_examples=20)
@given(st.integers(1, 5), st.floats(0.1, 2))
def test_shared_noise_is_the_sources_noise_times_a_factor(runs, factor):
    source, parties = SimulatedNoise(8), np.array([0])
    values, sigma = np.ones((1, runs, 1, 3)), np.full((1, 1, 1, 1), 2.0)
    shared = SharedNoise(source, factor)
    side_by_side = source.add_gaussian(np.zeros((1, 1, runs, 3)), sigma, parties, 0, "output")
    noisy = shared.add_gaussian(values, sigma, parties, 0, "output")
    assert noisy.reshape(-1) == pytest.approx((1 + factor * side_by_side).reshape(-1))
    drawn = shared.exponential_norm(values.shape, parties, 0, "gradient")
    plain = source.exponential_norm((1, 1, runs, 3), parties, 0, "gradient")
    assert drawn.reshape(-1) == pytest.approx(factor * plain.reshape(-1))
    assert shared.generator(0, 0, 0, "x").random() == source.generator(0, 0, 0, "x").random()


def test_silent_noise_is_none():
    silent, parties = SilentNoise(), np.array([0])
    values = np.ones((1, 2, 1, 3))
    assert (silent.add_gaussian(values, np.ones(1), parties, 0, "output") == values).all()
    assert not silent.exponential_norm(values.shape, parties, 0, "gradient").any()
    with pytest.raises(ParameterError, match="no form without noise"):
        silent.generator(0, 0, 0, "labels")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": "admm"}, "must be a private one"),
        ({"name": "pr-adm"}, "Did you mean 'pr-admm'"),
        ({"rounds": 0}, "rounds must be a whole number"),
        ({"epsilon": -1.0}, "epsilon must be a positive number"),
        ({"delta": 2.0}, "delta must be"),
        ({"noise_scale": 0.0}, "noise_scale must be a positive number"),
        ({"calibration": "guessed"}, "calibration must be one of"),
    ],
)
def test_runs_that_make_no_sense_are_refused(change, words):
    arguments = {"name": "pr-admm", "epsilon": 1.0, "delta": 1e-5, "rounds": 2} | change
    with pytest.raises(ValueError, match=words):
        AlgorithmCase(**arguments)


@pytest.mark.slow
@pytest.mark.parametrize(("noise_scale", "refuted"), [(1.0, False), (0.1, True)])
def test_the_proven_ps_admm_stands_and_falls_with_a_tenth_of_its_noise(noise_scale, refuted):
    case = AlgorithmCase("ps-admm", 1.0, 1e-5, rounds=2, rows=40, noise_scale=noise_scale)
    assert audit_case(case, samples=3000, confidence=0.99, seed=0).refuted is refuted


def test_a_published_run_without_a_claim_cannot_be_audited(monkeypatch):
    monkeypatch.setattr("dpadmm.algorithms.pr_admm.PRADMM.claim", lambda self, site: None)
    with pytest.raises(ParameterError, match="states no claim of its paper"):
        AlgorithmCase("pr-admm", 1.0, 1e-5, rounds=2, calibration="published")
