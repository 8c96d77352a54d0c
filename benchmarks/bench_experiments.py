"""What a round of a run costs an experiment, for every algorithm, on rows of Adult's size."""

from __future__ import annotations

import time
import warnings
from statistics import median

import numpy as np

from benchmarks.bench_core import Row, adult_like, gradient_pass, seconds, split
from dpadmm.algorithms import REGISTRY
from dpadmm.experiments.problems import compact
from dpadmm.privacy.noise import SimulatedNoise
from dpadmm.run.options import ConvergenceWarning, TrainingParameters
from dpadmm.run.plan import plan
from dpadmm.run.session import lay_out, train

_PARTIES = 5
_RUNS = 10
_ROUNDS = 10
_OPTIONS = {"pdml": {"label_epsilon": 1.0}}


def main() -> list[Row]:
    """Time of a round of a run over that of a gradient pass of one run over the same rows.

    Ten runs go together, as in an experiment, at epsilon 1 and the automatic penalty; planning
    and accounting are left out. Rows are kept as experiments keep them; the pass is over dense
    rows.
    """
    rows, labels, name = adult_like()
    weights = np.zeros(rows.shape[1])
    one_pass = seconds(lambda: gradient_pass(rows, labels, weights), 20)
    parties = [(compact(part), signs[:, None]) for part, signs in split(rows, labels, _PARTIES)]
    found = [Row(f"{name}: milliseconds of a gradient pass", 1000 * one_pass, None)]
    for algorithm in REGISTRY:
        parameters = TrainingParameters(
            algorithm,
            rounds=_ROUNDS,
            loss="logistic",
            algorithm_options=_OPTIONS.get(algorithm, {}),
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            planned = plan(
                parameters,
                [len(signs) for _, signs in parties],
                features=rows.shape[1],
                runs=_RUNS,
            )
        noise = SimulatedNoise(0)
        shard = lay_out(planned, parties, noise=noise)
        taken = []
        for _ in range(3):  # the first may compile, and the median does not show it
            start = time.perf_counter()
            train(planned, shard, noise=noise)
            taken.append(time.perf_counter() - start)
        ratio = median(taken) / (_RUNS * _ROUNDS) / one_pass
        found.append(Row(f"{algorithm}: a round of a run / a gradient pass", ratio, None))
    return found
