"""What a report says, without how it looks: frozen data that :mod:`~dpadmm.report.html` writes.

A report has answers on top and sections below; a section is a sequence of blocks. Anything that
can say what it found in words, tables and plots can have a report (:mod:`~dpadmm.report.run`,
:mod:`~dpadmm.report.others`).
"""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from dpadmm.privacy.figures import AtLeast, AtMost, Given

if TYPE_CHECKING:
    from dpadmm.report.plots import Plot

__all__ = [
    "Banner",
    "Block",
    "Cell",
    "Code",
    "Facts",
    "Report",
    "Section",
    "Table",
    "Tile",
    "Tone",
    "Words",
    "cell_text",
    "delta_text",
]

Tone: TypeAlias = Literal["danger", "caution", "info"]


Cell: TypeAlias = str | int | float | None


def cell_text(cell: Cell) -> str:
    """How a cell is shown."""
    if cell is None:
        return ""
    if isinstance(cell, str):
        return cell
    if isinstance(cell, int):
        return f"{cell:,}"
    if isinstance(cell, Given):
        return _short_exponent(str(cell))
    if isinstance(cell, AtMost | AtLeast):
        return _short_exponent(f"{cell:4}")
    if math.isinf(cell):
        return "infinite" if cell > 0 else "-infinite"
    return _short_exponent(f"{cell:.4g}")


def delta_text(delta: float) -> str:
    """A delta without the zeros that a computer puts into an exponent."""
    return _short_exponent(str(AtMost(delta)))


def _short_exponent(text: str) -> str:
    return text.replace("e-0", "e-").replace("e+0", "e+")


@dataclass(frozen=True)
class Words:
    """A paragraph."""

    text: str


@dataclass(frozen=True)
class Facts:
    """Pairs of a heading and its words."""

    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Table:
    """Rows under column heads; the first cell of a row is its head.

    Numbers are shown with a few digits; :meth:`csv` has all of them.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""

    def csv(self) -> str:
        """All rows with full precision; texts that a spreadsheet would compute are quoted."""
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\r\n")
        writer.writerow([_inert(column) for column in self.columns])
        writer.writerows([_inert(cell) for cell in row] for row in self.rows)
        return file.getvalue()


def _inert(cell: Cell) -> str:
    if cell is None:
        return ""
    if isinstance(cell, str):
        return f"'{cell}" if cell[:1] in "=+-@\t\r\n" and cell else cell
    return str(cell) if isinstance(cell, int) else repr(float(cell))


@dataclass(frozen=True)
class Code:
    """Text as it is typed, such as a command or a configuration."""

    title: str
    text: str


@dataclass(frozen=True)
class Banner:
    """What nobody may overlook, above everything else."""

    tone: Tone
    heading: str
    text: str


@dataclass(frozen=True)
class Tile:
    """A figure that is seen at once, and what it is."""

    figure: str
    label: str


Block: TypeAlias = "Words | Facts | Table | Code | Banner | Plot"


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
