"""A real ``dpadmm node`` with a stopwatch at its ledger.

``python -m benchmarks.timed_node SPEC.json NUMBER`` is one of the processes that
:mod:`benchmarks.bench_federation` starts: the command as an organisation would start it, told by
its own node.toml. A round begins when it is reserved; the local step lies between the end of that
and the moment at which the message is handed to the ledger.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from dpadmm.cli import main as dpadmm
from dpadmm.ledger.sqlite import LedgerRun
from dpadmm.plain import Array
from dpadmm.privacy.events import Event


class Stopwatch:
    """Notes when rounds begin and how long local steps take."""

    def __init__(self) -> None:
        self.moments: list[float] = []
        self.solves: list[float] = []
        self.reserve, self.commit = LedgerRun.reserve, LedgerRun.commit

    def watch(self) -> None:
        """Put itself between every run and its ledger."""

        def reserve(run: LedgerRun, t: int, event: Event) -> None:
            self.moments.append(time.perf_counter())
            self.reserve(run, t, event)
            self.begin = time.perf_counter()

        def commit(run: LedgerRun, t: int, message: Array) -> None:
            self.solves.append(time.perf_counter() - self.begin)
            self.commit(run, t, message)

        LedgerRun.reserve, LedgerRun.commit = reserve, commit  # type: ignore[method-assign]


def main(path: str, number: int) -> None:
    spec = json.loads(Path(path).read_text())
    stopwatch = Stopwatch()
    stopwatch.watch()
    try:
        dpadmm(["node", "--config", spec["configurations"][number], "--json"])
    except SystemExit as ended:
        if ended.code:
            raise
    # A round ends where the next one begins; the end of the last one is not timed.
    result = {"moments": stopwatch.moments[1:], "solves": stopwatch.solves[:-1]}
    (Path(spec["folder"]) / f"result-{number}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
