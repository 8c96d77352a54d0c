"""The rows of a ledger: no file, no clock, no lock.

A ledger is a sequence of entries, each hashed together with the hash of the one before:

* ``ledger``, the first: the data set, its owner and the policy;
* ``amendment``: the policy from here on, and whether its owner allowed it to be looser;
* ``run``: a run was opened, with a fingerprint of everything public that decides it;
* ``reservation``: a round of a run was charged with an event;
* ``commit``: the message of a reserved round, by shape and digest; its bytes are kept beside it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any, Final

from dpadmm.errors import LedgerError, ParameterError, positive_integer
from dpadmm.plain import canonical_json

LEDGER_VERSION: Final = 1
#: Of a file with an amendment: a release that does not know them refuses it for its version.
AMENDED_VERSION: Final = 2
_NO_HASH: Final = "0" * 64


@dataclass(frozen=True)
class ChargedData:
    """Whose rows are protected; a ledger belongs to one data set of one owner.

    Parameters
    ----------
    name, owner
        Of the data set, and of the party that holds it.
    rows
        Their number, which is public.
    schema_hash
        The hash of the public schema that encodes them; None if there is none to compare.
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
                    "of every owner has a ledger of its own: name the right one."
                )


@dataclass(frozen=True)
class Entry:
    """One row; ``content`` is canonical JSON."""

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
        """Whether its hash continues the chain."""
        fields = (self.number, self.kind, self.time, self.run, self.round, self.content)
        return self.hash == _chain(previous, *fields)

    def to_dict(self) -> dict[str, Any]:
        """Plain data that :meth:`from_dict` turns back into the same entry."""
        return {**asdict(self), "content": json.loads(self.content)}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Entry:
        """Rebuild an entry; other fields, such as a message's bytes, are left aside."""
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
