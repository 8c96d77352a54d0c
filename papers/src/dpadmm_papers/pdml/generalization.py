r"""Generalisation error beside Corollaries 1 and 2, and the rate of Theorem 2.

.. math:: \Delta J_{\mathcal P}(w) = J_{\mathcal P}(w) - \min_w J_{\mathcal P}(w),\qquad
          J_{\mathcal P}(w) = \mathbb E_{\mathcal P}\,l(y\,w\cdot x) + \frac{a}{2n}\|w\|^2

needs the distribution that samples come from. Here it is that of all rows of Adult, from which
every server draws its own with replacement: samples are independent, as the theorems have it, and
the error is a sum. The classifiers are the optima under randomised labels, without eta (Corollary
2) and with it (Corollary 1).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar, Final, NamedTuple, final

import numpy as np
from scipy.optimize import brentq

from dpadmm.experiments.figures import Curve, Panel
from dpadmm.experiments.jobs import Job, Result
from dpadmm.experiments.measures import mean_interval
from dpadmm.experiments.problems import NamedProblem, Problem, dense
from dpadmm.plain import Array
from dpadmm.privacy.figures import Given
from dpadmm.problem.losses import corrected_for_label_noise, get_loss
from dpadmm.report.document import Table
from dpadmm_papers.experiment import (
    Conclusion,
    Evaluation,
    Experiment,
    Finding,
    Setting,
    ours,
)
from dpadmm_papers.iterates import Objective
from dpadmm_papers.pdml.scheme import CITATION, SHARED
from dpadmm_papers.pdml.theory import constants, corollary_1, corollary_2, data_term, rademacher
from dpadmm_papers.preparations import ReportedProblem
from dpadmm_papers.statistics import difference
from dpadmm_papers.verdicts import above, all_above, all_below, certain, every, opposite

_FORM: Final = ".3g"
# Rows of new servers are those of a draw so much later.
_OTHERS: Final = 10_000
# Logarithms of weights between which that of a ball's boundary lies, and how near it is found.
_WEIGHTS: Final = (-16.0, 16.0)
_NEAR: Final = 1e-4
# What is judged has no calibration: nothing is sent.
_WHAT: Final = "the optimum of reported labels"


@final
@dataclass(frozen=True)
class OptimumJob(Job):
    """The optimum under randomised labels and eta, and its error in the whole population.

    Values are ``error``, one per draw, and ``norm`` of the optimum; ``radius`` is the norm of the
    ideal classifier and ``complexity`` Rad_i of the ball of the larger norm, of each draw.

    Attributes
    ----------
    problem
        The rows and reported labels of the first draw.
    bound, regularization
        R and a.
    draws, first
        How many, and the number of the first.
    radius
        W is the ball around 0 of this radius; 0 stands for all classifiers.
    newcomers
        Rows of servers that join, each the first so many of another server's draw.
    """

    problem: ReportedProblem
    bound: float
    regularization: float
    draws: int
    first: int = 0
    radius: float = 0.0
    newcomers: tuple[int, ...] = ()

    @property
    def weight(self) -> float:
        """One solve a draw."""
        return 10.0 * self.draws

    def further(self, times: int) -> OptimumJob:
        """More draws."""
        return replace(self, draws=times * self.draws, first=self.first + self.draws)

    def _joined(self, draw: int) -> Problem:
        """The rows of a draw, those of new servers included, from draws of their own."""
        problem = self.problem.dealt_again(draw).load()
        if not self.newcomers:
            return problem
        other = self.problem.dealt_again(draw + _OTHERS).load()
        joined = tuple(
            (rows[:count], signs[:count])
            for count, (rows, signs) in zip(self.newcomers, other.members, strict=False)
        )
        names = (*problem.names, *(f"newcomer {place}" for place in range(len(joined))))
        return replace(problem, members=(*problem.members, *joined), names=names)

    def compute(self) -> Result:
        """Draw, solve and judge by all rows."""
        began = time.monotonic()
        found: dict[str, list[float]] = {"error": [], "norm": [], "complexity": []}
        problem = self._joined(self.first)
        parties = len(problem.members)
        signs = np.where(problem.test_codes > 0, 1.0, -1.0)[:, None]
        everyone = replace(problem, members=((problem.test_rows, signs),))
        features, loss = problem.features, get_loss("logistic")
        # a / n with the n of the paper's setting: who joins must not change what is sought.
        share = self.regularization / (parties - len(self.newcomers))
        ideal = Objective(everyone, loss, np.ones(1), share, np.zeros((1, 1, features)))
        best, least = within_ball(ideal, self.radius)
        radius = float(np.linalg.norm(best))
        for draw in range(self.first, self.first + self.draws):
            problem = self._joined(draw)
            stream = np.random.default_rng([self.problem.seed, draw])
            shape = (parties, 1, features)
            eta = stream.uniform(-self.bound, self.bound, shape) / parties
            corrected = corrected_for_label_noise(loss, self.problem.label_epsilon)
            ones = np.ones(parties)
            reported = Objective(problem, corrected, ones, share * parties, eta)
            point = within_ball(reported, self.radius)[0]
            norm = float(np.linalg.norm(point))
            rows = [dense(each) for each, _ in problem.members]
            ball = max(radius, norm)
            found["error"].append(float(ideal.value(point[None])[0] - least[0]))
            found["norm"].append(norm)
            found["complexity"].append(
                float(np.mean([rademacher(ball, len(each), each)[1] for each in rows]))
            )
        facts = {
            "data": problem.facts,
            "radius": radius,
            "nothing": float(math.log(2) - least[0]),
            "ideal": float(least[0]),
            "rows": [len(labels) for _, labels in problem.members],
            "seconds": time.monotonic() - began,
        }
        return Result({name: np.array(values) for name, values in found.items()}, facts)


def within_ball(objective: Objective, radius: float) -> tuple[Array, Array]:
    r"""The best point of norm at most ``radius``, or of all where that is 0; one run.

    .. math:: \min_{\|w\| \le r} J(w) = \min_w J(w) + \tfrac\mu2\|w\|^2

    for the mu with which the norm is r: it is searched for.
    """
    point, least = objective.minimum()
    if not radius or np.linalg.norm(point) <= radius:
        return point, least

    def beyond(weight: float) -> float:
        heavier = replace(objective, regularization=objective.regularization + math.exp(weight))
        return math.log(float(np.linalg.norm(heavier.minimum()[0])) / radius)

    weight = brentq(beyond, *_WEIGHTS, xtol=_NEAR)
    point = replace(
        objective, regularization=objective.regularization + math.exp(weight)
    ).minimum()[0]
    return point, objective.value(np.repeat(point[None], len(objective.weight), axis=0))


class _Case(NamedTuple):
    """What a cell is about: epsilon of the labels, rows of a server, R, W, who joins."""

    epsilon: float
    rows: int
    bound: float
    radius: float = 0.0
    newcomers: tuple[int, ...] = ()

    @property
    def label(self) -> str:
        words = f"label epsilon {Given(self.epsilon)}, {self.rows} rows, R {self.bound:g}"
        words += f", W of radius {self.radius:g}" if self.radius else ""
        joined = f"{len(self.newcomers)} servers of {self.newcomers[0]}" if self.newcomers else ""
        return f"{words}, joined by {joined}" if joined else words


class Generalization(Experiment):
    """Corollaries 1 and 2: the error in the population, beside its bound."""

    name = "pdml-generalization"
    citation = CITATION
    part = "Corollaries 1 and 2"
    title = "Generalisation error of the trained optimum, beside its bound"
    seconds: ClassVar[float] = 10.0
    settings: ClassVar[Mapping[str, Setting]] = {
        **{name: SHARED[name] for name in ("servers", "loss", "regulariser", "a", "seed")},
        "data": ours("adult", "as in the figures; all its rows are the population"),
        "draws": ours(10, "each draws rows, labels and eta anew"),
        "epsilon": ours((0.2, 0.4, 0.6, 0.8, 1.0, 3.0), "of the labels, at R = 0"),
        "small epsilon": ours(0.6, "up to which the error is to fall, as in Fig. 4(c)"),
        "rows of a server": ours((500, 1500, 4500), "at epsilon = 1 and R = 0"),
        "R": ours((0.0, 1.0, 3.0), "at epsilon = 1"),
        "radius of W": ours((0.1, 0.3, 1.0, 3.0), "at the a and epsilon of W: balls around 0"),
        "a and epsilon of W": ours((0.001, 0.4), "a small a, so that the ball decides"),
        "rows beside": ours(1500, "of a server where W, or who joins, is varied"),
        "servers that join": ours(
            ((), (30,) * 10, (1500,) * 10), "ten of 1,500 rows are there, at epsilon 0.4"
        ),
        "failure": ours(0.05, "the delta with which the bounds may fail"),
        "W": ours(
            "the smallest ball around 0 with the ideal and the trained classifier",
            "the paper has some bounded W; a larger one makes the bounds larger",
        ),
    }
    conclusions = (
        Conclusion(
            "bound",
            "The error is at most (37), and (35) with the noise eta.",
            "In every case the mean error is at most the bound, d counted in (35).",
        ),
        Conclusion(
            "says something",
            "The bound provides a guideline to choose appropriate parameters (VI-C).",
            "In some case the bound is below the error of the classifier w = 0.",
        ),
        Conclusion(
            "epsilon",
            "When epsilon is small the bound, and with it the error, decreases with an increase in "
            "epsilon (V-D).",
            "From each epsilon to the next, up to 0.6 as in Fig. 4(c), the 97.5% interval of the "
            "change is below 0.",
        ),
        Conclusion(
            "rows",
            "If m_i becomes larger, the trained classifier can predict with higher accuracy (V-D).",
            "From each number of rows to the next the 97.5% interval of the change is below 0.",
        ),
        Conclusion(
            "R",
            "When R increases, the generalisation error increases as well (V-D).",
            "From each R to the next the 97.5% interval of the change is above 0.",
        ),
        Conclusion(
            "W",
            "Generalisation errors of trained classifiers may become larger, beyond that of the "
            "best in W, when Rad_i(W) increases (V-D).",
            "From each radius of W to the next the 97.5% interval of the change of the error "
            "beyond that of the best classifier in W is above 0.",
        ),
        Conclusion(
            "richness",
            "... nevertheless W should be rich: the best classifier of a small W predicts badly "
            "(V-D).",
            "From each radius of W to the next the error of the best classifier in W falls.",
        ),
        Conclusion(
            "few rows",
            "New servers should have sufficient rows: otherwise the bound, and with it the error, "
            "may not decrease though the total number of rows increases (V-D).",
            "With ten servers of 30 rows that join, the bound is above that without them, and so "
            "is the error, by the 97.5% interval of the difference; with ten of 1,500 rows both "
            "are not.",
        ),
    )

    def _along(self) -> dict[str, dict[float, _Case]]:
        """The cases along each parameter."""
        most = max(self["rows of a server"])
        return {
            "epsilon": {each: _Case(each, most, 0.0) for each in self["epsilon"]},
            "rows": {each: _Case(1.0, each, 0.0) for each in self["rows of a server"]},
            "R": {each: _Case(1.0, most, each) for each in self["R"]},
        }

    def _classes(self) -> dict[float, _Case]:
        """The cases along the radius of W."""
        epsilon = self["a and epsilon of W"][1]
        return {
            each: _Case(epsilon, self["rows beside"], 0.0, each) for each in self["radius of W"]
        }

    def _newcomers(self) -> list[_Case]:
        """Nobody joins; servers with few rows; servers with as many as the others."""
        epsilon = self["a and epsilon of W"][1]
        rows, joining = self["rows beside"], self["servers that join"]
        return [_Case(epsilon, rows, 0.0, newcomers=each) for each in joining]

    def _cases(self) -> Iterator[_Case]:
        found = (case for cases in self._along().values() for case in cases.values())
        yield from dict.fromkeys((*found, *self._classes().values(), *self._newcomers()))

    def cells(self) -> dict[str, Job]:
        """One cell a case."""
        return {
            case.label: OptimumJob(
                ReportedProblem(
                    NamedProblem(self["data"], self["servers"], case.rows, 1),
                    case.epsilon,
                    self["seed"] % 2**32,
                    population=True,
                ),
                case.bound,
                self["a and epsilon of W"][0] if case.radius else self["a"],
                self["draws"],
                radius=case.radius,
                newcomers=case.newcomers,
            )
            for case in self._cases()
        }

    def _bound(self, case: _Case, result: Result) -> float:
        """(35), which is (37) where R is 0."""
        rows = np.array(result.facts["rows"])
        servers = len(rows)
        radius = max(result.facts["radius"], float(result.values["norm"].max()))
        # Of a ball the complexity is at most radius / sqrt(m_i).
        most = float(result.values["complexity"].max()) * math.sqrt(rows.max())
        data = data_term(
            case.epsilon,
            rows,
            most / np.sqrt(rows) if case.newcomers else np.full(servers, most / math.sqrt(rows[0])),
            failure=self["failure"],
            # The loss of a row of norm 1 under a classifier of that norm.
            loss_bound=math.log1p(math.exp(radius)),
        )
        if not case.bound:
            return corollary_2(servers, data)
        features = result.facts["data"]["features"]
        return corollary_1(
            constants(self["a"], servers), servers, case.bound, data, features=features
        )

    def evaluate(self, results: Mapping[str, Result]) -> Evaluation:
        """Errors and bounds along each parameter."""
        errors = {case: results[case.label].values["error"] for case in self._cases()}
        bounds = {case: self._bound(case, results[case.label]) for case in self._cases()}
        nothing = max(result.facts["nothing"] for result in results.values())
        ratio = max(float(errors[case].mean()) / bounds[case] for case in errors)
        findings = [
            Finding.judged("bound", _WHAT, ratio <= 1, f"At most {ratio:.2g} of the bound."),
            Finding.judged(
                "says something",
                _WHAT,
                certain(min(bounds.values()) < nothing),
                f"The least bound is {min(bounds.values()):.3g}; w = 0 has {nothing:.3g}.",
            ),
        ]
        for what, cases in self._along().items():
            used = {
                value: case for value, case in cases.items() if what != "epsilon" or value <= 0.6
            }
            steps = _steps({value: errors[case] for value, case in used.items()})
            judged = all_above(steps, _FORM) if what == "R" else all_below(steps, _FORM)
            labels = [case.label for case in used.values()]
            findings.append(Finding.judged(what, _WHAT, *judged, rests_on=labels))
        findings += [*self._judge_classes(results, errors), self._judge_few(errors, bounds)]
        rows: list[tuple[Any, ...]] = [
            (
                *case[:3],
                case.radius or "all",
                f"{len(case.newcomers)} of {case.newcomers[0]}" if case.newcomers else "",
                f"{mean_interval(errors[case]):.3g}",
                f"{bounds[case]:.3g}",
                float(results[case.label].values["norm"].mean()),
            )
            for case in errors
        ]
        columns = (
            "epsilon of the labels (local, proven)",
            "rows of a server",
            "R",
            "radius of W",
            "servers that join",
            "error",
            "bound",
            "norm of the classifier",
        )
        return Evaluation(
            tuple(
                Panel(
                    f"by {what}" if what != "epsilon" else "by the labels' (proven) epsilon",
                    what,
                    "generalisation error",
                    (
                        Curve.of_runs(
                            "measured", tuple(cases), [errors[c] for c in cases.values()]
                        ),
                        Curve("bound", tuple(cases), tuple(bounds[c] for c in cases.values())),
                    ),
                    y_scale="log",
                )
                for what, cases in self._along().items()
            ),
            {"Errors and bounds": Table.of(columns, rows)},
            tuple(findings),
        )

    def _judge_classes(
        self, results: Mapping[str, Result], errors: Mapping[_Case, Array]
    ) -> Iterator[Finding]:
        """The error beyond the best in W, and that of the best, along W."""
        cases = self._classes()
        labels = [case.label for case in cases.values()]
        steps = _steps({radius: errors[case] for radius, case in cases.items()})
        yield Finding.judged("W", _WHAT, *all_above(steps, _FORM), rests_on=labels)
        ideal = [results[label].facts["ideal"] for label in labels]
        falling = all(after < before for before, after in pairwise(ideal))
        number = "; ".join(f"{r:g}: {each:.4g}" for r, each in zip(cases, ideal, strict=True))
        yield Finding.judged("richness", _WHAT, falling, f"{number}.", rests_on=labels)

    def _judge_few(self, errors: Mapping[_Case, Array], bounds: Mapping[_Case, float]) -> Finding:
        """Whether servers of few rows do harm, and servers of many do not."""
        alone, few, many = self._newcomers()
        harm = difference(errors[few], errors[alone])
        none = difference(errors[many], errors[alone])
        verdict = every(
            [
                above(harm),
                opposite(above(none)),
                certain(bounds[few] > bounds[alone] >= bounds[many] * (1 - 1e-9)),
            ]
        )
        number = (
            f"Error with ten of {few.newcomers[0]} rows more by {harm:.3g}, with ten of "
            f"{many.newcomers[0]} by {none:.3g}; bounds: {bounds[alone]:.3g} without them, "
            f"{bounds[few]:.3g} and {bounds[many]:.3g} with them."
        )
        labels = [case.label for case in (alone, few, many)]
        return Finding.judged("few rows", _WHAT, verdict, number, rests_on=labels)


def _steps(values: Mapping[float, Array]) -> dict[str, Any]:
    pairs = zip(list(values)[:-1], list(values)[1:], strict=True)
    return {f"{one:g} to {two:g}": difference(values[two], values[one]) for one, two in pairs}
