"""What a node makes of the messages it hears: its model, and what to do when one does not come."""

from __future__ import annotations

from typing import Final, final

import numpy as np

from dpadmm.arrays import Array
from dpadmm.exchange.base import Exchange, RunEnded
from dpadmm.exchange.mailbox import NeighbourLost
from dpadmm.exchange.peer_session import PeerSession
from dpadmm.exchange.peers import PeerExchange
from dpadmm.federation.departure import Departure, SomebodyLeft
from dpadmm.federation.node_config import WHEN_LOST
from dpadmm.federation.watching import Watcher
from dpadmm.privacy.mechanisms import Released
from dpadmm.training import Plan

__all__ = ["Listening"]

_MEAN: Final = "mean of all parties"


@final
class Listening(Exchange):
    """An exchange that remembers what was heard.

    On a graph a node hears its neighbours: its model is the mean of their messages and its own.
    Around a server it hears the mean of all, which is the model of every party.

    Parameters
    ----------
    exchange, session
        How messages travel, and over which connections.
    own, rounds
        This party's share of the plan, and its rounds.
    when_lost, departure
        What to do about a neighbour that never returns, and how the others go on without.
    watcher
        Told about it.
    """

    def __init__(
        self,
        exchange: PeerExchange,
        session: PeerSession,
        own: Plan,
        rounds: int,
        when_lost: str,
        departure: Departure | None,
        watcher: Watcher,
    ) -> None:
        self._exchange = exchange
        self._session = session
        self._tail_start = rounds - max(1, rounds // 3)
        self._server = own.site.topology.server
        self._when_lost = when_lost
        self._departure = departure
        self._watcher = watcher
        names = [own.site.names[0], *exchange.source_names]
        #: Whose messages the model is the mean of.
        self.names = (_MEAN,) if self._server else tuple(names)
        #: Rounds that are complete.
        self.done = 0
        #: Who was lost, if the run ended for it.
        self.lost: str | None = None
        self.last = np.zeros((len(self.names), *own.site.shape[1:]))
        self._sum = np.zeros_like(self.last)
        self._total = np.zeros_like(self.last)

    @property
    def tail(self) -> Array:
        """The mean of each over the last third of the rounds; the last where that has not begun."""
        count = self.done - self._tail_start
        return self._sum / count if count > 0 else self.last

    @property
    def mean(self) -> Array:
        """The mean of each over all rounds."""
        return self._total / max(1, self.done)

    def __call__(self, message: Released, t: int) -> Array:
        """Exchange round ``t`` and remember it."""
        inbox = self._try(message, t)
        while inbox is None:
            inbox = self._try(message, t)
        self.last = inbox if self._server else np.concatenate([message.values, inbox])
        self.done = t + 1
        self._total = self._total + self.last
        if t >= self._tail_start:
            self._sum = self._sum + self.last
        return inbox

    def _try(self, message: Released, t: int) -> Array | None:
        """Exchange a round; None to wait on, for one that is there but waits itself."""
        try:
            complete = t < self._exchange.mailbox.rounds
            if self._departure is not None and self._departure.lost and not complete:
                raise SomebodyLeft(self._departure.lost)
            return self._exchange(message, t)
        except NeighbourLost as error:
            if self._session.present(error.name) and not error.ended:
                return None
            if self._when_lost == "stop" and t == 0:
                raise
            self._leave(error.name, t)
            raise RunEnded from error
        except SomebodyLeft as error:
            self._leave(error.name, t)
            raise RunEnded from error

    def _leave(self, name: str, t: int) -> None:
        """End here; where the others go on, tell them how far this node is."""
        self.lost = name
        if self._departure is not None and name != self._session.name:
            self._departure.freeze(name, t + 1)
        self._watcher.event(
            "neighbour-lost",
            level="error",
            neighbour=name,
            round=t,
            choice=self._when_lost,
            consequence=WHEN_LOST[self._when_lost],
        )

    def count_bytes(self) -> None:
        """Tell how much was sent and received since the last time."""
        self._watcher.bytes(*self._exchange.mailbox.take_counts())
