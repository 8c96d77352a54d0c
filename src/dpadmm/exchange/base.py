"""What an exchange is."""

from __future__ import annotations

from abc import ABC, abstractmethod

from dpadmm.arrays import Array
from dpadmm.privacy.mechanisms import Released

__all__ = ["Exchange"]


class Exchange(ABC):
    """Sends this site's messages and brings those it may hear."""

    @abstractmethod
    def __call__(self, message: Released, t: int) -> Array:
        """Exchange round ``t``; the inbox is ``(sources, runs, outputs, features)``.

        On a graph the sources are those of ``site.adjacency``; with a server there is one, the
        mean of all parties' messages.
        """
