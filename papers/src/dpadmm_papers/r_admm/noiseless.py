"""R-ADMM and MR-ADMM without noise, with any penalties; and the optimum they should reach."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import final

import numpy as np
from numpy.typing import NDArray

from dpadmm.algorithms.r_admm import MRADMM
from dpadmm.experiments.job import Job, Result, TrainingJob
from dpadmm.experiments.measures import get_measure
from dpadmm.experiments.problems import NamedProblem, dense
from dpadmm.plain import Array
from dpadmm.privacy.noise import NoiseSource
from dpadmm.run.parameters import TrainingParameters
from dpadmm.run.train import lay_out, train

__all__ = ["NoiselessCell", "OptimumCell", "Silence"]

# The residual of a solve, as that of conventional ADMM.
_TOLERANCE = 1e-8


class Silence(NoiseSource):
    """Every draw is zero: an algorithm without its noise, which protects nobody."""

    description = "none"
    simulated = True

    def generator(self, run: int, party: int, t: int, purpose: str) -> np.random.Generator:
        """Refuse: nothing is drawn."""
        raise NotImplementedError("silence draws nothing")

    def add_gaussian(
        self, values: Array, sigma: Array, parties: NDArray[np.intp], t: int, purpose: str
    ) -> Array:
        """The values as they are."""
        return values.copy()


@final
@dataclass(frozen=True)
class NoiselessCell(Job):
    r"""MR-ADMM without noise, with the penalties :math:`\eta_i q_i^{k-1}`.

    Attributes
    ----------
    problem, edges
        The rows and the graph.
    rounds
        Iterations.
    penalties, growths
        eta_i and q_i of every party, or one for all. Growths that differ are not offered by
        ``mr-admm``: the run then ends where its path leads, and not at an optimum.
    gamma, regularization
        As in ``mr-admm``.
    """

    problem: NamedProblem
    edges: tuple[tuple[int, int], ...]
    rounds: int
    penalties: tuple[float, ...]
    growths: tuple[float, ...]
    gamma: float
    regularization: float

    @property
    def weight(self) -> float:
        """Iterations that use the rows; warm starts make them cheaper than noisy ones."""
        return self.rounds / 2

    def compute(self) -> Result:
        """The average loss of every iteration, and the mean model of the last."""
        problem = self.problem.load()
        start = time.monotonic()
        parameters = TrainingParameters(
            "mr-admm",
            topology=self.edges,
            rounds=self.rounds,
            penalty=self.penalties[0],
            regularization=self.regularization,
            party_weight="equal",
            tolerance=_TOLERANCE,
            algorithm_options={"noise": "output", "gamma": self.gamma, "penalty_growth": 1.0},
        )
        planned, _ = TrainingJob(self.problem, parameters, runs=1).plan(problem)
        releases = np.arange(-(-self.rounds // 2))[:, None]
        penalty = np.array(self.penalties) * np.array(self.growths) ** releases
        shape = (len(releases), len(problem.counts))
        assert isinstance(planned.algorithm, MRADMM)
        algorithm = replace(planned.algorithm, penalty=np.broadcast_to(penalty, shape))
        losses: list[Array] = []
        noise = Silence()
        outcome = train(
            replace(planned, algorithm=algorithm),
            lay_out(planned, problem.members, noise=noise),
            noise=noise,
            on_round=lambda done, messages: losses.append(
                get_measure("average loss")(messages, problem)
            ),
        )
        values = {"average loss": np.array(losses), "model": outcome.last.mean(axis=0)[0, 0]}
        return Result(values, {"data": problem.facts, "seconds": time.monotonic() - start})


@final
@dataclass(frozen=True)
class OptimumCell(Job):
    r"""The minimiser of :math:`\sum_i a_i f_i`, found by scikit-learn.

    Attributes
    ----------
    problem, regularization
        Parties with as many rows each, and lambda.
    weights
        a_i of every party; all 1 if none are given.
    """

    problem: NamedProblem
    regularization: float
    weights: tuple[float, ...] = ()

    @property
    def weight(self) -> float:
        """About that of a few iterations."""
        return 5.0

    def compute(self) -> Result:
        """The optimum and its average loss."""
        from sklearn.linear_model import LogisticRegression

        problem = self.problem.load()
        start = time.monotonic()
        parties = len(problem.members)
        weights = np.array(self.weights or (1.0,) * parties)
        blocks, labels = zip(*problem.members, strict=True)
        counts = problem.counts
        # sum_i a_i (loss_i / n_i + lambda / (2 N) |w|^2), divided by the mean of a.
        shares = np.repeat(weights / weights.mean() / np.array(counts), counts)
        fitted = LogisticRegression(
            C=1 / self.regularization,
            fit_intercept=False,
            solver="newton-cholesky",
            tol=1e-10,
            max_iter=1000,
        ).fit(
            np.concatenate([dense(block) for block in blocks]),
            np.concatenate(labels)[:, 0],
            sample_weight=shares,
        )
        models = np.broadcast_to(fitted.coef_, (parties, 1, 1, problem.features))
        values = {"average loss": get_measure("average loss")(models, problem)}
        values["model"] = fitted.coef_[0]
        return Result(values, {"data": problem.facts, "seconds": time.monotonic() - start})
