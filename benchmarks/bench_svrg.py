"""The stochastic inner loop against a bare compiled loop, and a message against gradient passes."""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np

from benchmarks.bench_core import Row, adult_like, gradient_pass, seconds, split
from dpadmm.algorithms.base import Budget, Settings
from dpadmm.algorithms.ps_admm import PSADMM
from dpadmm.privacy.noise import SimulatedNoise
from dpadmm.problem.losses import get_loss
from dpadmm.problem.rows import Shard
from dpadmm.problem.site import Site, build_topology
from dpadmm.solvers.inner_loop import loss_code
from dpadmm.solvers.svrg import InnerProblem, descend
from dpadmm.solvers.workspace import Workspace

_STEPS, _BATCH = 50, 20


@numba.njit(nogil=True, fastmath={"reassoc", "contract"})
def bare_loop(
    rows: Any, labels: Any, start: Any, gradient: Any, batches: Any, step_size: float
) -> Any:
    """The same row reads and arithmetic with nothing about privacy or other losses in it."""
    point, total = start.copy(), np.zeros(start.shape[0])
    step = np.empty(start.shape[0])
    for s in range(batches.shape[0]):
        for j in range(start.shape[0]):
            step[j] = gradient[j] + 0.1 * point[j]
        for k in range(batches.shape[1]):
            row, label = rows[batches[s, k]], labels[batches[s, k]]
            here, there = 0.0, 0.0
            for j in range(start.shape[0]):
                here += row[j] * point[j]
                there += row[j] * start[j]
            slopes = 1.0 / (1.0 + math.exp(label * there)) - 1.0 / (1.0 + math.exp(label * here))
            slopes *= label / batches.shape[1]
            for j in range(start.shape[0]):
                step[j] += slopes * row[j]
        for j in range(start.shape[0]):
            point[j] -= step_size * step[j]
            total[j] += point[j]
    return total / batches.shape[0]


def bench_loop(rows: np.ndarray, labels: np.ndarray) -> Row:
    random = np.random.default_rng(0)
    features = rows.shape[1]
    loss = get_loss("logistic")
    batches = random.integers(len(rows), size=(_STEPS, _BATCH))
    start, gradient = random.normal(size=features), 0.1 * random.normal(size=features)
    draws, none = random.normal(size=(_STEPS + 1, features)), np.zeros(features)
    constants = (loss.slope_bound, loss.slope_range, loss.curvature_bound)

    problem = InnerProblem(
        rows,
        labels,
        loss_code(loss),
        constants,
        1.0,
        start,
        gradient,
        none,
        0.1,
        0.5,
        0.6,
        batches,
        0.0,
        1.2,
    )

    def ours() -> Any:
        for _ in range(20):
            descend(problem, draws)

    def bare() -> Any:
        for _ in range(20):
            bare_loop(rows, labels, start, gradient, batches, 0.5)

    ours(), bare()
    return Row("inner loop with noise / bare compiled loop", seconds(ours, 9) / seconds(bare, 9), 2)


def bench_message(rows: np.ndarray, labels: np.ndarray, name: str) -> Row:
    parties = split(rows, labels, 5)
    counts = np.array([len(part) for part, _ in parties])
    site = Site.of_all(
        counts,
        build_topology("server", 5),
        get_loss("logistic"),
        features=rows.shape[1],
        regularization=5e-4,
    )
    budget = Budget(np.full(5, 1.0), np.full(5, 1e-5))
    options = {"inner_steps": _STEPS, "batch_size": _BATCH}
    settings = Settings(rounds=50, penalty=0.01, options=options, budget=budget)
    algorithm = PSADMM.configure(site, settings)
    shard = Shard.from_parties([(part, sign[:, None]) for part, sign in parties])
    workspace, noise = Workspace(shard, site), SimulatedNoise(0)
    state = algorithm.init(site)
    algorithm.local_step(state, workspace, site, noise, 0)
    message = seconds(lambda: algorithm.local_step(state, workspace, site, noise, 1), 15)
    weights = np.zeros(rows.shape[1])
    one_pass = seconds(lambda: gradient_pass(rows, labels, weights), 15)
    return Row(
        f"{name}, 5 parties, 50 steps of 20 rows: a message / gradient pass", message / one_pass, 3
    )


def main() -> list[Row]:
    rows, labels, name = adult_like()
    return [bench_loop(rows, labels), bench_message(rows, labels, name)]
