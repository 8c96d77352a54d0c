"""The manifest of a rerun experiment: everything that decided its figures, each thing once."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

import numpy as np
import scipy

from dpadmm.experiments.jobs import Job, Result
from dpadmm.experiments.meaning import Meaning
from dpadmm.version import __version__
from dpadmm_papers.experiment import MORE_RUNS, Experiment, Look

#: Version of the manifest; a field never changes its meaning within a version.
MANIFEST_VERSION: Final = 2
# Entries of these have a line each: a change of one cell changes one line of the file.
_LINE_BY_LINE: Final = ("settings", "cells", "conclusions", "findings")


def manifest_of(
    experiment: Experiment, look: Look, meaning: Meaning, seconds: float
) -> dict[str, Any]:
    """Everything that decides the figures, and what they show; the points are in the CSV files.

    What all cells of a kind share is said once, under ``shared``: :func:`cell_of` gives a cell
    whole.
    """
    results = look.results
    data = {
        json.dumps(result.facts["data"], sort_keys=True): result.facts["data"]
        for result in results.values()
        if "data" in result.facts
    }
    whole = {label: _cell(job, results[label]) for label, job in look.cells.items()}
    shared = {
        kind: _common([cell for cell in whole.values() if cell["kind"] == kind])
        for kind in sorted({cell["kind"] for cell in whole.values()})
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
        "more_runs": {"times": MORE_RUNS, "cells": sorted(look.extended)},
        "shared": shared,
        "cells": {
            label: {"kind": cell["kind"], **_without(cell, shared[cell["kind"]])}
            for label, cell in whole.items()
        },
        "meaning": meaning.plain(),
        "conclusions": [asdict(conclusion) for conclusion in experiment.conclusions],
        "findings": [_finding(asdict(finding)) for finding in look.evaluation.findings],
        "remarks": list(look.evaluation.remarks),
    }


def cell_of(manifest: Mapping[str, Any], label: str) -> dict[str, Any]:
    """A cell whole: its own part and what it shares with its kind."""
    own = manifest["cells"][label]
    return _merged(manifest["shared"][own["kind"]], own)


def manifest_text(manifest: Mapping[str, Any]) -> str:
    """JSON without blanks, a line for each field or entry."""
    return "{\n" + ",\n".join(_field(name, value) for name, value in manifest.items()) + "\n}\n"


def _field(name: str, value: Any) -> str:
    if name not in _LINE_BY_LINE or not value:
        return f"{_json(name)}:{_json(value)}"
    if isinstance(value, Mapping):
        inner = (f"{_json(key)}:{_json(each)}" for key, each in value.items())
        return f"{_json(name)}:{{\n" + ",\n".join(inner) + "\n}"
    return f"{_json(name)}:[\n" + ",\n".join(map(_json, value)) + "\n]"


def _json(value: Any) -> str:
    return json.dumps(value, allow_nan=False, default=_plain, separators=(",", ":"))


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else dict(value)


def _cell(job: Job, result: Result) -> dict[str, Any]:
    described = {
        "key": job.key,
        **job.description(),
        "privacy": _short_privacy(result.facts.get("privacy")),
    }
    if result.facts.get("warnings"):
        described["warnings"] = result.facts["warnings"]
    # As it is read again: what differs in kind alone, such as a list and a tuple, is the same.
    cell: dict[str, Any] = json.loads(_json(described))
    return cell


def _short_privacy(privacy: dict[str, Any] | None) -> dict[str, Any] | None:
    """The statement without the parties, who share it, and what stands elsewhere or is empty."""
    if privacy is None:
        return None
    left_out = ("parties", "algorithm", "calibration")  # the last two are parameters of the cell
    return {
        name: value
        for name, value in privacy.items()
        if name not in left_out and (name, value) != ("claim", None)
    }


def _finding(finding: dict[str, Any]) -> dict[str, Any]:
    """Without what is empty: most findings are of no variant."""
    kept = ("choice", "variant", "rests_on")
    return {name: value for name, value in finding.items() if value or name not in kept}


def _common(cells: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What is the same in all, also inside of what differs."""
    found: dict[str, Any] = {}
    for name, value in cells[0].items():
        others = [cell.get(name) for cell in cells]
        if all(name in cell for cell in cells) and all(other == value for other in others):
            found[name] = value
        elif all(isinstance(other, dict) for other in others):
            found[name] = _common([other for other in others if isinstance(other, dict)])
    return found


def _without(cell: Mapping[str, Any], shared: Mapping[str, Any]) -> dict[str, Any]:
    """What is not in ``shared``."""
    left: dict[str, Any] = {}
    for name, value in cell.items():
        if name not in shared:
            left[name] = value
        elif value != shared[name]:
            left[name] = _without(value, shared[name])
    return left


def _merged(shared: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(shared)
    for name, value in own.items():
        inside = isinstance(value, dict) and isinstance(found.get(name), dict)
        found[name] = _merged(found[name], value) if inside else value
    return found
