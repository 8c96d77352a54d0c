"""A comparison of algorithms on one problem: what is run, and the table that comes of it.

Everything is a simulation: noise is drawn from a seed, and figures are functions of the rows. On
rows that are private the comparison itself protects nobody, and what is chosen by it is not covered
by any budget; it says so wherever its figures stand.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, Final, NamedTuple

import numpy as np

from dpadmm.algorithms import get_algorithm
from dpadmm.errors import ParameterError, positive_integer, positive_number
from dpadmm.experiments.baselines import (
    ALONE,
    ALONE_ADVERSARY,
    BEST_ALONE,
    CENTRAL_ADVERSARY,
    CENTRAL_GRADIENT,
    CURATOR,
    POOLED,
    PRIVATE_ALONE,
    PRIVATE_BASELINES,
    alone_cells,
    gradient_cell,
    pooled_cell,
    private_alone_cells,
    private_cell,
)
from dpadmm.experiments.jobs import Job, Result, TrainingJob, seed_of
from dpadmm.experiments.meaning import epsilon_of, releases_of
from dpadmm.experiments.measures import LEVEL, Interval, mean_interval
from dpadmm.experiments.problems import NamedProblem, OnePartyProblem, ProblemSource
from dpadmm.privacy.figures import Given
from dpadmm.report.document import Table
from dpadmm.run.parameters import TrainingParameters

#: What is measured of every model.
MEASURED: Final = ("test accuracy", "log loss", "AUC", "consensus error")

#: By what the best party alone and the better curator are picked.
CHOOSES: Final = "test accuracy"

#: What one would pick instead, as it stands above the algorithms.
_CENTRAL: Final = (CENTRAL_GRADIENT, *PRIVATE_BASELINES)
BASELINES: Final = (POOLED, ALONE, BEST_ALONE, PRIVATE_ALONE, *_CENTRAL, CURATOR)

#: What a proven epsilon rests on, as columns; guarantees beside it are for the manifest.
_GROUNDS: Final = ("delta", "theorem", "releases", "adjacency", "adversary", "claim")

#: What is compared unless told: noise that is Gaussian where there is a choice, and said to be.
DEFAULT_ENTRIES: Final = (
    "admm",
    "dp-gd",
    "dp-gd:noise=shared",
    "pr-admm",
    "dvp:noise=gaussian",
    "m-admm:noise=gaussian",
    "r-admm:noise=gaussian",
    "pdml:label_epsilon=1",
    "ps-admm",
)
# With fewer parties there is nobody to share noise with.
_FEWEST_TO_SHARE: Final = 3


def default_entries(parties: int) -> tuple[str, ...]:
    """What is compared unless told, of what so many parties can run."""
    shares = parties >= _FEWEST_TO_SHARE
    return tuple(entry for entry in DEFAULT_ENTRIES if shares or "noise=shared" not in entry)


@dataclass(frozen=True)
class Contender:
    """An algorithm and its options."""

    algorithm: str
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def label(self) -> str:
        """As it is written on the command line."""
        words = ",".join(f"{name}={_word(value)}" for name, value in self.options)
        return f"{self.algorithm}:{words}" if words else self.algorithm


def _word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def parse_entry(text: str) -> Contender:
    """Read ``algorithm`` or ``algorithm:option=value,option=value``."""
    name, _, words = text.partition(":")
    get_algorithm(name)
    options = []
    for word in words.split(",") if words else ():
        option, sign, value = word.partition("=")
        if not (option and sign and value):
            raise ParameterError(
                f"algorithm must be a name, or a name with options such as "
                f"'dvp:noise=gaussian'; got {text!r}."
            )
        try:
            options.append((option, json.loads(value)))
        except ValueError:
            options.append((option, value))
    return Contender(name, tuple(options))


class Place(NamedTuple):
    """A row of the table: who, in which calibration, on which graph, within which budget."""

    who: str
    calibration: str = ""
    topology: str = ""
    epsilon: float = np.inf

    @property
    def order(self) -> tuple[float, bool]:
        """Without privacy first, then from large budgets to small ones; baselines on top."""
        return -self.epsilon, self.who not in BASELINES


# A cell with its place, the number of its split, and its label.
Placed = tuple[Place, int, str, Job]


@dataclass(frozen=True)
class Line:
    """One row of the table: each measure's mean with its interval, or why there is none.

    ``privacy`` is the statement of its runs, the weakest where there are several; None where all
    was refused. ``source`` names the line that it is taken from, where it is the better of several.
    """

    place: Place
    privacy: Mapping[str, Any] | None
    figures: Mapping[str, Interval]
    refused: str = ""
    source: str = ""

    @property
    def provable(self) -> float | str:
        """The proven epsilon: a number, "infinite", or "none" where nothing ran."""
        found: float | str = "none" if self.privacy is None else self.privacy["epsilon"]
        return found

    @property
    def grounds(self) -> dict[str, Any]:
        """What the proven epsilon rests on and against whom; None where there is none."""
        names = (*_GROUNDS, "details", "not_covered")
        if self.privacy is None:
            return dict.fromkeys(names)
        told = {**self.privacy, "releases": releases_of(self.privacy)}
        if not np.isfinite(epsilon_of(self.privacy)):
            told |= dict.fromkeys(("delta", "adjacency", "adversary", "not_covered"))
        return {name: told[name] for name in names}

    def plain(self) -> dict[str, Any]:
        """For machines; a side of an interval that is not known is None."""
        place = self.place._asdict()
        published = self.place.calibration == "published"
        claims = published and get_algorithm(self.place.who.partition(":")[0]).claims_epsilon
        if not np.isfinite(self.place.epsilon):
            place["epsilon"] = "infinite"
        return {
            **place,
            "claimed_epsilon": self.place.epsilon if claims else None,
            "provable_epsilon": self.provable,
            **self.grounds,
            "refused": self.refused or None,
            "source": self.source or None,
            "figures": {
                name: {
                    side: value if np.isfinite(value) else None
                    for side, value in interval._asdict().items()
                }
                for name, interval in self.figures.items()
            },
        }


@dataclass(frozen=True)
class Comparison:
    """What is compared on which problem.

    Attributes
    ----------
    problem
        The data; a named set may be split anew, ``splits`` times.
    parameters
        What all runs share; the algorithm in it does not count.
    entries, epsilons, topologies, calibrations
        All combinations are run. An algorithm with a server runs with it, once.
    runs
        Repeated runs of each, on each split.
    """

    problem: ProblemSource
    parameters: TrainingParameters
    entries: tuple[Contender, ...]
    epsilons: tuple[float, ...] = (0.1, 1.0, 10.0)
    topologies: tuple[str, ...] = ("ring",)
    calibrations: tuple[str, ...] = ("proven",)
    runs: int = 10
    splits: int = 1
    seed: int = 0
    measured: tuple[str, ...] = field(default=MEASURED)

    def __post_init__(self) -> None:
        positive_integer("runs", self.runs)
        positive_integer("splits", self.splits)
        for epsilon in self.epsilons:
            positive_number("epsilon", epsilon)
        if not isinstance(self.parameters.delta, float):
            raise ParameterError(
                "delta must be one number for all parties in a comparison; got one for each. Give "
                "--delta."
            )
        if self.splits > 1 and not isinstance(self.problem, NamedProblem):
            raise ParameterError(
                f"splits must be 1 for files, whose parties are given; got {self.splits}."
            )

    def check(self) -> None:
        """Refuse an entry that no budget here would allow, before anything is computed."""
        facts = self.problem.load()
        largest = replace(self, epsilons=(max(self.epsilons),))
        refused: dict[str, ParameterError] = {}
        fine = set()
        for place, _, _, cell in largest._trained(self.problem, 0):
            try:
                cell.plan(facts)
                fine.add(place.who)
            except ParameterError as error:
                refused.setdefault(place.who, error)
        for who, reason in refused.items():
            # One that runs in one calibration or graph alone is told of in the table.
            if who not in fine:
                raise ParameterError(f"{who}: {reason}") from None

    def cells(self) -> dict[str, Job]:
        """Everything to compute, by labels for people."""
        return {label: cell for _, _, label, cell in self._placed()}

    def losses(self) -> dict[str, list[str]]:
        """Which loss was minimised by whom: an automatic one is every algorithm's own."""
        found: dict[str, list[str]] = {}
        for place, _, _, cell in self._placed():
            if isinstance(cell, TrainingJob):
                who = f"{place.who} (published)" if place.calibration == "published" else place.who
                names = found.setdefault(cell.parameters.settled().loss, [])
                names += [who] * (who not in names)
        return found

    def lines(self, results: Mapping[str, Result]) -> list[Line]:
        """The table, from the results by the labels of :meth:`cells`."""
        rows: dict[Place, list[list[Result]]] = {}
        for place, split, label, _ in self._placed():
            rows.setdefault(place, [[] for _ in range(self.splits)])[split].append(results[label])
        lines = []
        for place, groups in rows.items():
            lines.append(_line(place, groups, self.measured))
            if place.who == ALONE and CHOOSES in self.measured:
                best = [[max(group, key=_accuracy)] for group in groups]
                lines.append(_line(Place(BEST_ALONE), best, self.measured))
            if place.who == _CENTRAL[-1]:
                lines += _curator(lines, place)
        return lines

    def _placed(self) -> list[Placed]:
        """Every cell with its place in the table: baselines, then algorithms, budget by budget."""
        placed: list[Placed] = []
        for split in range(self.splits):
            problem = self._split(split)
            placed += self._baselines(problem, split)
            placed += self._trained(problem, split)
        return sorted(placed, key=lambda item: item[0].order)

    def _split(self, split: int) -> ProblemSource:
        if self.splits == 1 or not isinstance(self.problem, NamedProblem):
            return self.problem
        return replace(self.problem, split_seed=self.problem.split_seed + split)

    def _label(self, place: Place, split: int, *words: str) -> str:
        parts = [word for word in (place.who, place.topology, place.calibration) if word]
        parts += [f"epsilon {Given(place.epsilon)}"] if np.isfinite(place.epsilon) else []
        return ", ".join([*parts, *words, *([f"split {split}"] if self.splits > 1 else [])])

    def _baselines(self, problem: ProblemSource, split: int) -> list[Placed]:
        facts, measured = problem.load(), self.measured
        parties = len(facts.counts)
        pooled, alone = Place(POOLED), Place(ALONE)
        cell = pooled_cell(problem, self.parameters, parties, measured)
        placed: list[Placed] = [(pooled, split, self._label(pooled, split), cell)]
        for name, cell in zip(
            facts.names, alone_cells(problem, self.parameters, parties, measured), strict=True
        ):
            placed.append((alone, split, self._label(alone, split, name), cell))
        for epsilon in self.epsilons:
            placed += self._alone_within(problem, split, epsilon)
            placed += self._gradients(problem, split, epsilon, parties)
            for who in PRIVATE_BASELINES:
                place = Place(who, "proven", "", epsilon)
                label = self._label(place, split)
                cell = private_cell(
                    problem,
                    facts,
                    self.parameters,
                    who,
                    epsilon=epsilon,
                    runs=self.runs,
                    seed=seed_of(f"{self.seed} {label}"),
                    finals=measured,
                )
                placed.append((place, split, label, cell))
        return placed

    def _alone_within(self, problem: ProblemSource, split: int, epsilon: float) -> list[Placed]:
        """Each party by itself within a budget."""
        place = Place(PRIVATE_ALONE, "proven", "", epsilon)
        cells = private_alone_cells(
            problem,
            self.parameters,
            epsilon=epsilon,
            runs=self.runs,
            seed=seed_of(f"{self.seed} {self._label(place, split)}"),
            finals=self.measured,
        )
        names = problem.load().names
        return [
            (place, split, self._label(place, split, name), cell)
            for name, cell in zip(names, cells, strict=True)
        ]

    def _gradients(
        self, problem: ProblemSource, split: int, epsilon: float, parties: int
    ) -> list[Placed]:
        """Private gradient rounds with all rows in one place."""
        place = Place(CENTRAL_GRADIENT, "proven", "", epsilon)
        label = self._label(place, split)
        cell = gradient_cell(
            OnePartyProblem(problem),
            self.parameters,
            parties,
            epsilon=epsilon,
            runs=self.runs,
            seed=seed_of(f"{self.seed} {label}"),
            finals=self.measured,
        )
        return [(place, split, label, cell)]

    def _trained(
        self, problem: ProblemSource, split: int
    ) -> list[tuple[Place, int, str, TrainingJob]]:
        """The cells of the algorithms; one without noise has no budget."""
        placed = []
        for entry in self.entries:
            kind = get_algorithm(entry.algorithm)
            central = kind.needs_server or kind.hears_everybody
            topologies = ("server",) if central else self.topologies
            calibrations = self.calibrations if kind.private else ("",)
            epsilons = self.epsilons if kind.private else (np.inf,)
            for choice in product(calibrations, topologies, epsilons):
                place = Place(entry.label, *choice)
                label = self._label(place, split)
                parameters = replace(
                    self.parameters,
                    algorithm=entry.algorithm,
                    algorithm_options=dict(entry.options),
                    topology=place.topology,
                    calibration=place.calibration or "proven",
                    epsilon=place.epsilon if kind.private else 1.0,
                )
                cell = TrainingJob(
                    problem,
                    parameters,
                    runs=self.runs if kind.private else 1,
                    seed=seed_of(f"{self.seed} {label}"),
                    finals=self.measured,
                    may_refuse=True,
                )
                placed.append((place, split, label, cell))
        return placed


def _accuracy(result: Result) -> float:
    return float(result.final(CHOOSES).mean())


def _curator(lines: Sequence[Line], place: Place) -> list[Line]:
    """The better of all central training at a budget; none where all was refused."""
    central = [
        line
        for line in lines
        if line.place in [place._replace(who=who) for who in _CENTRAL] and CHOOSES in line.figures
    ]
    if not central:
        return []
    best = max(central, key=lambda line: line.figures[CHOOSES].mean)
    return [replace(best, place=place._replace(who=CURATOR), source=best.place.who)]


def _line(place: Place, groups: Sequence[Sequence[Result]], measured: Sequence[str]) -> Line:
    everything = [result for group in groups for result in group]
    refused = next((r.facts["refused"] for r in everything if "refused" in r.facts), "")
    if refused:
        return Line(place, None, {}, refused)
    privacy = max((result.facts["privacy"] for result in everything), key=epsilon_of)
    if place.who in _CENTRAL:
        privacy = {**privacy, "adversary": CENTRAL_ADVERSARY}
    if place.who == PRIVATE_ALONE:
        privacy = {**privacy, "adversary": ALONE_ADVERSARY}
    # One solve, or rounds without noise, end at the last message; noisy rounds are averaged.
    noisy = np.isfinite(place.epsilon) and place.who not in PRIVATE_BASELINES
    figures = {}
    for name in measured:
        # Parties alone are averaged; so are the runs of a split where there are several splits.
        finals = [[each.final(name, "tail" if noisy else "last") for each in g] for g in groups]
        splits = [np.mean(group, axis=0) for group in finals]
        sample = splits[0] if len(splits) == 1 else np.array([values.mean() for values in splits])
        figures[name] = mean_interval(sample, LEVEL)
    return Line(place, privacy, figures)


def comparison_table(lines: Sequence[Line], measured: Sequence[str]) -> Table:
    """Every number, for a CSV file."""
    columns = ["who", "calibration", "topology", "epsilon", "provable epsilon"]
    columns += [*_GROUNDS, "refused", "source"]
    columns += [f"{name} {side}".strip() for name in measured for side in ("", "low", "high")]
    rows = []
    for line in lines:
        numbers = [side for name in measured for side in line.figures.get(name, (None,) * 3)]
        grounds = [line.grounds[name] for name in _GROUNDS]
        rows.append((*line.place, line.provable, *grounds, line.refused, line.source, *numbers))
    return Table.of(columns, rows)
