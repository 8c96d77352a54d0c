"""What is left to do after the last of 1,500 rounds, for every algorithm and kind of noise.

A run that is over has to say what it cost: in all, after each round, and by its ledger. That is
timed for the share of one node, whose ledger has all rounds, and for four parties in one process.
The events are those that the plan announces, which are what a run is charged.

Run with ``python -m benchmarks after``; :func:`main` returns (name, measured, target).
"""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from dpadmm.algorithms import REGISTRY
from dpadmm.ledger.base import ChargedData
from dpadmm.ledger.filters import Policy
from dpadmm.ledger.sqlite import SQLiteLedger
from dpadmm.privacy.accountant import epsilon_spent
from dpadmm.privacy.events import Event, PureRelease
from dpadmm.privacy.noise import secure_noise
from dpadmm.run.options import TrainingParameters
from dpadmm.run.plan import Plan, announced, plan
from dpadmm.run.result import ledger_facts
from dpadmm.run.session import state_privacy

Events = tuple[tuple[Event, ...], ...]

ROUNDS = 1500
ROWS = (20_000, 30_000, 25_000, 40_000)
MESSAGE = np.zeros((1, 1, 20))
# Beside what is chosen by default: noise whose rounds are composed numerically.
OTHERS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("dvp", {"noise": "exp-norm"}),
    ("m-admm", {"noise": "exp-norm"}),
    ("r-admm", {"noise": "exp-norm"}),
    ("mr-admm", {"noise": "exp-norm"}),
    ("ps-admm", {"form": "split"}),
    ("dp-gd", {"noise": "shared"}),
)


def seconds(call: Callable[[], object]) -> float:
    """The best of three times: what the machine can do undisturbed. All of it is computing."""
    best = float("inf")
    for _ in range(3):
        begin = time.process_time()
        call()
        best = min(best, time.process_time() - begin)
    return best


def charged_ledger(path: Path, planned: Plan) -> None:
    """A ledger of the first party with all rounds of a run."""
    policy = Policy(50.0, 1e-3, filter="renyi", colluders=1)
    with SQLiteLedger.create(path, ChargedData("rows", "owner", ROWS[0]), policy) as ledger:
        # Only the length matters here, not that it survives a power failure.
        ledger._file._connection.execute("PRAGMA synchronous = OFF")
        with ledger.open_run("run", "mark") as run:
            for t, event in enumerate(announced(planned.of_party(0))[0]):
                run.reserve(t, event)
                run.commit(t, MESSAGE)


def after(name: str, options: dict[str, Any], folder: Path) -> tuple[float, float]:
    """The seconds of one node, and of all parties in one process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        told = TrainingParameters(name, rounds=ROUNDS, epsilon=1.0, algorithm_options=options)
        planned = plan(told, ROWS, features=20)
    private, place = planned.algorithm.private, folder / f"{name} {' '.join(options.values())}"
    if private:
        charged_ledger(place, planned)

    def state(share: Plan, events: Events, *, own: bool) -> None:
        noise = secure_noise()
        state_privacy(share, events, noise)
        if own:
            # A node writes its model without the course first.
            state_privacy(share, events, noise, by_round=False)
        if own and private:
            ledger_facts({"first": place})

    # A run that is over has its events.
    first, everybody = planned.of_party(0), announced(planned)
    return (
        seconds(lambda: state(first, everybody[:1], own=True)),
        seconds(lambda: state(planned, everybody, own=False)),
    )


def main() -> list[tuple[str, float, float | None]]:
    # Import the numerical composition's library before anything is timed.
    epsilon_spent([PureRelease(0.1), PureRelease(0.2)], 1e-5)
    rows: list[tuple[str, float, float | None]] = []
    with tempfile.TemporaryDirectory() as folder:
        for name, options in (*((name, {}) for name in REGISTRY), *OTHERS):
            called = " ".join((name, *options.values()))
            for whose, taken in zip(
                ("a node", "four parties"), after(name, options, Path(folder)), strict=True
            ):
                rows.append((f"after {ROUNDS} rounds of {called}, {whose}, seconds", taken, 2.0))
    return rows
