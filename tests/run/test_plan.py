"""What is chosen from public facts alone, at the corners of what they may be."""

import math
import warnings

import numpy as np
import pytest

from dpadmm.algorithms.base import _EXCESS
from dpadmm.errors import ParameterError
from dpadmm.privacy.accountant import epsilon_spent
from dpadmm.privacy.gaussian import gaussian_mu
from dpadmm.privacy.noise import LEAST_DELTA, SAMPLER_ALLOWANCE
from dpadmm.privacy.sensitivity import _CHANCE
from dpadmm.run.options import PrivacyWarning, TrainingParameters
from dpadmm.run.plan import announced, auto_penalty, plan

DELTA = 1e-5
#: Epsilon, rows of every party, features, rounds, outputs and rows of a person.
CORNERS = [
    (0.01, (5, 5), 2, 50, 1, 1),
    (0.01, (5, 50, 500), 100, 50, 3, 1),
    (0.1, (20,) * 20, 5000, 10, 1, 1),
    (1.0, (1000, 1000), 2, 50, 1, 1),
    (1.0, (1000,) * 20, 2, 50, 3, 2),
    (10.0, (5, 5), 2, 1, 1, 1),
    (10.0, (50, 1000), 2, 50, 1, 1),
    (100.0, (5,) * 20, 2, 50, 3, 3),
]


def planned_run(name, corner, **options):
    epsilon, rows, features, rounds, outputs, rows_per_person = corner
    parameters = TrainingParameters(
        name,
        epsilon=epsilon,
        delta=DELTA,
        rounds=rounds,
        rows_per_person=rows_per_person,
        algorithm_options=options,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        return plan(parameters, rows, features=features, outputs=outputs)


@pytest.mark.parametrize("corner", CORNERS)
@pytest.mark.parametrize("name", ["dvp", "m-admm", "r-admm", "mr-admm"])
def test_an_automatic_penalty_is_never_refused_and_leaves_room_for_noise(name, corner):
    epsilon, *_, outputs, rows_per_person = corner
    planned = planned_run(name, corner)
    history = announced(planned)[0]
    spent = epsilon_spent(history, DELTA, rows_per_person=rows_per_person).epsilon
    assert 0.97 * epsilon <= spent <= epsilon
    algorithm, releases = planned.algorithm, len(planned.algorithm.scale)
    # Without Jacobians noise would be Delta sqrt(K T) / mu: it is at most half as long again.
    mu = gaussian_mu(epsilon, DELTA) / rows_per_person
    ideal = np.broadcast_to(algorithm.sensitivity, algorithm.scale.shape) / mu
    ideal = ideal * np.sqrt(releases * outputs)
    mean = np.sqrt(np.mean(algorithm.scale**-2.0, axis=0) ** -1)
    assert (mean <= 1.5 * ideal[0]).all()


@pytest.mark.parametrize("corner", CORNERS)
@pytest.mark.parametrize("name", ["dvp", "m-admm", "r-admm", "mr-admm"])
def test_an_automatic_penalty_serves_the_papers_noise_too(name, corner):
    epsilon, *_, rows_per_person = corner
    history = announced(planned_run(name, corner, noise="exp-norm"))[0]
    assert epsilon_spent(history, DELTA, rows_per_person=rows_per_person).epsilon <= epsilon


@pytest.mark.parametrize("name", ["dvp", "m-admm", "r-admm", "mr-admm"])
def test_an_automatic_penalty_is_not_raised_where_there_is_room(name):
    planned = planned_run(name, (1.0, (8000,) * 5, 105, 50, 1, 1))
    assert planned.penalty == auto_penalty(planned.site, 50, planned.budget)


def test_every_party_finds_the_same_penalty():
    planned = planned_run("dvp", (1.0, (300, 40, 9000), 2, 50, 1, 1))
    alone = [planned.of_party(party) for party in range(3)]
    assert planned.penalty > auto_penalty(planned.site, 50, planned.budget)
    for party, own in enumerate(alone):
        assert own.penalty == planned.penalty
        np.testing.assert_array_equal(own.algorithm.scale[:, 0], planned.algorithm.scale[:, party])


@pytest.mark.parametrize("name", ["pr-admm", "dvp", "r-admm", "pdml"])
@pytest.mark.parametrize("features", [5000, 100_000])
def test_solves_of_many_rows_and_features_are_as_exact_as_rounding_allows(name, features):
    corner = (1.0, (2**20,) * 4, features, 10, 1, 1)
    history = announced(planned_run(name, corner))[0]
    assert epsilon_spent(history, DELTA).epsilon <= 1.0


@pytest.mark.parametrize("delta", [0.9 * LEAST_DELTA, {"0": 1e-5, "1": 1e-30}, 1.0])
def test_a_delta_that_what_samplers_are_off_by_would_count_beside_is_refused(delta):
    parameters = TrainingParameters("pr-admm", epsilon=1.0, delta=delta, rounds=2)
    with pytest.raises(ParameterError, match=r"delta must be at least 1e-19, .* and below 1; got"):
        plan(parameters, (1000, 1000), features=2)


@pytest.mark.parametrize("name", ["pr-admm", "dvp", "dp-gd", "r-admm"])
def test_the_smallest_delta_leaves_room_for_what_can_go_wrong(name):
    """A billion numbers, and as many solves whose noise is cut off."""
    room = SAMPLER_ALLOWANCE * LEAST_DELTA
    assert 1e9 * (2.0**-125 + _EXCESS) + 2 * math.exp(-_CHANCE) <= room
    parameters = TrainingParameters(name, epsilon=1.0, delta=LEAST_DELTA, rounds=2)
    history = announced(plan(parameters, (1000, 1000), features=2))[0]
    assert epsilon_spent(history, LEAST_DELTA).epsilon <= 1.0
