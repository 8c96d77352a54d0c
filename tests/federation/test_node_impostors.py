"""Impostors: without a certificate, with another's name, or with another's key."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("zenoh", reason="the extra 'federation' is not installed")

import zenoh
from tests.helpers.federation_net import Federation, bare_client, sign_again

from dpadmm.federation.agreement import AGREEMENT_TOPIC
from dpadmm.federation.identity import make_authority, make_certificate
from dpadmm.federation.transport.wire import encode_message
from dpadmm.ledger.sqlite import SQLiteLedger

NAMES = ("north", "south", "west")


@pytest.fixture
def twin(federation):
    """Another machine with the key of west, and a ledger and rows of its own."""
    twin = Federation(federation.folder / "twin", federation._server, NAMES)
    shutil.rmtree(twin.folder / "certificates")
    shutil.copytree(federation.folder / "certificates", twin.folder / "certificates")
    for name in ("north", "south"):
        twin.ports[name] = federation.ports[name]
    twin.make_ledger("west")
    twin.write("west")
    yield twin
    twin.close()


def spent(folder, name):
    with SQLiteLedger(folder / f"{name}.ledger", read_only=True) as ledger:
        return ledger.account.spent


def test_the_second_to_claim_a_name_is_refused_and_the_others_finish(federation, twin):
    federation.start("west")
    federation.start("north")
    federation.wait_for("north", "neighbour-here")
    twin.start("west")
    assert federation.wait_for("north", "name-claimed-twice")["neighbour"] == "west"
    assert twin.wait("west") == 2
    words = "the name 'west' must be one node's; north hears another under it. Stop one of the two"
    assert words in twin.output("west")
    assert spent(twin.folder, "west") == 0
    federation.start("south")
    federation.finish()


def test_a_second_of_a_name_in_the_midst_of_a_run_is_named_and_not_heard(federation):
    """It skips the agreement, and knows everything but what its node has drawn for itself."""
    # Rounds enough to be there in the midst of them.
    federation.run["rounds"] = 60
    for name in NAMES:
        federation.write(name)
        federation.start(name)
    federation.wait_for("north", "round")
    run = federation.agreed.digest(federation.schema)
    impostor = bare_client(federation.ports["north"], federation.folder / "certificates", "west")
    impostor.liveliness().declare_token("dpadmm/alive/west/another")
    while not federation.log("north", "results-written"):
        done = federation.log("north", "round")[-1]["facts"]["round"]
        for t in (done, done + 1, done + 2):
            forged = encode_message(run, NAMES.index("west"), min(t, 59), np.full((1, 1, 4), 9.0))
            for said in ("another", "", None):
                impostor.put(f"dpadmm/{run.hex()}/west/message", forged, attachment=said)
        time.sleep(0.01)
    federation.finish()
    impostor.close()
    told = federation.log("north", "name-claimed-twice")[0]
    assert told["level"] == "error"
    assert told["facts"]["neighbour"] == "west"
    assert "stop one of the two" in told["facts"]["advice"]
    assert not federation.log("north", "message-dropped")
    assert federation.messages("north") == federation.messages("south")


def test_a_killed_node_without_its_messages_is_let_in_again(federation):
    """Its name is free once it is gone, and that another has it now is told."""
    federation.run["rounds"] = 40
    for name in NAMES:
        federation.write(name)
        federation.start(name)
    federation.wait_for("west", "round")
    federation.kill("west")
    for left in federation.folder.glob("west.messages*"):
        left.unlink()
    federation.start("west")
    federation.finish()
    assert federation.log("north", "neighbour-replaced")[0]["facts"]["neighbour"] == "west"
    assert not federation.log("north", "message-dropped")


def test_a_neighbour_that_writes_under_another_name_is_named(federation):
    """At the door of every node the certificate decides, and the log says who tried."""
    for name in ("north", "south"):
        federation.start(name)
        federation.wait_for(name, "agreeing")
    run = federation.agreed.digest(federation.schema).hex()
    forged = encode_message(bytes.fromhex(run), NAMES.index("south"), 0, np.zeros((1, 1, 4)))
    # West has not started yet: its certificate is used to speak for south.
    impostor = bare_client(federation.ports["north"], federation.folder / "certificates", "west")
    publisher = impostor.declare_publisher(f"dpadmm/{run}/south/message")
    for _ in range(3):
        impostor.put(f"dpadmm/{run}/south/message", forged)
        publisher.put(forged)
        impostor.put(f"dpadmm/{AGREEMENT_TOPIC}/south/facts", b"{}")
        time.sleep(0.05)
    told = federation.wait_for("north", "message-dropped")
    assert told["neighbour"] == "west"
    assert told["reason"] == "another-name"
    assert "west must write under its own name; it tried to as south: refused" in told["error"]
    impostor.close()
    federation.start("west")
    federation.finish()
    # Who did nothing of the kind is accused of nothing.
    assert {
        entry["facts"]["neighbour"] for entry in federation.log("north", "message-dropped")
    } == {"west"}
    for name in ("south", "west"):
        assert not federation.log(name, "message-dropped")


def test_no_connection_without_a_valid_certificate_and_the_log_says_why(federation, tmp_path):
    folder = federation.folder / "certificates"
    federation.start("north")
    federation.wait_for("north", "agreeing")
    other = tmp_path / "other"
    make_authority(other)
    make_certificate(other, "west", authority=other)
    shutil.copy(folder / "ca.pem", other / "ca.pem")
    attempts = {"certificate-invalid": ("west", other), "no-certificate": (None, folder)}
    for reason, (begin, end) in {
        "certificate-expired": (-2, -1),
        "certificate-not-valid-yet": (1, 2),
    }.items():
        dated = tmp_path / reason
        dated.mkdir()
        sign_again(folder, "west", dated, begin=begin, end=end)
        attempts[reason] = ("west", dated)
    for reason, (certificate, place) in attempts.items():
        with pytest.raises(zenoh.ZError):
            bare_client(federation.ports["north"], place, certificate)
        deadline = time.monotonic() + 20
        while not (told := refusals_of(federation, "north", reason)):
            assert time.monotonic() < deadline, federation.output("north")
            time.sleep(0.05)
        assert ("set the clock" in told[0]["error"]) == (reason in CLOCKS)
    for name in ("south", "west"):
        federation.start(name)
    federation.finish()


CLOCKS = ("certificate-expired", "certificate-not-valid-yet")


def refusals_of(federation, name, reason):
    entries = [entry["facts"] for entry in federation.log(name, "connection-refused")]
    return [facts for facts in entries if facts["reason"] == reason]


NODE = [sys.executable, "-m", "dpadmm", "node", "--config"]


@pytest.fixture(scope="module")
def clock_shift(tmp_path_factory):
    """What shifts the clock of a process: the environment for so many hours."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler: clocks of other processes cannot be set")
    library = tmp_path_factory.mktemp("clock") / "clock_shift.so"
    source = Path(__file__).with_name("clock_shift.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)

    def environment(hours):
        shift = {"LD_PRELOAD": str(library), "CLOCK_SHIFT": str(3600 * hours)}
        return os.environ | shift | {"OPENBLAS_NUM_THREADS": "1"}

    return environment


def test_clocks_that_differ_by_hours_do_not_matter(federation, clock_shift):
    """One node lives hours ago and one hours ahead: only certificates know what time it is."""
    folder = federation.folder / "certificates"
    for name in NAMES:
        # As they are made they are valid from an hour before on.
        sign_again(folder, name, folder, begin=-2, end=2)
    running = []
    for name, hours in (("north", 0), ("south", -7), ("west", 9)):
        with open(federation.folder / f"{name}.out", "wb") as output:
            words = [*NODE, str(federation.folder / f"{name}.toml")]
            started = subprocess.Popen(words, stdout=output, stderr=output, env=clock_shift(hours))
            running.append(started)
    try:
        codes = [process.wait(60) for process in running]
    finally:
        for process in running:
            process.kill()
    assert codes == [0, 0, 0], [federation.output(name) for name in NAMES]
    ended = {name: federation.log(name, "finished")[0]["time"] for name in NAMES}
    assert ended["south"] < ended["north"] < ended["west"]
    for name in NAMES:
        with SQLiteLedger(federation.folder / f"{name}.ledger") as ledger:
            assert len(ledger.verify().runs["trial"].commits) == 10
    assert federation.messages("north") == federation.messages("west")


def test_a_clock_beyond_the_dates_of_a_certificate_is_named(federation, clock_shift):
    words = [*NODE, str(federation.folder / "north.toml"), "--check"]
    environment = clock_shift(24 * 1000)
    done = subprocess.run(words, capture_output=True, text=True, env=environment)
    assert done.returncode == 2
    assert "must be valid now" in done.stderr
    assert "set the clock" in done.stderr
