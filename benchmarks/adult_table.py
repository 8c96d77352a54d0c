"""Accuracy on UCI Adult at several budgets.

Run with ``DPADMM_DATA=folder python benchmarks/adult_table.py``.

Five parties with 8,000 rows each on a ring (around a server where the algorithm has one), 50
rounds, delta = 1e-5, the automatic penalty, the mean of the parties' messages over the last third
of the rounds; test rows are the rest. Figures are the mean of the runs, which differ in their
noise, and its standard error. Options choose a part of the table. A manifest ends the output.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np

import dpadmm
from dpadmm.data.named import load
from dpadmm.privacy.noise import SimulatedNoise
from dpadmm.run.options import TrainingParameters
from dpadmm.run.plan import plan
from dpadmm.run.session import lay_out, train

PARTIES, TRAINING_ROWS, DELTA = 5, 40_000, 1e-5


def _entry(algorithm: str, loss: str = "logistic", **options: Any) -> dict[str, Any]:
    return {"algorithm": algorithm, "loss": loss, "algorithm_options": options}


#: What is compared: a label, and the parameters that it stands for. Without growth, and where DVP
#: needs no extra convexity, M-ADMM is the same as DVP.
ENTRIES: dict[str, dict[str, Any]] = {
    "dvp": _entry("dvp", noise="exp-norm"),
    "dvp, gaussian": _entry("dvp", noise="gaussian"),
    "dvp, gaussian, huber-hinge": _entry("dvp", "huber-hinge", noise="gaussian"),
    "m-admm": _entry("m-admm", noise="exp-norm"),
    "m-admm, gaussian": _entry("m-admm", noise="gaussian"),
    "r-admm": _entry("r-admm", noise="exp-norm"),
    "r-admm, gaussian": _entry("r-admm", noise="gaussian"),
    "r-admm, output": _entry("r-admm", noise="output"),
    "mr-admm, gaussian": _entry("mr-admm", noise="gaussian"),
    "pr-admm": _entry("pr-admm"),
    "pr-admm, huber-hinge": _entry("pr-admm", "huber-hinge"),
    "pr-admm, public_norm": _entry("pr-admm", public_norm=True),
    "pr-admm, periodic": _entry("pr-admm", schedule="periodic"),
    "pr-admm, iteration": _entry("pr-admm", schedule="iteration", decay=0.015),
    "pdml, label epsilon 1": _entry("pdml", label_epsilon=1.0),
    "ps-admm": _entry("ps-admm"),
}


def scores(
    data: Any, order: np.ndarray, parameters: TrainingParameters, runs: int, seed: int
) -> np.ndarray:
    """Accuracy on the test rows, one figure a run."""
    shares = np.array_split(order[:TRAINING_ROWS], PARTIES)
    counts = [len(share) for share in shares]
    planned = plan(parameters, counts, features=data.X.shape[1], runs=runs)
    noise = SimulatedNoise(seed)
    columns = [(data.X[share], data.y[share][:, None]) for share in shares]
    outcome = train(planned, lay_out(planned, columns, noise=noise), noise=noise)
    weights = outcome.tail.mean(axis=(0, 2))
    held_out = order[TRAINING_ROWS:]
    predicted = np.where(data.X[held_out] @ weights.T > 0, 1.0, -1.0)
    return (predicted == data.y[held_out][:, None]).mean(axis=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.1, 0.5, 1.0, 10.0])
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--penalty", default="auto")
    parser.add_argument("--only", nargs="+", choices=ENTRIES, default=list(ENTRIES))
    chosen = parser.parse_args()
    penalty = chosen.penalty if chosen.penalty == "auto" else float(chosen.penalty)
    data = load("adult", download=False)
    order = np.random.default_rng(chosen.seed).permutation(len(data.y))
    print("| accuracy in % |" + "".join(f" epsilon {epsilon:g} |" for epsilon in chosen.epsilon))
    print("|---|" + "---|" * len(chosen.epsilon))
    for label in chosen.only:
        print(f"| {label} |", end="", flush=True)
        for epsilon in chosen.epsilon:
            parameters = TrainingParameters(
                rounds=chosen.rounds,
                penalty=penalty,
                epsilon=epsilon,
                delta=DELTA,
                **ENTRIES[label],
            )
            found = 100 * scores(data, order, parameters, chosen.runs, chosen.seed)
            error = found.std(ddof=1) / np.sqrt(len(found)) if len(found) > 1 else 0.0
            print(f" {found.mean():.2f} ± {error:.2f} |", end="", flush=True)
        print(flush=True)
    manifest = {
        "dpadmm": dpadmm.__version__,
        "numpy": np.__version__,
        "data": {"source": data.source, "sha256": data.checksum},
        **vars(chosen),
    }
    print("\n" + json.dumps(manifest, indent=2))


if __name__ == "__main__":
    main()
