"""A CSV file as batches of undecoded cells, whatever its rows hold.

* Lines with too few or too many cells are rows like any other, with every cell missing.
* Lines end at a line feed, a carriage return or both, outside of quotes. Empty lines are no rows (a
  row of a table with two or more columns has a delimiter). So an empty line, and a carriage return
  in a cell without quotes, change the number of rows, which is public and must be as declared.
* Quotes may hold delimiters and line ends. A quote that opens no cell is a character like the rest,
  so that it takes no other row along.
* Cells are bytes here; later code reads those that are not UTF-8 as Latin-1, cell by cell. The
  reader skips a byte-order mark.

**Lone quotes.** A quote opens at the start of a cell only, two in a row stand for one, and any
other quote is a character like the rest. A quoted cell may hold line ends. So a quote that nobody
closes would make one cell of all rows up to the next quote or the end of the file, and the content
of one row would decide how many rows there are. Therefore a quoted cell that goes on in another
line must be closed where a cell ends: before a delimiter, a line end or the end of the file, a few
blanks aside. A quote that opens no such cell is *lone*: a character like the rest, and its line
ends where it ends.

What cannot be told apart stays one cell: ``"x`` in one row and ``y"`` in a later one.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from numpy.typing import NDArray

from dpadmm.errors import DataError
from dpadmm.plain import canonical_text

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
    """Return whether quotes open and close cells in turn, as most programs write them."""
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
    """The patterns that a search for lone quotes needs in a piece.

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
                # Only the following bytes show whether and how a quote closes it.
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


BLOCK_BYTES: Final = 2**22
AT_ONCE_BYTES: Final = 2**25
READ_BYTES: Final = 2**20
LARGEST_BLOCK_BYTES: Final = 2**30
LARGEST_HEADER_BYTES: Final = 2**24


@dataclass(frozen=True, slots=True)
class Header:
    """Column names, and the number of bytes (unpacked) before the first row."""

    names: tuple[str, ...]
    size: int


def read_header(path: Path, delimiter: str) -> Header:
    """Read the names in the first line that is not empty."""
    data = b""
    with pa.input_stream(path, compression="detect") as stream:
        end = None
        while end is None:
            piece = stream.read(2**16)
            data += piece
            if len(data) > LARGEST_HEADER_BYTES:
                raise DataError(
                    f"{path} must start with a line of column names; got none in its first "
                    f"{LARGEST_HEADER_BYTES} bytes"
                )
            start, end = _first_record(data, is_all=not piece)
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError(f"{path} must be UTF-8 (or Latin-1); it looks like UTF-16: convert it")
    record = data[start:end]
    try:
        text = record.decode("utf-8")
    except UnicodeDecodeError:
        text = record.decode("latin-1")
    if not text.strip():
        raise DataError(f"{path} must start with a line of column names; got an empty file")
    try:
        names = next(
            csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True)
        )
    except (csv.Error, StopIteration):
        raise DataError(
            f"{path} must start with a line of column names; its first line cannot be split "
            "into cells: correct it"
        ) from None
    return Header(tuple(canonical_text(name) for name in names), end)


def _first_record(data: bytes, is_all: bool) -> tuple[int, int | None]:
    """Start of the first line that is not empty, and of the next (None: not there yet)."""
    start = 3 if data.startswith(b"\xef\xbb\xbf") else 0
    while start < len(data) and data[start] in b"\r\n":
        start += 1
    quoted = False
    for place in range(start, len(data)):
        if data[place] == ord('"'):
            quoted = not quoted
        elif data[place] in b"\r\n" and not quoted:
            if place + 1 == len(data) and not is_all:
                return start, None
            return start, place + (2 if data[place : place + 2] == b"\r\n" else 1)
    return start, len(data) if is_all else None


@dataclass(frozen=True, slots=True)
class CsvColumns:
    """Some columns of a CSV file.

    Attributes
    ----------
    path, header, delimiter
        The file, its column names, and what stands between its cells.
    names
        The columns to read.
    texts
        Those of them whose every distinct cell is stored once.
    """

    path: Path
    header: Header
    delimiter: str
    names: Sequence[str]
    texts: Sequence[str] = ()


def read_csv(wanted: CsvColumns) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Read some columns of a CSV file.

    Yields
    ------
    batch, ragged_rows
        Cells as bytes in the order of the file, and how many of these rows stand for lines
        that could not be split into cells.
    """
    table = _read_at_once(wanted)
    if table is not None:
        for batch in table.to_batches():
            yield batch, 0
        return
    utf8 = _is_utf8(wanted.path)
    lone = lone_quotes(wanted.path, wanted.header.size, wanted.delimiter)
    # Arrow stops at a line longer than a block. That is rare: read as if it did not occur, and
    # when it does begin anew with larger blocks, leaving out the rows already given.
    given, block = 0, BLOCK_BYTES
    while True:
        passed = 0
        try:
            for batch, ragged in _scan(wanted, block, utf8, lone):
                new = max(given - passed, 0)
                passed += batch.num_rows
                if passed > given:
                    given = passed
                    yield batch.slice(new), int(np.count_nonzero(ragged[new:]))
            return
        except pa.ArrowInvalid as error:
            if "straddl" not in str(error) or block >= LARGEST_BLOCK_BYTES:
                raise
            block *= 8


def _is_utf8(path: Path) -> bool:
    """Whether a whole file is UTF-8."""
    # Arrow decodes a ragged line before it asks what to do with it and fails where that is not
    # UTF-8. Such a file is read as Latin-1, which any bytes are, and that is undone after.
    decoder = codecs.getincrementaldecoder("utf-8")()
    with pa.input_stream(path, compression="detect") as stream:
        try:
            while data := stream.read(BLOCK_BYTES):
                if not data.isascii() or decoder.getstate()[0]:
                    decoder.decode(data)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return False
    return True


def _undone(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Turn cells that were read as Latin-1 and are now UTF-8 into the bytes of the file."""
    return pa.RecordBatch.from_arrays(
        [_undone_cells(column) for column in batch.columns], names=batch.schema.names
    )


def _undone_cells(cells: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(cells.type):
        return pa.DictionaryArray.from_arrays(cells.indices, _undone_cells(cells.dictionary))
    if pc.all(pc.string_is_ascii(cells.cast(pa.string())), min_count=0).as_py():
        return cells
    return pa.array([cell.decode("utf-8").encode("latin-1") for cell in cells.to_pylist()])


def _options(
    wanted: CsvColumns, block: int, note: Callable[[Any], str], *, threads: bool, utf8: bool
) -> dict[str, Any]:
    distinct = pa.dictionary(pa.int32(), pa.binary())
    return {
        "read_options": pyarrow.csv.ReadOptions(
            use_threads=threads,
            block_size=block,
            column_names=list(wanted.header.names),
            encoding="utf8" if utf8 else "latin-1",
        ),
        "parse_options": pyarrow.csv.ParseOptions(
            delimiter=wanted.delimiter, newlines_in_values=True, invalid_row_handler=note
        ),
        "convert_options": pyarrow.csv.ConvertOptions(
            column_types={
                name: distinct if name in wanted.texts else pa.binary()
                for name in wanted.header.names
            },
            include_columns=list(wanted.names),
            strings_can_be_null=False,
        ),
    }


def _read_at_once(wanted: CsvColumns) -> pa.Table | None:
    """Read a small file with several threads; None if it is not small or odd in any way."""
    # In small steps: room for the most that may be there takes longer to get than to fill.
    path, header, pieces = wanted.path, wanted.header, list[bytes]()
    with pa.input_stream(path, compression="detect") as stream:
        while len(pieces) * READ_BYTES <= AT_ONCE_BYTES and (piece := stream.read(READ_BYTES)):
            pieces.append(piece)
    data = b"".join(pieces)
    if len(data) > AT_ONCE_BYTES or not data.isascii():
        return None
    # With several threads Arrow does not tell the place of a ragged line.
    ragged: list[Any] = []

    def note(row: Any) -> str:
        ragged.append(row)
        return "skip"

    options = _options(wanted, BLOCK_BYTES, note, threads=True, utf8=True)
    try:
        table = pyarrow.csv.read_csv(pa.BufferReader(pa.py_buffer(data)[header.size :]), **options)
    except pa.ArrowInvalid:
        return None
    if ragged:
        return None
    swallowed = table.num_rows < count_lines(data, header.size)
    return None if swallowed and lone_quotes(path, header.size, wanted.delimiter) else table


def _scan(
    wanted: CsvColumns, block: int, utf8: bool, lone: Sequence[int]
) -> Iterator[tuple[pa.RecordBatch, NDArray[np.bool_]]]:
    """Read the rows once; second, which rows stand for ragged lines."""
    # Arrow may parse ahead in a thread of its own: this list only ever grows.
    ragged: list[int] = []

    def note(row: Any) -> str:
        ragged.append(row.number - 1)
        return "skip"

    size, names = wanted.header.size, wanted.names
    options = _options(wanted, block, note, threads=False, utf8=utf8)
    with pa.input_stream(wanted.path, compression="detect") as stream:
        stream.read(size)
        rows = _with_blanks(stream, [place - size for place in lone])
        try:
            reader = pyarrow.csv.open_csv(rows, **options)
        except pa.ArrowInvalid as error:
            if "Empty CSV file" in str(error):
                return
            raise
        start = placed = 0
        for batch in reader:
            if not utf8:
                batch = _undone(batch)
            whole, places = _with_ragged(batch, np.array(ragged[placed:], np.int64) - start)
            start += whole.num_rows
            placed += whole.num_rows - batch.num_rows
            yield whole, places
        rest = len(ragged) - placed
        if rest:
            arrays = [pa.nulls(rest, pa.binary()) for _ in names]
            yield pa.RecordBatch.from_arrays(arrays, list(names)), np.ones(rest, np.bool_)


def _with_blanks(stream: pa.NativeFile, places: Sequence[int]) -> pa.NativeFile:
    """The stream with a blank before the bytes at some places.

    A quote after a blank does not open a cell, and blanks are trimmed off cells.
    """
    if not places:
        return stream
    rest = deque(places)
    passed = 0

    def transform(piece: pa.Buffer) -> bytes:
        nonlocal passed
        data, parts, start = bytes(piece), [], 0
        while rest and rest[0] < passed + len(data):
            place = rest.popleft() - passed
            parts.append(data[start:place])
            start = place
        passed += len(data)
        return b" ".join([*parts, data[start:]])

    return pa.TransformInputStream(stream, transform)


def _with_ragged(
    batch: pa.RecordBatch, ragged: NDArray[np.int64]
) -> tuple[pa.RecordBatch, NDArray[np.bool_]]:
    """Put empty rows at the places, counted from the batch's first row, of ragged lines."""
    # As many good rows come before a ragged line as its place less the ragged ones before it.
    before = ragged - np.arange(len(ragged))
    before = before[before < batch.num_rows]
    if not len(before):
        return batch, np.zeros(batch.num_rows, np.bool_)
    order = np.insert(np.arange(batch.num_rows), before, -1)
    places = order < 0
    return batch.take(pa.array(order, mask=places)), places
