"""The rows of each party, encoded: from a file of its own, or from one file with all parties.

Rows go to a file on disk that is mapped into memory and has no name any more: however the process
ends, nothing private stays behind. Only where the schema makes rows mostly zeros are they kept in
memory, as a sparse array.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpadmm.data.encode import EncodedBatch, RowsInMemory, RowsStore, is_sparse
from dpadmm.data.rows_file import RowsFile
from dpadmm.data.schema import Schema
from dpadmm.data.tables import encoded_batches
from dpadmm.sentences import DataError

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

    Whose row it is is public: a row that names nobody is refused.
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
    # Asked as if there were very many rows: how many there are is not known yet.
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
