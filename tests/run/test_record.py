"""The record of a run: one shape, written, read and shown."""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from dpadmm.errors import ParameterError
from dpadmm.ledger.base import ChargedData
from dpadmm.ledger.filters import Policy
from dpadmm.ledger.sqlite import SQLiteLedger
from dpadmm.privacy.events import SharedGaussian
from dpadmm.run.config import load_config
from dpadmm.run.files import train_run, write_results
from dpadmm.run.result import LedgerCheck, RecordedRun, ledger_checks, read_record

GOLDEN = Path(__file__).parents[1] / "golden" / "record.json"


def content():
    return json.loads(GOLDEN.read_text())


def test_what_is_written_is_what_was_recorded(hospitals):
    run = train_run(load_config(hospitals / "run.toml"))
    record = write_results(run)
    found = read_record(hospitals / "record.json")
    assert found.plain() == record.plain()
    assert list(run.summary()) == [name for name in record.plain() if name in run.summary()]
    assert run.summary()["run_sha256"] == record.run_sha256 == run.sha256
    # Without privacy every epsilon is infinite, and so it is when it is read again.
    assert found.epsilon_after_rounds["north"] == (math.inf,) * 12
    assert not found.private


def test_what_does_not_apply_to_a_run_is_left_out(hospitals):
    record = train_run(load_config(hospitals / "run.toml")).record()
    assert "command" not in record.plain()
    assert "federation" not in record.plain()
    assert record.ledger_checks == {}


def test_a_statement_in_a_record_is_the_statement():
    read = RecordedRun.from_dict(content())
    assert read.privacy.to_dict() == content()["privacy"]
    assert read.privacy.parties["north"].odds.right > 0.5
    # Against whom it holds is what was recorded, whatever later versions say.
    other = content()["privacy"] | {"adversary": "sees little"}
    assert RecordedRun.from_dict(content() | {"privacy": other}).privacy.to_dict() == other
    # The order at which a Renyi bound is best may be infinite; JSON has no figure for that.
    north = replace(read.privacy.parties["north"], order=math.inf)
    changed = replace(read.privacy, parties={**read.privacy.parties, "north": north})
    written = json.loads(json.dumps(changed.to_dict(), allow_nan=False))
    assert RecordedRun.from_dict(content() | {"privacy": written}).privacy == changed


def test_a_record_keeps_all_that_a_ledger_said(tmp_path):
    path = shutil.copy(GOLDEN.with_name("hospital.ledger"), tmp_path)
    (check,) = ledger_checks({"north": path}).values()
    recorded = LedgerCheck.model_validate(check).model_dump(mode="json")
    assert json.dumps(recorded) == json.dumps(check)
    assert LedgerCheck.model_validate({**check, "when": "now"}).when == "now"


def test_a_record_keeps_what_was_spent_if_all_others_collude(tmp_path):
    path, dataset = tmp_path / "x.ledger", ChargedData("rows", "north", 100)
    with (
        SQLiteLedger.create(path, dataset, Policy(2.0, 1e-5)) as ledger,
        ledger.open_run("run", "mark") as run,
    ):
        run.reserve(0, SharedGaussian(1.0, 40.0, 20, 9))
    (check,) = ledger_checks({"north": path}).values()
    assert check["account"]["spent_epsilon_alone"] > check["account"]["spent_epsilon"]
    recorded = LedgerCheck.model_validate(check).model_dump(mode="json")
    assert json.dumps(recorded) == json.dumps(check)


@pytest.mark.parametrize("name", ["reviewed", "claim", "details", "caveats", "theorem"])
def test_a_statement_of_an_older_version_is_read(name):
    old = content()
    del old["privacy"][name]
    assert RecordedRun.from_dict(old).privacy.epsilon == content()["privacy"]["epsilon"]


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("privacy", "epsilon"), -1.0),
        (("privacy", "epsilon"), "much"),
        (("privacy", "delta"), 2.0),
        (("privacy", "parties"), {}),
        (("privacy", "parties", "north", "epsilon"), None),
        (("privacy", "parties", "north", "theorem"), ["a"]),
        (("privacy", "details"), [["a"]]),
        (("privacy", "rounds"), {"north": 3}),
        (("privacy",), "none"),
        (("parties",), 3),
        (("federation",), {"lost": "west"}),
        (("ledger_checks",), {"north": {"account": {}}}),
        (("learnt", "weights"), [{"feature": "a", "towards": "b", "weight": "nan"}]),
    ],
)
def test_a_damaged_record_is_refused_where_it_is_damaged(place, value):
    damaged = content()
    inner = damaged
    for name in place[:-1]:
        inner = inner[name]
    inner[place[-1]] = value
    said = rf"r\.json must be a run record of dpadmm; its field '{place[0]}.*"
    with pytest.raises(ParameterError, match=said) as refusal:
        RecordedRun.from_dict(damaged, "r.json")
    assert "\n" not in str(refusal.value)


def test_a_field_that_is_missing_is_named_as_one():
    """A record has a field that is called like the program."""
    damaged = content()
    del damaged["dpadmm"]
    with pytest.raises(ParameterError, match=r"of dpadmm; its field 'dpadmm' is missing\.$"):
        RecordedRun.from_dict(damaged, "r.json")
