"""What a data set is, and where its files are looked for."""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dpadmm.sentences import DataError

FOLDER_VARIABLE: Final = "DPADMM_DATA"


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """A public data set, ready for training.

    Attributes
    ----------
    name
        What it was asked for as.
    X
        Rows of norm at most 1.
    y
        Labels of -1 and +1.
    feature_names
        Names of the columns of `X`.
    source
        Where the rows come from; says so when they stand in for something else.
    checksum
        The sha256 of `X` and `y`: the same rows have the same checksum, whatever the source.
    notes
        What was done to the rows, and what is known to be odd about them.
    """

    name: str
    X: NDArray[np.float64] = field(repr=False)
    y: NDArray[np.float64] = field(repr=False)
    feature_names: tuple[str, ...] = field(repr=False)
    source: str
    checksum: str
    notes: str

    @classmethod
    def of(
        cls,
        name: str,
        X: NDArray[np.float64],
        y: NDArray[np.float64],
        feature_names: tuple[str, ...],
        source: str,
        notes: str,
    ) -> Dataset:
        """Make a data set and its checksum; its arrays cannot be written to any more."""
        X, y = np.ascontiguousarray(X, np.float64), np.ascontiguousarray(y, np.float64)
        X.flags.writeable = False
        y.flags.writeable = False
        return cls(name, X, y, feature_names, source, checksum(X, y), notes)


def checksum(X: NDArray[np.float64], y: NDArray[np.float64]) -> str:
    """Return the sha256 of the shape, the rows and the labels (little-endian, row by row)."""
    digest = hashlib.sha256(repr(X.shape).encode("ascii"))
    for array in (X, y):
        digest.update(np.ascontiguousarray(array, "<f8").data)
    return digest.hexdigest()


def cache_folder() -> Path:
    """Return the folder that files are kept in when no other is named."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "dpadmm"


def find_file(name: str, folder: str | Path | None) -> Path | None:
    """Look for a file, packed or not: in the folder given, or else in the usual ones.

    The usual ones are the folder in the environment variable ``DPADMM_DATA``, then the cache
    folder.
    """
    variable = os.environ.get(FOLDER_VARIABLE)
    usual = [*([Path(variable)] if variable else []), cache_folder()]
    for place in [Path(folder)] if folder is not None else usual:
        for candidate in (place / f"{name}.gz", place / name):
            if candidate.is_file():
                return candidate
    return None


def read_unpacked(path: Path) -> bytes:
    """Read a file, unpacking it if it is packed."""
    try:
        data = path.read_bytes()
        return gzip.decompress(data) if path.suffix == ".gz" else data
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"data file must be readable; got {path}: {error}") from None
