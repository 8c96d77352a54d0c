"""A policy that is amended: all spending stays, and nothing gets looser without a word."""

import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.helpers.edited_ledgers import edit

from dpadmm.errors import BudgetError, LedgerError, ParameterError
from dpadmm.ledger.balance import recompute
from dpadmm.ledger.base import ChargedData, Entry
from dpadmm.ledger.filters import Policy
from dpadmm.ledger.sqlite import SQLiteLedger
from dpadmm.privacy.events import GaussianRelease, SharedGaussian

ROOT = Path(__file__).parents[2]
DATASET = ChargedData("adult", "hospital", 1000)
EVENT = GaussianRelease(1.0, 20.0)
SHARED = SharedGaussian(1.0, 40.0, 20, 9)


@pytest.fixture(params=["gaussian", "renyi"])
def policy(request):
    return Policy(1.0, 1e-5, filter=request.param)


@pytest.fixture
def charged(tmp_path, policy):
    """A ledger with two rounds, the second of which never got as far as a message."""
    with SQLiteLedger.create(tmp_path / "adult.ledger", DATASET, policy) as ledger:
        with ledger.open_run("first", "mark") as run:
            run.reserve(0, EVENT)
            run.commit(0, np.ones((1, 2)))
            run.reserve(1, EVENT)
        return ledger.path


def file_version(path):
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("PRAGMA user_version").fetchone()[0]


# What is looser ----------------------------------------------------------------------------------

SILENT = Policy(1.0, 1e-5)


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (SILENT, SILENT, []),
        (SILENT, Policy(1.5, 1e-5), ["epsilon grows from 1 to 1.5", "may be 1.5, and was at most"]),
        (SILENT, Policy(1.0, 1e-4), ["delta grows from 1e-5 to 0.0001"]),
        # Less of one is not paid for by more of the other.
        (SILENT, Policy(0.5, 1e-4), ["delta grows from 1e-5 to 0.0001"]),
        (SILENT, Policy(0.5, 1e-6), []),
        # Who said nothing holds epsilon against all others together: to name a number is looser.
        (
            SILENT,
            Policy(1.0, 1e-5, colluders=9),
            ["against 9 colluders only, which held against all others together", "has no bound"],
        ),
        (
            SILENT,
            Policy(1.0, 1e-5, epsilon_alone=2.0),
            ["against 0 colluders only", "may be 2, and was at most 1"],
        ),
        (SILENT, Policy(1.0, 1e-5, epsilon_alone=1.0), []),
        (SILENT, Policy(1.0, 1e-5, colluders=9, epsilon_alone=1.0), []),
        # To hold against fewer is to promise less.
        (
            Policy(1.0, 1e-5, colluders=9),
            Policy(1.0, 1e-5, colluders=8),
            ["against 8 colluders only, which held against 9 colluders"],
        ),
        (Policy(1.0, 1e-5, colluders=9), Policy(1.0, 1e-5, colluders=10), []),
        (Policy(1.0, 1e-5, colluders=9), Policy(1.0, 1e-5, colluders=9, epsilon_alone=8.0), []),
        (Policy(1.0, 1e-5, colluders=9), SILENT, []),
        # What held against all still does: 1 against all, and less against nine.
        (
            Policy(1.0, 1e-5, colluders=9, epsilon_alone=1.0),
            Policy(0.8, 1e-5, colluders=9, epsilon_alone=1.0),
            [],
        ),
        (
            Policy(1.0, 1e-5, colluders=9, epsilon_alone=8.0),
            Policy(1.0, 1e-5, colluders=9, epsilon_alone=8.5),
            ["may be 8.5, and was at most 8"],
        ),
        (
            Policy(1.0, 1e-5, colluders=9, epsilon_alone=8.0),
            Policy(1.0, 1e-5, epsilon_alone=8.0),
            ["against 0 colluders only"],
        ),
    ],
)
def test_what_is_looser(before, after, words):
    found = before.looser(after)
    assert len(found) == len(words)
    for sentence, part in zip(found, words, strict=True):
        assert part in sentence


# What an amendment does --------------------------------------------------------------------------


def test_an_amendment_keeps_all_spending(charged, policy):
    with SQLiteLedger(charged) as ledger:
        spent, head = ledger.account.spent, ledger.head
        ledger.amend(colluders=9, epsilon_alone=2.0, loosen=True)
        assert ledger.policy == replace(policy, colluders=9, epsilon_alone=2.0)
        assert ledger.account.spent == spent > 0
        assert ledger.holds(head)
        with ledger.open_run("first", "mark") as run:
            assert run.events == (EVENT, EVENT)
            assert run.committed(0) is not None
            run.reserve(2, SHARED)
    with SQLiteLedger(charged) as ledger:
        account = ledger.verify()
        assert account.to_dict() == ledger.account.to_dict()
        assert account.to_dict() == recompute(json.dumps(row) for row in ledger.export()).to_dict()
        assert account.spent > spent
        (amendment,) = account.to_dict()["amendments"]
        assert amendment["number"] == 5
        assert len(amendment["looser"]) == 2
        assert "once, 1 of them to be looser" in dict(account.lines())["Amended"]


def test_a_run_that_the_owner_had_not_agreed_to_goes_on_after_an_amendment(charged):
    """The refusal names the amendment, and that is enough."""
    with SQLiteLedger(charged) as ledger:
        many = [SHARED] * (ledger.account.rounds_left(SHARED) + 1)
        with pytest.raises(BudgetError, match="'dpadmm ledger amend' with --colluders"):
            ledger.check_run(many)
        ledger.amend(colluders=9, loosen=True)
        ledger.check_run(many)


@pytest.mark.parametrize(
    "changes", [{"epsilon": 2.0}, {"delta": 1e-4}, {"colluders": 3}, {"epsilon_alone": 3.0}]
)
def test_nothing_gets_looser_without_a_word(charged, changes, policy):
    with SQLiteLedger(charged) as ledger:
        head = ledger.head
        with pytest.raises(LedgerError, match=r"--loosen: .* Nothing was changed"):
            ledger.amend(**changes)
        assert (ledger.head, ledger.policy) == (head, policy)
        ledger.amend(**changes, loosen=True)
        assert ledger.verify().policy == replace(policy, **changes)


def test_tighter_needs_no_word_and_what_does_not_fit_any_more_is_refused(charged):
    with SQLiteLedger(charged) as ledger, ledger.open_run("first", "mark") as run:
        before = ledger.account.rounds_left(EVENT)
        ledger.amend(epsilon=0.8)
        assert 0 < ledger.account.rounds_left(EVENT) < before
        run.reserve(1, EVENT)
        run.commit(1, np.ones((1, 2)))
        for t in range(2, 2 + ledger.account.rounds_left(EVENT)):
            run.reserve(t, EVENT)
        with pytest.raises(BudgetError, match=r"epsilon = 0\.8"):
            run.reserve(t + 1, EVENT)
        assert ledger.verify().spent_epsilon <= 0.8


def test_what_was_spent_stays_spent(charged):
    with SQLiteLedger(charged) as ledger:
        with pytest.raises(LedgerError, match=r"must be at least what was spent, 0\.\d+: that"):
            ledger.amend(epsilon=0.99 * ledger.account.spent_epsilon)
        ledger.amend(colluders=9, loosen=True)
        with ledger.open_run("first", "mark") as run:
            for t in range(2, 20):
                run.reserve(t, SHARED)
        with pytest.raises(LedgerError, match=r"if all others collude, .* must be at least what"):
            ledger.amend(epsilon_alone=1.0)
        assert len(ledger.verify().amendments) == 1


def test_rounds_of_before_count_though_more_is_demanded_now(charged):
    with SQLiteLedger(charged) as ledger:
        ledger.amend(colluders=9, loosen=True)
        with ledger.open_run("second", "mark") as run:
            run.reserve(0, SHARED)
            ledger.amend(colluders=10)
            # It is charged, and may be run again; one more may not.
            run.reserve(0, SHARED)
            with pytest.raises(BudgetError, match="at least 10 colluders"):
                run.reserve(1, SHARED)
        account = ledger.verify().to_dict()
        assert account["runs"][1]["more_like_last"] == 0
        assert "at most 9 of the 20 parties" in account["statement"]["Adversary"]


def test_another_process_is_kept_to_the_amendment(charged):
    with SQLiteLedger(charged) as other, SQLiteLedger(charged) as ledger:
        many = [EVENT] * other.account.rounds_left(EVENT)
        other.check_run(many)
        ledger.amend(epsilon=0.8)
        with pytest.raises(BudgetError, match=r"epsilon = 0\.8"):
            other.check_run(many)


def test_to_repeat_an_amendment_is_harmless(charged):
    with SQLiteLedger(charged) as ledger:
        ledger.amend(epsilon=0.8)
        head = ledger.head
        ledger.amend(epsilon=0.8)
        assert ledger.head == head


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"epsilon": -1.0}, "epsilon must be a positive number"),
        ({"delta": 1.0}, "delta must be at least"),
        ({"colluders": 0}, "colluders must be a whole number"),
        ({"epsilon_alone": 0.5}, "epsilon_alone must be at least epsilon"),
    ],
)
def test_values_are_checked(charged, changes, words):
    with SQLiteLedger(charged) as ledger:
        head = ledger.head
        with pytest.raises(ParameterError, match=words):
            ledger.amend(**changes, loosen=True)
        assert ledger.head == head
        ledger.verify()


def test_an_order_that_leaves_nothing_is_said_to_be_fixed(tmp_path):
    path, policy = tmp_path / "renyi.ledger", Policy(1.0, 1e-5, filter="renyi")
    words = r"at the ledger's order of [\d.]+, which is fixed"
    with (
        SQLiteLedger.create(path, DATASET, policy) as ledger,
        pytest.raises(ParameterError, match=words),
    ):
        ledger.amend(epsilon=0.1)


# The file ----------------------------------------------------------------------------------------


def test_an_older_release_refuses_an_amended_file_and_opens_others(charged):
    """It knows files of version 1 only; and in an export a row of no run is refused there."""
    assert file_version(charged) == 1
    with SQLiteLedger(charged) as ledger:
        ledger.amend(epsilon=0.8)
        row = list(ledger.export())[-1]
    assert file_version(charged) == 2
    assert (row["kind"], row["run"], row["round"]) == ("amendment", None, None)


def test_a_ledger_of_an_earlier_build_is_amended(tmp_path):
    path = Path(shutil.copy(ROOT / "tests" / "golden" / "hospital.ledger", tmp_path))
    with SQLiteLedger(path) as ledger:
        spent, epsilon = ledger.account.spent, ledger.policy.epsilon
        ledger.amend(epsilon=2 * epsilon, loosen=True)
    with SQLiteLedger(path) as ledger:
        assert (ledger.verify().spent, ledger.policy.epsilon) == (spent, 2 * epsilon)


@pytest.mark.parametrize(
    "statement",
    [
        """UPDATE entries SET content = replace(content, '"epsilon":0.8', '"epsilon":0.9')
        WHERE number = 5""",
        "UPDATE entries SET time = '' WHERE number = 5",
        "UPDATE entries SET kind = 'run', run = 'x' WHERE number = 5",
        "UPDATE entries SET content = replace(content, 'false', 'true') WHERE number = 5",
    ],
)
def test_a_changed_amendment_is_found(charged, statement):
    with SQLiteLedger(charged) as ledger:
        ledger.amend(epsilon=0.8)
    edit(charged, statement)
    with pytest.raises(LedgerError, match="row 5 was changed: its hash does not match"):
        SQLiteLedger(charged)


def test_an_amendment_that_was_cut_off_is_found(charged):
    with SQLiteLedger(charged) as ledger:
        ledger.amend(epsilon=0.8)
    edit(charged, "DELETE FROM entries WHERE number = 5")
    with pytest.raises(LedgerError, match="its last row must be row 5; row 4 is"):
        SQLiteLedger(charged)


@pytest.mark.parametrize(
    ("changed", "more", "words"),
    [
        ({"epsilon": 2.0}, {"loosen": False}, "must not become looser without"),
        ({"epsilon": 2.0}, {"loosen": 1}, "must not become looser without"),
        ({"epsilon": 2.0}, {}, "cannot be read: KeyError"),
        ({"rows_per_person": 2}, {"loosen": True}, "rows_per_person must stay as it is, 1"),
        ({"epsilon": -1.0}, {"loosen": True}, "cannot be read"),
        ({"surprise": 1.0}, {"loosen": True}, "cannot be read: TypeError"),
    ],
)
def test_an_amendment_whose_hash_is_right_is_judged_by_what_it_says(
    charged, policy, changed, more, words
):
    with SQLiteLedger(charged) as ledger:
        account = ledger.verify()
    content = {"policy": policy.to_dict() | changed, **more}
    with pytest.raises(LedgerError, match=words):
        account.apply(Entry.after(account.head, "amendment", "", None, None, content))
    assert (account.head.number, account.policy) == (4, policy)
    named = Entry.after(account.head, "amendment", "", "first", None, content)
    with pytest.raises(LedgerError, match="it must name no run"):
        account.apply(named)


def test_an_amendment_below_what_was_spent_is_no_history(charged, policy):
    with SQLiteLedger(charged) as ledger:
        account = ledger.verify()
    less = replace(policy, epsilon=0.99 * account.spent_epsilon)
    content = {"policy": less.to_dict(), "loosen": True}
    with pytest.raises(LedgerError, match="must be at least what was spent"):
        account.apply(Entry.after(account.head, "amendment", "", None, None, content))
    assert account.policy == policy


def test_the_filter_and_its_order_are_fixed(charged, policy):
    with SQLiteLedger(charged) as ledger:
        account = ledger.verify()
    renyi = Policy(1.0, 1e-5, filter="renyi", order=12.0)
    other = renyi if policy.filter == "renyi" else replace(renyi, order=None)
    content = {"policy": other.to_dict(), "loosen": True}
    with pytest.raises(LedgerError, match=r"(filter|order) must stay as it is"):
        account.apply(Entry.after(account.head, "amendment", "", None, None, content))


# Kills -------------------------------------------------------------------------------------------

KILLED_WITHIN = """
import os, signal, sys
from dpadmm.ledger.sqlite import SQLiteLedger
from dpadmm.ledger.storage import EntryFile
path, method, when = sys.argv[1:]
original = getattr(EntryFile, method)
def killed(*arguments):
    if when == "after":
        original(*arguments)
    os.kill(os.getpid(), signal.SIGKILL)
ledger = SQLiteLedger(path)
setattr(EntryFile, method, killed)
ledger.amend(epsilon=0.8)
"""
KILLED_SOMEWHERE = """
import sys
from dpadmm.ledger.sqlite import SQLiteLedger
ledger = SQLiteLedger(sys.argv[1])
print("ready", flush=True)
for number in range(100_000):
    ledger.amend(epsilon=1.0 - number / 1e6)
    print(ledger.head, ledger.policy.epsilon, flush=True)
"""


def start(script, *words):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", script, *map(str, words)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("method", ["append", "mark_amended"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_process_killed_within_an_amendment_has_changed_nothing(charged, policy, method, when):
    with start(KILLED_WITHIN, charged, method, when) as process:
        process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    with SQLiteLedger(charged) as ledger:
        account = ledger.verify()
        assert (account.head.number, account.policy) == (4, policy)
        assert file_version(charged) == 1
        ledger.amend(epsilon=0.8)
        assert ledger.verify().policy.epsilon == 0.8


def test_processes_killed_anywhere_lose_no_amendment_that_was_told_of(charged):
    draw = random.Random(1)
    with SQLiteLedger(charged) as ledger:
        spent = ledger.account.spent
    for _ in range(8):
        with start(KILLED_SOMEWHERE, charged) as process:
            assert process.stdout.readline() == "ready\n"
            time.sleep(draw.uniform(0, 0.1))
            process.kill()
            # The last line may be cut short.
            told = [line for line in process.stdout if line.endswith("\n")]
        with SQLiteLedger(charged) as ledger:
            account = ledger.verify()
            assert account.spent == spent
            for line in told:
                assert ledger.holds(line.split()[0])
            # At most the one that was under way came after it.
            if told:
                number = int(told[-1].partition(":")[0])
                assert account.head.number - number in (0, 1)
            assert (file_version(charged) == 2) == bool(account.amendments)
            # The next process begins at 1 again, which is looser.
            if account.policy.epsilon < 1:
                ledger.amend(epsilon=1.0, loosen=True)
