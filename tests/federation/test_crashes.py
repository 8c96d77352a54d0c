"""Nodes killed at random points: what another process received was charged, once and for ever."""

import json
import os
import random
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dpadmm.ledger.base import ChargedData
from dpadmm.ledger.filters import Policy
from dpadmm.ledger.sqlite import SQLiteLedger

PROGRAM = Path(__file__).with_name("crashing_node.py")
SOURCE = Path(__file__).parents[2] / "src"
HEADER = struct.Struct("<III")
PARTIES, ROWS, ROUNDS = 2, 20, 5
MOST_DEATHS = 4


@pytest.fixture(scope="module")
def nodes():
    """Start a node and wait for its end: the exit code."""
    program = subprocess.Popen(
        [sys.executable, str(PROGRAM)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SOURCE), "OPENBLAS_NUM_THREADS": "1"},
    )

    def start(order):
        program.stdin.write(json.dumps(order) + "\n")
        program.stdin.flush()
        return int(program.stdout.readline())

    yield start
    program.stdin.close()
    assert program.wait(30) == 0
    program.stdout.close()


class Trial:
    """One training, with a ledger per party and a pipe on which its messages arrive."""

    def __init__(self, directory):
        directory.mkdir()
        self.directory = directory
        os.mkfifo(directory / "wire")
        # Open for both ways, so that the pipe outlives every node that writes to it.
        self.wire = os.open(directory / "wire", os.O_RDWR | os.O_NONBLOCK)
        self.arrived = {}
        for party in range(PARTIES):
            policy = Policy(1.0, 1e-3)
            dataset = ChargedData("rows", f"party {party}", ROWS)
            SQLiteLedger.create(self.ledger(party), dataset, policy).close()

    def ledger(self, party):
        return self.directory / f"{party}.ledger"

    def receive(self):
        """Take what arrived; a second, different message of a round is a breach."""
        data = b""
        while True:
            try:
                data += os.read(self.wire, 1 << 16)
            except BlockingIOError:
                break
        while data:
            party, t, size = HEADER.unpack_from(data)
            message = data[HEADER.size : HEADER.size + size]
            data = data[HEADER.size + size :]
            assert self.arrived.setdefault((party, t), message) == message

    def check(self):
        """Everything that arrived is charged and stored, as it arrived; every ledger verifies."""
        spent = []
        for party in range(PARTIES):
            with SQLiteLedger(self.ledger(party)) as ledger:
                account = ledger.verify()
                spent.append(account.spent)
                record = account.runs.get("the run")
                for (sender, t), message in self.arrived.items():
                    if sender == party:
                        assert t in record.events
                        assert ledger.load_message(record.commits[t]).tobytes() == message
        return spent

    def close(self):
        os.close(self.wire)


@pytest.fixture(scope="module")
def undisturbed(nodes, tmp_path_factory):
    """What a training spends, how long it takes and how many calls it makes, left alone."""
    directory = tmp_path_factory.mktemp("undisturbed")
    for name, extra in (("first", {}), ("timed", {}), ("counted", {"die_at_call": -1})):
        trial = Trial(directory / name)
        begin = time.monotonic()
        assert nodes({"directory": str(trial.directory), "checkpoint": False} | extra) == 0
        if name == "timed":
            seconds = time.monotonic() - begin
        trial.receive()
        spent = trial.check()
        trial.close()
        assert len(trial.arrived) == PARTIES * ROUNDS
        assert all(spent)
    return spent, seconds, int((trial.directory / "calls").read_text())


def train_with_crashes(nodes, undisturbed, directory, seed):
    spent, seconds, calls = undisturbed
    draw = random.Random(seed)
    trial = Trial(directory)
    order = {"directory": str(directory), "checkpoint": draw.random() < 0.5}
    deaths, ended = 0, None
    while ended != 0:
        death = {}
        if deaths < MOST_DEATHS and draw.random() < 0.5:
            death = {"die_after": draw.uniform(0, seconds)}
        elif deaths < MOST_DEATHS:
            death = {"die_at_call": draw.randint(1, calls)}
        ended = nodes(order | death)
        assert ended in (0, -signal.SIGKILL)
        deaths += ended != 0
        trial.receive()
        now = trial.check()
        assert all(charged <= whole for charged, whole in zip(now, spent, strict=True))
    assert now == spent
    assert len(trial.arrived) == PARTIES * ROUNDS
    trial.close()
    return deaths


@pytest.mark.parametrize("seed", range(20))
def test_killed_nodes_charge_once_and_send_one_message(nodes, undisturbed, tmp_path, seed):
    train_with_crashes(nodes, undisturbed, tmp_path / "trial", seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1200))
def test_many_killed_nodes(nodes, undisturbed, tmp_path, seed):
    train_with_crashes(nodes, undisturbed, tmp_path / "trial", seed)
