"""Attacks and mistakes: each is refused with a clear line, and the honest nodes finish."""

import os
import shutil
import threading
import time

import numpy as np
import pytest

pytest.importorskip("zenoh", reason="the extra 'federation' is not installed")

from tests.helpers.federation_net import BadNeighbour, Federation, free_ports, sign_again
from tests.helpers.wards import FOURIER_SCHEMA, SCHEMA

from dpadmm.federation.identity import make_authority, make_certificate
from dpadmm.federation.transport.session import PeerSession, Security
from dpadmm.ledger import sqlite as sqlite_ledger
from dpadmm.ledger.sqlite import SQLiteLedger

NAMES = ("north", "south", "west")


def refused(federation, name, *words, code=2):
    """The node ends with its exit code and one sentence; nothing was spent."""
    assert federation.wait(name) == code, federation.output(name)
    output = federation.output(name)
    assert "Traceback" not in output
    for each in words:
        assert each in output
    with SQLiteLedger(federation.folder / f"{name}.ledger", read_only=True) as ledger:
        assert ledger.account.spent == 0


def rewrite(path, *changes):
    text = path.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)


# -- a node's own files ----------------------------------------------------------------------


def test_a_node_refuses_its_own_wrong_files_before_it_listens(federation, tmp_path):
    folder = federation.folder / "certificates"
    config = federation.folder / "north.toml"
    honest = config.read_text()
    key = folder / "north.key"

    def attempt(*words):
        federation.start("north")
        refused(federation, "north", *words)
        config.write_text(honest)
        (federation.folder / "north.out").unlink()

    rewrite(config, ("certificates/north", "certificates/south"))
    attempt("must have its name as common name", "'south'")
    rewrite(config, ("north.key", "south.key"))
    attempt("must belong to its key")
    os.chmod(key, 0o640)
    attempt("must be private to its owner", "chmod 600")
    os.chmod(key, 0o600)
    for begin, end in ((-2, -1), (1, 2)):
        late = federation.folder / f"dates{begin}"
        late.mkdir()
        sign_again(folder, "north", late, begin=begin, end=end)
        rewrite(config, ("certificates/north", f"{late.name}/north"))
        attempt("must be valid now", "set the clock")
    foreign = Federation(tmp_path / "foreign", None, NAMES)
    shutil.copy(foreign.folder / "certificates" / "ca.pem", federation.folder / "other.pem")
    rewrite(config, ("certificates/ca.pem", "other.pem"))
    attempt("must be signed by the authority")
    begin, end = honest.index("[certificates]"), honest.index("[policy]")
    config.write_text(honest[:begin] + honest[end:])
    attempt("[certificates] must be given", "mutual TLS")


def test_no_one_but_the_owner_decides_what_is_spent(federation):
    config = federation.folder / "north.toml"
    honest = config.read_text()
    agreed = federation.folder / "north.agreed.toml"
    for change, words in (
        ({"epsilon": 1.5}, "epsilon must be at most what [policy] allows, 1; the agreed run asks"),
        ({"epsilon": {"north": 2.0, "south": 1.0, "west": 1.0}}, "asks for 2"),
        ({"delta": 1e-2}, "delta must be at most what [policy] allows"),
        ({"calibration": "published"}, "calibration must be one that [policy] allows (proven)"),
        ({"algorithm": "admm"}, "algorithm must be private at a node with a ledger"),
        ({"simulation_key": 3}, "nobody chooses the noise of another"),
    ):
        agreed.write_text(federation.agreed_text(**change))
        federation.start("north")
        refused(federation, "north", words)
        (federation.folder / "north.out").unlink()
    # Of a paper's noise counts what is proven, not what the paper claims.
    rewrite(config, ("[policy]", '[policy]\ncalibration = ["published"]'))
    agreed.write_text(
        federation.agreed_text(
            algorithm="pdml", calibration="published", algorithm_options={"initial_noise": 0.001}
        )
    )
    federation.start("north")
    refused(federation, "north", "allows, 1; what is proven of the agreed run is")
    (federation.folder / "north.out").unlink()
    config.write_text(honest)
    agreed.write_text(federation.agreed_text())
    rewrite(config, ("[policy]", '[policy]\nalgorithms = ["dvp"]'))
    federation.start("north")
    refused(federation, "north", "algorithm must be one that [policy] allows (dvp)")
    config.write_text(honest)
    rewrite(config, ('name = "west"', 'name = "south"'))
    federation.start("north")
    refused(federation, "north", "a node must be named once; 'south' is there twice")
    # The ledger has the last word, over all runs ever made.
    config.write_text(honest)
    (federation.folder / "north.ledger").unlink()
    federation.make_ledger("north", epsilon=0.5)
    federation.start("north")
    refused(federation, "north", "budget")


def test_without_tls_only_on_this_machine(federation):
    federation.tls = False
    federation.write("north", addresses={"south": "192.0.2.1:7447"})
    federation.start("north")
    refused(federation, "north", "127.0.0.1 or [::1] without TLS; got '192.0.2.1:7447'")


# -- differing runs --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "what", ["rounds", "level", "seed", pytest.param("rows", marks=pytest.mark.slow)]
)
def test_a_difference_is_named_and_nothing_starts(federation, what):
    if what == "rounds":
        federation.write("west", agreed=federation.agreed_text(rounds=12))
        ours, theirs = "run.rounds is 10 here and 12 there", "run.rounds is 12 here and 10 there"
    elif what == "rows":
        federation.write("west", agreed=federation.agreed_text().replace("rows = 50", "rows = 51"))
        ours = "party.south.rows is 50 here and 51 there"
        theirs = "party.south.rows is 51 here and 50 there"
    elif what == "seed":
        for seed, names in ((5, ("north", "south")), (6, ("west",))):
            text = FOURIER_SCHEMA.replace("seed = 5", f"seed = {seed}")
            other = Federation(federation.folder / f"other{seed}", None, NAMES, schema=text)
            (federation.folder / f"other{seed}.toml").write_text(text)
            for name in names:
                federation.write(name, agreed=other.agreed_text())
                told = federation.folder / f"{name}.toml"
                rewrite(told, ("schema.toml", f"other{seed}.toml"))
        ours = "schema.fourier.seed is 5 here and 6 there"
        theirs = "schema.fourier.seed is 6 here and 5 there"
    else:
        text = SCHEMA.replace('"a", "b"', '"a", "c"')
        other = Federation(federation.folder / "other", None, NAMES, schema=text)
        (federation.folder / "other.toml").write_text(text)
        federation.write("west", agreed=other.agreed_text())
        rewrite(federation.folder / "west.toml", ("schema.toml", "other.toml"))
        ours = 'schema.columns.2.levels.2 is "b" here and "c" there'
        theirs = 'schema.columns.2.levels.2 is "c" here and "b" there'
    for name in NAMES:
        federation.start(name)
    refused(federation, "west", theirs, "Nothing was started, and nothing more was spent")
    refused(federation, "north", "west differs", ours)
    refused(federation, "south", "west differs", ours)
    for name in NAMES:
        assert federation.log(name, "failed")
        assert not federation.log(name, "round")


def test_a_schema_that_is_not_the_agreed_one_is_refused(federation):
    (federation.folder / "other.toml").write_text(SCHEMA.replace('"a", "b"', '"a", "c"'))
    rewrite(federation.folder / "west.toml", ("schema.toml", "other.toml"))
    federation.start("west")
    refused(federation, "west", "schema must be the agreed one, with the sha256")


def test_who_stays_away_is_named_and_nothing_is_spent(federation):
    for name in ("north", "south"):
        rewrite(federation.folder / f"{name}.toml", ("start_within = 60", "start_within = 2"))
        federation.start(name)
    for name in ("north", "south"):
        words = ("must agree on the run within 2 s; not heard of: ", "west")
        refused(federation, name, *words, code=75)


# -- two of one --------------------------------------------------------------------------------


def test_two_processes_on_one_ledger(federation):
    federation.start("north")
    federation.wait_for("north", "agreeing")  # it waits for the others
    first = federation.processes["north"]
    shutil.copy(federation.folder / "north.toml", federation.folder / "again.toml")
    federation.start("again")
    assert federation.wait("again") == 75
    assert "must be open in one process at a time; another has it" in federation.output("again")
    assert federation.processes["north"] == first
    for name in ("south", "west"):
        federation.start(name)
    federation.finish()


# -- a neighbour that behaves badly ------------------------------------------------------------


def fuzzed(good, count):
    draw = np.random.default_rng(3)
    for _ in range(count):
        data = bytearray(good)
        data[int(draw.integers(len(data)))] ^= int(draw.integers(1, 256))
        yield bytes(data[: int(draw.integers(len(data)))]) if draw.random() < 0.5 else bytes(data)


HOSTILE_ENDS = [
    b'{"rounds": 1e999, "heard": {}}',
    b'{"rounds": -5, "heard": {}}',
    b'{"rounds": 11, "heard": {}}',
    b'{"rounds": true, "heard": {}}',
    b'{"rounds": 10, "heard": {"north": 1}}',
    b'{"rounds": 10, "heard": {}, "rounds": 0}',
    b'{"rounds": 10, "heard": {"\\u001b[31m\\n": "%s"}}' % (b"0" * 64),
    b"[" * 100_000,
    b"\xff\x00",
]


KINDS = {"damaged", "wrong-size", "not-finite", "too-large", "not-due", "two-messages", "invalid"}


def test_bad_messages_from_a_neighbour_do_not_stop_the_others(federation):
    honest = NAMES[:2]

    def reasons(name):
        return {entry["facts"]["reason"] for entry in federation.log(name, "message-dropped")}

    for name in honest:
        federation.start(name)
    bad = BadNeighbour(federation)
    # Nobody gets to the end before every kind has come: first no message that counts, then two
    # different ones of round 0, and those of later rounds only after that.
    bad.withheld = True
    contradicts = threading.Event()

    def wait_for_kinds(kinds):
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not all(reasons(name) >= kinds for name in honest):
            time.sleep(0.05)

    try:
        for name in honest:
            federation.wait_for(name, "agreed")
        rounds = federation.run["rounds"]
        stop = threading.Event()

        def pester():
            garbage = fuzzed(bad.message(0), 10_000)
            while not stop.is_set():
                for data in (next(garbage, b"") for _ in range(200)):
                    bad.publish(data)
                bad.publish(bad.message(0, np.nan))
                bad.publish(bad.message(0, 1e9))
                bad.publish(bytes(1 << 18))
                bad.publish(bad.message(rounds + 5))
                if contradicts.is_set():
                    bad.publish(bad.message(0))  # a replay
                    bad.publish(bad.message(0, 1.0))  # a second message for the same round
                for words in HOSTILE_ENDS:
                    bad.publish(words, "done")
                if not bad.withheld:
                    # Longer than any connection may bring: it ends, and what follows may be lost.
                    bad.publish(bytes(3 << 20))
                time.sleep(0.01)

        pestering = threading.Thread(target=pester)
        pestering.start()
        wait_for_kinds(KINDS - {"two-messages"})
        contradicts.set()
        wait_for_kinds(KINDS)
        bad.withheld = False
        for name in honest:
            federation.wait_for(name, "results-written", 60)
        stop.set()
        pestering.join()
        bad.finished = True
        federation.finish(*honest)
    finally:
        bad.session.close()
    for name in honest:
        dropped = [entry["facts"] for entry in federation.log(name, "message-dropped")]
        assert {facts["neighbour"] for facts in dropped} == {"west"}
        assert reasons(name) >= KINDS
        named = [facts["error"] for facts in dropped if facts["reason"] == "two-messages"]
        assert "west sent two different messages for round 0" in named[0]
        # A flood does not fill the log.
        assert len(dropped) < 100
        assert not federation.log(name, "no-answer")
        assert "Traceback" not in federation.output(name)


def test_a_stranger_and_a_wrong_certificate_at_a_running_node(federation, tmp_path):
    """One with a certificate of the same authority but no neighbour, and one of another's."""
    folder = federation.folder / "certificates"
    make_certificate(folder, "mallory", authority=folder)
    federation.start("north")
    federation.wait_for("north", "agreeing")
    # It calls itself west: the certificate is what counts.
    port = federation.ports["west"]
    (federation.ports["west"],) = free_ports(1)
    stranger = BadNeighbour(federation, "west", certificate="mallory")
    other = tmp_path / "other"
    make_authority(other)
    make_certificate(other, "west", authority=other)
    foreign = PeerSession(
        "west",
        f"127.0.0.1:{free_ports(1)[0]}",
        {"north": f"127.0.0.1:{federation.ports['north']}"},
        Security(folder / "ca.pem", other / "west.pem", other / "west.key"),
    )
    federation.ports["west"] = port
    try:
        assert federation.wait_for("north", "stranger-refused")["node"] == "mallory"
        told = federation.wait_for("north", "connection-refused")
        assert told["reason"] == "certificate-invalid"
        assert "invalid peer certificate" in told["error"]
        for name in ("south", "west"):
            federation.start(name)
        for _ in range(20):
            for t in range(10):
                stranger.publish(stranger.message(t, 5.0))
                foreign.publish(stranger.run.hex(), "message", stranger.message(t, 5.0))
            time.sleep(0.02)
        federation.finish()
    finally:
        stranger.session.close()
        foreign.close()
    for name in NAMES:
        assert not federation.log(name, "message-dropped")
        assert len(federation.messages(name)) == 10


def test_a_clock_that_goes_backwards_does_not_trouble_a_ledger(federation, monkeypatch):
    moments = iter(f"20{90 - year}-01-01T00:00:00.000+00:00" for year in range(80))
    monkeypatch.setattr(sqlite_ledger, "_now", lambda: next(moments))
    path = federation.folder / "north.ledger"
    path.unlink()
    federation.make_ledger("north")
    monkeypatch.undo()
    for name in NAMES:
        federation.start(name)
    federation.finish()
    with SQLiteLedger(path) as ledger:
        assert len(ledger.verify().runs["trial"].commits) == federation.run["rounds"]
