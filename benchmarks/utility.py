"""Does training together pay? Accuracy of each alone, together, and in one trusted place.

Run by hand with ``DPADMM_DATA=folder python -m benchmarks.utility``; it takes minutes. Options
choose sets and write everything as JSON.

Columns are scaled by fixed public bounds to [-1, 1], a constant is appended and rows are scaled
down to norm 1. Rows are split by a seed, 20% of them (of Adult all but 40,000) to judge by, once.
Nothing is chosen here: all parameters are public defaults. The two numbers of dp-gd's rule were
chosen on other splits of these sets (:mod:`dpadmm.algorithms.dp_gd`). Figures are means over two
splits with ten seeds of noise each, at delta = 1e-5. The exit code is 1 where a target was missed.

``alone`` and ``best``: each party by itself without privacy, logistic, the mean and the best of
them; ``private``: by itself within the budget (dp-gd), the mean of five parties; ``before``:
pr-admm on a ring, logistic, columns in [0, 1], the default there was; ``auto``: what is chosen now,
noise of each party's own; ``shared``: the same with shared noise, an honest majority. With all rows
in one trusted place: ``dp-gd``, and the better of two kinds of objective perturbation (``obj.``),
within the budget, and ``pooled`` without privacy.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

import dpadmm
from dpadmm.data.dataset import NORM_BOUNDS, find_file, read_unpacked
from dpadmm.data.feature_maps import fourier_map, map_rows
from dpadmm.data.named import load
from dpadmm.errors import DataError
from dpadmm.experiments.comparison import PRIVATE_BASELINES, alone_cells, pooled_cell, private_cell
from dpadmm.experiments.jobs import TrainingJob
from dpadmm.experiments.problems import OnePartyProblem, Problem, ProblemSource, compact
from dpadmm.plain import Array
from dpadmm.problem.rows import clip_rows, label_signs
from dpadmm.run.options import TrainingParameters

EPSILONS, DELTA = (1.0, 0.1), 1e-5
SPLITS, RUNS = 2, 10
# Of the parties of a federation, so many are also tried alone.
ALONE: Final = 5
# A party with fewer rows is not worth a federation of so many.
FEWEST_ROWS: Final = 30
ADULT_TRAINING_ROWS: Final = 40_000
ADULT_NUMERIC: Final = 6
ADULT_CATEGORIES: Final = 8

#: Public bounds of the columns of what is drawn: four standard deviations, rounded up.
DRAWN: Final = {"twonorm": (-5.0, 5.0), "ringnorm": (-8.0, 8.0), "waveform": (-4.0, 10.0)}
#: Public bounds of the columns of KEEL's files, one pair for each or one for all.
BOUNDS: Final[dict[str, tuple[tuple[float, float], ...]]] = {
    "pima": ((0, 20), (0, 200), (0, 130), (0, 100), (0, 900), (0, 70), (0, 2.5), (20, 90)),
    "titanic": ((-2, 1), (-0.25, 4.5), (-2, 0.6)),
    "satimage": ((25, 160),) * 36,
    "texture": ((-1.5, 1),) * 40,
}
SETS: Final = (
    *("adult", "ringnorm", "twonorm", "splice", "german", "image", "waveform"),
    *("pima", "titanic", "satimage", "texture", "banana"),
)


class Table(NamedTuple):
    """A whole data set: columns in [-1, 1], classes from 0, and which columns are numbers."""

    columns: Array
    codes: NDArray[np.int64]
    numeric: NDArray[np.bool_]


@lru_cache(maxsize=2)
def table_of(name: str) -> Table:
    """Read a data set; the same name gives the same rows."""
    if name in BOUNDS:
        return _from_keel(name)
    data = load(name, download=False)
    codes = (data.y > 0).astype(np.int64)
    numeric = np.ones(data.X.shape[1], dtype=bool)
    if name == "adult":
        # A row was scaled down to norm 1 with its constant, the last column.
        columns = data.X[:, :-1] / data.X[:, -1:]
        numeric = np.arange(columns.shape[1]) < ADULT_NUMERIC
        columns[:, numeric] = 2 * columns[:, numeric] - 1
        return Table(columns, codes, numeric)
    if name in DRAWN:
        low, high = DRAWN[name]
        raw = data.X * NORM_BOUNDS[name]
        return Table(np.clip((2 * raw - low - high) / (high - low), -1, 1), codes, numeric)
    # What has bounds of its own was divided by the root of the number of columns.
    return Table(data.X * math.sqrt(data.X.shape[1]), codes, numeric)


def _from_keel(name: str) -> Table:
    path = find_file(f"{name}.dat", None)
    if path is None:
        raise DataError(f"{name} needs KEEL's {name}.dat in the folder named by DPADMM_DATA")
    lines = read_unpacked(path).decode().splitlines()
    cells = [line.split(",") for line in lines if line.strip() and not line.startswith("@")]
    raw = np.array([row[:-1] for row in cells], dtype=np.float64)
    low, high = np.array(BOUNDS[name], dtype=np.float64).T
    _, codes = np.unique([row[-1].strip() for row in cells], return_inverse=True)
    columns = np.clip((2 * raw - low - high) / (high - low), -1, 1)
    return Table(columns, codes.astype(np.int64), np.ones(raw.shape[1], dtype=bool))


@final
@dataclass(frozen=True)
class SplitProblem(ProblemSource):
    """A data set dealt to parties.

    ``as_before`` has numeric columns in [0, 1]; ``features`` are random Fourier features with the
    default scale, and 0 for none.
    """

    name: str
    parties: int
    split: int
    as_before: bool = False
    features: int = 0

    def load(self) -> Problem:
        """Encode and deal out the rows."""
        return _dealt(self)


@lru_cache(maxsize=3)
def _dealt(problem: SplitProblem) -> Problem:
    table = table_of(problem.name)
    columns = table.columns
    if problem.as_before:
        columns = np.where(table.numeric, (columns + 1) / 2, columns)
    if problem.features:
        rows = map_rows(columns, fourier_map({"features": problem.features}, columns.shape[1]))
    else:
        rows = compact(clip_rows(np.column_stack([columns, np.ones(len(columns))])))
    classes = int(table.codes.max()) + 1
    signs = label_signs(table.codes, 1 if classes == 2 else classes)
    order = np.random.default_rng([problem.split, 17]).permutation(len(table.codes))
    training = training_rows(problem.name, len(order))
    shares = np.array_split(order[:training], problem.parties)
    return Problem(
        members=tuple((rows[share], signs[share]) for share in shares),
        test_rows=rows[order[training:]],
        test_codes=table.codes[order[training:]],
        names=tuple(f"party {number}" for number in range(problem.parties)),
        facts={"dataset": problem.name},
        least_constant=None if problem.features else _least_constant(problem.name, table),
    )


def _least_constant(name: str, table: Table) -> float:
    """Of a row of norm 1 with a constant of 1: each number and each category adds 1 at most."""
    categories = ADULT_CATEGORIES if name == "adult" else int((~table.numeric).sum())
    return 1 / math.sqrt(1 + int(table.numeric.sum()) + categories)


def training_rows(name: str, total: int) -> int:
    """How many rows train; the others judge."""
    return ADULT_TRAINING_ROWS if name == "adult" else total * 4 // 5


# -- one data set ---------------------------------------------------------------------------------


PLAIN: Final = TrainingParameters("admm", loss="logistic", delta=DELTA)
PRIVATE: Final = TrainingParameters("auto", loss="huber-hinge", delta=DELTA)
BEFORE: Final = TrainingParameters("pr-admm", loss="logistic", delta=DELTA, topology="ring")
SHARED: Final = replace(PRIVATE, algorithm_options={"noise": "shared"})
MEASURE: Final = "test accuracy"


def scores(problem: ProblemSource, told: TrainingParameters, epsilon: float, seed: int) -> Array:
    """Accuracy in percent of ten runs with noise of their own."""
    job = TrainingJob(
        problem, replace(told, epsilon=epsilon), RUNS, seed, finals=(MEASURE,), may_refuse=True
    )
    result = job.compute()
    return 100 * result.final(MEASURE, "tail") if result.values else np.full(RUNS, np.nan)


def lines_of(name: str, split: int) -> Iterator[tuple[str, float | None, Array]]:
    """Every line of one split: its name, its epsilon if it has one, and accuracy of each run."""
    training = training_rows(name, len(table_of(name).codes))
    five, twenty = SplitProblem(name, 5, split), SplitProblem(name, 20, split)
    pooled = pooled_cell(five, PLAIN, 5, (MEASURE,))
    yield "pooled", None, 100 * pooled.compute().final(MEASURE)
    for source in (five, twenty):
        cells = alone_cells(source, PLAIN, source.parties, (MEASURE,))
        found = np.array([100 * cell.compute().final(MEASURE)[0] for cell in cells])
        yield f"alone {source.parties}", None, found.mean()[None]
        yield f"best alone {source.parties}", None, found.max()[None]
    for epsilon in EPSILONS:
        for source in (five, twenty):
            alone = [
                scores(OnePartyProblem(source, party), PRIVATE, epsilon, split)
                for party in range(ALONE)
            ]
            yield f"alone, private {source.parties}", epsilon, np.mean(alone, axis=0)
        before = replace(five, as_before=True)
        yield "before 5", epsilon, scores(before, BEFORE, epsilon, split)
        for parties in (5, 20, 100):
            if training // parties >= FEWEST_ROWS:
                source = SplitProblem(name, parties, split)
                yield f"auto {parties}", epsilon, scores(source, PRIVATE, epsilon, split)
                if parties > 5:
                    yield f"shared {parties}", epsilon, scores(source, SHARED, epsilon, split)
        central = replace(PRIVATE, regularization=PRIVATE.regularization / 5)
        yield "curator", epsilon, scores(OnePartyProblem(five), central, epsilon, split)
        yield "objective", epsilon, _best_objective(five, epsilon, split)


def _best_objective(problem: SplitProblem, epsilon: float, split: int) -> Array:
    """Objective perturbation with all rows in one place: the better of two kinds of noise."""
    facts, found = problem.load(), []
    for label in PRIVATE_BASELINES:
        cell = private_cell(
            problem,
            facts,
            PRIVATE,
            label,
            epsilon=epsilon,
            runs=RUNS,
            seed=split,
            finals=(MEASURE,),
        )
        result = cell.compute()
        if result.values:
            found.append(100 * result.final(MEASURE))
    return max(found, key=np.mean) if found else np.full(RUNS, np.nan)


def _one_split(
    task: tuple[str, int, bool],
) -> tuple[str, list[tuple[str, float | None, list[float]]]]:
    name, split, own = task
    lines = own_lines(name, split) if own else lines_of(name, split)
    return name, [(line, epsilon, list(found)) for line, epsilon, found in lines]


# -- the rule of auto -----------------------------------------------------------------------------

#: With noise of each party's own, what ``algorithm="auto"`` has to choose between.
RIVALS: Final = {
    "dp-gd": replace(PRIVATE, algorithm="dp-gd"),
    "pr-admm": replace(PRIVATE, algorithm="pr-admm", topology="ring"),
}
OWN_PARTIES: Final = (3, 5, 10, 20)


def own_lines(name: str, split: int) -> Iterator[tuple[str, float | None, Array]]:
    """Both rivals with 3 to 20 parties, as :func:`lines_of`."""
    training = training_rows(name, len(table_of(name).codes))
    for epsilon in EPSILONS:
        for parties in OWN_PARTIES:
            if training // parties >= FEWEST_ROWS:
                source = SplitProblem(name, parties, split)
                for rival, told in RIVALS.items():
                    yield f"{rival} {parties}", epsilon, scores(source, told, epsilon, split)


def print_rivals(found: Findings, names: list[str], epsilon: float) -> None:
    """Accuracy of dp-gd, and how much of it pr-admm lacks, by the number of parties."""
    print(f"\nown noise: dp-gd, and dp-gd less pr-admm; accuracy in %, ({epsilon:g}, {DELTA:g})")
    print(f"{'parties':9s}" + "".join(f"{parties:>15d}" for parties in OWN_PARTIES))
    gaps: dict[int, list[float]] = {parties: [] for parties in OWN_PARTIES}
    for name in names:
        line = f"{name:9s}"
        for parties in OWN_PARTIES:
            key = (name, f"dp-gd {parties}", epsilon)
            if key not in found:
                line += f"{'-':>15s}"
                continue
            gap, error = found.difference(name, f"dp-gd {parties}", f"pr-admm {parties}", epsilon)
            gaps[parties].append(gap)
            line += f"{found.mean(*key):6.1f}{gap:+5.1f} {error:3.1f}"
        print(line)
    means = (f"{np.mean(each):+11.1f}    " for each in gaps.values() if each)
    print(f"{'mean':9s}" + "".join(means))


# -- the table ------------------------------------------------------------------------------------

Key = tuple[str, str, float | None]

#: Tables: of how many parties, and the heading of each column with the line that it shows.
TABLES: Final = {
    "5 parties, and all rows in one place": {
        "alone": "alone 5",
        "best": "best alone 5",
        "private": "alone, private 5",
        "before": "before 5",
        "auto": "auto 5",
        "dp-gd": "curator",
        "obj.": "objective",
        "pooled": "pooled",
    },
    "20 parties, and 100": {
        "alone": "alone 20",
        "best": "best alone 20",
        "private": "alone, private 20",
        "auto": "auto 20",
        "shared": "shared 20",
        "auto100": "auto 100",
        "shar100": "shared 100",
    },
}


class Findings(dict[Key, Array]):
    """Accuracy of each run, by set, line and epsilon."""

    def mean(self, name: str, line: str, epsilon: float | None) -> float:
        """The mean of a line; not a number where it was not run."""
        runs = self.get((name, line, epsilon), self.get((name, line, None)))
        return float(np.mean(runs)) if runs is not None else math.nan

    def difference(self, name: str, first: str, second: str, epsilon: float) -> tuple[float, float]:
        """First less second, and the standard error of it; runs of one split belong together."""
        gaps = self[name, first, epsilon] - self[name, second, epsilon]
        return float(gaps.mean()), float(gaps.std(ddof=1) / math.sqrt(len(gaps)))


def print_tables(found: Findings, names: list[str], epsilon: float) -> None:
    for title, columns in TABLES.items():
        print(f"\n{title}: accuracy in %, ({epsilon:g}, {DELTA:g})")
        print(f"{'':9s}" + "".join(f"{heading:>8s}" for heading in columns))
        for name in names:
            shown = (_shown(found.mean(name, line, epsilon)) for line in columns.values())
            print(f"{name:9s}" + "".join(f"{words:>8s}" for words in shown))


def _shown(figure: float) -> str:
    return "-" if math.isnan(figure) else f"{figure:.1f}"


#: What version 0.2 reached at epsilon 1, with neither clipped slopes nor centred rows.
BEFORE_CENTRING: Final = {
    "shared 20": {
        "adult": 84.0,
        "ringnorm": 75.6,
        "twonorm": 97.5,
        "splice": 76.8,
        "german": 70.1,
        "image": 74.0,
        "waveform": 88.1,
        "pima": 74.2,
        "titanic": 76.0,
        "banana": 55.2,
    },
    "auto 5": {"splice": 73.3, "image": 72.5, "german": 69.1, "pima": 70.7},
}


class Target(NamedTuple):
    """A figure, the least that it should be, and its standard error where two are compared."""

    words: str
    figure: float
    least: float
    error: float = 0.0

    @property
    def met(self) -> bool:
        """Whether it is reached, but for what two standard errors of a comparison explain."""
        return self.figure >= self.least - 2 * self.error


def targets(found: Findings, names: list[str]) -> Iterator[Target]:
    """What is asked of the figures."""
    if "adult" in names:
        for line, epsilon, least in (
            ("shared 20", 1.0, 83.9),
            ("shared 20", 0.1, 82.0),
            ("auto 5", 1.0, 83.6),
            ("auto 5", 0.1, 81.2),
        ):
            yield Target(
                f"adult, {line}, epsilon {epsilon:g}", found.mean("adult", line, epsilon), least
            )
    for name, least in (("texture", 85.0), ("satimage", 77.5)):
        if name in names:
            yield Target(f"{name}, shared 20, epsilon 1", found.mean(name, "shared 20", 1.0), least)
    for line, before in BEFORE_CENTRING.items():
        known = [name for name in names if name in before]
        gains = [found.mean(name, line, 1.0) - before[name] for name in known]
        for name, gain in zip(known, gains, strict=True):
            yield Target(f"{name}, {line} less that of 0.2, epsilon 1", gain, -0.5)
        if line == "auto 5" and len(known) == len(before):
            words = f"{line} less that of 0.2, mean of {len(known)} sets"
            yield Target(words, float(np.mean(gains)), 0.5)
    for name in names:
        near = 1.0 if name in ("adult", "ringnorm", "twonorm") else 1.5
        gap, error = found.difference(name, "shared 20", "curator", 1.0)
        yield Target(f"{name}, shared 20 less curator, epsilon 1", gap, -near, error)
        if (name, "shared 100", 1.0) in found:
            gap, error = found.difference(name, "shared 100", "shared 20", 1.0)
            yield Target(f"{name}, shared 100 less shared 20, epsilon 1", gap, -1.0, error)
        for epsilon in EPSILONS:
            gap, error = found.difference(name, "auto 5", "before 5", epsilon)
            more = 5.0 if name in ("splice", "twonorm") and epsilon == 1 else 0.0
            yield Target(f"{name}, auto 5 less before 5, epsilon {epsilon:g}", gap, more, error)


def _computed(names: list[str], jobs: int, *, own: bool) -> Findings:
    tasks = [(name, split, own) for name in names for split in range(SPLITS)]
    parts: dict[Key, list[list[float]]] = {}
    with ProcessPoolExecutor(jobs) as pool:
        for name, lines in pool.map(_one_split, tasks):
            print(f"{name} done, {time.strftime('%H:%M:%S')}", file=sys.stderr, flush=True)
            for line, epsilon, runs in lines:
                parts.setdefault((name, line, epsilon), []).append(runs)
    return Findings({key: np.concatenate(runs) for key, runs in parts.items()})


def _plain(found: Findings, checked: list[Target]) -> dict[str, Any]:
    return {
        "dpadmm": dpadmm.__version__,
        "numpy": np.__version__,
        "delta": DELTA,
        "splits": SPLITS,
        "runs": RUNS,
        "lines": [
            {"set": name, "line": line, "epsilon": epsilon, "accuracy": np.round(runs, 4).tolist()}
            for (name, line, epsilon), runs in found.items()
        ],
        "targets": [target._asdict() | {"met": target.met} for target in checked],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", help="a file for every figure of every run")
    parser.add_argument(
        "--own", action="store_true", help="only dp-gd beside pr-admm, each party's own noise"
    )
    chosen = parser.parse_args()
    found = _computed(chosen.only, chosen.jobs, own=chosen.own)
    if chosen.own:
        for epsilon in EPSILONS:
            print_rivals(found, chosen.only, epsilon)
        return 0
    for epsilon in EPSILONS:
        print_tables(found, chosen.only, epsilon)
    checked = list(targets(found, chosen.only))
    print("\nTargets (a comparison is missed beyond two standard errors)")
    for target in checked:
        words = "met" if target.met else "MISSED"
        error = f" +- {target.error:.2f}" if target.error else ""
        print(f"{target.words:50s}{target.figure:7.2f}{error:9s} least {target.least:g}: {words}")
    if chosen.json:
        with open(chosen.json, "w", encoding="utf-8") as file:
            json.dump(_plain(found, checked), file, indent=1)
    return 0 if all(target.met for target in checked) else 1


if __name__ == "__main__":
    sys.exit(main())
