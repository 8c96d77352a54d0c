"""``dpadmm plan``: tables that fit, JSON that its schema describes, a configuration that trains."""

import csv
import json
import tomllib
from importlib.resources import files

import jsonschema
import numpy as np
import pytest

SCHEMA = json.loads(files("dpadmm.cli").joinpath("output.schema.json").read_text())
QUICK = ("--quick", "--jobs", "1", "--rounds", "3")
FACTS = ("--rows", "300", "--parties", "3", "--features", "4", "--delta", "1e-4")
COLUMNS = """
version = 2
constant = true
label = {column = "y", classes = ["no", "yes"]}
columns = [{name = "x", kind = "numeric", lower = 0, upper = 1}]
"""


def test_it_answers_in_tables_of_eighty_columns(dpadmm, monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "80")
    result = dpadmm("plan", *FACTS, *QUICK, "--loss", "3", "--output", tmp_path / "plan")
    assert result.exit_code == 0
    text = result.stdout
    for words in ("expect to lose", "rows x4", "Smallest epsilon for a loss of 3", "Recommended"):
        assert words in text
    tables = [line for line in text.splitlines() if line[:1] in "┏┃┡│└"]
    assert tables
    assert max(map(len, tables)) <= 80
    # Names are whole, so that they can be copied.
    assert "dp-gd:noise=shared" in text
    assert "m-admm:noise=gaussian" in text
    assert "Not rehearsed with --quick: pr-admm," in text
    for name in ("report.html", "figure.svg", "figure.csv", "plan.json"):
        assert (tmp_path / "plan" / name).stat().st_size > 100
    page = (tmp_path / "plan" / "report.html").read_text()
    assert "What to expect of a run" in page
    assert "nothing was spent" in page


def test_its_json_is_described_and_a_cluster_gives_the_same(dpadmm, dask_workers):
    asked = ("plan", *FACTS, *QUICK, "--loss", "2", "--json")
    output = json.loads(dpadmm(*asked).stdout)
    # Its workers see no folder of this command.
    there = dpadmm(*asked, "--backend", "dask", "--address", dask_workers.address)
    assert json.loads(there.stdout) == output
    jsonschema.Draft202012Validator(SCHEMA).validate(output)
    assert set(output["result"]) <= set(SCHEMA["$defs"]["plan"]["properties"])
    assert [each["who"] for each in output["result"]["candidates"]][:2] == [
        "dp-gd",
        "dp-gd:noise=shared",
    ]
    assert output["result"]["band"]["low"] < output["result"]["band"]["high"]


def test_what_it_writes_can_be_trained_once_files_are_there(dpadmm, tmp_path, monkeypatch):
    (tmp_path / "public").mkdir()
    (tmp_path / "public" / "schema.toml").write_text(COLUMNS)
    monkeypatch.chdir(tmp_path / "public")
    facts = ("--rows", "40,30", "--schema", "schema.toml", "--delta", "1e-3")
    assert dpadmm("plan", *facts, *QUICK, "--write", tmp_path / "run.toml").exit_code == 0
    monkeypatch.chdir(tmp_path)
    told = tomllib.loads((tmp_path / "run.toml").read_text())
    assert told["data"]["schema"] == "public/schema.toml"
    assert told["run"]["rounds"] == 3
    draw = np.random.default_rng(0)
    for party in told["party"]:
        with open(tmp_path / party["file"], "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["x", "y"])
            for value in draw.random(party["rows"]):
                writer.writerow([value, "yes" if value > 0.5 else "no"])
    trained = dpadmm("train", "run.toml", "--json")
    assert trained.exit_code == 0
    assert json.loads(trained.stdout)["result"]["privacy"]["epsilon"] <= 1.0
    # What was written is asked about like any other configuration.
    again = dpadmm("plan", "run.toml", *QUICK[:3], "--write", "other.toml")
    assert again.exit_code == 0
    told["run"].pop("algorithm_options")
    kept = tomllib.loads((tmp_path / "other.toml").read_text())
    assert kept["party"] == told["party"]
    assert told["run"].items() <= kept["run"].items()


def test_a_loss_out_of_reach_is_an_exit_code(dpadmm):
    few = ("--rows", "300", "--parties", "3", "--features", "40", "--delta", "1e-4")
    result = dpadmm("plan", *few, *QUICK, "--rounds", "1", "--loss", "0.0001")
    assert result.exit_code == 1
    assert "out of reach" in result.stdout


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ((), "rows must be given"),
        (("--rows", "x", "--features", "4"), "rows must be whole numbers"),
        (("--rows", "10", "--parties", "2"), "exactly one of schema and features"),
        (("--rows", "10,0", "--features", "4"), "rows must be a whole number of at least 1"),
        ((*FACTS, "--epsilon", "0"), "epsilon must be a positive number"),
        ((*FACTS, "--algorithm", "pr-adm"), "Did you mean 'pr-admm'?"),
        ((*FACTS, "--loss", "-1"), "loss must be a positive number"),
        ((*FACTS, "--topology", "sphere"), "topology must be one of"),
        ((*FACTS, "--backend", "mpi"), "backend must be one of: dask, loky, ray"),
        ((*FACTS, "--address", "tcp://127.0.0.1:8786"), "address must be left out for loky"),
        (("nowhere.toml",), "nowhere.toml"),
    ],
)
def test_refusals(dpadmm, words, reason):
    result = dpadmm("plan", *words, "--json")
    assert result.exit_code == 2
    assert reason in json.loads(result.stdout)["error"]


def test_nothing_is_written_over(dpadmm, tmp_path):
    place = tmp_path / "run.toml"
    place.write_text("mine")
    result = dpadmm("plan", *FACTS, *QUICK, "--write", place)
    assert result.exit_code == 2
    assert place.read_text() == "mine"


def test_a_configuration_is_written_beside_the_one_asked_about(dpadmm, tmp_path):
    (tmp_path / "schema.toml").write_text(COLUMNS)
    told = '[data]\nschema = "schema.toml"\n[result]\nmodel = "m"\n'
    told += "".join(f'[[party]]\nname = "{n}"\nfile = "{n}.csv"\nrows = 50\n' for n in "ab")
    (tmp_path / "run.toml").write_text(told)
    result = dpadmm("plan", tmp_path / "run.toml", "--write", tmp_path / "sub" / "new.toml")
    assert result.exit_code == 2
    assert "in the folder of" in result.stderr
