"""Where randomness comes from.

Simulation noise is a function of (key, run, party, round, purpose) and of nothing else: neither
of the order of calls nor of who else computes, so that an in-process run and a federation with
the same key add the same noise. Everything else draws from a cryptographic generator keyed by the
operating system, takes no seed, and cannot be drawn again.
"""

from __future__ import annotations

import math
import operator
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from dpadmm.errors import ParameterError
from dpadmm.plain import Array

# Numbers of parties: a stream of its own for each.
Parties = NDArray[np.intp]
_Words32 = NDArray[np.uint32]
#: Relative room that sensitivities and deltas leave for samplers that are not ideal.
SAMPLER_ALLOWANCE: Final = 1e-9
#: The smallest delta of a budget: with less, that room would not hold what can go wrong in a run of
#: a billion numbers (d 2^-125 of :class:`DiscreteNoise`, exp(-100) of shared noise).
LEAST_DELTA: Final = 1e-19
# The grid of the discrete sampler is this many powers of two below sigma.
_GRID_BITS: Final = 60
# Numbers that the discrete sampler is asked for at once, which bounds the memory that it takes.
_DRAWN_TOGETHER: Final = 4096
#: The widest grid that noise is drawn on, in units of its sigma.
GRID: Final = 2.0**-_GRID_BITS

# Of numpy's SeedSequence: beginnings and factors of the constants of its two stages, and of a mix.
_ABSORBING: Final = (0x43B0D7E5, 0x931E8875)
_SQUEEZING: Final = (0x8B51F9DD, 0x58F38DED)
_MIXING: Final = (np.uint32(0xCA01F9DD), np.uint32(0x4973F715))
_POOL: Final = 4
# Streams whose keys are computed together, where rounds to come are foreseen.
_KEYS_AHEAD: Final = 512

#: How a statement calls noise that can be drawn again.
SIMULATED: Final = "simulated: reproducible, not private"


class NoiseSource(ABC):
    """A stream of its own for every release of every party in every run."""

    #: What a statement says about the draws.
    description: str
    #: What the draws do not cover.
    not_covered: tuple[str, ...] = ()
    #: Whether the draws can be repeated, and so hide nothing.
    simulated: bool
    #: Whether Gaussian noise is added on a grid, by exact arithmetic: a value has to be known when
    #: its noise is drawn, and nothing can be read from the last bits of what comes out.
    on_grid: bool = False

    @property
    def identity(self) -> str:
        """What a checkpoint knows the source by: two that could draw differently differ in it."""
        return self.description

    @abstractmethod
    def generator(self, run: int, party: int, t: int, purpose: str) -> np.random.Generator:
        """A fresh stream for one release of one party in one run."""

    def _each_stream(
        self, runs: int, parties: Parties, t: int, purpose: str
    ) -> Iterator[tuple[int, int, np.random.Generator]]:
        """Places of parties, runs, and their streams; each lasts until the next one is taken."""
        for place, party in enumerate(parties):
            for run in range(runs):
                yield place, run, self.generator(run, int(party), t, purpose)

    def add_gaussian(
        self, values: Array, sigma: Array, parties: NDArray[np.intp], t: int, purpose: str
    ) -> Array:
        """``values + sigma N(0, I)``; values are ``(nodes, runs, ...)``, sigma broadcasts."""
        noisy = np.empty_like(values)
        for place, run, stream in self._each_stream(values.shape[1], parties, t, purpose):
            stream.standard_normal(out=noisy[place, run])
        noisy *= sigma
        noisy += values
        return noisy

    def add_gaussian_steps(
        self, values: Array, sigma: float, step: float, parties: Parties, t: int, purpose: str
    ) -> Array:
        """``values + sigma N(0, I)`` in whole steps, a power of two: both are rounded to it.

        The two are rounded separately, so that the noise does not depend on the values.
        """
        drawn = self.add_gaussian(np.zeros_like(values), np.array(sigma), parties, t, purpose)
        noisy: Array = step * (np.rint(values / step) + np.rint(drawn / step))
        return noisy

    def batches(
        self, steps: int, batch: int, rows: int, run: int, party: int, t: int
    ) -> NDArray[np.int64]:
        """``(steps, batch)`` row numbers: each step a fresh sample without replacement."""
        stream = self.generator(run, party, t, "batch")
        drawn = np.empty((steps, batch), dtype=np.int64)
        for step in range(steps):
            drawn[step] = stream.choice(rows, batch, replace=False, shuffle=False)
        return drawn

    def exponential_norm(
        self, shape: tuple[int, ...], parties: NDArray[np.intp], t: int, purpose: str
    ) -> Array:
        """Draws of density proportional to ``exp(-||b||)`` over the last axis.

        The radius is Gamma(d, 1) and the direction uniform.
        """
        drawn = np.empty(shape)
        for place, run, stream in self._each_stream(shape[1], parties, t, purpose):
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
        # Whole and of any length, which an integer of numpy is not.
        self._key = operator.index(key)
        if self._key < 0:
            raise ParameterError(f"key must be an integer of at least 0; got {key!r}.")

    @property
    def identity(self) -> str:
        """Its key, since the key decides every draw."""
        return f"{self.description} {self._key}"

    def generator(self, run: int, party: int, t: int, purpose: str) -> np.random.Generator:
        """The stream of this run, party, round and purpose under the key."""
        words = [self._key, run, party, t, *purpose.encode()]
        return np.random.Generator(np.random.Philox(np.random.SeedSequence(words)))

    def _each_stream(
        self, runs: int, parties: Parties, t: int, purpose: str
    ) -> Iterator[tuple[int, int, np.random.Generator]]:
        """The streams of :meth:`generator`, one object under one key after the other."""
        rounds = max(1, _KEYS_AHEAD // max(1, runs * len(parties)))
        numbers = np.asarray(parties, dtype=np.intp).tobytes()
        # Keys of one round alone are not asked for again, and may be many.
        find = _philox_keys if rounds > 1 else _philox_keys.__wrapped__
        keys = find(self._key, runs, numbers, t // rounds, rounds, purpose)[t % rounds]
        source = np.random.Philox(key=0)
        stream, nothing = np.random.Generator(source), np.zeros(4, dtype=np.uint64)
        for place, run in np.ndindex(keys.shape[:2]):
            source.state = {
                "bit_generator": "Philox",
                "state": {"counter": nothing, "key": keys[place, run]},
                "buffer": nothing,
                "buffer_pos": 4,
                "has_uint32": 0,
                "uinteger": 0,
            }
            yield place, run, stream


@lru_cache(maxsize=32)
def _philox_keys(
    key: int, runs: int, parties: bytes, block: int, rounds: int, purpose: str
) -> NDArray[np.uint64]:
    """Keys of the streams of so many rounds, ``(rounds, parties, runs, 2)``."""
    numbers = np.frombuffer(parties, dtype=np.intp)
    limbs = [key >> shift & 0xFFFFFFFF for shift in range(0, max(1, key.bit_length()), 32)]
    axes = [np.arange(block * rounds, (block + 1) * rounds), numbers, np.arange(runs)]
    t, party, run = (axis.ravel() for axis in np.meshgrid(*axes, indexing="ij"))
    columns = np.broadcast_arrays(*limbs, run, party, t, *purpose.encode())
    keys = _seed_states(np.array(columns, dtype=np.uint32))
    keys.flags.writeable = False
    return keys.reshape(rounds, len(numbers), runs, 2)


def _seed_states(words: _Words32) -> NDArray[np.uint64]:
    """``SeedSequence(column).generate_state(2, uint64)`` of every column, ``(columns, 2)``.

    One by one that takes longer than the draws. Numpy keeps its algorithm for good (NEP 19).
    """
    hashes = _POOL + _POOL * (_POOL - 1) + _POOL * (len(words) - _POOL)
    constants = _hash_constants(*_ABSORBING, hashes)
    pool, used = _hashed(words[:_POOL], constants[: _POOL + 1]), _POOL
    for source in range(_POOL):
        others = [place for place in range(_POOL) if place != source]
        hashed = _hashed(pool[source], constants[used : used + _POOL])
        pool[others] = _mixed(pool[others], hashed)
        used += len(others)
    for word in words[_POOL:]:
        pool = _mixed(pool, _hashed(word, constants[used : used + _POOL + 1]))
        used += _POOL
    halves = _hashed(pool, _hash_constants(*_SQUEEZING, _POOL)).astype(np.uint64)
    return np.ascontiguousarray((halves[::2] | halves[1::2] << np.uint64(32)).T)


def _hash_constants(first: int, factor: int, hashes: int) -> _Words32:
    """The constants of so many hashes, each of which takes one and the next."""
    found = [first]
    for _ in range(hashes):
        found.append(found[-1] * factor & 0xFFFFFFFF)
    return np.array(found, dtype=np.uint32)[:, None]


def _hashed(values: _Words32, constants: _Words32) -> _Words32:
    hashed = (values ^ constants[:-1]) * constants[1:]
    return hashed ^ hashed >> np.uint32(16)


def _mixed(values: _Words32, others: _Words32) -> _Words32:
    mixed = _MIXING[0] * values - _MIXING[1] * others
    return mixed ^ mixed >> np.uint32(16)


@final
class SecureNoise(NoiseSource):
    """ChaCha20 streams keyed by the operating system, a new key for every release.

    Nothing can be passed in and nothing read out, so that no one can repeat or foresee a draw.
    Samples are floating-point numbers: attacks on their last bits are not covered (the extra
    ``secure`` covers them for Gaussian noise).
    """

    description = "ChaCha20 keyed by the operating system"
    not_covered = ("attacks on the last bits of floating-point noise",)
    simulated = False

    def generator(self, run: int, party: int, t: int, purpose: str) -> np.random.Generator:
        """A stream under a key that exists only here."""
        from randomgen import ChaCha

        key = int.from_bytes(os.urandom(32), "little")
        return np.random.Generator(ChaCha(key=key, rounds=20))


@final
class DiscreteNoise(NoiseSource):
    """Gaussian noise from OpenDP's exact sampler on a grid; everything else from ChaCha20.

    Values are rounded to a grid g of at most 2^-60 sigma (a power of two that sigma alone decides)
    and get discrete Gaussian noise from exact integer arithmetic. The sum is then rounded to a
    double, which is post-processing: what can come out is the same for all values, so that nothing
    can be read from its last bits. Rounding moves two neighbouring vectors of d numbers apart by at
    most sqrt(d) g, and the noise differs from a rounded Gaussian by a total variation of at most
    d 2^-125 (a Gaussian's mass in a cell of width g differs from g times its density by a relative
    (x^2 - 1) g^2 / 24 sigma^2 at most). Both are below the allowance that sensitivities and deltas
    here carry (``SAMPLER_ALLOWANCE``): a release with mu = sensitivity / sigma has
    sqrt(d) g <= allowance * sensitivity where mu >= sqrt(d) 2^-60 / allowance, about
    sqrt(d) 1e-9, and :mod:`~dpadmm.privacy.mechanisms` refuses to release with less.
    """

    description = (
        "Gaussian noise: OpenDP's discrete sampler; any other noise: ChaCha20; both keyed by the "
        "operating system"
    )
    not_covered = ("attacks on the last bits of noise that is not Gaussian",)
    simulated = False
    on_grid = True

    def __init__(self) -> None:
        from opendp.mod import enable_features

        enable_features("contrib")
        self._streams = SecureNoise()

    def generator(self, run: int, party: int, t: int, purpose: str) -> np.random.Generator:
        """A ChaCha20 stream, for noise that is not Gaussian."""
        return self._streams.generator(run, party, t, purpose)

    def add_gaussian(
        self, values: Array, sigma: Array, parties: NDArray[np.intp], t: int, purpose: str
    ) -> Array:
        """``values`` on the grid, plus discrete Gaussian noise, a draw for each number."""
        # OpenDP does not look at its input: values that are not finite would pass through it.
        if not np.isfinite(values).all():
            raise ValueError("values must be finite; nothing was drawn.")
        features, spread = values.shape[-1], np.broadcast_to(sigma, values.shape)[..., 0].ravel()
        vectors = values.reshape(spread.size, features)
        noisy, first = np.empty_like(vectors), 0
        # Neighbours with one sigma are one call, which costs as much as drawing ten numbers.
        most = max(1, _DRAWN_TOGETHER // features)
        while first < spread.size:
            same = spread[first : first + most] == spread[first]
            together = slice(first, first + (int(same.argmin()) or same.size))
            given = vectors[together].ravel().tolist()
            drawn = self._measurement(len(given), float(spread[first]))(given)
            noisy[together] = np.reshape(drawn, (-1, features))
            first = together.stop
        return noisy.reshape(values.shape)

    def add_gaussian_steps(
        self, values: Array, sigma: float, step: float, parties: Parties, t: int, purpose: str
    ) -> Array:
        """``values`` in whole steps, plus an exact discrete Gaussian of integers."""
        if not np.isfinite(values).all():
            raise ValueError("values must be finite; nothing was drawn.")
        whole = np.rint(values / step).astype(np.int64)
        drawn = self._integers(values.size, sigma / step)(whole.ravel().tolist())
        noisy: Array = step * np.array(drawn, dtype=np.float64).reshape(values.shape)
        return noisy

    @lru_cache(maxsize=64)  # noqa: B019 - measurements are few and live as long as the source
    def _integers(self, numbers: int, sigma: float) -> Any:
        from opendp.domains import atom_domain, vector_domain
        from opendp.measurements import make_gaussian
        from opendp.metrics import l2_distance

        domain = vector_domain(atom_domain(T="i64"), size=numbers)
        return make_gaussian(domain, l2_distance(T=float), scale=sigma)

    @lru_cache(maxsize=64)  # noqa: B019 - measurements are few and live as long as the source
    def _measurement(self, numbers: int, sigma: float) -> Any:
        # Not opendp.prelude, which brings scikit-learn and pandas and 100 MB of memory.
        from opendp.domains import atom_domain, vector_domain
        from opendp.measurements import make_gaussian
        from opendp.metrics import l2_distance

        domain = vector_domain(atom_domain(T=float, nan=False), size=numbers)
        exponent = math.floor(math.log2(sigma)) - _GRID_BITS
        return make_gaussian(domain, l2_distance(T=float), scale=sigma, k=exponent)


def secure_noise() -> NoiseSource:
    """The best source at hand: OpenDP's where the extra ``secure`` is installed, else ChaCha20."""
    return DiscreteNoise() if find_spec("opendp") else SecureNoise()
