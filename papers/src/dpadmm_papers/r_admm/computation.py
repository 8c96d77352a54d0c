"""The claim that half of the updates need much less computation, measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import ClassVar, Final

from dpadmm.experiments.figures import Curve, Panel
from dpadmm.experiments.jobs import Job, Result
from dpadmm.experiments.measures import mean_interval
from dpadmm.report.document import Table
from dpadmm_papers.experiment import (
    Conclusion,
    Evaluation,
    Finding,
    Setting,
    ours,
)
from dpadmm_papers.iterates import COUNTED, CostJob
from dpadmm_papers.r_admm.common import COMMON, Section8
from dpadmm_papers.verdicts import all_below, certain, every

# "much less" and "half": what the upper ends of the intervals must stay below.
_MUCH_LESS: Final = 0.1
_HALF: Final = 0.6
#: Calibrations, the first without noise.
NOISES: Final = ("", "published", "proven")


class Computation(Section8):
    """Time, solves and passes of odd and even iterations."""

    name = "r-admm-computation"
    seconds = 20
    part = "abstract and section III: less computation"
    title = "What the iterations of R-ADMM and of conventional ADMM cost"
    settings: ClassVar[Mapping[str, Setting]] = {
        **COMMON,
        "runs": ours(10, "draws of the noise, each measured by itself"),
        "alpha": ours(1.0, "noise of R-ADMM; conventional ADMM is held to the same total"),
        "without noise": ours(
            "noise a million times smaller",
            "the paper's non-private algorithms, computed by the same code",
        ),
        "time": ours("CPU time of the process", "waiting for other processes does not count"),
    }
    conclusions = (
        Conclusion(
            "even updates are cheap",
            "Half of the updates require much less computation compared to the conventional ADMM.",
            "The 97.5% interval over runs of the mean CPU time of an even iteration over that of "
            f"an iteration of conventional ADMM is below {_MUCH_LESS:g}, and even iterations make "
            "no local solve and no pass over the rows.",
        ),
        Conclusion(
            "half the computation",
            "R-ADMM improves the trade-off with less computation: it solves half as many problems.",
            "The 97.5% intervals over runs of the CPU time and of the passes over the rows of 50 "
            f"iterations of R-ADMM over those of conventional ADMM are below {_HALF:g}.",
        ),
    )

    def _label(self, calibration: str, who: str) -> str:
        return f"{calibration or 'without noise'}, {who}"

    def cells(self) -> dict[str, Job]:
        """R-ADMM and conventional ADMM, with and without noise."""
        alpha, runs = self["alpha"], self["runs"]
        cells: dict[str, Job] = {}
        for calibration in NOISES:
            plain = self.rival("m-admm", alpha, calibration) if calibration else self.plain()
            recycled = self.recycled(
                alpha if calibration else 1e6 * alpha, calibration or "published"
            )
            for who, cell in (("R-ADMM", recycled), ("ADMM", plain)):
                counted = replace(cell, runs=runs, courses=(), finals=(), epsilon_course=False)
                cells[self._label(calibration, who)] = CostJob(counted)
        return cells

    def evaluate(self, results: Mapping[str, Result]) -> Evaluation:
        """Ratios of R-ADMM to conventional ADMM."""
        rows, panels = [], []
        for calibration in NOISES:
            plain, recycled = (
                results[self._label(calibration, who)].values for who in ("ADMM", "R-ADMM")
            )
            name = calibration or "without noise"
            for words, counts, first, step in (
                ("ADMM, all", plain, 0, 1),
                ("R-ADMM, odd", recycled, 0, 2),
                ("R-ADMM, even", recycled, 1, 2),
            ):
                seconds, solves, passes = (
                    float(counts[what][first::step].mean()) for what in COUNTED
                )
                rows.append((name, words, 1000 * seconds, solves, passes / self["parties"]))
            curves = []
            for who, counts in (("ADMM", plain), ("R-ADMM", recycled)):
                total = counts["passes"].mean(axis=1).cumsum() / self["parties"]
                every_one = tuple(range(1, len(total) + 1))
                curves.append(Curve(who, every_one, tuple(total.tolist()), calibration=calibration))
            what = "passes over the rows per party, in total"
            panels.append(Panel(name, "iteration", what, tuple(curves)))
        heads = ("noise", "iterations", "CPU milliseconds", "local solves per party")
        table = Table.of((*heads, "passes over the rows per party"), rows)
        return Evaluation(
            tuple(panels),
            {"An iteration, all parties together": table},
            tuple(found for kind in NOISES for found in self._findings(results, kind)),
            (
                "What an iteration costs depends on the solver. Ours starts from the last "
                "solution, so that it needs fewer passes the less the problem has changed. CPU "
                "time also depends on what else the machine does; solves and passes do not.",
            ),
        )

    def _findings(self, results: Mapping[str, Result], calibration: str) -> Iterator[Finding]:
        rests_on = [self._label(calibration, who) for who in ("R-ADMM", "ADMM")]
        recycled, plain = (results[each].values for each in rests_on)
        even = {
            "the time of an even iteration": mean_interval(
                recycled["seconds"][1::2].mean(axis=0) / plain["seconds"].mean(axis=0)
            )
        }
        idle = not any(recycled[what][1::2].any() for what in ("solves", "passes"))
        cheap = all_below(even, ".4f", _MUCH_LESS)
        yield Finding.judged(
            "even updates are cheap",
            calibration,
            every([cheap.verdict, certain(idle)]),
            f"As a part of one of conventional ADMM, {cheap.number} Solves and passes in even "
            f"iterations: {'none' if idle else 'some'}.",
            rests_on=rests_on,
        )
        ratios = {
            what: mean_interval(recycled[what].sum(axis=0) / plain[what].sum(axis=0))
            for what in ("seconds", "passes")
        }
        half = all_below(ratios, ".2f", _HALF)
        solves = recycled["solves"].sum() / plain["solves"].sum()
        yield Finding.judged(
            "half the computation",
            calibration,
            half.verdict,
            f"As a part of those of conventional ADMM, {half.number} Local solves: {solves:.2f}.",
            rests_on=rests_on,
        )
