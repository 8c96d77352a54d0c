"""A sum that travels along a tree: what those between others see, change, keep back and repeat."""

import copy
import random
import shutil
from collections import Counter

import numpy as np
import pytest
from tests.helpers.secure_sums import RUN, SHAPE, STEP, Line, Parties, Party, small, together

from dpadmm.federation.exchange import SumRefused
from dpadmm.federation.keys import Masks
from dpadmm.federation.transport.mailbox import NeighbourLost
from dpadmm.federation.transport.wire import Announcing, BadMessage, decode_masked, encode_message
from dpadmm.problem.site import SpanningTree, build_topology

# root - (left, right), left - (leaf, low), right - (end): leaf and low are linked, too.
NAMES = ("root", "left", "right", "leaf", "low", "end")
LINKS = [(0, 1), (0, 2), (1, 3), (1, 4), (2, 5), (3, 4)]
TOP = len(NAMES)


class Tree:
    """All parties of a view, linked by few."""

    def __init__(self, parties, line=None, links=LINKS, **options):
        self.line = line or Line()
        names = parties.view().agreed.names
        told = {"hub": None, "links": links, **options}
        self.parties = {name: Party(parties, self.line, name, **told) for name in names}
        self.tree = SpanningTree.of(build_topology(links, len(names)), names)

    def open(self):
        return self.at_once(lambda party: party.open())

    def round(self, values, t):
        return self.at_once(lambda party: party.send(values[party.name], t))

    def at_once(self, act):
        actions = [lambda party=party: act(party) for party in self.parties.values()]
        return dict(zip(self.parties, together(*actions), strict=True))

    def digests(self):
        return {name: party.exchange.decoded.digest() for name, party in self.parties.items()}

    def close(self):
        for party in self.parties.values():
            party.close()


@pytest.fixture
def parties(tmp_path):
    parties = Parties(tmp_path, NAMES)
    yield parties
    parties.close()


@pytest.fixture
def tree(parties):
    made = []

    def make(*arguments, **options):
        made.append(Tree(parties, *arguments, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


def summands(t, names=NAMES):
    draw = np.random.default_rng(t)
    return {name: STEP * draw.integers(-(2**32), 2**32, SHAPE).astype(float) for name in names}


def fine(results):
    for found in results.values():
        if isinstance(found, Exception):
            raise found
    return results


def sum_of(results):
    """Nobody raised: the one sum that all have."""
    first, *others = fine(results).values()
    for other in others:
        np.testing.assert_array_equal(first, other)
    return first * len(results)


def raised(results, kind):
    return {name for name, found in results.items() if isinstance(found, kind)}


def words_of(data, number, t, run=RUN):
    return decode_masked(data, run=run, party=number, t=t, shape=SHAPE).copy()


def is_up(label, t):
    return label in ("message", str(t))


def changed(sender, t, change, receiver=None, number=None):
    """Whoever is between others changes what it tells in a round: up, or down with ``number``."""
    place = NAMES.index(sender) if number is None else number

    def meddle(who, to, label, data):
        if who == sender and receiver in (None, to):
            try:
                words = words_of(data, place, t)
            except BadMessage:
                return data
            return encode_message(RUN, place, t, change(words))
        return data

    return meddle


def more(words):
    words.flat[0] += np.uint64(1)
    return words


# -- the sum -------------------------------------------------------------------------------------


def test_everybody_has_the_exact_sum_and_sees_nothing_else(tree):
    running = tree()
    assert (NAMES[running.tree.root], running.tree.depth) == ("root", 2)
    fine(running.open())
    for t in range(3):
        values = summands(t)
        np.testing.assert_array_equal(sum_of(running.round(values, t)), sum(values.values()))
    told = Counter()
    for sender, receiver, _, data in running.line.told:
        for number in range(TOP + 1):
            for t in range(3):
                try:
                    words = words_of(data, number, t)
                except BadMessage:
                    continue
                if number < TOP:
                    # What goes up goes to the parent alone, and is uniform.
                    parent = running.tree.parent(number)
                    assert (sender, receiver) == (NAMES[number], NAMES[parent])
                    assert small(words).mean() < 0.05
                else:
                    assert running.tree.parent(NAMES.index(receiver)) == NAMES.index(sender)
                told[number, t] += 1
    assert all(told[number, t] for number in (1, 2, 3, 4, 5, TOP) for t in range(3))


# -- whoever is between others and lies ------------------------------------------------------------


def test_one_that_changes_what_it_hands_up_spoils_the_sum_for_all_alike(tree):
    """It could have changed its own summand: that is all it can do unnoticed."""
    line = Line(changed("left", 0, more))
    running = tree(line)
    fine(running.open())
    values = summands(0)
    found = sum_of(running.round(values, 0))
    honest = sum(values.values())
    assert np.abs(found - honest).max() == STEP
    assert len(set(running.digests().values())) == 1


@pytest.mark.parametrize("place", ["child", "own"])
def test_one_that_leaves_somebody_out_shows_nobody_anything(tree, place):
    """Without all masks the sum is uniform: to whoever leaves out, and to everybody."""
    running = tree()
    fine(running.open())
    mailbox = running.parties["left"].exchange.mailbox
    whole = mailbox._added

    def partly(values, **options):
        return whole(values[1:] if place == "own" else values[:-1], **options)

    mailbox._added = partly
    results = running.round(summands(0), 0)
    assert raised(results, SumRefused) == set(NAMES)
    seen = [
        data
        for sender, receiver, label, data in running.line.told
        if receiver in ("left", "root") and is_up(label, 0)
    ]
    for data in seen:
        for number in range(TOP):
            try:
                words = words_of(data, number, 0)
            except BadMessage:
                continue
            assert small(words).mean() < 0.05


def test_one_that_hands_up_a_round_again_is_refused(tree):
    running = tree()
    fine(running.open())
    old = {}

    def remember(sender, receiver, label, data):
        if (sender, receiver) == ("left", "root") and label in ("message", "0"):
            old.setdefault("words", words_of(data, 1, 0))
        return data

    running.line.meddle = remember
    fine(running.round(summands(0), 0))
    running.line.meddle = changed("left", 1, lambda words: old["words"])
    assert raised(running.round(summands(1), 1), SumRefused) == set(NAMES)


@pytest.mark.parametrize("liar", ["root", "left"])
def test_different_sums_for_different_subtrees_do_not_cancel_in_the_next_round(tree, liar):
    line = Line(changed(liar, 0, more, {"root": "left", "left": "low"}[liar], TOP))
    running = tree(line)
    fine(running.open())
    seen = fine(running.round(summands(0), 0))
    deceived = {"root": {"left", "leaf", "low"}, "left": {"low"}}[liar]
    for name in NAMES:
        assert (seen[name] != seen["right"]).any() == (name in deceived)
    # If nothing followed, the digests that all sign at the end would tell.
    digests = running.digests()
    assert {name for name in NAMES if digests[name] != digests["right"]} == deceived
    line.meddle = lambda sender, receiver, label, data: data
    assert raised(running.round(summands(1), 1), SumRefused) == set(NAMES)


def test_one_that_keeps_keys_back_gets_no_masked_vector(tree):
    """Those who lack a key say nothing, and name the neighbour that brings none."""

    def meddle(sender, receiver, label, data):
        if sender == "left" and receiver == "root" and label == "keys":
            keys = Announcing.model_validate_json(data).keys
            return Announcing(keys={"left": keys["left"]}).to_bytes() if "left" in keys else None
        return data

    running = tree(Line(meddle), links=LINKS[:-1])
    results = running.open()
    lacking = raised(results, NeighbourLost)
    assert lacking == {"root", "right", "end"}
    assert {sender for sender, label, _ in running.line.wire if label == "message"} == set()


def test_a_swapped_key_is_refused_however_far_it_came(tree, parties):
    stranger = parties.keys("root", parties.store("root"))
    stranger.announce(0)
    swapped = stranger.ring.keys["root"].public_key

    def meddle(sender, receiver, label, data):
        if sender != "left" or label != "keys":
            return data
        keys = dict(Announcing.model_validate_json(data).keys)
        if "leaf" in keys:
            keys["leaf"] = keys["leaf"].model_copy(update={"public_key": swapped})
        return Announcing(keys=keys).to_bytes()

    running = tree(Line(meddle), links=LINKS[:-1])
    assert {"root", "right", "end", "low"} <= raised(running.open(), NeighbourLost)
    for name in ("root", "low"):
        refused = {refusal[:2] for refusal in running.parties[name].refused}
        assert ("left", "bad-key") in refused
    assert not [label for _, label, _ in running.line.wire if label == "message"]


def test_one_that_ended_before_the_sum_came_is_not_waited_for(tree):
    running = tree()
    fine(running.open())
    fine(running.round(summands(0), 0))
    values = summands(1)
    left = running.parties["left"].exchange.mailbox
    left.lost = "end"

    def act(party):
        if party.name == "left":
            return left.finish(0.1)
        return party.send(values[party.name], 1)

    results = running.at_once(act)
    assert raised(results, NeighbourLost) >= {"root", "leaf", "low"}
    assert all(results[name].ended for name in ("root", "leaf", "low"))
    # Whoever ended is not lost: it says who is.
    assert {results[name].lost for name in ("root", "leaf", "low")} == {"end"}


# -- the same bytes --------------------------------------------------------------------------------


def test_one_that_is_killed_between_two_sends_tells_the_same_bytes(tree, parties):
    """Even if a child tells it something else by then: what it told its parent is on disk."""
    running = tree()
    fine(running.open())
    values = summands(0)
    left = running.parties["left"]
    covered = {name: party.cover(values[name], 0) for name, party in running.parties.items()}
    for name in ("leaf", "low"):
        mailbox, number = running.parties[name].exchange.mailbox, NAMES.index(name)
        mailbox.send(0, encode_message(RUN, number, 0, covered[name].values[0]))
    left.exchange.offer(covered["left"], 0)
    first = left.exchange.mailbox._raised(0)
    left.close()
    again = Party(parties, running.line, "left", hub=None, links=LINKS)
    again.exchange.mailbox.begin([encode_message(RUN, 1, 0, covered["left"].values[0])], 100)
    running.parties["left"] = again
    running.line.meddle = changed("low", 0, more)
    again.exchange.offer(covered["left"], 0)
    assert again.exchange.mailbox._raised(0) == first
    results = running.at_once(lambda party: party.exchange(covered[party.name], 0)[0])
    np.testing.assert_array_equal(sum_of(results), sum(values.values()))
    # Asked again, everybody says the same, and nothing of a round to come.
    answers = set()
    for label in ("0", "0", "sum-0", "1", "sum-1", "sum-", "sum-00000000000", "sum-x"):
        running.line.sessions["root"].ask(
            RUN.hex(), "left", label, lambda name, label, data: answers.add((label, data))
        )
    assert len(answers) == 2
    assert ("0", first) in answers


# -- what colluders next to each other see --------------------------------------------------------


def random_tree(draw, parties):
    """A random tree with a few links more."""
    links = {(draw.randrange(party), party) for party in range(1, parties)}
    for _ in range(2):
        links.add(tuple(sorted(draw.sample(range(parties), 2))))
    return sorted(links)


def next_to_each_other(draw, tree, parties, size):
    """Colluders that are connected in the tree."""
    some = [draw.randrange(parties)]
    while len(some) < size:
        near = {
            other
            for each in some
            for other in [*tree.children(each), tree.parent(each)]
            if other is not None
        }
        some.append(draw.choice(sorted(near - set(some))))
    return some


def seen_by(line, colluders):
    """All that they are told of rounds, and what they are told at the end."""
    kinds = ("message", "done", *map(str, range(9)), *(f"sum-{t}" for t in range(9)))
    return {
        (sender, data)
        for sender, receiver, label, data in line.told
        if receiver in colluders and sender not in colluders and label in kinds
    }


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("size", [2, 3])
def test_colluders_see_the_same_bytes_for_other_inputs_of_the_same_sum(
    tmp_path, monkeypatch, seed, size
):
    """Masks of honest parties that explain other inputs are as likely as those that were drawn.

    So the parties play twice under the same keys: the second time with other inputs, of the same
    sum over the honest ones, and with masks that differ between honest parties by the difference.
    Whatever depended on inputs besides their sum would differ.
    """
    draw = random.Random(10 * size + seed)
    names = tuple(f"n{number}" for number in range(7))
    links = random_tree(draw, len(names))
    parties = Parties(tmp_path / "first", names) if (tmp_path / "first").mkdir() is None else None
    found = SpanningTree.of(build_topology(links, len(names)), names)
    colluders = {names[each] for each in next_to_each_other(draw, found, len(names), size)}
    honest = [name for name in names if name not in colluders]
    first = Tree(parties, links=links)
    fine(first.open())
    for party in first.parties.values():
        party.store._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copytree(tmp_path / "first", tmp_path / "second")
    again = copy.copy(parties)
    again.folder, again.stores = tmp_path / "second", []
    second = Tree(again, links=links)
    fine(second.open())
    plain, shift = Masks.mask, {}

    def shifted(masks, t, sums, count):
        return plain(masks, t, sums, count) + shift.get((id(masks), t), np.uint64(0))

    monkeypatch.setattr(Masks, "mask", shifted)
    for t in range(2):
        values = summands(t, names)
        others = dict(values)
        deltas = np.random.default_rng([seed, t]).integers(-(2**33), 2**33, (len(honest), *SHAPE))
        deltas[-1] -= deltas.sum(axis=0)
        for name, delta in zip(honest, deltas, strict=True):
            others[name] = values[name] + STEP * delta
            masks = second.parties[name].exchange._masks
            shift[id(masks), t] = -delta.astype(np.uint64).ravel()
        assert any((others[name] != values[name]).any() for name in honest)
        np.testing.assert_array_equal(
            sum_of(first.round(values, t)), sum_of(second.round(others, t))
        )
    for playing in (first, second):
        playing.at_once(lambda party: party.exchange.mailbox.finish(2.0))
    seen = seen_by(first.line, colluders)
    assert seen == seen_by(second.line, colluders)
    # Without those masks the inputs are told: what is compared depends on them.
    assert len(seen) >= 4
    # And no vector of an honest part of the tree is anything but uniform.
    for sender, data in seen:
        for t in range(2):
            try:
                words = words_of(data, names.index(sender), t)
            except BadMessage:
                continue
            assert small(words).mean() < 0.05
    for playing in (first, second):
        playing.close()
