r"""The exchange of a process that computes one party: through a folder, or between Zenoh peers.

:class:`SumExchange` is the exchange of a party that shows nothing but its sum with the others:

.. math:: w_i = m_i/\mathrm{step} + \mathrm{mask}_i \pmod{2^{64}}, \qquad
    \frac1N \sum_i m_i = \frac{\mathrm{step}}{N} \sum_i w_i

A party masks a message once, before it is committed. It sends what was committed, again and again
if need be. A server adds the masked vectors up; without a server every party does, and the vectors
are as uniform to it as to anybody. A sum is decoded only if it is within its public range.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from dpadmm.durable import Closable, write_whole
from dpadmm.errors import ExchangeError, ParameterError
from dpadmm.federation.transport.mailbox import Mailbox
from dpadmm.federation.transport.masks import DecodedSums, Masks
from dpadmm.federation.transport.session import PeerSession
from dpadmm.federation.transport.store import MemoryStore, MessageStore
from dpadmm.federation.transport.wire import decode_masked, decode_message, encode_message
from dpadmm.plain import Array, Words
from dpadmm.privacy.mechanisms import Released, release_covered
from dpadmm.privacy.sensitivity import Summation
from dpadmm.problem.site import Site
from dpadmm.run.engine import Exchange


class OneParty(Exchange, Closable):
    """The exchange of a process that computes one party: bytes out, its sources' bytes in.

    Parameters
    ----------
    site
        The one party's site (:meth:`dpadmm.problem.site.Site.of_party`).
    run
        32 bytes that all parties agree on; a message of another run is refused.
    averager
        Whether a node without rows averages the parties' messages. It is then the one source, and
        its number follows the last party's. Otherwise every party hears all others and averages.
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


_PAUSE: Final = 0.002


@final
class FileExchange(OneParty):
    """One file per party and round; it appears whole or not at all, and stays.

    Parameters
    ----------
    folder
        Where the files go; made if missing.
    site, run, timeout
        As in :class:`~dpadmm.federation.transport.party_exchange.OneParty`.
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
            time.sleep(_PAUSE)
        return path.read_bytes()


class PeerExchange(OneParty):
    """The exchange of one party over its connections.

    Parameters
    ----------
    session
        The connections of this party's node.
    site, run
        As in :class:`~dpadmm.federation.transport.party_exchange.OneParty`.
    names
        Of all parties, in their order.
    averager
        Name of the node without rows that averages, if there is one.
    store
        Where complete rounds are kept: a run goes on where its store ends.
    decoded
        As in :class:`~dpadmm.federation.transport.party_exchange.OneParty`.
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
        store: MessageStore | None = None,
        decoded: DecodedSums | None = None,
        **options: Any,
    ) -> None:
        super().__init__(site, run, averager=averager is not None, decoded=decoded)
        everybody = [*names, averager]
        sources = {str(everybody[party]): party for party in self.sources}
        #: Names of the sources, in their order.
        self.source_names = tuple(sources)
        self.mailbox = Mailbox(
            session, run, self.party, sources, self._shape, store or MemoryStore(), **options
        )

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
    """A sum that honest parties cannot have: the view ends."""


@dataclass(frozen=True)
class PastSum:
    """The sum of a complete round.

    Parameters
    ----------
    total
        The sum of the masked vectors.
    mean
        The decoded sum, divided by how many parties there were then.
    """

    total: Words
    mean: Array


def add_masked(vectors: Sequence[Words]) -> Words:
    """The sum of masked vectors modulo 2^64."""
    return np.add.reduce(np.stack(vectors), axis=0, dtype=np.uint64)


@final
class SumExchange(PeerExchange):
    """The exchange of one party in one view.

    Parameters
    ----------
    session, site, run, names
        As in :class:`~dpadmm.federation.transport.party_exchange.PeerExchange`.
    summation
        How vectors become a sum.
    past
        The sums of the rounds before this view; nothing of them is sent again.
    find_masks
        Called once, with how many messages of this view were released before: announces this
        party's key, and calls back to wait for everybody's.
    before_send
        Called with the round of the view before its message leaves.
    **options
        As in :class:`~dpadmm.federation.transport.party_exchange.PeerExchange`.

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
        self._adds_up = options.get("averager") is None
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
        vector = self._summation.to_words(message.values)
        mask = self._masks.mask(t - self._first, self.decoded.digest(), vector.size)
        return release_covered(message, vector + mask.reshape(vector.shape))

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
        total = add_masked(
            [
                decode_masked(found, run=self._run, party=party, t=place, shape=self._shape)
                for party, found in everything.items()
            ]
        )
        self.keep(place, {self.party: data, **received})
        try:
            decoded = self._summation.from_words(total)
        except ExchangeError as error:
            raise SumRefused(str(error)) from None
        return PastSum(total, decoded[None] / self._summation.parties)
