"""What a node remembers: messages, who owns a name, and how far each ledger was.

*Messages.* The state of an algorithm is a function of messages: with those of all complete rounds a
restarted node is where it was, and a late one can catch up. Messages were released when they were
sent, so the store holds nothing more private than they are. Losing it costs no privacy: the ledger
alone decides what is spent, and neighbours hand out past rounds again. It does cost the memory of
which ledger was charged for which rows, and how far that was.

*Claims.* Which process owns a neighbour's name when two show its certificate?
A node draws an *instance* once and keeps it with its messages, so that it is the same after a
restart; everything it sends carries it. The first instance heard under a name has it for as long as
it lives. A node does not hear another one, and reports it. Only when the first has been gone for a
while may another take its place, which is reported, too: it may be the same node without its
messages. Of two that have the same key, nothing can be known but which came first.

A copy of a node, such as a restored machine, has its instance, too. So every process draws a
*start* besides, and says ``instance.start``. A new start is heard once the one before is gone,
which for a killed process is at once. Two that stay alive together for longer than a dead
connection can seem alive are two processes of one node: neither is heard any more, and both are
told, since each would draw noise of its own for the same rounds.

*Rollback.* Did a node, or a neighbour, come back with older files than it had?
A ledger that is put back to an older copy has forgotten rounds that were sent. A node that goes on
from there draws new noise for them, and whoever heard both messages knows more than was charged. If
all its files are old, a node cannot see that itself. Its neighbours, who heard it, can.

So a node asks them before it draws, and draws nothing once one has heard more of it than its ledger
has, or hears a second living process of it. It also says how many rounds of this run its ledger has
and the hash of their messages. Both are functions of what its neighbours hear anyway: nothing is
said of other runs on the same rows. They remember it, and no longer hear one that went back.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import sqlite3
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, final

from dpadmm.durable import Closable
from dpadmm.errors import ExchangeError, passing
from dpadmm.federation.transport.wire import BadMessage, Drawn, Heard, Limits, noted, said

_SAID: Final = re.compile(r"([0-9a-z]{1,64})(?:\.[0-9a-z]{1,64})?")
# A peer that declares ever more processes must not fill the memory: they are not heard anyway.
_MOST_PROCESSES: Final = 100
# A connection that broke without a word seems alive for one lease.
_LEASES: Final = 2
_ADVICE: Final = "stop one of the two, and make sure that nobody else has the key of that name"
_TWICE: Final = (
    "neither is heard any more; its owner must stop both and start the one with the newest ledger"
)


def instance_hash(instance: str) -> str:
    """A hash to show others in place of an instance or a start, which they could imitate."""
    return hashlib.sha256(instance.encode("ascii", "replace")).hexdigest()[:32]


class Claims:
    """Decides who is heard under which name; used by several threads.

    Parameters
    ----------
    neighbours
        Their names.
    grace
        Seconds for which a name stays with an instance that is gone.
    known
        Instances heard before this process was started, by name.
    on_claim
        Called with a name and the instance that has it now.
    on_event
        Called with what happens, and public facts.
    """

    def __init__(
        self,
        neighbours: Iterable[str],
        grace: float,
        known: Mapping[str, str],
        *,
        on_claim: Callable[[str, str], None],
        on_event: Callable[..., None],
    ) -> None:
        self._lock = threading.Lock()
        self._grace = grace
        self._claim, self._tell = on_claim, on_event
        begin = time.monotonic()
        self._standing = dict(known)
        self._alive: dict[str, set[str]] = {name: set() for name in neighbours}
        self._gone_since = dict.fromkeys(self._alive, begin)
        self._refused: dict[str, int] = {}
        # Which start is heard; since when there are two; those that are heard no more.
        self._current: dict[str, str] = {}
        self._two_since: dict[str, float] = {}
        self._stopped: dict[str, set[str]] = {name: set() for name in self._alive}

    def present(self, name: str) -> bool:
        """Whether the process that has a name is connected, and is the only one."""
        self._judge(name)
        with self._lock:
            current = self._current.get(name)
            return current in self._alive[name] and current not in self._stopped[name]

    def absent(self, name: str) -> float:
        """For how many seconds the process that has a name has been gone; 0 if it is there."""
        if self.present(name):
            return 0.0
        with self._lock:
            return time.monotonic() - self._gone_since[name]

    def current(self, name: str) -> str:
        """Which process is heard under a name; empty while there is none."""
        with self._lock:
            return self._current.get(name, "")

    def is_current(self, name: str, said: str) -> bool:
        """Whether a process is the one that has a name, alive and alone; decides nothing."""
        with self._lock:
            known = said in self._alive[name] and said not in self._stopped[name]
            return known and self._current.get(name) == said

    def hears(self, name: str, said: str) -> bool:
        """Whether what came from a process is to be taken."""
        self._judge(name)
        found = _SAID.fullmatch(said)
        instance = found[1] if found else ""
        with self._lock:
            standing = self._standing.get(name)
            if found and instance == standing:
                return self._hears_start(name, said)
            taken = bool(found) and self._is_free(name)
            if taken:
                self._standing[name], self._current[name] = instance, said
            else:
                count = self._refused[name] = self._refused.get(name, 0) + 1
        if taken:
            self._claim(name, instance)
            if standing is not None:
                self._tell("neighbour-replaced", level="warning", neighbour=name, advice=_ADVICE)
        elif count & (count - 1) == 0:
            facts: dict[str, Any] = {"neighbour": name, "count": count, "advice": _ADVICE}
            self._tell("name-claimed-twice", level="error", **facts)
        return taken

    def comes(self, name: str, said: str) -> None:
        """Take note that a process is connected."""
        with self._lock:
            known = said in self._alive[name]
            room = len(self._alive[name]) < _MOST_PROCESSES or said == self._current.get(name)
            if room and _SAID.fullmatch(said):
                self._alive[name].add(said)
        if self.hears(name, said) and not known:
            self._tell("neighbour-here", neighbour=name)

    def goes(self, name: str, said: str, *, expected: bool = False) -> None:
        """Take note that a process is gone; nobody is warned of one that said that it ended."""
        self._judge(name)
        with self._lock:
            self._alive[name].discard(said)
            left = self._of_standing(name)
            if len(left) < 2:
                self._two_since.pop(name, None)
            lost = self._current.get(name) == said
            if lost:
                self._gone_since[name] = time.monotonic()
                self._current[name] = min(left - self._stopped[name], default=said)
        if lost:
            level = "info" if expected else "warning"
            self._tell("neighbour-gone", level=level, neighbour=name)

    def told(self) -> dict[str, str]:
        """Who has which name now, by hashes of instances."""
        with self._lock:
            return {
                name: instance_hash(instance)
                for name, instance in self._standing.items()
                if self._of_standing(name)
            }

    def starts(self) -> tuple[dict[str, str], list[str]]:
        """Which process is heard under which name, and which are heard no more, by hashes."""
        for name in self._alive:
            self._judge(name)
        with self._lock:
            heard = {
                name: instance_hash(said)
                for name, said in self._current.items()
                if said in self._alive[name] and said not in self._stopped[name]
            }
            stopped = {said for those in self._stopped.values() for said in those}
        return heard, sorted(map(instance_hash, stopped))

    def _hears_start(self, name: str, said: str) -> bool:
        """Whether a process of the instance that has the name is the one to be heard."""
        if said in self._stopped[name]:
            return False
        current = self._current.get(name)
        if current != said and current is not None and current in self._alive[name]:
            return False
        self._current[name] = said
        return True

    def _judge(self, name: str) -> None:
        """Hear neither of two processes of one instance, once both are surely alive."""
        with self._lock:
            living, now = self._of_standing(name), time.monotonic()
            if len(living) < 2:
                return
            if now - self._two_since.setdefault(name, now) < _LEASES * self._grace:
                return
            new = living - self._stopped[name]
            if new:
                self._gone_since[name] = now
            self._stopped[name] |= new
        if new:
            self._tell("neighbour-runs-twice", level="error", neighbour=name, advice=_TWICE)

    def _of_standing(self, name: str) -> set[str]:
        """The living processes of the instance that has a name."""
        standing = self._standing.get(name)
        return {said for said in self._alive[name] if said.partition(".")[0] == standing}

    def _is_free(self, name: str) -> bool:
        if name not in self._standing:
            return True
        gone = not self._of_standing(name)
        return gone and time.monotonic() - self._gone_since[name] >= self._grace


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


class DrawRefused(ExchangeError):
    """A neighbour heard what this process has not sent: it must not draw any noise."""


def messages_hash(messages: Iterable[bytes]) -> str:
    """The hash of a node's messages of the first rounds, in their order."""
    found = hashlib.sha256()
    for data in messages:
        found.update(data)
    return found.hexdigest()


class OwnRounds:
    """Compares what this process has drawn with what its neighbours heard of its node.

    Parameters
    ----------
    name, process
        The node, and how this process names itself.
    limits
        The names and rounds of the run.

    Attributes
    ----------
    drawn
        How many rounds the ledger had when this process began; None where none is drawn.
    confirmed
        Who hears this process, and no round that it has not drawn.
    fault
        Why nothing may be drawn; else empty.
    """

    def __init__(self, name: str, process: str, limits: Limits) -> None:
        self._name, self._said, self._limits = name, instance_hash(process), limits
        self._count = 0
        self._hash = hashlib.sha256()
        self.drawn: int | None = None
        self.confirmed: set[str] = set()
        self.fault: DrawRefused | None = None

    def begin(self, messages: Iterable[bytes], planned: int) -> None:
        """Begin with these messages drawn, of ``planned`` rounds."""
        for t, data in enumerate(messages):
            self.add(t, data)
        self.drawn, self._limits = self._count, replace(self._limits, rounds=planned)

    def add(self, t: int, data: bytes) -> None:
        """Count a round that is about to be sent."""
        if t == self._count:
            self._count += 1
            self._hash.update(data)

    def announcement(self) -> bytes | None:
        """How many rounds were drawn by now, and the hash of their messages."""
        if self.drawn is None:
            return None
        return Drawn(count=self._count, head=self._hash.hexdigest()).to_bytes()

    def take(self, name: str, data: bytes) -> None:
        """Take what a neighbour says that it heard; refuse nonsense."""
        content = said(Heard, data, name, self._limits)
        if self._name not in content.heard:
            raise BadMessage("invalid", f"{name} must say how far it heard {self._name}.")
        heard, start = content.heard[self._name], content.starts.get(self._name)
        if self._said in content.stopped:
            self.fault = DrawRefused(
                f"{self._name} must run once; {name} hears two living processes of it: a copy of "
                "this node, such as a restored machine, was started. Neither is heard any more, "
                "and nothing more is drawn here. Stop both, and start the one with the newest "
                "files."
            )
        # While another process of this node is heard, it is for the neighbour to judge between
        # them; once this one was confirmed, it is itself who was heard since.
        elif self.drawn is None or start != self._said or name in self.confirmed:
            return
        elif heard > self.drawn:
            self.fault = DrawRefused(
                f"ledger must have every round that was sent; {name} has heard {heard} rounds of "
                f"{self._name} in this run, and the ledger has {self.drawn}: it was put back to an "
                f"older copy, or {name} is wrong. Nothing was drawn. Restore the newest ledger and "
                "messages; if they are lost, those rounds stay spent: begin another run_id, with a "
                "ledger whose budget leaves them out, and with a new file for messages."
            )
        else:
            self.confirmed.add(name)


class NeighbourLedgers:
    """How far the neighbours' ledgers are, as they said; a ledger never goes back.

    Parameters
    ----------
    run, store, limits
        The run, where to note it, and its names and rounds.
    """

    def __init__(self, run: bytes, store: MessageStore, limits: Limits) -> None:
        self._run, self._store, self._limits = run, store, limits
        self._lock = threading.Lock()
        self._known: dict[str, tuple[int, str]] = {}
        self._process: dict[str, str] = {}
        self._went_back: set[str] = set()

    def went_back(self, name: str) -> bool:
        """Whether a neighbour came back with an older ledger than it had."""
        with self._lock:
            return name in self._went_back

    def is_known(self, name: str, process: str) -> bool:
        """Whether a neighbour's process has said how far its ledger is."""
        with self._lock:
            return self._process.get(name) == process

    def take(
        self, name: str, process: str, data: bytes, heard: int, kept: tuple[int, str]
    ) -> ExchangeError | None:
        """Take what a neighbour says; return what is newly wrong with it.

        Parameters
        ----------
        name, process, data
            Who, which process of it, and what it says.
        heard, kept
            How many of its rounds had been heard when it was asked; how many of them are kept, and
            the hash of those.
        """
        content = said(Drawn, data, name, self._limits)
        count, head = content.count, content.head
        with self._lock:
            known, known_head = self._known.get(name) or self._noted(name)
            least = max(known, heard)
            # The same number of rounds has the same messages.
            other = any(
                count == number and head != found
                for number, found in ((known, known_head), kept)
                if found
            )
            self._process[name] = process
            if count >= least and not other:
                self._went_back.discard(name)
                self._known[name] = (count, head)
                # What cannot be noted is still remembered by this process.
                with contextlib.suppress(ExchangeError):
                    self._store.take_note(self._run, _note(name), data.decode("ascii"))
                return None
            new = name not in self._went_back
            self._went_back.add(name)
        sentence = (
            f"the ledger of {name} must go on from its {least} rounds of this run; it has {count}"
            f"{', others than were heard' if other else ''}: it was put back to an older copy. "
            f"{name} is not heard until it comes back with the newest."
        )
        return ExchangeError(sentence) if new else None

    def _noted(self, name: str) -> tuple[int, str]:
        with contextlib.suppress(ExchangeError):
            text = self._store.note(self._run, _note(name))
            if text is not None:
                content = noted(Drawn, text, _note(name), self._limits)
                return content.count, content.head
        return 0, ""


def _note(name: str) -> str:
    return f"ledger of {name}"
