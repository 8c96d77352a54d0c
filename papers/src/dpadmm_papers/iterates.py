r"""Runs followed round by round: what a round costs, and where averaged iterates stand.

.. math:: \hat x_i^K = \frac1K\sum_{k=1}^K x_i^k,\qquad
          \sum_i f_i(\hat x_i^K) + g(\hat z^K) - P^* + \sum_i\tau\|\hat x_i^K - \hat z^K\|

is what theorems on rates bound: of parties that talk to each other without g and tau, the
regulariser being part of every f_i and x before noise; around a server with both (criterion (9) of
PS-ADMM), x being what is sent. Only a simulation can look at it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, final

import numpy as np

from dpadmm.experiments.jobs import Result
from dpadmm.experiments.measures import get_measure
from dpadmm.experiments.problems import Problem
from dpadmm.plain import Array
from dpadmm.privacy.noise import SimulatedNoise
from dpadmm.problem.losses import Loss
from dpadmm.run.engine import InProcess
from dpadmm.run.plan import Plan, announced
from dpadmm.run.session import lay_out, state_privacy
from dpadmm.solvers.workspace import Workspace
from dpadmm_papers.jobs import OfTraining

#: The names of what is measured: CPU seconds, local solves, passes over the rows.
COUNTED: Final = ("seconds", "solves", "passes")


@final
@dataclass(frozen=True)
class CostJob(OfTraining):
    """Runs of one algorithm whose every iteration is timed and counted.

    They are done one after the other, with draws of the noise of their own.
    """

    def further(self, times: int) -> CostJob | None:
        """More draws of the noise."""
        more = self.training.further(times)
        return None if more is None else CostJob(more)

    def compute(self) -> Result:
        """CPU seconds, solves and passes ``(iterations, runs)``, all parties together."""
        start = time.monotonic()
        job = self.training
        taken = np.stack([self._count(job.seed + run) for run in range(job.runs)], axis=-1)
        counts = dict(zip(COUNTED, np.moveaxis(taken, 1, 0), strict=True))
        facts = {"data": job.problem.load().facts, "seconds": time.monotonic() - start}
        return Result(counts, facts)

    def _count(self, seed: int) -> Array:
        """``(iterations, 3)`` of one run."""
        problem = self.training.problem.load()
        planned, _ = replace(self.training, runs=1).plan(problem)
        noise = SimulatedNoise(seed)
        workspace = Workspace(lay_out(planned, problem.members, noise=noise), planned.site)
        solved: list[Array] = []
        watch(workspace, "argmin", lambda told, solution: solved.append(solution.point))
        counts = [(time.process_time(), 0, workspace.passes)]
        for _ in rounds_of(planned, workspace, noise, planned.rounds):
            counts.append((time.process_time(), len(solved), workspace.passes))
        return np.diff(np.array(counts, dtype=np.float64), axis=0)


@final
@dataclass(frozen=True)
class CountJob(OfTraining):
    """A run whose gradients of single rows are counted: per party, after every iteration.

    Solves form no matrix, so that every product with a Hessian is a pass over the rows that counts.
    Values are ``gradients`` and ``loss``, ``(iterations, 1)``.
    """

    def compute(self) -> Result:
        """Train with a solver that counts all it does as passes, and follow the loss."""
        began = time.monotonic()
        problem = self.training.problem.load()
        planned, _ = self.training.plan(problem)
        noise = SimulatedNoise(self.training.seed)
        shard = lay_out(planned, problem.members, noise=noise)
        workspace = Workspace(shard, planned.site, factor_limit=0)
        inner: list[int] = []
        watch(
            workspace,
            "svrg",
            lambda told, _: inner.append(2 * max(batch.size for batch in told[3].batches)),
        )
        counts, losses = [], []
        for sent, _ in rounds_of(planned, workspace, noise, planned.rounds):
            # A pass over a block is one over the rows of each of its parties.
            passes = workspace.passes / len(shard.blocks)
            counts.append([passes * max(problem.counts) + sum(inner)])
            losses.append(get_measure("average loss")(sent, problem))
        values = {"gradients": np.array(counts, dtype=np.float64), "loss": np.array(losses)}
        facts = {"data": problem.facts, "seconds": time.monotonic() - began}
        return Result(values, facts)


#: What the values of :class:`PrimalJob` that judge x before its noise are named after.
PRIMAL: Final = "primal"


@final
@dataclass(frozen=True)
class PrimalJob(OfTraining):
    """A training that is judged twice: by the messages, and by x before its noise.

    Values have the names of a :class:`~dpadmm.experiments.jobs.TrainingJob`: courses under their
    own, ``last/...``; those of x have ``primal/`` before the name of a measure. Nobody may see x
    outside of a simulation: no statement of privacy is about it.
    """

    def further(self, times: int) -> PrimalJob | None:
        """More draws of the noise."""
        more = self.training.further(times)
        return None if more is None else PrimalJob(more)

    def compute(self) -> Result:
        """Train, and measure both after every round and at the end."""
        began = time.monotonic()
        job = self.training
        problem = job.problem.load()
        planned, cautions = job.plan(problem)
        noise = SimulatedNoise(job.seed)
        workspace = Workspace(lay_out(planned, problem.members, noise=noise), planned.site)
        solved: list[Array] = []
        watch(workspace, "argmin", lambda told, solution: solved.append(solution.point))
        courses: dict[str, list[Array]] = {}
        for sent, _ in rounds_of(planned, workspace, noise, planned.rounds):
            both = {"": sent, f"{PRIMAL}/": solved[-1]}
            solved.clear()
            for which, models in both.items():
                for name in job.courses:
                    found = get_measure(name)(models, problem)
                    courses.setdefault(f"{which}{name}", []).append(found)
        values = {name: np.array(course) for name, course in courses.items()}
        for which, models in {"last/": both[""], f"{PRIMAL}/last/": both[f"{PRIMAL}/"]}.items():
            values |= {f"{which}{name}": get_measure(name)(models, problem) for name in job.finals}
        statement = state_privacy(planned, announced(planned), noise, by_round=False)
        facts = {
            "privacy": statement.to_dict(),
            "penalty": planned.penalty,
            "data": problem.facts,
            "warnings": cautions,
            "seconds": time.monotonic() - began,
        }
        return Result(values, facts)


# A convex smooth objective needs few Newton steps; a gain below this part of it is rounding.
_MOST_STEPS: Final = 100
_ROUNDING: Final = 1e-15
# A part of a Newton step at which no gain is one of rounding.
_SHORTEST: Final = 1e-6


@dataclass(frozen=True, eq=False)
class Objective:
    r"""The pooled objective of parties with rows, :math:`\sum_i f_i(x_i)`.

    .. math:: f_i(w) = \frac{c_i}{n_i}\sum_k l(y_k w\cdot x_k) + \frac{\lambda}{2N}\|w\|^2
              + \eta_i\cdot w

    Attributes
    ----------
    problem, loss, weight
        The rows; the loss; c_i of each party.
    regularization
        lambda.
    tilts
        eta_i of each party and run, ``(parties, runs, features)``, or zeros.
    """

    problem: Problem
    loss: Loss
    weight: Array
    regularization: float
    tilts: Array

    def losses(self, points: Array) -> Array:
        """Sum over parties of the mean loss of each at its own point, one per run.

        ``points`` are ``(parties, runs, features)``; the tilts are part of it.
        """
        total = np.einsum("irf,irf->r", self.tilts, points)
        for (rows, signs), own, weight in zip(
            self.problem.members, points, self.weight, strict=True
        ):
            margins = signs * np.asarray(rows @ own.T)
            total += weight * self.loss.value(margins).mean(axis=0)
        return np.asarray(total)

    def value(self, points: Array) -> Array:
        """The same with the regulariser."""
        squares = np.square(points).sum(axis=(0, 2)) / len(points)
        return self.losses(points) + self.regularization / 2 * squares

    def slopes(self, points: Array) -> Array:
        """The gradient of every f_i at a point of its own, of the shape of ``points``."""
        found = self.tilts + self.regularization / len(points) * points
        for place, ((rows, signs), weight) in enumerate(
            zip(self.problem.members, self.weight, strict=True)
        ):
            pulls = signs * self.loss.slope(signs * np.asarray(rows @ points[place].T))
            found[place] += weight / len(signs) * np.asarray(rows.T @ pulls).T
        return found

    def minimum(self) -> tuple[Array, Array]:
        """The best common point of every run, ``(runs, features)``, and the objective there."""
        tilts = self.tilts.sum(axis=0)
        # Runs that differ in the noise of their messages alone have one optimum.
        different, place = np.unique(tilts, axis=0, return_inverse=True)
        points = np.array([self._newton(tilt) for tilt in different])[place.ravel()]
        return points, self.value(np.repeat(points[None], len(self.weight), axis=0))

    def _newton(self, tilt: Array) -> Array:
        """Minimise for one run, by Newton's method with halved steps."""
        point = np.zeros(len(tilt))
        here = self._at(point, tilt)
        for _ in range(_MOST_STEPS):
            value, gradient, curvature = here
            step = np.linalg.solve(curvature, gradient)
            # Half of this is what a full step gains near the minimum.
            if gradient @ step <= _ROUNDING * abs(value):
                return point - step
            length = 1.0
            while (there := self._at(point - length * step, tilt))[0] >= value:
                length /= 2
                if length < _SHORTEST:
                    # What is left to gain is less than rounding.
                    return point
            point, here = point - length * step, there
        return point

    def _at(self, point: Array, tilt: Array) -> tuple[float, Array, Array]:
        """Value, gradient and Hessian."""
        value = float(tilt @ point + self.regularization / 2 * point @ point)
        gradient = tilt + self.regularization * point
        curvature = self.regularization * np.eye(len(point))
        for (rows, signs), weight in zip(self.problem.members, self.weight, strict=True):
            margins = signs[:, 0] * np.asarray(rows @ point)
            share = weight / len(margins)
            value += share * float(self.loss.value(margins).sum())
            gradient = gradient + share * (rows.T @ (signs[:, 0] * self.loss.slope(margins)))
            bent = rows.T @ (rows * self.loss.curvature(margins)[:, None])
            curvature += share * (bent.toarray() if hasattr(bent, "toarray") else bent)
        return value, np.asarray(gradient), curvature


@final
@dataclass(frozen=True)
class IterateJob(OfTraining):
    r"""A training whose averaged iterates are judged after chosen numbers of rounds.

    Values are ``excess`` and ``apart``, ``(looks, runs)``: the objective of the averages above its
    minimum, and the sum over parties of the distance from the server's average (from the mean of
    the parties where there is no server); ``released`` is the excess of averaged messages,
    ``norm`` the norm of the optimum of each run. ``pull`` is the longest gradient of a party there,

    .. math:: G = \max_i\|\nabla f_i(x^*)\|,\qquad
              \sum_i f_i(x_i) - f(x^*) \ge -G\sum_i\|x_i - \bar x\|

    by convexity, as the gradients add up to 0: so far can parties that have not agreed be below the
    minimum. ``ignorant`` is the excess of w = 0.

    Attributes
    ----------
    looks
        The numbers of rounds, ascending.
    extensible
        Whether more runs would decide more.
    """

    looks: tuple[int, ...]
    extensible: bool = True

    def further(self, times: int) -> IterateJob | None:
        """More runs, where they would decide more and the training has noise."""
        more = self.training.further(times) if self.extensible else None
        return None if more is None else replace(self, training=more)

    def compute(self) -> Result:
        """Train, average and judge."""
        began = time.monotonic()
        problem = self.training.problem.load()
        planned, _ = self.training.plan(problem)
        noise = SimulatedNoise(self.training.seed)
        workspace = Workspace(lay_out(planned, problem.members, noise=noise), planned.site)
        looked = _follow(planned, workspace, noise, self.looks)
        tilts = workspace.snapshot().get("kept.objective")
        site = planned.site
        shape = (site.parties, site.runs, site.features)
        objective = Objective(
            problem,
            site.loss,
            site.weight,
            site.regularization,
            np.zeros(shape) if tilts is None else tilts.reshape(shape) / site.parties,
        )
        points, least = objective.minimum()
        values = _judged(objective, looked, least, server=site.topology.server)
        values["norm"] = np.linalg.norm(points, axis=1)
        # Around a server the regulariser is the server's.
        pulling = replace(objective, regularization=0.0) if site.topology.server else objective
        slopes = pulling.slopes(np.repeat(points[None], site.parties, axis=0))
        values["pull"] = np.linalg.norm(slopes, axis=2).max(axis=0)
        values["ignorant"] = objective.value(np.zeros(shape)) - least
        facts = {
            "data": problem.facts,
            "penalty": planned.penalty,
            "minimum": float(least.mean()),
            "seconds": time.monotonic() - began,
        }
        return Result(values, facts)


def watch(workspace: Workspace, name: str, note: Callable[[tuple[Any, ...], Any], None]) -> None:
    """Have a method of the workspace tell each time what it was given and what it gave."""
    method = getattr(workspace, name)

    def watched(*arguments: Any) -> Any:
        given = method(*arguments)
        note(arguments, given)
        return given

    vars(workspace)[name] = watched


def rounds_of(
    planned: Plan, workspace: Workspace, noise: SimulatedNoise, rounds: int
) -> Iterator[tuple[Array, Any]]:
    """Take the rounds of a run one by one: what was sent, and the state after it."""
    algorithm, site = planned.algorithm, planned.site
    exchange = InProcess(server=site.topology.server)
    state = algorithm.init(site)
    for t in range(rounds):
        algorithm.announce(state, site, t)
        message = algorithm.local_step(state, workspace, site, noise, t)
        state = algorithm.absorb(state, message.values, exchange(message, t), site, t)
        yield message.values, state


def _follow(
    planned: Plan, workspace: Workspace, noise: SimulatedNoise, looks: Sequence[int]
) -> list[tuple[Array, Array, Array]]:
    """Averages of iterates, messages and the server's variable after each look."""
    site = planned.site
    solved: list[Array] = []
    watch(workspace, "argmin", lambda told, solution: solved.append(solution.point))
    iterates, messages, centres = (np.zeros(site.shape) for _ in range(3))
    looked = []
    for t, (sent, state) in enumerate(rounds_of(planned, workspace, noise, max(looks))):
        iterates += solved[-1] if solved else sent
        solved.clear()
        messages += sent
        centres += state.consensus if site.topology.server else sent.mean(axis=0)
        if t + 1 in looks:
            means = [sums[:, :, 0] / (t + 1) for sums in (iterates, messages, centres)]
            looked.append((means[0], means[1], means[2]))
    return looked


def _judged(
    objective: Objective, looked: list[tuple[Array, Array, Array]], least: Array, *, server: bool
) -> dict[str, Array]:
    """What the averages come to, ``(looks, runs)`` each."""
    found: dict[str, list[Array]] = {"excess": [], "released": [], "apart": []}
    for iterates, messages, centres in looked:
        for name, points in (("excess", iterates), ("released", messages)):
            if server:
                squares = np.square(centres[0]).sum(axis=1)
                value = objective.losses(points) + objective.regularization / 2 * squares
            else:
                value = objective.value(points)
            found[name].append(value - least)
        found["apart"].append(np.linalg.norm(iterates - centres, axis=2).sum(axis=0))
    return {name: np.array(values) for name, values in found.items()}


def rate(looks: Sequence[int], values: Array, *, first: int) -> Array:
    """The slope of ``log |value|`` over ``log K`` from the look ``first`` on, one per run."""
    places = np.asarray(looks) >= first
    away = np.log(np.asarray(looks, dtype=np.float64)[places])
    sizes = np.log(np.maximum(np.abs(values[places]), np.finfo(float).tiny))
    away = away - away.mean()
    return np.asarray(away @ sizes / (away @ away))
