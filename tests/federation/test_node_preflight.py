"""What a node finds in its own rows stays at home, and ends a run only by its owner's rule."""

import json
import os
import pty
import select
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("zenoh", reason="the extra 'federation' is not installed")

from tests.helpers.federation_net import Federation

from dpadmm.cli.output import TRY_LATER
from dpadmm.ledger.sqlite import SQLiteLedger

SOURCE = str(Path(__file__).parents[2] / "src")
RUN = {"topology": "path", "rounds": 3}
WRONG = "LOOKS WRONG: north: "


def spoil(federation, name="north"):
    """Labels that are spelt otherwise: taken as the first class, which they are."""
    place = federation.folder / f"{name}.csv"
    text = place.read_text()
    place.write_text(text.replace(",no\n", ",No\n"))
    assert place.read_text() != text


def told(federation, name="north"):
    """What the owner's file says; nobody else may read it."""
    place = federation.folder / f"{name}.preflight"
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    text = place.read_text()
    assert text.startswith("Not covered by the privacy guarantee: do not share this.")
    return text


def account(federation, name):
    with SQLiteLedger(federation.folder / f"{name}.ledger", read_only=True) as ledger:
        return ledger.head, len(ledger.account.runs), ledger.account.spent_epsilon


def pair(make_federation, rule=None, **options):
    policy = {} if rule is None else {"preflight": rule}
    federation = make_federation(("north", "south"), run=RUN, tls=False, **options)
    for name in federation.names:
        told_status = f'status = "{name}.status"'
        path = federation.write(name, policy={"start_within": 30, **policy})
        path.write_text(path.read_text().replace("[watch]", f"[watch]\n{told_status}"))
    return federation


@pytest.mark.parametrize("rule", [None, "ask", "off"])
def test_without_a_terminal_and_a_rule_that_stops_a_node_goes_on(make_federation, rule):
    federation = pair(make_federation, rule)
    spoil(federation)
    for name in federation.names:
        federation.start(name)
    federation.finish()
    assert account(federation, "north")[2] > 0
    if rule == "off":
        assert not (federation.folder / "north.preflight").exists()
    else:
        assert WRONG in told(federation)
        assert "Nothing looks wrong." in told(federation, "south")


def test_stop_ends_a_node_before_anybody_hears_of_it(make_federation):
    federation = pair(make_federation, "stop")
    south = federation.write("south", policy={"start_within": 4, "preflight": "stop"})
    spoil(federation)
    before = account(federation, "north")
    federation.start("south")
    federation.start("north")
    assert federation.wait("north") == 4
    # Not even its own log, status or messages know: they may have other readers.
    for what in ("log", "status", "messages", "model", "record", "statement"):
        assert not (federation.folder / f"north.{what}").exists()
    words = federation.output("north")
    assert "the pre-flight ended this run before it began" in words
    assert not any(word in words for word in ("label", "LOOKS", "column", "%"))
    assert account(federation, "north") == before
    assert WRONG in told(federation)
    # The other sees that nobody came, and spends nothing either.
    assert federation.wait("south") == TRY_LATER
    assert south.exists()
    assert account(federation, "south")[2] == 0
    said = (federation.folder / "south.log").read_text() + federation.output("south")
    assert "preflight" not in said.replace("south.preflight", "")
    assert {entry["facts"]["reason"] for entry in federation.log("south", "neighbour-unreachable")}
    # Corrected, or by another rule, it starts.
    place = federation.folder / "north.csv"
    place.write_text(place.read_text().replace(",No\n", ",no\n"))
    federation.write("south", policy={"preflight": "stop"})
    for name in federation.names:
        federation.start(name)
    federation.finish()


def test_a_node_that_has_begun_goes_on_whatever_its_rows_look_like(make_federation):
    federation = pair(make_federation, "stop")
    for name in federation.names:
        federation.start(name)
    federation.finish()
    before = account(federation, "north")
    spoil(federation)
    federation.write("north", policy={"preflight": "stop", "serve_for": 1})
    federation.start("north")
    assert federation.wait("north") == 0, federation.output("north")
    assert account(federation, "north") == before


def test_a_node_that_its_ledger_refuses_looks_at_no_row(make_federation):
    federation = pair(make_federation, "stop")
    (federation.folder / "north.ledger").unlink()
    federation.make_ledger("north", epsilon=0.5)
    spoil(federation)
    federation.start("north")
    assert federation.wait("north") == 2
    assert federation.log("north", "failed")
    assert not (federation.folder / "north.preflight").exists()


def shown(federation, name):
    """All that a node shows to others or writes for them, without times and ports."""
    log = [
        (entry["event"], {k: v for k, v in entry["facts"].items() if k not in ("seconds", "port")})
        for entry in federation.log(name)
        # Who is slow to come is told by chance.
        if not entry["event"].startswith(("neighbour", "waiting", "round"))
    ]
    status = json.loads((federation.folder / f"{name}.status").read_text())
    kept = {key: status[key] for key in ("state", "round", "rounds", "epsilon_spent", "dropped")}
    record = json.loads((federation.folder / f"{name}.record").read_text())
    for each in ("ended", "seconds", "model_sha256"):
        record.pop(each, None)
    return {
        "output": federation.output(name).count("\n"),
        "log": str(log).replace(str(federation.folder), "FOLDER"),
        "status": kept,
        "record": record,
        "messages": federation.messages(name),
    }


def test_nothing_that_is_shared_tells_a_clean_file_from_a_dirty_one(fork_server, tmp_path):
    """Both encode to the same rows, and noise is drawn from one key: all else must agree, too."""
    seen = []
    for dirty in (False, True):
        federation = Federation(
            tmp_path / str(dirty), fork_server, ("north", "south"), tls=False, run=RUN
        )
        try:
            for number, name in enumerate(federation.names):
                path = federation.write(name, simulation=number)
                status = f'[watch]\nstatus = "{name}.status"'
                path.write_text(path.read_text().replace("[watch]", status))
            if dirty:
                spoil(federation)
            for name in federation.names:
                federation.start(name)
            federation.finish()
            assert (WRONG in told(federation)) == dirty
            names = sorted(path.name for path in federation.folder.iterdir())
            seen.append([names, *(shown(federation, name) for name in federation.names)])
        finally:
            federation.close()
    clean, spoilt = seen
    assert clean == spoilt


def checked(federation, *words, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE):
    place = federation.folder / "north.toml"
    order = ["node", "--config", str(place), "--insecure-loopback", *words]
    return subprocess.run(
        [sys.executable, "-m", "dpadmm", *order],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        env={**os.environ, "PYTHONPATH": SOURCE},
        check=False,
    )


def test_an_owner_looks_at_home_before_the_start(make_federation):
    federation = pair(make_federation, "off")
    done = checked(federation, "--check", "--rows", "--json")
    assert done.returncode == 0, done.stdout
    assert "Nothing looks wrong." in told(federation)
    spoil(federation)
    before = account(federation, "north")
    done = checked(federation, "--check", "--rows", "--json")
    assert done.returncode == 1
    (found,) = [each for each in json.loads(done.stdout)["result"]["checks"] if not each["ok"]]
    assert found["check"] == "rows"
    assert not any(word in done.stdout + done.stderr for word in ("LOOKS", "label", "%"))
    assert WRONG in told(federation)
    assert account(federation, "north") == before
    # Without --rows no row is read, and --rows alone is none of a start's.
    (federation.folder / "north.preflight").unlink()
    assert checked(federation, "--check").returncode == 0
    assert not (federation.folder / "north.preflight").exists()
    assert checked(federation, "--rows").returncode == 2


def test_a_node_on_a_terminal_asks_its_owner(make_federation):
    federation = pair(make_federation)
    spoil(federation)
    leader, follower = pty.openpty()
    words = ["node", "--config", str(federation.folder / "north.toml"), "--insecure-loopback"]
    process = subprocess.Popen(
        [sys.executable, "-m", "dpadmm", *words],
        stdin=follower,
        stdout=subprocess.DEVNULL,
        stderr=follower,
        env={**os.environ, "PYTHONPATH": SOURCE, "COLUMNS": "200"},
    )
    os.close(follower)
    seen, deadline = "", time.monotonic() + 60
    try:
        while "[y/N]" not in seen and time.monotonic() < deadline:
            if select.select([leader], [], [], 0.1)[0]:
                seen += os.read(leader, 1 << 16).decode()
        os.write(leader, b"n\n")
        assert process.wait(60) == 4
    finally:
        process.kill()
        process.wait()
        os.close(leader)
    assert WRONG in seen
    assert not (federation.folder / "north.log").exists()
    assert account(federation, "north")[1:] == (0, 0)
