r"""The Gaussian mechanism's curve and its two inverses; costs that are rounded up.

.. math:: \delta_\mu(\epsilon) = \Phi(\mu/2-\epsilon/\mu) - e^\epsilon\,\Phi(-\mu/2-\epsilon/\mu)

With m the Mills ratio Phi(-x)/phi(x) and l = epsilon/mu - mu/2 this is phi(l) (m(l) - m(l + mu)),
which is computed without cancellation, in logarithms, and rounded towards a larger cost.
Arguments are broadcast; scalars give a scalar.

**Rounding.** Sums and products of costs are exact fractions, rounded once and never towards a
smaller cost. A double is a fraction, so that sums and products of doubles are known exactly; what a
double can hold stays as it is. Where roots and logarithms come in, margins take the place of that:
each stands beside the formula that it belongs to.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import (
    erfcx,
    log_ndtr,
)

from dpadmm.plain import Array


def round_up(value: Fraction) -> float:
    """The least double that is no less; infinite beyond the largest."""
    try:
        nearest = float(value)
    except OverflowError:
        return math.inf if value > 0 else -sys.float_info.max
    return nearest if nearest >= value else math.nextafter(nearest, math.inf)


def round_down(value: Fraction) -> float:
    """The largest double that is no more."""
    return -round_up(-value)


def sum_up(terms: Iterable[float]) -> float:
    """The sum of terms that are not negative, rounded up once; infinite if one of them is."""
    every = list(terms)
    if math.inf in every:
        return math.inf
    return round_up(sum(map(Fraction, every), Fraction(0)))


def exp_up(logarithm: float) -> float:
    """Return e to this power, rounded up: positive also where it is too small for a double.

    The library's is within one unit of the last place, or of the smallest double.
    """
    return math.nextafter(math.exp(logarithm), math.inf) if logarithm else 1.0


# Relative rounding error of delta_mu is below 1e-12 where the curve is not steep; a shift of the
# logarithm covers it.
_LOG_DELTA_ERROR: Final = 1e-11
# What ln(delta) moves by for a relative change of mu or epsilon is below their change times
# :func:`steepness`. Working out lower and its square errs by 3 units of 1.1e-16 of either, and a mu
# that was added up from events by up to 9.
_STEEP_ERROR: Final = 1.5e-15
_LOG_ROOT_TWO_PI: Final = 0.5 * math.log(2 * math.pi)
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)


def _real(value: ArrayLike) -> Array:
    return np.asarray(value, dtype=np.float64)


def _mills(x: Array) -> Array:
    """Phi(-x) / phi(x)."""
    ratio: Array = math.sqrt(math.pi / 2) * erfcx(x / math.sqrt(2))
    return ratio


def _mills_drop(lower: Array, mu: Array) -> Array:
    """m(lower) - m(lower + mu) for the Mills ratio m, without cancellation."""
    drop = np.empty_like(lower)
    far = lower > 100  # 1 - x m(x) <= 1/(1 + x^2): an upper bound, and tight out there
    drop[far] = np.arctan(mu[far] / (1 + lower[far] * (lower[far] + mu[far])))
    narrow = ~far & (mu <= 0.5)
    points = lower[narrow, None] + mu[narrow, None] * (0.5 + 0.5 * _NODES)
    drop[narrow] = 0.5 * mu[narrow] * ((1 - points * _mills(points)) @ _WEIGHTS)
    wide = ~far & ~narrow
    drop[wide] = _mills(lower[wide]) - _mills(lower[wide] + mu[wide])
    return drop


def steepness(lower: ArrayLike, mu: ArrayLike) -> Array:
    """Return a bound on d ln(delta) / d ln(mu) where epsilon / mu - mu / 2 is ``lower``."""
    reach = 1 + np.abs(_real(lower))
    bound: Array = reach * (reach + _real(mu))
    return bound


def gaussian_log_delta(epsilon: ArrayLike, mu: ArrayLike) -> Array:
    r"""Return ln :math:`\delta_\mu(\epsilon)`, rounded up; the arguments are broadcast.

    Also where mu is up to 1e-15 less than what it stands for, by the rounding of its own sum.
    """
    epsilon_, mu_ = np.broadcast_arrays(_real(epsilon), _real(mu))
    shape, epsilon_, mu_ = epsilon_.shape, epsilon_.ravel(), mu_.ravel()
    if np.any(~(epsilon_ >= 0)) or np.any(~(mu_ >= 0)):
        raise ValueError(f"epsilon and mu must be non-negative; got {epsilon!r} and {mu!r}")
    log_delta = np.full(mu_.shape, -np.inf)
    log_delta[np.isinf(mu_)] = 0.0
    with np.errstate(over="ignore", divide="ignore"):
        lower = np.where(mu_ > 0, epsilon_ / np.where(mu_ > 0, mu_, 1.0), np.inf) - mu_ / 2
        inner = np.isfinite(lower) & (lower > -3) & (lower < 1e150)
        outer = np.isfinite(lower) & (lower <= -3)
        near, width = lower[inner], mu_[inner]
        log_delta[inner] = np.log(_mills_drop(near, width)) - near * near / 2 - _LOG_ROOT_TWO_PI
        # There delta is close to 1: take the complement.
        near, width = lower[outer], mu_[outer]
        log_density = -near * near / 2 - _LOG_ROOT_TWO_PI
        rest = np.exp(log_ndtr(near)) + np.exp(log_density) * _mills(near + width)
        log_delta[outer] = np.log1p(-rest)
        rounding = np.maximum(_LOG_DELTA_ERROR, _STEEP_ERROR * steepness(lower, mu_))
    log_delta[inner | outer] += rounding[inner | outer]
    return np.minimum(log_delta, 0.0).reshape(shape)


def gaussian_delta(epsilon: ArrayLike, mu: ArrayLike) -> Array:
    r"""Return :math:`\delta_\mu(\epsilon)`, rounded up: positive whenever mu is."""
    delta = np.exp(gaussian_log_delta(epsilon, mu))
    # Doubles below the normal ones have fewer digits than the logarithm's margin counts on.
    few = (_real(mu) > 0) & (delta < sys.float_info.min)
    rounded: Array = np.where(few, np.nextafter(delta, 1.0), delta)[()]
    return rounded


def _check_delta(delta: Array) -> None:
    if np.any(~((delta > 0) & (delta < 1))):
        raise ValueError(f"delta must be in (0, 1) for a Gaussian release; got {delta!r}")


def gaussian_epsilon(mu: ArrayLike, delta: ArrayLike) -> Array:
    r"""Solve :math:`\delta_\mu(\epsilon) \le \delta` for the smallest epsilon, rounded up.

    ln delta is concave in epsilon, so Newton's method started above the root stays above it. Beyond
    mu = 1e6, where doubles tell epsilons apart no better, the start is what is returned.
    """
    mu_, delta_ = np.broadcast_arrays(_real(mu), _real(delta))
    shape, mu_, delta_ = mu_.shape, mu_.ravel(), delta_.ravel()
    _check_delta(delta_)
    target = np.log(delta_)
    epsilon = np.where(np.isinf(mu_), np.inf, 0.0)
    active = np.flatnonzero(np.isfinite(mu_) & (gaussian_log_delta(0.0, mu_) > target))
    epsilon[active] = zcdp_epsilon(mu_[active] ** 2 / 2, delta_[active])
    huge = mu_[active] >= 1e6
    epsilon[active[huge]] *= 1 + 1e-14
    active = active[~huge]
    fallen = np.zeros(active.shape, dtype=bool)
    for attempt in range(200):
        if not active.size:
            found: Array = epsilon.reshape(shape)[()]
            return found
        root, width = epsilon[active], mu_[active]
        gap = target[active] - gaussian_log_delta(root, width)
        lower = root / width - width / 2
        log_slope = np.log(_mills(lower + width)) - lower**2 / 2 - _LOG_ROOT_TWO_PI
        # Rounding alone can push an iterate below the root: go up, a little more each time.
        gap = np.where(gap < 0, (gap - 1e-13) * 2.0**attempt, gap)
        step = gap * np.exp(target[active] - gap.clip(min=0) - log_slope)
        done = (gap >= 0) & (fallen | (step <= 1e-13 * root))
        epsilon[active] = np.where(done, root, np.maximum(root - step, 0.0))
        active, fallen = active[~done], (fallen | (gap < 0))[~done]
    raise ArithmeticError("the search for epsilon did not end; this is a defect of dpadmm")


def gaussian_mu(epsilon: ArrayLike, delta: ArrayLike) -> Array:
    r"""Solve :math:`\delta_\mu(\epsilon) \le \delta` for the largest mu, rounded down."""
    epsilon_, delta_ = np.broadcast_arrays(_real(epsilon), _real(delta))
    shape, epsilon_, delta_ = epsilon_.shape, epsilon_.ravel(), delta_.ravel()
    _check_delta(delta_)
    if np.any(~(np.isfinite(epsilon_) & (epsilon_ >= 0))):
        raise ValueError(f"epsilon must be a non-negative finite number; got {epsilon!r}")
    if np.any(delta_ < sys.float_info.min):
        # Below it doubles lose their digits, and a search by them could end on the wrong side.
        raise ValueError(
            f"delta must be at least {sys.float_info.min:.3g} for a Gaussian release to be "
            f"calibrated; got {delta!r}"
        )
    target = np.log(delta_)
    # Both starting points are feasible: the zCDP bound, and delta_mu(0) <= mu / sqrt(2 pi).
    zcdp = math.sqrt(2) * epsilon_ / (np.sqrt(epsilon_ - target) + np.sqrt(-target))
    feasible = np.maximum(zcdp, delta_ * math.sqrt(2 * math.pi)) * (1 - 1e-9)
    infeasible = np.full(feasible.shape, np.inf)
    candidate = feasible.copy()
    for _ in range(200):
        log_delta = gaussian_log_delta(epsilon_, candidate)
        fits = log_delta <= target
        feasible = np.where(fits, candidate, feasible)
        infeasible = np.where(fits, infeasible, candidate)
        # d delta / d mu = phi(epsilon/mu - mu/2); Newton in ln mu.
        lower = epsilon_ / candidate - candidate / 2
        slope = candidate * np.exp(-(lower**2) / 2 - _LOG_ROOT_TWO_PI - log_delta)
        newton = candidate * np.exp(np.clip((target - log_delta) / slope, -1.0, 1.0))
        newton = np.where(fits, np.maximum(newton, candidate * (1 + 1e-13)), newton)
        middle = np.sqrt(feasible) * np.sqrt(np.minimum(infeasible, 4 * feasible))
        inside = (newton > feasible) & (newton < infeasible)
        candidate = np.where(inside, newton, middle)
        if np.all((infeasible <= feasible * (1 + 1e-10)) | (candidate <= feasible * (1 + 1e-12))):
            break
    result: Array = feasible.reshape(shape)[()]
    return result


def zcdp_epsilon(rho: ArrayLike, delta: ArrayLike) -> Array:
    """Return rho + 2 sqrt(rho ln(1/delta)): the zCDP conversion, looser than the exact one."""
    rho_ = _real(rho)
    epsilon: Array = rho_ + 2 * np.sqrt(-rho_ * np.log(_real(delta)))
    return epsilon
