"""A trial authority and the certificates it signs for nodes.

Nodes speak mutual TLS. :func:`make_authority` and :func:`make_certificate` make all that a trial
needs, with keys on the curve P-256 in PKCS #8 files. Organisations that have an authority of their
own bring certificates signed by it; :func:`~dpadmm.federation.identity.check_identity` says what
they need.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from dpadmm.durable import written_whole
from dpadmm.errors import ParameterError, positive_integer
from dpadmm.federation.identity import (
    AUTHORITY,
    USAGES,
    check_node_name,
    extension,
    load_certificates,
    load_key,
)
from dpadmm.sentences import DataError

#: Where a trial on one machine meets a node.
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
    alternatives = _alternatives(hosts)
    until = _until(days)
    signer, signer_key = _load_authority(folder if authority is None else Path(authority))
    if until > signer.not_valid_after_utc:
        left = (signer.not_valid_after_utc - datetime.now(UTC)).days
        raise ParameterError(
            f"days must not go beyond the authority, which is valid for {left} more days; "
            f"got {days}: take fewer, or make a new authority."
        )
    files = _new_pair(folder, name)
    key = ec.generate_private_key(ec.SECP256R1())
    issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer_key.public_key())
    builder = (
        _builder(_subject(name), signer.subject, key.public_key(), until)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_others=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(USAGES), critical=False)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(issuer_key, critical=False)
    )
    _write_pair(files, builder.sign(signer_key, hashes.SHA256()), key)
    return files


def _builder(
    subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey, until: datetime
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


def _new_pair(folder: Path, name: str) -> tuple[Path, Path]:
    """The two files of a name, neither of which may be there; the folder is made if need be."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(
            f"folder must be one that can be made; got {folder}: {error.strerror}."
        ) from None
    files = folder / f"{name}.pem", folder / f"{name}.key"
    for file in files:
        if os.path.lexists(file):
            raise ParameterError(
                f"{file} is there already and is never overwritten: choose another folder or name, "
                "or move it away."
            )
    return files


def _write_pair(
    files: tuple[Path, Path], certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey
) -> None:
    pem = serialization.Encoding.PEM
    plain = serialization.NoEncryption()
    certificate_file, key_file = files
    with written_whole(key_file, "the key", private=True, new=True) as file:
        file.write(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    try:
        with written_whole(certificate_file, "the certificate", new=True) as file:
            file.write(certificate.public_bytes(pem))
    except DataError:
        # A key without its certificate is of no use, and would stand in the way of the next.
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
