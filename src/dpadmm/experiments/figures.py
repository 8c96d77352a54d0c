"""Figures as data, and their drawing."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from dpadmm.durable import write_whole
from dpadmm.experiments.measures import mean_interval
from dpadmm.report.document import LinePlot, Series, Table
from dpadmm.report.svg import figure


@dataclass(frozen=True)
class Curve:
    """Points, perhaps with a band from low to high.

    Attributes
    ----------
    label
        For the legend.
    x, y
        The points; x may be words, for bars.
    low, high
        The band, or nothing.
    calibration
        "proven", "published" or "" where there is no noise; published curves are dashed.
    """

    label: str
    x: tuple[Any, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    calibration: str = ""

    @classmethod
    def of_runs(
        cls, label: str, x: Sequence[Any], values: Iterable[ArrayLike], calibration: str = ""
    ) -> Curve:
        """The mean of every point's runs, with its interval where there are several.

        Points may have different numbers of runs: a second look adds some where they are needed.
        """
        rows = [np.atleast_1d(np.asarray(row, dtype=np.float64)) for row in values]
        means = [mean_interval(row) for row in rows]
        points = (label, tuple(x), tuple(mean.mean for mean in means))
        if any(len(row) < 2 for row in rows):
            return cls(*points, calibration=calibration)
        lows, highs = (tuple(mean[side] for mean in means) for side in (1, 2))
        return cls(*points, lows, highs, calibration)

    @classmethod
    def ranged(
        cls,
        label: str,
        x: Sequence[Any],
        values: ArrayLike,
        calibration: str = "",
        *,
        group: int = 10,
    ) -> Curve:
        """The mean over the last axis with the range over runs, as papers draw it.

        Of more runs than a ``group``: the mean lower and upper end of the groups.
        """
        rows = np.atleast_2d(np.asarray(values, dtype=np.float64))
        means = tuple(rows.mean(axis=1).tolist())
        if rows.shape[1] < 2:
            return cls(label, tuple(x), means, calibration=calibration)
        size = min(group, rows.shape[1])
        count = rows.shape[1] // size
        groups = rows[:, : count * size].reshape(len(rows), count, size)
        low, high = groups.min(axis=2).mean(axis=1), groups.max(axis=2).mean(axis=1)
        return cls(label, tuple(x), means, tuple(low.tolist()), tuple(high.tolist()), calibration)


@dataclass(frozen=True)
class Panel:
    """One pair of axes."""

    title: str
    x_label: str
    y_label: str
    curves: tuple[Curve, ...]
    x_scale: Literal["linear", "log"] = "linear"
    y_scale: Literal["linear", "log"] = "linear"
    note: str = ""

    def plain(self) -> dict[str, Any]:
        """For a manifest."""
        return asdict(self)

    def plot(self, colours: Mapping[str, int] | None = None) -> LinePlot:
        """For a drawing: the two calibrations of one thing share a colour, published is dashed.

        ``colours`` are those of :func:`colours_of` all panels of a figure.
        """
        words = self.words()
        of_label = colours_of([self]) if colours is None else colours
        both = {"published", "proven"} <= {curve.calibration for curve in self.curves}
        return LinePlot(
            self.title,
            self.x_label,
            self.y_label,
            tuple(
                Series(
                    self._name(curve),
                    tuple(float(words.index(str(x)) if words else x) for x in curve.x),
                    curve.y,
                    curve.low,
                    curve.high,
                    colour=of_label[curve.label],
                    dashed=curve.calibration == "published",
                    legend=curve.label if both else "",
                )
                for curve in self.curves
            ),
            caption=self.note,
            log_x=self.x_scale == "log" and not words,
            log_y=self.y_scale == "log",
            ticks=words,
            dashes="dashed: published" if both else "",
        )

    def _name(self, curve: Curve) -> str:
        """For the legend: with the calibration, unless all share it and the title says it."""
        kinds = {each.calibration for each in self.curves} - {""}
        told = kinds <= {curve.calibration} and curve.calibration in self.title.lower()
        if told or not curve.calibration:
            return curve.label
        return f"{curve.label} ({curve.calibration})"

    def words(self) -> tuple[str, ...]:
        """The words along x, in the order of their first place; none where x is numbers."""
        values = dict.fromkeys(value for curve in self.curves for value in curve.x)
        return tuple(map(str, values)) if any(isinstance(x, str) for x in values) else ()


def colours_of(panels: Sequence[Panel]) -> dict[str, int]:
    """One colour for each label in all panels, and different ones for labels that meet in one.

    Labels get, in the order of their first place, the first colour that is free wherever they are.
    """
    inside = [{curve.label for curve in panel.curves} for panel in panels]
    found: dict[str, int] = {}
    for label in dict.fromkeys(curve.label for panel in panels for curve in panel.curves):
        beside = set().union(*(labels for labels in inside if label in labels))
        taken = {found[other] for other in beside if other in found}
        found[label] = next(colour for colour in range(len(taken) + 1) if colour not in taken)
    return found


def figure_table(panels: Sequence[Panel]) -> Table:
    """Every point of a figure, to eight digits: more than any mean over runs is good for."""
    rows = []
    for panel in panels:
        for curve in panel.curves:
            lows, highs = (side or (None,) * len(curve.x) for side in (curve.low, curve.high))
            for x, *heights in zip(curve.x, curve.y, lows, highs, strict=True):
                short = [None if each is None else float(f"{each:.8g}") for each in heights]
                rows.append((panel.title, curve.label, curve.calibration, x, *short))
    return Table.of(("panel", "curve", "calibration", "x", "y", "low", "high"), rows)


def table_arrays(table: Table) -> dict[str, Any]:
    """A table's columns as arrays: of numbers where all are, empty ones NaN; otherwise of text."""
    arrays: dict[str, Any] = {}
    for name, cells in zip(table.columns, zip(*table.rows, strict=True), strict=True):
        if all(cell is None or isinstance(cell, int | float) for cell in cells):
            arrays[name] = np.array([np.nan if cell is None else float(cell) for cell in cells])
        else:
            arrays[name] = np.array(["" if cell is None else str(cell) for cell in cells])
    return arrays


def write_table(table: Table, path: Path) -> None:
    """Write ``path.csv``, for any program, and ``path.npz``, for :func:`numpy.load`."""
    write_whole(path.with_suffix(".csv"), table.csv().encode(), "table")
    file = io.BytesIO()
    np.savez_compressed(file, **table_arrays(table))
    write_whole(path.with_suffix(".npz"), file.getvalue(), "table")


def write_figure(panels: Sequence[Panel], path: Path, heading: str) -> None:
    """Draw all panels into one SVG file."""
    colours = colours_of(panels)
    drawn = figure([panel.plot(colours) for panel in panels], heading)
    write_whole(path, drawn.encode(), "figure")
