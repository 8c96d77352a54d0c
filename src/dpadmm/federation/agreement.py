"""Agreement before training: every node compares what it was told with what its neighbours were.

A node publishes its public facts and the consents that it has: its own, and those of others that
its neighbours handed on, each signed by the node whose it is (:mod:`~dpadmm.federation.consent`).
It starts when it has everybody's, so that nobody spends anything on a run that somebody else,
however far away, understands differently or does not know of. A difference is named, item by item.
Nothing that a neighbour says changes what this node does beyond waiting or refusing: it runs its
own copy of the agreed run, within its owner's policy, or nothing.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

from dpadmm.errors import ExchangeError
from dpadmm.federation.consent import Consents
from dpadmm.federation.transport.claims import instance_hash
from dpadmm.federation.transport.session import PeerSession
from dpadmm.federation.transport.wire import BadMessage
from dpadmm.federation.transport.words import (
    Agreeing,
    Consent,
    Limits,
    Utterance,
    agreement_limit,
    noted,
    said,
)
from dpadmm.plain import visible
from dpadmm.version import __version__

__all__ = [
    "Agreement",
    "Disagreement",
    "consents_note",
    "differences",
    "disagreement",
    "noted_consents",
]

AGREEMENT_TOPIC: Final = "agreement"
_FACTS: Final = "facts"
_MOST_SHOWN: Final = 5
_MOST_COUNTED: Final = 1000
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


def disagreement(name: str, ours: Any, theirs: Agreeing) -> str:
    """The sentence about what another node was told otherwise; empty where all is the same."""
    found = list(islice(differences(ours, theirs.facts), _MOST_COUNTED))
    if not found:
        return ""
    shown = "; ".join(
        f"{visible(place)} is {_shown(here)} here and {_shown(there)} there"
        for place, here, there in found[:_MOST_SHOWN]
    )
    more = len(found) - _MOST_SHOWN
    shown += f"; and {more} more" if more > 0 else ""
    if theirs.dpadmm != __version__:
        shown += f" (it runs dpadmm {theirs.dpadmm}, this node {__version__})"
    return (
        f"the run must be the same at every node; {name} differs: {shown}. Nothing was started or "
        "spent."
    )


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
    consents
        Signs for this node, and checks what others signed.
    before
        Everybody's consents, if it was agreed before: this node goes on.
    on_refused
        Told of what a neighbour should not have sent: whose, a word for why, and the sentence.
    """

    def __init__(
        self,
        session: PeerSession,
        facts: Mapping[str, Any],
        nodes: tuple[str, ...],
        consents: Consents,
        *,
        before: Mapping[str, Consent] | None = None,
        on_refused: Callable[[str, str, ExchangeError], None] = lambda name, reason, error: None,
    ) -> None:
        self._session = session
        # As it looks on the wire, so that like is compared with like.
        self._facts: Any = json.loads(json.dumps(dict(facts)))
        self._nodes = set(nodes)
        self._limits = Limits(frozenset(nodes))
        self._longest = agreement_limit(len(nodes))
        # About as long as what others answer.
        self._said = len(json.dumps(self._facts))
        self._consents = consents
        self._tell_refused = on_refused
        self._lock = threading.Lock()
        self._agreed = dict(before or {}) | {session.name: consents.own()}
        self._heard: set[str] = set()
        self._fault = ""
        self._reached = before is not None
        session.serve(AGREEMENT_TOPIC, self._answer)

    def reach(self, timeout: float) -> dict[str, Consent]:
        """Wait until everybody agrees; return all consents.

        Raises
        ------
        Disagreement
            If somebody does not, or not in time; nothing was started here.
        """
        deadline, pause = time.monotonic() + timeout, _FIRST_PAUSE
        while True:
            for neighbour in self._session.neighbours:
                self._session.ask(
                    AGREEMENT_TOPIC,
                    neighbour,
                    _FACTS,
                    self._take,
                    timeout=2.0,
                    longest=self._said,
                )
            time.sleep(pause)
            pause = min(1.5 * pause, _LONGEST_PAUSE)
            with self._lock:
                fault = self._fault
                missing = self._nodes - set(self._agreed)
                unheard = set(self._session.neighbours) - self._heard
            if fault:
                time.sleep(_GRACE)
                raise Disagreement(fault)
            if not missing and not unheard:
                # Whatever is said from now on changes nothing, nor what others are told.
                with self._lock:
                    self._reached = True
                    return dict(self._agreed)
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
            agreed = {} if self._fault and not self._reached else dict(self._agreed)
        content = Agreeing(
            dpadmm=__version__,
            facts=self._facts,
            consents=agreed,
            names=self._session.claims.told(),
        )
        return content.to_bytes()

    def _take(self, name: str, label: str, data: bytes) -> None:
        if self._reached:
            return
        try:
            theirs = said(Agreeing, data, name, self._limits, longest=self._longest)
        except BadMessage as error:
            self._tell_refused(name, error.reason, error)
            with self._lock:
                self._fault = self._fault or str(error)
            return
        differs = disagreement(name, self._facts, theirs)
        good = {} if differs else self._checked(name, theirs.consents)
        with self._lock:
            taken = theirs.names.get(self._session.name)
            if taken not in (None, instance_hash(self._session.instance)):
                self._fault = (
                    f"the name {self._session.name!r} must be one node's; {name} hears another "
                    "under it. Stop one of the two, and make sure that nobody else has its key. "
                    "Nothing was started here."
                )
            elif differs:
                self._fault = differs
            else:
                self._heard.add(name)
                for node, consent in good.items():
                    self._agreed.setdefault(node, consent)

    def _checked(self, name: str, consents: Mapping[str, Consent]) -> dict[str, Consent]:
        """Those that were not known and hold; of others it is told who handed them on."""
        with self._lock:
            new = {node: item for node, item in consents.items() if node not in self._agreed}
        for node, consent in list(new.items()):
            fault = self._consents.fault(node, consent)
            if fault:
                del new[node]
                sentence = f"{name} must hand on what {node} signed; {fault}: not counted."
                self._tell_refused(name, "bad-consent", ExchangeError(sentence))
        return new


class _Noted(Utterance):
    consents: dict[str, Consent]


def consents_note(consents: Mapping[str, Consent]) -> str:
    """What to note about an agreement."""
    return _Noted(consents=dict(consents)).to_bytes().decode("ascii")


def noted_consents(
    note: str | None, nodes: tuple[str, ...], *, signed: bool
) -> dict[str, Consent] | None:
    """The consents of an agreement that was reached before; None where it is to be reached anew."""
    if note is None:
        return None
    try:
        consents = noted(_Noted, note, "the agreement").consents
    except ExchangeError:
        return None
    whole = set(consents) == set(nodes) and all(
        bool(consent.signature) == signed for consent in consents.values()
    )
    return consents if whole else None


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."
