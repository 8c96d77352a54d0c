r"""The area under the ROC curve of a noisy table.

.. math:: \theta = \frac{\sum_{ij} p_i H_{ij} q_j}{\sum_i p_i \sum_j q_j},
   \qquad H_{ij} = [i > j] + \tfrac12 [i = j],

for rows :math:`p` of the class and :math:`q` of the rest by bin: the chance that a row of the class
has the higher score than one of the rest, where rows of the same bin count half.

With :math:`M` the symmetric matrix of :math:`x^T M x / 2 = \sum_{ij} x^+_i (H_{ij} - \theta) x^-_j`
and noise of covariance :math:`\Sigma`,

.. math::

   T(\theta) = \tfrac12 x^T M x - \tfrac12 \mathrm{tr}(M \Sigma), \quad
   V_n(\theta) = g^T \Sigma g - \tfrac12 \mathrm{tr}(M \Sigma M \Sigma), \quad g = M x,

each without bias: products of noisy counts have their noise's moments taken off. Sampling gives
:math:`\sum_i x_i g_i^2` (DeLong, DeLong, Clarke-Pearson 1988), its noise taken off likewise, which
is too small where a class has few rows or the classes hardly overlap. So it is raised by
:math:`1 + 4 / \min(N_+, N_-)`, as Student's quantile would, moved to the value tried in proportion
to :math:`\theta (1 - \theta)`, and is never below the one that Hanley and McNeil (1982) give in the
form of Newcombe (2006).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpadmm.evaluation.intervals import CountTable, Estimate, accepted_range, spread_shape
from dpadmm.plain import Array

__all__ = ["area_under_curve"]


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
