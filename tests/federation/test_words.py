"""What neighbours say: exact types, ranges, signatures; no callback raises, nothing is forged."""

import base64
import contextlib
import json
import sqlite3
import string
import time
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

pytest.importorskip("zenoh", reason="the extra 'federation' is not installed")

import zenoh
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.x509.oid import NameOID
from tests.helpers.federation_net import free_ports

from dpadmm.errors import ExchangeError, ParameterError
from dpadmm.federation.agreement import (
    Agreement,
    Consents,
    consents_note,
    noted_consents,
    signed_text,
)
from dpadmm.federation.identity import check_identity, make_authority, make_certificate
from dpadmm.federation.reach import Refusals
from dpadmm.federation.recovery import Departure
from dpadmm.federation.status import public_facts
from dpadmm.federation.transport.mailbox import Mailbox
from dpadmm.federation.transport.session import PeerSession, Security
from dpadmm.federation.transport.store import MemoryStore, MessageFile
from dpadmm.federation.transport.wire import (
    Agreeing,
    BadMessage,
    Consent,
    Decided,
    Departing,
    Ending,
    Frozen,
    Limits,
    agreement_limit,
    encode_message,
    noted,
    said,
)
from dpadmm.federation.watcher import Watcher
from dpadmm.plain import visible

RUN = bytes(range(32))
SHAPE = (1, 1, 3)
NODES = ("north", "south", "west")
LIMITS = Limits(frozenset(NODES), 10)
HASH = "0" * 64
CONSENT = {"certificates": [], "signature": ""}
GOOD = {
    Departing: {"lost": "west", "sent": {"north": 0, "south": 10}},
    Ending: {"rounds": 10, "heard": {"north": HASH}},
    Agreeing: {
        "dpadmm": "0.1.0",
        "facts": {"run": {"rounds": 10}},
        "consents": {"south": CONSENT},
        "names": {"north": "0" * 32},
    },
    Frozen: {"lost": "west", "sent": 3},
    Decided: {"lost": "west", "kept": 3, "furthest": 4},
}


class TestSchemas:
    @pytest.mark.parametrize("kind", GOOD)
    def test_a_good_one_is_read_and_sent_as_it_is(self, kind):
        words = said(kind, json.dumps(GOOD[kind]).encode(), "south", LIMITS)
        assert json.loads(words.to_bytes()) == GOOD[kind]

    @pytest.mark.parametrize("kind", GOOD)
    def test_a_field_less_or_more_is_refused(self, kind):
        for field in GOOD[kind]:
            content = {name: value for name, value in GOOD[kind].items() if name != field}
            with pytest.raises(BadMessage, match=f"what can be read: the field '{field}"):
                said(kind, json.dumps(content).encode(), "south", LIMITS)
        with pytest.raises(BadMessage, match="is not known: it may be of another version"):
            said(kind, json.dumps(GOOD[kind] | {"more": 1}).encode(), "south", LIMITS)

    @pytest.mark.parametrize("kind", [kind for kind in GOOD if kind is not Agreeing])
    @pytest.mark.parametrize("number", ["-1", "-100", "11", "1.0", "true", '"1"', "null", "1e999"])
    def test_counts_are_whole_numbers_within_the_run(self, kind, number):
        text = json.dumps(GOOD[kind])
        for place in ('"rounds": 10', '"north": 0', '"sent": 3', '"kept": 3', '"furthest": 4'):
            if place in text:
                data = text.replace(place, place.rpartition(" ")[0] + " " + number)
                with pytest.raises(BadMessage):
                    said(kind, data.encode(), "south", LIMITS)

    @pytest.mark.parametrize("kind", GOOD)
    def test_names_are_nodes_of_the_run(self, kind):
        for node in ("east", "", "a/b", "north\\n", "\\u001b[2J", "x" * 64):
            text = json.dumps(GOOD[kind])
            for known in ('"west"', '"north"', '"south"'):
                if known in text:
                    data = text.replace(known, f'"{node}"').encode()
                    with pytest.raises(BadMessage) as refusal:
                        said(kind, data, "south", LIMITS)
                    assert str(refusal.value).isprintable()

    @pytest.mark.parametrize(
        "data",
        [
            b"",
            b"\xff\xfe",
            "é".encode(),
            b"[" * 200_000,
            b'{"a":' * 20_000,
            b"NaN",
            b'{"lost": "west", "sent": {}, "lost": "north"}',
            b'{"lost": "west", "sent": {"north": Infinity}}',
            b'{"lost": "west", "sent": {"north": ' + b"9" * 5000 + b"}}",
            b" " * (1 << 20) + b"{}",
            json.dumps(GOOD[Departing]).encode("utf-16"),
        ],
    )
    def test_what_is_no_strict_json(self, data):
        for kind in GOOD:
            with pytest.raises(BadMessage):
                said(kind, data, "south", LIMITS)

    def test_facts_are_not_deep(self):
        deep = '{"a": ' * 40 + "1" + "}" * 40
        data = json.dumps(GOOD[Agreeing]).replace('{"rounds": 10}', deep).encode()
        with pytest.raises(BadMessage, match="32 levels deep"):
            said(Agreeing, data, "south", LIMITS)

    def test_a_note_that_is_damaged_ends_in_a_sentence(self):
        for text in ("yes", "{}", '{"lost": "west", "kept": -100, "furthest": 3}', "\ud800"):
            with pytest.raises(ExchangeError, match=r"its note of a decision is not: .*run_id"):
                noted(Decided, text, "a decision", LIMITS)
        with pytest.raises(ExchangeError, match="kept must be at most furthest"):
            noted(Decided, '{"lost": "west", "kept": 5, "furthest": 3}', "a decision", LIMITS)


# -- no callback raises --------------------------------------------------------------------------

FIELDS = ["lost", "sent", "rounds", "heard", "facts", "consents", "names", "dpadmm", *NODES]
FIELDS += ["certificates", "signature"]
words = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from([*NODES, HASH, "", "\x1b[31m\n", "\ud800", 10**30])
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(FIELDS) | st.text(max_size=4),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)


@st.composite
def nearly_good(draw):
    """A good message with one part of it replaced by something else."""
    content = json.loads(json.dumps(draw(st.sampled_from(list(GOOD.values())))))
    place = content
    while True:
        key = draw(st.sampled_from(sorted(place)))
        if not isinstance(place[key], dict) or not place[key] or draw(st.booleans()):
            place[key] = draw(words)
            return content
        place = place[key]


hostile = (
    st.binary(max_size=200)
    | (words | nearly_good()).map(lambda content: json.dumps(content).encode())
    | st.text(alphabet=string.printable, max_size=50).map(str.encode)
)
labels = st.text(max_size=12) | st.sampled_from(["facts", "done", "message", "*", "²", "1e9", "१"])


@pytest.fixture(scope="module")
def told():
    return []


@pytest.fixture(scope="module")
def parts(tmp_path_factory, told):
    """All that listens at a node, over a session of its own, and what it serves, by topic."""
    one, other = free_ports(2)
    session = PeerSession("north", f"127.0.0.1:{one}", {"south": f"127.0.0.1:{other}"}, None)
    store = MessageFile(tmp_path_factory.mktemp("store") / "messages")
    refuse = {"on_refused": lambda name, reason, error: told.append((name, reason, str(error)))}
    agreement = Agreement(
        session, GOOD[Agreeing]["facts"], NODES, Consents("north", RUN, None), **refuse
    )
    departure = Departure(session, RUN, NODES, NODES, 10, store, **refuse)
    mailbox = Mailbox(session, RUN, 0, {"south": 1}, SHAPE, store, limits=LIMITS, **refuse)
    mailbox.finish(0.0)
    departure.freeze("west", 3)
    yield agreement, departure, mailbox
    session.close()
    store.close()


@settings(max_examples=300, deadline=None)
@given(hostile, labels)
@example(b'{"rounds": 1e999, "heard": {}}', "done")
@example(b'{"lost": "west", "sent": {"south": -100}}', "")
@example(b'{"lost": ["west"], "sent": {}}', "")
@example(b'{"lost": {}, "sent": {}}', "")
@example(encode_message(RUN, 1, 0, np.full(SHAPE, np.nan)), "message")
def test_no_callback_raises_whatever_a_neighbour_sends(parts, told, data, label):
    agreement, departure, mailbox = parts
    for part in parts:
        part._take("south", label, data)
        answer = part._answer(label)
        assert answer is None or isinstance(answer, bytes)
    mailbox._take("south", "done", data)
    # Nothing was believed that is out of range, and nothing is told that is not plain text.
    assert set(departure._sent) <= {"north", "south"}
    assert all(type(count) is int and 0 <= count <= 10 for count in departure._sent.values())
    assert all(type(count) is int and 0 <= count <= 10 for count in mailbox._done.values())
    assert set(agreement._agreed) <= set(NODES)
    assert agreement._fault.isprintable()
    assert all(name == "south" and error.isprintable() for name, _, error in told)


def test_whatever_comes_over_the_network_is_dealt_with():
    """A peer without any of our rules: keys, attachments, tokens and queries, without TLS."""
    one, other = free_ports(2)
    events, refused = [], []
    session = PeerSession(
        "north",
        f"127.0.0.1:{one}",
        {"south": f"127.0.0.1:{other}"},
        None,
        on_event=lambda name, **facts: events.append((name, public_facts_of(facts))),
    )
    refuse = {"on_refused": lambda name, reason, error: refused.append(reason)}
    store = MemoryStore()
    Agreement(session, GOOD[Agreeing]["facts"], NODES, Consents("north", RUN, None), **refuse)
    departure = Departure(session, RUN, NODES, NODES, 10, store, **refuse)
    mailbox = Mailbox(session, RUN, 0, {"south": 1}, SHAPE, store, limits=LIMITS, **refuse)
    configuration = zenoh.Config()
    for key, value in (
        ("mode", "client"),
        ("connect/endpoints", [f"tcp/127.0.0.1:{one}"]),
        ("scouting/multicast/enabled", False),
    ):
        configuration.insert_json5(key, json.dumps(value))
    draw = np.random.default_rng(5)
    with zenoh.open(configuration) as peer:
        first = peer.liveliness().declare_token("dpadmm/alive/south/one")
        odd = ("dpadmm/**", "dpadmm/alive/*/x", "dpadmm/alive/south/\x1b\n", "dpadmm/*/*/*")
        tokens = [peer.liveliness().declare_token(key) for key in odd]
        for number in range(300):
            data = draw.bytes(int(draw.integers(0, 200)))
            label = ("message", "done", "*", "x\n", "\u202e", "1" * 20)[number % 6]
            attachment = (b"one", None, data, b"\xff" * 1000)[number % 4]
            key = f"dpadmm/{RUN.hex()}/south/{label}"
            peer.put(key, data, attachment=attachment)
            for topic in (RUN.hex(), "agreement", "departure", "*"):
                peer.get(f"dpadmm/{topic}/north/{label}", payload=data, timeout=0.1)
        for kind in GOOD:
            peer.put(f"dpadmm/{RUN.hex()}/south/done", json.dumps(GOOD[kind]), attachment=b"one")
        endless = b'{"rounds": 1e999, "heard": {}}'
        peer.put(f"dpadmm/{RUN.hex()}/south/done", endless, attachment="one")
        deadline = time.monotonic() + 20
        while mailbox._done != {"south": 10} or "invalid" not in refused:
            assert time.monotonic() < deadline, (mailbox._done, refused[-5:], events[-5:])
            time.sleep(0.02)
        for token in (first, *tokens):
            token.undeclare()
    departure.freeze("west", 3)
    session.close()
    assert not [event for event in events if event[0] == "no-answer"]
    assert {name for name, _ in events} <= {
        "neighbour-here",
        "neighbour-gone",
        "name-claimed-twice",
    }


def public_facts_of(facts):
    return public_facts({name: value for name, value in facts.items() if name != "level"})


def test_a_departure_takes_no_count_out_of_range(parts, told):
    _, departure, _ = parts
    departure._sent = {"north": 3}
    for count in (-100, 11, 1e3, True, "3", None):
        told.clear()
        content = {"lost": "west", "sent": {"south": count}}
        departure._take("south", "", json.dumps(content).encode())
        assert departure._sent == {"north": 3}
        assert told[0][:2] == ("south", "invalid")
    departure._take("south", "", b'{"lost": "west", "sent": {"south": 4, "west": 9, "north": 7}}')
    # Neither of the lost one nor of this node does a neighbour decide.
    assert departure._sent == {"north": 3, "south": 4}


def test_notes_of_an_older_version_or_a_damaged_file(tmp_path):
    port = free_ports(1)[0]
    with (
        PeerSession("north", f"127.0.0.1:{port}", {}, None) as session,
        MessageFile(tmp_path / "messages") as store,
    ):
        for note in ("{", '{"lost": "west", "sent": -100}', '{"lost": "east", "sent": 3}', "null"):
            store.take_note(RUN, "departure", note)
            with pytest.raises(ExchangeError, match="messages must be a file as a node"):
                Departure(session, RUN, NODES, NODES, 10, store)
        for note in ("{", '{"lost": "west", "kept": -100, "furthest": 3}', "[]"):
            store.take_note(RUN, "departure", '{"lost": "west", "sent": 3}')
            store.take_note(RUN, "departure decided", note)
            with pytest.raises(ExchangeError, match="its note of a decision is not"):
                Departure(session, RUN, NODES, NODES, 10, store).decided()
    with sqlite3.connect(tmp_path / "messages") as connection:
        connection.execute("UPDATE notes SET value = CAST(x'fffe' AS TEXT)")
    connection.close()
    with MessageFile(tmp_path / "messages") as store, pytest.raises(ExchangeError):
        Departure.sent_before(store, RUN)


def test_an_agreement_that_cannot_be_read_is_reached_anew():
    consents = {name: Consent(certificates=[], signature="") for name in NODES}
    note = consents_note(consents)
    assert noted_consents(note, NODES, signed=False) == consents
    assert noted_consents(None, NODES, signed=False) is None
    for damaged in ("yes", "{}", note[:-2], note.replace("west", "east")):
        assert noted_consents(damaged, NODES, signed=False) is None
    # Begun without TLS, it was not signed.
    assert noted_consents(note, NODES, signed=True) is None


# -- consents ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificates")
    make_authority(folder)
    for name in NODES:
        make_certificate(folder, name)
    return folder


def files(folder, name):
    return Security(folder / "ca.pem", folder / f"{name}.pem", folder / f"{name}.key")


def der(certificate):
    return base64.b64encode(certificate.public_bytes(serialization.Encoding.DER)).decode()


def signed_by(issuer, issuer_key, name, key, *, authority=False, days=10, length=None):
    """A certificate for a key, signed by whoever has the issuer's."""
    now = datetime.now(UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    constraints = x509.BasicConstraints(ca=authority, path_length=length)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=20))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(constraints, critical=True)
        .sign(issuer_key, hashes.SHA256())
    )


def load(folder, name):
    certificate = x509.load_pem_x509_certificate((folder / f"{name}.pem").read_bytes())
    key = serialization.load_pem_private_key((folder / f"{name}.key").read_bytes(), None)
    return certificate, key


def write(place, name, key, *chain):
    pem = serialization.Encoding.PEM
    (place / f"{name}.pem").write_bytes(b"".join(item.public_bytes(pem) for item in chain))
    (place / f"{name}.key").touch(mode=0o600)
    (place / f"{name}.key").write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )


class TestConsent:
    def test_everybody_can_check_it(self, folder):
        consent = Consents("south", RUN, files(folder, "south")).own()
        for name in NODES:
            assert Consents(name, RUN, files(folder, name)).fault("south", consent) == ""

    def test_nobody_can_give_it_for_another_or_for_another_run(self, folder):
        north = Consents("north", RUN, files(folder, "north"))
        south = Consents("south", RUN, files(folder, "south")).own()
        west = Consents("west", RUN, files(folder, "west")).own()
        other = Consents("south", bytes(32), files(folder, "south")).own()
        assert north.fault("west", south) == "its certificate is another node's"
        assert north.fault("south", west) == "its certificate is another node's"
        wrong = "its signature is not of this run by the key of the certificate"
        assert north.fault("south", other) == wrong
        mixed = Consent(certificates=south.certificates, signature=west.signature)
        assert north.fault("south", mixed) == wrong
        assert north.fault("south", Consent(certificates=[], signature="")) == "it is not signed"
        assert north.fault("south", west.model_copy(update={"certificates": []}))

    def test_a_node_is_no_authority(self, folder, tmp_path):
        """West signs a certificate for south with its own key, and vouches for it with its own."""
        (west, west_key), (root, _) = load(folder, "west"), load(folder, "ca")
        key = ec.generate_private_key(ec.SECP256R1())
        forged = signed_by(west, west_key, "south", key)
        signature = key.sign(signed_text(RUN, "south"), ec.ECDSA(hashes.SHA256()))
        text = base64.b64encode(signature).decode()
        north = Consents("north", RUN, files(folder, "north"))
        for chain in ([forged, west], [forged, west, root], [forged, root], [forged]):
            consent = Consent(certificates=[der(item) for item in chain], signature=text)
            assert north.fault("south", consent) == "its certificate is not of the authority"
        # Nor may it run with it.
        write(tmp_path, "south", key, forged, west)
        with pytest.raises(ParameterError, match="must be signed by the authority"):
            check_identity(
                "south", tmp_path / "south.pem", tmp_path / "south.key", folder / "ca.pem"
            )

    def test_an_authority_of_ones_own_counts_for_nothing(self, folder, tmp_path):
        make_authority(tmp_path)
        make_certificate(tmp_path, "south")
        consent = Consents("south", RUN, files(tmp_path, "south")).own()
        north = Consents("north", RUN, files(folder, "north"))
        assert north.fault("south", consent) == "its certificate is not of the authority"

    def test_dates(self, folder):
        root, root_key = load(folder, "ca")
        key = ec.generate_private_key(ec.SECP256R1())
        late = signed_by(root, root_key, "south", key, days=-1)
        signature = key.sign(signed_text(RUN, "south"), ec.ECDSA(hashes.SHA256()))
        consent = Consent(certificates=[der(late)], signature=base64.b64encode(signature).decode())
        north = Consents("north", RUN, files(folder, "north"))
        assert north.fault("south", consent) == "its certificate is not valid now"

    @pytest.mark.parametrize(
        "make",
        [
            ed25519.Ed25519PrivateKey.generate,
            lambda: ec.generate_private_key(ec.SECP384R1()),
            lambda: rsa.generate_private_key(65537, 2048),
        ],
    )
    def test_kinds_of_keys_and_a_chain(self, folder, tmp_path, make):
        root, root_key = load(folder, "ca")
        middle_key, key = ec.generate_private_key(ec.SECP256R1()), make()
        middle = signed_by(root, root_key, "middle", middle_key, authority=True)
        own = signed_by(middle, middle_key, "south", key)
        write(tmp_path, "south", key, own, middle, root)
        (tmp_path / "ca.pem").write_bytes((folder / "ca.pem").read_bytes())
        consent = Consents("south", RUN, files(tmp_path, "south")).own()
        assert len(consent.certificates) == 2  # the authority is everywhere
        assert Consents("north", RUN, files(folder, "north")).fault("south", consent) == ""
        # An authority for nodes alone makes no further authorities.
        short = signed_by(root, root_key, "middle", middle_key, authority=True, length=0)
        lower_key = ec.generate_private_key(ec.SECP256R1())
        lower = signed_by(short, middle_key, "lower", lower_key, authority=True)
        own = signed_by(lower, lower_key, "south", key)
        longer = Consent(
            certificates=[der(item) for item in (own, lower, short)], signature=consent.signature
        )
        fault = Consents("north", RUN, files(folder, "north")).fault("south", longer)
        assert fault == "its certificate is not of the authority"

    def test_a_key_that_cannot_serve_is_refused_before_anything(self, folder, tmp_path):
        root, root_key = load(folder, "ca")
        key = ed448.Ed448PrivateKey.generate()
        write(tmp_path, "south", key, signed_by(root, root_key, "south", key))
        with pytest.raises(ParameterError, match="a key must be ECDSA, RSA or Ed25519"):
            check_identity(
                "south", tmp_path / "south.pem", tmp_path / "south.key", folder / "ca.pem"
            )

    @settings(max_examples=60, deadline=None)
    @given(st.data())
    def test_whatever_else_is_sent_is_no_consent(self, folder, data):
        good = Consents("south", RUN, files(folder, "south")).own()
        raw = bytearray(base64.b64decode(good.certificates[0]))
        place = data.draw(st.integers(0, len(raw) - 1))
        raw[place] ^= data.draw(st.integers(1, 255))
        damaged = base64.b64encode(bytes(raw)).decode()
        some = data.draw(st.binary(max_size=40))
        other = base64.b64encode(some).decode()
        north = Consents("north", RUN, files(folder, "north"))
        # A change of the unused bits of the authority's signature leaves the certificate the same.
        with contextlib.suppress(ValueError):
            whole, own = x509.load_der_x509_certificate(bytes(raw)), good.certificates[0]
            before = x509.load_der_x509_certificate(base64.b64decode(own))
            assume(
                (whole.tbs_certificate_bytes, whole.signature)
                != (before.tbs_certificate_bytes, before.signature)
            )
        for certificates, signature in (
            ([damaged], good.signature),
            ([other], good.signature),
            (good.certificates, other),
            ([other, good.certificates[0]], good.signature),
        ):
            assert north.fault("south", Consent(certificates=certificates, signature=signature))

    def test_it_is_bounded_whatever_was_added_to_it(self, folder):
        """All of them together fit into the message of an honest node that hands them on."""
        good = Consents("south", RUN, files(folder, "south")).own()
        for more in (["A" * 16_000], ["AAAA"] * 4, ["A" * 6_000] * 3):
            with pytest.raises(ValueError):
                Consent(certificates=[*good.certificates, *more], signature=good.signature)
        many = {f"{'n' * 58}{number:05}": good for number in range(500)}
        fullest = Consent(certificates=["A" * 15_000], signature="A" * 1_128)
        names = dict.fromkeys(many, "0" * 32)
        for consent in (good, fullest):
            told = Agreeing(
                dpadmm="1", facts={}, consents=dict.fromkeys(many, consent), names=names
            )
            assert len(told.to_bytes()) < agreement_limit(len(many))

    def test_a_chain_that_is_too_long_is_named(self, folder, tmp_path):
        own, key = load(folder, "south")
        others = [load(folder, name)[0] for name in ("north", "west", "north", "west")]
        write(tmp_path, "south", key, own, *others)
        (tmp_path / "ca.pem").write_bytes((folder / "ca.pem").read_bytes())
        with pytest.raises(ParameterError, match="at most 3 others between it and the authority"):
            Consents("south", RUN, files(tmp_path, "south")).own()

    def test_without_tls_it_is_empty_and_says_so(self, folder):
        loopback = Consents("north", RUN, None)
        assert not loopback.signed
        assert loopback.fault("south", loopback.own()) == ""
        signed = Consents("south", RUN, files(folder, "south"))
        assert signed.signed
        assert loopback.fault("south", signed.own())
        assert signed.fault("north", loopback.own()) == "it is not signed"


# -- what is shown -------------------------------------------------------------------------------


@given(st.text(max_size=400), st.integers(10, 300))
def test_nothing_invisible_is_shown(text, longest):
    shown = visible(text, longest=longest)
    assert shown.isprintable()
    assert len(shown) <= longest
    shown.encode()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\nb\r\x1b[2J\x9b", "a\\nb\\r\\x1b[2J\\x9b"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("no\u200brth\ufeff\u2066", "no\\u200brth\\ufeff\\u2066"),
        ("\ud800\U000e0041\u3164", "\\ud800\\U000e0041\\u3164"),
        ("Göteborg 北", "Göteborg 北"),
    ],
)
def test_what_is_shown_instead(text, shown):
    assert visible(text) == shown


ZID = "a03b2fbb5565eb87a69f2f218953f1a7"
PREFIX = "2026-11-17T12:26:41.086245Z TRACE rx-1 ThreadId(16) "
ACCESS = "zenoh::net::routing::interceptor::access_control: "


def denied(name, key, zid=ZID):
    who = f"{zid} on Interface(lo)+CertCommonName({name})+Transport(Tls)+{zid}"
    return f"{PREFIX}{ACCESS}{who} is unauthorized to Put (ingress) on {key}"


class TestTransportRecords:
    @pytest.fixture
    def accused(self, tmp_path):
        """Who is accused after some records, and whether each was taken."""

        def take(*records):
            with Watcher("north", log=tmp_path / "log") as watcher:
                refusals = Refusals(watcher)
                taken = [refusals.take(record) for record in records]
            lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
            (tmp_path / "log").unlink()
            return [line["facts"].get("neighbour") for line in lines], taken

        return take

    def test_who_writes_as_another_is_named_by_its_certificate(self, accused):
        plain = denied("west", "dpadmm/t/south/x")
        coloured = f"\x1b[2m{plain}".replace("Z TRACE ", "Z\x1b[0m \x1b[35m TRACE\x1b[0m ")
        coloured = coloured.replace("zenoh::", "\x1b[2mzenoh::").replace(
            "access_control:", "access_control\x1b[0m\x1b[2m:\x1b[0m"
        )
        assert accused(plain + "\n") == (["west"], [True])
        assert accused(plain.replace("rx-1", " rx-1") + "\n") == (["west"], [True])
        assert accused(coloured + "\n") == (["west"], [True])

    def test_no_key_accuses_anybody_else(self, accused):
        forged = denied("south", "dpadmm/t/north/message")
        for key in (
            f"dpadmm/t/west/x\n{forged}",
            f"dpadmm/t/south/x\n{forged}\n",
            f"x\n\n{forged}",
            "x) is unauthorized to Put (ingress) on dpadmm/t/north/message",
            " on CertCommonName(south)",
        ):
            names, taken = accused(denied("west", key) + "\n")
            assert set(names) <= {"west"}
            assert taken == [True]
        allowed = f"{PREFIX}{ACCESS}{ZID} on CertCommonName(west)+{ZID} is authorized to Put "
        assert accused(f"{allowed}(ingress) on dpadmm/t/west/x\n{forged}\n") == ([], [True])

    def test_a_name_that_is_none_names_nobody(self, accused):
        for name in ("west)+CertCommonName(south", "south\n", "", "so uth", "\x1b"):
            assert accused(denied(name, "dpadmm/t/south/x") + "\n") == ([], [True])

    def test_a_number_that_two_have_used_names_nobody(self, accused):
        cached = (
            f"{PREFIX}{ACCESS}Using cached result: {ZID} is unauthorized to Put (ingress) on x\n"
        )
        first = denied("west", "dpadmm/t/south/x") + "\n"
        second = denied("south", "dpadmm/t/west/x") + "\n"
        assert accused(first, cached)[0] == ["west", "west"]
        assert accused(first, second, cached)[0] == ["west", "south", "somebody"]

    def test_a_reason_is_how_a_record_begins(self, accused, tmp_path):
        tls = f"{PREFIX}zenoh_link_tls::unicast: "
        hint = ". Hint: increase the system open file limit.\n"
        for words, known in (
            ("invalid peer certificate: UnknownIssuer", True),
            ("not valid for name peer sent no certificates", False),
        ):
            names, taken = accused(tls + words + hint)
            assert taken == [known]
            assert len(names) == known


def test_memory_is_bounded_however_many_a_neighbour_declares(tmp_path):
    port, other = free_ports(2)
    with PeerSession(
        "north", f"127.0.0.1:{port}", {"south": f"127.0.0.1:{other}"}, None
    ) as session:
        for number in range(5000):
            session.claims.comes("south", f"{number:032x}")
            session.claims.comes("south", "not an instance" * number)
        assert len(session.claims._alive["south"]) <= 101
        assert session.present("south")
    with Watcher("north", log=tmp_path / "log") as watcher:
        refusals = Refusals(watcher)
        for number in range(3000):
            refusals.take(denied("west", "dpadmm/t/south/x", zid=f"{number:032x}") + "\n")
        assert len(refusals._names) <= 1000
