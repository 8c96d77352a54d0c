"""What Figs. 2 and 3 of PS-ADMM share: cells, comparisons with DVP, panels."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

import numpy as np

from dpadmm.experiments.experiment import Evaluation, Experiment, Finding, Setting, seed_of
from dpadmm.experiments.figures import Curve, Panel
from dpadmm.experiments.job import Job, Result, TrainingJob
from dpadmm.experiments.meaning import bound_of
from dpadmm.experiments.problems import NamedProblem
from dpadmm.experiments.statistics import Interval, mean_interval
from dpadmm.plain import Array
from dpadmm.privacy.figures import AtMost, Given
from dpadmm.problem.losses import get_loss
from dpadmm.report.tables import Table
from dpadmm.run.parameters import TrainingParameters
from dpadmm_papers.ps_admm.setting import (
    CITATION,
    CONTROL,
    CONTROLS,
    DVP,
    KINDS,
    PS,
    SETTINGS,
    Kind,
    StabilityCell,
    parameters,
)

__all__ = [
    "ACCURACY",
    "LOSS",
    "Section5",
    "batch_table",
    "best",
    "guarantee_table",
    "penalty_table",
    "stability_table",
]


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

    def cell(self, name: str, what: TrainingParameters, runs: int) -> TrainingJob:
        """Train and measure."""
        return TrainingJob(
            self.problem(),
            what,
            runs=runs,
            seed=seed_of(f"ps-admm, {name}"),
            courses=(LOSS, ACCURACY),
            finals=(LOSS, ACCURACY, "test accuracy"),
        )

    def cells(self) -> dict[str, Job]:
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
        for calibration, name in CONTROLS.items():
            batch = self["batch as published" if calibration == "published" else "batch"]
            control = TrainingParameters(
                "scas-admm",
                rounds=self["K"],
                penalty=self["rho"],
                regularization=2 * self["R"],
                party_weight="equal",
                loss=self["loss"],
                calibration=calibration,
                algorithm_options={"inner_steps": self["S"], "batch_size": batch},
            )
            what[name] = (control, runs)
        cells: dict[str, Job] = {
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
            (*compared, *findings),
            self.remarks(results),
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
        for control in CONTROLS.values():
            course = self.drawn(self.course(results, control))
            curves.append(Curve.of_runs(control, messages, course))
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


def _compared(calibration: str, gaps: Mapping[float, Interval]) -> Finding:
    """Whether PS-ADMM is better at every budget."""
    return Finding.judged(
        "better",
        calibration,
        all(gap.low > 0 for gap in gaps.values()),
        " ".join(f"epsilon {Given(epsilon)}: {gap:.4f}." for epsilon, gap in gaps.items()),
    )


def _tried(
    figure: Section5, results: Mapping[str, Result], kind: Kind, epsilon: float
) -> dict[str, Result]:
    """The cells of a kind at a budget, by penalty; the figure's own first."""
    own = results[kind.label(epsilon)]
    found = {f"{own.facts['penalty']:.3g}": own}
    for each, budget, penalty in figure.elsewhere():
        if each == kind and budget == epsilon:
            result = results[kind.label(epsilon, penalty)]
            auto = " (auto)" if penalty == "auto" else ""
            found[f"{result.facts['penalty']:.3g}{auto}"] = result
    return found


def best(
    figure: Section5, results: Mapping[str, Result], kind: Kind, epsilon: float, measure: str
) -> Array:
    """What the runs end with at the penalty with the lowest mean loss."""
    cells = _tried(figure, results, kind, epsilon).values()
    return min(cells, key=lambda each: float(each.final("average loss").mean())).final(measure)


def penalty_table(figure: Section5, results: Mapping[str, Result], measure: str) -> Table:
    """Every kind, budget and penalty of the grid."""
    kinds = dict.fromkeys(kind for kind, *_ in figure.elsewhere())
    rows = []
    for kind in kinds:
        for epsilon in figure["budgets elsewhere"]:
            for penalty, result in _tried(figure, results, kind, epsilon).items():
                last = figure.drawn(result.final(measure))
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
