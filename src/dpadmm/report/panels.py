"""Parts that manifests share: panels as plots, and what their epsilons mean."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from dpadmm.report import texts
from dpadmm.report.document import Block, Cell, Table
from dpadmm.report.plots import LinePlot, Series

__all__ = [
    "Curve",
    "Meaning",
    "Panel",
    "Part",
    "TableData",
    "meaning_facts",
    "meaning_tables",
    "panel_block",
]


class Part(BaseModel):
    """A part of a manifest."""

    # Manifests of later versions of the package may carry more.
    model_config = ConfigDict(frozen=True, extra="ignore")


class Curve(Part):
    """Points, perhaps with a band; x may be words."""

    label: str
    x: tuple[float | str, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    calibration: str = ""


class Panel(Part):
    """One pair of axes."""

    title: str
    x_label: str
    y_label: str
    curves: tuple[Curve, ...]
    x_scale: str = "linear"
    y_scale: str = "linear"
    note: str = ""


class TableData(Part):
    """Columns and rows."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


class Meaning(Part):
    """What epsilons mean: pairs of a heading and its words, and tables by title."""

    facts: tuple[tuple[str, str], ...]
    tables: dict[str, TableData]


def meaning_facts(meaning: Meaning) -> tuple[tuple[str, str], ...]:
    """What all epsilons share, as sentences."""
    return tuple((heading, f"{words[:1].upper()}{words[1:]}.") for heading, words in meaning.facts)


def meaning_tables(meaning: Meaning) -> tuple[Table, ...]:
    """What the epsilons rest on, and what papers claim."""
    return tuple(Table(title, each.columns, each.rows) for title, each in meaning.tables.items())


def panel_block(panel: Panel) -> Block:
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


def _name(curve: Curve) -> str:
    return f"{curve.label} ({curve.calibration})" if curve.calibration else curve.label
