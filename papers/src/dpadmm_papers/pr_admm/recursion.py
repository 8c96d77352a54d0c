r"""(16), (17) and Proposition 1, put to the numbers of runs.

.. math::
    \nabla f(x^{k+1}) + \alpha^k + 2\eta M x^{k+1} - \eta L_+\tilde x^k &= 0 \tag{16} \\
    \alpha^{k+1} - \alpha^k - \eta L_-\tilde x^{k+1} &= 0 \tag{17} \\
    \frac{f(x^{k+1}) - f(x^*)}{\eta} + \langle 2r, Qx^{k+1}\rangle &\le
        \frac1\eta\bigl(\|q^k-q^*\|_G^2 - \|q^{k+1}-q^*\|_G^2\bigr)
        + \frac{\phi_{max}^2(L_+)}{2\phi_{min}(L_-)}\|\xi^k\|^2
        + \langle\xi^{k+1}, 2Q(r^{k+1}-r)\rangle

for any r, with :math:`\tilde x = x + \xi`, :math:`Q = \sqrt{L_-/2}`,
:math:`r^k = \sum_{s\le k} Q\tilde x^s`, :math:`q = (r; x)` and
:math:`G = \mathrm{diag}(\eta I, \eta L_+/2)`. The matrix form has no threshold (line 10), so that
the runs have none.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Final, final

import numpy as np

from dpadmm.experiments.figures import Curve, Panel
from dpadmm.experiments.jobs import Job, Result, TrainingJob
from dpadmm.experiments.problems import Problem
from dpadmm.plain import Array
from dpadmm.privacy.noise import SimulatedNoise
from dpadmm.problem.site import Topology
from dpadmm.report.document import Table
from dpadmm.run.plan import Plan
from dpadmm.run.session import lay_out
from dpadmm.solvers.workspace import Workspace
from dpadmm_papers.experiment import Conclusion, Evaluation, Finding, Setting, ours
from dpadmm_papers.iterates import Objective, rounds_of, watch
from dpadmm_papers.jobs import OfTraining
from dpadmm_papers.pr_admm.rates import Theorems5And6
from dpadmm_papers.pr_admm.section import NON_PRIVATE, PROPOSED, Section5
from dpadmm_papers.pr_admm.theory import laplacians, spectrum

# Slack of the proposition below this part of its terms is rounding of the local solves.
_SLACK: Final = 1e-6
_HOLDS: Final = 1e-6
_IDENTITY, _READING = "identity", "which matrix"
_WITHOUT: Final = "without noise"


@final
@dataclass(frozen=True)
class RecursionJob(OfTraining):
    """The terms of (16), (17), the identity after them and Proposition 1 in every iteration.

    Values are residuals as parts of their largest term, ``(iterations, runs)``: ``first``,
    ``second``, ``printed`` and ``with M``; and ``slack``, right minus left side over the sum of
    the sizes of all terms, ``(iterations, 3, runs)``, for r = 0, the last r^k and its negative.
    """

    def compute(self) -> Result:
        """Train, keep x and messages, and put them into the formulas."""
        began = time.monotonic()
        problem = self.training.problem.load()
        planned, _ = self.training.plan(problem)
        noise = SimulatedNoise(self.training.seed)
        workspace = Workspace(lay_out(planned, problem.members, noise=noise), planned.site)
        solved: list[Array] = []
        watch(workspace, "argmin", lambda told, solution: solved.append(solution.point))
        points, sent, duals = ([np.zeros(planned.site.shape)[:, :, 0]] for _ in range(3))
        for message, state in rounds_of(planned, workspace, noise, planned.rounds):
            points.append(solved[-1][:, :, 0])
            sent.append(message[:, :, 0])
            duals.append(state.dual[:, :, 0])
            solved.clear()
        values = _terms(planned, problem, np.array(points), np.array(sent), np.array(duals))
        facts = {"data": problem.facts, "seconds": time.monotonic() - began}
        return Result(values, facts)


def _terms(
    planned: Plan, problem: Problem, points: Array, sent: Array, duals: Array
) -> dict[str, Array]:
    """Put the course of a run into the formulas; arrays are ``(k, parties, runs, features)``."""
    site, penalty = planned.site, float(planned.penalty)
    topology: Topology = site.topology
    plus, minus = laplacians(topology)
    degrees = np.diag(plus)[:, None, None]
    largest, _, least = spectrum(topology)
    values, vectors = np.linalg.eigh(minus / 2)
    root = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
    objective = Objective(
        problem, site.loss, site.weight, site.regularization, np.zeros(site.shape)[:, :, 0]
    )
    optimum, minimum = objective.minimum()
    noise, sums = sent - points, np.cumsum(sent, axis=0)

    def apply(matrix: Array, vector: Array) -> Array:
        return np.asarray(np.tensordot(matrix, vector, 1))

    def inner(one: Array, other: Array) -> Array:
        return np.asarray((one * other).sum(axis=(0, 2)))

    sought = (0.0, 1.0, -1.0)
    found: dict[str, list[Array]] = {}
    for k in range(1, len(points) - 1):
        x, slopes = points[k + 1], objective.slopes(points[k + 1])
        pulled = penalty * apply(plus, sent[k])
        terms = (slopes, duals[k], 2 * penalty * degrees * x, -pulled)
        found.setdefault("first", []).append(_part(terms))
        step = -penalty * apply(minus, sent[k + 1])
        found.setdefault("second", []).append(_part((duals[k + 1], -duals[k], step)))
        aggregate = apply(root, sums[k + 1])
        own = (slopes / penalty, 2 * apply(root, aggregate), apply(plus, sent[k + 1] - sent[k]))
        for name, factor in (("printed", 1 / degrees), ("with M", degrees)):
            found.setdefault(name, []).append(_part((*own, -2 * factor * noise[k + 1])))
        before, apart = apply(root, sums[k]), (points[k] - optimum[None], x - optimum[None])
        slack = []
        for sign in sought:
            r = sign * apply(root, sums[-1])
            sides = [
                -(objective.value(x) - minimum) / penalty,
                -2 * inner(r, apply(root, x)),
                inner(before - r, before - r) + inner(apart[0], apply(plus, apart[0])) / 2,
                -inner(aggregate - r, aggregate - r) - inner(apart[1], apply(plus, apart[1])) / 2,
                largest**2 / (2 * least) * inner(noise[k], noise[k]),
                2 * inner(noise[k + 1], apply(root, aggregate - r)),
            ]
            slack.append(np.sum(sides, axis=0) / np.sum(np.abs(sides), axis=0))
        found.setdefault("slack", []).append(np.array(slack))
    return {name: np.array(each) for name, each in found.items()}


def _part(terms: tuple[Array, ...]) -> Array:
    """The norm of a sum over that of its largest term, of every run."""
    sizes = [np.sqrt(np.square(term).sum(axis=(0, 2))) for term in (sum(terms), *terms)]
    return np.asarray(sizes[0] / np.maximum(np.max(sizes[1:], axis=0), np.finfo(float).tiny))


class Proposition1(Section5):
    """(16), (17) and Proposition 1, checked with numbers."""

    name: ClassVar[str] = "pr-admm-recursion"
    part: ClassVar[str] = "(16), (17) and Proposition 1"
    title: ClassVar[str] = "What the proof of Theorems 5 and 6 says of every iteration, put to runs"
    seconds: ClassVar[float] = 20.0
    settings: ClassVar[Mapping[str, Setting]] = {
        **Section5.common,
        "first standard deviation": Theorems5And6.settings["first standard deviation"],
        "tolerance of these solves": ours(1e-11, "so that residuals are the formulas' own"),
        "threshold": ours("none", "the matrix form has no line 10"),
        "r": ours("0, the last r^k, and its negative", "the proposition has any r"),
    }
    conclusions: ClassVar[tuple[Conclusion, ...]] = (
        Conclusion(
            "updates",
            "PR-ADMM's updates in matrix form are (16) and (17).",
            f"In every iteration the sum of the terms is below {_HOLDS:g} of the largest of them.",
        ),
        Conclusion(
            _IDENTITY,
            "Substituting one into the other gives grad f / eta + 2 Q r^{k+1} + L_+ (x~^{k+1} - "
            "x~^k) = 2 M^{-1} xi^{k+1}.",
            f"In every iteration the sum of the terms is below {_HOLDS:g} of the largest of them.",
            choices=(_READING,),
        ),
        Conclusion(
            "proposition",
            "Proposition 1, for any r and k > 0.",
            "For every k > 0 and each r tried the right side is at least the left, to rounding.",
        ),
    )

    def _jobs(self) -> dict[str, TrainingJob]:
        regime, rates = self.regimes[0], Theorems5And6()
        plain = self.training(NON_PRIVATE, "proven", regime, self["epsilon of Figs. 2 to 4"])
        tolerance = self["tolerance of these solves"]
        found = {
            _WITHOUT: replace(plain, parameters=replace(plain.parameters, tolerance=tolerance))
        }
        for who in PROPOSED:
            job = rates.noisy(who)
            options = dict(job.parameters.algorithm_options) | {"threshold": None}
            told = replace(
                job.parameters,
                algorithm_options=options,
                rounds=self["iterations"],
                tolerance=tolerance,
            )
            found[f"{who}, noise of a chosen size"] = replace(job, parameters=told)
        return found

    def cells(self) -> dict[str, Job]:
        """Without noise, and both schedules."""
        return {name: RecursionJob(job) for name, job in self._jobs().items()}

    def evaluate(self, results: Mapping[str, Result]) -> Evaluation:
        """The largest residual of each formula, and the least slack."""
        findings, rows, curves = [], [], []
        for name, result in results.items():
            told = {each: float(result.values[each].max()) for each in result.values}
            both = max(told["first"], told["second"])
            slack = result.values["slack"]
            held = slack >= -_SLACK
            findings += [
                Finding.judged(
                    "updates", name, both < _HOLDS, f"At most {both:.2g} of the largest term."
                ),
                *(
                    Finding.judged(
                        _IDENTITY,
                        name,
                        told[each] < _HOLDS,
                        f"At most {told[each]:.2g} of the largest term.",
                        choice=choice,
                        variant=variant,
                    )
                    for each, choice, variant in (
                        ("printed", "", ""),
                        ("with M", _READING, "M for its inverse"),
                    )
                ),
                Finding.judged(
                    "proposition",
                    name,
                    bool(held.all()),
                    f"It holds in {held.mean():.1%} of all iterations, runs and r; the least "
                    f"slack is {slack.min():.2g} of the sum of all terms.",
                ),
            ]
            rows.append((name, *(f"{told[each]:.2g}" for each in _COLUMNS), f"{slack.min():.2g}"))
            every = tuple(range(2, len(slack) + 2))
            curves.append(Curve(name, every, tuple(slack.min(axis=(1, 2)).tolist())))
        heads = ("run", "(16)", "(17)", "identity as printed", "with M", "least slack of Prop. 1")
        panel = Panel(
            "Slack of Proposition 1",
            "iteration",
            "right minus left side, over the sum of all terms",
            tuple(curves),
            note="the least over runs and r; below 0 the proposition fails.",
        )
        return Evaluation((panel,), {"Residuals": Table.of(heads, rows)}, tuple(findings))


_COLUMNS: Final = ("first", "second", "printed", "with M")
