"""Plots as SVG that follows the page's colours, light or dark; and the elements of all markup.

Names of parties and columns come from others. Nothing but :func:`element` makes an :class:`Html`:
a plain string is text wherever it stands, and is escaped.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from html import escape
from importlib.resources import files
from typing import Final, TypeAlias

from dpadmm.problem.site import SERVER, Topology
from dpadmm.report.document import (
    Bar,
    BarPlot,
    GraphPlot,
    GuessPlot,
    LinePlot,
    Plot,
    Series,
    WaitPlot,
    cell_text,
    cut,
    plain,
)

# Elements of HTML that have no end tag.
_VOID: Final = frozenset({"meta", "link", "br"})


class Html(str):
    """Text that is markup."""

    __slots__ = ()


Child: TypeAlias = str | None
Attribute: TypeAlias = str | int | float | bool | None


def element(name: str, /, *children: Child, **attributes: Attribute) -> Html:
    """``<name attributes>children</name>``; strings are escaped unless they are markup.

    An underscore in an attribute's name stands for a hyphen, one at its end is dropped; None and
    False leave an attribute out.
    """
    parts = [f"<{name}"]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        key = key.rstrip("_").replace("_", "-")
        parts.append(f" {key}" if value is True else f' {key}="{escape(plain(str(value)))}"')
    parts.append(">")
    if name not in _VOID:
        parts += [_safe(child) for child in children if child is not None]
        parts.append(f"</{name}>")
    return Html("".join(parts))


def _safe(child: str) -> str:
    return child if isinstance(child, Html) else escape(plain(child))


# Beyond these, sums and ratios leave the range of doubles; nothing that is plotted is there.
_SMALLEST: Final = 1e-280
_LARGEST: Final = 1e280


@dataclass(frozen=True)
class Scale:
    """Maps [low, high] to [start, end], linearly or by logarithms."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def shows(self, value: float) -> bool:
        """Whether a value has a place."""
        return _usable(value, self.log)

    def at(self, value: float) -> float:
        """The place of a value, two digits after the point."""
        low, high, value = (
            (math.log10(self.low), math.log10(self.high), math.log10(value))
            if self.log
            else (self.low, self.high, value)
        )
        return round(self.start + (self.end - self.start) * (value - low) / (high - low), 2)

    def ticks(self, wanted: int = 5) -> tuple[float, ...]:
        """Round values between low and high."""
        if not self.log:
            return _linear_ticks(self.low, self.high, wanted)
        first, last = math.ceil(math.log10(self.low) - 1e-9), math.log10(self.high) + 1e-9
        decades = [float(f"1e{power}") for power in range(first, math.floor(last) + 1)]
        if len(decades) > wanted:
            return tuple(decades[:: math.ceil(len(decades) / wanted)])
        if len(decades) >= 3:
            return tuple(decades)
        between = (
            factor * 10.0**power
            for power in range(first - 1, math.floor(last) + 1)
            for factor in (1, 2, 5)
        )
        found = tuple(value for value in between if self.low <= value * (1 + 1e-9) <= self.high)
        return found if len(found) >= 2 else _linear_ticks(self.low, self.high, wanted)


def _linear_ticks(low: float, high: float, wanted: int) -> tuple[float, ...]:
    rough = (high - low) / wanted
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return tuple(
        round(place * step, 12) if step > 1e-9 else place * step for place in range(first, last + 1)
    )


def _usable(value: float, log: bool) -> bool:
    return abs(value) < _LARGEST and (value > _SMALLEST or not log)


def scale_over(
    values: Iterable[float], start: float, end: float, *, log: bool = False, from_zero: bool = False
) -> Scale:
    """Return a scale that shows all these values with a little room; any scale without values."""
    usable = [value for value in values if _usable(value, log)]
    if not usable:
        usable = [0.1, 1.0] if log else [0.0, 1.0]
    low, high = min(usable), max(usable)
    if log:
        if high < low * 1.2:
            low, high = low / 2, high * 2
        return Scale(low / 1.08, high * 1.08, start, end, log=True)
    if from_zero:
        low, high = min(low, 0.0), max(high, 0.0)
    size = max(abs(low), abs(high))
    if size < _SMALLEST:
        low, high = -1.0, 1.0
    elif high - low <= 1e-9 * size:
        low, high = low - 0.5 * size, high + 0.5 * size
    room = 0.05 * (high - low)
    return Scale(
        low if from_zero and low == 0 else low - room,
        high if from_zero and high == 0 else high + room,
        start,
        end,
    )


#: Larger graphs are described in words: drawn, nobody could read them, and the page stays small.
MOST_PARTIES: Final = 150
MOST_LINKS: Final = 1500
_PICTURE_WIDTH: Final = 420.0
_PICTURE_HEIGHT: Final = 280.0

_MIDDLE: Final = (_PICTURE_WIDTH / 2, _PICTURE_HEIGHT / 2 - 10)

# More parties than this have small circles, and their names outside of them.
_FEW: Final = 8
# With more parties than this the names would cover each other; the table has them.
_MOST_NAMES: Final = 24
_SERVER: Final = -1


def draw_graph(plot: GraphPlot) -> tuple[list[Html], float]:
    """Parties as circles whose area follows their rows, links as lines."""
    topology = Topology(SERVER if plot.server else "edges", len(plot.names), tuple(plot.edges))
    places = _places(topology)
    links = [*plot.edges, *((place, _SERVER) for place in places if plot.server and place >= 0)]
    drawn = [_line(*places[a], *places[b], "link") for a, b in links]
    if plot.server:
        drawn += _server(*places[_SERVER])
    most, count = max(plot.rows, default=1), len(plot.names)
    small, large = (9.0, 20.0) if count <= _FEW else (5.0, 9.0) if count <= _MOST_NAMES else (3, 7)
    for place, (name, rows) in enumerate(zip(plot.names, plot.rows, strict=True)):
        x, y = places[place]
        radius = max(small, large * math.sqrt(rows / most))
        hint = element("title", f"{name}: {rows:,} rows")
        class_ = "party marked" if name in plot.marked else "party"
        drawn.append(
            element("circle", hint, cx=f"{x:g}", cy=f"{y:g}", r=f"{radius:.3g}", class_=class_)
        )
        if count <= _FEW:
            drawn.append(_label(x, y + radius + 14, cut(name, 18), "label halo", "middle"))
        elif count <= _MOST_NAMES:
            drawn.append(_label_outside(x, y, radius, cut(name, 10)))
    return drawn, _PICTURE_HEIGHT


def _label_outside(x: float, y: float, radius: float, name: str) -> Html:
    """A name on the side of its circle that is away from the middle, where others have theirs."""
    right, down = x - _MIDDLE[0], y - _MIDDLE[1]
    far = (radius + 7) / (math.hypot(right, down) or 1.0)
    side = "middle" if abs(right) < 0.2 * abs(down) else "start" if right > 0 else "end"
    return _label(round(x + far * right, 1), round(y + far * down + 4, 1), name, "label halo", side)


def draw_waits(plot: WaitPlot) -> tuple[list[Html], float]:
    """Nodes as circles, links as lines, an arrow from who waits to whom it waits for."""
    count = len(plot.names)
    parties = [place for place in range(count) if place != plot.server]
    if plot.server is None:
        places = _places(Topology("edges", count, plot.edges))
    else:
        around = _places(Topology(SERVER, len(parties), ()))
        places = {party: around[place] for place, party in enumerate(parties)}
        places[plot.server] = around[_SERVER]
    named = count <= _MOST_NAMES
    radius = 11.0 if named else 5.0
    drawn = [_line(*places[a], *places[b], "link") for a, b in plot.edges]
    drawn += [
        part for a, b in plot.waits for part in _arrow(*places[a], *places[b], radius) if a != b
    ]
    for place, (name, words) in enumerate(zip(plot.names, plot.words, strict=True)):
        x, y = places[place]
        hint = element("title", f"{cut(name, 60)}: {words}")
        class_ = f"party {plot.kinds[place]}"
        drawn.append(element("circle", hint, cx=f"{x:g}", cy=f"{y:g}", r=radius, class_=class_))
        if named:
            drawn.append(_label(x, y + radius + 14, cut(name, 18), "label halo", "middle"))
            drawn.append(_label(x, y + radius + 27, cut(words, 22), "tick halo", "middle"))
    return drawn, _PICTURE_HEIGHT


def _arrow(x1: float, y1: float, x2: float, y2: float, radius: float) -> list[Html]:
    """From circle to circle, beside the middle: two may wait for each other."""
    length = math.hypot(x2 - x1, y2 - y1) or 1.0
    along, across = (x2 - x1) / length, (y2 - y1) / length

    def at(way: float, aside: float) -> tuple[float, float]:
        return (
            round(x1 + way * along - aside * across, 1),
            round(y1 + way * across + aside * along, 1),
        )

    end, side = max(length - radius - 3, radius + 12), radius / 2
    tip, left, right = at(end, side), at(end - 11, side - 6), at(end - 11, side + 6)
    points = " ".join(f"{x:g},{y:g}" for x, y in (tip, left, right))
    line = _line(*at(radius, side), *at(end - 9, side), "waits")
    return [line, element("polygon", points=points, class_="arrow")]


@lru_cache(maxsize=16)
def _places(topology: Topology) -> dict[int, tuple[float, float]]:
    """Where everybody stands: the same for the same graph."""
    count, edges = topology.parties, topology.edges
    if topology.server or len(edges) == count * (count - 1) // 2:
        found = _circle(list(range(count))) | ({_SERVER: (0.0, 0.0)} if topology.server else {})
    elif all(degree == 2 for degree in topology.degrees) and len(topology.components) == 1:
        found = _circle(_around(topology))
    else:
        import networkx as nx

        laid = nx.kamada_kawai_layout(topology.graph)
        found = {node: (float(place[0]), float(place[1])) for node, place in laid.items()}
    middle_x, reach_x = _middle_and_reach([x for x, _ in found.values()])
    middle_y, reach_y = _middle_and_reach([y for _, y in found.values()])
    # Room at the sides for names, and below for the name of the lowest party.
    wide, high = _PICTURE_WIDTH / 2 - 70, _PICTURE_HEIGHT / 2 - 36
    flat = reach_y < 0.05 * reach_x
    return {
        node: (
            round(_MIDDLE[0] + wide * (x - middle_x) / reach_x, 1),
            round(_MIDDLE[1] + (0.0 if flat else high * (y - middle_y) / reach_y), 1),
        )
        for node, (x, y) in found.items()
    }


def _middle_and_reach(values: list[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    return (low + high) / 2, (high - low) / 2 or 1.0


def _around(topology: Topology) -> list[int]:
    """The parties of a ring, in the order of their links."""
    order = [0]
    while len(order) < topology.parties:
        order.append(next(x for x in topology.neighbours(order[-1]) if x not in order))
    return order


def _circle(nodes: list[int]) -> dict[int, tuple[float, float]]:
    """On a circle, the first on top."""
    turns = [2 * math.pi * place / len(nodes) for place in range(len(nodes))]
    return {
        node: (math.sin(turn), -math.cos(turn)) for node, turn in zip(nodes, turns, strict=True)
    }


def _server(x: float, y: float) -> list[Html]:
    box = element(
        "rect", x=f"{x - 14:g}", y=f"{y - 14:g}", width="28", height="28", rx="4", class_="server"
    )
    return [box, _label(x, y + 29, "server", "label halo", "middle")]


def draw_guesses(plot: GuessPlot) -> tuple[list[Html], float, float]:
    """Twenty columns of five: right by chance, right by the messages at most, wrong."""
    step, radius, left, top = 18.0, 6.5, 14.0, 16.0
    drawn = []
    for guess in range(100):
        column, row = divmod(guess, 5)
        kind = "chance" if guess < 50 else "gained" if guess < plot.of_hundred else "wrong"
        x, y = left + column * step, top + row * step
        drawn.append(
            element("circle", cx=f"{x:g}", cy=f"{y:g}", r=f"{radius:g}", class_=f"guess {kind}")
        )
    bottom = top + 4 * step + 26
    gained = plot.of_hundred - 50
    keys = (
        ("chance", "50 right by chance"),
        ("gained", f"{gained} more by {plot.seen}, at most"),
        ("wrong", f"{100 - plot.of_hundred} wrong all the same"),
    )
    for place, (kind, words) in enumerate(keys):
        y = bottom + 19 * place
        drawn.append(
            element("circle", cx=f"{left:g}", cy=f"{y - 4:g}", r="5.5", class_=f"guess {kind}")
        )
        drawn.append(element("text", words, x=f"{left + 14:g}", y=f"{y:g}", class_="label key"))
    return drawn, bottom + 19 * len(keys) - 8, left * 2 + 19 * step


#: The style of drawings, for the page and for a file of its own.
FIGURE_STYLE: Final = files("dpadmm.report").joinpath("figure.css").read_text(encoding="utf-8")
_WIDTH: Final = 420.0
_LEFT, _RIGHT, _BOTTOM = 58.0, 14.0, 42.0
_HEIGHT_OF_AXES: Final = 220.0
_STYLES: Final = 6

# A character of the labels is about this wide.
_CHARACTER: Final = 7.0
_MOST_MARKS: Final = 16
_LONGEST_LABEL: Final = 46
_LABEL_HEIGHT: Final = 13.0
# What names at the ends of lines need.
_BESIDE: Final = 250.0
_LONGEST_TICK: Final = 10

# Of a figure with several plots: the width between them, and the height of a line of its heading.
_GAP: Final = 24.0
_HEADING_LINE: Final = 20.0
_HEADING_CHARACTERS: Final = 60


def draw(plot: Plot, name: str) -> Html:
    """The drawing; ``name`` is unique on its page and becomes part of its ids."""
    labelled = f"{name}-title {name}-description"
    return _framed(*_placed(plot, name), class_="drawing", aria_labelledby=labelled)


def _placed(plot: Plot, name: str) -> tuple[list[Html], float, float]:
    """What a plot's drawing holds, its width and its height."""
    match plot:
        case LinePlot():
            content, height = _lines(plot)
            width = _WIDTH + (_BESIDE if plot.beside else 0.0)
        case BarPlot():
            content, height, width = *_bars(plot), _WIDTH
        case GraphPlot():
            content, height, width = *draw_graph(plot), _WIDTH
        case WaitPlot():
            content, height, width = *draw_waits(plot), _WIDTH
        case GuessPlot():
            content, height, width = draw_guesses(plot)
    described = [
        element("title", plot.title, id=f"{name}-title"),
        element("desc", plot.description(), id=f"{name}-description"),
        _ground(width, height),
    ]
    return [*described, *content], width, height


def _ground(width: float, height: float) -> Html:
    return element("rect", class_="ground", width=f"{width:g}", height=f"{height:g}")


def _framed(content: Sequence[Html], width: float, height: float, **attributes: str) -> Html:
    """An ``svg`` element; one inside another has its place and size."""
    inside = "x" in attributes
    size = {"width": f"{width:g}", "height": f"{height:g}"} if inside else {}
    space = None if inside else "http://www.w3.org/2000/svg"
    box = f"0 0 {width:g} {height:g}"
    return element("svg", *content, xmlns=space, viewBox=box, role="img", **size, **attributes)


def figure(plots: Sequence[Plot], heading: str) -> str:
    """Several plots under one heading, up to three beside each other: a file of its own."""
    columns = 2 if len(plots) == 4 else min(3, len(plots))
    width = columns * (_WIDTH + _GAP) + _GAP
    drawn: list[Html] = []
    top = _GAP
    for line in textwrap.wrap(heading, _HEADING_CHARACTERS * columns):
        drawn.append(_label(width / 2, top, line, "label axis", "middle"))
        top += _HEADING_LINE
    for start in range(0, len(plots), columns):
        lowest = top
        for place, plot in enumerate(plots[start : start + columns]):
            left = _GAP + place * (_WIDTH + _GAP)
            drawn.append(_label(left, top + 12, cut(plot.title, 64), "label axis"))
            content, size, height = _placed(plot, f"plot-{start + place + 1}")
            where = {"x": f"{left:g}", "y": f"{top + _GAP:g}"}
            drawn.append(_framed(content, size, height, **where))
            lowest = max(lowest, top + _GAP + height)
        top = lowest + _GAP
    return standalone(_framed([_ground(width, top), *drawn], width, top, class_="drawing"))


def standalone(drawing: Html) -> str:
    """A drawing with its style inside: a file that any program shows."""
    head, end, rest = drawing.partition(">")
    return f"{head}{end}<style>{FIGURE_STYLE}</style>{rest}"


def _label(x: float, y: float, text: str, class_: str = "label", anchor: str = "start") -> Html:
    return element("text", text, x=f"{x:g}", y=f"{y:g}", class_=class_, text_anchor=anchor)


def _line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Html:
    return element("line", x1=f"{x1:g}", y1=f"{y1:g}", x2=f"{x2:g}", y2=f"{y2:g}", class_=class_)


def _legend(plot: LinePlot) -> tuple[list[Html], float]:
    """Names with a piece of their line, in as many rows as they need."""
    drawn: list[Html] = []
    x, y = _LEFT, 16.0
    entries: dict[str, tuple[int, Series]] = {}
    for place, line in enumerate(plot.series):
        name = line.legend or line.name
        if name not in entries or (entries[name][1].dashed and not line.dashed):
            entries[name] = (place, line)
    # By colour, so that what several plots show stands in one order.
    for whole, (place, line) in sorted(entries.items(), key=lambda each: _colour(*each[1][::-1])):
        name = cut(whole, _LONGEST_LABEL)
        needed = 34 + _CHARACTER * len(name) + 14
        if x > _LEFT and x + needed > _WIDTH - _RIGHT:
            x, y = _LEFT, y + 18
        drawn.append(_line(x, y - 4, x + 26, y - 4, f"series {_line_style(line, place)}"))
        drawn.append(_mark(x + 13, y - 4, _colour(line, place)))
        drawn.append(_label(x + 32, y, name))
        x += needed
    if plot.dashes:
        y += 18
        drawn.append(_label(_LEFT, y, plot.dashes))
    return drawn, y + 10


def _style(place: int) -> str:
    """Colour and dashes by the place of a line; beyond the sixth they come again, thinner."""
    return f"s{place % _STYLES}" + (" again" if place >= _STYLES else "")


def _colour(line: Series, place: int) -> int:
    return place if line.colour is None else line.colour


def _line_style(line: Series, place: int) -> str:
    style = _style(_colour(line, place))
    return style if line.dashed is None else f"{style} {'dashed' if line.dashed else 'solid'}"


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
    drawn, top = _legend(plot) if many and not plot.beside else ([], 8.0)
    top += 14  # for the label of the vertical axis
    bottom = top + _HEIGHT_OF_AXES - _BOTTOM
    across = scale_over(
        (value for line in plot.series for value in line.x), _LEFT, _WIDTH - _RIGHT, log=plot.log_x
    )
    heights = [v for line in plot.series for v in (*line.y, *line.low, *line.high)]
    heights += [level for _, level in plot.limits]
    up = scale_over(heights, bottom, top, log=plot.log_y, from_zero=plot.from_zero)
    drawn += _axes(plot, across, up, top, bottom)
    drawn += _limits(plot, up)
    for place, line in enumerate(plot.series):
        drawn += _curve(plot, line, place, across, up)
    if plot.beside:
        drawn += _names_beside(plot, up, bottom)
    return drawn, bottom + _BOTTOM


def _names_beside(plot: LinePlot, up: Scale, bottom: float) -> Iterable[Html]:
    """Each name at the end of its line, or as near as names above it leave room."""
    height, x = _LABEL_HEIGHT + 3, _WIDTH - _RIGHT + 8
    ends = sorted((up.at(line.y[-1]), place) for place, line in enumerate(plot.series))
    y = -math.inf
    for rank, (end, place) in enumerate(ends):
        line, left = plot.series[place], len(ends) - rank - 1
        y = max(y + height, min(end, bottom - height * left))
        style = f"series {_line_style(line, place)}"
        yield _line(x, y, x + 26, y, style)
        yield _mark(x + 13, y, _colour(line, place))
        yield _label(x + 32, y + 4, cut(line.name, _LONGEST_LABEL))


def _limits(plot: LinePlot, up: Scale) -> list[Html]:
    """Levels across the plot, each named above its line, or below where another name is near."""
    drawn, before = [], -math.inf
    shown = [(up.at(level), name) for name, level in plot.limits if up.shows(level)]
    for y, name in sorted(shown):
        foot = y - 5 if y - 5 - before >= _LABEL_HEIGHT else y + _LABEL_HEIGHT
        drawn.append(_line(_LEFT, y, _WIDTH - _RIGHT, y, "limit"))
        drawn.append(_label(_WIDTH - _RIGHT, foot, cut(name, _LONGEST_LABEL), "label", "end"))
        before = foot
    return drawn


def _axes(plot: LinePlot, across: Scale, up: Scale, top: float, bottom: float) -> list[Html]:
    drawn = [_label(8, top - 8, plot.y_label, "label axis")]
    for value in up.ticks():
        y = up.at(value)
        drawn.append(_line(_LEFT, y, _WIDTH - _RIGHT, y, "grid"))
        drawn.append(_label(_LEFT - 6, y + 4, cell_text(float(value)), "tick", "end"))
    named = [(float(place), cut(word, _LONGEST_TICK)) for place, word in enumerate(plot.ticks)]
    for value, word in named or [(value, cell_text(float(value))) for value in across.ticks(6)]:
        x = across.at(value)
        drawn.append(_line(x, bottom, x, bottom + 4, "rule"))
        drawn.append(_label(x, bottom + 17, word, "tick", "middle"))
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
            band = f"band {_style(_colour(line, place))}"
            yield element("polygon", points=corners, class_=band)
    points = [
        (x, y) for x, y in zip(line.x, line.y, strict=True) if across.shows(x) and up.shows(y)
    ]
    path = " ".join(f"{across.at(x):g},{up.at(y):g}" for x, y in points)
    yield element("polyline", points=path, class_=f"series {_line_style(line, place)}")
    if len(points) <= _MOST_MARKS:
        for x, y in points:
            hint = f"{line.name}: {plot.x_label} {cell_text(x)}, {plot.y_label} {cell_text(y)}"
            yield _mark(across.at(x), up.at(y), _colour(line, place), hint)


def _bars(plot: BarPlot) -> tuple[list[Html], float]:
    """One under the other, its name above each: long names have room on a phone, too."""
    start, end, row = 8.0, _WIDTH - 8, 38.0
    values = [
        v for bar in plot.bars for v in (bar.value, bar.of, bar.low, bar.high) if v is not None
    ]
    along = scale_over(values, start, end, from_zero=True)
    drawn = [_label(start, 16, plot.value_label, "label axis")]
    top = 26.0
    bottom = top + row * len(plot.bars)
    if along.low < 0:
        drawn.append(_line(along.at(0.0), top, along.at(0.0), bottom - 6, "rule"))
    for place, bar in enumerate(plot.bars):
        drawn += _bar(plot, bar, along, top + place * row, start, end)
    return drawn, bottom + 4


def _bar(plot: BarPlot, bar: Bar, along: Scale, top: float, start: float, end: float) -> list[Html]:
    marked = bar.name in plot.marked
    known = along.shows(bar.value)
    zero = along.at(0.0)
    tip = along.at(bar.value) if known else end
    value = cell_text(bar.value) if known else "no bound"
    if math.isnan(bar.value):
        value = "none"
    if bar.of is not None:
        value = f"{value} of {cell_text(bar.of)}"
    # Readable across a zero line in the middle.
    label = "label halo" if along.low < 0 else "label"
    drawn = [
        _label(start, top + 13, cut(bar.name, 44), label),
        _label(end, top + 13, value, label, "end"),
    ]
    if bar.of is not None and along.shows(bar.of):
        drawn.append(_block(zero, along.at(bar.of), top + 18, "track"))
    class_ = "block s1" if marked else "block s0" if bar.value >= 0 or plot.dots else "block s3"
    if bar.name in plot.faint:
        class_ = "block faint"
    if not (math.isnan(bar.value) or plot.dots):
        drawn.append(_block(zero, tip, top + 18, class_))
    if bar.low is not None and bar.high is not None:
        middle = top + 24
        drawn.append(_line(along.at(bar.low), middle, along.at(bar.high), middle, "whisker"))
        drawn += [
            _line(along.at(edge), middle - 4, along.at(edge), middle + 4, "whisker")
            for edge in (bar.low, bar.high)
        ]
    if known and plot.dots:
        drawn.append(element("circle", cx=f"{tip:g}", cy=f"{top + 24:g}", r="5", class_=class_))
    return drawn


def _block(first: float, second: float, top: float, class_: str) -> Html:
    left, wide = min(first, second), max(abs(second - first), 1.0)
    return element(
        "rect", x=f"{left:g}", y=f"{top:g}", width=f"{wide:g}", height="12", rx="2", class_=class_
    )
