"""The end of a run: digests that parties signed, and what a server that lies can do to them."""

import hashlib
import json
import time
from types import SimpleNamespace

import pytest

pytest.importorskip("zenoh", reason="the extra 'federation' is not installed")

from tests.helpers.secure_sums import HUB, NAMES, RUN, Line, Parties, Session, together
from tests.helpers.shared_run import TwoFacedHub

from dpadmm.federation import same_sums
from dpadmm.federation.agreement import Consents
from dpadmm.federation.identity import read_certificate
from dpadmm.federation.recovery import SomebodyLeft
from dpadmm.federation.same_sums import SameSums, SignedSums
from dpadmm.federation.transport.session import Security
from dpadmm.federation.transport.store import MemoryStore
from dpadmm.federation.transport.wire import BadMessage, Comparing
from dpadmm.ledger.sqlite import SQLiteLedger
from dpadmm.run.model import load_model

ROUNDS = 7
SUMS = hashlib.sha256(b"all sums").digest()
OTHERS = hashlib.sha256(b"other sums").digest()
PARTIES = ("north", "south", "west")
SHARED = {
    "algorithm": "dp-gd",
    "topology": "server",
    "rounds": 6,
    "algorithm_options": {"noise": "shared"},
}
EVALUATED = {**SHARED, "holdout": 0.25, "evaluate": True}
OWN = {"algorithm": "dp-gd", "topology": "server", "rounds": 6}
STOP = {"when_lost": "stop", "lost_after": 6, "serve_for": 1}


@pytest.fixture(autouse=True)
def hasty(monkeypatch):
    monkeypatch.setattr(same_sums, "_GRACE", 0.2)


@pytest.fixture
def parties(tmp_path):
    parties = Parties(tmp_path)
    yield parties
    parties.close()


class Ends:
    """Parties that have heard all rounds, and a server between them."""

    def __init__(self, parties, line=None, *, hub=True):
        self.parties, self.line, self.hub = parties, line or Line(), hub
        self.refused = []
        if hub:
            self.start(HUB, NAMES)

    def signed(self, name, run=RUN, pins=None, security=None):
        security = security or self.parties.security.get(name, self.parties.security["north"])
        pins = self.parties.pins if pins is None else pins
        store = self.parties.store(name) if name in NAMES else MemoryStore()
        return SignedSums(name, run, NAMES, ROUNDS, Consents(name, run, security), pins, store)

    def start(self, name, neighbours=None):
        neighbours = neighbours or ([HUB] if self.hub else [one for one in NAMES if one != name])
        session = Session(self.line, name, neighbours)
        refused = self.refused
        return SameSums(
            session,
            self.signed(name),
            on_refused=lambda sender, reason, error: refused.append((name, reason, str(error))),
        )

    def compare(self, name, sums=SUMS, rounds=ROUNDS, timeout=1.0, **options):
        return self.start(name).compare(rounds, sums, timeout, **options)

    def all(self, told, **options):
        def compare(name):
            return lambda: self.compare(name, sums=told.get(name, SUMS), **options)

        return dict(zip(NAMES, together(*map(compare, NAMES)), strict=True))


@pytest.mark.parametrize("hub", [True, False])
def test_all_learn_that_they_heard_the_same(parties, hub):
    for name, found in Ends(parties, hub=hub).all({}, timeout=20).items():
        assert (found.same, found.missing, dict(found.other)) == (NAMES, (), {}), name
        assert (found.alike, found.signed, found.caveats, found.refusal) == (True, True, (), "")
        assert found.sha256 == SUMS.hex()


@pytest.mark.parametrize("hub", [True, False])
def test_who_heard_other_sums_is_named_at_every_party(parties, hub):
    for name, found in Ends(parties, hub=hub).all({"west": OTHERS}, timeout=20).items():
        assert not found.alike
        here, there = (OTHERS, SUMS) if name == "west" else (SUMS, OTHERS)
        assert found.other
        assert set(found.other.values()) == {there.hex()}
        words = found.refusal
        assert here.hex() in words
        assert there.hex() in words
        told = f"west told {OTHERS.hex()}" if name == "west" else f"west {OTHERS.hex()}"
        assert told in words
        assert found.caveats[0].startswith("Not agreed by all: ")


def meddled(change, name="west"):
    """A server that changes what it hands on of a party."""

    def meddle(sender, receiver, label, data):
        if sender != HUB:
            return data
        digests = Comparing.model_validate_json(data).digests
        if name in digests and receiver != name:
            found = change(digests.pop(name), digests)
            digests |= {} if found is None else {name: found}
        return Comparing(digests=digests).to_bytes()

    return meddle


def altered(parties, replayed):
    other = hashlib.sha256(b"another run").digest()
    of_other_run = Ends(parties, hub=False).signed("west", run=other)
    of_other_run.say(ROUNDS, SUMS)
    old = Comparing.model_validate_json(of_other_run.to_bytes()).digests["west"]
    return {
        "dropped": lambda digest, others: None,
        "altered": lambda digest, others: digest.model_copy(update={"sha256": SUMS.hex()}),
        "of-fewer-rounds": lambda digest, others: digest.model_copy(update={"rounds": 1}),
        "of-another-party": lambda digest, others: others.get("south"),
        "of-another-run": lambda digest, others: old,
        "not-signed": lambda digest, others: digest.model_copy(
            update={"consent": digest.consent.model_copy(update={"signature": ""})}
        ),
    }[replayed]


LIES = ["dropped", "altered", "of-fewer-rounds", "of-another-party", "of-another-run", "not-signed"]


@pytest.mark.parametrize("lie", LIES)
def test_no_server_makes_a_digest_up(parties, lie):
    """West was told other sums. The server hides that, and nobody takes the model as agreed."""
    line = Line(meddled(altered(parties, lie)))
    ends = Ends(parties, line)
    for name, found in ends.all({"west": OTHERS}).items():
        assert not found.alike
        if name == "west":
            assert set(found.other) == {"north", "south", "east"}
            continue
        assert found.missing == ("west",)
        assert found.refusal == ""
        assert "no digest came from west" in found.caveats[0]
        told = {reason for who, reason, _ in ends.refused if who == name}
        assert told == (set() if lie == "dropped" else {"bad-digest"})


def test_only_the_pinned_certificate_signs(parties, tmp_path):
    """A second certificate of the same name and authority is not the one that is pinned."""
    from dpadmm.federation.identity import make_certificate

    trial = parties.folder / "certificates"
    kept = {path: path.read_bytes() for path in (trial / "west.pem", trial / "west.key")}
    for path in kept:
        path.unlink()
    certificate, key = make_certificate(trial, "west")
    assert read_certificate(certificate).fingerprint != parties.pins["west"]
    ends = Ends(parties, hub=False)
    forged = ends.signed("west", security=Security(trial / "ca.pem", certificate, key))
    forged.say(ROUNDS, SUMS)
    north, trusting = ends.signed("north"), ends.signed("south", pins={})
    (sentence,) = north.take("south", forged.to_bytes())
    assert "its certificate is not the one pinned here" in sentence
    assert "west" in north.missing
    # With own noise nothing need be pinned: then the authority's word counts.
    assert trusting.take("north", forged.to_bytes()) == []
    assert "west" not in trusting.missing


def test_what_is_no_digest_is_refused(parties):
    north = Ends(parties, hub=False).signed("north")
    west = Ends(parties, hub=False).signed("west")
    west.say(ROUNDS, SUMS)
    good = json.loads(west.to_bytes())
    for place, value in [
        ("rounds", ROUNDS + 1),
        ("rounds", True),
        ("sha256", "f" * 63),
        ("sha256", "\x1b[31m" + 59 * "a"),
        ("consent", {}),
    ]:
        bad = json.loads(json.dumps(good))
        bad["digests"]["west"][place] = value
        with pytest.raises(BadMessage) as refused:
            north.take("south", json.dumps(bad).encode())
        assert "\x1b" not in str(refused.value)
    stranger = {"digests": {"mallory": good["digests"]["west"]}}
    with pytest.raises(BadMessage, match="must be a node of the run"):
        north.take("south", json.dumps(stranger).encode())


def test_who_signs_two_is_found(parties):
    north, west = (Ends(parties, hub=False).signed(name) for name in ("north", "west"))
    north.say(ROUNDS, SUMS)
    for sums in (SUMS, OTHERS):
        west.say(ROUNDS, sums)
        assert north.take("south", west.to_bytes()) == []
    assert dict(north.compare().other) == {"west": OTHERS.hex()}
    # Nor does a restart make one word of two.
    north = Ends(parties, hub=False).signed("north")
    north.say(ROUNDS, SUMS)
    assert dict(north.compare().other) == {"west": OTHERS.hex()}
    assert not north.compare().alike


def test_who_ended_early_is_no_liar_and_may_come_back(parties):
    ends = Ends(parties)
    early = ends.compare("west", sums=OTHERS, rounds=3, timeout=0.0)
    assert early.refusal == ""
    others = NAMES[:2] + NAMES[3:]
    found = together(*(lambda name=name: ends.compare(name) for name in others))
    for each in found:
        assert dict(each.short) == {"west": 3}
        assert each.refusal == ""
        assert "west ended after 3 rounds" in each.caveats[0]
    # Started again it has all rounds. What it said before does not come back.
    again = ends.compare("west")
    assert again.alike
    north = ends.signed("north")
    north.say(ROUNDS, SUMS)
    old = ends.signed("west")
    old.say(3, OTHERS)
    north.take(HUB, ends.line.sessions[HUB]._answers[f"{RUN.hex()}-sums"]("digests"))
    north.take(HUB, old.to_bytes())
    assert north.compare().alike


def test_a_node_that_is_away_is_a_caveat_and_nobody_hangs(parties):
    ends, begin = Ends(parties), time.monotonic()
    found = together(*(lambda name=name: ends.compare(name) for name in NAMES[:3]))
    assert time.monotonic() - begin < 10
    for each in found:
        assert each.missing == ("east",)
        assert not each.alike
    # Those who ended still answer: whoever comes later hears them, also if the server is new.
    ends.start(HUB, NAMES)
    assert ends.compare("east", timeout=20).alike
    # What was heard is noted: started again, with nobody there, a node knows it at once.
    ends.line.sessions.clear()
    alone = SameSums(Session(ends.line, "east", []), ends.signed("east"))
    assert alone.compare(ROUNDS, SUMS, 20).alike
    # What was noted is checked again by the pins as they are now.
    changed = parties.pins | {"west": "0" * 64}
    assert "west" in ends.signed("east", pins=changed).missing


def test_a_loss_that_others_go_on_from_ends_the_waiting(parties):
    def left(seconds, missing):
        raise SomebodyLeft("west")

    begin = time.monotonic()
    found = Ends(parties).compare("north", timeout=60, on_pause=left)
    assert time.monotonic() - begin < 10
    assert found.missing == NAMES[1:]


def test_a_long_list_of_names_is_cut(parties):
    names = tuple(f"n{number}" for number in range(100))
    found = same_sums.SumsComparison("ab" * 32, names, names[:1])
    assert "and 79 more" in found.caveats[0]
    assert len(found.caveats[0]) < 400


# -- real nodes ----------------------------------------------------------------------------------


@pytest.fixture
def build(make_federation):
    def build(run, policy=STOP, averager="hub"):
        return make_federation(PARTIES, policy, averager=averager, run=run)

    return build


def results(federation, name):
    folder = federation.folder
    record = json.loads((folder / f"{name}.record").read_text())
    model = load_model(folder / f"{name}.model")
    return SimpleNamespace(
        statement=(folder / f"{name}.statement").read_text(),
        federation=record["federation"],
        caveats=model.privacy.caveats,
        stated=record["privacy"]["caveats"],
        coef=model.classifier.coef,
        quality=model.classifier.quality,
        provenance=model.provenance["federation"],
    )


@pytest.mark.parametrize(
    ("run", "averager"),
    [(SHARED, "hub"), (EVALUATED, "hub"), (OWN, "hub"), (EVALUATED, None), (OWN, None)],
)
def test_a_model_is_agreed_by_all(build, run, averager):
    federation = build(run, {"lost_after": 60, "serve_for": 10}, averager)
    for name in federation.nodes:
        federation.start(name)
    federation.finish()
    digests = set()
    for name in PARTIES:
        found = results(federation, name)
        assert "Agreed by all: north, south, west heard the same" in found.statement
        assert found.caveats == ()
        assert found.stated == []
        assert found.federation["agreed_by"] == list(PARTIES)
        assert found.provenance["agreed_by"] == list(PARTIES)
        digests.add(found.federation["sums_sha256"])
        # Of the training, and of the evaluation if there is one.
        count = 2 if run is EVALUATED else 1
        assert len(federation.log(name, "agreed-by-all")) == count
    assert len(digests) == 1


@pytest.mark.parametrize("run", [SHARED, EVALUATED, OWN])
def test_a_server_that_tells_other_last_sums_is_found_out(build, run):
    federation = build(run)
    with TwoFacedHub(federation, "west", STOP):
        for name in PARTIES:
            federation.start(name)
        for name in PARTIES:
            assert federation.wait(name) == 2, federation.output(name)
    told = {name: results(federation, name) for name in PARTIES}
    assert (told["west"].coef != told["north"].coef).any()
    for name, found in told.items():
        # What a terminal shows is wrapped.
        words = " ".join(federation.output(name).replace("│", " ").split())
        assert "all parties must have heard the same in every round" in words
        assert "Not agreed by all: " in found.statement
        assert "west" in found.caveats[-1]
        assert list(found.caveats) == found.stated
        assert found.federation["agreed_by"] == (["west"] if name == "west" else ["north", "south"])
        # Nothing was charged for an evaluation of what is not the same.
        with SQLiteLedger(federation.folder / f"{name}.ledger") as ledger:
            assert [len(each.events) for each in ledger.verify().runs.values()] == [6]


def test_masks_of_an_evaluation_hang_on_the_sums_of_the_training(build):
    """The server keeps all digests back: the evaluation of two models still comes to nothing."""
    federation = build(EVALUATED, STOP | {"lost_after": 8})
    policy = STOP | {"lost_after": 8}
    with TwoFacedHub(federation, "west", policy, hand_on=lambda names, digests: None):
        for name in PARTIES:
            federation.start(name)
        for name in PARTIES:
            assert federation.wait(name) == 0, federation.output(name)
    for name in PARTIES:
        found = results(federation, name)
        assert found.quality is None
        assert federation.log(name, "not-evaluated")
        assert federation.log(name, "sum-refused")[0]["facts"]["round"] == 0
        others = [each for each in PARTIES if each != name]
        assert f"no digest came from {', '.join(others)}" in found.caveats[-1]
        assert found.federation["agreed_by"] == [name]


@pytest.mark.parametrize("run", [SHARED, EVALUATED])
def test_a_node_killed_between_its_last_round_and_the_digests_resumes_and_ends(build, run):
    policy = {"lost_after": 60, "serve_for": 10}
    federation = build(run, policy)
    hub = TwoFacedHub(federation, "west", policy, hand_on=lambda names, digests: {}, lies=False)
    with hub:
        for name in PARTIES:
            federation.start(name)
        for name in PARTIES:
            federation.wait_for(name, "results-written")
        assert "Not agreed by all yet" in results(federation, "west").statement
        federation.kill("west")
        federation.start("west")
        hub.hand_on = lambda names, digests: digests
        for name in PARTIES:
            assert federation.wait(name) == 0, federation.output(name)
    for name in PARTIES:
        found = results(federation, name)
        assert found.federation["agreed_by"] == list(PARTIES)
        assert found.caveats == ()
        assert (found.quality is not None) == (run is EVALUATED)
