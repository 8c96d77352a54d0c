"""What Figs. 2 and 3 of PS-ADMM share: cells, comparisons with DVP, panels."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import ClassVar, Literal

import numpy as np

from dpadmm.experiments.figures import Curve, Panel
from dpadmm.experiments.jobs import Job, Result, TrainingJob, seed_of
from dpadmm.experiments.meaning import bound_of
from dpadmm.experiments.measures import Interval, mean_interval
from dpadmm.experiments.problems import NamedProblem
from dpadmm.plain import Array
from dpadmm.privacy.figures import AtMost, Given
from dpadmm.problem.losses import get_loss
from dpadmm.report.document import Table
from dpadmm.run.options import TrainingParameters
from dpadmm_papers.experiment import Evaluation, Experiment, Finding, Setting, part_name
from dpadmm_papers.ps_admm.setting import (
    CITATION,
    CONTROL,
    CONTROLS,
    DVP,
    KINDS,
    OTHER_DVP,
    PS,
    SETTINGS,
    Kind,
    StabilityCell,
    control,
    parameters,
)
from dpadmm_papers.verdicts import all_above

LOSS, ACCURACY = "average loss", "average test accuracy"


class Section5(Experiment):
    """What the two figures share; they differ in what is measured."""

    citation = CITATION
    settings: ClassVar[Mapping[str, Setting]] = SETTINGS
    #: What is shown: a course of every cell.
    measure: ClassVar[str]
    shown: ClassVar[str]
    scale: ClassVar[Literal["linear", "log"]]

    def problem(self) -> NamedProblem:
        """Adult, 70% dealt to the parties."""
        return NamedProblem(self["data"], self["parties"], 0, self["test share"])

    def cell(self, name: str, what: TrainingParameters) -> TrainingJob:
        """Train and measure."""
        return TrainingJob(
            self.problem(),
            what,
            runs=self["runs"],
            seed=seed_of(f"ps-admm, {name}"),
            courses=(LOSS, ACCURACY),
            finals=(LOSS, ACCURACY, "test accuracy"),
        )

    def cells(self) -> dict[str, Job]:
        """Every kind at every budget; other penalties; steps that may diverge; other batches."""
        largest = max(self["budgets"])
        what = {
            kind.label(epsilon): parameters(self, kind, epsilon)
            for kind in KINDS
            for epsilon in self["budgets"]
        }
        for kind, epsilon, penalty in self.elsewhere():
            what[kind.label(epsilon, penalty)] = parameters(self, kind, epsilon, penalty)
        for batch in self["batches tried"]:
            name = f"PS-ADMM, proven, batch {batch}"
            what[name] = parameters(self, PS["proven"], largest, batch_size=batch)
        for calibration, name in CONTROLS.items():
            what[name] = control(self, calibration)
        cells: dict[str, Job] = {name: self.cell(name, given) for name, given in what.items()}
        curvature = get_loss(self["loss"]).curvature_bound + self["rho"]
        for share, steps in self["steps tried"]:
            for kind in PS.values():
                name = f"{kind.calibration}, eta v_L {share:g}, S {steps}"
                options = {"inner_steps": steps, "step_size": share / curvature}
                given = parameters(self, kind, largest, **options)
                cells[name] = StabilityCell(self.cell(name, given))
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
        findings: list[Finding] = []
        for calibration, rival in DVP.items():
            findings += self._compared(results, rival)
            if calibration == "published":
                best_penalties = ("penalty", "each at its best")
                findings += self._compared(results, rival, *best_penalties, tuned=True)
            findings += self.judge_alone(results, calibration, PS[calibration])
        for (choice, variant), rival in OTHER_DVP.items():
            findings += self._compared(results, rival, choice, variant)
            both = f"{variant}, each at its best penalty"
            findings += self._compared(results, rival, choice, both, tuned=True)
        return Evaluation(
            (
                *(self._panel(results, epsilon) for epsilon in self["budgets"]),
                *(self._excess(results, epsilon) for epsilon in self["budgets"]),
            ),
            {
                f"{self.shown} over other penalties": penalty_table(self, results, self.measure),
                "The printed average, other steps": stability_table(self, results, self.measure),
                "Proven, other batches": batch_table(self, results),
                "Claimed and provable": guarantee_table(self, results),
            },
            tuple(findings),
            self.remarks(results),
        )

    def _compared(
        self,
        results: Mapping[str, Result],
        rival: Kind,
        choice: str = "",
        variant: str = "",
        *,
        tuned: bool = False,
    ) -> Iterator[Finding]:
        """Whether PS-ADMM is better than a form of DVP, by the budget, perhaps each tuned."""
        mine = PS[rival.calibration]
        for epsilon in self["budgets elsewhere" if tuned else "budgets"]:
            pair = (mine, rival)
            if tuned:
                labels = [best(self, results, each, epsilon) for each in pair]
            else:
                labels = [each.label(epsilon) for each in pair]
            gap = self.gain(*(self.course(results, label)[-1] for label in labels))
            part = f"epsilon {Given(epsilon)}"
            yield Finding.of(
                part_name("better", part),
                rival.calibration,
                all_above({part: gap}),
                choice=choice,
                variant=variant,
                rests_on=labels,
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
        for without in CONTROLS.values():
            course = self.drawn(self.course(results, without))
            curves.append(Curve.of_runs(without, messages, course))
        return Panel(
            f"claimed or proven epsilon = {Given(epsilon)}",
            "iteration",
            self.shown,
            tuple(curves),
            y_scale=self.scale,
        )

    def _excess(self, results: Mapping[str, Result], epsilon: float) -> Panel:
        """What the means have above that without privacy, where the courses lie too close."""
        control = self.drawn(self.course(results, CONTROL)).mean(axis=1)
        curves = [
            Curve.of_runs(
                kind.name,
                range(1, self["K"] + 1),
                (self.drawn(self.course(results, kind.label(epsilon))).mean(axis=1) - control)[
                    :, None
                ],
                kind.calibration,
            )
            for kind in KINDS
        ]
        return Panel(
            f"claimed or proven epsilon = {Given(epsilon)}: above no privacy",
            "iteration",
            f"mean {self.shown.split(' (')[0]} minus that without privacy",
            tuple(curves),
            y_scale="log",
        )

    def drawn(self, course: Array) -> Array:
        """What is drawn of a course."""
        return course

    def remarks(self, results: Mapping[str, Result]) -> tuple[str, ...]:
        """What the page says beyond the conclusions."""
        facts = results[CONTROL].facts.get("data", {})
        rows = max(facts.get("rows", [0])) or 1
        largest = max(self["budgets"])
        proven = {
            kind.algorithm: AtMost(results[kind.label(largest)].facts["privacy"]["epsilon"])
            for kind in (PS["published"], DVP["published"])
        }
        return (
            "'The same privacy guarantee' can be read in two ways. DVP's paper claims epsilon for "
            "every single iteration; PS-ADMM's for the whole run. Both readings of DVP's epsilon "
            "are shown; only 'epsilon in all' compares like with like.",
            f"Even so the claims are not alike: at epsilon = {largest:g} as published, "
            f"{proven['ps-admm']:3} is what can be proven of PS-ADMM's noise and "
            f"{proven['dvp']:3} of DVP's, whose iterations are simply added up and cost less "
            "together at a positive delta. The proven comparison gives both what they claim.",
            f"delta = {Given(self['delta'])} is above 1/M = {1 / rows:.2g}: publishing a row at "
            "random would satisfy it. It is the paper's.",
            "As published, PS-ADMM's noise has the unnamed constant c = 1 and its average has "
            "weights outside [0, 1]; as proven, noise follows from (epsilon, delta), each full "
            f"gradient is released once, and a batch has {self['batch']} rows.",
        )


def _tried(
    figure: Section5, results: Mapping[str, Result], kind: Kind, epsilon: float
) -> dict[str, str]:
    """Labels of the cells of a kind at a budget, by penalty; the figure's own first."""
    own = kind.label(epsilon)
    found = {f"{results[own].facts['penalty']:.3g}": own}
    for each, budget, penalty in figure.elsewhere():
        if each == kind and budget == epsilon:
            label = kind.label(epsilon, penalty)
            auto = " (auto)" if penalty == "auto" else ""
            found[f"{results[label].facts['penalty']:.3g}{auto}"] = label
    return found


def best(figure: Section5, results: Mapping[str, Result], kind: Kind, epsilon: float) -> str:
    """The label of the cell at the penalty with the lowest mean loss."""
    labels = _tried(figure, results, kind, epsilon).values()
    return min(labels, key=lambda label: float(results[label].final("average loss").mean()))


def penalty_table(figure: Section5, results: Mapping[str, Result], measure: str) -> Table:
    """Every kind, budget and penalty of the grid."""
    kinds = dict.fromkeys(kind for kind, *_ in figure.elsewhere())
    rows = []
    for kind in kinds:
        for epsilon in figure["budgets elsewhere"]:
            for penalty, label in _tried(figure, results, kind, epsilon).items():
                last = figure.drawn(results[label].final(measure))
                rows.append(
                    (kind.name, kind.calibration, epsilon, penalty, f"{mean_interval(last):.4f}")
                )
    heads = ("algorithm", "calibration", "claimed or proven epsilon", "penalty", "at the end")
    return Table.of(heads, rows)


def stability_table(figure: Section5, results: Mapping[str, Result], measure: str) -> Table:
    """Whether messages stay finite, for steps and numbers of steps."""
    largest = max(figure["budgets"])
    own = (figure["eta v_L"], figure["S"])
    rows = []
    for share, steps in sorted((own, *figure["steps tried"])):
        ends = []
        for kind in PS.values():
            name = f"{kind.calibration}, eta v_L {share:g}, S {steps}"
            result = results[kind.label(largest) if (share, steps) == own else name]
            if "diverged" in result.facts:
                ends.append("diverged: messages too large to compute with")
            else:
                ends.append(f"{float(np.mean(figure.drawn(result.final(measure)))):.4g}")
        rows.append((share, steps, f"{2 / (1 - 2 * share):.3g}", *ends))
    heads = ("eta v_L", "S", "printed weight of the newest iterate", "published", "proven")
    return Table.of(heads, rows)


def batch_table(figure: Section5, results: Mapping[str, Result]) -> Table:
    """The proven form with other batches, at the largest budget."""
    largest = max(figure["budgets"])
    cells = {figure["batch"]: results[PS["proven"].label(largest)]}
    for batch in figure["batches tried"]:
        cells[batch] = results[f"PS-ADMM, proven, batch {batch}"]
    rows = [
        (
            batch,
            f"{mean_interval(result.final('average loss')):.4f}",
            f"{mean_interval(1 - result.final('average test accuracy')):.4f}",
            f"{mean_interval(1 - result.final('test accuracy')):.4f}",
        )
        for batch, result in sorted(cells.items())
    ]
    return Table.of(("rows of a batch", "loss", "test error", "test error of the mean model"), rows)


def guarantee_table(figure: Section5, results: Mapping[str, Result]) -> Table:
    """What each kind claims, and what is proven of the same noise."""
    rows = []
    for kind in KINDS:
        for epsilon in figure["budgets"]:
            claim = ""
            if kind.calibration == "published":
                claim = str(Given(epsilon)) + (" an iteration" if kind.each_iteration else "")
            spent = bound_of(results[kind.label(epsilon)].facts["privacy"])
            rows.append((kind.name, kind.calibration, epsilon, claim, spent))
    delta = figure["delta"]
    heads = ("algorithm", "calibration", "budget", "claimed", f"provable (delta {Given(delta)})")
    return Table.of(heads, rows)
