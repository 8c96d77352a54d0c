"""Fits of a loss over alpha to runs, with intervals from resampled runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from dpadmm.experiments.jobs import seed_of
from dpadmm.experiments.measures import LOOK_LEVEL, Interval
from dpadmm.plain import Array
from dpadmm_papers.trade_off import (
    LossCurve,
    PrivacyUtility,
    design_alpha,
    fit_loss,
    fit_losses,
)
from dpadmm_papers.verdicts import Judged, VerdictWord, below, every, within

#: A figure of every run, by alpha.
Samples = Mapping[float, Array]
#: A constant counts as the one that is claimed if it is within this factor of it.
NEAR: Final = 1.25
_CONSTANTS: Final = {"c4": "height", "c5": "rate"}


@dataclass(frozen=True)
class Fitted:
    """A fit to means over runs, and fits to runs drawn again with replacement.

    Attributes
    ----------
    curve, resampled
        The fit, and the others: their percentiles are intervals for the constants.
    furthest, furthest_resampled
        The largest relative distance of a fit from the means that it is of.
    """

    curve: LossCurve
    resampled: list[LossCurve]
    furthest: float
    furthest_resampled: Array

    def interval(self, constant: str) -> Interval:
        """A constant of the fit with its interval."""
        return _around(getattr(self.curve, constant), self._drawn[constant])

    @cached_property
    def _drawn(self) -> dict[str, Array]:
        return {
            name: np.array([getattr(each, name) for each in self.resampled])
            for name in ("height", "rate", "floor")
        }

    def near(self, constant: str, value: float) -> VerdictWord:
        """Whether a constant is near a value: a wide interval must not help."""
        return within(self.interval(constant), value / NEAR, value * NEAR)

    def has(self, height: float, rate: float) -> VerdictWord:
        """Whether c4 and c5 are near these."""
        return every([self.near("height", height), self.near("rate", rate)])

    def agrees(self, other: Fitted) -> VerdictWord:
        """Whether c4 and c5 are near those of another fit."""
        return every(
            within(
                _around(
                    float(_ratio(getattr(self.curve, name), getattr(other.curve, name))),
                    _ratio(self._drawn[name], other._drawn[name]),
                ),
                1 / NEAR,
                NEAR,
            )
            for name in _CONSTANTS.values()
        )

    def follows(self, reach: float) -> Judged:
        """Whether the fit is within ``reach`` of every mean, as a part of it."""
        found = _around(self.furthest, self.furthest_resampled)
        return Judged(below(found, reach), f"Furthest from a mean: {found:.1%}.")

    def chosen(self, utility: PrivacyUtility, ends: tuple[float, float]) -> tuple[Interval, float]:
        """The alpha that the design problem chooses, and how often it is inside the range."""
        low, high = ends
        own = design_alpha(self.curve, utility, lowest=low, highest=high)
        found = [design_alpha(each, utility, lowest=low, highest=high) for each in self.resampled]
        alphas = np.array([each.alpha for each in found])
        return _around(own.alpha, alphas), float(np.mean([each.inside for each in found]))

    def words(self) -> str:
        """c4 and c5, with their intervals."""
        return ", ".join(
            f"{symbol} = {self.interval(name):.3g}" for symbol, name in _CONSTANTS.items()
        )


def fit_resampled(samples: Samples, *, draws: int, name: str) -> Fitted:
    """Fit the means of samples by alpha, and so many resamples of them, which ``name`` decides."""
    alphas = sorted(samples)
    generator = np.random.default_rng(seed_of(f"resamples, {name}"))
    means = np.stack(
        [
            values[generator.integers(len(values), size=(draws, len(values)))].mean(axis=1)
            for values in (samples[alpha] for alpha in alphas)
        ],
        axis=1,
    )
    resampled = fit_losses(alphas, means)
    fitted = np.stack([curve(alphas) for curve in resampled])
    own = np.array([samples[alpha].mean() for alpha in alphas])
    curve = fit_loss(alphas, own)
    return Fitted(
        curve,
        resampled,
        float(np.abs(curve(alphas) / own - 1).max()),
        np.abs(fitted / means - 1).max(axis=1),
    )


def _ratio(one: ArrayLike, other: ArrayLike) -> Array:
    """Of constants that may be 0: 1 where both are."""
    first, second = np.asarray(one, dtype=np.float64), np.asarray(other, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.nan_to_num(first / second, nan=1.0, posinf=np.inf)


def _around(own: float, drawn: Array) -> Interval:
    tail = 50 * (1 - LOOK_LEVEL)
    low, high = np.percentile(drawn, [tail, 100 - tail], method="nearest")
    return Interval(float(own), float(low), float(high))
