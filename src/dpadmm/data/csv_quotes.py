"""Quotes of a CSV file that open nothing, though they stand where a quoted cell begins.

As everywhere in :mod:`~dpadmm.data.csv_reader`, a quote opens at the start of a cell only, two
in a row stand for one, and any other quote is a character like the rest. A quoted cell may hold
line ends; so a quote that nobody closes would make one cell of all rows up to the next quote or
the end of the file, and what one row holds would decide how many rows there are. Therefore a quoted
cell that goes on in another line must be closed where a cell ends: before a delimiter, a line end
or the end of the file, a few blanks aside. A quote that opens no such cell is *lone*: a character
like the rest, and its line ends where it ends.

What cannot be told apart stays one cell: ``"x`` in one row and ``y"`` in a later one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import numpy as np
import pyarrow as pa

_PIECE_BYTES: Final = 2**22
_QUOTE: Final = ord('"')
# What is left of a quoted cell, without the quote that closes it.
_INSIDE: Final = rb'[^"]*+(?:""[^"]*+)*+'
# A quote with nothing but blanks after it.
_CUT: Final = re.compile(rb'"[ \t]*+\Z')
_INSIDE_ONE_LINE: Final = rb'[^"\r\n]*+(?:""[^"\r\n]*+)*+'


def count_lines(data: bytes, start: int) -> int:
    """The number of lines that are not empty, after the first `start` bytes.

    Quoted cells only ever make fewer rows than lines: with as many, no line was swallowed.
    """
    content = np.frombuffer(data, np.uint8, offset=start)
    if not len(content):
        return 0
    ends = content == ord("\n")
    if b"\r" in data:
        ends |= content == ord("\r")
    return int(np.count_nonzero(ends[1:] > ends[:-1])) + int(not ends[-1])


def lone_quotes(path: Path, start: int, delimiter: str) -> list[int]:
    """Places of all lone quotes (see the module) after the first `start` bytes."""
    if _is_regular(path, start, delimiter):
        return []
    grammar = _Grammar.of(delimiter)
    found: list[int] = []
    place, before = start, b"\n"
    while (lone := _walk(path, place, before, grammar, found)) is not None:
        found.append(lone)
        place, before = lone + 1, b'"'
    return found


def _is_regular(path: Path, start: int, delimiter: str) -> bool:
    """Whether quotes open and close cells in turn, as most programs write them."""
    at_edge = np.zeros(256, np.bool_)
    # A quote written twice looks like one that closes and one that opens.
    at_edge[[*delimiter.encode(), *b'\r\n"']] = True
    inside, before = 0, b"\n"
    for piece in _pieces(path, start):
        if b'"' in piece:
            content = np.frombuffer(before + piece + b"\n", np.uint8)
            quotes = np.flatnonzero(content == _QUOTE)
            opening, closing = quotes[inside::2], quotes[1 - inside :: 2]
            if not (at_edge[content[opening - 1]].all() and at_edge[content[closing + 1]].all()):
                return False
            inside ^= len(quotes) & 1
        before = piece[-1:]
    return not inside


@dataclass(frozen=True, slots=True)
class _Grammar:
    """What is looked for in a piece.

    Attributes
    ----------
    closed
        Plain bytes, whole quoted cells, and quotes that do not open: many at once, so that few
        steps of Python lead up to a quote that opens and is not closed in the piece. Python before
        3.11.5 gets a possessive repetition of alternatives wrong, and any other remembers each of
        its turns; hence their number is bounded.
    inside, end_of_cell, line_end
        The rest of a quoted cell, what may follow it, and the end of a line.
    """

    closed: re.Pattern[bytes]
    inside: re.Pattern[bytes]
    end_of_cell: re.Pattern[bytes]
    line_end: re.Pattern[bytes]

    @classmethod
    def of(cls, delimiter: str) -> Self:
        edge = rb"[\r\n%s]" % re.escape(delimiter.encode())
        end = rb"%s(?:%s|\Z)" % (_blanks(delimiter), edge)
        cell = rb'"(?:%s"|%s"(?=%s))' % (_INSIDE_ONE_LINE, _INSIDE, end)
        closed = rb'(?:[^"]++|(?<=%s)%s|(?<!%s)"){1,1024}' % (edge, cell, edge)
        return cls(*(re.compile(pattern) for pattern in (closed, _INSIDE, end, rb"[\r\n]")))


def _walk(path: Path, place: int, before: bytes, grammar: _Grammar, found: list[int]) -> int | None:
    """Add lone quotes from a place on to `found`; return one from which to begin anew."""
    opened: int | None = None
    spans_lines = False
    offset = place - 1
    for piece in _pieces(path, place):
        data, at = before + piece, 1
        if opened is not None:
            end = _end(grammar.inside, data, at)
            spans_lines = spans_lines or grammar.line_end.search(data, at, end) is not None
            at = end + 1
            if end < len(data):
                if spans_lines and grammar.end_of_cell.match(data, at) is None:
                    return opened
                opened = None
        while opened is None and (at := _past_closed(grammar, data, at)) < len(data):
            if _end(grammar.inside, data, at + 1) < len(data):
                found.append(offset + at)
                at += 1
            else:
                # Whether and how it is closed is seen further on.
                opened = offset + at
                spans_lines = grammar.line_end.search(data, at) is not None
        offset += len(piece)
        before = piece[-1:]
    return opened


def _blanks(delimiter: str) -> bytes:
    """What may stand between a quote that closes and the end of the cell."""
    return rb"[%s]{0,8}+" % (b" \t".replace(delimiter.encode(), b""))


def _past_closed(grammar: _Grammar, data: bytes, place: int) -> int:
    while match := grammar.closed.match(data, place):
        place = match.end()
    return place


def _end(pattern: re.Pattern[bytes], data: bytes, place: int) -> int:
    match = pattern.match(data, place)
    return place if match is None else match.end()


def _pieces(path: Path, place: int) -> Iterator[bytes]:
    """The file from a place on; the few bytes that matter after a quote are in its piece."""
    with pa.input_stream(path, compression="detect") as stream:
        if stream.seekable():
            stream.seek(place)
        else:
            while place > 0 and (skipped := stream.read(min(place, _PIECE_BYTES))):
                place -= len(skipped)
        while piece := stream.read(_PIECE_BYTES):
            while _CUT.search(piece, max(0, len(piece) - 9)) and (
                more := stream.read(_PIECE_BYTES)
            ):
                piece += more
            yield piece
