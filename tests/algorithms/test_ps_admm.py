import dataclasses
import math

import numpy as np
import pytest
from tests.helpers import oracles

from dpadmm.algorithms.base import Budget, Settings
from dpadmm.algorithms.ps_admm import PSADMM
from dpadmm.algorithms.scas_admm import SCASADMM, smoothness
from dpadmm.errors import ExchangeError, ParameterError
from dpadmm.privacy.accountant import epsilon_spent
from dpadmm.privacy.events import Composed, GaussianRelease, Repeated, SubsampledGaussian
from dpadmm.privacy.noise import NoiseSource, SimulatedNoise
from dpadmm.problem.losses import get_loss
from dpadmm.problem.rows import Shard
from dpadmm.problem.site import Site, build_topology
from dpadmm.run.engine import InProcess, MemoryLedger, run
from dpadmm.run.options import TrainingParameters
from dpadmm.run.plan import plan
from dpadmm.run.session import state_privacy, train
from dpadmm.solvers.workspace import Workspace

# Parties of one size have one calibration, which is searched for once.
COUNTS = (60, 220, 60, 60)
FEATURES, LAM = 4, 0.05
WEIGHTS = len(COUNTS) * np.array(COUNTS) / sum(COUNTS)


def site_of(counts=COUNTS, *, runs=1, outputs=1, loss="logistic"):
    return Site.of_all(
        np.array(counts),
        build_topology("server", len(counts)),
        get_loss(loss),
        features=FEATURES,
        regularization=LAM,
        runs=runs,
        outputs=outputs,
    )


def settings_of(site, *, rounds=5, penalty=0.1, epsilon=1.0, delta=1e-5, people=1, **given):
    count = len(site.index)
    calibration = given.pop("calibration", "proven")
    budget = Budget(np.full(count, epsilon), np.full(count, delta), people)
    return Settings(
        rounds=rounds, penalty=penalty, options=given, budget=budget, calibration=calibration
    )


def run_on(algorithm, site, parties, rounds, *, key=0, noise=None):
    columns = [(rows, labels[:, None]) for rows, labels in parties]
    return run(
        algorithm,
        site,
        Workspace(Shard.from_parties(columns), site),
        rounds=rounds,
        exchange=InProcess(server=True),
        ledgers=[MemoryLedger() for _ in site.index],
        noise=noise or SimulatedNoise(key),
    )


PARTIES = oracles.random_parties(4, COUNTS, FEATURES)


# -- without noise ------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 20])
def test_without_noise_it_reaches_the_pooled_optimum(batch):
    site = site_of()
    given = settings_of(site, inner_steps=100, batch_size=batch)
    outcome = run_on(SCASADMM.configure(site, given), site, PARTIES, 200)
    optimum = oracles.pooled_optimum(PARTIES, lam=LAM, weights=WEIGHTS)
    np.testing.assert_allclose(outcome.last[:, 0, 0], np.tile(optimum, (4, 1)), atol=1e-10)


@pytest.mark.parametrize("product", [0.05, 0.3, 0.45, 1.0])
def test_the_average_is_convex_and_that_of_the_repair(product):
    site = site_of()
    curvature = smoothness(site, 0.1)
    eta = product / curvature.max()
    algorithm = SCASADMM.configure(site, settings_of(site, step_size=eta))
    xi = 2 * eta / (2 - eta * curvature)
    np.testing.assert_allclose(algorithm.weighting, xi / (2 * eta))
    assert (2 * eta - xi >= 0).all()
    assert (algorithm.weighting <= 1).all()


def test_the_printed_zeta_and_xi_diverge_where_the_repair_does_not():
    # eta v_L = 0.45 with 20 inner steps; all parties alike, so that v_L is one number.
    counts = (100, 100, 100)
    site, parties = site_of(counts), oracles.random_parties(2, counts, FEATURES)
    eta = 0.45 / smoothness(site, 0.1)[0]
    given = {"inner_steps": 20, "batch_size": 1, "step_size": eta}
    repaired = SCASADMM.configure(site, settings_of(site, **given))
    optimum = oracles.pooled_optimum(parties, lam=LAM, weights=np.ones(3))
    far = np.abs(run_on(repaired, site, parties, 200).last - optimum).max()
    assert far < 1e-10
    printed = dataclasses.replace(repaired, weighting=2 / (1 - 2 * eta * smoothness(site, 0.1)))
    with pytest.raises(ExchangeError, match="at most 1e"):
        run_on(printed, site, parties, 200)


def test_ps_admm_with_next_to_no_noise_is_scas_admm():
    site = site_of(runs=2)
    plain = SCASADMM.configure(site, settings_of(site, inner_steps=6))
    private = PSADMM.configure(site, settings_of(site, inner_steps=6, step_size=0.9))
    none = np.full(len(COUNTS), 1e-13)
    quiet = dataclasses.replace(
        private,
        step_size=plain.step_size,
        weighting=plain.weighting,
        gradient_sigma=none,
        difference_sigma=none,
    )
    first, second = (run_on(each, site, PARTIES, 5).last for each in (plain, quiet))
    np.testing.assert_allclose(second, first, atol=1e-10)


class Stepwise(NoiseSource):
    """Simulated noise that is added step by step, as noise on a grid is."""

    description = "step by step"
    simulated = True
    on_grid = True

    def __init__(self, key, first):
        self.source, self.first, self.streams = SimulatedNoise(key), first, {}

    def generator(self, run, party, t, purpose):
        return self.source.generator(run, party, t, purpose)

    def add_gaussian(self, values, sigma, parties, t, purpose):
        if purpose != "inner" or values.size == 0:
            return super().add_gaussian(values, sigma, parties, t, purpose)
        at = (int(parties[0]), t)
        if at not in self.streams:
            self.streams[at] = self.generator(0, *at, purpose)
            self.streams[at].standard_normal((self.first, values.shape[-1]))
        return values + sigma * self.streams[at].standard_normal(values.shape)


@pytest.mark.parametrize(("form", "first"), [("split", 0), ("one-release", 1)])
def test_noise_released_step_by_step_leads_where_noise_drawn_ahead_does(form, first):
    site = site_of()
    algorithm = PSADMM.configure(site, settings_of(site, inner_steps=8, form=form))
    ahead, stepwise = (
        run_on(algorithm, site, PARTIES, 4, noise=noise).last
        for noise in (SimulatedNoise(3), Stepwise(3, first))
    )
    assert np.abs(ahead).max() > 0.1
    np.testing.assert_allclose(stepwise, ahead, rtol=1e-11, atol=1e-12)


# -- what is charged ----------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["one-release", "split"])
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"epsilon": 0.3, "batch_size": 1, "inner_steps": 9},
        {"epsilon": 3.0, "people": 2},
        {"batch_size": 60, "rounds": 2, "outputs": 3},
        {"inner_steps": 1},
    ],
)
def test_proven_noise_spends_the_budget(form, given):
    given = {"inner_steps": 12, **given}
    site = site_of(COUNTS[:2], outputs=given.pop("outputs", 1))
    settings = settings_of(site, form=form, **given)
    algorithm = PSADMM.configure(site, settings)
    state = algorithm.init(site)
    budget = settings.budget
    for node in range(len(site.index)):
        events = [algorithm.announce(state, site, t)[node] for t in range(settings.rounds)]
        spent = epsilon_spent(
            events, budget.delta[node], rows_per_person=budget.rows_per_person
        ).epsilon
        assert 0.995 * budget.epsilon[node] <= spent <= budget.epsilon[node]


def test_the_charge_is_one_full_gradient_and_the_later_batches():
    site = site_of()
    algorithm = PSADMM.configure(site, settings_of(site, inner_steps=12, batch_size=7))
    event = algorithm.announce(algorithm.init(site), site, 0)[1]
    assert isinstance(event, Composed)
    full, differences = event.events
    assert isinstance(full, GaussianRelease)
    exact = 2 * WEIGHTS[1] / COUNTS[1]
    assert exact < full.sensitivity < 1.001 * exact
    multiplier = float(algorithm.difference_sigma[1])
    assert differences == Repeated(SubsampledGaussian(7, COUNTS[1], 1.0, multiplier), 11)


def test_the_split_charges_the_full_gradient_at_every_step():
    site = site_of()
    algorithm = PSADMM.configure(
        site, settings_of(site, inner_steps=12, batch_size=7, form="split")
    )
    full, differences = algorithm.announce(algorithm.init(site), site, 0)[1].events
    assert (full.count, differences.count) == (12, 11)
    exact = 2 * WEIGHTS[1] / 7
    assert exact < differences.event.sensitivity < 1.001 * exact


def test_steps_are_shorter_where_noise_is_larger():
    site = site_of()
    large, small = (
        PSADMM.configure(site, settings_of(site, epsilon=epsilon)) for epsilon in (0.3, 30.0)
    )
    assert (large.step_size < small.step_size).all()
    growth = large.difference_sigma * WEIGHTS * 0.25 / large.batch * large.step_size
    np.testing.assert_allclose(growth * np.sqrt(FEATURES * large.steps), 1.0)


@pytest.mark.parametrize("part", range(3))
def test_a_state_too_large_for_exact_gradients_is_refused(part):
    site = site_of()
    algorithm = PSADMM.configure(site, settings_of(site, inner_steps=3))
    state = list(algorithm.init(site))
    state[part] = np.full(site.shape, 1e12)
    with pytest.raises(ParameterError, match="messages must be small enough"):
        algorithm.announce(type(algorithm.init(site))(*state), site, 0)


# -- published ----------------------------------------------------------------------------------


def test_the_published_calibration_is_the_paper_s_algorithm():
    rounds, steps, rho, key = 4, 9, 0.2, 3
    site = site_of()
    settings = settings_of(
        site,
        rounds=rounds,
        penalty=rho,
        epsilon=0.5,
        delta=1e-3,
        calibration="published",
        inner_steps=steps,
    )
    algorithm = PSADMM.configure(site, settings)
    np.testing.assert_array_equal(algorithm.batch, 1)
    sigma = WEIGHTS * np.sqrt(rounds * steps * np.log(1e3)) / (np.array(COUNTS) * 0.5)
    curvature = WEIGHTS / 4 + rho
    eta = 0.25 / curvature
    noise = SimulatedNoise(key)

    def theta(i, k, s):
        drawn = noise.generator(0, i, k, "inner").standard_normal((steps, 1, FEATURES))
        return sigma[i] * drawn[s, 0]

    expected, _ = oracles.stochastic_admm(
        PARTIES,
        rounds=rounds,
        steps=steps,
        rho=rho,
        lam=LAM,
        weights=WEIGHTS,
        eta=eta,
        coefficients=lambda i: (
            2 * eta[i] - 4 * eta[i] / (1 - 2 * eta[i] * curvature[i]),
            4 * eta[i] / (1 - 2 * eta[i] * curvature[i]),
        ),
        draw=lambda i, k: noise.batches(steps - 1, 1, COUNTS[i], 0, i, k),
        theta=theta,
    )
    found = run_on(algorithm, site, PARTIES, rounds, key=key).last[:, 0, 0]
    np.testing.assert_allclose(found, expected, atol=1e-8)


def test_scas_admm_as_published_is_algorithm_1_as_printed():
    rounds, steps, rho, key = 4, 9, 0.2, 3
    site = site_of()
    given = settings_of(
        site, rounds=rounds, penalty=rho, calibration="published", inner_steps=steps
    )
    algorithm = SCASADMM.configure(site, given)
    np.testing.assert_array_equal(algorithm.batch, 1)
    curvature = WEIGHTS / 4 + rho
    eta, noise = 0.25 / curvature, SimulatedNoise(key)
    xi = 4 * eta / (1 - 2 * eta * curvature)
    zeta = 2 * eta - xi
    assert (zeta < 0).all()
    expected, _ = oracles.stochastic_admm(
        PARTIES,
        rounds=rounds,
        steps=steps,
        rho=rho,
        lam=LAM,
        weights=WEIGHTS,
        eta=eta,
        coefficients=lambda i: (zeta[i], xi[i]),
        draw=lambda i, k: noise.batches(steps - 1, 1, COUNTS[i], 0, i, k),
        theta=lambda i, k, s: np.zeros(FEATURES),
    )
    found = run_on(algorithm, site, PARTIES, rounds, key=key).last[:, 0, 0]
    np.testing.assert_allclose(found, expected, atol=1e-9)
    assert "not private" in algorithm.claim(site)
    assert SCASADMM.configure(site, settings_of(site)).claim(site) is None


def test_the_published_calibration_states_claim_and_proof():
    parameters = TrainingParameters(
        "ps-admm",
        rounds=2,
        penalty=0.05,
        epsilon=0.5,
        delta=1e-3,
        calibration="published",
        algorithm_options={"inner_steps": 5, "noise_constant": 4.0},
    )
    planned = plan(parameters, COUNTS, features=FEATURES)
    columns = [(rows, labels[:, None]) for rows, labels in PARTIES]
    noise = SimulatedNoise(0)
    outcome = train(planned, Shard.from_parties(columns), noise=noise)
    statement = state_privacy(planned, outcome.events, noise)
    assert "(0.5, 0.001)-DP by Theorem 2" in str(planned.algorithm.claim(planned.site))
    assert "c = 4" in str(planned.algorithm.claim(planned.site))
    assert statement.parties["0"].epsilon > 0.5


def test_published_noise_grows_with_the_outputs_and_rows_that_the_paper_leaves_out():
    def sigma(outputs, people):
        parameters = TrainingParameters(
            "ps-admm",
            rounds=2,
            penalty=0.05,
            epsilon=0.5,
            delta=1e-3,
            calibration="published",
            rows_per_person=people,
            algorithm_options={"inner_steps": 2},
        )
        # Parties of one size have one split of the noise, which is searched for once.
        noise = plan(parameters, (60,) * 4, features=FEATURES, outputs=outputs).algorithm
        return np.hypot(noise.gradient_sigma, noise.difference_sigma)

    # The distances of several outputs add up as squares, those of several rows as they are.
    np.testing.assert_allclose(sigma(3, 1), math.sqrt(3) * sigma(1, 1))
    np.testing.assert_allclose(sigma(1, 2), 2 * sigma(1, 1))


# -- bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", [SCASADMM, PSADMM])
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"batch_size": 61}, r"batch_size must be at most .* 0 with 60; got 61"),
        ({"batch_size": 0}, r"algorithm_options\['batch_size'\]"),
        ({"inner_steps": 0}, r"algorithm_options\['inner_steps'\].* greater than or equal to 1"),
        ({"inner_steps": 2.5}, r"algorithm_options\['inner_steps'\]"),
        ({"step_size": 0.0}, r"algorithm_options\['step_size'\].* greater than 0"),
        ({"step_size": 3.0}, r"step_size must be at most 1 / \(c c1 \+ rho\) = .*; got 3.0"),
        ({"step_size": float("nan")}, r"step_size"),
    ],
)
def test_bad_options_are_refused_in_words(algorithm, given, words):
    site = site_of()
    with pytest.raises(ParameterError, match=words):
        algorithm.configure(site, settings_of(site, **given))


@pytest.mark.parametrize("algorithm", [SCASADMM, PSADMM])
def test_the_published_step_must_be_below_the_paper_s_bound(algorithm):
    site = site_of()
    given = settings_of(site, calibration="published", step_size=1.0)
    with pytest.raises(ParameterError, match=r"below 1 / \(2 \(c c1 \+ rho\)\).* published"):
        algorithm.configure(site, given)


@pytest.mark.parametrize("given", [{"form": "joint"}, {"noise_constant": 0.0}])
def test_bad_options_of_ps_admm_are_refused_by_name(given):
    site = site_of()
    with pytest.raises(ParameterError, match=next(iter(given))):
        PSADMM.configure(site, settings_of(site, **given))
