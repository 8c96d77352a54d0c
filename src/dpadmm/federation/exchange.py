"""How a party exchanges a round: it remembers what it heard, and acts when a message is missing.

Before it draws noise it waits until its neighbours say that they heard no more of it than its
ledger has.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar, final

import numpy as np

from dpadmm.federation.node_config import WHEN_LOST
from dpadmm.federation.recovery import Departure, SomebodyLeft
from dpadmm.federation.transport.mailbox import NeighbourLost
from dpadmm.federation.transport.party_exchange import PeerExchange, SumRefused
from dpadmm.federation.transport.session import PeerSession
from dpadmm.federation.transport.store import DrawRefused
from dpadmm.federation.watcher import Watcher
from dpadmm.ledger.base import Ledger
from dpadmm.plain import Array
from dpadmm.privacy.events import Event
from dpadmm.privacy.mechanisms import Released
from dpadmm.run.engine import Exchange, RunEnded, tail_start
from dpadmm.run.plan import Plan

_MEAN: Final = "mean of all parties"
# How long a node that must not draw still answers, so that its neighbours learn why.
_GRACE: Final = 3.0
_Found = TypeVar("_Found")


@final
class CarefulLedger(Ledger):
    """A run's ledger that asks before a round is charged and drawn for the first time.

    Parameters
    ----------
    ledger
        The ledger.
    first
        The first round that was not replayed from a view before.

    Attributes
    ----------
    released
        How many rounds have a message that will not change.
    before_draw
        Called with the round; what it raises stops the draw, and nothing is charged.
    """

    def __init__(self, ledger: Ledger, first: int) -> None:
        self._ledger = ledger
        self.before_draw: Callable[[int], None] = lambda t: None
        self.released = first
        while ledger.committed(self.released) is not None:
            self.released += 1

    def reserve(self, t: int, event: Event) -> None:
        """Charge round ``t``, if it may be drawn."""
        if t >= self.released:
            self.before_draw(t)
        self._ledger.reserve(t, event)

    def commit(self, t: int, message: Array) -> None:
        """Store the message of a round."""
        self._ledger.commit(t, message)
        self.released = max(self.released, t + 1)

    def committed(self, t: int) -> Array | None:
        """The stored message of a round."""
        return self._ledger.committed(t)

    def resume(self, events: Sequence[Event], last: Array) -> None:
        """Agree with a checkpoint."""
        self._ledger.resume(events, last)

    @property
    def events(self) -> tuple[Event, ...]:
        """What the run was charged."""
        return self._ledger.events


@final
class HearingExchange(Exchange):
    """An exchange that remembers what was heard.

    On a graph a node hears its neighbours: its model is the mean of their messages and its own.
    Around a server it hears the mean of all, which is the model of every party. Where messages are
    not models, nobody uses what is remembered here.

    Parameters
    ----------
    exchange, session
        How messages travel, and over which connections.
    own, rounds, ledger
        This party's share of the plan, its rounds, and its ledger.
    when_lost, departure
        What to do about a neighbour that never returns, and how the others go on without it.
    watcher
        Gets the events.
    """

    def __init__(
        self,
        exchange: PeerExchange,
        session: PeerSession,
        own: Plan,
        rounds: int,
        ledger: CarefulLedger,
        when_lost: str,
        departure: Departure | None,
        watcher: Watcher,
    ) -> None:
        self._exchange = exchange
        self._session = session
        self._tail_start = tail_start(rounds)
        self._mean = own.algorithm.hears_mean(own.site)
        self._ledger = ledger
        ledger.before_draw = self.before_draw
        self._ready = False
        self._when_lost = when_lost
        self._departure = departure
        self._watcher = watcher
        names = [own.site.names[0], *exchange.source_names]
        #: Whether all parties share one model; and whose messages it is the mean of.
        self.one_model = self._mean or own.algorithm.hears_everybody
        self.names = (_MEAN,) if self.one_model else tuple(names)
        #: Rounds that are complete.
        self.done = 0
        #: Who was lost, if that ended the run.
        self.lost: str | None = None
        #: What was wrong with a sum, if that ended the run.
        self.refused_sum: str | None = None
        sources = 1 if self._mean else len(names)
        self.last = np.zeros((sources, *own.site.shape[1:]))
        self._sum = np.zeros_like(self.last)
        self._total = np.zeros_like(self.last)

    @property
    def tail(self) -> Array:
        """The mean of each over the last third of the rounds; before that, the last message."""
        count = self.done - self._tail_start
        return self._sum / count if count > 0 else self.last

    @property
    def mean(self) -> Array:
        """The mean of each over all rounds."""
        return self._total / max(1, self.done)

    def __call__(self, message: Released, t: int) -> Array:
        """Exchange round ``t`` and remember it."""
        inbox = self._patiently(lambda: self._exchange_round(message, t), t)
        self.last = inbox if self._mean else np.concatenate([message.values, inbox])
        self.done = t + 1
        self._total = self._total + self.last
        if t >= self._tail_start:
            self._sum = self._sum + self.last
        return inbox

    def cover(self, message: Released, t: int) -> Released:
        """Turn what was computed into what is committed and sent."""
        return self._exchange.cover(message, t)

    def before_draw(self, t: int) -> None:
        """Wait until all neighbours heard no round beyond this node's ledger; or end the run."""
        if self._departure is not None and self._departure.lost:
            self._leave(self._departure.lost, t)
            raise RunEnded
        if not self._ready:
            self._patiently(self._exchange.mailbox.confirm, t)
            self._patiently(lambda: self._exchange.open(t), t)
            self._ready = True

    def _exchange_round(self, message: Released, t: int) -> Array:
        complete = t < self._exchange.complete_rounds
        if self._departure is not None and self._departure.lost and not complete:
            self._exchange.offer(message, t)
            raise SomebodyLeft(self._departure.lost)
        return self._exchange(message, t)

    def _patiently(self, action: Callable[[], _Found], t: int) -> _Found:
        """Do what needs the neighbours; keep waiting for one that is connected."""
        while True:
            try:
                return action()
            except NeighbourLost as error:
                if self._session.present(error.name) and not error.ended:
                    continue
                if self._when_lost == "stop" and t == 0:
                    raise
                self._leave(error.name, t)
                raise RunEnded from error
            except DrawRefused as error:
                self._watcher.event("draw-refused", level="error", error=error)
                time.sleep(_GRACE)
                raise
            except SomebodyLeft as error:
                self._leave(error.name, t)
                raise RunEnded from error
            except SumRefused as error:
                self.refused_sum = str(error)
                self._watcher.event("sum-refused", level="error", round=t, error=error)
                raise RunEnded from error

    def _leave(self, name: str, t: int) -> None:
        """End here; where the others go on, tell them how far this node is."""
        self.lost = name
        if self._departure is not None:
            self._departure.freeze(name, self._ledger.released, self.done)
        if name == self._session.name:
            return
        self._watcher.event(
            "neighbour-lost",
            level="error",
            neighbour=name,
            round=t,
            choice=self._when_lost,
            consequence=WHEN_LOST[self._when_lost],
        )

    def count_bytes(self) -> None:
        """Report the bytes sent and received since the last time."""
        self._watcher.bytes(*self._exchange.mailbox.take_counts())
