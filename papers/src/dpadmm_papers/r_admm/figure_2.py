"""Fig. 2: the test error of conventional ADMM over rho."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from dpadmm.experiments.experiment import (
    Conclusion,
    Evaluation,
    Finding,
    Setting,
    ours,
    paper,
)
from dpadmm.experiments.figures import Curve, Panel
from dpadmm.experiments.job import Job, Result
from dpadmm.experiments.statistics import mean_interval
from dpadmm.experiments.verdicts import all_below
from dpadmm.report.tables import Table
from dpadmm_papers.r_admm.common import COMMON, Section8, error_of

__all__ = ["FigureTwo"]


class FigureTwo(Section8):
    """Fig. 2."""

    name = "r-admm-figure-2"
    seconds = 20
    part = "Fig. 2"
    title = "The test error of conventional ADMM over rho, without noise"
    settings: ClassVar[Mapping[str, Setting]] = {
        **{name: COMMON[name] for name in COMMON if name not in ("noise", "gamma", "runs")},
        "penalty": ours(1.0, "not stated; the fixed penalty of Fig. 5"),
        "rho": paper(0.22, "section VIII.B.1: where the error is smallest"),
        "other rhos": ours(
            (0.0022, 0.022, 0.07, 0.7, 2.2, 7.0, 22.0), "the axis is not legible in our copy"
        ),
        "splits": ours(10, "random splits into training and test rows; the paper has one"),
    }
    conclusions = (
        Conclusion(
            "minimum",
            "The classification error rate is minimised at rho = 0.22 or about.",
            "The 97.5% interval over splits of error(0.22) - error(rho), split by split, is below "
            "0 for every other rho; all of them are at least a factor of 3 away.",
        ),
    )

    def _label(self, rho: float) -> str:
        return f"rho = {rho:g}"

    def _rhos(self) -> list[float]:
        return sorted([self["rho"], *self["other rhos"]])

    def cells(self) -> dict[str, Job]:
        """ADMM for every rho, on every split."""
        return {
            self._label(rho): replace(self.plain(rho), courses=(), repeats=self["splits"])
            for rho in self._rhos()
        }

    def evaluate(self, results: Mapping[str, Result]) -> Evaluation:
        """Compare the error at 0.22 with every other."""
        errors = {rho: error_of(results[self._label(rho)]) for rho in self._rhos()}
        chosen = errors[self["rho"]]
        gaps = {
            f"error(0.22) less error({rho:g})": mean_interval(chosen - found)
            for rho, found in errors.items()
            if rho != self["rho"]
        }
        best = min(errors, key=lambda rho: float(errors[rho].mean()))
        table = Table.of(
            ("rho", "test error", "error(0.22) less this one"),
            [
                (rho, f"{mean_interval(found):.2%}", f"{mean_interval(chosen - found):.3%}")
                for rho, found in errors.items()
            ],
        )
        panel = Panel(
            "Test error over rho",
            "rho",
            "classification error rate",
            (Curve.of_runs("ADMM", list(errors), errors.values()),),
            x_scale="log",
            note="the band is the 97.5% interval over random splits.",
        )
        remark = (
            f"The smallest mean error of this grid is {errors[best].mean():.2%}, at rho = "
            f"{best:g}. With 50 iterations the run ends before the optimum, which regularises too."
        )
        finding = Finding.of("minimum", "", all_below(gaps, ".3%"))
        return Evaluation((panel,), {"Errors": table}, (finding,), (remark,))
