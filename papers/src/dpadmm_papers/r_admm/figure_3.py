"""Fig. 3: the effect of gamma on private MR-ADMM."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from dpadmm.experiments.experiment import (
    Conclusion,
    Evaluation,
    Finding,
    Setting,
    ours,
    paper,
)
from dpadmm.experiments.job import Job, Result
from dpadmm.experiments.statistics import difference
from dpadmm.experiments.verdicts import Judged, all_within, every
from dpadmm_papers.r_admm.common import (
    CALIBRATIONS,
    COMMON,
    KIND,
    PLAIN,
    Section8,
    course_panels,
    error_of,
    error_panel,
    label,
    loss_of,
    outcome_table,
    placed,
)

__all__ = ["FigureThree"]

# What "not significantly" allows: a percentage point of error, a twentieth of the loss.
_ERROR: Final = 0.01
_LOSS: Final = 0.05


class FigureThree(Section8):
    """Fig. 3 a-c."""

    name = "r-admm-figure-3"
    seconds = 10
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
            "For each alpha and each gamma the 97.5% interval of the difference from gamma = 0.5 "
            f"lies within {_ERROR:.0%} points of test error and within {_LOSS:.0%} of the average "
            "loss, after the last iteration.",
            choices=(KIND,),
        ),
    )

    def _names(self) -> dict[str, float]:
        return {f"gamma = {gamma:g}": gamma for gamma in self["gammas"]}

    def cells(self) -> dict[str, Job]:
        """MR-ADMM for every gamma, alpha and calibration; one run without noise."""
        cells: dict[str, Job] = {PLAIN: self.plain()}
        for calibration in CALIBRATIONS:
            for alpha in self["alphas"]:
                for name, gamma in self._names().items():
                    cells[label(calibration, alpha, name)] = self.recycled(
                        alpha, calibration, growth=self["growth"], gamma=gamma
                    )
        return cells

    def evaluate(self, results: Mapping[str, Result]) -> Evaluation:
        """Measure how far each gamma is from 0.5."""
        alphas, names = self["alphas"], self._names()
        runs = [(kind, alpha, name) for kind in CALIBRATIONS for alpha in alphas for name in names]
        return Evaluation(
            (
                *course_panels(results, alphas, list(names)),
                error_panel(results, alphas, names, "gamma"),
            ),
            {"Losses and errors": outcome_table(results, runs, "gamma")},
            tuple(placed(self._judge(results, kind)) for kind in CALIBRATIONS),
        )

    def _judge(self, results: Mapping[str, Result], calibration: str) -> Finding:
        errors, losses = {}, {}
        for alpha in self["alphas"]:
            base = results[label(calibration, alpha, f"gamma = {self['gamma']:g}")]
            for name, gamma in self._names().items():
                if gamma != self["gamma"]:
                    where, found = label(calibration, alpha, name), f"{name}, alpha = {alpha:g}"
                    errors[found] = difference(error_of(results[where]), error_of(base))
                    level = float(loss_of(base).mean())
                    losses[found] = difference(
                        loss_of(results[where]) / level, loss_of(base) / level
                    )
        by_error, by_loss = all_within(errors, _ERROR, ".2%"), all_within(losses, _LOSS, ".1%")
        judged = Judged(
            every([by_error.verdict, by_loss.verdict]),
            f"Error: {by_error.number} Loss, as a part of it: {by_loss.number}",
        )
        rests_on = [label(calibration, alpha, n) for alpha in self["alphas"] for n in self._names()]
        return Finding.of("gamma matters little", calibration, judged, rests_on=rests_on)
