"""A view of parties that share noise, in one process: everything but the network is real.

A :class:`Line` stands for the connections. Whoever is given to it as ``meddle`` sees everything
that goes from one node to another and may change it, or keep it back, as a server could.
"""

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np

from dpadmm.federation.exchange import SumExchange, add_masked
from dpadmm.federation.identity import make_authority, make_certificate, read_certificate
from dpadmm.federation.keys import SessionKeys
from dpadmm.federation.transport.mailbox import KeyRing, Mailbox, Patience
from dpadmm.federation.transport.session import Security
from dpadmm.federation.transport.store import MessageFile, instance_hash
from dpadmm.federation.transport.wire import decode_masked, encode_message
from dpadmm.privacy.events import PostProcessing
from dpadmm.privacy.mechanisms import release_again
from dpadmm.privacy.sensitivity import Summation
from dpadmm.problem.site import SpanningTree, build_topology

NAMES = ("north", "south", "west", "east")
HUB = "hub"
STEP = 2.0**-30
SHAPE = (1, 2, 60)
COUNT = 120
RUN = bytes(range(32))
PATIENCE = Patience(timeout=4.0, first_question=0.02, longest_pause=0.05)


def unchanged(sender, receiver, label, data):
    """Nobody meddles."""
    return data


class Line:
    """Connections between the nodes of one process."""

    def __init__(self, meddle=unchanged):
        self.meddle = meddle
        self.sessions = {}
        self.wire, self.told = [], []

    def carry(self, sender, receiver, label, data, take):
        if sender != HUB:
            self.wire.append((sender, label, data))
        data = self.meddle(sender, receiver, label, data)
        if data is not None:
            self.told.append((sender, receiver, label, data))
            take(sender, label, data)


class Session:
    """One node's end of the line, as a mailbox uses it."""

    def __init__(self, line, name, neighbours):
        self._line, self.name, self.neighbours = line, name, dict.fromkeys(neighbours, "")
        self.said, self.left = f"{name}.1", set()
        self.claims = SimpleNamespace(
            absent=lambda name: 0.0,
            current=lambda name: f"{name}.1",
            starts=lambda: ({other: instance_hash(f"{other}.1") for other in neighbours}, []),
        )
        self._takes, self._answers = {}, {}
        line.sessions[name] = self

    def present(self, name):
        return True

    def hear(self, topic, take, names=None):
        for name in self.neighbours if names is None else names:
            self._takes[topic, name] = take

    def serve(self, topic, answer):
        self._answers[topic] = answer

    def publish(self, topic, label, data):
        for name in self.neighbours:
            other = self._line.sessions.get(name)
            if other is not None and (topic, self.name) in other._takes:
                self._line.carry(self.name, name, label, data, other._takes[topic, self.name])

    def ask(self, topic, neighbour, label, take, *, timeout=5.0, longest=0):
        other = self._line.sessions.get(neighbour)
        answer = None if other is None else other._answers.get(topic)
        data = None if answer is None else answer(label)
        if data is not None:
            self._line.carry(neighbour, self.name, label, data, take)


class Parties:
    """Files of some parties: certificates, pins, and where they keep keys and messages."""

    def __init__(self, folder, names=NAMES):
        self.folder, self.names = folder, tuple(names)
        trial = folder / "certificates"
        make_authority(trial)
        self.security, self.pins = {}, {}
        self.stores = []
        for name in names:
            certificate, key = make_certificate(trial, name)
            self.security[name] = Security(trial / "ca.pem", certificate, key)
            self.pins[name] = read_certificate(certificate).fingerprint
            (folder / name).mkdir()

    def store(self, name):
        self.stores.append(MessageFile(self.folder / name / "messages"))
        return self.stores[-1]

    def close(self):
        for store in self.stores:
            store.close()

    def view(self, run=RUN, lost=(), colluders=1, purpose="training"):
        names = tuple(name for name in self.names if name not in lost)
        shared = Summation(STEP, len(names), colluders, 100.0)
        planned = SimpleNamespace(algorithm=SimpleNamespace(summation=shared))
        agreed = SimpleNamespace(names=names)
        facts = {"run": run, "lost": tuple(lost), "purpose": purpose}
        return SimpleNamespace(agreed=agreed, planned=planned, **facts)

    def keys(self, name, store, view=None, pins=None):
        return SessionKeys(
            name,
            view or self.view(),
            self.security[name],
            self.pins if pins is None else pins,
            store,
            self.folder / name,
        )


class Party:
    """One party in one view."""

    def __init__(
        self,
        parties,
        line,
        name,
        *,
        view=None,
        hub=HUB,
        links=None,
        past=(),
        pins=None,
        decoded=None,
    ):
        view = view or parties.view()
        names = view.agreed.names
        self.name, self.place = name, names.index(name)
        self.summation = view.planned.algorithm.summation
        self.store = parties.store(name)
        self.keys = parties.keys(name, self.store, view, pins)
        others = [other for other in names if other != name]
        tree = None
        if links is not None:
            graph = build_topology(links, len(names))
            tree = SpanningTree.of(graph, names)
            others = [names[other] for other in graph.neighbours(self.place)]
        site = SimpleNamespace(
            index=np.array([self.place]),
            parties=len(names),
            shape=(1, *SHAPE),
            heard_parties=[names.index(other) for other in others],
            topology=SimpleNamespace(server=hub is not None),
        )
        self.refused = []

        def find_masks(released, gather):
            self.keys.announce(released)
            gather()
            return self.keys.masks()

        self.exchange = SumExchange(
            Session(line, name, [hub] if hub else others),
            site,
            view.run,
            names,
            summation=self.summation,
            past=past,
            find_masks=find_masks,
            before_send=self.keys.before_send,
            ring=self.keys.ring,
            averager=hub,
            tree=tree,
            store=self.store,
            decoded=decoded,
            patience=PATIENCE,
            on_refused=lambda name, reason, error: self.refused.append((name, reason, str(error))),
        )
        self.exchange.mailbox.begin([], 100)
        self.messages = []

    def open(self, t=0):
        """What a party does before it draws for the first time."""
        self.exchange.mailbox.confirm()
        self.exchange.open(t)

    def cover(self, values, t):
        """What is committed for a summand: its words."""
        message = release_again(np.reshape(values, (1, *SHAPE)), (PostProcessing(),))
        covered = self.exchange.cover(message, t)
        self.messages.append(covered.values[0])
        return covered

    def send(self, values, t):
        """The mean of all parties, from a summand that goes out under masks."""
        return self.exchange(self.cover(values, t), t)[0]

    def close(self):
        self.store.close()


class Hub:
    """The server: adds up what it has of everybody, unless it is told to do something else."""

    def __init__(self, parties, line, *, view=None, add=add_masked):
        view = view or parties.view()
        names = view.agreed.names
        self.names, self.number, self.run, self.add = names, len(names), view.run, add
        self.store = MessageFile(parties.folder / f"hub.{view.run.hex()[:8]}")
        self.ring = KeyRing(names)
        sources = {name: place for place, name in enumerate(names)}
        self.mailbox = Mailbox(
            Session(line, HUB, names),
            view.run,
            self.number,
            sources,
            SHAPE,
            self.store,
            patience=PATIENCE,
            ring=self.ring,
        )

    def gather(self):
        self.mailbox.gather(0)

    def round(self, t):
        received = {place: self.mailbox.receive(place, t) for place in range(self.number)}
        words = [
            decode_masked(data, run=self.run, party=place, t=t, shape=SHAPE)
            for place, data in received.items()
        ]
        answer = encode_message(self.run, self.number, t, self.add(words))
        self.mailbox.keep(t, {self.number: answer, **received})
        self.mailbox.tell(answer)

    def close(self):
        self.store.close()


def together(*actions):
    """Do things at once, each in its own thread; what each returned, or raised."""
    barrier = threading.Barrier(len(actions))

    def act(action):
        barrier.wait()
        try:
            return action()
        except Exception as error:
            return error

    with ThreadPoolExecutor(len(actions)) as pool:
        return list(pool.map(act, actions))


def small(words):
    """Words that stand for a number a summand or a difference of two could be."""
    return np.abs(words.view(np.int64)) < 2**53


def predictable(first, second):
    """Whether some shift of two vectors has differences or sums that are small more than rarely.

    Of uniform words one in 1024 is small by chance.
    """
    for shift in range(COUNT // 2):
        ahead, behind = first[shift:], second[: COUNT - shift]
        for found in (ahead - behind, ahead + behind, behind - ahead):
            if small(found).mean() > 0.1:
                return True
    return False
