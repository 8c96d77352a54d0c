"""Parties that share noise through a server that hands on their keys: it sees sums, and no more."""

import dataclasses
import json

import numpy as np
import pytest

pytest.importorskip("cryptography", reason="the extra 'federation' is not installed")
pytest.importorskip("opendp", reason="the extra 'secure' is not installed")

from tests.helpers.federation_net import in_process
from tests.helpers.flower_parties import NAMES, FlowerParties

from dpadmm.errors import ExchangeError
from dpadmm.federation.agreement import Consents
from dpadmm.federation.same_sums import sums_text
from dpadmm.federation.transport.session import Security
from dpadmm.federation.transport.wire import decode_masked, encode_message
from dpadmm.flower import party
from dpadmm.flower.server import average_answers, gathered_digests, gathered_keys
from dpadmm.ledger.sqlite import SQLiteLedger
from dpadmm.run.model import load_model

KEY = 11
ROUNDS = 4


def made(folder, simulation=None):
    run = {"algorithm": "dp-gd", "rounds": ROUNDS, "algorithm_options": {"noise": "shared"}}
    parties = FlowerParties(folder, run=run)
    parties.simulated = simulation is not None
    parties.write_agreed()
    parties.write_all(simulation=simulation)
    return parties


@pytest.fixture
def parties(tmp_path):
    return made(tmp_path / "parties")


def keys_of(parties, setup):
    answers = parties.ask(setup.question(0, b""))
    return gathered_keys({name: answers[name].key for name in NAMES})


def commits(parties, name):
    with SQLiteLedger(parties.folder / f"{name}.ledger", read_only=True) as ledger:
        found = ledger.account.runs.get("trial")
        return {} if found is None else {t: item.sha256 for t, item in found.commits.items()}


def test_the_model_is_that_of_one_process(tmp_path):
    parties = made(tmp_path / "parties", simulation=KEY)
    parties.train()
    expected = in_process(parties, tmp_path, KEY)[-1].mean(axis=0)[0]
    for name in (*NAMES, "hub"):
        found = load_model(parties.folder / f"{name}.model").classifier
        np.testing.assert_allclose(found.coef, expected, rtol=0, atol=1e-9)


def test_a_run_is_charged_once_and_its_keys_are_gone_at_the_end(parties):
    first, _ = parties.train()
    before = {name: commits(parties, name) for name in NAMES}
    assert all(sorted(found) == list(range(ROUNDS)) for found in before.values())
    assert not list(parties.folder.glob("north.*.key"))
    # A server that begins again gets the same words, though no key is left to make others.
    again, model = parties.train()
    np.testing.assert_array_equal(first.means, again.means)
    assert before == {name: commits(parties, name) for name in NAMES}
    for name in NAMES:
        own = load_model(parties.folder / f"{name}.model").classifier
        np.testing.assert_array_equal(own.coef, model.classifier.coef)
        assert own.privacy.epsilon <= parties.run["epsilon"]


def test_words_of_one_party_look_like_nothing(parties):
    """Under its masks a message is uniform: high words are as frequent as low ones."""
    setup = parties.server()
    question = setup.question(0, b"", keys_of(parties, setup))
    found = parties.ask(question)
    shape = setup.planned.site.shape[1:]
    words = [
        decode_masked(found[name].message, run=setup.run, party=number, t=0, shape=shape)
        for number, name in enumerate(NAMES)
    ]
    bound = setup.planned.algorithm.summation.bound
    step = setup.planned.algorithm.summation.step
    for each in words:
        assert np.abs(each.view(np.int64) * step).max() > bound
    total = np.add.reduce(np.stack(words), axis=0, dtype=np.uint64)
    assert np.abs(total.view(np.int64) * step).max() <= bound


def test_a_key_that_the_server_made_up_is_not_believed(parties):
    setup = parties.server()
    content = json.loads(keys_of(parties, setup))
    # South's key under the name of west, and a key without its owner's signature.
    swapped = {"keys": content["keys"] | {"west": content["keys"]["south"]}}
    forged = json.loads(json.dumps(content))
    forged["keys"]["west"]["public_key"] = "ab" * 32
    missing = {"keys": {name: content["keys"][name] for name in ("north", "south")}}
    for lie, words in [
        (swapped, "its certificate is not the one that is pinned"),
        (forged, "its signature is not of this key"),
        (missing, "west is missing"),
        ({}, "must send what can be read"),
    ]:
        question = setup.question(0, b"", json.dumps(lie).encode("ascii"))
        found = parties.ask_one("north", question)
        assert words in found.refusal
        assert (found.message, commits(parties, "north")) == (b"", {})


def test_a_sum_beyond_its_bound_or_told_otherwise_is_refused(parties):
    setup = parties.server()
    keys = keys_of(parties, setup)
    parties.ask(setup.question(0, b"", keys))
    shape, number = setup.planned.site.shape[1:], len(NAMES)
    huge = encode_message(setup.run, number, 0, np.full(shape, 1 << 62, dtype=np.uint64))
    found = parties.ask_one("north", setup.question(1, huge, keys))
    assert "a sum must be at most" in found.refusal
    doubles = encode_message(setup.run, number, 0, np.zeros(shape))
    assert "version" in parties.ask_one("north", setup.question(1, doubles, keys)).refusal
    zero = encode_message(setup.run, number, 0, np.zeros(shape, dtype=np.uint64))
    assert parties.ask_one("north", setup.question(1, zero, keys)).message
    one = encode_message(setup.run, number, 0, np.ones(shape, dtype=np.uint64))
    other = parties.ask_one("north", setup.question(1, one, keys))
    assert "must be the one that this party was told before" in other.refusal


def test_parties_told_different_sums_have_masks_that_do_not_vanish(parties):
    setup = parties.server()
    keys = keys_of(parties, setup)
    parties.ask(setup.question(0, b"", keys))
    shape, number = setup.planned.site.shape[1:], len(NAMES)
    heard = {}
    for place, name in enumerate(NAMES):
        lie = np.full(shape, place, dtype=np.uint64)
        mean = encode_message(setup.run, number, 0, lie)
        heard[name] = parties.ask_one(name, setup.question(1, mean, keys))
    with pytest.raises(ExchangeError, match="a sum must be at most"):
        setup.added_up(heard, 1)


def test_older_files_are_not_drawn_from_under_the_same_key(parties):
    """Ledger and messages put back: the key has counted what went out under it."""
    setup = parties.server()
    keys = keys_of(parties, setup)
    older = {
        path.name: path.read_bytes()
        for path in (*parties.folder.glob("north.ledger*"), *parties.folder.glob("north.messages*"))
    }
    question = setup.question(0, b"", keys)
    assert parties.ask_one("north", question).message
    for pattern in ("north.ledger*", "north.messages*"):
        for path in parties.folder.glob(pattern):
            path.unlink()
    for name, data in older.items():
        (parties.folder / name).write_bytes(data)
    assert parties.ask_one("north", question).refusal == party._UNREADY
    (told,) = parties.log("north", "failed")
    assert "has counted 1 rounds" in told["facts"]["error"]


def test_pins_and_colluders_are_the_owners(parties):
    question = parties.server().question(0, b"")
    parties.write("north", policy={"colluders": 2})
    assert parties.ask_one("north", question).refusal == party._UNREADY
    text = parties.node_file("south").read_text()
    lines = [line for line in text.splitlines() if not line.startswith('west = "')]
    parties.node_file("south").write_text("\n".join(lines))
    assert parties.ask_one("south", question).refusal == party._UNREADY
    (north,), (south,) = parties.log("north", "failed"), parties.log("south", "failed")
    assert "colluders must be at least what [policy] demands" in north["facts"]["error"]
    assert "[pins] must have the sha256 of every other party" in south["facts"]["error"]


def test_a_server_needs_everybodys_key(parties):
    setup = parties.server()

    def silent(question):
        return {
            name: dataclasses.replace(found, key=b"{}")
            for name, found in parties.ask(question).items()
        }

    with pytest.raises(ExchangeError, match="north must send what can be read"):
        average_answers(setup, silent)


# -- the end of a run ----------------------------------------------------------------------------


def last_answers(parties, setup, lie_to=None):
    """Play all rounds; tell everybody the last sum, and one party another one."""
    keys = keys_of(parties, setup)
    mean, number, shape = b"", len(NAMES), setup.planned.site.shape[1:]
    for t in range(ROUNDS):
        answers = parties.ask(setup.question(t, mean, keys))
        mean, _ = setup.added_up(answers, t)
    words = decode_masked(mean, run=setup.run, party=number, t=ROUNDS - 1, shape=shape).copy()
    words.flat[0] += np.uint64(1 << 20)
    lie = encode_message(setup.run, number, ROUNDS - 1, words)
    last = {name: lie if name == lie_to else mean for name in NAMES}
    found = {
        name: parties.ask_one(name, setup.question(ROUNDS, last[name], keys)) for name in NAMES
    }
    digests = json.loads(gathered_digests({name: found[name].digest for name in NAMES}))["digests"]

    def tell(name, digests):
        told = json.dumps({"digests": digests}).encode("ascii")
        return parties.ask_one(name, setup.question(ROUNDS, last[name], keys, told))

    return digests, tell


def written(parties, name):
    return load_model(parties.folder / f"{name}.model")


def test_a_model_is_agreed_by_all_only_when_all_have_signed_the_same(parties):
    digests, tell = last_answers(parties, parties.server())
    for name in NAMES:
        before = written(parties, name)
        assert before.privacy.caveats[0].startswith("Not agreed by all yet")
        assert before.provenance["federation"]["agreed_by"] == []
        assert not tell(name, digests).refusal
        after = written(parties, name)
        assert after.privacy.caveats == ()
        assert dict(after.privacy.details)["Agreed by all"].startswith("north, south, west heard")
        assert after.provenance["federation"]["agreed_by"] == list(NAMES)
        np.testing.assert_array_equal(after.classifier.coef, before.classifier.coef)


def test_a_server_that_tells_other_last_sums_is_found_out(parties):
    digests, tell = last_answers(parties, parties.server(), lie_to="west")
    for name in NAMES:
        refusal = tell(name, digests).refusal
        assert "all parties must have heard the same in every round" in refusal
        assert digests["west"]["sha256"] in refusal
        assert "Not agreed by all: " in written(parties, name).privacy.caveats[0]


def test_digests_that_are_altered_replayed_or_dropped_are_refused(parties):
    digests, tell = last_answers(parties, parties.server(), lie_to="west")
    # West signed just that, but of another run.
    place = parties.folder / "certificates"
    security = Security(place / "ca.pem", place / "west.pem", place / "west.key")
    text = sums_text(bytes(32), "west", ROUNDS, digests["north"]["sha256"])
    signed = json.loads(Consents("west", bytes(32), security).own(text).to_bytes())
    altered = digests["west"] | {"sha256": digests["north"]["sha256"]}
    for lie, words in [
        ({**digests, "west": altered}, "must hand on what west signed; its signature is not"),
        ({**digests, "west": digests["south"]}, "its certificate is another node's"),
        ({**digests, "west": altered | {"consent": signed}}, "its signature is not of this run"),
        ({name: digests[name] for name in ("north", "south")}, "west is missing"),
    ]:
        assert words in tell("north", lie).refusal
        assert "Not agreed by all yet" in written(parties, "north").privacy.caveats[0]


def test_what_nobody_signed_is_not_agreed_by_all(tmp_path):
    """With own noise parties need no certificates: then the server's word is all there is."""
    parties = FlowerParties(tmp_path / "parties", run={"algorithm": "dp-gd", "rounds": 2})
    parties.write_all()
    parties.train()
    for name in NAMES:
        model = written(parties, name)
        assert "nothing is signed" in model.privacy.caveats[0]
        assert model.provenance["federation"]["agreed_by"] == []
