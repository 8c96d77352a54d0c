"""R-ADMM, MR-ADMM and ADMM without noise, on random graphs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dpadmm.algorithms.r_admm import MRADMM
from dpadmm.experiments.draws import DrawnJob
from dpadmm.experiments.job import TrainingJob
from dpadmm.experiments.measures import get_measure
from dpadmm.experiments.problems import Problem
from dpadmm.plain import Array
from dpadmm.privacy.noise import NoiseSource
from dpadmm.problem.topologies import build_topology
from dpadmm.run.parameters import TrainingParameters
from dpadmm.run.train import lay_out, train

__all__ = ["NoiselessCell", "Silence"]

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
