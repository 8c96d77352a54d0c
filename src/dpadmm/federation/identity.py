"""Who a node is: its certificate, and a trial authority that signs certificates.

The common name of a certificate is the name of its node, and that name decides what the node may
write. :func:`check_identity` finds what is wrong with a certificate before anything starts. Keys
are unencrypted PEM files that only their owner may read.

Nodes speak mutual TLS. :func:`make_authority` and :func:`make_certificate` make all that a trial
needs, with keys on the curve P-256 in PKCS #8 files. In a federation every organisation makes its
own key, and a request (:func:`make_request`) that its authority signs (:func:`signed_request`): no
key leaves its machine. Organisations with an authority of their own bring certificates signed by
it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import ipaddress
import os
import re
import stat
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from dpadmm.durable import FileRefusal, read_regular, written_whole
from dpadmm.errors import DataError, ParameterError, positive_integer
from dpadmm.federation.transport.wire import NAME_PATTERN

#: Files of the trial authority have this name, so no node may.
AUTHORITY: Final = "ca"
#: A peer opens connections and accepts them.
USAGES: Final = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)
#: The kind of file that asks for a certificate.
REQUEST: Final = "csr"
_LONGEST: Final = 1 << 20
_ASKED: Final = "dpadmm request 1"
_MINUTE: Final = "%Y-%m-%dT%H:%MZ"
_REQUEST_WORDS: Final = re.compile(rf"{_ASKED} (\S{{17}}) (\S{{1,63}})")
_NAME: Final = re.compile(NAME_PATTERN)
_UNDERSTOOD: Final = (
    x509.BasicConstraints,
    x509.KeyUsage,
    x509.ExtendedKeyUsage,
    x509.SubjectAlternativeName,
)

#: Keys of nodes: what TLS and consents are signed with.
SigningKey = EllipticCurvePrivateKey | RSAPrivateKey | Ed25519PrivateKey


@dataclass(frozen=True)
class CertificateFacts:
    """What a certificate says; all of it is public.

    Parameters
    ----------
    name, issuer
        Common names of the one it stands for and of the one who signed it.
    hosts
        The names and addresses under which its node is reached.
    not_before, not_after
        When it is valid, in UTC.
    fingerprint
        Its sha256, to be compared by telephone.
    signed_part
        The sha256 of what its authority signed, by which it is revoked. Whoever has a certificate
        can write its signature in another way, and so change its sha256, but not this one.
    authority
        It may sign others.
    """

    name: str
    issuer: str
    hosts: tuple[str, ...]
    not_before: datetime
    not_after: datetime
    fingerprint: str
    signed_part: str
    authority: bool

    @property
    def days_left(self) -> int:
        """Whole days until it expires; negative afterwards."""
        return (self.not_after - datetime.now(UTC)).days

    def to_dict(self) -> dict[str, Any]:
        """Data for machines."""
        times = {when: getattr(self, when).isoformat() for when in ("not_before", "not_after")}
        return asdict(self) | times | {"days_left": self.days_left}


def check_node_name(name: str) -> str:
    """The name of a node if it may be in a certificate, a key of Zenoh and a file name."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name.lower() == AUTHORITY:
        raise ParameterError(
            "a node's name must be 1 to 63 letters, digits, '.', '_' or '-' (a letter or digit "
            f"first), and not {AUTHORITY!r}; got {name!r}: choose another."
        )
    return name


def read_certificate(path: str | Path) -> CertificateFacts:
    """What the first certificate of a PEM file says."""
    return _facts(load_certificates(Path(path))[0])


def certificate_facts(data: bytes) -> CertificateFacts:
    """What a certificate says that was shown on a connection (DER)."""
    return _facts(x509.load_der_x509_certificate(data))


def check_identity(
    name: str, certificate: str | Path, key: str | Path, authority: str | Path
) -> CertificateFacts:
    """The facts of a certificate; refused if it would only fail at a neighbour's door.

    The certificate must name the node, be valid now, allow both ends of a connection, belong to the
    key and be signed by the authority, directly or by the further certificates of its own file.
    """
    certificate, authority = Path(certificate), Path(authority)
    own, *chain = load_certificates(certificate)
    private = load_signing_key(Path(key))
    roots = load_certificates(authority)
    facts = _facts(own)
    must = f"the certificate of node {name!r} must"
    if facts.name != name:
        raise ParameterError(
            f"{must} have its name as common name; {certificate} has "
            f"{facts.name!r}: use its own certificate, or correct the name."
        )
    now = datetime.now(UTC)
    if not facts.not_before <= now <= facts.not_after:
        raise ParameterError(
            f"{must} be valid now, at {now:%Y-%m-%d %H:%M} UTC; {certificate} is valid from "
            f"{facts.not_before:%Y-%m-%d %H:%M} to {facts.not_after:%Y-%m-%d %H:%M}: make a new "
            "one, or set the clock."
        )
    if not _serves_both_ends(own):
        raise ParameterError(
            f"{must} allow server and client authentication; {certificate} does "
            "not: ask for one with both extended key usages."
        )
    if private.public_key() != own.public_key():
        raise ParameterError(
            f"{must} belong to its key; {key} is the key of another: use the two "
            "files that were made together."
        )
    if not _leads_to(own, chain, roots, now):
        raise ParameterError(
            f"{must} be signed by the authority {authority}; it was signed by "
            f"{facts.issuer!r}: use the authority that all nodes trust."
        )
    return facts


def certificate_fault(
    name: str,
    own: x509.Certificate,
    chain: list[x509.Certificate],
    roots: list[x509.Certificate],
    now: datetime,
) -> str:
    """What is wrong with another node's certificate, in a few words; nothing if it is good.

    Parameters
    ----------
    name
        The node that it must be of.
    own, chain
        The certificate, and those between it and the authority.
    roots
        The authority, as this node trusts it.
    now
        When it must be valid.
    """
    if _common_name(own.subject) != name:
        return "its certificate is another node's"
    if not _valid(own, now):
        return "its certificate is not valid now"
    if not _serves_both_ends(own):
        return "its certificate is not for both ends of a connection"
    if not _leads_to(own, chain, roots, now):
        return "its certificate is not of the authority"
    return ""


def _valid(certificate: x509.Certificate, now: datetime) -> bool:
    return certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc


def _serves_both_ends(certificate: x509.Certificate) -> bool:
    usages = extension(certificate, x509.ExtendedKeyUsage)
    return usages is None or set(USAGES) <= set(usages)


def _leads_to(
    own: x509.Certificate,
    chain: list[x509.Certificate],
    roots: list[x509.Certificate],
    now: datetime,
    below: int = 0,
) -> bool:
    """Whether an authority signed a certificate, or one that it lets sign others did.

    Parameters
    ----------
    below
        How many authorities on the way are not among the roots.
    """
    # What is critical must be understood by whoever relies on the certificate (RFC 5280, 4.2).
    if any(item.critical and not isinstance(item.value, _UNDERSTOOD) for item in own.extensions):
        return False
    # As in TLS here, an authority's own limit on the length of a chain does not bind it.
    if any(_signs(root, own) for root in roots):
        return True
    return any(
        _signs(link, own, below)
        and _valid(link, now)
        and _leads_to(link, chain[place + 1 :], roots, now, below + 1)
        for place, link in enumerate(chain)
    )


def _signs(by: x509.Certificate, own: x509.Certificate, below: int = 0) -> bool:
    """Whether one that may sign others signed this one: a node's certificate may not."""
    constraints = extension(by, x509.BasicConstraints)
    usage = extension(by, x509.KeyUsage)
    if constraints is None or not constraints.ca or not (usage is None or usage.key_cert_sign):
        return False
    if constraints.path_length is not None and constraints.path_length < below:
        return False
    try:
        own.verify_directly_issued_by(by)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def load_certificates(path: Path) -> list[x509.Certificate]:
    """The certificates of a PEM file, in its order."""
    content = _read(path, "a certificate")
    if b"PRIVATE KEY-----" in content:
        raise ParameterError(f"a certificate must be a file without a key; {path} has one.")
    try:
        return x509.load_pem_x509_certificates(content)
    except ValueError:
        raise ParameterError(
            f"a certificate must be a PEM file (-----BEGIN CERTIFICATE-----); got {path}."
        ) from None


def load_key(path: Path) -> PrivateKeyTypes:
    """The key of a file that is private to its owner; its content is never in a refusal."""
    content = _read(path, "a key")
    status = path.stat()
    if status.st_uid != os.geteuid():
        raise ParameterError(
            f"a key must belong to the user who runs the node (number {os.geteuid()}); {path} "
            f"belongs to {status.st_uid}: run as that user, or make a key of your own."
        )
    if status.st_mode & 0o077:
        raise ParameterError(
            f"a key must be private to its owner; {path} has mode {stat.S_IMODE(status.st_mode):o}"
            f": run chmod 600 {path}, and make a new one if others may have read it."
        )
    try:
        return serialization.load_pem_private_key(content, password=None)
    except (ValueError, TypeError):
        raise ParameterError(
            f"a key must be an unencrypted PEM file (-----BEGIN PRIVATE KEY-----); got {path}."
        ) from None


def load_signing_key(path: Path) -> SigningKey:
    """The key of a node, of a kind that it can sign with."""
    key = load_key(path)
    if not isinstance(key, (EllipticCurvePrivateKey, RSAPrivateKey, Ed25519PrivateKey)):
        raise ParameterError(
            f"a key must be ECDSA, RSA or Ed25519; {path} is of another kind: make a new one."
        )
    return key


def _read(path: Path, what: str) -> bytes:
    try:
        return read_regular(path, largest=_LONGEST)
    except FileRefusal as error:
        raise ParameterError(
            f"{what} must be a file that can be read; got {path}: {error}."
        ) from None


def extension(certificate: x509.Certificate, kind: type[Any]) -> Any:
    """One extension of a certificate, or None."""
    try:
        return certificate.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None


def signed_part(certificate: x509.Certificate) -> str:
    """The sha256 of what an authority signed: name, key, hosts and dates."""
    return hashlib.sha256(certificate.tbs_certificate_bytes).hexdigest()


def _common_name(name: x509.Name) -> str:
    values = name.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(values[0].value) if len(values) == 1 else ""


def _facts(certificate: x509.Certificate) -> CertificateFacts:
    constraints = extension(certificate, x509.BasicConstraints)
    hosts = extension(certificate, x509.SubjectAlternativeName) or ()
    return CertificateFacts(
        name=_common_name(certificate.subject),
        issuer=_common_name(certificate.issuer),
        hosts=tuple(str(host.value) for host in hosts),
        not_before=certificate.not_valid_before_utc,
        not_after=certificate.not_valid_after_utc,
        fingerprint=certificate.fingerprint(hashes.SHA256()).hex(),
        signed_part=signed_part(certificate),
        authority=bool(constraints is not None and constraints.ca),
    )


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


#: Where the nodes of a trial on one machine are reached.
DEFAULT_HOSTS: Final = ("localhost", "127.0.0.1", "::1")
# Clocks of organisations differ; a certificate made a moment ago must be valid everywhere.
_BACKDATED: Final = timedelta(hours=1)
_LONGEST_DAYS: Final = 36_500
_HOST: Final = re.compile(
    r"(?!.{254})(?!-)[A-Za-z0-9-]{1,63}(?<!-)(\.(?!-)[A-Za-z0-9-]{1,63}(?<!-))*"
)


def make_authority(
    folder: str | Path, *, name: str = "dpadmm trial authority", days: int = 1095
) -> tuple[Path, Path]:
    """Make ``ca.pem`` and ``ca.key``, which sign the certificates of a trial.

    Whoever holds ``ca.key`` can pass for any node: it stays with the one who makes certificates.
    """
    folder = Path(folder)
    if not isinstance(name, str) or not name.isprintable() or not 1 <= len(name.strip()) <= 64:
        raise ParameterError(f"name must be 1 to 64 printable characters; got {name!r}.")
    until = _until(days)
    files = _new_pair(folder, AUTHORITY)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _subject(name)
    builder = (
        _builder(subject, subject, key.public_key(), until)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_others=True), critical=True)
    )
    _write_pair(files, builder.sign(key, hashes.SHA256()), key)
    return files


def make_certificate(
    folder: str | Path,
    name: str,
    *,
    hosts: Sequence[str] = DEFAULT_HOSTS,
    days: int = 365,
    authority: str | Path | None = None,
) -> tuple[Path, Path]:
    """Make ``name.pem`` and ``name.key`` for a node, signed by a trial authority.

    Parameters
    ----------
    folder
        Where the two files go.
    name
        The node's name: the common name of its certificate.
    hosts
        Names and addresses under which its neighbours reach it.
    days
        How long the certificate is valid; not longer than its authority.
    authority
        The folder with ``ca.pem`` and ``ca.key``; ``folder`` unless given.
    """
    folder = Path(folder)
    check_node_name(name)
    key = ec.generate_private_key(ec.SECP256R1())
    place = folder if authority is None else Path(authority)
    certificate = _issued(place, name, key.public_key(), _alternatives(hosts), days)
    files = _new_pair(folder, name)
    _write_pair(files, certificate, key)
    return files


def _issued(
    authority: Path,
    name: str,
    public_key: Any,
    alternatives: list[x509.GeneralName],
    days: int,
) -> x509.Certificate:
    """The certificate of a node, signed by the authority of a folder."""
    until = _until(days)
    signer, signer_key = _load_authority(authority)
    if until > signer.not_valid_after_utc:
        left = (signer.not_valid_after_utc - datetime.now(UTC)).days
        raise ParameterError(
            f"days must not go beyond the authority, which is valid for {left} more days; "
            f"got {days}: take fewer, or make a new authority."
        )
    issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer_key.public_key())
    builder = (
        _builder(_subject(name), signer.subject, public_key, until)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_others=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(USAGES), critical=False)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(issuer_key, critical=False)
    )
    return builder.sign(signer_key, hashes.SHA256())


@dataclass(frozen=True)
class RequestFacts:
    """What a node asks an authority to sign; all of it is public.

    Parameters
    ----------
    name, hosts
        The node, and the names and addresses under which it is reached.
    federation
        The federation that it is for.
    until
        When it expires, in UTC.
    fingerprint
        The sha256 of its public key, to be compared by telephone.
    """

    name: str
    hosts: tuple[str, ...]
    federation: str
    until: datetime
    fingerprint: str

    def to_dict(self) -> dict[str, Any]:
        """Data for machines."""
        return asdict(self) | {"until": self.until.isoformat()}


def make_request(
    folder: str | Path, name: str, federation: str, *, hosts: Sequence[str], days: int = 30
) -> tuple[Path, Path]:
    """Make ``name.csr``, for the authority of a federation, and ``name.key``, which stays here.

    The request says, signed by the key, which federation it is for and until when it may be used.
    """
    check_node_name(name)
    alternatives = _alternatives(hosts)
    until = _until(days)
    files = _new_pair(Path(folder), name, REQUEST)
    key = ec.generate_private_key(ec.SECP256R1())
    words = f"{_ASKED} {until:{_MINUTE}} {federation}"
    request = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(_subject(name))
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_attribute(x509.oid.AttributeOID.UNSTRUCTURED_NAME, words.encode("ascii"))
        .sign(key, hashes.SHA256())
    )
    _write_pair(files, request, key)
    return files


def read_request(path: str | Path) -> RequestFacts:
    """What a request of :func:`make_request` says, if its own key signed it."""
    return _request_facts(Path(path), _load_request(Path(path)))


def _load_request(path: Path) -> x509.CertificateSigningRequest:
    content = _read(path, "a request")
    try:
        request = x509.load_pem_x509_csr(content)
        good = request.is_signature_valid
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ParameterError(
            f"a request must be a PEM file (-----BEGIN CERTIFICATE REQUEST-----); got {path}."
        ) from None
    if not good:
        raise ParameterError(
            f"a request must be signed by its own key; {path} is not: have it made again."
        )
    return request


def _request_facts(path: Path, request: x509.CertificateSigningRequest) -> RequestFacts:
    try:
        asked = request.attributes.get_attribute_for_oid(x509.oid.AttributeOID.UNSTRUCTURED_NAME)
        found = _REQUEST_WORDS.fullmatch(asked.value.decode("ascii"))
        assert found is not None
        until = datetime.strptime(found[1], _MINUTE).replace(tzinfo=UTC)
        alternatives = request.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        name = check_node_name(_common_name(request.subject))
    except (ValueError, AssertionError, x509.AttributeNotFound, x509.ExtensionNotFound):
        raise ParameterError(
            "a request must say whom it is for, in which federation and until when, as dpadmm cert "
            f"request writes it; {path} does not: have it made so."
        ) from None
    spki = serialization.PublicFormat.SubjectPublicKeyInfo
    shown = request.public_key().public_bytes(serialization.Encoding.DER, spki)
    hosts = tuple(str(host.value) for host in alternatives.value)
    fingerprint = hashlib.sha256(shown).hexdigest()
    return RequestFacts(name, hosts, found[2], until, fingerprint)


def signed_request(
    path: str | Path,
    authority: str | Path,
    *,
    asked: RequestFacts,
    hosts: Sequence[str],
    days: int = 365,
) -> bytes:
    """The certificate (PEM) that a request asks for, for these hosts and no others.

    Parameters
    ----------
    path
        The request.
    authority
        The folder with ``ca.pem`` and ``ca.key``.
    asked
        What :func:`read_request` found in it, and the caller allowed.
    hosts
        Where the node is reached.
    days
        How long the certificate is valid; not longer than its authority.
    """
    path = Path(path)
    request = _load_request(path)
    if _request_facts(path, request) != asked:
        raise ParameterError(
            f"a request must not change while it is signed; {path} did: nothing was signed. Find "
            "out who writes there."
        )
    issued = _issued(Path(authority), asked.name, request.public_key(), _alternatives(hosts), days)
    return issued.public_bytes(serialization.Encoding.PEM)


def _builder(
    subject: x509.Name, issuer: x509.Name, public_key: Any, until: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.now(UTC) - _BACKDATED)
        .not_valid_after(until)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
    )


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _key_usage(*, signs_others: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_others,
        key_cert_sign=signs_others,
        crl_sign=signs_others,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _until(days: int) -> datetime:
    if positive_integer("days", days) > _LONGEST_DAYS:
        raise ParameterError(f"days must be at most {_LONGEST_DAYS}; got {days}.")
    return datetime.now(UTC) + timedelta(days=int(days))


def _alternatives(hosts: Iterable[str]) -> list[x509.GeneralName]:
    names: list[x509.GeneralName] = []
    for host in [hosts] if isinstance(hosts, str) else hosts:
        # As it stands in an address: an IPv6 address in brackets.
        bare = host[1:-1] if str(host).startswith("[") and str(host).endswith("]") else host
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(bare)))
        except ValueError:
            if not isinstance(host, str) or not _HOST.fullmatch(host):
                raise ParameterError(
                    "a host must be a name such as node.example.org or an IP address, without "
                    f"port; got {host!r}."
                ) from None
            names.append(x509.DNSName(host))
    if not names:
        raise ParameterError("hosts must name at least one host under which the node is reached.")
    return names


def _new_pair(folder: Path, name: str, kind: str = "pem") -> tuple[Path, Path]:
    """The public file of a name and its key, neither of which may be there; makes the folder."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(
            f"folder must be one that can be made; got {folder}: {error.strerror}."
        ) from None
    files = folder / f"{name}.{kind}", folder / f"{name}.key"
    for file in files:
        if os.path.lexists(file):
            raise ParameterError(
                f"{file} is there already and is never overwritten: choose another folder or name, "
                "or move it away."
            )
    return files


def _write_pair(
    files: tuple[Path, Path],
    public: x509.Certificate | x509.CertificateSigningRequest,
    key: ec.EllipticCurvePrivateKey,
) -> None:
    pem = serialization.Encoding.PEM
    plain = serialization.NoEncryption()
    public_file, key_file = files
    with written_whole(key_file, "the key", private=True, new=True) as file:
        file.write(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    try:
        with written_whole(public_file, f"the {public_file.suffix} file", new=True) as file:
            file.write(public.public_bytes(pem))
    except DataError:
        # A key without the file made with it is of no use, and would stand in the next one's way.
        key_file.unlink(missing_ok=True)
        raise


def _load_authority(folder: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    files = folder / f"{AUTHORITY}.pem", folder / f"{AUTHORITY}.key"
    for file in files:
        if not file.is_file():
            raise ParameterError(
                f"the authority's folder must have {AUTHORITY}.pem and {AUTHORITY}.key; {folder} "
                f"has no {file.name}: make them with dpadmm cert authority {folder}."
            )
    certificate, key = load_certificates(files[0])[0], load_key(files[1])
    constraints = extension(certificate, x509.BasicConstraints)
    if constraints is None or not constraints.ca or not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ParameterError(f"{files[0]} must be an authority made by dpadmm cert authority.")
    if key.public_key() != certificate.public_key():
        raise ParameterError(f"{files[1]} must be the key of {files[0]}; it is another's.")
    return certificate, key
