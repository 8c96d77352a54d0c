r"""Masks that vanish in the sum: what a party sends is uniform to whoever lacks its keys.

.. math:: w_i = x_i + \sum_{j > i} s_{ij} - \sum_{j < i} s_{ji} \pmod{2^{64}}, \qquad
    \sum_i w_i = \sum_i x_i

over the members of one view, a maximal run of rounds with the same members. :math:`w_i` is the
masked vector of party i. :math:`s_{ij}`, 64 bits per coordinate, is known to i and j alone: the
keystream of ChaCha20 with nonce and block counter 0 under a key of its own for every round,

.. math:: k = \mathrm{HKDF\text{-}SHA256}(\mathrm{X25519}(i, j), \text{no salt}, \mathit{info}),

and *info* is these fields in their order, each after its length (8 bytes, as every number here
little-endian):

=============  ===================================================================================
field          bytes
=============  ===================================================================================
protocol       ``dpadmm secure sum 1``
run            the 32 bytes that every message of the view carries
view           how many losses were before it
members        SHA-256 of the ordered list of (name, certificate, public key), each with its length
colluders      tau, as agreed on
purpose        what is summed: ``training`` or ``evaluation``
i, j           numbers of the two members, the smaller one first
round          of the view, from 0
sums           SHA-256 of all sums decoded so far, in this view and before; in an evaluation
               those of the training come first
=============  ===================================================================================

A round must not be a block counter under one key: consecutive keystreams would overlap. Where two
members disagree about the members or about a past sum, their keys differ, the masks stay in the
sum, and whoever adds up sees uniform bits. The public key of a member is the one that it signed
(:mod:`dpadmm.federation.session_keys`).

:class:`KeyRing` holds the public keys of one view, as their owners signed them. A party believes a
key only after it has checked who signed it. A server adds up and has nothing to check: it hands
keys on unchanged, and takes each from its owner alone, so that nobody can replace another's.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, final

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from dpadmm.errors import ExchangeError, ParameterError
from dpadmm.federation.transport.wire import (
    Announcing,
    Limits,
    SessionKey,
    agreement_limit,
    noted,
    said,
)
from dpadmm.plain import Array, Words

_PROTOCOL: Final = b"dpadmm secure sum 1"
_ZERO_NONCE: Final = bytes(16)
_KEY_BYTES: Final = 32
_WORD: Final = np.dtype("<u8")


@dataclass(frozen=True)
class Member:
    """One of those whose masked vectors are added up.

    Parameters
    ----------
    name
        Of the node.
    certificate
        Its certificate (DER), as it is pinned.
    public_key
        Its X25519 session key, 32 bytes, whose signature was checked.
    """

    name: str
    certificate: bytes = field(repr=False)
    public_key: bytes


@dataclass(frozen=True)
class ViewFacts:
    """Public facts that every mask of a view depends on.

    Parameters
    ----------
    run
        The 32 bytes that its messages carry.
    number
        How many losses were before it.
    members
        In their order.
    colluders
        How many of them may collude with whoever adds up, as agreed on for the whole run.
    purpose
        What is summed.
    """

    run: bytes
    number: int
    members: tuple[Member, ...]
    colluders: int
    purpose: str = "training"

    @cached_property
    def members_hash(self) -> bytes:
        """SHA-256 of the ordered list of members."""
        parts = [
            part
            for member in self.members
            for part in (member.name.encode("ascii"), member.certificate, member.public_key)
        ]
        return hashlib.sha256(_fields(parts)).digest()


def mask_info(view: ViewFacts, pair: tuple[int, int], t: int, sums: bytes) -> bytes:
    """The public facts from which the key of one pair in one round is derived.

    Parameters
    ----------
    view
        Where.
    pair
        Numbers of the two members, the smaller one first.
    t
        The round of the view.
    sums
        SHA-256 of all sums decoded so far.
    """
    return _fields(
        [
            _PROTOCOL,
            view.run,
            _number(view.number),
            view.members_hash,
            _number(view.colluders),
            view.purpose.encode("ascii"),
            *map(_number, pair),
            _number(t),
            sums,
        ]
    )


def shared_secret(private: X25519PrivateKey, public: bytes) -> bytes:
    """What two members alone can compute; a public key that fixes it beforehand is refused."""
    try:
        return private.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        raise ExchangeError(
            "a public key must be 32 bytes of X25519 that leave the shared secret open; got one "
            "that makes it zero or is of another length. Nothing was sent under it."
        ) from None


@final
class Masks:
    """The masks of one member in one view.

    Parameters
    ----------
    private
        Its session key.
    view
        The public facts.
    place
        Its number among the members.
    """

    def __init__(self, private: X25519PrivateKey, view: ViewFacts, place: int) -> None:
        own = view.members[place].public_key
        if private.public_key().public_bytes_raw() != own:
            raise ParameterError(
                f"a session key must be the one that {view.members[place].name} "
                "announced; got another: put the key file back."
            )
        self._place = place
        self._view = view
        self._secrets = {
            other: shared_secret(private, member.public_key)
            for other, member in enumerate(view.members)
            if other != place
        }

    def mask(self, t: int, sums: bytes, count: int) -> Words:
        """What this member adds to its vector in a round, modulo 2^64; so many coordinates."""
        total = np.zeros(count, dtype=np.uint64)
        zeros, stream = bytes(_WORD.itemsize * count), bytearray(_WORD.itemsize * count)
        keystream = np.frombuffer(stream, dtype=_WORD)
        for other, secret in self._secrets.items():
            pair = (min(self._place, other), max(self._place, other))
            key = HKDF(
                hashes.SHA256(), _KEY_BYTES, None, mask_info(self._view, pair, t, sums)
            ).derive(secret)
            Cipher(algorithms.ChaCha20(key, _ZERO_NONCE), None).encryptor().update_into(
                zeros, stream
            )
            if self._place == pair[0]:
                total += keystream
            else:
                total -= keystream
        return total


@final
class DecodedSums:
    """A digest of all sums so far: masks vanish only where all members decoded the same.

    Where noise is not shared, it covers what all parties heard: means, or each other's messages.
    """

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, total: Words | Array) -> None:
        """Take the next one."""
        self._hash.update(total.astype(total.dtype.newbyteorder("<"), copy=False).tobytes())

    def copy(self) -> DecodedSums:
        """The same so far, to go on from."""
        other = DecodedSums()
        other._hash = self._hash.copy()
        return other

    def digest(self) -> bytes:
        """SHA-256 of all of them, in their order."""
        return self._hash.digest()


def _fields(parts: Sequence[bytes]) -> bytes:
    return b"".join(_number(len(part)) + part for part in parts)


def _number(value: int) -> bytes:
    return value.to_bytes(8, "little")


@final
class KeyRing:
    """The keys that a node has; used by several threads.

    Parameters
    ----------
    members
        The members whose keys are expected, in their order.
    fault
        Says what is wrong with a key of a member; empty if it holds. None where keys are only
        handed on.
    """

    def __init__(
        self, members: Sequence[str], fault: Callable[[str, SessionKey], str] | None = None
    ) -> None:
        self.members = tuple(members)
        self._fault = fault
        self._limits = Limits(frozenset(members))
        self._longest = agreement_limit(len(members))
        self._lock = threading.Lock()
        self._keys: dict[str, SessionKey] = {}

    def __contains__(self, name: str) -> bool:
        with self._lock:
            return name in self._keys

    @property
    def complete(self) -> bool:
        """Whether every member's key is there."""
        with self._lock:
            return len(self._keys) == len(self.members)

    def brought(self, source: str) -> bool:
        """Whether a neighbour has nothing more to bring: its own key is here, or everybody's."""
        return self.complete or source in self

    @property
    def keys(self) -> dict[str, SessionKey]:
        """The keys by name."""
        with self._lock:
            return dict(self._keys)

    def add(self, name: str, key: SessionKey) -> None:
        """Take the key of this node itself."""
        with self._lock:
            self._keys[name] = key

    def to_bytes(self) -> bytes:
        """All keys that are there, as they are said and noted."""
        return Announcing(keys=self.keys).to_bytes()

    def restore(self, note: str) -> None:
        """Take the session keys as they were noted before a restart."""
        found = noted(Announcing, note, "the session keys", self._limits)
        with self._lock:
            self._keys = dict(found.keys)

    def take(self, sender: str, data: bytes) -> list[str]:
        """Take what a neighbour hands on; return what is wrong with it, a sentence for each key."""
        content = said(Announcing, data, sender, self._limits, longest=self._longest)
        wrong = []
        for name, key in content.keys.items():
            if self._fault is None and name != sender:
                continue
            with self._lock:
                known = self._keys.get(name)
            if known is not None:
                # Whoever hands a signature on can change its form, but not what was signed.
                if known.public_key != key.public_key:
                    wrong.append(
                        f"{sender} must hand on one key of {name} for a view; it has two: the "
                        "first one stands."
                    )
                continue
            fault = "" if self._fault is None else self._fault(name, key)
            if fault:
                wrong.append(f"{sender} must hand on what {name} signed; {fault}: not counted.")
                continue
            with self._lock:
                self._keys.setdefault(name, key)
        return wrong
