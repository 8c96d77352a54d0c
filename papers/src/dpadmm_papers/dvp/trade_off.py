r"""The trade-off as DVP models it: a fitted loss, a utility of privacy, and the best alpha.

.. math::
    L_{acc}(\alpha) = c_4 e^{-c_5\alpha} + c_6,\qquad
    U_{priv}(\alpha) = \omega_1 \ln\frac{\omega_2}{\omega_3\alpha + \omega_4\alpha^2},\qquad
    \max_\alpha\; U_{priv}(\alpha) - L_{acc}(\alpha)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from dpadmm.experiments.statistics import Interval
from dpadmm.plain import Array

__all__ = ["Fitted", "LossCurve", "best_alpha", "fit", "fit_resampled", "utility"]

# c5 is searched between these. Given c5, the other two come from linear least squares.
_RATES: Final = np.geomspace(0.1, 1e4, 2001)


@dataclass(frozen=True)
class LossCurve:
    """c4, c5 and c6."""

    height: float
    rate: float
    floor: float

    def __call__(self, alpha: ArrayLike) -> Array:
        """The loss at alpha."""
        return self.height * np.exp(-self.rate * np.asarray(alpha)) + self.floor


def fit(alphas: Sequence[float], losses: ArrayLike) -> LossCurve:
    """The least squares fit to one mean loss per alpha, with c4 and c6 not below 0."""
    height, rate, floor = _fit_rows(np.asarray(alphas), np.atleast_2d(np.asarray(losses)))
    return LossCurve(float(height[0]), float(rate[0]), float(floor[0]))


@dataclass(frozen=True)
class Fitted:
    """A fit to means over runs, and fits to runs drawn again with replacement.

    Attributes
    ----------
    curve
        The fit.
    resampled
        The others; their percentiles are intervals for the constants.
    furthest
        Its largest relative distance from a mean.
    """

    curve: LossCurve
    resampled: list[LossCurve]
    furthest: float

    def interval(self, constant: str) -> Interval:
        """A constant of the fit with its 95% interval."""
        low, high = np.percentile([getattr(each, constant) for each in self.resampled], [2.5, 97.5])
        return Interval(getattr(self.curve, constant), float(low), float(high))

    def holds(self, height: float, rate: float) -> bool:
        """Whether the intervals hold these c4 and c5."""
        pairs = ((self.interval("height"), height), (self.interval("rate"), rate))
        return all(found.low <= value <= found.high for found, value in pairs)

    def agrees(self, other: Fitted) -> bool:
        """Whether the intervals of both constants overlap with those of another fit."""
        pairs = [(self.interval(each), other.interval(each)) for each in ("height", "rate")]
        return all(one.low <= two.high and two.low <= one.high for one, two in pairs)

    def chosen(self, weights: Sequence[float], ends: tuple[float, float]) -> tuple[Interval, float]:
        """The alpha that the design problem chooses, and how often it is inside the range."""
        own, _ = best_alpha(self.curve, weights, *ends)
        found = [best_alpha(each, weights, *ends) for each in self.resampled]
        low, high = np.percentile([alpha for alpha, _ in found], [2.5, 97.5])
        return Interval(own, float(low), float(high)), float(np.mean([inner for _, inner in found]))

    def words(self) -> str:
        """The two constants that the paper prints."""
        return f"c4 = {self.interval('height'):.3g}, c5 = {self.interval('rate'):.3g}"


def fit_resampled(samples: Mapping[float, Array], *, draws: int, seed: int) -> Fitted:
    """Fit the means of samples by alpha, and so many resamples of them."""
    alphas = sorted(samples)
    generator = np.random.default_rng(seed)
    means = [
        samples[alpha][
            generator.integers(len(samples[alpha]), size=(draws, len(samples[alpha])))
        ].mean(axis=1)
        for alpha in alphas
    ]
    found = zip(*_fit_rows(np.array(alphas), np.stack(means, axis=1)), strict=True)
    own = np.array([samples[alpha].mean() for alpha in alphas])
    curve = fit(alphas, own)
    return Fitted(
        curve,
        [LossCurve(*map(float, constants)) for constants in found],
        float(np.abs(curve(alphas) / own - 1).max()),
    )


def _fit_rows(alphas: Array, losses: Array) -> tuple[Array, Array, Array]:
    """c4, c5, c6 for each row of losses ``(fits, alphas)``."""
    shapes = np.exp(-np.outer(_RATES, alphas))
    means = losses.mean(axis=1)
    centred = shapes - shapes.mean(axis=1, keepdims=True)
    spread = np.maximum(np.square(centred).sum(axis=1), 1e-300)
    heights = np.maximum(losses @ centred.T / spread, 0.0)
    floors = means[:, None] - heights * shapes.mean(axis=1)
    # A floor below 0 is none: then the height alone is fitted.
    below = floors < 0
    alone = losses @ shapes.T / np.maximum(np.square(shapes).sum(axis=1), 1e-300)
    heights, floors = np.where(below, alone, heights), np.where(below, 0.0, floors)
    # ||y - h s - f||^2, expanded so that no array has fits x rates x alphas numbers.
    totals = losses.sum(axis=1)[:, None]
    sums = shapes.sum(axis=1)
    errors = (
        np.square(losses).sum(axis=1)[:, None]
        + heights**2 * np.square(shapes).sum(axis=1)
        + len(alphas) * floors**2
        - 2 * heights * (losses @ shapes.T)
        - 2 * floors * totals
        + 2 * heights * floors * sums
    )
    best = errors.argmin(axis=1)
    rows = np.arange(len(losses))
    return heights[rows, best], _RATES[best], floors[rows, best]


def utility(alpha: ArrayLike, weights: Sequence[float]) -> Array:
    """U_priv with omega_1 to omega_4."""
    first, second, third, fourth = weights
    given = np.asarray(alpha, dtype=np.float64)
    return np.asarray(first * np.log(second / (third * given + fourth * given**2)))


def best_alpha(
    curve: LossCurve, weights: Sequence[float], lowest: float, highest: float
) -> tuple[float, bool]:
    """The alpha between the two that maximises U_priv - L_acc, and whether it is inside."""
    alphas = np.geomspace(lowest, highest, 2001)
    best = int(np.argmax(utility(alphas, weights) - curve(alphas)))
    return float(alphas[best]), 0 < best < len(alphas) - 1
