"""Data sets by name: UCI Adult, and the seven larger problems of Rätsch's benchmark.

**Adult** (Census Income) is prepared as the papers on private ADMM prepare it. Rows with a missing
value are left out (the data are public): 45,222 are left. The six numeric columns are scaled to
[0, 1] by the bounds of the schema shipped in ``adult.toml``, the eight categorical ones become 98
columns, and a constant is added: 105 columns in the order numeric, one-hot, constant. Then a row is
scaled down to norm 1 where it is longer. The label is +1 for an income above 50,000 dollars.

**Rätsch's benchmark**: G. Rätsch, T. Onoda and K.-R. Müller, *Soft margins for AdaBoost*, Machine
Learning 42, 2001. A caller can ask for the benchmark's own file (``benchmarks.mat``, which the
package ``scikit-datasets`` fetches). Otherwise we take KEEL's copies of the sets behind it, made to
look like it as far as is known, or, for three of them, Breiman's generators. ``source`` says which.

Columns are scaled to [-1, 1] by fixed public bounds and divided by the root of their number, so
that no row is longer than 1; drawn sets are scaled as :mod:`dpadmm.data.dataset` says.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from numpy.typing import NDArray

from dpadmm.data.dataset import (
    NORM_BOUNDS,
    Dataset,
    Sample,
    cache_folder,
    find_file,
    read_unpacked,
    ringnorm,
    scaled,
    twonorm,
    waveform,
)
from dpadmm.data.encode import EncodedRows, assemble, encode_batch
from dpadmm.data.schema import Schema
from dpadmm.errors import DataError, unknown_name
from dpadmm.problem.rows import clip_rows

ADULT_COLUMNS: Final = (
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "education-num",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital-gain",
    "capital-loss",
    "hours-per-week",
    "native-country",
    "income",
)
MD5: Final = {
    "adult.data": "5d7c39d7b8804f071cdd1f2a7c460872",
    "adult.test": "35238206dfdf7f1fe215bbb874adecdc",
}
COMPLETE_ROWS: Final = 45_222
ADULT_NOTES: Final = (
    "Rows with a missing value left out; 6 numeric columns scaled to [0, 1] by public bounds, "
    "98 one-hot columns, a constant; rows scaled down to norm 1 where longer."
)
WHERE_ADULT: Final = (
    "put adult.data and adult.test (also packed: .gz) from "
    "https://archive.ics.uci.edu/dataset/2/adult into the folder named by DPADMM_DATA"
)


def adult_schema() -> Schema:
    """Return the public schema shipped with the package."""
    text = resources.files("dpadmm.data").joinpath("adult.toml").read_text("utf-8")
    return Schema.from_toml(text)


def adult_table(folder: str | Path | None = None) -> pa.Table | None:
    """Read the two original files as text, all 48,842 rows; None if they are not there.

    Labels of the second file lose the full stop they end in.

    Raises
    ------
    DataError
        If a file is there but is not the original.
    """
    tables = []
    for name, expected in MD5.items():
        path = find_file(name, folder)
        if path is None:
            return None
        data = read_unpacked(path)
        found = hashlib.md5(data, usedforsecurity=False).hexdigest()
        if found != expected:
            raise DataError(
                f"{path} must be UCI's {name} with md5 {expected}; got {found}: fetch it again"
            )
        options = pyarrow.csv.ReadOptions(
            column_names=list(ADULT_COLUMNS), skip_rows=int(name == "adult.test")
        )
        types = dict.fromkeys(ADULT_COLUMNS, pa.string())
        table = pyarrow.csv.read_csv(
            pa.BufferReader(data),
            read_options=options,
            convert_options=pyarrow.csv.ConvertOptions(column_types=types),
        )
        columns = [pc.utf8_trim(column, " ") for column in table.columns]
        columns[-1] = pc.utf8_rtrim(columns[-1], ".")
        tables.append(pa.Table.from_arrays(columns, names=list(ADULT_COLUMNS)))
    return pa.concat_tables(tables)


def _from_openml() -> pa.Table:
    from sklearn.datasets import fetch_openml

    home = cache_folder() / "openml"
    frame: Any = fetch_openml("adult", version=2, as_frame=True, data_home=home).frame
    frame = frame.rename(columns={"class": "income"})
    return pa.Table.from_pandas(frame[list(ADULT_COLUMNS)], preserve_index=False)


def _encode(table: pa.Table) -> EncodedRows:
    schema = adult_schema()
    batches = table.combine_chunks().to_batches()
    # Public data: leaving rows out is what the papers do, and no budget is touched.
    encoded = (encode_batch(b, schema, drop_incomplete_public_rows=True) for b in batches)
    return assemble(encoded, schema, layout="dense")


def load_adult(folder: str | Path | None = None, *, download: bool = True) -> Dataset:
    """Load Adult from its original files, or from OpenML where there is a network.

    Parameters
    ----------
    folder
        Where the files are; without it, the folder in ``DPADMM_DATA``, then the cache folder.
    download
        Whether OpenML (through scikit-learn) may be asked for what is not there.
    """
    table = adult_table(folder)
    source = "UCI Adult, the original files adult.data and adult.test (md5 checked), CC BY 4.0"
    if table is None:
        if not download:
            raise DataError(
                f"adult must be on this machine; its files are not found: {WHERE_ADULT}"
            )
        try:
            table = _from_openml()
        except Exception as error:
            # scikit-learn passes on whatever the network, the parser or the disk raised.
            raise DataError(
                f"adult must be on this machine or at OpenML; got neither ({error}): {WHERE_ADULT}"
            ) from None
        source = "UCI Adult, the copy at OpenML (data set 1590, version 2); rows in its order"
    encoded = _encode(table)
    found = encoded.counts
    if found.rows != COMPLETE_ROWS or found.bad_labels:
        raise DataError(
            f"adult must have {COMPLETE_ROWS} complete rows and known labels; got {found.rows} "
            f"rows and {found.bad_labels} unknown labels: {WHERE_ADULT}"
        )
    return Dataset.of(
        "adult", np.asarray(encoded.rows), encoded.signs, encoded.feature_names, source, ADULT_NOTES
    )


Origin = Literal["auto", "keel", "raetsch", "generator"]
Cells = list[tuple[str, ...]]
PrintedTable = tuple[NDArray[np.float64], NDArray[np.float64]]

IMAGE_NEGATIVE: Final = ("4", "5", "7")


def _numbers(cells: Cells) -> NDArray[np.float64]:
    return np.array([row[:-1] for row in cells], np.float64)


def _signs(cells: Cells, positive: tuple[str, ...]) -> NDArray[np.float64]:
    return np.array([1.0 if row[-1] in positive else -1.0 for row in cells])


def _banana(cells: Cells) -> PrintedTable:
    return _numbers(cells), _signs(cells, ("1.0",))


def _german(cells: Cells) -> PrintedTable:
    # "A34" in the third column is level 4 of attribute 3.
    prefixes = [f"A{number + 1}" for number in range(20)]
    codes = [
        tuple(c.removeprefix(p) for c, p in zip(row[:-1], prefixes, strict=True)) for row in cells
    ]
    return np.array(codes, np.float64), _signs(cells, ("2",))


def _image(cells: Cells) -> PrintedTable:
    cells = list(dict.fromkeys(cells))
    return np.delete(_numbers(cells), 2, axis=1), -_signs(cells, IMAGE_NEGATIVE)


def _splice(cells: Cells) -> PrintedTable:
    cells = [row for row in dict.fromkeys(cells) if set(row[:-1]) <= set("ACGT")]
    codes = [tuple("ACGT".index(c) + 1 for c in row[:-1]) for row in cells]
    return np.array(codes, np.float64), _signs(cells, ("EI", "IE"))


def _ringnorm(cells: Cells) -> PrintedTable:
    return _numbers(cells) / 1000, _signs(cells, ("0",))


def _twonorm(cells: Cells) -> PrintedTable:
    return _numbers(cells), _signs(cells, ("0",))


@dataclass(frozen=True, slots=True)
class _Recipe:
    """A problem as ``raetsch.toml`` has it, how its file is read and how it is drawn."""

    rows: int
    file: str | None = None
    file_rows: int = 0
    notes: str = ""
    bounds: dict[str, tuple[float, float]] = field(default_factory=dict)
    read: Callable[[Cells], PrintedTable] | None = None
    draw: Callable[[int, int], Sample] | None = None


_READERS: Final = {
    "german": _german,
    "image": _image,
    "ringnorm": _ringnorm,
    "banana": _banana,
    "splice": _splice,
    "twonorm": _twonorm,
}
_DRAWN: Final = {
    "ringnorm": ringnorm,
    "twonorm": twonorm,
    "waveform": waveform,
}


def _recipes() -> dict[str, _Recipe]:
    told = tomllib.loads(resources.files("dpadmm.data").joinpath("raetsch.toml").read_text("utf-8"))
    told["splice"]["bounds"] = {f"base{place:+d}": (1, 4) for place in range(-30, 31) if place}
    return {
        name: _Recipe(**facts, read=_READERS.get(name), draw=_DRAWN.get(name))
        for name, facts in told.items()
    }


RECIPES: Final = _recipes()
RAETSCH_NAMES: Final = tuple(RECIPES)


def load_raetsch(
    name: str,
    folder: str | Path | None = None,
    *,
    seed: int = 0,
    rows: int | None = None,
    origin: Origin = "auto",
    download: bool = True,
) -> Dataset:
    """Load one of the benchmark's problems; parameters are :func:`dpadmm.data.named.load`'s.

    "keel" is KEEL's file, "generator" a draw and "raetsch" the benchmark's own file; "auto" takes
    the first of these that there is, in this order.
    """
    recipe = RECIPES[name]
    if origin not in ("auto", "keel", "raetsch", "generator"):
        raise DataError(f"origin must be 'auto', 'keel', 'raetsch' or 'generator'; got {origin!r}")
    path = find_file(recipe.file, folder) if recipe.file else None
    draws = origin == "generator" or (origin == "auto" and (path is None or rows is not None))
    if recipe.draw is not None and draws:
        return _drawn(name, recipe.draw, recipe.rows if rows is None else rows, seed)
    if rows is not None:
        raise DataError(f"rows can be chosen for what is drawn only; got {rows} for {name}")
    if path is not None and origin in ("auto", "keel"):
        return _from_keel(name, recipe, path)
    if origin in ("auto", "raetsch") and download:
        return _from_benchmark(name)
    raise DataError(f"{name} from {origin!r} is not to be had here: {where_raetsch(name)}")


def where_raetsch(name: str) -> str:
    """Say where a problem can be had."""
    recipe = RECIPES[name]
    ways = []
    if recipe.file:
        ways.append(
            f"put KEEL's {recipe.file} (https://sci2s.ugr.es/keel/datasets.php; also packed: "
            ".gz) into the folder named by DPADMM_DATA"
        )
    if recipe.draw:
        ways.append("draw it with origin='generator'")
    ways.append(
        "fetch the benchmark's file with origin='raetsch' (pip install '.[datasets]' in a clone of "
        "dpadmm, and a network)"
    )
    return ", or ".join(ways)


def _drawn(name: str, draw: Callable[[int, int], Sample], rows: int, seed: int) -> Dataset:
    X, y = draw(rows, seed)
    return Dataset.of(
        name,
        scaled(name, X),
        y,
        tuple(f"x{number + 1}" for number in range(X.shape[1])),
        f"drawn by Breiman's generator ({rows} rows, seed {seed}); not the benchmark's own rows",
        f"Divided by the public bound {NORM_BOUNDS[name]:g}; rows scaled down to "
        "norm 1 where longer.",
    )


def _from_keel(name: str, recipe: _Recipe, path: Path) -> Dataset:
    lines = read_unpacked(path).decode("utf-8", "replace").splitlines()
    cells = [
        tuple(cell.strip() for cell in line.split(","))
        for line in lines
        if line.strip() and not line.startswith("@")
    ]
    assert recipe.read is not None
    try:
        X, y = recipe.read(cells)
    except (ValueError, IndexError) as error:
        raise DataError(
            f"{path} must be KEEL's {recipe.file}; got: {error}: {where_raetsch(name)}"
        ) from None
    if len(cells) != recipe.file_rows or X.shape != (recipe.rows, X.shape[1]):
        raise DataError(
            f"{path} must be KEEL's {recipe.file} with {recipe.file_rows} rows; got "
            f"{len(cells)}: {where_raetsch(name)}"
        )
    notes = recipe.notes
    if recipe.bounds:
        names = tuple(recipe.bounds)
        lower, upper = np.array(list(recipe.bounds.values())).T
        X = _between(X, lower, upper)
        notes += (
            " Columns scaled to [-1, 1] by public bounds and divided by the root of their number."
        )
    else:
        names = tuple(f"x{number + 1}" for number in range(X.shape[1]))
        X = scaled(name, X)
        notes += f" Divided by the public bound {NORM_BOUNDS[name]:g}."
    source = f"KEEL's copy ({recipe.file}); not identical to Rätsch's benchmarks.mat"
    return Dataset.of(name, X, y, names, source, notes.strip())


def _from_benchmark(name: str) -> Dataset:
    try:
        from skdatasets.repositories import raetsch
    except ImportError:
        raise DataError(
            f"{name} needs the package scikit-datasets to be fetched; it is not installed: "
            f"{where_raetsch(name)}"
        ) from None
    try:
        fetched: tuple[Any, Any] = raetsch.fetch(name, return_X_y=True)
    except Exception as error:
        # The package passes on whatever the network, the disk or the file's reader raised.
        raise DataError(f"{name} could not be fetched ({error}): {where_raetsch(name)}") from None
    X, y = np.asarray(fetched[0], np.float64), np.sign(np.asarray(fetched[1], np.float64))
    return Dataset.of(
        name,
        _between(X, X.min(axis=0), X.max(axis=0)),
        y,
        tuple(f"x{number + 1}" for number in range(X.shape[1])),
        "Rätsch's benchmarks.mat, through scikit-datasets (sha256 checked by it)",
        "Columns scaled to [-1, 1] by the smallest and largest value of this public file and "
        "divided by the root of their number.",
    )


def _between(
    X: NDArray[np.float64], lower: NDArray[np.float64], upper: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Scale columns to [-1, 1] and divide by the root of their number: norm at most 1."""
    half = np.where(upper > lower, (upper - lower) / 2, 1.0)
    inside = (np.clip(X, lower, upper) - (lower + upper) / 2) / half
    return clip_rows(inside / np.sqrt(X.shape[1]))


NAMES: Final = ("adult", *RAETSCH_NAMES)


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
        For Rätsch's problems: where from (see :func:`dpadmm.data.named.load_raetsch`).
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
    return load_raetsch(name, folder, seed=seed, rows=rows, origin=origin, download=download)
