"""Who has a name, and what is made of Zenoh's words about those it turns away."""

import json
import time

import pytest

from dpadmm.federation.reach import Refusals
from dpadmm.federation.transport.store import Claims, instance_hash
from dpadmm.federation.watcher import Watcher


class Told:
    """Claims on one name, and everything they tell."""

    def __init__(self, known=(), grace=0.05):
        self.events, self.claims = [], []
        self.of = Claims(
            ["west"],
            grace,
            dict(known),
            on_claim=lambda name, instance: self.claims.append(instance),
            on_event=lambda event, **facts: self.events.append(event),
        )


def test_the_first_has_the_name_while_it_lives():
    told = Told(grace=60.0)
    told.of.comes("west", "one")
    assert told.of.present("west")
    for _ in range(5):
        assert not told.of.hears("west", "two")
        assert told.of.hears("west", "one")
    told.of.comes("west", "two")
    assert told.events == ["neighbour-here", *["name-claimed-twice"] * 3]
    assert told.of.told() == {"west": instance_hash("one")}
    # Gone for a moment: started again it is the same, and nobody else is.
    told.of.goes("west", "one")
    assert not told.of.present("west")
    assert not told.of.hears("west", "two")
    assert told.of.told() == {}
    told.of.comes("west", "one")
    assert told.of.present("west")
    assert told.claims == ["one"]


def test_a_name_is_free_after_a_while():
    told = Told(known=[("west", "one")])
    assert not told.of.hears("west", "two")  # the node itself has just been started
    time.sleep(0.06)
    assert told.of.hears("west", "two")
    assert told.events == ["name-claimed-twice", "neighbour-replaced"]
    assert told.claims == ["two"]


@pytest.mark.parametrize(
    "said", ["", "two words", "a/b", "x" * 65, "\N{SNOWMAN}", "a.b.c", "a.", ".b"]
)
def test_who_does_not_say_who_it_is_is_not_heard(said):
    told = Told()
    assert not told.of.hears("west", said)
    assert told.of.hears("west", "one")


def test_a_restarted_process_is_heard_at_once_and_a_twin_stops_both():
    told = Told(grace=0.05)
    told.of.comes("west", "one.first")
    told.of.goes("west", "one.first")
    told.of.comes("west", "one.second")
    assert told.of.present("west")
    assert told.of.current("west") == "one.second"
    assert told.claims == ["one"]
    # A twin is not heard, and after a while neither is.
    told.of.comes("west", "one.third")
    assert not told.of.hears("west", "one.third")
    assert told.of.hears("west", "one.second")
    assert told.of.starts() == ({"west": instance_hash("one.second")}, [])
    time.sleep(0.11)
    assert not told.of.hears("west", "one.second")
    assert not told.of.hears("west", "one.third")
    assert not told.of.present("west")
    assert told.of.absent("west") < 0.1
    stopped = sorted(map(instance_hash, ("one.second", "one.third")))
    assert told.of.starts() == ({}, stopped)
    # Not even when the other has gone; but when it is started again.
    told.of.goes("west", "one.third")
    assert not told.of.hears("west", "one.second")
    told.of.goes("west", "one.second")
    told.of.comes("west", "one.fourth")
    assert told.of.hears("west", "one.fourth")
    assert told.events.count("neighbour-runs-twice") == 1


def test_a_connection_that_died_without_a_word_makes_no_twin():
    told = Told(grace=0.1)
    told.of.comes("west", "one.first")
    told.of.comes("west", "one.second")
    assert not told.of.hears("west", "one.second")
    time.sleep(0.11)
    told.of.goes("west", "one.first")
    assert told.of.current("west") == "one.second"
    assert told.of.present("west")
    time.sleep(0.12)
    assert told.of.hears("west", "one.second")
    assert "neighbour-runs-twice" not in told.events


ACCESS = "zenoh::net::routing::interceptor::access_control"
WHO = "b0b on Interface(lo)+CertCommonName(west)+Transport(Tls)+b0b"


def line(words, thread=7, source=ACCESS, level="TRACE"):
    shown = f"\x1b[2m2026-11-16T09:00:00.000000Z\x1b[0m \x1b[35m{level}\x1b[0m rx-1 "
    return f"{shown}ThreadId({thread:02}) \x1b[2m{source}\x1b[0m\x1b[2m:\x1b[0m {words}\n"


@pytest.fixture
def refusals(tmp_path):
    with Watcher("north", log=tmp_path / "log", terminal=False) as watcher:
        taken = Refusals(watcher)
        log = tmp_path / "log"
        taken.told = lambda: [json.loads(text) for text in log.read_text().splitlines()]
        yield taken


def test_nobody_is_accused_while_permissions_are_worked_out(refusals):
    """Zenoh asks itself what a neighbour might do with a key; the neighbour has done nothing."""
    key = "dpadmm/run/south/message"
    denied = f"{WHO} is unauthorized to Put (ingress) on {key}"
    assert refusals.take(line(f"ACL (ingress): caching permissions for `{key}` ..."))
    assert refusals.take(line(denied))
    assert refusals.take(line(f"{WHO} is authorized to Put (ingress) on dpadmm/run/west/message"))
    assert refusals.told() == []
    # Another thread, where somebody did try; and this one, once it is done.
    assert refusals.take(line(denied, thread=8))
    assert refusals.take(line(f"ACL (egress): caching permissions for `{key}` ..."))
    assert refusals.take(
        line(f"Using cached result: b0b is unauthorized to Put (ingress) on {key}")
    )
    facts = [entry["facts"] for entry in refusals.told()]
    assert [(fact["neighbour"], fact["reason"], fact["count"]) for fact in facts] == [
        ("west", "another-name", 1),
        ("west", "another-name", 2),
    ]


def test_refused_connections_have_few_lines_and_all_else_is_left_alone(refusals):
    words = "invalid peer certificate: certificate expired: verification time 1. Hint: increase"
    for _ in range(10):
        assert refusals.take(line(words, source="zenoh_link_tls::unicast", level="WARN"))
    told = refusals.told()
    assert [entry["facts"]["count"] for entry in told] == [1, 2, 4, 8]
    assert "set the clock" in told[0]["facts"]["error"]
    assert "Hint" not in told[0]["facts"]["error"]
    for other in (
        line("the disk is full", source="zenoh::other", level="ERROR"),
        "thread panicked\n",
    ):
        assert not refusals.take(other)
