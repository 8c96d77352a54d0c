"""Keys of a view: who is believed, what is kept, and what is lost."""

import hashlib
import stat

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from tests.helpers.secure_sums import NAMES, RUN, Parties

from dpadmm.federation.identity import from_base64
from dpadmm.federation.keys import KeyFile
from dpadmm.federation.transport.mailbox import KeyRing
from dpadmm.federation.transport.store import DrawRefused, MemoryStore
from dpadmm.federation.transport.wire import Announcing, SessionKey

OTHER_RUN = hashlib.sha256(b"another run").digest()


@pytest.fixture
def parties(tmp_path):
    parties = Parties(tmp_path)
    yield parties
    parties.close()


def announced(parties, name, view=None):
    """The key of a party as it says it."""
    keys = parties.keys(name, MemoryStore(), view)
    keys.announce(0)
    return keys.ring.keys[name]


def test_what_is_signed(parties):
    key = announced(parties, "north")
    shown = x509.load_der_x509_certificate(from_base64(key.certificate))
    text = f"dpadmm stretch key 1\n{RUN.hex()}\n0\nnorth\n{key.public_key}\n".encode()
    shown.public_key().verify(from_base64(key.signature), text, ec.ECDSA(hashes.SHA256()))
    assert parties.keys("south", MemoryStore()).fault("north", key) == ""


@pytest.mark.parametrize(
    ("view", "whose", "word"),
    [
        ({"run": OTHER_RUN}, "north", "signature"),
        ({"run": RUN, "lost": ("east",)}, "north", "signature"),
        ({}, "west", "pinned"),
    ],
    ids=["another-run", "another-view", "another-name"],
)
def test_a_key_for_something_else_is_not_believed(parties, view, whose, word):
    key = announced(parties, "north", parties.view(**view))
    assert word in parties.keys("south", MemoryStore()).fault(whose, key)


def test_a_swapped_key_is_not_believed(parties):
    """The server's own key, in the place of the one that was signed."""
    key = announced(parties, "north")
    swapped = key.model_copy(update={"public_key": announced(parties, "west").public_key})
    assert "signature" in parties.keys("south", MemoryStore()).fault("north", swapped)


def test_a_certificate_of_the_same_authority_and_name_is_not_believed(parties, tmp_path):
    """Whoever can make certificates can invent parties: pins are of certificates, not of names."""
    (tmp_path / "again").mkdir()
    again = Parties(tmp_path / "again")
    key = announced(again, "north")
    assert "pinned" in parties.keys("south", MemoryStore()).fault("north", key)


def test_what_cannot_be_read_is_not_believed(parties):
    keys = parties.keys("south", MemoryStore())
    key = announced(parties, "north")
    for change in ({"certificate": "AAAA"}, {"signature": ""}, {"signature": "A==="}):
        assert keys.fault("north", key.model_copy(update=change))


def test_the_key_is_durable_before_it_is_said_and_private(parties):
    store = parties.store("north")
    keys = parties.keys("north", store)
    keys.announce(0)
    (path,) = (parties.folder / "north").glob("*.key")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    said = keys.ring.keys["north"]
    store.close()
    # After a restart it is the same, signature and all.
    store = parties.store("north")
    again = parties.keys("north", store)
    again.announce(0)
    assert again.ring.keys["north"] == said
    again.announce(3)
    store.close()
    content = b"".join((parties.folder / "north").glob("messages*").__next__().read_bytes().split())
    private = path.read_text().split('"key": "')[1][:64]
    assert private.encode() not in content
    assert bytes.fromhex(private) not in content


def test_a_key_written_but_not_said_is_said_after_a_restart(parties):
    place = parties.folder / "north" / f"north.{RUN.hex()[:16]}.key"
    private = KeyFile(place, RUN, 0).make()
    keys = parties.keys("north", MemoryStore())
    keys.announce(0)
    assert keys.ring.keys["north"].public_key == private.public_key().public_bytes_raw().hex()


def test_a_lost_key_ends_the_view_for_its_owner(parties):
    store = MemoryStore()
    parties.keys("north", store).announce(0)
    (path,) = (parties.folder / "north").glob("*.key")
    path.unlink()
    with pytest.raises(DrawRefused, match="is lost or of another view"):
        parties.keys("north", store).announce(0)
    # The note went with it, but the ledger knows that messages went out.
    with pytest.raises(DrawRefused, match="is lost"):
        parties.keys("north", MemoryStore()).announce(2)
    # Nothing was said or sent: a new key is as good.
    parties.keys("north", MemoryStore()).announce(0)


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[]", b'{"version": 1, "key": 7}', b"\xff", b"\n."]
)
def test_a_damaged_key_file_is_a_lost_key(parties, content):
    store = MemoryStore()
    parties.keys("north", store).announce(0)
    (path,) = (parties.folder / "north").glob("*.key")
    path.write_bytes(content)
    with pytest.raises(DrawRefused):
        parties.keys("north", store).announce(0)


def test_a_key_remembers_what_was_sent_under_it(parties):
    """The ledger and the messages were put back to an older copy, and everybody else forgot."""
    keys = parties.keys("north", MemoryStore())
    keys.announce(0)
    for t in (0, 1, 1, 0, 2):
        keys.before_send(t)
    restored = MemoryStore()
    with pytest.raises(DrawRefused, match="has counted 3 rounds of this view, and the ledger"):
        parties.keys("north", restored).announce(2)
    again = parties.keys("north", restored)
    again.before_send(2)
    again.announce(3)
    again.before_send(3)
    with pytest.raises(DrawRefused, match="has counted 4 rounds"):
        parties.keys("north", restored).announce(3)
    again.destroy()
    again.before_send(4)
    assert not list((parties.folder / "north").glob("*.key"))


def test_a_key_of_another_view_is_not_used(parties):
    path = parties.folder / "key"
    KeyFile(path, OTHER_RUN, 0).make()
    assert KeyFile(path, RUN, 0).load() is None
    assert KeyFile(path, OTHER_RUN, 1).load() is None
    assert KeyFile(path, OTHER_RUN, 0).load() is not None


def test_a_destroyed_key_is_gone(parties):
    keys = parties.keys("north", MemoryStore())
    keys.announce(0)
    (path,) = (parties.folder / "north").glob("*.key")
    link = parties.folder / "the same file"
    link.hardlink_to(path)
    keys.destroy()
    assert not path.exists()
    assert set(link.read_bytes()) == {0}
    keys.destroy()


def test_the_list_of_keys_is_the_same_after_a_restart(parties):
    stores = {name: parties.store(name) for name in NAMES}
    keys = {name: parties.keys(name, stores[name]) for name in NAMES}
    for each in keys.values():
        each.announce(0)
    for each in keys.values():
        for other in keys.values():
            assert each.ring.take("hub", other.ring.to_bytes()) == []
        each.masks()
    again = parties.keys("south", stores["south"])
    assert again.ring.complete
    assert again.ring.keys == keys["south"].ring.keys
    # An owner who finds a pin wrong is heeded, also in the midst of a view.
    corrected = {**parties.pins, "north": "0" * 64}
    with pytest.raises(DrawRefused, match="the key of north must hold by the pins as they are"):
        parties.keys("south", stores["south"], pins=corrected)
    for store in stores.values():
        store.close()


def test_a_ring_takes_what_it_checked_and_nothing_twice(parties):
    ring = parties.keys("south", MemoryStore()).ring
    key = announced(parties, "north")
    second = announced(parties, "north", parties.view())
    bad = key.model_copy(update={"signature": second.signature[:-8] + "AAAAAA=="})
    assert "not counted" in ring.take("hub", Announcing(keys={"north": bad}).to_bytes())[0]
    assert "north" not in ring
    assert ring.take("hub", Announcing(keys={"north": key}).to_bytes()) == []
    assert not ring.complete
    # Another form of the same signature is the same key; another key is not.
    assert ring.take("hub", Announcing(keys={"north": bad}).to_bytes()) == []
    other = key.model_copy(update={"public_key": "00" * 32})
    assert "it has two" in ring.take("hub", Announcing(keys={"north": other}).to_bytes())[0]
    assert ring.keys == {"north": key}


def test_a_server_takes_a_key_from_its_owner_alone(parties):
    """Else one party could keep another out with a bad key under its name."""
    ring = KeyRing(NAMES)
    key = SessionKey(certificate="", public_key="00" * 32, signature="")
    assert ring.take("west", Announcing(keys={"north": key, "west": key}).to_bytes()) == []
    assert "north" not in ring
    assert ring.brought("west")
    assert not ring.brought("hub")
