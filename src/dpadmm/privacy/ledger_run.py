"""One run's hold on the ledger of a data set."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, final

from dpadmm.errors import LedgerError
from dpadmm.privacy.events import Event
from dpadmm.privacy.ledger import Array, Ledger

if TYPE_CHECKING:
    from dpadmm.privacy.sqlite_ledger import SQLiteLedger

__all__ = ["LedgerRun", "RunLock"]


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
            handle = os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise LedgerError(
                f"run {self._run_id!r} must be locked by a file beside the ledger; "
                f"{self._path} cannot be made: {error.strerror}. Nothing was released."
            ) from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            raise LedgerError(
                f"run {self._run_id!r} must be open in one process at a time; another has it. Wait "
                "until that ends, or give this run a name of its own."
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


@final
class LedgerRun(Ledger):
    """One run's view of a data set's ledger; made by :meth:`SQLiteLedger.open_run`."""

    def __init__(self, ledger: SQLiteLedger, run_id: str, lock: RunLock) -> None:
        self._ledger = ledger
        self._run_id = run_id
        self._lock = lock

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let another process have the run; the ledger stays open."""
        self._lock.release()

    def reserve(self, t: int, event: Event) -> None:
        """Charge round ``t``; a round that was reserved before keeps its reservation."""
        self._lock.require()
        self._ledger.charge(self._run_id, t, event)

    def commit(self, t: int, message: Array) -> None:
        """Store the message of a reserved round; a round has one message for ever."""
        self._lock.require()
        self._ledger.store(self._run_id, t, message)

    def committed(self, t: int) -> Array | None:
        """The stored message of round ``t``, if it was committed."""
        stored = self._ledger.account.runs[self._run_id].commits.get(t)
        return None if stored is None else self._ledger.load_message(stored)

    def resume(self, events: Sequence[Event], last: Array) -> None:
        """Agree with a checkpoint, or refuse: the ledger knows every round that was ever sent."""
        record = self._ledger.account.runs[self._run_id]
        for t, event in enumerate(events):
            if record.events.get(t) != event or t not in record.commits:
                raise LedgerError(
                    f"a checkpoint must not be ahead of the ledger {self._ledger.path}, which "
                    f"lacks its round {t}: the ledger was put back to an older copy, or the "
                    "checkpoint is another run's. Restore the ledger, or remove the checkpoint."
                )
        if events:
            stored = self.committed(len(events) - 1)
            if stored is None or stored.tobytes() != last.tobytes():
                raise LedgerError(
                    f"a checkpoint must hold the messages of the ledger {self._ledger.path}; "
                    f"round {len(events) - 1} differs. Remove the checkpoint."
                )

    @property
    def events(self) -> tuple[Event, ...]:
        """What this run was charged, in the order of its rounds."""
        events = self._ledger.account.runs[self._run_id].events
        return tuple(events[t] for t in sorted(events))
