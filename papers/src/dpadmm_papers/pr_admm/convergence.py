"""Fig. 4: how the average loss falls, at a total epsilon of 10."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from dpadmm.experiments.experiment import Conclusion, Evaluation, Finding, Setting, ours
from dpadmm.experiments.figures import Curve, Panel
from dpadmm.experiments.job import Job, Result
from dpadmm.experiments.meaning import bound_of
from dpadmm.experiments.statistics import difference
from dpadmm.plain import Array
from dpadmm.report.tables import Table
from dpadmm_papers.pr_admm.section import (
    CALIBRATIONS,
    EVERYONE,
    LOSS,
    NON_PRIVATE,
    PROPOSED,
    RIVALS,
    Regime,
    Section5,
)
from dpadmm_papers.pr_admm.verdicts import Judged, close_to, lower_in_most, many_idle

__all__ = ["Figure4"]


class Figure4(Section5):
    """Fig. 4: the mean and the standard deviation of the average loss."""

    name: ClassVar[str] = "pr-admm-figure-4"
    part: ClassVar[str] = "Fig. 4"
    title: ClassVar[str] = "Convergence of PR-ADMM and its rivals at a total epsilon of 10"
    settings: ClassVar[Mapping[str, Setting]] = {
        **Section5.common,
        "other graph": ours(
            "complete", "to see whether the unknown graph of Fig. 1 decides a conclusion"
        ),
        "M-ADMM's inputs, varied": ours(
            ((1.0, 1.0), (1.05, 1.0), (1.02, 0.5), (1.02, 2.0)),
            "growth of the penalty, and theta over the first penalty, where the algorithms learn: "
            "whether they decide a conclusion",
        ),
        "most iterations": ours(0.9, "'during the entire iterative process'"),
        "close to the best": ours(1.05, "'get close to the best achievable average loss'"),
        "many iterations": ours(0.25, "'performs many iterations that do not help'"),
    }
    conclusions: ClassVar[tuple[Conclusion, ...]] = (
        Conclusion(
            "recycled",
            "Compared to DVP and M-ADMM, R-ADMM indeed improves the privacy-utility trade-off "
            "significantly, i.e. has the low value of average loss.",
            "After the last iteration the 95% intervals of R-ADMM's average loss minus DVP's and "
            "minus M-ADMM's lie below 0.",
        ),
        Conclusion(
            "idle",
            "R-ADMM performs many iterations that do not help decrease the average loss.",
            "In at least a quarter of the steps from one iteration to the next the 95% interval of "
            "the change of R-ADMM's average loss is not below 0.",
        ),
        Conclusion(
            "outperforms",
            "Both PR-ADMM (Per) and PR-ADMM (Iter) significantly outperform all other algorithms "
            "during the entire iterative process.",
            "In at least 90% of the iterations, for both, the 95% intervals of their average loss "
            "minus that of each of DVP, M-ADMM and R-ADMM lie below 0.",
        ),
        Conclusion(
            "close",
            "Both get close to the best achievable average loss (non-private) during the entire "
            "iterative process.",
            "In at least 90% of the iterations, for both, the upper end of the 95% interval of the "
            "mean average loss is at most 1.05 times the non-private one at that iteration.",
        ),
    )

    def _settings(self) -> Iterator[tuple[Regime, str, dict[str, Any], str]]:
        """Regime, graph, other inputs of M-ADMM, and what findings add to the calibration."""
        for regime in self.regimes:
            yield regime, self["graph"], {}, ""
        yield self.regimes[1], self["other graph"], {}, f", {self['other graph']} graph"
        for regime in self.regimes[1:]:
            for growth, step in self["M-ADMM's inputs, varied"]:
                theta = step * regime.penalty / regime.scale
                inputs = {"penalty_growth": growth, "dual_step": theta}
                words = f", M-ADMM with growth {growth:g} and theta {step:g} eta"
                yield regime, self["graph"], inputs, words

    def cells(self) -> dict[str, Job]:
        """Everyone in all regimes, on another graph, and M-ADMM with other inputs."""
        found: dict[str, Job] = {}
        for regime, graph, inputs, _ in self._settings():
            found |= [self.non_private(regime, graph=graph)]
            found |= self._run(regime, graph, inputs).values()
        return found

    def _run(
        self, regime: Regime, graph: str, inputs: Mapping[str, Any]
    ) -> dict[tuple[str, str], tuple[str, Job]]:
        """Labels and cells of everyone, by name and calibration."""
        epsilon = self["epsilon of Figs. 2 to 4"]
        return {
            (who, calibration): self.cell(
                who,
                calibration,
                regime,
                epsilon,
                graph=graph,
                **(inputs if who == "M-ADMM" else {}),
            )
            for who in EVERYONE
            for calibration in CALIBRATIONS
        }

    def _courses(
        self,
        results: Mapping[str, Result],
        calibration: str,
        regime: Regime,
        graph: str,
        inputs: Mapping[str, Any],
    ) -> dict[str, Array]:
        run = self._run(regime, graph, inputs)
        found = {who: results[run[who, calibration][0]].course(LOSS) for who in EVERYONE}
        alone = results[self.non_private(regime, graph=graph)[0]].course(LOSS)
        return found | {NON_PRIVATE: alone}

    def _judge(self, courses: Mapping[str, Array]) -> dict[str, Judged]:
        proposed = {who: courses[who] for who in PROPOSED}
        rivals = {who: courses[who] for who in RIVALS}
        gaps = {
            other: difference(courses["R-ADMM"][-1], courses[other][-1])
            for other in ("DVP", "M-ADMM")
        }
        number = "; ".join(f"R-ADMM minus {other}: {gap:.4f}" for other, gap in gaps.items())
        share = self["most iterations"]
        return {
            "recycled": Judged(all(gap.high < 0 for gap in gaps.values()), number),
            "idle": many_idle(courses["R-ADMM"], share=self["many iterations"]),
            "outperforms": lower_in_most(proposed, rivals, share=share),
            "close": close_to(
                proposed, courses[NON_PRIVATE], factor=self["close to the best"], share=share
            ),
        }

    def evaluate(self, results: Mapping[str, Result]) -> Evaluation:
        """Courses of the mean and of the standard deviation, and the paper's four conclusions."""
        findings: list[Finding] = []
        rows: list[tuple[Any, ...]] = []
        for regime, graph, inputs, also in self._settings():
            run = self._run(regime, graph, inputs)
            for calibration in CALIBRATIONS:
                courses = self._courses(results, calibration, regime, graph, inputs)
                heading = self.heading(calibration, regime) + also
                findings += [
                    Finding.judged(name, heading, *judged)
                    for name, judged in self._judge(courses).items()
                    if not inputs or name in ("recycled", "outperforms")
                ]
                for who in ("M-ADMM",) if inputs else EVERYONE:
                    last = courses[who][-1]
                    spent = bound_of(results[run[who, calibration][0]].facts["privacy"])
                    spread = float(last.std(ddof=1))
                    rows.append((heading, who, float(last.mean()), spread, spent))
            if not inputs:
                alone = float(courses[NON_PRIVATE][-1].mean())
                rows.append((f"{regime.words}{also}", NON_PRIVATE, alone, 0.0, "infinite"))
        columns = ("setting", "algorithm", "mean", "standard deviation", "provable epsilon")
        panels = [panel for regime in self.regimes for panel in self._panels(results, regime)]
        return Evaluation(
            tuple(panels),
            {"Average loss after the last iteration": Table.of(columns, rows)},
            tuple(findings),
            (self.majority_remark(results),),
        )

    def _panels(self, results: Mapping[str, Result], regime: Regime) -> tuple[Panel, ...]:
        means, gaps, spreads = [], [], []
        iterations = tuple(range(1, self["iterations"] + 1))
        for calibration in CALIBRATIONS:
            courses = self._courses(results, calibration, regime, self["graph"], {})
            best = courses[NON_PRIVATE].mean(axis=1)
            for who in EVERYONE:
                mean, spread = courses[who].mean(axis=1), courses[who].std(axis=1, ddof=1)
                drawn: dict[str, Any] = {"calibration": calibration}
                means.append(Curve(who, iterations, tuple(mean.tolist()), **drawn))
                spreads.append(Curve(who, iterations, tuple(spread.tolist()), **drawn))
                if calibration == "proven" or who in RIVALS:
                    gaps.append(
                        Curve.of_runs(who, iterations, courses[who] - best[:, None], **drawn)
                    )
        means.append(Curve(NON_PRIVATE, iterations, tuple(best.tolist())))
        words = regime.words
        return (
            Panel(f"mean, {words}", "iteration", "average loss", tuple(means), y_scale="log"),
            Panel(
                f"mean above non-private, {words}",
                "iteration",
                "average loss minus the non-private one",
                tuple(gaps),
                note="without PR-ADMM as published, which is far above.",
            ),
            Panel(
                f"standard deviation, {words}",
                "iteration",
                "standard deviation over runs",
                tuple(spreads),
                y_scale="log",
            ),
        )
