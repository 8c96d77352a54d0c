"""The ledger of a data set: one file that keeps all spending, whatever happens to a process.

The order is: reserve (durable), compute, commit the message (durable), send. A process that dies
after reserving has released nothing, and runs the round again under the same reservation. A process
that dies after committing sends the stored bytes again. Either way a round is charged once and has
one message.

A ledger cannot detect that it was replaced by an older copy, that rows were read without it, or
that a forger with write access recomputed its hashes. If you note :attr:`SQLiteLedger.head`
elsewhere, :meth:`SQLiteLedger.verify` detects the first and the last.
"""

from __future__ import annotations

import functools
import hashlib
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Self, final

import numpy as np

from dpadmm.durable import Closable, sync_folder
from dpadmm.errors import LedgerError, ParameterError
from dpadmm.ledger.balance import STORED_TYPES, Account, RowRange, StoredMessage
from dpadmm.ledger.base import LEDGER_VERSION, ChargedData, Entry, Ledger
from dpadmm.ledger.filters import Policy
from dpadmm.ledger.storage import EntryFile, RunLock
from dpadmm.plain import Array
from dpadmm.privacy.events import Event

_TIMEOUT: Final = 30.0
#: The most characters of the name of a run.
LONGEST_NAME: Final = 200


class SQLiteLedger(Closable):
    """The spending on one data set of one owner, over all runs.

    Parameters
    ----------
    path
        A file made by :meth:`create`, on a local disk (network file systems lock unreliably).
    dataset
        The data set that the file must be about; None accepts any.
    timeout
        Seconds to wait for another process.
    read_only
        Never write.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        dataset: ChargedData | None = None,
        *,
        timeout: float = _TIMEOUT,
        read_only: bool = False,
    ) -> None:
        self._file = EntryFile(Path(path), timeout=timeout, read_only=read_only)
        try:
            self._account = Account()
            self._read_on()
            if dataset is not None:
                self._account.dataset.require(dataset)
        except BaseException:
            self._file.close()
            raise

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        dataset: ChargedData,
        policy: Policy,
        *,
        timeout: float = _TIMEOUT,
    ) -> Self:
        """Make a new ledger with nothing spent; refuse to replace a file."""
        content = {
            "version": LEDGER_VERSION,
            "dataset": asdict(dataset),
            "policy": policy.to_dict(),
            # Makes two ledgers of one data set differ, even if everything else agrees.
            "identifier": os.urandom(16).hex(),
        }
        first = Entry.after(None, "ledger", _now(), None, None, content)
        EntryFile.create(Path(path), first, timeout=timeout)
        return cls(path, timeout=timeout)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    @property
    def path(self) -> Path:
        """The file."""
        return self._file.path

    @property
    def account(self) -> Account:
        """The balance when the file was last read; :meth:`refresh` reads it again."""
        return self._account

    @property
    def dataset(self) -> ChargedData:
        """Whose rows it protects."""
        return self._account.dataset

    @property
    def policy(self) -> Policy:
        """What may be spent."""
        return self._account.policy

    @property
    def head(self) -> str:
        """Number and hash of the last entry; note it elsewhere to detect an older copy."""
        entry = self._account.head
        assert entry is not None
        return f"{entry.number}:{entry.hash}"

    @property
    def first(self) -> str:
        """The hash of the first entry, which no other ledger has."""
        with self._file.snapshot():
            return next(self._file.entries()).hash

    def holds(self, head: str) -> bool:
        """Whether the ledger still has the entry of a :attr:`head` noted earlier."""
        number = int(head.partition(":")[0])
        with self._file.snapshot():
            entry = next(self._file.entries(number - 1), None)
        return entry is not None and head == f"{entry.number}:{entry.hash}"

    def statement(self) -> str:
        """The guarantee, its filter, what is spent and what is left, in words."""
        return "\n".join(f"{heading}: {words}" for heading, words in self._account.lines())

    def refresh(self) -> Account:
        """Read what other processes added."""
        self._read_on()
        return self._account

    def check_run(
        self,
        events: Sequence[Event],
        run_id: str | None = None,
        *,
        rounds: range | None = None,
        rows: RowRange | None = None,
    ) -> None:
        """Refuse a run that does not fit as a whole, before its first round; charge nothing.

        Parameters
        ----------
        events
            The charges of the run, round by round.
        run_id
            The run whose reserved rounds are not counted again.
        rounds
            The rounds to make; by default all.
        rows
            The positions of the data set that it reads; by default all.
        """
        self._read_on()
        known = self._account.runs.get(run_id) if run_id is not None else None
        charged = {} if known is None else known.events
        asked = range(len(events)) if rounds is None else rounds
        self._account.require((events[t] for t in asked if t not in charged), rows)

    def open_run(
        self,
        run_id: str,
        fingerprint: str,
        *,
        rows_per_person: int = 1,
        rows: RowRange | None = None,
        preparation: str | None = None,
    ) -> LedgerRun:
        """Begin a run, or continue the one of that name.

        Parameters
        ----------
        run_id
            The name of the run; only one process at a time may have it open.
        fingerprint
            The hash of everything public that decides the run; it must not change.
        rows_per_person
            The number that its noise was calibrated to; it must be the policy's.
        rows
            The positions of the data set that it reads and is charged to; by default all.
        preparation
            A word for the preparation of the rows, if the fingerprint does not contain it; it must
            not change.
        """
        if not isinstance(run_id, str) or not 0 < len(run_id) <= LONGEST_NAME:
            raise ParameterError(
                f"run_id must be a text of 1 to {LONGEST_NAME} characters; got {run_id!r}."
            )
        check = functools.partial(
            self.check_parameters,
            run_id,
            fingerprint,
            rows_per_person=rows_per_person,
            rows=rows,
            preparation=preparation,
        )
        check()
        lock = RunLock(self.path, run_id)
        try:
            with self._file.transaction():
                self._read_on()
                known = self._account.runs.get(run_id)
                if known is None:
                    content: dict[str, Any] = {"fingerprint": fingerprint}
                    if rows is not None:
                        content["rows"] = list(rows)
                    if preparation is not None:
                        content["preparation"] = preparation
                    entry = self._append("run", run_id, None, content)
            if known is None:
                self._account.apply(entry)
            check()
            return LedgerRun(self, run_id, lock)
        except BaseException:
            lock.release()
            raise

    def check_parameters(
        self,
        run_id: str,
        fingerprint: str,
        *,
        rows_per_person: int = 1,
        rows: RowRange | None = None,
        preparation: str | None = None,
    ) -> None:
        """Refuse another number of rows per person, or a run with other parameters."""
        if rows is not None:
            RowRange.checked(rows, self.dataset.rows)
        if rows_per_person != self.policy.rows_per_person:
            raise LedgerError(
                f"rows_per_person must be the ledger's, {self.policy.rows_per_person}; "
                f"got {rows_per_person!r}."
            )
        known = self._account.runs.get(run_id)
        if known is None:
            return
        otherwise = None not in (known.preparation, preparation) and (
            known.preparation != preparation
        )
        if otherwise or (known.fingerprint, known.rows) != (fingerprint, rows):
            raise LedgerError(
                f"run {run_id!r} must continue with the parameters it began with, and "
                f"{len(known.events)} of its rounds are charged; they differ. Take the change "
                "back, be it of the configuration or of the release of dpadmm, or give the new run "
                "another run_id, at every party."
            )

    def amend(
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        colluders: int | None = None,
        epsilon_alone: float | None = None,
        loosen: bool = False,
    ) -> None:
        """Change the policy by a new entry; everything spent stays counted.

        The change is durable when this returns, and repeating it is harmless. Existing reservations
        stay valid; every later one must fit the new policy.

        Parameters
        ----------
        epsilon, delta, colluders, epsilon_alone
            As in :class:`~dpadmm.ledger.filters.Policy`; None leaves it as it is.
        loosen
            Allow a looser policy (:meth:`~dpadmm.ledger.filters.Policy.looser`), which is refused
            otherwise.
        """
        changes = {"epsilon": epsilon, "delta": delta}
        changes |= {"colluders": colluders, "epsilon_alone": epsilon_alone}
        entry = None
        with self._file.transaction():
            self._read_on()
            policy = self.policy.amended(**changes)
            if policy != self.policy:
                self._account.check_amendment(policy, loosen=loosen)
                content = {"policy": policy.to_dict(), "loosen": loosen}
                entry = self._append("amendment", None, None, content)
                self._file.mark_amended()
        if entry is not None:
            self._account.apply(entry)

    def verify(self, head: str | None = None) -> Account:
        """Recompute everything from the file; refuse at the first wrong row.

        Parameters
        ----------
        head
            A :attr:`head` noted earlier; the ledger must still contain that entry.
        """
        account, noted = Account(), None
        with self._file.snapshot():
            self._file.check_storage()
            for entry in self._file.entries():
                self._apply(account, entry)
                if entry.kind == "commit":
                    assert entry.run is not None
                    assert entry.round is not None
                    self.load_message(account.runs[entry.run].commits[entry.round])
                elif self._file.message(entry.number) is not None:
                    raise LedgerError(
                        f"ledger {self.path}: row {entry.number} was changed: it must have no "
                        "message."
                    )
                if head is not None and head == f"{entry.number}:{entry.hash}":
                    noted = entry
            self._check_head(account)
        if head is not None and noted is None:
            raise LedgerError(
                f"ledger {self.path} must contain the noted head {head}; it does not. It was put "
                "back to an older copy, or rewritten."
            )
        return account

    def backup(self, place: Path) -> str:
        """Write a copy of the ledger to a new file, verify it, and return its head.

        Another process may write meanwhile: the copy has all entries up to its head.
        """
        partial = place.with_name(f".{place.name}.{os.urandom(8).hex()}.partial")
        try:
            self._file.copy_to(partial)
            with SQLiteLedger(partial, read_only=True) as copy:
                copy.verify()
                head = copy.head
            try:
                # Unlike a rename, a link never replaces a file.
                os.link(partial, place)
            except OSError as error:
                raise LedgerError(
                    f"a backup must be a new file; got {place}: {error.strerror}. Name another: an "
                    "older backup may be the one that is needed."
                ) from None
        finally:
            partial.unlink(missing_ok=True)
        sync_folder(place.parent)
        return head

    def export(self, *, messages: bool = False) -> Iterator[dict[str, Any]]:
        """Every entry as plain data, for :func:`~dpadmm.ledger.balance.recompute`."""
        with self._file.snapshot():
            for entry in self._file.entries():
                row = entry.to_dict()
                if messages and entry.kind == "commit":
                    row["message"] = (self._file.message(entry.number) or b"").hex()
                yield row

    def load_message(self, stored: StoredMessage) -> Array:
        """Return a committed message, checked against its digest."""
        data = self._file.message(stored.number)
        if (
            data is None
            or len(data) != 8 * math.prod(stored.shape)
            or hashlib.sha256(data).hexdigest() != stored.sha256
        ):
            raise LedgerError(
                f"ledger {self.path}: row {stored.number} was changed: its message does not match. "
                "Nothing was released; restore the ledger."
            )
        values = np.frombuffer(data, dtype=STORED_TYPES[stored.dtype]).reshape(stored.shape)
        # A new array of the machine's own byte order.
        message: Array = values.astype(stored.dtype)
        return message

    def charge(self, run_id: str, t: int, event: Event) -> None:
        """Reserve a round once, or refuse; the reservation is durable on return."""
        if not self._is_reserved(run_id, t, event):
            self._account.filter.cost(event)  # refuse before any lock what no policy allows
            with self._file.transaction():
                self._read_on()
                entry = None
                if not self._is_reserved(run_id, t, event):
                    self._account.require([event], self._account.runs[run_id].rows)
                    entry = self._append("reservation", run_id, t, {"event": event.to_dict()})
            if entry is not None:
                self._account.apply(entry)

    def _is_reserved(self, run_id: str, t: int, event: Event) -> bool:
        known = self._account.runs[run_id].events.get(t)
        if known is not None and known != event:
            raise LedgerError(
                f"round {t} of run {run_id!r} must be charged as it was reserved, {known}; "
                f"got {event}. Give a run with other parameters a name of its own."
            )
        return known is not None

    def store(self, run_id: str, t: int, message: Array) -> None:
        """Store the one message of a reserved round; it is durable on return."""
        record = self._account.runs[run_id]
        if t not in record.reservations:
            raise LedgerError(f"round {t} must be reserved before it is committed.")
        kind = message.dtype.name
        data = message.astype(STORED_TYPES[kind]).tobytes()
        content = {
            "reservation": record.reservations[t],
            "shape": list(message.shape),
            "sha256": hashlib.sha256(data).hexdigest(),
        }
        if kind != "float64":
            content["dtype"] = kind
        with self._file.transaction():
            self._read_on()
            stored = record.commits.get(t)
            if stored is None:
                entry = self._append("commit", run_id, t, content, data)
        if stored is None:
            self._account.apply(entry)
        elif (stored.sha256, list(stored.shape), stored.dtype) != (
            content["sha256"],
            content["shape"],
            kind,
        ):
            raise LedgerError(
                f"round {t} of run {run_id!r} has a message already, and this is another; "
                "the stored one must be sent."
            )

    def _append(
        self,
        kind: str,
        run_id: str | None,
        round_: int | None,
        content: dict[str, Any],
        message: bytes | None = None,
    ) -> Entry:
        entry = Entry.after(self._account.head, kind, _now(), run_id, round_, content)
        self._file.append(entry, message)
        return entry

    def _read_on(self) -> None:
        """Apply the entries of other processes, or of an interrupted call of this one."""
        last = -1 if self._account.head is None else self._account.head.number
        with self._file.snapshot():
            for entry in self._file.entries(last):
                self._apply(self._account, entry)
            self._check_head(self._account)

    def _apply(self, account: Account, entry: Entry) -> None:
        try:
            account.apply(entry)
        except LedgerError as error:
            raise LedgerError(
                f"ledger {self.path}: {error} Nothing was released; restore the ledger."
            ) from None

    def _check_head(self, account: Account) -> None:
        """Cutting off the last entries leaves an intact chain: only the head reveals it."""
        number, digest = self._file.head()
        if account.head is None or (account.head.number, account.head.hash) != (number, digest):
            found = "none" if account.head is None else f"row {account.head.number}"
            raise LedgerError(
                f"ledger {self.path} was changed: its last row must be row {number}; {found} is. "
                "Nothing was released; restore the ledger."
            )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


@final
class LedgerRun(Ledger, Closable):
    """The ledger of a data set as one run uses it; :meth:`SQLiteLedger.open_run` makes it."""

    def __init__(self, ledger: SQLiteLedger, run_id: str, lock: RunLock) -> None:
        self._ledger = ledger
        self._run_id = run_id
        self._lock = lock

    def close(self) -> None:
        """Release the run for other processes; the ledger stays open."""
        self._lock.release()

    def reserve(self, t: int, event: Event) -> None:
        """Charge round ``t``; a reserved round keeps its reservation."""
        self._lock.require()
        self._ledger.charge(self._run_id, t, event)

    def commit(self, t: int, message: Array) -> None:
        """Store the message of a reserved round; a round never gets a second message."""
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
