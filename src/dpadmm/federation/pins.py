r"""Pins: whose certificate is whose, compared by telephone, and which one counts in a run.

Members of a federation must hold the same table of pins: the sha256 of everybody's certificate.
They compare one phrase for the whole table, on one call that all can hear,

.. math:: \mathrm{words}\bigl(\mathrm{SHA256}(\texttt{dpadmm pins 1}, \text{federation},
    \text{authority}, \text{pins})\bigr),

the first 20 bytes as a word each. Every member has checked that its own row is the certificate of
its own key, so where all phrases are the same, every row is. Two tables with one phrase are a
collision of 160 bits of SHA-256, whoever makes the kits.

The 256 words are written for this: three letters tell one from another, and any two differ in at
least three letters. The PGP list has two words for every byte, and no well kept package; that of
BIP 39 has 11 bits in a word, which cuts across bytes, and looks like the secret of a wallet. A
dependency for a list of words would be the larger risk.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import BeforeValidator

from dpadmm.errors import ParameterError, fail
from dpadmm.federation.identity import from_base64
from dpadmm.federation.transport.wire import Consent
from dpadmm.plain import canonical_json, visible

_LIST: Final = """
    abbey acorn acrobat admiral aerial agenda airport alarm alcove algebra almond alpine amulet
    anchor angel animal antler apple apron arcade artist aspen atlas auction autumn avenue awning
    baboon badger bakery ballad banjo barley basket bazaar beacon bedrock beetle belfry bicycle
    bishop blossom bobcat bonnet boulder brandy breeze bridge buffalo bundle butter cabin cactus
    canyon captain carpet castle cedar cello chapel cherry chicken cinema circle citrus clover
    cobalt coconut coffee collar comet copper cotton cowboy cradle crystal cushion cyclone cymbal
    daisy dancer delta denim desert diamond dinghy dolphin domino donkey dragon driver dungeon
    eagle earth eclipse editor elbow eleven engine estate evening fabric falcon family farmer
    faucet feather fennel fiddle figure finger flute forest fossil freight furnace galaxy garden
    gazelle geyser giraffe glacier globe goblet gorilla grapes guitar hamster harbour hatchet
    hedge helmet herald hickory hippo hobby hollow horizon hydrant iceberg igloo iguana insect
    island ivory jaguar jasmine jersey jewel jigsaw journey juniper kayak kidney kimono kingdom
    kitchen knight knuckle lantern laurel lemon leopard lettuce library lilac linen lizard locket
    lotus lumber lunar lyric magnet mailbox marble meadow mercury meteor million mineral mirror
    mitten morning mosaic muffin museum napkin nectar nephew nickel ninety noodle nugget nutmeg
    oatmeal ocean octave office olive onion opera orange orbit orchid oregano osprey oxygen oyster
    palace parrot pebble pencil pewter pickle pigeon pirate planet pollen potato puzzle quartz
    rabbit radish raisin ribbon sailor sandal school shovel silver sketch soccer spider spruce
    sunset teapot temple tennis tundra turnip twelve vacuum vessel viking violin voyage waffle
    wallet window wonder wrench yogurt zenith zigzag zodiac
"""
WORDS: Final = tuple(_LIST.split())
#: Words of a fingerprint: 160 bits.
PHRASE: Final = 20
_FINGERPRINT: Final = re.compile(r"[0-9a-f]{64}")


def _fingerprint(value: Any) -> Any:
    if not isinstance(value, str) or not _FINGERPRINT.fullmatch(value):
        raise fail(
            "must be the sha256 of a certificate, 64 digits and small letters as dpadmm cert show "
            f"prints it; got {value!r}: compare it by telephone"
        )
    return value


Fingerprint = Annotated[str, BeforeValidator(_fingerprint)]


def spoken(fingerprint: str) -> str:
    """The words of a sha256, to be read over the telephone."""
    return " ".join(WORDS[byte] for byte in bytes.fromhex(fingerprint)[:PHRASE])


@dataclass(frozen=True)
class PinTable:
    """Whose certificate is whose, in one federation.

    Parameters
    ----------
    federation
        Its name.
    authority
        The sha256 of each certificate that all trust.
    pins, next_pins
        The sha256 of everybody's certificate; of the next one, of who is changing it.
    """

    federation: str
    authority: tuple[str, ...]
    pins: Mapping[str, str]
    next_pins: Mapping[str, str]

    @property
    def phrase(self) -> str:
        """The words that all members must read alike."""
        content = {
            "federation": self.federation,
            "authority": sorted(self.authority),
            "pins": dict(self.pins),
            "next": dict(self.next_pins),
        }
        text = f"dpadmm pins 1\n{canonical_json(content)}"
        return spoken(hashlib.sha256(text.encode("ascii")).hexdigest())

    def check_heard(self, heard: str) -> None:
        """Refuse words that are not those of this table; spaces and capitals do not matter."""
        said, own = heard.lower().split(), self.phrase.split()
        if len(said) != PHRASE:
            raise ParameterError(
                f"heard must be the {PHRASE} words that another member reads; got {len(said)}: "
                "have all of them read."
            )
        for place, (there, here) in enumerate(zip(said, own, strict=True), start=1):
            if there != here:
                raise ParameterError(
                    f"heard must be the words of this table; word {place} is "
                    f"{visible(there, longest=40)!r} there and {here!r} here. Somebody has another "
                    "table: nothing was pinned. Compare the sha256 of each certificate, and train "
                    "with nobody until they are the same."
                )

    def known(self, pins: Mapping[str, str], next_pins: Mapping[str, str]) -> PinTable:
        """The rows of this table that were pinned before, as either certificate of a member."""
        before = {(name, pin) for each in (pins, next_pins) for name, pin in each.items()}
        kept = [
            {name: pin for name, pin in each.items() if (name, pin) in before}
            for each in (self.pins, self.next_pins)
        ]
        return PinTable(self.federation, self.authority, *kept)


@dataclass(frozen=True)
class Pinned:
    """The certificate of a node, and those that its owner has pinned.

    Parameters
    ----------
    name, own
        The node, and the sha256 of its certificate; None without TLS.
    own_signed_part
        By which its certificate would be revoked.
    pins, next_pins
        As in ``node.toml``.
    """

    name: str
    own: str | None
    own_signed_part: str | None
    pins: Mapping[str, str]
    next_pins: Mapping[str, str]

    def check_agreed(
        self, revoked: Collection[str], rotation: Mapping[str, tuple[str, str]]
    ) -> None:
        """Refuse an own certificate that is revoked, and a next one that is not agreed on.

        Those of others are looked at when they consent.
        """
        if self.own_signed_part in revoked:
            raise ParameterError(
                f"the certificate of {self.name} must not be revoked; the agreed run revokes "
                f"{self.own_signed_part}: have a new one signed. Nothing more was spent."
            )
        for name, pin in self.next_pins.items():
            if (self.pins.get(name), pin) != rotation.get(name):
                raise ParameterError(
                    f"next_pins must be what the agreed run has under rotation; for {name} it is "
                    f"not: {pin}. Take the pins of one kit. Nothing more was spent."
                )

    def check_complete(self, parties: Collection[str]) -> None:
        """Refuse to share noise with parties that this node's owner has not pinned."""
        assert self.own is not None
        missing = set(parties) - {self.name, *self.pins}
        if missing:
            raise ParameterError(
                "[pins] must have the sha256 of every other party's certificate where noise is "
                f"shared, else a server could invent parties; {', '.join(sorted(missing))} is not "
                "there. dpadmm cert show prints it: ask its owner by telephone. Nothing more was "
                "spent."
            )
        said = self.pins.get(self.name, self.own)
        if self.own not in (said, self.next_pins.get(self.name)):
            raise ParameterError(
                f"the pin of {self.name} must be the sha256 of its own certificate, {self.own}; "
                f"got {said}: tell the others which one it is."
            )
        owners = {self.own: self.name}
        for each in (self.pins, self.next_pins):
            for party in set(each) & set(parties):
                if owners.setdefault(each[party], party) != party:
                    raise ParameterError(
                        "[pins] must have another certificate for every party; two agree."
                    )

    def in_run(self, consents: Mapping[str, Consent]) -> dict[str, str]:
        """The pin of each party in one run; of one with two, the one that it agreed with.

        Whoever agreed with neither keeps the first, which it has not shown, and is refused.
        """
        chosen = dict(self.pins)
        for name in set(self.next_pins) & set(consents):
            shown = [from_base64(text) for text in consents[name].certificates[:1]]
            if shown and hashlib.sha256(*shown).hexdigest() == self.next_pins[name]:
                chosen[name] = self.next_pins[name]
        return chosen
