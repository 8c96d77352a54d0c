"""Which process a neighbour's name belongs to, when two show its certificate.

A node draws an *instance* once and keeps it with its messages, so that it is the same after a
restart; everything it sends carries it. The first instance heard under a name has it for as long as
it lives. Another one is not heard and is told of. Only when the first has been gone for a while may
another take its place, and that is told of, too: it may be the same node without its messages.
Who came first is all that can be known about two that have the same key.

A copy of a node, such as a restored machine, has its instance, too. So every process draws a
*start* besides, and says ``instance.start``. A new start is heard once the one before is gone,
which for a killed process is at once. Two that stay alive together for longer than a dead
connection can seem alive are two processes of one node: neither is heard any more, and both are
told, since each would draw noise of its own for the same rounds.
"""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

_SAID: Final = re.compile(r"([0-9a-z]{1,64})(?:\.[0-9a-z]{1,64})?")
# Who declares ever more processes must not fill the memory: they are not heard anyway.
_MOST_PROCESSES: Final = 100
# A connection that broke without a word seems alive for one lease.
_LEASES: Final = 2
_ADVICE: Final = "stop one of the two, and make sure that nobody else has the key of that name"
_TWICE: Final = (
    "neither is heard any more; its owner must stop both and start the one with the newest ledger"
)


def instance_hash(instance: str) -> str:
    """What may be told of an instance or a start to others: who knows it could pass for it."""
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
        # Which start is heard; since when there are two; those that are heard no more.
        self._current: dict[str, str] = {}
        self._two_since: dict[str, float] = {}
        self._stopped: dict[str, set[str]] = {name: set() for name in self._alive}

    def present(self, name: str) -> bool:
        """Whether the process that has a name is connected, and is the only one."""
        self._judge(name)
        with self._lock:
            current = self._current.get(name)
            return current in self._alive[name] and current not in self._stopped[name]

    def absent(self, name: str) -> float:
        """For how many seconds the process that has a name has been gone; 0 if it is there."""
        if self.present(name):
            return 0.0
        with self._lock:
            return time.monotonic() - self._gone_since[name]

    def current(self, name: str) -> str:
        """Which process is heard under a name; empty while there is none."""
        with self._lock:
            return self._current.get(name, "")

    def is_current(self, name: str, said: str) -> bool:
        """Whether a process is the one that has a name, alive and alone; decides nothing."""
        with self._lock:
            known = said in self._alive[name] and said not in self._stopped[name]
            return known and self._current.get(name) == said

    def hears(self, name: str, said: str) -> bool:
        """Whether what came from a process is to be taken."""
        self._judge(name)
        found = _SAID.fullmatch(said)
        instance = found[1] if found else ""
        with self._lock:
            standing = self._standing.get(name)
            if found and instance == standing:
                return self._hears_start(name, said)
            taken = bool(found) and self._is_free(name)
            if taken:
                self._standing[name], self._current[name] = instance, said
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

    def comes(self, name: str, said: str) -> None:
        """Take note that a process is connected."""
        with self._lock:
            known = said in self._alive[name]
            room = len(self._alive[name]) < _MOST_PROCESSES or said == self._current.get(name)
            if room and _SAID.fullmatch(said):
                self._alive[name].add(said)
        if self.hears(name, said) and not known:
            self._tell("neighbour-here", neighbour=name)

    def goes(self, name: str, said: str, *, expected: bool = False) -> None:
        """Take note that a process is gone; nobody is warned of one that said that it ended."""
        self._judge(name)
        with self._lock:
            self._alive[name].discard(said)
            left = self._of_standing(name)
            if len(left) < 2:
                self._two_since.pop(name, None)
            lost = self._current.get(name) == said
            if lost:
                self._gone_since[name] = time.monotonic()
                self._current[name] = min(left - self._stopped[name], default=said)
        if lost:
            level = "info" if expected else "warning"
            self._tell("neighbour-gone", level=level, neighbour=name)

    def told(self) -> dict[str, str]:
        """Who has which name now, by hashes of instances."""
        with self._lock:
            return {
                name: instance_hash(instance)
                for name, instance in self._standing.items()
                if self._of_standing(name)
            }

    def starts(self) -> tuple[dict[str, str], list[str]]:
        """Which process is heard under which name, and which are heard no more, by hashes."""
        for name in self._alive:
            self._judge(name)
        with self._lock:
            heard = {
                name: instance_hash(said)
                for name, said in self._current.items()
                if said in self._alive[name] and said not in self._stopped[name]
            }
            stopped = {said for those in self._stopped.values() for said in those}
        return heard, sorted(map(instance_hash, stopped))

    def _hears_start(self, name: str, said: str) -> bool:
        """Whether a process of the instance that has the name is the one to be heard."""
        if said in self._stopped[name]:
            return False
        current = self._current.get(name)
        if current != said and current is not None and current in self._alive[name]:
            return False
        self._current[name] = said
        return True

    def _judge(self, name: str) -> None:
        """Hear neither of two processes of one instance, once both are surely alive."""
        with self._lock:
            living, now = self._of_standing(name), time.monotonic()
            if len(living) < 2:
                return
            if now - self._two_since.setdefault(name, now) < _LEASES * self._grace:
                return
            new = living - self._stopped[name]
            if new:
                self._gone_since[name] = now
            self._stopped[name] |= new
        if new:
            self._tell("neighbour-runs-twice", level="error", neighbour=name, advice=_TWICE)

    def _of_standing(self, name: str) -> set[str]:
        """The living processes of the instance that has a name."""
        standing = self._standing.get(name)
        return {said for said in self._alive[name] if said.partition(".")[0] == standing}

    def _is_free(self, name: str) -> bool:
        if name not in self._standing:
            return True
        gone = not self._of_standing(name)
        return gone and time.monotonic() - self._gone_since[name] >= self._grace
