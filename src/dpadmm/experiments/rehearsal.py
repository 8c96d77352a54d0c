r"""Rehearse a run on generated rows: how much accuracy the noise of a budget costs.

Only the relative size of the noise matters. Gaussian noise for n rows and a budget of
:math:`\mu`-GDP is proportional to :math:`1/(n\mu)`, so twice the rows, or a budget of
:math:`2\mu`, halve the noise. Two things follow:

* fewer rows can stand for a large federation at the same noise,
  :math:`\mu_i' = \mu_i\,n_i/n_i'`;
* one curve answers for rows and budgets alike: the loss as a function of the noise, relative to the
  noise of the run in question.

``dp-gd`` sees only the mean of all parties. One party that holds all rows rehearses it, with the
noise of this mean, sd(G), own or shared. All parties rehearse the other algorithms.

The loss is the accuracy of pooled training without privacy (logistic loss) minus the accuracy of
the run, both on held-out rows. Its unit is a point, one percent of the rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, NamedTuple, final

import numpy as np

from dpadmm.algorithms.base import Budget
from dpadmm.algorithms.dp_gd import DPGD
from dpadmm.experiments.comparison import pooled_cell
from dpadmm.experiments.jobs import Job, Result, TrainingJob, seed_of
from dpadmm.experiments.problems import OnePartyProblem, ProblemSource
from dpadmm.experiments.question import (
    DIFFICULTIES,
    Difficulty,
    GeneratedProblem,
    RunQuestion,
    budget_mu,
)
from dpadmm.plain import Array
from dpadmm.privacy.gaussian import gaussian_epsilon, gaussian_mu
from dpadmm.run.options import TrainingParameters
from dpadmm.run.plan import Plan, plan

#: The rehearsed noise, relative to the noise of the run in question.
FACTORS: Final = tuple(2.0**power for power in range(-5, 5))
#: A band reaches so many standard deviations of one run beyond the means.
BAND: Final = 1.5

_MEASURE: Final = "test accuracy"
# The budget of a rehearsal only sets the amount of noise. With so small a delta every amount of
# noise has an epsilon.
_DELTA: Final = 1e-12
# With fewer rows per feature pooled training would overfit more than on all rows.
_ROWS_PER_FEATURE: Final = 40


@final
@dataclass(frozen=True)
class Effort:
    """How much is rehearsed.

    Attributes
    ----------
    draws, runs
        How often rows are generated, and the runs on each draw.
    most_rows
        The most rows of all parties together; very many features may need more.
    judging
        Rows for testing.
    others
        Also rehearse candidates that the curves of the rule's choice do not answer for.
    """

    draws: int = 3
    runs: int = 4
    most_rows: int = 4000
    judging: int = 4000
    others: bool = True


#: A first look: it takes seconds, and its figures are off by a point or two.
QUICK: Final = Effort(draws=2, runs=2, most_rows=1000, judging=1000, others=False)


class ExpectedLoss(NamedTuple):
    """Lost points of accuracy: the mean, and the standard deviation of one run."""

    mean: float
    spread: float

    @classmethod
    def of_runs(cls, values: Array) -> ExpectedLoss:
        """Over all runs of all draws."""
        spread = float(values.std(ddof=1)) if values.size > 1 else 0.0
        return cls(float(values.mean()), spread)


def band(losses: Sequence[ExpectedLoss]) -> tuple[float, float]:
    """The band of the expected loss, from the easiest rows to the hardest."""
    return (
        min(loss.mean - BAND * loss.spread for loss in losses),
        max(loss.mean + BAND * loss.spread for loss in losses),
    )


@final
@dataclass(frozen=True)
class NoiseCurve:
    """The loss at one difficulty, as a function of the relative noise.

    Attributes
    ----------
    factors
        Relative noise, in increasing order.
    losses
        The loss at each.
    """

    factors: tuple[float, ...]
    losses: tuple[ExpectedLoss, ...]

    def at(self, factor: float) -> ExpectedLoss:
        """Interpolate on a logarithmic scale of noise; constant beyond the ends."""
        place, known = math.log(factor), np.log(self.factors)
        mean, spread = (
            float(np.interp(place, known, each)) for each in zip(*self.losses, strict=True)
        )
        return ExpectedLoss(mean, spread)

    def most_noise(self, wanted: float) -> float | None:
        """The most noise with a mean loss of at most ``wanted``; None if there is none."""
        means = np.maximum.accumulate([loss.mean for loss in self.losses])
        within = int(np.searchsorted(means, wanted, side="right"))
        if within == 0:
            return None
        if within == len(means):
            return self.factors[-1]
        low, high = np.log(self.factors[within - 1 : within + 1])
        share = (wanted - means[within - 1]) / (means[within] - means[within - 1])
        return math.exp(low + share * (high - low))


@final
@dataclass(frozen=True)
class Rehearsal:
    """The jobs of a rehearsal, and the losses that follow from their results.

    Attributes
    ----------
    question
        The question.
    fixed
        The run that the noise is relative to: with own noise.
    effort
        How much is rehearsed.
    """

    question: RunQuestion
    fixed: Plan
    effort: Effort = Effort()

    @property
    def in_one_hand(self) -> bool:
        """Whether only the mean of all parties matters."""
        return isinstance(self.fixed.algorithm, DPGD)

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Rows of each party in the rehearsal."""
        return self._thinned(self.question.counts)

    def _thinned(self, counts: Sequence[int]) -> tuple[int, ...]:
        most = max(self.effort.most_rows, _ROWS_PER_FEATURE * self.question.shape.features)
        share = min(1.0, most / sum(counts))
        return tuple(max(1, round(share * count)) for count in counts)

    def _rows(self, difficulty: Difficulty, counts: Sequence[int]) -> GeneratedProblem:
        shape = self.question.shape
        drawn = difficulty.among(shape.classes)
        return GeneratedProblem(shape, drawn, tuple(counts), self.effort.judging)

    def _job(self, problem: ProblemSource, told: TrainingParameters, label: str) -> TrainingJob:
        return TrainingJob(
            problem,
            told,
            self.effort.runs,
            seed_of(label),
            finals=(_MEASURE,),
            repeats=self.effort.draws,
            may_refuse=True,
        )

    def pooled(self, difficulty: Difficulty) -> Job:
        """All rows in one place, without privacy."""
        told = TrainingParameters(
            "admm", loss="logistic", regularization=self.fixed.site.regularization
        )
        rows = self._rows(difficulty, (sum(self.counts),))
        cell = pooled_cell(rows, told, self.fixed.site.parties, (_MEASURE,))
        assert isinstance(cell, TrainingJob)
        return replace(cell, repeats=self.effort.draws)

    def at_noise(self, difficulty: Difficulty, factor: float, rounds: int = 1) -> Job:
        """The run with ``factor`` times its noise, or ``rounds`` times its rounds."""
        label = f"{difficulty.name}, {factor!r} times the noise, {rounds} times the rounds"
        if not self.in_one_hand:
            told = replace(self.question.parameters, **_chosen(self.fixed))
            told = replace(told, rounds=rounds * self.fixed.rounds)
            return self._job(*self._together(difficulty, told, factor), label)
        options = {**self._hand.algorithm_options, **self._centred(factor, rounds)}
        told = replace(self._hand, rounds=rounds * self.fixed.rounds, algorithm_options=options)
        epsilon = _epsilon(self._hand_mu / factor)
        rows = self._rows(difficulty, (sum(self.counts),))
        return self._job(OnePartyProblem(rows), replace(told, epsilon=epsilon), label)

    @cached_property
    def _hand(self) -> TrainingParameters:
        """The run of one party that holds all rows, without its budget."""
        site, settings = self.fixed.site, self.fixed.settings
        kept = {"momentum", "step", "center"} & set(settings.options)
        return TrainingParameters(
            DPGD.name,
            topology="server",
            rounds=settings.rounds,
            regularization=site.regularization / site.parties,
            loss=site.loss.name,
            delta=_DELTA,
            algorithm_options={name: settings.options[name] for name in kept},
        )

    def _centred(self, factor: float, rounds: int) -> dict[str, Any]:
        """What all parties decide at that noise: the rule looks at the budget of each of them."""
        budget = self.fixed.budget
        assert budget is not None
        epsilon = np.array([_epsilon(float(mu)) for mu in budget_mu(budget) / factor])
        noisier = Budget(epsilon, np.full(len(epsilon), _DELTA))
        told = self.fixed.settings
        settings = replace(told, rounds=rounds * told.rounds, budget=noisier)
        return DPGD.configure(self.fixed.site, settings).decided_options

    @cached_property
    def _hand_mu(self) -> float:
        """The budget that gives one party the noise of the mean of all parties."""
        shape = self.question.shape
        options = {**self._hand.algorithm_options, **self.fixed.algorithm.decided_options}
        alone = plan(
            replace(self._hand, epsilon=1.0, algorithm_options=options),
            (sum(self.counts),),
            features=shape.features,
            outputs=shape.outputs,
            least_constant=self.fixed.site.least_constant,
        )
        return float(gaussian_mu(1.0, _DELTA)) * mean_noise(alone) / mean_noise(self.fixed)

    def together(
        self, difficulty: Difficulty, told: TrainingParameters, label: str, parties: int = 1
    ) -> Job:
        """Another run of all parties, or ``parties`` times as many, with their rows and budgets."""
        return self._job(*self._together(difficulty, told, 1.0, parties), label)

    def _together(
        self, difficulty: Difficulty, told: TrainingParameters, factor: float, parties: int = 1
    ) -> tuple[GeneratedProblem, TrainingParameters]:
        counts = self.question.counts * parties
        fewer = self._thinned(counts)
        budget = self.fixed.budget
        assert budget is not None
        mu = np.tile(budget_mu(budget), parties) * np.divide(counts, fewer) / factor
        # Further parties of the same kind have no names.
        names = self.fixed.site.names if parties == 1 else tuple(map(str, range(len(counts))))
        budgets = {name: _epsilon(float(each)) for name, each in zip(names, mu, strict=True)}
        told = replace(told, epsilon=budgets, delta=_DELTA, rows_per_person=1)
        return replace(self._rows(difficulty, fewer), names=names), told

    def losses(self, pooled: Result, result: Result) -> Array | None:
        """Points lost by every run of every draw; None if the run was refused."""
        if not result.values:
            return None
        best = pooled.final(_MEASURE)[:, None]
        reached = result.final(_MEASURE, "tail").reshape(len(best), -1)
        return np.asarray(100 * (best - reached)).ravel()

    def curve_jobs(self) -> dict[tuple[str, float], Job]:
        """The jobs of all curves, by difficulty and noise."""
        return {
            (difficulty.name, factor): self.at_noise(difficulty, factor)
            for difficulty in DIFFICULTIES
            for factor in FACTORS
        }


def mean_noise(fixed: Plan) -> float:
    """sd(G) of a dp-gd run."""
    algorithm = fixed.algorithm
    assert isinstance(algorithm, DPGD)
    return algorithm.mean_noise


def _chosen(fixed: Plan) -> dict[str, Any]:
    """The choices that the plan made."""
    return {
        "algorithm": fixed.algorithm.name,
        "loss": fixed.site.loss.name,
        "algorithm_options": fixed.settings.options,
    }


def _epsilon(mu: float) -> float:
    """The epsilon of a rehearsal with this mu."""
    return max(float(gaussian_epsilon(mu, _DELTA)), 1e-12)
