"""A node is lost or only a link to it: who is asked, who answers, and what all go on without."""

import random
import threading

import pytest

from dpadmm.errors import ExchangeError
from dpadmm.federation.recovery import Departure
from dpadmm.federation.search import Search
from dpadmm.federation.transport.store import MemoryStore
from dpadmm.federation.transport.wire import (
    BadMessage,
    Departing,
    Frozen,
    Limits,
    Seeking,
    ends_of,
    link_of,
    lost_words,
    said,
)

NAMES = ("a", "b", "c", "d")
RING = {"a": ("b", "d"), "b": ("a", "c"), "c": ("b", "d"), "d": ("a", "c")}
LIMITS = Limits(frozenset(NAMES), 10)


class Wires:
    """Links of a ring that can be cut, and nodes that can die."""

    def __init__(self, links=RING):
        self.links, self.cut, self.dead = links, set(), set()
        self.sessions = {name: Wire(self, name) for name in links}
        self.refused = []
        told = {"on_refused": lambda name, reason, error: self.refused.append((name, reason))}
        self.searches = {
            name: Search(self.sessions[name], "departure", "missed", links, LIMITS, **told)
            for name in links
        }

    def joined(self, one, other):
        return link_of(one, other) not in self.cut and not {one, other} & self.dead

    def look_for(self, who, whom, timeout=5.0, can_spare=lambda link: True):
        return self.searches[who].look_for(whom, timeout, can_spare, lambda: None)


class Wire:
    """One node's end of them."""

    def __init__(self, wires, name):
        self._wires, self.name, self.neighbours = wires, name, wires.links[name]
        self.take = None

    def present(self, name):
        return self._wires.joined(self.name, name)

    def hear(self, topic, take, *, decides):
        self.take = take

    def publish(self, topic, label, data, *, decides):
        for other in self.neighbours:
            if self._wires.joined(self.name, other):
                self._wires.sessions[other].take(self.name, label, data)


def test_whoever_answers_by_another_way_has_lost_a_link():
    wires = Wires()
    wires.cut.add("a/b")
    assert wires.look_for("a", "b") == "a/b"
    assert wires.look_for("b", "a") == "a/b"
    assert not wires.refused


def test_whom_nobody_hears_is_lost_at_once():
    wires = Wires()
    wires.dead.add("b")
    assert wires.look_for("a", "b", timeout=60.0) == "b"
    assert wires.look_for("c", "b", timeout=60.0) == "b"


def test_whoever_gives_no_answer_in_time_is_lost():
    """One that is connected to another, but frozen."""
    wires = Wires()
    wires.cut.add("a/b")
    wires.searches["b"].take = lambda name, label, data: None
    wires.sessions["b"].take = lambda name, label, data: None
    assert wires.look_for("a", "b", timeout=0.5) == "b"


def test_whoever_is_heard_again_is_not_lost():
    wires = Wires()
    wires.cut |= {"a/b", "c/d"}
    threading.Timer(0.3, wires.cut.clear).start()
    assert wires.look_for("a", "b") == ""


def test_an_answer_counts_for_one_question():
    """What was answered before a neighbour died says nothing about now."""
    wires = Wires()
    wires.cut.add("a/b")
    assert wires.look_for("a", "b") == "a/b"
    wires.dead.add("b")
    assert wires.look_for("a", "b", timeout=60.0) == "b"


def test_without_a_link_that_the_others_need_the_node_is_lost():
    wires = Wires()
    wires.cut.add("a/b")
    assert wires.look_for("a", "b", can_spare=lambda link: False) == "b"


def test_what_ends_the_search_is_passed_on():
    wires = Wires()
    wires.cut |= {"a/b", "c/d"}

    def stop():
        raise ExchangeError("enough")

    with pytest.raises(ExchangeError, match="enough"):
        wires.searches["a"].look_for("b", 60.0, lambda link: True, stop)


@pytest.mark.parametrize(
    "content",
    [
        {"asked": {"a>z": 1}, "answered": {}},
        {"asked": {"a>a": 1}, "answered": {}},
        {"asked": {"a": 1}, "answered": {}},
        {"asked": {"a>b": -1}, "answered": {}},
        {"asked": {"a>b": 1 << 60}, "answered": {}},
        {"asked": {"a>b": 1.0}, "answered": {}},
        {"asked": {"a>b>c": 1}, "answered": {}},
    ],
    ids=str,
)
def test_nonsense_is_refused(content):
    wires = Wires()
    data = str(content).replace("'", '"').encode()
    with pytest.raises(BadMessage):
        said(Seeking, data, "b", LIMITS)
    wires.searches["a"].take("b", "missed", data)
    assert wires.refused == [("b", "invalid")]
    assert wires.searches["a"].said() == Seeking(asked={}, answered={}).to_bytes()


@pytest.mark.parametrize("lost", ["a/z", "b/a", "a/a", "a/b/c", "a/", "/", "a b", ""])
def test_what_is_no_link_of_the_run_is_not_voted_on(lost):
    data = str({"lost": lost, "sent": {"a": 1}}).replace("'", '"').encode()
    for kind in (Departing, Frozen):
        with pytest.raises(BadMessage):
            said(kind, data, "b", LIMITS)


def test_names_of_links():
    assert link_of("b", "a") == "a/b" == link_of("a", "b")
    assert ends_of("a/b") == ("a", "b")
    assert ends_of("a") == ()
    assert lost_words("a/b") == "the link between a and b"


# -- votes ---------------------------------------------------------------------------------------


class Bystander:
    """A session of which only the name and the neighbours are used."""

    def __init__(self, name, neighbours):
        self.name, self.neighbours = name, tuple(neighbours)

    def serve(self, topic, answer):
        pass

    def hear(self, topic, take, *, decides):
        pass


@pytest.mark.parametrize("seed", range(30))
def test_all_who_decide_about_links_and_nodes_decide_the_same(seed):
    """Links are cut and a node dies, in any order, and nodes are started again."""
    draw = random.Random(seed)
    nodes = draw.randrange(4, 8)
    names = tuple(f"n{number}" for number in range(nodes))
    links = {frozenset((names[n], names[(n + 1) % nodes])) for n in range(nodes)}
    links |= {frozenset(draw.sample(names, 2)) for _ in range(nodes)}
    cut = draw.sample(sorted(map(sorted, links)), draw.randint(1, 2))
    dead = draw.choice(names) if draw.random() < 0.4 else None
    near = {}
    for name in names:
        near[name] = tuple(next(iter(each - {name})) for each in links if name in each)
    stores = {name: MemoryStore() for name in names}

    def depart(name):
        session = Bystander(name, near[name])
        return Departure(session, bytes(32), names, names, 10, stores[name], links=near)

    departures = {name: depart(name) for name in names}
    proposals = [(end, link_of(*each)) for each in cut for end in each]
    proposals += [(name, dead) for name in near[dead]] if dead else []
    draw.shuffle(proposals)
    decided = {}
    for _ in range(600 * nodes):
        if proposals and draw.random() < 0.1:
            name, lost = proposals.pop()
            if name != dead:
                departures[name].freeze(lost, draw.randrange(10))
        name = draw.choice(names)
        other = draw.choice(near[name])
        if dead in (name, other) or sorted((name, other)) in cut:
            continue
        departure = departures[name]
        data = departures[other]._answer(bytes(32).hex())
        if data is not None:
            departure._take(other, "", data)
        if departure._reported and not departure.lost:
            departure.freeze(departure._reported, draw.randrange(10))
        if draw.random() < 0.1:
            departures[name] = depart(name)
        found = departures[name]
        if found.lost and set(names) - {found.lost} <= set(found._sent) and not found.left_out:
            # All have voted for it: whatever comes later, nobody decides on anything else.
            assert decided.setdefault(0, found.lost) == found.lost
    if len(cut) == 1 and dead is None:
        assert decided == {0: link_of(*cut[0])}
