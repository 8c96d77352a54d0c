"""What PDML's correction and noise add to a round of plain ADMM."""

from __future__ import annotations

from statistics import median

import numpy as np
from benchmarks.bench_core import Row, seconds

from dpadmm.privacy.noise import SimulatedNoise
from dpadmm.training import Plan, TrainingParameters, lay_out, plan, train

_ROUNDS = 20
_PENALTY = 0.01


def main() -> list[Row]:
    """PDML's round against one of ADMM at the same tolerance, taken in turns."""
    random = np.random.default_rng(0)
    rows = random.normal(size=(40_000, 100)) / 14.0
    labels = np.where(rows @ random.normal(size=100) > 0, 1.0, -1.0)[:, None]
    parties = [(rows[k::5], labels[k::5]) for k in range(5)]
    noise = SimulatedNoise(0)
    private = _planned("pdml", None)
    plain = _planned("admm", float(private.algorithm.tolerance.min()))  # type: ignore[attr-defined]
    shards = [lay_out(each, parties, noise=noise) for each in (private, plain)]
    ratios = []
    for _ in range(7):
        private_time, plain_time = (
            seconds(lambda each=each, shard=shard: train(each, shard, noise=noise), repeats=1)
            for each, shard in zip((private, plain), shards, strict=True)
        )
        ratios.append(private_time / plain_time)
    return [Row("a round of pdml, relative to one of admm, 5 x 8,000 x 100", median(ratios), 1.15)]


def _planned(algorithm: str, tolerance: float | None) -> Plan:
    options = {} if algorithm == "admm" else {"labels_already_randomized": True}
    parameters = TrainingParameters(
        algorithm,
        rounds=_ROUNDS,
        penalty=_PENALTY,
        tolerance=tolerance,
        algorithm_options=options,
    )
    return plan(parameters, [8000] * 5, features=100)
