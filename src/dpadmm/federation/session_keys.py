r"""Session keys: made anew for every view, signed by their owners, destroyed at its end.

Where only a sum may be seen, every party sends a masked vector, and each pair of parties shares a
mask (:mod:`~dpadmm.federation.transport.masks`). Node i makes an X25519 key for every view and
signs, by the key of its certificate,

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
from collections.abc import Mapping
from pathlib import Path
from typing import Final, final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding

from dpadmm.durable import FileRefusal, parse_json, read_regular, written_whole
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
from dpadmm.federation.transport.masks import KeyRing, Masks, Member, ViewFacts
from dpadmm.federation.transport.session import Security
from dpadmm.federation.transport.store import DrawRefused, MessageStore
from dpadmm.federation.transport.wire import Consent, SessionKey, noted

_VERSION: Final = 1
# Names of notes in the file of messages: they keep the old word.
_OWN: Final = "own stretch key"
_ALL: Final = "stretch keys"
# A line, and a byte for every round.
_LARGEST: Final = 1 << 24
_SENT: Final = b"."


def key_text(run: bytes, view: int, name: str, public_key: bytes) -> bytes:
    """What a node signs to announce its session key of a view."""
    return (
        f"dpadmm stretch key {_VERSION}\n{run.hex()}\n{view}\n{name}\n{public_key.hex()}\n"
    ).encode("ascii")


def check_pinned(consents: Mapping[str, Consent], pins: Mapping[str, str]) -> None:
    """Refuse parties that agreed by another certificate than the one that is pinned.

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
        self._whose = {"version": _VERSION, "run": run.hex(), "stretch": view}

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
