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
from dpadmm.federation.exchange import add_masked, added_up
from dpadmm.federation.recovery import View
from dpadmm.federation.transport.mailbox import KeyRing, Mailbox, NeighbourLost, Patience
from dpadmm.federation.transport.session import PeerSession, Security
from dpadmm.federation.transport.store import MemoryStore
from dpadmm.federation.transport.wire import Comparing, decode_masked, encode_message
from dpadmm.ledger.sqlite import SQLiteLedger
from dpadmm.run.model import load_model
from tests.helpers.federation_net import Federation, free_ports, in_process
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
                decode_masked(data, run=self.run, party=place, t=t, shape=self.shape)
                for place, data in received.items()
            ]
            answer = encode_message(self.run, number, t, self._say(t, words))
            self.mailbox.keep(t, {number: answer, **received})
            self.mailbox.tell(answer)


def handed_on(names, digests):
    """As it was signed."""
    return digests


class TwoFacedHub:
    """A server that tells one party other last sums of the training than the rest.

    It has one certificate and two addresses: one for that party, one for the others. Consents and
    keys go from each side to the other; of signed digests each side is told what ``hand_on`` makes
    of the names that are there and of everybody's digests.
    """

    def __init__(self, federation, deceived, policy=None, *, hand_on=handed_on, lies=True):
        self.federation, self.hand_on, self._lies = federation, hand_on, lies
        agreed, schema = federation.agreed, federation.schema
        self.names, self.whole = agreed.names, agreed.whole(schema)
        self.sides = {
            federation.ports["hub"]: tuple(name for name in self.names if name != deceived),
            free_ports(1)[0]: (deceived,),
        }
        self.ports = list(self.sides)
        self.view = View.whole(agreed, agreed.plan(schema), schema)
        folder = federation.folder / "certificates"
        self._security = Security(folder / "ca.pem", folder / "hub.pem", folder / "hub.key")
        self._sessions = []
        #: What parties signed at the end, by topic and name.
        self.signed = {}
        for name in federation.names:
            place = {"hub": f"127.0.0.1:{self.ports[name == deceived]}"}
            federation.write(name, policy=policy, addresses=place)

    def __enter__(self):
        agreements = []
        agreed, schema = self.federation.agreed, self.federation.schema
        for port, names in self.sides.items():
            session = PeerSession(
                "hub",
                f"127.0.0.1:{port}",
                {name: f"127.0.0.1:{self.federation.ports[name]}" for name in names},
                self._security,
            )
            consents = Consents("hub", self.view.run, self._security)
            facts = agreed.facts(schema)
            agreements.append(Agreement(session, facts, agreed.nodes, consents))
            self._sessions.append(session)
        for agreement in agreements:
            # Whatever one side agreed to, the other is told.
            agreement._agreed = agreements[0]._agreed
        self._playing = threading.Thread(target=self._play, args=(agreements,))
        self._playing.start()
        return self

    def __exit__(self, *error):
        self._playing.join()
        for session in self._sessions:
            session.close()

    def _play(self, agreements):
        reaching = [
            threading.Thread(target=agreement.reach, args=(60,)) for agreement in agreements
        ]
        for each in reaching:
            each.start()
        for each in reaching:
            each.join()
        expected = self.whole.expected()
        views = [self.view]
        if expected is not None:
            views.append(self.view.evaluating(expected))
        for view in views:
            try:
                self._play_view(view)
            except NeighbourLost:
                return

    def _play_view(self, view):
        sides = []
        shared = view.planned.algorithm.summation is not None
        ring, shape = KeyRing(self.names) if shared else None, view.planned.site.shape[1:]
        for session in self._sessions:
            sources = {name: self.names.index(name) for name in session.neighbours}
            patience = Patience(timeout=15, first_question=0.05)
            told = (session, view.run, len(self.names), sources, shape, MemoryStore())
            sides.append(Mailbox(*told, patience=patience, ring=ring))
            self._relay(session, view.run)
        if shared:
            for mailbox in sides:
                mailbox.gather(0)
        for t in range(view.rounds):
            received = {}
            for mailbox in sides:
                for place in mailbox._names:
                    received[place] = mailbox.receive(place, t)
            answer = added_up(received, view.run, t, shape, masked=shared)
            lie = answer.copy()
            lie.flat[0] += answer.dtype.type(1 << 20 if shared else 1)
            lied = self._lies and t == view.rounds - 1 and not view.evaluation
            for mailbox, said in zip(sides, (answer, lie if lied else answer), strict=True):
                data = encode_message(view.run, len(self.names), t, said)
                own = {place: received[place] for place in mailbox._names}
                mailbox.keep(t, {len(self.names): data, **own})
                mailbox.tell(data)

    def _relay(self, session, run):
        topic = f"{run.hex()}-sums"
        signed = self.signed.setdefault(topic, {})

        def take(name, label, data):
            found = Comparing.model_validate_json(data).digests
            if name in found:
                signed[name] = found[name]

        def answer(label):
            for side in self._sessions:
                for name in side.neighbours:
                    if name not in signed:
                        side.ask(topic, name, "digests", take)
            found = self.hand_on(tuple(session.neighbours), dict(signed))
            return None if found is None else Comparing(digests=found).to_bytes()

        session.hear(topic, take)
        session.serve(topic, answer)


def lie_in_round(federation, wrong):
    """Nodes whose server leaves a party out of one sum: they all end well. What it told them."""
    sums = []

    def say(t, words):
        sums.append(add_masked(words[1:] if t == wrong else words))
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
