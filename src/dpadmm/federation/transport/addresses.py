"""Where a node is reached: ``host:port``, with an IPv6 address in brackets."""

from __future__ import annotations

import ipaddress
import re
from typing import Final

__all__ = ["is_ipv6", "split_address"]

_LARGEST_PORT: Final = 65535
_HOST: Final = re.compile(r"[A-Za-z0-9._-]+")


def split_address(address: str) -> tuple[str, int]:
    """Host and port of ``node.example.org:7447``, ``192.0.2.7:7447`` or ``[2001:db8::7]:7447``.

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
    if not 0 < int(port) <= _LARGEST_PORT:
        raise ValueError(address)
    return host, int(port)


def is_ipv6(host: str) -> bool:
    """Whether a host is an IPv6 address, and no name and no IPv4 address."""
    return ":" in host
