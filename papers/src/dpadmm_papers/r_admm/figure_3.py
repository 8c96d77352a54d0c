"""Fig. 3: the effect of gamma on private MR-ADMM."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from dpadmm.experiments.experiment import (
    Conclusion,
    Evaluation,
    Experiment,
    Finding,
    Setting,
    ours,
    paper,
)
from dpadmm.experiments.figures import Curve, Panel
from dpadmm.experiments.job import Job, Result
from dpadmm.experiments.statistics import Interval, difference, mean_interval
from dpadmm.report.tables import Table
from dpadmm_papers.r_admm.common import (
    CALIBRATIONS,
    CITATION,
    COMMON,
    error_of,
    loss_of,
    ranged,
    setup_of,
    total_words,
)

__all__ = ["FigureThree"]

# What "not significantly" allows: a percentage point of error, a twentieth of the loss.
_ERROR: Final = 0.01
_LOSS: Final = 0.05


class FigureThree(Experiment):
    """Fig. 3 a-c."""

    name = "r-admm-figure-3"
    citation = CITATION
    part = "Fig. 3"
    title = "The effect of gamma on private MR-ADMM"
    settings: ClassVar[Mapping[str, Setting]] = {
        **COMMON,
        "gammas": ours((0.1, 0.5, 2.0), "the legend is not legible in our copy"),
        "growth": paper(1.01, "caption: the penalty is 1.01^k in iteration 2k-1"),
        "alphas": ours((2.0, 1.0), "not stated for Fig. 3; those of Fig. 4"),
    }
    conclusions = (
        Conclusion(
            "gamma matters little",
            "Varying gamma (within a certain range) does not affect performance significantly.",
            "For each alpha and each gamma the 95% interval of the difference from gamma = 0.5 "
            f"lies within {_ERROR:.0%} points of test error and within {_LOSS:.0%} of the average "
            "loss, after the last iteration.",
        ),
    )

    def _label(self, calibration: str, alpha: float, gamma: float) -> str:
        return f"{calibration}, alpha = {alpha:g}, gamma = {gamma:g}"

    def cells(self) -> dict[str, Job]:
        """MR-ADMM for every gamma, alpha and calibration; one run without noise."""
        setup = setup_of(self.settings)
        cells: dict[str, Job] = {"without noise": setup.plain()}
        for calibration in CALIBRATIONS:
            for alpha in self["alphas"]:
                for gamma in self["gammas"]:
                    cells[self._label(calibration, alpha, gamma)] = setup.recycled(
                        alpha, calibration, growth=self["growth"], gamma=gamma
                    )
        return cells

    def evaluate(self, results: Mapping[str, Result]) -> Evaluation:
        """Measure how far each gamma is from 0.5."""
        findings, rows = [], []
        for calibration in CALIBRATIONS:
            worst_error = worst_loss = 0.0
            for alpha in self["alphas"]:
                base = results[self._label(calibration, alpha, self["gamma"])]
                for gamma in self["gammas"]:
                    result = results[self._label(calibration, alpha, gamma)]
                    error = difference(error_of(result), error_of(base))
                    loss = difference(loss_of(result), loss_of(base))
                    if gamma != self["gamma"]:
                        worst_error = max(worst_error, _reach(error))
                        worst_loss = max(worst_loss, _reach(loss) / float(loss_of(base).mean()))
                    rows.append(
                        (
                            calibration,
                            alpha,
                            gamma,
                            f"{mean_interval(loss_of(result)):.4f}",
                            f"{mean_interval(error_of(result)):.2%}",
                            "-" if gamma == self["gamma"] else f"{error:.2%}",
                            total_words(result),
                        )
                    )
            findings.append(
                Finding.judged(
                    "gamma matters little",
                    calibration,
                    worst_error < _ERROR and worst_loss < _LOSS,
                    f"The intervals reach {worst_error:.2%} points of error and {worst_loss:.1%} "
                    "of the average loss away from those at gamma = 0.5.",
                )
            )
        table = Table.of(
            (
                "calibration",
                "alpha",
                "gamma",
                "average loss",
                "test error",
                "error less that at 0.5",
                "provable epsilon",
            ),
            rows,
        )
        return Evaluation(
            tuple(self._panels(results)), {"Losses and errors": table}, tuple(findings)
        )

    def _panels(self, results: Mapping[str, Result]) -> list[Panel]:
        plain = ranged("without noise", results["without noise"].course("average loss"))
        panels = [
            Panel(
                f"alpha = {alpha:g}, {calibration}",
                "iteration",
                "average loss",
                (
                    plain,
                    *(
                        ranged(
                            f"gamma = {gamma:g}",
                            results[self._label(calibration, alpha, gamma)].course("average loss"),
                            calibration,
                        )
                        for gamma in self["gammas"]
                    ),
                ),
                note="bands are the range over runs, as in the paper.",
            )
            for calibration in ("published", "proven")
            for alpha in self["alphas"]
        ]
        errors = Panel(
            "Test error",
            "gamma",
            "classification error rate",
            tuple(
                Curve.of_runs(
                    f"alpha = {alpha:g}" + (", Gaussian" if "Gaussian" in calibration else ""),
                    self["gammas"],
                    [
                        error_of(results[self._label(calibration, alpha, gamma)])
                        for gamma in self["gammas"]
                    ],
                    calibration.partition(",")[0],
                )
                for calibration in CALIBRATIONS
                for alpha in self["alphas"]
            ),
        )
        return [*panels, errors]


def _reach(interval: Interval) -> float:
    """How far from zero an interval goes."""
    return max(abs(interval.low), abs(interval.high))
