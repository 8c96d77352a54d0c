"""The ledger of a data set: one charge and one message per round, whatever happens."""

import json
import math
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.helpers.edited_ledgers import edit, edit_and_mend

from dpadmm.errors import BudgetError, LedgerError, ParameterError
from dpadmm.ledger.balance import Account, RowRange, recompute
from dpadmm.ledger.base import ChargedData, Entry
from dpadmm.ledger.filters import Policy
from dpadmm.ledger.sqlite import SQLiteLedger
from dpadmm.privacy.accountant import epsilon_spent
from dpadmm.privacy.events import NON_PRIVATE, GaussianRelease, PureRelease, SharedGaussian
from dpadmm.run.engine import MemoryLedger

SOURCE = Path(__file__).parents[2] / "src"
DATASET = ChargedData("adult", "hospital", 1000, "abc")
POLICY = Policy(1.0, 1e-5)
EVENT = GaussianRelease(1.0, 20.0)
MESSAGE = np.arange(6.0).reshape(1, 2, 3) / 7


@pytest.fixture
def path(tmp_path):
    SQLiteLedger.create(tmp_path / "adult.ledger", DATASET, POLICY).close()
    return tmp_path / "adult.ledger"


@pytest.fixture
def charged(path):
    """A ledger with two rounds, the second of which never got as far as a message."""
    with SQLiteLedger(path) as ledger, ledger.open_run("first", "mark") as run:
        run.reserve(0, EVENT)
        run.commit(0, MESSAGE)
        run.reserve(1, EVENT)
    return path


# What is kept ------------------------------------------------------------------------------------


def test_everything_is_there_after_closing(charged):
    with SQLiteLedger(charged, DATASET) as ledger:
        assert (ledger.dataset, ledger.policy) == (DATASET, POLICY)
        assert ledger.account.parts == ()
        assert ledger.account.spent == 2 * Fraction((1 / 20) ** 2)
        with ledger.open_run("first", "mark") as run:
            assert run.events == (EVENT, EVENT)
            np.testing.assert_array_equal(run.committed(0), MESSAGE)
            assert run.committed(1) is None
            assert run.committed(2) is None
        ledger.verify()


def test_bytes_are_little_endian_doubles(charged):
    connection = sqlite3.connect(charged)
    query = "SELECT message FROM entries WHERE kind = 'commit'"
    assert connection.execute(query).fetchall() == [(MESSAGE.astype("<f8").tobytes(),)]
    connection.close()


def test_writing_is_durable(path):
    with SQLiteLedger(path) as ledger:
        ask = ledger._file._connection.execute
        assert ask("PRAGMA synchronous").fetchone() == (3,)  # EXTRA
        assert ask("PRAGMA journal_mode").fetchone() == ("delete",)
        assert ask("PRAGMA fullfsync").fetchone() == (1,)
    assert os.stat(path).st_mode & 0o077 == 0


def test_a_new_ledger_outlives_a_power_failure(tmp_path, monkeypatch):
    """Its name is in a directory, which is synced like the file."""
    synced = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(os.fstat(handle).st_ino))
    SQLiteLedger.create(tmp_path / "x.ledger", DATASET, POLICY).close()
    assert os.stat(tmp_path).st_ino in synced


def test_a_reserved_round_runs_again_under_its_reservation(charged):
    with SQLiteLedger(charged) as ledger, ledger.open_run("first", "mark") as run:
        before = ledger.account.spent, ledger.head
        run.reserve(0, EVENT)
        run.reserve(1, EVENT)
        assert (ledger.account.spent, ledger.head) == before
        with pytest.raises(LedgerError, match="as it was reserved"):
            run.reserve(1, GaussianRelease(1.0, 21.0))
        run.commit(1, -MESSAGE)
        run.commit(1, -MESSAGE)
        with pytest.raises(LedgerError, match="has a message already"):
            run.commit(1, MESSAGE)
        np.testing.assert_array_equal(run.committed(1), -MESSAGE)
        assert ledger.account.spent == before[0]
        with pytest.raises(LedgerError, match="round 2 must be reserved"):
            run.commit(2, MESSAGE)


def test_an_interrupted_call_is_found_again(charged, monkeypatch):
    """The entry is durable but the caller never heard of it: as after Ctrl-C at the wrong time."""
    with SQLiteLedger(charged) as ledger, ledger.open_run("first", "mark") as run:
        original = ledger._account.apply

        def interrupted(entry):
            raise KeyboardInterrupt

        for call in (lambda: run.reserve(2, EVENT), lambda: run.commit(2, MESSAGE)):
            monkeypatch.setattr(ledger._account, "apply", interrupted)
            with pytest.raises(KeyboardInterrupt):
                call()
            monkeypatch.setattr(ledger._account, "apply", original)
            call()
        assert ledger.account.spent == 3 * Fraction((1 / 20) ** 2)
        ledger.verify()


# Who may use it ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (
            ChargedData("adult2", "hospital", 1000, "abc"),
            "name of the data set must be the ledger's",
        ),
        (ChargedData("adult", "clinic", 1000, "abc"), "owner must be the ledger's, 'hospital'"),
        (ChargedData("adult", "hospital", 999, "abc"), "number of rows must be the ledger's, 1000"),
        (ChargedData("adult", "hospital", 1000, "abd"), "schema_hash must be the ledger's"),
    ],
)
def test_another_data_set_is_refused(path, other, words):
    with pytest.raises(LedgerError, match=words):
        SQLiteLedger(path, other)
    SQLiteLedger(path, ChargedData("adult", "hospital", 1000)).close()


def test_runs_keep_their_parameters_and_their_process(charged):
    with SQLiteLedger(charged) as ledger, SQLiteLedger(charged) as other:
        with pytest.raises(LedgerError, match="parameters it began with"):
            ledger.open_run("first", "another mark")
        with pytest.raises(LedgerError, match="rows_per_person must be the ledger's, 1"):
            ledger.open_run("second", "mark", rows_per_person=2)
        with pytest.raises(ParameterError, match="run_id must be"):
            ledger.open_run("", "mark")
        run = ledger.open_run("first", "mark")
        with pytest.raises(LedgerError, match="one process at a time"):
            other.open_run("first", "mark")
        with other.open_run("second", "mark") as beside:
            beside.reserve(0, EVENT)
        run.reserve(2, EVENT)
        assert ledger.account.spent == 4 * Fraction((1 / 20) ** 2)
        run.close()
        with pytest.raises(LedgerError, match="open_run"):
            run.reserve(3, EVENT)
        other.open_run("first", "mark").close()
    assert [file.name for file in charged.parent.iterdir()] == [charged.name]


@pytest.mark.parametrize(
    ("run_id", "fingerprint", "asked", "words"),
    [
        ("first", "another mark", {}, "parameters it began with"),
        ("first", "mark", {"rows": RowRange(0, 9)}, "parameters it began with"),
        ("second", "mark", {"rows_per_person": 2}, "rows_per_person must be the ledger's"),
        ("second", "mark", {"rows": RowRange(0, 1001)}, "rows of a run must be two numbers"),
        ("second", "mark", {"rows": RowRange(9, 9)}, "rows of a run must be two numbers"),
    ],
)
def test_a_run_that_is_refused_leaves_no_entry(charged, run_id, fingerprint, asked, words):
    """An entry that cannot be read would make the ledger useless for ever."""
    with SQLiteLedger(charged) as ledger:
        before = ledger.head
        with pytest.raises(LedgerError, match=words):
            ledger.open_run(run_id, fingerprint, **asked)
        assert ledger.head == before
        assert ledger.refresh().head.number == ledger.verify(before).head.number == 4
        ledger.open_run("first", "mark").close()


def test_runs_that_others_opened_meanwhile_are_known(path):
    with SQLiteLedger(path) as ledger, SQLiteLedger(path) as other:
        other.open_run("run", "mark").close()
        with pytest.raises(LedgerError, match="parameters it began with"):
            ledger.open_run("run", "another mark")
        other.open_run("next", "mark").close()
        ledger.open_run("last", "mark").close()
        assert list(other.refresh().runs) == ["run", "next", "last"]


def test_no_handle_of_a_ledger_stays_open(path):
    before = os.listdir("/dev/fd")
    ledger = SQLiteLedger(path)
    ledger.close()
    assert os.listdir("/dev/fd") == before
    with pytest.raises(LedgerError, match="number of rows must be") as caught:
        SQLiteLedger(path, replace(DATASET, rows=999))
    assert os.listdir("/dev/fd") == before
    # It would keep what was open.
    assert caught.value.__traceback__ is not None


def test_two_ledgers_of_one_data_set_are_told_apart(path, tmp_path):
    with SQLiteLedger(path) as one, SQLiteLedger.create(tmp_path / "y", DATASET, POLICY) as other:
        found = {next(ledger.export())["content"]["identifier"] for ledger in (one, other)}
    assert len(found) == 2
    assert all(len(bytes.fromhex(word)) >= 16 for word in found)


def test_a_ledger_is_never_replaced(charged):
    with pytest.raises(LedgerError, match="must be a new file"):
        SQLiteLedger.create(charged, DATASET, POLICY)
    SQLiteLedger(charged).close()


def test_inputs_of_a_dataset_are_checked():
    with pytest.raises(ParameterError, match="owner must be"):
        ChargedData("adult", " ", 10)
    with pytest.raises(ParameterError, match="rows must be"):
        ChargedData("adult", "hospital", 0)


# The budget --------------------------------------------------------------------------------------


def test_over_budget_is_refused_with_what_is_left(charged):
    with SQLiteLedger(charged) as ledger, ledger.open_run("second", "mark") as run:
        limit, before = ledger.account.filter.limit, ledger.head
        with pytest.raises(BudgetError, match=r"0.0668514 of 0.0718514 \(mu\^2\) is left"):
            run.reserve(0, GaussianRelease(1.0, 2.0))
        with pytest.raises(BudgetError, match=r"so it buys the first 6 of them"):
            ledger.check_run([GaussianRelease(1.0, 10.0)] * 20)
        with pytest.raises(BudgetError, match="no policy allows it"):
            run.reserve(0, NON_PRIVATE)
        with pytest.raises(BudgetError, match="renyi filter"):
            run.reserve(0, PureRelease(0.01))
        ledger.check_run([GaussianRelease(1.0, 10.0)] * 6)
        assert ledger.head == before
        assert ledger.account.rounds_left(EVENT) == math.floor((limit - 2 / 400) * 400)


def test_a_run_counts_its_own_reserved_rounds_once(path):
    with SQLiteLedger(path) as ledger:
        events = [GaussianRelease(1.0, 12.0)] * 10
        ledger.check_run(events, "whole")
        with ledger.open_run("whole", "mark") as run:
            for t, event in enumerate(events):
                run.reserve(t, event)
        ledger.check_run(events, "whole")
        with pytest.raises(BudgetError):
            ledger.check_run(events, "another")
        with pytest.raises(BudgetError):
            ledger.check_run(events)


@pytest.mark.parametrize("name", ["gaussian", "renyi"])
def test_the_boundary_is_exact(tmp_path, name):
    policy = Policy(1.0, 1e-5, filter=name)
    with SQLiteLedger.create(tmp_path / "x.ledger", DATASET, policy) as ledger:
        filter_ = ledger.account.filter
        scale = 2 / filter_.order if name == "renyi" else 1.0
        third = math.sqrt(filter_.limit * scale / 3)
        with ledger.open_run("run", "mark") as run:
            run.reserve(0, GaussianRelease(third, 1.0))
            run.reserve(1, GaussianRelease(third, 1.0))
            left = math.sqrt(float(ledger.account.left) * scale)
            with pytest.raises(BudgetError):
                run.reserve(2, GaussianRelease(left * math.sqrt(1 + 1e-9), 1.0))
            run.reserve(2, GaussianRelease(left * math.sqrt(1 - 1e-9), 1.0))
        assert ledger.account.spent_epsilon == pytest.approx(1.0, abs=1e-6)
        assert ledger.account.spent_epsilon <= 1.0
        ledger.verify()


def test_what_is_spent_is_rounded_up_and_what_is_left_down(tmp_path):
    """Of exact sums that no double holds: what is shown is the next one, on the safe side."""
    events = [GaussianRelease(1.0, sigma) for sigma in (5.0, 1e7, 3e8)]
    with SQLiteLedger.create(tmp_path / "adult.ledger", DATASET, POLICY) as ledger:
        with ledger.open_run("first", "mark") as run:
            for t, event in enumerate(events):
                run.reserve(t, event)
        account = ledger.account
        exact = sum(Fraction(account.filter.cost(event)) for event in events)
        shown = account.to_dict()
        assert float(exact) != exact == account.spent
        for spent in (shown["spent"], shown["runs"][0]["spent"]):
            assert math.nextafter(spent, 0) < exact < spent
        left = Fraction(account.filter.limit) - exact
        assert shown["left"] <= left < math.nextafter(shown["left"], 1)
        assert shown["spent_epsilon"] == account.filter.epsilon(shown["spent"])
        with pytest.raises(BudgetError, match="must fit into") as refused:
            account.require([GaussianRelease(1.0, 4.0), *events[1:]])
    asked = re.search(r"and ([0-9.e-]+) \(epsilon = ([0-9.]+)\) was asked", str(refused.value))
    total = sum(Fraction(account.filter.cost(event)) for event in events[1:]) + Fraction(1, 16)
    assert asked[1] == "0.0625001"
    assert Fraction(asked[1]) > total
    # What is asked for in the filter's unit is said as an epsilon, too.
    found = epsilon_spent([GaussianRelease(1.0, 4.0), *events[1:]], POLICY.delta).epsilon
    assert found < float(asked[2]) < found * (1 + 1e-5)


def test_a_renyi_ledger_takes_all_kinds(tmp_path):
    policy = Policy(1.0, 1e-5, filter="renyi")
    with SQLiteLedger.create(tmp_path / "x.ledger", DATASET, policy) as ledger:
        assert ledger.account.spent_epsilon == 0
        with ledger.open_run("run", "mark") as run:
            run.reserve(0, EVENT)
            run.reserve(1, PureRelease(0.01))
        assert 0 < ledger.account.spent_epsilon < 1
        assert "Renyi filter at a fixed order" in ledger.statement()
        assert ledger.policy.order == policy.order


operations = st.lists(
    st.tuples(
        st.sampled_from(["reserve", "commit", "crash", "other"]),
        st.integers(0, 4),
        st.sampled_from([5.0, 8.0, 20.0]),
    ),
    max_size=25,
)


@settings(deadline=None, max_examples=40)
@given(operations)
def test_any_interleaving_charges_each_round_once(steps):
    """A model with a dictionary of reservations: the file agrees with it, and never exceeds."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "x.ledger"
        ledger = SQLiteLedger.create(path, DATASET, POLICY)
        # Durability costs most of the time and is not what is tested here.
        ledger._file._connection.execute("PRAGMA synchronous = OFF")
        limit = Fraction(ledger.account.filter.limit)
        run, other = ledger.open_run("a", "mark"), ledger.open_run("b", "mark")
        reserved, sent = {}, {}
        for number, (action, t, sigma) in enumerate(steps):
            target, name = (other, "b") if action == "other" else (run, "a")
            if action == "crash":
                run.close()
                other.close()
                ledger.close()
                ledger = SQLiteLedger(path)
                ledger._file._connection.execute("PRAGMA synchronous = OFF")
                run, other = ledger.open_run("a", "mark"), ledger.open_run("b", "mark")
            elif action == "commit":
                message = np.full((1, 2), float(number))
                if (name, t) not in reserved or sent.get((name, t), number) != number:
                    with pytest.raises(LedgerError):
                        target.commit(t, message)
                else:
                    target.commit(t, message)
                    sent[name, t] = number
            else:
                event = GaussianRelease(1.0, sigma)
                cost = Fraction((1.0 / sigma) ** 2)
                if (name, t) in reserved:
                    fits = reserved[name, t] == cost
                else:
                    fits = sum(reserved.values()) + cost <= limit
                if fits:
                    target.reserve(t, event)
                    reserved[name, t] = cost
                else:
                    with pytest.raises(LedgerError):
                        target.reserve(t, event)
            assert ledger.account.spent == sum(reserved.values()) <= limit
        for (_, t), number in sent.items():
            assert run.committed(t)[0, 0] == number
        assert ledger.verify().spent == sum(reserved.values())
        ledger.close()


def test_an_export_is_enough_to_recompute(charged):
    with SQLiteLedger(charged) as ledger:
        lines = [json.dumps(row) for row in ledger.export()]
        account = recompute(lines)
        assert account.to_dict() == ledger.account.to_dict()
        assert not any("message" in json.loads(line) for line in lines)
        with_bytes = [row for row in ledger.export(messages=True) if row["kind"] == "commit"]
        assert bytes.fromhex(with_bytes[0]["message"]) == MESSAGE.tobytes()
    with pytest.raises(LedgerError, match="row 2 was changed"):
        recompute(line.replace('"sigma": 20.0', '"sigma": 90.0') for line in lines)
    with pytest.raises(LedgerError, match="row 2 is missing"):
        recompute(lines[:2] + lines[3:])
    with pytest.raises(LedgerError, match="must be lines of JSON"):
        recompute(["{"])
    with pytest.raises(LedgerError, match="at least one line"):
        recompute([])


def test_a_memory_ledger_takes_up_a_checkpoint():
    ledger = MemoryLedger()
    ledger.resume([EVENT, EVENT], MESSAGE)
    assert ledger.events == (EVENT, EVENT)
    ledger.commit(1, MESSAGE)
    with pytest.raises(RuntimeError, match="round 2 must be reserved"):
        ledger.commit(2, MESSAGE)


# Faults ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statements", "words"),
    [
        (
            ["UPDATE entries SET content = replace(content, '20.0', '90.0') WHERE number = 2"],
            "row 2 was changed",
        ),
        (["UPDATE entries SET time = 'yesterday' WHERE number = 3"], "row 3 was changed"),
        (["DELETE FROM entries WHERE number = 2"], "row 2 is missing"),
        (["DELETE FROM entries WHERE number = 4"], "its last row must be row 4; row 3 is"),
        (["DELETE FROM head"], "lost its head"),
        (["DELETE FROM entries"], "its last row must be row 4; none is"),
    ],
)
def test_tampering_is_found_on_opening(charged, statements, words):
    edit(charged, *statements)
    with pytest.raises(LedgerError, match=words):
        SQLiteLedger(charged)


def test_entries_that_vanish_while_a_ledger_is_open_are_missed(charged):
    """Those that are left are a whole chain."""
    with SQLiteLedger(charged) as ledger:
        edit_and_mend(charged, "DELETE FROM entries WHERE number = 4")
        with pytest.raises(LedgerError, match="its last row must be row 4; row 3 is"):
            ledger.verify()


def test_what_no_policy_allows_is_refused_without_waiting_for_others(charged):
    with (
        closing(sqlite3.connect(charged, isolation_level=None)) as holder,
        SQLiteLedger(charged, timeout=0.05) as ledger,
        ledger.open_run("first", "mark") as run,
    ):
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(BudgetError, match="no policy allows it"):
            run.reserve(2, NON_PRIVATE)


def test_a_run_that_was_closed_takes_nothing(charged):
    with SQLiteLedger(charged) as ledger:
        # What is checked ahead of a run takes the same for granted as the run.
        ledger.check_parameters("first", "mark")
        run = ledger.open_run("first", "mark")
        run.close()
        for call in (lambda: run.reserve(1, EVENT), lambda: run.commit(1, MESSAGE)):
            with pytest.raises(LedgerError, match="must be open in this process"):
                call()
        assert ledger.verify().head.number == 4


def test_a_changed_message_is_never_sent(charged):
    edit(charged, "UPDATE entries SET message = zeroblob(48) WHERE number = 3")
    with (
        SQLiteLedger(charged) as ledger,
        ledger.open_run("first", "mark") as run,
        pytest.raises(LedgerError, match="row 3 was changed: its message"),
    ):
        run.committed(0)


def test_verify_looks_further_than_opening(charged):
    edit(charged)
    with (
        SQLiteLedger(charged) as ledger,
        pytest.raises(LedgerError, match="lacks the trigger 'entries_follow'"),
    ):
        ledger.verify()


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("CREATE VIEW other AS SELECT 1", "'other' in it is not as it was made"),
        ("DROP TABLE head", "it has lost its entries"),
    ],
)
def test_what_was_not_made_here_is_refused_on_opening(charged, statement, words):
    edit(charged, statement)
    with pytest.raises(LedgerError, match=words):
        SQLiteLedger(charged)


def test_a_message_beside_another_entry_is_found(charged):
    edit_and_mend(charged, "UPDATE entries SET message = x'00' WHERE number = 2")
    with (
        SQLiteLedger(charged) as ledger,
        pytest.raises(LedgerError, match="row 2 was changed: it must have no message"),
    ):
        ledger.verify()


@pytest.mark.parametrize(
    "bytes_", ["NULL", "zeroblob(40)", "zeroblob(48)", "zeroblob(56)", "'text'", f"'{'x' * 48}'"]
)
def test_verify_reads_every_message(charged, bytes_):
    edit_and_mend(charged, f"UPDATE entries SET message = {bytes_} WHERE number = 3")
    with SQLiteLedger(charged) as ledger, pytest.raises(LedgerError, match="row 3 was changed"):
        ledger.verify()


def test_a_head_is_held_as_long_as_its_entry_is_there(charged, tmp_path):
    shutil.copy(charged, tmp_path / "backup")
    with SQLiteLedger(charged) as ledger, ledger.open_run("first", "mark") as run:
        before = ledger.head
        run.reserve(2, EVENT)
        after = ledger.head
        number, digest = after.split(":")
        assert ledger.holds(before)
        assert ledger.holds(after)
        assert not ledger.holds(f"{int(number) + 1}:{digest}")
        assert not ledger.holds(f"{int(number) - 1}:{digest}")
        assert not ledger.holds(f"{number}:{before.split(':')[1]}")
    shutil.copy(tmp_path / "backup", charged)
    with SQLiteLedger(charged) as ledger:
        assert ledger.holds(before)
        assert not ledger.holds(after)
        assert ledger.first == next(ledger.export())["hash"]


def test_a_checkpoint_agrees_with_the_ledger_or_is_refused(charged):
    with SQLiteLedger(charged) as ledger, ledger.open_run("first", "mark") as run:
        run.resume([], MESSAGE)
        run.resume([EVENT], MESSAGE)
        with pytest.raises(LedgerError, match="must hold the messages of the ledger"):
            run.resume([EVENT], -MESSAGE)
        # Round 1 was reserved and has no message.
        with pytest.raises(LedgerError, match="lacks its round 1"):
            run.resume([EVENT, EVENT], MESSAGE)
        with pytest.raises(LedgerError, match="lacks its round 0"):
            run.resume([GaussianRelease(1.0, 21.0)], MESSAGE)
        run.commit(1, -MESSAGE)
        run.resume([EVENT, EVENT], -MESSAGE)
        with pytest.raises(LedgerError, match="round 1 differs"):
            run.resume([EVENT, EVENT], MESSAGE)


def test_the_name_of_a_run_has_at_most_200_characters(path):
    with SQLiteLedger(path) as ledger:
        for name in ("x", "x" * 200):
            ledger.open_run(name, "mark").close()
        for name in ("x" * 201, "", None, 7):
            with pytest.raises(ParameterError, match="run_id must be a text of 1 to 200"):
                ledger.open_run(name, "mark")


def test_rounds_that_are_asked_for_are_counted(path):
    """Of 28 rounds that fit, ten are left for those who begin at round 18."""
    with SQLiteLedger(path) as ledger, ledger.open_run("run", "mark") as run:
        for t in range(18):
            run.reserve(t, EVENT)
        events = [EVENT] * 40
        ledger.check_run(events, "run", rounds=range(28))
        ledger.check_run(events, "run", rounds=range(18, 28))
        with pytest.raises(BudgetError, match="the first 10 of them"):
            ledger.check_run(events, "run", rounds=range(29))
        with pytest.raises(BudgetError, match="the first 10 of them"):
            ledger.check_run(events, "another", rounds=range(11))
        with pytest.raises(BudgetError, match="no round like it"):
            ledger.check_run([GaussianRelease(1.0, 2.0)])
        with pytest.raises(BudgetError, match="none of them"):
            ledger.check_run([GaussianRelease(1.0, 2.0)] * 2)


def test_what_others_charged_meanwhile_counts(path):
    """Two that look at the same file: neither goes by what it read when it opened it."""
    with SQLiteLedger(path) as one, SQLiteLedger(path) as other, SQLiteLedger(path) as third:
        run, beside = one.open_run("one", "mark"), other.open_run("other", "mark")
        for t in range(28):
            run.reserve(t, EVENT)
        with pytest.raises(BudgetError):
            beside.reserve(0, EVENT)
        with pytest.raises(BudgetError):
            third.check_run([EVENT])
        assert one.refresh().spent == other.refresh().spent == 28 * Fraction((1 / 20) ** 2)
        run.close()
        beside.close()


def test_a_noted_head_shows_an_older_copy(charged, tmp_path):
    shutil.copy(charged, tmp_path / "backup")
    with SQLiteLedger(charged) as ledger, ledger.open_run("first", "mark") as run:
        noted = ledger.head
        run.reserve(2, EVENT)
        ledger.verify(noted)
        noted = ledger.head
    shutil.copy(tmp_path / "backup", charged)
    with SQLiteLedger(charged) as ledger:
        ledger.verify()  # nothing inside an older copy can show that it is one
        with pytest.raises(LedgerError, match="put back to an older copy"):
            ledger.verify(noted)


def test_a_flipped_byte_in_the_file_is_found(charged):
    data = bytearray(charged.read_bytes())
    place = data.index(b'"sigma":20.0') + 8
    data[place] = ord("9")
    charged.write_bytes(data)
    with pytest.raises(LedgerError, match=r"row [24] was changed"):
        SQLiteLedger(charged)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data: b"", "is empty"),
        (lambda data: data[:5000], "damaged or cut short|row|last row"),
        (lambda data: b"hello" + data[5:], "it is not a ledger"),
        (lambda data: data[:100] + b"\xff" * 3000 + data[3100:], "damaged or cut short"),
    ],
)
def test_damaged_files_are_refused(charged, change, words):
    charged.write_bytes(change(charged.read_bytes()))
    with pytest.raises(LedgerError, match=words):
        SQLiteLedger(charged).verify()


def test_other_files_are_refused(tmp_path, charged):
    with pytest.raises(LedgerError, match="must exist; create it"):
        SQLiteLedger(tmp_path / "nothing")
    with pytest.raises(LedgerError, match="must be a file"):
        SQLiteLedger(tmp_path)
    with pytest.raises(LedgerError, match="cannot be created"):
        SQLiteLedger.create(tmp_path / "no" / "where", DATASET, POLICY)
    edit(tmp_path / "other", "CREATE TABLE t (x)")
    with pytest.raises(LedgerError, match="another SQLite database"):
        SQLiteLedger(tmp_path / "other")
    edit(charged, "PRAGMA user_version = 3", keep_triggers=True)
    with pytest.raises(LedgerError, match="must have the format 1 or 2; it has 3"):
        SQLiteLedger(charged)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entries SET round = 7 WHERE number = 2",
        "DELETE FROM entries WHERE number = 4",
        "INSERT OR REPLACE INTO entries VALUES (2, 'run', '', 'x', NULL, '{}', '', NULL)",
        "INSERT INTO entries VALUES (9, 'run', '', 'x', NULL, '{}', '', NULL)",
        "UPDATE head SET number = 3",
        "DELETE FROM head",
    ],
)
def test_entries_are_appended_only(charged, statement):
    with pytest.raises(sqlite3.IntegrityError, match=r"appended only|only advances"):
        edit(charged, statement, keep_triggers=True)
    with SQLiteLedger(charged) as ledger:
        ledger.verify()


# Written by somebody who can work out hashes, after row 4: rounds 0 and 1 of "first" are charged,
# round 0 has its message.
COMMIT = {"reservation": 4, "shape": [1, 2, 3], "sha256": "0" * 64}
FORGED = [
    (("run", None, None, {"fingerprint": "mark"}), "must name its run"),
    (("run", "first", None, {"fingerprint": "mark"}), "opens the run 'first' a second time"),
    (
        ("run", "next", None, {"fingerprint": "x", "rows": [0, 1001]}),
        "rows of a run must be two numbers",
    ),
    (("run", "next", None, {}), "cannot be read: KeyError"),
    (("reservation", "next", 0, {"event": EVENT.to_dict()}), "'next', which was never opened"),
    (("reservation", "first", None, {"event": EVENT.to_dict()}), "must name its round"),
    (("reservation", "first", -1, {"event": EVENT.to_dict()}), "must name its round"),
    (
        ("reservation", "first", 1, {"event": EVENT.to_dict()}),
        "row 5 charges round 1 of 'first' a secon",
    ),
    (
        ("reservation", "first", 2, {"event": GaussianRelease(1.0, 1.0).to_dict()}),
        "row 5 exceeds the budget",
    ),
    (("reservation", "first", 2, {"event": {"kind": "free"}}), "cannot be read"),
    (("commit", "first", 1, {**COMMIT, "reservation": 2}), "round 1 without its reservation"),
    (("commit", "first", 2, COMMIT), "commits round 2 without its reservation"),
    (("commit", "first", 0, {**COMMIT, "reservation": 2}), "commits round 0 of 'first' a second t"),
    (("commit", "first", 1, {**COMMIT, "dtype": "object"}), "message of the unknown type 'object'"),
    (("refund", "first", 1, {}), "of the unknown kind 'refund'"),
]


@pytest.mark.parametrize(("forged", "sentence"), FORGED)
def test_a_row_whose_hash_is_right_is_judged_by_what_it_says(charged, forged, sentence):
    with SQLiteLedger(charged, read_only=True) as ledger:
        account = recompute(json.dumps(row) for row in ledger.export())
    spent = account.spent
    kind, run, round_, content = forged
    with pytest.raises(LedgerError, match=sentence):
        account.apply(Entry.after(account.head, kind, "", run, round_, content))
    assert (account.head.number, account.spent) == (4, spent)


@pytest.mark.parametrize(
    ("kind", "changed", "sentence"),
    [
        ("run", {}, "row 0 must open the ledger; it is a 'run'"),
        ("ledger", {"version": 2}, "the ledger's version must be 1; it is 2"),
        ("ledger", {"policy": {"epsilon": -1.0, "delta": 1e-5}}, "row 0 cannot be read"),
        ("ledger", {"dataset": None}, "row 0 cannot be read: TypeError"),
    ],
)
def test_the_first_row_is_judged_too(charged, kind, changed, sentence):
    with SQLiteLedger(charged, read_only=True) as ledger:
        first = next(iter(ledger.export()))
    entry = Entry.after(None, kind, "", None, None, first["content"] | changed)
    with pytest.raises(LedgerError, match=sentence):
        Account().apply(entry)


def test_a_locked_ledger_is_refused_in_time(charged):
    holder = sqlite3.connect(charged, isolation_level=None)
    with SQLiteLedger(charged, timeout=0.1) as ledger, ledger.open_run("first", "mark") as run:
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerError, match=r"free within 0.1 s; another process holds it"):
            run.reserve(2, EVENT)
        holder.execute("ROLLBACK")
        run.reserve(2, EVENT)
        holder.execute("BEGIN EXCLUSIVE")
        with pytest.raises(LedgerError, match="another process holds it"):
            SQLiteLedger(charged, timeout=0.1)
        holder.execute("ROLLBACK")
    holder.close()


def test_a_run_that_could_not_be_opened_is_not_kept_from_others(charged):
    holder = sqlite3.connect(charged, isolation_level=None)
    with SQLiteLedger(charged, timeout=0.05) as ledger, SQLiteLedger(charged) as other:
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerError, match="another process holds it"):
            ledger.open_run("first", "mark")
        holder.execute("ROLLBACK")
        other.open_run("first", "mark").close()
    holder.close()


def test_a_ledger_moved_away_takes_no_entries(charged, tmp_path):
    with SQLiteLedger(charged) as ledger, ledger.open_run("first", "mark") as run:
        charged.rename(tmp_path / "elsewhere")
        with pytest.raises(LedgerError, match="moved or replaced"):
            run.reserve(2, EVENT)
        shutil.copy(tmp_path / "elsewhere", charged)
        with pytest.raises(LedgerError, match="moved or replaced"):
            run.commit(1, MESSAGE)


# Other processes ---------------------------------------------------------------------------------

PREAMBLE = """
import os, resource, sys
import numpy as np
from dpadmm.errors import BudgetError, LedgerError
from dpadmm.privacy.events import GaussianRelease
from dpadmm.ledger.sqlite import SQLiteLedger
path, event = sys.argv[1], GaussianRelease(1.0, 20.0)
def refusal(call, *arguments):
    try:
        call(*arguments)
    except LedgerError as error:
        return str(error)
    raise AssertionError("not refused")
"""


def in_another_process(script, path):
    done = subprocess.run(
        [sys.executable, "-c", PREAMBLE + script, str(path)],
        env={**os.environ, "PYTHONPATH": str(SOURCE), "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_full_disk_loses_nothing(charged):
    script = """
with SQLiteLedger(path) as ledger, ledger.open_run("first", "mark") as run:
    run.reserve(2, event)
    spent, head = ledger.account.spent, ledger.head
    size = os.path.getsize(path)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    message = np.ones((1, 100_000))
    print(refusal(run.commit, 2, message))
    assert run.committed(2) is None
    assert (ledger.account.spent, ledger.head) == (spent, head)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
    print(refusal(run.reserve, 3, event))
    print(refusal(SQLiteLedger.create, path + ".new", ledger.dataset, ledger.policy))
    assert not os.path.exists(path + ".new")
    assert (ledger.account.spent, ledger.head) == (spent, head)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    run.commit(2, message)
    run.reserve(3, event)
    ledger.verify()
"""
    refusals = in_another_process(script, charged).splitlines()
    assert len(refusals) == 3
    assert all("disk is full" in line and "Nothing was released" in line for line in refusals)
    with SQLiteLedger(charged) as ledger:
        assert len(ledger.verify().runs["first"].events) == 4


def test_read_only_ledgers_are_refused_and_can_be_read(charged):
    script = """
os.chmod(os.path.dirname(path), 0o755)
os.chmod(path, 0o644)
if os.geteuid() == 0:
    # Root may write anywhere; nobody else may reach into pytest's directories.
    os.chroot(os.path.dirname(path))
    path = "/" + os.path.basename(path)
    os.setuid(65534)
else:
    os.chmod(path, 0o444)
    os.chmod(os.path.dirname(path), 0o555)
with SQLiteLedger(path, read_only=True) as ledger:
    print(ledger.account.spent > 0)
    print(refusal(ledger.open_run, "first", "mark"))
    print(refusal(ledger.charge, "first", 2, event))
    print(refusal(SQLiteLedger.create, path + ".new", ledger.dataset, ledger.policy))
"""
    lines = in_another_process(script, charged).splitlines()
    charged.parent.chmod(0o755)
    assert lines[0] == "True"
    assert "cannot be made: Permission denied" in lines[1]
    assert "read-only" in lines[2]
    assert "cannot be created: Permission denied" in lines[3]


def test_processes_share_one_budget_and_no_run(path):
    script = """
children = []
for number in range(4):
    child = os.fork()
    if child == 0:
        with SQLiteLedger(path) as ledger, ledger.open_run(f"run {number}", "mark") as run:
            for t in range(100):
                try:
                    run.reserve(t, event)
                except BudgetError:
                    os._exit(t)
        os._exit(255)
    children.append(child)
print(sum(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))
ledger = SQLiteLedger(path)
name = next(name for name, record in ledger.account.runs.items() if record.events)
run = ledger.open_run(name, "mark")
child = os.fork()
if child == 0:
    assert "opened it" in refusal(ledger.open_run, "another", "mark")
    assert "in this process" in refusal(run.reserve, 100, event)
    run.close()  # must not give the parent's lock away
    fresh = SQLiteLedger(path)
    assert "one process at a time" in refusal(fresh.open_run, name, "mark")
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert run.committed(0) is None
run.commit(0, np.ones((1, 2)))
"""
    granted = int(in_another_process(script, path))
    with SQLiteLedger(path) as ledger:
        account = ledger.verify()
        assert granted == sum(len(run.events) for run in account.runs.values()) == 28
        assert account.rounds_left(EVENT) == 0


# -- noise that parties share, and words --------------------------------------------------------

SHARED = SharedGaussian(1.0, 40.0, 20, 9)


def test_words_are_stored_as_words(path):
    words = np.arange(2**64 - 6, 2**64 - 1, dtype=np.uint64).reshape(1, 5)
    with SQLiteLedger(path) as ledger, ledger.open_run("words", "mark") as run:
        run.reserve(0, SHARED)
        run.commit(0, words)
        run.commit(0, words)
        with pytest.raises(LedgerError, match="has a message already, and this is another"):
            run.commit(0, words.view(np.float64))
    with SQLiteLedger(path) as ledger, ledger.open_run("words", "mark") as run:
        ledger.verify()
        found = run.committed(0)
        assert found.dtype == np.uint64
        np.testing.assert_array_equal(found, words)
        (commit,) = [entry for entry in ledger.export() if entry["kind"] == "commit"]
        assert commit["content"]["dtype"] == "uint64"
        run.resume([SHARED], words)


def test_doubles_are_stored_without_a_word_about_it(charged):
    with SQLiteLedger(charged) as ledger:
        (commit,) = [entry for entry in ledger.export() if entry["kind"] == "commit"]
    assert set(commit["content"]) == {"reservation", "shape", "sha256"}


def test_a_ledger_keeps_both_sums(path):
    with SQLiteLedger(path) as ledger:
        assert "Spent if all others collude" not in ledger.statement()
        assert "may control all other parties" in ledger.statement()
        with ledger.open_run("shared", "mark") as run:
            for t in range(3):
                run.reserve(t, SHARED)
        with ledger.open_run("own", "mark") as run:
            run.reserve(0, EVENT)
        account = ledger.account
        assert account.spent_alone == 3 * Fraction(account.filter.cost(SHARED.alone)) + Fraction(
            account.filter.cost(EVENT)
        )
        against = epsilon_spent([(SHARED, 3), EVENT], 1e-5).epsilon
        apart = epsilon_spent([(SHARED.alone, 3), EVENT], 1e-5).epsilon
        assert account.spent_epsilon == pytest.approx(against, rel=1e-9)
        assert account.to_dict()["spent_epsilon_alone"] == pytest.approx(apart, rel=1e-9)
        assert "at most 9 of the 20 parties" in ledger.statement()
        again = recompute(json.dumps(entry) for entry in ledger.export())
        assert again.spent_alone == account.spent_alone


@pytest.mark.parametrize("name", ["gaussian", "renyi"])
def test_a_bound_for_all_others_colluding_is_kept(tmp_path, name):
    policy = Policy(1.0, 1e-5, filter=name, colluders=9, epsilon_alone=2.0)
    with SQLiteLedger.create(tmp_path / "bounded.ledger", DATASET, policy) as ledger:
        rounds = ledger.account.rounds_left(SHARED)
        assert rounds < Policy(1.0, 1e-5, filter=name).make_filter().limit / 40**-2
        with pytest.raises(BudgetError, match="must fit into epsilon_alone = 2"):
            ledger.check_run([SHARED] * (rounds + 1))
        with ledger.open_run("run", "mark") as run:
            for t in range(rounds):
                run.reserve(t, SHARED)
            with pytest.raises(BudgetError, match="this round must fit into epsilon_alone"):
                run.reserve(rounds, SHARED)
        assert ledger.verify().spent_epsilon_alone <= 2.0
        assert ledger.account.left > 0
        assert "against at least 9 colluders" in ledger.statement()


@pytest.mark.parametrize("name", ["gaussian", "renyi"])
def test_an_owner_who_said_nothing_is_kept_to_what_was_promised(tmp_path, name):
    """The ledger says "may control all other parties": shared noise must not make that false."""
    policy = Policy(1.0, 1e-5, filter=name)
    with SQLiteLedger.create(tmp_path / "silent.ledger", DATASET, policy) as ledger:
        rounds = ledger.account.rounds_left(SHARED)
        with pytest.raises(BudgetError, match="has not agreed to noise that parties share"):
            ledger.check_run([SHARED] * (rounds + 1))
        with ledger.open_run("run", "mark") as run:
            for t in range(rounds):
                run.reserve(t, SHARED)
        account = ledger.verify()
        assert account.spent_epsilon_alone <= 1.0
        assert account.left > account.left_alone
        # What is said to fit does, with noise of its own.
        assert account.fitting_epsilon < account.filter.fitting_epsilon(float(account.left))


def forged(path, change):
    """The lines of an export after ``change``, which gets kind and row, with hashes that fit."""
    with SQLiteLedger(path) as ledger:
        rows = list(ledger.export())
    entry, lines = None, []
    for row in rows:
        change(row)
        parts = (row["kind"], row["time"], row["run"], row["round"], row["content"])
        entry = Entry.after(entry, *parts)
        lines.append(json.dumps(entry.to_dict()))
    return lines


@pytest.mark.parametrize(
    ("number", "change", "words"),
    [
        (0, {"kind": "run"}, "row 0 must open the ledger; it is a 'run'"),
        (0, {"content": {"version": 2}}, "the ledger's version must be 1; it is 2"),
        (1, {"run": None}, "row 1 must name its run"),
        (2, {"run": "other"}, "belongs to the run 'other', which was never opened"),
        (2, {"kind": "run", "content": {"fingerprint": ""}}, "opens the run 'first' a second time"),
        (2, {"round": None}, "row 2 must name its round"),
        (2, {"round": -1}, "row 2 must name its round"),
        (2, {"kind": "gift"}, "of the unknown kind 'gift'"),
        (2, {"content": {}}, "row 2 cannot be read: KeyError"),
        (2, {"content": {"event": NON_PRIVATE.to_dict()}}, "row 2 cannot be read"),
        (3, {"round": 1}, "commits round 1 without its reservation"),
        (4, {"round": 0}, "charges round 0 of 'first' a second time"),
        (
            4,
            {"content": {"event": GaussianRelease(1.0, 3.75).to_dict()}},
            "row 4 exceeds the budget",
        ),
    ],
)
def test_a_history_that_could_not_have_been_is_refused(charged, number, change, words):
    numbers = iter(range(5))

    def forge(row):
        if next(numbers) == number:
            row |= change

    with pytest.raises(LedgerError, match=words):
        recompute(forged(charged, forge))


def test_a_round_is_committed_once(charged):
    numbers = iter(range(5))

    def forge(row):
        if next(numbers) == 4:
            row |= {"kind": "commit", "round": 0}
            row["content"] = {"reservation": 2, "shape": [1], "sha256": ""}

    with pytest.raises(LedgerError, match="commits round 0 of 'first' a second time"):
        recompute(forged(charged, forge))


def test_shared_noise_beyond_what_was_agreed_is_no_history(tmp_path):
    """An entry that the sums allow but not if all others collude."""
    path, policy = tmp_path / "x.ledger", Policy(1.0, 1e-5, colluders=9, epsilon_alone=2.0)
    ledger = SQLiteLedger.create(path, DATASET, policy)
    with ledger, ledger.open_run("run", "mark") as run:
        run.reserve(0, SHARED)

    def recomputed(event):
        def forge(row):
            if row["kind"] == "reservation":
                row["content"] = {"event": event.to_dict()}

        return recompute(forged(path, forge))

    rule = policy.make_filter()
    within, beyond = SharedGaussian(1.0, 9.0, 20, 9), SharedGaussian(1.0, 5.0, 20, 9)
    assert rule.cost(beyond) < rule.limit
    assert rule.cost(within.alone) < rule.limit_alone < rule.cost(beyond.alone)
    assert recomputed(within).spent == Fraction(rule.cost(within))
    with pytest.raises(LedgerError, match="exceeds the budget"):
        recomputed(beyond)


def test_an_entry_needs_all_its_fields(charged):
    with SQLiteLedger(charged) as ledger:
        first = next(ledger.export())
    for wrong in ([], {**first, "hash": "0" * 64}, {k: v for k, v in first.items() if k != "run"}):
        with pytest.raises(LedgerError, match=r"must have the fields|was changed"):
            recompute([json.dumps(wrong)])


@pytest.mark.parametrize("field", ["number", "kind", "time", "run", "round", "content", "before"])
def test_every_field_is_hashed(field):
    first = Entry.after(None, "ledger", "now", None, None, {})
    other = Entry.after(None, "ledger", "then", None, None, {})
    entry = Entry.after(first, "run", "later", "a", 3, {"x": 1})
    assert entry.follows(first)
    assert not entry.follows(None)
    changes = {"number": 7, "kind": "x", "time": "x", "run": "b", "round": 4, "content": "{}"}
    if field == "before":
        assert not entry.follows(other)
    else:
        assert not replace(entry, **{field: changes[field]}).follows(first)


def test_a_commit_of_an_unknown_type_is_refused(charged):
    with SQLiteLedger(charged) as ledger:
        rows = list(ledger.export())
    entry, forged = None, []
    for row in rows:
        content = row["content"] | ({"dtype": "int8"} if row["kind"] == "commit" else {})
        entry = Entry.after(entry, row["kind"], row["time"], row["run"], row["round"], content)
        forged.append(json.dumps(entry.to_dict()))
    with pytest.raises(LedgerError, match="commits a message of the unknown type 'int8'"):
        recompute(forged)
