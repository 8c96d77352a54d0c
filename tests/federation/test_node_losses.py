"""A node lost for good, and others killed after they noticed: nobody ends without a model."""

import json
import threading
import time

import pytest

pytest.importorskip("zenoh", reason="the extra 'federation' is not installed")

from tests.helpers.federation_net import free_ports
from tests.helpers.kill_run import RUNS, Trial

from dpadmm.federation.recovery import Departure
from dpadmm.federation.transport.session import PeerSession
from dpadmm.federation.transport.store import MemoryStore, MessageFile
from dpadmm.ledger.sqlite import SQLiteLedger

NAMES = ("n0", "n1", "n2", "n3")
POLICY = {"when_lost": "continue", "lost_after": 6}


@pytest.fixture
def build(make_federation):
    """Make a federation with the nodes' files written."""

    def build(names=NAMES, policy=POLICY, **options):
        return make_federation(names, policy, **options)

    return build


def record(federation, name):
    return json.loads((federation.folder / f"{name}.record").read_text())["federation"]


def test_a_node_killed_after_it_noticed_a_loss_goes_on_with_the_others(build):
    """All stopped in one round: its own last message is in its ledger alone."""
    federation = build(run={"rounds": 60, "topology": "complete"})
    for name in NAMES:
        federation.start(name)
    federation.wait_for("n3", "round")
    federation.kill("n3")
    federation.wait_for("n1", "neighbour-lost")
    federation.kill("n1")
    federation.start("n1")
    federation.finish("n0", "n1", "n2")
    records = [record(federation, name) for name in NAMES[:3]]
    assert len({found["changed_run_sha256"] for found in records}) == 1
    for found in records:
        assert found["went_on_without"] == ["n3"]
        assert found["lost"] is None


def test_who_cannot_go_on_has_the_model_of_the_rounds_before(build):
    """The last but one dies for good just as they go on: what was complete is not lost."""
    policy = POLICY | {"lost_after": 3, "serve_for": 1}
    federation = build(NAMES[:3], policy=policy, run={"rounds": 300})
    for name in federation.nodes:
        federation.start(name)
    # So many rounds that going through them again takes a while.
    while federation.wait_for("n0", "round")["round"] < 100:
        time.sleep(0.05)
    federation.kill("n2")
    kept = federation.wait_for("n0", "going-on")["round"]
    federation.kill("n1")
    assert federation.wait("n0") == 0, federation.output("n0")
    found = record(federation, "n0")
    assert kept >= 100
    assert found["rounds_complete"] >= kept - 1
    if federation.log("n0", "fell-back"):
        assert found["lost"] == "n2"
        assert found["went_on_without"] == []
        statement = (federation.folder / "n0.statement").read_text()
        assert "Going on without n2 came to nothing: n1 was lost, too" in statement
        assert "Rely on the agreed budget" in statement
    with SQLiteLedger(federation.folder / "n0.ledger") as ledger:
        spent = ledger.verify().spent_epsilon
    # All that was charged is stated, whatever came of it.
    privacy = json.loads((federation.folder / "n0.record").read_text())["privacy"]
    assert privacy["parties"]["n0"]["epsilon"] == pytest.approx(spent, rel=1e-6)


def test_a_node_restarted_after_the_decision_still_tells_who_sent_how_much(tmp_path):
    """Around a server a party hears of the others from it alone."""
    names, run = ("a", "b", "lost"), bytes(32)
    ports = dict(zip(("a", "b", "hub"), free_ports(3), strict=True))

    def depart(name, neighbours, store):
        session = PeerSession(
            name,
            f"127.0.0.1:{ports[name]}",
            {other: f"127.0.0.1:{ports[other]}" for other in neighbours},
            None,
            instance=name,
        )
        return session, Departure(session, run, names, (*names, "hub"), 10, store)

    with MessageFile(tmp_path / "hub.messages") as store:
        hub_session, hub = depart("hub", ("a", "b"), store)
        a_session, a = depart("a", ("hub",), MemoryStore())
        b_session, b = depart("b", ("hub",), MemoryStore())
        for departure, sent in ((hub, 3), (a, 4), (b, 5)):
            departure.freeze("lost", sent)
        decision = hub.settle(30)
        for session in (hub_session, a_session):
            session.close()
        hub_session, hub = depart("hub", ("a", "b"), store)
        assert hub.decided() == decision == b.settle(30)
        for session in (hub_session, b_session):
            session.close()


def test_others_are_waited_for_while_there_is_news():
    """The second is back later than so many seconds after the loss, but not after the first."""
    names, sessions = ("a", "b", "c", "lost"), []
    ports = dict(zip(names, free_ports(4), strict=True))

    def depart(name, sent, *neighbours):
        addresses = {other: f"127.0.0.1:{ports[other]}" for other in neighbours}
        sessions.append(PeerSession(name, f"127.0.0.1:{ports[name]}", addresses, None))
        departure = Departure(sessions[-1], bytes(32), names, names, 10, MemoryStore())
        departure.freeze("lost", sent)
        return departure

    late = [threading.Timer(3, depart, ("b", 5, "a")), threading.Timer(6, depart, ("c", 3, "a"))]
    for timer in late:
        timer.start()
    try:
        decision = depart("a", 4, "b", "c").settle(4.5)
        assert (decision.kept, decision.furthest) == (3, 5)
    finally:
        for timer in late:
            timer.join()
        for session in sessions:
            session.close()


def test_nodes_killed_before_and_after_a_loss(fork_server, tmp_path):
    folder = tmp_path / "ring"
    trial = Trial(fork_server, folder, "ring", 0, rounds=200, pause=0.3, lost_after=8)
    found = trial.play(before=2, after=3)
    assert not found.faults, found
    assert found.kills >= 3


@pytest.mark.slow
@pytest.mark.parametrize("kind", RUNS)
@pytest.mark.parametrize("seed", range(10))
def test_many_nodes_killed_before_and_after_losses(fork_server, tmp_path, kind, seed):
    """Ten kills each: three hundred in all, two hundred of them after a loss."""
    fork_server.warm()
    trial = Trial(fork_server, tmp_path / kind, kind, seed)
    found = trial.play(before=3, after=8)
    assert not found.faults, found
    assert found.kills_after_loss >= 3
