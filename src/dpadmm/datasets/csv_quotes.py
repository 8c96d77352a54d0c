"""Whether every quote of a CSV file is closed.

A quote that is opened and never closed would make one cell of the rest of the file: rows would be
lost without a word. Such a file is refused. That is about the file and no row of it, since whatever
a row holds can be written with its quotes closed. The error tells the line where the quote is
opened and nothing that stands there.

As everywhere in :mod:`~dpadmm.datasets.csv_reader`, a quote opens at the start of a cell only, two
in a row stand for one, and any other quote is a character like the rest.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pyarrow as pa

from dpadmm.schema import DataError

__all__ = ["check_quotes"]

_PIECE_BYTES: Final = 2**22
# What is left of a quoted cell, without the quote that closes it.
_INSIDE: Final = rb'[^"]*+(?:""[^"]*+)*+'


def check_quotes(path: Path, start: int, delimiter: str) -> None:
    """Refuse a file with a quote that is never closed, after its first ``start`` bytes."""
    start_of_cell = rb"[\r\n%s]" % re.escape(delimiter.encode())
    inside = re.compile(_INSIDE)
    # Everything up to a quote that opens and is not closed: plain bytes, whole quoted cells, and
    # quotes that do not open. One match walks through a piece without a step of Python.
    closed = re.compile(
        rb'(?:[^"]++|(?<=%s)"%s"|(?<!%s)")*+' % (start_of_cell, _INSIDE, start_of_cell)
    )
    opened: int | None = None
    with pa.input_stream(path, compression="detect") as stream:
        passed = len(stream.read(start))
        before = b"\n"
        while piece := stream.read(_PIECE_BYTES):
            # Two quotes are told from one only where both are there.
            while piece.endswith(b'"') and (more := stream.read(_PIECE_BYTES)):
                piece += more
            data, place = before + piece, 1
            if opened is not None:
                # Past the quote that closes the cell, if it is here.
                place = _end(inside, data, place) + 1
            if place <= len(data):
                place = _end(closed, data, place)
                opened = passed + place - 1 if place < len(data) else None
            passed += len(piece)
            before = piece[-1:]
    if opened is not None:
        raise DataError(
            f"{path} must close every quote; the one opened in line {_line(path, opened)} is not. "
            "Close it, or write it twice inside a quoted cell"
        )


def _end(pattern: re.Pattern[bytes], data: bytes, place: int) -> int:
    found = pattern.match(data, place)
    return place if found is None else found.end()


def _line(path: Path, place: int) -> int:
    """The number of the line that a byte is in, from 1."""
    with pa.input_stream(path, compression="detect") as stream:
        ends, before = 0, b""
        while place > 0 and (piece := stream.read(min(place, _PIECE_BYTES))):
            place -= len(piece)
            ends += piece.count(b"\n") + piece.count(b"\r") - piece.count(b"\r\n")
            ends -= before == b"\r" and piece.startswith(b"\n")
            before = piece[-1:]
    return ends + 1
