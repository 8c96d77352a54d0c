"""Messages between peers over Eclipse Zenoh (extra ``federation``): no server, no broker.

A party publishes its message and hands past rounds out again on request, so that one who came late
or missed something asks for it. See :mod:`~dpadmm.exchange.peer_session` for who may connect and
:mod:`~dpadmm.exchange.mailbox` for what is let in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

from dpadmm.arrays import Site
from dpadmm.exchange.base import OneParty
from dpadmm.exchange.mailbox import Mailbox
from dpadmm.exchange.message_store import MemoryStore, MessageStore
from dpadmm.exchange.peer_session import PeerSession

__all__ = ["PeerExchange"]


@final
class PeerExchange(OneParty):
    """The exchange of one party over its connections.

    Parameters
    ----------
    session
        The connections of this party's node.
    site, run
        As in :class:`~dpadmm.exchange.base.OneParty`.
    names
        Of all parties, in their order.
    averager
        Name of the node without rows that averages, if there is one.
    store
        Where complete rounds are kept: a run goes on where its store ends.
    **options
        ``patience``, ``on_refused``, ``on_waiting``, ``on_pause`` and ``on_event`` of the mailbox.
    """

    def __init__(
        self,
        session: PeerSession,
        site: Site,
        run: bytes,
        names: Sequence[str],
        *,
        averager: str | None = None,
        store: MessageStore | None = None,
        **options: Any,
    ) -> None:
        super().__init__(site, run, averager=averager is not None)
        everybody = [*names, averager]
        sources = {str(everybody[party]): party for party in self.sources}
        #: Names of the sources, in their order.
        self.source_names = tuple(sources)
        self.mailbox = Mailbox(
            session, run, self.party, sources, self._shape, store or MemoryStore(), **options
        )

    def send(self, t: int, data: bytes) -> None:
        """Publish the message, and keep it for those who missed it."""
        self.mailbox.send(t, data)

    def receive(self, party: int, t: int) -> bytes:
        """Wait for the message of one source."""
        return self.mailbox.receive(party, t)

    def keep(self, t: int, messages: dict[int, bytes]) -> None:
        """Keep a complete round before it is used."""
        self.mailbox.keep(t, messages)

    def close(self) -> None:
        """Leave when the sources have all they need, or after a while."""
        self.mailbox.finish(10.0)
