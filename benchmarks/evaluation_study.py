"""Do the intervals of an evaluation hold, and are they short? The table of ``docs/evaluation.md``.

Run with ``python -m benchmarks.evaluation_study``; it takes some minutes. A population is drawn
up, rows are sampled from it and counted, noise is added to the counts, and the figures of that
histogram are compared with those of the population, 1,000 times for each case.

Coverage counts every interval, those from 0 to 1 of figures that are not determined included;
``given`` is the coverage of the others. Width is the mean over those given, divided by that of an
oracle which has seen the counts without noise: it takes Wilson's interval for a share, for an area
the wider of DeLong's and Newcombe's, and adds the variance of the known noise to the square of each
side. For the Brier score of a link that was fitted to the noisy counts it takes the true standard
deviation of the error, over the simulations. The oracle shares no code with the figures.

The exit code is 1 where coverage is below 93% or a width beyond 1.25.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtr

from dpadmm.evaluation.histogram import NoisyHistogram, ScoreGrid
from dpadmm.evaluation.intervals import Estimate
from dpadmm.evaluation.metrics import ModelFigures, evaluate_histogram
from dpadmm.plain import Array

SIMULATIONS: Final = 1000
LEAST_COVERAGE: Final = 0.93
WIDEST: Final = 1.25
#: Coverage and width of those given are told of figures given at least so often.
OFTEN: Final = 0.1
Z: Final = 1.959963984540054
GRID: Final = ScoreGrid.of_model(np.array([[10.0]]), 2)
#: Edges by number: a low threshold, zero and a high one.
THRESHOLDS: Final = {"low": 4, "zero": 7, "high": 10}
#: Rows of the population of three classes.
MANY: Final = 200_000


@dataclass(frozen=True)
class Case:
    """A population, how many rows are drawn, and the noise of each count.

    Attributes
    ----------
    rows, deviation
        Of the sample and of the noise.
    prevalence
        Share of the second class; of three classes that of the rarest.
    distance
        Between the classes' mean scores, whose standard deviation is 1.
    mixed
        Half of the second class has scores like the first's.
    classes
        Two or three.
    """

    rows: int
    deviation: float
    prevalence: float
    distance: float
    mixed: bool = False
    classes: int = 2

    @property
    def name(self) -> str:
        """In a table."""
        kind = f"{self.classes} classes, " if self.classes > 2 else "mixed, " if self.mixed else ""
        return (
            f"{self.rows:,} rows, {self.prevalence:.0%}, {kind}distance {self.distance:g}, "
            f"noise {self.deviation:g}"
        )


CASES: Final = (
    *(Case(100, noise, share, 1.5) for share in (0.5, 0.2) for noise in (0.0, 1.0, 3.0)),
    Case(100, 1.0, 0.5, 0.3),
    Case(100, 0.0, 0.5, 3.0),
    Case(100, 1.0, 0.5, 3.0),
    Case(300, 2.0, 0.3, 2.0),
    *(Case(1000, noise, share, 1.5) for share in (0.5, 0.1) for noise in (1.0, 5.0, 20.0)),
    Case(1000, 5.0, 0.3, 0.2),
    Case(1000, 5.0, 0.3, 3.0),
    Case(1000, 2.0, 0.5, 2.0, mixed=True),
    *(Case(10_000, noise, 0.03, 2.0) for noise in (1.0, 5.0, 20.0)),
    Case(10_000, 50.0, 0.4, 1.0),
    Case(10_000, 5.0, 0.5, 3.0),
    *(Case(300, noise, 0.2, 2.0, classes=3) for noise in (1.0, 4.0)),
    *(Case(3000, noise, 0.1, 1.5, classes=3) for noise in (2.0, 8.0)),
)


def _chances_of_bins(mean: float) -> Array:
    return np.diff(np.concatenate([[0.0], ndtr(np.array(GRID.edges) - mean), [1.0]]))


class Population:
    """Where rows come from: cells with their chances, or many rows to draw from."""

    def __init__(self, case: Case) -> None:
        self.case = case
        if case.classes == 2:
            first = _chances_of_bins(-case.distance / 2)
            second = _chances_of_bins(case.distance / 2)
            if case.mixed:
                second = (first + second) / 2
            self.grid = GRID
            self.chances = np.concatenate([(1 - case.prevalence) * first, case.prevalence * second])
            return
        random = np.random.default_rng(17)
        rest = (1 - case.prevalence) / 2
        self._labels = random.choice(3, MANY, p=[rest, rest, case.prevalence])
        self._scores = random.normal(size=(MANY, 3)) - 1.0
        self._scores[np.arange(MANY), self._labels] += case.distance
        self.grid = ScoreGrid.of_model(np.full((3, 1), 10.0), 3)
        self.chances = self.grid.counts(self._scores, self._labels) / MANY

    def sample(self, random: np.random.Generator) -> Array:
        """Exact counts of a sample."""
        if self.case.classes == 2:
            return random.multinomial(self.case.rows, self.chances).astype(np.float64)
        drawn = random.integers(MANY, size=self.case.rows)
        return self.grid.counts(self._scores[drawn], self._labels[drawn])


class Figure(NamedTuple):
    """What was estimated, what is true, and how wide the oracle's interval is."""

    kind: str
    estimate: Estimate
    truth: float
    oracle: float


@dataclass(frozen=True, eq=False)
class Oracle:
    """Knows the counts without noise.

    Attributes
    ----------
    counts
        Of one table, exact.
    chances
        Of its cells in the population.
    deviation
        Of each count's noise.
    """

    counts: Array = field(repr=False)
    chances: Array = field(repr=False)
    deviation: float

    @cached_property
    def covariance(self) -> Array:
        """Of the noise of counts whose sum is known."""
        cells = self.counts.size
        keep = np.eye(cells) - np.full((cells, cells), 1 / cells)
        return np.asarray(self.deviation**2 * keep @ keep.T)

    def share(self, part: Array, whole: Array) -> tuple[float, float]:
        """The true share, and the width for it."""
        truth = float(self.chances @ part / (self.chances @ whole))
        counted, total = float(self.counts @ part), float(self.counts @ whole)
        if total == 0:
            return truth, 1.0
        at = counted / total
        centre = (counted + Z**2 / 2) / (total + Z**2)
        half = Z / (total + Z**2) * np.sqrt(counted * (total - counted) / total + Z**2 / 4)
        gradient = (part - at * whole) / total
        noise = gradient @ self.covariance @ gradient
        return truth, _width(at, float(centre - half), float(centre + half), float(noise))

    def area(self) -> tuple[float, float]:
        """The true area under the curve, and the width for it."""
        others, members = self.counts.reshape(2, -1)
        first, second = self.chances.reshape(2, -1)
        truth = _area(first, second)
        m, n = members.sum(), others.sum()
        if min(m, n) < 2:
            return truth, 1.0
        at = _area(others, members)
        below = (np.cumsum(others) - others / 2) / n
        above = 1 - (np.cumsum(members) - members / 2) / m
        delong = members @ (below - at) ** 2 / (m * (m - 1)) + others @ (above - at) ** 2 / (
            n * (n - 1)
        )
        # Newcombe's interval solves for the value: its width, as a variance.
        values = np.linspace(0, 1, 4001)
        mean = (m + n) / 2 - 1
        newcombe = values * (1 - values) / (m * n)
        newcombe *= 1 + mean * ((1 - values) / (2 - values) + values / (1 + values))
        inside = values[(values - at) ** 2 <= Z**2 * newcombe]
        half = Z * np.sqrt(delong)
        low, high = min(inside[0], at - half), max(inside[-1], at + half)
        gradient = np.concatenate([(above - at) / n, (below - at) / m])
        noise = gradient @ self.covariance @ gradient
        return truth, _width(at, float(low), float(high), float(noise))

    def brier(self, slope: float, offset: float, centres: Array) -> tuple[float, float]:
        """The true error of a link; the width for it is known when all are there."""
        chance = expit(slope * centres + offset)
        errors = np.concatenate([chance**2, (1 - chance) ** 2])
        return float(self.chances @ errors), np.nan


def _area(others: Array, members: Array) -> float:
    wins = sum(members[i] * (others[:i].sum() + others[i] / 2) for i in range(len(members)))
    return float(wins / (members.sum() * others.sum()))


def _width(at: float, low: float, high: float, noise: float) -> float:
    """Of an interval for sampling whose sides are widened by the noise's variance."""
    down = np.sqrt(max(at - low, 0.0) ** 2 + Z**2 * noise)
    up = np.sqrt(max(high - at, 0.0) ** 2 + Z**2 * noise)
    return float(min(at + up, 1.0) - max(at - down, 0.0))


def _cells(grid: ScoreGrid, number: int) -> dict[str, NDArray[np.float64]]:
    """Indicators of the cells of a confusion, at an edge."""
    above = (np.arange(grid.bins) > number).astype(np.float64)
    none = np.zeros(grid.bins)
    return {
        "kept": np.concatenate([1 - above, none]),
        "alarm": np.concatenate([above, none]),
        "missed": np.concatenate([none, 1 - above]),
        "found": np.concatenate([none, above]),
    }


def figures_of_two(oracle: Oracle, found: ModelFigures) -> Iterator[Figure]:
    """Every figure of two classes, with its truth and the oracle's width."""
    whole = np.ones(oracle.counts.size)
    for place, number in THRESHOLDS.items():
        told, cells = found.curve[number], _cells(GRID, number)
        right = cells["kept"] + cells["found"]
        shares = {
            "accuracy": (right, whole),
            "sensitivity": (cells["found"], cells["found"] + cells["missed"]),
            "specificity": (cells["kept"], cells["kept"] + cells["alarm"]),
            "precision": (cells["found"], cells["found"] + cells["alarm"]),
        }
        for name, (part, of) in shares.items():
            yield Figure(f"{name}, {place}", getattr(told, name), *oracle.share(part, of))
    (second,) = found.classes
    members = np.repeat([0.0, 1.0], GRID.bins)
    yield Figure("prevalence", second.prevalence, *oracle.share(members, whole))
    yield Figure("area", second.area, *oracle.area())
    link = second.link
    yield Figure("Brier", second.brier, *oracle.brier(link.slope, link.offset, GRID.centres))
    for number in (5, 9):
        one = np.zeros((2, GRID.bins))
        one[:, number] = 1
        part = np.stack([np.zeros(GRID.bins), one[1]]).ravel()
        observed = second.calibration[number].observed
        yield Figure("calibration", observed, *oracle.share(part, one.ravel()))


def figures_of_several(
    counts: Array, population: Population, found: ModelFigures
) -> Iterator[Figure]:
    """Every figure of several classes."""
    grid, deviation = population.grid, population.case.deviation
    size, start = 2 * grid.bins, grid.tables * 2 * grid.bins
    crossed = Oracle(counts[start:], population.chances[start:], deviation)
    right = np.eye(grid.classes)
    yield Figure("accuracy", found.accuracy, *crossed.share(right.ravel(), np.ones(right.size)))
    for code, figures in enumerate(found.classes):
        one = np.zeros_like(right)
        one[code, code] = 1
        true, predicted = np.zeros_like(right), np.zeros_like(right)
        true[code], predicted[:, code] = 1, 1
        for name, of in (("sensitivity", true), ("precision", predicted)):
            yield Figure(name, getattr(figures, name), *crossed.share(one.ravel(), of.ravel()))
        yield Figure(
            "prevalence", figures.prevalence, *crossed.share(true.ravel(), np.ones(right.size))
        )
        here = slice(code * size, (code + 1) * size)
        table = Oracle(counts[here], population.chances[here], deviation)
        yield Figure("area", figures.area, *table.area())
        link = figures.link
        yield Figure("Brier", figures.brier, *table.brier(link.slope, link.offset, grid.centres))


@dataclass
class Tally:
    """What became of one figure in one case."""

    covered: list[bool] = field(default_factory=list)
    given: list[bool] = field(default_factory=list)
    widths: list[float] = field(default_factory=list)
    oracles: list[float] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)

    def add(self, figure: Figure) -> None:
        """Count one simulation."""
        estimate = figure.estimate
        self.covered.append(estimate.low - 1e-9 <= figure.truth <= estimate.high + 1e-9)
        self.given.append(estimate.value is not None)
        self.widths.append(estimate.high - estimate.low)
        self.oracles.append(figure.oracle)
        self.errors.append((estimate.value or 0.0) - figure.truth)

    @property
    def coverage(self) -> float:
        """Of all intervals."""
        return float(np.mean(self.covered))

    @property
    def share_given(self) -> float:
        """How often there was a figure."""
        return float(np.mean(self.given))

    @property
    def coverage_given(self) -> float:
        """Of the intervals of figures that were given."""
        chosen = np.array(self.given)
        return float(np.mean(np.array(self.covered)[chosen])) if chosen.any() else 1.0

    @property
    def width(self) -> float:
        """Mean width of those given over the oracle's."""
        chosen = np.array(self.given)
        if not chosen.any():
            return 1.0
        oracle = float(np.mean(np.array(self.oracles)[chosen]))
        if np.isnan(oracle):
            oracle = 2 * Z * float(np.std(np.array(self.errors)[chosen]))
        return float(np.mean(np.array(self.widths)[chosen])) / oracle


def study(case: Case, simulations: int, seed: int = 0) -> dict[str, Tally]:
    """Simulate one case: what became of each figure."""
    population, random = (
        Population(case),
        np.random.default_rng([seed, case.rows, round(100 * case.deviation)]),
    )
    tallies: dict[str, Tally] = {}
    for _ in range(simulations):
        counts = population.sample(random)
        noisy = counts + case.deviation * random.normal(size=counts.size)
        found = evaluate_histogram(
            NoisyHistogram(population.grid, noisy, case.deviation**2, case.rows)
        )
        if case.classes == 2:
            oracle = Oracle(counts, population.chances, case.deviation)
            figures = figures_of_two(oracle, found)
        else:
            figures = figures_of_several(counts, population, found)
        for figure in figures:
            tallies.setdefault(figure.kind, Tally()).add(figure)
    return tallies


def main() -> int:
    """Print the table; the exit code tells whether every figure met both targets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulations", type=int, default=SIMULATIONS)
    parser.add_argument("--all", action="store_true", help="a line for every figure of a case")
    asked = parser.parse_args()
    missed = 0
    print("| case | least coverage | of those given | widest | given |")
    print("|---|---|---|---|---|")
    for case in CASES:
        tallies = study(case, asked.simulations)
        often = [tally for tally in tallies.values() if tally.share_given >= OFTEN]
        least = min(tally.coverage for tally in tallies.values())
        given = min((tally.coverage_given for tally in often), default=1.0)
        width = max((tally.width for tally in often), default=1.0)
        share = np.mean([tally.share_given for tally in tallies.values()])
        missed += least < LEAST_COVERAGE or width > WIDEST
        print(
            f"| {case.name} | {least:.3f} | {given:.3f} | {width:.2f} | {share:.0%} |", flush=True
        )
        if asked.all:
            for name, tally in tallies.items():
                print(f"    {name:20} {tally.coverage:.3f} {tally.width:.2f}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
