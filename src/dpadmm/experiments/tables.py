"""Tables: for a page in Markdown, for machines in CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dpadmm.privacy.figures import AtLeast, AtMost

__all__ = ["Table"]


@dataclass(frozen=True)
class Table:
    """Named columns and rows of numbers or words."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    @classmethod
    def of(cls, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
        """A table of any sequences."""
        return cls(tuple(columns), tuple(tuple(row) for row in rows))

    def csv(self) -> str:
        """Comma-separated, every digit kept."""
        return "".join(_line(row) for row in (self.columns, *self.rows))

    def markdown(self) -> str:
        """For a page: numbers with a few digits."""
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
