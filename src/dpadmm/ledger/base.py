"""What a party has spent.

Every release is reserved before a row is read, and committed before it leaves.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from dpadmm.plain import Array
from dpadmm.privacy.events import Event


class Ledger(ABC):
    """The spending of one party on one data set, in the order reserve, commit, send."""

    @abstractmethod
    def reserve(self, t: int, event: Event) -> None:
        """Charge round ``t``, or refuse; called before a row is read. Repeating it is harmless."""

    @abstractmethod
    def commit(self, t: int, message: Array) -> None:
        """Store the message of a reserved round; called before it leaves the party."""

    @abstractmethod
    def committed(self, t: int) -> Array | None:
        """The stored message of round ``t``, if it was committed: it is sent again as it is."""

    @abstractmethod
    def resume(self, events: Sequence[Event], last: Array) -> None:
        """Agree with a checkpoint taken after these rounds, the last message being ``last``."""

    @property
    @abstractmethod
    def events(self) -> tuple[Event, ...]:
        """What this run was charged, in the order of its rounds."""


class MemoryLedger(Ledger):
    """Counts one run in memory: for simulations, which end with their process."""

    def __init__(self) -> None:
        self._events: dict[int, Event] = {}

    def reserve(self, t: int, event: Event) -> None:
        """Note the charge of round ``t``."""
        self._events[t] = event

    def commit(self, t: int, message: Array) -> None:
        """Check that the round was reserved; a simulation keeps no bytes."""
        if t not in self._events:
            raise RuntimeError(f"round {t} must be reserved before it is committed.")

    def committed(self, t: int) -> Array | None:
        """Nothing: a simulation resumes from its checkpoint instead."""
        return None

    def resume(self, events: Sequence[Event], last: Array) -> None:
        """Take up the rounds of the checkpoint."""
        self._events = dict(enumerate(events))

    @property
    def events(self) -> tuple[Event, ...]:
        """What this run was charged, in the order of its rounds."""
        return tuple(self._events[t] for t in sorted(self._events))
