"""Where randomness comes from.

Simulation noise is a function of (key, run, party, round, purpose) and of nothing else: neither
of the order of calls nor of who else computes, so that an in-process run and a federation with
the same key add the same noise. Everything else draws from a cryptographic generator keyed by the
operating system, takes no seed, and cannot be drawn again.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

__all__ = ["SIMULATED", "NoiseSource", "SecureNoise", "SimulatedNoise"]

Array = NDArray[np.float64]

#: How a statement calls noise that can be drawn again.
SIMULATED: Final = "simulated: reproducible, not private"


class NoiseSource(ABC):
    """A stream of its own for every release of every party in every run."""

    #: What a statement says about the draws.
    description: str
    #: Whether the draws can be repeated, and so hide nothing.
    simulated: bool

    @property
    def identity(self) -> str:
        """What a checkpoint knows the source by: two that could draw differently differ in it."""
        return self.description

    @abstractmethod
    def generator(self, run: int, party: int, t: int, purpose: str) -> np.random.Generator:
        """A fresh stream for one release of one party in one run."""

    def add_gaussian(
        self, values: Array, sigma: Array, parties: NDArray[np.intp], t: int, purpose: str
    ) -> Array:
        """``values + sigma N(0, I)``; values are ``(nodes, runs, ...)``, sigma broadcasts."""
        noisy = np.empty_like(values)
        for place, party in enumerate(parties):
            for run in range(values.shape[1]):
                stream = self.generator(run, int(party), t, purpose)
                stream.standard_normal(out=noisy[place, run])
        noisy *= sigma
        noisy += values
        return noisy

    def direction_and_radius(
        self, shape: tuple[int, ...], parties: NDArray[np.intp], t: int, purpose: str
    ) -> Array:
        """Draws of density proportional to ``exp(-||b||)`` over the last axis.

        The radius is Gamma(d, 1) and the direction uniform.
        """
        drawn = np.empty(shape)
        for place, party in enumerate(parties):
            for run in range(shape[1]):
                stream = self.generator(run, int(party), t, purpose)
                direction = stream.standard_normal(shape[2:])
                radius = stream.gamma(shape[-1], size=(*shape[2:-1], 1))
                norm = np.linalg.norm(direction, axis=-1, keepdims=True)
                drawn[place, run] = radius * direction / norm
        return drawn


@final
class SimulatedNoise(NoiseSource):
    """Reproducible draws for simulations and tests.

    Parameters
    ----------
    key
        Any integer of at least 0.
    """

    description = SIMULATED
    simulated = True

    def __init__(self, key: int) -> None:
        self._key = key

    @property
    def identity(self) -> str:
        """Its key, since the key decides every draw."""
        return f"{self.description} {self._key}"

    def generator(self, run: int, party: int, t: int, purpose: str) -> np.random.Generator:
        """The stream of this run, party, round and purpose under the key."""
        words = [self._key, run, party, t, *purpose.encode()]
        return np.random.Generator(np.random.Philox(np.random.SeedSequence(words)))


@final
class SecureNoise(NoiseSource):
    """ChaCha20 streams keyed by the operating system, a new key for every release.

    Nothing can be passed in and nothing read out, so that no one can repeat or foresee a draw.
    Samples are floating-point numbers: attacks on their last bits are not covered (the extra
    ``secure`` covers them for Gaussian noise).
    """

    description = "ChaCha20 keyed by the operating system"
    simulated = False

    def generator(self, run: int, party: int, t: int, purpose: str) -> np.random.Generator:
        """A stream under a key that exists only here."""
        from randomgen import ChaCha

        key = int.from_bytes(os.urandom(32), "little")
        return np.random.Generator(ChaCha(key=key, rounds=20))
