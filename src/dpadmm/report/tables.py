"""Tables: on a page, for machines in CSV, for the documentation in Markdown."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from dpadmm.privacy.figures import AtLeast, AtMost, Given

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
