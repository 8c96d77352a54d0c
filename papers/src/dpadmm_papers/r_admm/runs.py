"""Runs of Figs. 3 to 5 by calibration, alpha and name: their panels and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from dpadmm.algorithms.m_admm import MADMM
from dpadmm.algorithms.perturbed_admm import PerturbedADMM
from dpadmm.algorithms.r_admm import RecycledADMM
from dpadmm.experiments.figures import Curve, Panel
from dpadmm.experiments.job import Job, Result, TrainingJob
from dpadmm.experiments.meaning import bound_of
from dpadmm.experiments.statistics import mean_interval, ranges
from dpadmm.plain import Array
from dpadmm.privacy.figures import Given
from dpadmm.report.tables import Table
from dpadmm_papers.r_admm.common import CALIBRATIONS, error_of, loss_of

__all__ = [
    "PLAIN",
    "RUNS",
    "Spent",
    "course_panels",
    "error_panel",
    "label",
    "outcome_table",
    "privacy_panels",
    "spent",
]

#: The label of the run without noise.
PLAIN: Final = "without noise"
#: A range is that of so many runs, as in section VIII.B.1.
RUNS: Final = 10
_DRAWN: Final = ("published", "proven")


def label(calibration: str, alpha: float, name: str) -> str:
    """How a cell is called."""
    return f"{calibration}, alpha = {alpha:g}, {name}"


def course_panels(
    results: Mapping[str, Result],
    alphas: Sequence[float],
    names: Sequence[str],
    *,
    banded: Sequence[str] = (),
) -> list[Panel]:
    """Average losses with their mean and range; of ``banded`` names alone, where any are given."""
    plain = results[PLAIN].course("average loss")
    every = range(1, len(plain) + 1)
    panels = []
    for calibration in _DRAWN:
        for alpha in alphas:
            curves = [Curve.of_runs(PLAIN, every, plain)]
            for name in names:
                course = results[label(calibration, alpha, name)].course("average loss")
                if banded and name not in banded:
                    course = course.mean(axis=1, keepdims=True)
                curves.append(Curve.ranged(name, every, course, calibration, group=RUNS))
            panels.append(
                Panel(
                    f"alpha = {alpha:g}, {calibration}",
                    "iteration",
                    "average loss",
                    tuple(curves),
                    note=f"bands are the range over {RUNS} runs, as in the paper.",
                )
            )
    return panels


def error_panel(
    results: Mapping[str, Result],
    alphas: Sequence[float],
    names: Mapping[str, Any],
    x_label: str,
) -> Panel:
    """Test errors over what the names stand for, a curve for each alpha and calibration."""
    curves = [
        Curve.of_runs(
            f"alpha = {alpha:g}" + (", Gaussian" if "Gaussian" in calibration else ""),
            list(names.values()),
            [error_of(results[label(calibration, alpha, name)]) for name in names],
            calibration.partition(",")[0],
        )
        for calibration in CALIBRATIONS
        for alpha in alphas
    ]
    level = float(error_of(results[PLAIN])[0])
    curves.append(Curve(PLAIN, tuple(names.values()), (level,) * len(names)))
    return Panel("Test error", x_label, "classification error rate", tuple(curves))


def outcome_table(
    results: Mapping[str, Result], runs: Sequence[tuple[str, float, str]], what: str
) -> Table:
    """Losses and errors with their ranges, and what is provable."""
    rows = []
    for calibration, alpha, name in runs:
        result = results[label(calibration, alpha, name)]
        loss, error = loss_of(result), error_of(result)
        rows.append(
            (
                calibration,
                alpha,
                name,
                f"{mean_interval(loss):.4f}",
                float(ranges(loss, RUNS).mean()),
                f"{mean_interval(error):.2%}",
                f"{ranges(error, RUNS).mean():.2%}",
                bound_of(result.facts["privacy"]),
            )
        )
    heads = ("calibration", "alpha", what, "average loss", f"its range over {RUNS} runs")
    return Table.of(
        (*heads, "test error", "range of the error", "provable epsilon"),
        rows,
    )


@dataclass(frozen=True)
class Spent:
    """Pure privacy loss after each iteration, the largest over parties, for exact minimisers.

    Attributes
    ----------
    published
        Eq. (32), or M-ADMM's own total.
    proven
        The same noise with ``ln(1 + kappa)`` for the Jacobian: L2 and L3, summed.
    """

    published: Array
    proven: Array


def spent(cell: Job) -> Spent:
    """What a run with noise of density exp(-rate ||b||) costs, from its plan alone."""
    assert isinstance(cell, TrainingJob)
    planned, _ = cell.plan(cell.problem.load())
    algorithm, site = planned.algorithm, planned.site
    assert isinstance(algorithm, RecycledADMM | PerturbedADMM)
    noise = 2 * site.weight / site.rows / algorithm.scale
    claimed = 2.8 * algorithm.kappa
    if isinstance(algorithm, MADMM):
        # M-ADMM's total has 2 eta V alone for the strong convexity.
        claimed = claimed * algorithm.convexity / (2 * algorithm.penalty * site.degree)
    steps = np.stack([noise + claimed, noise + np.log1p(algorithm.kappa)])
    every = np.zeros((2, planned.rounds, steps.shape[2]))
    # A recycled run releases in every second iteration, the first included.
    every[:, :: 2 if isinstance(algorithm, RecycledADMM) else 1] = steps
    courses = every.cumsum(axis=1).max(axis=2)
    return Spent(courses[0], courses[1])


def privacy_panels(
    cells: Mapping[str, Job],
    results: Mapping[str, Result],
    alphas: Sequence[float],
    names: Sequence[str],
    delta: float,
) -> list[Panel]:
    """What is claimed of published noise over the iterations, and what is proven of it."""
    panels = []
    for alpha in alphas:
        curves = []
        for name in names:
            place = label("published", alpha, name)
            claimed, proven = spent(cells[place]).published, results[place].values["epsilon"]
            every = tuple(range(1, len(claimed) + 1))
            for values, kind in ((claimed, "published"), (proven, "proven")):
                curves.append(Curve(name, every, tuple(values.tolist()), calibration=kind))
        panels.append(
            Panel(
                f"alpha = {alpha:g}: privacy loss of published noise",
                "iteration",
                "privacy loss, claimed or proven",
                tuple(curves),
                note="dashed: the claim, eq. (32); solid: proven of the same noise at delta = "
                f"{Given(delta)}.",
            )
        )
    return panels
