"""Older copies of a node's files, and copies of a running node: nothing is drawn twice."""

import os
import shutil
import signal
import sqlite3
import time
from contextlib import closing
from dataclasses import replace

import pytest

pytest.importorskip("zenoh", reason="the extra 'federation' is not installed")

from tests.helpers.federation_net import Federation

from dpadmm.cli.output import TRY_LATER
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
    federation.remove_results("west")
    federation.write("west")
    federation.start("west")
    assert federation.wait("west") == 2
    assert "ledger must have every entry that it had" in federation.output("west")
    with SQLiteLedger(federation.folder / "west.ledger", read_only=True) as ledger:
        assert not ledger.account.runs


def test_another_ledger_for_the_same_rows_stops_the_node(federation, tmp_path):
    """One at the same path would begin at 0 spent; the messages know that another was charged."""
    ledger, folder = federation.folder / "west.ledger", federation.folder
    for name in NAMES:
        federation.start(name)
    federation.wait_for("west", "round")
    for name in NAMES:
        federation.kill(name)
    copy(federation, tmp_path / "charged")
    with SQLiteLedger(ledger) as charged:
        data, policy, spent = charged.dataset, charged.policy, charged.account.spent
    federation.run["run_id"] = "another"
    federation.write("west")

    def answer(code, *more):
        federation.start("west", *more)
        assert federation.wait("west") == code
        return " ".join(federation.output("west").split())

    def assert_refused():
        assert "ledger must be the one that was charged" in answer(1, "--check")
        words = answer(2)
        assert "ledger must be the one that was charged for these rows" in words
        assert "Nothing was drawn. Put that one back; 'dpadmm ledger amend' changes" in words
        with SQLiteLedger(ledger, read_only=True) as found:
            assert not found.account.runs

    # Whatever its policy, and whatever it is called: it is about the same file of rows.
    for about in (data, replace(data, name="others")):
        ledger.unlink()
        SQLiteLedger.create(ledger, about, replace(policy, colluders=1)).close()
        assert_refused()
    # Nor is a path forgotten where the charged one was started with the rows elsewhere since.
    put_back(federation, tmp_path / "charged")
    text = (folder / "west.toml").read_text()
    (folder / "moved.csv").write_bytes((folder / "west.csv").read_bytes())
    (folder / "west.toml").write_text(text.replace('"west.csv"', '"moved.csv"'))
    federation.start("west")
    federation.wait_for("west", "agreeing")
    federation.kill("west")
    (folder / "west.toml").write_text(text)
    ledger.unlink()
    SQLiteLedger.create(ledger, replace(data, name="others"), policy).close()
    assert_refused()
    # Messages of 0.2.0 say of no ledger what its rows were.
    with closing(sqlite3.connect(folder / "west.messages")) as store:
        assert store.execute("DELETE FROM notes WHERE name LIKE 'rows of ledger %'").rowcount
        store.commit()
    assert_refused()
    # The one that was charged is amended instead: what was spent is known.
    put_back(federation, tmp_path / "charged")
    with SQLiteLedger(ledger) as charged:
        charged.amend(epsilon=3 * policy.epsilon, loosen=True)
        assert charged.account.spent == spent > 0
    assert "what is agreed on fits" in answer(0, "--check")


def test_a_ledger_for_other_rows_shares_a_messages_file(federation):
    """Nor does one that was never charged stand in the way of the one that takes its place."""
    ledger, folder = federation.folder / "west.ledger", federation.folder
    federation.write("west", policy={"start_within": 0.2})
    federation.start("west")
    assert federation.wait("west") == TRY_LATER  # nobody else is there
    with SQLiteLedger(ledger, read_only=True) as found:
        assert not found.account.spent
        data, policy = replace(found.dataset, name="others"), found.policy
    ledger.rename(folder / "first.ledger")
    SQLiteLedger.create(ledger, data, policy).close()
    (folder / "west.csv").rename(folder / "others.csv")
    text = (folder / "west.toml").read_text()
    (folder / "west.toml").write_text(text.replace('"west.csv"', '"others.csv"'))
    federation.start("west", "--check")
    assert federation.wait("west") == 0, federation.output("west")
