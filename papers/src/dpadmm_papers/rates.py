r"""What the experiments on rates of convergence share: slopes, bounds, runs of other lengths.

.. math:: \max_{K'\ge K}\Bigl(|f(\hat x^{K'}) - f(x^*)| + G\sum_i\|\hat x_i^{K'} - \bar x\|\Bigr)

is the quantity whose slope over K is judged. Parties that have not agreed can be below the minimum,
by at most the second term (:class:`~dpadmm_papers.iterates.IterateJob`): the first alone would be 0
where the course passes the minimum, and fall at any rate before it. A bound C/K on the objective
and on the disagreement, as convergence proofs have them, is one on the sum.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Final

import numpy as np

from dpadmm.experiments.figures import Curve, Panel
from dpadmm.experiments.jobs import Job, Result, TrainingJob
from dpadmm.experiments.measures import Interval, mean_interval
from dpadmm.plain import Array
from dpadmm.report.document import Table
from dpadmm.run.options import TrainingParameters
from dpadmm.run.plan import chosen_rounds
from dpadmm_papers.experiment import Conclusion, Evaluation, Experiment, Finding
from dpadmm_papers.iterates import IterateJob, rate
from dpadmm_papers.statistics import difference
from dpadmm_papers.verdicts import below

#: Half way between the slopes of 1/K and of 1/sqrt(K), the alternative: the verdict turns here.
_SLOPE: Final = -0.75


def looks_until(last: int) -> tuple[int, ...]:
    """1, 2, 5, 10, ... up to ``last``, which is the last of them."""
    steps = (digit * 10**power for power in range(9) for digit in (1, 2, 5))
    return (*(look for look in steps if look < last), last)


#: The quantity that the slope is of, where a theorem bounds the objective alone.
_SIZE: Final = (
    "the objective's distance from its minimum, on either side, plus G times the distance of the "
    "parties from their mean, G being a party's longest gradient at the optimum: parties that have "
    "not agreed can be below the minimum by so much, and no change of sign makes it small"
)


def rate_conclusions(
    claim: str, bound: str, choices: tuple[str, ...] = (), size: str = _SIZE
) -> tuple[Conclusion, Conclusion]:
    """The two that every theorem on a rate has: the order, and the bound itself."""
    return (
        Conclusion(
            "rate",
            claim,
            "Of the two orders 1/K and 1/sqrt(K) the first is nearer: both from a tenth of the "
            "iterations that were followed to the last and over the last of the steps between "
            f"looks, a slope over K, both logarithmic, is below {_SLOPE:g}, half way between -1 "
            f"and -1/2. It does not stand where both are above {_SLOPE:g}. The slope is that of "
            f"{size}; at every K the largest from there on counts. With noise by the 97.5% "
            "intervals over runs. An order is about K without end: this one is about the "
            "iterations followed, and the bound is judged beside it.",
            choices=choices,
        ),
        Conclusion(
            "bound",
            bound,
            "At every number of iterations looked at, the mean over runs is at most the bound. "
            "Where the bound allows more than w = 0 has, from which runs start, it is vacuous: it "
            "holds, and says nothing.",
            choices=choices,
        ),
    )


class RateExperiment(Experiment):
    """Quantities that a theorem bounds, over K: of one run followed, and at one budget.

    A run that is *followed* has one first variance however long it gets; those that are *swept*
    have each its own length, and noise by which all of it keeps to one epsilon.
    """

    #: What is drawn upwards.
    shown: ClassVar[str]
    #: How the paper calls the length of a run: its symbol, and what it counts.
    length: ClassVar[tuple[str, str]] = ("K", "iterations")

    @abstractmethod
    def followed(self) -> dict[str, TrainingJob]:
        """Runs by name, each looked at along the way."""

    @abstractmethod
    def swept(self) -> dict[str, dict[int, TrainingJob]]:
        """Runs by calibration and by their number of rounds."""

    @abstractmethod
    def bound(self, name: str, looks: tuple[int, ...], result: Result) -> Array | None:
        """The theorem's bound on a followed run at every look, or None where it has none."""

    def judge_swept(self, name: str, values: Mapping[int, Array]) -> Finding | None:
        """What runs of other lengths at one budget decide, where the paper speaks of them."""
        return None

    def noise_of(self, name: str) -> str:
        """What a finding says of the noise of a followed run: its name, unless others vary it."""
        return name

    def varied_run(self, name: str) -> dict[str, str]:
        """Which choice of ours a followed run varies: ``choice`` and ``variant``, or neither."""
        return {}

    def has_order(self, name: str) -> bool:
        """Whether the paper's claim on the order is about a followed run."""
        return True

    def quantity(self, result: Result) -> Array:
        """What the theorem bounds, ``(looks, runs)``."""
        return result.values["excess"]

    def size(self, result: Result) -> Array:
        """What the order is judged by: above 0 until the parties agree on the optimum."""
        apart = result.values["pull"] * result.values["apart"]
        return np.asarray(np.abs(result.values["excess"]) + apart)

    def cells(self) -> dict[str, Job]:
        """A cell for every run."""
        cells: dict[str, Job] = {
            # More iterations could show a slope; more runs could not.
            name: IterateJob(job, _looks(job.parameters), extensible=False)
            for name, job in self.followed().items()
        }
        for name, jobs in self.swept().items():
            cells |= {f"{name}, K {last}": IterateJob(job, (last,)) for last, job in jobs.items()}
        return cells

    def evaluate(self, results: Mapping[str, Result]) -> Evaluation:
        """Courses beside their bounds, slopes, and what a fixed budget makes of them."""
        findings: list[Finding] = []
        rows, curves = [], []
        for name, job in self.followed().items():
            looks, values = _looks(job.parameters), self.quantity(results[name])
            bound = self.bound(name, looks, results[name])
            slope = _slope(looks, self.size(results[name]))
            words = (
                f"Slope {slope:.3g} from K = {looks[-1] // 10} to {looks[-1]}; "
                f"{_beside(values, bound)}."
            )
            varied: dict[str, Any] = {**self.varied_run(name), "rests_on": [name]}
            if self.has_order(name):
                findings.append(
                    Finding.judged(
                        "rate", self.noise_of(name), below(slope, _SLOPE), words, **varied
                    )
                )
            curves.append(Curve(name, looks, tuple(np.abs(values).mean(axis=1).tolist())))
            if bound is not None:
                holds, number = _bounded(looks, values, bound)
                number += _vacuous(looks, bound, results[name])
                findings.append(
                    Finding.judged("bound", self.noise_of(name), holds, number, **varied)
                )
                curves.append(Curve(f"bound: {name}", looks, tuple(bound.tolist())))
            last = "none" if bound is None else f"{bound[-1]:.3g}"
            rows.append((name, looks[-1], f"{slope:.3g}", _words(_interval(values[-1])), last))
        swept = {
            name: {last: self.quantity(results[f"{name}, K {last}"])[0] for last in jobs}
            for name, jobs in self.swept().items()
        }
        remarks = []
        for name, found in swept.items():
            judged = self.judge_swept(name, found)
            findings += [judged] if judged else []
            remarks += [] if judged else [self._beyond(name, found)]
        lengths = [
            Curve.of_runs(label, tuple(values), list(values.values()), calibration)
            for name, values in swept.items()
            for calibration, _, label in [name.partition(", ")]
        ]
        columns = ("run", "K", "slope from K/10 to K", "at K", "the bound at K")
        return Evaluation(
            (
                self._panel("One run, followed", curves),
                self._panel("Runs of other lengths, claimed or proven epsilon the same", lengths),
            ),
            {"Slopes and bounds": Table.of(columns, rows)},
            tuple(findings),
            tuple(remarks),
        )

    def _beyond(self, name: str, values: Mapping[int, Array]) -> str:
        """What a fixed budget makes of longer runs, of which the paper says nothing."""
        fewest, most = min(values), max(values)
        symbol, unit = self.length
        means = ", ".join(
            f"{symbol} = {count}: {each.mean():.3g}" for count, each in values.items()
        )
        return (
            f"Beyond the paper, whose theorem has one first variance for every {symbol}, and "
            f"so not judged: runs that each keep to one epsilon ({name}). {most} less {fewest} "
            f"{unit}: {difference(values[most], values[fewest]):.3g}; {means}."
        )

    def _panel(self, title: str, curves: list[Curve]) -> Panel:
        return Panel(title, "K", self.shown, tuple(curves), x_scale="log", y_scale="log")


def _looks(parameters: TrainingParameters) -> tuple[int, ...]:
    return looks_until(chosen_rounds(parameters.rounds, parameters.algorithm))


def _slope(looks: tuple[int, ...], sizes: Array) -> Interval:
    """The slope over the last tenfold of K, with what holds it and that of the last step."""
    # A dip on the way to larger values is no descent.
    values = np.maximum.accumulate(sizes[::-1])[::-1]
    whole, last = (
        _interval(rate(looks, values, first=first)) for first in (looks[-1] // 10, looks[-2])
    )
    return Interval(whole.mean, min(whole.low, last.low), max(whole.high, last.high))


def _interval(values: Array) -> Interval:
    """The mean and its interval; a single run has no noise, and no width."""
    if np.size(values) == 1:
        only = float(np.ravel(values)[0])
        return Interval(only, only, only)
    return mean_interval(values)


def _beside(values: Array, bound: Array | None) -> str:
    """What part of the explicit bound the end is."""
    if bound is None:
        return "there is no explicit bound"
    return f"at K it is {float(values[-1].mean() / bound[-1]):.2g} of the explicit bound"


def _words(found: Interval) -> str:
    return f"{found.mean:.3g}" if found.low == found.high else f"{found:.3g}"


def _vacuous(looks: tuple[int, ...], bound: Array, result: Result) -> str:
    """Up to where the bound says less than is known of w = 0."""
    start = float(result.values["ignorant"].mean())
    idle = [place for place, allowed in enumerate(bound) if allowed >= start]
    if not idle:
        return ""
    last = looks[idle[-1]]
    where = "at every K looked at" if len(idle) == len(looks) else f"up to K = {last}"
    allowed = f"at K = {last} it allows {bound[idle[-1]]:.2g}"
    return f" Vacuous {where}: {allowed}, and w = 0 has {start:.3g}."


def _bounded(looks: tuple[int, ...], values: Array, bound: Array) -> tuple[bool, str]:
    """Whether the mean is below the bound at every look, with the place that is nearest."""
    ratios = values.mean(axis=1) / bound
    place = int(np.argmax(ratios))
    number = f"At most {ratios[place]:.2g} of the bound, at K = {looks[place]}."
    return bool((ratios <= 1).all()), number
