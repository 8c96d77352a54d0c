"""Addresses, ``host:port``: where a node is reached, and where it may be watched."""

from __future__ import annotations

import ipaddress
import re
from typing import Final

from dpadmm.errors import ParameterError

_LARGEST_PORT: Final = 65535
_HOST: Final = re.compile(r"[A-Za-z0-9._-]+")


def split_address(address: str, *, lowest_port: int = 1) -> tuple[str, int]:
    """Host and port of ``node.example.org:7447``, ``192.0.2.7:7447`` or ``[2001:db8::7]:7447``.

    Whoever listens may take port 0, which is any free one: ``lowest_port=0``.

    Raises
    ------
    ValueError
        If it is something else; an IPv6 address without brackets could end in a port or not.
    """
    host, separator, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        ipaddress.IPv6Address(host)
    elif not _HOST.fullmatch(host):
        raise ValueError(address)
    if not separator or not (port.isascii() and port.isdecimal() and len(port) <= 5):
        raise ValueError(address)
    if not lowest_port <= int(port) <= _LARGEST_PORT:
        raise ValueError(address)
    return host, int(port)


def is_ipv6(host: str) -> bool:
    """Whether a host is an IPv6 address, and no name and no IPv4 address."""
    return ":" in host


def joined_address(host: str, port: int) -> str:
    """Host and port as one address."""
    return f"[{host}]:{port}" if is_ipv6(host) else f"{host}:{port}"


def serving_address(what: str, address: str, *, anywhere: bool, consent: str) -> tuple[str, int]:
    """Host and port where people of this machine may read; others only where the owner said so.

    Parameters
    ----------
    what
        The parameter, for a refusal.
    address
        Such as ``127.0.0.1:9464``; port 0 takes a free one.
    anywhere
        Allow an address that other machines reach.
    consent
        How the owner says so, for a refusal.
    """
    try:
        host, port = split_address(str(address), lowest_port=0)
    except ValueError:
        raise ParameterError(
            f"{what} must be an address and a port, such as 127.0.0.1:9464 or [::1]:9464; got "
            f"{address!r}."
        ) from None
    if not anywhere and not _is_loopback(host):
        raise ParameterError(
            f"{what} must be on a loopback address (127.0.0.1 or [::1]) unless {consent}; got "
            f"{address!r}: what is served is neither encrypted nor protected by a password."
        )
    return host, port


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
