"""Fig. 4: how the average loss falls, at a total epsilon of 10."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, NamedTuple

from dpadmm.experiments.figures import Curve, Panel
from dpadmm.experiments.jobs import Job, Result
from dpadmm.experiments.meaning import bound_of
from dpadmm.experiments.measures import difference
from dpadmm.plain import Array
from dpadmm.report.document import Table
from dpadmm_papers.experiment import Conclusion, Evaluation, Finding, Setting, ours
from dpadmm_papers.pr_admm.section import (
    CALIBRATIONS,
    EVERYONE,
    LOSS,
    NON_PRIVATE,
    PROPOSED,
    REGIMES,
    RIVALS,
    Choice,
    Regime,
    Section5,
)
from dpadmm_papers.verdicts import Judged, all_below, close_to, lower_in_most, many_idle


class _Varied(NamedTuple):
    """Regime, graph, other inputs of M-ADMM; which choice of ours that is, and within which."""

    regime: Regime
    graph: str
    inputs: dict[str, Any]
    words: Choice
    within: str = ""


class Figure4(Section5):
    """Fig. 4: the mean and the standard deviation of the average loss."""

    name: ClassVar[str] = "pr-admm-figure-4"
    seconds: ClassVar[float] = 70.0
    part: ClassVar[str] = "Fig. 4"
    title: ClassVar[str] = "Convergence of PR-ADMM and its rivals at a total epsilon of 10"
    settings: ClassVar[Mapping[str, Setting]] = {
        **Section5.common,
        "other graph": ours(
            "complete", "to see whether the unknown graph of Fig. 1 decides a conclusion"
        ),
        "M-ADMM's inputs, varied": ours(
            ((1.0, 1.0), (1.05, 1.0), (1.02, 0.5), (1.02, 2.0)),
            "growth of the penalty, and theta over the first penalty, with the second penalty: "
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
            "After the last iteration the 97.5% intervals of R-ADMM's average loss minus DVP's and "
            "minus M-ADMM's lie below 0.",
            choices=("graph", "M-ADMM's inputs", *REGIMES),
        ),
        Conclusion(
            "idle",
            "R-ADMM performs many iterations that do not help decrease the average loss.",
            "In at least a quarter of the steps from one iteration to the next the mean of "
            "R-ADMM's average loss over the paper's ten runs does not fall, as one reads it off "
            "the figure.",
            choices=("graph", *REGIMES),
        ),
        Conclusion(
            "outperforms",
            "Both PR-ADMM (Per) and PR-ADMM (Iter) significantly outperform all other algorithms "
            "during the entire iterative process.",
            "In at least 90% of the iterations, for both, the 97.5% intervals of their average "
            "loss minus that of each of DVP, M-ADMM and R-ADMM lie below 0.",
            choices=("graph", "M-ADMM's inputs", *REGIMES),
        ),
        Conclusion(
            "close",
            "Both get close to the best achievable average loss (non-private) during the entire "
            "iterative process.",
            "In at least 90% of the iterations, for both, the upper end of the 97.5% interval of "
            "the mean average loss is at most 1.05 times the non-private one at that iteration.",
            choices=("graph", *REGIMES),
        ),
    )

    def _settings(self) -> Iterator[_Varied]:
        """What the figure is judged with: as stated, and with other choices of ours."""
        own = self["graph"]
        for regime in self.regimes:
            yield _Varied(regime, own, {}, self.choice_of(regime))
        # The graph and M-ADMM's inputs are varied where the algorithms learn and cells are cheap,
        # and held against the same regime.
        regime = self.regimes[1]
        within = f", {regime.words}"
        yield _Varied(regime, own, {}, {}, within)
        other: Choice = {"choice": "graph", "variant": self["other graph"]}
        yield _Varied(regime, self["other graph"], {}, other, within)
        for growth, step in self["M-ADMM's inputs, varied"]:
            inputs = {"penalty_growth": growth, "dual_step": step * regime.penalty}
            variant = f"growth {growth:g}, theta {step:g} eta"
            words: Choice = {"choice": "M-ADMM's inputs", "variant": variant}
            yield _Varied(regime, own, inputs, words, within)

    def cells(self) -> dict[str, Job]:
        """Everyone in all regimes, on another graph, and M-ADMM with other inputs."""
        found: dict[str, Job] = {}
        for varied in self._settings():
            found |= [self.non_private(varied.regime, graph=varied.graph)]
            found |= self._run(varied).values()
        return found

    def _run(self, varied: _Varied) -> dict[tuple[str, str], tuple[str, Job]]:
        """Labels and cells of everyone, by name and calibration."""
        epsilon = self["epsilon of Figs. 2 to 4"]
        return {
            (who, calibration): self.cell(
                who,
                calibration,
                varied.regime,
                epsilon,
                graph=varied.graph,
                **(varied.inputs if who == "M-ADMM" else {}),
            )
            for who in EVERYONE
            for calibration in CALIBRATIONS
        }

    def _courses(
        self, results: Mapping[str, Result], calibration: str, varied: _Varied
    ) -> dict[str, Array]:
        run = self._run(varied)
        found = {who: results[run[who, calibration][0]].course(LOSS) for who in EVERYONE}
        alone = results[self.non_private(varied.regime, graph=varied.graph)[0]].course(LOSS)
        return found | {NON_PRIVATE: alone}

    def _judge(self, courses: Mapping[str, Array]) -> dict[str, Judged]:
        proposed = {who: courses[who] for who in PROPOSED}
        rivals = {who: courses[who] for who in RIVALS}
        gaps = {
            f"R-ADMM minus {other}": difference(courses["R-ADMM"][-1], courses[other][-1])
            for other in ("DVP", "M-ADMM")
        }
        share = self["most iterations"]
        return {
            "recycled": all_below(gaps),
            "idle": many_idle(courses["R-ADMM"], share=self["many iterations"], runs=self["runs"]),
            "outperforms": lower_in_most(proposed, rivals, share=share),
            "close": close_to(
                proposed, courses[NON_PRIVATE], factor=self["close to the best"], share=share
            ),
        }

    def evaluate(self, results: Mapping[str, Result]) -> Evaluation:
        """Courses of the mean and of the standard deviation, and the paper's four conclusions."""
        findings: list[Finding] = []
        rows: list[tuple[Any, ...]] = []
        for varied in self._settings():
            run = self._run(varied)
            for calibration in CALIBRATIONS:
                courses = self._courses(results, calibration, varied)
                labels = {who: run[who, calibration][0] for who in EVERYONE}
                findings += [
                    Finding.judged(
                        name,
                        calibration + varied.within,
                        *judged,
                        **varied.words,
                        rests_on=labels.values(),
                    )
                    for name, judged in self._judge(courses).items()
                    if not varied.inputs or name in ("recycled", "outperforms")
                ]
                where = varied.words.get("variant", "as stated") + varied.within
                if varied.within and not varied.words:
                    continue  # The regime's own rows are there already.
                for who in ("M-ADMM",) if varied.inputs else EVERYONE:
                    last, spent = courses[who][-1], results[labels[who]].facts["privacy"]
                    spread = float(last.std(ddof=1))
                    mean = float(last.mean())
                    rows.append((where, calibration, who, mean, spread, bound_of(spent)))
            if not varied.inputs and (varied.words or not varied.within):
                alone = float(courses[NON_PRIVATE][-1].mean())
                rows.append((where, "", NON_PRIVATE, alone, 0.0, "infinite"))
        columns = ("with", "noise", "algorithm", "mean", "standard deviation", "provable epsilon")
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
            courses = self._courses(results, calibration, _Varied(regime, self["graph"], {}, {}))
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
