"""``dpadmm describe``: charged once, free when asked again; a plan before, a page after."""

import json

import numpy as np
import pandas as pd
import pytest
from tests.helpers.study_files import LABEL, WARD, numeric, result_of, spent, write_study

from dpadmm.data.schema import load_schema
from dpadmm.ledger.base import ChargedData
from dpadmm.ledger.filters import Policy
from dpadmm.ledger.sqlite import SQLiteLedger

ROWS = {"north": 900, "south": 700, "west": 600}
SCHEMA = LABEL + numeric("age", 0, 1e6) + WARD
WISHES = """
[[wish]]
kind = "proportion"
columns = ["died"]
by = "ward"

[[wish]]
kind = "table"
columns = ["ward", "died"]
"""
BOUNDS = """
[[wish]]
kind = "bounds"
columns = ["age"]
"""


@pytest.fixture
def study(tmp_path):
    random = np.random.default_rng(0)
    for name, count in ROWS.items():
        frame = pd.DataFrame(
            {
                "age": random.normal(60, 10, count).round(1),
                "ward": random.choice(["a", "b"], count),
                "died": random.choice(["no", "yes"], count),
            }
        )
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    (tmp_path / "schema.toml").write_text(SCHEMA)

    def write(settings="", wishes=WISHES, result="", ledgers=None, rows=True):
        about = f"epsilon = 1.0\ndelta = 1e-5\n{settings}"
        more = {"asked": wishes, "result": result, "ledgers": ledgers, "told": rows}
        return write_study(tmp_path, "describe.toml", ROWS, about, **more)

    return write


@pytest.mark.parametrize("noise", ["own", "shared"])
def test_a_study_is_charged_once_and_says_the_same_again(study, dpadmm, tmp_path, noise):
    pytest.importorskip("opendp")
    config = study(f'noise = "{noise}"', ledgers=1.5)
    first = result_of(dpadmm("describe", config, "--json"))
    assert 0.9 < spent(tmp_path) <= 1.0001
    before = spent(tmp_path)
    again = result_of(dpadmm("describe", config, "--json"))
    assert again["found"] == first["found"]
    assert spent(tmp_path) == before
    assert first["privacy"]["epsilon"] <= 1.0
    assert {figure["kind"] for figure in first["found"]} == {"proportion", "table"}
    for figure in first["found"]:
        assert figure["low"] <= figure["value"] <= figure["high"]
    page = (tmp_path / "found.html").read_text()
    for words in ("What was asked?", "What was spent?", "ward=a", "Split of the budget"):
        assert words in page
    assert json.loads((tmp_path / "found.json").read_text())["run_id"] == first["run_id"]


def test_other_spellings_are_another_study(study, dpadmm, tmp_path):
    """The schema's hash says nothing of them: what was counted as other is now a level."""
    pytest.importorskip("opendp")
    rows = tmp_path / "north.csv"
    rows.write_text(rows.read_text().replace(",a,", ",first,"))
    told = 'run_id = "one"'
    result_of(dpadmm("describe", study(told, ledgers=3.0), "--json"))
    named, once = study(told, ledgers=3.0), spent(tmp_path)
    spelt = "[data]\naliases = {ward = {first = 'a'}}"
    named.write_text(named.read_text().replace("[data]", spelt))
    done = dpadmm("describe", named)
    assert done.exit_code == 2
    assert "they differ" in " ".join(done.output.split())
    # Without a name it is charged as the other study that it is.
    named.write_text(named.read_text().replace(told, ""))
    found = result_of(dpadmm("describe", named, "--json"))["found"]
    assert spent(tmp_path) > once
    assert next(each for each in found if each.get("by") == "a" or "a" in str(each))


def test_the_page_is_made_again_from_the_record(study, dpadmm, tmp_path):
    assert dpadmm("describe", study("simulation_key = 3")).exit_code == 0
    first = (tmp_path / "found.html").read_text()
    done = dpadmm("report", tmp_path / "found.json", "-o", tmp_path / "again.html")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "again.html").read_text() == first


def test_another_study_is_refused_where_it_does_not_fit_and_no_row_is_read(
    study, dpadmm, tmp_path, monkeypatch
):
    pytest.importorskip("opendp")
    assert dpadmm("describe", study(ledgers=1.2)).exit_code == 0

    def never(*args):
        raise AssertionError("rows were read")

    monkeypatch.setattr("dpadmm.studies.study_files.read_parties_rows", never)
    before = spent(tmp_path)
    done = dpadmm("describe", study(wishes=WISHES + "weight = 2.0\n", ledgers=1.2))
    assert done.exit_code == 2
    assert "budget" in done.output
    assert spent(tmp_path) == before


def test_a_simulation_is_called_one(study, dpadmm, tmp_path):
    done = dpadmm("describe", study("simulation_key = 3"))
    assert done.exit_code == 0, done.output
    assert "SIMULATION" in (tmp_path / "found.html").read_text()
    lines = done.stdout.split("Found")[1].split("Guarantee")[0].splitlines()
    assert max(map(len, lines)) <= 80


def test_held_out_rows_are_left_alone(study, dpadmm, tmp_path):
    told = result_of(dpadmm("describe", study("simulation_key = 3\nholdout = 0.2"), "--json"))
    assert told["rows"] == 0.8 * sum(ROWS.values())
    assert told["parties"][0]["rows"] == 720


def test_bounds_go_into_a_schema_that_says_so(study, dpadmm, tmp_path):
    config = study("simulation_key = 3", wishes=BOUNDS, result="schema = 'narrow.toml'")
    done = dpadmm("describe", config)
    assert done.exit_code == 0, done.output
    assert "Proposed bounds" in done.stdout
    schema = load_schema(tmp_path / "narrow.toml")
    assert schema.columns[0].upper == 128.0
    assert schema.measured[0].columns == ("age",)
    assert schema.measured[0].epsilon == pytest.approx(1.0)
    # With noise that can be drawn again they are exact to whoever does.
    assert "(a simulation, whose noise protects nobody)" in schema.measured[0].study


def test_bounds_lead_to_a_training_with_the_same_ledgers(study, dpadmm, tmp_path):
    """Ledgers that know the schema's hash take the schema whose bounds alone a study narrowed."""
    pytest.importorskip("opendp")
    wide = load_schema(tmp_path / "schema.toml").sha256
    for name, count in ROWS.items():
        about = ChargedData("rows", name, count, wide)
        SQLiteLedger.create(tmp_path / f"{name}.ledger", about, Policy(3.0, 1e-5)).close()
    config = study(wishes=BOUNDS, result="schema = 'narrow.toml'", ledgers=3.0)
    done = dpadmm("describe", config)
    assert done.exit_code == 0, done.output
    assert "Next step" in done.stdout
    narrow = load_schema(tmp_path / "narrow.toml")
    assert narrow.sha256 != wide
    assert narrow.hashes == (narrow.sha256, wide)
    tables = config.read_text().partition("[data]")[2].partition("[[wish]]")[0]
    run = "[run]\nalgorithm = 'dp-gd'\nrounds = 12\nepsilon = 1.0\ndelta = 1e-6\n[data]"
    run += tables.replace("record = 'found.json'", "model = 'my.model'")
    run = run.replace("schema = 'narrow.toml'\n", "").replace("schema.toml", "narrow.toml")
    (tmp_path / "run.toml").write_text(run)
    text, before = (tmp_path / "narrow.toml").read_text(), spent(tmp_path)
    # What differs in more than bounds and scale is refused still, whatever it says of itself.
    for old, new in (('    "b",', '    "c",'), ("missing = true", "missing = false")):
        assert old in text
        (tmp_path / "narrow.toml").write_text(text.replace(old, new, 1))
        done = dpadmm("train", tmp_path / "run.toml")
        assert done.exit_code == 2
        assert "must be about rows of this schema" in " ".join(done.output.split())
    assert spent(tmp_path) == before
    (tmp_path / "narrow.toml").write_text(text)
    done = dpadmm("train", tmp_path / "run.toml")
    assert done.exit_code == 0, done.output
    assert spent(tmp_path) > before


def test_a_plan_reads_and_spends_nothing(study, dpadmm, tmp_path):
    config = study()
    for name in ROWS:
        (tmp_path / f"{name}.csv").unlink()
    told = result_of(dpadmm("describe", config, "--plan", "--json"))
    assert told["rows"] == ROWS
    assert sum(told["split"].values()) == pytest.approx(1.0)
    narrow = result_of(dpadmm("describe", config, "--plan", "--width", "0.1", "--json"))
    assert max(each["relative_width"] for each in narrow["expected"]) <= 0.1
    less = result_of(
        dpadmm("describe", config, "--plan", "--epsilon", narrow["epsilon"] / 1.1, "--json")
    )
    assert max(each["relative_width"] for each in less["expected"]) > 0.1
    assert dpadmm("describe", config, "--plan").exit_code == 0
    assert not (tmp_path / "found.json").exists()


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ({"wishes": ""}, "wish must be given"),
        ({"wishes": WISHES.replace("proportion", "share")}, "kind"),
        ({"wishes": WISHES.replace("proportion", "mean")}, "numeric column with public bounds"),
        ({"result": "schema = 'narrow.toml'"}, 'kind = "bounds"'),
        ({"settings": "epsilon_ = 1"}, "epsilon_"),
        ({"result": "report = 'north.csv'"}, "must not overwrite"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(study, dpadmm, tmp_path, written, words):
    done = dpadmm("describe", study(**written))
    assert done.exit_code == 2
    assert words in done.output
    assert not (tmp_path / "found.json").exists()


def test_a_plan_without_declared_rows_asks_for_them(study, dpadmm):
    done = dpadmm("describe", study(rows=False), "--plan")
    assert done.exit_code == 2
    assert "rows must be declared" in done.output
    done = dpadmm("describe", study(), "--width", "0.1")
    assert "--plan" in done.output
