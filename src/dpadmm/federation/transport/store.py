"""What a node heard and said, kept so that a restarted node can go on and a late one can catch up.

The state of an algorithm is a function of messages: with those of all complete rounds at hand, a
restarted node is where it was. Messages were released when they were sent, so that the store holds
nothing more private than they are. Losing it costs no privacy: the ledger alone decides what is
spent, and neighbours hand out past rounds again. It does cost a memory: of which ledger was charged
for which rows, and how far that was.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from abc import abstractmethod
from pathlib import Path
from typing import Any, Final, final

from dpadmm.durable import Closable
from dpadmm.errors import ExchangeError, passing

# Neighbours are at most one round apart.
_KEPT_ROUNDS: Final = 4
_APPLICATION: Final = 0x64704D53  # "dpMS"
_VERSION: Final = 1
_SCHEMA: Final = (
    """CREATE TABLE messages (
        run BLOB NOT NULL,
        round INTEGER NOT NULL,
        party INTEGER NOT NULL,
        data BLOB NOT NULL,
        PRIMARY KEY (run, round, party)
    ) WITHOUT ROWID""",
    """CREATE TABLE notes (
        run BLOB NOT NULL,
        name TEXT NOT NULL,
        value TEXT NOT NULL,
        PRIMARY KEY (run, name)
    ) WITHOUT ROWID""",
    f"PRAGMA application_id = {_APPLICATION}",
    f"PRAGMA user_version = {_VERSION}",
)


class MessageStore(Closable):
    """The messages of complete rounds, and notes about a run; used by several threads."""

    @abstractmethod
    def rounds(self, run: bytes) -> int:
        """How many rounds are complete."""

    @abstractmethod
    def messages(self, run: bytes, t: int) -> dict[int, bytes]:
        """The messages of a complete round by party, this node's included; none otherwise."""

    @abstractmethod
    def keep(self, run: bytes, t: int, messages: dict[int, bytes]) -> None:
        """Keep a complete round; durable when it returns."""

    @abstractmethod
    def note(self, run: bytes, name: str) -> str | None:
        """What was noted under a name."""

    @abstractmethod
    def notes(self, run: bytes) -> dict[str, str]:
        """Everything that was noted, by its name."""

    @abstractmethod
    def take_note(self, run: bytes, name: str, value: str) -> None:
        """Note something, in place of what was there; durable when it returns."""


@final
class MemoryStore(MessageStore):
    """The last few rounds in memory: for a run that ends with its process."""

    def __init__(self) -> None:
        self._messages: dict[tuple[bytes, int], dict[int, bytes]] = {}
        self._rounds: dict[bytes, int] = {}
        self._notes: dict[tuple[bytes, str], str] = {}

    def rounds(self, run: bytes) -> int:
        """How many rounds are complete."""
        return self._rounds.get(run, 0)

    def messages(self, run: bytes, t: int) -> dict[int, bytes]:
        """The messages of one of the last rounds."""
        return self._messages.get((run, t), {})

    def keep(self, run: bytes, t: int, messages: dict[int, bytes]) -> None:
        """Keep a round and forget an old one."""
        self._messages[run, t] = messages
        self._messages.pop((run, t - _KEPT_ROUNDS), None)
        self._rounds[run] = t + 1

    def note(self, run: bytes, name: str) -> str | None:
        """What was noted under a name."""
        return self._notes.get((run, name))

    def notes(self, run: bytes) -> dict[str, str]:
        """Everything that was noted, by its name."""
        return {name: value for (about, name), value in self._notes.items() if about == run}

    def take_note(self, run: bytes, name: str, value: str) -> None:
        """Note something."""
        self._notes[run, name] = value

    def close(self) -> None:
        """Nothing is held."""
        return


@final
class MessageFile(MessageStore):
    """All rounds in one SQLite file; memory stays bounded however long a run is.

    Parameters
    ----------
    path
        Made if missing; private to its owner.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.RLock()
        try:
            # Private from its first byte on.
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
            self._connection = sqlite3.connect(
                path, timeout=10.0, isolation_level=None, check_same_thread=False
            )
        except (OSError, sqlite3.Error) as error:
            raise self._refusal(error) from None
        try:
            self._prepare()
        except sqlite3.Error as error:
            self._connection.close()
            raise self._refusal(error) from None

    def _prepare(self) -> None:
        with self._lock:
            # A killed process loses nothing; FULL makes that hold for a power failure, too.
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
            with self._connection:
                self._connection.execute("BEGIN IMMEDIATE")
                tables = self._connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
                if tables == (0,):
                    for statement in _SCHEMA:
                        self._connection.execute(statement)
            found = tuple(
                self._connection.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("application_id", "user_version")
            )
        if found != (_APPLICATION, _VERSION):
            self._connection.close()
            raise ExchangeError(
                f"messages must be a file of messages of version {_VERSION}; {self.path} is none: "
                "name another file."
            )

    def _refusal(self, error: Exception) -> ExchangeError:
        refusal = ExchangeError(
            f"messages must be a file that can be written; {self.path}: {error}. Nothing was used "
            "and nothing is lost: free some room or repair it, and start again."
        )
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        return passing(refusal, when=code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL))

    def rounds(self, run: bytes) -> int:
        """How many rounds are complete."""
        found = self._select("SELECT coalesce(max(round) + 1, 0) FROM messages WHERE run = ?", run)
        return int(found[0][0])

    def messages(self, run: bytes, t: int) -> dict[int, bytes]:
        """The messages of a complete round."""
        return dict(
            self._select("SELECT party, data FROM messages WHERE run = ? AND round = ?", run, t)
        )

    def keep(self, run: bytes, t: int, messages: dict[int, bytes]) -> None:
        """Keep a complete round, in one transaction."""
        self._write(
            "INSERT INTO messages VALUES (?, ?, ?, ?)",
            [(run, t, party, data) for party, data in messages.items()],
        )

    def note(self, run: bytes, name: str) -> str | None:
        """What was noted under a name."""
        found = self._select("SELECT value FROM notes WHERE run = ? AND name = ?", run, name)
        return str(found[0][0]) if found else None

    def notes(self, run: bytes) -> dict[str, str]:
        """Everything that was noted, by its name."""
        return dict(self._select("SELECT name, value FROM notes WHERE run = ?", run))

    def take_note(self, run: bytes, name: str, value: str) -> None:
        """Note something, in place of what was there."""
        self._write("INSERT OR REPLACE INTO notes VALUES (?, ?, ?)", [(run, name, value)])

    def _select(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        with self._lock:
            try:
                return self._connection.execute(statement, values).fetchall()
            except sqlite3.Error as error:
                raise self._refusal(error) from None

    def _write(self, statement: str, rows: list[tuple[object, ...]]) -> None:
        with self._lock:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                with self._connection:
                    self._connection.executemany(statement, rows)
            except sqlite3.Error as error:
                raise self._refusal(error) from None

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._connection.close()
