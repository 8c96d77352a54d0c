"""All parties in one process: the inbox is what was just computed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from dpadmm.arrays import Array
from dpadmm.exchange.base import Exchange
from dpadmm.privacy.mechanisms import Released

__all__ = ["InProcess"]


@final
@dataclass(frozen=True)
class InProcess(Exchange):
    """Everybody hears everybody it is linked to, at once.

    Parameters
    ----------
    server
        Hand on the mean of all messages, as a server would, rather than the messages.
    """

    server: bool = False

    def __call__(self, message: Released, t: int) -> Array:
        """Return all messages, or their mean."""
        values = message.values
        return values.mean(axis=0, keepdims=True) if self.server else values
