"""``dpadmm demo`` from the outside, as a new user runs it."""

import json
import os
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest

SOURCE = str(Path(__file__).parents[2] / "src")
SCHEMA = json.loads(files("dpadmm.cli").joinpath("output.schema.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def run_demo(folder, *words, **environment):
    inherited = {key: value for key, value in os.environ.items() if key != "DPADMM_DATA"}
    done = subprocess.run(
        [sys.executable, "-c", "from dpadmm.cli import main; main()", "demo", *words],
        cwd=folder,
        env=inherited | environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_demo_shows_what_training_together_and_privacy_bring(tmp_path):
    printed = run_demo(tmp_path)
    for word in ("party 0 alone", "pooled", "no noise", "epsilon = 1", "Adversary", "Next"):
        assert word in printed
    assert "SIMULATION" in printed
    # It ends by naming the page to open.
    assert printed.rstrip().endswith("dpadmm-demo.html")
    assert "SIMULATION" in (tmp_path / "dpadmm-demo.html").read_text(encoding="utf-8")


def test_the_demo_speaks_json(tmp_path):
    result = json.loads(run_demo(tmp_path, "--json", "--rounds", "20"))["result"]
    accuracy = {row["who"]: row["accuracy"] for row in result["accuracy"]}
    together = accuracy["together, no noise"]
    assert abs(together - accuracy["pooled (rows shared)"]) < 0.03
    assert result["privacy"]["simulated"] is True
    assert (tmp_path / result["report"]).is_file()


@pytest.mark.slow
def test_the_federated_demo_trains_at_five_nodes(tmp_path):
    # Real nodes over mutual TLS; the fewest rounds that are still worth looking at.
    printed = run_demo(tmp_path, "--federated", "--rounds", "8", "--json", PYTHONPATH=SOURCE)
    output = json.loads(printed)
    VALIDATOR.validate(output)
    result = output["result"]
    accuracy = {row["who"]: row["accuracy"] for row in result["accuracy"]}
    assert result["privacy"]["simulated"] is False
    assert result["privacy"]["epsilon"] <= 1.0
    assert len(result["nodes"]) == 5
    for node in result["nodes"]:
        assert accuracy[f"federated, epsilon = 1, model of {node['node']}"] > 0.7
        log = [json.loads(line) for line in Path(node["log"]).read_text().splitlines()]
        assert [line["facts"] for line in log if line["event"] == "round"][-1]["round"] == 8
        assert Path(node["report"]).is_file()
        assert "Spent: epsilon = 1 at" in Path(node["statement"]).read_text()
        assert json.loads(Path(node["record"]).read_text())["federation"]["tls"] is True
    assert abs(accuracy["together, no noise"] - accuracy["pooled (rows shared)"]) < 0.05


def test_a_place_that_cannot_be_written_is_refused_at_once(dpadmm, tmp_path):
    (tmp_path / "file").write_text("")
    result = dpadmm("demo", "--federated", "--results", tmp_path / "file")
    assert result.exit_code == 2
    assert "results must be a folder" in result.output
