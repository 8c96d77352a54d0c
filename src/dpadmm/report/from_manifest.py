"""The report of a folder that ``dpadmm compare`` or ``dpadmm reproduce`` wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field, ValidationError

from dpadmm.errors import ParameterError
from dpadmm.reading import FileRefusal, read_json
from dpadmm.report import texts
from dpadmm.report.document import Banner, Block, Code, Facts, Report, Section, Table, Words
from dpadmm.report.from_comparison import ComparisonManifest, comparison_report
from dpadmm.report.panels import (
    Meaning,
    Panel,
    Part,
    TableData,
    meaning_facts,
    meaning_tables,
    panel_block,
)

__all__ = ["MANIFEST", "folder_report"]

#: The name of the file in a folder.
MANIFEST: Final = "manifest.json"


class _Conclusion(Part):
    name: str
    claim: str
    criterion: str


class _Finding(Part):
    conclusion: str
    calibration: str
    verdict: str
    number: str


class _Setting(Part):
    value: Any
    source: str
    why: str = ""


class _Experiment(Part):
    kind: Literal["experiment"]
    dpadmm: str
    command: str
    citation: str
    part: str
    title: str
    stand_ins: tuple[str, ...] = ()
    settings: dict[str, _Setting]
    conclusions: tuple[_Conclusion, ...]
    findings: tuple[_Finding, ...]
    meaning: Meaning
    tables: dict[str, TableData] = Field(default_factory=dict)
    panels: tuple[Panel, ...] = ()
    remarks: tuple[str, ...] = ()


def folder_report(folder: Path) -> Report:
    """Read a folder's manifest and make its page."""
    path = folder / MANIFEST
    try:
        content = read_json(path)
        kind = content.get("kind") if isinstance(content, dict) else None
        if kind == "comparison":
            return comparison_report(ComparisonManifest.model_validate(content))
        return _of_experiment(_Experiment.model_validate(content))
    except FileRefusal as error:
        raise ParameterError(f"manifest must be readable JSON; got {path}: {error}.") from None
    except ValidationError as error:
        finding = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in finding["loc"]) or "the whole"
        raise ParameterError(
            f"{path} must be a manifest of dpadmm; at {place}: {finding['msg']}."
        ) from None


def _of_experiment(manifest: _Experiment) -> Report:
    banners = [Banner("danger", texts.SIMULATION, texts.COMPARISON_SIMULATED)]
    if manifest.stand_ins:
        banners.append(Banner("caution", texts.STAND_IN, "; ".join(manifest.stand_ins)))
    if any(finding.calibration == "published" for finding in manifest.findings):
        banners.append(Banner("caution", texts.PUBLISHED, texts.COMPARISON_PUBLISHED_WORDS))
    criteria = {each.name: each for each in manifest.conclusions}
    verdicts = Table(
        texts.VERDICTS,
        (texts.CONCLUSION, texts.CALIBRATION, texts.VERDICT, texts.NUMBER, texts.CRITERION),
        tuple(
            (
                criteria[each.conclusion].claim,
                each.calibration or texts.NO_NOISE,
                each.verdict,
                each.number,
                criteria[each.conclusion].criterion,
            )
            for each in manifest.findings
        ),
    )
    settings = Table(
        texts.SETTINGS,
        (texts.SETTING, texts.VALUE, texts.SOURCE, texts.WHY),
        tuple(
            (name, _text(each.value), each.source, each.why)
            for name, each in manifest.settings.items()
        ),
    )
    figures: list[Block] = [panel_block(panel) for panel in manifest.panels]
    tables: list[Block] = [
        Table(title, table.columns, table.rows) for title, table in manifest.tables.items()
    ]
    meaning = manifest.meaning
    remarks: list[Block] = [Words(text) for text in manifest.remarks]
    return Report(
        title=f"{manifest.part}: {manifest.title}",
        subtitle=texts.EXPERIMENT_SUBTITLE.format(version=manifest.dpadmm),
        banners=tuple(banners),
        answers=((texts.PAPER, manifest.citation), *_answers(manifest)),
        sections=tuple(
            section
            for section in (
                Section(texts.VERDICTS, (verdicts, *remarks)),
                Section(texts.MEANING, (Facts(meaning_facts(meaning)), *meaning_tables(meaning))),
                Section(texts.FIGURES, tuple(figures)),
                Section(texts.TABLES, tuple(tables)),
                Section(texts.SETTINGS, (settings,)),
                Section(texts.CONFIGURATION, (Code(texts.COMMAND, manifest.command),)),
            )
            if section.blocks
        ),
    )


def _answers(manifest: _Experiment) -> list[tuple[str, str]]:
    """How many conclusions stand, by calibration."""
    found: dict[str, list[str]] = {}
    for each in manifest.findings:
        found.setdefault(each.calibration or texts.NO_NOISE, []).append(each.verdict)
    return [
        (
            calibration,
            ", ".join(f"{verdicts.count(one)} {one}" for one in dict.fromkeys(verdicts)),
        )
        for calibration, verdicts in found.items()
    ]


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(_text(item) for item in value)
    return str(value)
