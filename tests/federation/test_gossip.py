"""What nodes share of their status: nothing unless their owners say so, and nothing but words."""

import json
import time

import pytest

pytest.importorskip("zenoh", reason="the extra 'federation' is not installed")

from tests.helpers.federation_net import BadNeighbour, Federation, free_ports

from dpadmm.federation import watcher as gossiping
from dpadmm.federation.node import links_of
from dpadmm.federation.transport.session import PeerSession
from dpadmm.federation.transport.wire import BadMessage, Limits, Standing, said
from dpadmm.federation.watcher import Gossip, Watcher

NODES = ("north", "south", "west")
LIMITS = Limits(frozenset(NODES), 10)
GOOD = {"state": "running", "round": 7, "waiting": ["west"]}


def until(found, seconds=60.0):
    """What is found, once it is."""
    deadline = time.monotonic() + seconds
    while not (value := found()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return value


class TestWords:
    def test_a_good_one_is_read_and_sent_as_it_is(self):
        words = said(Standing, json.dumps(GOOD).encode(), "south", LIMITS)
        assert json.loads(words.to_bytes()) == GOOD

    @pytest.mark.parametrize(
        "change",
        [
            {"state": "<script>"}, {"state": "finished"}, {"state": None}, {"round": 11},
            {"round": -1}, {"round": True}, {"round": 7.0}, {"waiting": ["<script>"]},
            {"waiting": ["east"]}, {"waiting": {"west": 1}}, {"waiting": ["west"] * 21},
            {"epsilon": 1.0}, {"waiting": None},
        ],
    )  # fmt: skip
    def test_all_else_is_refused(self, change):
        with pytest.raises(BadMessage, match="south must send what can be read"):
            said(Standing, json.dumps(GOOD | change).encode(), "south", LIMITS)


class Line:
    """A session that publishes nowhere, and hears what a test says."""

    def __init__(self):
        self.published, self.decided = [], []

    def hear(self, topic, take, *, decides=True):
        self.take = take
        self.decided.append(decides)

    def publish(self, topic, label, data, *, decides=True):
        self.published.append((topic, label, data))
        self.decided.append(decides)


@pytest.fixture
def watched(tmp_path):
    """A watcher of north, and what its status file says."""
    file = tmp_path / "north.status.json"
    with Watcher("north", "trial", log=tmp_path / "log", status=file) as watcher:

        def content():
            watcher._write_status()
            return json.loads(file.read_text())

        yield watcher, content


@pytest.fixture
def refused():
    return []


@pytest.fixture
def line(watched, refused, monkeypatch):
    """A line to north that shares all the time, and takes one word of each neighbour."""
    monkeypatch.setattr(gossiping, "_SHARE_EVERY", 0.01)
    line = Line()
    told = {"on_refused": lambda *why: refused.append(why)}
    with Gossip(line, watched[0], LIMITS, share=True, **told):
        yield line


def test_what_is_published_is_the_same_three_facts_whatever_happens(watched, line):
    watcher, _ = watched
    watcher.round(3, 10)
    watcher.waiting("west", 12.0)
    watcher.budget(0.25, 0.75)
    watcher.unreachable("south", "192.0.2.7:7447", "no-answer", "look at firewalls")
    watcher.event("failed", level="error", error=ValueError("row 17"))
    seen = len(line.published)
    topic, label, data = until(lambda: line.published[seen + 1 :])[0]
    assert (topic, label) == ("status", "now")
    found = {"state": "running", "round": 3, "waiting": ["south", "west"]}
    assert json.loads(data) == found
    watcher.serving(60.0)
    seen = len(line.published)
    assert json.loads(until(lambda: line.published[seen + 1 :])[0][2])["waiting"] == []
    # It neither claims a name nor holds a message up.
    assert not any(line.decided)


def test_what_a_neighbour_says_is_kept_under_its_own_name(watched, line):
    line.take("south", "now", json.dumps(GOOD).encode())
    others = watched[1]()["others"]
    assert others["south"].pop("heard") > "2026"
    assert others == {"south": GOOD}


def test_what_cannot_be_believed_is_told_of_and_not_kept(watched, line, refused, monkeypatch):
    monkeypatch.setattr(gossiping, "_TAKE_EVERY", 0.0)
    line.take("south", "now", json.dumps(GOOD).encode())
    hostile = [b"", b"\xff", b"[" * 20_000, json.dumps(GOOD | {"waiting": ["<b>"]}).encode()]
    for data in (*hostile, json.dumps(GOOD).encode() + b" " * (1 << 14)):
        line.take("south", "now", data)
    assert [reason for _, reason, _ in refused] == ["bad-status"] * 5
    assert all("<b>" not in str(error) for _, _, error in refused)
    assert watched[1]()["others"]["south"]["round"] == 7


def test_a_flood_is_not_read(watched, line, refused):
    line.take("south", "now", json.dumps(GOOD).encode())
    for _ in range(1000):
        line.take("south", "now", b"not even JSON")
    line.take("west", "now", json.dumps(GOOD | {"round": 2}).encode())
    assert refused == []
    assert {name: each["round"] for name, each in watched[1]()["others"].items()} == {
        "south": 7,
        "west": 2,
    }


def test_a_line_that_fails_changes_nothing(watched, line, monkeypatch):
    def fail(*arguments, **options):
        line.decided.append("failed")
        raise RuntimeError("the network is gone")

    monkeypatch.setattr(line, "publish", fail)
    until(lambda: line.decided.count("failed") > 2)


def test_a_process_without_the_name_is_not_heard():
    here, there = free_ports(2)
    taken, messages = [], []
    with PeerSession("north", f"127.0.0.1:{here}", {"south": f"127.0.0.1:{there}"}, None) as north:
        north.hear("status", lambda *what: taken.append(what), decides=False)
        north.hear("other", lambda *what: messages.append(what))
        with PeerSession(
            "south", f"127.0.0.1:{there}", {"north": f"127.0.0.1:{here}"}, None
        ) as south:

            def tell():
                south.publish("status", "now", b"one", decides=False)
                return taken

            until(tell)
            assert taken[0] == ("south", "now", b"one")
            honest, south.said = south.said, "another.process"
            taken.clear()
            for _ in range(20):
                south.publish("status", "now", b"two", decides=False)
            south.said = honest

            # What comes after it on the same way is here: so is it.
            def ask():
                south.publish("other", "now", b"end")
                return messages

            until(ask)
            assert ("south", "now", b"two") not in taken


def test_nothing_is_published_unless_the_owner_says_so(watched, monkeypatch):
    monkeypatch.setattr(gossiping, "_SHARE_EVERY", 0.001)
    silent, telling = Line(), Line()
    told = {"on_refused": lambda *why: None}
    with (
        Gossip(silent, watched[0], LIMITS, share=False, **told),
        Gossip(telling, watched[0], LIMITS, share=True, **told),
    ):
        until(lambda: len(telling.published) > 10)
    assert silent.published == []


def with_status(federation, name, share=""):
    path = federation.folder / f"{name}.toml"
    text = path.read_text().replace("lease = 2", f'lease = 2\nstatus = "{name}.status.json"')
    path.write_text(text.replace("[node]", f"[node]\n{share}"))
    return federation.folder / f"{name}.status.json"


def test_nodes_of_which_one_shares(federation):
    files = {"south": with_status(federation, "south", "share_status = true")}
    files["north"] = with_status(federation, "north")

    def others(name):
        found = json.loads(files[name].read_text()) if files[name].exists() else {}
        return found.get("others", {})

    for name in files:
        federation.start(name)
    # West is not there: south says so, as north may see by itself.
    until(lambda: others("north").get("south", {}).get("waiting") == ["west"])
    assert others("north")["south"]["state"] == "starting"
    # North's owner did not say that it may tell anybody.
    assert others("south") == {}
    content = json.loads(files["north"].read_text())
    assert set(content["others"]["south"]) == {"state", "round", "waiting", "heard"}
    assert content["graph"] == {
        "nodes": ["north", "south", "west"],
        "links": [["north", "south"], ["north", "west"], ["south", "west"]],
        "server": None,
    }


@pytest.mark.parametrize(
    ("server", "links"),
    [
        ("hub", (("hub", "north"), ("hub", "south"), ("hub", "west"))),
        (None, (("north", "south"), ("north", "west"), ("south", "west"))),
    ],
)
def test_the_links_around_a_server_and_of_those_who_hear_everybody(tmp_path, server, links):
    run = {"algorithm": "dp-gd", "topology": "server"}
    given = {"tls": False, "averager": server, "run": run}
    federation = Federation(tmp_path / "f", None, NODES, **given)
    assert links_of(federation.agreed, federation.agreed.plan(federation.schema)) == links


def test_a_neighbour_that_lies_changes_what_is_shown_of_itself_alone(federation):
    file = with_status(federation, "north")
    liar = BadNeighbour(federation, "west")
    try:
        for name in ("north", "south"):
            federation.start(name)
        federation.wait_for("north", "agreed")
        lies = [
            b"<script>",
            json.dumps({"state": "running", "round": 10, "waiting": ["west", "south"]}).encode(),
            json.dumps({"state": "running", "round": 10**6, "waiting": []}).encode(),
        ]

        def tell():
            for lie in lies:
                liar.session.publish("status", "now", lie, decides=False)
                time.sleep(0.6)  # what comes faster is not read
            found = json.loads(file.read_text())
            return found if "others" in found and "bad-status" in found["dropped"] else None

        content = until(tell)
        assert set(content["others"]) == {"west"}
        assert content["others"]["west"]["round"] == 10
        # The run goes on by the messages of west, whatever west says of itself.
        liar.finished = True
        for name in ("north", "south"):
            assert federation.wait(name) == 0, federation.output(name)
            assert len(federation.messages(name)) == federation.run["rounds"]
    finally:
        liar.session.close()
