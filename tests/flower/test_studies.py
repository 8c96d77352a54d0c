"""Studies inside Flower: the figures of one process, charged once, whatever happens to a party."""

import dataclasses
import re

import numpy as np
import pytest

pytest.importorskip("cryptography", reason="the extra 'federation' is not installed")
pytest.importorskip("opendp", reason="the extra 'secure' is not installed")

from tests.helpers.flower_parties import NAMES, FlowerStudy

from dpadmm.errors import ExchangeError, ParameterError
from dpadmm.federation.transport.wire import decode_message, encode_message
from dpadmm.flower import party
from dpadmm.flower.server import average_answers, prepare_server
from dpadmm.ledger.sqlite import SQLiteLedger

# With noise that nobody chose an interval may be wide, or not given: so few rows are quick.
pytestmark = pytest.mark.filterwarnings("ignore::dpadmm.studies.effects.InferenceWarning")
KEY = 7
ROUNDS = {"describe": 1, "infer": 4}


def made(folder, kind, simulation=None, policy=None, **study):
    parties = FlowerStudy(folder, kind, simulated=simulation is not None, **study)
    parties.write_all(simulation=simulation, policy=policy)
    return parties


def account(parties, name):
    with SQLiteLedger(parties.folder / f"{name}.ledger", read_only=True) as ledger:
        return ledger.account


def commits(parties, name):
    found = account(parties, name).runs.get("trial")
    return {} if found is None else {t: item.sha256 for t, item in found.commits.items()}


@pytest.mark.parametrize("noise", ["own", "shared"])
@pytest.mark.parametrize("kind", ["describe", "infer"])
def test_every_party_finds_what_one_process_finds(tmp_path, kind, noise):
    parties = made(tmp_path / "parties", kind, KEY, noise=noise, holdout=0.25)
    parties.play()
    wanted = parties.in_one_process(KEY)
    for name in NAMES:
        record = parties.record(name)
        # To the last bit: all sums are the same.
        assert record["found"] == wanted
        assert list(record["privacy"]["parties"]) == [name]
        assert record["privacy"]["simulated"]
        assert record["federation"]["rounds_complete"] == ROUNDS[kind]
        assert record["federation"]["agreed_by"] == (list(NAMES) if noise == "shared" else [])
        statement = (parties.folder / f"{name}.statement").read_text()
        assert "order of rows" in statement
        said = "heard the same in every round" if noise == "shared" else "nothing is signed"
        assert said in " ".join(statement.split())
        assert "simulation" in (parties.folder / f"{name}.html").read_text().lower()
        assert not (parties.folder / f"{name}.model").exists()
    assert not (parties.folder / "hub.model").exists()


@pytest.mark.parametrize("noise", ["own", "shared"])
def test_a_study_is_charged_once_and_its_statement_is_the_ledgers(tmp_path, noise):
    parties = made(tmp_path / "parties", "infer", noise=noise, holdout=0.25)
    first = parties.play()
    before = {name: commits(parties, name) for name in NAMES}
    found = [parties.record(name)["found"] for name in NAMES]
    assert found[0] == found[1] == found[2]
    for name in NAMES:
        told, record = account(parties, name), parties.record(name)
        (run,) = told.runs.values()
        assert sorted(run.events) == list(range(ROUNDS["infer"]))
        # Rows that are held out are not read, and nothing is charged for them.
        read, kept_out = told.parts
        assert run.rows == read.rows == (0, parties.rows[name] * 3 // 4)
        assert read.spent > 0 == kept_out.spent
        assert not record["privacy"]["simulated"]
        assert told.spent_epsilon == pytest.approx(record["privacy"]["epsilon"], rel=1e-6)
        assert record["privacy"]["epsilon"] <= parties.study["epsilon"]
    # A server that begins again gets the same words, and nothing more is charged.
    np.testing.assert_array_equal(parties.play().means, first.means)
    assert before == {name: commits(parties, name) for name in NAMES}
    assert [parties.record(name)["found"] for name in NAMES] == found


@pytest.mark.parametrize("noise", ["own", "shared"])
@pytest.mark.parametrize("moment", ["before the commit", "after the commit"])
def test_a_party_killed_in_a_round_draws_once_and_a_lost_one_is_waited_for(
    tmp_path, monkeypatch, noise, moment
):
    class KilledError(BaseException):
        pass

    def die(*args, **options):
        raise KilledError

    parties = made(tmp_path / "parties", "infer", noise=noise)
    last = ROUNDS["infer"] - 1

    def without_west(question):
        if question.round == last:
            raise ExchangeError("west is lost")
        return parties.ask(question)

    with pytest.raises(ExchangeError, match="west is lost"):
        average_answers(parties.server(), without_west)
    for name in NAMES:
        assert sorted(commits(parties, name)) == list(range(last))
        # What was sent stays spent; there are no figures before all rounds are complete.
        assert 0 < account(parties, name).spent_epsilon < parties.study["epsilon"]
        assert not (parties.folder / f"{name}.record").exists()

    def killed(question):
        with monkeypatch.context() as patch:
            where = (party, "encode_message") if "after" in moment else ()
            if question.round == last:
                patch.setattr(*(where or ("dpadmm.ledger.sqlite.LedgerRun.commit",)), die)
            return parties.ask(question)

    with pytest.raises(KilledError):
        average_answers(parties.server(), killed)
    before = {name: commits(parties, name) for name in NAMES}
    parties.play()
    for name in NAMES:
        assert before[name].items() <= commits(parties, name).items()
        assert sorted(account(parties, name).runs["trial"].events) == list(range(last + 1))
    found = [parties.record(name)["found"] for name in NAMES]
    assert found[0] == found[1] == found[2]


def test_rows_of_one_person_are_charged_together(tmp_path):
    parties = made(tmp_path / "parties", "describe", KEY, rows_per_person=3)
    parties.play()
    record = parties.record("north")
    assert record["found"] == parties.in_one_process(KEY)
    assert record["privacy"]["epsilon"] <= parties.study["epsilon"]
    assert "3 rows" in (parties.folder / "north.statement").read_text()
    alone = made(tmp_path / "alone", "describe", KEY)
    sigmas = [each.server().planned.algorithm.sigma for each in (parties, alone)]
    np.testing.assert_allclose(sigmas[0], 3 * sigmas[1], rtol=1e-6)


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ({"epsilon": 1.0}, "epsilon must be at most what [policy] allows"),
        ({"algorithms": ["dp-gd"]}, "algorithm must be one that [policy] allows"),
    ],
)
def test_an_owner_who_does_not_allow_a_study_is_not_asked(tmp_path, policy, words):
    parties = made(tmp_path / "parties", "describe", policy=policy)
    found = parties.ask_one("north", parties.server().question(0, b""))
    assert (found.message, found.refusal) == (b"", party._UNREADY)
    (told,) = parties.log("north", "failed")
    assert words in told["facts"]["error"]
    assert commits(parties, "north") == {}


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"proportion"', '"count"', "wish"),
        ("epsilon = 4.0", "epsilon = 40.0", "run.epsilon is 4.0 here and 40.0 there"),
        ("epsilon = 4.0", "epsilon = 4.0\nrows_per_person = 2", "run.rows_per_person is 1 here"),
    ],
)
def test_a_server_that_asks_something_else_is_refused(tmp_path, old, new, words):
    parties = made(tmp_path / "parties", "describe")
    text = parties.agreed_text()
    assert old in text
    other = parties.server(text.replace(old, new, 1))
    found = parties.ask_one("north", other.question(0, b""))
    assert words in found.refusal
    assert "Nothing was started, and nothing more was spent" in found.refusal
    assert commits(parties, "north") == {}
    # A digest alone does not help it: what is asked is in the party's own file.
    ours = dataclasses.replace(other.question(0, b""), run=parties.server().run)
    drawn = parties.ask_one("north", ours)
    setup = parties.server()
    shape = setup.planned.site.shape[1:]
    assert decode_message(drawn.message, run=setup.run, party=0, t=0, shape=shape).any()
    assert account(parties, "north").spent_epsilon <= parties.study["epsilon"]


def test_a_server_that_tells_other_sums_is_found_out(tmp_path):
    parties = made(tmp_path / "parties", "describe", noise="shared")
    setup, number = parties.server(), len(NAMES)
    shape = setup.planned.site.shape[1:]
    told = {}

    def lying(question):
        if question.round == 0:
            return parties.ask(question)
        lie = encode_message(setup.run, number, 0, np.full(shape, 1 << 20, dtype=np.uint64))
        asked = {
            name: dataclasses.replace(question, mean=lie) if name == "west" else question
            for name in NAMES
        }
        told.update({name: parties.ask_one(name, each) for name, each in asked.items()})
        return told

    average_answers(setup, lying)
    for name in NAMES:
        assert "all parties must have heard the same in every round" in told[name].refusal
        assert parties.record(name)["privacy"]["caveats"][0].startswith("Not agreed by all: ")


def test_rows_that_contradict_the_question_are_told_to_their_owner_alone(tmp_path):
    parties = made(tmp_path / "parties", "survival", epsilon=40.0, policy={"preflight": "stop"})
    question = parties.server().question(0, b"")
    found = parties.ask_one("north", question)
    assert (found.message, found.refusal) == (b"", party._UNREADY)
    told = (parties.folder / "north.preflight").read_text()
    assert re.search("LOOKS WRONG: north: [0-9]+ of 900 rows leave no later than they enter", told)
    assert commits(parties, "north") == {}
    # By another rule of its owner the party answers.
    parties.write("north", policy={"preflight": "ask"})
    assert parties.ask_one("north", question).message


def test_a_study_has_no_model(tmp_path):
    parties = made(tmp_path / "parties", "describe")
    places = [parties.folder / name for name in ("agreed.toml", "schema.toml", "hub.model")]
    with pytest.raises(ParameterError, match="model in the run configuration must be left out of"):
        prepare_server(*places)
