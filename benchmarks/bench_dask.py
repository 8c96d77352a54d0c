"""A party's rows on a Dask cluster of this machine against the same rows in one process.

``python -m benchmarks.bench_dask [ROWS ...]`` prints the table of ``docs/scale.md``; one line of it
is a benchmark of ``make bench``. Rows have 21 features and are made where they stay, from seeds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np

from benchmarks.bench_core import Row
from dpadmm.privacy.noise import SimulatedNoise
from dpadmm.problem.losses import get_loss
from dpadmm.problem.row_sums import piece_rows
from dpadmm.problem.rows import RowBlock, Shard
from dpadmm.problem.site import Site
from dpadmm.problem.topologies import build_topology
from dpadmm.run.parameters import TrainingParameters
from dpadmm.run.plan import plan
from dpadmm.run.train import train
from dpadmm.solvers.cluster import Cluster, ClusterRows
from dpadmm.solvers.workspace import Workspace

_FEATURES = 21
# Whole pieces, so that a pass over parts has the bits of one over all rows together.
_PART_ROWS = 40 * piece_rows(_FEATURES)
_OTHER_ROWS = 1000
_SECONDS_FOR_WORKERS = 120.0


def part_sizes(rows: int) -> list[int]:
    """Parts of about a million rows, several even where there are few."""
    step = min(_PART_ROWS, max(1, rows // 4 // piece_rows(_FEATURES)) * piece_rows(_FEATURES))
    sizes = [step] * (rows // step)
    return sizes if rows % step == 0 else [*sizes, rows % step]


def make_rows(number: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows and labels of one part."""
    random = np.random.default_rng(number)
    rows = random.random((count, _FEATURES))
    rows -= 0.5
    rows *= 2 / np.sqrt(_FEATURES)
    truth = np.linspace(-3, 3, _FEATURES)
    labels = np.where(rows @ truth + 0.5 * random.standard_normal(count) > 0, 1.0, -1.0)
    return rows, labels[:, None]


def make_block(item: tuple[int, int]) -> RowBlock:
    (block,) = Shard.from_parties([make_rows(*item)]).blocks
    return block


def local_rows(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """All parts in one array, as one file would give them."""
    whole, labels = np.empty((rows, _FEATURES)), np.empty((rows, 1))
    start = 0
    for number, size in enumerate(part_sizes(rows)):
        whole[start : start + size], labels[start : start + size] = make_rows(number, size)
        start += size
    return whole, labels


@contextmanager
def workers(count: int) -> Iterator[Cluster]:
    """A scheduler and worker processes with one thread each."""
    from distributed import Client

    environment = os.environ | {
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
        # Held rows are not to be moved or spilt by the limits of a small machine.
        "DASK_DISTRIBUTED__WORKER__MEMORY__SPILL": "False",
        "DASK_DISTRIBUTED__WORKER__MEMORY__TARGET": "False",
    }
    started: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "scheduler.json"

        def start(kind: str, *words: str) -> None:
            command = [sys.executable, "-m", f"distributed.cli.dask_{kind}", *words]
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            started.append(
                subprocess.Popen(
                    [*command, "--no-dashboard", "--scheduler-file", str(place)],
                    env=environment,
                    cwd=folder,
                    **quiet,
                )
            )

        try:
            start("scheduler", "--host", "127.0.0.1", "--port", "0")
            deadline = time.monotonic() + _SECONDS_FOR_WORKERS
            while not (place.exists() and place.stat().st_size):
                if time.monotonic() > deadline:
                    raise TimeoutError("the scheduler did not start")
                time.sleep(0.05)
            for _ in range(count):
                start("worker", "--nthreads", "1", "--no-nanny", "--memory-limit", "0")
            address = json.loads(place.read_text())["address"]
            with Client(address, set_as_default=False) as client:
                client.wait_for_workers(count, timeout=_SECONDS_FOR_WORKERS)
            with Cluster(address) as cluster:
                yield cluster
        finally:
            for process in started:
                process.kill()
                process.wait()


def held_rows(cluster: Cluster, rows: int) -> ClusterRows:
    sizes = part_sizes(rows)
    return cluster.keep(make_block, list(enumerate(sizes)), sizes)


class Measured(NamedTuple):
    """Seconds of a pass, and of a round of dp-gd and of pr-admm."""

    one_pass: float
    gradient_round: float
    solve_round: float


def pass_seconds(shard: Shard, repeats: int) -> tuple[float, np.ndarray]:
    site = Site.of_all(
        shard.counts,
        build_topology("complete", 2),
        get_loss("logistic"),
        features=_FEATURES,
        regularization=0.01,
    )
    workspace, point = Workspace(shard, site), np.full((2, 1, 1, _FEATURES), 0.1)
    found, taken = workspace.gradient(point), []
    for _ in range(repeats):
        start = time.perf_counter()
        workspace.gradient(point)
        taken.append(time.perf_counter() - start)
    return median(taken), found


def round_seconds(shard: Shard, algorithm: str, rounds: int) -> float:
    topology = "server" if algorithm == "dp-gd" else "complete"
    told = TrainingParameters(
        algorithm, epsilon=1.0, delta=1e-9, rounds=rounds, topology=topology, loss="logistic"
    )
    planned = plan(told, [int(count) for count in shard.counts], features=_FEATURES)
    ends = [time.perf_counter()]
    train(
        planned,
        shard,
        noise=SimulatedNoise(1),
        on_round=lambda done, message: ends.append(time.perf_counter()),
    )
    return (ends[-1] - ends[0]) / rounds


def measure(shard: Shard, repeats: int, rounds: int) -> tuple[Measured, np.ndarray]:
    one_pass, gradient = pass_seconds(shard, repeats)
    timed = [round_seconds(shard, name, rounds) for name in ("dp-gd", "pr-admm")]
    return Measured(one_pass, *timed), gradient


def local_shard(rows: int) -> Shard:
    return Shard.from_parties([local_rows(rows), make_rows(10**6, _OTHER_ROWS)])


def cluster_shard(held: ClusterRows) -> Shard:
    return Shard.from_parties([make_rows(10**6, _OTHER_ROWS)]).beside({0: held})


def main() -> list[Row]:
    """One line for ``make bench``: a pass of a million rows by two workers, against one process."""
    rows = 10**6
    here, expected = pass_seconds(local_shard(rows), 7)
    with workers(2) as cluster:
        there, found = pass_seconds(cluster_shard(held_rows(cluster, rows)), 7)
    assert np.array_equal(found, expected), "a pass over parts must have the bits of one file"
    return [Row("a pass by 2 Dask workers, 1e6 rows x 21, over one process", there / here, 1.3)]


def show(sizes: list[int]) -> None:
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; seconds")
    print(f"{'rows':>6} {'where':>10} {'pass':>8} {'dp-gd':>8} {'pr-admm':>8} {'pass/local':>10}")
    for rows in sizes:
        repeats, rounds = (5, 4) if rows <= 10**6 else (3, 3)
        base, expected = None, None
        if rows < 10**8:
            base, expected = measure(local_shard(rows), repeats, rounds)
            _line(rows, "1 process", base, base)
        for count in (1, 2) if rows < 10**8 else (2,):
            with workers(count) as cluster:
                start = time.perf_counter()
                shard = cluster_shard(held_rows(cluster, rows))
                made = time.perf_counter() - start
                found, gradient = measure(shard, repeats, rounds)
            _line(rows, f"{count} workers", found, base)
            print(f"{'':17} made there in {made:.1f} s, {len(part_sizes(rows))} parts", flush=True)
            assert expected is None or np.array_equal(gradient, expected)


def _line(rows: int, where: str, found: Measured, base: Measured | None) -> None:
    ratio = "" if base is None else f"{found.one_pass / base.one_pass:10.2f}"
    times = " ".join(f"{seconds:8.3g}" for seconds in found)
    print(f"{rows:>6.0e} {where:>10} {times} {ratio:>10}", flush=True)


if __name__ == "__main__":
    # Work that tasks name must have the same module at the workers.
    from benchmarks import bench_dask

    bench_dask.show([int(float(word)) for word in sys.argv[1:]] or [10**6, 10**7])
