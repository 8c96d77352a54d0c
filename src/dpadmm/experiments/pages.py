"""What an experiment leaves behind: figures, tables, a manifest, a page; and the index of them."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import scipy

from dpadmm.durable import write_whole
from dpadmm.experiments.experiment import Evaluation, Experiment
from dpadmm.experiments.figures import figure_table, write_figure
from dpadmm.experiments.job import Job, Result
from dpadmm.experiments.meaning import HEADING, THEOREMS, Meaning, Shown, meaning_of
from dpadmm.experiments.runner import OnDone, Store, compute
from dpadmm.report import texts
from dpadmm.report.document import Banner, Code, Facts, Report, Section, Words
from dpadmm.report.html import write_report
from dpadmm.report.tables import Table
from dpadmm.version import __version__

__all__ = [
    "MANIFEST_VERSION",
    "Reproduction",
    "experiment_meaning",
    "index_page",
    "page",
    "reproduce",
]


# What Sphinx makes of the heading.
_ANCHOR: Final = HEADING.lower().replace(" ", "-")


def page(
    experiment: Experiment, evaluation: Evaluation, meaning: Meaning, manifest: dict[str, Any]
) -> str:
    """Markdown for the documentation; every number in it comes from the manifest."""
    parts = [f"# {experiment.citation}, {experiment.part}\n", f"{experiment.title}.\n"]
    if manifest["stand_ins"]:
        parts.append(f"**Stand-in data:** {'; '.join(manifest['stand_ins'])}.\n")
    parts += ["## What it concludes, and what came out\n"]
    for conclusion in experiment.conclusions:
        parts.append(f"**{conclusion.claim}**\n")
        parts.append(f"*Criterion, fixed before running:* {conclusion.criterion}\n")
        for finding in evaluation.findings:
            if finding.conclusion == conclusion.name:
                parts.append(
                    f"* {_heading(finding.calibration)}: **{finding.verdict}**. {finding.number}"
                )
        parts.append("")
    parts += [f"{remark}\n" for remark in evaluation.remarks]
    if evaluation.panels:
        words = f"{experiment.part}: {experiment.title}"
        parts.append(f"![{words}](figure.svg)\n")
        parts += [f"{panel.title}: {panel.note}\n" for panel in evaluation.panels if panel.note]
        parts.append(
            "Dashed: noise as published, whose epsilon is the paper's claim. Solid: proven. "
            f"[{HEADING}](#{_ANCHOR}). Bands are 95% intervals of the mean over runs, unless a "
            "panel says otherwise. "
            "{download}`The points <figure.csv>`.\n"
        )
    for title, table in evaluation.tables.items():
        parts += [f"## {title}\n", table.markdown()]
    parts += [f"## {HEADING}\n", meaning.markdown()]
    parts += ["## Settings\n", "| setting | value | source | why |\n| --- | --- | --- | --- |"]
    parts += [
        f"| {name} | {_words(setting.value)} | {setting.source} | {_words(setting.why)} |"
        for name, setting in experiment.settings.items()
    ]
    parts += [
        "",
        "## How it was made\n",
        f"```console\n$ {manifest['command']}\n```\n",
        f"dpadmm {manifest['dpadmm']}, numpy {manifest['numpy']}, Python {manifest['python']}; "
        f"{manifest['cell_seconds']:g} s of computing. Everything is a simulation on public data. "
        "Every cell's seed, parameters and statement of privacy: "
        "{download}`manifest <manifest.json>`.\n",
    ]
    return "\n".join(parts)


def index_page(manifests: Sequence[dict[str, Any]]) -> str:
    """The list of all rerun experiments with their verdicts, for the documentation."""
    parts = [
        "# The papers' figures and tables, rerun\n",
        "Each experiment was rerun with noise as its paper sets it (as published) and with noise "
        "that provably meets the same budget (proven). A conclusion *stands* when a criterion that "
        "was fixed before running holds; the number that decides is on the experiment's page, with "
        "every setting and who chose it. All of it is one command:\n",
        "```console\n$ DPADMM_DATA=/folder/with/data dpadmm reproduce --all --output FOLDER\n```\n",
        *_shared_meaning(manifests),
    ]
    for citation in dict.fromkeys(manifest["citation"] for manifest in manifests):
        parts += [
            f"## {citation}\n",
            "| experiment | conclusion | as published | proven | otherwise |\n|" + " --- |" * 5,
        ]
        for manifest in manifests:
            if manifest["citation"] == citation:
                parts += _verdict_lines(manifest)
        parts.append("")
    seconds = sum(manifest["cell_seconds"] for manifest in manifests)
    share = 1.0 / seconds if seconds else 0.0
    pages = "\n".join(f"{manifest['experiment']}/page" for manifest in manifests)
    parts += [
        "## What it costs\n",
        f"The cells' own clocks add up to {seconds / 60:.0f} minutes, those that two experiments "
        "share counted twice; they ran side by side, and beside whatever else the machine did.\n",
        "| experiment | cells | seconds of computing | share |\n|" + " --- |" * 4,
        *(
            f"| {manifest['experiment']} | {len(manifest['cells'])} "
            f"| {manifest['cell_seconds']:.0f} | {share * manifest['cell_seconds']:.0%} |"
            for manifest in sorted(manifests, key=lambda each: -each["cell_seconds"])
        ),
        "",
        f"```{{toctree}}\n:hidden:\n\n{pages}\n```\n",
    ]
    return "\n".join(parts)


def _verdict_lines(manifest: dict[str, Any]) -> list[str]:
    """A line of the index for each conclusion of an experiment."""
    lines = []
    for conclusion in manifest["conclusions"]:
        verdicts: dict[str, list[str]] = {"published": [], "proven": [], "": []}
        for finding in manifest["findings"]:
            if finding["conclusion"] == conclusion["name"]:
                place = finding["calibration"] if finding["calibration"] in verdicts else ""
                verdicts[place].append(finding["verdict"])
        link = f"[{manifest['part']}]({manifest['experiment']}/page.md)"
        cells = [", ".join(dict.fromkeys(each)) for each in verdicts.values()]
        lines.append(f"| {link} | {_words(conclusion['claim'])} | {' | '.join(cells)} |")
    return lines


def _shared_meaning(manifests: Sequence[dict[str, Any]]) -> list[str]:
    """What the epsilons of all experiments mean; each page says it of its own runs."""
    found: dict[str, dict[str, None]] = {"Adjacency": {}, "Adversary": {}, "Theorem": {}}
    for manifest in manifests:
        meaning = manifest["meaning"]
        for heading, words in meaning["facts"]:
            found.get(heading.partition(" (")[0], {})[words] = None
        for _, theorem, releases in meaning["tables"].get(THEOREMS, {"rows": []})["rows"]:
            found["Theorem"][f"{theorem}; of {releases}"] = None
    return [
        f"**{HEADING}.** As published, an epsilon is the paper's claim, not a guarantee; proven, "
        "it is the total of one party over the whole run. Every page lists, for its own runs, the "
        "claims with what is proven of the same noise, delta and the theorem of every number. "
        "They all rest on these:\n",
        "".join(f"* {name}: {each}.\n" for name, words in found.items() for each in words),
    ]


def _heading(calibration: str) -> str:
    return {
        "published": "As published",
        "proven": "Proven",
        "": "Without noise",
    }.get(calibration, calibration)


def _words(value: Any) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")


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
        Where its files go: ``figure.svg``, ``figure.csv``, ``tables/*.csv``,
        ``manifest.json``, ``page.md``, ``report.html`` and ``report.json``.
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
        write_figure(evaluation.panels, folder / "figure.svg", heading + _stand_in_words(stand_ins))
        write_whole(folder / "figure.csv", figure_table(evaluation.panels).csv().encode(), "data")
    for number, table in enumerate(evaluation.tables.values(), start=1):
        write_whole(folder / f"table-{number}.csv", table.csv().encode(), "table")
    text = json.dumps(manifest, indent=1, allow_nan=False, default=_plain)
    write_whole(folder / "manifest.json", text.encode(), "manifest")
    text = page(experiment, evaluation, meaning, manifest)
    write_whole(folder / "page.md", text.encode(), "page")
    write_report(folder, _report(experiment, evaluation, meaning, manifest))
    return Reproduction(experiment, evaluation, manifest, folder)


def _stand_in_words(stand_ins: list[str]) -> str:
    return f" (stand-in data: {'; '.join(stand_ins)})" if stand_ins else ""


def experiment_meaning(results: Mapping[str, Result]) -> Meaning:
    """What the runs guarantee, by algorithm; a cell without a statement made no release."""
    statements = [
        result.facts["privacy"] for result in results.values() if "privacy" in result.facts
    ]
    return meaning_of([Shown(privacy["algorithm"], privacy) for privacy in statements])


def _manifest(
    experiment: Experiment,
    cells: Mapping[str, Job],
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


def _report(
    experiment: Experiment, evaluation: Evaluation, meaning: Meaning, manifest: dict[str, Any]
) -> Report:
    banners = [Banner("danger", texts.SIMULATION, texts.COMPARISON_SIMULATED)]
    if manifest["stand_ins"]:
        banners.append(Banner("caution", texts.STAND_IN, "; ".join(manifest["stand_ins"])))
    if any(finding.calibration == "published" for finding in evaluation.findings):
        banners.append(Banner("caution", texts.PUBLISHED, texts.COMPARISON_PUBLISHED_WORDS))
    remarks = tuple(Words(text) for text in evaluation.remarks)
    sections = (
        Section(texts.VERDICTS, (_verdict_table(experiment, evaluation), *remarks)),
        Section(texts.MEANING, (Facts(meaning.sentences()), *meaning.titled_tables())),
        Section(texts.FIGURES, tuple(panel.plot() for panel in evaluation.panels)),
        Section(
            texts.TABLES,
            tuple(replace(table, title=title) for title, table in evaluation.tables.items()),
        ),
        Section(texts.SETTINGS, (_setting_table(experiment),)),
        Section(texts.CONFIGURATION, (Code(texts.COMMAND, manifest["command"]),)),
    )
    return Report(
        title=f"{experiment.part}: {experiment.title}",
        subtitle=texts.EXPERIMENT_SUBTITLE.format(version=__version__),
        banners=tuple(banners),
        answers=((texts.PAPER, experiment.citation), *_verdict_counts(evaluation)),
        sections=tuple(section for section in sections if section.blocks),
    )


def _verdict_table(experiment: Experiment, evaluation: Evaluation) -> Table:
    criteria = {each.name: each for each in experiment.conclusions}
    return Table.of(
        (texts.CONCLUSION, texts.CALIBRATION, texts.VERDICT, texts.NUMBER, texts.CRITERION),
        [
            (
                criteria[each.conclusion].claim,
                each.calibration or texts.NO_NOISE,
                each.verdict,
                each.number,
                criteria[each.conclusion].criterion,
            )
            for each in evaluation.findings
        ],
        texts.VERDICTS,
    )


def _setting_table(experiment: Experiment) -> Table:
    return Table.of(
        (texts.SETTING, texts.VALUE, texts.SOURCE, texts.WHY),
        [
            (name, _listed(each.value), each.source, each.why)
            for name, each in experiment.settings.items()
        ],
        texts.SETTINGS,
    )


def _listed(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(_listed(item) for item in value)
    return str(value)


def _verdict_counts(evaluation: Evaluation) -> list[tuple[str, str]]:
    """How many conclusions stand, by calibration."""
    found: dict[str, list[str]] = {}
    for each in evaluation.findings:
        found.setdefault(each.calibration or texts.NO_NOISE, []).append(each.verdict)
    return [
        (
            calibration,
            ", ".join(f"{verdicts.count(one)} {one}" for one in dict.fromkeys(verdicts)),
        )
        for calibration, verdicts in found.items()
    ]
