"""Section 5 of DVP: the rho that is selected, with noise and without."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from dpadmm.experiments.experiment import Conclusion, Evaluation, Finding, Setting, ours, paper
from dpadmm.experiments.figures import Curve, Panel
from dpadmm.experiments.job import Job, Result
from dpadmm.experiments.statistics import Interval, mean_interval
from dpadmm.experiments.verdicts import all_below
from dpadmm.plain import Array
from dpadmm.report.tables import Table
from dpadmm_papers.dvp.setting import CALIBRATIONS, SETTINGS, Section5

__all__ = ["SelectionOfRho"]

_KINDS = (*CALIBRATIONS, "")


class SelectionOfRho(Section5):
    """The empirical loss over rho, at alpha = 0.3 and without noise."""

    name = "dvp-rho"
    seconds = 30
    part = "section 5: selection of rho"
    title = "The empirical loss over rho, at alpha = 0.3 and without noise"
    settings: ClassVar[Mapping[str, Setting]] = {
        **SETTINGS,
        "stated alpha": paper(0.3, "section 5: the fixed alpha at which rho is selected"),
        "exponents of rho": ours(
            (-10.0, -5.0, -2.5, -1.0, 0.0, 1.0),
            "'a few fixed values' that are not printed; the two that were selected are among them",
        ),
        "other etas": ours((5.0, 500.0), "eta is not stated"),
        "noise of a run": ours(
            "the same for every rho", "what rho does is far less than what noise does to a run"
        ),
    }
    conclusions = (
        Conclusion(
            "rho with noise",
            "The value of rho that minimises the empirical loss at alpha = 0.3 is 10^-2.5.",
            "The 97.5% interval of the loss at iteration 100 with 10^-2.5 less that with every "
            "other rho, of runs with the same noise, is below 0.",
            choices=("eta",),
        ),
        Conclusion(
            "rho without noise",
            "Without privacy it is 10^-10.",
            "Without noise the loss at iteration 100 with 10^-10 is below that with every other "
            "rho.",
        ),
    )

    def _label(self, kind: str, exponent: float, eta: float | None = None) -> str:
        where = "" if eta is None else f", eta {eta:g}"
        return f"{kind or 'no privacy'}, rho 10^{exponent:g}{where}"

    def cells(self) -> dict[str, Job]:
        """Every rho with each noise; published noise also at other etas."""
        cells: dict[str, Job] = {}
        alpha = self["stated alpha"]
        for exponent in self["exponents of rho"]:
            rho = 10.0**exponent
            cells[self._label("", exponent)] = self.control(rho=rho)
            for kind in CALIBRATIONS:
                cells[self._label(kind, exponent)] = self.at_alpha(alpha, kind, rho=rho)
            for eta in self["other etas"]:
                cells[self._label("published", exponent, eta)] = self.at_alpha(
                    alpha, "published", rho=rho, eta=eta
                )
        return cells

    def _losses(
        self, results: Mapping[str, Result], kind: str, eta: float | None = None
    ) -> dict[float, Array]:
        return {
            exponent: results[self._label(kind, exponent, eta)].final("average loss")
            for exponent in self["exponents of rho"]
        }

    def evaluate(self, results: Mapping[str, Result]) -> Evaluation:
        """Compare the loss at the selected rho with every other."""
        private = float(np.log10(self["rho"]))
        findings = [
            self._selected("rho with noise", kind, private, results) for kind in CALIBRATIONS
        ]
        findings += [
            self._selected("rho with noise", "published", private, results, eta)
            for eta in self["other etas"]
        ]
        plain = float(np.log10(self["rho without privacy"]))
        findings.append(self._selected("rho without noise", "", plain, results))
        curves, rows = [], []
        for kind in _KINDS:
            losses = self._losses(results, kind)
            rhos = [10.0**exponent for exponent in losses]
            name = "DVP" if kind else "no privacy"
            curves.append(Curve.of_runs(name, rhos, losses.values(), kind))
            rows += [
                (
                    kind or "no privacy",
                    f"10^{exponent:g}",
                    f"{mean_interval(values):.5f}" if kind else f"{values[0]:.7f}",
                )
                for exponent, values in losses.items()
            ]
        panel = Panel(
            f"Loss at iteration {self['iterations']}, alpha {self['stated alpha']:g}",
            "rho",
            "loss (mean over parties)",
            tuple(curves),
            x_scale="log",
        )
        table = Table.of(("noise", "rho", "loss"), rows)
        return Evaluation((panel,), {"Losses": table}, tuple(findings))

    def _selected(
        self,
        conclusion: str,
        kind: str,
        exponent: float,
        results: Mapping[str, Result],
        eta: float | None = None,
    ) -> Finding:
        """Whether the loss at an exponent is below that at every other, run by run."""
        losses = self._losses(results, kind, eta)
        nearest = min(losses, key=lambda each: abs(each - exponent))
        steps = {other: losses[nearest] - losses[other] for other in losses if other != nearest}
        gaps = {
            f"10^{nearest:g} less 10^{other:g}": mean_interval(step)
            if kind
            else Interval(*(float(step[0]),) * 3)
            for other, step in steps.items()
        }
        return Finding.of(
            conclusion,
            kind,
            all_below(gaps, ".2g"),
            choice="" if eta is None else "eta",
            variant="" if eta is None else f"{eta:g}",
            rests_on=[self._label(kind, each, eta) for each in losses],
        )
