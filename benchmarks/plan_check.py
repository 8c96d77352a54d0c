"""Does ``dpadmm plan`` tell the truth? Its bands beside what runs on real rows have lost.

Run by hand with ``DPADMM_DATA=folder python -m benchmarks.plan_check``; it takes minutes.

The sets, their columns, splits and parameters are those of :mod:`benchmarks.utility`. The true loss
is accuracy of pooled training without privacy less that of ``dp-gd``, both on rows held back, the
mean over splits and seeds of noise. The band is that of the planner, which knows the number of
rows, of parties and of features, the classes and the budget, and no row. The difficulties it draws
rows at were chosen on other splits of the sets in ``CHOSEN_ON``; the others were held out, but for
the reach of a band (docs/plan.md).

A second table has the width of the band for 20 parties of 1,000 rows at epsilon 1, for the shape of
every set. The exit code is 1 where fewer than 80% of the losses lie in their bands, or a band is
wider there than 6 points, or 8 with several classes.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np

from benchmarks.utility import (
    DELTA,
    MEASURE,
    PLAIN,
    PRIVATE,
    RUNS,
    SETS,
    SHARED,
    SplitProblem,
    table_of,
    training_rows,
)
from dpadmm.data.named import adult_schema
from dpadmm.data.schema import Schema
from dpadmm.experiments.comparison import pooled_cell
from dpadmm.experiments.jobs import TrainingJob
from dpadmm.experiments.question import DIFFICULTIES, Planned, RunQuestion
from dpadmm.experiments.rehearsal import (
    FACTORS,
    ExpectedLoss,
    NoiseCurve,
    Rehearsal,
    band,
    mean_noise,
)
from dpadmm.run.options import TrainingParameters

EPSILONS: Final = (0.1, 0.3, 1.0, 3.0)
SPLITS: Final = (0, 1, 2)
#: Of these sets other splits decided the difficulties: the first half of the alphabet.
CHOSEN_ON: Final = tuple(sorted(SETS)[: len(SETS) // 2])
LEAST_SHARE: Final = 0.8
#: Points that a band may be wide: of two classes, and of several.
WIDEST: Final = (6.0, 8.0)
KINDS: Final = {"own": 5, "shared": 20}
# Of the budget that curves are rehearsed around: all others lie between their ends.
MIDDLE: Final = 0.3


class Line(NamedTuple):
    """One pair of a set and a budget: the true loss beside the band."""

    name: str
    kind: str
    epsilon: float
    rows: int
    lost: float
    low: float
    high: float

    @property
    def inside(self) -> bool:
        """Whether the band holds the loss."""
        return self.low <= self.lost <= self.high


def question_of(name: str, parameters: TrainingParameters, counts: list[int]) -> RunQuestion:
    """What the planner is told about a set: the shape of its rows, and how many there are."""
    table = table_of(name)
    if name == "adult":
        # Columns between -1 and 1, as a schema of version 2 has them.
        schema = Schema.from_dict(adult_schema().model_dump() | {"version": 2})
        return RunQuestion(counts, schema=schema, parameters=parameters)
    return RunQuestion(
        counts,
        features=table.columns.shape[1] + 1,
        classes=int(table.codes.max()) + 1,
        parameters=parameters,
    )


class Curves(NamedTuple):
    """The planner's curves for a question, and the noise that they are relative to."""

    curves: dict[str, NoiseCurve]
    noise: float

    def band(self, planned: Planned) -> tuple[float, float]:
        """The band of a run that differs in its noise alone."""
        factor = mean_noise(planned.plan) / self.noise
        return band([curve.at(factor) for curve in self.curves.values()])


def rehearsed(question: RunQuestion) -> Curves:
    """The planner's curves for a question."""
    rehearsal = Rehearsal(question, question.planned().plan)
    found = {}
    for difficulty in DIFFICULTIES:
        pooled = rehearsal.pooled(difficulty).compute()
        losses = []
        for factor in FACTORS:
            lost = rehearsal.losses(pooled, rehearsal.at_noise(difficulty, factor).compute())
            assert lost is not None
            losses.append(ExpectedLoss.of_runs(lost))
        found[difficulty.name] = NoiseCurve(FACTORS, tuple(losses))
    return Curves(found, mean_noise(rehearsal.fixed))


def told_of(kind: str, epsilon: float) -> TrainingParameters:
    """The run, as the benchmark of utility has it."""
    return replace(SHARED if kind == "shared" else PRIVATE, epsilon=epsilon)


def true_losses(name: str) -> dict[tuple[str, float], float]:
    """What runs on the set's own rows lose, by the kind of noise and the budget."""
    found: dict[tuple[str, float], list[float]] = {}
    for split in SPLITS:
        pooled = pooled_cell(SplitProblem(name, 5, split), PLAIN, 5, (MEASURE,)).compute()
        for kind, parties in KINDS.items():
            for epsilon in EPSILONS:
                problem = SplitProblem(name, parties, split)
                job = TrainingJob(problem, told_of(kind, epsilon), RUNS, split, finals=(MEASURE,))
                reached = job.compute().final(MEASURE, "tail")
                lost = 100 * float(pooled.final(MEASURE)[0] - reached.mean())
                found.setdefault((kind, epsilon), []).append(lost)
    return {place: float(np.mean(lost)) for place, lost in found.items()}


def lines_of(name: str) -> list[Line]:
    """Every pair of a set."""
    total = training_rows(name, len(table_of(name).codes))
    shares = {kind: [total // parties] * parties for kind, parties in KINDS.items()}
    # One rehearsal serves all budgets: they differ in their noise alone.
    curves = rehearsed(question_of(name, told_of("own", MIDDLE), shares["own"]))
    lines = []
    for (kind, epsilon), lost in true_losses(name).items():
        question = question_of(name, told_of(kind, epsilon), shares[kind])
        low, high = curves.band(question.planned())
        lines.append(Line(name, kind, epsilon, shares[kind][0], lost, low, high))
    return lines


def widths_of(name: str) -> dict[str, float]:
    """How wide the band is for 20 parties of 1,000 rows at epsilon 1, in the shape of a set."""
    curves = rehearsed(question_of(name, told_of("own", 1.0), [1000] * 20))
    found = {}
    for kind in KINDS:
        low, high = curves.band(question_of(name, told_of(kind, 1.0), [1000] * 20).planned())
        found[kind] = high - low
    return found


def _one_set(name: str) -> tuple[str, list[Line], dict[str, float]]:
    return name, lines_of(name), widths_of(name)


def print_tables(lines: list[Line], widths: dict[str, dict[str, float]]) -> None:
    for kind, parties in KINDS.items():
        print(f"\n{kind} noise, {parties} parties: points lost, [band]; * outside of it")
        print(f"{'':9s}{'rows':>5s}" + "".join(f"{f'epsilon {eps:g}':>17s}" for eps in EPSILONS))
        for name in widths:
            of_set = [line for line in lines if line.name == name and line.kind == kind]
            cells = [
                f"{line.lost:5.1f}{' ' if line.inside else '*'}[{line.low:4.1f},{line.high:4.1f}]"
                for line in of_set
            ]
            print(f"{name:9s}{of_set[0].rows:5d}" + "".join(f"{cell:>17s}" for cell in cells))
    print("\nwidth of the band in points, 20 parties of 1,000 rows, epsilon 1")
    for name, found in widths.items():
        print(f"{name:9s}" + "".join(f"{kind:>8s} {width:4.1f}" for kind, width in found.items()))


def share_inside(lines: list[Line]) -> float:
    return sum(line.inside for line in lines) / len(lines) if lines else 1.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", help="write everything to this file")
    told = parser.parse_args()
    lines: list[Line] = []
    widths: dict[str, dict[str, float]] = {}
    with ProcessPoolExecutor(told.jobs) as pool:
        for name, found, wide in pool.map(_one_set, told.only):
            print(f"{name} done, {time.strftime('%H:%M:%S')}", file=sys.stderr, flush=True)
            lines += found
            widths[name] = wide
    print_tables(lines, widths)
    parts = {
        "all sets": lines,
        "chosen on": [line for line in lines if line.name in CHOSEN_ON],
        "held out": [line for line in lines if line.name not in CHOSEN_ON],
    }
    print()
    for words, part in parts.items():
        inside = sum(line.inside for line in part)
        print(f"{words}: {inside} of {len(part)} inside, {100 * share_inside(part):.0f}%")
    widest = [0.0, 0.0]
    for name, found in widths.items():
        several = int(table_of(name).codes.max()) > 1
        widest[several] = max(widest[several], *found.values())
    print("the widest band: {:.1f} points, of several classes {:.1f}".format(*widest))
    if told.json:
        plain: dict[str, Any] = {"delta": DELTA, "lines": [each._asdict() for each in lines]}
        with open(told.json, "w") as file:
            json.dump(plain | {"widths": widths}, file, indent=1)
    narrow = all(wide <= most for wide, most in zip(widest, WIDEST, strict=True))
    return 0 if share_inside(lines) >= LEAST_SHARE and narrow else 1


if __name__ == "__main__":
    sys.exit(main())
