"""What tests of the federation share: ports, and certificates that nobody should accept."""

import os
import socket
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization


def free_ports(count):
    """Ports that nobody listens on now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [item.getsockname()[1] for item in sockets]
    for item in sockets:
        item.close()
    return ports


def sign_again(folder, name, target, *, begin, end):
    """The certificate and key of a node with other dates, signed by the same authority."""
    certificate = x509.load_pem_x509_certificate((folder / f"{name}.pem").read_bytes())
    key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(certificate.subject)
        .issuer_name(certificate.issuer)
        .public_key(certificate.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + timedelta(days=begin))
        .not_valid_after(now + timedelta(days=end))
    )
    for extension in certificate.extensions:
        builder = builder.add_extension(extension.value, critical=extension.critical)
    signed = builder.sign(key, hashes.SHA256())
    (target / f"{name}.pem").write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    (target / "ca.pem").write_bytes((folder / "ca.pem").read_bytes())
    handle = os.open(target / f"{name}.key", os.O_CREAT | os.O_WRONLY, 0o600)
    os.write(handle, (folder / f"{name}.key").read_bytes())
    os.close(handle)
