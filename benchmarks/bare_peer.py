"""The least a round can cost: one Zenoh peer that sends, receives and makes two durable commits.

``python -m benchmarks.bare_peer SPEC.json NUMBER`` is one of the processes that
:mod:`benchmarks.bench_federation` starts. Mutual TLS, reliable and blocking publishers, no access
control, no checks, no way to ask again: what a message lost at the start would need is a barrier.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import threading
import time
from pathlib import Path
from typing import Any

import zenoh

from benchmarks.bench_ledger import bare_file, write_bare


def open_session(spec: dict[str, Any], number: int) -> zenoh.Session:
    """Open a peer that listens and connects to its neighbours, with TLS both ways."""
    own, trial = f"node-{number}", spec["certificates"]
    tls = {
        "root_ca_certificate": f"{trial}/ca.pem",
        "listen_certificate": f"{trial}/{own}.pem",
        "listen_private_key": f"{trial}/{own}.key",
        "connect_certificate": f"{trial}/{own}.pem",
        "connect_private_key": f"{trial}/{own}.key",
        "enable_mtls": True,
        "verify_name_on_connect": True,
    }
    ports = spec["ports"]
    configuration = zenoh.Config()
    for key, value in {
        "mode": "peer",
        "listen/endpoints": [f"tls/127.0.0.1:{ports[number]}"],
        "connect/endpoints": [f"tls/127.0.0.1:{ports[n]}" for n in spec["neighbours"][number]],
        "connect/timeout_ms": -1,
        "connect/exit_on_failure": False,
        "scouting/multicast/enabled": False,
        "scouting/gossip/enabled": False,
        "transport/link/tls": tls,
    }.items():
        configuration.insert_json5(key, json.dumps(value))
    return zenoh.open(configuration)


class BarePeer:
    """Sends to its neighbours and waits for theirs."""

    def __init__(self, session: zenoh.Session, number: int, neighbours: list[int]) -> None:
        self.news = threading.Condition()
        self.arrived: set[tuple[int, str]] = set()
        self.neighbours = neighbours
        self.publisher = session.declare_publisher(
            f"bare/{number}",
            congestion_control=zenoh.CongestionControl.BLOCK,
            reliability=zenoh.Reliability.RELIABLE,
        )
        for neighbour in neighbours:
            session.declare_subscriber(f"bare/{neighbour}", self.hear)

    def hear(self, sample: Any) -> None:
        with self.news:
            sender = int(str(sample.key_expr).rsplit("/", 1)[-1])
            self.arrived.add((sender, sample.attachment.to_string()))
            self.news.notify_all()

    def wait(self, label: str, timeout: float) -> bool:
        wanted = {(neighbour, label) for neighbour in self.neighbours}
        with self.news:
            return self.news.wait_for(lambda: wanted <= self.arrived, timeout)

    def meet(self) -> None:
        """Say hello until everybody is there; then once more, for those who came last."""
        while not self.wait("hello", 0.1):
            self.publisher.put(b"", attachment="hello")
        for _ in range(20):
            self.publisher.put(b"", attachment="hello")
            time.sleep(0.05)


def run(spec: dict[str, Any], number: int, connection: sqlite3.Connection) -> list[float]:
    """Return the moment at which each round ended."""
    data = bytes(spec["message_bytes"])
    moments = []
    with open_session(spec, number) as session:
        peer = BarePeer(session, number, spec["neighbours"][number])
        peer.meet()
        for t in range(spec["rounds"]):
            write_bare(connection, "reserved", None)
            write_bare(connection, "committed", data)
            peer.publisher.put(data, attachment=str(t))
            if not peer.wait(str(t), 60):
                raise TimeoutError(f"round {t} of peer {number}")
            moments.append(time.perf_counter())
        # Who leaves at once may take its last message along.
        time.sleep(0.5)
    return moments


def main(path: str, number: int) -> None:
    spec = json.loads(Path(path).read_text())
    folder = Path(spec["folder"])
    connection = bare_file(folder / f"bare-{number}.sqlite")
    moments = run(spec, number, connection)
    connection.close()
    (folder / f"result-{number}.json").write_text(json.dumps({"moments": moments}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
