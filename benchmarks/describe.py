"""Do the intervals of a describe hold? The tables of ``docs/studies.md``.

Run with ``python -m benchmarks.describe``; it takes some minutes. Rows are drawn from a population
with a normal, a skewed, a whole-numbered and a rare column, correlated and by groups of 50, 35 and
15%; every part adds them up, noise of the planned variance goes onto the sums (10 parties, shared
noise, an honest majority, the noise that the guarantee counts), and the figures are compared with
those of the population, so many times for each case.

``coverage`` is the mean over the figures of a kind, ``least`` that of the one covered least often
(with 500 repetitions a figure at 95% is below 92.5% one time in 150), ``given`` the part of the
figures that are given at all, and ``width`` their mean width over that of the same figures without
noise. The exit code is 1 where the coverage of a kind is below 93.5% or of a figure below 91%.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from typing import Any, Final

import numpy as np

from dpadmm.data.schema import Schema
from dpadmm.plain import Array
from dpadmm.report.document import Table
from dpadmm.run.charges import EvaluationTerms
from dpadmm.run.plan import Plan
from dpadmm.studies.describe import Describe, Described, described
from dpadmm.studies.describe_figures import ReadOff, StudyFigure
from dpadmm.studies.describe_files import Describing

PARTIES: Final = 10
LEAST_COVERAGE: Final = 93.5
LEAST_OF_ONE: Final = 91.0
SCHEMA: Final = Schema.from_dict(
    {
        "version": 2,
        "label": {"column": "y", "classes": ["no", "yes"]},
        "columns": [
            {"name": "normal", "kind": "numeric", "lower": 0, "upper": 100, "missing": False},
            {"name": "skewed", "kind": "numeric", "lower": 0, "upper": 50},
            {"name": "whole", "kind": "numeric", "lower": 0, "upper": 20, "missing": False},
            {"name": "rare", "kind": "numeric", "lower": 0, "upper": 1, "missing": False},
            {"name": "group", "kind": "categorical", "levels": ["a", "b", "c"]},
        ],
    }
)
NUMERIC: Final = ("normal", "skewed", "whole", "rare")
CASES: Final[dict[str, tuple[dict[str, Any], ...]]] = {
    "shares": (
        {"kind": "proportion", "columns": ("group", "y")},
        {"kind": "proportion", "columns": ("y",), "by": "group"},
        {"kind": "table", "columns": ("group", "y")},
    ),
    "means": (
        {"kind": "mean", "columns": NUMERIC},
        {"kind": "sd", "columns": NUMERIC},
    ),
    "by group": (
        {"kind": "mean", "columns": ("normal", "skewed"), "by": "group"},
        {"kind": "sd", "columns": ("normal", "skewed"), "by": "group"},
    ),
    "bins": (
        {"kind": "histogram", "columns": ("normal", "whole"), "bins": 20},
        {"kind": "quantiles", "columns": ("normal", "skewed", "whole")},
    ),
    "smooth": ({"kind": "quantiles", "columns": ("normal", "skewed"), "smooth": True},),
    "pairs": ({"kind": "correlation", "columns": ("normal", "skewed", "rare")},),
}
SETTINGS: Final = ((2000, 0.5), (2000, 1.0), (10_000, 1.0), (50_000, 3.0))

Key = tuple[str, str, str | None, str | None]


def draw(count: int, random: np.random.Generator) -> Array:
    """Rows as :class:`~dpadmm.data.study_rows.StudyColumns` has them."""
    group = random.choice(3, count, p=[0.5, 0.35, 0.15])
    shared = random.normal(size=count)
    columns = {
        "normal": 50 + 8 * shared + 10 * random.normal(size=count) + 4 * group,
        "skewed": random.gamma(1.2, 6, count) * np.exp(0.3 * shared),
        "whole": random.poisson(1.5, count),
        "rare": random.random(count) < 0.02,
    }
    scaled = [
        2 * (np.clip(columns[c.name], c.lower, c.upper) - c.lower) / (c.upper - c.lower) - 1
        for c in SCHEMA.numeric
    ]
    missing = random.random(count) < 0.15
    scaled[1] = np.where(missing, 0.0, scaled[1])
    zeros = np.zeros(count)
    outcome = random.random(count) < 0.1 + 0.2 * group
    return np.stack([*scaled, zeros, missing, zeros, zeros, group, outcome], axis=1)


def key(figure: StudyFigure) -> Key:
    """What a figure is of."""
    return figure.kind, figure.column, figure.group, figure.item


class Population:
    """Many rows, drawn up piece by piece, and the figures of all of them."""

    pieces, rows_each = 16, 1_000_000

    def truth(self, about: Described, study: Describe) -> dict[Key, float | None]:
        """The figure of every wish; quantiles from the rows themselves."""
        sums: dict[str, Array] = defaultdict(lambda: np.zeros(1))
        values: dict[str, list[Array]] = defaultdict(list)
        for piece in range(self.pieces):
            rows = draw(self.rows_each, np.random.default_rng([piece, 1]))
            for name, each in exact(study, rows).items():
                sums[name] = sums[name] + each
            for wish in about.wishes:
                for name in wish.columns if wish.kind == "quantiles" else ():
                    flag = about.columns.missing_place(name)
                    there = rows if flag is None else rows[rows[:, flag] < 0.5]
                    values[name].append(there[:, about.columns.places[name]])
        count = self.pieces * self.rows_each
        figures = ReadOff(about, lambda name: (sums[name], 0.0), count).figures()
        found = {key(figure): figure.value for figure in figures}
        for kind, name, group, item in found:
            if kind == "quantiles":
                scaled = np.quantile(np.concatenate(values[name]), float(str(item)[:-1]) / 100)
                told = about.columns.numeric(name)
                value = told.lower + (scaled + 1) / 2 * (told.upper - told.lower)
                found[kind, name, group, item] = float(value)
        return found


def exact(study: Describe, rows: Array) -> dict[str, Array]:
    """Sums without noise, by the names of their blocks."""
    names = [block.name for block in study.courses[0]]
    return {name: part.add_up(rows) for name, part in zip(names, study.parts, strict=True)}


def _planned(wishes: Any, setting: tuple[int, float]) -> tuple[Described, Plan, Describe]:
    count, epsilon = setting
    about = described(SCHEMA, wishes)
    rows = {str(party): count // PARTIES for party in range(PARTIES)}
    planned = Describing(about).plan(rows, EvaluationTerms(epsilon, 1e-5, noise="shared"))
    study = planned.algorithm
    assert isinstance(study, Describe)
    return about, planned, study


def measure(
    truth: dict[Key, float | None], wishes: Any, setting: tuple[int, float], repetitions: int
) -> list[tuple[Any, ...]]:
    """Coverage and width of each kind of figure."""
    count = setting[0]
    about, planned, study = _planned(wishes, setting)
    state = study.init(planned.site)
    hits: dict[Key, list[bool]] = defaultdict(list)
    widths: dict[str, list[float]] = defaultdict(list)
    for seed in range(repetitions):
        random = np.random.default_rng([seed, count])
        sums = exact(study, draw(count, random))

        def noisy(
            name: str, sums: dict[str, Array] = sums, random: np.random.Generator = random
        ) -> tuple[Array, float]:
            variance = study.block(state, 0, name)[1]
            return sums[name] + random.normal(0, variance**0.5, len(sums[name])), variance

        def clean(name: str, sums: dict[str, Array] = sums) -> tuple[Array, float]:
            return sums[name], 0.0

        told = ReadOff(about, noisy, count).figures()
        for figure, plain in zip(told, ReadOff(about, clean, count).figures(), strict=True):
            true = truth[key(figure)]
            if figure.low is None or figure.high is None or true is None:
                continue
            room = 1e-9 * max(1.0, abs(true))
            hits[key(figure)].append(figure.low - room <= true <= figure.high + room)
            if plain.low is not None and plain.high is not None and plain.high > plain.low:
                widths[figure.kind].append((figure.high - figure.low) / (plain.high - plain.low))
    return list(_lines(hits, widths, truth, repetitions))


def _lines(
    hits: dict[Key, list[bool]],
    widths: dict[str, list[float]],
    truth: dict[Key, float | None],
    repetitions: int,
) -> Any:
    for kind in dict.fromkeys(each[0] for each in truth):
        asked = [each for each in truth if each[0] == kind and truth[each] is not None]
        shown = [hits[each] for each in asked if len(hits[each]) >= repetitions / 5]
        given = sum(len(hits[each]) for each in asked) / (repetitions * len(asked))
        rates = [100 * float(np.mean(each)) for each in shown]
        coverage, least = (float(np.mean(rates)), min(rates)) if rates else (None, None)
        width = float(np.mean(widths[kind])) if rates and widths[kind] else None
        yield kind, coverage, least, 100 * given, width


def main() -> int:
    """Print a table; 1 where coverage is too low."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repetitions", type=int, default=500)
    parser.add_argument("--case", choices=CASES, action="append")
    asked = parser.parse_args()
    lines = []
    for name in asked.case or CASES:
        about, _, study = _planned(CASES[name], SETTINGS[0])
        truth = Population().truth(about, study)
        for setting in SETTINGS:
            for line in measure(truth, CASES[name], setting, asked.repetitions):
                lines.append((name, *setting, *line))
                print(name, *setting, *_shown(line), sep=" | ", flush=True)
    heads = ("case", "rows", "epsilon", "figure", "coverage", "least", "given", "width")
    shown = [(*line[:3], *_shown(line[3:])) for line in lines]
    print(Table.of(heads, shown).markdown())
    low = [
        line
        for line in lines
        if line[4] is not None and (line[4] < LEAST_COVERAGE or line[5] < LEAST_OF_ONE)
    ]
    for line in low:
        print("too low:", *line)
    return bool(low)


def _shown(line: tuple[Any, ...]) -> list[str]:
    return [_word(value) for value in line]


def _word(value: str | float | None) -> str:
    if value is None:
        return "none"
    return value if isinstance(value, str) else f"{value:.1f}"


if __name__ == "__main__":
    sys.exit(main())
