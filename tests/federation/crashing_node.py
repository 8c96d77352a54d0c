"""A program that trains, to be killed: it forks a node per line of JSON on its standard input.

Everything is imported once, so that a node starts in milliseconds; each node is a process of its
own. When a node has ended, by itself or killed after ``die_after`` seconds, its status is printed.
"""

import json
import os
import signal
import struct
import sys
import time
from pathlib import Path

import numpy as np

import dpadmm.solvers.workspace
from dpadmm.ledger.sqlite import SQLiteLedger
from dpadmm.privacy.noise import SecureNoise
from dpadmm.problem.rows import Shard
from dpadmm.run.charges import open_runs
from dpadmm.run.engine import Checkpoint, Exchange, run
from dpadmm.run.options import TrainingParameters
from dpadmm.run.plan import plan

PARTIES, ROWS, FEATURES, ROUNDS = 2, 20, 3, 5
HEADER = struct.Struct("<III")


def make_plan():
    parameters = TrainingParameters(
        "pr-admm", topology="path", rounds=ROUNDS, epsilon=1.0, delta=1e-3, penalty=1.0
    )
    return plan(parameters, [ROWS] * PARTIES, features=FEATURES)


class Wire(Exchange):
    """Writes every message to a pipe that another process reads; a write is all or nothing."""

    def __init__(self, pipe):
        self._pipe = os.open(pipe, os.O_WRONLY)

    def __call__(self, message, t):
        for party, values in enumerate(message.values):
            data = values.tobytes()
            frame = HEADER.pack(party, t, len(data)) + data
            assert os.write(self._pipe, frame) == len(frame)
        return message.values


def die_at_call(number):
    """Kill this process at its n-th call or return of a function, C functions included."""
    count = 0

    def watch(frame, kind, argument):
        nonlocal count
        count += 1
        if count == number:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(watch)
    return lambda: count


def node(order):
    directory = Path(order["directory"])
    calls = die_at_call(order["die_at_call"]) if "die_at_call" in order else None
    random = np.random.default_rng(0)
    rows = random.normal(size=(PARTIES, ROWS, FEATURES))
    labels = np.where(random.random((PARTIES, ROWS, 1)) < 0.5, 1.0, -1.0)
    planned, noise = make_plan(), SecureNoise()
    ledgers = [SQLiteLedger(directory / f"{party}.ledger") for party in range(PARTIES)]
    run(
        planned.algorithm,
        planned.site,
        dpadmm.solvers.workspace.Workspace(
            Shard.from_parties(list(zip(rows, labels, strict=True))), planned.site
        ),
        rounds=planned.rounds,
        exchange=Wire(directory / "wire"),
        ledgers=open_runs(planned, ledgers, "the run", noise),
        noise=noise,
        checkpoint=Checkpoint(directory / "checkpoint", every=2) if order["checkpoint"] else None,
    )
    if calls is not None:
        sys.setprofile(None)
        (directory / "calls").write_text(str(calls()))


def main():
    # Imports that wait for their first use must not be part of every node's life.
    SecureNoise().generator(0, 0, 0, "warm").standard_normal()
    make_plan()
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            try:
                node(order)
            except BaseException as error:
                sys.stderr.write(f"{type(error).__name__}: {error}\n")
                sys.stderr.flush()
                os._exit(1)
            os._exit(0)
        if "die_after" in order:
            time.sleep(order["die_after"])
            os.kill(child, signal.SIGKILL)  # one that has ended waits for its parent, us
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
