"""The guides' commands run exactly as printed, in a folder with the files they print."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dpadmm import load_model
from dpadmm.federation.local import free_ports

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
BLOCK = re.compile(r"^```(?P<head>.*?)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
CAPTION = re.compile(r":caption: (\S+)\n\n(.*)", re.DOTALL)


def run_page(page, folder, most=None, ports=None):
    """Write the files that a page prints, run its commands or the first; how many there were.

    ``ports`` are those of this machine that stand for the page's.
    """
    # The commands of this environment, on the sources beside these tests.
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
        "PYTHONWARNINGS": "error",
        "OPENBLAS_NUM_THREADS": "1",
    }
    commands = 0
    text = page.read_text(encoding="utf-8")
    for printed, port in (ports or {}).items():
        text = text.replace(f":{printed}", f":{port}")
    for block in BLOCK.finditer(text):
        if caption := CAPTION.match(block["body"]):
            (folder / caption[1]).write_text(caption[2], encoding="utf-8")
        if block["head"] != "console":
            continue
        steps = re.split(r"^\$ ", block["body"], flags=re.MULTILINE)[1:]
        for step in steps:
            if commands == most:
                return commands
            command, *expected = step.splitlines()
            done = subprocess.run(
                command,
                shell=True,
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                timeout=120,
            )
            assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
            assert [line for line in expected if line not in done.stdout.splitlines()] == []
            commands += 1
    return commands


def test_the_guide_runs_as_printed(tmp_path):
    assert run_page(DOCS / "guide-files.md", tmp_path) >= 7
    assert len((tmp_path / "predictions.csv").read_text().splitlines()) == 201
    assert not (tmp_path / "run.checkpoint").exists()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_the_page_on_curves_runs_as_printed(tmp_path):
    assert run_page(DOCS / "nonlinear.md", tmp_path) == 5
    truth = [line.rpartition(",")[2] for line in (tmp_path / "public.csv").read_text().split()]
    found = [line.partition(",")[0] for line in (tmp_path / "predictions.csv").read_text().split()]
    right = [said.strip('"') == true for said, true in zip(found, truth, strict=True)]
    assert sum(right) > 0.95 * 400


def test_the_page_on_evaluation_runs_as_printed(tmp_path):
    # Its files are those of the guide: the rows, and the schema.
    assert run_page(DOCS / "guide-files.md", tmp_path, most=2) == 2
    assert (tmp_path / "schema.toml").exists()
    assert run_page(DOCS / "evaluate.md", tmp_path) >= 8
    header, *rows = (tmp_path / "judged.csv").read_text().splitlines()
    assert header == '"label","score","probability"'
    assert len(rows) == 200


def test_the_way_from_plan_to_proof_runs_as_printed(tmp_path):
    pytest.importorskip("zenoh", reason="the extra 'federation' is not installed")
    ports = dict(zip((7447, 7448), free_ports(2), strict=True))
    assert run_page(DOCS / "plan-to-proof.md", tmp_path, ports=ports) >= 16
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
    for words in ("How good it is", "95%", "rows kept out of training", "Weights"):
        assert words in report
