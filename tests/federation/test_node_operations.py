"""What the people who run a node see of it: causes, checks, orderly ends, of real processes."""

import contextlib
import json
import os
import pty
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest

pytest.importorskip("zenoh", reason="the extra 'federation' is not installed")

from tests.helpers.federation_net import Federation, free_ports, has_ipv6, sign_again

from dpadmm.federation.identity import make_authority, make_certificate, read_certificate
from dpadmm.federation.reach import REACHED, probe
from dpadmm.federation.transport.session import PeerSession, Security, split_address
from dpadmm.ledger.base import ChargedData
from dpadmm.ledger.filters import Policy
from dpadmm.ledger.sqlite import SQLiteLedger
from dpadmm.run.model import load_model

NAMES = ("north", "south", "west")
COMMAND = [sys.executable, "-m", "dpadmm"]
ENVIRONMENT = os.environ | {
    "PYTHONPATH": str(Path(__file__).parents[2] / "src"),
    "OPENBLAS_NUM_THREADS": "1",
}
VALIDATOR = jsonschema.Draft202012Validator(
    json.loads(files("dpadmm.cli").joinpath("output.schema.json").read_text())
)


def edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def with_status(federation, *names):
    for name in names or federation.nodes:
        path = federation.folder / f"{name}.toml"
        edit(path, "lease = 2", f'lease = 2\nstatus = "{name}.status.json"')


def status(federation, name):
    return json.loads((federation.folder / f"{name}.status.json").read_text())


def wait_within(federation, name, seconds):
    """The exit code of a node that has to end by then."""
    deadline = time.monotonic() + seconds
    place = Path(f"/proc/{federation.processes[name]}/stat")
    while place.read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < deadline, (name, federation.log(name), federation.output(name))
        time.sleep(0.02)
    return federation.wait(name)


def under_way(federation, name):
    """Whether a round was complete since it was stopped last."""
    events = [entry["event"] for entry in federation.log(name)]
    return "round" in " ".join(events).rpartition("stopped")[2].split()


def security(folder, name):
    return Security(folder / "ca.pem", folder / f"{name}.pem", folder / f"{name}.key")


@contextlib.contextmanager
def black_hole():
    """A port whose queue is full: whoever dials it hears nothing."""
    with socket.socket() as listener, contextlib.ExitStack() as stack:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


@contextlib.contextmanager
def on_a_terminal(words):
    """A process whose standard error is a terminal, and what it showed there so far."""
    leader, follower = pty.openpty()
    shown = bytearray()

    def read():
        with contextlib.suppress(OSError):
            while data := os.read(leader, 1 << 16):
                shown.extend(data)

    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=follower, env=ENVIRONMENT | {"COLUMNS": "400"}
    )
    os.close(follower)
    reading = threading.Thread(target=read, daemon=True)
    reading.start()
    try:
        yield process, shown
    finally:
        process.kill()
        process.communicate()
        reading.join(10)
        os.close(leader)


# Causes ------------------------------------------------------------------------------------------

FAR = ("nobody", "mute", "foreign", "elsewhere", "refusing", "wrong")


def test_why_neighbours_are_missing_is_told_within_ten_seconds(fork_server, tmp_path):
    names = ("north", *FAR)
    run = {"topology": "complete", "penalty": 0.01, "rounds": 30}
    federation = Federation(tmp_path / "f", fork_server, names, run=run)
    federation.make_ledger("north")
    certificates, other = federation.folder / "certificates", tmp_path / "other"
    make_authority(other, name="another authority")
    for name in ("foreign", "refusing"):
        make_certificate(other, name)
    make_certificate(tmp_path / "far", "elsewhere", hosts=["a.example"], authority=certificates)
    shutil.copy(certificates / "ca.pem", tmp_path / "far")
    # It is known here, but does not know the authority of this node.
    refusing = Security(
        other / "ca.pem", certificates / "refusing.pem", certificates / "refusing.key"
    )
    nowhere = {"north": f"127.0.0.1:{free_ports(1)[0]}"}
    with black_hole() as mute, contextlib.ExitStack() as stack:
        for name, files_ in (
            ("foreign", security(other, "foreign")),
            ("elsewhere", security(tmp_path / "far", "elsewhere")),
            ("refusing", refusing),
        ):
            place = f"127.0.0.1:{federation.ports[name]}"
            stack.enter_context(PeerSession(name, place, nowhere, files_))
        federation.write(
            "north",
            addresses={
                "mute": f"127.0.0.1:{mute}",
                "wrong": f"127.0.0.1:{federation.ports['elsewhere']}",
            },
        )
        with_status(federation, "north")
        words = [*COMMAND, "node", "--config", str(federation.folder / "north.toml")]
        with on_a_terminal(words) as (process, shown):
            federation.wait_for("north", "agreeing")
            begin = time.monotonic()
            while len(status(federation, "north")["unreachable"]) < len(FAR):
                assert time.monotonic() - begin < 10, federation.log("north")
                assert process.poll() is None
                time.sleep(0.1)
            found = status(federation, "north")["unreachable"]
            listed = subprocess.run(
                [*COMMAND, "status", str(federation.folder)],
                env=ENVIRONMENT | {"COLUMNS": "400"},
                capture_output=True,
                text=True,
                check=True,
            ).stdout
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 130
            terminal = shown.decode()
    causes = {
        "nobody": ("nothing-listens", "start nobody there"),
        "mute": ("no-answer", "firewalls"),
        "foreign": ("unknown-authority", "signed by 'another authority'"),
        "elsewhere": ("host-not-in-certificate", "is for a.example, and not for 127.0.0.1"),
        "refusing": ("own-certificate-refused", "compare the sha256 of ca.pem"),
        "wrong": ("another-node", "is 'elsewhere', not 'wrong'"),
    }
    for name, (reason, words) in causes.items():
        assert found[name]["reason"] == reason
        assert words in found[name]["advice"]
        # One line for one cause, however often it was tried.
        told = [entry["facts"] for entry in federation.log("north", "neighbour-unreachable")]
        (facts,) = [each for each in told if each["neighbour"] == name]
        assert facts["reason"] == reason
        assert words in facts["advice"]
        assert words in terminal
        assert f"{name} ({reason})" in listed


def test_looking_for_a_node_does_not_disturb_it(federation):
    certificates = federation.folder / "certificates"
    federation.start("north")
    federation.wait_for("north", "agreeing")
    address = f"127.0.0.1:{federation.ports['north']}"
    for _ in range(3):
        found = probe("north", address, security(certificates, "south"))
        assert found.reason == REACHED
    # South is there now, west is not: north knows by itself.
    federation.start("south")
    found = federation.wait_for("north", "neighbour-unreachable", 30)
    federation.start("west")
    for name in NAMES:
        assert wait_within(federation, name, 120) == 0, federation.output(name)
        events = {entry["event"] for entry in federation.log(name)}
        assert not events & {"connection-refused", "stranger-refused", "message-dropped"}
        assert "WARN" not in federation.output(name)
        # Everything that was written is named.
        for kind, ending in (("Model", "model"), ("Report", "html"), ("Statement", "statement")):
            assert f"{kind}: {federation.folder / f'{name}.{ending}'}\n" in federation.output(name)
        # Who ended well is not missed.
        ended = federation.log(name, "results-written")[0]["time"]
        late = federation.log(name, "neighbour-unreachable")
        assert not [entry for entry in late if entry["time"] > ended]


@pytest.mark.parametrize(("days", "reason"), [((-20, -10), "expired"), ((5, 20), "not-valid-yet")])
def test_dates_are_named_on_both_sides(tmp_path, days, reason):
    make_authority(tmp_path)
    for name in ("a", "b"):
        make_certificate(tmp_path, name)
    other = tmp_path / "other"
    other.mkdir()
    sign_again(tmp_path, "b", other, begin=days[0], end=days[1])
    port, far = free_ports(2)
    nowhere = f"127.0.0.1:{far}"
    address = f"127.0.0.1:{port}"
    with PeerSession("b", address, {"a": nowhere}, security(other, "b")):
        assert probe("b", address, security(tmp_path, "a")).reason == f"certificate-{reason}"
    with PeerSession("a", address, {"b": nowhere}, security(tmp_path, "a")):
        found = probe("a", address, security(other, "b"))
    assert found.reason in ("own-certificate-expired", "own-certificate-refused")


def test_what_is_no_node(tmp_path):
    make_authority(tmp_path)
    make_certificate(tmp_path, "a")
    own = security(tmp_path, "a")

    def answer(listener):
        connection, _ = listener.accept()
        with connection:
            connection.recv(10)
            connection.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=answer, args=(listener,), daemon=True).start()
        place = f"127.0.0.1:{listener.getsockname()[1]}"
        assert probe("b", place, own).reason == "no-tls"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        place = f"127.0.0.1:{listener.getsockname()[1]}"
        assert probe("b", place, own, timeout=0.3).reason == "no-handshake"
        assert probe("b", place, None).reason == REACHED
    assert probe("b", place, None).reason == "nothing-listens"
    assert probe("b", "no-such-host.invalid:7447", own, timeout=1).reason == "name-unknown"


# Addresses ---------------------------------------------------------------------------------------


def test_addresses():
    assert split_address("north.example.org:7447") == ("north.example.org", 7447)
    assert split_address("192.0.2.7:1") == ("192.0.2.7", 1)
    assert split_address("[2001:db8::7]:7447") == ("2001:db8::7", 7447)
    for wrong in ("::1:7447", "tls/[::1]:7447", "[::1]", "[::g]:1", "a:0", "a:65536", "a:", ":1",
                  "a b:1", "a:١", "[1.2.3.4]:1"):  # fmt: skip
        with pytest.raises(ValueError, match=r".*"):
            split_address(wrong)


def test_a_certificate_for_an_ipv6_address(tmp_path):
    make_authority(tmp_path)
    make_certificate(tmp_path, "a", hosts=["[2001:db8::7]", "::1"])
    assert read_certificate(tmp_path / "a.pem").hosts == ("2001:db8::7", "::1")


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
def test_nodes_at_ipv6_addresses(federation):
    for name in NAMES:
        edit(federation.folder / f"{name}.toml", "127.0.0.1", "[::1]")
    checked = subprocess.run(
        [*COMMAND, "node", "--config", str(federation.folder / "north.toml"), "--check"],
        env=ENVIRONMENT,
        check=True,
        capture_output=True,
        text=True,
    )
    assert "[::1]" in checked.stdout
    for name in NAMES:
        federation.start(name)
    for name in NAMES:
        assert wait_within(federation, name, 120) == 0, federation.output(name)
        assert len(federation.messages(name)) == 10
        assert "WARN" not in federation.output(name)


# --check -----------------------------------------------------------------------------------------


@pytest.fixture
def check(federation, fork_server, tmp_path):
    def check(*more):
        output = tmp_path / "check.out"
        output.unlink(missing_ok=True)
        words = ["node", "--config", federation.folder / "north.toml", "--check", "--json", *more]
        code = fork_server.wait(fork_server.start(words, output))
        result = json.loads(output.read_text())
        VALIDATOR.validate(result)
        checks = {each["check"]: each for each in result["result"]["checks"]}
        assert result["result"]["ready"] == (code == 0) == all(e["ok"] for e in checks.values())
        assert code in (0, 1)
        return {name for name, each in checks.items() if not each["ok"]}, checks

    return check


def test_a_node_that_is_ready_and_spends_nothing(federation, check):
    before = {path: path.read_bytes() for path in federation.folder.iterdir() if path.is_file()}
    wrong, checks = check()
    assert wrong == set()
    assert {"ledger", "log", "port", "certificate"} <= set(checks)
    assert "epsilon = 0 of 1 is spent" in checks["ledger"]["words"]
    assert "Head: 0:" in checks["ledger"]["words"]
    after = {path: path.read_bytes() for path in federation.folder.iterdir() if path.is_file()}
    assert after == before


def test_what_is_wrong_is_found_before_the_start(federation, check):
    ledger = federation.folder / "north.ledger"
    whole = ledger.read_bytes()

    def replaced(**changes):
        facts = {"owner": "north", "rows": federation.rows["north"], "epsilon": 1.0, **changes}
        ledger.unlink()
        policy = Policy(facts["epsilon"], 1e-3)
        SQLiteLedger.create(
            ledger, ChargedData("rows", facts["owner"], facts["rows"]), policy
        ).close()

    ledger.unlink()
    for prepare, words in (
        (lambda: None, "must exist"),
        (lambda: ledger.write_bytes(whole[:-100]), "ledger"),
        (lambda: replaced(owner="south"), "must have it as owner"),
        (lambda: replaced(rows=41), "must be about its 40 rows"),
        (lambda: replaced(epsilon=0.5), "must fit into the budget"),
    ):
        prepare()
        wrong, checks = check()
        assert wrong == {"ledger"}
        assert words in checks["ledger"]["words"]
    replaced()
    with socket.create_server(("127.0.0.1", federation.ports["north"])):
        wrong, checks = check()
        assert wrong == {"port"}
        assert "must be an address of this machine that is free" in checks["port"]["words"]
    config = federation.folder / "north.toml"
    edit(config, '"north.log"', '"nowhere/north.log"')
    assert check()[0] == {"log"}
    edit(config, '"nowhere/north.log"', '"north.log"')
    certificates = federation.folder / "certificates"
    place = f"127.0.0.1:{federation.ports['south']}"
    north = {"north": f"127.0.0.1:{federation.ports['north']}"}
    with PeerSession("south", place, north, security(certificates, "south")):
        wrong, checks = check("--reach")
    assert wrong == {"reach west"}
    assert "nothing-listens" in checks["reach west"]["words"]


def test_a_pin_counts_when_a_neighbour_is_dialled(federation, check):
    certificates = federation.folder / "certificates"
    config = federation.folder / "north.toml"
    place = f"127.0.0.1:{federation.ports['south']}"
    north = {"north": f"127.0.0.1:{federation.ports['north']}"}
    right, stale = read_certificate(certificates / "south.pem").fingerprint, "0" * 64
    text = config.read_text()
    with PeerSession("south", place, north, security(certificates, "south")):
        config.write_text(f'{text}\n[pins]\nsouth = "{right}"\neast = "{stale}"\n')
        wrong, checks = check("--reach")
        assert wrong == {"reach west"}
        # Who is no neighbour cannot be dialled, and that is said.
        assert "east cannot be dialled from here" in checks["pins"]["words"]
        config.write_text(f'{text}\n[pins]\nsouth = "{stale}"\n')
        wrong, checks = check("--reach")
    assert wrong == {"reach south", "reach west"}
    words = checks["reach south"]["words"]
    assert f"another-certificate: the certificate of south has the sha256 {right}" in words


def test_a_port_that_is_taken_ends_a_node_so_that_it_is_started_again(federation):
    with socket.create_server(("127.0.0.1", federation.ports["north"])):
        federation.start("north")
        assert wait_within(federation, "north", 120) == 75, federation.output("north")
    assert "listen must be an address of this machine that is free" in federation.output("north")


def test_reach_without_check_is_refused(federation, fork_server, tmp_path):
    words = ["node", "--config", federation.folder / "north.toml", "--reach"]
    assert fork_server.wait(fork_server.start(words, tmp_path / "out")) == 2
    assert "--reach must come with --check" in (tmp_path / "out").read_text()


# Ends --------------------------------------------------------------------------------------------


def test_a_stopped_node_goes_on_with_the_same_bytes(fork_server, tmp_path):
    rounds = 120
    federation = Federation(tmp_path / "f", fork_server, NAMES, run={"rounds": rounds})
    try:
        for name in NAMES:
            federation.make_ledger(name)
            federation.write(name)
        with_status(federation)
        for name in NAMES:
            federation.start(name)
        for number, name in ((15, "west"), (2, "south"), (15, "west")):
            seen = len(federation.log(name, "stopped"))
            deadline = time.monotonic() + 60
            while not under_way(federation, name):
                assert time.monotonic() < deadline
                time.sleep(0.01)
            os.kill(federation.processes[name], number)
            assert wait_within(federation, name, 20) == 128 + number
            assert status(federation, name)["state"] == "stopped"
            assert len(federation.log(name, "stopped")) == seen + 1
            assert "goes on where it was" in federation.output(name)
            if name == "south":
                # Nobody gets to the end before the last is stopped.
                os.kill(federation.processes["north"], signal.SIGSTOP)
            federation.start(name)
        os.kill(federation.processes["north"], signal.SIGCONT)
        for name in NAMES:
            assert wait_within(federation, name, 120) == 0, federation.output(name)
            assert status(federation, name)["state"] == "finished"
            assert not federation.log(name, "message-dropped")
            with SQLiteLedger(federation.folder / f"{name}.ledger") as ledger:
                record = ledger.verify().runs["trial"]
                assert len(record.commits) == len(record.events) == rounds
        # A ring of three: everybody heard the same bytes of everybody.
        first, second, third = (federation.messages(name) for name in NAMES)
        assert first == second == third
        assert len(first) == rounds
    finally:
        federation.close()


def test_a_node_that_waits_for_others_is_stopped_at_once(federation):
    with_status(federation, "north")
    federation.start("north")
    federation.wait_for("north", "agreeing")
    os.kill(federation.processes["north"], signal.SIGTERM)
    assert wait_within(federation, "north", 10) == 143
    assert status(federation, "north")["state"] == "stopped"
    assert federation.log("north")[-1]["event"] == "stopped"


HANGING = """
import sys, time
from dpadmm.federation import watcher as stopping
stopping._LONGEST_CLOSING = float(sys.argv[1])
try:
    signals = stopping.Stopping(lambda: print("gave up", flush=True))
    print("here", flush=True)
    time.sleep(60)
finally:
    print("closing", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("impatience", ["limit", "second signal"])
def test_closing_that_hangs_ends(impatience):
    limit = "0.2" if impatience == "limit" else "60"
    words = [sys.executable, "-c", HANGING, limit]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)
    try:
        assert process.stdout.readline() == "here\n"
        process.send_signal(signal.SIGTERM)
        if impatience == "second signal":
            assert process.stdout.readline() == "closing\n"
            process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 143
        assert ("gave up" in process.stdout.read()) == (impatience == "limit")
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_node_has_not_finished_while_its_results_are_not_written(federation):
    folder = federation.folder / "results"
    folder.mkdir()
    edit(federation.folder / "north.toml", '"north.model"', '"results/north.model"')
    with_status(federation, "north")
    for name in NAMES:
        federation.start(name)
    federation.wait_for("north", "agreeing")
    folder.rename(federation.folder / "gone")
    assert wait_within(federation, "north", 120) == 2
    assert status(federation, "north")["state"] == "stopped"
    (federation.folder / "gone").rename(folder)
    federation.start("north")
    for name in NAMES:
        assert wait_within(federation, name, 60) == 0
        # North was not there when the others said that they were done.
        assert not federation.log(name, "neighbours-late")
    assert status(federation, "north")["state"] == "finished"
    assert load_model(folder / "north.model")
