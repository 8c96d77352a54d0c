"""Panels and tables of Fig. 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dpadmm.experiments.figures import Curve, Panel
from dpadmm.experiments.job import Result
from dpadmm.experiments.statistics import Interval, mean_interval
from dpadmm.report.tables import Table
from dpadmm_papers.r_admm.convergence import REACHED, Courses

__all__ = ["course_panel", "course_table", "distance_table", "gap_panel", "percent"]


def percent(interval: Interval) -> str:
    """An interval of parts."""
    return f"{interval:.2%}"


def course_panel(courses: Courses, network: int, names: Sequence[str]) -> Panel:
    """(a): the average loss in the first half of the iterations, odd and even."""
    curves = []
    for name in names:
        loss = courses.losses(f"N = {network}, {name}").mean(axis=0)
        half = len(loss) // 2
        curves.append(Curve(name, tuple(range(1, half + 1)), tuple(loss[:half].tolist())))
    return Panel(
        f"(a) R-ADMM, N = {network}",
        "iteration",
        "average loss",
        tuple(curves),
        note="the mean over draws of the graph and the split.",
    )


def gap_panel(courses: Courses, network: int, labels: Sequence[str], title: str) -> Panel:
    """(b), (c): what is left in odd iterations."""
    curves = []
    for label in labels:
        left = courses.gaps(label, network)[:, ::2].mean(axis=0)
        every = tuple(range(1, 2 * len(left), 2))
        name = label.partition(", ")[2] or "fixed penalty 1"
        curves.append(Curve(name, every, tuple(left.tolist())))
    return Panel(
        title,
        "odd iteration",
        "loss above the optimum's, part of the way",
        tuple(curves),
        y_scale="log",
        note="the mean over draws of the graph and the split.",
    )


def course_table(courses: Courses, named: Sequence[tuple[int, str]]) -> Table:
    """Oscillation, iterations and what is left, for every curve."""
    rows, last = [], 0
    for network, label in named:
        gaps = courses.gaps(label, network)
        last, plain = gaps.shape[1], label.endswith("ADMM")
        counts = courses.iterations(label, network, 1 if plain else 2)
        rows.append(
            (
                label,
                "-" if plain else float(courses.oscillation(label).mean()),
                float(np.mean(counts)) if np.isfinite(counts).all() else "not reached",
                percent(mean_interval(gaps[:, last // 2 - 1])),
                percent(mean_interval(gaps[:, -1])),
            )
        )
    columns = (
        "curve",
        "mean even step",
        f"iterations until {REACHED:.0%} is left",
        f"left after {last // 2}",
        f"left after {last}",
    )
    return Table.of(columns, rows)


def distance_table(
    ends: Mapping[str, Result], pooled: Result, weighted: Result, heading: str
) -> Table:
    """How far runs end from the pooled optimum and from that of sum f_i / eta_i."""
    rows = [
        (
            words,
            *(
                float(np.linalg.norm(end.values["model"] - optimum.values["model"]))
                for optimum in (pooled, weighted)
            ),
        )
        for words, end in ends.items()
    ]
    columns = (
        heading,
        "distance from the pooled optimum",
        "distance from the optimum of sum f_i / eta_i",
    )
    return Table.of(columns, rows)
