r"""Noise that parties share, in Flower: the server hands on signed keys, and only a sum comes back.

.. math:: w_i = m_i/\mathrm{step} + \mathrm{mask}_i \pmod{2^{64}}, \qquad
    \frac1N \sum_i m_i = \frac{\mathrm{step}}{N} \sum_i w_i

Keys, pins and masks are those of nodes (:mod:`dpadmm.federation.stretch_keys`,
:mod:`dpadmm.federation.transport.masks`). Before round 0 every party tells its signed key, and with
every question it is told all of them: it believes those alone that a certificate signed which its
owner has pinned. Masks hang on all sums so far, so that they vanish only where everybody was told
the same. After the last round every party signs what it was told, and is told what all signed
(:mod:`dpadmm.federation.same_sums`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from dpadmm.errors import ExchangeError
from dpadmm.federation.stretch_keys import StretchKeys
from dpadmm.federation.transport.key_ring import KeyRing
from dpadmm.federation.transport.masks import DecodedSums, Masks
from dpadmm.federation.transport.words import Announcing, Comparing, Limits, said
from dpadmm.plain import Array, Words
from dpadmm.privacy.mechanisms import Released, release_covered
from dpadmm.privacy.sensitivity import Summation
from dpadmm.run.engine import Exchange, RunEnded

_SERVER: Final = "the server"


@final
class KnownSums(Exchange):
    """Hands out the means of complete rounds, and covers the first that is not.

    Parameters
    ----------
    words
        The sum of a round, as words.
    complete
        How many rounds have one.
    summation
        How summands become a sum.
    masks
        This party's.
    """

    def __init__(
        self, words: Callable[[int], Words], complete: int, summation: Summation, masks: Masks
    ) -> None:
        self._words, self._complete = words, complete
        self._summation, self._masks = summation, masks
        self._decoded, self._count = DecodedSums(), 0

    def __call__(self, message: Released, t: int) -> Array:
        """The mean of round ``t``."""
        if t >= self._complete:
            raise RunEnded
        words = self._words(t)
        self._decoded.add(words)
        self._count += 1
        return self._summation.from_words(words)[None] / self._summation.parties

    def cover(self, message: Released, t: int) -> Released:
        """Put this party's summand under its masks."""
        # Masks hang on the sums before: of those none may be missing, and none be counted twice.
        if self._count != t:
            raise RuntimeError(f"round {t} must be covered after {t} sums; got {self._count}.")
        words = self._summation.to_words(message.values)
        mask = self._masks.mask(t, self._decoded.digest(), words.size)
        return release_covered(message, words + mask.reshape(words.shape))


def own_key(keys: StretchKeys, name: str) -> bytes:
    """The signed key of a party, for the server to hand on."""
    return Announcing(keys={name: keys.ring.keys[name]}).to_bytes()


def masks_of(keys: StretchKeys, told: bytes) -> Masks:
    """A party's masks, from the keys that the server handed on.

    Raises
    ------
    ExchangeError
        If one is missing, or not signed by the certificate that is pinned.
    """
    for fault in keys.ring.take(_SERVER, told):
        raise ExchangeError(f"{fault} Nothing more was spent.")
    if not keys.ring.complete:
        missing = [name for name in keys.ring.members if name not in keys.ring]
        raise ExchangeError(
            f"the server must hand on the key of every party; {', '.join(missing)} is missing. "
            "Nothing more was spent."
        )
    return keys.masks()


def gathered_keys(told: dict[str, bytes]) -> bytes:
    """The keys of all parties, as a server hands them on; each from its owner alone.

    Parameters
    ----------
    told
        What each party said, by its name.
    """
    ring = KeyRing(tuple(told))
    for name, data in told.items():
        ring.take(name, data)
        if name not in ring:
            raise ExchangeError(f"{name} must tell its key before round 0; it told none.")
    return ring.to_bytes()


def gathered_digests(told: dict[str, bytes]) -> bytes:
    """What all parties signed in the end, as a server hands it on; each from its owner alone.

    Parameters
    ----------
    told
        What each party said, by its name.
    """
    limits = Limits(frozenset(told))
    digests = {}
    for name, data in told.items():
        found = said(Comparing, data, name, limits).digests
        if name not in found:
            raise ExchangeError(f"{name} must tell what it heard in all rounds; it told nothing.")
        digests[name] = found[name]
    return Comparing(digests=digests).to_bytes()
