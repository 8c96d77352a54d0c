"""Accuracy over epsilon on UCI Adult: the figure of the first page.

``DPADMM_DATA=folder python -m benchmarks.utility_figure`` measures, which takes minutes, and leaves
``accuracy.json`` and ``accuracy.svg`` in ``docs/images``; with ``--draw`` it only draws what was
measured.

Twenty parties with 2,000 rows each, delta = 1e-5, and the rows, splits, seeds and parameters of
:mod:`benchmarks.utility`: public defaults, nothing tuned here. Figures are means over two splits
with ten seeds of noise each.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

import dpadmm
from benchmarks.utility import (
    ALONE,
    DELTA,
    MEASURE,
    PLAIN,
    PRIVATE,
    RUNS,
    SHARED,
    SPLITS,
    SplitProblem,
    scores,
)
from dpadmm.experiments.comparison import alone_cells, pooled_cell
from dpadmm.experiments.problems import OnePartyProblem
from dpadmm.privacy.figures import Given
from dpadmm.report.document import LinePlot, Series
from dpadmm.report.svg import draw, standalone

PARTIES: Final = 20
EPSILONS: Final = (0.1, 0.3, 1.0, 3.0, 10.0)
FOLDER: Final = Path(__file__).parents[1] / "docs" / "images"
NUMBERS, PICTURE = "accuracy.json", "accuracy.svg"


def levels(split: int) -> Iterator[tuple[str, float]]:
    """What needs no budget: its name, and accuracy in percent."""
    problem = SplitProblem("adult", PARTIES, split)
    cells = alone_cells(problem, PLAIN, PARTIES, (MEASURE,))
    alone = [100 * cell.compute().final(MEASURE)[0] for cell in cells]
    yield "a party alone, no privacy", float(np.mean(alone))
    codes = problem.load().test_codes
    yield "always the larger class", float(100 * np.bincount(codes).max() / len(codes))
    pooled = pooled_cell(problem, PLAIN, PARTIES, (MEASURE,))
    yield "all rows in one place, no privacy", float(100 * pooled.compute().final(MEASURE)[0])


def curves(split: int, epsilon: float) -> Iterator[tuple[str, float]]:
    """What is trained within a budget: its name, and mean accuracy in percent."""
    problem = SplitProblem("adult", PARTIES, split)
    central = replace(PRIVATE, regularization=PRIVATE.regularization / PARTIES)
    curator = OnePartyProblem(problem)
    yield "one trusted curator", float(scores(curator, central, epsilon, split).mean())
    yield "together, shared noise", float(scores(problem, SHARED, epsilon, split).mean())
    yield "together, own noise", float(scores(problem, PRIVATE, epsilon, split).mean())
    alone = [
        scores(OnePartyProblem(problem, party), PRIVATE, epsilon, split).mean()
        for party in range(ALONE)
    ]
    yield "a party alone", float(np.mean(alone))


def measured() -> dict[str, Any]:
    """Every number of the figure, and what it was measured with."""
    found_levels: dict[str, list[float]] = {}
    found_curves: dict[str, dict[float, list[float]]] = {}
    for split in range(SPLITS):
        for name, accuracy in levels(split):
            found_levels.setdefault(name, []).append(accuracy)
        for epsilon in EPSILONS:
            for name, accuracy in curves(split, epsilon):
                of_curve = found_curves.setdefault(name, {})
                of_curve.setdefault(epsilon, []).append(accuracy)
            print(f"split {split}, epsilon {epsilon:g} done", file=sys.stderr, flush=True)
    return {
        "dpadmm": dpadmm.__version__,
        "numpy": np.__version__,
        "data": "UCI Adult, 40,000 training rows",
        "parties": PARTIES,
        "delta": DELTA,
        "splits": SPLITS,
        "runs": RUNS,
        "epsilon": list(EPSILONS),
        "levels": {name: round(float(np.mean(each)), 4) for name, each in found_levels.items()},
        "curves": {
            name: [round(float(np.mean(of_curve[epsilon])), 4) for epsilon in EPSILONS]
            for name, of_curve in found_curves.items()
        },
    }


def drawn(numbers: dict[str, Any]) -> str:
    """The figure as a file of its own."""
    across = tuple(numbers["epsilon"])
    # What needs no budget is as good at every epsilon.
    flat = {name: [level] * len(across) for name, level in numbers["levels"].items()}
    lines = numbers["curves"] | flat
    plot = LinePlot(
        title=f"Accuracy over epsilon: UCI Adult at {numbers['parties']} parties",
        x_label=f"epsilon of every person, in total (delta {Given(numbers['delta'])})",
        y_label="accuracy on held-out rows, %",
        series=tuple(Series(name, across, tuple(each)) for name, each in lines.items()),
        log_x=True,
        beside=True,
    )
    return standalone(draw(plot, "accuracy"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draw", action="store_true", help="draw what was measured before")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    chosen = parser.parse_args()
    place = chosen.folder / NUMBERS
    if not chosen.draw:
        place.write_text(json.dumps(measured(), indent=1) + "\n", encoding="utf-8")
    numbers = json.loads(place.read_text(encoding="utf-8"))
    (chosen.folder / PICTURE).write_text(drawn(numbers) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
