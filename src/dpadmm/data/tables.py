"""CSV and Parquet files, Arrow tables and pandas frames, read in pieces and encoded.

A file is read in blocks, so that it may be larger than memory; with ``into`` the encoded rows
go to disk as well, to an ``.npy`` file that is complete or not there (:class:`RowsFile`). The
module :mod:`dpadmm.data.csv_reader` says what becomes of odd CSV files.

**Rows of parties**, from one file a party or one file for all, go to a file on disk that is mapped
into memory and has no name any more: however the process ends, nothing private stays behind. They
stay in memory, as a sparse array, only where the schema makes them mostly zeros.

No cell stops the reading (:mod:`dpadmm.data.values`). Only the file itself does, and our own words
say so: :func:`own_words` lets no other message out, since messages of readers quote cells.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias, final

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from numpy.typing import NDArray

from dpadmm.data.csv_reader import CsvColumns, read_csv, read_header
from dpadmm.data.encode import (
    EncodedBatch,
    EncodedRows,
    Layout,
    RowsInMemory,
    RowsStore,
    assemble,
    encode_batch,
    is_sparse,
)
from dpadmm.data.schema import Schema
from dpadmm.data.values import Spelling, bytes_of, holds_text, is_frame, is_readable
from dpadmm.durable import written_whole
from dpadmm.errors import DataError, ParameterError
from dpadmm.plain import canonical_text

if TYPE_CHECKING:
    import pandas as pd


WRITE_BYTES: Final = 2**24


@final
class RowsFile:
    """Collects rows in a file beside the one wanted and renames it at the end.

    The class writes rows with plain writes, not through a memory map: a full disk is then an error
    that can be reported, and not the end of the process.

    Parameters
    ----------
    path
        The ``.npy`` file to make; one that is there is replaced at the end.
    features
        Number of columns.
    """

    def __init__(self, path: Path, features: int) -> None:
        if path.suffix != ".npy":
            raise DataError(f"into must be the path of an .npy file; got {path.name!r}")
        self._path, self._features, self._finished = path, features, False
        # Encoded rows are private: nobody else may read them.
        self._whole = written_whole(path, "into", private=True)

    def __enter__(self) -> Self:
        self._file = self._whole.__enter__()
        self._write_header(0)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._finished:
            # A file that was not finished is removed, as after an error.
            why = error or DataError(f"{self._path} was not finished")
            self._whole.__exit__(type(why), why, trace)

    def write(self, batch: EncodedBatch) -> None:
        """Append the rows of a batch."""
        rows = batch.counts.rows
        step = max(1, WRITE_BYTES // (8 * self._features))
        for start in range(0, rows, step):
            dense = np.zeros((min(step, rows - start), self._features))
            batch.write_into(dense, start)
            self._file.write(dense.astype("<f8", copy=False).data)

    def finish(self, rows: int) -> NDArray[np.float64]:
        """Make the file durable under its name and map it into memory, read-only."""
        self._file.seek(0)
        self._write_header(rows)
        self._finished = True
        self._whole.__exit__(None, None, None)
        # An array without rows cannot be mapped.
        result: NDArray[np.float64] = np.load(self._path, mmap_mode="r" if rows else None)
        return result

    def _write_header(self, rows: int) -> None:
        # The format leaves room for the first number of the shape to grow, so the header has
        # the same length whatever the number of rows.
        shape = (rows, self._features)
        content = {"descr": "<f8", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self._file, content)


Source: TypeAlias = "str | Path | StoredFile | pa.Table | pa.RecordBatch | pd.DataFrame"

PARQUET_SUFFIXES: Final = (".parquet", ".pq")
CSV_SUFFIXES: Final = (".csv", ".tsv", ".txt", ".data", ".dat")
COMPRESSED_SUFFIXES: Final = (".gz", ".bz2", ".zst", ".lz4", ".br")
# Some copies of a batch are in memory at a time, as wide as it may be.
BATCH_ROWS: Final = 2**16
BATCH_CELLS: Final = 2**18
# What is read of a Parquet column at a time, since all columns are read together: little of a file,
# more where every read is a request.
BUFFER_BYTES: Final = 2**14
REQUEST_BYTES: Final = 2**20

_ANY_SPELLING: Final = Spelling(trim=True, ignore_case=True)

DROPPED_WARNING: Final = (
    "drop_incomplete_public_rows is for public data only: the number of rows left depends on what "
    "they hold, and no privacy budget covers that"
)


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A Parquet file of a file system that ``fsspec`` knows, such as a bucket.

    Attributes
    ----------
    address
        As ``fsspec`` has it, protocol and all; a path where it has none.
    """

    address: str

    def __str__(self) -> str:
        return self.address

    def open(self) -> Any:
        """Return what a Parquet reader takes."""
        if "://" not in self.address:
            return self.address
        import fsspec

        return fsspec.open(self.address, "rb").open()


class PublicDataWarning(UserWarning):
    """Warns that a request is safe for public data only."""


def encode(
    source: Source,
    schema: Schema,
    *,
    into: str | Path | None = None,
    layout: Layout = "auto",
    delimiter: str | None = None,
    require_label: bool = True,
    drop_incomplete_public_rows: bool = False,
) -> EncodedRows:
    """Read a table and encode it by a public schema.

    Parameters
    ----------
    source
        Path of a CSV file (``.csv``, ``.tsv``, ``.txt``, ``.data``, ``.dat``; also packed with
        gzip, bzip2, zstd, lz4 or brotli) or of a Parquet file, an Arrow table or batch, or a
        pandas or polars frame.
    schema
        The public description.
    into
        Path of an ``.npy`` file to write the encoded rows to, dense; the result maps it into
        memory. It appears when it is complete, or not at all.
    layout
        "dense", "sparse" or "auto" (see :func:`dpadmm.data.encode.is_sparse`).
    delimiter
        Between the cells of a CSV file; the schema's, or a tab for ``.tsv`` and a comma otherwise.
    require_label
        Whether a table without the label column is refused (rows to predict have none).
    drop_incomplete_public_rows
        Leave out rows with a missing value, as in :func:`~dpadmm.data.encode.encode_batch`. Warns.

    Raises
    ------
    DataError
        If the file cannot be read, its columns are not the schema's, or the disk is full.
    """
    if drop_incomplete_public_rows:
        warnings.warn(DROPPED_WARNING, PublicDataWarning, stacklevel=2)
    batches = encoded_batches(
        source,
        schema,
        delimiter=delimiter,
        require_label=require_label,
        drop_incomplete_public_rows=drop_incomplete_public_rows,
    )
    if into is None:
        return assemble(batches, schema, layout=layout)
    with RowsFile(Path(into), len(schema.feature_names)) as file:
        return assemble(batches, schema, layout=layout, store=file)


def encoded_batches(
    source: Source,
    schema: Schema,
    *,
    delimiter: str | None = None,
    require_label: bool = True,
    drop_incomplete_public_rows: bool = False,
    only_known: bool = True,
) -> Iterator[EncodedBatch]:
    """Read a table and encode it piece by piece; parameters and refusals are :func:`encode`'s.

    ``only_known``: refuse columns that the schema does not name, as everywhere but in rows that a
    finished model is used on.
    """
    with own_words(source):
        for batch, ragged in read_batches(
            source,
            schema,
            delimiter=delimiter,
            require_label=require_label,
            only_known=only_known,
        ):
            yield encode_batch(
                batch,
                schema,
                ragged_rows=ragged,
                drop_incomplete_public_rows=drop_incomplete_public_rows,
            )


MAX_PARTIES: Final = 500
"""The most parties in one file: each has a file open while it is read."""


@dataclass(frozen=True, slots=True, eq=False)
class PartyRows:
    """Encoded rows and the codes of their labels; not to be shown."""

    rows: Any = field(repr=False)
    labels: NDArray[np.int64] = field(repr=False)

    def __len__(self) -> int:
        """How many rows there are."""
        return len(self.labels)


def encode_party(source: Path, schema: Schema, folder: Path) -> PartyRows:
    """Encode the file of one party; `folder` is where the encoded rows are written."""
    with ExitStack() as stack:
        part = _part(schema, folder / "rows.npy", stack)
        for batch in encoded_batches(source, schema):
            part.add(batch)
        return part.finished()


def encode_by_party(source: Path, schema: Schema, folder: Path) -> dict[str, PartyRows]:
    """Encode one file with the rows of all parties, sorted by the names of the parties.

    The owner of a row is public: a row without an owner is refused.
    """
    with ExitStack() as stack:
        parties: dict[str, _Part] = {}
        for batch in encoded_batches(source, schema):
            for name, rows in _by_party(batch):
                if name is None or name in schema.all_missing_values:
                    raise DataError(
                        f"every row of {source} must name its party in the column "
                        f"{schema.party!r}; there is one that does not: complete it"
                    )
                if name not in parties:
                    _refuse_many(len(parties), source, schema)
                    parties[name] = _part(schema, folder / f"{len(parties)}.npy", stack)
                parties[name].add(rows)
        return {name: parties[name].finished() for name in sorted(parties)}


def _part(schema: Schema, path: Path, stack: ExitStack) -> _Part:
    # The number of rows is not known yet: assume very many.
    if is_sparse(schema, 2**40):
        return _Part(path, RowsInMemory(schema))
    return _Part(path, stack.enter_context(RowsFile(path, len(schema.feature_names))))


@final
class _Part:
    """What was read of one party so far."""

    def __init__(self, path: Path, store: RowsStore) -> None:
        self._path, self._store = path, store
        self._labels: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]

    def add(self, batch: EncodedBatch) -> None:
        """Take more rows."""
        assert batch.labels is not None
        self._labels.append(batch.labels)
        self._store.write(batch)

    def finished(self) -> PartyRows:
        """Return all rows; a file of them has no name any more."""
        labels = np.concatenate(self._labels)
        rows = self._store.finish(len(labels))
        self._path.unlink(missing_ok=True)
        return PartyRows(rows, labels)


def _by_party(batch: EncodedBatch) -> Iterator[tuple[str | None, EncodedBatch]]:
    """Split a batch, keeping the order of each party's rows."""
    coded = pa.chunked_array([batch.parties]).combine_chunks().dictionary_encode("encode")
    codes = coded.indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    ends = np.cumsum(np.bincount(codes, minlength=len(coded.dictionary)))
    for code, name in enumerate(coded.dictionary.to_pylist()):
        yield name, batch.take(order[ends[code - 1] if code else 0 : ends[code]])


def _refuse_many(count: int, source: Path, schema: Schema) -> None:
    if count >= MAX_PARTIES:
        raise DataError(
            f"{source} must have at most {MAX_PARTIES} parties; the column {schema.party!r} has "
            "more values: name the right column, or give every party a file of its own"
        )


def read_batches(
    source: Source,
    schema: Schema,
    *,
    delimiter: str | None = None,
    require_label: bool = True,
    only_known: bool = True,
    also: Sequence[str] = (),
) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Read the columns a schema names, and others by their names, piece by piece.

    Yields
    ------
    batch, ragged_rows
        Cells in the order of the file, and how many of these rows stand for lines that could
        not be split into cells.
    """
    with own_words(source):
        table = _opened(source, delimiter or schema.delimiter)
        names = _columns(table, schema, require_label, only_known)
        _refuse_absent(table, also)
        numeric = {column.name for column in schema.numeric}
        texts = [name for name in names if name not in numeric]
        yield from table.read([*names, *(name for name in also if name not in names)], texts)


def check_columns(
    source: Source,
    schema: Schema,
    *,
    delimiter: str | None = None,
    require_label: bool = True,
    only_known: bool = True,
    also: Sequence[str] = (),
) -> int | None:
    """Refuse a table whose columns are not the schema's, and others, without reading a row.

    Returns
    -------
    int or None
        How many rows a Parquet file says it has.
    """
    with own_words(source):
        table = _opened(source, delimiter or schema.delimiter)
        _columns(table, schema, require_label, only_known)
        _refuse_absent(table, also)
        return table.rows


def find_delimiter(source: Source, needed: Sequence[str]) -> str | None:
    """What stands between the cells of a (public) CSV file whose columns have some names.

    The first of a comma (a tab for ``.tsv``), a semicolon, a tab and a bar that makes its first
    line hold them all, or the one that makes the most columns; None for what is there without
    being told, and for other sources.
    """
    if not isinstance(source, (str, Path)) or ".tsv" in Path(source).suffixes:
        return None
    columns: dict[str | None, int] = {}
    for delimiter in (None, ";", "\t", "|"):
        with own_words(source):
            table = _opened(source, delimiter)
            if table.types is not None or set(needed) <= set(table.names):
                return delimiter
            columns[delimiter] = len(table.names)
    return max(columns, key=lambda delimiter: columns[delimiter])


def read_table(source: Source, *, delimiter: str | None = None) -> pa.Table:
    """Read all of a (public) table into memory; the cells of a CSV file as bytes."""
    with own_words(source):
        table = _opened(source, delimiter)
        # Without a header, the first line may be a row: show nothing of it.
        _refuse_repeats(table, show=False)
        batches = [batch for batch, _ in table.read(list(table.names), [])]
        if batches:
            return pa.Table.from_batches(batches)
        return pa.table({name: pa.nulls(0, pa.binary()) for name in table.names})


@contextmanager
def own_words(source: Source) -> Iterator[None]:
    """Turn whatever is raised while a table is read into one sentence of ours.

    A library's message may quote a row, so only the kind of the error is passed on.
    """
    try:
        yield
    except (DataError, ParameterError):
        raise
    except Exception as error:
        named = isinstance(source, (str, Path, StoredFile))
        where = str(source) if named else "the table"
        if isinstance(error, OSError) and error.errno is not None:
            reason = os.strerror(error.errno)
            raise DataError(f"file must be readable; got {where}: {reason}") from None
        if isinstance(error, MemoryError):
            raise DataError(f"memory must suffice to read {where}; it does not") from None
        raise DataError(
            f"file must be whole and of the kind its name says; got {where}, which cannot be "
            f"read ({type(error).__name__}): write it again"
        ) from None


# Takes the names to read, and which of them hold text: a hint for speed.
Reader = Callable[[list[str], list[str]], Iterator[tuple[pa.RecordBatch, int]]]


@dataclass(frozen=True, slots=True)
class _Table:
    """A table before its rows are read: what it is called, its columns, how to read some."""

    where: str
    names: tuple[str, ...]
    types: pa.Schema | None
    read: Reader
    rows: int | None = None


def _opened(source: Source, delimiter: str | None) -> _Table:
    if isinstance(source, StoredFile):
        buffer = REQUEST_BYTES if "://" in source.address else BUFFER_BYTES
        return _opened_parquet(source.address, source.open, buffer)
    if isinstance(source, (str, Path)):
        return _opened_file(Path(source), delimiter)
    if isinstance(source, pa.RecordBatch):
        table = pa.Table.from_batches([source])
    elif isinstance(source, pa.Table):
        table = source
    elif is_frame(source):
        table = _from_pandas(source)
    elif hasattr(source, "__arrow_c_stream__"):
        table = pa.table(source)
    else:
        raise DataError(
            "source must be a path, an Arrow table, or a pandas or polars frame; got "
            f"{type(source).__name__}"
        )

    def read(names: list[str], texts: list[str]) -> Iterator[tuple[pa.RecordBatch, int]]:
        for batch in table.select(names).to_batches(max_chunksize=_batch_rows(names)):
            yield batch, 0

    return _Table("the table", tuple(table.schema.names), table.schema, read)


def _batch_rows(names: list[str]) -> int:
    return max(1, min(BATCH_ROWS, BATCH_CELLS // max(1, len(names))))


def _opened_file(path: Path, delimiter: str | None) -> _Table:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in COMPRESSED_SUFFIXES:
        suffixes.pop()
    kind = suffixes[-1] if suffixes else ""
    if kind in PARQUET_SUFFIXES:
        return _opened_parquet(str(path), lambda: path, BUFFER_BYTES)
    if kind not in CSV_SUFFIXES:
        raise DataError(
            f"file name must end in {', '.join((*PARQUET_SUFFIXES, *CSV_SUFFIXES))} (CSV also "
            f"packed: {', '.join(COMPRESSED_SUFFIXES)}); got {path.name!r}: rename it"
        )
    separator = delimiter or ("\t" if kind == ".tsv" else ",")
    if len(separator) != 1 or separator in '"\r\n\0' or not separator.isascii():
        raise DataError(f"delimiter must be one ASCII character; got {separator!r}")
    header = read_header(path, separator)

    def read(names: list[str], texts: list[str]) -> Iterator[tuple[pa.RecordBatch, int]]:
        return read_csv(CsvColumns(path, header, separator, names, texts))

    return _Table(str(path), header.names, None, read)


def _opened_parquet(where: str, source: Callable[[], Any], buffer: int) -> _Table:
    def read(names: list[str], texts: list[str]) -> Iterator[tuple[pa.RecordBatch, int]]:
        # Reading ahead would hold the whole file in memory by the end.
        with pyarrow.parquet.ParquetFile(source(), pre_buffer=False, buffer_size=buffer) as file:
            for batch in file.iter_batches(batch_size=_batch_rows(names), columns=names):
                yield batch, 0

    with pyarrow.parquet.ParquetFile(source()) as file:
        found, rows = file.schema_arrow, file.metadata.num_rows
    return _Table(where, tuple(found.names), found, read, rows)


def _refuse_repeats(table: _Table, *, show: bool) -> None:
    seen: set[str] = set()
    for number, name in enumerate(table.names, 1):
        if name in seen:
            shown = repr(name) if show else f"the name of column {number}"
            raise DataError(
                f"{table.where} must have each column once; {shown} is there twice: rename one"
            )
        seen.add(name)


def _columns(table: _Table, schema: Schema, require_label: bool, only_known: bool) -> list[str]:
    """Names to read; what is missing, too much or of an unusable type is refused by name."""
    needed = [column.name for column in schema.columns]
    needed += [] if schema.party is None else [schema.party]
    if require_label or schema.label.column in table.names:
        needed.append(schema.label.column)
    missing = [name for name in needed if name not in table.names]
    if missing:
        raise DataError(
            f"{table.where} must have the schema's columns; {_listed(missing)} not there: add "
            "what is missing, correct the schema, or check the delimiter and the header line"
            + _nearly_there(missing, table.names)
        )
    # It has all names of the schema, so it is a header and may be shown.
    _refuse_repeats(table, show=True)
    extra = [name for name in table.names if name not in needed and name not in schema.ignore]
    if extra and only_known:
        raise DataError(
            f"{table.where} must have no columns but the schema's; {_listed(extra)} not in it: "
            "remove it, or name it in the schema under ignore"
        )
    if table.types is not None:
        numeric = {column.name for column in schema.numeric}
        for name in needed:
            kind = table.types.field(name).type
            check_type(name, kind, table.where, as_number=name in numeric)
    return needed


def _nearly_there(missing: list[str], names: Sequence[str]) -> str:
    """Find names that differ from a header only in capitals, white space or byte-order marks."""
    found = {_ANY_SPELLING.folded(name): name for name in names}
    near = [(found.get(_ANY_SPELLING.folded(name)), name) for name in missing]
    pairs = [f"{there!r} for {name!r}" for there, name in near if there is not None]
    more = ", ..." if len(pairs) > 5 else ""
    return f". It has {', '.join(pairs[:5])}{more}: rename one of the two" if pairs else ""


def _refuse_absent(table: _Table, names: Sequence[str]) -> None:
    """Refuse a table without columns that are read beside the schema's, or of an unusable type."""
    for name in names:
        if name not in table.names:
            raise DataError(
                f"{table.where} must have the column that is kept; {name!r} is not there: name "
                "one of its columns"
            )
        if table.types is not None:
            check_type(name, table.types.field(name).type, table.where, as_number=False)


def _listed(names: list[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:5])
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"{shown}{more} {'is' if len(names) == 1 else 'are'}"


def check_type(name: str, kind: pa.DataType, where: str, *, as_number: bool) -> None:
    """Refuse a column of a type that cannot be read, whatever it holds."""
    if not is_readable(kind, as_number=as_number):
        raise DataError(
            f"column {name!r} of {where} must hold "
            f"{'numbers' if as_number else 'numbers or text'}; its type is {kind}: convert it"
        )


def _from_pandas(frame: Any) -> pa.Table:
    names = [canonical_text(name) for name in frame.columns]
    arrays = [_from_series(frame.iloc[:, number]) for number in range(len(names))]
    return pa.Table.from_arrays(arrays, names=names)


def _from_series(series: Any) -> pa.Array:
    try:
        array = pa.Array.from_pandas(series)
    except Exception:
        array = None
    if array is None or (_holds_objects(series) and not _is_text(array.type)):
        # The kind that Arrow sees in objects depends on all of them: each is taken by itself, as
        # it would be read from a file.
        array = pa.array([bytes_of(cell) for cell in series], pa.large_binary())
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _holds_objects(series: Any) -> bool:
    kind = series.dtype
    return str(kind.categories.dtype if hasattr(kind, "categories") else kind) == "object"


def _is_text(kind: pa.DataType) -> bool:
    return holds_text(kind.value_type if pa.types.is_dictionary(kind) else kind)
