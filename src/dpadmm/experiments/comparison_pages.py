"""What a comparison leaves behind: its first sentence, a table, a figure, a manifest, a report."""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from dpadmm.durable import write_whole
from dpadmm.experiments.comparison import (
    ALONE,
    BASELINES,
    BEST_ALONE,
    CHOOSES,
    CURATOR,
    POOLED,
    PRIVATE_ALONE,
    Comparison,
    Line,
    comparison_table,
)
from dpadmm.experiments.figures import Curve, Panel, figure_table, write_figure
from dpadmm.experiments.jobs import Result
from dpadmm.experiments.meaning import GUARANTEES, HEADING, Meaning, Shown, meaning_of
from dpadmm.experiments.measures import BEATS, BELOW, LEVEL, LEVEL_WITH, percent, standing
from dpadmm.privacy.figures import AtMost, Given
from dpadmm.privacy.statement import ADVERSARY, NOT_COVERED, adjacency_words
from dpadmm.report.document import (
    COMMAND,
    CONFIGURATION,
    MEANING,
    NO_NOISE,
    PUBLISHED,
    PUBLISHED_WORDS,
    SIMULATION,
    STAND_IN,
    Banner,
    Bar,
    BarPlot,
    Cell,
    Code,
    Facts,
    Report,
    Section,
    Table,
    shown_name,
)
from dpadmm.report.html import write_report
from dpadmm.version import __version__

_COMPARISON_COLUMNS = (
    "who",
    "graph",
    "calibration",
    "epsilon: claimed (published) or budget",
    "proven epsilon",
    "theorem",
)
_INTERVAL_SIDES = ("", ", low", ", high")

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


def loss_words(losses: Mapping[str, Sequence[str]]) -> str:
    """Which loss was minimised by whom."""
    return "; ".join(f"{loss} by {', '.join(names)}" for loss, names in losses.items())


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
    table = short_table(manifest).markdown()
    return (
        f"**{manifest['headline']}**\n\n"
        f"{table}\n{manifest['intervals'].capitalize()}. {manifest['notice']}\n\n"
        f"Losses: {loss_words(manifest['losses'])}.\n\n"
        f"**{HEADING}**\n\n{meaning.markdown()}"
    )


def short_table(manifest: dict[str, Any]) -> Table:
    """Who reached what, a line each, in words."""
    measured = manifest["comparison"]["measured"]
    rows = [
        (
            who_words(line),
            line["topology"],
            epsilon_words(line),
            *(_figure_words(line, name) for name in measured),
        )
        for line in manifest["lines"]
    ]
    return Table.of(("who", "graph", "epsilon", *measured), rows)


def who_words(line: dict[str, Any]) -> str:
    """Who trained; of the better of several, which one it is."""
    source = line.get("source")
    return f"{line['who']} ({source})" if source else str(line["who"])


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


def _figure_words(line: dict[str, Any], name: str) -> str:
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
            # The curator's is drawn already, under the name of what it is.
            if name in line.figures and not line.source:
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


_EACH_ITS_OWN: Final = "differs between the algorithms: each line has its own"


def _of_algorithms(lines: Sequence[Line], name: str, usual: Any, differs: Any) -> Any:
    """What the statements of all private runs of algorithms say; ``differs`` if they do not agree.

    Baselines are left out: their lines always have their own. ``usual``: where nothing is private.
    """
    private = (line.grounds[name] for line in lines if line.place.who not in BASELINES)
    found = [said for said in private if said is not None] or [usual]
    return found[0] if all(said == found[0] for said in found) else differs


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
        "headline": headline(lines),
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
            "adversary": _of_algorithms(lines, "adversary", ADVERSARY, _EACH_ITS_OWN),
            "not_covered": _of_algorithms(lines, "not_covered", list(NOT_COVERED), [_EACH_ITS_OWN]),
            "simulated": True,
        },
        "comparison": asdict(comparison),
        "losses": comparison.losses(),
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


# Bars of the ranking; the table below has all lines.
_MOST_RANKED: Final = 24


def _report(manifest: dict[str, Any], meaning: Meaning, panels: Sequence[Panel]) -> Report:
    """The verdict and who is ahead, privacy-utility curves, everything that was compared."""
    banners = [Banner("danger", SIMULATION, manifest["notice"])]
    if any(line["calibration"] == "published" for line in manifest["lines"]):
        banners.append(Banner("caution", PUBLISHED, PUBLISHED_WORDS))
    if manifest["stand_ins"]:
        banners.append(Banner("caution", STAND_IN, f"{'; '.join(manifest['stand_ins'])}."))
    dataset = shown_name(str(manifest["data"].get("dataset", "own files")))
    source = str(manifest["data"].get("source", ""))
    who = list(dict.fromkeys(shown_name(line["who"], 40) for line in manifest["lines"]))
    intervals = manifest["intervals"][:1].upper() + manifest["intervals"][1:]
    facts = (
        ("What was compared", f"{', '.join(who)}."),
        ("Which loss was minimised", f"{loss_words(manifest['losses'])}."),
        *meaning.sentences(),
    )
    return Report(
        title=f"Algorithms compared on {dataset}",
        subtitle=f"A comparison, dpadmm {manifest['dpadmm']}",
        headline=manifest["headline"],
        banners=tuple(banners),
        answers=(
            ("On which data", f"{dataset}: {source}" if source else dataset),
            ("What intervals say", f"{intervals}."),
        ),
        picture=_ranking(manifest),
        sections=(
            Section("Privacy-utility curves", tuple(panel.plot() for panel in panels)),
            Section("All figures", (_report_table(manifest),)),
            Section(MEANING, (Facts(facts), *meaning.titled_tables())),
            Section(CONFIGURATION, (Code(COMMAND, manifest["command"]),)),
        ),
    )


def _ranking(manifest: dict[str, Any]) -> BarPlot | None:
    """Everybody by the first measure, the best first, with intervals."""
    measured = manifest["comparison"]["measured"]
    bars = [
        Bar(_ranked_name(line), found["mean"], low=found["low"], high=found["high"])
        for line in _sorted_lines(manifest)
        if (found := line["figures"].get(measured[0])) and found["mean"] is not None
    ]
    if not bars:
        return None
    return BarPlot(
        f"Who is ahead: {measured[0]}",
        "who, graph, budget",
        measured[0],
        tuple(bars[:_MOST_RANKED]),
        f"The best first, {min(len(bars), _MOST_RANKED)} of {len(bars)}; whiskers are intervals. "
        "Those of another colour have no noise and guarantee nothing.",
        marked=frozenset(
            _ranked_name(line) for line in manifest["lines"] if line["epsilon"] == "infinite"
        ),
    )


def _ranked_name(line: dict[str, Any]) -> str:
    """Who, on which graph and within which budget: a name that no other line has."""
    name = str(line["who"])
    if line["calibration"] == "published":
        name = f"{name} (published)"
    budget = NO_NOISE
    if line["epsilon"] != "infinite":
        budget = f"epsilon = {Given(line['epsilon'])}"
    return ", ".join(part for part in (name, line["topology"], budget) if part)


def _sorted_lines(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    """Lines by the mean of the first measure, the highest first; those without one at the end."""
    measured = manifest["comparison"]["measured"]

    def mean(line: dict[str, Any]) -> float:
        found = line["figures"].get(measured[0]) if measured else None
        return -np.inf if found is None or found["mean"] is None else float(found["mean"])

    return sorted(manifest["lines"], key=mean, reverse=True)


def _report_table(manifest: dict[str, Any]) -> Table:
    measured = manifest["comparison"]["measured"]
    sides = [f"{name}{side}" for name in measured for side in _INTERVAL_SIDES]
    rows = []
    for line in _sorted_lines(manifest):
        epsilon, proven = line["epsilon"], line["provable_epsilon"]
        cells: list[Cell] = [who_words(line), line["topology"], line["calibration"]]
        cells += ["none" if epsilon == "infinite" else Given(epsilon)]
        cells += [proven if isinstance(proven, str) else f"{AtMost(proven):4}"]
        cells += [f"{line['mark']} {line['theorem'] or ''}".strip()]
        for name in measured:
            figure = line["figures"].get(name)
            cells += [figure and figure[side] for side in ("mean", "low", "high")]
        rows.append((*cells, line["refused"]))
    columns = (*_COMPARISON_COLUMNS, *sides, "refused because")
    return Table.of(columns, rows, "All figures")


#: How training together stands to the parties alone, in words.
STANDINGS: Final = {
    BEATS: "beats every party alone",
    LEVEL_WITH: "cannot be told from the best party alone",
    BELOW: "does not beat the best party alone",
}


def headline(lines: Sequence[Line]) -> str:
    """Say what the best algorithm reaches beside each party alone and a trusted curator.

    Figures are of the budget nearest to epsilon 1; how the best algorithm stands to the best party
    alone is said of every budget. Published noise does not count: its epsilon is not proven.
    """
    judged = [line for line in lines if CHOOSES in line.figures]
    best = _best_together(judged)
    if not best:
        return f"No private algorithm with a proven guarantee and a {CHOOSES} was compared."
    epsilon = min(best, key=lambda each: abs(math.log(each)))
    name, where = best[epsilon].place.who, best[epsilon].place.topology
    words = [
        f"At epsilon {Given(epsilon)} the best of the algorithms compared ({name}, {where}; picked "
        f"by these figures) gets {_share(best[epsilon])} of the held-back rows right.",
        *_others(judged, epsilon),
    ]
    alone = _line_of(judged, BEST_ALONE)
    return " ".join([*words, *([_verdicts(best, alone)] if alone else [])])


def _best_together(lines: Sequence[Line]) -> dict[float, Line]:
    """The best proven private algorithm at each budget."""
    best: dict[float, Line] = {}
    for line in lines:
        place = line.place
        private = place.calibration == "proven" and np.isfinite(place.epsilon)
        if not private or place.who in BASELINES:
            continue
        before = best.get(place.epsilon)
        if before is None or line.figures[CHOOSES].mean > before.figures[CHOOSES].mean:
            best[place.epsilon] = line
    return best


def _line_of(lines: Sequence[Line], who: str, epsilon: float = math.inf) -> Line | None:
    wanted = (who, epsilon)
    return next((each for each in lines if (each.place.who, each.place.epsilon) == wanted), None)


def _share(line: Line) -> str:
    return percent(line.figures[CHOOSES].mean)


def _others(lines: Sequence[Line], epsilon: float) -> list[str]:
    """What parties have alone, and one trusted place."""
    alone, best = _line_of(lines, ALONE), _line_of(lines, BEST_ALONE)
    private = _line_of(lines, PRIVATE_ALONE, epsilon)
    curator, pooled = _line_of(lines, CURATOR, epsilon), _line_of(lines, POOLED)
    found = []
    if alone and best:
        within = f"; within the same budget {_share(private)} on average" if private else ""
        found.append(
            f"A party alone gets {_share(alone)} on average and {_share(best)} at best without "
            f"privacy{within}."
        )
    if curator and pooled:
        found.append(
            f"One place trusted with all rows gets {_share(curator)} within the same budget "
            f"({curator.source}) and {_share(pooled)} without privacy."
        )
    return found


def _verdicts(best: dict[float, Line], alone: Line) -> str:
    """How training together stands to the best party alone, budget by budget."""
    level = alone.figures[CHOOSES].mean
    at: dict[str, list[str]] = {}
    for epsilon in sorted(best, reverse=True):
        found = standing(best[epsilon].figures[CHOOSES], level)
        at.setdefault(STANDINGS[found], []).append(str(Given(epsilon)))
    parts = [f"{words} at epsilon {' and '.join(budgets)}" for words, budgets in at.items()]
    return f"Training together {'; it '.join(parts)}."
