"""Courses of average loss over the iterations, and what they say of convergence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from dpadmm.algorithms.r_admm import MRADMM
from dpadmm.experiments.figures import Curve, Panel
from dpadmm.experiments.jobs import Result, TrainingJob
from dpadmm.experiments.measures import Interval, get_measure, mean_interval
from dpadmm.experiments.problems import Problem
from dpadmm.plain import Array
from dpadmm.privacy.noise import NoiseSource
from dpadmm.problem.site import build_topology
from dpadmm.report.document import Table
from dpadmm.run.options import TrainingParameters
from dpadmm.run.session import lay_out, train
from dpadmm_papers.jobs import DrawnJob

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


# The loss of a classifier that knows nothing, where every run starts.
_START: Final = float(np.log(2))
#: A course counts as there when this part of the way to the optimum's loss is left.
REACHED: Final = 0.02
_NOTE: Final = "the mean over draws of the graph and the split."


def even_steps(course: Array) -> Array:
    """``L(2k) - L(2k-1)``: what each even iteration adds to the average loss."""
    pairs = course[: len(course) // 2 * 2].reshape(-1, 2)
    return pairs[:, 1] - pairs[:, 0]


def alternation(course: Array) -> Array:
    """``L(2k) - (L(2k-1) + L(2k+1)) / 2``: even iterations beside the odd ones around them.

    A course that goes down steadily has none, whatever its pace.
    """
    odd = course[::2]
    return course[1::2][: len(odd) - 1] - (odd[:-1] + odd[1:]) / 2


def left_over(course: Array) -> Array:
    """``L(2k+1) - L(2k-1)`` where iteration 2k raised the loss: above 0 it was not undone."""
    steps, odd = even_steps(course), course[::2]
    after = odd[1:] - odd[:-1]
    return after[steps[: len(after)] > 0]


def reached(gaps: Array, iterations: Array, part: float = REACHED) -> float:
    """The iteration from which on the gap stays within ``part``; infinite if there is none."""
    within = gaps <= part
    if not within[-1]:
        return float("inf")
    outside = np.flatnonzero(~within)
    return float(iterations[outside[-1] + 1] if len(outside) else iterations[0])


@dataclass(frozen=True)
class Courses:
    """The results of Fig. 1, by label."""

    results: Mapping[str, Result]

    def losses(self, label: str) -> Array:
        """``(draws, iterations)``."""
        return self.results[label].course("average loss").T

    def gaps(self, label: str, network: int) -> Array:
        """``(draws, iterations)``: the loss above the optimum's, as a part of the way to it."""
        losses = self.losses(label)
        best = self.results[f"N = {network}, optimum"].values["average loss"][: len(losses), None]
        return np.asarray((losses - best) / (_START - best))

    def slower(self, labels: Sequence[str], network: int) -> dict[str, Interval]:
        """By how much more is left, in odd iterations, with each label than with the one before."""
        areas = {label: self.gaps(label, network)[:, ::2].mean(axis=1) for label in labels}
        return _changes(areas)

    def swings(self, label: str) -> Array:
        """Mean size of the alternation, one number per draw."""
        return np.array([np.abs(alternation(course)).mean() for course in self.losses(label)])

    def calmer(self, labels: Sequence[str]) -> dict[str, Interval]:
        """The change of the alternation from each label to the next."""
        return _changes({label: self.swings(label) for label in labels})

    def iterations(self, label: str, network: int, step: int) -> list[float]:
        """How many iterations it takes to get there, looking at every ``step``-th."""
        gaps = self.gaps(label, network)
        every = np.arange(1, gaps.shape[1] + 1)
        return [reached(gap[::step], every[::step]) for gap in gaps]

    def first_half(self, network: int, names: Sequence[str]) -> Panel:
        """(a): the average loss in the first half of the iterations, odd and even."""
        curves = []
        for name in names:
            loss = self.losses(f"N = {network}, {name}").mean(axis=0)
            half = len(loss) // 2
            curves.append(Curve(name, tuple(range(1, half + 1)), tuple(loss[:half].tolist())))
        title = f"(a) R-ADMM, N = {network}"
        return Panel(title, "iteration", "average loss", tuple(curves), note=_NOTE)

    def odd_gaps(self, network: int, labels: Sequence[str], title: str) -> Panel:
        """(b), (c): what is left in odd iterations."""
        curves = []
        for label in labels:
            left = self.gaps(label, network)[:, ::2].mean(axis=0)
            every = tuple(range(1, 2 * len(left), 2))
            name = label.partition(", ")[2] or "fixed penalty 1"
            curves.append(Curve(name, every, tuple(left.tolist())))
        what = "loss above the optimum's, part of the way"
        return Panel(title, "odd iteration", what, tuple(curves), y_scale="log", note=_NOTE)

    def table(self, named: Sequence[tuple[int, str]]) -> Table:
        """Alternation, iterations and what is left, for every curve."""
        rows, last = [], 0
        for network, label in named:
            gaps = self.gaps(label, network)
            last, plain = gaps.shape[1], label.endswith("ADMM")
            counts = self.iterations(label, network, 1 if plain else 2)
            rows.append(
                (
                    label,
                    "-" if plain else float(self.swings(label).mean()),
                    float(np.mean(counts)) if np.isfinite(counts).all() else "not reached",
                    f"{mean_interval(gaps[:, last // 2 - 1]):.2%}",
                    f"{mean_interval(gaps[:, -1]):.2%}",
                )
            )
        heads = ("curve", "mean alternation", f"iterations until {REACHED:.0%} is left")
        return Table.of((*heads, f"left after {last // 2}", f"left after {last}"), rows)


def _changes(samples: Mapping[str, Array]) -> dict[str, Interval]:
    """From each label to the next, draw by draw."""
    return {
        f"{later} less {earlier.rpartition(', ')[2]}": mean_interval(
            samples[later] - samples[earlier]
        )
        for earlier, later in pairwise(samples)
    }
