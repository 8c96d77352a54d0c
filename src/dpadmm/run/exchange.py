"""How messages travel: the only part of a round that differs between runtimes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Final, final

from dpadmm.plain import Array
from dpadmm.privacy.mechanisms import Released

#: The largest entry of a message that is let in; parameters of a model are far below.
MESSAGE_BOUND: Final = 1e6


class RunEnded(Exception):
    """Raised by an exchange or a ledger that ends a run early, with the complete rounds."""


class Exchange(ABC):
    """Sends this site's messages and brings those it may hear."""

    @abstractmethod
    def __call__(self, message: Released, t: int) -> Array:
        """Exchange round ``t``; the inbox is ``(sources, runs, outputs, features)``.

        On a graph the sources are those of ``site.adjacency``; with a server, or where messages
        are summed up, there is one, the mean of all parties' messages.
        """

    def cover(self, message: Released, t: int) -> Released:
        """What is committed and sent for what was computed: by default the same.

        Called once for a message, before it is committed. What it returns is what
        :meth:`__call__` gets, after a crash as well: it is stored, and never made again.
        """
        return message


@final
@dataclass(frozen=True)
class InProcess(Exchange):
    """Everybody hears everybody it is linked to, at once.

    Parameters
    ----------
    server
        Hand on the mean of all messages, as a server would, rather than the messages. Summands
        are multiples of one step, so that their sum is the one that words give, to the last bit.
    """

    server: bool = False

    def __call__(self, message: Released, t: int) -> Array:
        """Return all messages, or their mean."""
        values = message.values
        return values.mean(axis=0, keepdims=True) if self.server else values
