"""Figs. 5 and 6: testing and training accuracy over the total epsilon."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from dpadmm.experiments.experiment import Conclusion, Evaluation, Finding, Setting, ours, paper
from dpadmm.experiments.figures import Curve, Panel
from dpadmm.experiments.job import Job, Result
from dpadmm.plain import Array
from dpadmm.privacy.figures import AtMost, Given
from dpadmm.report.tables import Table
from dpadmm_papers.pr_admm.section import (
    CALIBRATIONS,
    ITERATION,
    MEASURES,
    NON_PRIVATE,
    PERIODIC,
    RIVALS,
    Section5,
    percent,
)
from dpadmm_papers.pr_admm.verdicts import is_ahead

__all__ = ["Figures5And6"]

_PROPOSED: Final = (PERIODIC, ITERATION)
_EVERYONE: Final = (*_PROPOSED, *RIVALS)


class Figures5And6(Section5):
    """Figs. 5 and 6: accuracy on testing and on training rows."""

    name: ClassVar[str] = "pr-admm-figures-5-6"
    part: ClassVar[str] = "Figs. 5 and 6"
    title: ClassVar[str] = "Testing and training accuracy over the total epsilon"
    settings: ClassVar[Mapping[str, Setting]] = {
        **Section5.common,
        "epsilons": paper((0.1, 0.5, 1.0, 5.0, 10.0), "section V, setup"),
        "competitive": ours(0.01, "at most one percentage point below the best rival"),
        "a wide range": ours(0.8, "four of the five budgets"),
    }
    conclusions: ClassVar[tuple[Conclusion, ...]] = (
        Conclusion(
            "competitive",
            "Both PR-ADMM (Per) and PR-ADMM (Iter) achieve competitive testing/training accuracies "
            "on a wide range of values for the total privacy loss epsilon.",
            "At four or more of the five epsilons, for both and for testing and training accuracy, "
            "the 95% intervals of the accuracy minus that of each of DVP, M-ADMM and R-ADMM lie "
            "above -1 percentage point.",
        ),
        Conclusion(
            "outperforms",
            "The proposed algorithm outperforms other differentially private ADMM algorithms under "
            "the same total privacy loss (abstract and conclusion).",
            "At every epsilon, for both and for testing and training accuracy, the 95% intervals "
            "of the accuracy minus that of each of DVP, M-ADMM and R-ADMM lie above 0.",
        ),
    )

    def cells(self) -> dict[str, Job]:
        """Everyone at every budget, in both calibrations, at both penalties."""
        found = [
            self.cell(who, calibration, penalty, epsilon)
            for who in _EVERYONE
            for calibration in CALIBRATIONS
            for penalty in self.penalties
            for epsilon in self["epsilons"]
        ]
        return dict([*found, *(self.non_private(penalty) for penalty in self.penalties)])

    def _accuracies(
        self,
        results: Mapping[str, Result],
        who: str,
        calibration: str,
        penalty: float,
    ) -> list[dict[str, Array]]:
        """At every budget: accuracy by the paper's word for it."""
        return [
            {
                word: results[self.label(who, calibration, penalty, epsilon)].final(measure)
                for word, measure in MEASURES.items()
            }
            for epsilon in self["epsilons"]
        ]

    def evaluate(self, results: Mapping[str, Result]) -> Evaluation:
        """Accuracy over epsilon, whether PR-ADMM is ahead, and what was guaranteed."""
        findings = []
        for calibration in CALIBRATIONS:
            for penalty in self.penalties:
                found = {
                    who: self._accuracies(results, who, calibration, penalty) for who in _EVERYONE
                }
                proposed = {who: found[who] for who in _PROPOSED}
                rivals = {who: found[who] for who in RIVALS}
                margin, share = self["competitive"], self["a wide range"]
                heading = self.heading(calibration, penalty)
                findings += [
                    Finding.judged(
                        "competitive",
                        heading,
                        *is_ahead(proposed, rivals, margin=margin, share=share),
                    ),
                    Finding.judged(
                        "outperforms", heading, *is_ahead(proposed, rivals, margin=0.0, share=1.0)
                    ),
                ]
        panels = [
            self._panel(results, word, penalty) for penalty in self.penalties for word in MEASURES
        ]
        return Evaluation(
            tuple(panels),
            {
                "Testing accuracy": self._table(results),
                "What the runs guarantee": self.guarantees(results, _EVERYONE, self["epsilons"]),
            },
            tuple(findings),
            (self.majority_remark(results), self._lemma_remark(results)),
        )

    def _panel(self, results: Mapping[str, Result], word: str, penalty: float) -> Panel:
        epsilons = self["epsilons"]
        curves = [
            Curve.of_runs(
                who,
                epsilons,
                [each[word] for each in self._accuracies(results, who, calibration, penalty)],
                calibration,
            )
            for who in _EVERYONE
            for calibration in CALIBRATIONS
        ]
        best = float(results[self.non_private(penalty)[0]].final(MEASURES[word]).mean())
        curves.append(Curve(NON_PRIVATE, epsilons, (best,) * len(epsilons)))
        figure = "Fig. 5" if word == "testing" else "Fig. 6"
        return Panel(
            f"{figure}, {word}, penalty {penalty:g}",
            "claimed or proven total epsilon",
            f"{word} accuracy",
            tuple(curves),
            x_scale="log",
        )

    def _table(self, results: Mapping[str, Result]) -> Table:
        rows = []
        for penalty in self.penalties:
            for calibration in CALIBRATIONS:
                for who in _EVERYONE:
                    found = self._accuracies(results, who, calibration, penalty)
                    shares = (percent(each["testing"]) for each in found)
                    rows.append((penalty, calibration, who, *shares))
            best = percent(results[self.non_private(penalty)[0]].final(MEASURES["testing"]))
            rows.append((penalty, "", NON_PRIVATE, *(best for _ in self["epsilons"])))
        columns = [f"claimed or proven epsilon {Given(epsilon)}" for epsilon in self["epsilons"]]
        return Table.of(("penalty", "calibration", "algorithm", *columns), rows)

    def _lemma_remark(self, results: Mapping[str, Result]) -> str:
        """What Lemma 5 costs, in these runs."""
        penalty, epsilon = self["penalty"], max(self["epsilons"])
        printed, proven = (
            results[self.label(PERIODIC, calibration, penalty, epsilon)]
            for calibration in CALIBRATIONS
        )
        norms = [float(each.final("average norm").mean()) for each in (printed, proven)]
        spent = AtMost(printed.facts["privacy"]["epsilon"])
        return (
            "**Lemma 5 loses the number of rows.** It puts the sensitivity at V/(eta |V_i|), about "
            f"{self['rows of an agent']} times what is proven, and the noise with it. At a claimed "
            f"epsilon of {Given(epsilon)} and penalty {penalty:g}, {PERIODIC} as published sends "
            f"models of norm {norms[0]:.3g} where those with proven noise have {norms[1]:.3g}, "
            "and gets "
            f"{percent(printed.final(MEASURES['testing']))} of the testing rows right; what is "
            f"provable for it is epsilon = {spent:3} at the same delta (0: delta alone covers "
            "what it reveals). The page on Lemma 5 "
            "(`pr-admm-lemma-5`) looks for noise with which the paper's figures are possible."
        )
