"""The public keys of one stretch, as their owners signed them; handed on unchanged.

A party believes a key only after it has checked who signed it. A server adds up and has nothing to
check: it hands on what it has, and takes each key from its owner alone, so that nobody can put a
bad one in the place of another's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import final

from dpadmm.federation.transport.words import (
    Announcing,
    Limits,
    StretchKey,
    agreement_limit,
    noted,
    said,
)


@final
class KeyRing:
    """The keys that a node has; used by several threads.

    Parameters
    ----------
    members
        Whose keys there are to be, in their order.
    fault
        What is wrong with a key of a member, in a few words; nothing if it holds. None where keys
        are only handed on.
    """

    def __init__(
        self, members: Sequence[str], fault: Callable[[str, StretchKey], str] | None = None
    ) -> None:
        self.members = tuple(members)
        self._fault = fault
        self._limits = Limits(frozenset(members))
        self._longest = agreement_limit(len(members))
        self._lock = threading.Lock()
        self._keys: dict[str, StretchKey] = {}

    def __contains__(self, name: str) -> bool:
        with self._lock:
            return name in self._keys

    @property
    def complete(self) -> bool:
        """Whether every member's key is there."""
        with self._lock:
            return len(self._keys) == len(self.members)

    def brought(self, source: str) -> bool:
        """Whether nothing is to be had of a neighbour: its own key is there, or everybody's."""
        return self.complete or source in self

    @property
    def keys(self) -> dict[str, StretchKey]:
        """The keys by name."""
        with self._lock:
            return dict(self._keys)

    def add(self, name: str, key: StretchKey) -> None:
        """Take the key of this node itself."""
        with self._lock:
            self._keys[name] = key

    def to_bytes(self) -> bytes:
        """All keys that are there, as they are said and noted."""
        return Announcing(keys=self.keys).to_bytes()

    def restore(self, note: str) -> None:
        """Take the keys of this stretch as they were noted before a restart."""
        found = noted(Announcing, note, "the keys of a stretch", self._limits)
        with self._lock:
            self._keys = dict(found.keys)

    def take(self, sender: str, data: bytes) -> list[str]:
        """Take what a neighbour hands on; return what is wrong with it, a sentence for each key."""
        content = said(Announcing, data, sender, self._limits, longest=self._longest)
        wrong = []
        for name, key in content.keys.items():
            if self._fault is None and name != sender:
                continue
            with self._lock:
                known = self._keys.get(name)
            if known is not None:
                # Whoever hands a signature on can change its form, but not what was signed.
                if known.public_key != key.public_key:
                    wrong.append(
                        f"{sender} must hand on one key of {name} for a stretch; it has two: the "
                        "first one stands."
                    )
                continue
            fault = "" if self._fault is None else self._fault(name, key)
            if fault:
                wrong.append(f"{sender} must hand on what {name} signed; {fault}: not counted.")
                continue
            with self._lock:
                self._keys.setdefault(name, key)
        return wrong
