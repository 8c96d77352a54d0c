"""The quality of a model: every figure of one noisy histogram, with intervals.

:func:`evaluate_histogram` computes them. Public rows are evaluated the same way, with noise of
variance zero.

**Thresholds.** The threshold for two classes that reaches a wanted sensitivity or specificity.

The edges are tried in a fixed order, from the one that serves the wish best, as long as they reach
it. The last of them is taken, so that the other figure is as good as possible. A lucky edge beyond
one that fails is never taken. For the same reason ``sure=True`` holds in spite of the choice: a
fixed sequence of tests, each at its own level, errs no more often than one of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpadmm.errors import ParameterError
from dpadmm.evaluation.histogram import Link, LinkFit, NoisyHistogram, ScoreGrid, fit_link
from dpadmm.evaluation.intervals import (
    CountTable,
    Estimate,
    Mask,
    accepted_range,
    area_under_curve,
    cell_name,
    cell_shares,
    normal_quantile,
    share_of,
    spread_shape,
)
from dpadmm.plain import Array, html_table, json_data


@dataclass(frozen=True)
class ThresholdFigures:
    """Figures of two classes at a threshold: a row above it is predicted as the second class.

    Attributes
    ----------
    threshold
        Of the score; one of the grid's edges.
    accuracy, sensitivity, specificity, precision
        The share of right decisions: among all rows, the second class, the first class, and the
        rows predicted as the second class.
    confusion
        True by predicted class, as shares of all rows.
    """

    threshold: float
    accuracy: Estimate
    sensitivity: Estimate
    specificity: Estimate
    precision: Estimate
    confusion: tuple[tuple[Estimate, ...], ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        names = ("accuracy", "sensitivity", "specificity", "precision")
        return {
            "threshold": self.threshold,
            **{name: getattr(self, name).to_dict() for name in names},
            "confusion": _plain_table(self.confusion),
        }


@dataclass(frozen=True)
class CalibrationBin:
    """The rows of one bin: the link's probability, and the observed share of the class.

    Attributes
    ----------
    low, high
        Ends of the bin; the outer ones are infinite.
    probability
        The link's, at the bin's middle.
    observed
        The share of the class among its rows.
    """

    low: float
    high: float
    probability: float
    observed: Estimate

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        ends = {"low": self.low, "high": self.high, "probability": self.probability}
        return json_data(ends) | {"observed": self.observed.to_dict()}


@dataclass(frozen=True)
class ClassFigures:
    """One class against the rest.

    Attributes
    ----------
    code
        Of the class; with two classes there is one entry, for the second.
    prevalence
        Its share of all rows.
    sensitivity, precision
        The share of right predictions among its rows, and among rows predicted to be of it.
    area
        Under the ROC curve of its score, or with several classes of its margin.
    brier
        Mean squared error of the link's probability.
    link
        Its probabilities.
    calibration
        Bin by bin of the score.
    """

    code: int
    prevalence: Estimate
    sensitivity: Estimate
    precision: Estimate
    area: Estimate
    brier: Estimate
    link: Link
    calibration: tuple[CalibrationBin, ...]

    @property
    def estimates(self) -> tuple[Estimate, ...]:
        """Its figures, for a table."""
        return (self.prevalence, self.sensitivity, self.precision, self.area, self.brier)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "code": self.code,
            **{figure.name.lower(): figure.to_dict() for figure in self.estimates},
            "link": {"slope": self.link.slope, "offset": self.link.offset},
            "calibration": [entry.to_dict() for entry in self.calibration],
        }


@dataclass(frozen=True)
class ModelFigures:
    """The quality of a model, as far as a histogram shows it.

    Attributes
    ----------
    rows
        The public number of evaluated rows.
    noise_variance
        Of each count; 0 for public rows.
    confidence
        Of each interval by itself.
    accuracy
        The share of right predictions.
    confusion
        True by predicted class, as shares of all rows.
    classes
        Each class against the rest; with two classes the second alone.
    decision
        With two classes: the figures at the threshold; else None.
    curve
        With two classes: the figures at every edge, which is the ROC curve; else empty.
    """

    rows: int
    noise_variance: float
    confidence: float
    accuracy: Estimate
    confusion: tuple[tuple[Estimate, ...], ...]
    classes: tuple[ClassFigures, ...]
    decision: ThresholdFigures | None
    curve: tuple[ThresholdFigures, ...]

    @property
    def estimates(self) -> tuple[Estimate, ...]:
        """The figures of the whole, for a table; those of several classes are in `classes`."""
        if self.decision is None:
            return (self.accuracy,)
        told = self.decision
        (second,) = self.classes
        return (
            *(told.accuracy, told.sensitivity, told.specificity, told.precision),
            *(second.area, second.brier, second.prevalence),
        )

    def _repr_html_(self) -> str:
        share = f"{100 * self.confidence:g}%"
        lines = [
            (each.name, each.shown, f"{each.low:.3f}", f"{each.high:.3f}")
            for each in self.estimates
        ]
        columns = ("figure", "estimate", f"{share} from", "to")
        return html_table(lines, columns=columns, headline=f"On {self.rows:,} rows")

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "rows": self.rows,
            "noise_variance": self.noise_variance,
            "confidence": self.confidence,
            "accuracy": self.accuracy.to_dict(),
            "confusion": _plain_table(self.confusion),
            "classes": [figures.to_dict() for figures in self.classes],
            "decision": None if self.decision is None else self.decision.to_dict(),
            "curve": [decision.to_dict() for decision in self.curve],
        }


def _plain_table(table: tuple[tuple[Estimate, ...], ...]) -> list[list[dict[str, Any]]]:
    return [[figure.to_dict() for figure in line] for line in table]


def evaluate_histogram(
    histogram: NoisyHistogram, confidence: float = 0.95, threshold: float = 0.0
) -> ModelFigures:
    """Compute every figure.

    Parameters
    ----------
    histogram
        What was released.
    confidence
        Of each interval by itself; they do not hold all at once.
    threshold
        With two classes: higher scores are predicted as the second class; an edge of the grid.
    """
    z = normal_quantile(confidence)
    if histogram.grid.classes == 2:
        return _of_two(histogram, confidence, z, threshold)
    if threshold != 0.0:
        raise ParameterError(
            f"threshold must be 0 for {histogram.grid.classes} classes; got {threshold!r}: the "
            "class of the largest score is predicted. Leave it out."
        )
    return _of_several(histogram, confidence, z)


def _of_two(
    histogram: NoisyHistogram, confidence: float, z: float, threshold: float
) -> ModelFigures:
    (table,) = histogram.score_tables()
    curve = tuple(decision_at(histogram, edge, z) for edge in histogram.grid.edges)
    told = curve[_edge_number(histogram.grid, threshold)]
    fit = fit_link(table, histogram.grid)
    figures = ClassFigures(
        code=1,
        prevalence=_prevalence(table, 1, z),
        sensitivity=told.sensitivity,
        precision=told.precision,
        area=area_under_curve(table, z),
        brier=brier_score(table, fit, z),
        link=fit.link,
        calibration=_calibration(table, histogram.grid, fit.link, z),
    )
    return ModelFigures(
        rows=histogram.rows,
        noise_variance=float(histogram.noise_variance),
        confidence=confidence,
        accuracy=told.accuracy,
        confusion=told.confusion,
        classes=(figures,),
        decision=told,
        curve=curve,
    )


def _of_several(histogram: NoisyHistogram, confidence: float, z: float) -> ModelFigures:
    crossed = histogram.crossed_table()
    classes = tuple(
        _one_of_several(histogram, crossed, code, table, z)
        for code, table in enumerate(histogram.score_tables())
    )
    right = np.eye(histogram.grid.classes, dtype=bool)
    return ModelFigures(
        rows=histogram.rows,
        noise_variance=float(histogram.noise_variance),
        confidence=confidence,
        accuracy=share_of(crossed, "accuracy", right, ~right, z),
        confusion=cell_shares(crossed, z),
        classes=classes,
        decision=None,
        curve=(),
    )


def _one_of_several(
    histogram: NoisyHistogram, crossed: CountTable, code: int, table: CountTable, z: float
) -> ClassFigures:
    fit = fit_link(table, histogram.grid)
    right = np.zeros(crossed.counts.shape, dtype=bool)
    true, predicted = right.copy(), right.copy()
    right[code, code] = True
    true[code], predicted[:, code] = True, True
    return ClassFigures(
        code=code,
        prevalence=_prevalence(crossed, code, z),
        sensitivity=share_of(crossed, "sensitivity", right, true & ~right, z),
        precision=share_of(crossed, "precision", right, predicted & ~right, z),
        area=area_under_curve(table, z),
        brier=brier_score(table, fit, z),
        link=fit.link,
        calibration=_calibration(table, histogram.grid, fit.link, z),
    )


def _edge_number(grid: ScoreGrid, threshold: float) -> int:
    if threshold in grid.edges:
        return grid.edges.index(threshold)
    near = min(grid.edges, key=lambda edge: abs(edge - threshold))
    raise ParameterError(
        f"threshold must be an edge between two bins of the released histogram; got {threshold!r}: "
        f"the nearest is {near!r}."
    )


def decision_at(histogram: NoisyHistogram, threshold: float, z: float) -> ThresholdFigures:
    """Figures of two classes at a threshold.

    Parameters
    ----------
    histogram
        What was released.
    threshold
        One of the grid's edges.
    z
        Half an interval's width in standard deviations.
    """
    (table,) = histogram.score_tables()
    above = np.arange(histogram.grid.bins) > _edge_number(histogram.grid, threshold)
    second = np.array([[False], [True]])
    taken = np.broadcast_to(above, table.counts.shape)
    cells = [[~second & ~taken, ~second & taken], [second & ~taken, second & taken]]
    (kept, alarm), (missed, found) = cells
    return ThresholdFigures(
        threshold=threshold,
        accuracy=share_of(table, "accuracy", kept | found, alarm | missed, z),
        sensitivity=share_of(table, "sensitivity", found, missed, z),
        specificity=share_of(table, "specificity", kept, alarm, z),
        precision=share_of(table, "precision", found, alarm, z),
        confusion=tuple(
            tuple(
                share_of(table, cell_name(true, predicted), cell, ~cell, z)
                for predicted, cell in enumerate(line)
            )
            for true, line in enumerate(cells)
        ),
    )


def _prevalence(table: CountTable, code: int, z: float) -> Estimate:
    of_class = np.zeros(table.counts.shape, dtype=bool)
    of_class[code] = True
    return share_of(table, "prevalence", of_class, ~of_class, z)


def _calibration(
    table: CountTable, grid: ScoreGrid, link: Link, z: float
) -> tuple[CalibrationBin, ...]:
    ends = (-math.inf, *grid.edges, math.inf)
    return tuple(
        CalibrationBin(
            ends[number],
            ends[number + 1],
            float(link.probability(grid.centres[number])),
            share_of(table, "observed", *_one_bin(table, number), z),
        )
        for number in range(grid.bins)
    )


def _one_bin(table: CountTable, number: int) -> tuple[Mask, Mask]:
    members = np.zeros(table.counts.shape, dtype=bool)
    others = members.copy()
    members[1, number], others[0, number] = True, True
    return members, others


def brier_score(table: CountTable, fit: LinkFit, z: float) -> Estimate:
    r"""Mean squared error of the fitted link's probabilities on other rows like these.

    .. math:: \theta = \sum_i p_i w_i, \qquad w = (1 - P)^2 \text{ or } P^2,

    with :math:`P` the link's probability at the bin's middle. The link was fitted to the same
    counts, so their mean of :math:`w` is too small by the covariance of :math:`w` and counts,
    :math:`\mathrm{tr}(\partial w / \partial x \; \mathrm{Cov}\, x) / n` (Efron 2004), sampling and
    noise both; it is taken off, and the variance of what is quadratic in their errors added.

    Parameters
    ----------
    table
        The counts, class by bin.
    fit
        The link that was fitted to them.
    z
        Half the interval's width in standard deviations.
    """
    name, rows = "Brier", table.rows
    if rows == 0:
        return Estimate(name, None, reason="there are no such rows")
    chances = fit.link.probability(fit.centres)
    weights = np.stack([chances**2, (1 - chances) ** 2])
    bias, second = _optimism(table, fit, chances)
    estimate = float((weights * table.counts).sum() - bias) / rows
    scatter = max(float((weights**2 * table.counts).sum()) / rows - estimate**2, 0.0)
    # The number of equal errors with the same scatter; few errors make it skewed.
    errors = float((weights * fit.counts).sum() ** 2 / (weights**2 * fit.counts).sum())
    sampling = scatter / rows * (1 + 4 / max(errors, 1.0))
    noise = (table.noise_of(weights) + second) / rows**2
    value_there = min(max(estimate, 0.0), 1.0)

    def excess(value: float) -> float:
        moved = sampling * spread_shape(value, errors) / spread_shape(value_there, errors)
        return (value - estimate) ** 2 - z**2 * (moved + noise)

    return accepted_range(excess, estimate, name)


def _optimism(table: CountTable, fit: LinkFit, chances: Array) -> tuple[float, float]:
    """Mean and variance of the optimism of weights fitted to the counts that they weigh."""
    slope = chances * (1 - chances)
    by_margin = np.stack([2 * chances * slope, -2 * (1 - chances) * slope]).reshape(-1, 1)
    inputs = np.tile(np.stack([fit.centres, np.ones_like(chances)], axis=1), (2, 1))
    jacobian = by_margin * inputs @ fit.response
    counts = fit.counts.ravel()
    covariance = np.diag(counts + table.noise_variance)
    covariance -= np.outer(counts, counts) / max(table.rows, 1)
    covariance -= table.noise_variance / counts.size
    followed = (jacobian + jacobian.T) / 2 @ covariance
    return float(np.trace(followed)), 2 * float((followed * followed.T).sum())


def choose_threshold(
    histogram: NoisyHistogram,
    *,
    sensitivity: float | None = None,
    specificity: float | None = None,
    sure: bool = False,
    confidence: float = 0.95,
) -> ThresholdFigures:
    """Return the figures at the threshold that reaches a wanted figure.

    Parameters
    ----------
    histogram
        Of two classes.
    sensitivity, specificity
        What is wanted, one of them: a number between 0 and 1.
    sure
        The lower end of the interval must reach it, not only the estimate: the figure is then
        truly reached with the confidence ``(1 + confidence) / 2``.
    confidence
        Of each interval by itself.

    Raises
    ------
    ParameterError
        If no edge reaches it.
    """
    name, wanted = check_wish(sensitivity, specificity)
    if histogram.grid.classes != 2:
        raise ParameterError(
            f"a threshold must be for 2 classes; the histogram has {histogram.grid.classes}: the "
            "class of the largest score is predicted."
        )
    z = normal_quantile(confidence)
    edges: Iterable[float] = histogram.grid.edges
    # Low thresholds find every row of the second class; high ones raise no false alarm.
    ordered = edges if name == "sensitivity" else reversed(histogram.grid.edges)
    chosen: ThresholdFigures | None = None
    first: ThresholdFigures | None = None
    for edge in ordered:
        decision = decision_at(histogram, edge, z)
        first = first or decision
        if not _reaches(getattr(decision, name), wanted, sure=sure):
            break
        chosen = decision
    if chosen is None:
        raise _refusal(name, wanted, first, sure=sure)
    return chosen


def check_wish(sensitivity: float | None, specificity: float | None) -> tuple[str, float]:
    """Return which of the two was asked for, and its value; refuse none or both."""
    if (sensitivity is None) == (specificity is None):
        raise ParameterError(
            "sensitivity or specificity must be given, one of them; got "
            f"{'neither' if sensitivity is None else 'both'}: a threshold trades one for the other."
        )
    name = "specificity" if sensitivity is None else "sensitivity"
    wanted = specificity if sensitivity is None else sensitivity
    if isinstance(wanted, bool) or not isinstance(wanted, int | float) or not 0 < wanted < 1:
        raise ParameterError(
            f"{name} must be a number between 0 and 1; got {wanted!r}: give 0.9, say."
        )
    return name, float(wanted)


def _reaches(figure: Estimate, wanted: float, *, sure: bool) -> bool:
    return figure.value is not None and (figure.low if sure else figure.value) >= wanted


def _refusal(
    name: str, wanted: float, first: ThresholdFigures | None, *, sure: bool
) -> ParameterError:
    best: Estimate | None = None if first is None else getattr(first, name)
    if best is None or best.value is None:
        return ParameterError(
            f"{name} must be determined to be wished for; it is not, because of "
            f"{'no rows' if best is None else best.reason}: evaluate more rows or spend more."
        )
    reached = best.low if sure else best.value
    end = "surely " if sure else ""
    return ParameterError(
        f"{name} must be one that a threshold {end}reaches; got {wanted:g}, and the first one "
        f"tried reaches {reached:.3f}: wish for less"
        + (", leave out sure, or evaluate more rows." if sure else ", or evaluate more rows.")
    )
