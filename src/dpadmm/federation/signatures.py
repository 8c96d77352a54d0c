"""What nodes sign with the keys of their certificates, and how others check it."""

from __future__ import annotations

import base64
import binascii

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa

from dpadmm.federation.identity import SigningKey

__all__ = ["from_base64", "sign", "to_base64", "verify"]


def sign(key: SigningKey, text: bytes) -> bytes:
    """Sign a text with the key of a node."""
    if isinstance(key, ec.EllipticCurvePrivateKey):
        return key.sign(text, ec.ECDSA(hashes.SHA256()))
    if isinstance(key, rsa.RSAPrivateKey):
        return key.sign(text, _pss(), hashes.SHA256())
    return key.sign(text)


def verify(key: object, signature: bytes, text: bytes) -> None:
    """Check a signature by the public key of a certificate.

    Raises
    ------
    InvalidSignature
        If it is not of that text by that key, or the key is of a kind that no node has.
    """
    if isinstance(key, ec.EllipticCurvePublicKey):
        key.verify(signature, text, ec.ECDSA(hashes.SHA256()))
    elif isinstance(key, rsa.RSAPublicKey):
        key.verify(signature, text, _pss(), hashes.SHA256())
    elif isinstance(key, ed25519.Ed25519PublicKey):
        key.verify(signature, text)
    else:
        raise InvalidSignature


def to_base64(data: bytes) -> str:
    """Bytes as they stand in JSON."""
    return base64.b64encode(data).decode("ascii")


def from_base64(text: str) -> bytes:
    """The bytes of such a text."""
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ValueError("must be base64") from None


def _pss() -> padding.PSS:
    return padding.PSS(mgf=padding.MGF1(hashes.SHA256()), salt_length=padding.PSS.DIGEST_LENGTH)
