"""Values that may leave a party, and the only functions that make them.

A :class:`Released` cannot be built anywhere else: sending a bare array is a type error, and what
a mechanism verified and charged is exactly what is sent.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from dpadmm.errors import ParameterError
from dpadmm.privacy.events import NON_PRIVATE, Event

__all__ = ["Released", "release_unprotected"]

_MAKER: Final = object()


class Released:
    """A message of each party of a site, with the event that each party is charged.

    Made by mechanisms only. The values are read-only.
    """

    __slots__ = ("_events", "_values")

    def __init__(
        self, maker: object, values: NDArray[np.float64], events: tuple[Event, ...]
    ) -> None:
        if maker is not _MAKER:
            raise TypeError("Released is made by the functions of dpadmm.privacy.mechanisms only.")
        if not np.isfinite(values).all():
            raise ParameterError("a release must be finite; nothing was released.")
        if len(events) != len(values):
            raise ParameterError(
                f"a release must have one event per party ({len(values)}); got {len(events)}."
            )
        self._values = values.copy()
        self._values.flags.writeable = False
        self._events = events

    @property
    def values(self) -> NDArray[np.float64]:
        """``(nodes, runs, outputs, features)``."""
        return self._values

    @property
    def events(self) -> tuple[Event, ...]:
        """What each party was charged for it."""
        return self._events


def release_unprotected(values: NDArray[np.float64]) -> Released:
    """Send values as they are: no guarantee, charged as :class:`NonPrivate`."""
    return Released(_MAKER, values, (NON_PRIVATE,) * len(values))
