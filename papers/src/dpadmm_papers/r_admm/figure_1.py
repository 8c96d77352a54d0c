"""Fig. 1: how R-ADMM and MR-ADMM converge without noise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

import numpy as np

from dpadmm.experiments.experiment import (
    Conclusion,
    Evaluation,
    Experiment,
    Finding,
    Setting,
    ours,
    paper,
)
from dpadmm.experiments.job import Job, Result, TrainingJob
from dpadmm.experiments.problems import NamedProblem
from dpadmm.experiments.statistics import Interval, mean_interval
from dpadmm.problem.topologies import build_topology
from dpadmm.run.parameters import TrainingParameters
from dpadmm_papers.r_admm.common import CITATION, COMMON
from dpadmm_papers.r_admm.convergence import REACHED, Courses, left_over
from dpadmm_papers.r_admm.figure_1_parts import (
    course_panel,
    course_table,
    distance_table,
    gap_panel,
    percent,
)
from dpadmm_papers.r_admm.noiseless import NoiselessCell, OptimumCell

__all__ = ["FigureOne"]

_CONVERGED: Final = 0.01
_SIMILAR: Final = 1.5
_UNDONE: Final = 1e-4


class FigureOne(Experiment):
    """Fig. 1 a-c."""

    name = "r-admm-figure-1"
    citation = CITATION
    part = "Fig. 1"
    title = "Convergence of R-ADMM and MR-ADMM without noise"
    settings: ClassVar[Mapping[str, Setting]] = {
        **{name: COMMON[name] for name in ("data", "encoding", "test rows", "C", "start")},
        "rho": ours(0.22, "the value of the later figures; none is given for Fig. 1"),
        "networks": paper((5, 20), "caption: randomly generated small and large networks"),
        "training rows": paper(40_000, "distributed evenly"),
        "draws": ours(
            4,
            "random graphs, each with a random split of the rows: the paper shows one it does not "
            "print, and without noise only these differ between runs",
        ),
        "iterations": ours(100, "conventional ADMM then has 0.5% of the way to the optimum left"),
        "penalty, (a)": paper(0.5, "caption"),
        "gammas, (a)": ours((0.0, 0.5, 2.0, 5.0), "the legend is not legible in our copy"),
        "gamma, (b) and (c)": ours(0.5, "not stated; the value of the later figures"),
        "penalties, (b)": paper((1.0, 1.03, 1.02, 0.8, 1.01), "caption"),
        "growths, (b)": paper(
            (0.01, 0.005, 0.003, 0.015, 0.01), "caption: q1 = 1 + k q2 with k = 1 to 5"
        ),
        "speeds, (b)": paper((1, 2, 3, 4, 5), "caption: k"),
        "growths, (c)": ours((1.01, 1.02, 1.03, 1.04, 1.05), "not stated; those of Fig. 4"),
        "long run": ours(400, "iterations of the runs with fixed penalties in the last table"),
    }
    conclusions = (
        Conclusion(
            "odd iterations compensate",
            "Due to the linear approximation in even iterations, it is possible to cause an "
            "increased average loss; however, the odd iterations will always compensate this "
            "increase.",
            "Wherever an even iteration 2k raises the average loss, iteration 2k+1 brings it to at "
            f"most that of iteration 2k-1 plus {_UNDONE:g}: for every gamma, network and draw.",
        ),
        Conclusion(
            "similar rate",
            "If we only look at the odd iterations, R-ADMM achieves a similar convergence rate as "
            "conventional ADMM.",
            "Let t be the iteration from which on the average loss stays within "
            f"{REACHED:.0%} of the way from its start, ln 2, to the loss of the pooled optimum. "
            "The 95% interval over draws of t(R-ADMM, odd iterations, gamma = 0.5) / t(ADMM) lies "
            f"between {1 / _SIMILAR:.2f} and {_SIMILAR:g}, for both networks.",
        ),
        Conclusion(
            "gamma damps",
            "Larger gamma can result in smaller oscillation between even and odd iterations.",
            "From each gamma to the next larger, the mean of |L(2k) - L(2k-1)| falls: the 95% "
            "interval over draws of the difference is below 0, for both networks.",
        ),
        Conclusion(
            "gamma slows",
            "... but will also lower the convergence rate.",
            "From each gamma to the next larger, the mean over odd iterations of the loss above "
            "that of the optimum grows: the 95% interval over draws of the difference is above 0, "
            "for both networks.",
        ),
        Conclusion(
            "growth slows",
            "Increasing the penalty slows down the convergence, and a larger increase in q1 slows "
            "it down more.",
            "From the fixed penalty 1 to the slowest growth and from each growth to the next, the "
            "mean over odd iterations of the loss above that of the optimum grows: the 95% "
            "interval over draws is above 0, in (b) and in (c).",
        ),
        Conclusion(
            "convergence is attained",
            "The convergence is attained in both cases, with penalties that differ between parties "
            "(b) and with a common one (c).",
            "After the last iteration (100) the 95% interval over draws of the average loss above "
            f"that of the pooled optimum is below {_CONVERGED:.0%} of the way from the start, for "
            "every growth in (b) and (c).",
        ),
    )

    # -- what is computed ---------------------------------------------------------------------

    def _problem(self, network: int, draw: int) -> NamedProblem:
        rows = self["training rows"] // network
        return NamedProblem(self["data"], network, rows, self["test rows"], draw)

    def _recycled(
        self,
        network: int,
        draw: int,
        penalties: tuple[float, ...],
        growths: tuple[float, ...],
        gamma: float,
        rounds: int | None = None,
    ) -> Job:
        scale = self["C"]
        return NoiselessCell(
            self._problem(network, draw),
            build_topology("random", network, seed=draw).edges,
            rounds or self["iterations"],
            tuple(penalty / scale for penalty in penalties),
            growths,
            gamma / scale,
            self["rho"] / scale,
        )

    def _plain(self, network: int, draw: int) -> Job:
        return TrainingJob(
            self._problem(network, draw),
            TrainingParameters(
                "admm",
                topology=build_topology("random", network, seed=draw).edges,
                rounds=self["iterations"],
                penalty=self["penalty, (a)"] / self["C"],
                regularization=self["rho"] / self["C"],
                party_weight="equal",
            ),
            runs=1,
            courses=("average loss",),
            finals=(),
        )

    def _growing(self) -> dict[str, tuple[tuple[float, ...], tuple[float, ...]]]:
        """First penalties and growths of (b) and (c), by label; iteration 1 has k = 1."""
        first, steps = np.array(self["penalties, (b)"]), np.array(self["growths, (b)"])
        found = {}
        for speed in self["speeds, (b)"]:
            growth = 1 + speed * steps
            found[f"b, k = {speed}"] = (tuple((first * growth).tolist()), tuple(growth.tolist()))
        for growth in self["growths, (c)"]:
            found[f"c, q = {growth:g}"] = ((growth,), (growth,))
        return found

    def cells(self) -> dict[str, Job]:
        """Every curve for every draw of the graph and the split."""
        gamma, small = self["gamma, (b) and (c)"], self["networks"][0]
        cells: dict[str, Job] = {}
        for draw in range(self["draws"]):
            for network in self["networks"]:
                problem = self._problem(network, draw)
                cells[f"N = {network}, optimum, {draw}"] = OptimumCell(
                    problem, self["rho"] / self["C"]
                )
                cells[f"N = {network}, ADMM, {draw}"] = self._plain(network, draw)
                for each in self["gammas, (a)"]:
                    label = f"N = {network}, gamma = {each:g}, {draw}"
                    penalty = (self["penalty, (a)"],)
                    cells[label] = self._recycled(network, draw, penalty, (1.0,), each)
            cells[f"fixed, {draw}"] = self._recycled(small, draw, (1.0,), (1.0,), gamma)
            for label, (penalties, growths) in self._growing().items():
                cells[f"{label}, {draw}"] = self._recycled(small, draw, penalties, growths, gamma)
        unequal = self["penalties, (b)"]
        cells["long, common"] = self._recycled(small, 0, (1.0,), (1.0,), gamma, self["long run"])
        cells["long, unequal"] = self._recycled(small, 0, unequal, (1.0,), gamma, self["long run"])
        cells["weighted optimum"] = OptimumCell(
            self._problem(small, 0),
            self["rho"] / self["C"],
            tuple(1 / penalty for penalty in unequal),
        )
        return cells

    # -- what it shows ------------------------------------------------------------------------

    def _gamma_labels(self, network: int) -> list[str]:
        return [f"N = {network}, gamma = {gamma:g}" for gamma in self["gammas, (a)"]]

    def _growth_labels(self, part: str) -> list[str]:
        return ["fixed", *(label for label in self._growing() if label.startswith(part))]

    def evaluate(self, results: Mapping[str, Result]) -> Evaluation:
        """Judge the curves and draw them."""
        courses, small = Courses(results, self["draws"]), self["networks"][0]
        networks, parts = self["networks"], ("b", "c")
        findings = (
            self._compensation(courses),
            self._rate(courses),
            self._damping(courses),
            _grows(
                "gamma slows",
                {f"N = {n}": courses.slower(self._gamma_labels(n), n) for n in networks},
            ),
            _grows(
                "growth slows",
                {f"({part})": courses.slower(self._growth_labels(part), small) for part in parts},
            ),
            self._convergence(courses),
        )
        named = [
            (network, label)
            for network in networks
            for label in (f"N = {network}, ADMM", *self._gamma_labels(network))
        ]
        named += [(small, label) for part in parts for label in self._growth_labels(part)]
        ends = {
            "the common penalty 1": results["long, common"],
            f"the penalties {self['penalties, (b)']}": results["long, unequal"],
        }
        pooled, weighted = results[f"N = {small}, optimum, 0"], results["weighted optimum"]
        tables = {
            "Iterations and what is left": course_table(courses, list(dict.fromkeys(named))),
            "Where fixed penalties lead": distance_table(
                ends, pooled, weighted, f"R-ADMM after {self['long run']} iterations with"
            ),
        }
        panels = [
            course_panel(courses, network, ["ADMM", *self._gamma_names()]) for network in networks
        ]
        panels += [
            gap_panel(courses, small, self._growth_labels(part), title)
            for part, title in zip(
                parts, ("(b) penalties of their own", "(c) a common penalty"), strict=True
            )
        ]
        remarks = (self._rises(courses), *_remarks(pooled, weighted))
        return Evaluation(tuple(panels), tables, findings, remarks)

    def _rises(self, courses: Courses) -> str:
        """The oscillation measured by rises alone: added after the criterion had been judged."""
        small = self["networks"][0]
        words = ", ".join(
            f"{courses.rises(label).mean():.2g} ({name})"
            for label, name in zip(self._gamma_labels(small), self._gamma_names(), strict=True)
        )
        return (
            "The criterion on oscillation counts every even step, although a step down is "
            "progress. Added after it had been judged, the mean rise in an even iteration (a fall "
            f"counts as 0), N = {small}: {words}."
        )

    def _gamma_names(self) -> list[str]:
        return [f"gamma = {gamma:g}" for gamma in self["gammas, (a)"]]

    def _compensation(self, courses: Courses) -> Finding:
        rises = np.concatenate(
            [
                left_over(course)
                for network in self["networks"]
                for label in self._gamma_labels(network)
                for course in courses.losses(label)
            ]
        )
        undone = int((rises <= _UNDONE).sum())
        worst = float(rises.max(initial=0.0))
        return Finding.judged(
            "odd iterations compensate",
            "",
            undone == len(rises),
            f"{undone} of {len(rises)} increases are undone by the next odd iteration; the largest "
            f"rise that is left is {worst:.2g}.",
        )

    def _rate(self, courses: Courses) -> Finding:
        holds, words = True, []
        for network in self["networks"]:
            recycled = courses.iterations(f"N = {network}, gamma = 0.5", network, 2)
            plain = courses.iterations(f"N = {network}, ADMM", network, 1)
            if not np.isfinite([*recycled, *plain]).all():
                holds = False
                words.append(f"N = {network}: not reached")
                continue
            found = mean_interval(np.array(recycled) / np.array(plain))
            holds &= found.low > 1 / _SIMILAR and found.high < _SIMILAR
            words.append(f"N = {network}: {found:.2f}")
        return Finding.judged("similar rate", "", holds, f"Ratio of iterations: {_list(words)}.")

    def _damping(self, courses: Courses) -> Finding:
        falls = {n: courses.calmer(self._gamma_labels(n)) for n in self["networks"]}
        words = [
            f"N = {network}: " + ", ".join(f"{fall:.2g}" for fall in each)
            for network, each in falls.items()
        ]
        return Finding.judged(
            "gamma damps",
            "",
            all(fall.high < 0 for each in falls.values() for fall in each),
            f"Change from each gamma to the next: {_list(words)}.",
        )

    def _convergence(self, courses: Courses) -> Finding:
        small = self["networks"][0]
        ends = {
            label: mean_interval(courses.gaps(label, small)[:, -1]) for label in self._growing()
        }
        worst = max(ends, key=lambda label: ends[label].high)
        count = sum(end.high < _CONVERGED for end in ends.values())
        return Finding.judged(
            "convergence is attained",
            "",
            count == len(ends),
            f"{count} of {len(ends)} curves have less than {_CONVERGED:.0%} left; most is left "
            f"with {worst}: {percent(ends[worst])}.",
        )


def _grows(name: str, found: Mapping[str, list[Interval]]) -> Finding:
    """A finding that stands where every step up is above 0."""
    holds = all(step.low > 0 for steps in found.values() for step in steps)
    words = [f"{where}: " + ", ".join(map(percent, steps)) for where, steps in found.items()]
    return Finding.judged(
        name, "", holds, f"Change of the mean that is left, from each to the next: {_list(words)}."
    )


def _remarks(pooled: Result, weighted: Result) -> tuple[str, ...]:
    first, second = pooled.values["model"], weighted.values["model"]
    return (
        "Penalties that differ between parties, as in (b), solve another problem: the optimum of "
        "sum f_i / eta_i (erratum 1 of `mr-admm`). The rows are split at random here, so that the "
        f"two optima are {np.linalg.norm(first - second):.2g} apart, with norms of about "
        f"{np.linalg.norm(first):.3g}; on parties that differ more, so do they. Growths that "
        "differ, as in (b), lead to no optimum that could be named.",
        "A penalty that grows geometrically stops the run: the steps still to come add up to a "
        "finite length, and what is left then stays, however long one waits.",
    )


def _list(words: list[str]) -> str:
    return "; ".join(words)
