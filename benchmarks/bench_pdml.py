"""What PDML's correction and noise add to a round of plain ADMM."""

from __future__ import annotations

from statistics import median

import numpy as np

from benchmarks.bench_core import Row, seconds
from dpadmm.privacy.noise import SimulatedNoise
from dpadmm.run.options import TrainingParameters
from dpadmm.run.plan import Plan, plan
from dpadmm.run.session import lay_out, train

_ROUNDS = 20


def main() -> list[Row]:
    """A round of PDML, labels randomised, against one of ADMM at its penalty and tolerance."""
    random = np.random.default_rng(0)
    rows = random.normal(size=(40_000, 100)) / 14.0
    scores = rows @ random.normal(size=100) * 5.0
    labels = np.where(random.logistic(size=40_000) < scores, 1.0, -1.0)[:, None]
    parties = [(rows[k::5], labels[k::5]) for k in range(5)]
    noise = SimulatedNoise(0)
    private = _planned("pdml", "auto")
    tolerance = float(private.settings.private_tolerance(private.site).min())
    plain = _planned("admm", private.penalty, tolerance)
    shards = [lay_out(each, parties, noise=noise) for each in (private, plain)]
    ratios = []
    for _ in range(7):
        private_time, plain_time = (
            seconds(lambda each=each, shard=shard: train(each, shard, noise=noise), repeats=1)
            for each, shard in zip((private, plain), shards, strict=True)
        )
        ratios.append(private_time / plain_time)
    return [Row("a round of pdml, relative to one of admm, 5 x 8,000 x 100", median(ratios), 1.15)]


def _planned(algorithm: str, penalty: float | str, tolerance: float | None = None) -> Plan:
    parameters = TrainingParameters(algorithm, rounds=_ROUNDS, penalty=penalty, tolerance=tolerance)
    return plan(parameters, [8000] * 5, features=100)
