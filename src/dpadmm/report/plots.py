"""What is plotted: data and labels. :mod:`~dpadmm.report.svg` draws it.

Every plot carries its data as a table and a sentence for those who do not see it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeAlias

from dpadmm.privacy.figures import AtMost
from dpadmm.report import texts
from dpadmm.report.markup import shown_name
from dpadmm.report.tables import Cell, Table, cell_text


@dataclass(frozen=True)
class Series:
    """A line; ``low`` and ``high``, if given, are a band around it.

    Values that are not finite, and on a logarithmic scale those that are not positive, are left out
    of the drawing; the table has them. Lines differ in colour and dashes by their place in the
    plot; ``colour`` and ``dashed`` say it where both mean something.
    """

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    colour: int | None = None
    dashed: bool | None = None


@dataclass(frozen=True)
class LinePlot:
    """Lines over one axis; ``limits`` are named levels such as a budget, ``ticks`` words for x."""

    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    caption: str = ""
    log_x: bool = False
    log_y: bool = False
    from_zero: bool = False
    limits: tuple[tuple[str, float], ...] = ()
    ticks: tuple[str, ...] = ()

    def data(self) -> Table:
        """One row per point of the axis where the series share it, else one per point."""
        banded = any(line.low for line in self.series)
        shared = len({line.x for line in self.series}) == 1
        if shared and not banded:
            columns = (self.x_label, *(line.name for line in self.series))
            rows: list[tuple[Cell, ...]] = list(
                zip(self.series[0].x, *(line.y for line in self.series), strict=True)
            )
        else:
            bounds = (texts.LOW, texts.HIGH) if banded else ()
            columns = ("series", self.x_label, self.y_label, *bounds)
            rows = []
            for line in self.series:
                nothing = (None,) * len(line.x)
                band = (line.low or nothing, line.high or nothing) if banded else ()
                points = zip(line.x, line.y, *band, strict=True)
                rows += [(line.name, *point) for point in points]
        return Table(texts.DATA_OF.format(title=self.title), columns, tuple(rows))

    def description(self) -> str:
        """First and last value of every line."""
        parts = [
            f"{shown_name(line.name)}: {cell_text(line.y[0])} at {cell_text(line.x[0])}, "
            f"{cell_text(line.y[-1])} at {cell_text(line.x[-1])}."
            for line in self.series
            if line.x
        ]
        return f"{self.y_label}, {self.x_label}. " + " ".join(parts)


@dataclass(frozen=True)
class Bar:
    """A value with its name; ``of`` is a whole it is part of, ``low`` to ``high`` its interval."""

    name: str
    value: float
    of: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class BarPlot:
    """Bars under each other; ``marked`` are the names of those that stand out, ``faint`` do not."""

    title: str
    name_label: str
    value_label: str
    bars: tuple[Bar, ...]
    caption: str = ""
    of_label: str = ""
    marked: frozenset[str] = frozenset()
    faint: frozenset[str] = frozenset()

    def data(self) -> Table:
        """One row per bar."""
        columns = [self.name_label, self.value_label]
        columns += [self.of_label] if self.of_label else []
        banded = any(bar.low is not None for bar in self.bars)
        columns += [texts.LOW, texts.HIGH] if banded else []
        rows = [
            (
                bar.name,
                bar.value,
                *((bar.of,) if self.of_label else ()),
                *((bar.low, bar.high) if banded else ()),
            )
            for bar in self.bars
        ]
        return Table(texts.DATA_OF.format(title=self.title), tuple(columns), tuple(rows))

    def description(self) -> str:
        """The largest and the smallest."""
        finite = [bar for bar in self.bars if math.isfinite(bar.value)]
        if not finite:
            return self.value_label or texts.NONE
        top = max(finite, key=lambda bar: bar.value)
        bottom = min(finite, key=lambda bar: bar.value)
        least, most = (f"{shown_name(b.name)} ({cell_text(b.value)})" for b in (bottom, top))
        return f"{self.value_label}, {len(self.bars)} bars, from {least} to {most}."


@dataclass(frozen=True)
class GraphPlot:
    """Who talks to whom; with a server, every party to it and none to another."""

    title: str
    names: tuple[str, ...]
    rows: tuple[int, ...]
    edges: tuple[tuple[int, int], ...]
    server: bool = False
    caption: str = ""
    marked: frozenset[str] = frozenset()

    def data(self) -> Table:
        """One row per party with those it talks to."""
        heard: dict[int, list[str]] = {place: [] for place in range(len(self.names))}
        for first, second in self.edges:
            heard[first].append(self.names[second])
            heard[second].append(self.names[first])
        columns = (texts.PARTY, texts.ROWS, texts.DEGREE, "talks to")
        rows: list[tuple[Cell, ...]] = []
        for place, (name, count) in enumerate(zip(self.names, self.rows, strict=True)):
            peers = [texts.SERVER] if self.server else heard[place]
            rows.append((name, count, len(peers), ", ".join(peers)))
        return Table(texts.DATA_OF.format(title=self.title), columns, tuple(rows))

    def description(self) -> str:
        """How many parties and links."""
        if self.server:
            return f"{len(self.names)} parties around a server that holds no rows."
        return f"{len(self.names)} parties, {len(self.edges)} links."


@dataclass(frozen=True)
class GuessPlot:
    """A hundred guesses between two candidates: how many are right, at most.

    ``right`` is the bound on the share of right guesses; half are right without any message.
    ``seen`` says what of the run the attacker sees.
    """

    title: str
    right: float
    caption: str = ""
    seen: str = texts.GUESS_SEEN

    @property
    def of_hundred(self) -> int:
        """Right guesses out of a hundred, rounded up."""
        # In decimals, so that 0.55 is 55 of 100 and no rounding hides a larger share.
        return min(100, math.ceil(100 * Decimal(repr(float(self.right)))))

    def data(self) -> Table:
        """With and without the messages."""
        with_all = AtMost(self.right)
        with_seen = f"sees {self.seen}, at most"
        rows = (("tosses a coin", 0.5), (with_seen, with_all), ("sees the rows", 1.0))
        columns = ("the attacker", "right guesses")
        return Table(texts.DATA_OF.format(title=self.title), columns, rows)

    def description(self) -> str:
        """The two figures."""
        return (
            "A hundred guesses between two rows that a person may have had. 50 are "
            f"right by chance; with {self.seen} of the run at most {self.of_hundred} are right."
        )


@dataclass(frozen=True)
class WaitPlot:
    """Who waits for whom: nodes and their links, and an arrow to each that is waited for.

    ``words`` are under the names; ``kinds`` say how a node looks: ``well``, ``trouble``, ``said``
    (as it says itself) or ``unknown``. ``server`` is the place of the node that all others talk to.
    """

    title: str
    names: tuple[str, ...]
    words: tuple[str, ...]
    kinds: tuple[str, ...]
    edges: tuple[tuple[int, int], ...]
    waits: tuple[tuple[int, int], ...]
    server: int | None = None
    caption: str = ""

    def data(self) -> Table:
        """One row per node with whom it waits for."""
        rows: list[tuple[Cell, ...]] = []
        for place, (name, words) in enumerate(zip(self.names, self.words, strict=True)):
            awaited = [self.names[there] for here, there in self.waits if here == place]
            rows.append((name, words, ", ".join(awaited)))
        columns = (texts.NODE, "how it is", "waits for")
        return Table(texts.DATA_OF.format(title=self.title), columns, tuple(rows))

    def description(self) -> str:
        """How many nodes and links, and who waits."""
        told = f"{len(self.names)} nodes, {len(self.edges)} links."
        waiting = (
            f"{shown_name(self.names[here])} waits for {shown_name(self.names[there])}."
            for here, there in self.waits
        )
        return " ".join([told, *waiting]) if self.waits else f"{told} Nobody waits for long."


Plot: TypeAlias = LinePlot | BarPlot | GraphPlot | GuessPlot | WaitPlot
