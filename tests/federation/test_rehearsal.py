"""A rehearsal: agreement, keys and zeros, by processes, with nothing read and nothing spent."""

import hashlib
import json

import pytest

pytest.importorskip("zenoh", reason="the extra 'federation' is not installed")

from tests.helpers.federation_net import BadNeighbour, Federation

from dpadmm.federation.agreement import Consents
from dpadmm.federation.config import load_node_config
from dpadmm.federation.recovery import View
from dpadmm.federation.runtime import prepare_node
from dpadmm.federation.transport.session import Security
from dpadmm.ledger.sqlite import SQLiteLedger
from dpadmm.run.model import load_model

NAMES = ("north", "south", "west")
SHARED = {
    "algorithm": "dp-gd",
    "topology": "complete",
    "rounds": 5,
    "loss": "auto",
    "penalty": "auto",
    "algorithm_options": {"noise": "shared", "colluders": 1},
}


def make(folder, fork_server, **more):
    federation = Federation(folder, fork_server, NAMES, **more)
    for name in NAMES:
        federation.make_ledger(name)
    for name in federation.nodes:
        federation.write(name)
    return federation


def remove_rows(federation):
    """Leave the columns' names: whoever reads a row finds none of those that were promised."""
    for name in NAMES:
        path = federation.folder / f"{name}.csv"
        path.write_text(path.read_text().partition("\n")[0] + "\n")


def heads(federation):
    found = {}
    for name in NAMES:
        with SQLiteLedger(federation.folder / f"{name}.ledger", read_only=True) as ledger:
            found[name] = ledger.head
    return found


HOW = {
    "own": {},
    "shared": {"run": SHARED},
    "server": {"run": SHARED | {"topology": "server"}, "averager": "hub"},
    "averaged": {
        "run": SHARED | {"topology": "server", "algorithm_options": {}},
        "averager": "hub",
    },
    # An evaluation comes after the training, which no rehearsal has.
    "evaluated": {"run": SHARED | {"evaluate": True, "holdout": 0.25, "epsilon": 5.0}},
}


@pytest.mark.parametrize("how", HOW)
def test_a_rehearsal_reads_nothing_and_spends_nothing(fork_server, tmp_path, how):
    federation = make(tmp_path / "f", fork_server, **HOW[how])
    remove_rows(federation)
    before = {path: path.read_bytes() for path in sorted(federation.folder.rglob("*.ledger"))}
    files = {path.name for path in federation.folder.iterdir()}
    try:
        for name in federation.nodes:
            federation.start(name, "--rehearse", "--json")
        for name in federation.nodes:
            assert federation.wait(name) == 0, federation.output(name)
    finally:
        federation.close()
    for name in federation.nodes:
        text = federation.output(name)
        told = json.loads(text[text.index("{\n") :])["result"]
        assert told["rehearsed"]
        assert told["ready"]
        words = told["checks"][-1]["words"]
        assert ("masked zeros" in words) == (how not in ("own", "averaged"))
        assert federation.log(name, "agreed")[0]["facts"]["nodes"] == list(federation.nodes)
        assert not federation.log(name, "encoding")
    assert {path: path.read_bytes() for path in before} == before
    left = {path.name for path in federation.folder.iterdir()} - files
    # Neither messages nor keys nor results: logs, and what each printed.
    assert left == {f"{name}.{kind}" for name in federation.nodes for kind in ("log", "out")}


def test_after_a_rehearsal_the_run_starts_and_all_have_one_model(fork_server, tmp_path):
    federation = make(tmp_path / "f", fork_server, run=SHARED)
    try:
        for more in (["--rehearse"], []):
            for name in NAMES:
                federation.start(name, *more)
            federation.finish()
    finally:
        federation.close()
    for name in NAMES:
        assert len(federation.log(name, "agreed")) == 2
        assert federation.log(name, "agreed-by-all")
    models = [load_model(federation.folder / f"{name}.model") for name in NAMES]
    assert len({model.fingerprint for model in models}) == 1


def test_a_node_that_rehearses_and_one_that_starts_do_not_train(fork_server, tmp_path):
    federation = make(tmp_path / "f", fork_server)
    before = heads(federation)
    try:
        federation.start("north", "--rehearse")
        federation.start("south")
        federation.start("west")
        codes = {name: federation.wait(name) for name in NAMES}
    finally:
        federation.close()
    assert codes["north"] == 2
    assert codes["south"] == 2
    shown = federation.output("south")
    assert 'rehearsal is "nothing" here and true there' in shown, shown
    # Who starts for real opens the run in its ledger before it connects; nothing is charged.
    assert heads(federation)["north"] == before["north"]
    for name in NAMES:
        with SQLiteLedger(federation.folder / f"{name}.ledger", read_only=True) as ledger:
            assert ledger.account.spent_epsilon == 0
    # After it the same run starts as if nothing had been.
    for name in NAMES:
        federation.start(name)
    federation.finish()


def test_whoever_does_not_send_zeros_fails_the_rehearsal(fork_server, tmp_path):
    names = ("north", "west")
    federation = Federation(tmp_path / "f", fork_server, names, run={"topology": [list(names)]})
    federation.make_ledger("north")
    federation.write("north")
    setup = prepare_node(load_node_config(federation.folder / "north.toml")).rehearsing(tmp_path)
    west = BadNeighbour(federation)
    west.run = setup.run
    folder = federation.folder / "certificates"
    own = Security(folder / "ca.pem", folder / "west.pem", folder / "west.key")
    west.consents = {"west": Consents("west", west.run, own).own()}
    west.facts = setup.told()
    west.session.serve(west.run.hex(), west._answer)
    west.message = lambda t: BadNeighbour.message(west, t, 1.0)
    try:
        federation.start("north", "--rehearse")
        assert federation.wait("north") == 2
    finally:
        federation.close()
        west.session.close()
    assert "zeros must come back as zeros" in federation.output("north")
    assert federation.log("north", "agreed")


def test_what_is_wrong_is_said_before_anybody_is_called(fork_server, tmp_path):
    federation = make(tmp_path / "f", fork_server)
    (federation.folder / "north.ledger").unlink()
    federation.start("north", "--rehearse")
    assert federation.wait("north") == 1
    assert "NOT OK ledger" in federation.output("north")
    assert not federation.log("north")
    federation.start("north", "--rehearse", "--check")
    assert federation.wait("north") == 2
    assert "leave one of them" in federation.output("north")


def test_the_configuration_of_a_rehearsal_has_no_rows_and_no_ledger(fork_server, tmp_path):
    federation = make(tmp_path / "f", fork_server, run=SHARED)
    setup = prepare_node(load_node_config(federation.folder / "north.toml"))
    rehearsing = setup.rehearsing(tmp_path)
    node = rehearsing.config.node
    assert (node.data, node.ledger, node.scheduler, rehearsing.config.result) == (None,) * 4
    assert node.messages.parent == tmp_path
    with pytest.raises(AssertionError):
        rehearsing.run_config()
    # No consent, key or mask of it is one of the run.
    view = View.whole(setup.agreed, setup.planned, setup.schema)
    assert (rehearsing.view.run, rehearsing.view.purpose) != (view.run, view.purpose)
    evaluating = hashlib.sha256(view.run + b"evaluation").digest()
    assert rehearsing.run not in (view.run, evaluating)
    assert rehearsing.view.purpose == "rehearsal"
    assert rehearsing.told() == setup.told() | {"rehearsal": True}
