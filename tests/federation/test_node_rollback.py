"""Older copies of a node's files, and copies of a running node: nothing is drawn twice."""

import os
import shutil
import signal
import time

import pytest

pytest.importorskip("zenoh", reason="the extra 'federation' is not installed")

from tests.helpers.federation_net import Federation

from dpadmm.ledger.sqlite import SQLiteLedger

NAMES = ("north", "south", "west")
LEDGER = ("ledger", "ledger-journal")
KINDS = (*LEDGER, "messages", "messages-wal", "messages-shm")


def committed(folder, name="west"):
    """The message of every round of a ledger."""
    with SQLiteLedger(folder / f"{name}.ledger") as ledger:
        commits = ledger.verify().runs["trial"].commits
        return [ledger.load_message(commits[t]).tobytes() for t in sorted(commits)]


def copy(federation, target, kinds=KINDS):
    """Copy files of west, which must not run, in place of those that are there."""
    target.mkdir(exist_ok=True)
    for kind in kinds:
        source, place = federation.folder / f"west.{kind}", target / f"west.{kind}"
        place.unlink(missing_ok=True)
        if source.exists():
            shutil.copy(source, place)


def put_back(federation, source, kinds=KINDS):
    for kind in kinds:
        place = federation.folder / f"west.{kind}"
        place.unlink(missing_ok=True)
        if (source / place.name).exists():
            shutil.copy(source / place.name, place)


@pytest.fixture
def midway(federation, tmp_path):
    """West is down after some rounds: ``early`` has its files of rounds before, ``late`` all."""
    federation.run["rounds"] = 80
    for name in NAMES:
        federation.write(name)
        federation.start(name)
    federation.wait_for("west", "round")
    federation.kill("west")
    copy(federation, tmp_path / "early")
    before = len(committed(tmp_path / "early"))
    federation.start("west")
    deadline = time.monotonic() + 60
    while len(federation.messages("north")) < before + 5:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    federation.kill("west")
    copy(federation, tmp_path / "late")
    return federation


def finish(federation):
    """All end with all rounds, and west sent one message for each."""
    federation.finish()
    kept = federation.messages("north")
    assert len(kept) == 80
    assert kept == federation.messages("south") == federation.messages("west")
    assert len(committed(federation.folder)) == 80


def test_older_files_are_refused_here_or_by_the_neighbours_and_nothing_is_drawn(midway, tmp_path):
    # The ledger alone: the messages beside it know more.
    put_back(midway, tmp_path / "early", LEDGER)
    before = committed(midway.folder)
    midway.start("west")
    assert midway.wait("west") == 2
    words = midway.output("west")
    assert "put back to an older copy. Nothing was drawn. Restore the newest ledger" in words
    assert committed(midway.folder) == before
    # All files: the neighbours know more, and say so themselves.
    put_back(midway, tmp_path / "early")
    midway.start("west")
    assert midway.wait("west") == 2
    words = midway.output("west")
    assert f"and the ledger has {len(before)}: it was put back to an older copy" in words
    assert committed(midway.folder) == before
    assert midway.log("west", "draw-refused")
    told = [name for name in ("north", "south") if midway.log(name, "ledger-went-back")]
    assert told
    assert midway.log(told[0], "ledger-went-back")[0]["facts"]["neighbour"] == "west"
    # With the newest files it is heard again.
    put_back(midway, tmp_path / "late")
    midway.start("west")
    finish(midway)


def test_two_living_processes_of_one_node_are_both_told_and_neither_draws(midway, tmp_path):
    twin = Federation(tmp_path / "twin", midway._server, NAMES, run=midway.run)
    shutil.rmtree(twin.folder / "certificates")
    shutil.copytree(midway.folder / "certificates", twin.folder / "certificates")
    for name in ("north", "south"):
        twin.ports[name] = midway.ports[name]
    copy(midway, twin.folder)
    twin.write("west")
    # With south frozen nobody gets on, so that there is time to look.
    os.kill(midway.processes["south"], signal.SIGSTOP)
    try:
        midway.start("west")
        twin.start("west")
        for federation in (midway, twin):
            federation.wait_for("west", "draw-refused")
        for federation in (midway, twin):
            assert federation.wait("west") == 2
            words = federation.output("west")
            assert "west must run once; north hears two living processes of it" in words
    finally:
        os.kill(midway.processes["south"], signal.SIGCONT)
        twin.close()
    assert midway.wait_for("north", "neighbour-runs-twice")["neighbour"] == "west"
    late, twins, owns = (committed(f) for f in (tmp_path / "late", twin.folder, midway.folder))
    assert late == twins == owns
    # The others have waited; with one of the two the run goes on.
    midway.start("west")
    finish(midway)


def test_a_ledger_that_has_forgotten_another_run_is_refused(federation, tmp_path):
    copy(federation, tmp_path / "new", LEDGER)
    for name in NAMES:
        federation.start(name)
    federation.finish()
    put_back(federation, tmp_path / "new", LEDGER)
    federation.run["run_id"] = "another"
    federation.write("west")
    federation.start("west")
    assert federation.wait("west") == 2
    assert "ledger must have every entry that it had" in federation.output("west")
    with SQLiteLedger(federation.folder / "west.ledger", read_only=True) as ledger:
        assert not ledger.account.runs
