"""What "auto" stands for: the rule as a table, the same by every way in, and its words."""

import math
import warnings

import numpy as np
import pytest

from dpadmm.algorithms import REGISTRY
from dpadmm.errors import ParameterError
from dpadmm.privacy.noise import SimulatedNoise
from dpadmm.problem.site import build_topology
from dpadmm.run.config import RunConfig, RunSection, run_hash, training_parameters
from dpadmm.run.options import TrainingParameters
from dpadmm.run.plan import announced, chosen_algorithm, chosen_rounds, plan
from dpadmm.run.session import state_privacy

ALL_LINKS = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
NAMES = ("north", "south", "west", "east")

#: Who talks to whom: the same is picked wherever everybody can be reached.
GRAPHS = [
    "auto",
    "server",
    "complete",
    "ring",
    "path",
    "star",
    "grid",
    "random",
    ALL_LINKS,
    ALL_LINKS[1:],
    build_topology("server", 4),
    build_topology("complete", 4),
    build_topology("ring", 4),
    build_topology(ALL_LINKS[1:], 4),
]


def planned_of(rows=(300,) * 4, **told):
    told = {"algorithm": "auto", "loss": "huber-hinge", "delta": 1e-5, **told}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return plan(TrainingParameters(**told), rows, features=3)


@pytest.mark.parametrize("topology", GRAPHS, ids=lambda value: str(value)[:40])
def test_the_rule(topology):
    planned = planned_of(topology=topology)
    assert planned.algorithm.name == "dp-gd"
    assert planned.rounds == 100
    assert planned.choice.reason.startswith("dp-gd, chosen automatically: ")
    # Nobody but the user weakens the adversary.
    assert planned.algorithm.summation is None


def test_links_that_can_be_read_once_are_enough():
    assert planned_of(topology=iter(ALL_LINKS[1:])).algorithm.name == "dp-gd"


@pytest.mark.parametrize("topology", ["auto", "ring", "path", "complete"])
def test_one_party_is_served(topology):
    planned = planned_of((500,), topology=topology)
    assert planned.algorithm.name == "dp-gd"
    assert planned.choice.reason == "dp-gd, chosen automatically: it serves one party by itself"
    assert planned.choice.advice == ""


def test_what_is_named_is_taken_without_a_word():
    planned = planned_of(algorithm="pr-admm", topology="complete")
    assert planned.algorithm.name == "pr-admm"
    assert planned.choice is None


# -- what is said ---------------------------------------------------------------------------------


def spread(planned):
    """The standard deviation of one coordinate of the noise of the sum, from what is charged."""
    parties = planned.site.parties
    sigma = np.array([events[0].sigma for events in announced(planned)])
    summation = planned.algorithm.summation
    if summation is None:
        return math.sqrt(float((sigma**2).sum()))
    return sigma[0] * math.sqrt(parties / (parties - summation.colluders))


@pytest.mark.parametrize(
    "told",
    [
        {"rows": (300,) * 4},
        {"rows": (200,) * 20},
        {"rows": (100, 200, 300, 400, 500)},
        {"rows": (300, 400, 500, 400, 350), "party_weight": "equal"},
        {"rows": (300,) * 4, "epsilon": {"0": 1.0, "1": 1.0, "2": 2.0, "3": 0.8}},
    ],
    ids=str,
)
def test_what_sharing_would_bring_is_what_it_brings(told):
    own = planned_of(**told)
    shared = planned_of(**told, algorithm_options={"noise": "shared"})
    saved = spread(own) / spread(shared)
    tau, parties = shared.algorithm.summation.colluders, own.site.parties
    assert f"noise of the sum {saved:.2g} times smaller" in own.choice.advice
    assert f"the server and at most {tau} of the {parties} parties together" in own.choice.advice
    assert shared.choice.advice == ""
    assert planned_of(**told, topology="ring").choice.advice == own.choice.advice


def test_nothing_is_said_where_sharing_brings_nothing():
    assert planned_of((300, 300)).choice.advice == ""
    # The noise of all is set by the party with the smallest budget.
    uneven = {"0": 0.05, "1": 5.0, "2": 5.0, "3": 5.0}
    assert planned_of(epsilon=uneven).choice.advice == ""
    few = planned_of((100, 200, 300, 400, 500), party_weight="equal")
    assert few.choice.advice == ""


@pytest.mark.parametrize("topology", ["server", "ring"])
def test_statements_say_what_was_picked_and_why(topology):
    planned = planned_of(topology=topology, rounds=3)
    for share in (planned, planned.of_party(2)):
        statement = state_privacy(share, announced(share), SimulatedNoise(0))
        lines = dict(statement.lines())
        assert lines["Algorithm"] == planned.choice.reason
        assert lines["Not taken by itself"] == planned.choice.advice
        # A line of a node's log has 300 characters.
        assert max(len(planned.choice.reason), len(planned.choice.advice)) <= 300


# -- rounds ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", REGISTRY)
def test_every_algorithm_has_its_number_of_rounds(name):
    assert chosen_rounds("auto", name) == (100 if name == "dp-gd" else 50)
    assert chosen_rounds(7, name) == 7


@pytest.mark.parametrize("rounds", ["many", 0, 2.5, True, None])
def test_other_rounds_are_refused(rounds):
    with pytest.raises(ParameterError, match=r"rounds must be a whole number .* or 'auto'; got"):
        planned_of(algorithm="pr-admm", rounds=rounds)


# -- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("told", [{"algorithm": "auto"}, {"algorithm": "dp-gd"}], ids=str)
def test_a_graph_in_parts_is_refused(told):
    with pytest.raises(
        ParameterError, match=r"must be connected; got the components \[0, 1\], \[2"
    ):
        planned_of(topology=[(0, 1), (2, 3)], algorithm_options={"noise": "shared"}, **told)


def test_a_published_calibration_is_a_named_paper_s():
    with pytest.raises(ParameterError, match="algorithm must be named with calibration"):
        planned_of(calibration="published")


@pytest.mark.parametrize("topology", [5, [1, 2], "circle", []])
def test_what_is_no_graph_is_refused_as_ever(topology):
    with pytest.raises(ParameterError, match=r"^topology must be"):
        planned_of(topology=topology)


# -- configurations -------------------------------------------------------------------------------


def section(**table):
    content = {"run": table, "data": {"schema": "s.toml"}, "result": {"model": "m"}}
    content["party"] = [{"name": name, "file": f"{name}.csv"} for name in NAMES]
    return RunConfig.from_dict(content)


LINKS = [[NAMES[i], NAMES[j]] for i, j in ALL_LINKS]


@pytest.mark.parametrize(
    "topology",
    [*(graph for graph in GRAPHS if isinstance(graph, str)), LINKS, LINKS[1:]],
    ids=lambda value: str(value)[:40],
)
def test_a_configuration_has_the_name_that_runs(topology):
    config = section(algorithm="auto", topology=topology, loss="huber-hinge")
    assert (config.run.algorithm, config.run.rounds) == ("dp-gd", 100)
    assert config.run.algorithm_chosen
    assert config.plain()["run"]["algorithm"] == "dp-gd"
    planned = plan(training_parameters(config.run, NAMES), [300] * 4, features=3, names=NAMES)
    assert planned.choice == planned_of(topology=planned.site.topology).choice
    # Who names it runs the same, to the last bit of the hash.
    named = section(algorithm="dp-gd", topology=topology, loss="huber-hinge")
    assert not named.run.algorithm_chosen
    rows = dict.fromkeys(NAMES, 300)
    assert run_hash(named, "0" * 64, rows) == run_hash(config, "0" * 64, rows)


def test_a_copy_of_a_run_remembers_that_it_was_chosen():
    chosen = RunSection.model_validate({"algorithm": "auto"})
    assert chosen.model_copy(update={"run_id": "again"}).algorithm_chosen
    assert not RunSection().algorithm_chosen


def test_a_configuration_says_nothing_and_gets_what_it_got_before():
    assert (RunSection().algorithm, RunSection().rounds) == ("pr-admm", 50)
    assert RunSection.model_validate({"algorithm": "dp-gd", "rounds": "auto"}).rounds == 100
    assert RunSection.model_validate({"algorithm": "dp-gd", "rounds": 7}).rounds == 7


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"algorithm": "auto", "calibration": "published"}, "[run]: algorithm must be named"),
        ({"algorithm": "auto", "topology": 5}, "topology under [run] must be a name, or a list"),
        ({"algorithm": "auto", "algorithm_options": 5}, "algorithm_options under [run]"),
        ({"rounds": "many"}, 'rounds under [run] must be a whole number or "auto"'),
        ({"rounds": 2_000_000}, "rounds under [run] must be at most 10000, since every"),
        ({"algorithm": 5}, "algorithm under [run] must be a valid string"),
    ],
    ids=str,
)
def test_a_wrong_configuration_is_refused_in_one_sentence(table, words):
    with pytest.raises(ParameterError) as refused:
        section(**table)
    assert words in str(refused.value)


def test_an_unknown_algorithm_is_refused_by_its_own_sentence():
    config = section(algorithm="dp-dg", rounds="auto")
    with pytest.raises(ParameterError, match=r"algorithm must be one of: .* Did you mean 'dp-gd'"):
        plan(training_parameters(config.run, NAMES), [300] * 4, features=3, names=NAMES)


def test_the_rule_knows_no_rows():
    # Everything it is told is public and said before a row is read.
    assert chosen_algorithm() == "dp-gd"
