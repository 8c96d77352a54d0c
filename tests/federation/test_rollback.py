"""What nodes make of each other's words about how far they are: type, range, and back or on."""

import json

import pytest

from dpadmm.federation.transport.store import (
    DrawRefused,
    MemoryStore,
    NeighbourLedgers,
    OwnRounds,
    instance_hash,
    messages_hash,
)
from dpadmm.federation.transport.wire import BadMessage, Limits

RUN, SAID = bytes(32), "one.first"
LIMITS = Limits(frozenset({"north", "west"}), 10)
MESSAGES = [b"a", b"b", b"c"]


def words(heard=0, start=SAID, stopped=(), **changes):
    content = {"heard": {"west": heard}, "starts": {"west": instance_hash(start)}}
    content |= {"stopped": [instance_hash(each) for each in stopped]}
    return json.dumps(content | changes).encode()


@pytest.fixture
def own():
    own = OwnRounds("west", SAID, LIMITS)
    own.begin(MESSAGES, 10)
    return own


def test_a_process_that_was_heard_no_further_than_it_drew_is_confirmed(own):
    own.take("north", words(3))
    assert own.confirmed == {"north"}
    # What it draws from then on is its own.
    own.take("north", words(7))
    assert own.fault is None


def test_one_that_was_heard_further_must_not_draw(own):
    own.take("north", words(4))
    assert isinstance(own.fault, DrawRefused)
    assert "north has heard 4 rounds of west in this run, and the ledger has 3" in str(own.fault)
    assert not own.confirmed


def test_while_another_process_is_heard_nothing_is_confirmed(own):
    own.take("north", words(3, start="one.second"))
    assert not own.confirmed
    assert own.fault is None
    own.take("north", words(3, stopped=[SAID, "one.second"]))
    assert "west must run once; north hears two living processes" in str(own.fault)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"1e999",
        b"[" * 100_000,
        b"x" * (2 << 20),
        words(-1),
        words(11),
        words(True),
        words(1e999),
        words("3"),
        words(2, starts=None),
        words(2, starts=[]),
        words({}),
        words(2).replace(b"[]", b"1"),
    ],
)
def test_words_that_make_no_sense_are_refused(own, data):
    with pytest.raises(BadMessage):
        own.take("north", data)
    assert not own.confirmed
    assert own.fault is None


def announced(count, messages=MESSAGES):
    return json.dumps({"count": count, "head": messages_hash(messages[:count])}).encode()


def test_a_ledger_only_goes_on(own):
    assert own.announcement() == announced(3)
    own.add(3, b"d")
    own.add(3, b"d")  # sent again
    assert own.announcement() == announced(4, [*MESSAGES, b"d"])
    store = MemoryStore()
    ledgers = NeighbourLedgers(RUN, store, LIMITS)
    assert ledgers.take("west", "p", announced(2), 2, (2, messages_hash(b"ab"[:0]))) is not None
    ledgers = NeighbourLedgers(RUN, store, LIMITS)
    kept = (1, messages_hash(MESSAGES[:1]))
    assert ledgers.take("west", "p", announced(2), 2, kept) is None
    assert ledgers.is_known("west", "p")
    assert not ledgers.is_known("west", "q")
    # Fewer than were heard, or than it had said to a process before this one.
    error = ledgers.take("west", "q", announced(2), 3, kept)
    assert "must go on from its 3 rounds of this run; it has 2" in str(error)
    assert ledgers.went_back("west")
    assert ledgers.take("west", "q", announced(2), 3, kept) is None  # said once
    ledgers = NeighbourLedgers(RUN, store, LIMITS)
    assert ledgers.take("west", "q", announced(1), 0, (0, "")) is not None
    # As many, but others.
    assert "others" in str(
        NeighbourLedgers(RUN, store, LIMITS).take("west", "q", announced(2, [b"a", b"x"]), 2, kept)
    )
    # It is heard again with the newest.
    assert ledgers.take("west", "r", announced(3), 3, kept) is None
    assert not ledgers.went_back("west")


HEAD = "0" * 64


@pytest.mark.parametrize(
    "content",
    [
        {"count": -1, "head": HEAD},
        {"count": True, "head": HEAD},
        {"count": 1 << 32, "head": HEAD},
        {"count": 1.0, "head": HEAD},
        {"count": 1, "head": HEAD[1:]},
        {"count": 1, "head": f"{HEAD}\n"},
        {"count": 1, "head": None},
        {"head": HEAD},
    ],
)
def test_words_about_a_ledger_that_make_no_sense_are_refused(content):
    ledgers = NeighbourLedgers(RUN, MemoryStore(), LIMITS)
    with pytest.raises(BadMessage):
        ledgers.take("west", "p", json.dumps(content).encode(), 0, (0, ""))
    assert not ledgers.went_back("west")
