r"""Intervals for means over runs.

.. math:: \bar x \pm t_{(1+q)/2,\,m-1}\, s/\sqrt{m}

Runs are independent draws of the noise, so that Student's interval for their mean holds for about
normal figures; a difference between two sets of runs has Welch's. A verdict may look at its runs
twice, so that each look has q = 97.5%: that both hold is then at least 95% likely.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from dpadmm.plain import Array

#: How often an interval that is looked at once holds the mean it is about.
LEVEL: Final = 0.95
#: The same for one of the two looks that a verdict may take.
LOOK_LEVEL: Final = 1 - (1 - LEVEL) / 2


class Interval(NamedTuple):
    """A mean and where it lies."""

    mean: float
    low: float
    high: float

    def __format__(self, form: str) -> str:
        """``mean [low, high]``, each in the form given."""
        return f"{self.mean:{form}} [{self.low:{form}}, {self.high:{form}}]"


def mean_interval(values: ArrayLike, level: float = LOOK_LEVEL) -> Interval:
    """Student's interval for the mean of independent figures; a single one has no width known."""
    sample = np.asarray(values, dtype=np.float64).ravel()
    mean = float(sample.mean())
    if len(sample) < 2:
        return Interval(mean, -np.inf, np.inf)
    return _around(mean, float(sample.std(ddof=1)) / math.sqrt(len(sample)), len(sample) - 1, level)


def prediction_interval(values: ArrayLike, level: float = LOOK_LEVEL) -> Interval:
    r"""Where one more figure of the same kind lies, about normal ones given.

    .. math:: \bar x \pm t_{(1+q)/2,\,m-1}\, s\,\sqrt{1 + 1/m}
    """
    sample = np.asarray(values, dtype=np.float64).ravel()
    mean = float(sample.mean())
    if len(sample) < 2:
        return Interval(mean, -np.inf, np.inf)
    spread = float(sample.std(ddof=1)) * math.sqrt(1 + 1 / len(sample))
    return _around(mean, spread, len(sample) - 1, level)


def difference(first: ArrayLike, second: ArrayLike, level: float = LOOK_LEVEL) -> Interval:
    """Welch's interval for the mean of ``first`` minus that of ``second``, drawn independently.

    A ``second`` that is a number and not a sample is taken as exact.
    """
    if np.ndim(second) == 0:
        return mean_interval(np.asarray(first, dtype=np.float64) - np.asarray(second), level)
    return contrast((1.0, first), (-1.0, second), level=level)


def contrast(*terms: tuple[float, ArrayLike], level: float = LOOK_LEVEL) -> Interval:
    r"""Welch's interval for a weighted sum of the means of independent samples.

    .. math:: \sum_j a_j \bar x_j, \qquad s^2 = \sum_j a_j^2 s_j^2 / m_j, \qquad
              \nu = s^4 \Big/ \sum_j \frac{(a_j^2 s_j^2/m_j)^2}{m_j - 1}

    Parameters
    ----------
    terms
        A weight and a sample each.
    """
    samples = [(weight, np.asarray(sample, dtype=np.float64).ravel()) for weight, sample in terms]
    mean = float(sum(weight * sample.mean() for weight, sample in samples))
    sizes = np.array([len(sample) for _, sample in samples])
    if (sizes < 2).any():
        return Interval(mean, -np.inf, np.inf)
    parts = np.array([weight**2 * sample.var(ddof=1) / len(sample) for weight, sample in samples])
    if parts.sum() == 0:
        return Interval(mean, mean, mean)
    freedom = parts.sum() ** 2 / (parts**2 / (sizes - 1)).sum()
    return _around(mean, float(np.sqrt(parts.sum())), freedom, level)


def ranges(values: ArrayLike, group: int) -> Array:
    """The range of each group of so many runs, one after the other, over the last axis.

    A range grows with the number of runs: that of 60 is half as wide again as that of 10. Beside a
    paper's range over its own number of runs only groups of that size can stand. Runs that do not
    fill a group are left out; fewer than a group are one.
    """
    sample = np.asarray(values, dtype=np.float64)
    size = min(group, sample.shape[-1])
    count = sample.shape[-1] // size
    groups = sample[..., : count * size].reshape(*sample.shape[:-1], count, size)
    return np.asarray(np.ptp(groups, axis=-1))


def _around(mean: float, error: float, freedom: float, level: float) -> Interval:
    reach = error * float(stdtrit(freedom, (1 + level) / 2))
    return Interval(mean, mean - reach, mean + reach)


BEATS: Final = "beats"
BELOW: Final = "does not beat"
LEVEL_WITH: Final = "cannot be told from"


def standing(together: Interval, alone: float) -> str:
    """How a mean over runs stands to a number: above it, below it, or neither for sure.

    Parameters
    ----------
    together
        A mean with its interval; that of a single run has no width known, and its value decides.
    alone
        What it is held against.
    """
    if not (math.isfinite(together.low) and math.isfinite(together.high)):
        return BEATS if together.mean > alone else BELOW
    if together.low > alone:
        return BEATS
    return BELOW if together.high <= alone else LEVEL_WITH


def percent(share: float) -> str:
    """A share of rows in words."""
    return f"{100 * share:.1f}%"
