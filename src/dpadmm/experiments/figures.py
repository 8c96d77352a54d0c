"""Figures as data, and their drawing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import ArrayLike

from dpadmm.errors import ParameterError
from dpadmm.experiments.statistics import mean_interval
from dpadmm.experiments.tables import Table

__all__ = ["Curve", "Panel", "draw", "figure_table"]

# A legend with more entries than this hides curves.
_MOST_INSIDE: Final = 6


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
        cls, label: str, x: Sequence[Any], values: ArrayLike, calibration: str = ""
    ) -> Curve:
        """The mean over the last axis, with its 95% interval where there are several runs."""
        rows = np.atleast_2d(np.asarray(values, dtype=np.float64))
        if rows.shape[1] < 2:
            return cls(label, tuple(x), tuple(rows[:, 0].tolist()), calibration=calibration)
        means = [mean_interval(row) for row in rows]
        return cls(
            label,
            tuple(x),
            tuple(mean.mean for mean in means),
            tuple(mean.low for mean in means),
            tuple(mean.high for mean in means),
            calibration,
        )


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
        """For a manifest and the report."""
        return asdict(self)


def figure_table(panels: Sequence[Panel]) -> Table:
    """Every point of a figure."""
    rows = []
    for panel in panels:
        for curve in panel.curves:
            lows, highs = (side or (None,) * len(curve.x) for side in (curve.low, curve.high))
            for point in zip(curve.x, curve.y, lows, highs, strict=True):
                rows.append((panel.title, curve.label, curve.calibration, *point))
    return Table.of(("panel", "curve", "calibration", "x", "y", "low", "high"), rows)


def draw(panels: Sequence[Panel], path: Path, heading: str) -> list[Path]:
    """Draw a figure as ``path.svg`` and ``path.png``."""
    try:
        import matplotlib
    except ImportError:
        raise ParameterError("figures need the extra 'plot': pip install 'dpadmm[plot]'.") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    # The same figure has the same bytes: no date, no random names inside.
    with pyplot.rc_context({"svg.hashsalt": "dpadmm", "font.size": 8}):
        columns = 2 if len(panels) == 4 else min(3, len(panels))
        lines = -(-len(panels) // columns)
        figure, grid = pyplot.subplots(
            lines,
            columns,
            figsize=(4.2 * columns, 3.3 * lines),
            squeeze=False,
            layout="constrained",
        )
        together = _share_a_legend(panels)
        colours: dict[str, Any] = {}
        for axes, panel in zip(grid.flat, panels, strict=False):
            _draw_panel(axes, panel, colours if together else {})
            if not together:
                axes.legend(fontsize=6)
        if together:
            widest = max(grid.flat[: len(panels)], key=lambda axes: len(axes.lines))
            lines, labels = widest.get_legend_handles_labels()
            figure.legend(lines, labels, fontsize=7, ncols=4, loc="outside lower center")
        for axes in grid.flat[len(panels) :]:
            axes.axis("off")
        figure.suptitle(heading)
        files = [path.with_suffix(".svg"), path.with_suffix(".png")]
        figure.savefig(files[0], metadata={"Date": None})
        figure.set_layout_engine("none")  # laid out once, for both files
        figure.savefig(files[1], dpi=130)
        pyplot.close(figure)
    return files


def _share_a_legend(panels: Sequence[Panel]) -> bool:
    """Whether panels show the same many curves, or some of them: then one legend is enough."""
    shown = [{(curve.label, curve.calibration) for curve in panel.curves} for panel in panels]
    widest = max(shown, key=len)
    return len(panels) > 1 and len(widest) > _MOST_INSIDE and all(each <= widest for each in shown)


def _draw_panel(axes: Any, panel: Panel, colours: dict[str, Any]) -> None:
    """Draw the curves of a panel in ``colours`` by label; a label without one gets the next."""
    words = any(isinstance(value, str) for curve in panel.curves for value in curve.x)
    for curve in panel.curves:
        style = "--" if curve.calibration == "published" else "-"
        marker = "o" if len(curve.x) <= 12 else None
        places = range(len(curve.x)) if words else curve.x
        # The two calibrations of one thing share a colour.
        (line,) = axes.plot(
            places,
            curve.y,
            style,
            marker=marker,
            markersize=3,
            label=f"{curve.label} ({curve.calibration})" if curve.calibration else curve.label,
            color=colours.setdefault(curve.label, f"C{len(colours) % 10}"),
        )
        if curve.low:
            axes.fill_between(places, curve.low, curve.high, alpha=0.15, color=line.get_color())
    if words:
        longest = max(panel.curves, key=lambda curve: len(curve.x))
        axes.set_xticks(range(len(longest.x)), longest.x, rotation=30)
    else:
        axes.set_xscale(panel.x_scale)
    axes.set_yscale(panel.y_scale)
    axes.set_title(panel.title)
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel(panel.y_label)
    axes.grid(alpha=0.3)
