"""Tables: for a page in Markdown, for machines in CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

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
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(self.rows)
        return text.getvalue()

    def markdown(self) -> str:
        """For a page: numbers with a few digits."""
        head = "| " + " | ".join(self.columns) + " |\n|" + " --- |" * len(self.columns) + "\n"
        return head + "".join(
            "| " + " | ".join(_short(cell) for cell in row) + " |\n" for row in self.rows
        )

    def plain(self) -> dict[str, Any]:
        """For a manifest."""
        return {"columns": list(self.columns), "rows": [list(row) for row in self.rows]}


def _short(cell: Any) -> str:
    text = f"{cell:.4g}" if isinstance(cell, float) else str(cell)
    return text.replace("|", "\\|")
