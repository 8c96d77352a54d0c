r"""What a server and a party say to each other through Flower: one question, one answer a round.

Both travel as plain values of a Flower ``ConfigRecord``. Messages and means in them have the layout
of :mod:`dpadmm.federation.transport.wire`, with the run, the party and the round inside.

With shared noise the server hands on signed keys, and sees only the sum of masked vectors:

.. math:: w_i = m_i/\mathrm{step} + \mathrm{mask}_i \pmod{2^{64}}, \qquad
    \frac1N \sum_i m_i = \frac{\mathrm{step}}{N} \sum_i w_i

Keys, pins and masks are those of nodes (:mod:`dpadmm.federation.session_keys`,
:mod:`dpadmm.federation.transport.masks`). Before round 0 every party sends its signed key, and
every question brings it all of them: it believes only keys that a certificate signed which its
owner has pinned. Masks depend on all sums so far, so they vanish only where everybody was told the
same. After the last round every party signs what it was told, and hears what all signed
(:mod:`dpadmm.federation.same_sums`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Self, final

from dpadmm.errors import ExchangeError
from dpadmm.federation.session_keys import SessionKeys
from dpadmm.federation.transport.masks import DecodedSums, KeyRing, Masks
from dpadmm.federation.transport.wire import (
    LONGEST_UTTERANCE,
    Announcing,
    BadMessage,
    Comparing,
    Limits,
    said,
)
from dpadmm.plain import Array, Words, visible
from dpadmm.privacy.mechanisms import Released, release_covered
from dpadmm.privacy.sensitivity import Summation
from dpadmm.run.engine import Exchange, RunEnded

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
        if len(told["facts"]) > LONGEST_UTTERANCE:
            raise _bad("the server's question", f"facts must be at most {LONGEST_UTTERANCE} bytes")
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
    """The values by name, each of its type; nothing else."""
    if set(content) != set(kinds):
        raise _bad(what, f"it must have the values {', '.join(kinds)}, and no others")
    for name, kind in kinds.items():
        # A flag is an int, too, but no round.
        if type(content[name]) is not kind:
            raise _bad(what, f"{name} must be of the type {kind.__name__}")
    return dict(content)


def _bad(what: str, reason: str) -> BadMessage:
    return BadMessage("invalid", f"{what} must be one that can be read: {reason}.")


_SERVER: Final = "the server"


@final
class KnownSums(Exchange):
    """Hands out the means of complete rounds, and masks the vector of the next one.

    Parameters
    ----------
    totals
        The sum of the masked vectors of a round.
    complete
        How many rounds have one.
    summation
        How vectors become a sum.
    masks
        This party's.
    """

    def __init__(
        self, totals: Callable[[int], Words], complete: int, summation: Summation, masks: Masks
    ) -> None:
        self._totals, self._complete = totals, complete
        self._summation, self._masks = summation, masks
        self._decoded, self._count = DecodedSums(), 0

    def __call__(self, message: Released, t: int) -> Array:
        """The mean of round ``t``."""
        if t >= self._complete:
            raise RunEnded
        total = self._totals(t)
        self._decoded.add(total)
        self._count += 1
        return self._summation.from_words(total)[None] / self._summation.parties

    def cover(self, message: Released, t: int) -> Released:
        """Mask this party's vector."""
        # Masks depend on all sums before: none may be missing, and none may count twice.
        if self._count != t:
            raise RuntimeError(f"round {t} must be covered after {t} sums; got {self._count}.")
        vector = self._summation.to_words(message.values)
        mask = self._masks.mask(t, self._decoded.digest(), vector.size)
        return release_covered(message, vector + mask.reshape(vector.shape))


def own_key(keys: SessionKeys, name: str) -> bytes:
    """The signed key of a party, for the server to hand on."""
    return Announcing(keys={name: keys.ring.keys[name]}).to_bytes()


def masks_of(keys: SessionKeys, told: bytes) -> Masks:
    """A party's masks, from the keys that the server handed on.

    Raises
    ------
    ExchangeError
        If one is missing, or not signed by the certificate that is pinned.
    """
    for fault in keys.ring.take(_SERVER, told):
        raise ExchangeError(f"{fault} Nothing more was spent.")
    if not keys.ring.complete:
        missing = [name for name in keys.ring.members if name not in keys.ring]
        raise ExchangeError(
            f"the server must hand on the key of every party; {', '.join(missing)} is missing. "
            "Nothing more was spent."
        )
    return keys.masks()


def gathered_keys(told: dict[str, bytes]) -> bytes:
    """The session keys of all parties, as a server hands them on; each from its owner alone.

    Parameters
    ----------
    told
        What each party said, by its name.
    """
    ring = KeyRing(tuple(told))
    for name, data in told.items():
        ring.take(name, data)
        if name not in ring:
            raise ExchangeError(f"{name} must tell its key before round 0; it told none.")
    return ring.to_bytes()


def gathered_digests(told: dict[str, bytes]) -> bytes:
    """What all parties signed in the end, as a server hands it on; each from its owner alone.

    Parameters
    ----------
    told
        What each party said, by its name.
    """
    limits = Limits(frozenset(told))
    digests = {}
    for name, data in told.items():
        found = said(Comparing, data, name, limits).digests
        if name not in found:
            raise ExchangeError(f"{name} must tell what it heard in all rounds; it told nothing.")
        digests[name] = found[name]
    return Comparing(digests=digests).to_bytes()
