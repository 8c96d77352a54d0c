"""What the figures of PR-ADMM's section V have in common: settings, regimes, cells, tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final, NamedTuple, TypedDict

import numpy as np

from dpadmm.experiments.jobs import Job, Result, TrainingJob, seed_of
from dpadmm.experiments.meaning import bound_of
from dpadmm.experiments.measures import mean_interval
from dpadmm.experiments.problems import NamedProblem
from dpadmm.plain import Array
from dpadmm.report.document import Table
from dpadmm.run.options import TrainingParameters
from dpadmm_papers.experiment import Experiment, Setting, ours, paper
from dpadmm_papers.iterates import PRIMAL, PrimalJob
from dpadmm_papers.pr_admm.theory import zcdp_epsilon, zcdp_rho

CALIBRATIONS: Final = ("published", "proven")
PERIODIC: Final = "PR-ADMM (Per)"
ITERATION: Final = "PR-ADMM (Iter)"
PROPOSED: Final = (PERIODIC, ITERATION)
RIVALS: Final = ("DVP", "M-ADMM", "R-ADMM")
EVERYONE: Final = (*PROPOSED, *RIVALS)
NON_PRIVATE: Final = "Non-private"
#: What a table has where a budget is below what the published formula of a rival can give.
REFUSED: Final = "refused: epsilon too small"
#: The paper's words and what is measured: each agent with its own model, the mean over agents.
MEASURES: Final = {
    "testing": "average test accuracy",
    "training": "average training accuracy",
}
LOSS: Final = "average loss"
#: What every conclusion is varied over: how (1) is read, and which model is judged.
READING: Final = "reading of the loss"
JUDGED: Final = "model judged"
CHOICES: Final = (READING, JUDGED)
_NORM: Final = "average norm"
_SETUP: Final = "section V, setup"


class Regime(NamedTuple):
    """A penalty, and what the loss is multiplied by.

    A loss times C is run as it is with the penalty and R-ADMM's gamma divided by C.
    """

    penalty: float
    scale: float = 1.0

    @property
    def words(self) -> str:
        """How cells, panels and tables call it."""
        if self.scale == 1:
            return f"penalty {self.penalty:g}"
        return f"loss times {self.scale:g}, penalty {self.penalty:g}"


class Choice(TypedDict, total=False):
    """Which choice of ours a finding varies, and how."""

    choice: str
    variant: str


class Way(NamedTuple):
    """A way to judge: the regime, whether by x before noise, and which choice of ours it varies."""

    regime: Regime
    primal: bool = True
    words: Choice = {}  # noqa: RUF012

    @property
    def title(self) -> str:
        """How panels and tables call it."""
        return self.regime.words if self.primal else f"{self.regime.words}, messages"


class Section5(Experiment):
    """An experiment of section V."""

    citation: ClassVar[str] = "Ding, Zhang, Chen, Xue, Zhang and Pan, IEEE Big Data 2019 (PR-ADMM)"
    common: ClassVar[Mapping[str, Setting]] = {
        "data": paper("adult", "section V: UCI Adult without rows with missing values, norm <= 1"),
        "encoding": ours(
            "one-hot by a public schema, numeric columns in [0, 1], and a constant column",
            "the paper says which columns there are, not how they become numbers",
        ),
        "loss": paper("logistic", "section V"),
        "agents": paper(5, _SETUP),
        "rows of an agent": paper(8000, _SETUP),
        "testing rows": paper(1000, _SETUP),
        "iterations": paper(50, _SETUP),
        "runs": paper(10, "section V, evaluation"),
        "delta": paper(1e-4, _SETUP),
        "penalty": paper(0.5, _SETUP),
        "scale of the loss": ours(
            1750.0,
            "C of the papers that PR-ADMM is compared with (DVP, R-ADMM), which use the penalty "
            "0.5 too. The paper's (1) has none, but with it nobody leaves the majority class in 50 "
            "iterations, not even without noise: the figures cannot come from it (`pr-admm-lemma-5`"
            ")",
        ),
        "second penalty": ours(
            0.02, "the other way to learn: the loss averaged as in (1), and a smaller penalty"
        ),
        "epsilon of Figs. 2 to 4": paper(10.0, "section V and the caption of Fig. 4"),
        "K_p": paper(1, "the best of Fig. 2(a)"),
        "R_P": paper(0.925, "the best of Fig. 2(c)"),
        "U, periodic": paper(0.1, "the best of Fig. 2(b)"),
        "R_T": paper(0.015, "the best of Fig. 3(b)"),
        "U, iteration": paper(1.0, "the best of Fig. 3(a)"),
        "graph": ours("ring", "Fig. 1 draws five agents; its links are not in the text"),
        "regularization": ours(1e-4, "2 Lambda; Lambda is not stated"),
        "weight of a row": paper("1 / |D_i|, each agent alike", "(1)"),
        "rivals' noise": ours("exp-norm", "as in their papers"),
        "first variables": ours(0.0, "Algorithm 1 leaves them open; Lemma 4 has random ones"),
        "variance of (15) at k = 0": ours("that of the first iteration", "(15) divides by zero"),
        "M-ADMM's growth of the penalty": ours(1.02, "eta(t) is not stated; varied in Fig. 4"),
        "M-ADMM's dual step": ours(
            1.0, "theta over the first penalty; not stated, and varied in Fig. 4"
        ),
        "R-ADMM's gamma": ours(0.25, "not stated; the bound on the loss's curvature"),
        "R-ADMM's gamma, loss scaled": ours(0.5, "that of R-ADMM's own paper, where C is 1750"),
        "tolerance of a local solve": ours(
            2.5e-7, "a thousandth of what a row changes in an agent's gradient; counted as privacy"
        ),
        "judged": ours(
            "x of each agent before noise, averaged over the agents",
            "L_k of section V is written with it. Algorithm 1 outputs the messages, which are "
            "shown beside it as a variant: x is never sent, and no epsilon is about it",
        ),
    }

    @property
    def problem(self) -> NamedProblem:
        """The rows of five agents, and those to test by."""
        return NamedProblem(
            self["data"], self["agents"], self["rows of an agent"], self["testing rows"]
        )

    @property
    def stated(self) -> Regime:
        """The penalty of the paper, the loss as (1) has it."""
        return Regime(self["penalty"])

    @property
    def regimes(self) -> tuple[Regime, ...]:
        """Those in which the non-private algorithm learns: the loss scaled; a smaller penalty."""
        scaled = Regime(self["penalty"], self["scale of the loss"])
        return (scaled, Regime(self["second penalty"]))

    @property
    def ways(self) -> tuple[Way, ...]:
        """How conclusions are judged: our settings first, then each choice made otherwise."""
        scaled, averaged = self.regimes
        return (
            Way(scaled),
            Way(averaged, words=self.choice_of(averaged)),
            Way(scaled, False, {"choice": JUDGED, "variant": "the message"}),
        )

    @staticmethod
    def final(result: Result, measure: str, *, primal: bool = True) -> Array:
        """One number a run; rivals send the very x that they computed."""
        found = result.values.get(f"{PRIMAL}/last/{measure}") if primal else None
        return result.final(measure) if found is None else found

    @staticmethod
    def course(result: Result, *, primal: bool = True) -> Array:
        """The average loss after every iteration."""
        found = result.values.get(f"{PRIMAL}/{LOSS}") if primal else None
        return result.course(LOSS) if found is None else found

    def entry(self, who: str, regime: Regime) -> tuple[str, dict[str, Any]]:
        """The algorithm behind a name of the figures, and its options."""
        noise = {"noise": self["rivals' noise"]}
        gamma = "R-ADMM's gamma" if regime.scale == 1 else "R-ADMM's gamma, loss scaled"
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
            "DVP": ("dvp", noise),
            "M-ADMM": (
                "m-admm",
                {
                    **noise,
                    "penalty_growth": self["M-ADMM's growth of the penalty"],
                    "dual_step": self["M-ADMM's dual step"] * regime.penalty / regime.scale,
                },
            ),
            "R-ADMM": ("r-admm", {**noise, "gamma": self[gamma] / regime.scale}),
            NON_PRIVATE: ("admm", {}),
        }[who]

    def label(
        self,
        who: str,
        calibration: str,
        regime: Regime,
        epsilon: float,
        *,
        graph: str | None = None,
        **changed: Any,
    ) -> str:
        """What :meth:`cell` calls a cell; what is as in the settings is left out."""
        options = self.entry(who, regime)[1]
        words = [who]
        if who != NON_PRIVATE:
            # A key, from which the seed follows, as it always was: no statement.
            words += [calibration, f"epsilon {epsilon:g}"]
        words.append(regime.words)
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
        regime: Regime,
        epsilon: float,
        *,
        graph: str | None = None,
        **changed: Any,
    ) -> tuple[str, Job]:
        """A cell with its label. Those that Fig. 4 shows carry the course of the loss.

        Parameters
        ----------
        who, calibration, regime, epsilon
            A name of the figures, and how it runs.
        graph, changed
            Other than in the settings: the graph, options of the algorithm.
        """
        algorithm, options = self.entry(who, regime)
        label = self.label(who, calibration, regime, epsilon, graph=graph, **changed)
        shown = epsilon == self["epsilon of Figs. 2 to 4"]
        shown &= who == "M-ADMM" or {**options, **changed} == options
        told = epsilon
        if calibration == "published" and who in PROPOSED:
            # Lemma 5 with eta and V = 1, whatever the loss is multiplied by: with the penalty
            # eta / C its noise belongs to a rho C^2 times as large.
            rho = zcdp_rho(epsilon, self["delta"]) * regime.scale**2
            told = epsilon if regime.scale == 1 else zcdp_epsilon(rho, self["delta"])
        parameters = TrainingParameters(
            algorithm=algorithm,
            topology=graph or self["graph"],
            rounds=self["iterations"],
            penalty=regime.penalty / regime.scale,
            regularization=self["regularization"],
            party_weight="equal",
            loss=self["loss"],
            tolerance=self["tolerance of a local solve"],
            epsilon=told,
            delta=self["delta"],
            calibration=calibration,
            rows_per_person=1,
            algorithm_options={**options, **changed},
        )
        training = TrainingJob(
            self.problem,
            parameters,
            runs=1 if who == NON_PRIVATE else self["runs"],
            seed=seed_of(label),
            courses=(LOSS,) if shown else (),
            finals=(*MEASURES.values(), _NORM),
            may_refuse=regime.scale != 1 and who in RIVALS,
        )
        return label, PrimalJob(training) if who in PROPOSED else training

    def training(self, *told: Any, **also: Any) -> TrainingJob:
        """What a cell trains; the arguments are those of :meth:`cell`."""
        job = self.cell(*told, **also)[1]
        training = job.training if isinstance(job, PrimalJob) else job
        assert isinstance(training, TrainingJob)
        return training

    def non_private(self, regime: Regime, *, graph: str | None = None) -> tuple[str, Job]:
        """The cell without noise."""
        shown = self["epsilon of Figs. 2 to 4"]
        return self.cell(NON_PRIVATE, "proven", regime, shown, graph=graph)

    def choice_of(self, regime: Regime) -> Choice:
        """Which choice of ours a finding varies; none where the loss is scaled."""
        if regime.scale != 1:
            return {}
        averaged = f"averaged, penalty {regime.penalty:g}"
        stated = f"as (1) states it, penalty {regime.penalty:g}"
        return {"choice": READING, "variant": stated if regime == self.stated else averaged}

    def best(self, results: Mapping[str, Result], regime: Regime, word: str = "testing") -> float:
        """The accuracy without noise."""
        return float(results[self.non_private(regime)[0]].final(MEASURES[word]).mean())

    def reading_remark(self, results: Mapping[str, Result]) -> str:
        """Which reading of (1) is judged, and why, with its numbers."""
        scaled, averaged = self.regimes
        facts = results[self.non_private(scaled)[0]].facts["data"]
        learnt = "; ".join(
            f"with {each.words} {100 * self.best(results, each):.1f}%" for each in self.regimes
        )
        return (
            "**The reading that is judged.** Without noise the algorithm gets of the testing rows "
            f"right: {learnt}; always predicting the larger class gets "
            f"{100 * facts['majority_of_test_rows']:.1f}%, and with (1) as it is printed, the loss "
            f"averaged over rows and eta = {self['penalty']:g}, it gets no more (`pr-admm-lemma-5`)"
            ": the paper's figures cannot come from that, and a verdict on it would say nothing "
            f"about the paper. Judged is the loss times {scaled.scale:g}, as in the papers of its "
            f"rivals; averaged with the penalty {averaged.penalty:g} is a variant."
        )

    def guarantees(
        self, results: Mapping[str, Result], who: Iterable[str], epsilons: Iterable[float]
    ) -> Table:
        """What each run guarantees: claimed, provable as published, and proven."""
        rows = []
        for name in who:
            for epsilon in epsilons:
                labels = [
                    self.label(name, calibration, regime, epsilon)
                    for calibration in CALIBRATIONS
                    for regime in self.regimes
                ]
                rows.append((name, epsilon, *(_spent(results.get(label)) for label in labels)))
        columns = [
            f"{'provable, as published' if calibration == 'published' else 'proven'}, "
            f"{regime.words}"
            for calibration in CALIBRATIONS
            for regime in self.regimes
        ]
        return Table.of(("algorithm", "claimed epsilon", *columns), rows)


def _spent(result: Result | None) -> Any:
    """What a run guarantees, that it was refused, or nothing where there is none."""
    if result is None:
        return ""
    return REFUSED if "refused" in result.facts else bound_of(result.facts["privacy"])


def percent(values: Array) -> str:
    """A mean of shares, with its interval where there are several runs."""
    if np.size(values) < 2:
        return f"{100 * float(np.mean(values)):.1f}%"
    found = mean_interval(values)
    return f"{100 * found.mean:.1f}% [{100 * found.low:.1f}, {100 * found.high:.1f}]"
