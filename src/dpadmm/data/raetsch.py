"""The seven larger problems of Rätsch's benchmark, or the nearest there is to them.

G. Rätsch, T. Onoda and K.-R. Müller, *Soft margins for AdaBoost*, Machine Learning 42, 2001.
The benchmark's own file (``benchmarks.mat``, which the package ``scikit-datasets`` fetches) is
taken when asked for; else KEEL's copies of the sets behind it, made to look like it as far as
is known; else, for three of them, Breiman's generators. What was taken is in ``source``.

Columns are scaled to [-1, 1] by fixed public bounds and divided by the root of their number, so
that no row is longer than 1; drawn sets are scaled as :mod:`dpadmm.data.generators` says.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from dpadmm.data import generators
from dpadmm.data.dataset import Dataset, find_file, read_unpacked
from dpadmm.problem.rows import clip_rows
from dpadmm.sentences import DataError

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
    draw: Callable[[int, int], generators.Sample] | None = None


_READERS: Final = {
    "german": _german,
    "image": _image,
    "ringnorm": _ringnorm,
    "banana": _banana,
    "splice": _splice,
    "twonorm": _twonorm,
}
_DRAWN: Final = {
    "ringnorm": generators.ringnorm,
    "twonorm": generators.twonorm,
    "waveform": generators.waveform,
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


def _drawn(
    name: str, draw: Callable[[int, int], generators.Sample], rows: int, seed: int
) -> Dataset:
    X, y = draw(rows, seed)
    return Dataset.of(
        name,
        generators.scaled(name, X),
        y,
        tuple(f"x{number + 1}" for number in range(X.shape[1])),
        f"drawn by Breiman's generator ({rows} rows, seed {seed}); not the benchmark's own rows",
        f"Divided by the public bound {generators.NORM_BOUNDS[name]:g}; rows scaled down to "
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
        X = generators.scaled(name, X)
        notes += f" Divided by the public bound {generators.NORM_BOUNDS[name]:g}."
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
