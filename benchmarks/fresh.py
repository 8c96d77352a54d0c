"""Together against alone on sets that nothing was chosen by: the figure of the first page.

``DPADMM_DATA=folder python -m benchmarks.fresh`` measures, which takes minutes, and leaves
``together.json`` and ``together.svg`` in ``docs/images``; with ``--draw`` it only draws what was
measured.

No constant, default or rule of this package was chosen by these sets. Ten parties have equal parts
of the rows; a fifth of all rows is to judge by. Bounds of numeric columns are those of the file,
rounded outwards to one digit, in place of common knowledge; levels and classes are those of the
file. Everything else is a public default. Figures are means over three splits with five seeds.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import math
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

import dpadmm
from dpadmm import FederatedClassifier
from dpadmm.data.dataset import find_file, read_unpacked
from dpadmm.errors import DataError
from dpadmm.plain import Array
from dpadmm.privacy.figures import Given
from dpadmm.report.document import Bar, BarPlot
from dpadmm.report.svg import draw, standalone

SETS: Final = ("churn", "cells", "beps", "marketing")
PARTIES, EPSILON, DELTA, SPLITS, SEEDS = 10, 1.0, 1e-5, 3, 5
HELD_OUT: Final = 0.2
FOLDER: Final = Path(__file__).parents[1] / "docs" / "images"
WAYS: Final = (
    "a party alone",
    "together",
    "all rows, no privacy",
)


def table_of(name: str) -> tuple[Array, NDArray[np.int64]]:
    """Columns in [-1, 1] and classes from 0."""
    path = find_file(f"{name}.csv", None)
    if path is None:
        raise DataError(f"{name} needs {name}.csv in the folder named by DPADMM_DATA")
    rows = list(csv.DictReader(io.StringIO(read_unpacked(path).decode())))
    columns = []
    for column in rows[0]:
        cells = [row[column] for row in rows]
        if column == "label":
            continue
        try:
            columns.append(_scaled(np.array(cells, dtype=np.float64)))
        except ValueError:
            levels = sorted(set(cells))
            columns += [np.array(cells) == level for level in levels]
    _, codes = np.unique([row["label"] for row in rows], return_inverse=True)
    return np.column_stack(columns).astype(np.float64), codes.astype(np.int64)


def _scaled(values: Array) -> Array:
    low, high = _outwards(-values.min()) * -1, _outwards(values.max())
    return (2 * values - low - high) / (high - low)


def _outwards(value: float) -> float:
    """The next number above with one digit."""
    unit = 10.0 ** math.floor(math.log10(abs(value))) if value else 1.0
    return math.ceil(value / unit) * unit


def accuracies(name: str, split: int) -> Iterator[tuple[str, float]]:
    """Each way with its accuracy in percent."""
    X, y = table_of(name)
    order = np.random.default_rng([split, 5]).permutation(len(y))
    cut = int(HELD_OUT * len(y))
    judged, trained = order[:cut], order[cut:]
    owners = np.arange(len(trained)) % PARTIES
    classes, norm = np.unique(y), math.sqrt(X.shape[1])

    def score(rows: NDArray[np.intp], seed: int, **told: Any) -> float:
        model = FederatedClassifier(
            epsilon=EPSILON, delta=DELTA, data_norm=norm, random_state=seed, **told
        )
        parties = owners if len(rows) == len(trained) else np.zeros(len(rows), dtype=int)
        model.fit(X[rows], y[rows], parties=parties, classes=classes)
        return 100 * float(model.score(X[judged], y[judged]))

    for seed in range(SEEDS):
        yield WAYS[0], score(trained[owners == seed], seed)
        yield WAYS[1], score(trained, seed, noise="shared")
    pooled = LogisticRegression(C=100.0, max_iter=2000).fit(X[trained], y[trained])
    yield WAYS[2], 100 * float(pooled.score(X[judged], y[judged]))


def measured() -> dict[str, Any]:
    """Every number of the figure, and what it was measured with."""
    sets = {}
    for name in SETS:
        found: dict[str, list[float]] = {way: [] for way in WAYS}
        for split in range(SPLITS):
            for way, accuracy in accuracies(name, split):
                found[way].append(accuracy)
        y = table_of(name)[1]
        sets[name] = {
            "rows": len(y),
            "classes": len(np.unique(y)),
            "largest class": round(100 * float(np.bincount(y).max()) / len(y), 2),
            "accuracy": {way: round(float(np.mean(each)), 2) for way, each in found.items()},
        }
        print(name, sets[name], file=sys.stderr, flush=True)
    told = {"epsilon": EPSILON, "delta": DELTA, "parties": PARTIES, "seeds": SEEDS}
    return {"dpadmm": dpadmm.__version__, **told, "splits": SPLITS, "sets": sets}


def drawn(numbers: dict[str, Any]) -> str:
    """The figure as a file of its own."""
    bars = [
        Bar(f"{name}: {way}", accuracy)
        for name, facts in numbers["sets"].items()
        for way, accuracy in facts["accuracy"].items()
    ]
    plot = BarPlot(
        title=f"Together or alone: {numbers['parties']} parties at epsilon "
        f"{Given(numbers['epsilon'])}",
        name_label="who trains",
        value_label="accuracy on held-out rows, %",
        bars=tuple(bars),
        marked=frozenset(bar.name for bar in bars if bar.name.endswith(WAYS[1])),
        faint=frozenset(bar.name for bar in bars if bar.name.endswith(WAYS[2])),
    )
    return standalone(draw(plot, "together"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draw", action="store_true", help="draw what was measured before")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    place = chosen.folder / "together.json"
    if not chosen.draw:
        place.write_text(json.dumps(measured(), indent=1) + "\n", encoding="utf-8")
    numbers = json.loads(place.read_text(encoding="utf-8"))
    (chosen.folder / "together.svg").write_text(drawn(numbers) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
