"""Messages as files in a folder that all parties can reach.

For parties who already share a folder, and for tests: no process listens on any port. The folder
plays the server where the topology has one.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final, final

from dpadmm.arrays import Site
from dpadmm.datasets.whole_file import write_whole
from dpadmm.errors import ExchangeError
from dpadmm.exchange.base import OneParty

__all__ = ["FileExchange"]

_PAUSE: Final = 0.002


@final
class FileExchange(OneParty):
    """One file per party and round; it appears whole or not at all, and stays.

    Parameters
    ----------
    folder
        Where the files go; made if missing.
    site, run, timeout
        As in :class:`~dpadmm.exchange.base.OneParty`.
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
