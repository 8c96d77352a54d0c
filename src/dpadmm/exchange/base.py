"""What an exchange is."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from dpadmm.arrays import Array, Site
from dpadmm.closing import Closing
from dpadmm.errors import ParameterError
from dpadmm.exchange.wire import decode, encode
from dpadmm.privacy.mechanisms import Released

__all__ = ["Exchange", "OneParty", "RunEnded"]


class RunEnded(Exception):
    """Raised by an exchange that ends a run early, with the rounds that are complete."""


class Exchange(ABC):
    """Sends this site's messages and brings those it may hear."""

    @abstractmethod
    def __call__(self, message: Released, t: int) -> Array:
        """Exchange round ``t``; the inbox is ``(sources, runs, outputs, features)``.

        On a graph the sources are those of ``site.adjacency``; with a server there is one, the
        mean of all parties' messages.
        """


class OneParty(Exchange, Closing):
    """The exchange of a process that computes one party: bytes out, its sources' bytes in.

    Parameters
    ----------
    site
        The one party's site (:meth:`dpadmm.arrays.Site.of_party`).
    run
        32 bytes that all parties agree on; a message of another run is refused.
    averager
        A node without rows averages the parties' messages and is the one source; its number is
        that after the last party's. Without one, every party hears all others and averages itself.
    timeout
        Seconds to wait for the others in a round.
    """

    def __init__(
        self, site: Site, run: bytes, *, averager: bool = False, timeout: float = 60.0
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
        self._averages = site.topology.server and not averager

    @abstractmethod
    def send(self, t: int, data: bytes) -> None:
        """Make a message available to whoever may hear this party, for good."""

    @abstractmethod
    def receive(self, party: int, t: int) -> bytes:
        """Wait for the message of one source."""

    def keep(self, t: int, messages: dict[int, bytes]) -> None:
        """Take note of a complete round, this party's message included, before it is used."""
        return

    def __call__(self, message: Released, t: int) -> Array:
        """Send this party's message and collect the sources' messages."""
        own = message.values[0]
        data = encode(self._run, self.party, t, own)
        self.send(t, data)
        received = {party: self.receive(party, t) for party in self.sources}
        heard = [
            decode(received[party], run=self._run, party=party, t=t, shape=self._shape)
            for party in self.sources
        ]
        self.keep(t, {self.party: data, **received})
        if self._averages:
            # In the order of the parties, as one process would add them up.
            heard.insert(self.party, own)
            return np.mean(heard, axis=0, keepdims=True)
        return np.stack(heard)

    def close(self) -> None:
        """Leave, once the others have what they need."""
        return
