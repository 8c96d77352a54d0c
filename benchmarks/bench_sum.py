"""What it costs that nothing but a sum is seen: the masks of a message, and a round of real nodes.

A secure round is that of twenty real ``dpadmm node`` processes over TLS with shared noise, where
every node adds up; a plain one that of the same nodes with noise of their own. Both draw exact
discrete noise. They take turns, so that whatever else the machine does weighs on both alike.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
import time
from datetime import datetime
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from benchmarks.bench_federation import write_nodes
from dpadmm.federation.keys import Masks, Member, ViewFacts
from dpadmm.federation.local import run_nodes
from dpadmm.ledger.filters import Policy

Row = tuple[str, float, float | None]

NODES = 20
FEATURES = 104
ROWS = 100
ROUNDS = 100
PAIRS = 3


def mask_seconds(parties: int, coordinates: int, repeats: int = 9) -> float:
    """Median seconds for the masks of one message."""
    keys = [
        X25519PrivateKey.from_private_bytes(hashlib.sha256(bytes([number])).digest())
        for number in range(parties)
    ]
    members = tuple(
        Member(f"n{number}", bytes(900), key.public_key().public_bytes_raw())
        for number, key in enumerate(keys)
    )
    masks = Masks(keys[0], ViewFacts(bytes(32), 0, members, parties // 2), 0)
    times = []
    for t in range(repeats):
        begin = time.perf_counter()
        masks.mask(t, bytes(32), coordinates)
        times.append(time.perf_counter() - begin)
    return float(np.median(times))


def round_seconds(noise: str) -> float:
    """Seconds a round, by the log of the first node."""
    with tempfile.TemporaryDirectory() as name:
        # Every node hears every other one.
        run = {
            "algorithm": "dp-gd",
            "topology": "complete",
            "rounds": ROUNDS,
            "algorithm_options": {"noise": noise},
        }
        policy = Policy(1.0, 1e-5, colluders=1)
        nodes = write_nodes(Path(name), (NODES, ROWS, FEATURES), run, policy)
        run_nodes(nodes)
        entries = [json.loads(line) for line in nodes[0].log.read_text().splitlines()]
    told = [entry for entry in entries if entry["event"] == "round"]
    first, last = (
        (datetime.fromisoformat(entry["time"]), entry["facts"]["round"])
        for entry in (told[0], told[-1])
    )
    return (last[0] - first[0]).total_seconds() / (last[1] - first[1])


def main() -> list[Row]:
    pairs = [(round_seconds("own"), round_seconds("shared")) for _ in range(PAIRS)]
    plain, secure = np.median(pairs, axis=0)
    return [
        ("masks of 100,000 numbers among 50 parties, seconds", mask_seconds(50, 100_000), 0.05),
        ("masks of 105 numbers among 20 parties, seconds", mask_seconds(20, 105), None),
        (f"a plain round of {NODES} nodes, milliseconds", 1e3 * float(plain), None),
        (f"a secure round of {NODES} nodes, milliseconds", 1e3 * float(secure), None),
        (
            f"secure / plain round, median of {PAIRS} pairs",
            float(np.median([secure / plain for plain, secure in pairs])),
            1.5,
        ),
    ]
