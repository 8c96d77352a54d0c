"""Encoded rows on disk: an ``.npy`` file that is complete or not there."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from dpadmm.data.encode import EncodedBatch
from dpadmm.sentences import DataError

__all__ = ["RowsFile"]

WRITE_BYTES: Final = 2**24


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
        self._path = path
        self._features = features
        self._partial = path.with_name(f".{path.name}.{secrets.token_hex(8)}.partial")
        try:
            # Encoded rows are private: nobody else may read them.
            handle = os.open(self._partial, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        except OSError as error:
            raise self._error(error) from None
        self._file = os.fdopen(handle, "wb")

    def __enter__(self) -> Self:
        try:
            self._write_header(0)
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._remove()

    def write(self, batch: EncodedBatch) -> None:
        """Append the rows of a batch."""
        rows = batch.counts.rows
        step = max(1, WRITE_BYTES // (8 * self._features))
        for start in range(0, rows, step):
            dense = np.zeros((min(step, rows - start), self._features))
            batch.write_into(dense, start)
            try:
                self._file.write(dense.astype("<f8", copy=False).data)
            except OSError as error:
                raise self._error(error) from None

    def finish(self, rows: int) -> NDArray[np.float64]:
        """Make the file durable under its name and map it into memory, read-only."""
        try:
            self._file.seek(0)
            self._write_header(rows)
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            os.replace(self._partial, self._path)
            folder = os.open(self._path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise self._error(error) from None
        # An array without rows cannot be mapped.
        result: NDArray[np.float64] = np.load(self._path, mmap_mode="r" if rows else None)
        return result

    def _write_header(self, rows: int) -> None:
        # The format leaves room for the first number of the shape to grow, so the header has
        # the same length whatever the number of rows.
        shape = (rows, self._features)
        content = {"descr": "<f8", "fortran_order": False, "shape": shape}
        try:
            np.lib.format.write_array_header_1_0(self._file, content)
        except OSError as error:
            raise self._error(error) from None

    def _remove(self) -> None:
        try:
            self._file.close()
        except OSError:
            # What was not written yet is of no use any more.
            pass
        finally:
            self._partial.unlink(missing_ok=True)

    def _error(self, error: OSError) -> DataError:
        return DataError(
            f"into must be writable with room for the encoded rows; got {self._path}: "
            f"{error.strerror or error}: choose another place or free some room"
        )
