"""Studies between nodes: the figures of one process, charged once, whatever happens to a node."""

import re
import tomllib
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("zenoh", reason="the extra 'federation' is not installed")

from tests.helpers.federation_net import REGRESSION, BadNeighbour, StudyFederation
from tests.helpers.kits import Members

from dpadmm.data.schema import Schema, load_schema
from dpadmm.errors import LedgerError, ParameterError, PreflightStop
from dpadmm.federation.config import AgreedRun, load_node_config
from dpadmm.federation.joining import current_kit
from dpadmm.federation.kit import readme
from dpadmm.federation.membership import load_federation, remove, write_change
from dpadmm.federation.node import check_node, check_own_rows, look_before_start
from dpadmm.federation.node_study import study_shard
from dpadmm.federation.runtime import prepare_node
from dpadmm.ledger.sqlite import SQLiteLedger
from dpadmm.privacy.noise import secure_noise
from dpadmm.run.charges import check_owner, open_runs
from dpadmm.run.config import validated
from dpadmm.run.plan import announced
from dpadmm.solvers.workspace import Workspace

KEY = 7
NAMES = ("north", "south", "west")
ROWS = (900, 700, 800)
LINKS = [["west", "north"], ["south", "west"]]


def planned(federation, text):
    """The plan of an agreed study."""
    agreed = validated(AgreedRun, tomllib.loads(text), federation.folder, "agreed")
    return agreed.plan(federation.schema)


@pytest.fixture
def make_study(fork_server, tmp_path):
    made = []

    def make(kind, *, averager=None, simulation=None, policy=None, tls=True, **more):
        federation = StudyFederation(
            tmp_path / "federation",
            fork_server,
            NAMES,
            kind,
            study=more,
            rows=ROWS,
            averager=averager,
            tls=tls,
        )
        federation.simulated = simulation is not None
        made.append(federation)
        for name in federation.nodes:
            party = name != federation.averager
            if party and simulation is None:
                federation.make_ledger(name)
            told = simulation if party else None
            federation.write(name, simulation=told, policy=policy)
        return federation

    yield make
    for federation in made:
        federation.close()


@pytest.mark.parametrize(
    ("kind", "noise", "graph", "people"),
    [
        ("describe", "own", "hub", 1),
        ("describe", "own", "path", 3),
        ("describe", "shared", "complete", 1),
        ("infer", "own", "complete", 1),
        ("infer", "own", "path", 1),
        ("infer", "shared", "hub", 1),
        ("infer", "shared", "path", 1),
        ("survival", "own", "hub", 2),
        ("describe", "own", LINKS, 1),
    ],
)
def test_nodes_find_what_one_process_finds(make_study, kind, noise, graph, people):
    averager = graph if graph == "hub" else None
    more = {"noise": noise, "topology": "server" if averager else graph, "holdout": 0.25}
    more |= {"rows_per_person": people, "epsilon": 4.0 if kind != "survival" else 40.0}
    federation = make_study(kind, averager=averager, simulation=KEY, **more)
    for name in federation.nodes:
        federation.start(name)
    federation.finish()
    wanted = federation.in_one_process(KEY)
    records = [federation.record(name) for name in NAMES]
    for name, record in zip(NAMES, records, strict=True):
        # To the last bit: all sums are the same.
        assert record["found"] == wanted
        assert record["federation"]["agreed_by"] == list(NAMES)
        assert list(record["privacy"]["parties"]) == [name]
        assert record["privacy"]["simulated"]
        statement = (federation.folder / f"{name}.statement").read_text()
        assert "heard the same in every round" in statement
        assert "order of rows" in statement
        assert (f"up to {people} rows" in " ".join(statement.split())) == (people > 1)
        assert "simulation" in (federation.folder / f"{name}.html").read_text().lower()
        assert not (federation.folder / f"{name}.model").exists()


@pytest.mark.parametrize("noise", ["own", "shared"])
def test_a_study_is_charged_once_whatever_kills_a_node(make_study, noise):
    more = {"topology": "server", "holdout": 0.25}
    federation = make_study("infer", averager="hub", noise=noise, **more)
    for name in ("hub", "north", "south"):
        federation.start(name)
    for name in ("north", "south"):
        federation.wait_for(name, "agreeing")
    federation.start("west")
    federation.wait_for("west", "round")
    federation.kill("west")
    with SQLiteLedger(federation.folder / "west.ledger") as ledger:
        before = dict(ledger.account.runs["trial"].commits)
    federation.start("west")
    federation.finish()
    found = [federation.record(name)["found"] for name in NAMES]
    assert found[0] == found[1] == found[2]
    for name in NAMES:
        record = federation.record(name)
        assert not record["privacy"]["simulated"]
        assert record["privacy"]["epsilon"] <= 4.0
        with SQLiteLedger(federation.folder / f"{name}.ledger") as ledger:
            account = ledger.verify()
        (run,) = account.runs.values()
        assert sorted(run.events) == [0, 1, 2, 3]
        # Rows that are held out are not read, and nothing is charged for them.
        read, kept_out = account.parts
        assert run.rows == read.rows == (0, federation.rows[name] * 3 // 4)
        assert read.spent > 0 == kept_out.spent
        assert account.spent_epsilon == pytest.approx(record["privacy"]["epsilon"], rel=1e-6)
        if name == "west":
            assert before.items() <= run.commits.items()
    # Started again when all is done, nothing is charged again, and the figures are the same.
    spent = account.spent_epsilon
    for name in federation.nodes:
        federation.start(name)
    federation.finish()
    assert federation.record("west")["found"] == found[2]
    with SQLiteLedger(federation.folder / "west.ledger") as ledger:
        assert ledger.account.spent_epsilon == spent


def test_rows_of_one_person_are_charged_together(make_study):
    """By a ledger that counts as many; one that counts fewer refuses, before a row is read."""
    more = {"rows_per_person": 3, "epsilon": 40.0, "topology": "path", "tls": False}
    federation = make_study("survival", **more)
    (federation.folder / "north.ledger").unlink()
    federation.make_ledger("north", rows_per_person=1)
    federation.start("north")
    assert federation.wait("north") == 2
    assert "rows_per_person must be the ledger's, 1; got 3" in federation.output("north")
    assert not federation.log("north", "encoding")
    (federation.folder / "north.ledger").unlink()
    (federation.folder / "north.messages").unlink()
    federation.make_ledger("north")
    for name in federation.nodes:
        federation.start(name)
    federation.finish()
    for name in NAMES:
        record = federation.record(name)
        with SQLiteLedger(federation.folder / f"{name}.ledger") as ledger:
            account = ledger.verify()
        assert account.spent_epsilon == pytest.approx(record["privacy"]["epsilon"], rel=1e-6)
        assert 39.0 < record["privacy"]["epsilon"] <= 40.0


@pytest.mark.parametrize("graph", ["complete", "hub", "path"])
def test_a_study_ends_where_a_node_is_lost(make_study, graph):
    """Nobody goes on without it: every node ends by itself, and says what stays spent."""
    policy = {"when_lost": "continue", "lost_after": 3, "serve_for": 600}
    averager = graph if graph == "hub" else None
    topology = "server" if averager else graph
    federation = make_study("infer", averager=averager, topology=topology, policy=policy)
    west = BadNeighbour(federation)
    west.rounds = 2
    others = [name for name in federation.nodes if name != "west"]
    try:
        for name in others:
            federation.start(name)
        assert west.asked_too_far.wait(120)
    finally:
        west.session.close()
    for name in others:
        assert federation.wait(name) == 75
        said = federation.output(name)
        assert "west was lost before all rounds were complete: there are no figures" in said
        assert not federation.log(name, "finished")
        if name == averager:
            assert "what parties were charged stays spent" in said
            continue
        assert not list(federation.folder.glob(f"{name}.record"))
        with SQLiteLedger(federation.folder / f"{name}.ledger") as ledger:
            account = ledger.verify()
        charged = len(account.runs["trial"].events)
        assert f"{charged} of 4 rounds were charged here, and stay spent" in said
        assert 2 <= charged <= 3
        assert 0 < account.spent_epsilon < 4.0


@pytest.mark.parametrize(
    ("policy", "study", "words"),
    [
        ({"epsilon": 1.0}, {}, "epsilon must be at most what .policy. allows, 1"),
        ({"algorithms": ["dp-gd"]}, {}, "algorithm must be one that .policy. allows .dp-gd"),
        ({"colluders": 2}, {"noise": "shared"}, "colluders must be at least what .policy. demands"),
    ],
)
def test_a_node_refuses_a_study_that_its_owner_does_not_allow(make_study, policy, study, words):
    federation = make_study("describe", policy=policy, topology="complete", **study)
    (federation.folder / "north.csv").write_text("age,ward,y\n")
    config = load_node_config(federation.folder / "north.toml")
    with pytest.raises(ParameterError, match=words):
        prepare_node(config)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('kind = "describe"', 'kind = "guess"', "kind under .study. must be 'describe' or 'infer'"),
        ('kind = "describe"', 'kind = "infer"', ".wish. must be given with kind = .describe."),
        ('run_id = "trial"', "", "run_id under .study. must be given"),
        ("[study]", "[run]\n[study]", "either is agreed on, not both"),
        ("[[party]]", "[infer]\n[[party]]", ".infer. must be given with kind = .infer."),
        ("epsilon = 4.0", "simulation_key = 1", "simulation_key under .study. must not"),
        ("epsilon = 4.0", "evaluate = true", "evaluate under .study. is not a known key"),
        ("epsilon = 4.0", "epsilon = 0.0", "epsilon"),
        ('"age"', '"weight"', "a numeric column with public bounds must be one of: age"),
    ],
)
def test_an_agreed_study_is_refused_in_a_sentence(make_study, old, new, words):
    federation = make_study("describe", topology="complete", tls=False)
    text = federation.agreed_text()
    assert old in text
    with pytest.raises(ParameterError, match=words):
        planned(federation, text.replace(old, new, 1))


def test_a_regression_that_would_drown_is_refused_before_a_row_is_read(make_study):
    federation = make_study("infer", topology="complete", tls=False)
    text = federation.agreed_text(epsilon=0.05)
    with pytest.raises(ParameterError, match="must not drown in its noise"):
        planned(federation, text)


def test_results_of_a_study_are_a_record_and_no_model(make_study):
    federation = make_study("describe", topology="complete", tls=False)
    place = federation.folder / "north.toml"
    text = place.read_text()
    for change, words in (
        ('record = "north.record"\nmodel = "north.model"', "model under .result. must be left out"),
        ("", "record under .result. must be given"),
    ):
        place.write_text(text.replace('record = "north.record"', change))
        with pytest.raises(ParameterError, match=words):
            prepare_node(load_node_config(place), insecure_loopback=True)


def test_what_is_asked_is_agreed_on_and_no_other_record_is_overwritten(make_study):
    federation = make_study("describe", topology="complete", tls=False)
    schema = federation.schema
    digests = set()
    for old, new in (("mean", "mean"), ("mean", "sd"), ('by = "ward"', "")):
        text = federation.agreed_text().replace(old, new, 1)
        agreed = validated(AgreedRun, tomllib.loads(text), federation.folder, "agreed")
        digests.add(agreed.digest(schema))
    assert len(digests) == 3
    (federation.folder / "north.record").write_text('{"run_sha256": "ab", "format": 1}')
    with pytest.raises(ParameterError, match="that of another run"):
        prepare_node(load_node_config(federation.folder / "north.toml"), insecure_loopback=True)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('columns = ["age"]', 'columns = ["ward"]'),
        ("upper = 100", "upper = 90"),
        ('[node]\nname = "north"', '[node]\nname = "north"\naliases = {ward = {first = "a"}}'),
    ],
)
def test_one_name_in_a_ledger_is_never_two_questions(make_study, old, new):
    """As many columns, or other bounds: the sums have one form, and must not be mixed up."""
    federation = make_study("infer", topology="complete", tls=False)
    federation.tables = REGRESSION.replace('["age", "ward"]', '["age"]')

    def at_north(old="", new=""):
        federation.write("north")
        for place in federation.folder.glob("*.toml"):
            # Which schema is not agreed on, for one with other bounds.
            text = re.sub("^schema_sha256.*$", "", place.read_text(), flags=re.M)
            place.write_text(text.replace(old, new))
        config = load_node_config(federation.folder / "north.toml")
        setup = prepare_node(config, insecure_loopback=True)
        (found,) = (check for check in check_node(setup) if check.check == "ledger")
        return setup, found

    setup, found = at_north()
    assert found.ok, found.words
    own, study = setup.planned.of_party(0), {"preparation": setup.preparation}
    with SQLiteLedger(federation.folder / "north.ledger") as ledger:
        for run in open_runs(own, [ledger], "trial", secure_noise(), part=setup.view.part, **study):
            run.reserve(0, announced(own)[0][0])
            run.close()
    # Only what is made of the sums differs: that is free.
    federation.tables += "level = 0.5\n"
    assert at_north()[1].ok
    _, found = at_north(old, new)
    assert not found.ok
    assert "must continue with the parameters it began with" in found.words


def test_bounds_lead_to_a_training_between_nodes_with_the_same_ledgers(make_study):
    federation = make_study("describe", topology="complete", tls=False)
    federation.tables = '[[wish]]\nkind = "bounds"\ncolumns = ["age"]\n'
    for name in federation.nodes:
        federation.write(name)
        federation.start(name)
    federation.finish()
    wide = federation.schema
    narrow = load_schema(federation.folder / "north.record.schema.toml")
    assert narrow.hashes == (narrow.sha256, wide.sha256)
    assert load_schema(federation.folder / "west.record.schema.toml").sha256 == narrow.sha256
    with SQLiteLedger(federation.folder / "north.ledger") as ledger:
        known = replace(ledger.dataset, schema_hash=wide.sha256)
        place = federation.folder / "known.ledger"
        SQLiteLedger.create(place, known, ledger.policy).close()
    with SQLiteLedger(place) as ledger:
        check_owner("north", ledger, narrow)
        with pytest.raises(LedgerError, match="must be about rows of this schema"):
            check_owner("north", ledger, Schema.from_dict(narrow.model_dump() | {"constant": 2.0}))


def test_the_pre_flight_of_a_node_knows_what_a_regression_asks(make_study):
    """Counts that are no counts are told to the owner of the rows, and to nobody else."""
    federation = make_study("infer", topology="complete", policy={"preflight": "stop"}, tls=False)
    schema = federation.folder / "schema.toml"
    schema.write_text(schema.read_text().replace("lower = 0", "lower = -50"))
    federation.tables = '[infer]\nfamily = "poisson"\nresponse = "age"\ncolumns = ["ward"]\n'
    agreed = re.sub("^schema_sha256.*$", "", federation.agreed_text(), flags=re.M)
    federation.write("north", policy={"preflight": "stop"}, agreed=agreed)
    place = federation.folder / "north.csv"
    setup = prepare_node(load_node_config(federation.folder / "north.toml"), insecure_loopback=True)
    look_before_start(setup, None)
    place.write_text(re.sub(r"^(\d*[0-4]),", r"-\1.5,", place.read_text(), flags=re.M))
    with pytest.raises(PreflightStop) as stopped:
        look_before_start(setup, None)
    told = setup.config.preflight_file.read_text()
    assert "rows have a count below zero, and become a fixed row" in told
    assert "count" not in str(stopped.value)
    (found,) = check_own_rows(setup, None)
    assert not found.ok
    assert "count" not in found.words


def test_a_federation_is_set_up_for_a_study(tmp_path):
    """One public file with [study] makes kits; the next revision is another study."""
    study = {"kind": "describe", "run_id": "table-1", "epsilon": 1.0, "delta": 1e-3}
    members = Members(tmp_path)
    table = tomllib.loads(members.file.read_text())
    del table["run"]
    wishes = [{"kind": "mean", "columns": ["age"]}]
    members.write(table | {"study": study, "wish": wishes})
    members.set_up()
    config = load_node_config(members.place("north") / "node.toml")
    assert config.policy.algorithms == ("describe",)
    assert config.result.model is None
    assert config.result.record.name == "table-1.json"
    assert prepare_node(config).question is not None
    after = write_change(members.file, lambda before, told: remove(told, "west"))
    assert after.run_id == after.check().run.run_id == "table-2"
    assert "asks the study 'describe'" in readme(
        current_kit(members.place("north")).facts, after.check()
    )
    table["run"] = {"run_id": "x"}
    members.write(table | {"study": study, "wish": wishes})
    with pytest.raises(ParameterError, match="either is agreed on, not both"):
        load_federation(members.file).check()


def test_rows_that_are_held_out_are_not_laid_out(make_study):
    federation = make_study(
        "describe", topology="complete", simulation=KEY, tls=False, holdout=0.25
    )
    config = load_node_config(federation.folder / "north.toml")
    setup = prepare_node(config, insecure_loopback=True)
    own = setup.planned.of_party(0)
    workspace = Workspace(study_shard(setup), own.algorithm.row_site(own.site))
    found = workspace.totals(lambda rows, responses: np.array([float(len(rows))]), 1)
    assert found.ravel().tolist() == [ROWS[0] * 0.75]
