r"""Session keys, and the masks that they make: what a party sends is uniform to others.

*Masks* vanish in the sum:

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
purpose        what is summed: ``training``, ``evaluation`` or ``rehearsal``
i, j           numbers of the two members, the smaller one first
round          of the view, from 0
sums           SHA-256 of all sums decoded so far, in this view and before; in an evaluation
               those of the training come first
=============  ===================================================================================

A round must not be a block counter under one key: consecutive keystreams would overlap. Where two
members disagree about the members or about a past sum, their keys differ, the masks stay in the
sum, and whoever adds up sees uniform bits. The public key of a member is the one that it signed.

*Session keys* are made anew for every view, signed by their owners and destroyed at its end. Node i
signs its X25519 key of a view by the key of its certificate,

.. code-block:: text

    dpadmm stretch key 1\n<run, 64 hex digits>\n<view>\n<name of i>\n<key, 64 hex digits>\n

(``stretch`` is the old word for a view, and stays in what is signed and kept.) The run is that of
the view, whose 32 bytes all its messages carry. A party believes a key only if it comes with the
certificate whose sha256 the party's owner has pinned under that name, and if that certificate
signed it. So no server and no authority can replace a key or a party, and a key of another run or
view is refused.

A node writes the private key durably before it announces the public one, to a file that only its
owner may read, apart from the ledger and the messages. All messages of a view are stored before
they are sent, so that only new ones need the key: the node destroys it when there are none to come.
A node that lost its key in the midst of a view draws nothing more in it.

One mask must never cover two draws of noise. So the file of the key also counts the rounds that
were sent under it, each before it leaves. If the ledger has fewer, because it and all else was put
back to an older copy, the node does not draw. Do not keep copies of that file: whoever puts it back
as well removes that memory, and then only the neighbours' is left.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final, final

import numpy as np
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding

from dpadmm.durable import FileRefusal, parse_json, read_regular, written_whole
from dpadmm.errors import ExchangeError, ParameterError
from dpadmm.federation.agreement import Disagreement
from dpadmm.federation.identity import (
    from_base64,
    load_certificates,
    load_signing_key,
    sign,
    to_base64,
    verify,
)
from dpadmm.federation.recovery import View
from dpadmm.federation.transport.mailbox import KeyRing
from dpadmm.federation.transport.session import Security
from dpadmm.federation.transport.store import DrawRefused, MessageStore
from dpadmm.federation.transport.wire import (
    Consent,
    SessionKey,
    noted,
)
from dpadmm.plain import Array, Words
from dpadmm.privacy.mechanisms import Released, release_covered
from dpadmm.privacy.sensitivity import Summation

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
        The public facts.
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
        """What this member adds to its vector of ``count`` coordinates in a round, modulo 2^64."""
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

    def cover(self, message: Released, summation: Summation, t: int, sums: bytes) -> Released:
        """Mask this member's message of a round: what is committed and sent in its place."""
        vector = summation.to_words(message.values)
        mask = self.mask(t, sums, vector.size)
        return release_covered(message, vector + mask.reshape(vector.shape))


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


_KEY_VERSION: Final = 1
# Names of notes in the file of messages: they keep the old word.
_OWN: Final = "own stretch key"
_ALL: Final = "stretch keys"
# A line, and a byte for every round.
_LARGEST: Final = 1 << 24
_SENT: Final = b"."


def key_text(run: bytes, view: int, name: str, public_key: bytes) -> bytes:
    """What a node signs to announce its session key of a view."""
    return (
        f"dpadmm stretch key {_KEY_VERSION}\n{run.hex()}\n{view}\n{name}\n{public_key.hex()}\n"
    ).encode("ascii")


def check_same(consents: Mapping[str, Consent], name: str, own: str | None) -> None:
    """Refuse to go on by another certificate than a party agreed with: the others count only that.

    Parameters
    ----------
    consents
        Of all nodes of a run.
    name, own
        This party, and the sha256 of its certificate now.
    """
    for text in consents[name].certificates[:1]:
        found = hashlib.sha256(from_base64(text)).hexdigest()
        if found != own:
            raise Disagreement(
                f"certificate under [certificates] must be the one by which {name} agreed to this "
                f"run, {found}; it is {own}. Noise is shared, and the others count no key of "
                "another: name that one until the run ends. Nothing more was spent."
            )


def check_pinned(consents: Mapping[str, Consent], pins: Mapping[str, str]) -> None:
    """Refuse parties that agreed with a certificate other than the pinned one.

    Parameters
    ----------
    consents
        Of all nodes of a run.
    pins
        The sha256 of certificates, by name; of other nodes nothing is known.
    """
    for name in sorted(set(consents) & set(pins)):
        shown = [from_base64(text) for text in consents[name].certificates[:1]]
        found = hashlib.sha256(*shown).hexdigest()
        if found != pins[name]:
            raise Disagreement(
                f"the certificate of {name} must be the one that [pins] has, {pins[name]}; it "
                f"agreed by {found}. Ask its owner by telephone which one is right. Nothing more "
                "was spent."
            )


@final
class KeyFile:
    """The private session key of one view, on the owner's disk.

    Parameters
    ----------
    path
        Of the file; private to its owner.
    run, view
        What the key is for.
    """

    def __init__(self, path: Path, run: bytes, view: int) -> None:
        self.path = path
        # The file keeps the old word for a view.
        self._whose = {"version": _KEY_VERSION, "run": run.hex(), "stretch": view}

    def load(self) -> X25519PrivateKey | None:
        """The key, if there is one; a damaged file, or another's, is none."""
        try:
            content = parse_json(self._lines()[0])
            if {name: content.pop(name) for name in self._whose} != self._whose:
                return None
            return X25519PrivateKey.from_private_bytes(bytes.fromhex(content["key"]))
        except (FileRefusal, ValueError, KeyError, TypeError, AttributeError):
            return None

    def sent(self) -> int:
        """How many rounds were sent under the key."""
        try:
            return len(self._lines()[1])
        except FileRefusal:
            return 0

    def mark_sent(self) -> None:
        """Take note that the next round is about to be sent; durable when it returns."""
        try:
            handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        except FileNotFoundError:
            return  # destroyed: nothing new goes out under it
        try:
            os.write(handle, _SENT)
            os.fsync(handle)
        finally:
            os.close(handle)

    def _lines(self) -> tuple[bytes, bytes]:
        first, _, rest = read_regular(self.path, largest=_LARGEST).partition(b"\n")
        return first, rest

    def make(self) -> X25519PrivateKey:
        """Make a key; durable when it returns, and never in place of one that is there."""
        private = X25519PrivateKey.generate()
        content = self._whose | {"key": private.private_bytes_raw().hex()}
        with written_whole(self.path, "a session key", private=True, new=True) as file:
            file.write(json.dumps(content).encode("ascii") + b"\n")
        return private

    def destroy(self) -> None:
        """Write over it and remove it; harmless where there is none."""
        try:
            with open(self.path, "r+b") as file:
                file.write(bytes(os.fstat(file.fileno()).st_size))
                file.flush()
                os.fsync(file.fileno())
            self.path.unlink()
        except FileNotFoundError:
            return


@final
class SessionKeys:
    """One party's part in the session keys of one view.

    Parameters
    ----------
    name
        The party.
    view
        The run of the view; its algorithm sums masked vectors.
    security, pins
        The party's certificate and key; the sha256 of every other party's certificate, by name, as
        its owner has pinned them.
    store, folder
        Where public keys are noted, and where the private one is kept.

    Attributes
    ----------
    ring
        The public keys that are known.
    path
        Of the file with the private key.
    """

    def __init__(
        self,
        name: str,
        view: View,
        security: Security,
        pins: Mapping[str, str],
        store: MessageStore,
        folder: Path,
    ) -> None:
        summation = view.planned.algorithm.summation
        assert summation is not None
        self._name, self._security, self._pins = name, security, dict(pins)
        self._run, self._number = view.run, len(view.lost)
        self._purpose = view.purpose
        self._colluders = summation.colluders
        self._store = store
        self.path = folder / f"{name}.{view.run.hex()[:16]}.key"
        self._file = KeyFile(self.path, self._run, self._number)
        self._sent: int | None = None
        self.ring = KeyRing(view.agreed.names, self.fault)
        note = store.note(self._run, _ALL)
        own = store.note(self._run, _OWN)
        if note is not None:
            self.ring.restore(note)
            self._check_restored()
        elif own is not None:
            self.ring.add(name, noted(SessionKey, own, "a session key"))

    def _check_restored(self) -> None:
        """Refuse keys noted before a restart that do not hold by the pins as they are now."""
        for name, key in self.ring.keys.items():
            fault = "" if name == self._name else self.fault(name, key)
            if fault:
                raise DrawRefused(
                    f"the key of {name} must hold by the pins as they are now; {fault}. Nothing "
                    "more is drawn in this view: begin another run_id."
                )

    def announce(self, released: int) -> None:
        """Announce this node's session key: the one that it announced before, or a new one.

        Parameters
        ----------
        released
            How many messages of the view this node has committed: they went out under its key.

        Raises
        ------
        DrawRefused
            If that key is lost, or knows of more rounds than the ledger.
        """
        private = self._file.load()
        if private is None and (released or self._name in self.ring):
            raise DrawRefused(
                f"a session key must be there until the end of its view; {self.path}, which "
                "this node announced, is lost or of another view. Nothing was drawn. Put the file "
                "back; if it is lost, let the others go on without this node, or begin another "
                "run_id."
            )
        sent = self._file.sent()
        if sent > released:
            raise DrawRefused(
                f"ledger must have every round that was sent; {self.path} has counted {sent} "
                f"rounds of this view, and the ledger has {released}: it was put back to an "
                "older copy. Nothing was drawn. Restore the newest ledger and messages; if they "
                "are lost, those rounds stay spent: begin another run_id, with a ledger whose "
                "budget leaves them out, and with a new file for messages."
            )
        if self._name in self.ring:
            return
        private = private or self._file.make()
        own = self._signed(private.public_key().public_bytes_raw())
        self._store.take_note(self._run, _OWN, own.to_bytes().decode("ascii"))
        self.ring.add(self._name, own)

    def masks(self) -> Masks:
        """The masks of this node, once every key is there; the list of them is then kept."""
        keys = self.ring.keys
        members = tuple(
            Member(name, from_base64(keys[name].certificate), bytes.fromhex(keys[name].public_key))
            for name in self.ring.members
        )
        private = self._file.load()
        if private is None:
            raise DrawRefused(
                f"a session key must be there until the end of its view; {self.path} is lost. "
                "Nothing was drawn."
            )
        view = ViewFacts(self._run, self._number, members, self._colluders, self._purpose)
        found = Masks(private, view, self.ring.members.index(self._name))
        # Durable before anything goes out under them: after a restart they are the same.
        self._store.take_note(self._run, _ALL, self.ring.to_bytes().decode("ascii"))
        return found

    def before_send(self, t: int) -> None:
        """Count a round of the view, once, before its message leaves for the first time."""
        if self._sent is None:
            self._sent = self._file.sent()
        if t >= self._sent:
            self._file.mark_sent()
            self._sent = t + 1

    def destroy(self) -> None:
        """Destroy the private key: no new message goes out in this view."""
        self._file.destroy()

    def fault(self, name: str, key: SessionKey) -> str:
        """What is wrong with the key of a party; nothing if it holds."""
        try:
            shown = from_base64(key.certificate)
            if hashlib.sha256(shown).hexdigest() != self._pins.get(name):
                return "its certificate is not the one that is pinned here"
            certificate = x509.load_der_x509_certificate(shown)
            text = key_text(self._run, self._number, name, bytes.fromhex(key.public_key))
            verify(certificate.public_key(), from_base64(key.signature), text)
        except InvalidSignature:
            return "its signature is not of this key, run and view by the pinned certificate"
        except Exception:  # whatever another's bytes do to a parser, they are no key
            return "its certificate cannot be read"
        return ""

    def _signed(self, public_key: bytes) -> SessionKey:
        own = load_certificates(self._security.certificate)[0]
        text = key_text(self._run, self._number, self._name, public_key)
        return SessionKey(
            certificate=to_base64(own.public_bytes(Encoding.DER)),
            public_key=public_key.hex(),
            signature=to_base64(sign(load_signing_key(self._security.key), text)),
        )
