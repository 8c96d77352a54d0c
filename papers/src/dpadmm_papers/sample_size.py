r"""How many rows an accuracy takes: what is measured, beside what a theorem promises.

.. math:: B \ge \beta\,n(a)\ \Longrightarrow\ \Pr\bigl(L(f) \le L(f^0) + a\bigr) \ge 1 - \delta

is the shape of all of them, with a constant :math:`\beta` that no paper states and with f the
optimum of the objective whose noise is that of one iteration, frozen. As beta is free, no single
number of rows can contradict them; that the measured excess falls more slowly than the bound can.
"""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Final, final

import numpy as np

from dpadmm.experiments.figures import Curve, Panel
from dpadmm.experiments.jobs import Job, Result
from dpadmm.experiments.measures import mean_interval
from dpadmm.experiments.problems import ProblemSource
from dpadmm.plain import Array
from dpadmm.problem.losses import get_loss
from dpadmm.report.document import Table
from dpadmm_papers.experiment import Conclusion, Evaluation, Experiment, Finding
from dpadmm_papers.iterates import Objective, rate
from dpadmm_papers.verdicts import below

# Between these a bound is solved for the accuracy that it promises: the loss of w = 0 is ln 2.
_LEAST, _MOST = 1e-9, math.log(2)
# Constants of a bound, down to one that is as good as any.
_CONSTANTS: Final = (1.0, 1e-3, 1e-6, 1e-9, 1e-12)
WITHOUT: Final = "without noise"


@final
@dataclass(frozen=True)
class FrozenJob(Job):
    r"""The optimum under one draw of noise in the gradient, and its excess in the population.

    .. math:: \min_w \sum_i \frac1{B}\sum_k l(y_k w\cdot x_k) + \frac\lambda2\|w\|^2
              + \sum_i b_i\cdot w,\qquad b_i \sim e^{-r\|b\|}

    Values are ``excess``, the objective in the population above that of the reference, the best
    classifier of the population at the same lambda; its ``norm`` is a fact. The theorems speak of
    the loss alone, by which the reference is not the best: that difference can be below 0.

    Attributes
    ----------
    problem
        The rows of the first draw, judged by all rows of the population.
    regularization
        lambda.
    noise_rate
        r; 0 stands for no noise.
    draws, first
        How many, and the number of the first.
    """

    problem: ProblemSource
    regularization: float
    noise_rate: float = 0.0
    draws: int = 10
    first: int = 0

    @property
    def weight(self) -> float:
        """One solve a draw."""
        return 10.0 * self.draws

    def further(self, times: int) -> FrozenJob:
        """More draws of rows and noise."""
        return replace(self, draws=times * self.draws, first=self.first + self.draws)

    def compute(self) -> Result:
        """Draw, solve and judge."""
        began = time.monotonic()
        loss, found = get_loss("logistic"), []
        problem = self.problem.dealt_again(self.first).load()
        parties, features = len(problem.members), problem.features
        signs = np.where(problem.test_codes > 0, 1.0, -1.0)[:, None]
        everyone = replace(problem, members=((problem.test_rows, signs),))
        nothing = np.zeros((1, 1, features))
        whole = Objective(everyone, loss, np.ones(1), self.regularization / parties, nothing)
        best, least = whole.minimum()
        for draw in range(self.first, self.first + self.draws):
            problem = self.problem.dealt_again(draw).load()
            stream = np.random.default_rng([draw, 2])
            tilts = np.zeros((parties, 1, features))
            if self.noise_rate:
                # Density exp(-r ||b||): a uniform direction, and a length of the law Gamma(d, 1/r).
                ways = stream.normal(size=tilts.shape)
                ways /= np.linalg.norm(ways, axis=2, keepdims=True)
                tilts = ways * stream.gamma(features, 1 / self.noise_rate, (parties, 1, 1))
            own = Objective(problem, loss, np.ones(parties), self.regularization, tilts)
            found.append(float((whole.value(own.minimum()[0][None]) - least)[0]))
        facts = {
            "data": problem.facts,
            "norm": float(np.linalg.norm(best)),
            "features": features,
            "seconds": time.monotonic() - began,
        }
        return Result({"excess": np.array(found)}, facts)


def promised(rows_needed: Callable[[float], float], rows: int) -> float:
    """The accuracy for which a theorem needs so many rows, its constant being 1.

    Infinite where it is no better than that of w = 0. ``rows_needed`` falls as the accuracy
    allowed grows.
    """
    if rows_needed(_MOST) > rows:
        return np.inf
    low, high = _LEAST, _MOST
    while high / low > 1 + 1e-9:
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if rows_needed(middle) > rows else (low, middle)
    return high


def order_conclusion(name: str, claim: str) -> Conclusion:
    """That a theorem on numbers of rows can hold with one constant."""
    return Conclusion(
        name,
        claim,
        "One constant can serve all numbers of rows: the excess falls at least as fast as the "
        "accuracy that the bound promises. The 97.5% interval over draws of the slope of the "
        "excess over the rows, both logarithmic, lies below that of the bound plus 0.1. The "
        "constant that it takes is in the table; the paper leaves it open. It does not stand where "
        "the bound promises nothing better than w = 0, however small the constant.",
    )


class SampleSize(Experiment):
    """Theorems on numbers of rows, beside the excess of optima under frozen noise."""

    #: The name of the theorems' constant.
    constant: ClassVar[str]

    @abstractmethod
    def runs(self) -> Mapping[str, Mapping[int, FrozenJob]]:
        """Jobs by conclusion and rows of a party."""

    @abstractmethod
    def needed(self, name: str, accuracy: float, result: Result) -> float:
        """The theorem's number of rows with its constant 1."""

    def more(self, results: Mapping[str, Result]) -> Evaluation:
        """What an experiment shows beside."""
        return Evaluation((), {}, ())

    @staticmethod
    def label(name: str, rows: int) -> str:
        """How a cell is called."""
        return f"{name}, {rows} rows"

    def cells(self) -> dict[str, Job]:
        """A cell for each number of rows."""
        return {
            self.label(name, rows): job
            for name, jobs in self.runs().items()
            for rows, job in jobs.items()
        }

    def evaluate(self, results: Mapping[str, Result]) -> Evaluation:
        """Measured and promised, and their slopes."""
        panels, rows, findings = [], [], []
        for name, jobs in self.runs().items():
            counts = tuple(jobs)
            found = {each: results[self.label(name, each)] for each in counts}
            excess = {each: result.values["excess"] for each, result in found.items()}
            bounds = dict(zip(counts, self._promises(name, found), strict=True))
            findings.append(self._judged(name, found))
            panels.append(self._panel(name, excess, bounds))
            rows += [
                (
                    name,
                    each,
                    f"{mean_interval(excess[each]):.3g}",
                    f"{bounds[each]:.3g}",
                    f"{each / self.needed(name, float(excess[each].mean()), found[each]):.3g}",
                    found[each].facts["norm"],
                )
                for each in counts
            ]
        heads = (
            "run",
            "rows of a party",
            "excess",
            f"promised, {self.constant} = 1",
            f"{self.constant} that the mean excess takes",
            "norm of the reference",
        )
        more = self.more(results)
        return Evaluation(
            (*panels, *more.panels),
            {"Excess and bound": Table.of(heads, rows), **more.tables},
            (*findings, *more.findings),
            more.remarks,
        )

    def _judged(self, name: str, found: Mapping[int, Result]) -> Finding:
        counts, cells = list(found), [self.label(name, each) for each in found]
        # The largest constant with which something is promised for every number of rows.
        promises = next(
            (
                each
                for each in (self._promises(name, found, c) for c in _CONSTANTS)
                if max(each) < 1
            ),
            [],
        )
        if not promises:
            number = f"Nothing better than w = 0 is promised for all of {min(counts)} to "
            number += f"{max(counts)} rows, whatever the {self.constant}."
            return Finding.judged(name, self.noise_of(name), False, number, rests_on=cells)
        draws = min(len(result.values["excess"]) for result in found.values())
        courses = np.stack([result.values["excess"][:draws] for result in found.values()])
        measured = mean_interval(rate(counts, courses, first=0))
        bound = float(rate(counts, np.array(promises)[:, None], first=0)[0])
        number = f"Slope {measured:.3g}; of the bound {bound:.3g}."
        word = below(measured, bound + 0.1)
        return Finding.judged(name, self.noise_of(name), word, number, rests_on=cells)

    def _promises(
        self, name: str, found: Mapping[int, Result], constant: float = 1.0
    ) -> list[float]:
        """What is promised with a constant, at every number of rows."""
        return [
            promised(partial(self._needed, name, result, constant), rows)
            for rows, result in found.items()
        ]

    def _needed(self, name: str, result: Result, constant: float, accuracy: float) -> float:
        return constant * self.needed(name, accuracy, result)

    def noise_of(self, name: str) -> str:
        """What a finding says of the noise."""
        return WITHOUT if name.endswith(WITHOUT) else "one draw of noise, frozen"

    def _panel(self, name: str, excess: Mapping[int, Array], bounds: Mapping[int, float]) -> Panel:
        counts = tuple(excess)
        curves = [Curve.of_runs("measured", counts, list(excess.values()))]
        if np.isfinite(list(bounds.values())).all():
            heights = tuple(bounds.values())
            curves.append(Curve(f"promised, {self.constant} = 1", counts, heights))
        return Panel(
            name,
            "rows of a party",
            "objective above the reference's",
            tuple(curves),
            x_scale="log",
            y_scale="log",
            note=f"{self.constant} is open: the height of the bound means nothing, its slope does.",
        )
