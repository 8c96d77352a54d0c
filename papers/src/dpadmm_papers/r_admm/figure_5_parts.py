"""Panels and tables of Fig. 5."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dpadmm.experiments.figures import Curve, Panel
from dpadmm.experiments.job import Result, TrainingJob
from dpadmm.experiments.statistics import Interval, mean_interval
from dpadmm.privacy.figures import AtMost, Given
from dpadmm.report.tables import Table
from dpadmm_papers.r_admm.common import error_of, loss_of, ranged, spent, total_words

__all__ = [
    "error_panel",
    "loss_panels",
    "loss_table",
    "privacy_panels",
    "privacy_table",
    "rival_table",
]

Runs = Mapping[tuple[str, float], Mapping[str, Result]]
Claims = Mapping[tuple[float, str], TrainingJob]
Found = Mapping[tuple[float, str], Result]


def loss_panels(runs: Runs, plain: Result, alphas: Sequence[float]) -> list[Panel]:
    """(a) to (c): average loss, its mean and range."""
    calm = ranged("without noise", plain.course("average loss"))
    return [
        Panel(
            f"alpha = {alpha:g}, {calibration}",
            "iteration",
            "average loss",
            (
                calm,
                *(
                    ranged(who, result.course("average loss"), calibration.partition(",")[0])
                    for who, result in runs[calibration, alpha].items()
                ),
            ),
            note="bands are the range over runs, as in the paper.",
        )
        for calibration in ("published", "proven")
        for alpha in alphas
    ]


def privacy_panels(
    claims: Claims, found: Found, alphas: Sequence[float], recycled: str, rival: str
) -> list[Panel]:
    """(d) and (f): what eq. (32) claims over the iterations, and what is proven.

    Rivals are held to the same claim; what is proven of one stands for both.
    """
    panels = []
    for alpha in (alphas[0], alphas[-1]):
        claimed = spent(claims[alpha, recycled]).published
        every = tuple(range(1, len(claimed) + 1))
        curves = [Curve(recycled, every, tuple(claimed.tolist()), calibration="published")]
        for who in (recycled, rival):
            proven = found[alpha, who].values["epsilon"]
            curves.append(Curve(who, every, tuple(proven.tolist()), calibration="proven"))
        panels.append(
            Panel(
                f"alpha = {alpha:g}: privacy loss of published noise",
                "iteration",
                "privacy loss, claimed or proven",
                tuple(curves),
                note="dashed: eq. (32); solid: epsilon at delta = 1e-5, proven of the same noise.",
            )
        )
    return panels


def error_panel(runs: Runs, plain: Result, alphas: Sequence[float]) -> Panel:
    """(g): test errors."""
    names = [f"alpha = {alpha:g}" for alpha in alphas]
    level = float(error_of(plain)[0])
    curves = [Curve("without noise", tuple(names), (level,) * len(names))]
    for calibration in ("published", "proven"):
        for who in runs[calibration, alphas[0]]:
            errors = [error_of(runs[calibration, alpha][who]) for alpha in alphas]
            curves.append(Curve.of_runs(who, names, np.array(errors), calibration))
    return Panel("Test error", "noise", "classification error rate", tuple(curves))


def loss_table(runs: Runs, half: Mapping[float, Result], name: str) -> Table:
    """Means, ranges, errors of every run."""
    rows = [
        _line(calibration, alpha, who, result)
        for (calibration, alpha), group in runs.items()
        for who, result in group.items()
        # Of published runs with another DVP, only that DVP is new.
        if "Algorithm 2" not in calibration or who == "ADMM (DVP)"
    ]
    rows += [_line("published", alpha, name, result) for alpha, result in half.items()]
    return Table.of(
        (
            "calibration",
            "alpha",
            "algorithm",
            "average loss",
            "its range",
            "test error",
            "range of the error",
            "provable epsilon",
        ),
        rows,
    )


def _line(calibration: str, alpha: float, who: str, result: Result) -> tuple[object, ...]:
    loss, error = loss_of(result), error_of(result)
    return (
        calibration,
        alpha,
        who,
        f"{mean_interval(loss):.4f}",
        float(np.ptp(loss)),
        f"{mean_interval(error):.2%}",
        f"{np.ptp(error):.2%}",
        total_words(result),
    )


def privacy_table(claims: Claims, found: Found, delta: float) -> Table:
    """The claim, the tighter sum, and the composition at delta."""
    rows = []
    for (alpha, who), cell in claims.items():
        bound = spent(cell)
        claimed = AtMost(bound.published[-1])
        if cell.parameters.algorithm == "dvp":
            epsilon: Any = cell.parameters.epsilon
            claimed = AtMost(epsilon)
        rows.append((alpha, who, claimed, AtMost(bound.proven[-1]), total_words(found[alpha, who])))
    return Table.of(
        (
            "alpha",
            "algorithm",
            "claimed total",
            "sum of ln(1 + kappa) and noise",
            f"epsilon at delta = {Given(delta)}",
        ),
        rows,
    )


def rival_table(rows: Sequence[tuple[str, str, Interval]]) -> Table:
    """Verdicts at alpha = 1, published, under other choices of ours."""
    return Table.of(
        ("choice", "average loss of", "difference", "below 0"),
        [
            (choice, pair, f"{found:.4f}", "yes" if found.high < 0 else "no")
            for choice, pair, found in rows
        ],
    )
