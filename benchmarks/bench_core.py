"""The local solver and the engine against plain gradient passes over the same rows."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy import sparse
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from dpadmm.algorithms.admm import ADMM
from dpadmm.algorithms.base import Algorithm, Budget, GraphState, Settings
from dpadmm.algorithms.dp_gd import DPGD
from dpadmm.data.named import load
from dpadmm.privacy.events import Event
from dpadmm.privacy.mechanisms import Released
from dpadmm.privacy.noise import SimulatedNoise
from dpadmm.problem.losses import get_loss
from dpadmm.problem.rows import Shard
from dpadmm.problem.site import Site, build_topology
from dpadmm.run.engine import InProcess, MemoryLedger, run
from dpadmm.solvers.workspace import FACTOR_LIMIT, Workspace

_ROUNDS = 50


class Row(NamedTuple):
    """A ratio, or seconds, and the most it may be."""

    name: str
    measured: float
    target: float | None


def seconds(work: Callable[[], Any], repeats: int = 5) -> float:
    taken = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return median(taken)


def gradient_pass(rows: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The yardstick: X @ w, sigmoid, X.T @ r."""
    return rows.T @ (-labels * expit(-labels * (rows @ weights))) / len(labels)


@dataclass(frozen=True)
class StartingFrom(Algorithm):
    """ADMM from first messages of its own in every run."""

    name: ClassVar[str] = "admm-from"

    inner: ADMM
    starts: np.ndarray

    @classmethod
    def configure(cls, site: Site, settings: Settings) -> StartingFrom:
        """Take zero starts; benchmarks build it directly."""
        return cls(ADMM.configure(site, settings), np.zeros((site.runs, site.features)))

    def init(self, site: Site) -> GraphState:
        """Start from the given messages."""
        first = np.broadcast_to(self.starts[None, :, None, :], site.shape)
        return GraphState(first, site.neighbour_sum(first), np.zeros(site.shape))

    def announce(self, *arguments: Any) -> tuple[Event, ...]:
        """As ADMM."""
        return self.inner.announce(*arguments)

    def local_step(self, *arguments: Any) -> Released:
        """As ADMM."""
        return self.inner.local_step(*arguments)

    def absorb(self, *arguments: Any) -> GraphState:
        """As ADMM."""
        return self.inner.absorb(*arguments)


def trainer(
    parties: list[tuple[Any, np.ndarray]],
    *,
    penalty: float,
    regularization: float,
    rounds: int = _ROUNDS,
    tolerance: float = 1e-8,
    starts: np.ndarray | None = None,
    factor_limit: int = FACTOR_LIMIT,
) -> Callable[[], np.ndarray]:
    """A function that trains once from scratch, rows laid out beforehand."""
    shard = Shard.from_parties([(rows, labels[:, None]) for rows, labels in parties])
    site = Site.of_all(
        shard.counts,
        build_topology("ring", len(parties)),
        get_loss("logistic"),
        features=parties[0][0].shape[1],
        regularization=regularization,
        runs=1 if starts is None else len(starts),
        party_weight="equal",
    )
    algorithm: Any = ADMM(penalty, tolerance)
    if starts is not None:
        algorithm = StartingFrom(algorithm, starts)

    def work() -> np.ndarray:
        return run(
            algorithm,
            site,
            Workspace(shard, site, factor_limit=factor_limit),
            rounds=rounds,
            exchange=InProcess(),
            ledgers=[MemoryLedger() for _ in parties],
            noise=SimulatedNoise(0),
        ).last

    return work


def split(rows: Any, labels: np.ndarray, parties: int) -> list[tuple[Any, np.ndarray]]:
    return [(rows[part], labels[part]) for part in np.array_split(np.arange(len(labels)), parties)]


def adult_like() -> tuple[np.ndarray, np.ndarray, str]:
    """Adult where it is at hand; else rows of the same shape."""
    if os.environ.get("DPADMM_DATA"):
        data = load("adult", download=False)
        order = np.random.default_rng(0).permutation(len(data.y))[:40_000]
        return np.ascontiguousarray(data.X[order]), data.y[order], "Adult"
    random = np.random.default_rng(0)
    rows = (random.random((40_000, 105)) < 0.13).astype(float)
    rows /= np.maximum(1.0, np.linalg.norm(rows, axis=1, keepdims=True))
    labels = np.where(
        rows @ random.normal(size=105) + 0.3 * random.normal(size=40_000) > 0, 1.0, -1.0
    )
    return rows, labels, "Adult's shape"


def bench_adult() -> list[Row]:
    rows, labels, name = adult_like()
    weights = np.zeros(rows.shape[1])
    passes = _ROUNDS * seconds(lambda: gradient_pass(rows, labels, weights), 20)
    settings = {"penalty": 0.01, "regularization": 5e-4}
    one = seconds(trainer(split(rows, labels, 5), **settings), 3)
    starts = np.random.default_rng(1).normal(size=(10, rows.shape[1]))
    ten = seconds(trainer(split(rows, labels, 5), starts=starts, **settings), 3)
    half = seconds(trainer(split(rows[::2].copy(), labels[::2], 5), **settings), 3)

    def pooled() -> Any:
        strength = 5 / (len(labels) * 5e-4)
        model = LogisticRegression(C=strength, fit_intercept=False, tol=1e-8, max_iter=10_000)
        return model.fit(rows, labels)

    converged = seconds(
        trainer(split(rows, labels, 5), rounds=400, penalty=2e-4, regularization=5e-4), 1
    )
    return [
        Row(f"{name}, 50 rounds / 50 gradient passes", one / passes, 5.0),
        Row(f"{name}, 10 runs together, per run / 50 gradient passes", ten / 10 / passes, 4.0),
        Row("twice the rows / time of half the rows", one / half, 2.2),
        Row(
            "400 rounds to the pooled optimum / scikit-learn pooled",
            converged / seconds(pooled, 1),
            3.0,
        ),
    ]


def narrow() -> tuple[np.ndarray, np.ndarray, str]:
    """As many rows as Adult has, with 20 numbers each, none of them zero."""
    random = np.random.default_rng(2)
    rows = random.normal(size=(40_000, 20))
    rows /= np.maximum(1.0, np.linalg.norm(rows, axis=1, keepdims=True))
    labels = np.where(rows[:, 0] + 0.3 * random.normal(size=40_000) > 0, 1.0, -1.0)
    return rows, labels, "40,000 x 20"


def bench_dp_gd(rows: np.ndarray, labels: np.ndarray, name: str) -> Row:
    """Rounds of dp-gd, rows centred, with noise of each party's own, calibrated beforehand."""
    one_pass = seconds(lambda: gradient_pass(rows, labels, np.zeros(rows.shape[1])), 20)
    shard = Shard.from_parties([(part, signs[:, None]) for part, signs in split(rows, labels, 5)])
    site = Site.of_all(
        shard.counts,
        build_topology("complete", 5),
        get_loss("logistic"),
        features=rows.shape[1],
        regularization=5e-4,
        # So that rows are centred, which is part of the cost.
        least_constant=rows.shape[1] ** -0.5,
    )
    budget = Budget(np.full(5, 1.0), np.full(5, 1e-6))
    algorithm = DPGD.configure(site, Settings(_ROUNDS, penalty=1.0, budget=budget))

    def work() -> object:
        return run(
            algorithm,
            site,
            Workspace(shard, site),
            rounds=_ROUNDS,
            exchange=InProcess(),
            ledgers=[MemoryLedger() for _ in range(5)],
            noise=SimulatedNoise(0),
        )

    measured = seconds(work) / _ROUNDS / one_pass
    return Row(f"{name}, dp-gd: a round / a gradient pass", measured, 1.2)


def bench_many_parties() -> list[Row]:
    rows, labels, _ = narrow()
    one_pass = seconds(lambda: gradient_pass(rows, labels, np.zeros(20)), 50)
    work = trainer(split(rows, labels, 1000), penalty=0.01, regularization=5e-4)
    return [
        Row(
            "1,000 parties of 40 rows: a round / a gradient pass",
            seconds(work, 5) / _ROUNDS / one_pass,
            6.0,
        )
    ]


def bench_features() -> list[Row]:
    random = np.random.default_rng(3)
    rounds, result = 5, []
    settings = {"penalty": 0.01, "regularization": 5e-4, "rounds": rounds, "tolerance": 1e-6}
    for features in (100, 500, 1000, 2000, 5000, 10_000):
        rows = random.normal(size=(10_000, features)) / np.sqrt(features)
        labels = np.where(rows[:, 0] + 0.01 * random.normal(size=10_000) > 0, 1.0, -1.0)
        parties = split(rows, labels, 5)
        if features <= 2000:
            factored = seconds(trainer(parties, factor_limit=features, **settings), 1) / rounds
            result.append(Row(f"{features} features, factored: seconds a round", factored, None))
        free = seconds(trainer(parties, factor_limit=0, **settings), 1) / rounds
        result.append(Row(f"{features} features, factor-free: seconds a round", free, None))
    result.append(Row("features above which the factor-free form is used", FACTOR_LIMIT, None))
    rows = sparse.random_array((10_000, 100_000), density=1e-4, rng=random, format="csr")
    rows = sparse.csr_array(rows / 4)
    labels = np.where(random.random(10_000) < 0.5, 1.0, -1.0)
    work = trainer(split(rows, labels, 5), **settings)
    result.append(Row("100,000 sparse features: seconds a round", seconds(work, 1) / rounds, None))
    return result


_MEMORY = """
import resource, sys
import numpy as np
from dpadmm import ADMMClassifier
random = np.random.default_rng(0)
rows = random.random((400_000, 50)); labels = random.random(400_000) < rows[:, 0]
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
warm = ADMMClassifier(algorithm="admm", rounds=2, random_state=0).fit(rows[:1000], labels[:1000])
before = peak() - rows.nbytes
ADMMClassifier(algorithm="admm", rounds=3, random_state=0).fit(rows, labels)
print((peak() - before) / rows.nbytes)
"""


def bench_memory() -> list[Row]:
    """Peak memory of a fit beyond imports, the data counted, in units of the data."""
    done = subprocess.run(
        [sys.executable, "-c", _MEMORY], capture_output=True, text=True, check=True
    )
    return [Row("peak memory beyond imports / data", float(done.stdout), 3.0)]


def main() -> list[Row]:
    return [
        *bench_adult(),
        bench_dp_gd(*adult_like()),
        bench_dp_gd(*narrow()),
        *bench_many_parties(),
        *bench_memory(),
        *bench_features(),
    ]
