"""The rows of each party, encoded: from one file a party, one file for all, or a folder of parts.

Rows go to a file on disk that is mapped into memory and has no name any more: however the process
ends, nothing private stays behind. Rows stay in memory, as a sparse array, only where the schema
makes them mostly zeros.

A folder of Parquet files may be on any file system that ``fsspec`` knows. Its parts are the files
in it whose names end in ``.parquet`` or ``.pq``, in the order of their names: that is the order of
the rows. Before it reads a row, :func:`list_parts` notes which parts there are, how many rows each
has and when it was written. A part that is not as noted is refused wherever it is encoded, so that
one encoded again gives the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpadmm.data.encode import EncodedBatch, Layout, RowsInMemory, RowsStore, is_sparse
from dpadmm.data.schema import Schema
from dpadmm.data.tables import (
    PARQUET_SUFFIXES,
    RowsFile,
    StoredFile,
    check_columns,
    encoded_batches,
    own_words,
)
from dpadmm.errors import DataError, needs_extra

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


# Names that file systems give to what changes with a file; the first one found counts.
_MARKS: Final = ("ETag", "etag", "mtime", "LastModified", "last_modified", "updated", "created")


@dataclass(frozen=True, slots=True)
class RowPart:
    """One file of a folder, as it was when the folder was looked at; public.

    Attributes
    ----------
    file
        Where it is.
    rows
        How many rows it says it has.
    written
        Its size and when it was written, or what its file system has in place of that.
    """

    file: StoredFile
    rows: int
    written: str


def list_parts(folder: str, schema: Schema, *, rows: int | None = None) -> tuple[RowPart, ...]:
    """Look at a folder of Parquet files: which there are, their columns and numbers of rows.

    The function reads no row.

    Parameters
    ----------
    folder
        A path, or an address that ``fsspec`` knows.
    schema
        The public description, whose columns every part must have.
    rows
        How many rows there must be in all; any number unless given.

    Raises
    ------
    DataError
        If there is no such folder, it has no parts, one has other columns, or they do not have so
        many rows.
    """
    names, system = _names(folder)
    parts = []
    for name in names:
        file = StoredFile(name)
        written = _written(system, file)
        found = check_columns(file, schema)
        assert found is not None
        parts.append(RowPart(file, found, written))
    total = sum(part.rows for part in parts)
    if total == 0 or rows not in (None, total):
        wanted = "at least one row" if rows is None else f"{rows} rows, as declared,"
        raise DataError(
            f"the {len(parts)} parts in {folder} must have {wanted} in all; they have {total}: "
            "correct one"
        )
    return tuple(part for part in parts if part.rows)


def _names(folder: str) -> tuple[list[str], Any]:
    """Addresses of the parts in a folder, in order, and the file system they are on."""
    with needs_extra("dask"):
        from fsspec.core import url_to_fs
    try:
        system, root = url_to_fs(folder)
    except (ImportError, ValueError) as error:
        raise DataError(
            f"folder must be a path, or an address that fsspec can open here; got {folder}: "
            f"{type(error).__name__}. Install what its protocol needs, or correct it"
        ) from None
    with own_words(folder):
        if not system.isdir(root):
            raise DataError(f"folder must be there, with Parquet files in it; got {folder}")
        found = sorted(system.find(root, maxdepth=1))
    names = [name for name in found if name.lower().endswith(PARQUET_SUFFIXES)]
    if not names:
        raise DataError(
            f"folder must have files that end in {' or '.join(PARQUET_SUFFIXES)}; {folder} has none"
        )
    prefixed: Callable[[str], str] = system.unstrip_protocol if "://" in folder else str
    return [prefixed(name) for name in names], system


def _written(system: Any, file: StoredFile) -> str:
    with own_words(file):
        # The file system may have cached the listing: look again.
        system.invalidate_cache()
        facts = system.info(file.address)
    mark = next((facts[name] for name in _MARKS if facts.get(name) is not None), "")
    return f"{facts['size']} {mark}"


def encode_part(part: RowPart, schema: Schema, layout: Layout) -> PartyRows:
    """Encode one part into memory: the same rows as those of a file of the same cells.

    Parameters
    ----------
    part, schema
        Which one, and the public description.
    layout
        "dense" or "sparse", the same for all parts (:func:`~dpadmm.data.encode.is_sparse`).

    Raises
    ------
    DataError
        If the part is no longer what it was when the folder was looked at.
    """
    from fsspec.core import url_to_fs

    system, _ = url_to_fs(part.file.address)
    if _written(system, part.file) != part.written:
        raise _changed(part)
    store: RowsStore
    if layout == "sparse":
        store = RowsInMemory(schema, layout)
    else:
        store = _DenseRows(part, len(schema.feature_names))
    labels: list[NDArray[np.int64]] = []
    for batch in encoded_batches(part.file, schema):
        assert batch.labels is not None
        labels.append(batch.labels)
        store.write(batch)
    return PartyRows(store.finish(part.rows), np.concatenate(labels))


def _changed(part: RowPart) -> DataError:
    return DataError(
        f"parts must stay as they were when the run began; {part.file} was written again: put it "
        "back, or begin another run"
    )


class _DenseRows:
    """Rows of one part, written where they stay: nothing makes a second copy of them."""

    def __init__(self, part: RowPart, features: int) -> None:
        self._part, self._start = part, 0
        self._rows = np.zeros((part.rows, features))

    def write(self, batch: EncodedBatch) -> None:
        """Append the rows of a batch."""
        stop = self._start + batch.counts.rows
        if stop > len(self._rows):
            raise _changed(self._part)
        batch.write_into(self._rows[self._start : stop])
        self._start = stop

    def finish(self, rows: int) -> Any:
        """All rows."""
        if self._start != rows:
            raise _changed(self._part)
        return self._rows
