r"""What a guarantee means to somebody who guesses: bounds on tests between two neighbours.

An attacker knows all rows but one person's, knows two candidates for those, sees every message and
says which candidate was used. By (epsilon, delta)-differential privacy (Kairouz, Oh, Viswanath
2015, Theorem 2.1) detections :math:`D` and false alarms :math:`F` of every test obey

.. math:: D \le e^\epsilon F + \delta, \qquad 1 - F \le e^\epsilon (1 - D) + \delta,

so that the share of right guesses, when a fair coin chose the candidate, is at most

.. math:: \frac{e^\epsilon + \delta}{1 + e^\epsilon}.

Where only Gaussians were released, the pair (epsilon, delta) fixes :math:`\mu`, and the exact
trade-off is stronger (Dong, Roth, Su 2022): :math:`D \le \Phi(\Phi^{-1}(F) + \mu)`, right at most
:math:`\Phi(\mu / 2)`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from dpadmm.privacy.composition import ExactGaussian
from dpadmm.privacy.figures import AtMost
from dpadmm.privacy.gaussian import gaussian_mu
from dpadmm.privacy.noise import SAMPLER_ALLOWANCE

# gaussian_mu rounds down by less than this, relatively.
_MU_ERROR = 1e-8
# What rounding takes off a share, which is at most 1, is less.
_ROUNDING = 1e-15
# The smallest delta for which mu is worked out; below, the pair alone is used.
_SMALLEST = 1e-300


@dataclass(frozen=True)
class Odds:
    """Bounds on every test between two neighbours.

    Attributes
    ----------
    epsilon, delta
        The guarantee; an infinite epsilon bounds nothing.
    mu
        Of the Gaussian trade-off that is known beyond the pair; None where only the pair is.
    """

    epsilon: float
    delta: float
    mu: float | None = None

    @property
    def theorem(self) -> str:
        """What the bounds rest on."""
        if not math.isfinite(self.epsilon):
            return "none"
        if self.mu is None:
            return (
                "tests under (epsilon, delta)-differential privacy "
                "(Kairouz, Oh, Viswanath 2015, Theorem 2.1)"
            )
        return (
            f"exact trade-off of Gaussian releases, mu = {AtMost(self.mu):4} (Dong, Roth, Su 2022)"
        )

    @property
    def right(self) -> float:
        """The largest share of right guesses where a fair coin chose the candidate."""
        if not math.isfinite(self.epsilon):
            return 1.0
        if self.epsilon == self.delta == 0:
            return 0.5
        # (e^epsilon + delta) / (1 + e^epsilon), without overflow.
        rest = math.exp(-self.epsilon)
        right = (1 + self.delta * rest) / (1 + rest)
        if self.mu is not None:
            right = min(right, float(ndtr(self.mu / 2)) + self._sampler)
        return min(right + _ROUNDING, 1.0)

    def detections(self, false_alarms: ArrayLike) -> NDArray[np.float64]:
        """The largest share of true cases found, at these shares of false alarms."""
        alarms = np.asarray(false_alarms, dtype=np.float64)
        if not math.isfinite(self.epsilon):
            return np.ones_like(alarms)
        with np.errstate(over="ignore"):
            growth = np.exp(self.epsilon)
            # 0 times infinity: no false alarm allows delta alone.
            grown = np.where(alarms > 0, growth * np.where(alarms > 0, alarms, 1.0), 0.0)
        few = np.where(alarms > 0, (grown + self.delta) * (1 + _ROUNDING), self.delta)
        pair = np.minimum(few, 1 - (1 - self.delta - alarms) / growth + _ROUNDING)
        pair = np.clip(pair, alarms, 1.0)
        if self.mu is None:
            return pair
        quantile = ndtri(alarms)
        # Far out a relative error of the quantile counts as often as its square says.
        rounding = _ROUNDING * (1 + np.square(np.clip(quantile, -40, 40)))
        exact = ndtr(quantile + self.mu) * (1 + rounding) + self._sampler
        return np.minimum(pair, exact)

    @property
    def _sampler(self) -> float:
        """How far real noise may be from ideal Gaussian noise, in total variation."""
        return self.delta * SAMPLER_ALLOWANCE


@lru_cache(maxsize=4096)
def attacker_odds(epsilon: float, delta: float, accountant: str) -> Odds:
    """Bounds from a guarantee and the way it was accounted."""
    gaussian = (
        accountant == ExactGaussian.name and math.isfinite(epsilon) and _SMALLEST <= delta < 1
    )
    if not gaussian:
        return Odds(epsilon, delta)
    return Odds(epsilon, delta, float(gaussian_mu(epsilon, delta)) * (1 + _MU_ERROR))
