r"""Which cell a row enters, what is released of the counts, and probabilities from them.

With two classes a row of class :math:`y` and score :math:`s` enters one cell of a table, its class
by the bin of its score. Replacing a row moves one unit from a cell to another:

.. math:: \Delta = \sqrt 2.

With :math:`K > 2` classes and a score for each, a row enters one cell of each of :math:`K` tables
(whether it is of class :math:`k`, by the bin of its margin, by how much the score of :math:`k`
exceeds the largest other one) and one of the table of true by predicted class:

.. math:: \Delta = \sqrt{2 (K + 1)}.

Bins are open below and closed above, so "above an edge" is a union of bins. Zero is an edge, so the
counts have the exact decisions of a classifier, ties included.

**Probabilities.** Two numbers, fitted to the noisy counts, turn a score into a probability:

.. math:: P(y = 1 \mid s) = \frac{1}{1 + \exp(-(a s + b))}, \qquad a \ge 0

(Platt 1999). The fit first moves the noisy table to the nearest non-negative counts with the public
sum. Every row of a bin then counts with the bin's middle, and the two numbers minimise the logistic
loss with Platt's targets :math:`(N_+ + 1) / (N_+ + 2)` and :math:`1 / (N_- + 2)`. These keep the
slope finite even if the score separates the classes perfectly. A negative slope would reverse the
order of the scores: it becomes zero, and every row gets the share of its class.

With several classes each class has its own two numbers, for its margin, and probabilities are
divided by their sum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError
from scipy.special import expit

from dpadmm.errors import ParameterError, finding
from dpadmm.evaluation.intervals import CountTable
from dpadmm.plain import Array, Finite, Part

HISTOGRAM_VERSION: Final = 1
"""Version of the saved form."""

#: The most cells of a histogram.
MOST_CELLS: Final = 200_000
# Figures of larger counts overflow; honest parties stay far below.
_LARGEST_COUNT: Final = 1e15
# Margin losses pull scores to about 1, whatever the norm of the weights. On public sets half of all
# scores lie between 0.5 and 2 for norms from 2 to 50, and so do the edges.
_SCALE: Final = 1.5
_STEPS: Final = 8


def class_margins(scores: Array) -> Array:
    """By how much each class's score exceeds the largest of the others, row by row.

    It is above zero for the predicted class only. Scores separate the classes less well: if each
    class is rare, all scores lie near -1.
    """
    ordered = np.sort(scores, axis=1)
    largest, second = ordered[:, -1:], ordered[:, -2:-1]
    with np.errstate(all="ignore"):  # NaN has its own cell
        others = np.where(
            np.arange(scores.shape[1]) == scores.argmax(axis=1)[:, None], second, largest
        )
        return np.asarray(scores - others)


@dataclass(frozen=True)
class ScoreGrid:
    """The cells: a function of the released model and the number of classes, and so public.

    Attributes
    ----------
    classes
        2 or more.
    edges
        Between the bins, increasing, one of them zero; the outer bins reach to infinity.
    """

    classes: int
    edges: tuple[float, ...]

    def __post_init__(self) -> None:
        if isinstance(self.classes, bool) or not isinstance(self.classes, int) or self.classes < 2:
            raise ParameterError(
                f"classes must be a whole number of at least 2; got {self.classes!r}: give the "
                "number of classes of the model."
            )
        edges = np.asarray(self.edges, dtype=np.float64)
        increasing = edges.ndim == 1 and np.isfinite(edges).all() and (np.diff(edges) > 0).all()
        if not increasing or 0.0 not in edges:
            raise ParameterError(
                "edges must be finite, increasing and have 0 among them; got "
                f"{len(self.edges)} edges: use ScoreGrid.of_model."
            )
        if self.cells > MOST_CELLS:
            raise ParameterError(
                f"classes and edges must make at most {MOST_CELLS} cells; got {self.cells}: "
                "evaluate a model of fewer classes."
            )

    @classmethod
    def of_model(cls, coef: Array, classes: int, *, steps: int = _STEPS) -> ScoreGrid:
        r"""The grid of a linear model: edges :math:`\pm u \tanh^{-1}(j / J)` for :math:`j < J`.

        A row has norm 1 at most, so no score exceeds :math:`r`, the largest norm of an output's
        weights: :math:`u = \min(1.5, r / 2)`.

        Parameters
        ----------
        coef
            Weights of the released model for the scaled row, that of the constant included;
            one row per output.
        classes
            How many there are.
        steps
            Bins on each side of zero.
        """
        with np.errstate(over="ignore"):
            largest = float(np.linalg.norm(np.atleast_2d(coef), axis=1).max(initial=0.0))
        if not math.isfinite(largest) or largest <= 0:
            # A zero model gives every row the score 0; no real model has infinite weights.
            return cls(classes, (0.0,))
        inner = min(_SCALE, largest / 2) * np.arctanh(np.arange(1, steps) / steps)
        return cls(classes, (*(-inner[::-1]).tolist(), 0.0, *inner.tolist()))

    @property
    def bins(self) -> int:
        """Bins of a score."""
        return len(self.edges) + 1

    @property
    def tables(self) -> int:
        """Tables of scores: one for two classes, else one per class."""
        return 1 if self.classes == 2 else self.classes

    @property
    def centres(self) -> Array:
        """A score for each bin: its middle; an outer bin is as wide as its neighbour."""
        edges = np.array(self.edges)
        widths = np.diff(edges) if len(edges) > 1 else np.ones(1)
        outer = (edges[0] - widths[0] / 2, edges[-1] + widths[-1] / 2)
        return np.concatenate([outer[:1], (edges[1:] + edges[:-1]) / 2, outer[1:]])

    @property
    def cells(self) -> int:
        """Numbers in the tables: those of scores, then with K > 2 true by predicted class."""
        scored = self.tables * 2 * self.bins
        return scored if self.classes == 2 else scored + self.classes**2

    @property
    def sensitivity(self) -> float:
        """How far one replaced row moves the counts; a person may have several rows."""
        return math.sqrt(2) if self.classes == 2 else math.sqrt(2 * (self.classes + 1))

    def counts(self, scores: Array, labels: NDArray[Any]) -> Array:
        """Exact counts, which are private if the rows are.

        Every row enters one cell of each table, whatever it holds: a NaN score is below all others,
        and an unknown label counts as the first class.

        Parameters
        ----------
        scores
            One per row; with K > 2 classes one per row and class.
        labels
            Codes of the true classes, from 0.
        """
        scores, labels = np.asarray(scores, dtype=np.float64), np.asarray(labels)
        outputs: tuple[int, ...] = () if self.classes == 2 else (self.classes,)
        if labels.ndim != 1 or scores.shape != (len(labels), *outputs):
            raise ParameterError(
                f"scores must have the shape {('rows', *outputs)} and labels ('rows',); got "
                f"{scores.shape} and {labels.shape}: give one score per row, or per row and class."
            )
        codes = np.zeros(len(labels), dtype=np.int64)
        for code in range(1, self.classes):
            codes[labels == code] = code
        if self.classes == 2:
            return self._table(codes, scores)
        margins = class_margins(scores)
        tables = [self._table(codes == k, margins[:, k]) for k in range(self.classes)]
        predicted = scores.argmax(axis=1)  # ties: the first class, as in predictions
        crossed = np.bincount(codes * self.classes + predicted, minlength=self.classes**2)
        return np.concatenate([*tables, crossed.astype(np.float64)])

    def _table(self, codes: NDArray[Any], scores: Array) -> Array:
        """Class by bin, flattened."""
        bins = np.searchsorted(self.edges, np.where(np.isnan(scores), -np.inf, scores))
        cells = codes.astype(np.int64) * self.bins + bins
        return np.bincount(cells, minlength=2 * self.bins).astype(np.float64)


class _SavedHistogram(Part):
    """The saved form."""

    format: Literal[1]
    classes: Annotated[int, Field(ge=2, le=MOST_CELLS)]
    edges: Annotated[list[Finite], Field(max_length=MOST_CELLS)]
    counts: Annotated[list[Finite], Field(max_length=MOST_CELLS)]
    noise_variance: Annotated[Finite, Field(ge=0)]
    rows: Annotated[int, Field(ge=0)]


@dataclass(frozen=True, eq=False)
class NoisyHistogram:
    """A released histogram.

    Attributes
    ----------
    grid
        The cells.
    counts
        The sum over all parties, with their noise, in the order of :meth:`ScoreGrid.counts`.
    noise_variance
        Variance of each count's noise, all parties together; 0 for public rows.
    rows
        The public number of all rows.
    """

    grid: ScoreGrid
    counts: Array = field(repr=False)
    noise_variance: float
    rows: int

    def __post_init__(self) -> None:
        counts = np.array(self.counts, dtype=np.float64)
        counts.flags.writeable = False
        object.__setattr__(self, "counts", counts)
        if counts.shape != (self.grid.cells,) or not np.isfinite(counts).all():
            raise ParameterError(
                f"counts must be {self.grid.cells} finite numbers, one per cell of the grid; got "
                f"the shape {counts.shape}: give the released counts as they are."
            )
        if not math.isfinite(self.noise_variance) or self.noise_variance < 0:
            raise ParameterError(
                "noise_variance must be a number of at least 0; got "
                f"{self.noise_variance!r}: give the variance of one count's noise."
            )
        if isinstance(self.rows, bool) or not isinstance(self.rows, int) or self.rows < 0:
            raise ParameterError(
                f"rows must be a whole number of at least 0; got {self.rows!r}: give the public "
                "number of rows of all parties."
            )
        largest = max(float(np.abs(counts).max()), math.sqrt(self.noise_variance))
        if largest > _LARGEST_COUNT or self.rows > _LARGEST_COUNT:
            raise ParameterError(
                f"counts, the spread of their noise and rows must be at most {_LARGEST_COUNT:g}; "
                f"counts and noise reach {largest:g}: a party is faulty, or epsilon is too small."
            )

    def score_tables(self) -> tuple[CountTable, ...]:
        """Class by bin of the score: one table for two classes, else one for each class."""
        grid, size = self.grid, 2 * self.grid.bins
        return tuple(
            self._table(self.counts[start : start + size].reshape(2, grid.bins))
            for start in range(0, grid.tables * size, size)
        )

    def crossed_table(self) -> CountTable:
        """True by predicted class, for several classes."""
        start = self.grid.tables * 2 * self.grid.bins
        return self._table(self.counts[start:].reshape(self.grid.classes, -1))

    def _table(self, counts: Array) -> CountTable:
        return CountTable.of_released(counts, self.noise_variance, self.rows)

    def to_dict(self) -> dict[str, Any]:
        """Plain data that :meth:`from_dict` reads."""
        return {
            "format": HISTOGRAM_VERSION,
            "classes": self.grid.classes,
            "edges": list(self.grid.edges),
            "counts": self.counts.tolist(),
            "noise_variance": float(self.noise_variance),
            "rows": self.rows,
        }

    @classmethod
    def from_dict(cls, content: Any) -> NoisyHistogram:
        """Read what :meth:`to_dict` made.

        Raises
        ------
        ParameterError
            If it is something else, or of another version.
        """
        try:
            saved = _SavedHistogram.model_validate(content)
        except ValidationError as error:
            sentence = finding(error, lambda place: ".".join(["histogram", *map(str, place)]))
            raise ParameterError(sentence) from None
        grid = ScoreGrid(saved.classes, tuple(saved.edges))
        return cls(grid, np.array(saved.counts), saved.noise_variance, saved.rows)


# A precision that fixes the slope if all rows are in one bin, and is negligible otherwise.
_SLOPE_PRECISION: Final = 1e-3
_MOST_STEPS: Final = 100
_TOLERANCE: Final = 1e-10


@dataclass(frozen=True)
class Link:
    """The slope and the offset of a probability.

    Attributes
    ----------
    slope, offset
        ``a`` and ``b``; the slope is not negative.
    """

    slope: float
    offset: float

    def probability(self, scores: Array) -> Array:
        """The probability of the class that the scores, or margins, belong to."""
        return np.asarray(expit(self.slope * scores + self.offset))


@dataclass(frozen=True, eq=False)
class LinkFit:
    """A link, and its derivative by the counts.

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
    # In units of the outer bin's score, so the fit does not depend on the scale of the scores.
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
    # Cells at zero do not follow the noise; the others share the correction of the sum.
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
    # The sum is never zero, because the predicted class has a positive margin and a slope of at
    # least zero, unless its offset is far below; then no class is preferred.
    total = chances.sum(axis=1, keepdims=True)
    uniform = np.full_like(chances, 1 / len(links))
    return np.divide(chances, total, out=uniform, where=total > 0)
