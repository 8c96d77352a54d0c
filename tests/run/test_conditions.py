"""Choices that make a run slow, noisy or wasteful are named in one line each."""

import warnings

import numpy as np
import pytest
from tests.helpers.private_runs import configure, history_of, site_of

from dpadmm.privacy.events import GaussianRelease, PureRelease
from dpadmm.run.options import ConvergenceWarning, TrainingParameters
from dpadmm.run.plan import (
    Condition,
    even_spending,
    jacobian_is_small,
    penalty_is_not_too_large,
    plan,
)


def found_by(rows=(800,) * 5, features=5, **parameters):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        plan(TrainingParameters(**parameters), np.array(rows), features=features)
    assert all(warning.category is ConvergenceWarning for warning in caught)
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize("algorithm", ["admm", "pr-admm", "dvp", "m-admm"])
@pytest.mark.parametrize("rounds", [1, 50])
@pytest.mark.parametrize(("rows", "features"), [((800,) * 5, 105), ((9000, 40_000), 2)])
def test_default_settings_are_not_warned_of(algorithm, rounds, rows, features):
    assert found_by(rows, features, algorithm=algorithm, rounds=rounds, epsilon=5.0) == []


def test_a_penalty_too_large_for_the_rounds():
    # The papers' eta = .5 on a ring, 105 features: 2 * .5 * 2 * 105 / .25 = 840 rounds a step.
    (line,) = found_by(features=105, algorithm="pr-admm", penalty=0.5, rounds=50, loss="logistic")
    assert "2 eta V d / (c c1), is 840, more than 50" in line
    assert "lower the penalty" in line
    assert "\n" not in line
    assert found_by(features=5, algorithm="pr-admm", penalty=0.5, rounds=50) == []
    # A party of one row weighs little, and does not slow the others.
    assert found_by((900, 900, 1), 5, algorithm="admm", penalty=0.1, rounds=20) == []


def test_a_jacobian_that_takes_the_budget():
    lines = found_by(algorithm="dvp", penalty=5e-4, rounds=3, epsilon=20.0, loss="logistic")
    assert len(lines) == 1
    assert "kappa = c c1 / (n m) of party 0 is 0.155, more than 0.1" in lines[0]
    assert "raise the penalty" in lines[0]


def test_a_round_that_takes_most_of_the_budget():
    options = {"schedule": "periodic", "decay": 0.3}
    (line,) = found_by(algorithm="pr-admm", rounds=20, algorithm_options=options)
    assert "round 20 takes of party 0 is 0.7, more than 0.5" in line
    assert "constant schedule" in line


def test_conditions_are_measured_from_what_is_public():
    site = site_of((100, 50))
    (penalty,) = penalty_is_not_too_large(site, 0.1, 10)
    assert penalty.measured == pytest.approx(2 * 0.1 * 1 * 5 / 0.25)
    assert penalty.met
    assert "at most 10" in str(penalty)
    algorithm = configure("dvp", site, rounds=2, penalty=0.1, epsilon=5.0)
    (kappa,) = jacobian_is_small(site, history_of(algorithm, site, 2))
    assert kappa.measured == pytest.approx(0.25 / (50 * (0.05 / 2 + 0.2)))
    assert "party 1" in kappa.what
    assert jacobian_is_small(site, [[GaussianRelease(1.0, 1.0)]] * 2) == []


def test_shares_of_pure_and_of_gaussian_rounds():
    site = site_of((100, 50))
    gaussian = [GaussianRelease(1.0, sigma) for sigma in (1.0, 1.0, 0.5)]
    pure = [PureRelease(0.1)] * 3
    (share,) = even_spending(site, [gaussian, pure])
    assert share.measured == pytest.approx(4 / 6)
    assert "round 3 takes of party 0" in share.what
    assert not share.met
    # One or two rounds cannot but take half of it.
    assert even_spending(site, [gaussian[:2], pure[:2]]) == []
    assert Condition("it", 1.0, 1.0, "nothing").met
