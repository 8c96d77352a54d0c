"""Jobs that only the papers need: work beside a training, draws of the split, optima."""

from __future__ import annotations

import time
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Self, final

import numpy as np

from dpadmm.experiments.jobs import Job, Result, TrainingJob
from dpadmm.experiments.measures import get_measure
from dpadmm.experiments.problems import NamedProblem, Problem, dense
from dpadmm.plain import Array


def join(first: Result, more: Result) -> Result:
    """Join a job's result with that of its :meth:`Job.further`, runs along the last axis."""
    shared = {
        name: np.concatenate([first.values[name], more.values[name]], -1)
        for name in first.values
        if name in more.values
    }
    seconds: dict[str, float] = {
        name: first.facts[name] + more.facts[name]
        for name in ("seconds", "training_seconds")
        if name in first.facts
    }
    return Result({**first.values, **shared}, {**first.facts, **seconds})


@dataclass(frozen=True)
class OfTraining(Job):
    """Work that is done along with a training, and about as much.

    Attributes
    ----------
    training
        What is run.
    """

    training: TrainingJob

    @property
    def weight(self) -> float:
        """That of the training."""
        return self.training.weight


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

    @abstractmethod
    def one(self, problem: Problem, draw: int) -> tuple[Array, Array]:
        """The average loss and the model of one draw."""


@final
@dataclass(frozen=True)
class OptimumJob(DrawnJob):
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
