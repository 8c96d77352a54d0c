"""The report of a comparison, from its manifest."""

from __future__ import annotations

import math
from typing import Any, Literal

from dpadmm.privacy.shown import AtMost, Given
from dpadmm.report import texts
from dpadmm.report.document import Banner, Cell, Code, Report, Section, Table
from dpadmm.report.markup import shown_name
from dpadmm.report.panels import Meaning, Panel, Part, meaning_facts, meaning_tables, panel_block
from dpadmm.report.records import Epsilon

__all__ = ["ComparisonManifest", "comparison_report"]

_MOST_NAMES = 12


class _Interval(Part):
    mean: float | None
    low: float | None
    high: float | None


class _Line(Part):
    who: str
    calibration: str
    topology: str
    epsilon: Epsilon
    provable_epsilon: float | str
    theorem: str | None
    mark: str
    refused: str | None
    figures: dict[str, _Interval]


class _Compared(Part):
    measured: tuple[str, ...]


class ComparisonManifest(Part):
    """What ``dpadmm compare`` found."""

    kind: Literal["comparison"]
    dpadmm: str
    command: str
    notice: str
    intervals: str
    data: dict[str, Any]
    stand_ins: tuple[str, ...] = ()
    comparison: _Compared
    lines: tuple[_Line, ...]
    meaning: Meaning
    panels: tuple[Panel, ...]


def comparison_report(manifest: ComparisonManifest) -> Report:
    """Privacy-utility curves, and the table of everything that was compared."""
    banners = [Banner("danger", texts.SIMULATION, manifest.notice)]
    if any(line.calibration == "published" for line in manifest.lines):
        banners.append(Banner("caution", texts.PUBLISHED, texts.COMPARISON_PUBLISHED_WORDS))
    if manifest.stand_ins:
        banners.append(Banner("caution", texts.STAND_IN, f"{'; '.join(manifest.stand_ins)}."))
    plots = tuple(panel_block(panel) for panel in manifest.panels)
    dataset = shown_name(str(manifest.data.get("dataset", texts.OWN_FILES)))
    return Report(
        title=texts.COMPARISON_TITLE.format(data=dataset),
        subtitle=texts.COMPARISON_SUBTITLE.format(version=manifest.dpadmm),
        banners=tuple(banners),
        answers=_answers(manifest, dataset),
        sections=(
            Section(texts.COMPARISON_CURVES, plots),
            Section(texts.COMPARISON_TABLE, (_table(manifest),)),
            Section(texts.MEANING, meaning_tables(manifest.meaning)),
            Section(texts.CONFIGURATION, (Code(texts.COMMAND, manifest.command),)),
        ),
    )


def _answers(manifest: ComparisonManifest, dataset: str) -> tuple[tuple[str, str], ...]:
    source = str(manifest.data.get("source", ""))
    who = list(dict.fromkeys(shown_name(line.who, 40) for line in manifest.lines))
    intervals = manifest.intervals[:1].upper() + manifest.intervals[1:]
    return (
        (texts.COMPARED, f"{', '.join(who)}."),
        (texts.COMPARED_ON, f"{dataset}: {source}" if source else dataset),
        *_best(manifest),
        (texts.INTERVALS, f"{intervals}."),
        *meaning_facts(manifest.meaning),
    )


def _best(manifest: ComparisonManifest) -> list[tuple[str, str]]:
    """What was reached at each budget, by the first measure."""
    if not manifest.comparison.measured:
        return []
    measure = manifest.comparison.measured[0]
    found: dict[float, list[str]] = {}
    for line in manifest.lines:
        figure = line.figures.get(measure)
        if figure is not None and figure.mean is not None:
            name = shown_name(line.who, 40)
            if line.calibration == "published":
                name = texts.COMPARISON_PUBLISHED.format(name=name)
            where = f" ({line.topology})" if line.topology else ""
            found.setdefault(line.epsilon, []).append(f"{name}{where} {figure.mean:.4g}")
    return [
        (
            f"{measure.capitalize()}, "
            + (
                texts.NO_NOISE
                if math.isinf(epsilon)
                else texts.AT_EPSILON.format(epsilon=Given(epsilon))
            ),
            ", ".join(words[:_MOST_NAMES]),
        )
        for epsilon, words in found.items()
    ]


def _table(manifest: ComparisonManifest) -> Table:
    measured = manifest.comparison.measured
    sides = [f"{name}{side}" for name in measured for side in texts.INTERVAL_SIDES]
    rows = []
    for line in manifest.lines:
        proven: Cell = line.provable_epsilon
        if isinstance(proven, float):
            proven = f"{AtMost(proven):4}"
        cells: list[Cell] = [line.who, line.topology, line.calibration]
        cells += [texts.NONE if math.isinf(line.epsilon) else Given(line.epsilon), proven]
        cells += [f"{line.mark} {line.theorem or ''}".strip()]
        for name in measured:
            figure = line.figures.get(name)
            cells += [None] * 3 if figure is None else [figure.mean, figure.low, figure.high]
        rows.append((*cells, line.refused))
    columns = (*texts.COMPARISON_COLUMNS, *sides, texts.REFUSED_COLUMN)
    return Table(texts.COMPARISON_TABLE, columns, tuple(rows))
