"""Values that may leave a party, and the only functions that make them.

A :class:`Released` cannot be built anywhere else: sending a bare array is a type error, and what
a mechanism verified and charged is exactly what is sent. A mechanism checks what its theorem
assumes and can be checked from public values; what depends on rows cannot go wrong by design:
rows are clipped as they are laid out (:class:`~dpadmm.arrays.Shard`), and the solver meets its
tolerance on every data set.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from dpadmm.errors import ConvergenceError, ParameterError
from dpadmm.privacy.events import NON_PRIVATE, Event, GaussianRelease
from dpadmm.privacy.noise import NoiseSource

__all__ = [
    "Released",
    "gaussian_events",
    "release_again",
    "release_gaussian",
    "release_unprotected",
]

Array = NDArray[np.float64]

_MAKER: Final = object()


class Released:
    """A message of each party of a site, with the event that each party is charged.

    Made by mechanisms only. The values are read-only.
    """

    __slots__ = ("_events", "_values")

    def __init__(self, maker: object, values: Array, events: tuple[Event, ...]) -> None:
        if maker is not _MAKER:
            raise TypeError("Released is made by the functions of dpadmm.privacy.mechanisms only.")
        if len(events) != len(values):
            raise ParameterError(
                f"a release must have one event per party ({len(values)}); got {len(events)}."
            )
        if not np.isfinite(values).all():
            raise ConvergenceError("a release must be finite; nothing was released.")
        self._values = values.copy()
        self._values.flags.writeable = False
        self._events = events

    @property
    def values(self) -> Array:
        """``(nodes, runs, outputs, features)``."""
        return self._values

    @property
    def events(self) -> tuple[Event, ...]:
        """What each party was charged for it."""
        return self._events


def release_unprotected(values: Array) -> Released:
    """Send values as they are: no guarantee, charged as ``NonPrivate``."""
    return Released(_MAKER, values, (NON_PRIVATE,) * len(values))


def release_again(values: Array, events: tuple[Event, ...]) -> Released:
    """Send messages that a ledger kept, as they are: a repeated message costs nothing more.

    Parameters
    ----------
    values
        The stored messages, one per party, bit for bit.
    events
        What each was charged when it was made.
    """
    return Released(_MAKER, values, events)


def gaussian_events(sensitivity: Array, sigma: Array) -> tuple[GaussianRelease, ...]:
    """What :func:`release_gaussian` will charge each party."""
    return tuple(
        GaussianRelease(float(reach), float(scale))
        for reach, scale in zip(sensitivity, sigma, strict=True)
    )


def release_gaussian(
    values: Array,
    residual: Array,
    *,
    tolerance: Array,
    sensitivity: Array,
    sigma: Array,
    scale: Array | None = None,
    parties: NDArray[np.intp],
    noise: NoiseSource,
    t: int,
) -> Released:
    r"""Send ``values + N(0, sigma^2 I)``.

    .. math:: \mu = \mathrm{sensitivity} / \sigma

    Parameters
    ----------
    values, residual
        Minimisers ``(nodes, runs, outputs, features)`` and the norms of their gradients.
    tolerance
        The residual that ``sensitivity`` counts with, per party.
    sensitivity, sigma
        Per party: how far replacing one row moves all outputs together, and the noise of the
        event that is charged.
    scale
        How much noise is really added, where it differs between runs and outputs while
        ``sensitivity / sigma`` stays what is charged (public-norm refinement); else ``sigma``.
    parties, noise, t
        Numbers of the parties, the source of noise, the round.
    """
    if values.shape[:-1] != residual.shape or len(values) != len(parties):
        raise ParameterError(
            f"values and residual must agree in shape; got {values.shape} and {residual.shape}."
        )
    if not (residual <= tolerance[:, None, None]).all():
        raise ConvergenceError(
            "a local solve missed the tolerance that its charge counts with; nothing was released."
        )
    spread = sigma[:, None, None, None] if scale is None else scale
    if not (np.isfinite(spread).all() and (spread > 0).all()):
        raise ParameterError("sigma must be positive and finite; nothing was released.")
    noisy = noise.add_gaussian(values, spread, parties, t, "output")
    return Released(_MAKER, noisy, gaussian_events(sensitivity, sigma))
