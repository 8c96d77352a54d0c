"""The report of a paper's experiment that was rerun, from its manifest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dpadmm.report import texts
from dpadmm.report.document import Banner, Block, Cell, Code, Report, Section, Table, Words
from dpadmm.report.from_comparison import comparison_report, stand_in_banners
from dpadmm.report.manifests import ComparisonManifest, ReproductionManifest, read_manifest
from dpadmm.report.panels import panel_plot

__all__ = ["folder_report", "reproduction_report"]


def folder_report(folder: Path) -> Report:
    """The report of a folder with a manifest, whichever command left it."""
    manifest = read_manifest(folder)
    if isinstance(manifest, ComparisonManifest):
        return comparison_report(manifest)
    return reproduction_report(manifest)


def reproduction_report(manifest: ReproductionManifest) -> Report:
    """Each conclusion with its verdict on top; figures, tables and settings below."""
    banners = [Banner("danger", texts.SIMULATION, texts.REPRODUCTION_SIMULATED)]
    if any(finding.calibration == "published" for finding in manifest.findings):
        banners.append(Banner("caution", texts.PUBLISHED, texts.COMPARISON_PUBLISHED_WORDS))
    remarks: list[Block] = [Words(remark) for remark in manifest.remarks]
    sections = [
        Section(texts.CONCLUSIONS, (_conclusions(manifest), *remarks)),
        Section(texts.FIGURES, tuple(panel_plot(panel) for panel in manifest.panels)),
    ]
    if manifest.tables:
        tables = tuple(
            Table(
                title,
                table.columns,
                tuple(tuple(_cell(cell) for cell in row) for row in table.rows),
            )
            for title, table in manifest.tables.items()
        )
        sections.append(Section(texts.TABLES, tables))
    sections.append(Section(texts.SETTINGS, (_settings(manifest),)))
    sections.append(Section(texts.COMMAND_SECTION, (Code(texts.COMMAND, manifest.command),)))
    return Report(
        title=f"{manifest.citation}, {manifest.part}: {manifest.title}",
        subtitle=texts.REPRODUCTION_SUBTITLE.format(
            experiment=manifest.experiment, version=manifest.dpadmm
        ),
        banners=(*banners, *stand_in_banners(manifest.stand_ins)),
        answers=_answers(manifest),
        sections=tuple(each for each in sections if each.blocks),
    )


def _answers(manifest: ReproductionManifest) -> tuple[tuple[str, str], ...]:
    pairs = []
    for conclusion in manifest.conclusions:
        found = [
            texts.VERDICT.format(how=_how(finding.calibration), verdict=finding.verdict)
            for finding in manifest.findings
            if finding.conclusion == conclusion.name
        ]
        pairs.append((conclusion.name, f"{conclusion.claim} {' '.join(found)}"))
    return tuple(pairs)


def _how(calibration: str) -> str:
    return texts.CALIBRATIONS.get(calibration, calibration)


def _conclusions(manifest: ReproductionManifest) -> Table:
    known = {conclusion.name: conclusion for conclusion in manifest.conclusions}
    rows = []
    for finding in manifest.findings:
        conclusion = known.get(finding.conclusion)
        criterion = "" if conclusion is None else conclusion.criterion
        how = _how(finding.calibration)
        rows.append((finding.conclusion, how, finding.verdict, finding.number, criterion))
    return Table(texts.CONCLUSIONS, texts.CONCLUSION_COLUMNS, tuple(rows))


def _settings(manifest: ReproductionManifest) -> Table:
    rows = tuple(
        (name, str(setting.value), setting.source, setting.why)
        for name, setting in manifest.settings.items()
    )
    return Table(texts.SETTINGS, texts.SETTING_COLUMNS, rows)


def _cell(value: Any) -> Cell:
    """A cell of a manifest's table; what is neither a number nor a word is written out."""
    if value is None or (isinstance(value, str | int | float) and not isinstance(value, bool)):
        return value
    return str(value)
