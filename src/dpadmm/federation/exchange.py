r"""How one party exchanges a round: through a folder, or with the peers of its node.

:class:`OneParty` is the exchange of a process that computes one party. :class:`PeerExchange` sends
over the connections of a node. :class:`HearingExchange` is what a node trains with: it remembers
what it heard, and acts when a message is missing. Before a party draws noise it waits until its
neighbours say that they heard no more of it than its ledger has.

:class:`SumExchange` is the exchange of a party that shows nothing but its sum with the others:

.. math:: w_i = m_i/\mathrm{step} + \mathrm{mask}_i \pmod{2^{64}}, \qquad
    \frac1N \sum_i m_i = \frac{\mathrm{step}}{N} \sum_i w_i

A party masks a message once, before it is committed. It sends what was committed, again and again
if need be. A server adds the masked vectors up, or the parties do along a tree
(:mod:`~dpadmm.federation.transport.tree`); where all hear each other every party does, and the
vectors are as uniform to it as to anybody. A sum is decoded only if it is within its public range.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar, final

import numpy as np

from dpadmm.durable import Closable, write_whole
from dpadmm.errors import ExchangeError, ParameterError
from dpadmm.federation.keys import DecodedSums, Masks
from dpadmm.federation.recovery import WHEN_LOST, Departure, PastSum, SomebodyLeft
from dpadmm.federation.transport.mailbox import Mailbox, NeighbourLost
from dpadmm.federation.transport.session import PeerSession
from dpadmm.federation.transport.store import DrawRefused, MemoryStore, MessageStore
from dpadmm.federation.transport.tree import TreeMailbox
from dpadmm.federation.transport.wire import (
    decode_masked,
    decode_message,
    encode_message,
    ends_of,
)
from dpadmm.federation.watcher import Watcher
from dpadmm.ledger.base import Ledger
from dpadmm.plain import Array, Words
from dpadmm.privacy.events import Event
from dpadmm.privacy.mechanisms import Released
from dpadmm.privacy.sensitivity import Summation
from dpadmm.problem.site import Site, SpanningTree
from dpadmm.run.engine import Exchange, RunEnded, tail_start
from dpadmm.run.plan import Plan


class OneParty(Exchange, Closable):
    """The exchange of a process that computes one party: bytes out, its sources' bytes in.

    Parameters
    ----------
    site
        The one party's site (:meth:`dpadmm.problem.site.Site.of_party`).
    run
        32 bytes that all parties agree on; a message of another run is refused.
    averager
        Whether one source has the mean or the sum of all parties' messages: a node without rows,
        or a tree. Its number then follows the last party's. Otherwise every party hears all others
        and averages.
    timeout
        Seconds to wait for the others in a round.
    decoded
        What was heard before, where this goes on from it.

    Attributes
    ----------
    decoded
        What was heard so far; the same at all parties that hear a server, or everybody.
    """

    def __init__(
        self,
        site: Site,
        run: bytes,
        *,
        averager: bool = False,
        timeout: float = 60.0,
        decoded: DecodedSums | None = None,
    ) -> None:
        if len(site.index) != 1:
            raise ParameterError(f"site must have one party; got {len(site.index)}.")
        if len(run) != 32:
            raise ParameterError(f"run must be 32 bytes; got {len(run)}.")
        self.party = int(site.index[0])
        #: Whom this party hears: its neighbours, or everybody else where a server averages.
        self.sources = [site.parties] if averager else site.heard_parties
        self.timeout = timeout
        self._run = run
        self._shape = site.shape[1:]
        self._averager = averager
        self._averages = site.topology.server and not averager
        self.decoded = DecodedSums() if decoded is None else decoded.copy()

    @abstractmethod
    def send(self, t: int, data: bytes) -> None:
        """Make a message available to whoever may hear this party, for good."""

    @abstractmethod
    def receive(self, party: int, t: int) -> bytes:
        """Wait for the message of one source."""

    def keep(self, t: int, messages: dict[int, bytes]) -> None:
        """Take note of a complete round, this party's message included, before it is used."""
        return

    def offer(self, message: Released, t: int) -> bytes:
        """Send this party's message, whatever the others do; return its bytes."""
        data = encode_message(self._run, self.party, t, message.values[0])
        self.send(t, data)
        return data

    def __call__(self, message: Released, t: int) -> Array:
        """Send this party's message and collect the sources' messages."""
        data = self.offer(message, t)
        received = {party: self.receive(party, t) for party in self.sources}
        heard = [
            decode_message(received[party], run=self._run, party=party, t=t, shape=self._shape)
            for party in self.sources
        ]
        self.keep(t, {self.party: data, **received})
        # In the order of the parties, as one process would add them up.
        everything = dict(zip(self.sources, heard, strict=True))
        if not self._averager:
            everything[self.party] = message.values[0]
        for party in sorted(everything):
            self.decoded.add(everything[party])
        if self._averages:
            return np.mean(
                [everything[party] for party in sorted(everything)], axis=0, keepdims=True
            )
        return np.stack(heard)

    def close(self) -> None:
        """Leave, once the others have what they need."""
        return


_LOOK_AGAIN: Final = 0.002


@final
class FileExchange(OneParty):
    """One file per party and round; it appears whole or not at all, and stays.

    Parameters
    ----------
    folder
        Where the files go; made if missing.
    site, run, timeout
        As in :class:`~dpadmm.federation.exchange.OneParty`.
    """

    def __init__(self, folder: Path, site: Site, run: bytes, *, timeout: float = 60.0) -> None:
        super().__init__(site, run, timeout=timeout)
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def _path(self, party: int, t: int) -> Path:
        return self._folder / f"round-{t:06d}-party-{party:05d}.message"

    def send(self, t: int, data: bytes) -> None:
        """Write the file in one step; one that is there already must hold the same bytes."""
        path = self._path(self.party, t)
        if path.exists():
            if path.read_bytes() != data:
                raise ExchangeError(
                    f"{path} must hold the message of this round; it holds another one. Two "
                    "processes may be running this party."
                )
            return
        write_whole(path, data, "message")

    def receive(self, party: int, t: int) -> bytes:
        """Wait for the other party's file."""
        path = self._path(party, t)
        deadline = time.monotonic() + self.timeout
        while not path.exists():
            if time.monotonic() > deadline:
                raise ExchangeError(
                    f"party {party} must send round {t} within {self.timeout:g} s; nothing came. "
                    "Start it, or wait longer."
                )
            time.sleep(_LOOK_AGAIN)
        return path.read_bytes()


class PeerExchange(OneParty):
    """The exchange of one party over its connections.

    Parameters
    ----------
    session
        The connections of this party's node.
    site, run
        As in :class:`~dpadmm.federation.exchange.OneParty`.
    names
        Of all parties, in their order.
    averager
        Name of the node without rows that averages, if there is one.
    tree
        How sums travel between parties that do not all hear each other.
    store
        Where complete rounds are kept: a run goes on where its store ends.
    decoded
        As in :class:`~dpadmm.federation.exchange.OneParty`.
    **options
        ``patience``, ``on_refused``, ``on_waiting``, ``on_pause``, ``on_event`` and ``ring`` of the
        mailbox.
    """

    def __init__(
        self,
        session: PeerSession,
        site: Site,
        run: bytes,
        names: Sequence[str],
        *,
        averager: str | None = None,
        tree: SpanningTree | None = None,
        store: MessageStore | None = None,
        decoded: DecodedSums | None = None,
        **options: Any,
    ) -> None:
        averages = averager is not None or tree is not None
        super().__init__(site, run, averager=averages, decoded=decoded)
        self._adds_up = not averages
        place = (self._shape, store or MemoryStore())
        self.mailbox: Mailbox
        if tree is None:
            everybody = [*names, averager]
            sources = {str(everybody[party]): party for party in self.sources}
            self.mailbox = Mailbox(session, run, self.party, sources, *place, **options)
        else:
            self.mailbox = TreeMailbox(session, run, self.party, names, tree, *place, **options)
        #: Names of those whose messages are heard, in their order.
        self.source_names = self.mailbox.source_names

    @property
    def complete_rounds(self) -> int:
        """How many rounds are complete."""
        return self.mailbox.rounds

    def open(self, t: int) -> None:
        """Get ready to draw, from round ``t`` on; nothing was charged for it yet."""
        return

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


class SumRefused(ExchangeError):
    """A sum that honest parties cannot have made: the view ends."""


def add_masked(vectors: Sequence[Words]) -> Words:
    """The sum of masked vectors modulo 2^64."""
    return np.add.reduce(np.stack(vectors), axis=0, dtype=np.uint64)


def added_up(
    received: Mapping[int, bytes], run: bytes, t: int, shape: tuple[int, ...], *, masked: bool
) -> Any:
    """The mean of the parties' messages, or the sum of their masked vectors."""
    decode: Callable[..., Any] = decode_masked if masked else decode_message
    heard = [
        decode(data, run=run, party=place, t=t, shape=shape) for place, data in received.items()
    ]
    return add_masked(heard) if masked else np.mean(heard, axis=0)


@final
class SumExchange(PeerExchange):
    """The exchange of one party in one view.

    Parameters
    ----------
    session, site, run, names
        As in :class:`~dpadmm.federation.exchange.PeerExchange`.
    summation
        How vectors become a sum.
    past
        The sums of the rounds before this view, which are not sent again.
    find_masks
        Called once, with how many messages of this view were released before: announces this
        party's key, and calls back to wait for everybody's.
    before_send
        Called with the round of the view before its message leaves.
    **options
        As in :class:`~dpadmm.federation.exchange.PeerExchange`.

    Attributes
    ----------
    sums
        Those of all complete rounds, the ones before this view included.
    """

    def __init__(
        self,
        session: PeerSession,
        site: Site,
        run: bytes,
        names: Sequence[str],
        *,
        summation: Summation,
        past: Sequence[PastSum],
        find_masks: Callable[[int, Callable[[], None]], Masks],
        before_send: Callable[[int], None],
        **options: Any,
    ) -> None:
        super().__init__(session, site, run, names, **options)
        self._summation = summation
        self._past = tuple(past)
        self._first = len(self._past)
        self._find_masks, self._before_send = find_masks, before_send
        self._masks: Masks | None = None
        self.sums: list[PastSum] = []

    @property
    def complete_rounds(self) -> int:
        """How many rounds are complete, those before this view included."""
        return self._first + self.mailbox.rounds

    def open(self, t: int) -> None:
        """Exchange keys with all parties; before a round is drawn for the first time."""
        place = t - self._first
        self._masks = self._find_masks(place, lambda: self.mailbox.gather(place))

    def cover(self, message: Released, t: int) -> Released:
        """Mask this party's vector."""
        # Masks depend on all sums before: none may be missing, and none may count twice.
        if self._masks is None or len(self.sums) != t:
            raise RuntimeError(f"round {t} must be covered after {t} sums; got {len(self.sums)}.")
        place, sums = t - self._first, self.decoded.digest()
        return self._masks.cover(message, self._summation, place, sums)

    def offer(self, message: Released, t: int) -> bytes:
        """Send this party's masked vector, whatever the others do; return its bytes."""
        if message.values.dtype != np.uint64:
            raise RuntimeError(f"round {t} must be covered before it is sent; nothing was sent.")
        self._before_send(t - self._first)
        return super().offer(message, t - self._first)

    def __call__(self, message: Released, t: int) -> Array:
        """Send this party's masked vector and decode the sum of all; the inbox is the mean."""
        found = self._past[t] if t < self._first else self._summed(message, t)
        self.sums.append(found)
        self.decoded.add(found.total)
        return found.mean

    def _summed(self, message: Released, t: int) -> PastSum:
        data = self.offer(message, t)
        place = t - self._first
        received = {party: self.receive(party, place) for party in self.sources}
        everything = {self.party: data, **received} if self._adds_up else received
        total = added_up(everything, self._run, place, self._shape, masked=True)
        self.keep(place, {self.party: data, **received})
        try:
            decoded = self._summation.from_words(total)
        except ExchangeError as error:
            raise SumRefused(str(error)) from None
        return PastSum(total, decoded[None] / self._summation.parties)


#: Whose messages the model is the mean of, in a model file.
MEAN: Final = "mean of all parties"
#: How long a node that must not draw, or has nothing to go on with, still answers, so that its
#: neighbours learn why.
GRACE: Final = 3.0
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
        self.names = (MEAN,) if self.one_model else tuple(names)
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
                lost = error.name
                if self._departure is None and error.lost not in ("", self._session.name):
                    # Whoever ended is not lost: it says who is.
                    lost = error.lost
                elif self._departure is not None and not error.ended:
                    lost = self._departure.look_for(error.name, error.seconds)
                    if not lost:
                        continue
                self._leave(lost, t)
                raise RunEnded from error
            except DrawRefused as error:
                self._watcher.event("draw-refused", level="error", error=error)
                time.sleep(GRACE)
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
        self.lost = self._exchange.mailbox.lost = name
        if self._departure is not None:
            self._departure.freeze(name, self._ledger.released, self.done)
        if name == self._session.name:
            return
        if ends_of(name):
            ends = list(ends_of(name))
            self._watcher.event("link-lost", level="warning", nodes=ends, round=t)
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
