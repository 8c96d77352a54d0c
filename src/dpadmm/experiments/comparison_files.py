"""What a comparison leaves behind: a table, a figure, a manifest."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from dpadmm.datasets.whole_file import write_whole
from dpadmm.experiments.cells import Result
from dpadmm.experiments.compare import Comparison, Line, comparison_table
from dpadmm.experiments.figures import Curve, Panel, draw, figure_table
from dpadmm.experiments.meaning import GUARANTEES, HEADING, Meaning, Shown, meaning_of
from dpadmm.experiments.statistics import LEVEL
from dpadmm.experiments.tables import Table
from dpadmm.privacy.shown import AtMost, Given
from dpadmm.privacy.statement import ADVERSARY, NOT_COVERED, adjacency_words
from dpadmm.report.from_manifest import folder_report
from dpadmm.report.render import render
from dpadmm.version import __version__

__all__ = [
    "COMPARISON_VERSION",
    "NOTICE",
    "epsilon_words",
    "figure_words",
    "interval_words",
    "write_comparison",
]

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
    draw(panels, folder / "figure", "Simulation: privacy and utility")
    write_whole(folder / "figure.csv", figure_table(panels).csv().encode(), "data")
    text = json.dumps(manifest, indent=1, allow_nan=False, default=dict)
    write_whole(folder / "manifest.json", text.encode(), "manifest")
    write_whole(folder / "report.html", render(folder_report(folder)).encode(), "report")
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
