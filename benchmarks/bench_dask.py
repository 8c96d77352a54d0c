"""A party's rows on a Dask cluster of this machine against the same rows in one process.

``python -m benchmarks.bench_dask [ROWS ...]`` prints the table of ``docs/scale.md``; one line of it
is a benchmark of ``make bench``. Rows have 21 features and are made where they stay, from seeds.
More than 2e7 rows, which need not fit this machine, are made on the workers anew in every pass, as
Dask makes a lost part again. Every gradient is compared: with the bits of one process, or, where no
process has all rows, with sums of 64 bits, and the bound on its rounding error.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import numpy as np

from benchmarks.bench_core import Row
from dpadmm.privacy.noise import SimulatedNoise
from dpadmm.problem.losses import get_loss
from dpadmm.problem.rows import PartedRows, RowBlock, Shard, piece_rows, summation_error
from dpadmm.problem.site import Site, build_topology
from dpadmm.run.options import TrainingParameters
from dpadmm.run.plan import plan
from dpadmm.run.session import train
from dpadmm.solvers.cluster import Cluster, ClusterRows
from dpadmm.solvers.workspace import Workspace

Result = TypeVar("Result")

_FEATURES = 21
# Whole pieces, so that a pass over parts has the bits of one over all rows together.
_PART_ROWS = 40 * piece_rows(_FEATURES)
_OTHER_ROWS = 1000
# Rows that are held, in one process and by workers; beyond, they are made anew in every pass.
_MOST_HERE = 2 * 10**7
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


class MadeRows:
    """Rows of one party in parts that workers make whenever they are asked: nothing is kept."""

    def __init__(self, cluster: Cluster, rows: int) -> None:
        self._cluster, self.heights = cluster, tuple(part_sizes(rows))

    def map(
        self, work: Callable[..., Result], *arguments: Any, each: Sequence[Any] | None = None
    ) -> Iterator[Result]:
        items = list(enumerate(self.heights))
        last = [()] * len(items) if each is None else [(one,) for one in each]
        yield from self._cluster.results(_work_on_made, items, last, work=work, told=arguments)


def _work_on_made(
    item: tuple[int, int],
    last: tuple[Any, ...],
    work: Callable[..., Result],
    told: tuple[Any, ...],
) -> Result:
    return work(make_block(item), *told, *last)


def largest_size(block: RowBlock) -> tuple[int, int]:
    """The process that has a part, and the most bytes that it ever had in memory."""
    # Of this program alone: getrusage also counts the one that started it.
    told = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    return os.getpid(), 1024 * int(told["VmHWM"].split()[0])


def precise_sum(block: RowBlock, point: np.ndarray) -> np.ndarray:
    """``sum_k l'(u_k.w) u_k`` of logistic losses, all in 64 bits, by no code of a pass."""
    step = piece_rows(_FEATURES)
    total = np.zeros(_FEATURES, dtype=np.longdouble)
    for first in range(0, block.labels.shape[1], step):
        signed = block.rows[0, first : first + step].astype(np.longdouble)
        signed *= block.labels[0, first : first + step]
        slopes = -1 / (1 + np.exp((signed * point).sum(axis=1)))
        total += (slopes[:, None] * signed).sum(axis=0)
    return total


class Passes:
    """Passes over a shard, at one point."""

    def __init__(self, shard: Shard) -> None:
        self.shard = shard
        self._site = Site.of_all(
            shard.counts,
            build_topology("complete", 2),
            get_loss("logistic"),
            features=_FEATURES,
            regularization=0.01,
        )
        self._workspace = Workspace(shard, self._site)
        self._point = np.full(self._site.shape, 0.1)
        self.gradient = self._workspace.gradient(self._point)

    def seconds(self) -> float:
        start = time.perf_counter()
        self._workspace.gradient(self._point)
        return time.perf_counter() - start

    def rounding(self, held: PartedRows) -> tuple[float, float]:
        """How far the gradient of the first party, on a cluster, is off; and what dp-gd counts."""
        site = self._site
        assert np.finfo(np.longdouble).nmant >= 63, "no numbers of 64 bits on this processor"
        sums = list(held.map(precise_sum, self._point[0, 0, 0]))
        exact = np.sum(sums, axis=0) * np.longdouble(site.weight[0]) / sum(held.heights)
        off = self.gradient[0, 0, 0] - exact
        counted = summation_error(site.rows, site.features) * site.weight * site.loss.slope_bound
        return float(np.sqrt((off * off).sum())), float(counted[0])


def in_turns(here: Passes, there: Passes, repeats: int) -> tuple[float, float]:
    """Median seconds of a pass at both, one after the other: what else goes on hits both alike."""
    taken = [(here.seconds(), there.seconds()) for _ in range(repeats)]
    return median(first for first, _ in taken), median(second for _, second in taken)


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


def local_shard(rows: int) -> Shard:
    return Shard.from_parties([local_rows(rows), make_rows(10**6, _OTHER_ROWS)])


def cluster_shard(held: PartedRows) -> Shard:
    return Shard.from_parties([make_rows(10**6, _OTHER_ROWS)]).beside({0: held})


def same_bits(here: Passes, there: Passes) -> None:
    if not np.array_equal(here.gradient, there.gradient):
        raise AssertionError("a pass over parts must have the bits of one over one file")


def main() -> list[Row]:
    """One line for ``make bench``: a pass of a million rows by two workers, against one process."""
    rows = 10**6
    here = Passes(local_shard(rows))
    with workers(2) as cluster:
        there = Passes(cluster_shard(held_rows(cluster, rows)))
        same_bits(here, there)
        local, remote = in_turns(here, there, 15)
    return [Row("a pass by 2 Dask workers, 1e6 rows x 21, over one process", remote / local, None)]


def show(sizes: list[int]) -> None:
    print(f"{os.cpu_count()} cores; seconds, one process / workers")
    print(
        f"{'rows':>6} {'workers':>7} {'pass':>15} {'dp-gd round':>15} {'pr-admm round':>15} ratio"
    )
    for rows in sizes:
        if rows > _MOST_HERE:
            show_on_workers(rows)
            continue
        here = Passes(local_shard(rows))
        for count in (1, 2):
            with workers(count) as cluster:
                there = Passes(cluster_shard(held_rows(cluster, rows)))
                same_bits(here, there)
                pairs = [in_turns(here, there, 9)]
                for name in ("dp-gd", "pr-admm"):
                    shards = (here.shard, there.shard)
                    first, second = (round_seconds(shard, name, 3) for shard in shards)
                    pairs.append((first, second))
                _line(rows, count, pairs)


def show_on_workers(rows: int) -> None:
    """The same of rows that no process has; how exact a gradient is, and what memory it took."""
    for count in (1, 2):
        with workers(count) as cluster:
            # The first tasks load libraries.
            list(MadeRows(cluster, 4 * piece_rows(_FEATURES)).map(largest_size))
            made = MadeRows(cluster, rows)
            begin = time.perf_counter()
            there = Passes(cluster_shard(made))
            passed = time.perf_counter()
            largest = dict(sorted(made.map(largest_size)))
            making = time.perf_counter() - passed
            took = f"a pass {passed - begin:.3g}, a pass that only makes the rows {making:.3g}"
            print(f"{rows:>6.0e} {count:>7} {took}; load {os.getloadavg()[0]:.1f}", flush=True)
            if count == 1:
                continue
            for process, size in largest.items():
                print(f"worker {process} had at most {size / 1e9:.2f} GB", flush=True)
            error, counted = there.rounding(made)
            print(f"the gradient is off by {error:.2g}; dp-gd counts {counted:.2g}", flush=True)
            if not error <= counted:
                raise AssertionError("a gradient must be within the error that dp-gd counts")
            # A round of pr-admm is several passes, each of which makes all rows again.
            print(f"dp-gd round {round_seconds(there.shard, 'dp-gd', 1):.3g}", flush=True)


def _line(rows: int, count: int, pairs: list[tuple[float, float]]) -> None:
    cells = [f"{base:.3g} / {found:.3g}" for base, found in pairs]
    ratio = f"{pairs[0][1] / pairs[0][0]:5.2f}"
    load = f"load {os.getloadavg()[0]:.1f}"
    print(
        f"{rows:>6.0e} {count:>7} " + " ".join(f"{c:>15}" for c in cells), ratio, load, flush=True
    )


if __name__ == "__main__":
    # Work that tasks name must have the same module at the workers.
    from benchmarks import bench_dask

    bench_dask.show([int(float(word)) for word in sys.argv[1:]] or [10**6, 10**7])
