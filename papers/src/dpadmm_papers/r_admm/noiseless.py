"""R-ADMM, MR-ADMM and ADMM without noise on random graphs; and the optimum they should reach."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray

from dpadmm.algorithms.r_admm import MRADMM
from dpadmm.experiments.job import Job, Result, TrainingJob
from dpadmm.experiments.measures import get_measure
from dpadmm.experiments.problems import NamedProblem, Problem, dense
from dpadmm.plain import Array
from dpadmm.privacy.noise import NoiseSource
from dpadmm.problem.topologies import build_topology
from dpadmm.run.parameters import TrainingParameters
from dpadmm.run.train import lay_out, train

__all__ = ["DrawnJob", "NoiselessCell", "OptimumCell", "Silence"]

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


@dataclass(frozen=True)
class DrawnJob(Job):
    """Work on draws of the split of the rows and of the graph, which stand for runs.

    Attributes
    ----------
    problem
        The rows; the number of a draw decides its split, and its random graph.
    regularization
        lambda.
    draws, first_draw
        How many, and the number of the first.
    """

    problem: NamedProblem
    regularization: float
    draws: int = 1
    first_draw: int = 0

    def further(self, times: int) -> Self | None:
        """More draws; none where only one was wanted."""
        if self.draws == 1:
            return None
        return replace(self, draws=times * self.draws, first_draw=self.first_draw + self.draws)

    def compute(self) -> Result:
        """The average loss, draws along the last axis, and the mean model of the last draw."""
        start = time.monotonic()
        losses = []
        for draw in range(self.first_draw, self.first_draw + self.draws):
            problem = self.problem.dealt_again(draw).load()
            loss, model = self.one(problem, draw)
            losses.append(loss)
        values = {"average loss": np.stack(losses, axis=-1)}
        if self.draws == 1:
            values["model"] = model
        return Result(values, {"data": problem.facts, "seconds": time.monotonic() - start})

    def one(self, problem: Problem, draw: int) -> tuple[Array, Array]:
        """The average loss and the model of one draw."""
        raise NotImplementedError


@final
@dataclass(frozen=True)
class NoiselessCell(DrawnJob):
    r"""MR-ADMM without noise, with the penalties :math:`\eta_i q_i^{k-1}`; or ADMM.

    Attributes
    ----------
    rounds
        Iterations.
    penalties, growths
        eta_i and q_i of every party, or one for all. Growths that differ are not offered by
        ``mr-admm``: the run then ends where its path leads, and not at an optimum.
    gamma
        As in ``mr-admm``; None is conventional ADMM, with the first of the penalties.
    loss, edges
        By name; the graph, where it is not the random one of the draw.
    """

    rounds: int = 1
    penalties: tuple[float, ...] = (1.0,)
    growths: tuple[float, ...] = (1.0,)
    gamma: float | None = None
    loss: str = "logistic"
    edges: tuple[tuple[int, int], ...] | None = None

    @property
    def weight(self) -> float:
        """Iterations that use the rows; warm starts make them cheaper than noisy ones."""
        return self.draws * self.rounds / 2

    def one(self, problem: Problem, draw: int) -> tuple[Array, Array]:
        """The loss of every iteration, and the mean model of the last."""
        options: dict[str, Any] = {}
        if self.gamma is not None:
            options = {"noise": "output", "gamma": self.gamma, "penalty_growth": 1.0}
        parties = len(problem.counts)
        parameters = TrainingParameters(
            "admm" if self.gamma is None else "mr-admm",
            topology=self.edges or build_topology("random", parties, seed=draw).edges,
            rounds=self.rounds,
            penalty=self.penalties[0],
            regularization=self.regularization,
            party_weight="equal",
            loss=self.loss,
            tolerance=_TOLERANCE,
            algorithm_options=options,
        )
        planned, _ = TrainingJob(self.problem, parameters, runs=1).plan(problem)
        if isinstance(planned.algorithm, MRADMM):
            releases = np.arange(-(-self.rounds // 2), dtype=np.float64)[:, None]
            penalty: Array = np.array(self.penalties) * np.array(self.growths) ** releases
            penalty = np.broadcast_to(penalty, (len(releases), parties))
            planned = replace(planned, algorithm=replace(planned.algorithm, penalty=penalty))
        losses: list[Array] = []
        measure, noise = get_measure("average loss"), Silence()
        outcome = train(
            planned,
            lay_out(planned, problem.members, noise=noise),
            noise=noise,
            on_round=lambda done, messages: losses.append(measure(messages, problem)),
        )
        return np.array(losses)[:, 0], outcome.last.mean(axis=0)[0, 0]


@final
@dataclass(frozen=True)
class OptimumCell(DrawnJob):
    r"""The minimiser of :math:`\sum_i a_i f_i`, found by scikit-learn.

    Attributes
    ----------
    weights
        a_i of every party; all 1 if none are given.
    """

    weights: tuple[float, ...] = ()

    @property
    def weight(self) -> float:
        """About that of a few iterations."""
        return 5.0 * self.draws

    def one(self, problem: Problem, draw: int) -> tuple[Array, Array]:
        """The optimum's average loss, and the optimum."""
        from sklearn.linear_model import LogisticRegression

        parties, counts = len(problem.members), problem.counts
        weights = np.array(self.weights or (1.0,) * parties)
        blocks, labels = zip(*problem.members, strict=True)
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
        return get_measure("average loss")(models, problem)[0], fitted.coef_[0]
