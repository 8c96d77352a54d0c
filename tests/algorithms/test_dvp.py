"""DVP against its paper, its budget and the pooled optimum."""

import math

import numpy as np
import pytest
from tests.helpers import oracles
from tests.helpers.private_runs import (
    COUNTS,
    DELTA,
    FEATURES,
    LAM,
    ObjectiveOnly,
    configure,
    distance_from_the_optimum,
    history_of,
    messages_of,
    parties_of,
    site_of,
    unit_exponential,
)

from dpadmm.algorithms.base import OptimumWarning
from dpadmm.algorithms.dvp import DVP
from dpadmm.errors import ParameterError
from dpadmm.privacy.accountant import epsilon_spent
from dpadmm.privacy.events import InexactSolve, PureRelease
from dpadmm.privacy.noise import SAMPLER_ALLOWANCE

IDEAL_DELTA = DELTA * (1 - SAMPLER_ALLOWANCE)


@pytest.mark.parametrize("topology", ["ring", "path", "star", "complete"])
@pytest.mark.parametrize("noise", ["exp-norm", "gaussian"])
def test_without_noise_it_reaches_the_pooled_optimum(topology, noise):
    site = site_of(topology=topology)
    algorithm = configure(
        "dvp", site, rounds=200, epsilon=1e3, tolerance=1e-12, options={"noise": noise}
    )
    assert distance_from_the_optimum(algorithm, site, 200) < 1e-6


def algorithm_2(parties, neighbours, *, penalties, rho, alphas, c1=0.25):
    """Algorithm 2 of Zhang and Zhu, node by node, C^R = 1 (errata: the fraction, Phi >= 0).

    ``penalties`` and ``alphas`` are eta_p(t) and alpha_p(t), ``(rounds, nodes)``.
    """
    f = [np.zeros(FEATURES) for _ in parties]
    dual = [np.zeros(FEATURES) for _ in parties]
    history = []
    for t in range(len(alphas)):
        drawn = unit_exponential(len(parties), t)
        new = []
        for p, party in enumerate(parties):
            eta, alpha = penalties[t][p], alphas[t][p]
            size = len(party[0])
            degree = len(neighbours[p])
            alpha_hat = alpha - math.log((1 + c1 / (size * (rho + 2 * eta * degree))) ** 2)
            if alpha_hat > 0:
                phi = 0.0
            else:
                phi = c1 / (size * (math.exp(alpha / 4) - 1)) - rho - 2 * eta * degree
                alpha_hat = alpha / 2
            epsilon = drawn[p] / alpha_hat  # density exp(-zeta ||epsilon||), zeta = alpha_hat
            mu = dual[p] + epsilon / (2 * size)
            others = [f[j] for j in neighbours[p]]
            new.append(
                oracles.augmented_lagrangian_minimum(
                    party, f[p], others, mu, eta=eta, rho=rho + phi, weight=1.0, loss="logistic"
                )
            )
        f = new
        for p in range(len(parties)):
            for j in neighbours[p]:
                dual[p] = dual[p] + penalties[t][p] / 2 * (f[p] - f[j])
        history.append(np.array(f))
    return np.array(history)


# With alpha = .3 there is no Phi; with .03 the smallest party has one.
@pytest.mark.parametrize(("alpha", "extra"), [(0.3, False), (0.03, True)])
def test_published_iterates_are_those_of_algorithm_2(alpha, extra):
    rounds, eta, site, parties = 6, 0.1, site_of(topology="path"), parties_of()
    algorithm = configure(
        "dvp",
        site,
        rounds=rounds,
        penalty=eta,
        epsilon=alpha * rounds,
        tolerance=2e-12,
        calibration="published",
    )
    plain = LAM / len(COUNTS) + 2 * eta * site.degree
    assert (algorithm.convexity > plain + 1e-9).any() == extra
    found = messages_of(algorithm, site, parties, rounds, ObjectiveOnly())[:, :, 0, 0]
    neighbours = [site.topology.neighbours(p) for p in range(len(COUNTS))]
    every = np.ones((rounds, len(COUNTS)))
    expected = algorithm_2(
        parties,
        neighbours,
        penalties=eta * every,
        rho=LAM / len(COUNTS),
        alphas=alpha * every,
    )
    np.testing.assert_allclose(found, expected, atol=1e-8)
    claim = algorithm.claim(site)
    assert f"alpha = {alpha:g}" in claim
    assert f"{rounds} iterations add up to {alpha * rounds:g}" in claim


def test_published_alphas_and_penalties_may_be_of_each_round_and_party():
    rounds, site, parties = 4, site_of(topology="path"), parties_of()
    neighbours = [site.topology.neighbours(p) for p in range(len(COUNTS))]
    alphas = np.array([[0.3 - 0.04 * p + 0.05 * t for p in range(6)] for t in range(rounds)])
    penalties = np.array([[0.1 + 0.01 * p + 0.02 * t for p in range(6)] for t in range(rounds)])
    with pytest.warns(OptimumWarning, match="'dvp' then converges to the optimum of"):
        algorithm = configure(
            "dvp",
            site,
            rounds=rounds,
            penalties={str(p): tuple(penalties[:, p]) for p in range(6)},
            epsilon=2.0,
            tolerance=1e-12,
            calibration="published",
            options={"epsilon_per_round": {str(p): alphas[:, p].tolist() for p in range(6)}},
        )
    found = messages_of(algorithm, site, parties, rounds, ObjectiveOnly())[:, :, 0, 0]
    expected = algorithm_2(
        parties, neighbours, penalties=penalties, rho=LAM / len(COUNTS), alphas=alphas
    )
    np.testing.assert_allclose(found, expected, atol=1e-8)
    assert f"add up to {alphas.sum(axis=0).max():.6g}" in algorithm.claim(site)


def test_what_a_round_is_charged_follows_the_sequence():
    site, alphas = site_of(), [0.2, 0.1, 0.05]
    options = {"epsilon_per_round": alphas}
    algorithm = configure("dvp", site, rounds=3, epsilon=0.5, options=options)
    for history in history_of(algorithm, site, 3):
        charged = [event.events[0].epsilon for event in history]
        assert charged == pytest.approx(alphas, rel=1e-8)
    # Phi is that of the round: the smallest alpha needs the most.
    assert (np.diff(algorithm.convexity, axis=0) >= 0).all()
    by_party = {"epsilon_per_round": {str(p): 0.05 + 0.01 * p for p in range(6)}}
    algorithm = configure("dvp", site, rounds=3, epsilon=0.5, options=by_party)
    for party, history in enumerate(history_of(algorithm, site, 3)):
        assert history[0].events[0].epsilon == pytest.approx(0.05 + 0.01 * party, rel=1e-8)


def test_as_published_a_round_really_costs_almost_twice_alpha():
    site, alpha, rounds = site_of((8000,) * 5), 0.1, 3
    algorithm = configure(
        "dvp", site, rounds=rounds, penalty=0.5, epsilon=alpha * rounds, calibration="published"
    )
    event = history_of(algorithm, site, rounds)[0][0]
    pure, inexact = event.events
    kappa = 0.25 / (8000 * (LAM / 5 + 2))
    alpha_hat = alpha - 2 * math.log1p(kappa)
    assert isinstance(pure, PureRelease)
    assert pure.epsilon == pytest.approx(2 * alpha_hat + math.log1p(kappa), rel=1e-8)
    assert pure.epsilon > 1.99 * alpha
    assert isinstance(inexact, InexactSolve)


@pytest.mark.parametrize("noise", ["exp-norm", "gaussian"])
@pytest.mark.parametrize(("epsilon", "outputs", "rows"), [(1.0, 1, 1), (0.1, 1, 1), (3.0, 3, 2)])
def test_a_proven_calibration_spends_the_budget(noise, epsilon, outputs, rows):
    site = site_of(outputs=outputs)
    # Gaussian noise has no Phi: its penalty must leave room for the Jacobian's cost.
    penalty = 0.02 if noise == "exp-norm" else 5.0
    options = {"noise": noise}
    algorithm = configure(
        "dvp", site, rounds=20, penalty=penalty, epsilon=epsilon, rows=rows, options=options
    )
    for history in history_of(algorithm, site, 20):
        spent = epsilon_spent(history, IDEAL_DELTA, rows_per_person=rows).epsilon
        assert 0.999 * epsilon <= spent <= epsilon
    assert algorithm.claim(site) is None


def test_extra_convexity_leaves_half_of_a_round_to_the_noise():
    # 20 rounds at a total of 0.1: the Jacobian alone would cost more than a round may.
    site = site_of()
    paper = {"noise": "exp-norm"}
    algorithm = configure("dvp", site, rounds=20, epsilon=0.1, options=paper)
    plain = LAM / len(COUNTS) + 2 * 0.02 * site.degree
    assert (algorithm.convexity > plain).all()
    jacobian = np.log1p(algorithm.kappa)
    noise = algorithm.sensitivity / algorithm.scale
    np.testing.assert_allclose(jacobian, noise, rtol=1e-6)
    np.testing.assert_allclose(algorithm.kappa, 0.25 / (site.rows * algorithm.convexity))
    # Gaussian noise does without.
    gaussian = configure("dvp", site, rounds=20, epsilon=2.0, options={"noise": "gaussian"})
    np.testing.assert_array_equal(gaussian.convexity, np.broadcast_to(plain, (20, len(COUNTS))))


def test_epsilon_per_round_is_what_a_round_costs():
    site = site_of()
    algorithm = configure("dvp", site, rounds=5, options={"epsilon_per_round": 0.1})
    for history in history_of(algorithm, site, 5):
        for event in history:
            assert event.events[0].epsilon == pytest.approx(0.1, rel=1e-8)
            assert event.events[0].epsilon <= 0.1
    with pytest.raises(ParameterError, match=r"'epsilon_per_round'.*within epsilon = 0.3.*party 0"):
        configure("dvp", site, rounds=5, epsilon=0.3, options={"epsilon_per_round": 0.1})
    # As published, it is the paper's sum that must be within epsilon.
    published = {"rounds": 5, "calibration": "published", "options": {"epsilon_per_round": 0.1}}
    assert "add up to 0.5" in configure("dvp", site, epsilon=0.5, **published).claim(site)
    with pytest.raises(ParameterError, match=r"within epsilon = 0.4; party 0 would spend 0.5"):
        configure("dvp", site, epsilon=0.4, **published)


@pytest.mark.parametrize(
    ("options", "calibration", "words"),
    [
        ({"noise": "laplace"}, "proven", "'noise'.*'exp-norm' or 'gaussian'; got 'laplace'"),
        ({"epsilon_per_round": 0}, "proven", "epsilon_per_round must be a positive number.*got 0"),
        ({"epsilon_per_round": math.inf}, "proven", "epsilon_per_round must be.*got inf"),
        (
            {"epsilon_per_round": 0.1, "noise": "gaussian"},
            "proven",
            "'exp-norm' for epsilon_per_round",
        ),
        ({"noise": "gaussian"}, "published", "'exp-norm' for a published calibration"),
        (
            {"decay": 0.5},
            "proven",
            "must be one of: epsilon_per_round, noise, start, zeta; got 'decay'",
        ),
    ],
)
def test_bad_options_are_refused_in_words(options, calibration, words):
    with pytest.raises(ParameterError, match=words):
        configure("dvp", site_of(), rounds=5, options=options, calibration=calibration)


def test_a_message_that_leaves_no_room_for_the_noise_is_refused_before_rows_are_read():
    site = site_of()
    paper = {"noise": "exp-norm"}
    algorithm = configure("dvp", site, rounds=5, epsilon=0.01, tolerance=2e-12, options=paper)
    with pytest.raises(ParameterError, match="tolerance must be at least"):
        algorithm.announce(algorithm.init(site), site, 0)


def test_noise_has_the_size_that_is_charged():
    # Gradient noise is seen from outside through the stationarity of the message.
    site, parties = site_of((100, 200, 300), runs=3000), parties_of((100, 200, 300))
    paper = {"noise": "exp-norm"}
    algorithm = configure("dvp", site, rounds=1, epsilon=1.0, tolerance=1e-9, options=paper)
    assert isinstance(algorithm, DVP)
    sent = messages_of(algorithm, site, parties, 1, ObjectiveOnly())[0][:, :, 0]
    for p, (rows, labels) in enumerate(parties):
        signed = rows * labels[:, None]
        slopes = oracles.slope("logistic", sent[p] @ signed.T)
        drawn = -(slopes @ signed / len(rows) + algorithm.convexity[0, p] * sent[p])
        level = epsilon_of(algorithm, p)
        # ||b|| is Gamma(d) at this rate: the mean of 3000 has a standard error of 0.8%.
        rate = (level - math.log1p(0.25 / (len(rows) * algorithm.convexity[0, p]))) * len(rows) / 2
        mean = np.linalg.norm(drawn, axis=1).mean()
        assert mean == pytest.approx(FEATURES / rate, rel=4 / math.sqrt(FEATURES * 3000))


def epsilon_of(algorithm, party):
    return float(
        algorithm.sensitivity[party] / algorithm.scale[0, party]
        + math.log1p(algorithm.kappa[0, party])
    )


def test_the_proof_s_zeta_is_half_of_algorithm_2_s_and_costs_half_as_much():
    rounds, alpha, site = 4, 0.3, site_of()
    told = {"rounds": rounds, "penalty": 0.5, "epsilon": alpha * rounds}
    printed, halved = (
        configure("dvp", site, calibration="published", options={"zeta": zeta}, **told)
        for zeta in ("algorithm", "proof")
    )
    np.testing.assert_allclose(halved.scale, 2 * printed.scale, rtol=1e-12)
    np.testing.assert_array_equal(halved.convexity, printed.convexity)
    assert halved.claim(site) == printed.claim(site)
