"""Numbers of each round and party, and where a run starts."""

import math

import numpy as np
import pytest
from tests.helpers.private_runs import Silence, configure, messages_of, parties_of, site_of

from dpadmm.algorithms.base import as_course, first_value, grown, over_rounds
from dpadmm.errors import ParameterError
from dpadmm.privacy.noise import SimulatedNoise
from dpadmm.run.options import TrainingParameters
from dpadmm.run.plan import announced, plan

NAMES = [str(party) for party in range(6)]
ON_GRAPHS = ["admm", "dvp", "m-admm", "pr-admm", "r-admm", "mr-admm", "pdml"]


@pytest.mark.parametrize(
    ("given", "first"),
    [
        (2, [2.0, 2.0, 2.0]),
        ([1, 2.0, 3], [1.0, 2.0, 3.0]),
        (np.array([1.0, 2.0, 3.0]), [1.0, 2.0, 3.0]),
        ({**dict.fromkeys(range(1, 6), 9.0), "0": (4, 5, 6)}, [4.0, 5.0, 6.0]),
        (dict.fromkeys(range(6), np.float64(2.0)), [2.0, 2.0, 2.0]),
    ],
)
def test_a_number_a_sequence_and_a_table_become_a_number_for_every_round_and_party(given, first):
    course = as_course("rate", given)
    values = over_rounds("rate", course, site_of(), 3)
    assert values.shape == (3, 6)
    assert values[:, 0].tolist() == first
    assert first_value(course) == pytest.approx(values[0].mean())
    # A party by itself reads the same, its own first.
    alone = over_rounds("rate", course, site_of().of_party(3), 3)
    assert alone[:, 0].tolist() == values[:, 3].tolist()
    assert sorted(alone[0]) == sorted(values[0])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (0, "rate must be a positive number, a list with one for each round, or a table.*got 0"),
        (math.nan, "rate must be a positive number.*got nan"),
        (True, "rate must be a positive number.*got True"),
        ("1", "rate must be a positive number.*got '1'"),
        ([], r"rate must be a positive number.*got \[\]"),
        ({}, "rate must be a positive number.*got {}"),
        ([1.0, -2.0, 1.0], "number 2 of rate must be a positive number; got -2.0"),
        ([1.0, [2.0]], "number 2 of rate must be a positive number"),
        ({"0": math.inf}, "rate of party 0 must be a positive number.*got inf"),
        ({"0": [1.0, 0.0]}, "number 2 of rate of party 0 must be a positive number; got 0.0"),
    ],
)
def test_what_is_no_course_is_refused_by_place(given, words):
    with pytest.raises(ParameterError, match=words):
        as_course("rate", given)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((1.0, 2.0), "rate must have one number for each of the 3 rounds; got 2"),
        (dict.fromkeys(NAMES[:5], 1.0), "entry for every party; 5 has none"),
        ({**dict.fromkeys(NAMES, 1.0), "6": 1.0}, "rate's parties must be one of: .*got '6'"),
        ({**dict.fromkeys(NAMES, 1.0), "2": (1.0,)}, "rate of party 2 must have one .*; got 1"),
    ],
)
def test_a_course_must_fit_the_rounds_and_the_parties(given, words):
    with pytest.raises(ParameterError, match=words):
        over_rounds("rate", given, site_of(), 3)


def test_a_party_by_itself_refuses_a_table_of_another_size():
    with pytest.raises(ParameterError, match="one entry for each of the 6 parties; got 7"):
        over_rounds("rate", dict.fromkeys([*NAMES, "7"], 1.0), site_of().of_party(0), 3)


def test_a_number_grows_and_a_list_does_not():
    site = site_of()
    assert grown(2.0, 3.0, site, 3, chosen=True)[:, 0].tolist() == [2.0, 6.0, 18.0]
    assert grown((2.0, 3.0, 4.0), 3.0, site, 3, chosen=False)[:, 0].tolist() == [2.0, 3.0, 4.0]


@pytest.mark.parametrize("algorithm", ["admm", "pr-admm", "pdml", "consensus-admm", "ps-admm"])
@pytest.mark.parametrize("penalty", [[0.1, 0.1], {"0": 0.1, "1": 0.1, "2": 0.1}])
def test_an_algorithm_with_one_penalty_refuses_more(algorithm, penalty):
    parameters = TrainingParameters(algorithm, rounds=2, penalty=penalty)
    with pytest.raises(ParameterError, match=f"penalty must be a positive number.*'{algorithm}'"):
        plan(parameters, [500] * 3, features=3)


@pytest.mark.filterwarnings("ignore::dpadmm.run.options.ConvergenceWarning")
@pytest.mark.parametrize("noise", ["exp-norm", "gaussian"])
@pytest.mark.parametrize("algorithm", ["dvp", "m-admm", "r-admm", "mr-admm"])
def test_a_plan_takes_penalties_of_each_round_and_its_parties_share_them(algorithm, noise):
    penalty = [0.1, 0.2] if "r-" in algorithm else [0.1, 0.15, 0.2, 0.25]
    options = {"noise": noise}
    parameters = TrainingParameters(algorithm, rounds=4, penalty=penalty, algorithm_options=options)
    planned = plan(parameters, [5000] * 3, features=3)
    assert planned.penalty == 0.1
    assert planned.algorithm.penalty[:, 0].tolist() == penalty
    own = planned.of_party(1)
    np.testing.assert_array_equal(own.algorithm.penalty, planned.algorithm.penalty[:, [1]])
    assert announced(own)[0] == announced(planned)[1]


# -- where a run starts ---------------------------------------------------------------------------

FAR = {"seed": 4, "spread": 0.3}


def started(name, site, rounds, **options):
    more = {"options": options, "epsilon": 1e3, "tolerance": 1e-11}
    return configure(name, site, rounds=rounds, **more)


@pytest.mark.parametrize("name", ON_GRAPHS)
@pytest.mark.parametrize("start", [0.5, [0.1, -0.2, 0.3, 0.0, 1.0], FAR])
def test_the_start_is_public_and_known_to_the_neighbours(name, start):
    site = site_of()
    algorithm = started(name, site, 4, start=start)
    state = algorithm.init(site)
    np.testing.assert_array_equal(state.heard, site.neighbour_sum(state.message))
    assert not state.dual.any()
    if start == FAR:
        assert np.linalg.norm(state.message[0] - state.message[1]) > 0.1
    else:
        np.testing.assert_array_equal(state.message - np.array(start), 0)
    for party in range(6):
        own = site.of_party(party)
        alone = started(name, own, 4, start=start).init(own)
        np.testing.assert_array_equal(alone.message[0], state.message[party])
        np.testing.assert_allclose(alone.heard[0], state.heard[party], atol=1e-15)


@pytest.mark.parametrize("name", ["admm", "dvp", "m-admm", "pr-admm", "r-admm"])
def test_another_start_leads_to_the_same_optimum(name):
    site, parties, rounds = site_of(), parties_of(), 300
    options = {} if name in ("admm", "pr-admm") else {"noise": "gaussian"}
    near, far = (
        messages_of(
            started(name, site, rounds, **options, **extra), site, parties, rounds, Silence()
        )
        for extra in ({}, {"start": FAR})
    )
    assert np.abs(near[0] - far[0]).max() > 1e-2
    np.testing.assert_allclose(near[-1], far[-1], atol=1e-4)


def test_a_start_of_each_party_counts_for_the_threshold():
    """dev_ij sums from y^0 on: those too far apart are replaced before the first round."""
    site = site_of()
    algorithm = started("pr-admm", site, 4, start=FAR, threshold=0.01)
    state = algorithm.init(site)
    own = site.per_node(site.degree) * state.message
    np.testing.assert_allclose(state.heard, own, atol=1e-15)
    loose = started("pr-admm", site, 4, start=FAR, threshold=100.0).init(site)
    np.testing.assert_allclose(loose.heard, site.neighbour_sum(loose.message), atol=1e-15)
    parts = [algorithm.init(site.of_party(party)).heard[0] for party in range(6)]
    np.testing.assert_allclose(parts, state.heard, atol=1e-15)


def test_a_start_decides_what_is_computed_and_hence_the_fingerprint():
    from dpadmm.run.engine import fingerprint

    site = site_of()
    marks = {
        fingerprint(started("dvp", site, 2, start=start), site, 2)
        for start in (0.0, 0.5, [0.1] * 5, [0.2] * 5, FAR, {"seed": 5, "spread": 0.3})
    }
    assert len(marks) == 6


@pytest.mark.parametrize(
    ("start", "words"),
    [
        (math.nan, "start must be a finite number.*got nan"),
        ("zero", "start must be a finite number.*got 'zero'"),
        ([0.1, True], "start must be a finite number"),
        ([0.1] * 4, "start must have one number for each of the 5 features.*got 4"),
        ({"seed": 1}, "whole number as seed and a positive number as spread"),
        ({"seed": 1, "spread": 0.0}, "spread of start must be a positive number; got 0.0"),
    ],
)
def test_a_bad_start_is_refused(start, words):
    with pytest.raises(ParameterError, match=words):
        started("dvp", site_of(), 2, start=start)


def test_noise_does_not_depend_on_the_start():
    site, parties = site_of(), parties_of()
    here, there = (
        messages_of(started("pr-admm", site, 1, start=start), site, parties, 1, SimulatedNoise(0))
        - messages_of(started("pr-admm", site, 1, start=start), site, parties, 1, Silence())
        for start in (0.0, 0.5)
    )
    np.testing.assert_allclose(here, there, atol=1e-9)
