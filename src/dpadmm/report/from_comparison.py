"""The report of a comparison, from plain rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from dpadmm.errors import ParameterError
from dpadmm.report import texts
from dpadmm.report.configuration import configuration_text
from dpadmm.report.document import Banner, Block, Cell, Code, Report, Section, Table, Words
from dpadmm.report.plots import LinePlot, Series
from dpadmm.version import __version__

__all__ = ["COLUMNS", "comparison_report"]

#: The columns that a comparison must have; an epsilon is a number, or empty or "infinite" where
#: there is no noise.
COLUMNS: Final = (
    "algorithm",
    "calibration",
    "epsilon",
    "topology",
    "metric",
    "mean",
    "low",
    "high",
)

_MOST_SERIES = 12

Rows = Sequence[Mapping[str, Cell]]


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
        :data:`COLUMNS` and any others.
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
    plots = _curves(rows)
    blocks = (*_paragraphs(words), *plots)
    table = Table(texts.COMPARISON_TABLE, columns, body)
    single = len(plots) == 1
    curves = Section(texts.COMPARISON_CURVES, blocks, narrow=single)
    figures = Section(texts.COMPARISON_TABLE, (table,), narrow=single)
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


def _paragraphs(words: Sequence[str]) -> list[Block]:
    return [Words(text) for text in words]


def _again(command: str, config: Mapping[str, Any] | None) -> list[Section]:
    blocks: list[Block] = [Code(texts.COMMAND, command)] if command else []
    if config:
        blocks.append(Code(texts.CONFIGURATION_WORD, configuration_text(config)))
    return [Section(texts.CONFIGURATION, tuple(blocks))] if blocks else []
