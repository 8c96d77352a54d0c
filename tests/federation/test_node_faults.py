"""What nodes do when others are late, frozen, gone or restarted; and what they say about it."""

import json
import os
import signal
import time
from importlib.resources import files
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

pytest.importorskip("zenoh", reason="the extra 'federation' is not installed")


from tests.helpers.wards import POLYNOMIAL_SCHEMA, SCHEMA

from dpadmm.data.tables import encode_party
from dpadmm.ledger.sqlite import SQLiteLedger
from dpadmm.report.html import render
from dpadmm.report.run import run_report
from dpadmm.run.model import load_model
from dpadmm.run.result import RecordedRun

NAMES = ("north", "south", "west")
VALIDATOR = jsonschema.Draft202012Validator(
    json.loads(files("dpadmm.cli").joinpath("output.schema.json").read_text())
)
LONG = {"rounds": 100}


@pytest.fixture
def build(make_federation):
    """Make a federation with the nodes' files written."""

    def build(names=NAMES, policy=None, **options):
        return make_federation(names, policy, **options)

    return build


def test_json_of_a_node(build):
    federation = build()
    for name in NAMES:
        federation.start(name, "--json")
    for name in NAMES:
        assert federation.wait(name) == 0
        output = json.loads(federation.output(name))
        VALIDATOR.validate(output)
        result = output["result"]
        assert result["node"] == name
        assert result["federation"]["heard"] == [name, *(n for n in NAMES if n != name)]
        assert result["federation"]["rounds_complete"] == 10
        assert result["privacy"]["parties"].keys() == {name}
        record = json.loads((federation.folder / f"{name}.record").read_text())
        assert record["federation"] == result["federation"]
        page = Path(result["report"]).read_text()
        assert page == render(run_report(RecordedRun.from_dict(record)))
        assert all(f"{other} (" in page for other in NAMES)
        statement = (federation.folder / f"{name}.statement").read_text()
        assert "(1, 0.001)-differential privacy" in statement
        assert "The ledger of this data set" in statement
        with SQLiteLedger(federation.folder / f"{name}.ledger") as ledger:
            assert ledger.verify().spent_epsilon == pytest.approx(1.0)


def test_what_is_told_of_a_model_cannot_withhold_it(build):
    federation = build()
    for name in NAMES:
        federation.start(name)
        federation.wait_for(name, "agreeing")
        if name == "north":
            (federation.folder / "north.record").mkdir()
    for name in NAMES[1:]:
        assert federation.wait(name) == 0, federation.output(name)
    assert federation.wait("north") == 2
    assert "record must be writable" in federation.output("north")
    models = [load_model(federation.folder / f"{name}.model") for name in NAMES]
    assert (models[0].classifier.coef == models[1].classifier.coef).all()
    events = [entry["event"] for entry in federation.log("south")]
    assert events.index("writing-results") < events.index("results-written")


def test_a_second_run_does_not_take_the_place_of_the_first(build):
    federation = build()
    for name in NAMES:
        federation.start(name)
    for name in NAMES:
        assert federation.wait(name) == 0
    left = {
        place: place.read_bytes()
        for place in federation.folder.glob("north.*")
        if place.suffix in (".model", ".record", ".statement", ".html", ".ledger")
    }
    assert len(left) == 5
    federation.run["run_id"] = "second"
    federation.write("north")
    federation.start("north")
    assert federation.wait("north") == 2
    words = "model under [result] must be a new file or one of this run"
    assert words in federation.output("north")
    assert {place: place.read_bytes() for place in left} == left


@pytest.mark.filterwarnings("ignore::dpadmm.run.options.ConvergenceWarning")
@pytest.mark.parametrize("schema", [SCHEMA, POLYNOMIAL_SCHEMA])
def test_a_finished_node_started_again_spends_nothing_and_has_the_same_model(build, schema):
    federation = build(schema=schema)
    for name in NAMES:
        federation.start(name)
    for name in NAMES:
        assert federation.wait(name) == 0
    before = load_model(federation.folder / "west.model").classifier.coef
    # Alone: everything it needs is in its own files, and that nobody needs it, too.
    federation.write("west", policy={"serve_for": 90})
    begin = time.monotonic()
    federation.start("west")
    assert federation.wait("west") == 0, federation.output("west")
    assert time.monotonic() - begin < 60
    assert (load_model(federation.folder / "west.model").classifier.coef == before).all()
    assert not federation.log("west", "neighbours-late")
    with SQLiteLedger(federation.folder / "west.ledger") as ledger:
        assert len(ledger.verify().runs["trial"].commits) == 10


def test_stop_leaves_the_model_of_the_last_complete_round(build):
    federation = build(run=LONG, policy={"when_lost": "stop", "lost_after": 3})
    for name in NAMES:
        federation.start(name)
    for name in NAMES:
        federation.wait_for(name, "round")
    federation.kill("west")
    for name in NAMES[:2]:
        assert federation.wait(name) == 0, federation.output(name)
        facts = federation.log(name, "neighbour-lost")[-1]["facts"]
        assert facts["choice"] == "stop"
        assert "stay spent" in facts["consequence"]
        record = json.loads((federation.folder / f"{name}.record").read_text())
        done = record["federation"]["rounds_complete"]
        assert 0 < done < LONG["rounds"]
        assert len(record["history"]["change"]) == done
        statement = (federation.folder / f"{name}.statement").read_text()
        assert "Ended early:" in statement
        # Wherever the figures stand: in the record, the model, the report and on the terminal.
        caveats = record["privacy"]["caveats"]
        assert any(f"Ended early: west was lost after {done} rounds" in each for each in caveats)
        assert any("Rely on the agreed budget, (1, 0.001)" in each for each in caveats)
        assert list(load_model(federation.folder / f"{name}.model").privacy.caveats) == caveats
        assert all(f"Caveat: {each}" in statement for each in caveats)
        assert "Caveat: Rely on the agreed budget" in federation.output(name)
        assert "seconds" not in record
        with SQLiteLedger(federation.folder / f"{name}.ledger") as ledger:
            account = ledger.verify()
            charged = len(account.runs["trial"].events)
        # The round that could not be completed was sent, and stays spent; no other was begun.
        assert charged == done + 1
        assert record["privacy"]["parties"][name]["epsilon"] < 1.0
        # The model is the mean of the last complete round's messages.
        kept = federation.messages(name)
        assert len(kept) == done


@pytest.mark.slow
def test_a_frozen_neighbour_is_noticed_waited_for_and_let_in_again(build):
    federation = build(run=LONG)
    for name in NAMES:
        federation.start(name)
    federation.wait_for("west", "round")
    os.kill(federation.processes["west"], signal.SIGSTOP)
    try:
        for name in NAMES[:2]:
            assert federation.wait_for(name, "neighbour-gone", 20) == {"neighbour": "west"}
    finally:
        os.kill(federation.processes["west"], signal.SIGCONT)
    for name in NAMES:
        assert federation.wait(name) == 0, federation.output(name)
        with SQLiteLedger(federation.folder / f"{name}.ledger") as ledger:
            assert len(ledger.verify().runs["trial"].commits) == LONG["rounds"]


@pytest.mark.slow
def test_a_server_that_is_killed_hands_out_the_same_means(build):
    federation = build(
        averager="hub", run={"algorithm": "ps-admm", "topology": "server", "rounds": 30}
    )
    federation._server.warm()
    for name in federation.nodes:
        federation.start(name)
    for _ in range(3):
        federation.wait_for("hub", "round", 60)
        time.sleep(0.1)
        federation.kill("hub")
        federation.start("hub")
    for name in federation.nodes:
        assert federation.wait(name) == 0, federation.output(name)
    kept = {name: federation.messages(name) for name in federation.nodes}
    for t in range(30):
        (mean,) = {messages[t][len(NAMES)] for messages in kept.values()}
        assert mean == kept["hub"][t][len(NAMES)]
    for name in NAMES:
        assert not federation.log(name, "message-dropped")


@pytest.mark.slow
def test_a_node_without_its_messages_catches_up(build):
    federation = build(run=LONG)
    for name in NAMES:
        federation.start(name)
    federation.wait_for("west", "round")
    federation.kill("west")
    for file in federation.folder.glob("west.messages*"):
        file.unlink()
    federation.start("west")
    for name in NAMES:
        assert federation.wait(name) == 0, federation.output(name)
        assert not federation.log(name, "message-dropped")
    # Three in a ring hear everybody: all have the same messages.
    assert federation.messages("west") == federation.messages("north")


RING = ("a", "b", "c", "d", "e")


def go_on(federation, lost, names, also_killed=None):
    """Kill a node for good in the middle of the run; the others finish without it."""
    for name in federation.nodes:
        federation.start(name)
    federation.wait_for(lost, "round", 60)
    federation.kill(lost)
    for event in ("neighbour-lost", "going-on") if also_killed else ():
        federation.wait_for(also_killed, event, 60)
        federation.kill(also_killed)
        federation.start(also_killed)
    for name in names:
        assert federation.wait(name) == 0, federation.output(name)
    files = [federation.folder / f"{name}.record" for name in names if name in federation.rows]
    records = [json.loads(file.read_text()) for file in files]
    assert len({record["federation"]["changed_run_sha256"] for record in records}) == 1
    for record in records:
        assert record["federation"]["went_on_without"] == [lost]
        assert record["federation"]["lost"] is None
    return records


@pytest.mark.parametrize("also_killed", [None, pytest.param("c", marks=pytest.mark.slow)])
def test_the_others_go_on_without_a_lost_node_within_their_budgets(build, also_killed):
    """One of the others may die, too, as it stops and as it goes on: it comes back."""
    edges = [["a", "b"], ["b", "c"], ["c", "d"], ["d", "e"], ["e", "a"], ["b", "e"]]
    federation = build(
        RING,
        run={"rounds": 60, "topology": edges},
        policy={"when_lost": "continue", "lost_after": 15 if also_killed else 3},
    )
    others = [name for name in RING if name != "a"]
    records = go_on(federation, "a", others, also_killed)
    furthest = 0
    for name, record in zip(others, records, strict=True):
        with SQLiteLedger(federation.folder / f"{name}.ledger") as ledger:
            account = ledger.verify()
            assert account.spent_epsilon <= 1.0
            assert set(account.runs) == {"trial", "trial without a"}
            furthest = max(furthest, sum(len(run.commits) for run in account.runs.values()))
        assert record["privacy"]["parties"][name]["epsilon"] <= 1.0 + 1e-9
        statement = (federation.folder / f"{name}.statement").read_text()
        assert "Went on without: a" in statement
        assert "Rely on the agreed budget, (1, 0.001)" in statement
    # Who was furthest has spent all that was agreed, and nobody more.
    assert furthest == 60


@pytest.mark.parametrize("averager", [None, pytest.param("hub", marks=pytest.mark.slow)])
def test_what_the_others_reach_is_their_own_optimum(build, tmp_path, averager):
    """Without noise: the links and messages of the lost node leave no trace."""
    algorithm = "consensus-admm" if averager else "admm"
    topology = "server" if averager else "complete"
    federation = build(
        run={"algorithm": algorithm, "topology": topology, "rounds": 120, "regularization": 0.1},
        averager=averager,
    )
    policy = {"when_lost": "continue", "lost_after": 3}
    for name in federation.nodes:
        federation.write(name, policy=policy, simulation=None if name == averager else 5)
    others = [name for name in federation.nodes if name != "west"]
    go_on(federation, "west", others)
    rows = {name: federation.rows[name] for name in ("north", "south")}
    parts = [
        encode_party(federation.folder / f"{name}.csv", federation.schema, tmp_path)
        for name in rows
    ]
    pooled = LogisticRegression(C=2 / (0.1 * sum(rows.values())), fit_intercept=False, tol=1e-10)
    pooled.fit(
        np.concatenate([part.rows for part in parts]),
        np.concatenate([part.labels for part in parts]),
    )
    for name in rows:
        found = load_model(federation.folder / f"{name}.model").classifier.coef
        np.testing.assert_allclose(found, pooled.coef_, atol=2e-3)


@pytest.mark.slow
def test_a_graph_that_falls_apart_ends_with_the_last_complete_round(build):
    federation = build(
        run={**LONG, "topology": "path"}, policy={"when_lost": "continue", "lost_after": 3}
    )
    for name in NAMES:
        federation.start(name)
    for name in NAMES:
        federation.wait_for(name, "round")
    federation.kill("south")
    for name in ("north", "west"):
        assert federation.wait(name) == 0, federation.output(name)
        assert federation.log(name, "cannot-go-on")
        record = json.loads((federation.folder / f"{name}.record").read_text())
        assert record["federation"]["lost"] == "south"
