r"""A sum that travels along a tree: up from child to parent, and down again as it is.

Nodes of one connected graph agree on a spanning tree (:class:`~dpadmm.problem.site.SpanningTree`),
which follows from the names in force and their links. In a round each node waits for its children,
adds its own message to theirs and tells its parent; the root has the sum of all and tells it to its
children, who hand it on unchanged:

.. math:: u_i = w_i + \sum_{c\,\text{child of}\,i} u_c \pmod{2^{64}}, \qquad
    u_\mathrm{root} = \sum_i w_i

*Masked vectors* are added modulo :math:`2^{64}`. Masks belong to pairs of parties, whatever links
there are: whoever sees what travels knows at most all vectors by themselves, which is what a server
sees. *Messages with noise of their own* are handed on one by one, in the order of the parties, so
that the root computes the mean as a server does, to the last bit; everybody may see them.

A node keeps what it tells its parent before it leaves, and tells the same bytes again: also after a
restart, and if a child that lies has told it something else by then. The root keeps a sum before it
tells it. Everything else is as in any mailbox (:mod:`~dpadmm.federation.transport.mailbox`): keys
are handed on as they were signed, and a neighbour's memory of how far a ledger was counts rounds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final, final

import numpy as np

from dpadmm.federation.transport.mailbox import KEYS, MESSAGE, Mailbox, NeighbourLost
from dpadmm.federation.transport.session import PeerSession
from dpadmm.federation.transport.store import MessageStore
from dpadmm.federation.transport.wire import encode_message
from dpadmm.problem.site import SpanningTree

_SUM: Final = "sum-"
_RISING: Final = b"rising"


def rising_run(run: bytes) -> bytes:
    """Under which run a store has what a node told its parent."""
    return hashlib.sha256(run + _RISING).digest()


@final
class TreeMailbox(Mailbox):
    """What one node says and hears along the tree of one view.

    Parameters
    ----------
    session, run, number, shape, store
        As in :class:`~dpadmm.federation.transport.mailbox.Mailbox`.
    names, tree
        Of all parties, in their order, and how sums travel between them.
    **options
        As in :class:`~dpadmm.federation.transport.mailbox.Mailbox`; without ``ring`` parties have
        noise of their own.
    """

    def __init__(
        self,
        session: PeerSession,
        run: bytes,
        number: int,
        names: Sequence[str],
        tree: SpanningTree,
        shape: tuple[int, ...],
        store: MessageStore,
        **options: Any,
    ) -> None:
        #: What a sum is numbered, as that of a server is.
        self._top = len(names)
        self._tree, self._children = tree, tree.children(number)
        parent = tree.parent(number)
        above = {} if parent is None else {names[parent]: self._top}
        below = {names[child]: child for child in self._children}
        self._is_root = parent is None
        super().__init__(session, run, number, {**above, **below}, shape, store, **options)
        self._compared = {names[tree.root]: self._top}
        self._rising = rising_run(run)
        # What was told in the round under way.
        self._up: dict[int, bytes] = {}
        self._down: dict[int, bytes] = {}
        self._up_topic, self._down_topic = f"{self._topic}-up", f"{self._topic}-down"
        session.hear(self._up_topic, self._take, names=below)
        session.hear(self._down_topic, self._take, names=above)

    # -- keys --------------------------------------------------------------------------------

    def gather(self, t: int) -> None:
        """Wait until every party's key is here, handing on what comes meanwhile."""
        ring, timeout = self._ring, self._patience.timeout
        assert ring is not None
        told, turn = -1, 0
        names = list(self._sources)
        while told < len(ring.members):
            known = len(ring.keys)
            if known > told:
                told = known
                self._session.publish(self._topic, KEYS, ring.to_bytes())
                continue
            name = names[turn % len(names)]
            turn += 1

            def settled(name: str = name, told: int = told) -> bool:
                ended = timeout is not None and name in self._done
                return len(ring.keys) > told or ended

            try:
                self._wait(name, KEYS, settled, timeout, lost_round=t)
            except NeighbourLost as error:
                # It may be another neighbour that brings nothing.
                patient = self._session.present(name) and not error.ended
                if not patient or turn % len(names) == 0:
                    raise
            if len(ring.keys) == told and name in self._done:
                raise NeighbourLost(name, t, lost=self._lost_by(name))

    def _ask_again(self, name: str, label: str) -> None:
        for each in self._sources if label == KEYS else (name,):
            super()._ask_again(each, label)

    # -- messages of a round -----------------------------------------------------------------

    def send(self, t: int, data: bytes) -> None:
        """Take this node's message; it travels once those of its children are here."""
        with self._news:
            self._own = {t: data}
            if not self._children:
                self._up = {t: data}
            self._own_rounds.add(t, data)

    def receive(self, number: int, t: int) -> bytes:
        """Bring this node's part of the tree to its parent, and the sum of all back."""
        if t < self._round or number != self._top:
            return super().receive(number, t)
        up = self._raised(t)
        if self._is_root:
            total = self._added(self._values(self._number, up, t), last=True)
            down = encode_message(self._run, self._top, t, total)
            # Kept before it is told: a restarted root tells the same.
            self.keep(t, {self._number: self.own(t), self._top: down})
        else:
            with self._news:
                self._up = {t: up}
            self._publish(self._up_topic, up)
            down = super().receive(self._top, t)
        with self._news:
            self._down = {t: down}
        self._publish(self._down_topic, down)
        return down

    def _publish(self, topic: str, data: bytes) -> None:
        self._session.publish(topic, MESSAGE, data)
        self._sent += len(data)

    def _raised(self, t: int) -> bytes:
        """The message of this node with all below it, as its parent is told; durable."""
        stored = self._store.messages(self._rising, t).get(self._number)
        if stored is not None:
            return stored
        own = self.own(t)
        if not self._children:
            return own
        found = {child: super(TreeMailbox, self).receive(child, t) for child in self._children}
        values = [self._decode(own, **self._due(self._number, t, self._shape))]
        values += [self._values(child, data, t) for child, data in found.items()]
        places = [self._number, *(each for child in found for each in self._sent_by(child))]
        rising = self._added(np.concatenate(values)[np.argsort(places)])
        up = encode_message(self._run, self._number, t, rising)
        if not self._is_root:
            self._store.keep(self._rising, t, {self._number: up})
        return up

    def _due(self, number: int, t: int, shape: tuple[int, ...]) -> dict[str, Any]:
        return {"run": self._run, "party": number, "t": t, "shape": shape}

    def _values(self, number: int, data: bytes, t: int) -> Any:
        """What a node told of its part of the tree."""
        return self._decode(data, **self._due(number, t, self._part_shape(number)))

    def _added(self, values: Any, *, last: bool = False) -> Any:
        """Masked vectors added up; others as they are, and at last their mean."""
        if self._ring is not None:
            return np.add.reduce(values, axis=0, dtype=np.uint64, keepdims=True)
        return values[:, None].mean(axis=0) if last else values

    def _sent_by(self, number: int) -> list[int]:
        """Whose messages a node tells, one by one; a sum is its own."""
        return [number] if self._ring is not None else self._tree.part(number)

    def _part_shape(self, number: int) -> tuple[int, ...]:
        return (len(self._sent_by(number)), *self._shape[1:])

    def _shape_of(self, number: int) -> tuple[int, ...]:
        return self._shape if number == self._top else self._part_shape(number)

    def _label(self, number: int, t: int) -> str:
        return f"{_SUM}{t}" if number == self._top else str(t)

    def _ended_before(self, name: str, t: int) -> bool:
        # Whoever ended has told the sum of its last complete round, and tells no further one.
        return t >= self._done.get(name, t + 1)

    def _hash_of(self, number: int, kept: int) -> str:
        # What children and parents tell is not their own message.
        return ""

    def _answer(self, label: str) -> bytes | None:
        if label.startswith(_SUM):
            t = self._round_of(label.removeprefix(_SUM))
            known, run, number = self._down, self._run, self._top
        else:
            t = self._round_of(label)
            known, run, number = self._up, self._rising, self._number
            if not self._children:
                run = self._run
        if t is None:
            return super()._answer(label)
        with self._news:
            data = known.get(t)
        return self._store.messages(run, t).get(number) if data is None else data
