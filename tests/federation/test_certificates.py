"""Certificates against OpenSSL, against Zenoh's own TLS, and against what people get wrong."""

import os
import shutil
import socket
import stat
import subprocess
import time
from datetime import UTC, datetime, timedelta

import pytest
import zenoh
from hypothesis import given
from hypothesis import strategies as st

from dpadmm.errors import DataError, ParameterError
from dpadmm.federation.identity import (
    check_identity,
    check_node_name,
    load_key,
    make_authority,
    make_certificate,
    read_certificate,
)


@pytest.fixture
def folder(tmp_path):
    """A folder with an authority and the certificates of two nodes."""
    folder = tmp_path / "certificates"
    make_authority(folder)
    for name in ("north", "south"):
        make_certificate(folder, name)
    return folder


def openssl(*arguments):
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed: certificates are checked by one library only")
    return subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def peer(folder, name, *, listen=None, connect=None, authority="ca"):
    """A Zenoh session with mutual TLS that may write only below its own name."""
    settings = {
        "mode": '"peer"',
        "scouting/multicast/enabled": "false",
        "scouting/gossip/enabled": "false",
        "connect/timeout_ms": "-1",
        "connect/exit_on_failure": "false",
        "transport/link/tls": f"""{{
            root_ca_certificate: "{folder}/{authority}.pem",
            listen_certificate: "{folder}/{name}.pem", listen_private_key: "{folder}/{name}.key",
            connect_certificate: "{folder}/{name}.pem", connect_private_key: "{folder}/{name}.key",
            enable_mtls: true, verify_name_on_connect: true }}""",
        "listen/endpoints": f'["tls/127.0.0.1:{listen}"]' if listen else "[]",
        "connect/endpoints": f'["tls/127.0.0.1:{connect}"]' if connect else "[]",
        # Key x may be written by north only: what Zenoh reads as the name is the common name.
        "access_control": """{ enabled: true, default_permission: "allow",
            rules: [{ id: "x", messages: ["put"], flows: ["ingress"], permission: "deny",
                      key_exprs: ["x"] }],
            subjects: [{ id: "south", cert_common_names: ["south"] }],
            policies: [{ rules: ["x"], subjects: ["south"] }] }""",
    }
    configuration = zenoh.Config()
    for key, value in settings.items():
        configuration.insert_json5(key, value)
    return zenoh.open(configuration)


def arrived(folder, sender, key, *, authority="ca", patience=4.0):
    """Whether a value that a peer keeps writing under a key reaches a listening peer 'host'."""
    port, heard = free_port(), []
    with peer(folder, "host", listen=port) as session:
        session.declare_subscriber(key, lambda sample: heard.append(sample.payload.to_string()))
        with peer(folder, sender, connect=port, authority=authority) as other:
            deadline = time.monotonic() + patience
            while not heard and time.monotonic() < deadline:
                other.put(key, sender)
                time.sleep(0.05)
    return heard[:1] == [sender]


def test_zenoh_takes_them_and_reads_the_common_name(folder, tmp_path):
    make_certificate(folder, "host")
    assert arrived(folder, "north", "x")
    assert not arrived(folder, "south", "x", patience=1.0)
    assert arrived(folder, "south", "y")
    # The same name, signed by somebody else, who even trusts the host.
    other = tmp_path / "other"
    make_authority(other)
    for file in make_certificate(other, "west"):
        shutil.copy2(file, folder)
    assert not arrived(folder, "west", "y", patience=1.0)


def test_openssl_agrees(folder):
    chain = ("-CAfile", folder / "ca.pem", folder / "north.pem")
    for purpose in ("sslserver", "sslclient"):
        assert openssl("verify", "-x509_strict", "-purpose", purpose, *chain).returncode == 0
    text = openssl("x509", "-noout", "-text", "-in", folder / "north.pem").stdout
    for words in ("CN = north", "DNS:localhost, IP Address:127.0.0.1", "prime256v1", "CA:FALSE"):
        assert words.replace(" ", "") in text.replace(" ", "")
    printed = openssl("x509", "-noout", "-fingerprint", "-sha256", "-in", folder / "north.pem")
    expected = printed.stdout.strip().split("=")[1].replace(":", "").lower()
    assert read_certificate(folder / "north.pem").fingerprint == expected
    assert "BEGIN PRIVATE KEY" in (folder / "north.key").read_text()


def test_facts(folder):
    facts = read_certificate(folder / "north.pem")
    assert (facts.name, facts.issuer, facts.authority) == ("north", "dpadmm trial authority", False)
    assert facts.hosts == ("localhost", "127.0.0.1", "::1")
    now = datetime.now(UTC)
    # Made a moment ago, and yet valid where the clock is slow.
    assert facts.not_before < now - timedelta(minutes=30)
    assert timedelta(days=364) < facts.not_after - now < timedelta(days=366)
    assert facts.days_left == 364
    assert read_certificate(folder / "ca.pem").authority


def test_keys_are_private_whatever_the_mask(tmp_path):
    before = os.umask(0)
    try:
        make_authority(tmp_path / "open")
        _, key = make_certificate(tmp_path / "open", "a")
    finally:
        os.umask(before)
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "open").stat().st_mode) == 0o700
    load_key(key)


def test_nothing_is_overwritten(folder):
    before = {file: file.read_bytes() for file in folder.iterdir()}
    for make in (lambda: make_authority(folder), lambda: make_certificate(folder, "north")):
        with pytest.raises(ParameterError, match="never overwritten"):
            make()
    (folder / "dangling.key").symlink_to(folder / "nowhere")
    with pytest.raises(ParameterError, match="never overwritten"):
        make_certificate(folder, "dangling")
    (folder / "dangling.key").unlink()
    assert {file: file.read_bytes() for file in folder.iterdir()} == before


def test_of_two_at_once_one_is_refused(folder, monkeypatch):
    # Another process makes the certificate after the look and before the writing.
    from dpadmm.federation import identity

    look = identity._new_pair

    def late(place, name):
        files = look(place, name)
        files[0].write_text("theirs")
        return files

    monkeypatch.setattr(identity, "_new_pair", late)
    with pytest.raises(DataError, match="File exists"):
        make_certificate(folder, "west")
    assert (folder / "west.pem").read_text() == "theirs"
    assert not (folder / "west.key").exists()


@pytest.mark.parametrize(
    "name", ["", "a/b", "a*", "$x", "a?", "a#b", "@a", "a b", ".a", "-a", "ca", "CA", "é", "a" * 64]
)
def test_names_that_would_break_something(folder, name):
    with pytest.raises(ParameterError, match="a node's name must be"):
        make_certificate(folder, name)


@given(st.text(max_size=70))
def test_a_name_that_is_taken_is_one_chunk_of_a_key(name):
    try:
        check_node_name(name)
    except ParameterError:
        return
    assert str(zenoh.KeyExpr(f"dpadmm/{name}/news")) == f"dpadmm/{name}/news"
    assert not zenoh.KeyExpr(f"dpadmm/{name}").intersects(f"dpadmm/{name}x")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"days": 0}, "days must be a whole number of at least 1"),
        ({"days": 1e9}, "days must be a whole number"),
        ({"days": 10**9}, "days must be at most"),
        ({"days": 1096}, "days must not go beyond the authority"),
        ({"hosts": ()}, "at least one host"),
        ({"hosts": ("*.example.org",)}, "a host must be"),
        ({"hosts": ("localhost:7447",)}, "a host must be"),
        ({"hosts": ("",)}, "a host must be"),
        ({"authority": "nowhere"}, "has no ca.pem: make them with dpadmm cert authority"),
    ],
)
def test_refusals(folder, options, words):
    with pytest.raises(ParameterError, match=words):
        make_certificate(folder, "west", **options)
    assert not list(folder.glob("west*"))


def test_addresses_and_names(folder):
    hosts = ("node-1.example.org", "10.0.0.7", "2001:db8::1")
    certificate, _ = make_certificate(folder, "west", hosts=hosts)
    assert read_certificate(certificate).hosts == hosts


def test_an_authority_that_is_none(folder, tmp_path):
    other = tmp_path / "other"
    make_authority(other, name="another")
    shutil.copy2(other / "ca.key", folder / "ca.key")
    with pytest.raises(ParameterError, match="it is another's"):
        make_certificate(folder, "west")
    for ending in ("pem", "key"):
        shutil.copy2(folder / f"north.{ending}", folder / f"ca.{ending}")
    with pytest.raises(ParameterError, match="must be an authority"):
        make_certificate(folder, "west")
    with pytest.raises(ParameterError, match="printable"):
        make_authority(tmp_path / "third", name="a\nb")


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o620, 0o601])
def test_a_key_that_others_reach(folder, mode):
    key = folder / "north.key"
    key.chmod(mode)
    with pytest.raises(ParameterError, match=f"has mode {mode:o}: run chmod 600"):
        load_key(key)


def test_a_key_of_somebody_else(folder, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: os.stat(folder).st_uid + 1)
    with pytest.raises(ParameterError, match="must belong to the user"):
        load_key(folder / "north.key")


def test_files_that_are_no_keys_or_certificates(folder):
    for content in ("", "-----BEGIN PRIVATE KEY-----\nsecret\n-----END PRIVATE KEY-----\n"):
        (folder / "north.key").write_text(content)
        with pytest.raises(ParameterError, match="unencrypted PEM") as refusal:
            load_key(folder / "north.key")
        assert "secret" not in str(refusal.value)
    with pytest.raises(ParameterError, match="No such file"):
        load_key(folder / "nowhere.key")
    with pytest.raises(ParameterError, match="without a key"):
        read_certificate(folder / "south.key")
    (folder / "empty").touch()
    with pytest.raises(ParameterError, match="PEM file"):
        read_certificate(folder / "empty")
    with pytest.raises(ParameterError, match="no file"):
        read_certificate(os.devnull)
    locked = folder / "locked.key"
    command = ("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256")
    assert openssl(*command, "-aes256", "-pass", "pass:word", "-out", locked).returncode == 0
    locked.chmod(0o600)
    with pytest.raises(ParameterError, match="unencrypted"):
        load_key(locked)


class TestIdentity:
    def check(self, folder, name="north", certificate=None, key=None, authority="ca.pem"):
        certificate = folder / (certificate or f"{name}.pem")
        return check_identity(
            name, certificate, folder / (key or f"{name}.key"), folder / authority
        )

    def test_a_good_one(self, folder):
        assert self.check(folder).name == "north"

    def test_of_another_node(self, folder):
        with pytest.raises(ParameterError, match=r"node 'north' must have its name.*'south'"):
            self.check(folder, certificate="south.pem", key="south.key")

    def test_with_the_key_of_another(self, folder):
        with pytest.raises(ParameterError, match="must belong to its key"):
            self.check(folder, key="south.key")

    def test_of_another_authority(self, folder, tmp_path):
        make_authority(tmp_path / "other")
        shutil.copy2(tmp_path / "other" / "ca.pem", folder / "other.pem")
        with pytest.raises(ParameterError, match="must be signed by the authority"):
            self.check(folder, authority="other.pem")

    def test_from_openssl(self, folder):
        """Certificates that an organisation brings: expired, for one end only, and by a chain."""

        def sign(name, extensions, *, by, days=10, issuer=None):
            key, request = folder / f"{name}.key", folder / f"{name}.csr"
            new = ("req", "-new", "-newkey", "rsa:2048", "-nodes", "-subj", f"/O=Us/CN={name}")
            assert openssl(*new, "-keyout", key, "-out", request).returncode == 0
            key.chmod(0o600)
            (folder / "extensions").write_text(extensions)
            signed = openssl(
                "x509", "-req", "-in", request, "-CA", folder / f"{by}.pem", "-CAkey",
                folder / f"{by}.key", "-CAcreateserial", "-days", days, "-extfile",
                folder / "extensions", "-out", folder / f"{name}.pem",
            )  # fmt: skip
            assert signed.returncode == 0, signed.stderr

        both = "extendedKeyUsage=serverAuth,clientAuth\n"
        sign("expired", both, by="ca", days=-1)
        with pytest.raises(ParameterError, match="must be valid now"):
            self.check(folder, "expired")
        sign("server", "extendedKeyUsage=serverAuth\n", by="ca")
        with pytest.raises(ParameterError, match="server and client authentication"):
            self.check(folder, "server")
        sign("middle", "basicConstraints=critical,CA:TRUE\n", by="ca")
        sign("west", both, by="middle")
        with pytest.raises(ParameterError, match="must be signed by the authority"):
            self.check(folder, "west")
        with open(folder / "west.pem", "a") as file:
            file.write((folder / "middle.pem").read_text())
        assert self.check(folder, "west").issuer == "middle"
