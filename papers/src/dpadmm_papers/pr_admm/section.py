"""What the figures of PR-ADMM's section V have in common: settings, cells, tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final

import numpy as np

from dpadmm.experiments.experiment import Experiment, Setting, ours, paper, seed_of
from dpadmm.experiments.job import Job, Result, TrainingJob
from dpadmm.experiments.meaning import bound_of
from dpadmm.experiments.problems import NamedProblem
from dpadmm.experiments.statistics import mean_interval
from dpadmm.plain import Array
from dpadmm.report.tables import Table
from dpadmm.run.parameters import TrainingParameters

__all__ = [
    "CALIBRATIONS",
    "ITERATION",
    "MEASURES",
    "NON_PRIVATE",
    "PERIODIC",
    "RIVALS",
    "Section5",
    "percent",
]

CALIBRATIONS: Final = ("published", "proven")
PERIODIC: Final = "PR-ADMM (Per)"
ITERATION: Final = "PR-ADMM (Iter)"
RIVALS: Final = ("DVP", "M-ADMM", "R-ADMM")
NON_PRIVATE: Final = "Non-private"
#: The paper's words and what is measured: each agent with its own model, the mean over agents.
MEASURES: Final = {
    "testing": "average test accuracy",
    "training": "average training accuracy",
}
_NORM: Final = "average norm"
_LOSS: Final = "average loss"
_SETUP: Final = "section V, setup"


class Section5(Experiment):
    """An experiment of section V."""

    citation: ClassVar[str] = "Ding, Zhang, Chen, Xue, Zhang and Pan, IEEE Big Data 2019 (PR-ADMM)"
    common: ClassVar[Mapping[str, Setting]] = {
        "data": paper("adult", "section V: UCI Adult without rows with missing values, norm <= 1"),
        "encoding": ours(
            "one-hot by a public schema, and a constant column",
            "the paper says which columns there are, not how they become numbers",
        ),
        "agents": paper(5, _SETUP),
        "rows of an agent": paper(8000, _SETUP),
        "testing rows": paper(1000, _SETUP),
        "iterations": paper(50, _SETUP),
        "runs": paper(10, "section V, evaluation"),
        "delta": paper(1e-4, _SETUP),
        "penalty": paper(0.5, _SETUP),
        "second penalty": ours(
            0.02,
            "with 0.5 nobody leaves the majority class in 50 iterations, not even without noise; "
            "with 0.02 the algorithms learn",
        ),
        "epsilon of Figs. 2 to 4": paper(10.0, "section V and the caption of Fig. 4"),
        "K_p": paper(1, "the best of Fig. 2(a)"),
        "R_P": paper(0.925, "the best of Fig. 2(c)"),
        "U, periodic": paper(0.1, "the best of Fig. 2(b)"),
        "R_T": paper(0.015, "the best of Fig. 3(b)"),
        "U, iteration": paper(1.0, "the best of Fig. 3(a)"),
        "graph": ours("ring", "Fig. 1 draws five agents; its links are not in the text"),
        "regularization": ours(1e-4, "2 Lambda; Lambda is not stated"),
        "first variables": ours(0.0, "Algorithm 1 leaves them open; Lemma 4 has random ones"),
        "variance of (15) at k = 0": ours("that of the first iteration", "(15) divides by zero"),
        "M-ADMM's growth of the penalty": ours(
            1.02, "eta(t) is not stated; varied in the experiment r-admm-figure-5"
        ),
        "M-ADMM's dual step": ours(
            "the penalty of the first iteration", "theta is not stated; varied there too"
        ),
        "R-ADMM's gamma": ours(0.25, "not stated; the bound on the loss's curvature"),
        "tolerance of a local solve": ours(
            2.5e-7, "a thousandth of what a row changes in an agent's gradient; counted as privacy"
        ),
        "judged": ours(
            "the last message of each agent, averaged over the agents",
            "Algorithm 1 outputs them; the paper's loss is written with x before noise, which is "
            "never sent",
        ),
    }

    @property
    def problem(self) -> NamedProblem:
        """The rows of five agents, and those to test by."""
        return NamedProblem(
            self["data"], self["agents"], self["rows of an agent"], self["testing rows"]
        )

    @property
    def penalties(self) -> tuple[float, ...]:
        """The paper's penalty, and one with which the algorithms learn."""
        return (self["penalty"], self["second penalty"])

    def entry(self, who: str) -> tuple[str, dict[str, Any]]:
        """The algorithm behind a name of the figures, and its options."""
        return {
            PERIODIC: (
                "pr-admm",
                {
                    "schedule": "periodic",
                    "period": self["K_p"],
                    "decay": self["R_P"],
                    "threshold": self["U, periodic"],
                },
            ),
            ITERATION: (
                "pr-admm",
                {
                    "schedule": "iteration",
                    "decay": self["R_T"],
                    "threshold": self["U, iteration"],
                },
            ),
            "DVP": ("dvp", {}),
            "M-ADMM": ("m-admm", {"penalty_growth": self["M-ADMM's growth of the penalty"]}),
            "R-ADMM": ("r-admm", {"gamma": self["R-ADMM's gamma"]}),
            NON_PRIVATE: ("admm", {}),
        }[who]

    def label(
        self,
        who: str,
        calibration: str,
        penalty: float,
        epsilon: float,
        *,
        graph: str | None = None,
        **changed: Any,
    ) -> str:
        """What a cell is called; what is as in the settings is left out."""
        options = self.entry(who)[1]
        words = [who]
        if who != NON_PRIVATE:
            # A key, from which the seed follows, as it always was: no statement.
            words += [calibration, f"epsilon {epsilon:g}"]
        words.append(f"penalty {penalty:g}")
        words += [
            f"{name} {'none' if value is None else f'{value:g}'}"
            for name, value in changed.items()
            if value != options[name]
        ]
        words += [graph] if graph not in (None, self["graph"]) else []
        return ", ".join(words)

    def cell(
        self,
        who: str,
        calibration: str,
        penalty: float,
        epsilon: float,
        *,
        graph: str | None = None,
        **changed: Any,
    ) -> tuple[str, Job]:
        """A cell with its label. Those that Fig. 4 shows carry the course of the loss.

        Parameters
        ----------
        who, calibration, penalty, epsilon
            A name of the figures, and how it runs.
        graph, changed
            Other than in the settings: the graph, options of the algorithm.
        """
        algorithm, options = self.entry(who)
        label = self.label(who, calibration, penalty, epsilon, graph=graph, **changed)
        shown = epsilon == self["epsilon of Figs. 2 to 4"] and {**options, **changed} == options
        parameters = TrainingParameters(
            algorithm=algorithm,
            topology=graph or self["graph"],
            rounds=self["iterations"],
            penalty=penalty,
            regularization=self["regularization"],
            party_weight="equal",
            tolerance=self["tolerance of a local solve"],
            epsilon=epsilon,
            delta=self["delta"],
            calibration=calibration,
            algorithm_options={**options, **changed},
        )
        return label, TrainingJob(
            self.problem,
            parameters,
            runs=1 if who == NON_PRIVATE else self["runs"],
            seed=seed_of(label),
            courses=(_LOSS,) if shown else (),
            finals=(*MEASURES.values(), _NORM),
        )

    def non_private(self, penalty: float, *, graph: str | None = None) -> tuple[str, Job]:
        """The cell without noise."""
        shown = self["epsilon of Figs. 2 to 4"]
        return self.cell(NON_PRIVATE, "proven", penalty, shown, graph=graph)

    def heading(self, calibration: str, penalty: float) -> str:
        """How a finding calls its setting: the paper's penalty goes without saying."""
        return calibration if penalty == self["penalty"] else f"{calibration}, penalty {penalty:g}"

    def majority_remark(self, results: Mapping[str, Result]) -> str:
        """That the stated penalty does not learn, with its numbers."""
        stated, second = self.penalties
        found = {}
        for penalty in self.penalties:
            result = results[self.non_private(penalty)[0]]
            found[penalty] = percent(result.final(MEASURES["testing"]))
        facts = results[self.non_private(stated)[0]].facts["data"]
        return (
            f"**The stated penalty.** With eta = {stated:g} the non-private algorithm gets "
            f"{found[stated]} of the testing rows right after {self['iterations']} iterations; "
            f"always predicting the larger class gets {100 * facts['majority_of_test_rows']:.1f}%. "
            f"With eta = {second:g} it gets {found[second]}. A step of ADMM is about "
            "1/(2 eta V_i) long: 0.5 is too slow for a loss that is averaged over rows. Panels and "
            f"findings with penalty {second:g} are ours."
        )

    def guarantees(
        self, results: Mapping[str, Result], who: Iterable[str], epsilons: Iterable[float]
    ) -> Table:
        """What each run guarantees: claimed, provable as published, and proven."""
        rows = []
        for name in who:
            for epsilon in epsilons:
                spent = [
                    results[self.label(name, calibration, penalty, epsilon)].facts["privacy"]
                    for calibration in CALIBRATIONS
                    for penalty in self.penalties
                ]
                rows.append((name, epsilon, *map(bound_of, spent)))
        columns = [
            f"{'provable, as published' if calibration == 'published' else 'proven'}, "
            f"penalty {penalty:g}"
            for calibration in CALIBRATIONS
            for penalty in self.penalties
        ]
        return Table.of(("algorithm", "claimed epsilon", *columns), rows)


def percent(values: Array) -> str:
    """A mean of shares, with its interval where there are several runs."""
    if np.size(values) < 2:
        return f"{100 * float(np.mean(values)):.1f}%"
    found = mean_interval(values)
    return f"{100 * found.mean:.1f}% [{100 * found.low:.1f}, {100 * found.high:.1f}]"
