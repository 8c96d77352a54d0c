"""What nodes send each other: the bytes of a message, and one schema for everything else.

A message has one fixed layout, without pickle, in two versions.

======  ====  ==============================================================
offset  size  what
======  ====  ==============================================================
0       4     ``DPAM``
4       2     version (little-endian, like every number here)
6       2     zero
8       32    the run: a hash that all parties agree on
40      4     number of the party
44      4     the round, from 0
48      12    runs, outputs, features
60      4     zero
64      8 k   the values, ``(runs, outputs, features)``: float64 in version 1, uint64 in 2
64+8k   32    sha256 of all that precedes it
======  ====  ==============================================================

The hash at the end tells a damaged message from a whole one; it proves no origin. Version 2 is for
masked vectors and their sums (:mod:`~dpadmm.federation.keys`). Any 64 bits may come, so
there is no bound to check before the sum is decoded.

Beside the messages of rounds nodes send JSON, with one schema for each kind. Whoever has a
certificate may send anything, so a schema reads it before a node believes, keeps or shows any of
it. It must be plain ASCII JSON of a bounded length and depth, with every field of its exact type
and within its range, none missing, none more, none twice. Numbers are finite, ``true`` is no
number, and ``1.0`` no count. The same schemas read what was kept: a damaged file is refused with a
sentence.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import struct
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, TypeVar

import numpy as np
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from dpadmm.errors import ExchangeError, ParameterError
from dpadmm.plain import Array, Words, visible
from dpadmm.run.engine import MESSAGE_BOUND

#: Numbers of the longest message, 8 MiB: what was tried.
MOST_NUMBERS: Final = 1 << 20
_MAGIC: Final = b"DPAM"
_DOUBLES: Final = 1
_WORDS: Final = 2
_HEADER: Final = struct.Struct("<4sHH32sIIIIII")
_DIGEST: Final = 32


class BadMessage(ExchangeError):
    """Bytes that are not the message that is due.

    Attributes
    ----------
    reason
        Its code, such as ``not-finite``.
    """

    def __init__(self, reason: str, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason


def message_size(shape: tuple[int, ...]) -> int:
    """Bytes of a message of ``(runs, outputs, features)``; longer or shorter ones are refused."""
    return _HEADER.size + 8 * int(np.prod(shape)) + _DIGEST


def check_numbers(outputs: int, features: int) -> None:
    """Refuse a run whose messages would be too long; from public facts, before any is drawn."""
    numbers = outputs * features
    if numbers > MOST_NUMBERS:
        raise ParameterError(
            f"outputs x features must be at most {MOST_NUMBERS} between nodes, for the message of "
            f"a round; got {outputs} x {features} = {numbers}. Take fewer columns, levels or "
            "classes, or train in one process by dpadmm train. Nothing was read or spent."
        )


def encode_message(run: bytes, party: int, t: int, values: Array | Words) -> bytes:
    """The message of one party in one round; its numbers decide the version."""
    version, kind = (_WORDS, "<u8") if values.dtype == np.uint64 else (_DOUBLES, "<f8")
    header = _HEADER.pack(_MAGIC, version, 0, run, party, t, *values.shape, 0)
    body = header + np.ascontiguousarray(values, dtype=kind).tobytes()
    return body + hashlib.sha256(body).digest()


def round_of(data: bytes, shape: tuple[int, ...]) -> int:
    """The round that a message names; :func:`decode_message` checks the rest."""
    _check_size(data, shape, "a message")
    return int(_HEADER.unpack_from(data)[5])


def decode_message(data: bytes, *, run: bytes, party: int, t: int, shape: tuple[int, ...]) -> Array:
    """The values of the one message that is expected; anything else is refused by name."""
    body = _checked(data, _DOUBLES, run, party, t, shape)
    values = np.frombuffer(body, dtype="<f8", offset=_HEADER.size).astype(np.float64)
    if not np.isfinite(values).all():
        raise BadMessage("not-finite", f"{_sender(party, t)} must be finite.")
    largest = float(np.abs(values).max(initial=0.0))
    if largest > MESSAGE_BOUND:
        raise BadMessage(
            "too-large",
            f"{_sender(party, t)} must be at most {MESSAGE_BOUND:g} in every entry; got "
            f"{largest:g}.",
        )
    return values.reshape(shape)


def decode_masked(data: bytes, *, run: bytes, party: int, t: int, shape: tuple[int, ...]) -> Words:
    """The masked vector of the one message that is expected; else refused, by name."""
    body = _checked(data, _WORDS, run, party, t, shape)
    vector = np.frombuffer(body, dtype="<u8", offset=_HEADER.size).astype(np.uint64)
    return vector.reshape(shape)


def _checked(
    data: bytes, version: int, run: bytes, party: int, t: int, shape: tuple[int, ...]
) -> bytes:
    """A message without the hash at its end, once its header is right."""
    sender = _sender(party, t)
    _check_size(data, shape, sender)
    body, digest = data[:-_DIGEST], data[-_DIGEST:]
    if hashlib.sha256(body).digest() != digest:
        sentence = f"{sender} is damaged: its hash does not match. Ask for it again."
        raise BadMessage("damaged", sentence)
    magic, its_version, _, its_run, its_party, its_round, *its_shape, _ = _HEADER.unpack_from(body)
    expected = (_MAGIC, version, run, party, t, tuple(shape))
    got = (magic, its_version, its_run, its_party, its_round, tuple(its_shape))
    words = ("format", "version", "run", "party", "round", "shape")
    for word, want, have in zip(words, expected, got, strict=True):
        if want != have:
            sentence = f"{sender} must have the {word} {want!r}; got {have!r}."
            raise BadMessage(f"wrong-{word}", sentence)
    return body


def _sender(party: int, t: int) -> str:
    return f"the message of party {party} for round {t}"


def _check_size(data: bytes, shape: tuple[int, ...], what: str) -> None:
    size = message_size(shape)
    if len(data) != size:
        raise BadMessage("wrong-size", f"{what} must have {size} bytes; got {len(data)}.")


#: Bytes of anything that a node says, but for consents.
LONGEST_UTTERANCE: Final = 1 << 20
#: Bytes of the facts that all nodes must share; the rest is for what surrounds them.
LONGEST_FACTS: Final = LONGEST_UTTERANCE - (1 << 10)
#: Bytes of one consent: a signature and a chain of certificates.
LONGEST_CONSENT: Final = 1 << 14
_DEEPEST: Final = 32
# Rounds are 4 bytes of a message.
_MOST_ROUNDS: Final = (1 << 32) - 1
_CERTIFICATES: Final = 4
_MOST_STOPPED: Final = 1 << 14
#: Names in what a node shares of its status; further ones are left out.
MOST_WAITED_FOR: Final = 20
# Names, quotes and commas around a consent.
_AROUND: Final = 256
_HEX: Final = r"^[0-9a-f]{%d}$"
_BASE64: Final = r"^[A-Za-z0-9+/]*={0,2}$"


def agreement_limit(nodes: int) -> int:
    """Bytes of the longest agreement message among ``nodes`` nodes."""
    return LONGEST_UTTERANCE + nodes * LONGEST_CONSENT


@dataclass(frozen=True)
class Limits:
    """The names and rounds of a run; what names others is refused.

    Parameters
    ----------
    nodes
        All nodes of the run; None for any name that a node may have.
    rounds
        Its rounds.
    """

    nodes: frozenset[str] | None = None
    rounds: int = _MOST_ROUNDS


def _known(name: str, info: ValidationInfo) -> str:
    nodes = (info.context or Limits()).nodes
    if nodes is not None and name not in nodes:
        raise ValueError("must be a node of the run")
    return name


def _within(count: int, info: ValidationInfo) -> int:
    rounds = (info.context or Limits()).rounds
    if count > rounds:
        raise ValueError(f"must be at most {rounds}, the rounds of the run")
    return count


#: Whatever means something in a key of Zenoh (/ * $ ? # @), in a path or in a shell stays out.
NAME_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"
NodeName = Annotated[str, Field(pattern=NAME_PATTERN), AfterValidator(_known)]
_LINK: Final = "/"


def link_of(one: str, other: str) -> str:
    """How a link is named: by its ends, which have no such sign in their names."""
    return _LINK.join(sorted((one, other)))


def ends_of(lost: str) -> tuple[str, ...]:
    """The two ends of a link that is lost; nothing where a node is."""
    return tuple(lost.split(_LINK)) if _LINK in lost else ()


def lost_words(lost: str) -> str:
    """What is lost, in words."""
    return f"the link between {' and '.join(ends_of(lost))}" if ends_of(lost) else lost


def _known_loss(lost: str, info: ValidationInfo) -> str:
    """A node of the run, a link between two, or nothing."""
    ends = ends_of(lost)
    if ends and (len(ends) != 2 or ends[0] >= ends[1]):
        raise ValueError("must be a node, or the two ends of a link in their order")
    for name in ends or ([lost] if lost else []):
        _checked_name(name, info)
    return lost


def _known_question(question: str, info: ValidationInfo) -> str:
    who, sign, whom = question.partition(">")
    if not sign or who == whom:
        raise ValueError("must be who misses whom")
    for name in (who, whom):
        _checked_name(name, info)
    return question


def _checked_name(name: str, info: ValidationInfo) -> None:
    if re.fullmatch(NAME_PATTERN, name) is None:
        raise ValueError("must be a node of the run")
    _known(name, info)


Loss = Annotated[str, Field(min_length=1), AfterValidator(_known_loss)]
Question = Annotated[str, AfterValidator(_known_question)]
# Seconds since 1970, for as long as anybody cares.
Count = Annotated[int, Field(ge=0, lt=1 << 53)]
Rounds = Annotated[int, Field(ge=0), AfterValidator(_within)]
Base64 = Annotated[str, Field(pattern=_BASE64, max_length=LONGEST_CONSENT)]
Sha256 = Annotated[str, Field(pattern=_HEX % 64)]
X25519Key = Annotated[str, Field(pattern=_HEX % 64)]
InstanceHash = Annotated[str, Field(pattern=_HEX % 32)]


class Utterance(BaseModel):
    """A JSON message, of exact types and without further fields."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    def to_bytes(self) -> bytes:
        """The bytes that are sent, without fields that have their default."""
        content = self.model_dump(exclude_defaults=True)
        return json.dumps(content, allow_nan=False).encode("ascii")


class Consent(Utterance):
    """A node's consent to a run: see :mod:`dpadmm.federation.agreement`.

    Parameters
    ----------
    certificates
        Of the node, and those between it and the authority; DER in base64. None without TLS.
    signature
        By the key of the first; base64.
    """

    certificates: Annotated[list[Base64], Field(max_length=_CERTIFICATES)]
    signature: Base64

    @model_validator(mode="after")
    def _check(self) -> Consent:
        # Whoever hands it on may have added to it: what honest nodes send must stay bounded.
        if len(self.signature) + sum(map(len, self.certificates)) > LONGEST_CONSENT - _AROUND:
            raise ValueError(f"must be at most {LONGEST_CONSENT} bytes")
        return self


class Agreeing(Utterance):
    """A node's facts, and the consents that it has.

    Parameters
    ----------
    dpadmm
        Its version; shown, never compared.
    facts
        What must be the same everywhere.
    consents
        Its own and those that were handed on to it, by name.
    names
        Which process it hears under which name, by hashes.
    """

    dpadmm: Annotated[str, Field(pattern=r"^[0-9A-Za-z.+-]{1,40}$")]
    facts: dict[str, Any]
    consents: dict[NodeName, Consent]
    names: dict[NodeName, InstanceHash]


class Seeking(Utterance):
    """Who misses whom, and who was heard: see :mod:`dpadmm.federation.search`.

    Parameters
    ----------
    asked, answered
        The latest question of one node for another that is known, and the latest that the other
        has answered.
    """

    asked: dict[Question, Count]
    answered: dict[Question, Count]


class Departing(Utterance):
    """Whom a node goes on without, and how far it knows everybody to be.

    Parameters
    ----------
    lost
        Who is left out; or the two ends of a link.
    sent
        How many rounds each has sent.
    summed
        How many sums each has decoded; left out where messages are seen one by one.
    """

    lost: Loss
    sent: dict[NodeName, Rounds]
    summed: dict[NodeName, Rounds] = {}


class Frozen(Utterance):
    """What a node notes when it stops for good: for whose loss, and how far it was."""

    lost: Loss
    sent: Rounds
    summed: Rounds = 0


class Decided(Utterance):
    """What a node notes once it knows where all others stopped."""

    lost: Loss
    kept: Rounds
    furthest: Rounds

    @model_validator(mode="after")
    def _check(self) -> Decided:
        if self.kept > self.furthest:
            raise ValueError("kept must be at most furthest")
        return self


class SessionKey(Utterance):
    """A node's public session key: see :mod:`dpadmm.federation.keys`.

    Parameters
    ----------
    certificate
        Of the node; DER in base64.
    public_key
        Its X25519 key; hex.
    signature
        Of the two and what they are for, by the key of the certificate; base64.
    """

    certificate: Base64
    public_key: X25519Key
    signature: Base64

    @model_validator(mode="after")
    def _check(self) -> SessionKey:
        if len(self.signature) + len(self.certificate) > LONGEST_CONSENT - _AROUND:
            raise ValueError(f"must be at most {LONGEST_CONSENT} bytes")
        return self


class Announcing(Utterance):
    """The session keys that a node has: its own, and those that were handed on to it."""

    keys: dict[NodeName, SessionKey]


class SumsDigest(Utterance):
    """What a party heard in all rounds: see :mod:`dpadmm.federation.same_sums`.

    Parameters
    ----------
    rounds
        How many rounds it has.
    sha256
        Of all their sums, or means.
    consent
        Its signature of the two and what they are of, with its certificates.
    """

    rounds: Rounds
    sha256: Sha256
    consent: Consent


class Comparing(Utterance):
    """The digests of a run that a node has: its own, and those that were handed on to it."""

    digests: dict[NodeName, SumsDigest]


class Ending(Utterance):
    """How many rounds a node completed, and a hash of what each was heard to say in them.

    ``lost`` says for whose loss it ended early.
    """

    rounds: Rounds
    heard: dict[NodeName, Sha256]
    lost: Annotated[str, AfterValidator(_known_loss)] = ""


class Heard(Utterance):
    """How far a node heard each neighbour, and which processes it hears, or no longer hears."""

    heard: dict[NodeName, Rounds]
    starts: dict[NodeName, InstanceHash]
    stopped: Annotated[list[InstanceHash], Field(max_length=_MOST_STOPPED)]


class Drawn(Utterance):
    """How many rounds of this run a node's ledger has, and the hash of their messages."""

    count: Rounds
    head: Sha256


class Standing(Utterance):
    """A node's status, as it says itself: see :mod:`dpadmm.federation.watcher`.

    Parameters
    ----------
    state
        As in its status file.
    round
        Its complete rounds.
    waiting
        Whom it waits for.
    """

    state: Literal["starting", "running", "serving"]
    round: Rounds
    waiting: Annotated[list[NodeName], Field(max_length=MOST_WAITED_FOR)]


AnyUtterance = TypeVar("AnyUtterance", bound=Utterance)


def said(
    kind: type[AnyUtterance],
    data: bytes,
    sender: str,
    limits: Limits | None = None,
    *,
    longest: int = LONGEST_UTTERANCE,
) -> AnyUtterance:
    """Read what a neighbour said.

    Raises
    ------
    BadMessage
        If it is not of that kind; the sentence names the sender, the place and the constraint.
    """
    try:
        if len(data) > longest:
            raise ValueError(f"must be at most {longest} bytes; got {len(data)}")
        return kind.model_validate(_strict_json(data), context=limits)
    except (ValueError, RecursionError) as error:
        sentence = f"{sender} must send what can be read: {_reason(error)}."
        raise BadMessage("invalid", sentence) from None


def noted(
    kind: type[AnyUtterance], text: str, what: str, limits: Limits | None = None
) -> AnyUtterance:
    """Read what this node kept.

    Raises
    ------
    ExchangeError
        If that is damaged, or of another version.
    """
    try:
        return kind.model_validate(_strict_json(text.encode()), context=limits)
    except (ValueError, RecursionError) as error:
        raise ExchangeError(
            f"messages must be a file as a node of this version writes it; its note of {what} is "
            f"not: {_reason(error)}. Put the file back from a copy, or move it away and choose "
            "another run_id at every node: what was spent stays in the ledger."
        ) from None


def _strict_json(data: bytes) -> Any:
    content = json.loads(
        data.decode("ascii"),
        parse_float=_finite,
        parse_constant=_no_constant,
        object_pairs_hook=_once,
    )
    if _deeper(content, _DEEPEST):
        raise ValueError(f"must be at most {_DEEPEST} levels deep")
    return content


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("numbers must be finite")
    return number


def _no_constant(text: str) -> float:
    raise ValueError("numbers must be finite")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) != len(pairs):
        raise ValueError("a field must be there once")
    return content


def _deeper(value: Any, levels: int) -> bool:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels == 0 or any(
        _deeper(item, levels - 1) for item in inside if isinstance(item, (dict, list))
    )


def _reason(error: Exception) -> str:
    """Say what is wrong; show nothing of what was sent but a safe name of its place."""
    if isinstance(error, ValidationError):
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
        place = ".".join(str(step) for step in first["loc"])
        field = f"the field {visible(place, longest=80)!r}" if place else "the whole"
        match first["type"]:
            case "missing":
                return f"{field} is missing: it may be of another version of dpadmm"
            case "extra_forbidden":
                return f"{field} is not known: it may be of another version of dpadmm"
        words = first["msg"].removeprefix("Value error, ")
        return f"{field}: {words[:1].lower()}{words[1:]}"
    if isinstance(error, (json.JSONDecodeError, UnicodeDecodeError, RecursionError)):
        return "it must be JSON in ASCII"
    return visible(str(error), longest=120)
