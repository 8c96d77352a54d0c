"""The guides' commands run exactly as printed, in a folder with the files they print."""

import json
import re
from pathlib import Path

import pytest

from dpadmm import load_model
from dpadmm.federation.local import free_ports
from dpadmm.run.config import load_config
from dpadmm.run.files import train_run
from tests.helpers.printed_commands import run_page

DOCS = Path(__file__).parents[1] / "docs"


def test_the_guide_runs_as_printed(fork_server, tmp_path):
    assert run_page(DOCS / "guide-files.md", tmp_path, fork_server.commands()) >= 7
    assert len((tmp_path / "predictions.csv").read_text().splitlines()) == 201
    assert not (tmp_path / "run.checkpoint").exists()
    # The German file is the plain one: with the same noise, so is the model, to the bit.
    german = (tmp_path / "german.toml").read_text()
    seeded = german.replace("[run]", "[run]\nsimulation_key = 1")
    plain = re.sub(r'"sued.csv".*?(?=\n\[\[party)', '"south.csv"', seeded, flags=re.DOTALL)
    assert "aliases" not in plain
    weights = []
    for name, text in (("seeded", seeded), ("plain", plain)):
        # Each has a place of its own: what another run left is never overwritten.
        (tmp_path / f"{name}.toml").write_text(text.replace("german.model", f"{name}.model"))
        weights.append(train_run(load_config(tmp_path / f"{name}.toml")).estimator.coef_)
    assert weights[0].tobytes() == weights[1].tobytes()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_a_first_comparison_runs_as_printed(fork_server, tmp_path):
    assert run_page(DOCS / "first-comparison.md", tmp_path, fork_server.commands()) == 5
    assert (tmp_path / "comparison" / "report.html").exists()


def test_a_study_between_hospitals_runs_as_printed(fork_server, tmp_path):
    pytest.importorskip("zenoh", reason="the extra 'federation' is not installed")
    ports = dict(zip((7447, 7448, 7449, 7450), free_ports(4), strict=True))
    page = (DOCS / "hospital-study.md").read_text()
    for printed, port in ports.items():
        # They stand in a script, as numbers.
        page = page.replace(str(printed), str(port))
    (tmp_path / "page.md").write_text(page)
    assert run_page(tmp_path / "page.md", tmp_path, fork_server.commands()) >= 14
    ratios = {}
    for study in ("odds", "survival"):
        record = json.loads((tmp_path / f"{study}-west.json").read_text())
        effects = {each["name"]: each for each in record["found"]["coefficients"]}
        ratios[study] = effects["treatment[T.new]"]
        assert list(record["privacy"]["parties"]) == ["west"]
        assert record["ledger_checks"]["west"]["account"]["spent_epsilon"] <= 3
    # The new way was made to be better, and the truth of its hazard ratio is exp(-0.7).
    assert ratios["odds"]["ratio_high"] < 1
    assert 0.4 < ratios["survival"]["ratio"] < 0.6
    for study in ("table-one", "odds", "survival"):
        assert "differential privacy" in (tmp_path / f"{study}-east.html").read_text()


def test_every_door_has_a_first_page_that_is_followed():
    rows = [line for line in (DOCS / "index.md").read_text().splitlines() if line[:4] == "| **"]
    first = [re.search(r"\]\(([\w-]+\.md)\)", row)[1] for row in rows]
    # Each of them is run as printed: here, or by the tests of the federation.
    assert first == ["plan-to-proof.md", "federation.md", "first-comparison.md"]


def test_the_page_on_curves_runs_as_printed(tmp_path):
    # Of all pages this one runs the command as it is installed.
    assert run_page(DOCS / "nonlinear.md", tmp_path) == 5
    truth = [line.rpartition(",")[2] for line in (tmp_path / "public.csv").read_text().split()]
    found = [line.partition(",")[0] for line in (tmp_path / "predictions.csv").read_text().split()]
    right = [said.strip('"') == true for said, true in zip(found, truth, strict=True)]
    assert sum(right) > 0.95 * 400


def test_the_page_on_evaluation_runs_as_printed(fork_server, tmp_path):
    # Its files are those of the guide: the rows, and the schema.
    assert run_page(DOCS / "guide-files.md", tmp_path, fork_server.commands(), most=2) == 2
    assert (tmp_path / "schema.toml").exists()
    assert run_page(DOCS / "evaluate.md", tmp_path, fork_server.commands()) >= 8
    header, *rows = (tmp_path / "judged.csv").read_text().splitlines()
    assert header == '"label","score","probability"'
    assert len(rows) == 200


def test_the_page_on_studies_runs_as_printed(fork_server, tmp_path):
    pytest.importorskip("opendp", reason="the extra 'secure' is not installed")
    assert run_page(DOCS / "guide-files.md", tmp_path, fork_server.commands(), most=2) == 2
    assert run_page(DOCS / "studies.md", tmp_path, fork_server.commands()) == 8
    found = json.loads((tmp_path / "described.json").read_text())
    assert {figure["kind"] for figure in found["found"]} >= {"proportion", "mean", "table"}
    assert (tmp_path / "described.html").exists()


def test_the_way_from_plan_to_proof_runs_as_printed(fork_server, tmp_path):
    pytest.importorskip("zenoh", reason="the extra 'federation' is not installed")
    ports = dict(zip((7447, 7448), free_ports(2), strict=True))
    assert run_page(DOCS / "plan-to-proof.md", tmp_path, fork_server.commands(), ports=ports) >= 16
    header, *rows = (tmp_path / "predictions.csv").read_text().splitlines()
    assert header == '"label","score","probability"'
    assert len(rows) == 200
    # The threshold that was chosen decides, not zero.
    threshold = load_model(tmp_path / "north.model").classifier.quality.threshold
    assert threshold < 0
    for row in rows:
        label, score, probability = row.replace('"', "").split(",")
        assert (label == "yes") == (float(score) > threshold)
        assert 0 < float(probability) < 1
    report = (tmp_path / "report.html").read_text()
    for words in ("How good it is", "95%", "held-out rows", "Weights"):
        assert words in report
