"""A comparison of algorithms on one problem: what is run, and the table that comes of it.

Everything is a simulation: noise is drawn from a seed, and figures are functions of the rows. On
rows that are private the comparison itself protects nobody, and what is chosen by it is not covered
by any budget; it says so wherever its figures stand.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from dpadmm.algorithms import get_algorithm
from dpadmm.durable import write_whole
from dpadmm.errors import ParameterError, positive_integer, positive_number
from dpadmm.experiments.baselines import (
    ALONE,
    CENTRAL_ADVERSARY,
    POOLED,
    PRIVATE_BASELINES,
    alone_cells,
    pooled_cell,
    private_cell,
)
from dpadmm.experiments.experiment import seed_of
from dpadmm.experiments.figures import Curve, Panel, figure_table, write_figure
from dpadmm.experiments.job import Job, Result, TrainingJob
from dpadmm.experiments.meaning import (
    GUARANTEES,
    HEADING,
    Meaning,
    Shown,
    epsilon_of,
    meaning_of,
    releases_of,
)
from dpadmm.experiments.problems import NamedProblem, ProblemSource
from dpadmm.experiments.statistics import LEVEL, Interval, mean_interval
from dpadmm.privacy.figures import AtMost, Given
from dpadmm.privacy.statement import ADVERSARY, NOT_COVERED, adjacency_words
from dpadmm.report import texts
from dpadmm.report.document import Banner, Code, Report, Section
from dpadmm.report.html import write_report
from dpadmm.report.markup import shown_name
from dpadmm.report.tables import Cell, Table
from dpadmm.run.parameters import TrainingParameters
from dpadmm.version import __version__

__all__ = [
    "COMPARISON_VERSION",
    "DEFAULT_ENTRIES",
    "MEASURED",
    "NOTICE",
    "Comparison",
    "Contender",
    "Line",
    "Place",
    "comparison_table",
    "epsilon_words",
    "figure_words",
    "interval_words",
    "parse_entry",
    "write_comparison",
]


#: What is measured of every model.
MEASURED: Final = ("test accuracy", "log loss", "AUC", "consensus error")


#: What a proven epsilon rests on, as columns; guarantees beside it are for the manifest.
_GROUNDS: Final = ("delta", "theorem", "releases", "adjacency", "adversary", "claim")


#: What is compared unless told: noise that is Gaussian where there is a choice.
DEFAULT_ENTRIES: Final = (
    "admm",
    "pr-admm",
    "dvp:noise=gaussian",
    "m-admm:noise=gaussian",
    "r-admm:noise=gaussian",
    "pdml:label_epsilon=1",
    "ps-admm",
)


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
        return -self.epsilon, self.who not in (POOLED, ALONE, *PRIVATE_BASELINES)


#: A cell with its place, the number of its split, and its label.
Placed = tuple[Place, int, str, Job]


@dataclass(frozen=True)
class Line:
    """One row of the table: each measure's mean with its interval, or why there is none.

    ``privacy`` is the statement of its runs, the weakest where there are several; None where all
    was refused.
    """

    place: Place
    privacy: Mapping[str, Any] | None
    figures: Mapping[str, Interval]
    refused: str = ""

    @property
    def provable(self) -> float | str:
        """The proven epsilon: a number, "infinite", or "none" where nothing ran."""
        found: float | str = "none" if self.privacy is None else self.privacy["epsilon"]
        return found

    @property
    def grounds(self) -> dict[str, Any]:
        """What the proven epsilon rests on and against whom; None where there is none."""
        names = (*_GROUNDS, "details")
        if self.privacy is None:
            return dict.fromkeys(names)
        told = {**self.privacy, "releases": releases_of(self.privacy)}
        if not np.isfinite(epsilon_of(self.privacy)):
            told |= dict.fromkeys(("delta", "adjacency", "adversary"))
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
            raise ParameterError("delta must be one number for all parties in a comparison.")
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

    def lines(self, results: Mapping[str, Result]) -> list[Line]:
        """The table, from the results by the labels of :meth:`cells`."""
        rows: dict[Place, list[list[Result]]] = {}
        for place, split, label, _ in self._placed():
            rows.setdefault(place, [[] for _ in range(self.splits)])[split].append(results[label])
        return [_line(place, groups, self.measured) for place, groups in rows.items()]

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

    def _trained(
        self, problem: ProblemSource, split: int
    ) -> list[tuple[Place, int, str, TrainingJob]]:
        """The cells of the algorithms; one without noise has no budget."""
        placed = []
        for entry in self.entries:
            kind = get_algorithm(entry.algorithm)
            topologies = ("server",) if kind.needs_server else self.topologies
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


def _line(place: Place, groups: Sequence[Sequence[Result]], measured: Sequence[str]) -> Line:
    everything = [result for group in groups for result in group]
    refused = next((r.facts["refused"] for r in everything if "refused" in r.facts), "")
    if refused:
        return Line(place, None, {}, refused)
    privacy = max((result.facts["privacy"] for result in everything), key=epsilon_of)
    if place.who in PRIVATE_BASELINES:
        privacy = {**privacy, "adversary": CENTRAL_ADVERSARY}
    # One solve, or rounds without noise, end at the last message; noisy rounds are averaged.
    noisy = np.isfinite(place.epsilon) and place.who not in PRIVATE_BASELINES
    figures = {}
    for name in measured:
        # Parties alone are averaged; so are the runs of a split where there are several splits.
        finals = [[each.final(name, "tail" if noisy else "last") for each in g] for g in groups]
        splits = [np.mean(group, axis=0) for group in finals]
        sample = splits[0] if len(splits) == 1 else np.array([values.mean() for values in splits])
        figures[name] = mean_interval(sample)
    return Line(place, privacy, figures)


def comparison_table(lines: Sequence[Line], measured: Sequence[str]) -> Table:
    """Every number, for a CSV file."""
    columns = ["who", "calibration", "topology", "epsilon", "provable epsilon"]
    columns += [*_GROUNDS, "refused"]
    columns += [f"{name} {side}".strip() for name in measured for side in ("", "low", "high")]
    rows = []
    for line in lines:
        numbers = [side for name in measured for side in line.figures.get(name, (None,) * 3)]
        grounds = [line.grounds[name] for name in _GROUNDS]
        rows.append((*line.place, line.provable, *grounds, line.refused, *numbers))
    return Table.of(columns, rows)


#: Version of the manifest; a field never changes its meaning within a version.
COMPARISON_VERSION: Final = 1


NOTICE: Final = (
    "A simulation: noise comes from a seed, and figures are functions of the rows. Where rows are "
    "private, this comparison protects nobody, and no budget covers a choice made by it."
)


def interval_words(comparison: Comparison) -> str:
    """What the intervals are about."""
    if comparison.splits > 1:
        return (
            f"{LEVEL:.0%} intervals of the mean over {comparison.splits} random splits of the "
            f"rows, {comparison.runs} runs each"
        )
    return (
        f"{LEVEL:.0%} intervals of the mean over {comparison.runs} draws of the noise; all share "
        "one split of the rows, whose choice they do not cover"
    )


def write_comparison(
    comparison: Comparison, results: Mapping[str, Result], folder: Path, command: str
) -> dict[str, Any]:
    """Write table, figure, manifest and report; return the manifest."""
    lines = comparison.lines(results)
    panels = _panels(comparison, lines)
    meaning = _meaning(lines)
    manifest = _manifest(comparison, results, lines, panels, meaning, command)
    table = comparison_table(lines, comparison.measured)
    write_whole(folder / "comparison.csv", table.csv().encode(), "table")
    words = comparison_words(manifest, meaning)
    write_whole(folder / "comparison.md", words.encode(), "table")
    write_figure(panels, folder / "figure.svg", "Simulation: privacy and utility")
    write_whole(folder / "figure.csv", figure_table(panels).csv().encode(), "data")
    text = json.dumps(manifest, indent=1, allow_nan=False, default=dict)
    write_whole(folder / "manifest.json", text.encode(), "manifest")
    write_report(folder, _report(manifest, meaning, panels))
    return manifest


def _meaning(lines: Sequence[Line]) -> Meaning:
    """What the lines' epsilons mean; how large they are the table says itself."""
    whole = meaning_of([Shown(line.place.who, line.privacy) for line in lines if line.privacy])
    kept = {title: table for title, table in whole.tables.items() if title != GUARANTEES}
    return replace(whole, tables=kept)


def comparison_words(manifest: dict[str, Any], meaning: Meaning) -> str:
    """The table for people, in Markdown."""
    measured = manifest["comparison"]["measured"]
    rows = [
        (
            line["who"],
            line["topology"],
            epsilon_words(line),
            *(figure_words(line, name) for name in measured),
        )
        for line in manifest["lines"]
    ]
    table = Table.of(("who", "graph", "epsilon", *measured), rows).markdown()
    return (
        f"{table}\n{manifest['intervals'].capitalize()}. {manifest['notice']}\n\n"
        f"**{HEADING}**\n\n{meaning.markdown()}"
    )


def epsilon_words(line: dict[str, Any]) -> str:
    """The budget and the mark of its theorem; with published noise the claim and what is proven."""
    if line["epsilon"] == "infinite":
        return "no guarantee"
    if line["refused"]:
        return f"{Given(line['epsilon'])} asked for"
    if line["calibration"] != "published":
        return f"{Given(line['epsilon'])} {line['mark']}"
    proven = line["provable_epsilon"]
    words = proven if isinstance(proven, str) else f"{AtMost(proven):3} {line['mark']}"
    claimed = line["claimed_epsilon"]
    return f"claimed {'none' if claimed is None else Given(claimed)}, proven {words}"


def figure_words(line: dict[str, Any], name: str) -> str:
    """A mean and half the width of its interval."""
    found = line["figures"].get(name)
    if found is None or found["mean"] is None:
        return "refused" if line["refused"] else "-"
    half = None if found["high"] is None else found["high"] - found["mean"]
    return f"{found['mean']:.4g}" + ("" if half is None else f" ± {half:.2g}")


def _panels(comparison: Comparison, lines: Sequence[Line]) -> tuple[Panel, ...]:
    """Each measure over the budgets; what has no budget is a level line."""
    epsilons = sorted(comparison.epsilons)
    published = "published" in comparison.calibrations
    label = "epsilon, claimed (published) or proven" if published else "proven epsilon"
    panels = []
    for name in comparison.measured:
        groups: dict[tuple[str, str, str], dict[float, Line]] = {}
        for line in lines:
            place = line.place
            if name in line.figures:
                key = (place.who, place.topology, place.calibration)
                groups.setdefault(key, {})[place.epsilon] = line
        curves = []
        for (who, topology, calibration), found in groups.items():
            level = found.get(np.inf)
            points = {epsilon: level or found.get(epsilon) for epsilon in epsilons}
            kept = {epsilon: line for epsilon, line in points.items() if line is not None}
            intervals = [line.figures[name] for line in kept.values()]
            known = all(np.isfinite(interval.low) for interval in intervals)
            curves.append(
                Curve(
                    f"{who}, {topology}" if topology and len(comparison.topologies) > 1 else who,
                    tuple(kept),
                    tuple(interval.mean for interval in intervals),
                    tuple(interval.low for interval in intervals) if known else (),
                    tuple(interval.high for interval in intervals) if known else (),
                    calibration if calibration == "published" else "",
                )
            )
        scale: Any = "log" if name == "consensus error" else "linear"
        panels.append(Panel(name, label, name, tuple(curves), "log", scale))
    return tuple(panels)


def _manifest(
    comparison: Comparison,
    results: Mapping[str, Result],
    lines: Sequence[Line],
    panels: Sequence[Panel],
    meaning: Meaning,
    command: str,
) -> dict[str, Any]:
    data = next(iter(results.values())).facts["data"]
    people = comparison.parameters.rows_per_person
    return {
        "version": COMPARISON_VERSION,
        "kind": "comparison",
        "command": command,
        "notice": NOTICE,
        "intervals": interval_words(comparison),
        "dpadmm": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "data": data,
        "stand_ins": [data["stand_in"]] if data.get("stand_in") else [],
        "privacy": {
            "delta": comparison.parameters.delta,
            "adjacency": adjacency_words(people),
            "adversary": ADVERSARY,
            "not_covered": list(NOT_COVERED),
            "simulated": True,
        },
        "comparison": asdict(comparison),
        "lines": [
            {**line.plain(), "mark": meaning.mark(line.privacy) if line.privacy else ""}
            for line in lines
        ],
        "meaning": meaning.plain(),
        "panels": [panel.plain() for panel in panels],
        "cells": {
            label: {"key": cell.key, "seconds": results[label].facts.get("seconds")}
            for label, cell in comparison.cells().items()
        },
    }


_MOST_NAMES: Final = 12


def _report(manifest: dict[str, Any], meaning: Meaning, panels: Sequence[Panel]) -> Report:
    """Privacy-utility curves, and the table of everything that was compared."""
    banners = [Banner("danger", texts.SIMULATION, manifest["notice"])]
    if any(line["calibration"] == "published" for line in manifest["lines"]):
        banners.append(Banner("caution", texts.PUBLISHED, texts.COMPARISON_PUBLISHED_WORDS))
    if manifest["stand_ins"]:
        banners.append(Banner("caution", texts.STAND_IN, f"{'; '.join(manifest['stand_ins'])}."))
    dataset = shown_name(str(manifest["data"].get("dataset", texts.OWN_FILES)))
    source = str(manifest["data"].get("source", ""))
    who = list(dict.fromkeys(shown_name(line["who"], 40) for line in manifest["lines"]))
    intervals = manifest["intervals"][:1].upper() + manifest["intervals"][1:]
    return Report(
        title=texts.COMPARISON_TITLE.format(data=dataset),
        subtitle=texts.COMPARISON_SUBTITLE.format(version=manifest["dpadmm"]),
        banners=tuple(banners),
        answers=(
            (texts.COMPARED, f"{', '.join(who)}."),
            (texts.COMPARED_ON, f"{dataset}: {source}" if source else dataset),
            *_best(manifest),
            (texts.INTERVALS, f"{intervals}."),
            *meaning.sentences(),
        ),
        sections=(
            Section(texts.COMPARISON_CURVES, tuple(panel.plot() for panel in panels)),
            Section(texts.COMPARISON_TABLE, (_report_table(manifest),)),
            Section(texts.MEANING, meaning.titled_tables()),
            Section(texts.CONFIGURATION, (Code(texts.COMMAND, manifest["command"]),)),
        ),
    )


def _best(manifest: dict[str, Any]) -> list[tuple[str, str]]:
    """What was reached at each budget, by the first measure."""
    measured = manifest["comparison"]["measured"]
    found: dict[float | str, list[str]] = {}
    for line in manifest["lines"]:
        figure = line["figures"].get(measured[0]) if measured else None
        if figure is not None and figure["mean"] is not None:
            name = shown_name(line["who"], 40)
            if line["calibration"] == "published":
                name = texts.COMPARISON_PUBLISHED.format(name=name)
            where = f" ({line['topology']})" if line["topology"] else ""
            found.setdefault(line["epsilon"], []).append(f"{name}{where} {figure['mean']:.4g}")
    return [
        (
            f"{measured[0].capitalize()}, "
            + (
                texts.NO_NOISE
                if epsilon == "infinite"
                else texts.AT_EPSILON.format(epsilon=epsilon)
            ),
            ", ".join(words[:_MOST_NAMES]),
        )
        for epsilon, words in found.items()
    ]


def _report_table(manifest: dict[str, Any]) -> Table:
    measured = manifest["comparison"]["measured"]
    sides = [f"{name}{side}" for name in measured for side in texts.INTERVAL_SIDES]
    rows = []
    for line in manifest["lines"]:
        epsilon, proven = line["epsilon"], line["provable_epsilon"]
        cells: list[Cell] = [line["who"], line["topology"], line["calibration"]]
        cells += [texts.NONE if epsilon == "infinite" else Given(epsilon)]
        cells += [proven if isinstance(proven, str) else f"{AtMost(proven):4}"]
        cells += [f"{line['mark']} {line['theorem'] or ''}".strip()]
        for name in measured:
            figure = line["figures"].get(name)
            cells += [figure and figure[side] for side in ("mean", "low", "high")]
        rows.append((*cells, line["refused"]))
    columns = (*texts.COMPARISON_COLUMNS, *sides, texts.REFUSED_COLUMN)
    return Table.of(columns, rows, texts.COMPARISON_TABLE)
