"""What a server and a party say to each other through Flower: one question, one answer a round.

Both travel as plain values of a Flower ``ConfigRecord``. Messages and means in them have the layout
of :mod:`dpadmm.federation.transport.wire`, with the run, the party and the round inside.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Self

from dpadmm.federation.transport.wire import BadMessage
from dpadmm.federation.transport.words import LONGEST_WORDS
from dpadmm.plain import visible

#: The name of the record in a Flower message.
RECORD: Final = "dpadmm"
_DIGEST: Final = 32
_LONGEST_NAME: Final = 200
_LONGEST_SENTENCE: Final = 1000
# Rounds are 4 bytes of a message.
_MOST_ROUNDS: Final = (1 << 32) - 1


@dataclass(frozen=True)
class Question:
    """What the server asks of every party.

    Attributes
    ----------
    run
        The 32 bytes of the agreed run.
    round
        The round whose message is wanted; the number of rounds once all are complete.
    mean
        The mean of the round before, as bytes of a message; empty in round 0.
    facts
        What the server was told of the run, for a party that was told otherwise to say where.
    keys
        Where noise is shared: the keys of all parties, or nothing to ask for a party's own.
    digests
        After the last round: what every party signed, or nothing to ask for a party's own.
    """

    run: bytes
    round: int
    mean: bytes = field(repr=False)
    facts: bytes = field(repr=False)
    keys: bytes = field(default=b"", repr=False)
    digests: bytes = field(default=b"", repr=False)

    def plain(self) -> dict[str, Any]:
        """The values of the record."""
        return asdict(self)

    @classmethod
    def read(cls, content: Mapping[str, Any]) -> Self:
        """Check what a server said, before it is believed."""
        told = _read("the server's question", content, _QUESTION)
        if len(told["run"]) != _DIGEST:
            raise _bad("the server's question", f"run must be {_DIGEST} bytes")
        if not 0 <= told["round"] <= _MOST_ROUNDS:
            raise _bad("the server's question", "round must be a number of rounds")
        if len(told["facts"]) > LONGEST_WORDS:
            raise _bad("the server's question", f"facts must be at most {LONGEST_WORDS} bytes")
        return cls(**told)


@dataclass(frozen=True)
class Answer:
    """What a party answers.

    Attributes
    ----------
    party
        Its name.
    message
        Its message of the round; empty at the end, and with a refusal.
    key
        Its signed key, where noise is shared and it was asked for.
    digest
        After the last round: the signed digest of all that it was told.
    simulated
        Its noise can be drawn again, and protects nobody.
    refusal
        Why it does not answer, in a sentence of public facts; else empty.
    again
        What stands in the way may pass: it may be asked again.
    """

    party: str
    message: bytes = field(default=b"", repr=False)
    key: bytes = field(default=b"", repr=False)
    digest: bytes = field(default=b"", repr=False)
    simulated: bool = False
    refusal: str = ""
    again: bool = False

    def plain(self) -> dict[str, Any]:
        """The values of the record."""
        return asdict(self)

    @classmethod
    def read(cls, content: Mapping[str, Any]) -> Self:
        """Check what a party said, before it is believed or printed."""
        told = _read("a party's answer", content, _ANSWER)
        told["party"] = visible(told["party"], longest=_LONGEST_NAME)
        told["refusal"] = visible(told["refusal"], longest=_LONGEST_SENTENCE)
        return cls(**told)


_QUESTION: Final = {
    "run": bytes,
    "round": int,
    "mean": bytes,
    "facts": bytes,
    "keys": bytes,
    "digests": bytes,
}
_ANSWER: Final = {
    "party": str,
    "message": bytes,
    "key": bytes,
    "digest": bytes,
    "simulated": bool,
    "refusal": str,
    "again": bool,
}


def _read(what: str, content: Mapping[str, Any], kinds: Mapping[str, type]) -> dict[str, Any]:
    """The values by their names, each of its type; nothing beside them."""
    if set(content) != set(kinds):
        raise _bad(what, f"it must have the values {', '.join(kinds)}, and no others")
    for name, kind in kinds.items():
        # A flag is an int, too, but no round.
        if type(content[name]) is not kind:
            raise _bad(what, f"{name} must be of the type {kind.__name__}")
    return dict(content)


def _bad(what: str, reason: str) -> BadMessage:
    return BadMessage("invalid", f"{what} must be one that can be read: {reason}.")
