"""At most one process has a run of a ledger."""

from __future__ import annotations

import fcntl
import hashlib
import os
from pathlib import Path

from dpadmm.errors import LedgerError, passing


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
