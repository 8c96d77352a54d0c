"""Tables of PS-ADMM's figures: over what the paper leaves open, and what is guaranteed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from dpadmm.experiments.job import Result
from dpadmm.experiments.meaning import bound_of
from dpadmm.experiments.statistics import mean_interval
from dpadmm.plain import Array
from dpadmm.privacy.figures import Given
from dpadmm.report.tables import Table
from dpadmm_papers.ps_admm.setting import KINDS, PS, Kind

if TYPE_CHECKING:
    from dpadmm_papers.ps_admm.section_5 import Section5

__all__ = ["batch_table", "best", "guarantee_table", "penalty_table", "stability_table"]


def _tried(
    figure: Section5, results: Mapping[str, Result], kind: Kind, epsilon: float
) -> dict[str, Result]:
    """The cells of a kind at a budget, by penalty; the figure's own first."""
    own = results[kind.label(epsilon)]
    found = {f"{own.facts['penalty']:.3g}": own}
    for each, budget, penalty in figure.elsewhere():
        if each == kind and budget == epsilon:
            result = results[kind.label(epsilon, penalty)]
            auto = " (auto)" if penalty == "auto" else ""
            found[f"{result.facts['penalty']:.3g}{auto}"] = result
    return found


def best(
    figure: Section5, results: Mapping[str, Result], kind: Kind, epsilon: float, measure: str
) -> Array:
    """What the runs end with at the penalty with the lowest mean loss."""
    cells = _tried(figure, results, kind, epsilon).values()
    return min(cells, key=lambda each: float(each.final("average loss").mean())).final(measure)


def penalty_table(figure: Section5, results: Mapping[str, Result], measure: str) -> Table:
    """Every kind, budget and penalty of the grid."""
    kinds = dict.fromkeys(kind for kind, *_ in figure.elsewhere())
    rows = []
    for kind in kinds:
        for epsilon in figure["budgets elsewhere"]:
            for penalty, result in _tried(figure, results, kind, epsilon).items():
                last = figure.drawn(result.final(measure))
                rows.append(
                    (kind.name, kind.calibration, epsilon, penalty, f"{mean_interval(last):.4f}")
                )
    heads = ("algorithm", "calibration", "claimed or proven epsilon", "penalty", "at the end")
    return Table.of(heads, rows)


def stability_table(figure: Section5, results: Mapping[str, Result], measure: str) -> Table:
    """Whether messages stay finite, for steps and numbers of steps."""
    largest = max(figure["budgets"])
    own = (figure["eta v_L"], figure["S"])
    rows = []
    for share, steps in sorted((own, *figure["steps tried"])):
        ends = []
        for kind in PS.values():
            name = f"{kind.calibration}, eta v_L {share:g}, S {steps}"
            result = results[kind.label(largest) if (share, steps) == own else name]
            if "diverged" in result.facts:
                ends.append("diverged: messages too large to compute with")
            else:
                ends.append(f"{float(np.mean(figure.drawn(result.final(measure)))):.4g}")
        rows.append((share, steps, f"{2 / (1 - 2 * share):.3g}", *ends))
    heads = ("eta v_L", "S", "printed weight of the newest iterate", "published", "proven")
    return Table.of(heads, rows)


def batch_table(figure: Section5, results: Mapping[str, Result]) -> Table:
    """The proven form with other batches, at the largest budget."""
    largest = max(figure["budgets"])
    cells = {figure["batch"]: results[PS["proven"].label(largest)]}
    for batch in figure["batches tried"]:
        cells[batch] = results[f"PS-ADMM, proven, batch {batch}"]
    rows = [
        (
            batch,
            f"{mean_interval(result.final('average loss')):.4f}",
            f"{mean_interval(1 - result.final('average test accuracy')):.4f}",
            f"{mean_interval(1 - result.final('test accuracy')):.4f}",
        )
        for batch, result in sorted(cells.items())
    ]
    return Table.of(("rows of a batch", "loss", "test error", "test error of the mean model"), rows)


def guarantee_table(figure: Section5, results: Mapping[str, Result]) -> Table:
    """What each kind claims, and what is proven of the same noise."""
    rows = []
    for kind in KINDS:
        for epsilon in figure["budgets"]:
            claim = ""
            if kind.calibration == "published":
                claim = str(Given(epsilon)) + (" an iteration" if kind.each_iteration else "")
            spent = bound_of(results[kind.label(epsilon)].facts["privacy"])
            rows.append((kind.name, kind.calibration, epsilon, claim, spent))
    delta = figure["delta"]
    heads = ("algorithm", "calibration", "budget", "claimed", f"provable (delta {Given(delta)})")
    return Table.of(heads, rows)
