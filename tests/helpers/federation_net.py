"""What tests of the federation share: ports, and certificates that nobody should accept."""

import contextlib
import json
import math
import os
import random
import socket
import threading
import time
import tomllib
from datetime import UTC, datetime, timedelta

import numpy as np
import zenoh
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from dpadmm.data.schema import Schema
from dpadmm.data.study_rows import read_study_rows
from dpadmm.data.tables import encode_party
from dpadmm.federation.agreed_study import question_of
from dpadmm.federation.agreement import AGREEMENT_TOPIC, Consents
from dpadmm.federation.config import AgreedRun
from dpadmm.federation.identity import make_authority, make_certificate, read_certificate
from dpadmm.federation.transport.session import PeerSession, Security
from dpadmm.federation.transport.store import MessageFile
from dpadmm.federation.transport.wire import Agreeing, Heard, encode_message
from dpadmm.ledger.base import ChargedData
from dpadmm.ledger.filters import Policy
from dpadmm.ledger.sqlite import SQLiteLedger
from dpadmm.privacy.noise import SimulatedNoise
from dpadmm.problem.rows import label_signs
from dpadmm.run.config import validated
from dpadmm.run.session import lay_out, train
from dpadmm.studies.study import StudyRows, run_study
from tests.helpers.wards import SCHEMA, write_ward

RESULTS = ("model", "record", "statement")


def free_ports(count):
    """Ports that nobody listens on now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [item.getsockname()[1] for item in sockets]
    for item in sockets:
        item.close()
    return ports


def has_ipv6():
    """Whether this machine has IPv6 on its loopback."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


def sign_again(folder, name, target, *, begin, end):
    """The certificate and key of a node with other dates, signed by the same authority."""
    certificate = x509.load_pem_x509_certificate((folder / f"{name}.pem").read_bytes())
    key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(certificate.subject)
        .issuer_name(certificate.issuer)
        .public_key(certificate.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + timedelta(days=begin))
        .not_valid_after(now + timedelta(days=end))
    )
    for extension in certificate.extensions:
        builder = builder.add_extension(extension.value, critical=extension.critical)
    signed = builder.sign(key, hashes.SHA256())
    (target / f"{name}.pem").write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    (target / "ca.pem").write_bytes((folder / "ca.pem").read_bytes())
    handle = os.open(target / f"{name}.key", os.O_CREAT | os.O_WRONLY, 0o600)
    os.write(handle, (folder / f"{name}.key").read_bytes())
    os.close(handle)


def bare_client(port, folder, certificate):
    """A Zenoh client with the certificate of a node, or none, that keeps none of our rules."""
    settings = {
        "mode": "client",
        "connect/endpoints": [f"tls/127.0.0.1:{port}"],
        "connect/timeout_ms": 500,
        "scouting/multicast/enabled": False,
        "transport/link/tls/root_ca_certificate": str(folder / "ca.pem"),
    }
    if certificate is not None:
        settings |= {
            "transport/link/tls/enable_mtls": True,
            "transport/link/tls/connect_certificate": str(folder / f"{certificate}.pem"),
            "transport/link/tls/connect_private_key": str(folder / f"{certificate}.key"),
        }
    configuration = zenoh.Config()
    for key, value in settings.items():
        configuration.insert_json5(key, json.dumps(value))
    return zenoh.open(configuration)


def write_wards(folder, rows):
    """A file of random rows for every party."""
    for number, (name, count) in enumerate(rows.items()):
        write_ward(folder / f"{name}.csv", random.Random(number), count)


def toml(value):
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml(item)}" for key, item in value.items()) + "}"
    return json.dumps(value)


class Federation:
    """Files of a federation on this machine, and its nodes as processes."""

    def __init__(
        self,
        folder,
        server,
        names,
        *,
        tls=True,
        averager=None,
        run=None,
        rows=None,
        schema=SCHEMA,
        write_rows=None,
    ):
        self.folder, self._server, self.names, self.tls = folder, server, tuple(names), tls
        self.averager = averager
        self.nodes = (*names, averager) if averager else tuple(names)
        self.rows = dict(zip(names, rows or [40 + 10 * n for n in range(len(names))], strict=True))
        self.ports = dict(zip(self.nodes, free_ports(len(self.nodes)), strict=True))
        self.run = {
            "run_id": "trial",
            "algorithm": "pr-admm",
            "topology": "ring",
            "rounds": 10,
            "epsilon": 1.0,
            "delta": 1e-3,
            "penalty": 0.05,
            # At this penalty its curvature leaves every algorithm room for noise.
            "loss": "logistic",
            "regularization": 0.01,
            **(run or {}),
        }
        self.processes = {}
        folder.mkdir(exist_ok=True)
        (folder / "schema.toml").write_text(schema)
        self.schema = Schema.from_toml(schema)
        (write_rows or write_wards)(folder, self.rows)
        self.pins = {}
        if tls:
            make_authority(folder / "certificates")
            for name in self.nodes:
                made, _ = make_certificate(folder / "certificates", name)
                self.pins[name] = read_certificate(made).fingerprint

    #: Whether all agree that noise can be drawn again, which whoever shares noise must.
    simulated = False
    #: What its parties write.
    results = RESULTS

    def agreed_text(self, **changes):
        run = {**self.run, **changes}
        lines = [f'schema_sha256 = "{self.schema.sha256}"']
        if self.simulated:
            lines.append("simulation = true")
        if self.averager:
            lines.append(f'server = "{self.averager}"')
        options = run.pop("algorithm_options", {})
        lines += ["[run]", *(f"{key} = {toml(value)}" for key, value in run.items())]
        if options:
            lines += ["[run.algorithm_options]"]
            lines += [f"{key} = {toml(value)}" for key, value in options.items()]
        for name, count in self.rows.items():
            lines += ["[[party]]", f'name = "{name}"', f"rows = {count}"]
        return "\n".join(lines) + "\n"

    @property
    def agreed(self):
        return validated(AgreedRun, tomllib.loads(self.agreed_text()), self.folder, "agreed")

    @property
    def shared(self):
        """Whether parties share their noise."""
        return self.run.get("algorithm_options", {}).get("noise") == "shared"

    def neighbours(self, name):
        agreed = self.agreed
        return agreed.neighbours(name, agreed.plan(self.schema))

    def make_ledger(self, name, epsilon=None, rows_per_person=None):
        path = self.folder / f"{name}.ledger"
        kind = "gaussian" if self.run["algorithm"] in ("pr-admm", "dp-gd") else "renyi"
        # At one order of Renyi divergence a run costs more than it states.
        total = epsilon or self.run["epsilon"] * (1 if kind == "gaussian" else 4)
        colluders = 1 if self.shared else None
        people = rows_per_person or self.run.get("rows_per_person", 1)
        policy = Policy(total, self.run["delta"], people, filter=kind, colluders=colluders)
        SQLiteLedger.create(path, ChargedData("rows", name, self.rows[name]), policy).close()
        return path

    def write(self, name, *, policy=None, simulation=None, addresses=None, agreed=None, extra=""):
        """Write the node's files; ``addresses`` replaces where neighbours are reached."""
        folder = self.folder
        agreed_file = folder / f"{name}.agreed.toml"
        agreed_file.write_text(agreed or self.agreed_text())
        lines = [
            f'run = "{agreed_file.name}"',
            "[node]",
            f'name = "{name}"',
            f'listen = "127.0.0.1:{self.ports[name]}"',
            'schema = "schema.toml"',
        ]
        if name == self.averager:
            lines.append('role = "server"')
        else:
            lines.append(f'data = "{name}.csv"')
            if simulation is None:
                lines.append(f'ledger = "{name}.ledger"')
        if self.tls:
            lines += [
                "[certificates]",
                'authority = "certificates/ca.pem"',
                f'certificate = "certificates/{name}.pem"',
                f'key = "certificates/{name}.key"',
            ]
        if self.shared:
            lines += ["[pins]", *(f'{each} = "{pin}"' for each, pin in self.pins.items())]
        limits = {
            "serve_for": 10,
            "start_within": 60,
            "epsilon": self.run["epsilon"],
            "delta": self.run["delta"],
            **({"colluders": 1} if self.shared else {}),
            **(policy or {}),
        }
        lines += ["[policy]", *(f"{key} = {toml(value)}" for key, value in limits.items())]
        if name != self.averager:
            lines += ["[result]", *(f'{what} = "{name}.{what}"' for what in self.results)]
        lines += ["[watch]", f'log = "{name}.log"', "lease = 2", "report_every = 1"]
        if simulation is not None:
            lines += ["[simulation]", f"key = {simulation}"]
        for neighbour in self.neighbours(name):
            address = (addresses or {}).get(neighbour, f"127.0.0.1:{self.ports[neighbour]}")
            lines += ["[[neighbour]]", f'name = "{neighbour}"', f'address = "{address}"']
        path = folder / f"{name}.toml"
        path.write_text("\n".join([*lines, extra]) + "\n")
        return path

    def start(self, name, *more):
        words = ["node", "--config", self.folder / f"{name}.toml", *more]
        if not self.tls:
            words.append("--insecure-loopback")
        self.processes[name] = self._server.start(words, self.folder / f"{name}.out")

    def wait(self, name):
        return self._server.wait(self.processes.pop(name))

    def kill(self, name):
        return self._server.kill(self.processes.pop(name))

    def remove_results(self, name):
        """Make room for another run: a node never overwrites results that one left."""
        for what in ("model", "record", "statement", "html"):
            (self.folder / f"{name}.{what}").unlink(missing_ok=True)

    def finish(self, *names):
        """Nodes, all unless named, end well."""
        for name in names or self.nodes:
            assert self.wait(name) == 0, self.output(name)
            assert self.log(name, "finished")

    def close(self):
        for name in list(self.processes):
            self.kill(name)

    def output(self, name):
        return (self.folder / f"{name}.out").read_text()

    def log(self, name, event=None):
        path = self.folder / f"{name}.log"
        lines = path.read_text().splitlines() if path.exists() else []
        entries = [json.loads(line) for line in lines]
        return [entry for entry in entries if event in (None, entry["event"])]

    def wait_for(self, name, event, seconds=120.0):
        deadline = time.monotonic() + seconds
        while not self.log(name, event):
            assert time.monotonic() < deadline, (name, event, self.log(name), self.output(name))
            time.sleep(0.02)
        return self.log(name, event)[-1]["facts"]

    def messages(self, name):
        """Every message that the node keeps: round by round, by party."""
        with MessageFile(self.folder / f"{name}.messages") as store:
            run = self.agreed.digest(self.schema)
            return [store.messages(run, t) for t in range(store.rounds(run))]


WISHES = """
[[wish]]
kind = "proportion"
columns = ["y"]
by = "ward"
[[wish]]
kind = "mean"
columns = ["age"]
"""
REGRESSION = """
[infer]
family = "binomial"
columns = ["age", "ward"]
"""
SURVIVAL = """
[infer]
family = "survival"
entry = "start"
exit = "age"
periods = [0.0, 50.0, 100.0]
columns = ["ward"]
"""
START = '[[columns]]\nname = "start"\nkind = "numeric"\nlower = 0\nupper = 100\n'


def write_persons(folder, rows):
    """Rows of a ward whose people come in at some age, one of ten later than they leave."""
    write_wards(folder, rows)
    for number, name in enumerate(rows):
        draw, path = random.Random(f"persons {number}"), folder / f"{name}.csv"
        first, *lines = path.read_text().splitlines()
        lines = [f"{line},{draw.choice([0] * 8 + [20, 60])}" for line in lines]
        path.write_text("\n".join([f"{first},start", *lines]) + "\n")


#: What studies ask, by a name, and of which rows.
STUDIES = {
    "describe": {"tables": WISHES},
    "infer": {"tables": REGRESSION},
    "survival": {"tables": SURVIVAL, "schema": SCHEMA + START, "write_rows": write_persons},
}


class StudyFederation(Federation):
    """A federation that asks one of ``STUDIES`` in place of training."""

    results = ("record", "statement")

    def __init__(self, folder, server, names, asked, *, study, **options):
        more = {**STUDIES[asked], **options}
        tables, kind = more.pop("tables"), asked if asked == "describe" else "infer"
        self.study = {"run_id": "trial", "kind": kind, "epsilon": 4.0, "delta": 1e-4, **study}
        #: The tables that say what is asked, as text.
        self.tables = tables
        charged = ("epsilon", "delta", "rows_per_person")
        known = {key: self.study[key] for key in charged if key in self.study}
        run = {"algorithm": "dp-gd", **known}
        if self.study.get("noise") == "shared":
            run["algorithm_options"] = {"noise": "shared"}
        super().__init__(folder, server, names, run=run, **more)

    def agreed_text(self, **changes):
        lines = [f'schema_sha256 = "{self.schema.sha256}"']
        if self.simulated:
            lines.append("simulation = true")
        if self.averager:
            lines.append(f'server = "{self.averager}"')
        told = {**self.study, **changes}
        lines += ["[study]", *(f"{key} = {toml(value)}" for key, value in told.items())]
        lines.append(self.tables)
        for name, count in self.rows.items():
            lines += ["[[party]]", f'name = "{name}"', f"rows = {count}"]
        return "\n".join(lines) + "\n"

    def record(self, name):
        return json.loads((self.folder / f"{name}.record").read_text())

    def in_one_process(self, key):
        """What one process finds of the same rows with the same key."""
        agreed, schema = self.agreed, self.schema
        question = question_of(agreed, schema)

        def read():
            rows = [read_study_rows(self.folder / f"{name}.csv", schema) for name in self.names]
            return [question.prepared(each) for each in rows]

        about = StudyRows(split=agreed.run.wish.split)
        done = run_study(agreed.plan(schema), read, noise=SimulatedNoise(key), about=about)
        return question.answer(done).record()["found"]


def in_process(federation, folder, key):
    """Models of every round, ``(rounds, parties, ...)``: of most algorithms, the messages."""
    planned, noise = federation.agreed.plan(federation.schema), SimulatedNoise(key)
    encoded = [
        encode_party(federation.folder / f"{name}.csv", federation.schema, folder)
        for name in federation.names
    ]
    rows = [(party.rows, label_signs(party.labels, planned.site.outputs)) for party in encoded]
    messages = []
    train(
        planned,
        lay_out(planned, rows, noise=noise),
        noise=noise,
        on_round=lambda done, message: messages.append(message),
    )
    return np.stack(messages)


class BadNeighbour:
    """A node with its own certificate that agrees and then sends what it likes."""

    def __init__(self, federation, name="west", certificate=None, dpadmm="0.1.0"):
        self.federation, self.name, self.dpadmm = federation, name, dpadmm
        folder = federation.folder / "certificates"
        who = certificate or name
        security = Security(folder / "ca.pem", folder / f"{who}.pem", folder / f"{who}.key")
        self.session = PeerSession(
            name,
            f"127.0.0.1:{federation.ports[name]}",
            {
                other: f"127.0.0.1:{federation.ports[other]}"
                for other in federation.neighbours(name)
            },
            security,
        )
        agreed = federation.agreed
        self.run, self.number = agreed.digest(federation.schema), federation.names.index(name)
        self.shape = agreed.plan(federation.schema).site.shape[1:]
        self.consent = Consents(name, self.run, security).own()
        self.facts = agreed.facts(federation.schema)
        self.consents = {name: self.consent}
        self.session.serve(AGREEMENT_TOPIC, lambda label: self.agreeing())
        self.session.serve(self.run.hex(), self._answer)
        self.finished = False
        #: Whether it keeps its messages to itself, so that nobody gets on.
        self.withheld = False
        #: How many rounds it has messages of; and whether it was asked for the next one.
        self.rounds, self.asked_too_far = math.inf, threading.Event()

    def agreeing(self):
        words = Agreeing(dpadmm=self.dpadmm, facts=self.facts, consents=self.consents, names={})
        return words.to_bytes()

    def _answer(self, label):
        if label == "done":
            end = {"rounds": self.federation.run["rounds"], "heard": {}}
            return json.dumps(end).encode() if self.finished else None
        if label == "heard":
            starts, stopped = self.session.claims.starts()
            heard = dict.fromkeys(self.federation.names, 0)
            return Heard(heard=heard, starts=starts, stopped=stopped).to_bytes()
        if self.withheld or not label.isdecimal():
            return None
        if int(label) >= self.rounds:
            self.asked_too_far.set()
            return None
        return self.message(int(label))

    def message(self, t, value=0.0):
        return encode_message(self.run, self.number, t, np.full(self.shape, value))

    def publish(self, data, label="message"):
        self.session.publish(self.run.hex(), label, data)


class Proxy:
    """A line between two nodes that can be cut, frozen and healed; so many bytes a second."""

    def __init__(self, target, rate=None):
        self._target, self._rate = target, rate
        self.carried = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._pairs = set()
        self._open = threading.Event()
        self._open.set()
        self._cut = False
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            if self._cut:
                near.close()
                continue
            try:
                far = socket.create_connection(("127.0.0.1", self._target), timeout=5)
                far.settimeout(None)
            except OSError:
                near.close()
                continue
            pair = (near, far)
            with self._lock:
                self._pairs.add(pair)
            for source, sink in (pair, pair[::-1]):
                threading.Thread(target=self._pump, args=(source, sink, pair), daemon=True).start()

    def _pump(self, source, sink, pair):
        try:
            while data := source.recv(1 << 16):
                self._open.wait()
                if rate := self._rate:
                    time.sleep(len(data) / rate)
                sink.sendall(data)
                self.carried += len(data)
        except OSError:
            pass
        self._drop(pair)

    def _drop(self, pair):
        with self._lock:
            self._pairs.discard(pair)
        for end in pair:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def cut(self):
        """Drop every connection and refuse new ones."""
        self._cut = True
        for pair in list(self._pairs):
            self._drop(pair)

    def freeze(self):
        """Keep connections open but let nothing through."""
        self._open.clear()

    def slow(self, rate=3000):
        """So many bytes a second from now on."""
        self._rate = rate

    def heal(self):
        self._cut, self._rate = False, None
        self._open.set()

    def close(self):
        self.cut()
        self._open.set()
        self._listener.close()


class Lines:
    """A proxy for every direction of every link."""

    def __init__(self, federation):
        self.lines = {
            (name, other): Proxy(federation.ports[other])
            for name in federation.nodes
            for other in federation.neighbours(name)
        }
        #: Every link once, by its ends.
        self.links = sorted(ends for ends in self.lines if ends[0] < ends[1])

    def addresses(self, name):
        return {
            other: f"127.0.0.1:{line.port}"
            for (one, other), line in self.lines.items()
            if one == name
        }

    def around(self, name):
        return [line for ends, line in self.lines.items() if name in ends]

    def between(self, some, others):
        """All lines of the links from some nodes to others."""
        return [
            line
            for (one, other), line in self.lines.items()
            if (one in some and other in others) or (one in others and other in some)
        ]

    def close(self):
        for line in self.lines.values():
            line.close()
