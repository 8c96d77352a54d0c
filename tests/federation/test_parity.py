"""One process per party, over files, computes what one process computes for all of them."""

import importlib.util
import json
import os
import secrets
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dpadmm.privacy.noise import SimulatedNoise
from dpadmm.problem.rows import Shard
from dpadmm.run.train import train

SCRIPT = Path(__file__).with_name("one_party.py")
_spec = importlib.util.spec_from_file_location("one_party", SCRIPT)
one_party = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(one_party)


def run_processes(spec, folder):
    path = folder / "spec.json"
    path.write_text(json.dumps(spec))
    source = str(Path(__file__).parents[2] / "src")
    environment = {**os.environ, "PYTHONPATH": source, "OPENBLAS_NUM_THREADS": "1"}
    running = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), str(path), str(party)],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for party in range(len(spec["rows"]))
    ]
    for process in running:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    return [np.load(folder / f"party-{party}.npz") for party in range(len(spec["rows"]))]


def in_process(spec):
    messages = []
    train(
        one_party.make_plan(spec),
        Shard.from_parties(one_party.make_parties(spec)),
        noise=SimulatedNoise(spec["key"]),
        on_round=lambda done, message: messages.append(message),
    )
    return np.stack(messages)


CASES = [
    ("admm", "ring", 3),
    ("pr-admm", "path", 3),
    ("r-admm", "ring", 3),
    ("consensus-admm", "server", 3),
]


@pytest.mark.parametrize(("algorithm", "topology", "parties"), CASES)
def test_every_round_agrees_with_one_process(algorithm, topology, parties, tmp_path):
    spec = {
        "folder": str(tmp_path),
        "run": secrets.token_hex(32),
        "seed": 5,
        "key": 11,
        "features": 6,
        "rows": [60 + 25 * party for party in range(parties)],
        "parameters": {
            "algorithm": algorithm,
            "topology": topology,
            "rounds": 12,
            "tolerance": 1e-12,
            "penalty": 0.05,
            "loss": "logistic",
            "regularization": 1e-2,
        },
    }
    results = run_processes(spec, tmp_path)
    expected = in_process(spec)
    for party, result in enumerate(results):
        np.testing.assert_allclose(result["messages"], expected[:, party], rtol=0, atol=1e-9)
