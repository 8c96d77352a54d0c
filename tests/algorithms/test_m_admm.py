"""M-ADMM against its equations, its budget and the pooled optimum."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize
from tests.helpers.private_runs import (
    COUNTS,
    DELTA,
    FEATURES,
    LAM,
    ObjectiveOnly,
    Silence,
    configure,
    distance_from_the_optimum,
    history_of,
    messages_of,
    parties_of,
    site_of,
    unit_exponential,
)

from dpadmm.errors import ParameterError
from dpadmm.privacy.accountant import epsilon_spent
from dpadmm.privacy.calibration import InfeasibleBudgetError
from dpadmm.privacy.figures import AtMost
from dpadmm.privacy.noise import SAMPLER_ALLOWANCE, SimulatedNoise
from dpadmm.problem.rows import Shard
from dpadmm.solvers.workspace import Workspace

# Penalties of each party and round that do not even grow, and that differ everywhere.
UNEQUAL = {
    str(party): [0.02 * (1 + 0.3 * party) * (1 + 0.2 * math.sin(party + t)) for t in range(8)]
    for party in range(len(COUNTS))
}


def with_penalties(penalties, rounds, **more):
    """A configuration whose penalties are a list or a table."""
    return configure("m-admm", site_of(), rounds=rounds, penalties=penalties, **more)


@pytest.mark.parametrize(
    ("topology", "noise"),
    [
        ("ring", "exp-norm"),
        ("ring", "gaussian"),
        ("path", "gaussian"),
        ("star", "gaussian"),
        ("complete", "gaussian"),
    ],
)
def test_without_noise_it_reaches_the_pooled_optimum(topology, noise):
    site = site_of(topology=topology)
    algorithm = configure(
        "m-admm", site, rounds=200, epsilon=1e3, tolerance=1e-12, options={"noise": noise}
    )
    # The penalty grows by e over a run, whatever its length.
    assert algorithm.penalty[-1] == pytest.approx(0.02 * math.exp(199 / 200))
    assert distance_from_the_optimum(algorithm, site, 200) < 1e-6


def test_penalties_of_each_party_do_not_move_the_optimum():
    """Where dvp, with the penalty as its dual step, would solve a weighted problem."""
    table = {str(party): 0.02 + 0.004 * party for party in range(len(COUNTS))}
    told = {"epsilon": 1e3, "tolerance": 1e-12, "options": {"noise": "gaussian"}}
    algorithm = with_penalties(table, 600, **told)
    assert distance_from_the_optimum(algorithm, site_of(), 600) < 1e-5
    # The smallest of the first round, at a party by itself as at all of them together.
    np.testing.assert_array_equal(algorithm.dual_step, 0.02)
    own = site_of().of_party(4)
    alone = configure("m-admm", own, rounds=600, penalties=table, **told)
    np.testing.assert_array_equal(alone.dual_step, 0.02)
    np.testing.assert_array_equal(alone.penalty, algorithm.penalty[:, [4]])
    np.testing.assert_array_equal(alone.scale, algorithm.scale[:, [4]])


def test_the_duals_add_up_to_zero_whatever_the_penalties():
    site, parties, rounds = site_of(), parties_of(), 8
    algorithm = with_penalties(UNEQUAL, rounds, epsilon=5.0)
    shard = Shard.from_parties([(rows, labels[:, None]) for rows, labels in parties])
    workspace, noise, state = Workspace(shard, site), SimulatedNoise(3), algorithm.init(site)
    for t in range(rounds):
        message = algorithm.local_step(state, workspace, site, noise, t)
        state = algorithm.absorb(state, message.values, message.values, site, t)
        size = np.abs(state.dual).max()
        assert size > 1e-3
        assert np.abs(state.dual.sum(axis=0)).max() < 1e-14 * len(parties) * max(1.0, size)


def test_without_noise_or_growth_it_is_admm():
    site, parties = site_of(), parties_of()
    options = {"penalty_growth": 1.0}
    ours = configure("m-admm", site, rounds=8, epsilon=1e3, tolerance=1e-12, options=options)
    plain = configure("admm", site, rounds=8, tolerance=1e-12)
    np.testing.assert_allclose(
        messages_of(ours, site, parties, 8, Silence()),
        messages_of(plain, site, parties, 8, Silence()),
        atol=1e-11,
    )


def penalty_perturbation(parties, neighbours, *, eta, theta, alpha, rho):
    """The method, node by node: noise e inside every squared distance; C = 1.

    ``eta`` and ``alpha`` are eta_i(t) and alpha_i(t), ``(rounds, nodes)``.
    """
    count = len(parties)
    y = [np.zeros(FEATURES) for _ in parties]
    dual = [np.zeros(FEATURES) for _ in parties]
    history = []
    for t, penalties in enumerate(eta):
        drawn = unit_exponential(count, t)
        new = []
        for i, (rows, labels) in enumerate(parties):
            e = drawn[i] / alpha[t][i]  # density exp(-alpha ||e||)
            centres = [(y[i] + y[j]) / 2 for j in neighbours[i]]

            eta_i = penalties[i]

            def lagrangian(w, i=i, rows=rows, labels=labels, e=e, centres=centres, eta_i=eta_i):
                margins = labels * (rows @ w)
                slopes = -labels / (1 + np.exp(margins))
                value = np.logaddexp(0, -margins).mean() + rho / (2 * count) * w @ w + dual[i] @ w
                slope = slopes @ rows / len(rows) + rho / count * w + dual[i]
                for centre in centres:
                    value += eta_i * np.sum((w + e - centre) ** 2)
                    slope = slope + 2 * eta_i * (w + e - centre)
                return value, slope

            found = minimize(lagrangian, y[i], jac=True, method="BFGS", options={"gtol": 1e-9})
            new.append(newton(found.x, rows, labels, lagrangian, rho / count, eta_i, centres))
        y = new
        for i in range(count):
            dual[i] = dual[i] + theta * sum(y[i] - y[j] for j in neighbours[i])
        history.append(np.array(y))
    return np.array(history)


def newton(point, rows, labels, lagrangian, ridge, penalty, centres):
    """A few steps that take the minimiser to machine precision."""
    for _ in range(4):
        odds = 1 / (1 + np.exp(-labels * (rows @ point)))
        weights = odds * (1 - odds) / len(rows)
        hessian = (rows.T * weights) @ rows
        hessian = hessian + (ridge + 2 * penalty * len(centres)) * np.eye(len(point))
        point = point - np.linalg.solve(hessian, lagrangian(point)[1])
    return point


@pytest.mark.parametrize("own", [False, True], ids=["common", "own of each party and round"])
def test_published_iterates_and_claim_are_those_of_the_equations(own):
    rounds, growth, theta, epsilon = 6, 1.1, 0.07, 400.0
    site, parties = site_of(topology="star"), parties_of()
    neighbours = [site.topology.neighbours(p) for p in range(len(COUNTS))]
    degrees, sizes = np.array([len(each) for each in neighbours]), np.array(COUNTS)
    if own:
        eta = 0.1 * np.array([[1 + 0.1 * i + 0.05 * t for i in range(6)] for t in range(rounds)])
        alpha = np.array([[20.0 + i + 3 * t for i in range(6)] for t in range(rounds)])
        penalties = {str(i): eta[:, i].tolist() for i in range(6)}
        options = {"noise_rate": {str(i): alpha[:, i].tolist() for i in range(6)}}
    else:
        eta = 0.1 * growth ** np.arange(rounds)[:, None] * np.ones(6)
        share = 1 / (eta * degrees * sizes)
        rate = (epsilon - 1.4 * 0.25 * share.sum(axis=0)) / share.sum(axis=0)
        alpha, penalties = np.broadcast_to(rate, eta.shape), None
        options = {"penalty_growth": growth}
    algorithm = configure(
        "m-admm",
        site,
        rounds=rounds,
        penalty=0.1,
        penalties=penalties,
        epsilon=epsilon,
        tolerance=2e-13,
        calibration="published",
        options={"dual_step": theta, **options},
    )
    found = messages_of(algorithm, site, parties, rounds, ObjectiveOnly())[:, :, 0, 0]
    expected = penalty_perturbation(parties, neighbours, eta=eta, theta=theta, alpha=alpha, rho=LAM)
    np.testing.assert_allclose(found, expected, atol=1e-9)
    total = ((1.4 * 0.25 + alpha) / (eta * degrees * sizes)).sum(axis=0)
    assert f"beta = {AtMost(total.max() * (1 - 1e-12))} over all 6 iterations" in algorithm.claim(
        site
    )
    # The claim is valid for an exact solver, and not tight: what is proven is less.
    for history, claimed in zip(history_of(algorithm, site, rounds), total, strict=True):
        pure = sum(event.events[0].epsilon for event in history)
        assert 0.5 * claimed < pure < claimed


def test_a_round_costs_less_as_the_penalty_grows_and_noise_in_the_minimiser_stays():
    site = site_of()
    options = {"penalty_growth": 1.1, "noise": "exp-norm"}
    algorithm = configure("m-admm", site, rounds=20, penalty=0.1, options=options)
    np.testing.assert_allclose(algorithm.scale[1:] / algorithm.scale[:-1], 1.1)
    # b / (2 eta V), which the minimiser moves by where the rows have no say.
    e = algorithm.scale / (2 * algorithm.penalty * site.degree)
    np.testing.assert_allclose(e, e[:1] * np.ones((20, 1)))
    for history in history_of(algorithm, site, 20):
        costs = [event.events[0].epsilon for event in history]
        assert costs == sorted(costs, reverse=True)


@pytest.mark.parametrize("noise", ["exp-norm", "gaussian"])
@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("penalties", [None, UNEQUAL])
def test_a_proven_calibration_spends_the_budget(noise, outputs, penalties):
    site = site_of(outputs=outputs)
    algorithm = configure(
        "m-admm",
        site,
        rounds=8,
        penalty=0.1,
        penalties=penalties,
        epsilon=2.0,
        options={"noise": noise},
    )
    for history in history_of(algorithm, site, 8):
        spent = epsilon_spent(history, DELTA * (1 - SAMPLER_ALLOWANCE)).epsilon
        assert 0.999 * 2 <= spent <= 2.0


def test_a_noise_rate_is_the_rate_of_e_and_must_fit_the_budget():
    site = site_of()
    options = {"noise_rate": 2.0, "penalty_growth": 1.0}
    algorithm = configure("m-admm", site, rounds=5, penalty=0.1, epsilon=2.0, options=options)
    np.testing.assert_allclose(algorithm.scale, 2 * 0.1 * 2 / 2.0)
    with pytest.raises(ParameterError, match=r"'noise_rate'.*within epsilon = 0.2.*party 0"):
        configure("m-admm", site, rounds=5, penalty=0.1, epsilon=0.2, options=options)
    with pytest.raises(ParameterError, match=r"'noise_rate'.*within epsilon = 0.5; party 0"):
        configure(
            "m-admm",
            site,
            rounds=5,
            penalty=0.1,
            epsilon=0.5,
            calibration="published",
            options=options,
        )


def test_the_printed_condition_and_the_printed_cost_are_checked():
    site = site_of((5, 60, 60))
    with pytest.raises(ParameterError, match=r"2 c1 must be below.*party 0 has 0.5 against 0.48"):
        configure("m-admm", site, rounds=2, penalty=0.02, epsilon=50.0, calibration="published")
    with pytest.raises(InfeasibleBudgetError, match=r"by the published total; got 0\.01"):
        configure(
            "m-admm", site_of(), rounds=50, penalty=0.1, epsilon=0.01, calibration="published"
        )


@pytest.mark.parametrize(
    ("options", "calibration", "words"),
    [
        ({"noise": "none"}, "proven", "'noise'.*'exp-norm' or 'gaussian'; got 'none'"),
        ({"noise_rate": -1.0}, "proven", "noise_rate must be a positive number.*got -1"),
        ({"dual_step": 0.0}, "proven", "'dual_step'.*greater than 0; got 0"),
        ({"penalty_growth": 0.9}, "proven", "'penalty_growth'.*greater than or equal to 1"),
        ({"penalty_growth": math.inf}, "proven", "'penalty_growth'.*finite"),
        ({"noise_rate": 1.0, "noise": "gaussian"}, "proven", "'exp-norm' for noise_rate"),
        ({"noise": "gaussian"}, "published", "'exp-norm' for a published calibration"),
        (
            {"gamma": 1.0},
            "proven",
            "must be one of: dual_step, noise, noise_rate, penalty_growth, start; got",
        ),
    ],
)
def test_bad_options_are_refused_in_words(options, calibration, words):
    with pytest.raises(ParameterError, match=words):
        configure("m-admm", site_of(), rounds=5, options=options, calibration=calibration)


def test_a_party_without_neighbours_would_have_no_noise_and_is_refused():
    with pytest.raises(ParameterError, match="needs a neighbour for every party"):
        configure("m-admm", site_of((60,)), rounds=5)


def test_growth_does_not_go_with_a_list_of_penalties():
    with pytest.raises(ParameterError, match="penalty_growth must be left out"):
        with_penalties((0.1, 0.2), 2, options={"penalty_growth": 1.1})


@pytest.mark.parametrize("noise", ["exp-norm", "gaussian"])
def test_too_small_a_budget_says_what_would_do(noise):
    with pytest.raises(InfeasibleBudgetError, match="fewer rounds, a larger penalty or more rows"):
        configure("m-admm", site_of(), rounds=20, epsilon=0.02, options={"noise": noise})
