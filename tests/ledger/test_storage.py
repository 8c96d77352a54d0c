"""The file of a ledger: nothing left open or behind, and nothing read that was not written."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.helpers.edited_ledgers import edit

from dpadmm.errors import LedgerError
from dpadmm.ledger.base import Entry
from dpadmm.ledger.storage import EntryFile

FIRST = Entry.after(None, "ledger", "now", None, None, {})
ENTRIES = [FIRST]
for what in (("run", "a", None), ("reservation", "a", 0), ("commit", "a", 0)):
    ENTRIES.append(Entry.after(ENTRIES[-1], what[0], "later", *what[1:], {"x": len(ENTRIES)}))


@pytest.fixture
def path(tmp_path):
    EntryFile.create(tmp_path / "x.ledger", FIRST, timeout=1)
    with EntryFile(tmp_path / "x.ledger", timeout=1) as file, file.transaction():
        for entry in ENTRIES[1:]:
            file.append(entry)
    return tmp_path / "x.ledger"


def refused(path, words, call=EntryFile, **options):
    """The error, which keeps alive what was open when it was raised."""
    with pytest.raises(LedgerError, match=words) as caught:
        call(path, **options, timeout=1)
    return caught


# Handles and files -------------------------------------------------------------------------------


def test_no_handle_stays_open(path, tmp_path):
    before = os.listdir("/dev/fd")
    EntryFile.create(tmp_path / "new.ledger", FIRST, timeout=1)
    assert os.listdir("/dev/fd") == before
    file = EntryFile(path, timeout=1)
    file.close()
    assert os.listdir("/dev/fd") == before
    edit(path, "CREATE VIEW other AS SELECT 1")
    caught = refused(path, "not as it was made")
    assert os.listdir("/dev/fd") == before
    assert caught.value.__traceback__ is not None


@pytest.mark.parametrize("vanished", [False, True])
def test_a_creation_that_fails_leaves_nothing(tmp_path, monkeypatch, vanished):
    def fsync(handle):
        if vanished:
            (tmp_path / "x.ledger").unlink()
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", fsync)
    before = os.listdir("/dev/fd")
    with pytest.raises(KeyboardInterrupt) as caught:
        EntryFile.create(tmp_path / "x.ledger", FIRST, timeout=1)
    assert os.listdir("/dev/fd") == before
    assert caught.value.__traceback__ is not None
    assert not list(tmp_path.iterdir())


def test_every_connection_is_durable_and_safe(tmp_path, monkeypatch):
    """That of a creation, too: the first entry holds the policy."""
    names = ("synchronous", "fullfsync", "recursive_triggers", "trusted_schema", "journal_mode")
    found, connect = [], sqlite3.connect

    class Watched(sqlite3.Connection):
        def close(self):
            found.append([self.execute(f"PRAGMA {name}").fetchone()[0] for name in names])
            super().close()

    monkeypatch.setattr(
        sqlite3, "connect", lambda *what, **how: connect(*what, **how, factory=Watched)
    )
    EntryFile.create(tmp_path / "x.ledger", FIRST, timeout=1)
    EntryFile(tmp_path / "x.ledger", timeout=1).close()
    assert found == [[3, 1, 1, 0, "delete"]] * 2


@pytest.mark.parametrize("name", ["file:x.ledger", "x?mode=memory", "x%41", "x#y"])
def test_a_name_is_not_an_address(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    EntryFile.create(Path(name), FIRST, timeout=1)
    with EntryFile(Path(name), timeout=1) as file:
        assert list(file.entries()) == [FIRST]
    assert os.listdir(tmp_path) == [name]


def test_the_format_is_told_by_the_file(path):
    """A ledger is kept for years: what has these numbers now must be read then."""
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA application_id").fetchone() == (0x64704C47,)
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)


def test_a_place_that_cannot_be_read_is_named(path):
    refused(path / "below", "cannot be read: Not a directory")


# What others changed -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "value"),
    [
        *((name, "x'61'") for name in ("kind", "time", "run", "content", "hash")),
        ("round", "x'61'"),
        ("round", "0.5"),
    ],
)
def test_a_row_of_other_types_is_not_read(path, column, value):
    edit(path, f"UPDATE entries SET {column} = {value} WHERE number = 2")
    with EntryFile(path, timeout=1) as file:
        read = file.entries()
        assert [next(read), next(read)] == ENTRIES[:2]
        with pytest.raises(LedgerError, match="row 2 was changed: its columns have other types"):
            next(read)


def test_tables_that_sqlite_makes_are_no_change(path):
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("ANALYZE")
        assert connection.execute("SELECT count(*) FROM sqlite_stat1").fetchone() > (0,)
    with EntryFile(path, timeout=1) as file:
        assert list(file.entries()) == ENTRIES
        file.check_storage()


def test_a_file_that_lacks_all_but_its_entries_can_be_read_and_is_not_whole(path):
    edit(path, "DROP INDEX once")
    with EntryFile(path, timeout=1) as file:
        assert list(file.entries()) == ENTRIES
        with pytest.raises(LedgerError, match="it lacks the index 'once'"):
            file.check_storage()


def test_a_damaged_index_is_found(path):
    data = path.read_bytes()
    assert data.count(b"areservation") == 1
    path.write_bytes(data.replace(b"areservation", b"breservation"))
    with EntryFile(path, timeout=1) as file:
        assert list(file.entries()) == ENTRIES
        with pytest.raises(LedgerError, match=r"is damaged: .* missing from index once"):
            file.check_storage()
