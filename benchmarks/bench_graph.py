"""What privacy costs in time on a graph, on rows of Adult's size."""

from __future__ import annotations

import time
from statistics import median

import numpy as np
from scipy.optimize import minimize

from benchmarks.bench_core import Row, adult_like, seconds, split
from dpadmm.algorithms import get_algorithm
from dpadmm.algorithms.base import Algorithm, Budget, Settings
from dpadmm.privacy.noise import SimulatedNoise
from dpadmm.problem.losses import get_loss
from dpadmm.problem.rows import Shard
from dpadmm.problem.site import Site, build_topology
from dpadmm.run.engine import InProcess, MemoryLedger, Outcome, run
from dpadmm.run.options import TrainingParameters
from dpadmm.run.plan import plan
from dpadmm.run.session import train
from dpadmm.solvers.workspace import Workspace

_PARTIES = 5
_ROUNDS = 50
_PENALTY = 0.01
# What private algorithms solve to on 8,000 rows a party.
_TOLERANCE = 1e-3 / 8000


class Bench:
    """One shard on a ring, and the algorithms to train it with."""

    def __init__(self) -> None:
        rows, labels, self.name = adult_like()
        parties = split(rows, labels, _PARTIES)
        self.shard = Shard.from_parties([(part, signs[:, None]) for part, signs in parties])
        self.features = rows.shape[1]

    def site(self, runs: int = 1) -> Site:
        """Every party, in so many repeated runs."""
        return Site.of_all(
            self.shard.counts,
            build_topology("ring", _PARTIES),
            get_loss("logistic"),
            features=self.features,
            regularization=5e-4,
            runs=runs,
            party_weight="equal",
        )

    def configured(self, name: str, site: Site, **options: object) -> Algorithm:
        """The algorithm under a budget of (1, 1e-5)."""
        settings = Settings(
            rounds=_ROUNDS,
            penalty=_PENALTY,
            tolerance=_TOLERANCE,
            options=options,
            budget=Budget(np.full(_PARTIES, 1.0), np.full(_PARTIES, 1e-5)),
        )
        return get_algorithm(name).configure(site, settings)

    def train(self, algorithm: Algorithm, site: Site, key: int = 0) -> Outcome:
        """Train once from scratch."""
        return run(
            algorithm,
            site,
            Workspace(self.shard, site),
            rounds=_ROUNDS,
            exchange=InProcess(),
            ledgers=[MemoryLedger() for _ in range(_PARTIES)],
            noise=SimulatedNoise(key),
        )


def bench_noise(bench: Bench) -> Row:
    """The rounds of a private run against those of a non-private one at the same tolerance."""
    site = bench.site()
    plain, noisy = bench.configured("admm", site), bench.configured("pr-admm", site)
    # In turns, so that a busy machine slows both.
    ratios = []
    for _ in range(5):
        without = seconds(lambda: bench.train(plain, site), 1)
        ratios.append(seconds(lambda: bench.train(noisy, site), 1) / without)
    return Row(f"{bench.name}: a noisy round / a round without noise", median(ratios), 1.15)


def bench_recycling(bench: Bench) -> Row:
    """The even iterations of R-ADMM against its odd ones, announcing and absorbing included."""
    site = bench.site()
    algorithm = bench.configured("r-admm", site, noise="gaussian")
    workspace, noise, state = Workspace(bench.shard, site), SimulatedNoise(0), algorithm.init(site)
    taken: tuple[list[float], list[float]] = ([], [])
    for t in range(_ROUNDS):
        start = time.perf_counter()
        algorithm.announce(state, site, t)
        values = algorithm.local_step(state, workspace, site, noise, t).values
        state = algorithm.absorb(state, values, values, site, t)
        taken[t % 2].append(time.perf_counter() - start)
    return Row("an even R-ADMM iteration / an odd one", median(taken[1]) / median(taken[0]), 0.05)


def bench_runs(bench: Bench) -> Row:
    """Ten runs with noise of their own, together and one after the other."""
    one, ten = bench.site(), bench.site(runs=10)
    alone, together = bench.configured("pr-admm", one), bench.configured("pr-admm", ten)
    separate = seconds(lambda: [bench.train(alone, one, key) for key in range(10)], 1)
    joint = seconds(lambda: bench.train(together, ten), 2)
    return Row("ten noisy runs together / one after the other", joint / separate, 0.7)


def bench_accuracy() -> list[Row]:
    """How far above the optimum the objective ends, with each kind of noise; five runs' mean."""
    random = np.random.default_rng(0)
    count, features, regularization = 15_000, 20, 1e-3
    rows = random.normal(size=(count, features))
    rows /= np.maximum(1.0, np.linalg.norm(rows, axis=1, keepdims=True))
    labels = np.where(
        rows @ random.normal(size=features) + 0.5 * random.normal(size=count) > 0, 1.0, -1.0
    )
    parties = split(rows, labels, _PARTIES)
    shard = Shard.from_parties([(part, signs[:, None]) for part, signs in parties])

    def objective(weights: np.ndarray) -> float:
        losses = np.logaddexp(0.0, -labels * (rows @ weights))
        return float(_PARTIES * losses.mean() + regularization / 2 * weights @ weights)

    best = minimize(objective, np.zeros(features), method="L-BFGS-B").fun
    trials: list[tuple[str, dict[str, object]]] = [("pr-admm", {})]
    trials += [("r-admm", {"noise": noise}) for noise in ("exp-norm", "gaussian", "output")]
    trials += [("r-admm", {"noise": "gaussian", "gamma": 0.0}), ("mr-admm", {"noise": "gaussian"})]
    result = []
    for name, options in trials:
        planned = plan(
            TrainingParameters(
                algorithm=name,
                rounds=20,
                regularization=regularization,
                loss="logistic",
                algorithm_options=options,
            ),
            shard.counts,
            features=features,
            runs=5,
        )
        last = train(planned, shard, noise=SimulatedNoise(0)).last.mean(axis=0)[:, 0]
        excess = float(np.mean([objective(weights) for weights in last]) - best)
        words = " ".join(f"{option}={value}" for option, value in options.items())
        result.append(Row(f"objective above the optimum, {name} {words}", excess, None))
    return result


def main() -> list[Row]:
    bench = Bench()
    return [bench_noise(bench), bench_recycling(bench), bench_runs(bench), *bench_accuracy()]
