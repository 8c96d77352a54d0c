"""The reports of a comparison and of an experiment, from their folders or from plain rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dpadmm.errors import ParameterError
from dpadmm.report import texts
from dpadmm.report.configuration import configuration_text
from dpadmm.report.document import Banner, Block, Cell, Code, Report, Section, Table, Words
from dpadmm.report.manifests import COLUMNS, Figure, Manifest, read_manifest, read_table
from dpadmm.report.plots import Bar, BarPlot, LinePlot, Series
from dpadmm.version import __version__

__all__ = ["comparison_report", "experiment_report", "folder_report"]

_MOST_SERIES = 12

Rows = Sequence[Mapping[str, Cell]]


def folder_report(folder: Path) -> Report:
    """The report of a folder with a manifest."""
    manifest = read_manifest(folder)
    if manifest.kind == "experiment":
        return experiment_report(manifest, folder)
    return comparison_report(
        manifest.title,
        read_table(folder, manifest.data, COLUMNS),
        words=manifest.words,
        command=manifest.command,
        config=manifest.config,
        simulated=manifest.simulated,
        banners=_banners(manifest),
        version=manifest.dpadmm,
    )


def comparison_report(
    title: str,
    rows: Rows,
    *,
    words: Sequence[str] = (),
    command: str = "",
    config: Mapping[str, Any] | None = None,
    simulated: bool = True,
    banners: Iterable[Banner] = (),
    version: str = "",
) -> Report:
    """Privacy-utility curves and the table of all figures.

    Parameters
    ----------
    title, words, command, config
        What it is, in words; how it was made.
    rows
        One per algorithm, calibration, epsilon, topology and metric, with the columns of
        :data:`~dpadmm.report.manifests.COLUMNS` and any others.
    simulated
        Whether its noise can be drawn again, as in every comparison on known rows.
    banners
        What nobody may overlook, beside what this finds itself.
    version
        Of the package that made it; this one unless given.
    """
    for place, row in enumerate(rows):
        if missing := [column for column in COLUMNS if column not in row]:
            raise ParameterError(
                f"row {place + 1} of a comparison must have {', '.join(COLUMNS)}; "
                f"{', '.join(missing)} missing."
            )
    columns = tuple(dict.fromkeys(column for row in rows for column in row))
    body = tuple(tuple(row.get(column) for column in columns) for row in rows)
    curves = Section(texts.COMPARISON_CURVES, (*_paragraphs(words), *_curves(rows)))
    figures = Section(texts.COMPARISON_TABLE, (Table(texts.COMPARISON_TABLE, columns, body),))
    found = [*_simulation(simulated), *banners]
    if any(row["calibration"] == "published" for row in rows):
        found.append(Banner("caution", texts.PUBLISHED, texts.COMPARISON_PUBLISHED_WORDS))
    return Report(
        title=title,
        subtitle=texts.COMPARISON_SUBTITLE.format(version=version or __version__),
        banners=tuple(found),
        answers=_best(rows),
        sections=(curves, figures, *_again(command, config)),
    )


def _curves(rows: Rows) -> list[LinePlot]:
    """One plot per metric and topology, one line per algorithm and calibration."""
    plots = []
    kinds = list(dict.fromkeys((str(row["metric"]), row["topology"]) for row in rows))
    topologies = {topology for _, topology in kinds}
    for metric, topology in kinds:
        chosen = [r for r in rows if str(r["metric"]) == metric and r["topology"] == topology]
        lines: dict[str, list[Mapping[str, Cell]]] = {}
        limits = []
        for row in chosen:
            if (value := _number(row["mean"])) is None:
                continue
            if _number(row["epsilon"]) is None:
                name = texts.COMPARISON_NO_NOISE.format(name=row["algorithm"])
                limits.append((name, value))
            else:
                lines.setdefault(_line_name(row), []).append(row)
        where = texts.COMPARISON_ON.format(topology=topology) if len(topologies) > 1 else ""
        plots.append(
            LinePlot(
                texts.COMPARISON_CURVE.format(metric=metric, where=where),
                texts.COMPARISON_EPSILON,
                metric,
                tuple(
                    _series(name, members, "epsilon", "mean", "low", "high")
                    for name, members in lines.items()
                ),
                caption=texts.COMPARISON_BAND,
                log_x=True,
                limits=tuple(limits),
            )
        )
    return [plot for plot in plots if plot.series]


def _line_name(row: Mapping[str, Cell]) -> str:
    name = str(row["algorithm"])
    published = row["calibration"] == "published"
    return texts.COMPARISON_PUBLISHED.format(name=name) if published else name


def _best(rows: Rows) -> tuple[tuple[str, str], ...]:
    """What each algorithm reaches, in one line per metric and epsilon."""
    found: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        mean = _number(row["mean"])
        if mean is None:
            continue
        epsilon = _number(row["epsilon"])
        head = texts.NO_NOISE if epsilon is None else texts.AT_EPSILON.format(epsilon=epsilon)
        key = (head, str(row["metric"]))
        found.setdefault(key, []).append(f"{_line_name(row)} {mean:.4g}")
    return tuple(
        (f"{metric}, {head}", ", ".join(words)) for (head, metric), words in found.items()
    )[:_MOST_SERIES]


def experiment_report(manifest: Manifest, folder: Path) -> Report:
    """The figures of an experiment, each drawn as its manifest says."""
    blocks = [_drawn(figure, folder) for figure in manifest.figures]
    return Report(
        title=manifest.title,
        subtitle=texts.EXPERIMENT_SUBTITLE.format(version=manifest.dpadmm or __version__),
        banners=(*_simulation(manifest.simulated), *_banners(manifest)),
        answers=tuple((texts.ALL_WORDS, words) for words in manifest.words),
        sections=(
            Section(texts.FIGURES, tuple(blocks)),
            *_again(manifest.command, manifest.config),
        ),
    )


def _drawn(figure: Figure, folder: Path) -> Block:
    used = (figure.x, figure.y, figure.series, figure.low, figure.high)
    if figure.kind != "table" and not (figure.x and figure.y):
        raise ParameterError(f"figure {figure.title!r} must name its columns x and y.")
    rows = read_table(folder, figure.data, tuple(name for name in used if name))
    if figure.kind == "table":
        columns = tuple(rows[0])
        body = tuple(tuple(row[column] for column in columns) for row in rows)
        return Table(figure.title, columns, body, figure.caption)
    if figure.kind == "bars":
        bars = tuple(
            Bar(
                str(row[figure.x]),
                _needed(row, figure.y),
                low=_number(row.get(figure.low)),
                high=_number(row.get(figure.high)),
            )
            for row in rows
        )
        return BarPlot(figure.title, figure.x, figure.y, bars, figure.caption)
    lines: dict[str, list[Mapping[str, Cell]]] = {}
    for row in rows:
        lines.setdefault(str(row[figure.series]) if figure.series else figure.y, []).append(row)
    return LinePlot(
        figure.title,
        figure.x,
        figure.y,
        tuple(
            _series(name, members, figure.x, figure.y, figure.low, figure.high)
            for name, members in list(lines.items())[:_MOST_SERIES]
        ),
        caption=figure.caption,
        log_x=figure.log_x,
        log_y=figure.log_y,
    )


def _series(name: str, rows: Rows, x: str, y: str, low: str, high: str) -> Series:
    ordered = sorted(rows, key=lambda row: _needed(row, x))
    banded = bool(low and high) and all(
        _number(row.get(edge)) is not None for row in rows for edge in (low, high)
    )
    return Series(
        name,
        tuple(_needed(row, x) for row in ordered),
        tuple(_needed(row, y) for row in ordered),
        tuple(_needed(row, low) for row in ordered) if banded else (),
        tuple(_needed(row, high) for row in ordered) if banded else (),
    )


def _number(cell: Cell) -> float | None:
    """The cell as a finite number, if it is one."""
    if isinstance(cell, str) or cell is None or not math.isfinite(cell):
        return None
    return float(cell)


def _needed(row: Mapping[str, Cell], column: str) -> float:
    number = _number(row[column])
    if number is None:
        raise ParameterError(f"column {column} must hold finite numbers; got {row[column]!r}.")
    return number


def _simulation(simulated: bool) -> list[Banner]:
    if not simulated:
        return []
    return [Banner("danger", texts.SIMULATION, texts.COMPARISON_SIMULATED)]


def _banners(manifest: Manifest) -> tuple[Banner, ...]:
    return tuple(Banner(each.tone, each.heading, each.text) for each in manifest.banners)


def _paragraphs(words: Sequence[str]) -> list[Block]:
    return [Words(text) for text in words]


def _again(command: str, config: Mapping[str, Any] | None) -> list[Section]:
    blocks: list[Block] = [Code(texts.COMMAND, command)] if command else []
    if config:
        blocks.append(Code(texts.CONFIGURATION_WORD, configuration_text(config)))
    return [Section(texts.CONFIGURATION, tuple(blocks))] if blocks else []
