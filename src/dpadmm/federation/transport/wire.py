"""The bytes of a message: one fixed layout, without pickle, in two versions.

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
summands under masks and for their sums (:mod:`~dpadmm.federation.transport.masks`): any word may
come, so that there is no bound to check before the sum is decoded.
"""

from __future__ import annotations

import hashlib
import struct
from typing import Final

import numpy as np

from dpadmm.errors import ExchangeError, ParameterError
from dpadmm.plain import Array, Words
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
        A word for machines, such as ``not-finite``.
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
    """The round that a message says it is of; all else about it is for :func:`decode_message`."""
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


def decode_words(data: bytes, *, run: bytes, party: int, t: int, shape: tuple[int, ...]) -> Words:
    """The words of the one message that is expected; anything else is refused by name."""
    body = _checked(data, _WORDS, run, party, t, shape)
    words = np.frombuffer(body, dtype="<u8", offset=_HEADER.size).astype(np.uint64)
    return words.reshape(shape)


def _checked(
    data: bytes, version: int, run: bytes, party: int, t: int, shape: tuple[int, ...]
) -> bytes:
    """All of a message but the hash at its end, once what stands before its values is right."""
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
