"""The parts of a folder of Parquet files: which there are, and the rows of one of them.

The folder may be on any file system that ``fsspec`` knows. Its parts are the files in it whose
names end in ``.parquet`` or ``.pq``, in the order of their names: that is the order of the rows.
Before it reads a row, :func:`list_parts` notes which parts there are, how many rows each has and
when it was written. A part that is not as noted is refused wherever it is encoded, so that one
encoded again gives the same rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dpadmm.data.encode import EncodedBatch, Layout, RowsInMemory, RowsStore
from dpadmm.data.schema import Schema
from dpadmm.data.tables import (
    PARQUET_SUFFIXES,
    PartyRows,
    StoredFile,
    check_columns,
    encoded_batches,
    own_words,
)
from dpadmm.errors import DataError, needs_extra

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
