"""How much the auditor finds: the tables of ``docs/audit.md``.

Run with ``python benchmarks/audit_power.py``, or with ``noise`` or ``attack`` for one of the two
tables; each takes some minutes. The lines of the attacks are those of ``dpadmm audit --algorithm
NAME --features 2 --outputs 1 --rows-per-person 1`` with what the line names, seeds 0 to 2.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from dpadmm.audit.algorithms import AlgorithmCase
from dpadmm.audit.cases import audit_case
from dpadmm.audit.oracle import NoiseScores, find_faults

SEEDS = range(3)
SAMPLES = 50_000
# What is run, and how the page calls it.
ATTACKS: list[tuple[str, str, dict[str, Any]]] = [
    ("`pr-admm`", "pr-admm", {}),
    (
        "`pr-admm`, 8 features, 4 outputs, 3 rows a person",
        "pr-admm",
        {"features": 8, "outputs": 4, "rows_per_person": 3},
    ),
    ("`dvp`", "dvp", {}),
    ("`dvp`, half of its noise", "dvp", {"noise_scale": 0.5}),
    ("`dvp` as published", "dvp", {"calibration": "published"}),
    ("`dvp`, 8 features", "dvp", {"features": 8}),
    ("`dvp`, Gaussian noise", "dvp", {"options": {"noise": "gaussian"}}),
    ("`r-admm`", "r-admm", {}),
    ("`r-admm`, half of its noise", "r-admm", {"noise_scale": 0.5}),
    ("`r-admm`, Gaussian noise", "r-admm", {"options": {"noise": "gaussian"}}),
]
# Deployed noise of `dpadmm audit --algorithm pr-admm --rounds 50 --features 5 --outputs 4`:
# parties, runs, rounds, outputs, coordinates.
SHAPE = (3, 24, 50, 4, 5)
REPETITIONS = 20
FALSE_ALARM = 0.5e-4


def attack_table() -> None:
    print("| run | found |\n| --- | --- |")
    for words, name, facts in ATTACKS:
        shares = [
            audit_case(
                AlgorithmCase(name, 1.0, 1e-5, seed=seed, rounds=3, **facts),
                samples=SAMPLES,
                seed=seed,
            ).recovered
            for seed in SEEDS
        ]
        print(f"| {words} | {np.mean(shares):.2f} |", flush=True)


def refuted(place: tuple[Any, ...], factor: float) -> float:
    """How often noise that is less at some place is refuted."""
    alarms = 0
    for seed in range(REPETITIONS):
        values = np.random.default_rng(seed).standard_normal(SHAPE)
        values[place] *= factor
        scores = NoiseScores("noise", values, tuple(range(SHAPE[2])))
        alarms += bool(find_faults([scores], FALSE_ALARM)[0])
    return alarms / REPETITIONS


def noise_table() -> None:
    every = slice(None)
    places: list[tuple[str, tuple[Any, ...]]] = [
        ("everywhere", (every,)),
        ("at one party", (1,)),
        ("on one coordinate", (every, every, every, every, 0)),
        ("in one round of 50", (every, every, 11)),
        ("in one round at one party", (1, every, 11)),
        ("on one coordinate in one round", (every, every, 11, every, 0)),
    ]
    factors = (0.99, 0.95, 0.9, 0.8, 0.7, 0.5)
    print("| less noise | " + " | ".join(f"{factor:g}" for factor in factors) + " |")
    print("| --- |" + " --- |" * len(factors))
    for words, place in places:
        shares = " | ".join(f"{refuted(place, factor):.2f}" for factor in factors)
        print(f"| {words} | {shares} |", flush=True)


def main(wanted: list[str]) -> None:
    for name, table in (("noise", noise_table), ("attack", attack_table)):
        if not wanted or name in wanted:
            table()
            print()


if __name__ == "__main__":
    main(sys.argv[1:])
