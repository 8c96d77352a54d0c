"""Nodes lost and links cut, for good or for a while: nobody stalls or ends without a model."""

import json
import random
import threading
import time

import pytest

pytest.importorskip("zenoh", reason="the extra 'federation' is not installed")

from tests.helpers.federation_net import Lines, free_ports
from tests.helpers.kill_run import ACCUSATIONS, LOSSES, RUNS, Trial, ended

from dpadmm.cli.node import LEFT_OUT
from dpadmm.federation.recovery import Departure
from dpadmm.federation.transport.mailbox import Mailbox, NeighbourLost, Patience
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


def cut_nodes(build, **run):
    """A federation whose links can be cut; nodes would serve others for an hour."""
    federation = build(averager="hub" if run["topology"] == "server" else None, run=run)
    lines = Lines(federation)
    for name in federation.nodes:
        policy = POLICY | {"lost_after": 4, "serve_for": 3600}
        federation.write(name, policy=policy, addresses=lines.addresses(name))
        federation.start(name)
    for name in federation.nodes:
        federation.wait_for(name, "round")
    return federation, lines


def ends(federation, name, seconds=60.0):
    """The exit code of a node that ends in time."""
    deadline = time.monotonic() + seconds
    while not ended(federation.processes[name]):
        assert time.monotonic() < deadline, (name, federation.log(name)[-5:])
        time.sleep(0.05)
    return federation.wait(name)


def assert_nobody_is_accused(federation):
    for name in federation.nodes:
        assert not [entry for entry in federation.log(name) if entry["event"] in ACCUSATIONS]


GRADIENT = {"algorithm": "dp-gd", "rounds": 100}


@pytest.mark.parametrize(
    ("run", "cut"),
    [
        ({"topology": "complete", "rounds": 100}, ("n0", "n3")),
        pytest.param({"topology": "ring", "rounds": 100}, ("n1", "n2"), marks=pytest.mark.slow),
        pytest.param(
            {"topology": "complete", "algorithm_options": {"noise": "shared"}, **GRADIENT},
            ("n1", "n3"),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_one_cut_link_leaves_out_one_of_its_ends(build, run, cut):
    """Whom the others go on without they still hear; it learns that, and so does its owner."""
    federation, lines = cut_nodes(build, **run)
    for line in lines.between(cut[:1], cut[1:]):
        line.cut()
    codes = {name: ends(federation, name) for name in NAMES}
    (out,) = (name for name, code in codes.items() if code == LEFT_OUT)
    others = [name for name in NAMES if name != out]
    assert out in cut
    assert all(codes[name] == 0 for name in others)
    assert_nobody_is_accused(federation)
    for name in others:
        assert record(federation, name)["went_on_without"] == [out]
        assert record(federation, name)["lost"] is None
    assert len({record(federation, name)["changed_run_sha256"] for name in others}) == 1
    # It has what it paid for, and a sentence about it.
    assert record(federation, out)["lost"] == out
    assert federation.log(out, "left-out")
    assert not federation.log(out, "finished")
    assert "the others go on without it" in federation.output(out)
    statement = (federation.folder / f"{out}.statement").read_text()
    assert f"Ended early: the others went on without {out}" in statement
    # Started again it knows that, though nobody is there to tell.
    federation.start(out)
    assert ends(federation, out) == LEFT_OUT
    lines.close()


def test_a_party_that_was_cut_off_from_the_server_learns_that_the_others_go_on(build):
    federation, lines = cut_nodes(build, topology="server", **GRADIENT)
    for line in lines.around("n1"):
        line.freeze()
    federation.wait_for("n1", "cannot-go-on")
    federation.wait_for("hub", "going-on")
    for line in lines.around("n1"):
        line.heal()
    assert ends(federation, "n1") == LEFT_OUT
    for name in ("n0", "n2", "n3", "hub"):
        assert ends(federation, name) == 0, federation.output(name)
    assert_nobody_is_accused(federation)
    assert record(federation, "n0")["went_on_without"] == ["n1"]
    lines.close()


def test_of_two_halves_none_goes_on_and_all_have_a_model(build):
    """Neither half can know that the other does not go on."""
    federation, lines = cut_nodes(build, topology="complete", rounds=300)
    for line in lines.between(NAMES[:2], NAMES[2:]):
        line.cut()
    for name in NAMES:
        federation.wait_for(name, "results-written", 60)
        assert federation.log(name, "cannot-go-on")
        assert record(federation, name)["went_on_without"] == []
        assert record(federation, name)["rounds_complete"] > 0
    assert_nobody_is_accused(federation)
    lines.close()


def test_links_that_come_back_cost_nobody_its_place(fork_server, tmp_path):
    folder = tmp_path / "complete"
    trial = Trial(fork_server, folder, "complete", 3, rounds=200, pause=0.3, loss="nothing")
    found = trial.play(before=1, after=0, cuts=5)
    assert not found.faults, found
    assert found.cuts == 5
    assert not found.fell_back


class Bystander:
    """In the place of connections: neighbours are asked directly."""

    def __init__(self, name, neighbours):
        self.name, self.neighbours = name, neighbours

    def serve(self, topic, answer):
        self.answer = answer


@pytest.mark.parametrize("ring", [False, True])
@pytest.mark.parametrize("nodes", range(3, 8))
def test_both_ends_of_a_cut_link_are_heard_and_one_is_left_out(nodes, ring):
    """Whatever is heard first by whom, all others settle on the same one of the two."""
    for seed in range(100):
        settle_on_one_end(nodes, ring, random.Random(seed))


def settle_on_one_end(nodes, ring, draw):
    names = tuple(f"n{number}" for number in range(nodes))
    first = draw.randrange(nodes)
    cut = {names[first], names[(first + 1) % nodes]}
    links = {
        (one, other)
        for one in range(nodes)
        for other in range(nodes)
        if one != other and (not ring or (one - other) % nodes in (1, nodes - 1))
    }
    sessions = {
        name: Bystander(name, [names[j] for i, j in links if names[i] == name]) for name in names
    }
    stores = {name: MemoryStore() for name in names}

    def depart(name):
        return Departure(sessions[name], bytes(32), names, names, 10, stores[name])

    departures = {name: depart(name) for name in names}

    def ask(name, other):
        """One question; or the node is killed and started again."""
        departure = departures[name]
        data = None if {name, other} == cut else departures[other]._answer(bytes(32).hex())
        if data is not None:
            departure._take(other, "", data)
        if departure._reported and not departure.lost:
            departure.freeze(departure._reported, draw.randrange(10))
        if draw.random() < 0.1:
            departures[name] = depart(name)

    def stopped(name):
        found = departures[name]
        return found.left_out or (found.lost and set(names) - {found.lost} <= set(found._sent))

    missing, decided = draw.sample(sorted(cut), 2), {}
    for _ in range(400 * nodes):
        if missing and draw.random() < 0.2:
            name = missing.pop()
            departures[name].freeze((cut - {name}).pop(), draw.randrange(10))
        name = draw.choice(names)
        ask(name, draw.choice(sessions[name].neighbours))
        if stopped(name):
            assert decided.setdefault(name, departures[name].lost) == departures[name].lost
        if not missing and all(map(stopped, names)):
            break
    (out,) = {departure.lost for departure in departures.values()}
    assert out in cut
    assert [name for name in names if departures[name].left_out] == [out]
    assert all(map(stopped, names))


def test_without_whom_nobody_could_go_on_is_not_given_up():
    """A party that misses the server leaves itself, until it is started again."""
    names, store = ("a", "b", "c"), MemoryStore()

    def depart(name, store):
        options = {"can_spare": lambda name: name != "hub"}
        session = Bystander(name, ())
        return Departure(session, bytes(32), names, (*names, "hub"), 10, store, **options)

    party, hub = depart("a", store), depart("hub", MemoryStore())
    party.freeze("hub", 4)
    assert party.lost == "a"
    assert not party.left_out
    hub._take("a", "", party._answer(bytes(32).hex()))
    assert hub._reported == "a"
    assert depart("a", store).lost == ""
    hub.freeze("a", 4)
    party._take("hub", "", hub._answer(bytes(32).hex()))
    assert party.left_out
    assert depart("a", store).left_out
    # Whatever is said, the server is not given up.
    hub = depart("hub", MemoryStore())
    hub._take("b", "", b'{"lost": "hub", "sent": {"b": 4}}')
    assert hub._reported == "b"


def test_who_ended_in_the_run_before_is_not_waited_for_in_the_next():
    """It is connected and serves its last rounds; what is new it will never send."""
    names = ("a", "b")
    ports = dict(zip(names, free_ports(2), strict=True))
    addresses = {name: f"127.0.0.1:{port}" for name, port in ports.items()}
    patience, waits = Patience(timeout=600.0, report=0.1), []

    def mailbox(session, run, before=None):
        other = names[session.name == "a"]
        sources = {other: names.index(other)}
        number, options = 1 - names.index(other), {"patience": patience, "before": before}
        options["on_waiting"] = lambda name, seconds: waits.append((name, seconds))
        return Mailbox(session, run, number, sources, (1, 1, 2), MemoryStore(), **options)

    sessions = [
        PeerSession(
            name, addresses[name], {each: addresses[each] for each in names if each != name}, None
        )
        for name in names
    ]
    one, other = sessions
    try:
        before = mailbox(one, bytes(32))
        last = mailbox(other, bytes(32))
        following = mailbox(one, bytes([1]) * 32, before)
        serving = threading.Thread(target=last.finish, args=(5.0,))
        serving.start()
        begin = time.monotonic()
        with pytest.raises(NeighbourLost, match="b must send round 0; it ended before"):
            following.receive(1, 0)
        assert time.monotonic() - begin < 5
        assert one.present("b")
        # Nor is it shown as waited for.
        assert [seconds for name, seconds in waits if name == "b"][-1] == 0
        serving.join()
    finally:
        for session in sessions:
            session.close()


@pytest.mark.slow
@pytest.mark.parametrize("kind", RUNS)
@pytest.mark.parametrize("seed", range(10))
def test_many_nodes_killed_and_links_cut_before_and_after_losses(fork_server, tmp_path, kind, seed):
    """Ten kills and two cuts each, and what stays broken: 500 kills and 100 cuts in all."""
    fork_server.warm()
    loss = LOSSES[seed % len(LOSSES)]
    trial = Trial(fork_server, tmp_path / kind, kind, seed, loss=loss)
    found = trial.play(before=3, after=8, cuts=2)
    assert not found.faults, found
    assert found.kills >= 3
