"""``dpadmm demo`` from the outside, as a new user runs it."""

import json
import os
import subprocess
import sys


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
    assert (tmp_path / "dpadmm-demo.png").stat().st_size > 10_000
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
