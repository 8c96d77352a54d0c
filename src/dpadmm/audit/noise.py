"""Noise as an auditor needs it: none, one stream for many runs, or a deployment's, taken down."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from dpadmm.errors import ParameterError
from dpadmm.plain import Array
from dpadmm.privacy.noise import NoiseSource, Parties


class Draw(NamedTuple):
    """What a source gave in one call.

    Attributes
    ----------
    noise
        What was added, ``(nodes, runs, ...)``.
    sigma
        The standard deviation that was asked for; None for exp-norm noise.
    parties
        Numbers of the parties.
    """

    noise: Array
    sigma: Array | None
    parties: NDArray[np.intp]


@final
class SilentNoise(NoiseSource):
    """No noise at all: what an adversary who knows the rows would compute."""

    description = "none"
    simulated = True

    def __init__(self) -> None:
        #: The standard deviation that was last asked for, shaped like the values.
        self.sigma: Array = np.zeros(1)

    def generator(self, run: int, party: int, t: int, purpose: str) -> np.random.Generator:
        """A fixed stream for batches; refuse anything else, since a stream cannot be silent.

        Which batches stand in for secret ones decides how good a guess is, never whether the bound
        on it holds: the same ones serve for both data sets.
        """
        if purpose == "batch":
            return np.random.default_rng([party, t])
        raise ParameterError(f"the auditor knows no form without noise of the draw {purpose!r}.")

    def add_gaussian(
        self, values: Array, sigma: Array, parties: NDArray[np.intp], t: int, purpose: str
    ) -> Array:
        """The values as they are."""
        self.sigma = np.broadcast_to(sigma, values.shape)
        return values

    def exponential_norm(
        self, shape: tuple[int, ...], parties: NDArray[np.intp], t: int, purpose: str
    ) -> Array:
        """Zero."""
        return np.zeros(shape)


@final
class SharedNoise(NoiseSource):
    """One stream for all runs of a release, its draws times a factor.

    Runs stay independent, and a round costs one stream instead of one for each run. A factor
    below 1 is a party that adds less noise than it says.
    """

    simulated = True

    def __init__(self, source: NoiseSource, factor: float = 1.0) -> None:
        self._source, self._factor = source, factor
        self.description = f"{factor:g} times: {source.description}"

    def generator(self, run: int, party: int, t: int, purpose: str) -> np.random.Generator:
        """The source's stream: what is drawn from it directly is not scaled."""
        return self._source.generator(run, party, t, purpose)

    def add_gaussian(
        self, values: Array, sigma: Array, parties: NDArray[np.intp], t: int, purpose: str
    ) -> Array:
        """``values + factor sigma N(0, I)``."""
        shape = _side_by_side(values.shape)
        spread = self._factor * np.broadcast_to(sigma, values.shape).reshape(shape)
        noisy = self._source.add_gaussian(values.reshape(shape), spread, parties, t, purpose)
        return noisy.reshape(values.shape)

    def exponential_norm(
        self, shape: tuple[int, ...], parties: NDArray[np.intp], t: int, purpose: str
    ) -> Array:
        """The source's draws times the factor."""
        drawn = self._source.exponential_norm(_side_by_side(shape), parties, t, purpose)
        return self._factor * drawn.reshape(shape)


@final
class RecordingNoise(NoiseSource):
    """Another source, whose draws are taken down as they pass.

    With a factor of 1 what the source returns is handed on bit for bit: the run is the one that it
    would have been.

    Parameters
    ----------
    source
        Any source, a deployment's among them.
    factor
        Multiplies the draws; below 1 is a party that adds less noise than it says.
    """

    def __init__(self, source: NoiseSource, factor: float = 1.0) -> None:
        self._source, self._factor = source, factor
        self.description, self.simulated = source.description, source.simulated
        self.not_covered = source.not_covered
        self.on_grid = bool(getattr(source, "on_grid", False))
        #: By purpose and round: the draws, in order.
        self.drawn: dict[tuple[str, int], list[Draw]] = defaultdict(list)
        #: By run, party and round: the row numbers of the batches.
        self.batches_drawn: dict[tuple[int, int, int], NDArray[np.int64]] = {}

    def generator(self, run: int, party: int, t: int, purpose: str) -> np.random.Generator:
        """The source's stream; what is drawn from it directly is not taken down."""
        return self._source.generator(run, party, t, purpose)

    def add_gaussian(
        self, values: Array, sigma: Array, parties: NDArray[np.intp], t: int, purpose: str
    ) -> Array:
        """What the source makes of the values."""
        noisy = self._source.add_gaussian(values, sigma * self._factor, parties, t, purpose)
        spread = np.broadcast_to(sigma, values.shape)
        self.drawn[purpose, t].append(Draw(noisy - values, spread, parties))
        return noisy

    def add_gaussian_steps(
        self, values: Array, sigma: float, step: float, parties: Parties, t: int, purpose: str
    ) -> Array:
        """What the source makes of the values, in whole steps."""
        noisy = self._source.add_gaussian_steps(
            values, sigma * self._factor, step, parties, t, purpose
        )
        spread = np.broadcast_to(sigma, values.shape)
        rounded = step * np.rint(values / step)
        self.drawn[purpose, t].append(Draw(noisy - rounded, spread, parties))
        return noisy

    def batches(
        self, steps: int, batch: int, rows: int, run: int, party: int, t: int
    ) -> NDArray[np.int64]:
        """The source's batches."""
        drawn = self._source.batches(steps, batch, rows, run, party, t)
        self.batches_drawn[run, party, t] = drawn
        return drawn

    def exponential_norm(
        self, shape: tuple[int, ...], parties: NDArray[np.intp], t: int, purpose: str
    ) -> Array:
        """The source's draws."""
        drawn = self._factor * self._source.exponential_norm(shape, parties, t, purpose)
        self.drawn[purpose, t].append(Draw(drawn, None, parties))
        return drawn


@final
class EchoNoise(NoiseSource):
    """The draws that a recording holds, once more, but for the last noise of a message.

    With it a round gives what it would have sent without that noise.

    Parameters
    ----------
    recording
        The draws.
    purposes
        Which of them to repeat; batches are repeated always.
    """

    description = "an echo"
    simulated = True

    def __init__(self, recording: RecordingNoise, purposes: tuple[str, ...]) -> None:
        self._recording, self._purposes = recording, purposes

    def generator(self, run: int, party: int, t: int, purpose: str) -> np.random.Generator:
        """Refuse: what was drawn from a stream directly was not taken down."""
        raise ParameterError(f"the auditor knows no form without noise of the draw {purpose!r}.")

    def batches(
        self, steps: int, batch: int, rows: int, run: int, party: int, t: int
    ) -> NDArray[np.int64]:
        """The batches that were drawn."""
        return self._recording.batches_drawn[run, party, t]

    def add_gaussian(
        self, values: Array, sigma: Array, parties: NDArray[np.intp], t: int, purpose: str
    ) -> Array:
        """The values, with the noise that they had or with none."""
        if purpose not in self._purposes:
            return values
        (draw,) = self._recording.drawn[purpose, t]
        return values + draw.noise

    def exponential_norm(
        self, shape: tuple[int, ...], parties: NDArray[np.intp], t: int, purpose: str
    ) -> Array:
        """What was drawn."""
        (draw,) = self._recording.drawn[purpose, t]
        return draw.noise


def _side_by_side(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Many runs seen as one run with many outputs."""
    nodes, *between, features = shape
    return (nodes, 1, math.prod(between), features)
