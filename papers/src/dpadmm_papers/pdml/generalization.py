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
from typing import Any, ClassVar, Final, NamedTuple, final

import numpy as np

from dpadmm.experiments.figures import Curve, Panel
from dpadmm.experiments.jobs import Job, Result
from dpadmm.experiments.measures import mean_interval
from dpadmm.experiments.problems import NamedProblem, dense
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
from dpadmm_papers.verdicts import all_above, all_below, certain

_FORM: Final = ".3g"
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
    """

    problem: ReportedProblem
    bound: float
    regularization: float
    draws: int
    first: int = 0

    @property
    def weight(self) -> float:
        """One solve a draw."""
        return 10.0 * self.draws

    def further(self, times: int) -> OptimumJob:
        """More draws."""
        return replace(self, draws=times * self.draws, first=self.first + self.draws)

    def compute(self) -> Result:
        """Draw, solve and judge by all rows."""
        began = time.monotonic()
        found: dict[str, list[float]] = {"error": [], "norm": [], "complexity": []}
        problem = self.problem.dealt_again(self.first).load()
        parties = len(problem.members)
        signs = np.where(problem.test_codes > 0, 1.0, -1.0)[:, None]
        everyone = replace(problem, members=((problem.test_rows, signs),))
        features, loss = problem.features, get_loss("logistic")
        share = self.regularization / parties
        ideal = Objective(everyone, loss, np.ones(1), share, np.zeros((1, 1, features)))
        best, least = ideal.minimum()
        radius = float(np.linalg.norm(best))
        for draw in range(self.first, self.first + self.draws):
            problem = self.problem.dealt_again(draw).load()
            stream = np.random.default_rng([self.problem.seed, draw])
            shape = (parties, 1, features)
            eta = stream.uniform(-self.bound, self.bound, shape) / parties
            corrected = corrected_for_label_noise(loss, self.problem.label_epsilon)
            ones = np.ones(parties)
            reported = Objective(problem, corrected, ones, self.regularization, eta)
            point = reported.minimum()[0]
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
            "seconds": time.monotonic() - began,
        }
        return Result({name: np.array(values) for name, values in found.items()}, facts)


class _Case(NamedTuple):
    """What a cell is about: epsilon of the labels, rows of a server, R."""

    epsilon: float
    rows: int
    bound: float

    @property
    def label(self) -> str:
        return f"label epsilon {Given(self.epsilon)}, {self.rows} rows, R {self.bound:g}"


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
    )

    def _along(self) -> dict[str, dict[float, _Case]]:
        """The cases along each parameter."""
        most = max(self["rows of a server"])
        return {
            "epsilon": {each: _Case(each, most, 0.0) for each in self["epsilon"]},
            "rows": {each: _Case(1.0, each, 0.0) for each in self["rows of a server"]},
            "R": {each: _Case(1.0, most, each) for each in self["R"]},
        }

    def _cases(self) -> Iterator[_Case]:
        found = (case for cases in self._along().values() for case in cases.values())
        yield from dict.fromkeys(found)

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
                self["a"],
                self["draws"],
            )
            for case in self._cases()
        }

    def _bound(self, case: _Case, result: Result) -> float:
        """(35), which is (37) where R is 0."""
        servers = self["servers"]
        radius = max(result.facts["radius"], float(result.values["norm"].max()))
        data = data_term(
            case.epsilon,
            np.full(servers, case.rows),
            np.full(servers, float(result.values["complexity"].max())),
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
        rows: list[tuple[Any, ...]] = [
            (
                *case,
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


def _steps(values: Mapping[float, Array]) -> dict[str, Any]:
    pairs = zip(list(values)[:-1], list(values)[1:], strict=True)
    return {f"{one:g} to {two:g}": difference(values[two], values[one]) for one, two in pairs}
