"""Plots as SVG that follows the page's colours, light or dark.

The drawings are written here rather than by a plotting library: each is a few kilobytes, needs no
script, is sharp on paper, and takes its colours from the style sheet, so that dark mode and print
need no second drawing. A line is told from another by its dashes and marks as well as its colour.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Final

from dpadmm.report import texts
from dpadmm.report.document import cell_text
from dpadmm.report.markup import Html, cut, element
from dpadmm.report.pictures import draw_graph, draw_guesses
from dpadmm.report.plots import Bar, BarPlot, GraphPlot, GuessPlot, LinePlot, Plot, Series
from dpadmm.report.scales import Scale, scale_over

__all__ = ["FIGURE_STYLE", "draw", "standalone"]

#: The style of drawings, for the page and for a file of its own.
FIGURE_STYLE: Final = files("dpadmm.report").joinpath("figure.css").read_text(encoding="utf-8")

_WIDTH: Final = 420.0
_LEFT, _RIGHT, _BOTTOM = 58.0, 14.0, 42.0
_HEIGHT_OF_AXES: Final = 220.0
_STYLES: Final = 6
# A character of the labels is about this wide.
_CHARACTER: Final = 6.4
_MOST_MARKS: Final = 16
_LONGEST_LABEL: Final = 34


def draw(plot: Plot, name: str) -> Html:
    """The drawing; ``name`` is unique on its page and becomes part of its ids."""
    match plot:
        case LinePlot():
            content, height, width = *_lines(plot), _WIDTH
        case BarPlot():
            content, height, width = *_bars(plot), _WIDTH
        case GraphPlot():
            content, height, width = *draw_graph(plot), _WIDTH
        case GuessPlot():
            content, height, width = draw_guesses(plot)
    return element(
        "svg",
        element("title", plot.title, id=f"{name}-title"),
        element("desc", plot.description(), id=f"{name}-description"),
        element("rect", class_="ground", width=f"{width:g}", height=f"{height:g}"),
        *content,
        xmlns="http://www.w3.org/2000/svg",
        class_="drawing",
        viewBox=f"0 0 {width:g} {height:g}",
        role="img",
        aria_labelledby=f"{name}-title {name}-description",
    )


def standalone(drawing: Html) -> str:
    """A drawing with its style inside: a file that any program shows."""
    head, end, rest = drawing.partition(">")
    return f"{head}{end}<style>{FIGURE_STYLE}</style>{rest}"


def _label(x: float, y: float, text: str, class_: str = "label", anchor: str = "start") -> Html:
    return element("text", text, x=f"{x:g}", y=f"{y:g}", class_=class_, text_anchor=anchor)


def _line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Html:
    return element("line", x1=f"{x1:g}", y1=f"{y1:g}", x2=f"{x2:g}", y2=f"{y2:g}", class_=class_)


def _legend(lines: Sequence[Series]) -> tuple[list[Html], float]:
    """Names with a piece of their line, in as many rows as they need."""
    drawn: list[Html] = []
    x, y = _LEFT, 16.0
    for place, line in enumerate(lines):
        name = cut(line.name, _LONGEST_LABEL)
        needed = 34 + _CHARACTER * len(name) + 14
        if x > _LEFT and x + needed > _WIDTH - _RIGHT:
            x, y = _LEFT, y + 18
        drawn.append(_line(x, y - 4, x + 26, y - 4, f"series {_style(place)}"))
        drawn.append(_mark(x + 13, y - 4, place))
        drawn.append(_label(x + 32, y, name))
        x += needed
    return drawn, y + 10


def _style(place: int) -> str:
    """Colour and dashes by the place of a line; beyond the sixth they come again, thinner."""
    return f"s{place % _STYLES}" + (" again" if place >= _STYLES else "")


def _mark(x: float, y: float, place: int, hint: str | None = None) -> Html:
    """A mark whose shape tells its series."""
    title = None if hint is None else element("title", hint)
    class_ = f"mark {_style(place)}"
    if place % 3 == 0:
        return element("circle", title, cx=f"{x:g}", cy=f"{y:g}", r="3.4", class_=class_)
    if place % 3 == 1:
        return element(
            "rect", title, x=f"{x - 3:g}", y=f"{y - 3:g}", width="6", height="6", class_=class_
        )
    shape = f"{x:g},{y - 4:g} {x + 4:g},{y + 3:g} {x - 4:g},{y + 3:g}"
    return element("polygon", title, points=shape, class_=class_)


def _lines(plot: LinePlot) -> tuple[list[Html], float]:
    many = len(plot.series) > 1
    drawn, top = _legend(plot.series) if many else ([], 8.0)
    top += 14  # for the label of the vertical axis
    bottom = top + _HEIGHT_OF_AXES - _BOTTOM
    across = scale_over(
        (value for line in plot.series for value in line.x), _LEFT, _WIDTH - _RIGHT, log=plot.log_x
    )
    heights = [v for line in plot.series for v in (*line.y, *line.low, *line.high)]
    heights += [level for _, level in plot.limits]
    up = scale_over(heights, bottom, top, log=plot.log_y, from_zero=plot.from_zero)
    drawn += _axes(plot, across, up, top, bottom)
    for name, level in plot.limits:
        if up.shows(level):
            drawn.append(_line(_LEFT, up.at(level), _WIDTH - _RIGHT, up.at(level), "limit"))
            drawn.append(
                _label(_WIDTH - _RIGHT, up.at(level) - 5, cut(name, _LONGEST_LABEL), "label", "end")
            )
    for place, line in enumerate(plot.series):
        drawn += _curve(plot, line, place, across, up)
    return drawn, bottom + _BOTTOM


def _axes(plot: LinePlot, across: Scale, up: Scale, top: float, bottom: float) -> list[Html]:
    drawn = [_label(8, top - 8, plot.y_label, "label axis")]
    for value in up.ticks():
        y = up.at(value)
        drawn.append(_line(_LEFT, y, _WIDTH - _RIGHT, y, "grid"))
        drawn.append(_label(_LEFT - 6, y + 4, cell_text(float(value)), "tick", "end"))
    for value in across.ticks(6):
        x = across.at(value)
        drawn.append(_line(x, bottom, x, bottom + 4, "rule"))
        drawn.append(_label(x, bottom + 17, cell_text(float(value)), "tick", "middle"))
    drawn.append(_line(_LEFT, bottom, _WIDTH - _RIGHT, bottom, "rule"))
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    drawn.append(_label(middle, bottom + 35, plot.x_label, "label axis", "middle"))
    return drawn


def _curve(plot: LinePlot, line: Series, place: int, across: Scale, up: Scale) -> Iterable[Html]:
    if line.low:
        edges = [
            (x, low, high)
            for x, low, high in zip(line.x, line.low, line.high, strict=True)
            if across.shows(x) and up.shows(low) and up.shows(high)
        ]
        around = [(x, high) for x, _, high in edges] + [(x, low) for x, low, _ in edges[::-1]]
        if around:
            corners = " ".join(f"{across.at(x):g},{up.at(y):g}" for x, y in around)
            yield element("polygon", points=corners, class_=f"band {_style(place)}")
    points = [
        (x, y) for x, y in zip(line.x, line.y, strict=True) if across.shows(x) and up.shows(y)
    ]
    path = " ".join(f"{across.at(x):g},{up.at(y):g}" for x, y in points)
    yield element("polyline", points=path, class_=f"series {_style(place)}")
    if len(points) <= _MOST_MARKS:
        for x, y in points:
            hint = f"{line.name}: {plot.x_label} {cell_text(x)}, {plot.y_label} {cell_text(y)}"
            yield _mark(across.at(x), up.at(y), place, hint)


def _bars(plot: BarPlot) -> tuple[list[Html], float]:
    """One under the other, its name above each: long names have room on a phone, too."""
    start, end, row = 8.0, _WIDTH - 8, 38.0
    values = [
        v for bar in plot.bars for v in (bar.value, bar.of, bar.low, bar.high) if v is not None
    ]
    along = scale_over(values, start, end, from_zero=True)
    drawn = [_label(start, 16, plot.value_label, "label axis")]
    top = 26.0
    for place, bar in enumerate(plot.bars):
        drawn += _bar(plot, bar, along, top + place * row, start, end)
    bottom = top + row * len(plot.bars)
    if along.low < 0:
        drawn.append(_line(along.at(0.0), top, along.at(0.0), bottom - 6, "rule"))
    return drawn, bottom + 4


def _bar(plot: BarPlot, bar: Bar, along: Scale, top: float, start: float, end: float) -> list[Html]:
    marked = bar.name in plot.marked
    known = along.shows(bar.value)
    zero = along.at(0.0)
    tip = along.at(bar.value) if known else end
    value = cell_text(bar.value) if known else texts.UNBOUNDED
    if math.isnan(bar.value):
        value = texts.NONE
    if bar.of is not None:
        value = texts.PART_OF.format(part=value, whole=cell_text(bar.of))
    # The label keeps clear of a zero line in the middle.
    drawn = [
        _label(start, top + 13, cut(bar.name, 44)),
        _label(end, top + 13, value, "label", "end"),
    ]
    if bar.of is not None and along.shows(bar.of):
        drawn.append(_block(zero, along.at(bar.of), top + 18, "track"))
    class_ = "block s1" if marked else "block s0" if bar.value >= 0 else "block s3"
    if not math.isnan(bar.value):
        drawn.append(_block(zero, tip, top + 18, class_))
    if bar.low is not None and bar.high is not None:
        middle = top + 24
        drawn.append(_line(along.at(bar.low), middle, along.at(bar.high), middle, "whisker"))
        drawn += [
            _line(along.at(edge), middle - 4, along.at(edge), middle + 4, "whisker")
            for edge in (bar.low, bar.high)
        ]
    return drawn


def _block(first: float, second: float, top: float, class_: str) -> Html:
    left, wide = min(first, second), max(abs(second - first), 1.0)
    return element(
        "rect", x=f"{left:g}", y=f"{top:g}", width=f"{wide:g}", height="12", rx="2", class_=class_
    )
