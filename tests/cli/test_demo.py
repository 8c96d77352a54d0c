"""``dpadmm demo`` from the outside, as a new user runs it."""

import json
import os
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest

from dpadmm.cli.demo import _called_as
from dpadmm.run.model import load_model

SOURCE = str(Path(__file__).parents[2] / "src")
SCHEMA = json.loads(files("dpadmm.cli").joinpath("output.schema.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def run_demo(folder, *words, **environment):
    inherited = {key: value for key, value in os.environ.items() if key != "DPADMM_DATA"}
    done = subprocess.run(
        [sys.executable, "-m", "dpadmm", "demo", *words],
        cwd=folder,
        env=inherited | environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_demo_shows_what_training_together_brings_and_when_it_does_not(tmp_path):
    printed = run_demo(tmp_path)
    for word in ("a party alone", "own noise", "shared noise", "pooled", "Adversary", "Next"):
        assert word in printed
    words = " ".join(printed.split())
    assert "With shared noise, training together beats every party alone." in words
    assert "A tiny budget" in words
    assert "Few parties with many rows each" in words
    assert "SIMULATION" in printed
    # It ends by naming the page to open.
    assert printed.rstrip().endswith("dpadmm-demo.html")
    page = (tmp_path / "dpadmm-demo.html").read_text(encoding="utf-8")
    assert "SIMULATION" in page
    assert "With shared noise, training together beats every party alone." in page
    assert "When it does not pay:" in page


def test_the_demo_speaks_json(tmp_path):
    output = json.loads(run_demo(tmp_path, "--json", "--rounds", "20", "--seed", "1"))
    VALIDATOR.validate(output)
    result = output["result"]
    accuracy = {row["who"]: row["accuracy"] for row in result["accuracy"]}
    assert len(result["alone"]) == 20
    assert accuracy["a party alone, no privacy: best"] == max(result["alone"])
    assert accuracy["a party alone, no privacy: mean"] < accuracy["pooled, no privacy"]
    assert accuracy["together, own noise"] < accuracy["together, shared noise"]
    assert [len(each["accuracy"]) for each in result["history"].values()] == [20, 20]
    # All parties have one model.
    assert max(max(each["disagreement"]) for each in result["history"].values()) < 1e-12
    assert result["headline"]
    assert result["when_not"]
    assert result["privacy"]["simulated"] is True
    assert result["privacy"]["epsilon"] <= 1.0
    assert (tmp_path / result["report"]).is_file()


def test_what_comes_next_is_called_as_the_demo_was(tmp_path, monkeypatch):
    program = tmp_path / "bin" / "dpadmm"
    program.parent.mkdir()
    program.touch(mode=0o700)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(sys, "argv", [str(program)])
    assert _called_as() == str(program)
    monkeypatch.setenv("PATH", str(program.parent))
    assert _called_as() == "dpadmm"


@pytest.mark.slow
def test_the_federated_demo_sums_up_securely_at_real_nodes(tmp_path):
    # Real nodes over mutual TLS; fewer of them, and few rounds.
    words = ("--federated", "--nodes", "4", "--rounds", "20", "--json")
    output = json.loads(run_demo(tmp_path, *words, PYTHONPATH=SOURCE))
    VALIDATOR.validate(output)
    result = output["result"]
    accuracy = {row["who"]: row["accuracy"] for row in result["accuracy"]}
    assert result["privacy"]["simulated"] is False
    assert result["privacy"]["epsilon"] <= 1.0
    assert "at most 1 of the 4 parties" in result["privacy"]["adversary"]
    assert result["headline"][0].startswith("4 of the demo's 20 parties")
    assert len(result["nodes"]) == 4
    simulated = accuracy["together, shared noise, simulated"]
    assert abs(accuracy["together, shared noise, over TLS"] - simulated) < 0.06
    weights = []
    for node in result["nodes"]:
        log = [json.loads(line) for line in Path(node["log"]).read_text().splitlines()]
        assert [line["facts"] for line in log if line["event"] == "round"][-1]["round"] == 20
        assert Path(node["report"]).is_file()
        assert "Spent: epsilon = 1 at" in Path(node["statement"]).read_text()
        assert json.loads(Path(node["record"]).read_text())["federation"]["tls"] is True
        weights.append(load_model(Path(node["model"])).classifier.coef)
    # Every node has the same sums, and so the same model.
    assert all((each == weights[0]).all() for each in weights)


def test_a_place_that_cannot_be_written_is_refused_at_once(dpadmm, tmp_path):
    (tmp_path / "file").write_text("")
    result = dpadmm("demo", "--federated", "--results", tmp_path / "file")
    assert result.exit_code == 2
    assert "results must be a folder" in result.output
