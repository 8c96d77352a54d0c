r"""The exchange of a party of which nothing but the sum with the others is seen.

.. math:: w_i = m_i/\mathrm{step} + \mathrm{mask}_i \pmod{2^{64}}, \qquad
    \frac1N \sum_i m_i = \frac{\mathrm{step}}{N} \sum_i w_i

A message is covered once, before it is committed; what was committed is what is sent, again and
again if need be. Around a server the server adds up; without one every party does, from words that
are as uniform to it as to anybody. A sum is decoded only if it is within its public range.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from dpadmm.errors import ExchangeError
from dpadmm.federation.transport.masks import Masks
from dpadmm.federation.transport.party_exchange import PeerExchange
from dpadmm.federation.transport.session import PeerSession
from dpadmm.federation.transport.wire import decode_words
from dpadmm.plain import Array, Words
from dpadmm.privacy.mechanisms import Released, release_covered
from dpadmm.privacy.sensitivity import Summation
from dpadmm.problem.site import Site


class SumRefused(ExchangeError):
    """A sum that no honest summands have: the stretch ends."""


@dataclass(frozen=True)
class PastSum:
    """The sum of a complete round.

    Parameters
    ----------
    words
        As it was decoded from.
    mean
        What the parties made of it: the sum, by how many they were then.
    """

    words: Words
    mean: Array


def added_words(summands: Sequence[Words]) -> Words:
    """The sum of words modulo 2^64."""
    return np.add.reduce(np.stack(summands), axis=0, dtype=np.uint64)


@final
class SumExchange(PeerExchange):
    """The exchange of one party in one stretch.

    Parameters
    ----------
    session, site, run, names
        As in :class:`~dpadmm.federation.transport.party_exchange.PeerExchange`.
    summation
        How summands become a sum.
    past
        The rounds before this stretch; nothing of them is sent again.
    find_masks
        Called once, with how many messages of this stretch were released before: makes this
        party's key known and calls back when everybody's are there.
    before_send
        Called with the round of the stretch before its message leaves.
    **options
        As in :class:`~dpadmm.federation.transport.party_exchange.PeerExchange`.

    Attributes
    ----------
    sums
        Those of all complete rounds, the ones before this stretch included.
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
        """How many rounds are complete, those before this stretch included."""
        return self._first + self.mailbox.rounds

    def open(self, t: int) -> None:
        """Exchange keys with all parties; before a round is drawn for the first time."""
        place = t - self._first
        self._masks = self._find_masks(place, lambda: self.mailbox.gather(place))

    def cover(self, message: Released, t: int) -> Released:
        """Put this party's summand under its masks."""
        # Masks hang on the sums before: of those none may be missing, and none be counted twice.
        if self._masks is None or len(self.sums) != t:
            raise RuntimeError(f"round {t} must be covered after {t} sums; got {len(self.sums)}.")
        words = self._summation.to_words(message.values)
        mask = self._masks.mask(t - self._first, self.decoded.digest(), words.size)
        return release_covered(message, words + mask.reshape(words.shape))

    def offer(self, message: Released, t: int) -> bytes:
        """Send this party's words, whatever the others do; return their bytes."""
        if message.values.dtype != np.uint64:
            raise RuntimeError(f"round {t} must be covered before it is sent; nothing was sent.")
        self._before_send(t - self._first)
        return super().offer(message, t - self._first)

    def __call__(self, message: Released, t: int) -> Array:
        """Send this party's words and decode the sum of all; the inbox is the mean."""
        found = self._past[t] if t < self._first else self._summed(message, t)
        self.sums.append(found)
        self.decoded.add(found.words)
        return found.mean

    def _summed(self, message: Released, t: int) -> PastSum:
        data = self.offer(message, t)
        place = t - self._first
        received = {party: self.receive(party, place) for party in self.sources}
        everything = {self.party: data, **received} if self._adds_up else received
        words = added_words(
            [
                decode_words(found, run=self._run, party=party, t=place, shape=self._shape)
                for party, found in everything.items()
            ]
        )
        self.keep(place, {self.party: data, **received})
        try:
            total = self._summation.from_words(words)
        except ExchangeError as error:
            raise SumRefused(str(error)) from None
        return PastSum(words, total[None] / self._summation.parties)
