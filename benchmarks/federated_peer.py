"""One node of a federation as the runtime builds it, on made-up rows; timed from the outside.

``python -m benchmarks.federated_peer SPEC.json NUMBER`` is one of the processes that
:mod:`benchmarks.bench_federation` starts: the session, mailbox, message file, ledger, engine and
watcher of ``dpadmm node``, without its reading of files, so that a message can have any length.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadmm.federation.exchange import PeerExchange
from dpadmm.federation.transport.session import PeerSession, Security
from dpadmm.federation.transport.store import MessageFile
from dpadmm.federation.watcher import Watcher
from dpadmm.ledger.base import ChargedData, Ledger
from dpadmm.ledger.filters import Policy
from dpadmm.ledger.sqlite import SQLiteLedger
from dpadmm.privacy.events import Event
from dpadmm.privacy.noise import SecureNoise
from dpadmm.problem.rows import Shard
from dpadmm.run.charges import open_runs
from dpadmm.run.options import TrainingParameters
from dpadmm.run.plan import Plan, plan
from dpadmm.run.session import train_party

Array = NDArray[np.float64]


class TimedLedger(Ledger):
    """A ledger that notes how long the local step took: what lies between reserve and commit."""

    def __init__(self, inner: Ledger) -> None:
        self.inner = inner
        self.seconds: list[float] = []
        self.processor: list[float] = []

    def reserve(self, t: int, event: Event) -> None:
        self.inner.reserve(t, event)
        self.begin, self.begun = time.perf_counter(), time.process_time()

    def commit(self, t: int, message: Array) -> None:
        self.seconds.append(time.perf_counter() - self.begin)
        self.processor.append(time.process_time() - self.begun)
        self.inner.commit(t, message)

    def committed(self, t: int) -> Array | None:
        return self.inner.committed(t)

    def resume(self, events: Sequence[Event], last: Array) -> None:
        self.inner.resume(events, last)

    @property
    def events(self) -> tuple[Event, ...]:
        return self.inner.events


def planned(spec: dict[str, Any]) -> Plan:
    """Return the run that all nodes agree on."""
    parties = len(spec["neighbours"])
    parameters = TrainingParameters(
        algorithm="pr-admm",
        topology=[(a, b) for a, near in enumerate(spec["neighbours"]) for b in near if a < b],
        rounds=spec["rounds"],
        # What rounding leaves of a gradient grows with its length.
        tolerance=max(1e-6, 1e-11 * spec["features"]),
        penalty=0.05,
        regularization=1e-2,
        loss="logistic",
    )
    names = tuple(f"node-{number}" for number in range(parties))
    return plan(parameters, [spec["rows"]] * parties, features=spec["features"], names=names)


def rows_of(number: int, rows: int, features: int) -> tuple[Array, Array]:
    random = np.random.default_rng(number)
    values = random.normal(size=(rows, features))
    values /= np.linalg.norm(values, axis=1, keepdims=True)
    return values, np.where(values[:, :1] > 0, 1.0, -1.0)


def megabytes() -> float:
    """Resident memory of this process, the largest so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


def main(path: str, number: int) -> None:
    spec = json.loads(Path(path).read_text())
    folder, trial, ports = Path(spec["folder"]), Path(spec["certificates"]), spec["ports"]
    whole = planned(spec)
    names = whole.site.names
    own = whole.of_party(number)
    place = f"127.0.0.1:{ports[number]}"
    # Neighbours are reached through relays where links are slow.
    reached = [f"127.0.0.1:{port}" for port in spec["relay_ports"] or ports]
    security = Security(
        trial / "ca.pem", trial / f"{names[number]}.pem", trial / f"{names[number]}.key"
    )
    noise = SecureNoise()
    shard = Shard.from_parties([rows_of(number, spec["rows"], spec["features"])])
    moments: list[float] = []
    processor: list[float] = []
    policy = Policy(2.0, 1e-5)
    about = ChargedData("made-up", names[number], spec["rows"])
    with (
        Watcher(
            names[number],
            log=folder / f"{number}.log",
            status=folder / f"{number}.status.json",
            terminal=False,
        ) as watcher,
        SQLiteLedger.create(folder / f"{number}.ledger", about, policy) as ledger,
        MessageFile(folder / f"{number}.messages") as store,
        PeerSession(
            names[number],
            place,
            {names[other]: reached[other] for other in spec["neighbours"][number]},
            security,
            largest=spec["message_bytes"],
            on_event=watcher.event,
        ) as session,
        open_runs(own, [ledger], "bench", noise)[0] as charged,
        PeerExchange(
            session, own.site, bytes(32), names, store=store, on_waiting=watcher.waiting
        ) as exchange,
    ):
        timed = TimedLedger(charged)

        def on_round(done: int, message: Array) -> None:
            moments.append(time.perf_counter())
            processor.append(time.process_time())
            watcher.round(done, spec["rounds"])

        train_party(
            whole.of_party(number),
            shard,
            exchange=exchange,
            noise=noise,
            ledger=timed,
            on_round=on_round,
        )
    result = {
        "moments": moments,
        "processor": processor,
        "solves": timed.seconds,
        "solves_processor": timed.processor,
        "megabytes": megabytes(),
    }
    (folder / f"result-{number}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
