"""Real nodes over TLS that share their noise: against a simulation, killed, lost, and lied to.

``python -m tests.helpers.shared_run --nodes 20 --kills 30`` runs three federations around a server
and prints what it found as JSON: one whose model is compared with that of one process, one whose
nodes are killed at random and of which two are lost for good, and one whose server lies.
"""

import argparse
import json
import sys
import tempfile
import threading
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np

from dpadmm.federation.agreement import Agreement, Consents
from dpadmm.federation.transport.key_ring import KeyRing
from dpadmm.federation.transport.mailbox import Mailbox, Patience
from dpadmm.federation.transport.session import PeerSession, Security
from dpadmm.federation.transport.store import MemoryStore
from dpadmm.federation.transport.sum_exchange import added_words
from dpadmm.federation.transport.wire import decode_words, encode_message
from dpadmm.ledger.sqlite import SQLiteLedger
from dpadmm.run.model import load_model
from tests.helpers.federation_net import Federation, in_process
from tests.helpers.fork_server import ForkServer
from tests.helpers.kill_run import RUNS, Trial

KEY = 5


class LyingHub:
    """A server with its own certificate that keeps the rules, but for what it says the sum is."""

    def __init__(self, federation, say):
        self.federation, self._say = federation, say
        folder = federation.folder / "certificates"
        security = Security(folder / "ca.pem", folder / "hub.pem", folder / "hub.key")
        self.session = PeerSession(
            "hub",
            f"127.0.0.1:{federation.ports['hub']}",
            {name: f"127.0.0.1:{federation.ports[name]}" for name in federation.names},
            security,
        )
        agreed, schema = federation.agreed, federation.schema
        self.run = agreed.digest(schema)
        self.shape = agreed.plan(schema).site.shape[1:]
        consents = Consents("hub", self.run, security)
        self.agreement = Agreement(self.session, agreed.facts(schema), agreed.nodes, consents)
        sources = {name: place for place, name in enumerate(federation.names)}
        self.mailbox = Mailbox(
            self.session,
            self.run,
            len(sources),
            sources,
            self.shape,
            MemoryStore(),
            patience=Patience(timeout=60, first_question=0.05),
            ring=KeyRing(federation.names),
        )

    def play(self, rounds):
        self.agreement.reach(60)
        self.mailbox.gather(0)
        number = len(self.federation.names)
        for t in range(rounds):
            received = {place: self.mailbox.receive(place, t) for place in range(number)}
            words = [
                decode_words(data, run=self.run, party=place, t=t, shape=self.shape)
                for place, data in received.items()
            ]
            answer = encode_message(self.run, number, t, self._say(t, words))
            self.mailbox.keep(t, {number: answer, **received})
            self.mailbox.tell(answer)


def lie_in_round(federation, wrong):
    """Nodes whose server leaves a party out of one sum: they all end well. What it told them."""
    sums = []

    def say(t, words):
        sums.append(added_words(words[1:] if t == wrong else words))
        return sums[-1]

    hub = LyingHub(federation, say)
    playing = threading.Thread(target=hub.play, args=(wrong + 1,))
    playing.start()
    try:
        for name in federation.names:
            federation.start(name)
        for name in federation.names:
            assert federation.wait(name) == 0, federation.output(name)
    finally:
        playing.join()
        hub.session.close()
    return sums


def names_of(nodes):
    return tuple(f"n{number}" for number in range(nodes))


def parity(server, folder, nodes, rounds):
    """How far the model of a federation is from that of one process."""
    run = {**RUNS["shared"], "rounds": rounds}
    federation = Federation(folder, server, names_of(nodes), averager="hub", run=run)
    federation.simulated = True
    begin = time.monotonic()
    for name in federation.nodes:
        federation.write(name, simulation=None if name == "hub" else KEY)
        federation.start(name)
    federation.finish()
    seconds = time.monotonic() - begin
    models = in_process(federation, folder, KEY)
    wanted = models[-(rounds // 3) :].mean(axis=(0, 1))[0]
    found = [load_model(folder / f"{name}.model").classifier.coef for name in federation.names]
    return {"largest_difference": float(np.abs(found - wanted).max()), "seconds": seconds}


def killed(server, folder, nodes, rounds, kills):
    """What kills and two losses did; ledgers are verified and compared with all messages."""
    trial = Trial(server, folder, "shared", 0, rounds=rounds, losses=2, nodes=nodes, lost_after=60)
    found = trial.play(before=kills // 2, after=kills)
    models = [
        load_model(folder / f"{name}.model").classifier.coef
        for name in trial.federation.names
        if name not in trial.lost
    ]
    alike = all(np.array_equal(models[0], model) for model in models)
    return {**asdict(found), "models_alike": alike, "faults": found.faults}


def lied_to(server, folder, nodes, rounds):
    """Whether nodes whose server lied have the model before, and charged no more than the lie."""
    run = {**RUNS["shared"], "rounds": rounds}
    federation = Federation(folder, server, names_of(nodes), averager="hub", run=run)
    for name in federation.names:
        federation.make_ledger(name)
        federation.write(name, policy={"when_lost": "stop", "lost_after": 60, "serve_for": 5})
    wrong = rounds // 2
    lie_in_round(federation, wrong)
    charged = []
    for name in federation.names:
        with SQLiteLedger(folder / f"{name}.ledger") as ledger:
            charged.append(len(ledger.verify().runs["trial"].events))
    refused = [
        federation.log(name, "sum-refused")[0]["facts"]["round"] for name in federation.names
    ]
    return {"refused_in_rounds": sorted(set(refused)), "charged_rounds": sorted(set(charged))}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--folder", type=Path)
    arguments = parser.parse_args()
    folder = arguments.folder or Path(tempfile.mkdtemp())
    folder.mkdir(exist_ok=True)
    server = ForkServer()
    nodes, rounds = arguments.nodes, arguments.rounds
    try:
        for what, play in {
            "parity": lambda: parity(server, folder / "parity", nodes, rounds),
            "killed": lambda: killed(server, folder / "killed", nodes, rounds, arguments.kills),
            "lied_to": lambda: lied_to(server, folder / "lied_to", nodes, rounds),
        }.items():
            sys.stdout.write(json.dumps({what: play()}) + "\n")
            sys.stdout.flush()
    finally:
        server.close()


if __name__ == "__main__":
    main()
