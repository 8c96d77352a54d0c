r"""Functions of the round: noise variance ratios g_t = s_t^2 / s_1^2, and penalties.

Every function returns one value per round, the first being 1 for the ratios. The privacy a
schedule costs depends on it through the sum of 1/g_t alone.
"""

from __future__ import annotations

import numpy as np

from dpadmm.plain import Array


def _check_rounds(rounds: int) -> None:
    if isinstance(rounds, bool) or not isinstance(rounds, int | np.integer) or rounds < 1:
        raise ValueError(f"rounds must be a positive integer; got {rounds!r}")


def _check_decay(decay: float, upper: float = 1.0) -> None:
    if not 0 < decay <= upper:
        raise ValueError(f"decay must be in (0, {upper:g}]; got {decay!r}")


def constant(rounds: int) -> Array:
    """g_t = 1."""
    _check_rounds(rounds)
    return np.ones(rounds)


def periodic(rounds: int, decay: float, period: int = 1) -> Array:
    """g_{k+1} = decay^floor(k / period) for k = 0, 1, ...: PR-ADMM's periodic schedule."""
    _check_rounds(rounds)
    _check_decay(decay)
    if period < 1:
        raise ValueError(f"period must be a positive integer; got {period!r}")
    return _all_positive(np.power(decay, np.floor(np.arange(rounds) / period)), decay)


def iteration(rounds: int, decay: float) -> Array:
    """g_{k+1} = 1 / (decay k (k + 1)) for k >= 1 and g_1 = 1: PR-ADMM's iteration schedule.

    The variance rises after the first round when decay < 1/2.
    """
    _check_rounds(rounds)
    _check_decay(decay, upper=np.inf)
    steps = np.arange(1, rounds)
    return np.concatenate([[1.0], 1.0 / (decay * steps * (steps + 1))])


def geometric(rounds: int, decay: float) -> Array:
    """g_t = decay^(t - 1): PDML's variances; the sum of 1/g_t grows exponentially in the rounds."""
    return periodic(rounds, decay, 1)


def penalty_growth(initial: float, growth: float, rounds: int) -> Array:
    """eta_t = initial growth^(t - 1), with growth >= 1."""
    _check_rounds(rounds)
    if not 0 < initial < np.inf:
        raise ValueError(f"initial must be a positive finite number; got {initial!r}")
    if not 1 <= growth < np.inf:
        raise ValueError(f"growth must be a finite number of at least 1; got {growth!r}")
    with np.errstate(over="ignore"):
        penalties: Array = initial * np.power(float(growth), np.arange(rounds))
    if not np.isfinite(penalties[-1]):
        raise ValueError(f"growth must keep the penalty finite for {rounds} rounds; got {growth!r}")
    return penalties


def _all_positive(ratios: Array, decay: float) -> Array:
    if ratios[-1] < np.finfo(np.float64).tiny:
        raise ValueError(
            f"decay must keep the noise above zero for {ratios.size} rounds; got {decay!r}"
        )
    return ratios


def inverse_variance_sum(ratios: Array) -> float:
    """sum_t 1 / g_t: the total squared mu in units of the first round's."""
    return float(np.sum(1.0 / np.asarray(ratios, dtype=np.float64)))


def largest_share(ratios: Array) -> float:
    """max_t (1/g_t) / sum_t 1/g_t: the part of the budget that a single round takes."""
    inverse = 1.0 / np.asarray(ratios, dtype=np.float64)
    return float(inverse.max() / inverse.sum())
