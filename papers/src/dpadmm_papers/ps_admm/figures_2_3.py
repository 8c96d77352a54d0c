"""Figs. 2 and 3 of PS-ADMM: loss and test error against DVP, at three budgets."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dpadmm.experiments.experiment import Conclusion, Finding
from dpadmm.experiments.job import Result
from dpadmm.experiments.statistics import Interval, difference, mean_interval
from dpadmm.plain import Array
from dpadmm_papers.ps_admm.section_5 import ACCURACY, LOSS, Section5
from dpadmm_papers.ps_admm.setting import CONTROLS, Kind

__all__ = ["Figure2", "Figure3"]


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
        course = self.course(results, kind.label(max(self["budgets"])))
        control = self.course(results, CONTROLS[kind.calibration]).mean(axis=1)
        places = [len(course) // 5 - 1, len(course) // 2 - 1, len(course) - 1]
        away = {place + 1: difference(course[place] / control[place], 1.0) for place in places}
        return [
            self._rising(results, calibration, kind),
            *(
                self._rising(results, f"{calibration}, penalty {penalty}", kind, penalty)
                for penalty in self["other penalties"][kind.algorithm]
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

    def remarks(self, results: Mapping[str, Result]) -> tuple[str, ...]:
        """Also what was added."""
        added = "Whether the loss rises was judged at other penalties too after a first run."
        return (*super().remarks(results), added)

    def _rising(
        self,
        results: Mapping[str, Result],
        calibration: str,
        kind: Kind,
        penalty: float | str = "",
    ) -> Finding:
        """Whether the loss ends above its lowest mean, the more so at the smallest budget."""
        budgets = self["budgets elsewhere" if penalty else "budgets"]
        rises = []
        for epsilon in (min(budgets), max(budgets)):
            course = self.course(results, kind.label(epsilon, penalty))
            rises.append(mean_interval(course[-1] - course[course.mean(axis=1).argmin()]))
        small, large = rises
        return Finding.judged(
            "not monotone",
            calibration,
            small.low > 0 and small.mean > large.mean,
            f"Rise at epsilon {min(budgets):g}: {small:.4f}; at {max(budgets):g}: {large:.4f}.",
        )


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
        control = float(np.mean(self.course(results, CONTROLS[kind.calibration])[-1]))
        away = difference(self.course(results, kind.label(largest))[-1], control)
        return [
            Finding.judged(
                "same trend",
                calibration,
                away.low > -0.01 and away.high < 0.01,
                f"Accuracy minus {control:.4f}, that without privacy: {away:+.4f}.",
            )
        ]
