"""The interface of a ledger, and the entries of a durable one.

A party reserves every release before it reads a row, and commits it before it sends the message.
Nothing here knows a file, a clock or a lock.

A ledger is a sequence of entries, each hashed together with the hash of the entry before:

* ``ledger``, the first: the data set, its owner and the policy;
* ``amendment``: the policy from here on, and whether the owner allowed it to be looser;
* ``run``: a run was opened, with a fingerprint of everything public that decides it;
* ``reservation``: a round of a run was charged with an event;
* ``commit``: shape and digest of the message of a reserved round; its bytes are stored beside it.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from dpadmm.errors import LedgerError, ParameterError, positive_integer
from dpadmm.plain import Array, canonical_json
from dpadmm.privacy.events import Event


class Ledger(ABC):
    """Records the spending of one party on one data set, in the order reserve, commit, send."""

    @abstractmethod
    def reserve(self, t: int, event: Event) -> None:
        """Charge round ``t``, or refuse; called before a row is read. Repeating it is harmless."""

    @abstractmethod
    def commit(self, t: int, message: Array) -> None:
        """Store the message of a reserved round; called before it leaves the party."""

    @abstractmethod
    def committed(self, t: int) -> Array | None:
        """The stored message of round ``t``, if it was committed: it is sent again as it is."""

    @abstractmethod
    def resume(self, events: Sequence[Event], last: Array) -> None:
        """Agree with a checkpoint taken after these rounds, the last message being ``last``."""

    @property
    @abstractmethod
    def events(self) -> tuple[Event, ...]:
        """What this run was charged, in the order of its rounds."""


LEDGER_VERSION: Final = 1
#: The version of a file with an amendment; older releases of dpadmm refuse it.
AMENDED_VERSION: Final = 2
_NO_HASH: Final = "0" * 64


@dataclass(frozen=True)
class ChargedData:
    """The data set whose rows are protected; a ledger belongs to one data set of one owner.

    Parameters
    ----------
    name, owner
        Of the data set, and of the party that holds it.
    rows
        The public number of rows.
    schema_hash
        The hash of the public schema that encodes the rows; None if there is none to compare.
    """

    name: str
    owner: str
    rows: int
    schema_hash: str | None = None

    def __post_init__(self) -> None:
        for parameter in ("name", "owner"):
            value = getattr(self, parameter)
            if not isinstance(value, str) or not value.strip():
                raise ParameterError(f"{parameter} must be a word or more; got {value!r}.")
        object.__setattr__(self, "rows", positive_integer("rows", self.rows))

    def require(self, other: ChargedData) -> None:
        """Refuse another data set than this one."""
        for parameter in ("name", "owner", "rows", "schema_hash"):
            mine, theirs = getattr(self, parameter), getattr(other, parameter)
            if mine != theirs and not (parameter == "schema_hash" and None in (mine, theirs)):
                words = {"name": "name of the data set", "rows": "number of rows"}.get(
                    parameter, parameter
                )
                raise LedgerError(
                    f"the {words} must be the ledger's, {mine!r}; got {theirs!r}. Every data set "
                    "of every owner has its own ledger: name the right one."
                )


@dataclass(frozen=True)
class Entry:
    """One entry; ``content`` is canonical JSON."""

    number: int
    kind: str
    time: str
    run: str | None
    round: int | None
    content: str
    hash: str

    @classmethod
    def after(
        cls,
        previous: Entry | None,
        kind: str,
        time: str,
        run: str | None,
        round_: int | None,
        content: dict[str, Any],
    ) -> Entry:
        """The entry that continues the chain."""
        number = 0 if previous is None else previous.number + 1
        text = canonical_json(content)
        fields = (number, kind, time, run, round_, text)
        return cls(*fields, hash=_chain(previous, *fields))

    def follows(self, previous: Entry | None) -> bool:
        """Whether the hash continues the chain."""
        fields = (self.number, self.kind, self.time, self.run, self.round, self.content)
        return self.hash == _chain(previous, *fields)

    def to_dict(self) -> dict[str, Any]:
        """Plain data that :meth:`from_dict` turns back into the same entry."""
        return {**asdict(self), "content": json.loads(self.content)}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Entry:
        """Rebuild an entry; ignore other fields, such as the bytes of a message."""
        names = ("number", "kind", "time", "run", "round", "hash")
        if not isinstance(data, dict) or not {*names, "content"} <= data.keys():
            raise LedgerError(f"an entry must have the fields {[*names, 'content']}; got {data!r}.")
        return cls(content=canonical_json(data["content"]), **{name: data[name] for name in names})


def _chain(
    previous: Entry | None,
    number: int,
    kind: str,
    time: str,
    run: str | None,
    round_: int | None,
    content: str,
) -> str:
    before = _NO_HASH if previous is None else previous.hash
    return hashlib.sha256(
        canonical_json([before, number, kind, time, run, round_, content]).encode()
    ).hexdigest()
