"""The bytes of a message: one fixed, versioned layout, without pickle.

======  ====  ==============================================================
offset  size  what
======  ====  ==============================================================
0       4     ``DPAM``
4       2     version, 1 (little-endian, like every number here)
6       2     zero
8       32    the run: a hash that all parties agree on
40      4     number of the party
44      4     the round, from 0
48      12    runs, outputs, features
60      4     zero
64      8 k   the values, float64, ``(runs, outputs, features)``
64+8k   32    sha256 of all that precedes it
======  ====  ==============================================================

The hash at the end tells a damaged message from a whole one; it proves no origin.
"""

from __future__ import annotations

import hashlib
import struct
from typing import Final

import numpy as np

from dpadmm.errors import ExchangeError
from dpadmm.plain import Array
from dpadmm.run.exchange import MESSAGE_BOUND

__all__ = ["BadMessage", "decode_message", "encode_message", "message_size", "round_of"]


_MAGIC: Final = b"DPAM"


_VERSION: Final = 1


_HEADER: Final = struct.Struct("<4sHH32sIIIIII")


_DIGEST: Final = 32


class BadMessage(ExchangeError):
    """Bytes that are not the message that is due.

    Attributes
    ----------
    reason
        A word for machines, such as ``not-finite``.
    """

    def __init__(self, reason: str, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason


def message_size(shape: tuple[int, ...]) -> int:
    """Bytes of a message of ``(runs, outputs, features)``; longer or shorter ones are refused."""
    return _HEADER.size + 8 * int(np.prod(shape)) + _DIGEST


def encode_message(run: bytes, party: int, t: int, values: Array) -> bytes:
    """The message of one party in one round."""
    header = _HEADER.pack(_MAGIC, _VERSION, 0, run, party, t, *values.shape, 0)
    body = header + np.ascontiguousarray(values, dtype="<f8").tobytes()
    return body + hashlib.sha256(body).digest()


def round_of(data: bytes, shape: tuple[int, ...]) -> int:
    """The round that a message says it is of; all else about it is for :func:`decode`."""
    _check_size(data, shape, "a message")
    return int(_HEADER.unpack_from(data)[5])


def decode_message(data: bytes, *, run: bytes, party: int, t: int, shape: tuple[int, ...]) -> Array:
    """The values of the one message that is expected; anything else is refused by name."""
    sender = f"the message of party {party} for round {t}"
    _check_size(data, shape, sender)
    body, digest = data[:-_DIGEST], data[-_DIGEST:]
    if hashlib.sha256(body).digest() != digest:
        sentence = f"{sender} is damaged: its hash does not match. Ask for it again."
        raise BadMessage("damaged", sentence)
    magic, version, _, its_run, its_party, its_round, *its_shape, _ = _HEADER.unpack_from(body)
    expected = (_MAGIC, _VERSION, run, party, t, tuple(shape))
    got = (magic, version, its_run, its_party, its_round, tuple(its_shape))
    words = ("format", "version", "run", "party", "round", "shape")
    for word, want, have in zip(words, expected, got, strict=True):
        if want != have:
            sentence = f"{sender} must have the {word} {want!r}; got {have!r}."
            raise BadMessage(f"wrong-{word}", sentence)
    values = np.frombuffer(body, dtype="<f8", offset=_HEADER.size).astype(np.float64)
    if not np.isfinite(values).all():
        raise BadMessage("not-finite", f"{sender} must be finite.")
    largest = float(np.abs(values).max(initial=0.0))
    if largest > MESSAGE_BOUND:
        raise BadMessage(
            "too-large",
            f"{sender} must be at most {MESSAGE_BOUND:g} in every entry; got {largest:g}.",
        )
    return values.reshape(shape)


def _check_size(data: bytes, shape: tuple[int, ...], what: str) -> None:
    size = message_size(shape)
    if len(data) != size:
        raise BadMessage("wrong-size", f"{what} must have {size} bytes; got {len(data)}.")
