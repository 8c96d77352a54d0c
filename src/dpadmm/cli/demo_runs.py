"""What the demo trains, on which rows: parties alone, together with own or shared noise, pooled."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from dpadmm.cli.output import console
from dpadmm.data.schema import Label, NumericColumn, Schema
from dpadmm.errors import DataError
from dpadmm.experiments.comparison import alone_cells, pooled_cell, private_alone_cells
from dpadmm.experiments.jobs import Job, TrainingJob
from dpadmm.experiments.measures import LEVEL, Interval, get_measure, mean_interval
from dpadmm.experiments.problems import Problem, ProblemSource
from dpadmm.plain import Array
from dpadmm.privacy.noise import SimulatedNoise
from dpadmm.problem.rows import label_signs
from dpadmm.run.classifier import Classifier
from dpadmm.run.options import TrainingParameters
from dpadmm.run.plan import Plan, plan, settled
from dpadmm.run.session import lay_out, noise_error, state_privacy, train

if TYPE_CHECKING:
    import pyarrow as pa

    from dpadmm.privacy.statement import PrivacyStatement

PARTIES: Final = 20
ROWS: Final = 300
# Every other party has so many times the share of the second class that all rows have: nobody's
# rows look like everybody's, as with hospitals and practices.
_SKEW: Final = (1 / 5, 9 / 5)
_TEST_ROWS: Final = 10_000
# Twice what is dealt out and judged by, so that no class runs out.
_DRAWN_ROWS: Final = 2 * (PARTIES * ROWS + _TEST_ROWS)
# The waves are sums of a triangle of height 6 and noise of variance 1.
_WAVE_BOUNDS: Final = (-4.0, 10.0)
_ADULT_SECOND: Final = ">50K"

Codes = NDArray[np.int64]


class _Source(NamedTuple):
    """A whole public table, how it is encoded, and which rows have the second class."""

    title: str
    label: tuple[str, tuple[str, str]]
    schema: Schema
    table: pa.Table
    second: Codes


@final
@dataclass(frozen=True, eq=False)
class DemoData(ProblemSource):
    """Rows of the parties, and held-out rows.

    Attributes
    ----------
    title
        Where the rows come from.
    label
        What is predicted, and its two classes in words.
    schema, tables
        The public encoding, and each party's rows as a file of its own would have them.
    problem
        The same rows, encoded.
    """

    title: str
    label: tuple[str, tuple[str, str]]
    schema: Schema
    tables: tuple[pa.Table, ...] = field(repr=False)
    problem: Problem = field(repr=False)

    def load(self) -> Problem:
        """The rows, which are at hand."""
        return self.problem

    def first(self, parties: int) -> DemoData:
        """Return the data of the first parties alone."""
        kept = replace(
            self.problem,
            members=self.problem.members[:parties],
            names=self.problem.names[:parties],
        )
        return replace(self, tables=self.tables[:parties], problem=kept)

    def among(self, parties: int, seed: int) -> DemoData:
        """All parties' rows, mixed and dealt to a few; files are left out."""
        from dpadmm.experiments.problems import OnePartyProblem

        ((rows, signs),) = OnePartyProblem(self).load().members
        shares = np.array_split(np.random.default_rng(seed).permutation(len(signs)), parties)
        dealt = replace(
            self.problem,
            members=tuple((rows[share], signs[share]) for share in shares),
            names=tuple(f"party-{number}" for number in range(parties)),
        )
        return replace(self, tables=(), problem=dealt)


def load_data(seed: int) -> DemoData:
    """Adult where it is at hand, else waveform, dealt to parties of a few hundred rows each."""
    source = _adult() or _waveform(seed)
    judged, shares = _deal(source.second, seed)
    tables = tuple(source.table.take(share) for share in shares)
    test_rows, test_codes = _encoded(source.table.take(judged), source.schema)
    members = (_encoded(table, source.schema) for table in tables)
    problem = Problem(
        members=tuple((rows, label_signs(codes, 1)) for rows, codes in members),
        test_rows=test_rows,
        test_codes=test_codes,
        names=tuple(f"party-{number}" for number in range(PARTIES)),
        facts={"dataset": source.title},
    )
    return DemoData(source.title, source.label, source.schema, tables, problem)


def _encoded(table: pa.Table, schema: Schema) -> tuple[Any, Any]:
    from dpadmm.data.tables import encode

    found = encode(table, schema)
    return found.rows, found.labels


def _deal(second: Codes, seed: int) -> tuple[Codes, list[Codes]]:
    """Places of the rows to judge by, and of each party's; labels of the parties are skewed."""
    order = np.random.default_rng(seed).permutation(len(second))
    judged, rest = order[:_TEST_ROWS], order[_TEST_ROWS:]
    of_class = [list(rest[second[rest] == code]) for code in (0, 1)]
    share = float(second[rest].mean())
    dealt = []
    for party in range(PARTIES):
        many = round(ROWS * share * _SKEW[party % len(_SKEW)])
        places = [of_class[1].pop() for _ in range(many)]
        places += [of_class[0].pop() for _ in range(ROWS - many)]
        dealt.append(np.array(places, dtype=np.int64))
    return judged, dealt


def _adult() -> _Source | None:
    """UCI Adult by its public schema, numeric columns in [-1, 1]; None where it is not at hand."""
    import pyarrow.compute as pc

    from dpadmm.data.named import adult_schema, adult_table

    if not os.environ.get("DPADMM_DATA"):
        return None
    try:
        table = adult_table()
    except DataError as error:
        console.print(f"Adult is not at hand: {error}", highlight=False)
        return None
    if table is None:
        return None
    schema = Schema.from_dict(adult_schema().model_dump() | {"version": 2})
    for column in table.column_names:
        table = table.filter(pc.not_equal(table[column], "?"))
    second = np.asarray(pc.equal(table["income"], _ADULT_SECOND)).astype(np.int64)
    label = ("income", ("at most 50,000 dollars a year", "more"))
    return _Source("UCI Adult (the original files)", label, schema, table, second)


def _waveform(seed: int) -> _Source:
    """Breiman's waveform, drawn from the seed."""
    import pyarrow as pa

    from dpadmm.data.dataset import waveform

    rows, signs = waveform(_DRAWN_ROWS, seed)
    names = [f"x{number}" for number in range(rows.shape[1])]
    lower, upper = _WAVE_BOUNDS
    schema = Schema(
        version=2,
        label=Label(column="y", classes=("-1", "1")),
        columns=tuple(
            NumericColumn(name=name, lower=lower, upper=upper, missing=False) for name in names
        ),
        constant=True,
    )
    columns = dict(zip(names, rows.T, strict=True))
    table = pa.table(columns | {"y": signs.astype(np.int8)})
    second = (signs > 0).astype(np.int64)
    return _Source(
        "Breiman's waveform (generated)", ("waveform", ("-1", "+1")), schema, table, second
    )


EPSILON: Final = 1.0
SMALL_EPSILON: Final = 0.1
DELTA: Final = 1e-5
RUNS: Final = 10
#: As many parties share the same rows where the demo shows when it does not pay.
FEW: Final = 3
_MEASURE: Final = "test accuracy"
_PLAIN: Final = TrainingParameters("admm", delta=DELTA)

Found = TypeVar("Found")
#: Called with how much is done and how much there is to do.
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
class Together:
    """All parties at one budget: accuracy of each run, the course of all, and the first run.

    ``noise_error`` is what noise does to each of its weights.
    """

    accuracy: Array
    course: Mapping[str, list[float]]
    parameters: TrainingParameters
    planned: Plan
    classifier: Classifier
    noise_error: float | None


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
        return self.shared.classifier.privacy

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
    steps = count(1)

    def done(found: Found) -> Found:
        on_done(next(steps), 6)
        return found

    alone = done(alone_accuracy(data))
    cells = private_alone_cells(
        data,
        private_parameters("own", rounds),
        epsilon=EPSILON,
        runs=RUNS,
        seed=seed,
        finals=(_MEASURE,),
    )
    private_alone = done(np.array([_scores(cell, "tail") for cell in cells]))
    own = done(together(data, private_parameters("own", rounds), seed))
    shared = done(together(data, private_parameters("shared", rounds), seed))
    small = TrainingJob(data, private_parameters("shared", rounds, SMALL_EPSILON), RUNS, seed)
    small_budget = done(_scores(small, "tail"))
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
        few=done(_scores(of_few, "tail")),
        few_alone=alone_accuracy(few),
    )


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
    parameters = settled(parameters)
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
        parameters,
        planned,
        classifier,
        noise_error(planned, course=outcome.course),
    )
