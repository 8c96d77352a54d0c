"""Data sets by name."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from dpadmm.data import raetsch
from dpadmm.data.adult import load_adult
from dpadmm.data.dataset import Dataset
from dpadmm.data.raetsch import Origin
from dpadmm.errors import unknown_name
from dpadmm.sentences import DataError

NAMES: Final = ("adult", *raetsch.RAETSCH_NAMES)


def load(
    name: str,
    folder: str | Path | None = None,
    seed: int = 0,
    *,
    rows: int | None = None,
    origin: Origin = "auto",
    download: bool = True,
) -> Dataset:
    """Load a public data set by name.

    Parameters
    ----------
    name
        One of :data:`NAMES`.
    folder
        Where the files are; without it, the folder in the environment variable
        ``DPADMM_DATA``, then ``~/.cache/dpadmm`` (or ``$XDG_CACHE_HOME/dpadmm``).
    seed, rows
        For data sets that are drawn: the seed, and the number of rows (their own unless given).
    origin
        For Rätsch's problems: where from (see :func:`dpadmm.data.raetsch.load_raetsch`).
    download
        Whether the network may be used for what is not on this machine.

    Raises
    ------
    DataError
        If the name is not known, or the data are not here; says where they can be had.
    """
    if name not in NAMES:
        raise DataError(str(unknown_name("data set", name, NAMES)))
    if name == "adult":
        if rows is not None or origin != "auto":
            raise DataError("rows and origin are for Rätsch's problems; leave them out for adult")
        return load_adult(folder, download=download)
    return raetsch.load_raetsch(
        name, folder, seed=seed, rows=rows, origin=origin, download=download
    )
