"""Figs. 2 and 3 of PS-ADMM: loss and test error against DVP, at three budgets."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

import numpy as np

from dpadmm.arrays import Array
from dpadmm.experiments.cells import Cell, Result, TrainingCell
from dpadmm.experiments.experiment import (
    Conclusion,
    Evaluation,
    Experiment,
    Finding,
    Setting,
    seed_of,
)
from dpadmm.experiments.figures import Curve, Panel
from dpadmm.experiments.papers.ps_admm.setting import (
    CITATION,
    CONTROL,
    DVP,
    KINDS,
    PS,
    SETTINGS,
    Kind,
    StabilityCell,
    parameters,
)
from dpadmm.experiments.papers.ps_admm.tables import (
    batch_table,
    best,
    guarantee_table,
    penalty_table,
    stability_table,
)
from dpadmm.experiments.problems import NamedProblem
from dpadmm.experiments.statistics import Interval, difference, mean_interval
from dpadmm.losses import get_loss
from dpadmm.training import TrainingParameters

__all__ = ["Figure2", "Figure3"]

LOSS, ACCURACY = "average loss", "average test accuracy"


class Section5(Experiment):
    """What the two figures share; they differ in what is measured."""

    citation = CITATION
    settings: ClassVar[Mapping[str, Setting]] = SETTINGS
    #: What is shown: a course of every cell.
    measure: ClassVar[str]
    shown: ClassVar[str]
    scale: ClassVar[Literal["linear", "log"]]

    @property
    def values(self) -> dict[str, Any]:
        """Every setting's value."""
        return {name: setting.value for name, setting in self.settings.items()}

    def problem(self) -> NamedProblem:
        """Adult, 70% dealt to the parties."""
        return NamedProblem(self["data"], self["parties"], 0, self["test share"])

    def cell(self, name: str, what: TrainingParameters, runs: int) -> TrainingCell:
        """Train and measure."""
        return TrainingCell(
            self.problem(),
            what,
            runs=runs,
            seed=seed_of(f"ps-admm, {name}"),
            courses=(LOSS, ACCURACY),
            finals=(LOSS, ACCURACY, "test accuracy"),
        )

    def cells(self) -> dict[str, Cell]:
        """Every kind at every budget; other penalties; steps that may diverge; other batches."""
        values, runs, few = self.values, self["runs"], self["runs elsewhere"]
        what = {
            kind.label(epsilon): (parameters(values, kind, epsilon), runs)
            for kind in KINDS
            for epsilon in self["budgets"]
        }
        for kind, epsilon, penalty in self.elsewhere():
            name = kind.label(epsilon, penalty)
            what[name] = (parameters(values, kind, epsilon, penalty), few)
        largest = max(self["budgets"])
        for batch in self["batches tried"]:
            name = f"PS-ADMM, proven, batch {batch}"
            what[name] = (parameters(values, PS["proven"], largest, batch_size=batch), few)
        control = TrainingParameters(
            "scas-admm",
            rounds=self["K"],
            penalty=self["rho"],
            regularization=2 * self["R"],
            party_weight="equal",
            loss=self["loss"],
            algorithm_options={"inner_steps": self["S"], "batch_size": self["batch"]},
        )
        what[CONTROL] = (control, runs)
        cells: dict[str, Cell] = {
            name: self.cell(name, given, count) for name, (given, count) in what.items()
        }
        curvature = get_loss(self["loss"]).curvature_bound + self["rho"]
        for share, steps in self["steps tried"]:
            for kind in PS.values():
                name = f"{kind.calibration}, eta v_L {share:g}, S {steps}"
                options = {"inner_steps": steps, "step_size": share / curvature}
                given = parameters(values, kind, largest, **options)
                cells[name] = StabilityCell(self.cell(name, given, few))
        return cells

    def elsewhere(self) -> Iterator[tuple[Kind, float, float | str]]:
        """Kinds, budgets and penalties of the grid; proven DVP has Gaussian noise in it."""
        for kind in KINDS:
            if kind == DVP["proven"]:
                continue
            for epsilon in self["budgets elsewhere"]:
                for penalty in self["other penalties"][kind.algorithm]:
                    yield kind, epsilon, penalty

    def course(self, results: Mapping[str, Result], name: str) -> Array:
        """What this figure shows of a cell, ``(iterations, runs)``."""
        return results[name].course(self.measure)

    @abstractmethod
    def gain(self, ours: Array, theirs: Array) -> Interval:
        """By how much the first is better, on average over runs."""

    @abstractmethod
    def judge_alone(
        self, results: Mapping[str, Result], calibration: str, kind: Kind
    ) -> list[Finding]:
        """What the paper concludes of PS-ADMM without DVP."""

    def evaluate(self, results: Mapping[str, Result]) -> Evaluation:
        """One panel a budget; the comparison with DVP in every form."""
        findings = [
            finding
            for calibration, kind in PS.items()
            for finding in self.judge_alone(results, calibration, kind)
        ]
        compared = []
        for name, rival in DVP.items():
            kind = PS[rival.calibration]
            gaps = {
                epsilon: self.gain(
                    self.course(results, kind.label(epsilon))[-1],
                    self.course(results, rival.label(epsilon))[-1],
                )
                for epsilon in self["budgets"]
            }
            compared.append(_compared(name, gaps))
            if rival == DVP["proven"]:
                continue
            gaps = {}
            for epsilon in self["budgets elsewhere"]:
                finals = [
                    best(self, results, each, epsilon, self.measure) for each in (kind, rival)
                ]
                gaps[epsilon] = self.gain(finals[0], finals[1])
            compared.append(_compared(f"{name}, each at its best penalty", gaps))
        return Evaluation(
            tuple(self._panel(results, epsilon) for epsilon in self["budgets"]),
            {
                f"{self.shown} over other penalties": penalty_table(self, results, self.measure),
                "The printed average, other steps": stability_table(self, results, self.measure),
                "Proven, other batches": batch_table(self, results),
                "Claimed and provable": guarantee_table(self, results),
            },
            (*compared, *findings),
            self._remarks(results),
        )

    def _panel(self, results: Mapping[str, Result], epsilon: float) -> Panel:
        messages = range(1, self["K"] + 1)
        curves = [
            Curve.of_runs(
                kind.name,
                messages,
                self.drawn(self.course(results, kind.label(epsilon))),
                kind.calibration,
            )
            for kind in KINDS
        ]
        curves.append(Curve.of_runs(CONTROL, messages, self.drawn(self.course(results, CONTROL))))
        return Panel(
            f"epsilon = {epsilon:g}", "iteration", self.shown, tuple(curves), y_scale=self.scale
        )

    def drawn(self, course: Array) -> Array:
        """What is drawn of a course."""
        return course

    def _remarks(self, results: Mapping[str, Result]) -> tuple[str, ...]:
        facts = results[CONTROL].facts.get("data", {})
        rows = max(facts.get("rows", [0])) or 1
        largest = max(self["budgets"])
        proven = {
            kind.algorithm: results[kind.label(largest)].facts["privacy"]["epsilon"]
            for kind in (PS["published"], DVP["published"])
        }
        return (
            "'The same privacy guarantee' can be read in two ways. DVP's paper claims epsilon for "
            "every single iteration; PS-ADMM's for the whole run. Both readings of DVP's epsilon "
            "are shown; only 'epsilon in all' compares like with like.",
            f"Even so the claims are not alike: at epsilon = {largest:g} as published, "
            f"{proven['ps-admm']:.3g} is what can be proven of PS-ADMM's noise and "
            f"{proven['dvp']:.3g} of DVP's, whose iterations are simply added up and cost less "
            "together at a positive delta. The proven comparison gives both what they claim.",
            f"delta = {self['delta']:g} is above 1/M = {1 / rows:.2g}: publishing a row at random "
            "would satisfy it. It is the paper's.",
            "As published, PS-ADMM's noise has the unnamed constant c = 1 and its average has "
            "weights outside [0, 1]; as proven, noise follows from (epsilon, delta), each full "
            f"gradient is released once, and a batch has {self['batch']} rows.",
        )


def _compared(calibration: str, gaps: Mapping[float, Interval]) -> Finding:
    """Whether PS-ADMM is better at every budget."""
    return Finding.judged(
        "better",
        calibration,
        all(gap.low > 0 for gap in gaps.values()),
        " ".join(f"epsilon {epsilon:g}: {gap:.4f}." for epsilon, gap in gaps.items()),
    )


class Figure2(Section5):
    """The loss."""

    name = "ps-admm-figure-2"
    part = "Fig. 2"
    title = "Loss of PS-ADMM and of DVP over iterations, at three budgets"
    measure, shown, scale = LOSS, "loss (mean over parties)", "log"
    conclusions = (
        Conclusion(
            "better",
            "PS-ADMM achieves much less expected loss than DVP for all three budgets.",
            "At the last iteration the 95% interval of DVP's loss minus PS-ADMM's is above 0 at "
            "every budget.",
        ),
        Conclusion(
            "not monotone",
            "The expected loss does not always decrease, as too much noise affects the "
            "convergence, especially when epsilon is small.",
            "At the smallest budget the 95% interval of the loss at the last iteration minus that "
            "at the iteration where its mean is least is above 0, and that rise is larger than at "
            "the largest budget.",
        ),
        Conclusion(
            "same trend",
            "With epsilon = 0.5 PS-ADMM follows the same trend as the non-private algorithm.",
            "After a fifth, half and all of the iterations the whole 95% interval of its loss is "
            "within 5% of the mean loss without privacy.",
        ),
    )

    def gain(self, ours: Array, theirs: Array) -> Interval:
        """How much lower the first loss is."""
        return difference(theirs, ours)

    def judge_alone(
        self, results: Mapping[str, Result], calibration: str, kind: Kind
    ) -> list[Finding]:
        """Whether noise makes the loss rise, and whether a large budget hides it."""
        budgets = self["budgets"]
        rises = {}
        for epsilon in (min(budgets), max(budgets)):
            course = self.course(results, kind.label(epsilon))
            rises[epsilon] = mean_interval(course[-1] - course[course.mean(axis=1).argmin()])
        small, large = rises[min(budgets)], rises[max(budgets)]
        course = self.course(results, kind.label(max(budgets)))
        control = self.course(results, CONTROL).mean(axis=1)
        places = [len(course) // 5 - 1, len(course) // 2 - 1, len(course) - 1]
        away = {place + 1: difference(course[place] / control[place], 1.0) for place in places}
        return [
            Finding.judged(
                "not monotone",
                calibration,
                small.low > 0 and small.mean > large.mean,
                f"Rise at epsilon {min(budgets):g}: {small:.4f}; at {max(budgets):g}: {large:.4f}.",
            ),
            Finding.judged(
                "same trend",
                calibration,
                all(each.low > -0.05 and each.high < 0.05 for each in away.values()),
                "Relative to the loss without privacy: "
                + ", ".join(f"iteration {at}: {each:+.3f}" for at, each in away.items())
                + ".",
            ),
        ]


class Figure3(Section5):
    """The test error."""

    name = "ps-admm-figure-3"
    part = "Fig. 3"
    title = "Test error of PS-ADMM and of DVP over iterations, at three budgets"
    measure, shown, scale = ACCURACY, "test error (mean over parties)", "linear"
    conclusions = (
        Conclusion(
            "better",
            "PS-ADMM achieves higher testing accuracy than DVP for all three budgets.",
            "At the last iteration the 95% interval of PS-ADMM's accuracy minus DVP's is above 0 "
            "at every budget.",
        ),
        Conclusion(
            "same trend",
            "With epsilon = 0.5 PS-ADMM follows the same trend as the non-private algorithm.",
            "At the last iteration the whole 95% interval of its accuracy is within one point of "
            "the mean accuracy without privacy.",
        ),
    )

    def gain(self, ours: Array, theirs: Array) -> Interval:
        """How much higher the first accuracy is."""
        return difference(ours, theirs)

    def drawn(self, course: Array) -> Array:
        """Errors, as the paper draws them."""
        return 1 - course

    def judge_alone(
        self, results: Mapping[str, Result], calibration: str, kind: Kind
    ) -> list[Finding]:
        """Whether a large budget costs accuracy."""
        largest = max(self["budgets"])
        control = float(np.mean(self.course(results, CONTROL)[-1]))
        away = difference(self.course(results, kind.label(largest))[-1], control)
        return [
            Finding.judged(
                "same trend",
                calibration,
                away.low > -0.01 and away.high < 0.01,
                f"Accuracy minus {control:.4f}, that without privacy: {away:+.4f}.",
            )
        ]
