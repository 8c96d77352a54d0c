"""What a federated round costs beyond its local solve, what a node takes, and how that grows.

The round is that of five real ``dpadmm node`` processes on a ring (:mod:`benchmarks.timed_node`):
from the beginning of a round to that of the next, without the slowest of the local solves it waits
for, the node's own and its neighbours'. Beside it, in turns and with as many processes, what nobody
can avoid: a bare Zenoh exchange of the same bytes with mutual TLS, and two durable commits
(:mod:`benchmarks.bare_peer`). All are processes of this machine, in a network namespace of their
own where that is allowed, so that the bytes on the wire can be counted.

Memory is read from ``/proc`` while five nodes read rows, train and write their results: the most
that one of them has. Resident is all that the kernel counts, pages of libraries' code included,
which all processes of a machine share; what is not backed by a file is the node's alone.

How that grows with nodes and with the length of messages: :mod:`benchmarks.growth`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from benchmarks.federated_peer import rows_of
from dpadmm.data.schema import Label, NumericColumn, Schema
from dpadmm.federation.identity import make_authority, make_certificate
from dpadmm.federation.local import LocalNode, free_ports, run_nodes, write_federation
from dpadmm.federation.status import read_statuses
from dpadmm.federation.transport.wire import message_size
from dpadmm.ledger.filters import Policy

Row = tuple[str, float, float | None]
Links = list[list[int]]

ROOT = Path(__file__).parents[1]
BARE, PARTS, NODE = (
    "benchmarks.bare_peer",
    "benchmarks.federated_peer",
    "benchmarks.timed_node",
)
PAIRS = 5
# Connections, caches and lazily made parts settle in the first rounds.
SETTLE = 5
ROWS = 50
FEATURES = 105
OWN_POLICY = Policy(1.0, 1e-5)
SHARED_POLICY = Policy(1.0, 1e-5, colluders=1)

# Starts the processes, waits for them, and prints what the loopback sent.
RUNNER = """
import pathlib, subprocess, sys
spec, module, count, own, slow = sys.argv[1], sys.argv[2], int(sys.argv[3]), *sys.argv[4:]
if own == "own":
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
start = lambda *words: subprocess.Popen([sys.executable, "-m", *words], stdout=subprocess.DEVNULL)
relays = [start("benchmarks.slow_links", spec)] if slow == "slow" else []
children = [start(module, spec, str(number)) for number in range(count)]
codes = [child.wait() for child in children]
for relay in relays:
    relay.kill()
    relay.wait()
lines = pathlib.Path("/proc/net/dev").read_text().splitlines() if own == "own" else []
sent = [int(line.split(":")[1].split()[8]) for line in lines if line.strip().startswith("lo:")]
print(sent[0] if sent else 0)
sys.exit(max(map(abs, codes)))
"""


@dataclass(frozen=True)
class Measured:
    """What the processes of one run took; medians over rounds and nodes, in seconds.

    Parameters
    ----------
    whole, beyond
        A round; the same without the slowest of the local steps that it waits for: the node's own
        and its neighbours'.
    solve
        A local step.
    processor
        Processor time of a node in a round, beyond its local step.
    wire
        Bytes on the loopback for each message received, all else included; 0 if unknown.
    megabytes
        Largest resident memory of a process.
    """

    whole: float
    beyond: float
    solve: float
    processor: float
    wire: float
    megabytes: float


def ring(nodes: int) -> Links:
    return [sorted({(node - 1) % nodes, (node + 1) % nodes}) for node in range(nodes)]


def complete(nodes: int) -> Links:
    return [[other for other in range(nodes) if other != node] for node in range(nodes)]


def has_own_network() -> bool:
    command = ["unshare", "-n", "ip", "link", "set", "lo", "up"]
    tools = shutil.which("unshare") and shutil.which("ip")
    return bool(tools) and subprocess.run(command, capture_output=True).returncode == 0


def run_processes(
    module: str,
    links: Links,
    features: int,
    rounds: int,
    delay: float,
    run: Mapping[str, Any] | None = None,
    policy: Policy = OWN_POLICY,
    rows: int = ROWS,
) -> tuple[list[dict[str, Any]], int]:
    """Run one process per node; what each measured, and all bytes on the wire (0: unknown)."""
    # Beside the sources: a directory for temporary files may be kept in memory.
    with tempfile.TemporaryDirectory(dir=ROOT / "benchmarks") as name:
        folder, nodes = Path(name), len(links)
        (folder / "nodes").mkdir()
        make_authority(folder / "trial")
        for node in range(nodes):
            make_certificate(folder / "trial", f"node-{node}")
        ports = free_ports(2 * nodes)
        spec = {
            "folder": str(folder),
            "certificates": str(folder / "trial"),
            "ports": ports[:nodes],
            "relay_ports": ports[nodes:] if delay else [],
            "delay": delay,
            "neighbours": links,
            "features": features,
            "rows": rows,
            "rounds": rounds,
            "message_bytes": message_size((1, 1, features)),
        }
        if module == NODE:
            told = run or ring_run(rounds)
            made = write_nodes(folder / "nodes", (nodes, rows, features), told, policy)
            spec["configurations"] = [str(node.config) for node in made]
        (folder / "spec.json").write_text(json.dumps(spec))
        own = has_own_network()
        words = [sys.executable, "-c", RUNNER, str(folder / "spec.json"), module, str(nodes)]
        words += ["own" if own else "shared", "slow" if delay else "fast"]
        environment = {
            "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
            "PYTHONWARNINGS": "ignore",
            "OPENBLAS_NUM_THREADS": "1",
        }
        done = subprocess.run(
            ["unshare", "-n", *words] if own else words,
            cwd=ROOT,
            env=os.environ | environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        if done.returncode:
            raise RuntimeError(f"{module} failed with {nodes} nodes")
        files = [folder / f"result-{node}.json" for node in range(nodes)]
        results = [json.loads(file.read_text()) for file in files]
    return results, int(done.stdout)


def measure(
    module: str,
    links: Links,
    features: int = FEATURES,
    rounds: int = 100,
    delay: float = 0.0,
    run: Mapping[str, Any] | None = None,
    policy: Policy = OWN_POLICY,
    rows: int = ROWS,
) -> Measured:
    """Run one process per node and sum up what they measured."""
    results, sent = run_processes(module, links, features, rounds, delay, run, policy, rows)
    nothing = [0.0] * rounds

    def settled(values: list[float]) -> Any:
        return np.array(values)[SETTLE:]

    whole = [np.diff(settled(result["moments"])) for result in results]
    solves = [settled(result.get("solves", nothing))[1:] for result in results]
    slowest = [
        np.max([solves[other] for other in (node, *links[node])], axis=0)
        for node in range(len(links))
    ]
    processor = [
        np.diff(settled(result.get("processor", nothing)))
        - settled(result.get("solves_processor", nothing))[1:]
        for result in results
    ]
    messages = sum(map(len, links)) * rounds
    return Measured(
        whole=float(np.median(whole)),
        beyond=float(np.median(np.array(whole) - np.array(slowest))),
        solve=float(np.median(solves)),
        processor=float(np.median(processor)),
        wire=sent / messages,
        megabytes=max(result.get("megabytes", 0.0) for result in results),
    )


def write_nodes(
    folder: Path,
    shape: tuple[int, int, int],
    run: Mapping[str, Any],
    policy: Policy = OWN_POLICY,
    server: str | None = None,
) -> list[LocalNode]:
    """Write all files of so many nodes, rows and features."""
    nodes, rows, features = shape
    columns = tuple(
        NumericColumn(name=f"x{number}", lower=-1.0, upper=1.0, missing=False)
        for number in range(features)
    )
    schema = Schema(label=Label(column="y", classes=("-1", "1")), columns=columns)
    data = {}
    for number in range(nodes):
        values, labels = rows_of(number, rows, features)
        table = {f"x{place}": column for place, column in enumerate(values.T)}
        file = folder / f"{number}.parquet"
        pyarrow.parquet.write_table(pa.table(table | {"y": labels[:, 0].astype(np.int8)}), file)
        data[f"node-{number}"] = (file, rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        told = {"run_id": "bench", **run}
        return write_federation(folder, folder, schema, data, told, policy, server=server)


def ring_run(rounds: int) -> dict[str, Any]:
    """The run of nodes on a ring."""
    return {
        "algorithm": "pr-admm",
        "topology": "ring",
        "rounds": rounds,
        "tolerance": 1e-6,
        "penalty": 0.05,
        "regularization": 1e-2,
    }


def shared_run(rounds: int) -> dict[str, Any]:
    """The run of nodes of which everybody hears everybody's words, and nobody's message."""
    return {
        "algorithm": "dp-gd",
        "topology": "server",
        "rounds": rounds,
        "regularization": 1e-2,
        "algorithm_options": {"noise": "shared", "colluders": 1},
    }


def memory_of_nodes(rows: int = 9000, rounds: int = 20) -> tuple[float, float]:
    """The most memory of one of five nodes beyond its rows: resident, and not backed by a file."""
    largest = {"VmRSS": 0.0, "RssAnon": 0.0}
    with tempfile.TemporaryDirectory() as name:
        nodes = write_nodes(Path(name), (5, rows, FEATURES), ring_run(rounds))

        def look() -> None:
            for status in read_statuses([node.status for node in nodes if node.status.exists()]):
                place = Path(f"/proc/{status.content['process']}/status")
                try:
                    lines = place.read_text().splitlines()
                except OSError:
                    continue
                for line in lines:
                    word = line.partition(":")[0]
                    if word in largest:
                        largest[word] = max(largest[word], int(line.split()[1]) / 1000)

        run_nodes(nodes, look, every=0.05)
    data = 8e-6 * rows * (FEATURES + 1)
    return largest["VmRSS"] - data, largest["RssAnon"] - data


def main() -> list[Row]:
    # In turns, so that whatever else the machine does weighs on both alike.
    pairs = [(measure(BARE, ring(5)).beyond, measure(NODE, ring(5)).beyond) for _ in range(PAIRS)]
    ratios = [ours / bare for bare, ours in pairs]
    bare, ours = np.median(pairs, axis=0)
    resident, anonymous = memory_of_nodes()
    return [
        ("a bare exchange of 5 nodes with two commits, milliseconds", 1e3 * float(bare), None),
        ("a round of dpadmm node beyond its local solve, milliseconds", 1e3 * float(ours), None),
        (f"that round / bare exchange, median of {PAIRS} pairs", float(np.median(ratios)), 5.0),
        ("the smallest of the pairs", min(ratios), None),
        ("the largest of the pairs", max(ratios), None),
        ("a node beyond its rows, megabytes resident, libraries' code included", resident, None),
        ("a node beyond its rows, megabytes resident not backed by a file", anonymous, 100.0),
    ]
