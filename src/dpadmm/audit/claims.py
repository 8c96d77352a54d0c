"""What a mechanism is said to guarantee, and what the success of an attack says about it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from dpadmm.errors import ParameterError
from dpadmm.plain import Array
from dpadmm.privacy.figures import AtMost, pair
from dpadmm.privacy.gaussian import gaussian_epsilon

__all__ = ["Claim", "EpsilonClaim", "GaussianClaim"]


class Claim(ABC):
    """What a mechanism is said to guarantee. Subclasses are frozen dataclasses and final."""

    #: What the number measures.
    quantity: str

    @property
    @abstractmethod
    def value(self) -> float:
        """The claimed number."""

    @abstractmethod
    def from_rates(self, true_positive: ArrayLike, false_positive: ArrayLike) -> Array:
        """The least value that allows an event these probabilities under D' and D."""

    @abstractmethod
    def from_accuracy(self, accuracy: ArrayLike) -> Array:
        """The least value that allows guessing the data set right this often."""

    @abstractmethod
    def words(self) -> str:
        """The claim as a sentence has it."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """The claim as plain data."""


@final
@dataclass(frozen=True)
class EpsilonClaim(Claim):
    """Pr'[E] <= e^epsilon Pr[E] + delta for every event, in both directions."""

    epsilon: float
    delta: float = 0.0
    quantity = "epsilon"

    def __post_init__(self) -> None:
        if not 0 <= self.epsilon < math.inf:
            raise ParameterError(f"epsilon must be a non-negative number; got {self.epsilon!r}.")
        if not 0 <= self.delta < 1:
            raise ParameterError(f"delta must be in [0, 1); got {self.delta!r}.")

    @property
    def value(self) -> float:
        """Epsilon."""
        return self.epsilon

    def from_rates(self, true_positive: ArrayLike, false_positive: ArrayLike) -> Array:
        """``ln((t - delta) / f)``, at least 0."""
        return _log_ratio(np.asarray(true_positive) - self.delta, np.asarray(false_positive))

    def from_accuracy(self, accuracy: ArrayLike) -> Array:
        """``ln((a - delta) / (1 - a))``, at least 0."""
        return _log_ratio(np.asarray(accuracy) - self.delta, 1.0 - np.asarray(accuracy))

    def words(self) -> str:
        """Epsilon and delta."""
        if self.delta == 0:
            return f"{AtMost(self.epsilon)}-differential privacy"
        return f"{pair(self.epsilon, self.delta)}-differential privacy"

    def to_dict(self) -> dict[str, Any]:
        """Epsilon and delta."""
        return {"epsilon": self.epsilon, "delta": self.delta}


@final
@dataclass(frozen=True)
class GaussianClaim(Claim):
    """No event tells D' from D better than it tells N(mu, 1) from N(0, 1).

    Parameters
    ----------
    mu
        The claimed parameter.
    delta
        Where the claim is also shown as an epsilon; it takes no part in the test.
    """

    mu: float
    delta: float = 1e-5
    quantity = "mu"

    def __post_init__(self) -> None:
        if not 0 <= self.mu < math.inf:
            raise ParameterError(f"mu must be a non-negative number; got {self.mu!r}.")
        if not 0 < self.delta < 1:
            raise ParameterError(f"delta must be in (0, 1); got {self.delta!r}.")

    @property
    def value(self) -> float:
        """Mu."""
        return self.mu

    def from_rates(self, true_positive: ArrayLike, false_positive: ArrayLike) -> Array:
        """``Phi^-1(t) - Phi^-1(f)``, at least 0."""
        hit, miss = np.asarray(true_positive), np.asarray(false_positive)
        certain = (hit <= 0) | (miss >= 1)
        gap = ndtri(np.where(certain, 0.5, hit)) - ndtri(np.where(certain, 0.5, miss))
        return np.maximum(gap, 0.0)

    def from_accuracy(self, accuracy: ArrayLike) -> Array:
        """``2 Phi^-1(a)``, at least 0."""
        bound: Array = 2 * ndtri(np.maximum(np.asarray(accuracy), 0.5))
        return bound

    def words(self) -> str:
        """Mu and what it means at delta."""
        epsilon = float(gaussian_epsilon(self.mu, self.delta))
        return (
            f"{AtMost(self.mu)}-GDP, the Gaussian form of "
            f"{pair(epsilon, self.delta)}-differential privacy"
        )

    def to_dict(self) -> dict[str, Any]:
        """Mu, and the epsilon it means at delta."""
        epsilon = float(gaussian_epsilon(self.mu, self.delta))
        return {"mu": self.mu, "epsilon": epsilon, "delta": self.delta}


def _log_ratio(above: Array, below: Array) -> Array:
    useful = (above > below) & (below > 0)
    ratio = np.where(useful, above, 1.0) / np.where(useful, below, 1.0)
    return np.where((above > 0) & (below <= 0), np.inf, np.log(ratio))
