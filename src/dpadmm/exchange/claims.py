"""Which process a neighbour's name belongs to, when two show its certificate.

A node draws an *instance* once and keeps it with its messages, so that it is the same after a
restart; everything it sends carries it. The first instance heard under a name has it for as long as
it lives. Another one is not heard and is told of. Only when the first has been gone for a while may
another take its place, and that is told of, too: it may be the same node without its messages.
Who came first is all that can be known about two that have the same key.
"""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

__all__ = ["Claims", "instance_hash"]

_INSTANCE: Final = re.compile(r"[0-9a-z]{1,64}")
_ADVICE: Final = "stop one of the two, and make sure that nobody else has the key of that name"


def instance_hash(instance: str) -> str:
    """What may be told of an instance to others: who knows it could pass for it."""
    return hashlib.sha256(instance.encode("ascii", "replace")).hexdigest()[:32]


class Claims:
    """Decides who is heard under which name; used by several threads.

    Parameters
    ----------
    neighbours
        Their names.
    grace
        Seconds for which a name stays with an instance that is gone.
    known
        Instances heard before this process was started, by name.
    on_claim
        Told of a name and the instance that has it now.
    on_event
        Told what happens, with public facts.
    """

    def __init__(
        self,
        neighbours: Iterable[str],
        grace: float,
        known: Mapping[str, str],
        *,
        on_claim: Callable[[str, str], None],
        on_event: Callable[..., None],
    ) -> None:
        self._lock = threading.Lock()
        self._grace = grace
        self._claim, self._tell = on_claim, on_event
        begin = time.monotonic()
        self._standing = dict(known)
        self._alive: dict[str, set[str]] = {name: set() for name in neighbours}
        self._gone_since = dict.fromkeys(self._alive, begin)
        self._refused: dict[str, int] = {}

    def present(self, name: str) -> bool:
        """Whether the process that has a name is connected."""
        with self._lock:
            return self._standing.get(name) in self._alive[name]

    def hears(self, name: str, instance: str) -> bool:
        """Whether what came from an instance is to be taken."""
        with self._lock:
            standing = self._standing.get(name)
            if instance == standing:
                return True
            taken = bool(_INSTANCE.fullmatch(instance)) and self._is_free(name)
            if taken:
                self._standing[name] = instance
            else:
                count = self._refused[name] = self._refused.get(name, 0) + 1
        if taken:
            self._claim(name, instance)
            if standing is not None:
                self._tell("neighbour-replaced", level="warning", neighbour=name, advice=_ADVICE)
        elif count & (count - 1) == 0:
            facts: dict[str, Any] = {"neighbour": name, "count": count, "advice": _ADVICE}
            self._tell("name-claimed-twice", level="error", **facts)
        return taken

    def comes(self, name: str, instance: str) -> None:
        """Take note that an instance is connected."""
        with self._lock:
            known = instance in self._alive[name]
            self._alive[name].add(instance)
        if self.hears(name, instance) and not known:
            self._tell("neighbour-here", neighbour=name)

    def goes(self, name: str, instance: str) -> None:
        """Take note that an instance is gone."""
        with self._lock:
            self._alive[name].discard(instance)
            lost = self._standing.get(name) == instance
            if lost:
                self._gone_since[name] = time.monotonic()
        if lost:
            self._tell("neighbour-gone", level="warning", neighbour=name)

    def told(self) -> dict[str, str]:
        """Who has which name now, by hashes."""
        with self._lock:
            return {
                name: instance_hash(instance)
                for name, instance in self._standing.items()
                if instance in self._alive[name]
            }

    def _is_free(self, name: str) -> bool:
        if name not in self._standing:
            return True
        gone = self._standing[name] not in self._alive[name]
        return gone and time.monotonic() - self._gone_since[name] >= self._grace
