"""Agreement before training: every node compares what it was told with what its neighbours were.

A node publishes its public facts and whom it knows to agree: itself, and whoever its agreeing
neighbours know to. It starts when that is everybody, so that nobody spends anything on a run that
somebody else, however far away, understands differently or has refused. A difference is named, item
by item. Nothing that a neighbour says changes what this node does beyond waiting or refusing: it
runs its own copy of the agreed run, within its owner's policy, or nothing.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from dpadmm.errors import ExchangeError
from dpadmm.exchange.claims import instance_hash
from dpadmm.exchange.peer_session import PeerSession

__all__ = ["Agreement", "Disagreement", "differences"]

TOPIC: Final = "agreement"
_FACTS: Final = "facts"
_LONGEST: Final = 1 << 20
_MOST_SHOWN: Final = 5
# Between two questions: short at first, then longer.
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.0
# How long a node that refuses still answers, so that its neighbours learn why.
_GRACE: Final = 2.0
_ABSENT: Final = "nothing"


class Disagreement(ExchangeError):
    """Nodes that were told different things; nothing was started."""


def differences(ours: Any, theirs: Any, place: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Where two pieces of plain data differ: the place, our value and theirs."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in sorted(set(ours) | set(theirs), key=str):
            inside = f"{place}.{key}" if place else str(key)
            yield from differences(ours.get(key, _ABSENT), theirs.get(key, _ABSENT), inside)
    elif isinstance(ours, list) and isinstance(theirs, list):
        if len(ours) != len(theirs) and not any(isinstance(item, dict) for item in ours):
            yield place, ours, theirs
            return
        for number in range(max(len(ours), len(theirs))):
            first, second = (
                side[number] if number < len(side) else _ABSENT for side in (ours, theirs)
            )
            yield from differences(first, second, f"{place}.{number + 1}")
    elif type(ours) is not type(theirs) or ours != theirs:
        yield place, ours, theirs


class Agreement:
    """What this node was told, against what its neighbours were.

    Parameters
    ----------
    session
        Its connections.
    facts
        What must be the same everywhere; plain data.
    nodes
        All nodes of the run.
    agreed
        It was agreed before: this node goes on.
    """

    def __init__(
        self,
        session: PeerSession,
        facts: Mapping[str, Any],
        nodes: tuple[str, ...],
        *,
        agreed: bool = False,
    ) -> None:
        self._session = session
        # As it looks on the wire, so that like is compared with like.
        self._facts: Any = json.loads(json.dumps(dict(facts)))
        self._nodes = set(nodes)
        self._lock = threading.Lock()
        self._agreed = set(nodes) if agreed else {session.name}
        self._heard: set[str] = set()
        self._fault = ""
        session.serve(TOPIC, self._answer)

    def reach(self, timeout: float) -> None:
        """Wait until everybody agrees.

        Raises
        ------
        Disagreement
            If somebody does not, or not in time; nothing was started here.
        """
        deadline, pause = time.monotonic() + timeout, _FIRST_PAUSE
        while True:
            for neighbour in self._session.neighbours:
                self._session.ask(TOPIC, neighbour, _FACTS, self._take, timeout=2.0)
            time.sleep(pause)
            pause = min(1.5 * pause, _LONGEST_PAUSE)
            with self._lock:
                fault = self._fault
                missing = self._nodes - self._agreed
                unheard = set(self._session.neighbours) - self._heard
            if fault:
                time.sleep(_GRACE)
                raise Disagreement(fault)
            if not missing and not unheard:
                return
            if time.monotonic() > deadline:
                raise Disagreement(
                    f"all nodes must agree on the run within {timeout:g} s; not heard of: "
                    f"{', '.join(sorted(missing | unheard))}. Nothing was spent. Check that they "
                    "run and can be reached."
                )

    def _answer(self, label: str) -> bytes | None:
        if label != _FACTS:
            return None
        with self._lock:
            content = {
                "facts": self._facts,
                "agreed": sorted(self._agreed) if not self._fault else [],
                "names": self._session.claims.told(),
            }
        return json.dumps(content).encode("ascii")

    def _take(self, name: str, label: str, data: bytes) -> None:
        try:
            if len(data) > _LONGEST:
                raise ValueError
            content = json.loads(data)
            theirs, agreed = content["facts"], content["agreed"]
            taken = dict(content["names"]).get(self._session.name)
            if not all(isinstance(other, str) for other in agreed):
                raise ValueError
        except (ValueError, TypeError, KeyError, RecursionError):
            with self._lock:
                self._fault = self._fault or f"{name} must send its facts as JSON; it sent garbage."
            return
        found = list(differences(self._facts, theirs))
        with self._lock:
            if taken not in (None, instance_hash(self._session.instance)):
                self._fault = (
                    f"the name {self._session.name!r} must be one node's; {name} hears another "
                    "under it. Stop one of the two, and make sure that nobody else has its key. "
                    "Nothing was started here."
                )
            elif found:
                shown = "; ".join(
                    f"{place} is {_shown(ours)} here and {_shown(other)} there"
                    for place, ours, other in found[:_MOST_SHOWN]
                )
                more = len(found) - _MOST_SHOWN
                shown += f"; and {more} more" if more > 0 else ""
                self._fault = (
                    f"the run must be the same at every node; {name} differs: {shown}. Nothing was "
                    "started or spent."
                )
            else:
                self._heard.add(name)
                self._agreed |= self._nodes & set(agreed)


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."
