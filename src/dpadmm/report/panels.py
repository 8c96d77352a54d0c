"""The panels of a manifest as plots."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeGuard

from dpadmm.report import texts
from dpadmm.report.manifests import Curve, Panel
from dpadmm.report.plots import Bar, BarPlot, LinePlot, Series

__all__ = ["panel_plot"]

Values = Sequence[float | None]


def panel_plot(panel: Panel) -> LinePlot | BarPlot:
    """Lines, or bars where the axis has words; published calibrations are named as such."""
    lines = [line for curve in panel.curves if (line := _line(curve)) is not None]
    if len(lines) < len(panel.curves):
        return BarPlot(panel.title, panel.x_label, panel.y_label, _bars(panel), panel.note)
    return LinePlot(
        panel.title,
        panel.x_label,
        panel.y_label,
        tuple(lines),
        caption=panel.note,
        log_x=panel.x_scale == "log",
        log_y=panel.y_scale == "log",
    )


def _name(curve: Curve) -> str:
    published = curve.calibration == "published"
    return texts.NAMED_PUBLISHED.format(name=curve.label) if published else curve.label


def _numbers(values: Values) -> tuple[float, ...]:
    return tuple(math.nan if value is None else value for value in values)


def _all_numbers(values: Sequence[float | str]) -> TypeGuard[Sequence[float]]:
    return not any(isinstance(value, str) for value in values)


def _line(curve: Curve) -> Series | None:
    if not _all_numbers(curve.x):
        return None
    low, high = _numbers(curve.low), _numbers(curve.high)
    return Series(_name(curve), tuple(curve.x), _numbers(curve.y), low, high)


def _bars(panel: Panel) -> tuple[Bar, ...]:
    bars = []
    for curve in panel.curves:
        nothing = (None,) * len(curve.x)
        band = zip(curve.low or nothing, curve.high or nothing, strict=True)
        for word, value, (low, high) in zip(curve.x, curve.y, band, strict=True):
            name = f"{_name(curve)}: {word}"
            bars.append(Bar(name, math.nan if value is None else value, low=low, high=high))
    return tuple(bars)
