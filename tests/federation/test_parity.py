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
from dpadmm.run.session import train

SCRIPT = Path(__file__).with_name("one_party.py")
_spec = importlib.util.spec_from_file_location("one_party", SCRIPT)
one_party = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(one_party)


PARTIES = 3
CASES = {"admm": "ring", "pr-admm": "path", "r-admm": "ring", "consensus-admm": "server"}


def spec_of(algorithm, folder):
    return {
        "folder": str(folder),
        "run": secrets.token_hex(32),
        "seed": 5,
        "key": 11,
        "features": 6,
        "rows": [60 + 25 * party for party in range(PARTIES)],
        "parameters": {
            "algorithm": algorithm,
            "topology": CASES[algorithm],
            "rounds": 12,
            "tolerance": 1e-12,
            "penalty": 0.05,
            "loss": "logistic",
            "regularization": 1e-2,
        },
    }


@pytest.fixture(scope="module")
def specs(tmp_path_factory):
    """The runs, each done by all parties: a process for each of these, which takes them in turn."""
    specs = {name: spec_of(name, tmp_path_factory.mktemp(name)) for name in CASES}
    paths = [Path(spec["folder"]) / "spec.json" for spec in specs.values()]
    for path, spec in zip(paths, specs.values(), strict=True):
        path.write_text(json.dumps(spec))
    source = str(Path(__file__).parents[2] / "src")
    environment = {**os.environ, "PYTHONPATH": source, "OPENBLAS_NUM_THREADS": "1"}
    running = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), str(party), *map(str, paths)],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for party in range(PARTIES)
    ]
    for process in running:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    return specs


def in_process(spec):
    messages = []
    train(
        one_party.make_plan(spec),
        Shard.from_parties(one_party.make_parties(spec)),
        noise=SimulatedNoise(spec["key"]),
        on_round=lambda done, message: messages.append(message),
    )
    return np.stack(messages)


@pytest.mark.parametrize("algorithm", CASES)
def test_every_round_agrees_with_one_process(specs, algorithm):
    spec = specs[algorithm]
    expected = in_process(spec)
    for party in range(PARTIES):
        result = np.load(Path(spec["folder"]) / f"party-{party}.npz")
        np.testing.assert_allclose(result["messages"], expected[:, party], rtol=0, atol=1e-9)
