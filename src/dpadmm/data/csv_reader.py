"""A CSV file as batches of undecoded cells, whatever its rows hold.

* Lines with too few or too many cells are rows like any other, with every cell missing.
* Lines end at a line feed, a carriage return or both, outside of quotes. Empty lines are no rows (a
  row of a table with two or more columns has a delimiter). So an empty line, and a carriage return
  in a cell without quotes, change the number of rows, which is public and must be as declared.
* Quotes may hold delimiters and line ends. A quote that opens no cell is a character like the rest
  (:mod:`~dpadmm.data.csv_quotes`), so that it takes no other row along.
* Cells are bytes here; those that are not UTF-8 are later read as Latin-1, cell by cell. A
  byte-order mark is skipped.
"""

from __future__ import annotations

import codecs
import csv
import io
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from numpy.typing import NDArray

from dpadmm.data.csv_quotes import count_lines, lone_quotes
from dpadmm.sentences import DataError, canonical_text

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
