"""Entries in one SQLite file: appended durably, in order, by one writer at a time.

Durability. ``journal_mode=DELETE`` with ``synchronous=EXTRA``: when a commit returns, the pages
are synced in the one file and the removal of the journal is synced in its directory, so that
neither a killed process nor a power failure can take back an entry that a message relied on. A
write-ahead log would save a few syncs, but there the newest entries live in a second file after a
crash, and whoever copies or moves only the first silently loses spending. ``fullfsync`` makes
macOS flush the drive's cache too; elsewhere it does nothing.

Tampering. Triggers refuse to change or remove entries, and keep the number and hash of the last
entry beside them. Whoever can write the file can drop the triggers. The chain of hashes and the
head then reveal what an editor forgot, not what a forger recomputed.

Locks. At most one process has a run of a ledger open (:class:`RunLock`).
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import quote

from dpadmm.durable import Closable, sync_folder
from dpadmm.errors import LedgerError, passing
from dpadmm.ledger.base import AMENDED_VERSION, LEDGER_VERSION, Entry

_APPLICATION: Final = 0x64704C47  # "dpLG"
_COLUMNS: Final = "number, kind, time, run, round, content, hash"
_TYPES: Final = (int, str, str, str | None, int | None, str, str)

_SCHEMA: Final = (
    """CREATE TABLE entries (
        number INTEGER PRIMARY KEY,
        kind TEXT NOT NULL,
        time TEXT NOT NULL,
        run TEXT,
        round INTEGER,
        content TEXT NOT NULL,
        hash TEXT NOT NULL,
        message BLOB
    )""",
    "CREATE UNIQUE INDEX once ON entries (run, round, kind) WHERE run IS NOT NULL",
    """CREATE TABLE head (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        number INTEGER NOT NULL,
        hash TEXT NOT NULL
    )""",
    "INSERT INTO head VALUES (1, -1, '')",
    """CREATE TRIGGER entries_follow BEFORE INSERT ON entries
        WHEN NEW.number IS NOT (SELECT number + 1 FROM head)
        BEGIN SELECT RAISE(ABORT, 'entries are appended only'); END""",
    """CREATE TRIGGER entries_stay BEFORE UPDATE ON entries
        BEGIN SELECT RAISE(ABORT, 'entries are appended only'); END""",
    """CREATE TRIGGER entries_remain BEFORE DELETE ON entries
        BEGIN SELECT RAISE(ABORT, 'entries are appended only'); END""",
    """CREATE TRIGGER head_moves AFTER INSERT ON entries
        BEGIN UPDATE head SET number = NEW.number, hash = NEW.hash; END""",
    """CREATE TRIGGER head_advances BEFORE UPDATE ON head WHEN NEW.number <> OLD.number + 1
        BEGIN SELECT RAISE(ABORT, 'the head only advances'); END""",
    """CREATE TRIGGER head_remains BEFORE DELETE ON head
        BEGIN SELECT RAISE(ABORT, 'the head only advances'); END""",
)

# What SQLite's primary result codes mean to the owner of a ledger.
_REASONS: Final[dict[int, str]] = {
    sqlite3.SQLITE_READONLY: "it or its directory is read-only",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened, or no file can be made in its directory",
    sqlite3.SQLITE_PERM: "its permissions do not allow it",
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_IOERR: "the disk is full or failing",
    sqlite3.SQLITE_CORRUPT: "it is damaged or cut short",
    sqlite3.SQLITE_NOTADB: "it is not a ledger",
    sqlite3.SQLITE_CONSTRAINT: "its entries are appended only, each once",
}


class EntryFile(Closable):
    """One open file.

    Parameters
    ----------
    path
        An existing file made by :meth:`create`.
    timeout
        Seconds to wait for another process.
    read_only
        Never write, not even to clear up after a crash.
    """

    def __init__(self, path: Path, *, timeout: float, read_only: bool = False) -> None:
        # One name for one file: its locks and its journal are found by it.
        self.path = path.resolve()
        self._timeout = timeout
        self._process = os.getpid()
        self._check_exists()
        with self.refusals():
            mode = "ro" if read_only else "rw"
            self._connection = sqlite3.connect(
                f"file:{quote(str(self.path))}?mode={mode}",
                uri=True,
                timeout=timeout,
                isolation_level=None,
            )
        try:
            with self.refusals():
                self._check_version()
                self._configure()
                self._check_made_here()
            self._inode = self._find_inode()
        except BaseException:
            self._connection.close()
            raise

    @classmethod
    def create(cls, path: Path, first: Entry, *, timeout: float) -> None:
        """Make a new file with its first entry, in one step; never replaces one."""
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except FileExistsError:
            raise LedgerError(
                f"ledger {path} must be a new file, and there is one: spending is never reset. "
                "Name another file for another data set."
            ) from None
        except OSError as error:
            raise LedgerError(f"ledger {path} cannot be created: {error.strerror}.") from None
        file = cls.__new__(cls)
        file.path, file._timeout, file._process = path.resolve(), timeout, os.getpid()
        try:
            with file.refusals():
                # Its whole path: SQLite would take a name such as "file:x" for an address.
                file._connection = sqlite3.connect(file.path, timeout=timeout, isolation_level=None)
            try:
                with file.refusals():
                    file._configure()
                    file._inode = file._find_inode()
                with file.transaction():
                    for statement in _SCHEMA:
                        file._connection.execute(statement)
                    file._connection.execute(f"PRAGMA application_id = {_APPLICATION}")
                    file._connection.execute(f"PRAGMA user_version = {LEDGER_VERSION}")
                    file.append(first)
            finally:
                file._connection.close()
            sync_folder(file.path.parent)
        except BaseException:
            path.unlink(missing_ok=True)
            raise

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def _check_exists(self) -> None:
        # Only the status: opening and closing the file here would drop the locks that another
        # connection of this process may hold on it (they belong to the process, not the handle).
        try:
            status = os.stat(self.path)
        except FileNotFoundError:
            raise LedgerError(
                f"ledger {self.path} must exist; create it with 'dpadmm ledger init' if its data "
                "set was never charged. Otherwise put it back: a new one would begin at 0 spent."
            ) from None
        except OSError as error:
            raise LedgerError(f"ledger {self.path} cannot be read: {error.strerror}.") from None
        if not stat.S_ISREG(status.st_mode):
            raise LedgerError(f"ledger {self.path} must be a file; it is something else.")
        if status.st_size == 0:
            raise LedgerError(
                f"ledger {self.path} is empty: its creation was interrupted, or it was cut short. "
                "If nothing was ever charged to it, remove it and create it again; otherwise "
                "restore it."
            )

    def _check_version(self) -> None:
        (application,) = self._connection.execute("PRAGMA application_id").fetchone()
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        if application != _APPLICATION:
            raise LedgerError(
                f"ledger {self.path} must be a ledger file; it is another SQLite database."
            )
        if version not in (LEDGER_VERSION, AMENDED_VERSION):
            raise LedgerError(
                f"ledger {self.path} must have the format {LEDGER_VERSION} or {AMENDED_VERSION}; "
                f"it has {version}. Use the version of dpadmm that wrote it, or a newer one."
            )

    def _check_made_here(self) -> None:
        """Refuse tables, views and triggers of others before a row is read: a view never ends."""
        own = [text for text in _SCHEMA if text.startswith("CREATE")]
        found = self._connection.execute("SELECT name, sql FROM sqlite_schema")
        texts = {name: sql for name, sql in found if not str(name).startswith("sqlite_")}
        for name, text in texts.items():
            if text not in own:
                raise LedgerError(
                    f"ledger {self.path} was changed: {name!r} in it is not as it was made. "
                    "Nothing was released; restore the ledger."
                )
        if not {"entries", "head"} <= set(texts):
            raise LedgerError(f"ledger {self.path} was changed: it has lost its entries.")

    def _configure(self) -> None:
        for pragma in (
            "journal_mode = DELETE",
            "synchronous = EXTRA",
            "fullfsync = ON",
            "recursive_triggers = ON",  # INSERT OR REPLACE must not get around the triggers
            "trusted_schema = OFF",
        ):
            self._connection.execute(f"PRAGMA {pragma}").fetchall()

    def _find_inode(self) -> tuple[int, int]:
        try:
            status = os.stat(self.path)
        except OSError:
            return (-1, -1)
        return status.st_dev, status.st_ino

    @contextmanager
    def refusals(self) -> Iterator[None]:
        """Turn SQLite's errors into one sentence."""
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise passing(
                    LedgerError(
                        f"ledger {self.path} must become free within {self._timeout:g} s; another "
                        "process holds it. Wait until that ends and start again; nothing was "
                        "released."
                    )
                ) from None
            reason = _REASONS.get(code, "SQLite refused")
            refusal = LedgerError(
                f"ledger {self.path} cannot be used: {reason} ({error}). Nothing was released; put "
                "that right and start again."
            )
            raise passing(refusal, when=code == sqlite3.SQLITE_FULL) from None

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Write alone; at the end what was appended is durable, or undone."""
        if os.getpid() != self._process:
            raise LedgerError(
                f"ledger {self.path} must be used by the process that opened it; open it again."
            )
        with self.refusals():
            self._connection.execute("BEGIN IMMEDIATE")
        try:
            # Entries in a file that was moved or replaced would be lost.
            if self._find_inode() != self._inode:
                raise LedgerError(
                    f"ledger {self.path} was moved or replaced while it was open. Put it back and "
                    "start again; nothing was released."
                )
            yield
            with self.refusals():
                self._connection.execute("COMMIT")
        finally:
            if self._connection.in_transaction:
                with self.refusals():
                    self._connection.execute("ROLLBACK")

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Read everything as of one moment; others may read, and wait to write."""
        if self._connection.in_transaction:
            yield
            return
        with self.refusals():
            self._connection.execute("BEGIN")
        try:
            yield
        finally:
            with self.refusals():
                self._connection.execute("ROLLBACK")

    def append(self, entry: Entry, message: bytes | None = None) -> None:
        """Add an entry, inside a transaction."""
        with self.refusals():
            self._connection.execute(
                f"INSERT INTO entries ({_COLUMNS}, message) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    entry.number,
                    entry.kind,
                    entry.time,
                    entry.run,
                    entry.round,
                    entry.content,
                    entry.hash,
                    message,
                ),
            )

    def mark_amended(self) -> None:
        """Say in the file's version that it has an amendment, inside a transaction."""
        with self.refusals():
            self._connection.execute(f"PRAGMA user_version = {AMENDED_VERSION}")

    def head(self) -> tuple[int, str]:
        """Number and hash of the last entry, as the file remembers them."""
        with self.refusals():
            row = self._connection.execute("SELECT number, hash FROM head").fetchone()
        if row is None or [type(value) for value in row] != [int, str]:
            raise LedgerError(f"ledger {self.path} was changed: it has lost its head.")
        return row[0], row[1]

    def entries(self, after: int = -1) -> Iterator[Entry]:
        """The entries after a number, in order."""
        with self.refusals():
            query = f"SELECT {_COLUMNS} FROM entries WHERE number > ? ORDER BY number"
            for row in self._connection.execute(query, (after,)):
                # SQLite takes any type in any column.
                kinds = zip(row, _TYPES, strict=True)
                if not all(isinstance(value, kind) for value, kind in kinds):
                    raise LedgerError(
                        f"ledger {self.path}: row {row[0]!r} was changed: its columns have other "
                        "types. Nothing was released; restore the ledger."
                    )
                yield Entry(*row)

    def message(self, number: int) -> bytes | None:
        """The bytes kept with an entry."""
        with self.refusals():
            query = "SELECT message FROM entries WHERE number = ?"
            row = self._connection.execute(query, (number,)).fetchone()
        if row is not None and not isinstance(row[0], bytes | None):
            raise LedgerError(f"ledger {self.path}: the message of row {number} was changed.")
        return None if row is None else row[0]

    def copy_to(self, place: Path) -> None:
        """Write a consistent copy to a new file that only its owner may read."""
        try:
            os.close(os.open(place, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except OSError as error:
            raise LedgerError(
                f"a backup must be a new file that can be made; got {place}: {error.strerror}."
            ) from None
        with self.refusals():
            target = sqlite3.connect(place, isolation_level=None)
            try:
                target.execute("PRAGMA synchronous = EXTRA")
                self._connection.backup(target)
            finally:
                target.close()
        # Files and folders are synced alike.
        sync_folder(place)

    def check_storage(self) -> None:
        """Refuse a damaged file, or one whose tables or triggers were changed."""
        with self.refusals():
            (found,) = self._connection.execute("PRAGMA integrity_check(1)").fetchone()
            statements = {
                row[0] for row in self._connection.execute("SELECT sql FROM sqlite_master")
            }
        if found != "ok":
            raise LedgerError(f"ledger {self.path} is damaged: {found}.")
        missing = [text for text in _SCHEMA if text.startswith("CREATE") and text not in statements]
        if missing:
            kind, name = missing[0].replace("UNIQUE ", "").split()[1:3]
            raise LedgerError(
                f"ledger {self.path} was changed: it lacks the {kind.lower()} {name!r} that it was "
                "made with."
            )


class RunLock:
    """At most one process has a run: a lock of the operating system, gone with its process."""

    def __init__(self, ledger: Path, run_id: str) -> None:
        name = hashlib.sha256(run_id.encode()).hexdigest()[:16]
        self._path = ledger.with_name(f"{ledger.name}.{name}.lock")
        self._run_id = run_id
        self._process = os.getpid()
        self._handle: int | None = None
        while self._handle is None:
            self._handle = self._try()

    def _try(self) -> int | None:
        try:
            handle = os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600)
        except OSError as error:
            raise LedgerError(
                f"run {self._run_id!r} must be locked by a file beside the ledger; "
                f"{self._path} cannot be made: {error.strerror}. Nothing was released."
            ) from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            raise passing(
                LedgerError(
                    f"run {self._run_id!r} must be open in one process at a time; another has it. "
                    "Wait until that ends, or give this run a name of its own."
                )
            ) from None
        # Whoever had the lock before may just have removed its file: then it locks nothing.
        try:
            same = os.path.samestat(os.fstat(handle), os.stat(self._path))
        except FileNotFoundError:
            same = False
        if same:
            return handle
        os.close(handle)
        return None

    def require(self) -> None:
        """Refuse to go on without the lock, or in a process that only inherited it."""
        if self._handle is None or self._process != os.getpid():
            raise LedgerError(
                f"run {self._run_id!r} must be open in this process; open it with open_run."
            )

    def release(self) -> None:
        """Remove the file and let go, in this order: nobody may lock a file about to vanish."""
        if self._handle is not None and self._process == os.getpid():
            self._path.unlink(missing_ok=True)
            os.close(self._handle)
            self._handle = None
