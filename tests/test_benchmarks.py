"""What the benchmarks' command tells its caller; no benchmark is run."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("measured", "target", "code", "words"),
    [
        (1.2, 1.15, 1, "MISSED"),
        (1.15, 1.15, 0, "all targets were met"),
        (9.0, None, 0, "all targets were met"),
    ],
)
def test_a_missed_target_is_an_exit_code(tmp_path, measured, target, code, words):
    row = f"def main(): return [('quick', 1.0, 2.0), ('slow', {measured}, {target})]"
    (tmp_path / "bench_made_up.py").write_text(row)
    script = (
        f"import sys, benchmarks; benchmarks.__path__.append({str(tmp_path)!r}); "
        "from benchmarks.__main__ import main; sys.exit(main(['made_up']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    assert words in done.stdout


def test_an_unknown_benchmark_is_refused_with_the_known_ones():
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "nothing"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "pdml" in done.stdout
