"""Masks against a second transcription of their definition; what a colluder makes of them."""

import hashlib
import hmac
import struct
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from tests.helpers.secure_sums import COUNT, predictable, small

from dpadmm.errors import ExchangeError, ParameterError
from dpadmm.federation.keys import DecodedSums, Masks, Member, ViewFacts, shared_secret

RUN = hashlib.sha256(b"run").digest()
SUMS = hashlib.sha256().digest()
NAMES = ("north", "south", "west", "east")
PRIME = 2**255 - 19


def secret_of(name, view=0):
    return hashlib.sha256(f"{name} {view}".encode()).digest()


def key_of(name, view=0):
    return X25519PrivateKey.from_private_bytes(secret_of(name, view))


def view_of(names=NAMES, number=0, run=RUN):
    members = tuple(
        Member(
            name,
            b"certificate of " + name.encode(),
            key_of(name, number).public_key().public_bytes_raw(),
        )
        for name in names
    )
    return ViewFacts(run, number, members, colluders=1)


def masks_of(view):
    return [
        Masks(key_of(member.name, view.number), view, place)
        for place, member in enumerate(view.members)
    ]


# -- the definition, from RFC 7748, RFC 5869 and RFC 8439, in integers of Python -----------------


def ladder(secret, u):
    """X25519 as RFC 7748 writes it down."""
    k = int.from_bytes(secret, "little") & ~7 & ~(1 << 255) | (1 << 254)
    x1 = int.from_bytes(u, "little") & ((1 << 255) - 1)
    x2, z2, x3, z3, swap = 1, 0, x1, 1, 0
    for t in reversed(range(255)):
        bit = k >> t & 1
        if swap ^ bit:
            x2, x3, z2, z3 = x3, x2, z3, z2
        swap = bit
        a, b, c, d = x2 + z2, x2 - z2, x3 + z3, x3 - z3
        aa, bb = a * a % PRIME, b * b % PRIME
        da, cb, e = d * a % PRIME, c * b % PRIME, aa - bb
        x3, z3 = (da + cb) ** 2 % PRIME, x1 * (da - cb) ** 2 % PRIME
        x2, z2 = aa * bb % PRIME, e * (aa + 121665 * e) % PRIME
    if swap:
        x2, z2 = x3, z3
    return (x2 * pow(z2, PRIME - 2, PRIME) % PRIME).to_bytes(32, "little")


def hkdf(secret, info):
    pseudorandom = hmac.digest(bytes(32), secret, "sha256")
    return hmac.digest(pseudorandom, info + b"\x01", "sha256")


def chacha_block(key, counter):
    def turn(a, b, c, d):
        for first, second, third, bits in (
            (a, b, d, 16),
            (c, d, b, 12),
            (a, b, d, 8),
            (c, d, b, 7),
        ):
            state[first] = (state[first] + state[second]) & 0xFFFFFFFF
            mixed = state[third] ^ state[first]
            state[third] = (mixed << bits | mixed >> (32 - bits)) & 0xFFFFFFFF

    start = [
        *struct.unpack("<4I", b"expand 32-byte k"),
        *struct.unpack("<8I", key),
        counter,
        0,
        0,
        0,
    ]
    state = list(start)
    for _ in range(10):
        for column in range(4):
            turn(column, 4 + column, 8 + column, 12 + column)
        for diagonal in range(4):
            turn(
                diagonal,
                4 + (diagonal + 1) % 4,
                8 + (diagonal + 2) % 4,
                12 + (diagonal + 3) % 4,
            )
    return struct.pack("<16I", *((a + b) & 0xFFFFFFFF for a, b in zip(start, state, strict=True)))


def sized(*parts):
    return b"".join(struct.pack("<Q", len(part)) + part for part in parts)


def transcribed(names, place, t, sums, count, *, number=0, colluders=1):
    """The mask of a member, by the sentences of the module and nothing of its code."""
    public = [ladder(secret_of(name, number), (9).to_bytes(32, "little")) for name in names]
    listed = sized(
        *(
            part
            for name, key in zip(names, public, strict=True)
            for part in (name.encode(), b"certificate of " + name.encode(), key)
        )
    )
    total = [0] * count
    for other in range(len(names)):
        if other == place:
            continue
        i, j = sorted((place, other))
        info = sized(
            b"dpadmm secure sum 1",
            RUN,
            struct.pack("<Q", number),
            hashlib.sha256(listed).digest(),
            struct.pack("<Q", colluders),
            b"training",
            struct.pack("<Q", i),
            struct.pack("<Q", j),
            struct.pack("<Q", t),
            sums,
        )
        key = hkdf(ladder(secret_of(names[place], number), public[other]), info)
        stream = b"".join(chacha_block(key, block) for block in range(-(-count // 8)))
        words = struct.unpack(f"<{count}Q", stream[: 8 * count])
        sign = 1 if place == i else -1
        total = [(a + sign * b) % 2**64 for a, b in zip(total, words, strict=True)]
    return np.array(total, dtype=np.uint64)


@pytest.mark.parametrize(("place", "t"), [(0, 0), (2, 5), (3, 1)])
def test_a_mask_is_what_its_definition_says(place, t):
    sums = hashlib.sha256(b"whatever was decoded").digest()
    view = view_of(number=2)
    found = Masks(key_of(NAMES[place], 2), view, place).mask(t, sums, 19)
    np.testing.assert_array_equal(found, transcribed(NAMES, place, t, sums, 19, number=2))


def test_masks_vanish_in_the_sum_and_nowhere_before():
    masks = masks_of(view_of())
    words = [mask.mask(3, SUMS, 50) for mask in masks]
    np.testing.assert_array_equal(sum(words[1:], start=words[0]), np.zeros(50, dtype=np.uint64))
    for size in range(1, len(words)):
        for some in combinations(words, size):
            assert (sum(some[1:], start=some[0]) != 0).all()


def other_certificate(view):
    first, *others = view.members
    return replace(view, members=(replace(first, certificate=b"another"), *others))


@pytest.mark.parametrize(
    "change",
    [
        lambda s: (replace(s, run=bytes(32)), 3, SUMS),
        lambda s: (replace(s, number=1), 3, SUMS),
        lambda s: (replace(s, colluders=2), 3, SUMS),
        lambda s: (replace(s, purpose="counting"), 3, SUMS),
        lambda s: (replace(s, members=s.members[:1] + s.members[2:]), 3, SUMS),
        lambda s: (other_certificate(s), 3, SUMS),
        lambda s: (s, 4, SUMS),
        lambda s: (s, 3, hashlib.sha256(b"another sum").digest()),
    ],
    ids=["run", "view", "colluders", "purpose", "members", "certificate", "round", "sums"],
)
def test_views_that_differ_leave_uniform_words_in_the_sum(change):
    view = view_of()
    words = [mask.mask(3, SUMS, 400) for mask in masks_of(view)[1:]]
    seen, t, sums = change(view)
    words.append(Masks(key_of(NAMES[0]), seen, 0).mask(t, sums, 400))
    total = sum(words[1:], start=words[0])
    # Uniform words: half of them in either half, and few near 0.
    assert 120 < (total >> np.uint64(63)).sum() < 280
    assert small(total).mean() < 0.02


def test_a_key_that_fixes_the_secret_is_refused():
    private = key_of("north")
    order_eight = 325606250916557431795983626356110631294008115727848805560023387167927233504
    for point in (0, 1, PRIME - 1, PRIME, PRIME + 1, order_eight):
        with pytest.raises(ExchangeError, match="leave the shared secret open"):
            shared_secret(private, point.to_bytes(32, "little"))
    with pytest.raises(ExchangeError, match="32 bytes"):
        shared_secret(private, b"short")


def test_a_key_file_of_another_view_is_refused():
    with pytest.raises(ParameterError, match="the one that north announced"):
        Masks(key_of("north", 1), view_of(), 0)


def test_sums_are_told_apart_by_their_order():
    first, second = np.arange(3, dtype=np.uint64), np.arange(1, 4, dtype=np.uint64)
    digests = set()
    for order in ([], [first], [first, second], [second, first]):
        sums = DecodedSums()
        for words in order:
            sums.add(words)
        digests.add(sums.digest())
    assert len(digests) == 4
    assert hashlib.sha256(first.tobytes() + second.tobytes()).digest() in digests


# -- what a colluder makes of two words on the wire ----------------------------------------------


def emitted(names, number, t, sums, place, run=RUN):
    """A word vector of an honest member, less what the lost colluder at the end can take off.

    Summands are small beside 2^64, as the public range says; here a fixed one is as good as any.
    """
    view = view_of(names, number, run)
    summand = np.full(COUNT, 12345, dtype=np.uint64)
    words = summand + Masks(key_of(names[place], number), view, place).mask(t, sums, COUNT)
    if "east" not in names:
        return words
    # A view of the two alone has the mask that they share, and no other.
    last = len(names) - 1
    alone = Masks(key_of("east", number), view, last)
    alone._secrets = {place: alone._secrets[place]}
    return words + alone.mask(t, sums, COUNT)


def everything(place):
    """What one honest member sends in two rounds, two views and after another sum was told."""
    other = hashlib.sha256(b"another sum").digest()
    return [
        *(emitted(NAMES, 0, t, SUMS, place) for t in range(3)),
        emitted(NAMES, 0, 2, other, place),
        # East is lost; the others begin a new view from the state after round 0.
        *(
            emitted(NAMES[:3], 1, t, SUMS, place, hashlib.sha256(b"changed").digest())
            for t in (0, 1)
        ),
    ]


def test_no_difference_of_two_words_is_predictable_to_a_lost_colluder():
    vectors = [words for place in range(3) for words in everything(place)]
    for first, second in combinations(vectors, 2):
        assert not predictable(first, second)
    for words in vectors:
        assert small(words).mean() < 0.02


def test_that_would_find_masks_which_repeat():
    words = emitted(NAMES, 0, 0, SUMS, 0)
    # Another draw of noise under the same mask, as a restored copy would send it.
    again = words + np.uint64(1) * np.arange(COUNT, dtype=np.uint64)
    assert predictable(words, again)
    # A round as the block counter: the next keystream is this one, eight words on.
    assert predictable(words, np.concatenate([words[8:], words[:8]]))
    # A mask that one adds and the other subtracts.
    assert predictable(words, -words)
