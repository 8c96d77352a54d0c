"""What the demo trains: each party alone, all together with own and with shared noise, pooled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from dpadmm.cli.demo_data import DemoData
from dpadmm.experiments.baselines import alone_cells, pooled_cell, private_alone_cells
from dpadmm.experiments.job import Job, TrainingJob
from dpadmm.experiments.measures import get_measure
from dpadmm.experiments.statistics import LEVEL, Interval, mean_interval
from dpadmm.plain import Array
from dpadmm.privacy.noise import SimulatedNoise
from dpadmm.run.choice import settled
from dpadmm.run.classifier import Classifier
from dpadmm.run.parameters import TrainingParameters
from dpadmm.run.plan import Plan, plan
from dpadmm.run.train import lay_out, state_privacy, train

if TYPE_CHECKING:
    from dpadmm.privacy.statement import PrivacyStatement

EPSILON: Final = 1.0
SMALL_EPSILON: Final = 0.1
DELTA: Final = 1e-5
RUNS: Final = 10
#: As many parties share the same rows where the demo shows when it does not pay.
FEW: Final = 3
_MEASURE: Final = "test accuracy"
_PLAIN: Final = TrainingParameters("admm", delta=DELTA)

Found = TypeVar("Found")
#: Told what was done and how much there is to do.
OnDone = Callable[[int, int], None]


@dataclass(frozen=True)
class Line:
    """Who trained on how many rows, and the share of held-out rows that was right, by run."""

    who: str
    rows: int
    accuracy: Array = field(repr=False)
    epsilon: float | None = None

    @property
    def interval(self) -> Interval:
        """The mean over runs, and where it lies."""
        return mean_interval(self.accuracy, LEVEL)

    @property
    def mean(self) -> float:
        """Over runs."""
        return float(np.mean(self.accuracy))

    @property
    def spread(self) -> float | None:
        """The standard deviation of one run; None of a single one."""
        return float(np.std(self.accuracy, ddof=1)) if len(self.accuracy) > 1 else None

    def plain(self) -> dict[str, Any]:
        """For machines."""
        return {
            "who": self.who,
            "rows": self.rows,
            "accuracy": self.mean,
            "spread": self.spread,
            "runs": len(self.accuracy),
            "epsilon": self.epsilon,
        }


@dataclass(frozen=True, eq=False)
class ShownRun:
    """A run that is told of in full, the first of the repeated ones."""

    parameters: TrainingParameters
    planned: Plan
    classifier: Classifier


@dataclass(frozen=True, eq=False)
class Together:
    """All parties at one budget: accuracy of each run, the course of all, and the first run."""

    accuracy: Array
    course: Mapping[str, list[float]]
    shown: ShownRun


@dataclass(frozen=True, eq=False)
class Findings:
    """Everything the demo measured.

    Attributes
    ----------
    alone
        Accuracy of each party by itself, without privacy.
    private_alone
        The same within the budget, by party and run.
    own, shared
        Together within the budget.
    pooled
        All rows in one place, without privacy.
    small_budget, few, few_alone
        When it may not pay: shared noise at a tenth of the budget; the same rows at a few parties,
        together and each by itself.
    """

    parties: int
    rows: int
    alone: Array
    private_alone: Array
    own: Together
    shared: Together
    pooled: float
    small_budget: Array
    few: Array
    few_alone: Array

    @property
    def privacy(self) -> PrivacyStatement:
        """The statement of the run with shared noise."""
        return self.shared.shown.classifier.privacy

    @property
    def history(self) -> Mapping[str, Mapping[str, list[float]]]:
        """Accuracy and disagreement over the rounds, the mean over runs."""
        return {"own noise": self.own.course, "shared noise": self.shared.course}

    def lines(self) -> tuple[Line, ...]:
        """The table."""
        each, total = self.rows, self.parties * self.rows
        best = self.private_alone.mean(axis=1).argmax()
        small = SMALL_EPSILON
        return (
            Line("a party alone, no privacy: mean", each, self.alone.mean()[None]),
            Line("a party alone, no privacy: best", each, self.alone.max()[None]),
            Line("a party alone, private: mean", each, self.private_alone.mean(axis=0), EPSILON),
            Line("a party alone, private: best", each, self.private_alone[best], EPSILON),
            Line("together, own noise", total, self.own.accuracy, EPSILON),
            Line("together, shared noise", total, self.shared.accuracy, EPSILON),
            Line("pooled, no privacy", total, np.array([self.pooled])),
            Line("together, shared noise, small budget", total, self.small_budget, small),
            Line(f"the same rows at {FEW} parties: best alone", total // FEW, self.best_of_few),
            Line(f"the same rows at {FEW} parties: shared noise", total, self.few, EPSILON),
        )

    @property
    def best_of_few(self) -> Array:
        """The best of a few parties alone, without privacy."""
        return self.few_alone.max()[None]


def find(data: DemoData, rounds: int | str, seed: int, on_done: OnDone) -> Findings:
    """Train everything, some runs each."""
    steps = _Steps(6, on_done)
    alone = steps.done(alone_accuracy(data))
    cells = private_alone_cells(
        data,
        private_parameters("own", rounds),
        epsilon=EPSILON,
        runs=RUNS,
        seed=seed,
        finals=(_MEASURE,),
    )
    private_alone = steps.done(np.array([_scores(cell, "tail") for cell in cells]))
    own = steps.done(together(data, private_parameters("own", rounds), seed))
    shared = steps.done(together(data, private_parameters("shared", rounds), seed))
    small = TrainingJob(data, private_parameters("shared", rounds, SMALL_EPSILON), RUNS, seed)
    small_budget = steps.done(_scores(small, "tail"))
    few = data.among(FEW, seed)
    of_few = TrainingJob(few, private_parameters("shared", rounds), RUNS, seed)
    return Findings(
        parties=len(data.problem.counts),
        rows=data.problem.counts[0],
        alone=alone,
        private_alone=private_alone,
        own=own,
        shared=shared,
        pooled=pooled_accuracy(data),
        small_budget=small_budget,
        few=steps.done(_scores(of_few, "tail")),
        few_alone=alone_accuracy(few),
    )


class _Steps:
    """Counts what was done."""

    def __init__(self, whole: int, on_done: OnDone) -> None:
        self._whole, self._on_done, self._count = whole, on_done, 0

    def done(self, found: Found) -> Found:
        """Tell of one more step, and pass on what it found."""
        self._count += 1
        self._on_done(self._count, self._whole)
        return found


def private_parameters(
    noise: str, rounds: int | str, epsilon: float = EPSILON
) -> TrainingParameters:
    """Gradient rounds around a server, with own or shared noise."""
    return TrainingParameters(
        algorithm="dp-gd",
        topology="server",
        rounds=rounds,
        epsilon=epsilon,
        delta=DELTA,
        algorithm_options={"noise": noise},
    )


def _scores(job: Job, output: str = "last") -> Array:
    return job.compute().final(_MEASURE, output)


def alone_accuracy(data: DemoData) -> Array:
    """Each party by itself, without privacy."""
    cells = alone_cells(data, _PLAIN, len(data.problem.counts), (_MEASURE,))
    return np.array([_scores(cell)[0] for cell in cells])


def pooled_accuracy(data: DemoData) -> float:
    """All rows in one place, without privacy."""
    parties = len(data.problem.counts)
    return float(_scores(pooled_cell(data, _PLAIN, parties, (_MEASURE,)))[0])


def together(data: DemoData, parameters: TrainingParameters, seed: int) -> Together:
    """All parties within a budget, some runs with noise of their own."""
    problem, noise = data.problem, SimulatedNoise(seed)
    accuracy: list[float] = []
    parameters = settled(parameters, len(problem.counts))
    planned = plan(
        parameters, problem.counts, features=problem.features, names=problem.names, runs=RUNS
    )
    measure = get_measure(_MEASURE)

    def look(done: int, models: Array) -> None:
        accuracy.append(float(measure(models, problem).mean()))

    outcome = train(
        planned, lay_out(planned, problem.members, noise=noise), noise=noise, on_round=look
    )
    statement = state_privacy(planned, outcome.events, noise)
    classifier = Classifier.of_run(
        planned, outcome, statement, classes=data.label[1], parties=problem.names
    )
    disagreement = outcome.history.disagreement.mean(axis=1).tolist()
    return Together(
        measure(outcome.tail, problem),
        {"accuracy": accuracy, "disagreement": disagreement},
        ShownRun(parameters, planned, classifier),
    )
