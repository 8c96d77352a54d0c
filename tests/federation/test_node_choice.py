"""An agreed run whose algorithm is left to public facts: the pick is what is agreed on."""

import tomllib

import pytest

pytest.importorskip("zenoh", reason="the extra 'federation' is not installed")

from tests.helpers.federation_net import Federation

from dpadmm.errors import ParameterError
from dpadmm.federation.config import AgreedRun, load_node_config
from dpadmm.run.config import validated
from dpadmm.run.model import load_model

NAMES = ("north", "south", "west", "east")


def federation_of(tmp_path, server=None, **run):
    run = {"algorithm": "auto", "topology": "auto", "penalty": "auto", **run}
    return Federation(tmp_path / "federation", server, NAMES, tls=False, run=run)


def agreed_of(federation, **changes):
    content = tomllib.loads(federation.agreed_text(**changes))
    return validated(AgreedRun, content, federation.folder, "agreed")


@pytest.mark.parametrize(
    ("topology", "picked", "rounds"),
    [("auto", "dp-gd", 100), ("server", "dp-gd", 100), ("ring", "dp-gd", 100)],
)
def test_the_pick_is_in_the_facts_and_in_the_hash(tmp_path, topology, picked, rounds):
    federation = federation_of(tmp_path, topology=topology, rounds="auto")
    schema, agreed = federation.schema, federation.agreed
    told = agreed.facts(schema)["run"]
    assert (told["algorithm"], told["rounds"]) == (picked, rounds)
    assert agreed.plan(schema).choice.reason.startswith(picked)
    named = agreed_of(federation, algorithm=picked, rounds=rounds)
    assert named.digest(schema) == agreed.digest(schema)
    assert named.plan(schema).choice is None
    other = "consensus-admm" if topology != "ring" else "dvp"
    assert agreed_of(federation, algorithm=other).digest(schema) != agreed.digest(schema)


def test_what_is_left_of_a_run_still_says_that_it_was_chosen(tmp_path):
    federation = federation_of(tmp_path)
    agreed = federation.agreed
    rest = agreed.without("south", agreed.plan(federation.schema))
    choice = rest.plan(federation.schema).choice
    assert "at most 1 of the 3 parties" in choice.advice


def test_an_owner_s_policy_judges_the_pick(tmp_path):
    federation = federation_of(tmp_path)
    planned = federation.agreed.plan(federation.schema)
    for allowed in (["dp-gd"], ["pr-admm"]):
        path = federation.write("north", policy={"algorithms": allowed})
        config = load_node_config(path)
        if allowed == ["dp-gd"]:
            config.check(federation.agreed, planned)
        else:
            with pytest.raises(ParameterError, match=r"allows \(pr-admm\); the agreed run has 'dp"):
                config.check(federation.agreed, planned)


def test_nodes_that_leave_it_open_agree_with_those_that_name_it(fork_server, tmp_path):
    federation = federation_of(tmp_path, fork_server, rounds=3)
    named = federation.agreed_text(algorithm="dp-gd")
    for number, name in enumerate(NAMES):
        federation.write(name, simulation=1, agreed=named if number else None)
        federation.start(name)
    federation.finish()
    choice = federation.agreed.plan(federation.schema).choice
    assert federation.log("north", "algorithm-chosen")[0]["facts"] == {
        "choice": choice.reason,
        "advice": choice.advice,
    }
    assert not federation.log("south", "algorithm-chosen")
    folder = federation.folder
    assert choice.reason in (folder / "north.statement").read_text()
    models = [load_model(folder / f"{name}.model").to_estimator() for name in NAMES]
    for model in models:
        assert (model.algorithm, model.algorithm_, model.rounds) == ("dp-gd", "dp-gd", 3)
        assert model.coef_.tolist() == models[0].coef_.tolist()
