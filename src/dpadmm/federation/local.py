"""A whole federation on this machine: all files written, one process per node over mutual TLS.

For demonstrations, trials and benchmarks. Every node is a ``dpadmm node`` as an organisation would
start it, with a certificate, a ledger and a policy of its own.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import tomli_w

from dpadmm.data.schema import Schema
from dpadmm.errors import ExchangeError
from dpadmm.federation.config import load_agreed_run
from dpadmm.federation.identity import make_authority, make_certificate, read_certificate
from dpadmm.ledger.base import ChargedData
from dpadmm.ledger.filters import Policy
from dpadmm.ledger.sqlite import SQLiteLedger

_COMMAND: Final = (sys.executable, "-m", "dpadmm", "node", "--config")
_SHOWN_LINES: Final = 20


@dataclass(frozen=True)
class LocalNode:
    """The files of one node.

    Parameters
    ----------
    name
        Of the node.
    config
        Its ``node.toml``.
    model, record, statement, log
        What it leaves behind.
    status
        What ``dpadmm status`` reads.
    """

    name: str
    config: Path
    model: Path
    record: Path
    statement: Path
    log: Path
    status: Path

    @classmethod
    def within(cls, folder: Path, results: Path, name: str) -> LocalNode:
        """A node whose configuration is in one folder, and what it leaves behind in another."""
        kinds = ("model", "record", "statement", "log")
        left = {kind: (results / f"{name}.{kind}").resolve() for kind in kinds}
        return cls(name, folder / f"{name}.toml", **left, status=folder / f"{name}.status.json")

    @property
    def report(self) -> Path:
        """The page to read, beside the model."""
        return self.model.with_suffix(".html")


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that nobody listens on now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [item.getsockname()[1] for item in sockets]
    for item in sockets:
        item.close()
    return ports


def write_federation(
    folder: Path,
    results: Path,
    schema: Schema,
    data: Mapping[str, tuple[Path, int]],
    run: Mapping[str, Any],
    policy: Policy,
    *,
    server: str | None = None,
) -> list[LocalNode]:
    """Write everything that the nodes of a federation need.

    Parameters
    ----------
    folder
        Where certificates, keys, ledgers and configurations go; nobody else may read it.
    results
        Where models, records, statements and logs go.
    schema
        How rows are encoded.
    data
        The file of each party's rows and how many there are, by its name.
    run
        The ``[run]`` table that all agree on.
    policy
        What every ledger, and every owner, allows.
    server
        Name of the node without rows that averages, if there is one; it comes last.
    """
    trial = folder / "certificates"
    make_authority(trial)
    (folder / "schema.toml").write_text(schema.to_toml(), encoding="utf-8")
    parties = [{"name": name, "rows": rows} for name, (_, rows) in data.items()]
    content: dict[str, Any] = {"schema_sha256": schema.sha256, "run": run, "party": parties}
    if server is not None:
        content["server"] = server
    (folder / "agreed.toml").write_text(tomli_w.dumps(content), encoding="utf-8")
    agreed = load_agreed_run(folder / "agreed.toml")
    planned = agreed.plan(schema)
    ports = free_ports(len(agreed.nodes))
    places = {name: f"127.0.0.1:{port}" for name, port in zip(agreed.nodes, ports, strict=True)}
    pins = {name: read_certificate(make_certificate(trial, name)[0]).fingerprint for name in data}
    nodes = []
    for name, (rows_file, rows) in data.items():
        ledger = folder / f"{name}.ledger"
        SQLiteLedger.create(ledger, ChargedData("rows", name, rows, schema.sha256), policy).close()
        node = LocalNode.within(folder, results, name)
        told = _node_config(folder, node, rows_file, places[name], policy)
        told["pins"] = pins
        if policy.colluders is not None:
            told["policy"]["colluders"] = policy.colluders
        told["neighbour"] = [
            {"name": other, "address": places[other]} for other in agreed.neighbours(name, planned)
        ]
        node.config.write_text(tomli_w.dumps(told), encoding="utf-8")
        nodes.append(node)
    if server is not None:
        make_certificate(trial, server)
        node = LocalNode.within(folder, results, server)
        told = _node_config(folder, node, folder, places[server], policy)
        told["node"] = {
            key: told["node"][key] for key in ("name", "listen", "schema", "messages")
        } | {"role": "server"}
        del told["result"]
        told["neighbour"] = [{"name": name, "address": places[name]} for name in data]
        node.config.write_text(tomli_w.dumps(told), encoding="utf-8")
        nodes.append(node)
    return nodes


def _node_config(
    folder: Path, node: LocalNode, rows_file: Path, listen: str, policy: Policy
) -> dict[str, Any]:
    """What a ``node.toml`` says, but for the others."""
    trial = folder / "certificates"
    return {
        "run": str(folder / "agreed.toml"),
        "node": {
            "name": node.name,
            "listen": listen,
            "data": str(rows_file),
            "schema": str(folder / "schema.toml"),
            "ledger": str(folder / f"{node.name}.ledger"),
            "messages": str(folder / f"{node.name}.messages"),
        },
        "certificates": {
            "authority": str(trial / "ca.pem"),
            "certificate": str(trial / f"{node.name}.pem"),
            "key": str(trial / f"{node.name}.key"),
        },
        "policy": {
            "epsilon": policy.epsilon,
            "delta": policy.delta,
            "start_within": 120.0,
            "serve_for": 20.0,
        },
        "result": {kind: str(getattr(node, kind)) for kind in ("model", "record", "statement")},
        "watch": {"log": str(node.log), "status": str(node.status)},
    }


def run_nodes(
    nodes: Sequence[LocalNode], on_look: Callable[[], None] = lambda: None, *, every: float = 0.2
) -> None:
    """Start a process per node and wait until all have ended; looks in from time to time.

    Raises
    ------
    ExchangeError
        If one of them fails; the others are then stopped.
    """
    running: dict[LocalNode, subprocess.Popen[bytes]] = {}
    try:
        for node in nodes:
            with open(_errors(node), "wb") as errors:
                running[node] = subprocess.Popen(
                    [*_COMMAND, str(node.config), "--json"],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=errors,
                )
        while running:
            on_look()
            time.sleep(every)
            for node, process in list(running.items()):
                if process.poll() is None:
                    continue
                del running[node]
                if process.returncode:
                    told = _errors(node).read_text(errors="replace").splitlines()
                    lines = "\n".join(told[-_SHOWN_LINES:])
                    raise ExchangeError(f"node {node.name} must end well; it did not:\n{lines}")
        on_look()
    finally:
        for process in running.values():
            process.kill()
            process.wait()


def _errors(node: LocalNode) -> Path:
    return node.config.with_suffix(".errors")
