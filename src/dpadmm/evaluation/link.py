r"""From a score to a probability: two numbers, fitted to the noisy counts.

.. math:: P(y = 1 \mid s) = \frac{1}{1 + \exp(-(a s + b))}, \qquad a \ge 0

(Platt 1999). The noisy table is moved to the nearest one of counts that are not negative and have
the public sum; every row of a bin then counts as its middle, and the two numbers minimise the
logistic loss with Platt's targets :math:`(N_+ + 1) / (N_+ + 2)` and :math:`1 / (N_- + 2)`, so that
classes which the score tells apart perfectly have a finite slope. A slope below zero would turn the
order of the scores around: it becomes zero, and every row gets the share of its class.

With several classes each has numbers of its own, for its margin, and probabilities are divided by
their sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.special import expit

from dpadmm.errors import ParameterError
from dpadmm.evaluation.histogram import NoisyHistogram, ScoreGrid, class_margins
from dpadmm.evaluation.intervals import CountTable
from dpadmm.plain import Array

# A precision that gives the slope a value where all rows are in one bin, and else does nothing.
_SLOPE_PRECISION: Final = 1e-3
_MOST_STEPS: Final = 100
_TOLERANCE: Final = 1e-10


@dataclass(frozen=True)
class Link:
    """The two numbers.

    Attributes
    ----------
    slope, offset
        ``a`` and ``b``; the slope is not negative.
    """

    slope: float
    offset: float

    def probability(self, scores: Array) -> Array:
        """Of the class whose score, or margin, it is."""
        return np.asarray(expit(self.slope * scores + self.offset))


@dataclass(frozen=True, eq=False)
class LinkFit:
    """A link, and how it would follow the counts.

    Attributes
    ----------
    link
        What was fitted.
    counts
        The nearest counts that are not negative: class by bin.
    centres
        The score that stands for each bin.
    response
        Derivative of slope and offset by each noisy count: two by classes times bins.
    """

    link: Link
    counts: Array
    centres: Array
    response: Array


def nearest_counts(counts: Array, total: float) -> Array:
    """The nearest counts, by least squares, that are not negative and have the given sum."""
    falling = np.sort(counts, axis=None)[::-1]
    excess = (np.cumsum(falling) - total) / np.arange(1, counts.size + 1)
    kept = int(np.count_nonzero(falling > excess))
    return np.asarray(np.maximum(counts - excess[max(kept, 1) - 1], 0.0))


def fit_link(table: CountTable, grid: ScoreGrid) -> LinkFit:
    """Fit the link to one table, class by bin of the score.

    Parameters
    ----------
    table
        Two rows: the rest, the class.
    grid
        Whose bins they are.
    """
    counts, centres = nearest_counts(table.counts, float(table.rows)), grid.centres
    # In units of the outer bin's score: the fit is the same for scores of any scale.
    unit = float(np.abs(centres).max())
    others, members = counts.sum(axis=1)
    targets = np.array([[1 / (others + 2)], [(members + 1) / (members + 2)]])
    inputs = np.stack([centres / unit, np.ones_like(centres)], axis=1)
    numbers = _minimised(counts.sum(axis=0), (targets * counts).sum(axis=0), inputs)
    if numbers[0] < 0:
        inputs[:, 0] = 0.0
        numbers = _minimised(counts.sum(axis=0), (targets * counts).sum(axis=0), inputs)
        numbers[0] = 0.0
    chances = expit(inputs @ numbers)
    curvature = _curvature(counts.sum(axis=0), chances, inputs)
    pulls = (targets - chances).reshape(-1, 1) * np.tile(inputs, (2, 1))
    # Cells at zero do not follow the noise; the others share what keeps their sum.
    free = (counts > 0).reshape(-1, 1)
    pulls = free * (pulls - (free * pulls).sum(axis=0) / max(int(free.sum()), 1))
    scaled = np.array([1 / unit, 1.0])
    response = scaled[:, None] * np.linalg.solve(curvature, pulls.T)
    slope, offset = (scaled * numbers).tolist()
    return LinkFit(Link(slope, offset), counts, centres, response)


def _curvature(totals: Array, chances: Array, inputs: Array) -> Array:
    weights = totals * chances * (1 - chances)
    small = np.array([_SLOPE_PRECISION, _TOLERANCE])
    return np.asarray((inputs * weights[:, None]).T @ inputs + np.diag(small))


def _minimised(totals: Array, positive: Array, inputs: Array) -> Array:
    """Newton's method, halving steps that go too far; the loss is convex."""

    def loss(numbers: Array) -> float:
        margins = inputs @ numbers
        data = float((totals * np.logaddexp(0, margins) - positive * margins).sum())
        return data + _SLOPE_PRECISION * float(numbers[0]) ** 2 / 2

    numbers = np.zeros(2)
    for _ in range(_MOST_STEPS):
        chances = expit(inputs @ numbers)
        slope = inputs.T @ (totals * chances - positive)
        slope[0] += _SLOPE_PRECISION * numbers[0]
        step = np.linalg.solve(_curvature(totals, chances, inputs), slope)
        size, now = 1.0, loss(numbers)
        while loss(numbers - size * step) > now and size > _TOLERANCE:
            size /= 2
        numbers = numbers - size * step
        if float(np.abs(step).max()) < _TOLERANCE:
            break
    return numbers


def fit_links(histogram: NoisyHistogram) -> tuple[Link, ...]:
    """The link of two classes, or one for each of several."""
    return tuple(fit_link(table, histogram.grid).link for table in histogram.score_tables())


def class_probabilities(links: tuple[Link, ...], scores: Array) -> Array:
    """Probabilities of the classes, row by row; they sum to one.

    Parameters
    ----------
    links
        One for two classes, else one for each.
    scores
        One per row; with several classes one per row and class.
    """
    if len(links) == 1:
        chances = links[0].probability(np.asarray(scores, dtype=np.float64))
        return np.stack([1 - chances, chances], axis=1)
    scores = np.asarray(scores, dtype=np.float64)
    if scores.ndim != 2 or scores.shape[1] != len(links):
        raise ParameterError(
            f"scores must have one column for each of {len(links)} classes; got the shape "
            f"{scores.shape}: give the scores of the model that was evaluated."
        )
    margins = class_margins(scores)
    chances = np.stack(
        [link.probability(margins[:, code]) for code, link in enumerate(links)], axis=1
    )
    # Never zero: the predicted class has a margin above zero and a slope that is not negative,
    # unless its offset is far below; then no class is preferred.
    total = chances.sum(axis=1, keepdims=True)
    uniform = np.full_like(chances, 1 / len(links))
    return np.divide(chances, total, out=uniform, where=total > 0)
