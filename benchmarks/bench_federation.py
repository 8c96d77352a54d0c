"""What a federated round costs beyond its local solve, and how that grows.

Beside it, in the same run and by the same processes in number, what nobody can avoid: a bare Zenoh
exchange of the same bytes with mutual TLS, and two durable commits
(:mod:`benchmarks.bare_peer`). All nodes are processes of this machine, in a network namespace of
their own where that is allowed, so that the bytes on the wire can be counted.

``python -m benchmarks.bench_federation --growth`` measures the tables of
``docs/federation-growth.md``; ``DPADMM_BENCH_FULL=1 python -m benchmarks federation`` does so, too.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dpadmm.arrays import Shard
from dpadmm.exchange.wire import message_size
from dpadmm.federation.certificates import make_authority, make_certificate
from dpadmm.privacy.noise import SimulatedNoise
from dpadmm.training import TrainingParameters, plan, train

Row = tuple[str, float, float | None]

ROOT = Path(__file__).parents[1]
# Connections, caches and lazily made parts settle in the first rounds.
SETTLE = 10
ROWS = 50
# (nodes, doubles of a message, rounds)
GROWTH = (
    (5, 105, 100),
    (20, 105, 60),
    (50, 105, 40),
    (5, 1_000, 60),
    (5, 10_000, 40),
    (5, 100_000, 25),
    (20, 10_000, 25),
)


@dataclass(frozen=True)
class Measured:
    """What the processes of one run took.

    Parameters
    ----------
    round_seconds
        Median over rounds and nodes.
    beyond_seconds
        The same without each node's own local step.
    solve_seconds
        Of a local step, the median.
    wire_bytes
        All bytes of a round on the loopback, divided by the number of messages received, or None.
    megabytes
        Largest resident memory of a node.
    """

    round_seconds: float
    beyond_seconds: float
    solve_seconds: float
    wire_bytes: float | None
    megabytes: float


def ring(nodes: int) -> list[list[int]]:
    return [sorted({(node - 1) % nodes, (node + 1) % nodes} - {node}) for node in range(nodes)]


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [item.getsockname()[1] for item in sockets]
    for item in sockets:
        item.close()
    return ports


def may_have_own_network() -> bool:
    command = ["unshare", "-n", "ip", "link", "set", "lo", "up"]
    tools = shutil.which("unshare") and shutil.which("ip")
    return bool(tools) and subprocess.run(command, capture_output=True).returncode == 0


# Starts the processes, waits for them, and prints the loopback's counters before and after.
RUNNER = """
import pathlib, subprocess, sys
spec, module, count, own = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4] == "own"
if own:
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
children = [
    subprocess.Popen([sys.executable, "-m", module, spec, str(n)]) for n in range(count)
]
codes = [child.wait() for child in children]
lines = pathlib.Path("/proc/net/dev").read_text().splitlines() if own else []
sent = [int(line.split(":")[1].split()[8]) for line in lines if line.strip().startswith("lo:")]
print(sent[0] if sent else 0)
sys.exit(max(codes))
"""


def run_processes(module: str, nodes: int, features: int, rounds: int) -> tuple[Any, int]:
    """Run one process per node; what each measured, and all bytes on the wire (0: unknown)."""
    # Beside the sources: a directory for temporary files may be kept in memory.
    with tempfile.TemporaryDirectory(dir=ROOT / "benchmarks") as name:
        folder = Path(name)
        make_authority(folder / "trial")
        for node in range(nodes):
            make_certificate(folder / "trial", f"node-{node}")
        spec = {
            "folder": str(folder),
            "certificates": str(folder / "trial"),
            "ports": free_ports(nodes),
            "neighbours": ring(nodes),
            "parties": nodes,
            "features": features,
            "rows": ROWS,
            "rounds": rounds,
            "message_bytes": message_size((1, 1, features)),
        }
        (folder / "spec.json").write_text(json.dumps(spec))
        own = may_have_own_network()
        command = ["unshare", "-n"] if own else []
        command += [sys.executable, "-c", RUNNER, str(folder / "spec.json"), module, str(nodes)]
        done = subprocess.run(
            [*command, "own" if own else "shared"],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "OPENBLAS_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            text=True,
        )
        if done.returncode:
            raise RuntimeError(f"{module} failed with {nodes} nodes")
        results = [
            json.loads((folder / f"result-{node}.json").read_text()) for node in range(nodes)
        ]
    return results, int(done.stdout)


def measure(module: str, nodes: int, features: int, rounds: int) -> Measured:
    """Run one process per node and sum up what they measured."""
    results, sent = run_processes(module, nodes, features, rounds)
    took = [np.diff(result["moments"])[SETTLE:] for result in results]
    solves = [
        np.array(result.get("solves", [0.0] * rounds))[1:][SETTLE:] for result in results
    ]
    beyond = [all_of_it - solve for all_of_it, solve in zip(took, solves, strict=True)]
    messages = sum(map(len, ring(nodes))) * rounds
    return Measured(
        round_seconds=float(np.median(np.concatenate(took))),
        beyond_seconds=float(np.median(np.concatenate(beyond))),
        solve_seconds=float(np.median(np.concatenate(solves))),
        wire_bytes=sent / messages if sent else None,
        megabytes=max(result.get("megabytes", 0.0) for result in results),
    )


def main() -> list[Row]:
    rows: list[Row] = []
    # In turns, so that whatever else the machine does weighs on both alike.
    pairs = [
        (measure("benchmarks.bare_peer", 5, 105, 100), measure("benchmarks.federated_peer", 5, 105, 100))
        for _ in range(3)
    ]
    bare = statistics.median(pair[0].beyond_seconds for pair in pairs)
    ours = statistics.median(pair[1].beyond_seconds for pair in pairs)
    rows.append(("a bare round of 5 nodes, two commits, milliseconds", 1e3 * bare, None))
    rows.append(("a federated round beyond its solve, milliseconds", 1e3 * ours, None))
    rows.append(("federated / bare", ours / bare, 5.0))
    rows.append(("a node's memory, megabytes", pairs[0][1].megabytes, None))
    return rows


if __name__ == "__main__":
    for row in main(): print(row)
