"""Shared noise along a tree: twenty nodes against a server, and fifty that could not all be linked.

Nodes are real ``dpadmm node`` processes over TLS, all on this machine. A round is timed by the logs
of all nodes (the median of their medians); federations take turns, so that whatever else the
machine does weighs on all alike. A start is what the last node takes from the first process to
agreement.
"""

from __future__ import annotations

import json
import tempfile
import time
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np

from benchmarks.bench_federation import SHARED_POLICY, write_nodes
from dpadmm.federation.local import LocalNode, run_nodes
from dpadmm.problem.site import SpanningTree, build_topology

Row = tuple[str, float, float | None]
Topology = str | list[list[str]]

FEATURES, ROWS, PAIRS = 104, 50, 3
# Fifty processes on two cores take minutes to start.
PATIENCE = 1200.0


def linked(nodes: int, degree: int = 4) -> list[list[str]]:
    """A connected random graph, by name."""
    seeds = range(100)
    graphs = (nx.random_regular_graph(degree, nodes, seed=seed) for seed in seeds)
    graph = next(each for each in graphs if nx.is_connected(each))
    return [[f"node-{i}", f"node-{j}"] for i, j in graph.edges]


def depth(topology: Topology, nodes: int) -> int:
    """Of the spanning tree."""
    names = [f"node-{number}" for number in range(nodes)]
    links: Any = topology
    if not isinstance(topology, str):
        links = [(names.index(one), names.index(other)) for one, other in topology]
    return SpanningTree.of(build_topology(links, nodes), names).depth


def moments(node: LocalNode, event: str) -> list[float]:
    """When a node told of something."""
    entries = [json.loads(line) for line in node.log.read_text().splitlines()]
    return [
        datetime.fromisoformat(entry["time"]).timestamp()
        for entry in entries
        if entry["event"] == event
    ]


def trained(nodes: int, topology: Topology, rounds: int) -> tuple[float, float]:
    """Seconds until all agreed, and seconds a round; the run ends well or this raises."""
    run = {
        "algorithm": "dp-gd",
        "topology": topology,
        "rounds": rounds,
        "regularization": 1e-2,
        "algorithm_options": {"noise": "shared"},
    }
    server = "hub" if topology == "server" else None
    with tempfile.TemporaryDirectory() as name:
        shape = (nodes, ROWS, FEATURES)
        made = write_nodes(Path(name), shape, run, SHARED_POLICY, server=server)
        for node in made:
            text = node.config.read_text()
            node.config.write_text(
                text.replace("start_within = 120.0", f"start_within = {PATIENCE}")
            )
        begin = datetime.now(UTC).timestamp()
        run_nodes(made)
        started = max(moments(node, "agreed")[0] for node in made) - begin
        each = [
            np.median([after - before for before, after in pairwise(moments(node, "round"))])
            for node in made
        ]
        agreed = [moments(node, "agreed-by-all") for node in made if node.name != server]
    if not all(agreed):
        raise RuntimeError("not all parties have the same model")
    return started, float(np.median(each))


def main() -> list[Row]:
    begin = time.monotonic()
    random = linked(20)
    turns = [
        [trained(20, topology, 40)[1] for topology in ("server", random, "ring")]
        for _ in range(PAIRS)
    ]
    server, sparse, ring = 1e3 * np.median(turns, axis=0)
    ratio = float(np.median([turn[1] / turn[0] for turn in turns]))
    rows: list[Row] = [
        ("a round of 20 nodes around a server, milliseconds", server, None),
        (f"on a random graph of degree 4, depth {depth(random, 20)}", sparse, None),
        (f"on a ring, depth {depth('ring', 20)}", ring, None),
        (f"random graph / server, median of {PAIRS} turns", ratio, 1.5),
    ]
    for what, topology in (("a random graph of degree 4", linked(50)), ("a ring", "ring")):
        started, seconds = trained(50, topology, 20)
        rows += [
            (f"50 nodes on {what}: until all agreed, seconds", started, None),
            (f"a round, depth {depth(topology, 50)}, milliseconds", 1e3 * seconds, None),
        ]
    rows.append(("all of this, seconds", time.monotonic() - begin, None))
    return rows
