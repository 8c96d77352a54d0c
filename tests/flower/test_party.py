"""A party answers questions from its own files: it cannot be made to spend, draw or tell more."""

import dataclasses
import shutil

import numpy as np
import pytest

pytest.importorskip("cryptography", reason="the extra 'federation' is not installed")

from tests.helpers.federation_net import in_process
from tests.helpers.flower_parties import NAMES, FlowerParties

from dpadmm.algorithms import REGISTRY
from dpadmm.federation.transport.wire import decode_message, encode_message
from dpadmm.flower import party
from dpadmm.ledger.sqlite import SQLiteLedger
from dpadmm.privacy.events import GaussianRelease
from dpadmm.run.model import load_model

KEY = 11
ROUNDS = 4


def spent(parties, name):
    with SQLiteLedger(parties.folder / f"{name}.ledger", read_only=True) as ledger:
        return {run: dict(record.events) for run, record in ledger.account.runs.items()}


@pytest.fixture
def parties(tmp_path):
    made = FlowerParties(tmp_path / "parties", run={"algorithm": "dp-gd", "rounds": ROUNDS})
    made.write_all()
    return made


def mean_of(parties, t, value=0.0, run=None):
    setup = parties.server()
    shape = setup.planned.site.shape[1:]
    return encode_message(run or setup.run, len(parties.names), t, np.full(shape, value))


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        ("consensus-admm", {}),
        ("ps-admm", {}),
        ("scas-admm", {}),
        ("dp-gd", {}),
        ("dp-gd", {"center": "on"}),
    ],
)
def test_the_model_is_that_of_one_process(tmp_path, algorithm, options):
    run = {"algorithm": algorithm, "rounds": 6, "tolerance": 1e-12, "algorithm_options": options}
    parties = FlowerParties(tmp_path / "parties", run=run)
    parties.write_all(simulation=KEY)
    averaged, model = parties.train()
    expected = in_process(parties, tmp_path, KEY)
    if not REGISTRY[algorithm].hears_everybody:
        np.testing.assert_allclose(averaged.means, expected.mean(axis=1), rtol=0, atol=1e-9)
    tail = expected[-2:].mean(axis=(0, 1))[0]
    wanted = tail if REGISTRY[algorithm].private else expected[-1].mean(axis=0)[0]
    for name in (*NAMES, "hub"):
        found = load_model(parties.folder / f"{name}.model").classifier
        np.testing.assert_allclose(found.coef, wanted, rtol=0, atol=1e-9)
        assert found.privacy.simulated
    assert model.classifier.coef.shape == wanted.shape


def test_a_run_is_charged_once_and_its_statement_is_the_ledgers(parties):
    _, model = parties.train()
    for name in NAMES:
        (events,) = spent(parties, name).values()
        assert sorted(events) == list(range(ROUNDS))
        own = load_model(parties.folder / f"{name}.model").classifier
        np.testing.assert_array_equal(own.coef, model.classifier.coef)
        assert not own.privacy.simulated
        assert own.privacy.epsilon <= parties.run["epsilon"]
        assert "each party's own statement" not in str(own.privacy)
    assert "each party's own statement" in " ".join(str(model.classifier.privacy).split())
    assert not model.classifier.privacy.simulated


def test_what_the_ledger_has_of_the_run_besides_is_stated(parties):
    path = parties.folder / "north.ledger"
    path.unlink()
    parties.make_ledger("north", 5.0)
    with SQLiteLedger(path) as ledger, ledger.open_run(f"trial evaluation {'0' * 16}", "x") as run:
        run.reserve(0, GaussianRelease(1.0, 4.0))
    parties.train()
    stated = load_model(parties.folder / "north.model").privacy
    with SQLiteLedger(path, read_only=True) as ledger:
        assert stated.epsilon == pytest.approx(ledger.account.spent_epsilon, rel=1e-5)
    assert stated.epsilon > parties.run["epsilon"]
    assert "1 other evaluation under this run, counted here" in stated.caveats[0]


def test_a_server_that_begins_again_gets_the_same_bytes(parties):
    first, _ = parties.train()
    before = {name: spent(parties, name) for name in NAMES}
    again, _ = parties.train()
    np.testing.assert_array_equal(first.means, again.means)
    assert before == {name: spent(parties, name) for name in NAMES}


@pytest.mark.parametrize("rule", ["ask", "stop", "off"])
def test_rows_that_look_wrong_end_a_run_by_the_owner_s_rule_alone(parties, rule):
    parties.write("north", policy={"preflight": rule})
    place = parties.folder / "north.csv"
    place.write_text(place.read_text().replace(",no\n", ",No\n"))
    found = parties.ask_one("north", parties.server().question(0, b""))
    assert (parties.folder / "north.preflight").exists() == (rule != "off")
    if rule != "stop":
        assert found.message
        assert len(spent(parties, "north")["trial"]) == 1
        return
    # The server learns no more than of any other trouble, and so does whoever reads the log.
    assert not found.message
    assert found.refusal == party._UNREADY
    assert spent(parties, "north") == {}
    said = (parties.folder / "north.log").read_text()
    assert "not-started" in said
    assert not any(word in said.lower() for word in ("preflight", "label", "wrong"))
    place.write_text(place.read_text().replace(",No\n", ",no\n"))
    assert parties.ask_one("north", parties.server().question(0, b"")).message


def test_a_round_asked_for_twice_has_one_message(parties):
    question = parties.server().question(0, b"")
    found = [parties.ask_one("north", question) for _ in range(3)]
    assert found[0].message
    assert found[0] == found[1] == found[2]
    assert len(spent(parties, "north")["trial"]) == 1


@pytest.mark.parametrize("moment", ["before the commit", "after the commit"])
def test_a_party_killed_in_a_round_does_not_draw_twice(parties, monkeypatch, moment):
    class KilledError(BaseException):
        pass

    def die(*args, **options):
        raise KilledError

    question = parties.server().question(0, b"")
    where = (party, "encode_message") if moment == "after the commit" else None
    with monkeypatch.context() as patch:
        patch.setattr(*(where or ("dpadmm.ledger.sqlite.LedgerRun.commit",)), die)
        with pytest.raises(KilledError):
            party.answer(parties.node_file("north"), question.plain())
    with SQLiteLedger(parties.folder / "north.ledger", read_only=True) as ledger:
        kept = ledger.account.runs["trial"].commits
        stored = {t: ledger.load_message(found) for t, found in kept.items()}
    assert len(stored) == (moment == "after the commit")
    found = parties.ask_one("north", question)
    assert len(spent(parties, "north")["trial"]) == 1
    if stored:
        sent = decode_message(found.message, run=question.run, party=0, t=0, shape=stored[0].shape)
        np.testing.assert_array_equal(sent, stored[0])
    monkeypatch.undo()
    parties.train()
    assert len(spent(parties, "north")["trial"]) == ROUNDS


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"algorithm": "scas-admm"}, 'run.algorithm is "dp-gd" here and "scas-admm" there'),
        ({"rounds": 400}, "run.rounds is 4 here and 400 there"),
        ({"epsilon": 9.0}, "run.epsilon is 1.0 here and 9.0 there"),
        ({"run_id": "another"}, "run.run_id is"),
    ],
)
def test_a_server_with_another_run_is_refused(parties, changes, words):
    question = parties.server(parties.agreed_text(**changes)).question(0, b"")
    found = parties.ask_one("north", question)
    assert words in found.refusal
    assert "Nothing was started, and nothing more was spent" in found.refusal
    assert (found.message, found.again) == (b"", False)
    assert spent(parties, "north") == {}


def test_a_server_cannot_pass_off_another_run_as_the_agreed_one(parties):
    """A digest alone does not help it: what runs is the party's own file."""
    ours, theirs = (parties.server(text) for text in (None, parties.agreed_text(rounds=400)))
    question = dataclasses.replace(theirs.question(0, b""), run=ours.run)
    assert parties.ask_one("north", question).message
    late = dataclasses.replace(question, round=5, mean=mean_of(parties, 4))
    assert "in their order, up to 4" in parties.ask_one("north", late).refusal
    facts = dataclasses.replace(ours.question(0, b""), run=theirs.run)
    assert "the run must be" in parties.ask_one("north", facts).refusal
    assert len(spent(parties, "north")["trial"]) == 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"round": 2}, "in their order"),
        ({"round": 1, "mean": b""}, "must have 152 bytes; got 0"),
        ({"round": 1, "mean": bytes(152)}, "is damaged"),
        ({"round": 1, "mean": bytes(1 << 20)}, "must have 152 bytes"),
        ({"round": 1, "mean": "nan"}, "must be finite"),
        ({"round": 1, "mean": "huge"}, "must be at most 1e+06"),
        ({"round": 1, "mean": "another round"}, "must have the round 0; got 3"),
        ({"round": 1, "mean": "another run"}, "must have the run"),
        ({"round": 0, "mean": b"x"}, "without a mean"),
        ({"round": 1, "mean": "good"}, "round 0 must be asked for before its mean"),
        ({"round": -1}, "round must be a number of rounds"),
        ({"round": True}, "round must be of the type int"),
        ({"run": b"short"}, "run must be 32 bytes"),
        ({"noise": 0.0}, "and no others"),
        ({"facts": "text"}, "facts must be of the type bytes"),
    ],
)
def test_a_question_out_of_order_or_shape_spends_nothing(parties, changes, words):
    means = {
        "nan": lambda: mean_of(parties, 0, np.nan),
        "huge": lambda: mean_of(parties, 0, 1e7),
        "another round": lambda: mean_of(parties, 3),
        "another run": lambda: mean_of(parties, 0, run=bytes(32)),
        "good": lambda: mean_of(parties, 0),
    }
    mean = changes.get("mean")
    told = parties.server().question(0, b"").plain() | changes
    if isinstance(mean, str):
        told["mean"] = means[mean]()
    found = party.answer(parties.node_file("north"), told)
    assert words in found.refusal
    assert (found.message, found.again) == (b"", False)
    assert not any(spent(parties, "north").values())


def test_a_mean_does_not_change_once_it_was_told(parties):
    setup = parties.server()
    parties.ask_one("north", setup.question(0, b""))
    first = parties.ask_one("north", setup.question(1, mean_of(parties, 0, 0.1)))
    other = parties.ask_one("north", setup.question(1, mean_of(parties, 0, 0.2)))
    assert "must be the one that this party was told before" in other.refusal
    again = parties.ask_one("north", setup.question(1, mean_of(parties, 0, 0.1)))
    assert again.message == first.message
    # Nor is a round before drawn again.
    assert parties.ask_one("north", setup.question(0, b"")).message
    assert len(spent(parties, "north")["trial"]) == 2


def test_the_owners_policy_comes_before_the_agreed_run(parties):
    parties.write("north", policy={"epsilon": 0.5})
    found = parties.ask_one("north", parties.server().question(0, b""))
    # What the owner allows is the owner's business.
    assert found.refusal == party._UNREADY
    assert found.again
    (told,) = parties.log("north", "failed")
    assert "epsilon must be at most what [policy] allows" in told["facts"]["error"]
    assert spent(parties, "north") == {}


def test_an_older_ledger_is_not_drawn_from_again(parties):
    setup = parties.server()
    shutil.copy(parties.folder / "north.ledger", parties.folder / "older")
    parties.ask_one("north", setup.question(0, b""))
    shutil.copy(parties.folder / "older", parties.folder / "north.ledger")
    for beside in parties.folder.glob("north.ledger-*"):
        beside.unlink()
    assert parties.ask_one("north", setup.question(0, b"")).refusal == party._UNREADY
    (told,) = parties.log("north", "failed")
    # What follows names files, and is cut off where their names are long.
    assert "ledger must have every entry that it had" in told["facts"]["error"]


def test_nothing_about_rows_is_told_when_they_cannot_be_read(parties):
    (parties.folder / "north.csv").write_text("age,ward,y\n50,a,yes\n")
    found = parties.ask_one("north", parties.server().question(0, b""))
    assert found.refusal == party._UNREADY
    (parties.folder / "north.toml").write_text("nonsense")
    unnamed = parties.ask_one("north", parties.server().question(0, b""))
    assert (unnamed.refusal, unnamed.party) == (party._UNREADY, "")


@pytest.mark.parametrize(
    ("run", "words"),
    [
        ({"evaluate": True, "holdout": 0.2}, "evaluate and probabilities must be left out"),
        ({"algorithm": "pr-admm", "topology": "ring"}, "server"),
    ],
)
def test_runs_that_flower_does_not_carry_are_refused(tmp_path, run, words):
    parties = FlowerParties(tmp_path / "parties", run=run)
    with pytest.raises(ValueError, match=words):
        parties.server()


def test_nobody_goes_on_without_a_party(parties):
    parties.write("north", policy={"when_lost": "continue"})
    assert parties.ask_one("north", parties.server().question(0, b"")).refusal == party._UNREADY
    (told,) = parties.log("north", "failed")
    assert "when_lost under [policy] must be 'wait' or 'stop'" in told["facts"]["error"]
