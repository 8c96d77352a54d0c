"""How time and memory grow: the tables of ``docs/scale.md``.

``python -m benchmarks.growth [rows features parties messages delay own shared]`` prints those
named, or all. Every line is measured in processes of its own. Beside a figure stands the exponent
of growth since the line above, log(figure ratio) / log(size ratio): 1 is linear, 0 does not grow.
"""

from __future__ import annotations

import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from scipy import sparse

from benchmarks.bench_data import waveform_schema, write_generated
from benchmarks.bench_federation import (
    FEATURES,
    NODE,
    PARTS,
    ROOT,
    ROWS,
    SHARED_POLICY,
    complete,
    measure,
    ring,
    shared_run,
)
from benchmarks.federated_peer import rows_of
from dpadmm.data.tables import encode_party
from dpadmm.privacy.noise import SimulatedNoise, secure_noise
from dpadmm.problem.rows import Shard, label_signs
from dpadmm.run.options import TrainingParameters
from dpadmm.run.plan import plan
from dpadmm.run.session import train

#: What a line has measured, by the name of its column; seconds, or megabytes.
Figures = dict[str, float]

_MEMORY = "memory"
# Numbers of a row that are not zero, where rows are sparse.
_NONZERO = 20


def in_own_process(work: str, *sizes: int) -> Figures:
    """What a function of this module measures in a process of its own, and its memory."""
    words = [sys.executable, "-m", "benchmarks.growth", "--measure", work, *map(str, sizes)]
    environment = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(words, env=os.environ | environment, stdout=subprocess.PIPE, check=True)
    found: Figures = json.loads(done.stdout)
    return found


def round_seconds(shard: Shard, algorithm: str, features: int, rounds: int, **told: Any) -> float:
    """The median of a run's rounds but for the first, with simulated noise."""
    parameters = TrainingParameters(
        algorithm,
        epsilon=1.0,
        delta=1e-9,
        rounds=rounds,
        topology="server" if algorithm == "dp-gd" else "ring",
        loss="logistic",
        **told,
    )
    planned = plan(parameters, [int(count) for count in shard.counts], features=features)
    ends: list[float] = []
    train(
        planned,
        shard,
        noise=SimulatedNoise(1),
        on_round=lambda done, message: ends.append(time.perf_counter()),
    )
    return float(median(np.diff(ends)))


def measure_rows(rows: int) -> Figures:
    """One party's Parquet file of 21 columns beside a small party: encoded, and trained on."""
    schema = waveform_schema()
    features = len(schema.feature_names)
    with tempfile.TemporaryDirectory(dir=ROOT / "benchmarks") as name:
        file = write_generated(Path(name) / "rows.parquet", rows)
        begin = time.perf_counter()
        party = encode_party(file, schema, Path(name))
        encoding = time.perf_counter() - begin
        own = (party.rows, label_signs(party.labels, 1))
        shard = Shard.from_parties([own, rows_of(1, 1000, features)])
        return {
            "encode": encoding,
            "`dp-gd` round": round_seconds(shard, "dp-gd", features, 4),
            "`pr-admm` round": round_seconds(shard, "pr-admm", features, 4),
        }


def measure_features(features: int, dense: int) -> Figures:
    """Five parties of 100 dense rows each, or of 2,000 sparse ones; and what noise takes."""
    parties = []
    for number in range(5):
        if dense:
            parties.append(rows_of(number, 100, features))
            continue
        random = np.random.default_rng(number)
        places = random.integers(0, features, (2000, _NONZERO))
        starts = np.arange(0, places.size + 1, _NONZERO)
        values = np.full(places.size, 1 / math.sqrt(2 * _NONZERO))
        rows = sparse.csr_array((values, places.ravel(), starts), shape=(2000, features))
        rows.sum_duplicates()
        labels = np.where(places.min(axis=1, keepdims=True) % 2, 1.0, -1.0)
        parties.append((rows, labels))
    shard = Shard.from_parties(parties)
    found = {
        f"`{name}` round": round_seconds(shard, name, features, 4) for name in ("dp-gd", "pr-admm")
    }
    noise, place = secure_noise(), np.array([0])
    for numbers in (1, features):
        # The first time OpenDP is loaded.
        begin = time.perf_counter()
        noise.add_gaussian(np.zeros((1, 1, 1, numbers)), np.array(1.0), place, 0, "message")
    return found | {"OpenDP's noise": time.perf_counter() - begin}


def measure_parties(parties: int) -> Figures:
    """A ring of parties of 50 rows each in one process, without messages, ledgers or TLS."""
    shard = Shard.from_parties([rows_of(number, ROWS, FEATURES) for number in range(parties)])
    told = {"tolerance": 1e-6, "penalty": 0.05, "regularization": 1e-2}
    return {
        "`pr-admm` round": round_seconds(shard, "pr-admm", FEATURES, 10, **told),
        "`dp-gd` round": round_seconds(shard, "dp-gd", FEATURES, 10),
    }


def measure_links(links: list[list[int]], features: int, rounds: int, **options: Any) -> Figures:
    """Nodes over mutual TLS, one process each."""
    module = NODE if options.get("run") else PARTS
    found = measure(module, links, features, rounds, **options)
    figures = {"round": found.whole, "beyond the solve": found.beyond}
    if module == PARTS:
        figures |= {"processor": found.processor, _MEMORY: found.megabytes}
    return figures | {"wire": found.wire}


Lines = Iterator[tuple[int, Figures]]


def rows_lines() -> Lines:
    for rows in (10**5, 10**6, 10**7):
        yield rows, in_own_process("rows", rows)


def features_lines(dense: bool) -> Lines:
    for features in (10**2, 10**3, 10**4, 10**5):
        yield features, in_own_process("features", features, int(dense))


def parties_lines() -> Lines:
    for parties in (5, 50, 200, 1000):
        yield parties, in_own_process("parties", parties)


def messages_lines(delay: float = 0.0) -> Lines:
    sizes = ((10**2, 40), (10**3, 40), (10**4, 30), (10**5, 15), (10**6, 10))
    for doubles, rounds in sizes if not delay else sizes[::2]:
        # As few rows as leave the solve beside the message.
        rows = min(ROWS, max(5, 10**6 // doubles))
        yield doubles, measure_links(ring(3), doubles, rounds, delay=delay, rows=rows)


def own_lines() -> Lines:
    for nodes in (5, 20, 50):
        yield nodes, measure_links(ring(nodes), FEATURES, 25)


def shared_lines() -> Lines:
    # 50 have 1,225 links, which do not all come about on two cores within minutes.
    for nodes in (5, 20):
        run = {"run": shared_run(25), "policy": SHARED_POLICY}
        yield nodes, measure_links(complete(nodes), FEATURES, 25, **run)


PARTS_OF_PAGE: Mapping[str, tuple[tuple[str, Callable[[], Lines]], ...]] = {
    "rows": (("rows x 21", rows_lines),),
    "features": (
        ("features, 5 x 100 dense rows", lambda: features_lines(True)),
        (f"features, 5 x 2,000 rows with {_NONZERO} nonzeros", lambda: features_lines(False)),
    ),
    "parties": (("parties in one process", parties_lines),),
    "messages": (("doubles, ring of 3 nodes", messages_lines),),
    "delay": (("doubles, ring of 3 nodes, links of 50 ms", lambda: messages_lines(0.05)),),
    "own": (("nodes, ring, own noise", own_lines),),
    "shared": (("nodes, everybody linked, shared noise", shared_lines),),
}


def shown(column: str, figure: float) -> str:
    """A figure in the unit of its column."""
    if column == _MEMORY:
        return f"{figure:.0f} MB"
    if column == "wire":
        return f"{figure:,.0f} B"
    return f"{figure:.3g} s" if figure >= 1 else f"{1e3 * figure:.3g} ms"


def print_table(title: str, lines: Lines) -> None:
    """Print a table as it grows, with the exponents between neighbouring lines."""
    before: tuple[int, Figures] | None = None
    for size, figures in lines:
        if before is None:
            print(f"\n| {title} | {' | '.join(figures)} |")
            print(f"|--:|{'--:|' * len(figures)}")
        cells = []
        for column, figure in figures.items():
            cell = shown(column, figure)
            if before is not None and figure > 0 and before[1][column] > 0:
                exponent = math.log(figure / before[1][column]) / math.log(size / before[0])
                cell += f" ({exponent:.2f})"
            cells.append(cell)
        print(f"| {size:,} | {' | '.join(cells)} |", flush=True)
        before = size, figures


def main(wanted: list[str]) -> int:
    unknown = set(wanted) - set(PARTS_OF_PAGE)
    if unknown:
        print(f"unknown: {', '.join(sorted(unknown))}; there are: {', '.join(PARTS_OF_PAGE)}")
        return 2
    for name in wanted or PARTS_OF_PAGE:
        for title, lines in PARTS_OF_PAGE[name]:
            print_table(title, lines())
    return 0


def measure_here(work: str, sizes: list[int]) -> None:
    """What one of the processes of a table does: print figures and its own memory."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found: Figures = globals()[f"measure_{work}"](*sizes)
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    print(json.dumps(found | {_MEMORY: largest}))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        measure_here(sys.argv[2], [int(word) for word in sys.argv[3:]])
    else:
        sys.exit(main(sys.argv[1:]))
