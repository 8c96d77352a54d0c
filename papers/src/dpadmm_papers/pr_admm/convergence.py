"""Fig. 4: how the average loss falls, at a total epsilon of 10."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final, NamedTuple

from dpadmm.experiments.figures import Curve, Panel
from dpadmm.experiments.jobs import Job, Result
from dpadmm.experiments.meaning import bound_of
from dpadmm.plain import Array
from dpadmm.report.document import Table
from dpadmm_papers.experiment import (
    Conclusion,
    Evaluation,
    Finding,
    Setting,
    ours,
    part_name,
    split,
)
from dpadmm_papers.pr_admm.section import (
    CALIBRATIONS,
    CHOICES,
    EVERYONE,
    NON_PRIVATE,
    PROPOSED,
    READING,
    RIVALS,
    Choice,
    Regime,
    Section5,
    Way,
)
from dpadmm_papers.statistics import difference
from dpadmm_papers.verdicts import Judged, all_below, close_to, lower_in_most, many_idle

#: The parts of the claim on R-ADMM.
_COMPARED: Final = ("against DVP", "against M-ADMM")


class _Varied(NamedTuple):
    """Regime, graph, other inputs of M-ADMM; which choice of ours that is; x or the messages."""

    regime: Regime
    graph: str
    inputs: dict[str, Any]
    words: Choice
    primal: bool = True


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
            "growth of the penalty, and theta over the first penalty: whether they decide a "
            "conclusion",
        ),
        "most iterations": ours(0.9, "'during the entire iterative process'"),
        "close to the best": ours(1.05, "'get close to the best achievable average loss'"),
        "many iterations": ours(0.25, "'performs many iterations that do not help'"),
    }
    conclusions: ClassVar[tuple[Conclusion, ...]] = (
        *split(
            Conclusion(
                "recycled",
                "Compared to DVP and M-ADMM, R-ADMM indeed improves the privacy-utility trade-off "
                "significantly, i.e. has the low value of average loss.",
                "After the last iteration the 97.5% interval of R-ADMM's average loss minus the "
                "rival's lies below 0.",
                choices=("graph", "M-ADMM's inputs", READING),
            ),
            *_COMPARED,
        ),
        Conclusion(
            "idle",
            "R-ADMM performs many iterations that do not help decrease the average loss.",
            "In at least a quarter of the steps from one iteration to the next the mean of "
            "R-ADMM's average loss over the paper's ten runs does not fall, as one reads it off "
            "the figure.",
            choices=("graph", READING),
        ),
        *split(
            Conclusion(
                "outperforms",
                "Both PR-ADMM (Per) and PR-ADMM (Iter) significantly outperform all other "
                "algorithms during the entire iterative process.",
                "In at least 90% of the iterations the 97.5% intervals of its average loss minus "
                "that of each of DVP, M-ADMM and R-ADMM lie below 0.",
                choices=("graph", "M-ADMM's inputs", *CHOICES),
            ),
            *PROPOSED,
        ),
        *split(
            Conclusion(
                "close",
                "Both get close to the best achievable average loss (non-private) during the "
                "entire iterative process.",
                "In at least 90% of the iterations the upper end of the 97.5% interval of its mean "
                "average loss is at most 1.05 times the non-private one at that iteration.",
                choices=("graph", *CHOICES),
            ),
            *PROPOSED,
        ),
    )

    def _settings(self) -> Iterator[_Varied]:
        """What the figure is judged with: our settings, and each choice made otherwise."""
        own = self["graph"]
        for way in self.ways:
            yield _Varied(way.regime, own, {}, way.words, way.primal)
        regime = self.regimes[0]
        other: Choice = {"choice": "graph", "variant": self["other graph"]}
        yield _Varied(regime, self["other graph"], {}, other)
        for growth, step in self["M-ADMM's inputs, varied"]:
            theta = step * regime.penalty / regime.scale
            variant = f"growth {growth:g}, theta {step:g} eta"
            words: Choice = {"choice": "M-ADMM's inputs", "variant": variant}
            yield _Varied(regime, own, {"penalty_growth": growth, "dual_step": theta}, words)

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
        labels = {who: run[who, calibration][0] for who in EVERYONE}
        labels[NON_PRIVATE] = self.non_private(varied.regime, graph=varied.graph)[0]
        return {
            who: self.course(results[label], primal=varied.primal) for who, label in labels.items()
        }

    def _judge(self, courses: Mapping[str, Array], varied: _Varied) -> dict[str, Judged]:
        """What is judged of these courses: nothing twice of what the choice leaves as it is."""
        rivals = {who: courses[who] for who in RIVALS}
        share, last = self["most iterations"], {who: each[-1] for who, each in courses.items()}
        found = {
            part_name("outperforms", who): lower_in_most({who: courses[who]}, rivals, share=share)
            for who in PROPOSED
        }
        if varied.primal:
            found |= {
                part_name("recycled", part): all_below(
                    {f"R-ADMM minus {who}": difference(last["R-ADMM"], last[who])}
                )
                for part, who in zip(_COMPARED, ("DVP", "M-ADMM"), strict=True)
            }
        if varied.inputs:
            return found
        if varied.primal:
            idle = many_idle(courses["R-ADMM"], share=self["many iterations"], runs=self["runs"])
            found["idle"] = idle
        factor, best = self["close to the best"], courses[NON_PRIVATE]
        return found | {
            part_name("close", who): close_to({who: courses[who]}, best, factor=factor, share=share)
            for who in PROPOSED
        }

    def evaluate(self, results: Mapping[str, Result]) -> Evaluation:
        """Courses of the mean and of the standard deviation, and the paper's four conclusions."""
        findings: list[Finding] = []
        rows: list[tuple[Any, ...]] = []
        for varied in self._settings():
            run = self._run(varied)
            where = varied.words.get("variant", "our settings")
            for calibration in CALIBRATIONS:
                courses = self._courses(results, calibration, varied)
                labels = {who: run[who, calibration][0] for who in EVERYONE}
                findings += [
                    Finding.of(
                        name,
                        calibration,
                        judged,
                        choice=varied.words.get("choice", ""),
                        variant=varied.words.get("variant", ""),
                        rests_on=labels.values(),
                    )
                    for name, judged in self._judge(courses, varied).items()
                ]
                shown = ("M-ADMM",) if varied.inputs else EVERYONE if varied.primal else PROPOSED
                for who in shown:
                    last, spent = courses[who][-1], results[labels[who]].facts["privacy"]
                    spread = float(last.std(ddof=1))
                    mean = float(last.mean())
                    rows.append((where, calibration, who, mean, spread, bound_of(spent)))
            if not varied.inputs and varied.primal:
                alone = float(courses[NON_PRIVATE][-1].mean())
                rows.append((where, "", NON_PRIVATE, alone, 0.0, "infinite"))
        columns = (
            "with",
            "noise",
            "algorithm",
            "mean",
            "standard deviation",
            "provable epsilon of the messages",
        )
        panels = [panel for way in self.ways for panel in self._panels(results, way)]
        return Evaluation(
            tuple(panels),
            {"Average loss after the last iteration": Table.of(columns, rows)},
            tuple(findings),
            (self.reading_remark(results), self._joint_remark(results)),
        )

    def _joint_remark(self, results: Mapping[str, Result]) -> str:
        """Which of the two schedules a joint claim falls by, with where each ends."""
        ends = []
        for calibration in CALIBRATIONS:
            for way in self.ways:
                if way.regime != self.regimes[0]:
                    continue
                varied = _Varied(way.regime, self["graph"], {}, {}, way.primal)
                courses = self._courses(results, calibration, varied)
                shown = (*PROPOSED, *(RIVALS if way.primal else ()))
                means = ", ".join(f"{who} {courses[who][-1].mean():.3g}" for who in shown)
                model = "x" if way.primal else "the message"
                ends.append(f"{calibration}, {model}: {means}")
        return (
            "**Each schedule alone.** The average loss after the last iteration, "
            f"{self.regimes[0].words}. {'; '.join(ends)}. The claims are about both schedules; the "
            "parts above say by which of them a joint claim falls."
        )

    def _panels(self, results: Mapping[str, Result], way: Way) -> tuple[Panel, ...]:
        means, gaps, spreads = [], [], []
        iterations = tuple(range(1, self["iterations"] + 1))
        for calibration in CALIBRATIONS:
            varied = _Varied(way.regime, self["graph"], {}, {}, way.primal)
            courses = self._courses(results, calibration, varied)
            best = courses[NON_PRIVATE].mean(axis=1)
            for who in EVERYONE:
                mean, spread = courses[who].mean(axis=1), courses[who].std(axis=1, ddof=1)
                drawn: dict[str, Any] = {"calibration": calibration}
                means.append(Curve(who, iterations, tuple(mean.tolist()), **drawn))
                # The first x is the same in every run: what its spread has is rounding.
                spreads.append(Curve(who, iterations[1:], tuple(spread[1:].tolist()), **drawn))
                if calibration == "proven" or who in RIVALS:
                    gaps.append(
                        Curve.of_runs(who, iterations, courses[who] - best[:, None], **drawn)
                    )
        means.append(Curve(NON_PRIVATE, iterations, tuple(best.tolist())))
        words = way.title
        mean_panel = Panel(
            f"mean, {words}", "iteration", "average loss", tuple(means), y_scale="log"
        )
        if not way.primal:
            return (mean_panel,)
        return (
            mean_panel,
            Panel(
                f"mean above non-private, {words}",
                "iteration",
                "average loss minus the non-private one",
                tuple(gaps),
                note="without PR-ADMM as published, which is far above.",
            ),
            Panel(
                f"standard deviation, {words}",
                "iteration, from the second",
                "standard deviation over runs",
                tuple(spreads),
                y_scale="log",
            ),
        )
