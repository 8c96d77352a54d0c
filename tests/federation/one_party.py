"""One party in a process of its own, run by run: ``python one_party.py PARTY SPEC.json ...``.

Everything a test compares is written to ``party-N.npz`` in the folder of the run.
"""

import json
import sys
from pathlib import Path

import numpy as np

from dpadmm.federation.exchange import FileExchange
from dpadmm.privacy.noise import SimulatedNoise
from dpadmm.problem.rows import Shard
from dpadmm.run.options import TrainingParameters
from dpadmm.run.plan import plan
from dpadmm.run.session import train_party


def make_parties(spec):
    random = np.random.default_rng(spec["seed"])
    truth = random.normal(size=spec["features"])
    parties = []
    for count in spec["rows"]:
        rows = random.normal(size=(count, spec["features"]))
        rows /= np.maximum(1.0, np.linalg.norm(rows, axis=1, keepdims=True))
        labels = np.where(rows @ truth + 0.3 * random.normal(size=count) > 0, 1.0, -1.0)
        parties.append((rows, labels[:, None]))
    return parties


def make_plan(spec):
    parameters = TrainingParameters(**spec["parameters"])
    return plan(parameters, spec["rows"], features=spec["features"])


def main(spec_path, party):
    spec = json.loads(Path(spec_path).read_text())
    planned = make_plan(spec)
    site = planned.site.of_party(party)
    run = bytes.fromhex(spec["run"])
    exchange = FileExchange(Path(spec["folder"]) / "messages", site, run)
    messages = []
    with exchange:
        outcome = train_party(
            planned.of_party(party),
            Shard.from_parties([make_parties(spec)[party]]),
            exchange=exchange,
            noise=SimulatedNoise(spec["key"]),
            on_round=lambda done, message: messages.append(message[0]),
        )
    np.savez(
        Path(spec["folder"]) / f"party-{party}.npz",
        messages=np.stack(messages),
        tail=outcome.tail[0],
    )


if __name__ == "__main__":
    for each in sys.argv[2:]:
        main(each, int(sys.argv[1]))
