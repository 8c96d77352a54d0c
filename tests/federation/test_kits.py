"""A federation from one public file: what is made, what is refused, and what changes later."""

import base64
import itertools
import json
import os
import shutil
import tomllib
import zipfile

import pytest
import tomli_w
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)
from cryptography.hazmat.primitives.serialization import Encoding

pytest.importorskip("zenoh", reason="the extra 'federation' is not installed")

from tests.helpers.kits import NAMES, Members

from dpadmm.data.schema import load_schema
from dpadmm.errors import DataError, LedgerError, ParameterError
from dpadmm.federation import membership
from dpadmm.federation.agreement import Consents
from dpadmm.federation.config import AgreedRun, load_agreed_run, load_node_config
from dpadmm.federation.identity import (
    load_certificates,
    make_authority,
    read_certificate,
    read_request,
    signed_request,
)
from dpadmm.federation.joining import Choices, current_kit, join, read_kit, unpinned
from dpadmm.federation.kit import kits_of, read_files, write_kits, zipped
from dpadmm.federation.membership import load_federation, sign_requests, write_change
from dpadmm.federation.pins import PHRASE, WORDS, PinTable, spoken
from dpadmm.federation.runtime import prepare_node
from dpadmm.federation.transport.wire import Consent
from dpadmm.ledger.sqlite import SQLiteLedger
from dpadmm.run.model import load_model

P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


@pytest.fixture
def members(tmp_path):
    return Members(tmp_path)


def tree(folder):
    """Every file of a folder with its content."""
    return {file: file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


# -- words ----------------------------------------------------------------------------------------


def distance(first, second):
    """Levenshtein's."""
    line = list(range(len(second) + 1))
    for row, letter in enumerate(first, start=1):
        line, before = [row], line
        for place, other in enumerate(second):
            change = before[place] + (letter != other)
            line.append(min(line[-1] + 1, before[place + 1] + 1, change))
    return line[-1]


def test_words_are_told_apart():
    assert len(WORDS) == 256
    assert len({word[:3] for word in WORDS}) == 256
    assert all(word.isascii() and word.islower() and 4 <= len(word) <= 8 for word in WORDS)
    assert min(distance(*pair) for pair in itertools.combinations(WORDS, 2)) >= 3


def test_words_are_the_bytes_and_every_row_counts():
    assert spoken("00ff" + "7a" * 30).split()[:2] == [WORDS[0], WORDS[255]]
    assert len(spoken("ab" * 32).split()) == PHRASE
    pins = {"north": "1" * 64, "south": "2" * 64}
    table = PinTable("wards", ("3" * 64,), pins, {})
    others = [
        PinTable("words", ("3" * 64,), pins, {}),
        PinTable("wards", ("4" * 64,), pins, {}),
        PinTable("wards", ("3" * 64,), pins | {"south": "2" * 63 + "1"}, {}),
        PinTable("wards", ("3" * 64,), {"north": "2" * 64, "south": "1" * 64}, {}),
        PinTable("wards", ("3" * 64,), pins, {"north": "5" * 64}),
    ]
    assert len({each.phrase for each in [table, *others]}) == 6
    table.check_heard(f"  {table.phrase.upper()}\n")
    with pytest.raises(ParameterError, match="must be the 20 words"):
        table.check_heard(table.phrase.split()[0])
    with pytest.raises(ParameterError, match="Somebody has another table"):
        table.check_heard(others[2].phrase)


# -- kits -----------------------------------------------------------------------------------------


def test_kits_are_the_same_bytes_and_have_nothing_secret(members, tmp_path):
    members.certify()
    first = tree(members.kits())
    write_kits(kits_of(load_federation(members.file)), tmp_path / "again")
    assert list(first.values()) == list(tree(tmp_path / "again").values())
    for name, data in zip(sorted(NAMES), first.values(), strict=True):
        key = (members.place(name) / f"{name}.key").read_text().splitlines()[1]
        assert key.encode() not in data
        assert b"PRIVATE" not in data
    # The same once more is no change; another content of this revision is refused whole.
    members.kits()
    table = tomllib.loads(members.file.read_text())
    table["run"]["rounds"] = 5
    members.write(table)
    with pytest.raises(ParameterError, match="raise revision in the federation's file"):
        members.kits()
    assert tree(members.folder / "kits-1") == first


def test_a_folder_is_a_kit_too(members, tmp_path):
    members.certify()
    kits = kits_of(load_federation(members.file))
    (place, *_) = write_kits(kits, tmp_path / "folders", folders=True)
    assert read_kit(place).files == read_kit(members.kits() / "north.zip").files


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"run": {"topology": [["north", "south"]]}}, "topology must be connected"),
        ({"organisation": "repeat name"}, "names that differ; 'north' is there twice"),
        ({"organisation": "repeat address"}, "addresses that differ; 'localhost:7447'"),
        ({"run": {"run_id": "a/b"}}, "run_id under .run. must be 1 to 63 letters"),
        ({"run": {"round": 3}}, "round under .run. is not a known key"),
        ({"rotation": ["lake"]}, "rotation must name organisations of this file; got 'lake'"),
        ({"colour": "red"}, "colour is not a known key"),
    ],
)
def test_a_public_file_that_makes_no_run(members, change, words):
    table = tomllib.loads(members.file.read_text())
    if change.get("organisation") == "repeat name":
        table["organisation"][1]["name"] = "North"
    elif "organisation" in change:
        table["organisation"][1]["address"] = "LOCALHOST:7447"
        table["organisation"][0]["address"] = "localhost:7447"
    else:
        table |= {**change, "run": {**table["run"], **change.get("run", {})}}
    members.write(table)
    before = tree(members.folder)
    with pytest.raises(ParameterError, match=words):
        kits_of(load_federation(members.file))
    assert tree(members.folder) == before


def test_everybody_needs_a_certificate_of_its_own_address(members):
    with pytest.raises(ParameterError, match=r"not there: north, south, west\. Each organisation"):
        members.kits()
    members.certify()
    table = tomllib.loads(members.file.read_text())
    table["organisation"][2]["address"] = "west.example.org:7447"
    members.write(table)
    with pytest.raises(ParameterError, match=r"certificate of west; it is not for west\.example"):
        members.kits()
    assert not list(members.folder.glob("*kits*"))


# -- requests -------------------------------------------------------------------------------------


def test_requests_that_are_not_signed(members, tmp_path, monkeypatch):
    members.certify(["north"])
    told = load_federation(members.file)
    before = tree(told.certificates)

    def refused(words, *requests):
        with pytest.raises(ParameterError, match=words):
            sign_requests(told, requests, members.authority, 365)
        assert tree(told.certificates) == before

    good = members.request("south")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    table = tomllib.loads(members.file.read_text())
    for key, value in (("name", "yards"), ("organisation", None)):
        other = Members(elsewhere, ("lake", "pond", "west"))
        told_there = tomllib.loads(other.file.read_text())
        other.write(told_there | ({} if value is None else {key: value}))
        request = other.request("west" if value else "lake")
        words = "for this federation, 'wards'; that of west is for 'yards'" if value else "lake"
        refused(words, good, request)
        shutil.rmtree(elsewhere / request.parent.name)
    table["organisation"][2]["address"] = "west.example.org:7447"
    members.write(table)
    foreign = members.request("west")
    refused(r"for the host that the federation's file has, 127.0.0.1; that of west", good, foreign)
    cut = tmp_path / "cut.csr"
    cut.write_text(good.read_text().replace("M", "N", 3))
    refused("a request must be", cut)
    refused("must not be there twice", good, good)
    monkeypatch.setattr(membership, "datetime", Later)
    refused("must not have expired; that of south did", good)


class Later:
    """A clock in a year."""

    @staticmethod
    def now(zone):
        from datetime import datetime, timedelta

        return datetime.now(zone) + timedelta(days=365)


def test_a_request_of_another_tool_is_refused(members, tmp_path):
    from tests.federation.test_certificates import openssl

    request = tmp_path / "west.csr"
    done = openssl(
        "req", "-new", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=west",
        "-keyout", tmp_path / "w.key", "-out", request,
    )  # fmt: skip
    assert done.returncode == 0
    members.certify(["north"])
    with pytest.raises(ParameterError, match="as dpadmm cert request writes it"):
        sign_requests(load_federation(members.file), [request], members.authority, 365)


# -- joining --------------------------------------------------------------------------------------


def test_joining_leaves_a_node_that_starts(members):
    members.certify()
    members.kits()
    joined = members.join("north")
    place = members.place("north")
    assert joined.ledger == place / "north.ledger"
    assert all(check.ok for check in joined.checks)
    assert joined.unpinned == ("south", "west")
    with pytest.raises(ParameterError, match=r"\[pins\] must have"):
        prepare_node(load_node_config(place / "node.toml"))
    joined = members.join("north", heard=joined.kit.table.phrase)
    assert joined.unpinned == ()
    assert joined.ledger is None
    setup = prepare_node(load_node_config(place / "node.toml"))
    assert setup.run == joined.setup.run
    assert setup.config.policy.epsilon == 1.0
    assert (place / "own.toml").stat().st_mode & 0o777 == 0o600
    with SQLiteLedger(place / "north.ledger", read_only=True) as ledger:
        assert (ledger.policy.epsilon, ledger.policy.colluders) == (9.0, 1)


def test_a_ledger_for_noise_that_is_not_gaussian(tmp_path):
    members = Members(tmp_path, run={"algorithm": "dvp", "algorithm_options": {}})
    members.certify()
    members.kits()
    members.join("north")
    with SQLiteLedger(tmp_path / "north" / "north.ledger", read_only=True) as ledger:
        assert ledger.policy.filter == "renyi"


LINKS = [["north", "south"], ["south", "west"], ["west", "lake"], ["west", "harbour"]]


@pytest.mark.parametrize(
    ("topology", "neighbours"),
    [("ring", 2), ("path", 2), ("star", 1), ("grid", 1), ("random", None), (LINKS, 3)],
)
def test_every_graph_makes_kits_that_are_ready(tmp_path, topology, neighbours):
    run = {"algorithm": "pr-admm", "algorithm_options": {}, "topology": topology}
    members = Members(tmp_path, (*NAMES, "lake", "harbour"), run=run)
    members.certify()
    members.kits()
    joined = members.join("west")
    assert all(check.ok for check in joined.checks)
    linked = {each.name for each in joined.setup.config.neighbour}
    assert linked == set(joined.kit.agreed.neighbours("west", joined.setup.planned))
    assert neighbours in (None, len(linked))


def test_an_owner_decides_for_itself_and_keeps_it(members):
    members.certify()
    members.kits()
    members.join("north", epsilon=3.0, most_epsilon=1.5)
    place = members.place("north")
    own = tomllib.loads((place / "own.toml").read_text())
    own["policy"]["when_lost"] = "continue"
    own["watch"] = {"metrics": "127.0.0.1:9464"}
    (place / "own.toml").write_text(tomli_w.dumps(own))
    members.join("north")
    config = load_node_config(place / "node.toml")
    assert config.policy.epsilon == 1.5
    assert config.policy.when_lost == "continue"
    # What the kit says beside it stays.
    assert config.watch.metrics == "127.0.0.1:9464"
    assert config.watch.log == place / "north.log"
    with pytest.raises(ParameterError, match="dpadmm ledger amend"):
        members.join("north", epsilon=5.0)


def refused(members, name, words, error=ParameterError, kit=None, **choices):
    """Joining is refused, and nothing of the folder is another."""
    place = members.place(name)
    before = tree(place)
    with pytest.raises(error, match=words):
        join(read_kit(kit or members.folder / "kits-1" / f"{name}.zip"), place, Choices(**choices))
    assert tree(place) == before
    assert not [file for file in place.iterdir() if "partial" in file.name]


def test_kits_that_are_not_joined(members, tmp_path):
    members.certify()
    members.kits()
    rows = str(members.place("north") / "rows.csv")
    kits = members.folder / "kits-1"
    refused(members, "north", "data must be given when north joins")
    refused(members, "north", "must be a file|No such file", ValueError, data="nowhere.csv")
    refused(members, "north", "Somebody has another", data=rows, heard=" ".join(WORDS[:20]))
    refused(members, "north", "key must be the file", kit=kits / "south.zip", data=rows)
    key = members.place("north") / "north.key"
    south = kits / "south.zip"
    refused(members, "north", "must have the certificate of this", kit=south, data=rows, key=key)
    refused(members, "north", "must fit|more than|must be at most", ValueError, data=rows,
            most_epsilon=0.5)  # fmt: skip
    refused(members, "north", "epsilon", LedgerError, data=rows, epsilon=0.1)
    # Of another federation: before the first kit the request tells, later the kit that is there.
    there = tmp_path / "there"
    there.mkdir()
    other = Members(there)
    other.write(tomllib.loads(other.file.read_text()) | {"name": "yards"})
    other.certify()
    foreign = other.kits() / "north.zip"
    refused(members, "north", "'wards'; got one of 'yards'", kit=foreign, data=rows)
    members.join("north")
    refused(members, "north", "of north in the federation 'wards'; got one of", kit=foreign)
    # The same name, and yet another authority.
    again = tmp_path / "again"
    again.mkdir()
    impostor = Members(again)
    impostor.certify()
    refused(members, "north", "of the same authority", kit=impostor.kits() / "north.zip")


@pytest.mark.parametrize("stop", ["own.toml", "node.toml"])
def test_a_joining_that_fails_leaves_what_was_there(members, monkeypatch, stop):
    """The disk is full in the midst of the first kit, and of the second."""
    from dpadmm.federation import joining

    members.certify()
    members.kits()
    whole = joining.write_whole

    def full(path, content, what):
        if path.name == stop:
            raise DataError("the disk is full")
        whole(path, content, what)

    def full_own(folder, own):
        raise DataError("the disk is full")

    rows = str(members.place("north") / "rows.csv")
    for number in (1, 2):
        with monkeypatch.context() as patch:
            patch.setattr(joining, "write_whole", full)
            if stop == "own.toml":
                patch.setattr(joining, "_write_own", full_own)
            kit = members.folder / f"kits-{number}" / "north.zip"
            place = members.place("north")
            before = tree(place)
            with pytest.raises(DataError, match="the disk is full"):
                join(read_kit(kit), place, Choices(data=rows))
            left = tree(place)
            left.pop(place / "own.toml", None)
            before.pop(place / "own.toml", None)
            assert left == before
        members.join("north")
        write_change(members.file, lambda told, table: table.update(rotation=[]))
        members.kits()
    assert current_kit(members.place("north")).facts.revision == 2


def edited(kit, place, **files):
    """A kit with other files in it."""
    with zipfile.ZipFile(kit) as file:
        content = {name: file.read(name) for name in file.namelist()}
    content |= {name.replace("_", "."): data for name, data in files.items()}
    with zipfile.ZipFile(place, "w") as file:
        for name, data in content.items():
            if data is not None:
                file.writestr(name, data)
    return place


def test_a_kit_of_pieces_is_refused_and_nothing_in_it_is_believed(members, tmp_path):
    members.certify()
    kits = members.kits()
    north, south = kits / "north.zip", kits / "south.zip"
    told, other = read_kit(north), read_kit(south)
    rows = str(members.place("north") / "rows.csv")
    node = tomllib.loads(told.files["node.toml"].decode())
    agreed = tomllib.loads(told.files["agreed.toml"].decode())
    changes = {
        "node.toml and the other files differ": [
            {"node_toml": other.files["node.toml"]},
            *(
                {"node_toml": tomli_w.dumps(node | change)}
                for change in (
                    {"simulation": {"key": 1}},
                    {"result": {"model": "/etc/passwd"}},
                    {"own": "/elsewhere/own.toml"},
                    {"policy": {"epsilon": 9.0, "delta": 0.1}},
                    {"neighbour": node["neighbour"][:1]},
                )
            ),
        ],
        "the own certificate and the other files differ": [
            {"certificate_pem": other.files["certificate.pem"]}
        ],
        "the members and the other files differ": [
            {"agreed_toml": tomli_w.dumps(agreed | {"party": agreed["party"][:2]})}
        ],
        "the schema and the other files differ": [
            {"schema_toml": told.files["schema.toml"].replace(b"upper = 100", b"upper = 101")}
        ],
        "the rotation and the other files differ": [
            {"agreed_toml": tomli_w.dumps(agreed | {"rotation": {"north": ["1" * 64, "2" * 64]}})}
        ],
        "a kit must have agreed.toml": [{"agreed_toml": None}],
        "must be valid TOML": [{"kit_toml": b"= ="}],
    }
    place = tmp_path / "edited.zip"
    for words, each in changes.items():
        for files in each:
            refused_kit = edited(north, place, **files)
            with pytest.raises(ParameterError, match=words):
                read_kit(refused_kit)
    # Neither page nor unit is taken from a kit; files with other names are not looked at.
    odd = edited(north, place, README_md="Run curl | sh", **{"../evil": b"x"})
    made = read_kit(odd)
    assert made.files["README.md"] == told.files["README.md"]
    assert "../evil" not in made.files
    join(made, members.place("north"), Choices(data=rows))
    assert not (members.folder / "evil").exists()


@pytest.mark.parametrize(
    "run_id", ["../../evil", "/tmp/evil", "kit-1/agreed", "north.status", "a\x1b[31mb", ".."]
)
def test_a_kit_never_says_where_results_go_outside_its_folder(members, run_id):
    """Its parts agree with each other; whoever made it wants other files overwritten."""
    members.certify()
    files = dict(read_files(members.kits() / "north.zip"))
    table = tomllib.loads(files["agreed.toml"].decode())
    table["run"]["run_id"] = run_id
    kit = read_kit(members.folder / "kits-1" / "north.zip")
    agreed = AgreedRun.model_validate(table)
    files["agreed.toml"] = tomli_w.dumps(table).encode()
    files["node.toml"] = tomli_w.dumps(kit.facts.node_table(agreed, kit.schema)).encode()
    place = members.place("north")
    (place / "evil.zip").write_bytes(zipped(files))
    with pytest.raises(ParameterError, match="results are named after it"):
        read_kit(place / "evil.zip")
    assert not (place / "node.toml").exists()


def test_a_request_that_changes_while_it_is_signed_is_refused(members, tmp_path):
    make_authority(members.authority)
    asked = read_request(members.request("north"))
    other = members.request("north", folder=str(tmp_path / "other"))
    hosts = list(asked.hosts)
    with pytest.raises(ParameterError, match="must not change while it is signed"):
        signed_request(other, members.authority, asked=asked, hosts=hosts)


def test_a_number_without_end_is_refused(tmp_path):
    """Python reads no more than 4300 digits."""
    (tmp_path / "long.toml").write_text(f"revision = {'9' * 5000}")
    with pytest.raises(ParameterError, match="must be valid TOML"):
        load_federation(tmp_path / "long.toml")
    with pytest.raises(DataError, match="valid TOML"):
        load_schema(tmp_path / "long.toml")


def test_files_that_are_no_kits(members, tmp_path):
    members.certify()
    north = members.kits() / "north.zip"
    packed = tmp_path / "packed.zip"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("kit.toml", b"0" * (1 << 21))
    (tmp_path / "cut.zip").write_bytes(north.read_bytes()[:500])
    os.mkfifo(tmp_path / "pipe")
    for place in (packed, tmp_path / "cut.zip", tmp_path / "pipe", tmp_path / "nowhere.zip"):
        with pytest.raises(ParameterError, match="a kit must be a folder or a zip file"):
            read_kit(place)
    with pytest.raises(ParameterError, match=r"a kit must have kit\.toml"):
        read_kit(members.place("west"))


# -- changes --------------------------------------------------------------------------------------


def test_a_member_leaves_and_another_comes(members):
    members.set_up()
    write_change(members.file, lambda told, table: membership.add(
        table, {"name": "lake", "address": "127.0.0.1:7999", "rows": 60}
    ))  # fmt: skip
    told = load_federation(members.file)
    assert (told.revision, told.run["run_id"]) == (2, "trial-2")
    assert membership.without_certificate(told) == ["lake"]
    assert load_federation(members.folder / "federation.1.toml").revision == 1
    members.certify(["lake"])
    members.kits()
    joined = members.join("north")
    # Those that were compared stay compared.
    assert joined.unpinned == ("lake",)
    assert members.join("north", heard=joined.kit.table.phrase).unpinned == ()
    refused(
        members, "north", "of revision 2 at least; got 1", kit=members.folder / "kits-1/north.zip"
    )
    write_change(members.file, lambda told, table: membership.remove(table, "west"))
    members.kits()
    joined = members.join("north")
    assert joined.unpinned == ()
    assert joined.setup.agreed.names == ("north", "south", "lake")
    assert set(joined.setup.config.pins) == {"north", "south", "lake"}


def test_a_change_that_makes_no_run_changes_nothing(tmp_path):
    edges = [["north", "south"], ["south", "west"]]
    options = {"algorithm": "pr-admm", "algorithm_options": {}, "topology": edges}
    members = Members(tmp_path, run=options | {"epsilon": dict.fromkeys(NAMES, 1.0)})
    before = tree(tmp_path)
    lake = {"name": "lake", "address": "127.0.0.1:7999", "rows": 60}
    for change, words in (
        (lambda told, table: membership.remove(table, "south"), "must be connected"),
        (lambda told, table: membership.add(table, lake), "must be connected"),
        (lambda told, table: membership.add(table, lake, ["north"]), "epsilon"),
        (lambda told, table: membership.check_next(told, "north"), "it is not there"),
        (lambda told, table: membership.take_next(told, "north"), "it is not there"),
    ):
        with pytest.raises(ParameterError, match=words):
            write_change(members.file, change)
        assert tree(tmp_path) == before
    after = write_change(members.file, lambda told, table: membership.remove(table, "west"))
    assert after.run["topology"] == [["north", "south"]]
    assert after.run["epsilon"] == {"north": 1.0, "south": 1.0}


def rotate(members, name, **options):
    """Begin a rotation: a new key and certificate, both certificates count."""
    request = members.request(name, "2027")
    sign_requests(load_federation(members.file), [request], members.authority, 365)

    def change(told, table):
        membership.check_next(told, name)
        table["rotation"] = [name]

    write_change(members.file, change)


def finish(members, name, *, revoke=False):
    def change(told, table):
        table["rotation"] = []
        old = membership.take_next(told, name)
        if revoke:
            membership.revoke(table, old)

    write_change(members.file, change)
    members.kits()


def rewritten(certificate):
    """The same certificate, with the other signature that holds for it."""
    tbs, signature = certificate.tbs_certificate_bytes, certificate.signature
    raw = certificate.public_bytes(Encoding.DER)
    r, s = decode_dss_signature(signature)
    # The bit string follows what was signed, and how: its tag, length and no unused bits.
    how = raw[raw.index(tbs) + len(tbs) : raw.rindex(signature) - 3]
    other = encode_dss_signature(r, P256_ORDER - s)
    body = tbs + how + bytes([3, len(other) + 1, 0]) + other
    return x509.load_der_x509_certificate(b"\x30\x82" + len(body).to_bytes(2, "big") + body)


def test_two_certificates_count_while_one_is_changed_and_a_revoked_one_never(members):
    members.set_up()
    rotate(members, "north")
    kit = members.kits() / "south.zip"
    assert read_kit(kit).agreed.rotation["north"][0] == read_kit(kit).table.pins["north"]
    # North with its old key, and with its new one; who did not compare has only the old one.
    old = members.join("north").setup.config
    assert members.join("south").unpinned == ("north",)
    key = members.place("north") / "2027" / "north.key"
    new = members.join("north", key=key).setup.config
    assert (old.pinned.own, new.pinned.own) == (
        read_certificate(old.certificates.certificate).fingerprint,
        new.next_pins["north"],
    )
    heard = members.join("south", heard=read_kit(kit).table.phrase).setup
    for config in (old, new):
        consents = Consents("north", heard.run, config.security(False))
        shown = {"north": consents.own()}
        assert not heard.consents(heard.run).fault("north", shown["north"])
        assert heard.config.pinned.in_run(shown)["north"] == config.pinned.own
    # What only one owner says about a second certificate does not count.
    alone = load_agreed_run(members.place("south") / "kit-1" / "agreed.toml")
    with pytest.raises(ParameterError, match="next_pins must be what the agreed run has"):
        heard.config.pinned.check_agreed(alone.revoked, alone.rotation)
    finish(members, "north", revoke=True)
    after = members.join("south")
    assert after.unpinned == ()
    assert after.setup.agreed.revoked == (old.pinned.own_signed_part,)
    consent = Consents("north", after.setup.run, old.security(False)).own()
    assert after.setup.consents(after.setup.run).fault("north", consent) == (
        "its certificate is revoked"
    )
    with pytest.raises(ParameterError, match="certificate of north must not be revoked"):
        old.pinned.check_agreed(after.setup.agreed.revoked, {})
    # Its owner can write the authority's signature in another way: (r, n - s) is as good as (r, s).
    chain = load_certificates(old.certificates.certificate)
    other = rewritten(chain[0])
    other.verify_directly_issued_by(load_certificates(old.certificates.authority)[0])
    assert other.fingerprint(hashes.SHA256()) != chain[0].fingerprint(hashes.SHA256())
    text = base64.b64encode(other.public_bytes(Encoding.DER)).decode()
    again = Consent(certificates=[text], signature=consent.signature)
    assert after.setup.consents(after.setup.run).fault("north", again) == (
        "its certificate is revoked"
    )
    own = members.place("north") / "north.key"
    refused(members, "north", "must have the certificate of this node's key", key=own,
            kit=members.folder / "kits-3" / "north.zip")  # fmt: skip
    assert members.join("north").setup.config.pinned.own == new.pinned.own


def test_hashes_without_a_list_stay_and_with_one_differ(members):
    members.certify()
    told = read_kit(members.kits() / "north.zip")
    content = tomllib.loads(told.files["agreed.toml"].decode())
    plain = AgreedRun.model_validate(content | {"revoked": [], "rotation": {}})
    facts = plain.facts(told.schema)
    assert not {"revoked", "rotation"} & set(facts)
    lists = ({"revoked": ["1" * 64]}, {"rotation": {"north": ["1" * 64, "2" * 64]}})
    digests = {AgreedRun.model_validate(content | each).digest(told.schema) for each in lists}
    assert len(digests | {plain.digest(told.schema)}) == 3
    assert json.dumps(AgreedRun.model_validate(content | lists[1]).told(told.schema))


# -- with real nodes ------------------------------------------------------------------------------


def test_nodes_train_during_a_rotation_around_a_server(fork_server, tmp_path):
    """Shared noise, one member with its new key: all have one model, and agree that they do."""
    from dpadmm.federation.local import free_ports

    address = f"127.0.0.1:{free_ports(1)[0]}"
    members = Members(
        tmp_path, run={"topology": "server"}, server={"name": "hub", "address": address}
    )
    members.names = (*NAMES, "hub")
    members.certify()
    rotate(members, "north")
    members.kits()
    (tmp_path / "hub").mkdir(exist_ok=True)
    running = {}
    for name in members.names:
        choices = {} if name == "hub" else {"data": str(members.place(name) / "rows.csv")}
        if name == "north":
            choices["key"] = members.place(name) / "2027" / "north.key"
        kit = read_kit(tmp_path / "kits-2" / f"{name}.zip")
        place = members.place(name)
        join(kit, place, Choices(heard=kit.table.phrase, **choices))
        assert unpinned(place, kit) == ()
        words = ["node", "--config", place / "node.toml"]
        running[name] = fork_server.start(words, place / "output", place)
    for name, number in running.items():
        assert fork_server.wait(number) == 0, (members.place(name) / "output").read_text()
    models = [load_model(members.place(name) / "trial-2.model") for name in NAMES]
    assert all((model.classifier.coef == models[0].classifier.coef).all() for model in models)
    assert "Agreed by all" in (members.place("south") / "trial-2.txt").read_text()


def test_a_node_with_a_revoked_certificate_is_not_in_the_run(fork_server, tmp_path):
    """A thief has north's old key and the newest files: the others count no consent of it."""
    members = Members(tmp_path).set_up()
    rotate(members, "north")
    finish(members, "north", revoke=True)
    for name in ("south", "west"):
        phrase = read_kit(tmp_path / "kits-3" / f"{name}.zip").table.phrase
        members.join(name, heard=phrase)
        own = tomllib.loads((members.place(name) / "own.toml").read_text())
        own["policy"] |= {"start_within": 8.0, "preflight": "off"}
        (members.place(name) / "own.toml").write_text(tomli_w.dumps(own))
    # The thief's own node must not know the list, or it would refuse itself.
    agreed = members.place("north") / "kit-1" / "agreed.toml"
    told = tomllib.loads(agreed.read_text())
    told["run"]["run_id"] = "trial-3"
    agreed.write_text(tomli_w.dumps(told))
    running = {}
    for name in NAMES:
        place = members.place(name)
        words = ["node", "--config", place / "node.toml"]
        running[name] = fork_server.start(words, place / "output", place)
    for name in ("south", "west"):
        assert fork_server.wait(running[name]) != 0
        assert "revoked is" in (members.place(name) / "output").read_text()
        with SQLiteLedger(members.place(name) / f"{name}.ledger", read_only=True) as ledger:
            assert ledger.account.spent == 0
            assert not ledger.account.runs["trial-3"].commits
    fork_server.kill(running["north"])
