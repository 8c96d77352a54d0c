"""M-ADMM against the papers' equations, its budget and the pooled optimum."""

import math

import numpy as np
import pytest

import oracles
from dpadmm.errors import ParameterError
from dpadmm.privacy.accountant import epsilon_spent
from dpadmm.privacy.calibration import InfeasibleBudgetError
from dpadmm.privacy.noise import SAMPLER_ALLOWANCE
from dpadmm.privacy.shown import AtMost
from private_runs import (
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


@pytest.mark.parametrize("topology", ["ring", "path", "star", "complete"])
@pytest.mark.parametrize("noise", ["exp-norm", "gaussian"])
def test_without_noise_it_reaches_the_pooled_optimum(topology, noise):
    site = site_of(topology=topology)
    algorithm = configure(
        "m-admm", site, rounds=400, epsilon=1e3, tolerance=1e-12, options={"noise": noise}
    )
    assert distance_from_the_optimum(algorithm, site, 400) < 1e-6


def test_a_growing_penalty_does_not_move_the_optimum():
    site = site_of()
    options = {"penalty_growth": 1.005}
    algorithm = configure("m-admm", site, rounds=400, epsilon=1e3, tolerance=1e-12, options=options)
    assert algorithm.penalty[-1] == pytest.approx(0.02 * 1.005**399)
    assert distance_from_the_optimum(algorithm, site, 400) < 1e-3


def test_without_noise_or_growth_it_is_admm():
    site, parties = site_of(), parties_of()
    ours = configure("m-admm", site, rounds=8, epsilon=1e3, tolerance=1e-12)
    plain = configure("admm", site, rounds=8, tolerance=1e-12)
    np.testing.assert_allclose(
        messages_of(ours, site, parties, 8, Silence()),
        messages_of(plain, site, parties, 8, Silence()),
        atol=1e-11,
    )


def private_m_admm(parties, neighbours, *, rounds, eta, growth, rho, rates):
    """Eqs. (14), (15), (18) of Recycled ADMM with noise in every iteration, node by node."""
    count = len(parties)
    f = [np.zeros(FEATURES) for _ in parties]
    dual = [np.zeros(FEATURES) for _ in parties]
    history = []
    for t in range(rounds):
        penalty = eta * growth**t
        drawn = unit_exponential(count, t)
        new = []
        for i, party in enumerate(parties):
            noise = drawn[i] / rates[i]
            others = [f[j] for j in neighbours[i]]
            new.append(
                oracles.augmented_lagrangian_minimum(
                    party,
                    f[i],
                    others,
                    dual[i] + noise / 2,
                    eta=penalty,
                    rho=rho / count,
                    weight=1.0,
                    loss="logistic",
                )
            )
        f = new
        for i in range(count):
            for j in neighbours[i]:
                dual[i] = dual[i] + penalty / 2 * (f[i] - f[j])
        history.append(np.array(f))
    return np.array(history)


def test_published_iterates_and_claim_are_those_of_the_equations():
    rounds, eta, growth, epsilon = 6, 0.1, 1.1, 4.0
    site, parties = site_of(topology="star"), parties_of()
    algorithm = configure(
        "m-admm",
        site,
        rounds=rounds,
        penalty=eta,
        epsilon=epsilon,
        tolerance=1e-12,
        calibration="published",
        options={"penalty_growth": growth},
    )
    neighbours = [site.topology.neighbours(p) for p in range(len(COUNTS))]
    rates = []
    for i, size in enumerate(COUNTS):
        fixed = sum(
            2 / size * 1.4 * 0.25 / (LAM / len(COUNTS) + 2 * eta * growth**t * len(neighbours[i]))
            for t in range(rounds)
        )
        rates.append((epsilon - fixed) / (rounds * 2 / size))
    found = messages_of(algorithm, site, parties, rounds, ObjectiveOnly())[:, :, 0, 0]
    expected = private_m_admm(
        parties, neighbours, rounds=rounds, eta=eta, growth=growth, rho=LAM, rates=rates
    )
    np.testing.assert_allclose(found, expected, atol=1e-8)
    assert "beta = 4 over all 6 iterations" in algorithm.claim(site)
    # The claim is valid for an exact solver, and not tight: what is proven is less.
    for history in history_of(algorithm, site, rounds):
        pure = sum(event.events[0].epsilon for event in history)
        assert 0.8 * epsilon < pure < epsilon


def test_published_with_a_rate_claims_what_follows_from_it():
    site, rounds, rate = site_of(), 4, 5.0
    algorithm = configure(
        "m-admm",
        site,
        rounds=rounds,
        penalty=0.1,
        calibration="published",
        options={"noise_rate": rate},
    )
    np.testing.assert_allclose(algorithm.scale, 1 / rate)
    beta = rounds * 2 / 60 * (1.4 * 0.25 / (LAM / 6 + 0.4) + rate)
    assert f"beta = {AtMost(beta)}" in algorithm.claim(site)
    with pytest.raises(ParameterError, match=r"'noise_rate'.*within epsilon = 0.5; party 0"):
        configure(
            "m-admm",
            site,
            rounds=rounds,
            penalty=0.1,
            epsilon=0.5,
            calibration="published",
            options={"noise_rate": rate},
        )


def test_the_printed_condition_and_the_printed_cost_are_checked():
    site = site_of((5, 60, 60))
    with pytest.raises(ParameterError, match=r"2 c1 must be below.*party 0 has 0.5 against 0.48"):
        configure("m-admm", site, rounds=2, penalty=0.02, epsilon=50.0, calibration="published")
    with pytest.raises(InfeasibleBudgetError, match=r"eq. \(32\); got 0.01"):
        configure(
            "m-admm", site_of(), rounds=50, penalty=0.1, epsilon=0.01, calibration="published"
        )


@pytest.mark.parametrize("noise", ["exp-norm", "gaussian"])
@pytest.mark.parametrize("growth", [1.0, 1.05])
def test_a_proven_calibration_spends_the_budget(noise, growth):
    site = site_of()
    options = {"noise": noise, "penalty_growth": growth}
    algorithm = configure("m-admm", site, rounds=20, penalty=0.1, options=options)
    for history in history_of(algorithm, site, 20):
        spent = epsilon_spent(history, DELTA * (1 - SAMPLER_ALLOWANCE)).epsilon
        assert 0.999 <= spent <= 1.0


def test_a_noise_rate_is_the_noise_and_must_fit_the_budget():
    site = site_of()
    algorithm = configure("m-admm", site, rounds=5, penalty=0.1, options={"noise_rate": 2.0})
    np.testing.assert_allclose(algorithm.scale, 0.5)
    with pytest.raises(ParameterError, match=r"'noise_rate'.*within epsilon = 0.2.*party 0"):
        configure("m-admm", site, rounds=5, penalty=0.1, epsilon=0.2, options={"noise_rate": 2.0})


@pytest.mark.parametrize(
    ("options", "calibration", "words"),
    [
        ({"noise": "none"}, "proven", "'noise'.*'exp-norm' or 'gaussian'; got 'none'"),
        ({"noise_rate": -1.0}, "proven", "'noise_rate'.*greater than 0; got -1"),
        ({"penalty_growth": 0.9}, "proven", "'penalty_growth'.*greater than or equal to 1"),
        ({"penalty_growth": math.inf}, "proven", "'penalty_growth'.*finite"),
        ({"noise_rate": 1.0, "noise": "gaussian"}, "proven", "'exp-norm' for noise_rate"),
        ({"noise": "gaussian"}, "published", "'exp-norm' for a published calibration"),
        ({"gamma": 1.0}, "proven", "must be one of: noise, noise_rate, penalty_growth; got"),
    ],
)
def test_bad_options_are_refused_in_words(options, calibration, words):
    with pytest.raises(ParameterError, match=words):
        configure("m-admm", site_of(), rounds=5, options=options, calibration=calibration)


def test_too_small_a_budget_says_what_would_do():
    with pytest.raises(InfeasibleBudgetError, match="fewer rounds, a larger penalty or more rows"):
        configure("m-admm", site_of(), rounds=20, epsilon=0.05)
