"""Figs. 2 and 3 of PS-ADMM: loss and test error against DVP, at three budgets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from dpadmm.experiments.jobs import Result
from dpadmm.experiments.measures import Interval, mean_interval
from dpadmm.plain import Array
from dpadmm.privacy.figures import Given
from dpadmm_papers.experiment import Conclusion, Finding, split
from dpadmm_papers.ps_admm.section_5 import ACCURACY, LOSS, Section5
from dpadmm_papers.ps_admm.setting import CONTROLS, SETTINGS, Kind
from dpadmm_papers.statistics import difference
from dpadmm_papers.verdicts import all_above, all_within, within

# What the comparison with DVP is varied over.
COMPARED: Final = ("penalty", "DVP's epsilon", "DVP's noise")
# The parts of a claim about all of them.
_BUDGETS: Final = tuple(f"epsilon {Given(each)}" for each in SETTINGS["budgets"].value)


class Figure2(Section5):
    """The loss."""

    name = "ps-admm-figure-2"
    seconds = 40.0
    part = "Fig. 2"
    title = "Loss of PS-ADMM and of DVP over iterations, at three budgets"
    measure, shown, scale = LOSS, "loss (mean over parties)", "log"
    conclusions = (
        *split(
            Conclusion(
                "better",
                "PS-ADMM achieves much less expected loss than DVP for all three budgets.",
                "At the last iteration the 97.5% interval of DVP's loss minus PS-ADMM's is above "
                "0.",
                choices=COMPARED,
            ),
            *_BUDGETS,
        ),
        Conclusion(
            "not monotone",
            "The expected loss does not always decrease, as too much noise affects the "
            "convergence, especially when epsilon is small.",
            "Within runs, some steps raise the loss: the 97.5% interval over runs of the share of "
            "such steps is above 0 at the smallest budget, and so is that of the share there minus "
            "the share at the largest budget.",
            choices=("penalty",),
        ),
        Conclusion(
            "same trend",
            "With epsilon = 0.5 PS-ADMM follows the same trend as the non-private algorithm.",
            "After a fifth, half and all of the iterations the whole 97.5% interval of its loss is "
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
        label, without = kind.label(max(self["budgets"])), CONTROLS[calibration]
        course = self.course(results, label)
        control = self.course(results, without).mean(axis=1)
        places = [len(course) // 5 - 1, len(course) // 2 - 1, len(course) - 1]
        away = {
            f"iteration {place + 1}": difference(course[place] / control[place], 1.0)
            for place in places
        }
        verdict, number = all_within(away, 0.05, "+.3f")
        return [
            self._rising(results, kind),
            *(
                self._rising(results, kind, penalty)
                for penalty in self["other penalties"][kind.algorithm]
            ),
            Finding.judged(
                "same trend",
                calibration,
                verdict,
                f"Relative to the loss without privacy: {number}",
                rests_on=[label, without],
            ),
        ]

    def _rising(
        self, results: Mapping[str, Result], kind: Kind, penalty: float | str = ""
    ) -> Finding:
        """Whether steps within runs raise the loss, the more so at the smallest budget."""
        budgets = self["budgets elsewhere" if penalty else "budgets"]
        labels = [kind.label(epsilon, penalty) for epsilon in (min(budgets), max(budgets))]
        shares = [
            (np.diff(self.course(results, label), axis=0) > 0).mean(axis=0) for label in labels
        ]
        found = {
            f"epsilon {min(budgets):g}": mean_interval(shares[0]),
            f"minus epsilon {max(budgets):g}": difference(shares[0], shares[1]),
        }
        verdict, number = all_above(found, ".3f")
        return Finding.judged(
            "not monotone",
            kind.calibration,
            verdict,
            f"Share of the steps of a run that raise its loss: {number}",
            choice="penalty" if penalty else "",
            variant=f"{penalty}",
            rests_on=labels,
        )


class Figure3(Section5):
    """The test error."""

    name = "ps-admm-figure-3"
    # The cells are those of Fig. 2.
    seconds = 40.0
    part = "Fig. 3"
    title = "Test error of PS-ADMM and of DVP over iterations, at three budgets"
    measure, shown, scale = ACCURACY, "test error (mean over parties)", "linear"
    conclusions = (
        *split(
            Conclusion(
                "better",
                "PS-ADMM achieves higher testing accuracy than DVP for all three budgets.",
                "At the last iteration the 97.5% interval of PS-ADMM's accuracy minus DVP's is "
                "above 0.",
                choices=COMPARED,
            ),
            *_BUDGETS,
        ),
        Conclusion(
            "same trend",
            "With epsilon = 0.5 PS-ADMM follows the same trend as the non-private algorithm.",
            "At the last iteration the whole 97.5% interval of its accuracy is within one point of "
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
        label, without = kind.label(max(self["budgets"])), CONTROLS[calibration]
        control = float(np.mean(self.course(results, without)[-1]))
        away = difference(self.course(results, label)[-1], control)
        return [
            Finding.judged(
                "same trend",
                calibration,
                within(away, -0.01, 0.01),
                f"Accuracy minus {control:.4f}, that without privacy: {away:+.4f}.",
                rests_on=[label, without],
            )
        ]
