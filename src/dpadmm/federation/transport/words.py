"""What nodes say to each other beside the messages of rounds: one schema for each kind.

Whoever has a certificate may say anything. Nothing of it is believed, kept or shown before it is
read here: plain ASCII JSON of a bounded length and depth, every field of its exact type and within
its range, none missing, none more, none twice; numbers are finite, ``true`` is no number, and
``1.0`` no count. What was kept is read by the same schemas: a damaged file ends in a sentence.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from dpadmm.errors import ExchangeError
from dpadmm.federation.transport.wire import BadMessage
from dpadmm.plain import visible

#: Bytes of anything that is said, but for consents.
LONGEST_WORDS: Final = 1 << 20
#: Bytes of what all nodes must have been told alike; the rest is for what is said around it.
LONGEST_FACTS: Final = LONGEST_WORDS - (1 << 10)
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
    """Bytes of the longest agreement message of so many nodes."""
    return LONGEST_WORDS + nodes * LONGEST_CONSENT


@dataclass(frozen=True)
class Limits:
    """What names and rounds there are in a run; all that is said about others is refused.

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
Rounds = Annotated[int, Field(ge=0), AfterValidator(_within)]
Base64 = Annotated[str, Field(pattern=_BASE64, max_length=LONGEST_CONSENT)]
Sha256 = Annotated[str, Field(pattern=_HEX % 64)]
X25519Key = Annotated[str, Field(pattern=_HEX % 64)]
InstanceHash = Annotated[str, Field(pattern=_HEX % 32)]


class Utterance(BaseModel):
    """Something said, of exact types and without anything more."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    def to_bytes(self) -> bytes:
        """As it is sent; what is as it goes without saying is left out."""
        content = self.model_dump(exclude_defaults=True)
        return json.dumps(content, allow_nan=False).encode("ascii")


class Consent(Utterance):
    """That a node agrees to a run: see :mod:`dpadmm.federation.agreement`.

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
    """What a node was told, and whose consents it has.

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


class Departing(Utterance):
    """Without whom a node goes on, and how far it knows everybody to be.

    Parameters
    ----------
    lost
        Who is left out.
    sent
        How many rounds each has sent.
    summed
        How many sums each has decoded; left out where messages are seen one by one.
    """

    lost: NodeName
    sent: dict[NodeName, Rounds]
    summed: dict[NodeName, Rounds] = {}


class Frozen(Utterance):
    """What a node notes when it stops for good: for whose loss, and how far it was."""

    lost: NodeName
    sent: Rounds
    summed: Rounds = 0


class Decided(Utterance):
    """What a node notes once it knows where all others stopped."""

    lost: NodeName
    kept: Rounds
    furthest: Rounds

    @model_validator(mode="after")
    def _check(self) -> Decided:
        if self.kept > self.furthest:
            raise ValueError("kept must be at most furthest")
        return self


class StretchKey(Utterance):
    """A node's public key of a stretch: see :mod:`dpadmm.federation.stretch_keys`.

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
    def _check(self) -> StretchKey:
        if len(self.signature) + len(self.certificate) > LONGEST_CONSENT - _AROUND:
            raise ValueError(f"must be at most {LONGEST_CONSENT} bytes")
        return self


class Announcing(Utterance):
    """The keys of a stretch that a node has: its own, and those that were handed on to it."""

    keys: dict[NodeName, StretchKey]


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
    """How many rounds a node completed, and a hash of what each was heard to say in them."""

    rounds: Rounds
    heard: dict[NodeName, Sha256]


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
    """How a node gets on, as it says itself: see :mod:`dpadmm.federation.hearsay`.

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


AnyWords = TypeVar("AnyWords", bound=Utterance)


def said(
    kind: type[AnyWords],
    data: bytes,
    sender: str,
    limits: Limits | None = None,
    *,
    longest: int = LONGEST_WORDS,
) -> AnyWords:
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


def noted(kind: type[AnyWords], text: str, what: str, limits: Limits | None = None) -> AnyWords:
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
    """Say what is wrong; of what was sent no more than a place that is safe to show."""
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
