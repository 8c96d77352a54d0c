"""Figs. 5 and 6: testing and training accuracy over the total epsilon."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import ClassVar, Final

from dpadmm.experiments.figures import Curve, Panel
from dpadmm.experiments.jobs import Job, Result
from dpadmm.plain import Array
from dpadmm.privacy.figures import AtMost, Given
from dpadmm.report.document import Table
from dpadmm_papers.experiment import (
    Conclusion,
    Evaluation,
    Finding,
    Setting,
    ours,
    paper,
    part_name,
    split,
)
from dpadmm_papers.pr_admm.section import (
    CALIBRATIONS,
    CHOICES,
    EVERYONE,
    MEASURES,
    NON_PRIVATE,
    PERIODIC,
    PROPOSED,
    REFUSED,
    RIVALS,
    Regime,
    Section5,
    Way,
    percent,
)
from dpadmm_papers.verdicts import is_ahead


def _part(who: str, word: str) -> str:
    """A part of the claims: one schedule, on testing or on training rows."""
    return f"{who}, {word}"


_PARTS: Final = tuple(_part(who, word) for who in PROPOSED for word in MEASURES)


class Figures5And6(Section5):
    """Figs. 5 and 6: accuracy on testing and on training rows."""

    name: ClassVar[str] = "pr-admm-figures-5-6"
    seconds: ClassVar[float] = 270.0
    part: ClassVar[str] = "Figs. 5 and 6"
    title: ClassVar[str] = "Testing and training accuracy over the total epsilon"
    settings: ClassVar[Mapping[str, Setting]] = {
        **Section5.common,
        "epsilons": paper((0.1, 0.5, 1.0, 5.0, 10.0), "section V, setup"),
        "competitive": ours(0.01, "at most one percentage point below the best rival"),
        "a wide range": ours(0.8, "four of the five budgets"),
    }
    conclusions: ClassVar[tuple[Conclusion, ...]] = (
        *split(
            Conclusion(
                "competitive",
                "Both PR-ADMM (Per) and PR-ADMM (Iter) achieve competitive testing/training "
                "accuracies on a wide range of values for the total privacy loss epsilon.",
                "At four fifths or more of the epsilons the 97.5% intervals of the accuracy minus "
                "that of each of DVP, M-ADMM and R-ADMM lie above -1 percentage point; budgets for "
                "which a rival's formula has no noise are left out.",
                choices=CHOICES,
            ),
            *_PARTS,
        ),
        *split(
            Conclusion(
                "outperforms",
                "The proposed algorithm outperforms other differentially private ADMM algorithms "
                "under the same total privacy loss (abstract and conclusion).",
                "At every epsilon the 97.5% intervals of the accuracy minus that of each of DVP, "
                "M-ADMM and R-ADMM lie above 0; budgets for which a rival's formula has no noise "
                "are left out.",
                choices=CHOICES,
            ),
            *_PARTS,
        ),
    )

    def cells(self) -> dict[str, Job]:
        """Everyone at every budget, in both calibrations, in all regimes."""
        found = [
            self.cell(who, calibration, regime, epsilon)
            for who in EVERYONE
            for calibration in CALIBRATIONS
            for regime in self.regimes
            for epsilon in self["epsilons"]
        ]
        return dict([*found, *(self.non_private(regime) for regime in self.regimes)])

    def _budgets(
        self, results: Mapping[str, Result], calibration: str, regime: Regime
    ) -> tuple[float, ...]:
        """The epsilons at which nobody was refused."""
        return tuple(
            epsilon
            for epsilon in self["epsilons"]
            if not any(
                "refused" in results[self.label(who, calibration, regime, epsilon)].facts
                for who in EVERYONE
            )
        )

    def _accuracies(
        self,
        results: Mapping[str, Result],
        who: str,
        calibration: str,
        way: Way,
        epsilons: Iterable[float],
    ) -> list[dict[str, Array]]:
        """At every budget: accuracy by the paper's word for it."""
        return [
            {
                word: self.final(
                    results[self.label(who, calibration, way.regime, epsilon)],
                    measure,
                    primal=way.primal,
                )
                for word, measure in MEASURES.items()
            }
            for epsilon in epsilons
        ]

    def evaluate(self, results: Mapping[str, Result]) -> Evaluation:
        """Accuracy over epsilon, whether PR-ADMM is ahead, and what was guaranteed."""
        findings = [
            finding
            for calibration in CALIBRATIONS
            for way in self.ways
            for finding in self._judge(results, calibration, way)
        ]
        panels = [self._panel(results, word, way) for way in self.ways for word in MEASURES]
        return Evaluation(
            tuple(panels),
            {
                "Testing accuracy": self._table(results),
                "What the runs guarantee": self.guarantees(results, EVERYONE, self["epsilons"]),
            },
            tuple(findings),
            (self.reading_remark(results), self._lemma_remark(results)),
        )

    def _judge(
        self, results: Mapping[str, Result], calibration: str, way: Way
    ) -> Iterator[Finding]:
        """Each schedule alone, for testing and for training, against all rivals."""
        budgets = self._budgets(results, calibration, way.regime)
        found = {who: self._accuracies(results, who, calibration, way, budgets) for who in EVERYONE}
        margins = {
            "competitive": (self["competitive"], self["a wide range"]),
            "outperforms": (0.0, 1.0),
        }
        for name, (margin, share) in margins.items():
            for who, word in product(PROPOSED, MEASURES):
                own, *rivals = (
                    (each, [{word: at[word]} for at in found[each]]) for each in (who, *RIVALS)
                )
                judged = is_ahead(dict([own]), dict(rivals), margin=margin, share=share)
                # More runs can only help at budgets that these leave open.
                left = [
                    budget
                    for place, budget in enumerate(budgets)
                    if is_ahead(
                        {own[0]: own[1][place : place + 1]},
                        {name: at[place : place + 1] for name, at in rivals},
                        margin=margin,
                        share=1.0,
                    ).verdict
                    == "not decided"
                ]
                yield Finding.of(
                    part_name(name, _part(who, word)),
                    calibration,
                    judged,
                    choice=way.words.get("choice", ""),
                    variant=way.words.get("variant", ""),
                    rests_on=[
                        self.label(each, calibration, way.regime, budget)
                        for each in (who, *RIVALS)
                        for budget in left or budgets
                    ],
                )

    def _panel(self, results: Mapping[str, Result], word: str, way: Way) -> Panel:
        epsilons = self["epsilons"]
        curves = []
        for who in EVERYONE:
            for calibration in CALIBRATIONS:
                budgets = self._budgets(results, calibration, way.regime)
                found = self._accuracies(results, who, calibration, way, budgets)
                curves.append(
                    Curve.of_runs(who, budgets, [each[word] for each in found], calibration)
                )
        best = self.best(results, way.regime, word)
        curves.append(Curve(NON_PRIVATE, epsilons, (best,) * len(epsilons)))
        figure = "Fig. 5" if word == "testing" else "Fig. 6"
        return Panel(
            f"{figure}, {word}, {way.title}",
            "claimed or proven total epsilon",
            f"{word} accuracy",
            tuple(curves),
            x_scale="log",
        )

    def _table(self, results: Mapping[str, Result]) -> Table:
        rows = []
        for regime in self.regimes:
            for calibration in CALIBRATIONS:
                for who in EVERYONE:
                    shares = (
                        self._share(results.get(self.label(who, calibration, regime, epsilon)))
                        for epsilon in self["epsilons"]
                    )
                    rows.append((regime.words, calibration, who, *shares))
            best = f"{100 * self.best(results, regime):.1f}%"
            rows.append((regime.words, "", NON_PRIVATE, *(best for _ in self["epsilons"])))
        columns = [f"claimed or proven epsilon {Given(epsilon)}" for epsilon in self["epsilons"]]
        return Table.of(("with", "calibration", "algorithm", *columns), rows)

    @staticmethod
    def _share(result: Result | None) -> str:
        if result is None:
            return ""
        if "refused" in result.facts:
            return REFUSED
        own, sent = (
            percent(Section5.final(result, MEASURES["testing"], primal=primal))
            for primal in (True, False)
        )
        return own if own == sent else f"{own}, messages {sent}"

    def _lemma_remark(self, results: Mapping[str, Result]) -> str:
        """What Lemma 5 costs, in these runs."""
        regime, epsilon = self.regimes[1], max(self["epsilons"])
        printed, proven = (
            results[self.label(PERIODIC, calibration, regime, epsilon)]
            for calibration in CALIBRATIONS
        )
        norms = [float(each.final("average norm").mean()) for each in (printed, proven)]
        spent = AtMost(printed.facts["privacy"]["epsilon"])
        return (
            "**Lemma 5 loses the number of rows.** It puts the sensitivity at V/(eta |V_i|), about "
            f"{self['rows of an agent']} times what is proven, and the noise with it. At a claimed "
            f"epsilon of {Given(epsilon)} and {regime.words}, {PERIODIC} as published sends "
            f"models of norm {norms[0]:.3g} where those with proven noise have {norms[1]:.3g}, "
            "and gets "
            f"{percent(printed.final(MEASURES['testing']))} of the testing rows right; what is "
            f"provable for it is epsilon = {spent:3} at the same delta (0: delta alone covers "
            "what it reveals). The page on Lemma 5 "
            "(`pr-admm-lemma-5`) looks for noise with which the paper's figures are possible."
        )
