"""The report of a folder that ``dpadmm compare`` or ``dpadmm reproduce`` wrote."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from dpadmm.errors import ParameterError
from dpadmm.report import texts
from dpadmm.report.document import Banner, Block, Cell, Code, Report, Section, Table, Words
from dpadmm.report.from_comparison import comparison_report
from dpadmm.report.plots import LinePlot, Series

__all__ = ["MANIFEST", "folder_report"]

#: The name of the file in a folder.
MANIFEST: Final = "manifest.json"


def _epsilon(value: Any) -> Any:
    return math.inf if value == "infinite" else value


class _Part(BaseModel):
    # Manifests of later versions of the package may carry more.
    model_config = ConfigDict(frozen=True, extra="ignore")


class _Curve(_Part):
    label: str
    x: tuple[float | str, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    calibration: str = ""


class _Panel(_Part):
    title: str
    x_label: str
    y_label: str
    curves: tuple[_Curve, ...]
    x_scale: str = "linear"
    y_scale: str = "linear"
    note: str = ""


class _Figure(_Part):
    mean: float | None
    low: float | None
    high: float | None


class _Line(_Part):
    who: str
    calibration: str
    topology: str
    epsilon: Annotated[float, BeforeValidator(_epsilon)]
    provable_epsilon: float | str
    refused: str | None
    figures: dict[str, _Figure]


class _Comparison(_Part):
    kind: Literal["comparison"]
    dpadmm: str
    command: str
    notice: str
    intervals: str
    data: dict[str, Any]
    privacy: dict[str, Any]
    lines: tuple[_Line, ...]


class _Conclusion(_Part):
    name: str
    claim: str
    criterion: str


class _Finding(_Part):
    conclusion: str
    calibration: str
    verdict: str
    number: str


class _TableData(_Part):
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


class _Setting(_Part):
    value: Any
    source: str
    why: str = ""


class _Experiment(_Part):
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
    tables: dict[str, _TableData] = Field(default_factory=dict)
    panels: tuple[_Panel, ...] = ()
    remarks: tuple[str, ...] = ()


def folder_report(folder: Path) -> Report:
    """Read a folder's manifest and make its page."""
    path = folder / MANIFEST
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        kind = content.get("kind") if isinstance(content, dict) else None
        if kind == "comparison":
            return _of_comparison(_Comparison.model_validate(content))
        return _of_experiment(_Experiment.model_validate(content))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ParameterError(f"manifest must be readable JSON; got {path}: {reason}.") from None
    except ValidationError as error:
        finding = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in finding["loc"]) or "the whole"
        raise ParameterError(
            f"{path} must be a manifest of dpadmm; at {place}: {finding['msg']}."
        ) from None


def _of_comparison(manifest: _Comparison) -> Report:
    rows: list[dict[str, Cell]] = [
        {
            "algorithm": line.who,
            "calibration": line.calibration,
            "epsilon": line.epsilon if math.isfinite(line.epsilon) else None,
            "topology": line.topology,
            "metric": name,
            "mean": figure.mean,
            "low": figure.low,
            "high": figure.high,
            texts.PROVABLE: line.provable_epsilon,
        }
        for line in manifest.lines
        for name, figure in line.figures.items()
    ]
    refused = [
        texts.REFUSED_LINE.format(name=line.who, reason=line.refused)
        for line in manifest.lines
        if line.refused
    ]
    covered = [f"{name}: {_text(value)}" for name, value in manifest.privacy.items()]
    return comparison_report(
        texts.COMPARISON_TITLE.format(data=manifest.data.get("dataset", "")),
        rows,
        words=(manifest.intervals, manifest.notice, "; ".join(covered), *dict.fromkeys(refused)),
        command=manifest.command,
        version=manifest.dpadmm,
    )


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
    figures: list[Block] = [_drawn(panel) for panel in manifest.panels]
    tables: list[Block] = [
        Table(title, table.columns, table.rows) for title, table in manifest.tables.items()
    ]
    remarks: list[Block] = [Words(text) for text in manifest.remarks]
    return Report(
        title=f"{manifest.part}: {manifest.title}",
        subtitle=texts.EXPERIMENT_SUBTITLE.format(version=manifest.dpadmm),
        banners=tuple(banners),
        answers=((texts.PAPER, manifest.citation), *_answers(manifest)),
        sections=tuple(
            Section(title, tuple(blocks))
            for title, blocks in (
                (texts.VERDICTS, [verdicts, *remarks]),
                (texts.FIGURES, figures),
                (texts.TABLES, tables),
                (texts.SETTINGS, [settings]),
                (texts.CONFIGURATION, [Code(texts.COMMAND, manifest.command)]),
            )
            if blocks
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


def _drawn(panel: _Panel) -> Block:
    """Lines over numbers; over words, a table."""
    numeric = all(not isinstance(value, str) for curve in panel.curves for value in curve.x)
    names = [_name(curve) for curve in panel.curves]
    if not numeric:
        rows = [
            (name, value, *point)
            for name, curve in zip(names, panel.curves, strict=True)
            for value, *point in zip(
                curve.x,
                curve.y,
                curve.low or (None,) * len(curve.x),
                curve.high or (None,) * len(curve.x),
                strict=True,
            )
        ]
        columns = (texts.SERIES, panel.x_label, panel.y_label, texts.LOW, texts.HIGH)
        return Table(panel.title, columns, tuple(rows), panel.note)
    return LinePlot(
        panel.title,
        panel.x_label,
        panel.y_label,
        tuple(
            Series(name, tuple(float(x) for x in curve.x), curve.y, curve.low, curve.high)
            for name, curve in zip(names, panel.curves, strict=True)
        ),
        caption=panel.note,
        log_x=panel.x_scale == "log",
        log_y=panel.y_scale == "log",
    )


def _name(curve: _Curve) -> str:
    return f"{curve.label} ({curve.calibration})" if curve.calibration else curve.label


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(_text(item) for item in value)
    return str(value)
