"""Before ``train`` and ``evaluate`` spend anything, the owner alone is told what looks wrong."""

import hashlib
import os
import pty
import select
import stat
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest
from tests.helpers.neighbours import masked, masked_record
from tests.helpers.wards import SCHEMA

from dpadmm.data.encode import survey
from dpadmm.data.schema import Schema
from dpadmm.data.tables import encoded_batches
from dpadmm.errors import PreflightStop
from dpadmm.ledger.base import ChargedData
from dpadmm.ledger.filters import Policy
from dpadmm.ledger.sqlite import SQLiteLedger
from dpadmm.run.config import load_config
from dpadmm.run.files import Findings, Watch, train_run
from dpadmm.run.model import load_model

SOURCE = str(Path(__file__).parents[2] / "src")
WARDS = Schema.from_toml(SCHEMA)
ROWS = {"north": 60, "south": 40, "west": 20}
PRIVATE = 'algorithm = "dp-gd"\nepsilon = 8.0\ndelta = 1e-3\nholdout = 0.25\nrun_id = "first"'
#: Of what only the owner may know.
PRIVATE_WORDS = ("label", "LOOKS", "column", "ward", "%")


def write(folder, rule=None, *, run=PRIVATE, budget=20.0):
    """A private run that is charged, with its owner's rule."""
    text = (folder / "run.toml").read_text().replace('algorithm = "admm"', run, 1)
    if rule is not None:
        text += f'[policy]\npreflight = "{rule}"\n'
    text += "[ledgers]\n"
    for name, rows in ROWS.items():
        data = ChargedData("rows", name, rows)
        SQLiteLedger.create(folder / f"{name}.ledger", data, Policy(budget, 1e-3)).close()
        text += f'{name} = "{name}.ledger"\n'
    (folder / "run.toml").write_text(text)
    return folder / "run.toml"


def spoil(folder, name="north"):
    """Labels that are spelt otherwise: taken as the first class, which they are."""
    text = (folder / f"{name}.csv").read_text()
    bad = text.count(",no\n")
    (folder / f"{name}.csv").write_text(text.replace(",no\n", ",No\n"))
    share = f"{bad / ROWS[name]:.1%}"
    return f"LOOKS WRONG: {name}: {bad} of {ROWS[name]} labels ({share}) are no class"


def spent(folder):
    found = []
    for name in ROWS:
        with SQLiteLedger(folder / f"{name}.ledger", read_only=True) as ledger:
            found.append((ledger.head, len(ledger.account.runs), ledger.account.spent_epsilon))
    return found


def told(folder):
    """What the owner's file says; nobody else may read it."""
    place = folder / "m.model.preflight"
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    text = place.read_text()
    assert text.startswith("Not covered by the privacy guarantee: do not share this.")
    return text


def shared(folder):
    """What a run gives to others, but for the times in it."""
    model = load_model(folder / "m.model")
    # The page has the hash of the model, and that its time.
    digest = hashlib.sha256((folder / "m.model").read_bytes()).hexdigest()
    page = masked((folder / "m.html").read_text(), (digest, "DIGEST"), (digest[:12], "DIGEST"))
    parts = (model.estimator_parameters, model.provenance, model.privacy.to_dict())
    return model.classifier.coef.tobytes(), parts, page, masked_record(folder / "record.json")


def findings(**cells):
    """What is found in rows of which so many cells are others than they should be."""
    table = {"age": ["50"] * 100, "ward": ["a", "b"] * 50, "y": ["no", "yes"] * 50}
    for name, others in cells.items():
        table[name] = [*others, *table[name][len(others) :]]
    return Findings({"north": survey(encoded_batches(pa.table(table), WARDS), WARDS)})


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ({"y": ["Yes"] * 6}, "6 of 100 labels (6.0%) are no class, and are taken as 'no'"),
        ({"y": ["no"] * 100}, "no label says 'yes'"),
        ({"age": [""] * 100}, "column 'age' is missing in all 100 rows"),
        ({"age": ["101"] * 51}, "51 of the 100 cells of column 'age' are outside the bounds"),
        ({"age": ["101"] * 26 + [""] * 50}, "26 of the 50 cells of column 'age' are outside"),
        ({"ward": ["A"] * 51}, "51 of the 100 cells of column 'ward' are no level"),
    ],
)
def test_what_looks_wrong_is_said(cells, words):
    found = findings(**cells)
    assert words in found.text
    assert len(found.wrong) == 1
    # Printing it does not show it.
    assert "100" not in repr(found)


@pytest.mark.parametrize(
    "cells",
    [
        {},
        {"y": ["Yes"] * 5},
        {"age": [""] * 99},
        {"age": ["101"] * 50},
        {"age": ["101"] * 25 + [""] * 50},
        {"ward": ["a"] * 100},
    ],
)
def test_what_rows_may_well_hold_is_not_wrong(cells):
    found = findings(**cells)
    assert found.wrong == ()
    unused = "ward" in cells
    assert ("levels of column 'ward' that never occur: 'b'" in found.text) == unused
    assert ("Nothing looks wrong." in found.text) == (not unused)


@pytest.mark.parametrize("rule", [None, "ask", "off"])
def test_without_a_terminal_nothing_but_the_owner_s_file_tells_rows_apart(hospitals, dpadmm, rule):
    seen = []
    simulated = 'algorithm = "dp-gd"\nepsilon = 8.0\ndelta = 1e-3\nsimulation_key = 1'
    text = (hospitals / "run.toml").read_text().replace('algorithm = "admm"', simulated)
    policy = "" if rule is None else f'[policy]\npreflight = "{rule}"\n'
    (hospitals / "run.toml").write_text(text + policy)
    for dirty in (False, True):
        if dirty:
            spoil(hospitals)
        for words in ((), ("--json",)):
            done = dpadmm("train", hospitals / "run.toml", *words)
            assert done.exit_code == 0, done.output
            files = {path.name for path in hospitals.iterdir()}
            seen.append((done.stdout, done.stderr, files, shared(hospitals)))
            if rule == "off":
                assert "m.model.preflight" not in files
            else:
                assert ("LOOKS WRONG: north: " in told(hospitals)) == dirty
    clean, clean_json, spoilt, spoilt_json = seen
    # The first run finds no earlier model to warn about.
    assert clean[0] == spoilt[0]
    assert clean[2:] == spoilt[2:]
    assert clean_json == spoilt_json


def test_stop_spends_nothing_and_says_nothing_of_rows(hospitals, dpadmm):
    run = write(hospitals, "stop")
    wrong = spoil(hospitals)
    before = spent(hospitals)
    names = {path.name for path in hospitals.iterdir()}
    for words in ((), ("--json",)):
        done = dpadmm("train", run, *words)
        assert done.exit_code == 4
        assert "the pre-flight ended this run before it began" in done.stderr
        assert not any(word in done.output for word in PRIVATE_WORDS)
    assert spent(hospitals) == before
    assert {path.name for path in hospitals.iterdir()} - names == {"m.model.preflight"}
    assert wrong in told(hospitals)


def test_stop_lets_rows_that_look_right_train(hospitals, dpadmm):
    run = write(hospitals, "stop")
    assert dpadmm("train", run).exit_code == 0
    assert "Nothing looks wrong." in told(hospitals)
    # In no record and no model: it is nobody's business.
    assert "preflight" not in (hospitals / "record.json").read_text()
    assert b"preflight" not in (hospitals / "m.model").read_bytes()


def test_a_run_that_has_begun_goes_on(hospitals, dpadmm):
    run = write(hospitals, "stop")

    class Killed(BaseException):
        pass

    def stop(done, rounds):
        raise Killed

    with pytest.raises(Killed):
        train_run(load_config(run), Watch(on_round=stop))
    spoil(hospitals)
    assert dpadmm("train", run).exit_code == 0
    # Another run has not begun.
    run.write_text(run.read_text().replace('"first"', '"second"').replace('"m.model"', '"n.model"'))
    (hospitals / "record.json").unlink()
    assert dpadmm("train", run).exit_code == 4


def test_a_run_that_is_refused_looks_at_no_row(hospitals, dpadmm):
    run = write(hospitals, "stop", budget=0.5)
    spoil(hospitals)
    assert dpadmm("train", run).exit_code == 2
    assert not (hospitals / "m.model.preflight").exists()


def test_an_evaluation_looks_first_unless_it_was_charged_before(hospitals, dpadmm):
    run = write(hospitals, "stop")
    assert dpadmm("train", run).exit_code == 0
    before = spent(hospitals)
    clean = (hospitals / "north.csv").read_text()
    spoil(hospitals)
    done = dpadmm("evaluate", run)
    assert done.exit_code == 4
    assert not any(word in done.output for word in PRIVATE_WORDS)
    assert spent(hospitals) == before
    (hospitals / "north.csv").write_text(clean)
    assert dpadmm("evaluate", run).exit_code == 0
    assert spent(hospitals) != before
    spoil(hospitals)
    assert dpadmm("evaluate", run, "--epsilon", "8").exit_code == 0


def test_one_file_of_all_parties_is_looked_at_as_one(hospitals):
    lines = ["site,age,ward,y"]
    for name in ROWS:
        cells = (hospitals / f"{name}.csv").read_text().splitlines()[1:]
        lines += [f"{name},{line}" for line in cells]
    (hospitals / "all.csv").write_text("\n".join(lines).replace(",yes", ",YES") + "\n")
    text = (hospitals / "run.toml").read_text()
    start, end = text.index("[[party]]"), text.index("[result]")
    told_file = 'file = "all.csv"\nparty_column = "site"\n'
    policy = '[policy]\npreflight = "stop"\n'
    (hospitals / "run.toml").write_text(text[:start] + told_file + text[end:] + policy)
    with pytest.raises(PreflightStop):
        train_run(load_config(hospitals / "run.toml"))
    assert "LOOKS WRONG: all.csv: no label says 'yes'." in told(hospitals)


def at_terminal(run, answer, *words):
    """The exit code of a training on a terminal, and what stood there."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "dpadmm", "train", str(run), *words],
        stdin=follower,
        stdout=subprocess.PIPE,
        stderr=follower,
        text=True,
        env={**os.environ, "PYTHONPATH": SOURCE, "COLUMNS": "200"},
    )
    os.close(follower)
    shown, answered, deadline = "", False, time.monotonic() + 120
    try:
        while time.monotonic() < deadline:
            if select.select([leader], [], [], 0.1)[0]:
                try:
                    shown += os.read(leader, 1 << 16).decode()
                except OSError:
                    break
            if not answered and "[y/N]" in shown:
                os.write(leader, answer)
                answered = True
        out, _ = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        os.close(leader)
    return process.returncode, shown, out


@pytest.mark.parametrize("answer", [b"n\n", b"\n", b"\x04"])
def test_the_owner_at_a_terminal_is_asked_and_may_say_no(hospitals, answer):
    run = write(hospitals)
    wrong = spoil(hospitals)
    before = spent(hospitals)
    code, shown, out = at_terminal(run, answer)
    assert code == 4, shown
    assert wrong in shown
    assert "do not share this" in shown
    assert out == ""
    assert spent(hospitals) == before
    assert not (hospitals / "m.model").exists()


def test_the_owner_at_a_terminal_may_go_on(hospitals):
    run = write(hospitals)
    wrong = spoil(hospitals)
    before = spent(hospitals)
    code, shown, out = at_terminal(run, b"y\n", "--json")
    assert code == 0, shown
    assert wrong in shown
    assert "Spend the budget on these rows all the same? [y/N]" in shown
    # What others may be given has nothing of it.
    for shared_words in (out, (hospitals / "record.json").read_text()):
        assert not any(word in shared_words for word in wrong.split(": ")[::2])
    assert spent(hospitals) != before


def test_rows_that_look_right_ask_nothing(hospitals):
    code, shown, _ = at_terminal(write(hospitals), b"n\n")
    assert code == 0
    assert "Pre-flight" not in shown


def test_a_rule_that_is_none_is_refused(hospitals, dpadmm):
    done = dpadmm("train", write(hospitals, "maybe"))
    assert done.exit_code == 2
    assert "preflight under [policy] must be 'ask', 'stop' or 'off'; got 'maybe'" in done.stderr
