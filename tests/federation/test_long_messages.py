"""Messages longer than 1 MiB: they arrive, or are refused before anything is read or spent."""

import json
import random
import shutil
import time
from types import SimpleNamespace

import numpy as np
import pytest
from rich.filesize import decimal

pytest.importorskip("zenoh", reason="the extra 'federation' is not installed")

from tests.helpers.federation_net import Proxy, free_ports

from dpadmm.cli import main as dpadmm
from dpadmm.data.schema import Schema
from dpadmm.errors import ParameterError
from dpadmm.federation.agreement import disagreement
from dpadmm.federation.config import AgreedRun, load_node_config
from dpadmm.federation.identity import make_authority, make_certificate
from dpadmm.federation.node import check_node
from dpadmm.federation.runtime import prepare_node
from dpadmm.federation.transport.mailbox import Mailbox, Patience
from dpadmm.federation.transport.session import PeerSession, Security
from dpadmm.federation.transport.store import MemoryStore
from dpadmm.federation.transport.wire import (
    LONGEST_FACTS,
    MOST_NUMBERS,
    Agreeing,
    encode_message,
    message_size,
)
from dpadmm.flower.server import prepare_server
from dpadmm.ledger.sqlite import SQLiteLedger
from dpadmm.run.config import validated

RUN = bytes(range(32))
SHAPE = (1, 1, 1_000_000)
NAMES = ("north", "south", "west")
MEBIBYTE = 1 << 20


# -- between peers -------------------------------------------------------------------------------


def message(party, t, shape=SHAPE):
    return encode_message(RUN, party, t, np.full(shape, float(10 * party + t)))


class Pair:
    """Two peers and their mailboxes; one may be reached through a slow line only."""

    def __init__(self, folder, rate=None):
        make_authority(folder)
        self.refused = []
        ports = dict(zip("ab", free_ports(2), strict=True))
        self.lines = {name: Proxy(port, rate) for name, port in ports.items()}
        self.sessions, self.boxes = {}, {}
        for place, (name, other) in enumerate((("a", "b"), ("b", "a"))):
            made, key = make_certificate(folder, name)
            self.sessions[name] = PeerSession(
                name,
                f"127.0.0.1:{ports[name]}",
                {other: f"127.0.0.1:{self.lines[other].port}"},
                Security(folder / "ca.pem", made, key),
                largest=message_size(SHAPE),
            )
            self.boxes[name] = Mailbox(
                self.sessions[name],
                RUN,
                place,
                {other: 1 - place},
                SHAPE,
                MemoryStore(),
                patience=Patience(timeout=20.0, first_question=0.05, longest_pause=0.2),
                on_refused=lambda name, reason, error: self.refused.append((reason, str(error))),
            )
        deadline = time.monotonic() + 20
        while not all(self.sessions[one].present(two) for one, two in ("ab", "ba")):
            assert time.monotonic() < deadline
            time.sleep(0.01)

    @property
    def carried(self):
        return sum(line.carried for line in self.lines.values())

    def close(self):
        for session in self.sessions.values():
            session.close()
        for line in self.lines.values():
            line.close()


@pytest.fixture
def make_pair(tmp_path):
    made = []

    def make(**options):
        made.append(Pair(tmp_path, **options))
        return made[-1]

    yield make
    for pair in made:
        pair.close()


def test_a_million_doubles_arrive_published_and_asked_for(make_pair):
    pair = make_pair()
    a, b = pair.boxes["a"], pair.boxes["b"]
    for t in range(3):
        a.send(t, message(0, t))
        assert b.receive(0, t) == message(0, t)
        b.keep(t, {0: message(0, t)})
        a.keep(t, {0: message(0, t)})
    # What was said before a node was there is handed out again.
    heard = []
    pair.sessions["b"].ask(RUN.hex(), "a", "1", lambda *told: heard.append(told), longest=1)
    deadline = time.monotonic() + 10
    while not heard:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert heard == [("a", "1", message(0, 1))]
    assert not pair.refused


def test_a_long_answer_has_its_time_on_a_slow_line_and_comes_once(make_pair):
    """At 1.4 MB/s it takes six seconds; meanwhile it is not asked for again."""
    pair = make_pair(rate=1.4e6)
    pair.boxes["a"].keep(0, {0: message(0, 0)})
    assert pair.boxes["b"].receive(0, 0) == message(0, 0)
    assert pair.carried < 1.5 * message_size(SHAPE)


def test_what_is_longer_than_agreed_is_neither_read_nor_kept(make_pair):
    pair = make_pair()
    longer, far_longer = (message(0, 0, (1, 1, count)) for count in (1_000_001, 3_000_000))
    for data in (longer, far_longer):
        pair.sessions["a"].publish(RUN.hex(), "message", data)
    # The line is as good as before.
    pair.boxes["a"].send(0, message(0, 0))
    assert pair.boxes["b"].receive(0, 0) == message(0, 0)
    words = f"must have {message_size(SHAPE)} bytes; got {len(longer)}."
    assert pair.refused == [("wrong-size", f"a message {words}")]


# -- real nodes ----------------------------------------------------------------------------------


def long_schema(levels, classes, width=1):
    """One column of so many levels, with names of so many letters."""
    words = [f"{number:0{width}d}" for number in range(levels)]
    lines = [
        "constant = false",
        "[label]",
        'column = "y"',
        f"classes = {json.dumps([str(number) for number in range(classes)])}",
        "[[columns]]",
        'name = "word"',
        'kind = "categorical"',
        f"levels = {json.dumps(words)}",
        "missing = false",
        "other = false",
    ]

    def write_rows(folder, rows):
        for number, (name, count) in enumerate(rows.items()):
            draw = random.Random(number)
            cells = [f"{draw.choice(words)},{draw.randrange(classes)}" for _ in range(count)]
            (folder / f"{name}.csv").write_text("\n".join(["word,y", *cells]) + "\n")

    return {"schema": "\n".join(lines) + "\n", "write_rows": write_rows}


SHARED = {"algorithm": "dp-gd", "topology": "server", "algorithm_options": {"noise": "shared"}}


@pytest.mark.filterwarnings("ignore::dpadmm.run.options.ConvergenceWarning")
@pytest.mark.parametrize(
    ("names", "averager", "run"), [(NAMES[1:], None, {}), (NAMES, "hub", SHARED)]
)
def test_nodes_exchange_long_messages_and_a_killed_one_goes_on(
    make_federation, names, averager, run
):
    options = long_schema(6_600, 20, width=170)
    federation = make_federation(names, averager=averager, run={"rounds": 2, **run}, **options)
    # Its schema is too long to be told, and its messages are longer than 1 MiB.
    assert len(json.dumps(federation.agreed.facts(federation.schema))) > MEBIBYTE
    assert MEBIBYTE < 8 * 6_600 * 20
    for name in federation.nodes:
        federation.start(name)
    federation.wait_for("west", "round")
    federation.kill("west")
    federation.start("west")
    federation.finish()
    for name in names:
        assert not federation.log(name, "message-dropped")
        with SQLiteLedger(federation.folder / f"{name}.ledger") as ledger:
            (record,) = ledger.verify().runs.values()
            assert sorted(record.events) == sorted(record.commits) == [0, 1]
    kept = [federation.messages(name) for name in federation.nodes]
    said = {}
    for messages in kept:
        assert len(messages) == 2
        for t, heard in enumerate(messages):
            for party, data in heard.items():
                assert said.setdefault((party, t), data) == data


# -- before anything is read or spent ------------------------------------------------------------


def test_a_message_that_would_be_too_long_is_refused_from_public_facts(make_federation, capsys):
    federation = make_federation(NAMES)
    features = MOST_NUMBERS // 16
    (federation.folder / "schema.toml").write_text(long_schema(features + 1, 16)["schema"])
    for name in NAMES:
        path = federation.folder / f"{name}.agreed.toml"
        path.write_text(path.read_text().partition("\n")[2])
    words = (
        f"outputs x features must be at most {MOST_NUMBERS} between nodes, for the message of a "
        f"round; got 16 x {features + 1} = {MOST_NUMBERS + 16}. Take fewer columns"
    )
    config = federation.folder / "north.toml"
    with pytest.raises(ParameterError) as refused:
        prepare_node(load_node_config(config))
    assert words in str(refused.value)
    with pytest.raises(ParameterError) as refused:
        prepare_server(federation.folder / "north.agreed.toml", federation.folder / "schema.toml")
    assert words in str(refused.value)
    with pytest.raises(SystemExit) as ended:
        dpadmm(["node", "--config", str(config), "--check"])
    assert ended.value.code == 2
    assert words in " ".join(capsys.readouterr().err.split())
    assert not (federation.folder / "north.messages").exists()
    with SQLiteLedger(federation.folder / "north.ledger") as ledger:
        assert not ledger.verify().runs


def test_what_all_rounds_take_is_compared_with_what_is_free(federation, monkeypatch):
    setup = prepare_node(load_node_config(federation.folder / "north.toml"))
    size = message_size(setup.planned.site.shape[1:])
    # Ten rounds: two neighbours' messages, its own, and its own in the ledger.
    takes = 10 * 4 * size
    for free, ok in ((takes, True), (takes - 1, False)):
        usage = SimpleNamespace(free=free)
        monkeypatch.setattr(shutil, "disk_usage", lambda place, usage=usage: usage)
        (found,) = (check for check in check_node(setup) if check.check == "messages")
        assert found.ok is ok
        # People read sizes at a glance; a refusal is exact.
        assert (f"take up to {decimal(takes)} of" if ok else f"{takes} bytes") in found.words
        assert str(size) in found.words


def agreed_run(parties, **run):
    told = {"run_id": "trial", "algorithm": "pr-admm", "rounds": 2, **run}
    rows = [{"name": f"n{number:05d}", "rows": 50} for number in range(parties)]
    return validated(AgreedRun, {"run": told, "party": rows}, ".", "the agreed run")


def test_of_a_schema_that_is_too_long_nodes_tell_the_hash_and_a_difference_is_named():
    agreed = agreed_run(3)
    short, long, other = (
        Schema.from_toml(long_schema(levels, 2, width)["schema"])
        for levels, width in ((20, 1), (12_000, 90), (12_001, 90))
    )
    assert agreed.told(short) == agreed.facts(short)
    told = agreed.told(long)
    assert told["schema"].startswith("sha256 ")
    assert len(json.dumps(told)) < LONGEST_FACTS < len(json.dumps(agreed.facts(long)))
    theirs = Agreeing(dpadmm="1", facts=agreed.told(other), consents={}, names={})
    assert "schema is" in disagreement("west", told, theirs)
    same = Agreeing(dpadmm="1", facts=agreed.told(long), consents={}, names={})
    assert disagreement("west", told, same) == ""


def test_a_run_that_cannot_be_told_is_refused():
    schema = Schema.from_toml(long_schema(20, 2)["schema"])
    with pytest.raises(ParameterError, match="there must be at most 2000 nodes; got 2001"):
        agreed_run(2001)
    tables = {f"n{number:05d}": 1.0 + number / 7919 for number in range(2000)}
    options = dict.fromkeys("abcdefghijklmnopqrstuvwxyz", tables)
    agreed = agreed_run(2000, algorithm_options=options)
    with pytest.raises(ParameterError, match=rf"must be at most {LONGEST_FACTS} bytes, its schema"):
        agreed.told(schema)
