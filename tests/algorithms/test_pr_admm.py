"""PR-ADMM against its paper, its budget and the pooled optimum."""

import math

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm
from tests.helpers import oracles
from tests.helpers.private_runs import (
    COUNTS,
    DELTA,
    FEATURES,
    LAM,
    configure,
    distance_from_the_optimum,
    history_of,
    messages_of,
    parties_of,
    site_of,
    unit_normal,
)

from dpadmm.errors import ParameterError
from dpadmm.privacy.accountant import epsilon_spent
from dpadmm.privacy.figures import AtMost
from dpadmm.privacy.noise import SAMPLER_ALLOWANCE, SimulatedNoise

SCHEDULES = [
    {"schedule": "constant"},
    {"schedule": "periodic", "decay": 0.8, "period": 2},
    {"schedule": "iteration", "decay": 0.015},
]


@pytest.mark.parametrize("topology", ["ring", "path", "star", "complete"])
def test_without_noise_it_reaches_the_pooled_optimum(topology):
    site = site_of(topology=topology)
    algorithm = configure("pr-admm", site, rounds=400, tolerance=1e-12)
    assert distance_from_the_optimum(algorithm, site, 400) < 1e-6


def algorithm_1(parties, neighbours, *, rounds, eta, lam, epsilon, delta, scheme):
    """Algorithm 1 with the noise of Lemma 5, Theorems 3 and 4 and Lemma 3, node by node."""
    count = len(parties)
    log = math.log(1 / delta)
    rho_total = brentq(lambda rho: rho + 2 * math.sqrt(rho * log) - epsilon, 0, epsilon)
    if scheme["schedule"] == "periodic":
        decay, period = scheme["decay"], scheme["period"]
        whole = rounds / period
        factor = period * (1 - decay**whole) / (decay ** (whole - 1) - decay**whole) - 1
        variances = [decay ** (k // period) for k in range(rounds)]
    elif scheme["schedule"] == "iteration":
        decay = scheme["decay"]
        factor = (decay * rounds * (rounds**2 - 1) + 3) / 3
        variances = [1.0] + [1 / (decay * k * (k + 1)) for k in range(1, rounds)]
    else:
        factor, variances = rounds, [1.0] * rounds
    threshold = scheme.get("threshold", math.inf)
    noisy = [np.zeros(FEATURES) for _ in parties]
    dual = [np.zeros(FEATURES) for _ in parties]
    apart = np.zeros((count, count))
    history, replaced = [], 0
    for k in range(rounds):
        drawn = unit_normal(count, k)
        x = []
        for i, (rows, labels) in enumerate(parties):
            degree = len(neighbours[i])
            total = degree * noisy[i]
            for j in neighbours[i]:
                apart[i, j] += np.linalg.norm(noisy[i] - noisy[j])
                replaced += apart[i, j] > threshold
                total = total + (noisy[i] if apart[i, j] > threshold else noisy[j])
            x.append(
                oracles.solve_local(
                    rows,
                    labels,
                    loss="logistic",
                    weight=1.0,
                    convexity=lam / count + 2 * eta * degree,
                    linear=dual[i] - eta * total,
                )
            )
        for i in range(count):
            sensitivity = 1 / (eta * len(neighbours[i]))
            first = sensitivity**2 / 2 * factor / rho_total
            noisy[i] = x[i] + math.sqrt(first * variances[k]) * drawn[i]
        for i in range(count):
            for j in neighbours[i]:
                dual[i] = dual[i] + eta * (noisy[i] - noisy[j])
        history.append(np.array(noisy))
    return np.array(history), rho_total, replaced


@pytest.mark.parametrize("scheme", [*SCHEDULES, {**SCHEDULES[1], "threshold": 2.0}])
def test_published_iterates_and_claim_are_those_of_algorithm_1(scheme):
    rounds, eta, epsilon = 6, 0.5, 100.0
    site, parties = site_of(topology="star"), parties_of()
    algorithm = configure(
        "pr-admm",
        site,
        rounds=rounds,
        penalty=eta,
        epsilon=epsilon,
        tolerance=1e-12,
        calibration="published",
        options=scheme,
    )
    found = messages_of(algorithm, site, parties, rounds, SimulatedNoise(0))[:, :, 0, 0]
    neighbours = [site.topology.neighbours(p) for p in range(len(COUNTS))]
    expected, rho, replaced = algorithm_1(
        parties,
        neighbours,
        rounds=rounds,
        eta=eta,
        lam=LAM,
        epsilon=epsilon,
        delta=DELTA,
        scheme=scheme,
    )
    np.testing.assert_allclose(found, expected, atol=1e-8)
    assert (replaced > 0) == ("threshold" in scheme)
    claim = algorithm.claim(site)
    assert f"rho = {AtMost(rho)}" in claim
    assert f"epsilon = {epsilon:g} at delta = 1e-5" in claim
    # Lemma 5 has no rows in it: the noise protects far more than is claimed.
    for history in history_of(algorithm, site, rounds):
        assert epsilon_spent(history, DELTA).epsilon < epsilon / 5


def test_one_round_is_refused_where_theorem_3_says_that_it_costs_nothing():
    options = {"schedule": "periodic"}
    with pytest.raises(ParameterError, match=r"rounds must be at least 2.*Theorem 3"):
        configure("pr-admm", site_of(), rounds=1, calibration="published", options=options)
    configure("pr-admm", site_of(), rounds=1, calibration="published")


@pytest.mark.parametrize("options", [*SCHEDULES, {"public_norm": True}])
@pytest.mark.parametrize(("outputs", "rows"), [(1, 1), (3, 2)])
def test_a_proven_calibration_spends_the_budget(options, outputs, rows):
    site = site_of(outputs=outputs)
    algorithm = configure("pr-admm", site, rounds=20, options=options, rows=rows)
    for history in history_of(algorithm, site, 20):
        spent = epsilon_spent(history, DELTA * (1 - SAMPLER_ALLOWANCE), rows_per_person=rows)
        assert 0.999 <= spent.epsilon <= 1.0
    assert algorithm.claim(site) is None


def budget_mu(epsilon, delta):
    def curve(mu):
        above = norm.cdf(mu / 2 - epsilon / mu)
        return above - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu) - delta

    return brentq(curve, 1e-3, 10)


def test_noise_has_the_size_that_theory_asks_for():
    # The first messages of 4000 runs differ by noise alone: 20,000 draws a party, so that the
    # standard error of a variance is 1%. Five of them are allowed.
    counts, runs, rounds, eta = (100, 200, 300), 4000, 10, 0.1
    site, parties = site_of(counts, runs=runs), parties_of(counts)
    algorithm = configure("pr-admm", site, rounds=rounds, penalty=eta)
    sent = messages_of(algorithm, site, parties, 1, SimulatedNoise(3))[0][:, :, 0]
    measured = (sent - sent.mean(axis=1, keepdims=True)).var(axis=(1, 2))
    convexity = LAM / 3 + 2 * eta * 2
    mu = budget_mu(1.0, DELTA) / math.sqrt(rounds)
    for size, variance in zip(counts, measured, strict=True):
        # The solver's residual is a thousandth of a row's slope.
        sensitivity = 2 / (size * convexity) * 1.001
        assert variance == pytest.approx((sensitivity / mu) ** 2, rel=0.05)
    # And it is fresh: no two parties share it.
    flat = (sent - sent.mean(axis=1, keepdims=True)).reshape(3, -1)
    assert np.abs(np.corrcoef(flat) - np.eye(3)).max() < 5 / math.sqrt(flat.shape[1])


@pytest.mark.parametrize(
    ("options", "calibration", "words"),
    [
        ({"schedule": "linear"}, "proven", "'schedule'.*'constant', 'periodic' or 'iteration'"),
        ({"period": 0}, "proven", "'period'.*greater than or equal to 1; got 0"),
        ({"decay": 0.0}, "proven", "'decay'.*greater than 0; got 0"),
        ({"threshold": -1.0}, "proven", "'threshold'.*greater than 0; got -1"),
        ({"public_norm": True}, "published", "public_norm must be off for a published"),
        ({"noise": "gaussian"}, "proven", "must be one of: decay, period, public_norm"),
    ],
)
def test_bad_options_are_refused_in_words(options, calibration, words):
    with pytest.raises(ParameterError, match=words):
        configure("pr-admm", site_of(), rounds=5, options=options, calibration=calibration)
