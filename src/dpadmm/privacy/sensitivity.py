r"""The constants of a party's subproblem that the theorems need, from public numbers only.

.. math:: m = \lambda/N + 2\eta V + \Phi,\qquad \Delta = 2Lc/(nm),\qquad \kappa = c c_1/(nm)

for rows of norm at most 1 and a convex loss with slope at most L and curvature at most c_1
(logistic: 1 and 1/4). Arguments are broadcast over parties.

**Sums.** If only the sum may be seen, summands are whole multiples of a public step.

.. math:: m_i = \mathrm{step}\cdot k_i,\quad k_i\in\mathbb Z,\qquad
          N\max_i|m_i| \le \mathrm{bound} < 2^{52}\,\mathrm{step},\quad \mathrm{step} = 2^{-k}

A double holds every multiple of a power of two up to :math:`2^{53}` of them, so each summand and
every partial sum. Sums of doubles are then sums of integers, exact to the last bit in any order. In
a message the integers travel modulo :math:`2^{64}`. Masks that cancel in the sum can be added to
them, and the sum has the same bits.

Rounding to the step moves each of d numbers by at most half a step. It moves two neighbouring
vectors apart by at most :math:`\mathrm{step}\sqrt d`, which is part of a summand's sensitivity. The
noise of a summand has a standard deviation of at least :math:`2^{24}` steps, so a sum of discrete
Gaussians is as good as a single one (:class:`~dpadmm.privacy.events.SharedGaussian`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from dpadmm.errors import ExchangeError, ParameterError
from dpadmm.plain import Array, Words


def reals(value: ArrayLike) -> Array:
    """Numbers, or an array of them, as an array."""
    return np.asarray(value, dtype=np.float64)


def check_range(name: str, values: Array, *, zero: bool = False) -> None:
    """Refuse values that are not finite and positive; ``zero`` allows zero."""
    if np.any(~np.isfinite(values)) or np.any(values < 0) or (not zero and np.any(values == 0)):
        kind = "non-negative" if zero else "positive"
        raise ValueError(f"{name} must be {kind} and finite; got {values.tolist()!r}")


def gradient_sensitivity(rows: ArrayLike, *, weight: ArrayLike = 1.0, slope: float = 1.0) -> Array:
    """Return 2 L c / n: how far replacing one row moves the gradient of the loss."""
    value: Array = 2 * slope * reals(weight) / reals(rows)
    check_range("gradient sensitivity", value)
    return value


def argmin_sensitivity(
    rows: ArrayLike,
    convexity: ArrayLike,
    *,
    weight: ArrayLike = 1.0,
    slope: float = 1.0,
    tolerance: ArrayLike = 0.0,
) -> Array:
    """Return (2 L c / n + 2 tolerance) / m: how far one row moves an inexact minimiser."""
    gradient = gradient_sensitivity(rows, weight=weight, slope=slope)
    value: Array = (gradient + 2 * reals(tolerance)) / reals(convexity)
    return value


def jacobian_ratio(
    rows: ArrayLike, convexity: ArrayLike, *, weight: ArrayLike = 1.0, curvature: float = 0.25
) -> Array:
    """Return kappa = c c_1 / (n m): how much one row can add to the Hessian, relatively."""
    value: Array = reals(weight) * curvature / (reals(rows) * reals(convexity))
    check_range("kappa", value, zero=True)
    return value


def jacobian_epsilon(kappa: ArrayLike) -> Array:
    """Return ln(1 + kappa), the Jacobian's cost in a pure release, rounded up.

    Kappa itself may be three units of 1.1e-16 too small, the logarithm two.
    """
    value: Array = (1 + 1e-15) * np.log1p(reals(kappa))
    return value


# Beyond the largest radius the supremum replaces the factor.
_LARGEST_RADIUS: Final = 256.0
_KNOTS: Final = 1024
_ANGLES: Final = 1024
_DIRECTIONS: Final = 96


@cache
def _norm_factor_table() -> tuple[Array, Array]:
    """Return radii and upper bounds of the factor there; see :func:`public_norm_factor`."""
    radii = np.expm1(np.linspace(0, math.log1p(_LARGEST_RADIUS), _KNOTS))
    step = 2 * math.pi / _ANGLES
    angles = step * np.arange(_ANGLES)
    # The curve is symmetric about the first axis, so a quarter of the directions is enough.
    half_gap = math.pi / 4 / (_DIRECTIONS - 1)
    directions = 2 * half_gap * np.arange(_DIRECTIONS)
    cosines = np.cos(angles - directions[:, None])
    bounds = np.empty(_KNOTS)
    for index, radius in enumerate(radii):
        heights = cosines * expit(-radius * np.cos(angles))
        width = float((heights.max(axis=1) - heights.min(axis=1)).max())
        # An extreme of a smooth function lies within step/2 of a grid point, and the second
        # derivative of the curve is at most this.
        bend = 1 + 0.75 * radius + radius**2 / (6 * math.sqrt(3))
        bounds[index] = (width + step**2 / 4 * bend) / math.cos(half_gap)
    return radii, np.minimum(np.maximum.accumulate(bounds), 2.0)


def public_norm_factor(radius: ArrayLike) -> Array:
    r"""Return s(r) such that one row moves the minimiser by at most s(r) c / (n m), logistic loss.

    .. math:: s(r) = \max_{\phi,\phi'} \|g(\phi) - g(\phi')\|,\quad
              g(\phi) = \frac{(\cos\phi, \sin\phi)}{1 + e^{r\cos\phi}}

    where ``radius`` is a public bound on the minimiser's norm, ||lin|| / m + c L / m. The maximum
    is the diameter of a plane curve, and so its largest width over all directions. A table, made
    once, has upper bounds: grids of angles and of directions with their second-order errors added.
    It is read at the next larger radius, so the factor is never too small, at most 0.5% too large,
    and between 1 and 2. The factor replaces the 2 in :func:`argmin_sensitivity` for output
    perturbation; 2 tolerance / m must still be added. It is not valid for objective perturbation,
    whose minimiser has no public bound.
    """
    values = reals(radius)
    if np.any(~(values >= 0)):
        raise ValueError(f"radius must be non-negative; got {radius!r}")
    radii, bounds = _norm_factor_table()
    index = np.searchsorted(radii, values)
    factors: Array = np.append(bounds, 2.0)[index]
    return factors


#: The smallest standard deviation of a summand's noise, in steps.
LEAST_STEPS: Final = 2.0**24
#: Noise exceeds so many standard deviations with a probability of exp(-1800).
NOISE_REACH: Final = 60.0
# The cost of discrete instead of rounded noise, except with a probability of 2 exp(-v).
_LOSS: Final = 1e-11
_CHANCE: Final = 100.0
# Sums stay below so many steps.
_MOST_STEPS: Final = 2.0**52


def finest_step(bound: float) -> float:
    """The smallest power of two with sums up to ``bound`` below 2^52 multiples of it."""
    return math.ldexp(1.0, math.frexp(bound)[1] - 52)


def least_steps(numbers: float) -> float:
    r"""The smallest standard deviation of a share, in steps, for so many numbers in all rounds.

    .. math:: s \ge 2^{24},\qquad \frac{2\sqrt{Mv} + 2v}{24 s^2} \le 10^{-11},\quad v = 100

    :class:`~dpadmm.privacy.events.SharedGaussian` needs this for M numbers; up to :math:`10^7`
    numbers the first condition decides.
    """
    spread = 2 * math.sqrt(_CHANCE * numbers) + 2 * _CHANCE
    return max(LEAST_STEPS, math.sqrt(spread / (24 * _LOSS)))


@dataclass(frozen=True)
class Summation:
    """How the parties' summands become one sum: public, and the same at every party.

    Attributes
    ----------
    step
        A power of two; every summand is a multiple of it.
    parties, colluders
        N, and tau: how many parties may collude with whoever sees the sum.
    bound
        No entry of a sum of honest summands is larger.
    """

    step: float
    parties: int
    colluders: int
    bound: float

    def __post_init__(self) -> None:
        if math.frexp(self.step)[0] != 0.5:
            raise ParameterError(f"step must be a power of two; got {self.step!r}.")
        if not 0 < self.bound < _MOST_STEPS * self.step:
            raise ParameterError(
                f"bound must be positive and below 2^52 steps of {self.step:g}; got {self.bound!r}."
            )

    def to_words(self, values: Array) -> Words:
        """Each value as its number of steps, in two's complement modulo 2^64.

        Noise carries an honest summand beyond the bound with a probability of exp(-1800). It is
        sent all the same: a refusal would reveal it, a sum beyond the bound reveals nothing more.
        """
        steps = values / self.step
        if not (steps == np.rint(steps)).all():
            raise ParameterError(f"a summand must hold multiples of {self.step:g} only.")
        return steps.astype(np.int64).view(np.uint64)

    def from_words(self, words: Words) -> Array:
        """Return the sum that words modulo 2^64 stand for; refuse an impossible one."""
        values: Array = words.view(np.int64).astype(np.float64) * self.step
        largest = float(np.abs(values).max(initial=0.0))
        if not largest <= self.bound:
            raise ExchangeError(
                f"a sum must be at most {self.bound:g} in every entry; got {largest:g}. Somebody "
                "sent a wrong summand, or not everybody saw the same; no further round is charged."
            )
        return values
