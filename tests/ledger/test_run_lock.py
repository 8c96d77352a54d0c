"""The lock of a run: one process at a time, and nothing left behind."""

import fcntl
import hashlib
import os
import stat

import pytest

from dpadmm.errors import LedgerError
from dpadmm.ledger.storage import RunLock


@pytest.fixture
def ledger(tmp_path):
    return tmp_path / "x.ledger"


@pytest.mark.parametrize("replaced", [False, True])
def test_a_lock_on_a_file_that_vanished_is_none(tmp_path, ledger, monkeypatch, replaced):
    """Whoever had the lock before removes its file just when it is locked again."""
    handles, locked = [], fcntl.flock

    def flock(handle, how):
        locked(handle, how)
        if not handles:
            (file,) = tmp_path.glob("*.lock")
            file.unlink()
            if replaced:
                file.touch()
        handles.append(handle)

    monkeypatch.setattr(fcntl, "flock", flock)
    lock = RunLock(ledger, "run")
    assert len(handles) == 2
    with pytest.raises(LedgerError, match="one process at a time"):
        RunLock(ledger, "run")
    lock.require()
    lock.release()
    assert not list(tmp_path.iterdir())
    with pytest.raises(LedgerError, match="must be open in this process"):
        lock.require()


def test_every_release_takes_the_same_file_and_nobody_else_may_open_it(tmp_path, ledger):
    lock = RunLock(ledger, "run")
    (file,) = tmp_path.iterdir()
    assert file.name == f"x.ledger.{hashlib.sha256(b'run').hexdigest()[:16]}.lock"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    lock.release()


def test_a_process_that_inherited_the_lock_does_not_remove_it(tmp_path, ledger, monkeypatch):
    lock = RunLock(ledger, "run")
    with monkeypatch.context() as child:
        child.setattr(os, "getpid", lambda: 0)
        lock.release()
        with pytest.raises(LedgerError, match="must be open in this process"):
            lock.require()
    assert len(list(tmp_path.iterdir())) == 1
    lock.require()
    lock.release()


def test_letting_go_twice_or_of_a_file_that_is_gone_is_no_error(tmp_path, ledger):
    lock = RunLock(ledger, "run")
    (file,) = tmp_path.iterdir()
    file.unlink()
    lock.release()
    lock.release()
    RunLock(ledger, "run").release()


def test_no_handle_stays_open(tmp_path, ledger, monkeypatch):
    before = os.listdir("/dev/fd")
    lock = RunLock(ledger, "run")
    with pytest.raises(LedgerError, match="another has it"):
        RunLock(ledger, "run")
    lock.release()
    locked = fcntl.flock

    def vanishing(handle, how):
        locked(handle, how)
        monkeypatch.undo()
        (file,) = tmp_path.glob("*.lock")
        file.unlink()

    monkeypatch.setattr(fcntl, "flock", vanishing)
    RunLock(ledger, "run").release()
    assert os.listdir("/dev/fd") == before
