"""What an experiment leaves behind: figures, tables, a manifest, a page, a report."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from dpadmm.durable import write_whole
from dpadmm.experiments.experiment import (
    Evaluation,
    Experiment,
    Finding,
    Summary,
    look_twice,
    summaries,
)
from dpadmm.experiments.figures import figure_table, write_figure, write_table
from dpadmm.experiments.job import Result
from dpadmm.experiments.manifests import manifest_of, manifest_text
from dpadmm.experiments.meaning import HEADING, Meaning, Shown, meaning_of
from dpadmm.experiments.runner import OnDone, Store
from dpadmm.experiments.statistics import LOOK_LEVEL
from dpadmm.report import texts
from dpadmm.report.document import Banner, Code, Facts, Report, Section, Words
from dpadmm.report.html import write_report
from dpadmm.report.tables import Table
from dpadmm.version import __version__

__all__ = ["Reproduction", "experiment_meaning", "page", "reproduce"]


#: How a page says that a finding needed the second look.
SECOND_LOOK: Final = "second look, 60 runs"
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
        for summary in summaries(evaluation.findings):
            if summary.conclusion == conclusion.name:
                parts += _summary_lines(summary)
        parts.append("")
    parts += [f"{remark}\n" for remark in evaluation.remarks]
    if evaluation.panels:
        words = f"{experiment.part}: {experiment.title}"
        parts.append(f"![{words}](figure.svg)\n")
        parts += [f"{panel.title}: {panel.note}\n" for panel in evaluation.panels if panel.note]
        parts.append(
            "Dashed: noise as published, whose epsilon is the paper's claim. Solid: proven. "
            f"[{HEADING}](#{_ANCHOR}). Bands are {LOOK_LEVEL:.1%} intervals of the mean over runs, "
            "unless a panel says otherwise. "
            "{download}`The points <figure.csv>` ({download}`for numpy <figure.npz>`).\n"
        )
    for number, (title, table) in enumerate(evaluation.tables.items(), start=1):
        parts += [f"## {title}\n", table.markdown()]
        parts.append(
            f"{{download}}`CSV <table-{number}.csv>`, {{download}}`npz <table-{number}.npz>`\n"
        )
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


def _summary_lines(summary: Summary) -> list[str]:
    """A line for our settings, and one below it for each variant."""
    lines = []
    if summary.depends_on or all(each.choice for each in summary.findings):
        lines.append(f"* {_heading(summary.calibration)}: **{summary.word}**.")
    for finding in summary.findings:
        again = f" ({SECOND_LOOK})" if finding.look > 1 else ""
        where = f"{finding.choice}, {finding.variant}" if finding.choice else "our settings"
        if finding.choice or summary.depends_on:
            head = f"  * {where}: {finding.verdict}{again}."
        else:
            head = f"* {_heading(finding.calibration)}: **{finding.verdict}**{again}."
        lines.append(f"{head} {finding.number}")
    return lines


def _heading(calibration: str) -> str:
    return {
        "published": "As published",
        "proven": "Proven",
        "": "Without noise",
    }.get(calibration, calibration)


def _words(value: Any) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")


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
        Where its files go: ``figure.svg``, ``figure.csv``, ``table-1.csv`` and so on, an ``.npz``
        beside each, ``manifest.json``, ``page.md``, ``report.html`` and ``report.json``.
    store
        Where finished cells are kept.
    jobs, on_done
        As in :func:`~dpadmm.experiments.runner.compute`.
    """
    start = time.monotonic()
    look = look_twice(experiment, store, jobs=jobs, on_done=on_done)
    evaluation = look.evaluation
    meaning = experiment_meaning(look.results)
    manifest = manifest_of(experiment, look, meaning, time.monotonic() - start)
    folder.mkdir(parents=True, exist_ok=True)
    if evaluation.panels:
        heading = f"{experiment.part}: {experiment.title}"
        stand_ins = manifest["stand_ins"]
        write_figure(evaluation.panels, folder / "figure.svg", heading + _stand_in_words(stand_ins))
        write_table(figure_table(evaluation.panels), folder / "figure")
    for number, table in enumerate(evaluation.tables.values(), start=1):
        write_table(table, folder / f"table-{number}")
    write_whole(folder / "manifest.json", manifest_text(manifest).encode(), "manifest")
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
                _place(each),
                each.verdict,
                each.number,
                criteria[each.conclusion].criterion,
            )
            for each in evaluation.findings
        ],
        texts.VERDICTS,
    )


def _place(finding: Finding) -> str:
    """The calibration, and what was chosen otherwise."""
    place = finding.calibration or texts.NO_NOISE
    return f"{place}; {finding.choice}: {finding.variant}" if finding.choice else place


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
    for each in summaries(evaluation.findings):
        found.setdefault(each.calibration or texts.NO_NOISE, []).append(each.word)
    return [
        (
            calibration,
            ", ".join(f"{verdicts.count(one)} {one}" for one in dict.fromkeys(verdicts)),
        )
        for calibration, verdicts in found.items()
    ]
