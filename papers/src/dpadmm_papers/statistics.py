"""Intervals for differences between samples, and ranges over groups of runs."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from dpadmm.experiments.measures import LOOK_LEVEL, Interval, interval_around, mean_interval
from dpadmm.plain import Array


def prediction_interval(values: ArrayLike, level: float = LOOK_LEVEL) -> Interval:
    r"""Where one more figure of the same kind lies, about normal ones given.

    .. math:: \bar x \pm t_{(1+q)/2,\,m-1}\, s\,\sqrt{1 + 1/m}
    """
    sample = np.asarray(values, dtype=np.float64).ravel()
    mean = float(sample.mean())
    if len(sample) < 2:
        return Interval(mean, -np.inf, np.inf)
    spread = float(sample.std(ddof=1)) * math.sqrt(1 + 1 / len(sample))
    return interval_around(mean, spread, len(sample) - 1, level)


def difference(first: ArrayLike, second: ArrayLike, level: float = LOOK_LEVEL) -> Interval:
    """Welch's interval for the mean of ``first`` minus that of ``second``, drawn independently.

    A ``second`` that is a number and not a sample is taken as exact.
    """
    if np.ndim(second) == 0:
        return mean_interval(np.asarray(first, dtype=np.float64) - np.asarray(second), level)
    return contrast((1.0, first), (-1.0, second), level=level)


def paired(first: Array, second: Array) -> Interval:
    """The interval of the mean of ``first - second``, draw by draw.

    A second look gives some cells more draws; those that both have are the first ones.
    """
    draws = min(np.shape(first)[-1], np.shape(second)[-1])
    return mean_interval(np.asarray(first)[..., :draws] - np.asarray(second)[..., :draws])


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
    return interval_around(mean, float(np.sqrt(parts.sum())), freedom, level)


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
