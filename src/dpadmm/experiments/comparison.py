r"""A comparison of algorithms on one problem: the runs that it needs, and its table.

Everything is a simulation: the noise comes from a seed, and the figures are functions of the rows.
A comparison on private rows protects nobody, and no budget covers a choice that it led to. Every
page with its figures says so.

**Baselines.** The alternatives to training together are pooled rows, each party alone, and central
private training. Each alternative is a run of one party that holds the rows, so it is planned,
drawn and accounted like any other run. Without noise it is one exact solve (``admm``). With noise
it is private gradient descent (``dp-gd``, *central gradient descent*, by the public rule of
:mod:`~dpadmm.algorithms.dp_gd`) or one perturbed objective (``dvp``, one round, no neighbours):

* *central AMP*: Gaussian noise in the objective (Theorem OP) and on the minimiser (approximate
  minima perturbation, Iyengar et al. 2019);
* *central objective perturbation*: noise of density :math:`\propto e^{-\|b\|/s}` (Chaudhuri,
  Monteleoni and Sarwate 2011, with the constants of lemma L3), and the same small noise on the
  minimiser, since no solver is exact.

A single noisy solve needs more regularisation the more noise it gets:

.. math:: \lambda = \max\Bigl(\lambda_0,\; \frac a8,\; \frac{c_1}{n\kappa}\Bigr),
          \qquad a = \frac{2 L \sqrt d}{n \mu},

where a is the norm of Gaussian noise in the gradient: the noise then moves the minimiser by at most
about 8. We chose 8 among 1, 2, 4, 8 and 16 on Adult (30,000 rows for training, 10,000 for testing).
The last term, for Gaussian noise, leaves most of the budget to the noise
(:func:`~dpadmm.algorithms.objective.gaussian_room`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, Final, NamedTuple

import numpy as np

from dpadmm.algorithms import get_algorithm
from dpadmm.algorithms.base import Budget
from dpadmm.algorithms.dp_gd import DPGD
from dpadmm.algorithms.objective import gaussian_room
from dpadmm.errors import ParameterError, positive_integer, positive_number
from dpadmm.experiments.jobs import Job, Result, TrainingJob, seed_of
from dpadmm.experiments.meaning import epsilon_of, releases_of
from dpadmm.experiments.measures import LEVEL, Interval, mean_interval
from dpadmm.experiments.problems import NamedProblem, OnePartyProblem, Problem, ProblemSource
from dpadmm.privacy.figures import Given
from dpadmm.privacy.gaussian import gaussian_mu
from dpadmm.problem.losses import get_loss
from dpadmm.report.document import Table
from dpadmm.run.options import TrainingParameters, chosen_loss

POOLED: Final = "pooled, no privacy"
ALONE: Final = "each party alone, no privacy"
#: The most accurate party of :data:`ALONE`.
BEST_ALONE: Final = "best party alone, no privacy"
#: Each party alone, within the budget (dp-gd).
PRIVATE_ALONE: Final = "each party alone, private"
#: The most accurate central private training.
CURATOR: Final = "curator, same budget"
#: Central private training by gradient descent.
CENTRAL_GRADIENT: Final = "central gradient descent"
#: Central private training by one perturbed objective: its label and its noise.
PRIVATE_BASELINES: Final = {
    "central AMP": "gaussian",
    "central objective perturbation": "exp-norm",
}
#: The adversary of central training: weaker than ADMM's, where no party holds another's rows.
CENTRAL_ADVERSARY: Final = (
    "sees what one place that holds all parties' rows releases; that place is trusted with them"
)
#: The adversary of a party that trains alone.
ALONE_ADVERSARY: Final = "sees what the party releases; the party is trusted with its own rows"
_MOVE: Final = 8.0
# One party, one round.
_ONE_SOLVE: Final[dict[str, Any]] = {
    "topology": "path",
    "rounds": 1,
    "penalty": 1.0,
    "algorithm_options": {},
    "calibration": "proven",
    "epsilon": 1.0,
}

#: The measures of every model.
MEASURED: Final = ("test accuracy", "log loss", "AUC", "consensus error")

#: The measure that decides which party alone, and which curator, is best.
CHOOSES: Final = "test accuracy"

#: The alternatives to training together; the table shows them above the algorithms.
_CENTRAL: Final = (CENTRAL_GRADIENT, *PRIVATE_BASELINES)
BASELINES: Final = (POOLED, ALONE, BEST_ALONE, PRIVATE_ALONE, *_CENTRAL, CURATOR)

#: The columns that a proven epsilon rests on; the manifest has the further guarantees.
_GROUNDS: Final = ("delta", "theorem", "releases", "adjacency", "adversary", "claim")

#: The default entries: with Gaussian noise where there is a choice, and named so.
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
# Fewer parties cannot share noise.
_FEWEST_TO_SHARE: Final = 3


def pooled_cell(
    problem: ProblemSource, parameters: TrainingParameters, parties: int, finals: tuple[str, ...]
) -> Job:
    """Train on all rows in one place, without noise."""
    return _exact(OnePartyProblem(problem), parameters, parties, finals)


def alone_cells(
    problem: ProblemSource, parameters: TrainingParameters, parties: int, finals: tuple[str, ...]
) -> list[Job]:
    """Train on each party's rows alone, without noise."""
    return [
        _exact(OnePartyProblem(problem, party), parameters, 1, finals) for party in range(parties)
    ]


def _exact(
    problem: OnePartyProblem,
    parameters: TrainingParameters,
    parties: int,
    finals: tuple[str, ...],
) -> Job:
    # The objective counts the regulariser once and the losses once per party.
    regularization = parameters.regularization / parties
    told = replace(parameters, algorithm="admm", regularization=regularization, **_ONE_SOLVE)
    return TrainingJob(problem, told, runs=1, finals=finals)


def private_alone_cells(
    problem: ProblemSource,
    parameters: TrainingParameters,
    *,
    epsilon: float,
    runs: int,
    seed: int,
    finals: tuple[str, ...],
) -> list[Job]:
    """Train on each party's rows alone, within the budget."""
    return [
        gradient_cell(
            OnePartyProblem(problem, party),
            parameters,
            1,
            epsilon=epsilon,
            runs=runs,
            seed=seed + party,
            finals=finals,
        )
        for party in range(len(problem.load().counts))
    ]


def gradient_cell(
    problem: OnePartyProblem,
    parameters: TrainingParameters,
    parties: int,
    *,
    epsilon: float,
    runs: int,
    seed: int,
    finals: tuple[str, ...],
) -> Job:
    """Train by private gradient descent in one place, on the rows of so many parties."""
    told = replace(
        parameters,
        algorithm=DPGD.name,
        topology="server",
        penalty="auto",
        regularization=parameters.regularization / parties,
        algorithm_options={},
        calibration="proven",
        epsilon=epsilon,
    )
    return TrainingJob(problem, told, runs=runs, seed=seed, finals=finals, may_refuse=True)


def private_cell(
    problem: ProblemSource,
    facts: Problem,
    parameters: TrainingParameters,
    label: str,
    *,
    epsilon: float,
    runs: int,
    seed: int,
    finals: tuple[str, ...],
) -> Job:
    """Train privately on all rows in one place, at the same total budget."""
    delta = parameters.delta
    assert isinstance(delta, float)
    loss = get_loss(chosen_loss(parameters.loss, "dvp", {}))
    people = parameters.rows_per_person
    mu = float(gaussian_mu(epsilon, delta)) / people
    noise = 2 * loss.slope_bound * math.sqrt(facts.features * facts.outputs) / sum(facts.counts)
    least = parameters.regularization / len(facts.counts)
    if PRIVATE_BASELINES[label] == "gaussian":
        # Only the regularization keeps the Jacobian small.
        budget = Budget(np.array([epsilon]), np.array([delta]), people)
        kappa = float(gaussian_room(budget, facts.outputs)[0])
        least = max(least, loss.curvature_bound / (sum(facts.counts) * kappa))
    told = replace(
        parameters,
        algorithm="dvp",
        regularization=max(least, noise / mu / _MOVE),
        **_ONE_SOLVE
        | {"algorithm_options": {"noise": PRIVATE_BASELINES[label]}, "epsilon": epsilon},
    )
    return TrainingJob(
        OnePartyProblem(problem), told, runs=runs, seed=seed, finals=finals, may_refuse=True
    )


def default_entries(parties: int) -> tuple[str, ...]:
    """The default entries that so many parties can run."""
    shares = parties >= _FEWEST_TO_SHARE
    return tuple(entry for entry in DEFAULT_ENTRIES if shares or "noise=shared" not in entry)


@dataclass(frozen=True)
class Contender:
    """An algorithm and its options."""

    algorithm: str
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def label(self) -> str:
        """The entry as it is written on the command line."""
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
    """The key of a row of the table: who, calibration, graph, budget."""

    who: str
    calibration: str = ""
    topology: str = ""
    epsilon: float = np.inf

    @property
    def order(self) -> tuple[float, bool]:
        """Rows without privacy first, then large budgets before small ones; baselines on top."""
        return -self.epsilon, self.who not in BASELINES


# The place of a cell, the number of its split, its label, and the cell.
Placed = tuple[Place, int, str, Job]


@dataclass(frozen=True)
class Line:
    """One row of the table: the mean of each measure with its interval, or why there is none.

    ``privacy`` is the statement of its runs, the weakest of several, or None if all were refused.
    ``source`` names the line that this one copies, if it is the best of several.
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
        """The theorem, adversary and other grounds of the proven epsilon; None without one."""
        names = (*_GROUNDS, "details", "not_covered")
        if self.privacy is None:
            return dict.fromkeys(names)
        told = {**self.privacy, "releases": releases_of(self.privacy)}
        if not np.isfinite(epsilon_of(self.privacy)):
            told |= dict.fromkeys(("delta", "adjacency", "adversary", "not_covered"))
        return {name: told[name] for name in names}

    def plain(self) -> dict[str, Any]:
        """Plain data for machines; an unknown end of an interval is None."""
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
    """The entries of a comparison, and the problem that they train on.

    Attributes
    ----------
    problem
        The data; a named data set may be split several times (``splits``).
    parameters
        The parameters of all runs; the algorithm in them is ignored.
    entries, epsilons, topologies, calibrations
        Every combination runs. An algorithm that needs a server runs once, with the server.
    runs
        How often each combination runs, on each split.
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
                "delta must be one number for all parties in a comparison; got one for each party. "
                "Give --delta."
            )
        if self.splits > 1 and not isinstance(self.problem, NamedProblem):
            raise ParameterError(
                f"splits must be 1 for files, which already say who holds a row; got {self.splits}."
            )

    def check(self) -> None:
        """Refuse an entry that no budget here allows, before anything is computed."""
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
            # The table tells of an entry that only some calibrations or graphs refuse.
            if who not in fine:
                raise ParameterError(f"{who}: {reason}") from None

    def cells(self) -> dict[str, Job]:
        """All cells of the comparison, by labels for people."""
        return {label: cell for _, _, label, cell in self._placed()}

    def losses(self) -> dict[str, list[str]]:
        """Who minimised which loss; with "auto" every algorithm chooses its own."""
        found: dict[str, list[str]] = {}
        for place, _, _, cell in self._placed():
            if isinstance(cell, TrainingJob):
                who = f"{place.who} (published)" if place.calibration == "published" else place.who
                names = found.setdefault(cell.parameters.settled().loss, [])
                names += [who] * (who not in names)
        return found

    def lines(self, results: Mapping[str, Result]) -> list[Line]:
        """The table, made from results by the labels of :meth:`cells`."""
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
        """Every cell and its place in the table: baselines, then algorithms, budget by budget."""
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
        """The cells of the alternatives to training together."""
        facts, told, finals = problem.load(), self.parameters, self.measured
        parties, placed = len(facts.counts), list[Placed]()

        def put(place: Place, cells: Sequence[Job], names: Sequence[str] = ()) -> None:
            words: list[tuple[str, ...]] = [(name,) for name in names] or [()]
            for word, cell in zip(words, cells, strict=True):
                placed.append((place, split, self._label(place, split, *word), cell))

        put(Place(POOLED), [pooled_cell(problem, told, parties, finals)])
        put(Place(ALONE), alone_cells(problem, told, parties, finals), facts.names)
        for epsilon in self.epsilons:
            for who in (PRIVATE_ALONE, *_CENTRAL):
                place = Place(who, "proven", "", epsilon)
                seed = seed_of(f"{self.seed} {self._label(place, split)}")
                asked: dict[str, Any] = {
                    "epsilon": epsilon,
                    "runs": self.runs,
                    "seed": seed,
                    "finals": finals,
                }
                if who == PRIVATE_ALONE:
                    put(place, private_alone_cells(problem, told, **asked), facts.names)
                elif who == CENTRAL_GRADIENT:
                    whole = OnePartyProblem(problem)
                    put(place, [gradient_cell(whole, told, parties, **asked)])
                else:
                    put(place, [private_cell(problem, facts, told, who, **asked)])
        return placed

    def _trained(
        self, problem: ProblemSource, split: int
    ) -> list[tuple[Place, int, str, TrainingJob]]:
        """The cells of the algorithms; an algorithm without noise has no budget."""
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
    """The best central training at a budget; empty if all were refused."""
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
    # Noisy rounds are averaged; one solve, or rounds without noise, count with the last message.
    noisy = np.isfinite(place.epsilon) and place.who not in PRIVATE_BASELINES
    figures = {}
    for name in measured:
        # Average the parties alone, and the runs of a split if there are several splits.
        finals = [[each.final(name, "tail" if noisy else "last") for each in g] for g in groups]
        splits = [np.mean(group, axis=0) for group in finals]
        sample = splits[0] if len(splits) == 1 else np.array([values.mean() for values in splits])
        figures[name] = mean_interval(sample, LEVEL)
    return Line(place, privacy, figures)


def comparison_table(lines: Sequence[Line], measured: Sequence[str]) -> Table:
    """All numbers of the comparison, for a CSV file."""
    columns = ["who", "calibration", "topology", "epsilon", "provable epsilon"]
    columns += [*_GROUNDS, "refused", "source"]
    columns += [f"{name} {side}".strip() for name in measured for side in ("", "low", "high")]
    rows = []
    for line in lines:
        numbers = [side for name in measured for side in line.figures.get(name, (None,) * 3)]
        grounds = [line.grounds[name] for name in _GROUNDS]
        rows.append((*line.place, line.provable, *grounds, line.refused, line.source, *numbers))
    return Table.of(columns, rows)
