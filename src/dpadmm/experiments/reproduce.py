"""Rerun an experiment of a paper: a figure, its data, a manifest and a page."""

from __future__ import annotations

import json
import platform
import textwrap
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import scipy

from dpadmm.datasets.whole_file import write_whole
from dpadmm.experiments.cells import Cell, Result
from dpadmm.experiments.experiment import Evaluation, Experiment
from dpadmm.experiments.figures import draw, figure_table
from dpadmm.experiments.meaning import Meaning, Shown, meaning_of
from dpadmm.experiments.page import page
from dpadmm.experiments.runner import OnDone, compute
from dpadmm.experiments.store import Store
from dpadmm.report.from_manifest import folder_report
from dpadmm.report.render import render
from dpadmm.version import __version__

__all__ = ["MANIFEST_VERSION", "Reproduction", "experiment_meaning", "reproduce"]

#: Version of the manifest; a field never changes its meaning within a version.
MANIFEST_VERSION: Final = 1


@dataclass(frozen=True)
class Reproduction:
    """A rerun experiment: what it showed, and the files that it left."""

    experiment: Experiment
    evaluation: Evaluation
    manifest: dict[str, Any]
    folder: Path


def reproduce(
    experiment: Experiment,
    folder: Path,
    store: Store,
    *,
    jobs: int = 1,
    on_done: OnDone | None = None,
) -> Reproduction:
    """Compute what is missing, and write figure, data, manifest and page into ``folder``.

    Parameters
    ----------
    experiment
        What to rerun.
    folder
        Where its files go: ``figure.svg``, ``figure.png``, ``figure.csv``, ``tables/*.csv``,
        ``manifest.json``, ``page.md`` and ``report.html``.
    store
        Where finished cells are kept.
    jobs, on_done
        As in :func:`~dpadmm.experiments.runner.compute`.
    """
    start = time.monotonic()
    cells = experiment.cells()
    results = compute(cells, store, jobs=jobs, on_done=on_done)
    evaluation = experiment.evaluate(results)
    meaning = experiment_meaning(results)
    manifest = _manifest(experiment, cells, evaluation, results, meaning, time.monotonic() - start)
    folder.mkdir(parents=True, exist_ok=True)
    if evaluation.panels:
        heading = f"{experiment.part}: {experiment.title}"
        stand_ins = manifest["stand_ins"]
        draw(evaluation.panels, folder / "figure", heading + _stand_in_words(stand_ins))
        write_whole(folder / "figure.csv", figure_table(evaluation.panels).csv().encode(), "data")
    for number, table in enumerate(evaluation.tables.values(), start=1):
        write_whole(folder / f"table-{number}.csv", table.csv().encode(), "table")
    text = json.dumps(manifest, indent=1, allow_nan=False, default=_plain)
    write_whole(folder / "manifest.json", text.encode(), "manifest")
    text = page(experiment, evaluation, meaning, manifest)
    write_whole(folder / "page.md", text.encode(), "page")
    write_whole(folder / "report.html", render(folder_report(folder)).encode(), "report")
    return Reproduction(experiment, evaluation, manifest, folder)


def _stand_in_words(stand_ins: list[str]) -> str:
    words = textwrap.fill(f"stand-in data: {'; '.join(stand_ins)}", 160)
    return f"\n{words}" if stand_ins else ""


def experiment_meaning(results: Mapping[str, Result]) -> Meaning:
    """What the runs guarantee, by algorithm; a cell without a statement made no release."""
    statements = [
        result.facts["privacy"] for result in results.values() if "privacy" in result.facts
    ]
    return meaning_of([Shown(privacy["algorithm"], privacy) for privacy in statements])


def _manifest(
    experiment: Experiment,
    cells: Mapping[str, Cell],
    evaluation: Evaluation,
    results: Mapping[str, Result],
    meaning: Meaning,
    seconds: float,
) -> dict[str, Any]:
    """Everything that decides the figures, and what they are."""
    data = {
        json.dumps(result.facts["data"], sort_keys=True): result.facts["data"]
        for result in results.values()
        if "data" in result.facts
    }
    return {
        "version": MANIFEST_VERSION,
        "kind": "experiment",
        "experiment": experiment.name,
        "citation": experiment.citation,
        "part": experiment.part,
        "title": experiment.title,
        "command": f"dpadmm reproduce {experiment.name}",
        "dpadmm": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "seconds": round(seconds, 1),
        "cell_seconds": round(
            sum(result.facts.get("seconds", 0.0) for result in results.values()), 1
        ),
        "settings": {name: asdict(setting) for name, setting in experiment.settings.items()},
        "data": list(data.values()),
        "stand_ins": sorted({each["stand_in"] for each in data.values() if each.get("stand_in")}),
        "cells": {
            label: {
                "key": cell.key,
                **cell.description(),
                "privacy": _short_privacy(results[label].facts.get("privacy")),
                "warnings": results[label].facts.get("warnings", []),
            }
            for label, cell in cells.items()
        },
        "meaning": meaning.plain(),
        "conclusions": [asdict(conclusion) for conclusion in experiment.conclusions],
        "findings": [asdict(finding) for finding in evaluation.findings],
        "tables": {title: table.plain() for title, table in evaluation.tables.items()},
        "panels": [panel.plain() for panel in evaluation.panels],
        "remarks": list(evaluation.remarks),
    }


def _short_privacy(privacy: dict[str, Any] | None) -> dict[str, Any] | None:
    """The statement without the parties, who share it."""
    if privacy is None:
        return None
    return {name: value for name, value in privacy.items() if name != "parties"}


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    return dict(value)
