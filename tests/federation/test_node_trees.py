"""Real nodes where few are linked: sums travel along a tree, and the model is the same."""

import json

import numpy as np
import pytest

pytest.importorskip("zenoh", reason="the extra 'federation' is not installed")

from tests.helpers.federation_net import Federation, Lines, in_process

from dpadmm.cli.node import LEFT_OUT
from dpadmm.federation.recovery import View
from dpadmm.federation.transport.wire import decode_masked
from dpadmm.ledger.sqlite import SQLiteLedger
from dpadmm.run.model import load_model

KEY, ROUNDS = 11, 6
NAMES = ("north", "south", "west", "east", "centre", "far")
# Depth 2: centre - (west, south, east), south - north, east - far; no sum takes west - north.
LINKS = [
    ["centre", "west"],
    ["centre", "south"],
    ["centre", "east"],
    ["west", "north"],
    ["east", "far"],
    ["north", "south"],
]


def trained(folder, server, topology, noise, *, tls=True, **told):
    run = {
        "algorithm": "dp-gd",
        "topology": topology,
        "rounds": ROUNDS,
        "algorithm_options": {"noise": noise, "center": "on"},
        **told,
    }
    federation = Federation(folder, server, NAMES, tls=tls, run=run)
    federation.simulated = noise == "shared"
    for name in NAMES:
        federation.write(name, simulation=KEY)
        federation.start(name)
    federation.finish()
    return federation


@pytest.mark.parametrize("noise", ["own", "shared"])
@pytest.mark.parametrize("topology", ["ring", "path", LINKS], ids=["ring", "path", "links"])
def test_the_model_is_that_of_a_complete_graph_bit_for_bit(fork_server, tmp_path, topology, noise):
    federation = trained(tmp_path / "tree", fork_server, topology, noise)
    whole = trained(tmp_path / "complete", fork_server, "complete", noise)
    expected = in_process(federation, tmp_path, KEY)[-(ROUNDS // 3) :].mean(axis=(0, 1))[0]
    digests, sums = set(), set()
    for name in NAMES:
        coef, other = (
            load_model(each.folder / f"{name}.model").classifier.coef
            for each in (federation, whole)
        )
        np.testing.assert_array_equal(coef, other)
        np.testing.assert_allclose(coef, expected, rtol=0, atol=1e-9)
        record = json.loads((federation.folder / f"{name}.record").read_text())
        assert record["federation"]["agreed_by"] == list(NAMES)
        digests.add(record["federation"]["sums_sha256"])
        # Its own message and the sum: nobody else's is kept.
        kept = federation.messages(name)
        assert len(kept) == ROUNDS
        for messages in kept:
            assert set(messages) == {NAMES.index(name), len(NAMES)}
        sums.add(tuple(messages[len(NAMES)] for messages in kept))
        assert not federation.log(name, "message-dropped")
        # A node talks to its neighbours in the agreed graph, and to nobody else.
        heard = {entry["facts"]["neighbour"] for entry in federation.log(name, "neighbour-here")}
        assert heard == set(federation.neighbours(name))
    assert len(digests) == len(sums) == 1
    assert not list(federation.folder.glob("*.key"))


def test_what_travels_is_uniform_but_for_the_sum(fork_server, tmp_path):
    federation = trained(tmp_path / "tree", fork_server, LINKS, "shared")
    agreed, schema = federation.agreed, federation.schema
    view = View.whole(agreed, agreed.plan(schema), schema)
    assert NAMES[view.tree.root] == "centre"
    assert view.tree.depth == 2
    summation, shape = view.planned.algorithm.summation, view.planned.site.shape[1:]
    for t, messages in enumerate(federation.messages("west")):
        own = decode_masked(messages[2], run=view.run, party=2, t=t, shape=shape)
        total = decode_masked(messages[6], run=view.run, party=6, t=t, shape=shape)
        assert np.abs(summation.from_words(total)).max() < summation.bound / 10
        # An entry of uniform words is this small once in 2^20 times.
        assert (np.abs(own.view(np.int64)) < 2**43).mean() < 0.05


def test_an_evaluation_travels_along_the_tree_of_its_training(fork_server, tmp_path):
    told = {"evaluate": True, "holdout": 0.25}
    federation = trained(tmp_path / "tree", fork_server, "path", "shared", **told)
    whole = trained(tmp_path / "complete", fork_server, "complete", "shared", **told)
    for name in NAMES:
        assert federation.log(name, "evaluated")
        found, other = (
            json.loads((each.folder / f"{name}.record").read_text()) for each in (federation, whole)
        )
        assert found["quality"] == other["quality"]
        assert found["federation"]["agreed_by"] == list(NAMES)


@pytest.mark.parametrize("noise", ["own", "shared"])
def test_a_node_that_is_killed_goes_on_where_it_was(make_federation, noise):
    """The root, and one between the root and another: both come back, and nobody is lost."""
    run = {
        "algorithm": "dp-gd",
        "topology": LINKS,
        "rounds": 40,
        "algorithm_options": {"noise": noise},
    }
    federation = make_federation(NAMES, run=run)
    for name in NAMES:
        federation.start(name)
    for name in ("centre", "west", "centre"):
        federation.wait_for(name, "round")
        federation.kill(name)
        federation.start(name)
    federation.finish()
    models = [load_model(federation.folder / f"{name}.model").classifier.coef for name in NAMES]
    for name, model in zip(NAMES, models, strict=True):
        np.testing.assert_array_equal(model, models[0])
        assert "Not agreed" not in (federation.folder / f"{name}.statement").read_text()
        with SQLiteLedger(federation.folder / f"{name}.ledger") as ledger:
            assert len(ledger.verify().runs["trial"].commits) == 40


POLICY = {"when_lost": "continue", "lost_after": 6, "serve_for": 10}
GRAPH = {"algorithm": "dp-gd", "topology": LINKS, "rounds": 60}


def begun(build, run, policy=POLICY):
    """A federation in the midst of its rounds, every link over a line that can be cut."""
    federation = build(NAMES, policy, run=run)
    cut = Lines(federation)
    for name in NAMES:
        federation.write(name, policy=policy, addresses=cut.addresses(name))
        federation.start(name)
    for name in NAMES:
        federation.wait_for(name, "round")
    return federation, cut


def found(federation, name):
    return json.loads((federation.folder / f"{name}.record").read_text())


@pytest.mark.parametrize("noise", ["own", "shared"])
def test_a_cut_link_is_no_loss_while_there_is_another_way(make_federation, noise):
    """North is reached through south, and from then on through west."""
    run = {**GRAPH, "algorithm_options": {"noise": noise}}
    federation, lines = begun(make_federation, run)
    try:
        for line in lines.between(("south",), ("north",)):
            line.cut()
        federation.finish()
    finally:
        lines.close()
    models = []
    for name in NAMES:
        record = found(federation, name)
        assert record["federation"]["went_on_without"] == ["north/south"]
        assert record["federation"]["lost"] is None
        assert record["federation"]["agreed_by"] == list(NAMES)
        assert not federation.log(name, "neighbour-lost")
        (caveat,) = [each for each in record["privacy"]["caveats"] if "other ways" in each]
        assert caveat.startswith("Went on by other ways without the link between north and south")
        models.append(load_model(federation.folder / f"{name}.model").classifier.coef)
        with SQLiteLedger(federation.folder / f"{name}.ledger") as ledger:
            account = ledger.verify()
        assert set(account.runs) == {"trial", "trial without north/south"}
        assert account.spent_epsilon <= 1.0
        # All are charged for the round that was cut short, and nobody beyond what was agreed.
        assert sum(len(each.events) for each in account.runs.values()) <= GRAPH["rounds"]
    for model in models:
        np.testing.assert_array_equal(model, models[0])
    assert not list(federation.folder.glob("*.key"))


def test_a_cut_link_that_no_sum_takes_changes_nothing(make_federation):
    run = {**GRAPH, "algorithm_options": {"noise": "shared"}}
    federation, lines = begun(make_federation, run)
    try:
        for line in lines.between(("west",), ("north",)):
            line.cut()
        federation.finish()
    finally:
        lines.close()
    for name in NAMES:
        assert found(federation, name)["federation"]["went_on_without"] == []


def test_a_node_whose_every_link_is_gone_is_lost(make_federation):
    """Nobody who is linked with it hears it: that is known at once."""
    run = {**GRAPH, "algorithm_options": {"noise": "shared"}}
    federation, _ = begun(make_federation, run)
    federation.kill("south")
    others = [name for name in NAMES if name != "south"]
    federation.finish(*others)
    for name in others:
        assert found(federation, name)["federation"]["went_on_without"] == ["south"]


@pytest.mark.parametrize("when_lost", ["stop", "continue"])
def test_a_node_without_which_the_graph_falls_apart_ends_the_run(make_federation, when_lost):
    """Everybody has the model of the rounds before, and says who was lost, however far away."""
    policy = {**POLICY, "when_lost": when_lost}
    run = {**GRAPH, "algorithm_options": {"noise": "shared"}}
    federation, _ = begun(make_federation, run, policy)
    federation.kill("east")
    others = [name for name in NAMES if name != "east"]
    for name in others:
        assert federation.wait(name) in ((0,) if when_lost == "stop" else (0, LEFT_OUT))
    for name in others:
        record = found(federation, name)
        assert 0 < record["federation"]["rounds_complete"] < GRAPH["rounds"]
        caveats = record["privacy"]["caveats"]
        assert any("Ended early" in each for each in caveats)
        if when_lost == "stop":
            assert record["federation"]["lost"] == "east"


def test_a_rehearsal_goes_along_the_tree(make_federation):
    run = {**GRAPH, "algorithm_options": {"noise": "shared"}}
    federation = make_federation(NAMES, run=run)
    for name in NAMES:
        federation.start(name, "--rehearse")
    for name in NAMES:
        assert federation.wait(name) == 0, federation.output(name)
        with SQLiteLedger(federation.folder / f"{name}.ledger") as ledger:
            assert ledger.verify().spent_epsilon == 0
