"""Training from files that need not fit into memory: time a round takes, and memory it takes.

``python -m benchmarks.bench_train --full`` (or ``DPADMM_BENCH_FULL=1``) adds 10 million rows.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from benchmarks.bench_data import Row, waveform_schema, write_generated
from dpadmm.run.config import load_config
from dpadmm.run.files import Watch, train_run, write_results

PARTIES = 5
ROUNDS = 10
SIZES = (100_000, 1_000_000)
FULL_SIZE = 10_000_000
MEGABYTES_TARGET = 1000.0


def write_run(folder: Path, rows: int) -> Path:
    """Write the files of five parties, their schema and a configuration."""
    lines = [f'[run]\nalgorithm = "admm"\nrounds = {ROUNDS}', '[data]\nschema = "schema.toml"']
    (folder / "schema.toml").write_text(waveform_schema().to_toml())
    for party in range(PARTIES):
        write_generated(folder / f"{party}.parquet", rows // PARTIES, seed=party)
        lines.append(f'[[party]]\nname = "{party}"\nfile = "{party}.parquet"')
    lines.append('[result]\nmodel = "m.model"\nrecord = "record.json"')
    path = folder / "run.toml"
    path.write_text("\n".join(lines))
    return path


def anonymous_megabytes() -> float:
    """Memory of this process that is not backed by a file."""
    status = Path("/proc/self/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("RssAnon"))
    return int(line.split()[1]) / 1000


def measure(config: Path) -> dict[str, Any]:
    """Train in this process; what it took."""
    largest, ended = anonymous_megabytes(), threading.Event()

    def watch_memory() -> None:
        nonlocal largest
        while not ended.wait(0.01):
            largest = max(largest, anonymous_megabytes())

    watcher = threading.Thread(target=watch_memory)
    watcher.start()
    stages: dict[str, float] = {}
    rounds: list[float] = []
    watch = Watch(
        on_stage=lambda stage: stages.setdefault(stage, time.perf_counter()),
        on_round=lambda done, total: rounds.append(time.perf_counter()),
    )
    write_results(train_run(load_config(config), watch))
    ended.set()
    watcher.join()
    return {
        "encoding": stages["training"] - stages["encoding"],
        "first": rounds[0] - stages["training"],
        "later": (rounds[-1] - rounds[0]) / (len(rounds) - 1),
        "megabytes": largest,
    }


def measured(rows: int) -> list[Row]:
    """Train on so many rows in a process of its own."""
    with tempfile.TemporaryDirectory() as name:
        config = write_run(Path(name), rows)
        command = [sys.executable, "-m", "benchmarks.bench_train", "--measure", str(config)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    found = json.loads(done.stdout)
    size = f"{rows:.0e} rows".replace("e+0", "e")
    return [
        Row(f"{size} from Parquet: seconds to encode to disk", found["encoding"], None),
        Row(f"{size}: seconds of the first round", found["first"], None),
        Row(f"{size}: seconds a round, the other {ROUNDS - 1}", found["later"], None),
        Row(
            f"{size}: most MB of memory not backed by a file", found["megabytes"], MEGABYTES_TARGET
        ),
    ]


def main(full: bool | None = None) -> list[Row]:
    """Run the benchmarks of this file."""
    if full is None:
        full = bool(os.environ.get("DPADMM_BENCH_FULL"))
    sizes = (*SIZES, FULL_SIZE) if full else SIZES
    return [row for size in sizes for row in measured(size)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="also 10 million rows")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    told = parser.parse_args()
    if told.measure:
        print(json.dumps(measure(told.measure)))
    else:
        for row in main(full=told.full or None):
            print(f"{row.name:60s} {row.measured:10.3g}  (target {row.target})")
