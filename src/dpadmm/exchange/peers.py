"""Messages between peers over Eclipse Zenoh (extra ``federation``): no server, no broker.

A party publishes its message and keeps the last rounds to hand out again on request, so that one
who came late or missed something asks for it. Multicast scouting and gossip are off: a peer talks
to the addresses it was given and to nobody else.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from typing import Any, Final, final

from dpadmm.arrays import Site
from dpadmm.errors import ExchangeError, ParameterError
from dpadmm.exchange.base import OneParty
from dpadmm.exchange.wire import message_size

__all__ = ["PeerExchange"]

# How many past rounds a party can be asked for: neighbours are at most one round apart.
_KEPT_ROUNDS: Final = 4
# How long to wait for a publication before asking for it.
_PATIENCE: Final = 0.2
_DONE: Final = "done"


@final
class PeerExchange(OneParty):
    """One Zenoh peer per party.

    Parameters
    ----------
    listen
        Where this party is reached, such as ``tcp/127.0.0.1:7447``.
    connect
        Where its sources are reached.
    site, run, timeout
        As in :class:`~dpadmm.exchange.base.OneParty`.
    """

    def __init__(
        self, listen: str, connect: Sequence[str], site: Site, run: bytes, *, timeout: float = 60.0
    ) -> None:
        super().__init__(site, run, timeout=timeout)
        self._zenoh = _import_zenoh()
        self._root = f"dpadmm/{run.hex()}"
        self._arrived: dict[tuple[int, str], bytes] = {}
        self._news = threading.Condition()
        self._kept: dict[str, bytes] = {}
        self._round = 0
        self._fault = ""
        self._session = self._zenoh.open(self._configuration(listen, connect))
        self._publisher = self._session.declare_publisher(
            f"{self._root}/{self.party}/news",
            congestion_control=self._zenoh.CongestionControl.BLOCK,
            reliability=self._zenoh.Reliability.RELIABLE,
        )
        self._parts = [
            self._session.declare_queryable(f"{self._root}/{self.party}/*", self._answer)
        ]
        for party in self.sources:
            key = f"{self._root}/{party}/news"
            self._parts.append(self._session.declare_subscriber(key, self._hear))

    def _configuration(self, listen: str, connect: Sequence[str]) -> Any:
        configuration = self._zenoh.Config()
        for key, value in {
            "mode": "peer",
            "listen/endpoints": [listen],
            "connect/endpoints": list(connect),
            "connect/timeout_ms": -1,
            "connect/exit_on_failure": False,
            "scouting/multicast/enabled": False,
            "scouting/gossip/enabled": False,
        }.items():
            configuration.insert_json5(key, json.dumps(value))
        return configuration

    def _hear(self, sample: Any) -> None:
        """Take in a publication: its key names the party, its attachment the round."""
        party = int(str(sample.key_expr).split("/")[-2])
        label = "" if sample.attachment is None else sample.attachment.to_string()
        self._take(party, label, sample.payload.to_bytes())

    def _take(self, party: int, label: str, data: bytes) -> None:
        """Keep what may be asked for: this round's and the next one's message of a source."""
        near = label == _DONE or label in (str(self._round), str(self._round + 1))
        if not near or len(data) > message_size(self._shape):
            return
        with self._news:
            # The first message of a round stands; a second one must be the same.
            if self._arrived.setdefault((party, label), data) != data:
                self._fault = f"party {party} sent two different messages for round {label}."
            self._news.notify_all()

    def _answer(self, query: Any) -> None:
        """Hand out a round again."""
        label = str(query.key_expr).rsplit("/", 1)[-1]
        data = self._kept.get(label)
        if data is not None:
            query.reply(str(query.key_expr), data)

    def _publish(self, label: str, data: bytes) -> None:
        self._kept[label] = data
        self._publisher.put(data, attachment=label)

    def send(self, t: int, data: bytes) -> None:
        """Publish the message, and keep it for those who missed it."""
        self._round = t
        self._kept.pop(str(t - _KEPT_ROUNDS), None)
        self._publish(str(t), data)

    def _wait(self, party: int, label: str, timeout: float) -> bytes | None:
        """Wait for a publication; ask for it from time to time."""
        deadline = time.monotonic() + timeout
        while True:
            with self._news:
                self._news.wait_for(lambda: (party, label) in self._arrived, timeout=_PATIENCE)
                data = self._arrived.get((party, label))
                if self._fault:
                    raise ExchangeError(self._fault)
            if data is not None or time.monotonic() > deadline:
                return data
            key = f"{self._root}/{party}/{label}"
            for reply in self._session.get(key, timeout=_PATIENCE):
                if reply.ok is not None:
                    self._take(party, label, reply.ok.payload.to_bytes())

    def receive(self, party: int, t: int) -> bytes:
        """Wait for the message of one source."""
        data = self._wait(party, str(t), self.timeout)
        if data is None:
            raise ExchangeError(
                f"party {party} must send round {t} within {self.timeout:g} s; nothing came. "
                "Check that it runs and can be reached."
            )
        with self._news:
            self._arrived.pop((party, str(t - 1)), None)
        return data

    def close(self) -> None:
        """Leave when the sources have all they need, or after a while."""
        self._publish(_DONE, b"")
        for party in self.sources:
            self._wait(party, _DONE, min(self.timeout, 10.0))
        for part in self._parts:
            part.undeclare()
        self._session.close()


def _import_zenoh() -> Any:
    try:
        import zenoh
    except ImportError:
        raise ParameterError(
            "the peer exchange needs the extra 'federation': pip install 'dpadmm[federation]'."
        ) from None
    return zenoh
