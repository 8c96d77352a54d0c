"""Where randomness comes from.

Simulation noise is a function of (key, run, party, round, purpose) and of nothing else: neither
of the order of calls nor of who else computes, so that an in-process run and a federation with
the same key add the same noise.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

__all__ = ["SIMULATED", "NoiseSource", "SimulatedNoise"]

#: How a statement calls noise that can be drawn again.
SIMULATED: Final = "simulated: reproducible, not private"


class NoiseSource(ABC):
    """Draws for one party and one run at a time, so that each has a stream of its own."""

    #: What a statement says about the draws.
    description: str

    @property
    def identity(self) -> str:
        """What a checkpoint knows the source by: two that could draw differently differ in it."""
        return self.description

    @abstractmethod
    def generator(self, run: int, party: int, t: int, purpose: str) -> np.random.Generator:
        """A fresh stream for one release of one party in one run."""

    def normal(
        self, parties: NDArray[np.intp], shape: tuple[int, ...], t: int, purpose: str
    ) -> NDArray[np.float64]:
        """Standard normal draws of shape ``(nodes, runs, ...)``."""
        drawn = np.empty(shape)
        for place, party in enumerate(parties):
            for run in range(shape[1]):
                stream = self.generator(run, int(party), t, purpose)
                stream.standard_normal(out=drawn[place, run])
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
