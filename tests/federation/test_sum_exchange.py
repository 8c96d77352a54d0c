"""A sum of which nothing else is seen: what a server, a party and whoever restarts can do to it."""

import shutil
from itertools import combinations

import numpy as np
import pytest
from tests.helpers.secure_sums import (
    COUNT,
    HUB,
    NAMES,
    RUN,
    SHAPE,
    STEP,
    Hub,
    Line,
    Parties,
    Party,
    predictable,
    small,
    together,
)

from dpadmm.federation.exchange import SumRefused, add_masked
from dpadmm.federation.keys import Masks
from dpadmm.federation.transport.mailbox import NeighbourLost
from dpadmm.federation.transport.store import DrawRefused
from dpadmm.federation.transport.wire import Announcing, BadMessage, decode_masked, encode_message
from dpadmm.privacy.mechanisms import release_again


@pytest.fixture
def parties(tmp_path):
    parties = Parties(tmp_path)
    yield parties
    parties.close()


class ViewFacts:
    """All parties of a view, with a server or without one."""

    def __init__(
        self, parties, line=None, *, hub=HUB, view=None, past=None, add=add_masked, decoded=None
    ):
        self.line = line or Line()
        names = (view or parties.view()).agreed.names
        self.hub = Hub(parties, self.line, view=view, add=add) if hub else None
        self.parties = [
            Party(
                parties,
                self.line,
                name,
                view=view,
                hub=hub,
                past=() if past is None else past[name],
                decoded=None if decoded is None else decoded[name],
            )
            for name in names
        ]

    def open(self, t=0):
        return self.at_once(lambda party: party.open(t), lambda hub: hub.gather())

    def round(self, values, t):
        """Everybody's mean, or what it raised."""
        first = self.parties[0].exchange._first
        return self.at_once(
            lambda party: party.send(values[party.name], t), lambda hub: hub.round(t - first)
        )

    def at_once(self, of_party, of_hub):
        actions = [lambda party=party: of_party(party) for party in self.parties]
        if self.hub is not None:
            actions.append(lambda: of_hub(self.hub))
        return together(*actions)[: len(self.parties)]

    def close(self):
        for party in self.parties:
            party.close()
        if self.hub is not None:
            self.hub.close()


@pytest.fixture
def view(parties):
    made = []

    def make(*arguments, **options):
        made.append(ViewFacts(parties, *arguments, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


def summands(t, names=NAMES):
    draw = np.random.default_rng(t)
    return {name: STEP * draw.integers(-(2**32), 2**32, SHAPE).astype(float) for name in names}


def fine(results):
    for found in results:
        if isinstance(found, Exception):
            raise found
    return results


def sum_of(results):
    """Nobody raised: the one sum that all have."""
    first, *others = fine(results)
    for other in others:
        np.testing.assert_array_equal(first, other)
    return first * (len(others) + 1)


def all_raised(results, kind):
    assert [type(found) for found in results] == [kind] * len(results)


def sent_words(line, name, t, run=RUN, place=None):
    """The words of a round that a party put on the wire: one vector, however often it was sent."""
    place = NAMES.index(name) if place is None else place
    found = set()
    for sender, label, data in line.wire:
        if sender == name and label in ("message", str(t)):
            try:
                decode_masked(data, run=run, party=place, t=t, shape=SHAPE)
            except BadMessage:
                continue
            found.add(data)
    assert len(found) == 1
    return decode_masked(found.pop(), run=run, party=place, t=t, shape=SHAPE)


# -- the sum -------------------------------------------------------------------------------------


@pytest.mark.parametrize("hub", [HUB, None])
def test_everybody_has_the_exact_sum(view, hub):
    running = view(hub=hub)
    fine(running.open())
    for t in range(3):
        values = summands(t)
        np.testing.assert_array_equal(sum_of(running.round(values, t)), sum(values.values()))
        for name in NAMES:
            words = sent_words(running.line, name, t)
            assert small(words).mean() < 0.05


def test_nothing_goes_out_uncovered(view):
    running = view()
    party = running.parties[0]
    with pytest.raises(RuntimeError, match="must be covered after 0 sums"):
        party.cover(np.zeros(SHAPE), 0)
    fine(running.open())
    with pytest.raises(RuntimeError, match="must be covered after 1 sums"):
        party.cover(np.zeros(SHAPE), 1)
    plain = party.cover(np.zeros(SHAPE), 0)
    plain._values = np.zeros((1, *SHAPE))
    with pytest.raises(RuntimeError, match="must be covered before it is sent"):
        party.exchange.offer(plain, 0)


# -- a server that lies --------------------------------------------------------------------------


def test_a_server_that_swaps_a_key_gets_no_message(parties, view):
    """It knows the key that it puts in the place of West's, and could take off West's masks."""
    own = parties.keys("north", parties.store("north"))
    own.announce(0)
    swapped = own.ring.keys["north"].public_key

    def meddle(sender, receiver, label, data):
        if sender != HUB or label != "keys":
            return data
        keys = Announcing.model_validate_json(data).keys
        changed = {
            name: key.model_copy(update={"public_key": swapped}) if name == "west" else key
            for name, key in keys.items()
        }
        return Announcing(keys=changed).to_bytes()

    running = view(Line(meddle))
    results = running.open()
    for party, found in zip(running.parties, results, strict=True):
        if party.name != "west":
            assert isinstance(found, NeighbourLost)
            assert ("hub", "bad-key") in {refusal[:2] for refusal in party.refused}
    assert not [label for _, label, _ in running.line.wire if label == "message"]


def test_a_server_that_replays_keys_of_another_run_gets_no_message(parties, view):
    old = parties.view(run=bytes(32))
    replayed = {}
    for name in NAMES:
        with parties.store(name) as store:
            keys = parties.keys(name, store, old)
            keys.announce(0)
            replayed |= keys.ring.keys

    def meddle(sender, receiver, label, data):
        swap = sender == HUB and label == "keys"
        return Announcing(keys=replayed).to_bytes() if swap else data

    running = view(Line(meddle))
    all_raised(running.open(), NeighbourLost)
    assert not [label for _, label, _ in running.line.wire if label == "message"]


def test_different_sums_for_different_parties_end_the_view(view):
    """Masks of the next round hang on the sum: they stay in it, and the server sees nothing."""

    def meddle(sender, receiver, label, data):
        if sender == HUB and receiver == "west" and label in ("message", "0"):
            words = decode_masked(data, run=RUN, party=len(NAMES), t=0, shape=SHAPE).copy()
            words.flat[0] += np.uint64(1)
            return encode_message(RUN, len(NAMES), 0, words)
        return data

    line = Line(meddle)
    running = view(line)
    fine(running.open())
    seen = fine(running.round(summands(0), 0))
    assert (seen[0] != seen[NAMES.index("west")]).any()
    line.meddle = lambda sender, receiver, label, data: data
    all_raised(running.round(summands(1), 1), SumRefused)
    total = add_masked([sent_words(line, name, 1) for name in NAMES])
    assert small(total).mean() < 0.05


@pytest.mark.parametrize("told_alike", [True, False])
def test_an_evaluation_goes_on_from_the_sums_of_the_training(parties, view, told_alike):
    """Whoever was told another last sum of the training has other masks in the evaluation."""
    running = view()
    fine(running.open())
    fine(running.round(summands(0), 0))
    decoded = {party.name: party.exchange.decoded for party in running.parties}
    if not told_alike:
        decoded["west"].add(np.ones(1, dtype=np.uint64))
    following = parties.view(run=bytes(32), purpose="evaluation")
    evaluating = view(view=following, decoded=decoded)
    fine(evaluating.open())
    values = summands(1)
    results = evaluating.round(values, 0)
    if told_alike:
        np.testing.assert_array_equal(sum_of(results), sum(values.values()))
    else:
        all_raised(results, SumRefused)
    masks = evaluating.parties[0].exchange._masks
    assert masks._view.purpose == "evaluation"


def test_a_server_that_leaves_out_a_party_sees_nothing(view):
    running = view(add=lambda words: add_masked(words[1:]))
    fine(running.open())
    all_raised(running.round(summands(0), 0), SumRefused)
    everybody = [sent_words(running.line, name, 0) for name in NAMES]
    for size in range(1, len(NAMES)):
        for some in combinations(everybody, size):
            assert small(add_masked(list(some))).mean() < 0.05


def test_a_server_that_asks_twice_gets_the_same_bytes(view):
    running = view()
    fine(running.open())
    for t in range(2):
        fine(running.round(summands(t), t))
    answers = []
    for t in (0, 1, 0, 1, 7):
        running.parties[0].exchange.mailbox._session._line.sessions[HUB].ask(
            RUN.hex(), "north", str(t), lambda name, label, data: answers.append((label, data))
        )
    assert len(answers) == 4
    assert len(set(answers)) == 2
    for t in range(2):
        sent_words(running.line, "north", t)


# -- a party that lies ---------------------------------------------------------------------------


def test_a_summand_without_masks_ends_the_view(view):
    running = view()
    fine(running.open())
    bad = running.parties[2].exchange
    bad._masks.mask = lambda t, sums, count: np.zeros(count, "u8")
    all_raised(running.round(summands(0), 0), SumRefused)


def test_a_wrong_summand_is_in_the_sum_and_shows_nobody(view):
    """Whoever lies counts among the colluders: it can spoil the model, within the public range."""
    running = view()
    fine(running.open())
    values = summands(0)
    lie = {**values, "west": np.full(SHAPE, 9.0)}
    honest = sum(values[name] for name in NAMES if name != "west")
    np.testing.assert_array_equal(sum_of(running.round(lie, 0)), honest + 9.0)
    far = {**summands(1), "west": np.full(SHAPE, 99.0), "east": np.full(SHAPE, 99.0)}
    all_raised(running.round(far, 1), SumRefused)


def test_a_party_that_sends_different_words_ends_the_view(view):
    """Without a server: North adds up another sum than the others, and its next masks stay."""
    place = NAMES.index("west")

    def meddle(sender, receiver, label, data):
        if (sender, receiver) == ("west", "north") and label in ("message", "0"):
            words = decode_masked(data, run=RUN, party=place, t=0, shape=SHAPE).copy()
            words.flat[0] += np.uint64(1)
            return encode_message(RUN, place, 0, words)
        return data

    line = Line(meddle)
    running = view(line, hub=None)
    fine(running.open())
    north, *others = fine(running.round(summands(0), 0))
    assert (north != others[0]).any()
    line.meddle = lambda sender, receiver, label, data: data
    all_raised(running.round(summands(1), 1), SumRefused)


def test_a_party_without_a_summand_is_missed(view):
    running = view(hub=None)
    fine(running.open())
    values = summands(0)
    results = together(
        *(lambda party=party: party.send(values[party.name], 0) for party in running.parties[:3])
    )
    all_raised(results, NeighbourLost)
    assert {error.name for error in results} == {"east"}


# -- what two words on the wire tell, given all that a colluder knows ----------------------------


def less_colluder(words, party, colluder, t):
    """Take off what a colluder can compute: the masks that it shares with the party."""
    keys = colluder.keys
    members = keys.ring.members
    view = party.exchange._masks._view
    alone = Masks(keys._file.load(), view, members.index(colluder.name))
    alone._secrets = {party.place: alone._secrets[party.place]}
    sums = party.sums_before[t]
    return words + alone.mask(t, sums, words.size).reshape(words.shape)


def play(running, rounds):
    """Rounds with the same summands, so that nothing but masks tells one word from another."""
    first = running.parties[0].exchange._first
    for party in running.parties:
        party.sums_before = {}
        for t in range(first):
            party.exchange(None, t)  # of a round before this view nothing is sent
    for t in range(first, first + rounds):
        for party in running.parties:
            party.sums_before[t - first] = party.exchange.decoded.digest()
        fine(running.round(summands(0), t))


def test_no_two_words_are_predictable_given_a_lost_colluder(parties, view):
    """East colludes with the server; the others go on without it in a view of their own."""
    first = view()
    fine(first.open())
    play(first, 2)
    east = first.parties[3]
    vectors = [
        less_colluder(party.messages[t], party, east, t).ravel()
        for party in first.parties[:3]
        for t in range(2)
    ]
    # Only the first of the two sums is everybody's: the state of the second is given up.
    past = {party.name: tuple(party.exchange.sums[:1]) for party in first.parties}
    for party in first.parties:
        party.keys.destroy()
        party.close()
    changed = parties.view(run=bytes(reversed(RUN)), lost=("east",))
    second = view(view=changed, past=past)
    fine(second.open(1))
    play(second, 2)
    vectors += [party.messages[t].ravel() for party in second.parties for t in range(2)]
    assert {len(vector) for vector in vectors} == {np.prod(SHAPE)} == {COUNT}
    for one, other in combinations(vectors, 2):
        assert not predictable(one, other)
    # What both of two parties have is the mask between them, and that of each with the third.
    for one, two in combinations(vectors, 2):
        assert small(one - two).mean() < 0.05
    assert len(second.parties[0].exchange.sums) == 3


def test_a_restarted_party_sends_the_same_bytes_and_goes_on(parties, view):
    running = view()
    fine(running.open())
    play(running, 1)
    north = running.parties[0]
    values = summands(0)
    covered = north.cover(values["north"], 1)  # and killed, with the words in its ledger
    north.close()
    again = Party(parties, running.line, "north")
    again.exchange.mailbox.begin(
        [encode_message(RUN, 0, t, words) for t, words in enumerate(north.messages)], 100
    )
    running.parties[0] = again
    stored = north.messages[0][None]
    first = again.exchange(release_again(stored, covered.events), 0)
    np.testing.assert_array_equal(first, north.exchange.sums[0].mean)
    others = running.parties[1:]
    results = together(
        lambda: again.exchange(covered, 1)[0],
        *(lambda party=party: party.send(values[party.name], 1) for party in others),
        lambda: running.hub.round(1),
    )
    assert not [found for found in results if isinstance(found, Exception)]
    for t in range(2):
        sent_words(running.line, "north", t)
    # Its masks are the same ones as before, and vanish with those of the others.
    again.open(2)
    values = summands(2)
    np.testing.assert_array_equal(sum_of(running.round(values, 2)), sum(values.values()))


@pytest.mark.parametrize("key", ["old", "new"])
def test_a_restored_copy_draws_nothing(parties, view, key):
    """Its neighbours heard more of it than its files say; or they lie, and its key knows it."""
    running = view()
    fine(running.open())
    north = running.parties[0]
    shutil.copytree(parties.folder / "north", parties.folder / "copy")
    play(running, 2)
    north.close()
    (newest,) = (parties.folder / "north").glob("*.key")
    shutil.copy(newest, parties.folder / "newest")
    shutil.rmtree(parties.folder / "north")
    shutil.copytree(parties.folder / "copy", parties.folder / "north")
    if key == "new":
        shutil.copy(parties.folder / "newest", newest)
    before = len(running.line.wire)
    restored = Party(parties, running.line, "north")
    running.parties[0] = restored
    if key == "old":
        with pytest.raises(DrawRefused, match="has heard 2 rounds of north"):
            restored.exchange.mailbox.confirm()
    else:
        with pytest.raises(DrawRefused, match="has counted 2 rounds of this view"):
            restored.exchange.open(0)
    assert not [label for _, label, _ in running.line.wire[before:] if label == "message"]
