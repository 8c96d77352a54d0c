r"""Figures from noisy counts, with intervals for their true values in the population.

A figure :math:`\theta` is the root of an estimating function :math:`T(\theta)` of the counts whose
mean is zero at the true value, under sampling and noise alike. Its interval holds every
:math:`\theta` that the counts do not contradict,

.. math:: T(\theta)^2 \le z^2 \, (V_s(\theta) + V_n(\theta)),

with the variance that sampling gives :math:`T`, as far as possible at the :math:`\theta` tried
(Wilson 1927; Fieller 1954 where a denominator is noisy too), and that of the noise, which is known.
Without noise the interval of a share is Wilson's, with half a row added to its variance: counts
are whole, and near 0 and 1 his covers 85% of the time; this one 93.8% at least from 20 rows on.

Of a table only the sum of all cells, :math:`n`, is public. Counts :math:`x` are moved to it,
:math:`x - (\sum x - n) / m` for :math:`m` cells, which leaves noise of covariance
:math:`\sigma^2 (I - 1 1^T / m)`. No other sum is known, and none is assumed.

**Ranking.** The area under the ROC curve of a noisy table.

.. math:: \theta = \frac{\sum_{ij} p_i H_{ij} q_j}{\sum_i p_i \sum_j q_j},
   \qquad H_{ij} = [i > j] + \tfrac12 [i = j],

for rows :math:`p` of the class and :math:`q` of the rest by bin: the chance that a row of the class
has the higher score than one of the rest, where rows of the same bin count half.

With :math:`M` the symmetric matrix of :math:`x^T M x / 2 = \sum_{ij} x^+_i (H_{ij} - \theta) x^-_j`
and noise of covariance :math:`\Sigma`,

.. math::

   T(\theta) = \tfrac12 x^T M x - \tfrac12 \mathrm{tr}(M \Sigma), \quad
   V_n(\theta) = g^T \Sigma g - \tfrac12 \mathrm{tr}(M \Sigma M \Sigma), \quad g = M x,

each unbiased: the moments of the noise are subtracted from products of noisy counts. Sampling gives
:math:`\sum_i x_i g_i^2` (DeLong, DeLong, Clarke-Pearson 1988), its noise taken off likewise, which
is too small where a class has few rows or the classes hardly overlap. So it is raised by
:math:`1 + 4 / \min(N_+, N_-)`, as Student's quantile would, moved to the value tried in proportion
to :math:`\theta (1 - \theta)`, and is never below the one that Hanley and McNeil (1982) give in the
form of Newcombe (2006).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from dpadmm.errors import ParameterError
from dpadmm.plain import Array

#: A figure is given if its denominator is this many standard deviations of its noise.
CLEAR_OF_NOISE: Final = 4.0

_HIDDEN: Final = "too few rows to be told from the noise"
_NO_ROWS: Final = "there are no such rows"
# Variance added because counts are whole numbers.
_DISCRETE: Final = 0.5
_BESIDE: Final = 1e-9
_TRIALS: Final = 200

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Estimate:
    """A figure between 0 and 1, with its interval.

    Attributes
    ----------
    name
        What it is called.
    value
        The estimate; None where it is not determined.
    low, high
        The interval; from 0 to 1 where the figure is not determined.
    reason
        Why it is not determined.
    """

    name: str
    value: float | None
    low: float = 0.0
    high: float = 1.0
    reason: str | None = None

    @property
    def share(self) -> float:
        """The value as it is shown, clipped to a share between 0 and 1."""
        assert self.value is not None
        return min(max(self.value, 0.0), 1.0)

    @property
    def shown(self) -> str:
        """The value in words."""
        return f"not determined ({self.reason})" if self.value is None else f"{self.share:.3f}"

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        kept: dict[str, Any] = {"estimate": self.value, "low": self.low, "high": self.high}
        return kept if self.reason is None else kept | {"reason": self.reason}


def normal_quantile(confidence: float) -> float:
    """The z of a two-sided interval."""
    usable = isinstance(confidence, int | float) and 0 < confidence < 1
    if not usable:
        raise ParameterError(
            f"confidence must be a number between 0 and 1; got {confidence!r}: give 0.95, say."
        )
    return float(ndtri((1 + confidence) / 2))


@dataclass(frozen=True, eq=False)
class CountTable:
    """Noisy counts of rows, each row in one cell, moved to their public sum.

    Attributes
    ----------
    counts
        Two-dimensional; row: the true class.
    noise_variance
        Of each count before it was moved.
    rows
        The public sum.
    """

    counts: Array
    noise_variance: float
    rows: int

    @classmethod
    def of_released(cls, counts: Array, noise_variance: float, rows: int) -> CountTable:
        """Move released counts to their public sum."""
        return cls(counts - (counts.sum() - rows) / counts.size, float(noise_variance), rows)

    def noise_of(self, weights: Array) -> float:
        """Variance that the noise gives to a weighted sum of the counts."""
        spread = float((weights**2).sum() - weights.sum() ** 2 / weights.size)
        return self.noise_variance * max(spread, 0.0)

    def clear_sum(self, cells: Mask) -> float | None:
        """The sum over cells; None if noise hides it, or if there are no rows."""
        total = float(self.counts[cells].sum())
        least = CLEAR_OF_NOISE * math.sqrt(self.noise_of(cells.astype(np.float64)))
        return total if total > max(least, 0.0) else None


def accepted_range(excess: Callable[[float], float], estimate: float, name: str) -> Estimate:
    """The figure with the interval on which `excess` is not above zero.

    Parameters
    ----------
    excess
        Of a value tried, ``T^2 - z^2 V``; at most zero at an estimate between 0 and 1.
    estimate
        Where ``T`` is zero; noise may have moved it out of the range of the figure.
    name
        Of the figure.
    """
    value = min(max(estimate, 0.0), 1.0)
    # At 0 and 1 distance and variance may both vanish. If noise moved the estimate out of range,
    # values inside may be accepted although the end is not.
    tried = np.linspace(value, 0.0 if value > 0.5 else 1.0, _TRIALS)
    tried[0] = min(max(value, _BESIDE), 1.0 - _BESIDE)
    inside = next((float(start) for start in tried if excess(float(start)) <= 0), None)
    if inside is None:
        return Estimate(name, value, value, value)
    low = 0.0 if excess(0.0) <= 0 else _root(excess, 0.0, inside)
    high = 1.0 if excess(1.0) <= 0 else _root(excess, inside, 1.0)
    return _told(name, value, low, high)


def _told(name: str, value: float, low: float, high: float) -> Estimate:
    """The estimate with its interval; an estimate that may be anything is not determined."""
    low, high = max(min(low, value), 0.0), min(max(high, value), 1.0)
    if low <= 0.0 and high >= 1.0:
        return Estimate(name, None, reason="the noise hides it, or there are too few rows")
    return Estimate(name, value, low, high)


def _root(function: Callable[[float], float], start: float, end: float) -> float:
    # Imported here so that a node that does not evaluate stays smaller.
    from scipy.optimize import brentq

    return float(brentq(function, start, end, xtol=1e-12))


def spread_shape(value: float, few: float) -> float:
    """How the variance of a mean depends on the mean, up to a factor: like that of a share."""
    return value * (1 - value) + 0.5 / few


def share_of(table: CountTable, name: str, part: Mask, rest: Mask, z: float) -> Estimate:
    r"""The share of some cells in these and others, with its interval.

    .. math::

       T(\theta) = A - \theta D, \quad V_s(\theta) = D \theta (1 - \theta) + \tfrac12,
       \quad V_n(\theta) = \sigma^2 (|c|^2 - (\sum c)^2 / m),

    where :math:`A` counts the part, :math:`D` part and rest, and :math:`c` is :math:`1 - \theta` on
    the part and :math:`-\theta` on the rest. The bounds solve a quadratic equation.

    Parameters
    ----------
    table
        The counts.
    name
        Of the figure.
    part, rest
        The cells of the numerator, and the further cells of the denominator.
    z
        Half the interval's width in standard deviations.
    """
    whole = table.clear_sum(part | rest)
    if whole is None:
        return Estimate(name, None, reason=_HIDDEN if table.noise_variance else _NO_ROWS)
    counted = float(table.counts[part].sum())
    return _solved(table, name, (counted, int(part.sum())), (whole, int((part | rest).sum())), z)


def cell_shares(table: CountTable, z: float) -> tuple[tuple[Estimate, ...], ...]:
    """Every cell of a table of true by predicted class, as a share of all rows."""
    whole, size = float(table.rows), table.counts.size
    return tuple(
        tuple(
            _solved(table, cell_name(true, predicted), (float(count), 1), (whole, size), z)
            if table.rows
            else Estimate(cell_name(true, predicted), None, reason=_NO_ROWS)
            for predicted, count in enumerate(line)
        )
        for true, line in enumerate(table.counts)
    )


def cell_name(true: int, predicted: int) -> str:
    """The name of a cell's share."""
    return f"class {true} predicted as {predicted}"


def _solved(
    table: CountTable, name: str, part: tuple[float, int], whole: tuple[float, int], z: float
) -> Estimate:
    """The share from counts and numbers of cells, of the part and of the whole."""
    (counted, above), (total, cells), size = part, whole, table.counts.size
    noise = z**2 * table.noise_variance
    # Coefficients of T^2 - z^2 V.
    level = counted**2 - noise * (above - above**2 / size) - z**2 * _DISCRETE
    tilt = -2 * counted * total - z**2 * total + 2 * noise * above * (1 - cells / size)
    bend = total**2 + z**2 * total - noise * cells * (1 - cells / size)
    if bend <= 0:
        # Only if confidence asks for more than the threshold that the whole has to clear.
        return Estimate(name, None, reason=_HIDDEN)
    value = min(max(counted / total, 0.0), 1.0)
    root = math.sqrt(max(tilt**2 - 4 * bend * level, 0.0))
    return _told(name, value, (-tilt - root) / (2 * bend), (-tilt + root) / (2 * bend))


@dataclass(frozen=True)
class _Moments:
    """The estimating function at one value, and the variances of noise and sampling."""

    distance: float
    noise: float
    sampling: float


def _moments(table: CountTable, value: float) -> _Moments:
    bins = table.counts.shape[1]
    order, cells = np.arange(bins), 2 * bins
    beats = (order[:, None] > order) + 0.5 * (order[:, None] == order) - value
    others, members = table.counts
    counts = table.counts.ravel()

    def of_pairs(right: Array, left: Array) -> Array:
        """Product with the symmetric matrix whose one block is `beats`."""
        return np.concatenate([beats.T @ left, beats @ right])

    gradient, sums = of_pairs(others, members), of_pairs(np.ones(bins), np.ones(bins))
    squares = np.concatenate([(beats**2).sum(axis=0), (beats**2).sum(axis=1)])
    total, variance = float(sums.sum()), table.noise_variance
    # The traces, for the covariance variance * (identity - 1 / cells).
    pair_trace = -variance * total / cells
    noise_alone = (
        variance**2 * float(squares.sum() - 2 * (sums @ sums) / cells + (total / cells) ** 2) / 2
    )
    noise = variance * float(gradient @ gradient - gradient.sum() ** 2 / cells) - noise_alone
    own_noise = variance * (squares - sums**2 / cells)
    shared_noise = -variance * sums / cells
    sampling = counts @ (gradient**2 - own_noise) - 2 * gradient @ shared_noise
    return _Moments(
        distance=float(counts @ gradient - pair_trace) / 2,
        noise=max(noise, noise_alone),
        sampling=max(float(sampling), 0.0),
    )


def area_under_curve(table: CountTable, z: float, name: str = "AUC") -> Estimate:
    """The area with its interval.

    Parameters
    ----------
    table
        Two rows: the rest, the class; columns are bins of the score, in order.
    z
        Half the interval's width in standard deviations.
    name
        Of the figure.
    """
    cells = np.zeros(table.counts.shape, dtype=bool)
    cells[1] = True
    members, others = table.clear_sum(cells), table.clear_sum(~cells)
    if members is None or others is None:
        noise = table.noise_variance > 0
        reason = "too few rows of a class to be told from the noise" if noise else "only one class"
        return Estimate(name, None, reason=reason)
    ends = [_moments(table, value) for value in (0.0, 0.5, 1.0)]
    slope = ends[2].distance - ends[0].distance
    estimate = -ends[0].distance / slope
    noise_at = _parabola([end.noise for end in ends])
    few = min(members, others)
    at_estimate = _moments(table, min(max(estimate, 0.0), 1.0)).sampling * (1 + 4 / few)
    shape_there = spread_shape(min(max(estimate, 0.0), 1.0), few)

    def excess(value: float) -> float:
        sampling = max(
            at_estimate * spread_shape(value, few) / shape_there,
            _hanley_mcneil(value, members, others),
        )
        distance = ends[0].distance + slope * value
        return distance**2 - z**2 * (sampling + max(float(noise_at @ _powers(value)), 0.0))

    return accepted_range(excess, estimate, name)


def _powers(value: float) -> Array:
    return np.array([1.0, value, value**2])


def _parabola(heights: list[float]) -> Array:
    """Coefficients of the parabola with these heights at 0, 1/2 and 1."""
    first, middle, last = heights
    bend = 2 * (first + last - 2 * middle)
    return np.array([first, last - first - bend, bend])


def _hanley_mcneil(value: float, members: float, others: float) -> float:
    """Variance of the number of ordered pairs, for scores that are exponentially distributed."""
    more = (members + others) / 2 - 1
    each = 1 + max(more, 0.0) * ((1 - value) / (2 - value) + value / (1 + value))
    return members * others * value * (1 - value) * each
