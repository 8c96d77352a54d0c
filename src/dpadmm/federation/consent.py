r"""That a node agrees to a run, in its own hand: what agreement consists of.

The consent of node :math:`i` to the run with the digest :math:`h` is its signature, by the key of
its TLS certificate, of

.. code-block:: text

    dpadmm agreement 1\n<h, 64 hex digits>\n<name of i>\n

together with that certificate and those between it and the authority. Nodes hand consents on as
they are, and each believes one only after it has checked the signature, the way to the authority
that it trusts itself, the dates, and that the certificate's common name is the node's. So nobody
can say for another that it agreed, and a node that was never started cannot be said to have.

No nonce is exchanged. A consent counts for one digest, which covers all facts of the run, its
``run_id``, parties, rows and formats among them: one of another run does not count. One of the same
run does, also after its node was killed, and is meant to: by that digest a node finds its notes and
messages again, and by the ``run_id`` in it every ledger knows what was spent, so that the node goes
on with the run that it agreed to, or refuses. Whoever repeats an old consent says only what is
true: that this node was started for this run. A trial that is to begin anew needs another
``run_id``.

The signed text begins with words that no handshake of TLS signs, so that a signature made for one
cannot serve as the other.

Without TLS, which is for trials on one machine only, there are no keys: consents are empty, anybody
on that machine can make them up, and the log says ``"signed": false``.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import Encoding

from dpadmm.errors import ParameterError
from dpadmm.federation.identity import (
    certificate_fault,
    load_certificates,
    load_signing_key,
)
from dpadmm.federation.signatures import from_base64, sign, to_base64, verify
from dpadmm.federation.transport.session import Security
from dpadmm.federation.transport.words import LONGEST_CONSENT, Consent

__all__ = ["Consents", "signed_text"]

_VERSION: Final = 1
_UNSIGNED: Final = Consent(certificates=[], signature="")


def signed_text(run: bytes, name: str) -> bytes:
    """What a node signs to agree to a run."""
    return f"dpadmm agreement {_VERSION}\n{run.hex()}\n{name}\n".encode("ascii")


@final
class Consents:
    """Makes this node's consent to a run, and checks those of others.

    Parameters
    ----------
    name
        This node.
    run
        The 32 bytes of the run.
    security
        Its certificate and key, and the authority; None without TLS.
    """

    def __init__(self, name: str, run: bytes, security: Security | None) -> None:
        self.name, self._run, self._security = name, run, security
        self._roots = [] if security is None else load_certificates(security.authority)

    @property
    def signed(self) -> bool:
        """Whether consents are signed here."""
        return self._security is not None

    def own(self) -> Consent:
        """Say that this node agrees."""
        if self._security is None:
            return _UNSIGNED
        chain = load_certificates(self._security.certificate)
        signature = sign(load_signing_key(self._security.key), signed_text(self._run, self.name))
        texts = [to_base64(item.public_bytes(Encoding.DER)) for item in chain]
        # The authority itself is at every node.
        roots = {root.public_bytes(Encoding.DER) for root in self._roots}
        texts = texts[:1] + [
            text
            for text, item in zip(texts[1:], chain[1:], strict=True)
            if item.public_bytes(Encoding.DER) not in roots
        ]
        try:
            return Consent(certificates=texts, signature=to_base64(signature))
        except ValueError:
            raise ParameterError(
                "a certificate must have at most 3 others between it and the authority, with it at "
                f"most {LONGEST_CONSENT} bytes in base64; {self._security.certificate} has more."
            ) from None

    def fault(self, name: str, consent: Consent) -> str:
        """What is wrong with the consent of a node; nothing if it holds."""
        if self._security is None:
            return "" if consent == _UNSIGNED else "it is signed, though this node has no TLS"
        if not consent.certificates or not consent.signature:
            return "it is not signed"
        try:
            chain = [
                x509.load_der_x509_certificate(from_base64(text)) for text in consent.certificates
            ]
            found = certificate_fault(name, chain[0], chain[1:], self._roots, datetime.now(UTC))
            if not found:
                key = chain[0].public_key()
                verify(key, from_base64(consent.signature), signed_text(self._run, name))
        except InvalidSignature:
            return "its signature is not of this run by the key of the certificate"
        except Exception:  # whatever another's bytes do to a parser, they are no consent
            return "its certificate cannot be read"
        return found
