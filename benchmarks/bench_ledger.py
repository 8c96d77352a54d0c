"""What a ledger costs beside the durable writes that nobody can avoid.

Run with ``python benchmarks/bench_ledger.py``; :func:`main` returns (name, measured, target).
"""

from __future__ import annotations

import sqlite3
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from dpadmm.ledger.base import ChargedData
from dpadmm.ledger.filters import Policy
from dpadmm.ledger.sqlite import SQLiteLedger
from dpadmm.privacy.events import GaussianRelease

EVENT = GaussianRelease(1.0, 1e4)
MESSAGE = np.random.default_rng(0).normal(size=(1, 1, 105))
ROUNDS = 200


def bare_file(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    for pragma in ("journal_mode = DELETE", "synchronous = EXTRA", "fullfsync = ON"):
        connection.execute(f"PRAGMA {pragma}")
    connection.execute("CREATE TABLE entries (number INTEGER PRIMARY KEY, content TEXT, data BLOB)")
    return connection


def write_bare(connection: sqlite3.Connection, content: str, data: bytes | None) -> None:
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("INSERT INTO entries (content, data) VALUES (?, ?)", (content, data))
    connection.execute("COMMIT")


def ratio(directory: Path) -> float:
    """Return the cost of a reserve and a commit over that of two bare commits, in turns."""
    event, data = str(EVENT.to_dict()), MESSAGE.tobytes()
    bare = bare_file(directory / "bare")
    ours, least = [], []
    with SQLiteLedger.create(
        directory / "ledger", ChargedData("rows", "owner", 1000), Policy(1.0, 1e-5)
    ) as ledger:
        run = ledger.open_run("run", "mark")
        # In turns, so that whatever else the disk does weighs on both alike.
        for t in range(ROUNDS):
            begin = time.perf_counter()
            write_bare(bare, event, None)
            write_bare(bare, event, data)
            middle = time.perf_counter()
            run.reserve(t, EVENT)
            run.commit(t, MESSAGE)
            least.append(middle - begin)
            ours.append(time.perf_counter() - middle)
        run.close()
    bare.close()
    print(
        f"medians: ledger {1e3 * statistics.median(ours):.2f} ms, "
        f"bare {1e3 * statistics.median(least):.2f} ms"
    )
    return statistics.median(ours) / statistics.median(least)


def opening(directory: Path) -> float:
    """Return the seconds it takes to open and check a ledger of 10,000 entries."""
    path = directory / "long"
    with SQLiteLedger.create(path, ChargedData("rows", "owner", 1000), Policy(1.0, 1e-5)) as ledger:
        # Only the length matters here, not that it survives a power failure.
        ledger._file._connection.execute("PRAGMA synchronous = OFF")
        with ledger.open_run("run", "mark") as run:
            for t in range(5000):
                run.reserve(t, EVENT)
                run.commit(t, MESSAGE)
    begin = time.perf_counter()
    SQLiteLedger(path).close()
    return time.perf_counter() - begin


def main() -> list[tuple[str, float, float]]:
    # Beside the sources: a directory for temporary files may be kept in memory.
    with tempfile.TemporaryDirectory(dir=Path(__file__).parent) as name:
        rows = [
            ("reserve + commit / two bare commits", ratio(Path(name)), 3.0),
            ("opening 10,000 entries, seconds", opening(Path(name)), 2.0),
        ]
    for label, measured, target in rows:
        verdict = "ok" if measured <= target else "MISSED"
        print(f"{label:48s} {measured:9.3f}  target {target:5.1f}  {verdict}")
    return rows


if __name__ == "__main__":
    main()
