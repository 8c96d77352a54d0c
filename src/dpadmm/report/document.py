"""What a report says, without how it looks: frozen data that :mod:`~dpadmm.report.html` writes.

A report has answers on top and sections below; a section is a sequence of blocks. Anything that
can say what it found in words, tables and plots can have a report (:mod:`~dpadmm.report.run`).

A table is shown on a page, for machines in CSV and for the documentation in Markdown. A plot is
data and labels; :mod:`~dpadmm.report.svg` draws it. Every plot carries its data as a table and a
sentence for those who do not see it.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, get_type_hints

from pydantic import TypeAdapter, ValidationError

from dpadmm.durable import FileRefusal, read_json
from dpadmm.errors import ParameterError
from dpadmm.privacy.figures import AtLeast, AtMost, Given

Cell: TypeAlias = str | int | float | None

# Headings of pages of several kinds. What a guarantee says (adjacency, adversary, theorem, what is
# not covered) is worded by dpadmm.privacy.statement and shown as it is there.
SIMULATION: Final = "SIMULATION."
PUBLISHED: Final = "PUBLISHED CALIBRATION."
PUBLISHED_WORDS: Final = (
    "Lines marked (published) have noise as a paper sets it: the epsilon beneath them is the "
    "paper's claim, not a proven guarantee. The table has what is proven, where it is known."
)
STAND_IN: Final = "STAND-IN DATA."
MEANING: Final = "What the epsilons mean"
CONFIGURATION: Final = "Configuration, and how to run it again"
COMMAND: Final = "The command that makes it again"
NO_NOISE: Final = "without noise"

# Controls, surrogates, and formats such as a change of direction; line breaks and tabs are kept.
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_KEPT: Final = frozenset("\n\t\u2068\u2069")


def plain(text: str) -> str:
    """The text with every character visible."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        f"\N{MATHEMATICAL LEFT ANGLE BRACKET}U+{ord(character):04X}"
        "\N{MATHEMATICAL RIGHT ANGLE BRACKET}"
        if character not in _KEPT and unicodedata.category(character) in _HIDDEN
        else character
        for character in text
    )


def shown_name(name: str, longest: int = 60) -> str:
    """A name for the middle of a sentence: cut, on one line, in its own writing direction."""
    # What isolates a name must not come from within it.
    inner = plain(name.replace("\u2068", "\ufffd").replace("\u2069", "\ufffd"))
    inner = cut(inner, longest)
    return inner if inner.isascii() else f"\u2068{inner}\u2069"


def cut(label: str, longest: int) -> str:
    """A label that fits: on one line, every character visible, no longer than this."""
    label = " ".join(plain(label).split())
    return label if len(label) <= longest else label[: longest - 1] + "\N{HORIZONTAL ELLIPSIS}"


def cell_text(cell: Cell) -> str:
    """How a cell is shown."""
    if cell is None:
        return ""
    if isinstance(cell, str):
        return cell
    if isinstance(cell, int):
        return f"{cell:,}"
    if isinstance(cell, Given):
        return str(cell)
    if isinstance(cell, AtMost | AtLeast):
        return f"{cell:4}"
    if math.isinf(cell):
        return "infinite" if cell > 0 else "-infinite"
    # Without the zeros that a computer puts into an exponent, as bounds are shown.
    return f"{cell:.4g}".replace("e-0", "e-").replace("e+0", "e+")


@dataclass(frozen=True)
class Table:
    """Rows under column heads; the first cell of a row is its head.

    Numbers are shown with a few digits; :meth:`csv` and :meth:`spreadsheet` have all of them.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""

    @classmethod
    def of(cls, columns: Sequence[str], rows: Iterable[Sequence[Any]], title: str = "") -> Table:
        """A table of any sequences."""
        return cls(title, tuple(columns), tuple(tuple(row) for row in rows))

    def csv(self) -> str:
        """For machines: comma-separated, every digit kept."""
        return "".join(_line(row) for row in (self.columns, *self.rows))

    def spreadsheet(self) -> str:
        """For people's programs: texts that a spreadsheet would compute are quoted."""
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\r\n")
        writer.writerow([_inert(column) for column in self.columns])
        writer.writerows([_inert(cell) for cell in row] for row in self.rows)
        return file.getvalue()

    def markdown(self) -> str:
        """For a page of the documentation: numbers with a few digits."""
        head = "| " + " | ".join(self.columns) + " |\n|" + " --- |" * len(self.columns) + "\n"
        return head + "".join(
            "| " + " | ".join(_short(cell) for cell in row) + " |\n" for row in self.rows
        )

    def plain(self) -> dict[str, Any]:
        """For a manifest; bounds are in words, so that nobody rounds them again."""
        rows = [[_words(cell) if _bound(cell) else cell for cell in row] for row in self.rows]
        return {"columns": list(self.columns), "rows": rows}


def _line(cells: Sequence[Any]) -> str:
    cells = [float(cell) if isinstance(cell, float) else cell for cell in cells]
    # The writer quotes the characters of its own line end alone: with "\r\n" both are quoted.
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerow(cells)
    return text.getvalue().removesuffix("\r\n") + "\n"


def _bound(cell: Any) -> bool:
    return isinstance(cell, AtMost | AtLeast)


def _words(cell: Any) -> str:
    if _bound(cell):
        return f"{cell:4}"
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)


def _short(cell: Any) -> str:
    return _words(cell).replace("|", "\\|")


def _inert(cell: Cell) -> str:
    if cell is None:
        return ""
    if isinstance(cell, str):
        return f"'{cell}" if cell[:1] in "=+-@\t\r\n" and cell else cell
    return str(cell) if isinstance(cell, int) else repr(float(cell))


@dataclass(frozen=True)
class Series:
    """A line; ``low`` and ``high``, if given, are a band around it.

    Values that are not finite, and on a logarithmic scale those that are not positive, are left out
    of the drawing; the table has them. Lines differ in colour and dashes by their place in the
    plot; ``colour`` and ``dashed`` say it where both mean something. Lines with the same ``legend``
    have one entry there, by default that of their name; ``dashes`` of the plot then say the rest.
    """

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    colour: int | None = None
    dashed: bool | None = None
    legend: str = ""


@dataclass(frozen=True)
class LinePlot:
    """Lines over one axis; ``limits`` are named levels such as a budget, ``ticks`` words for x.

    Names stand above the lines, or with ``beside`` at their ends, where there is width for them.
    """

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
    dashes: str = ""
    beside: bool = False

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
            bounds = ("low", "high") if banded else ()
            columns = ("series", self.x_label, self.y_label, *bounds)
            rows = []
            for line in self.series:
                nothing = (None,) * len(line.x)
                band = (line.low or nothing, line.high or nothing) if banded else ()
                points = zip(line.x, line.y, *band, strict=True)
                rows += [(line.name, *point) for point in points]
        return Table(f"Data: {self.title}", columns, tuple(rows))

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
    """Bars under each other; ``marked`` are the names of those that stand out, ``faint`` do not.

    ``dots`` are drawn in their place where nothing is counted from zero.
    """

    title: str
    name_label: str
    value_label: str
    bars: tuple[Bar, ...]
    caption: str = ""
    of_label: str = ""
    marked: frozenset[str] = frozenset()
    faint: frozenset[str] = frozenset()
    dots: bool = False

    def data(self) -> Table:
        """One row per bar."""
        columns = [self.name_label, self.value_label]
        columns += [self.of_label] if self.of_label else []
        banded = any(bar.low is not None for bar in self.bars)
        columns += ["low", "high"] if banded else []
        rows = [
            (
                bar.name,
                bar.value,
                *((bar.of,) if self.of_label else ()),
                *((bar.low, bar.high) if banded else ()),
            )
            for bar in self.bars
        ]
        return Table(f"Data: {self.title}", tuple(columns), tuple(rows))

    def description(self) -> str:
        """The largest and the smallest."""
        finite = [bar for bar in self.bars if math.isfinite(bar.value)]
        if not finite:
            return self.value_label or "none"
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
        columns = ("party", "rows", "neighbours", "talks to")
        rows: list[tuple[Cell, ...]] = []
        for place, (name, count) in enumerate(zip(self.names, self.rows, strict=True)):
            peers = ["server"] if self.server else heard[place]
            rows.append((name, count, len(peers), ", ".join(peers)))
        return Table(f"Data: {self.title}", columns, tuple(rows))

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
    seen: str = "all messages"

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
        return Table(f"Data: {self.title}", columns, rows)

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
        columns = ("node", "how it is", "waits for")
        return Table(f"Data: {self.title}", columns, tuple(rows))

    def description(self) -> str:
        """How many nodes and links, and who waits."""
        told = f"{len(self.names)} nodes, {len(self.edges)} links."
        waiting = (
            f"{shown_name(self.names[here])} waits for {shown_name(self.names[there])}."
            for here, there in self.waits
        )
        return " ".join([told, *waiting]) if self.waits else f"{told} Nobody waits for long."


Plot: TypeAlias = LinePlot | BarPlot | GraphPlot | GuessPlot | WaitPlot


Tone: TypeAlias = Literal["danger", "caution", "info"]


@dataclass(frozen=True)
class Words:
    """A paragraph."""

    text: str


@dataclass(frozen=True)
class Facts:
    """Pairs of a heading and its words."""

    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Code:
    """Text as it is typed, such as a command or a configuration."""

    title: str
    text: str


@dataclass(frozen=True)
class Banner:
    """A warning above everything else."""

    tone: Tone
    heading: str
    text: str


@dataclass(frozen=True)
class Tile:
    """A figure in large type, and what it is."""

    figure: str
    label: str


Block: TypeAlias = Words | Facts | Table | Code | Banner | Plot


@dataclass(frozen=True)
class Section:
    """A heading and what stands under it; two ``narrow`` ones stand side by side on a wide page."""

    title: str
    blocks: tuple[Block, ...]
    narrow: bool = False


@dataclass(frozen=True)
class Report:
    """One page.

    Attributes
    ----------
    title, subtitle
        Its heading, and one line on where it comes from.
    headline
        The sentence to take away.
    banners
        What nobody may overlook.
    tiles
        Its main figures.
    answers
        Pairs of a question and its answer: what is read without scrolling.
    picture
        A plot beside the answers, if any.
    sections
        The rest.
    """

    title: str
    subtitle: str
    banners: tuple[Banner, ...] = ()
    tiles: tuple[Tile, ...] = ()
    answers: tuple[tuple[str, str], ...] = ()
    picture: Plot | None = None
    sections: tuple[Section, ...] = ()
    headline: str = ""


_VERSION: Final = 1
_NUMBERS: Final = {kind.__name__: kind for kind in (float, AtMost, AtLeast, Given)}
_PARTS: Final = {
    part.__name__: part
    for part in (
        *(Words, Facts, Table, Code, Banner, Tile, Section, Report),
        *(Series, LinePlot, Bar, BarPlot, GraphPlot, GuessPlot, WaitPlot),
    )
}


def report_json(report: Report) -> str:
    """A report as JSON, from which :func:`read_report` makes the same page again."""
    return json.dumps({"version": _VERSION, "report": _plain(report)}, indent=1, allow_nan=False)


def read_report(path: Path) -> Report:
    """Read what :func:`report_json` made.

    Raises
    ------
    ParameterError
        If it is something else.
    """
    try:
        content = read_json(path)
        if content["version"] != _VERSION:
            raise ValueError
        report = _part(content["report"])
    except FileRefusal as error:
        raise ParameterError(f"report must be readable JSON; got {path}: {error}.") from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, ValidationError):
        report = None
    if not isinstance(report, Report):
        raise ParameterError(f"{path} must be a report that dpadmm saved; it is not, or damaged.")
    return report


def _plain(value: Any) -> Any:
    """Plain data; what JSON has no word for is a table with the name of its kind."""
    if dataclasses.is_dataclass(value):
        names = [item.name for item in dataclasses.fields(value)]
        return {"kind": type(value).__name__} | {n: _plain(getattr(value, n)) for n in names}
    if isinstance(value, (tuple, list, frozenset)):
        return [_plain(item) for item in (sorted(value) if isinstance(value, frozenset) else value)]
    if isinstance(value, float) and (type(value) is not float or not math.isfinite(value)):
        return {"kind": type(value).__name__, "value": repr(float(value))}
    return value


def _part(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_part(item) for item in value)
    if not isinstance(value, dict):
        return value
    inner = {name: _part(item) for name, item in value.items() if name != "kind"}
    if value["kind"] in _NUMBERS:
        return _NUMBERS[value["kind"]](inner["value"])
    part = _PARTS[value["kind"]]
    for name, wanted in _fields(part).items():
        if isinstance(inner.get(name), tuple) and isinstance(getattr(part, name, None), frozenset):
            inner[name] = frozenset(inner[name])
        if name in inner:
            # Looked at, not taken over: a bound must stay one.
            wanted.validate_python(inner[name], strict=True)
    return part(**inner)


@cache
def _fields(part: type) -> dict[str, TypeAdapter[Any]]:
    """What each field of a part may hold."""
    return {name: TypeAdapter(hint) for name, hint in get_type_hints(part).items()}
