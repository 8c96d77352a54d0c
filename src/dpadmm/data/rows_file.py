"""Encoded rows on disk: an ``.npy`` file that is complete or not there."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Final, Self, final

import numpy as np
from numpy.typing import NDArray

from dpadmm.data.encode import EncodedBatch
from dpadmm.durable import written_whole
from dpadmm.sentences import DataError

WRITE_BYTES: Final = 2**24


@final
class RowsFile:
    """Collects rows in a file beside the one wanted and renames it at the end.

    Rows are written with plain writes, not through a memory map: a full disk is then an error
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
            # What was not finished ends as by an error: nothing is left behind.
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
