"""A node on the network: a Zenoh peer that talks to its neighbours and to nobody else.

Every connection is mutual TLS. The common name of its certificate decides what a node may write:
below ``dpadmm/<topic>/<name>/`` only ``<name>`` may write, and only its neighbours may read. Each
node enforces that at its own door, on what comes in and on what goes out, so that it relies on
nobody else's good will. Multicast scouting and gossip are off: a node talks to the addresses it was
given. Nodes do not pass on what others say.

Addresses are ``host:port``: where a node is reached, and where it may be watched.

:class:`Relay` leads Zenoh to IPv6 addresses, since Zenoh takes ``[`` for the host of
``tls/[::1]:7447``. Zenoh dials a port of this machine, and the relay passes every byte on to the
neighbour and back. TLS goes through untouched: certificates at both ends decide who may connect and
who is heard, as everywhere. Other users of this machine reach no more through it than without it.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import json
import re
import secrets
import socket
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, final

from dpadmm.durable import Closable
from dpadmm.errors import ParameterError, needs_extra, passing
from dpadmm.federation.transport.store import Claims

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
    """Whether a host is an IPv6 address, rather than a name or an IPv4 address."""
    return ":" in host


def joined_address(host: str, port: int) -> str:
    """Host and port as one address."""
    return f"[{host}]:{port}" if is_ipv6(host) else f"{host}:{port}"


def serving_address(what: str, address: str, *, anywhere: bool, consent: str) -> tuple[str, int]:
    """Host and port that only this machine reaches, unless the owner allows others.

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


_PIECE: Final = 1 << 16
_CONNECT_TIMEOUT: Final = 10.0


@final
class Relay(Closable):
    """Passes connections to a port of this machine on to an address.

    Parameters
    ----------
    host, port
        Where to.
    """

    def __init__(self, host: str, port: int) -> None:
        self._target = host, port
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._closed = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        #: Where connections are taken.
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._accepting = threading.Thread(target=self._accept, name="dpadmm relay", daemon=True)
        self._accepting.start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._join, args=(near,), daemon=True).start()

    def _join(self, near: socket.socket) -> None:
        """Connect, and pass bytes on in both directions until one side is done."""
        with near:
            try:
                far = socket.create_connection(self._target, timeout=_CONNECT_TIMEOUT)
            except OSError:
                return  # Zenoh tries again, and the node finds out why
            with far:
                far.settimeout(None)
                with self._lock:
                    if self._closed:
                        return
                    self._open |= {near, far}
                back = threading.Thread(target=_pass_on, args=(far, near), daemon=True)
                back.start()
                _pass_on(near, far)
                back.join()
                with self._lock:
                    self._open -= {near, far}

    def close(self) -> None:
        """Take no more connections and end those there are."""
        with self._lock:
            self._closed = True
            ends = list(self._open)
        # Closing alone does not wake up a thread that waits for it.
        for end in [self._listener, *ends]:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join()


def _pass_on(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(_PIECE):
            sink.sendall(data)
    for end in (source, sink):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


#: Called with what happens on the network: a name and public facts.
OnEvent = Callable[..., None]

_ALIVE: Final = "alive"
_LOOPBACK: Final = ("127.0.0.1", "[::1]")
# What a neighbour does with its own keys, and what it does with ours.
_WRITES: Final = ["put", "reply", "declare_queryable", "liveliness_token"]
_READS: Final = [
    "declare_subscriber",
    "query",
    "declare_liveliness_subscriber",
    "liveliness_query",
]
# Zenoh's own words about connections that it refuses: no certificate, a wrong or an expired one.
# What it says about hosts that are not compared (see _dialled) comes with every attempt.
_LOG: Final = (
    "error,zenoh_link_tls=warn,zenoh_link_tls::utils=error,"
    "zenoh::net::routing::interceptor::access_control=info"
)
# No message of a neighbour may take more memory than this, unless the run's are larger.
_SMALLEST_LIMIT: Final = 1 << 20
_MOST_STRANGERS: Final = 1000
# Bytes a second of the slowest link that carries the longest message.
_SLOWEST: Final = 500_000
_WAIT: Final = 5.0


def no_event(name: str, **facts: Any) -> None:
    """Ignore an event."""


@dataclass(frozen=True)
class Security:
    """The files of mutual TLS.

    Parameters
    ----------
    authority
        Certificates of who signs for all nodes.
    certificate, key
        This node's; the common name is its name.
    """

    authority: Path
    certificate: Path
    key: Path


def check_loopback(addresses: Sequence[str]) -> None:
    """Refuse to go without TLS anywhere but on this machine."""
    for address in addresses:
        if address.rpartition(":")[0] not in _LOOPBACK:
            raise ParameterError(
                f"addresses must be on 127.0.0.1 or [::1] without TLS; got {address!r}. Use "
                "certificates: dpadmm cert makes them for a trial."
            )


class PeerSession(Closable):
    """One node's connections to its neighbours.

    Parameters
    ----------
    name
        The node, as its certificate names it.
    listen
        Where it is reached, ``host:port``.
    neighbours
        Where each of its neighbours is reached, by name.
    security
        The files of mutual TLS; None goes without, which only addresses on this machine may.
    largest
        Bytes of the longest message; connections that bring longer ones are not served.
    lease
        Seconds of silence after which a neighbour counts as gone, and another process may take
        its name.
    instance
        Tells this node from another of its name, the same after a restart; drawn unless given.
    known, on_claim
        The instances that neighbours had before, and what is called with new ones
        (:mod:`~dpadmm.federation.transport.store`).
    on_event
        Called with neighbours that come and go, and with strangers.
    """

    def __init__(
        self,
        name: str,
        listen: str,
        neighbours: Mapping[str, str],
        security: Security | None,
        *,
        largest: int = 0,
        lease: float = 10.0,
        instance: str | None = None,
        known: Mapping[str, str] | None = None,
        on_claim: Callable[[str, str], None] = lambda name, instance: None,
        on_event: OnEvent = no_event,
    ) -> None:
        if security is None:
            check_loopback([listen, *neighbours.values()])
        self.name = name
        self.neighbours = dict(neighbours)
        self.instance = instance or secrets.token_hex(16)
        #: How this process names itself; no other one has the same name, not even a copy of it.
        self.said = f"{self.instance}.{secrets.token_hex(16)}"
        #: Which process has which neighbour's name.
        self.claims = Claims(neighbours, lease, known or {}, on_claim=on_claim, on_event=on_event)
        #: Neighbours that said that they ended: nobody misses them.
        self.left: set[str] = set()
        self._tell = on_event
        self._lock = threading.Lock()
        self._under_way: set[str] = set()
        self._strangers: dict[str, int] = {}
        self._failures = 0
        self._zenoh = _import_zenoh()
        self._zenoh.init_log_from_env_or(_LOG)
        self._relays: list[Relay] = []
        dialled = {each: self._dialled(place, security) for each, place in neighbours.items()}
        settings = _settings(name, listen, dialled, security, largest, lease)
        configuration = self._zenoh.Config()
        for key, value in settings.items():
            configuration.insert_json5(key, json.dumps(value))
        try:
            self._session = self._zenoh.open(configuration)
        except self._zenoh.ZError as error:
            self._close_relays()
            refusal = ParameterError(
                f"listen must be an address of this machine that is free; got {listen}: {error}"
            )
            # Zenoh has the number of the error in words alone.
            taken = f"os error {errno.EADDRINUSE}" in str(error)
            raise passing(refusal, when=taken) from None
        self._parts: list[Any] = []
        self._publishers: dict[str, Any] = {}
        if security is not None:
            self._parts.append(
                self._session.info.declare_link_events_listener(
                    self._guarded(self._link), history=True
                )
            )
        for neighbour in self.neighbours:
            self._parts.append(
                self._session.liveliness().declare_subscriber(
                    _key(_ALIVE, neighbour, "*"),
                    self._guarded(partial(self._liveliness, neighbour)),
                    history=True,
                )
            )
        token = _key(_ALIVE, name, self.said)
        self._parts.append(self._session.liveliness().declare_token(token))

    def _dialled(self, address: str, security: Security | None) -> str:
        """The address that Zenoh dials: a relay where it could not read the real one."""
        host, port = split_address(address)
        if security is None or not is_ipv6(host):
            return address
        self._relays.append(Relay(host, port))
        # The host in the certificate would be compared with the relay's; its name still decides.
        return f"{self._relays[-1].address}#verify_name_on_connect=false"

    def _close_relays(self) -> None:
        for relay in self._relays:
            relay.close()

    def present(self, neighbour: str) -> bool:
        """Whether a neighbour is connected and answers."""
        return self.claims.present(neighbour)

    def serve(self, topic: str, answer: Callable[[str], bytes | None]) -> None:
        """Answer neighbours that ask for something below this node's name; None stays silent."""

        def reply(query: Any) -> None:
            data = answer(str(query.key_expr).rsplit("/", 1)[-1])
            if data is not None:
                query.reply(str(query.key_expr), data, attachment=self.said)

        key = _key(topic, self.name, "*")
        self._parts.append(self._session.declare_queryable(key, self._guarded(reply)))

    def hear(
        self,
        topic: str,
        take: Callable[[str, str, bytes], None],
        *,
        names: Iterable[str] | None = None,
        decides: bool = True,
    ) -> None:
        """Take what neighbours publish, or those that are named: who, what, the bytes.

        With ``decides=False`` the node hears only processes that have their name already: such a
        message gives no name to a process, and is not reported.
        """
        hears = self.claims.hears if decides else self.claims.is_current
        for neighbour in self.neighbours if names is None else names:

            def heard(sample: Any, neighbour: str = neighbour) -> None:
                label = str(sample.key_expr).rsplit("/", 1)[-1]
                if hears(neighbour, _instance(sample)):
                    take(neighbour, label, sample.payload.to_bytes())

            key = _key(topic, neighbour, "*")
            self._parts.append(self._session.declare_subscriber(key, self._guarded(heard)))

    def publish(self, topic: str, label: str, data: bytes, *, decides: bool = True) -> None:
        """Tell all neighbours; with ``decides=False`` it gives way to all else, and may be lost."""
        key = _key(topic, self.name, label)
        control, priority = self._zenoh.CongestionControl, self._zenoh.Priority
        if key not in self._publishers:
            self._publishers[key] = self._session.declare_publisher(
                key,
                congestion_control=control.BLOCK if decides else control.DROP,
                priority=priority.DATA if decides else priority.BACKGROUND,
                reliability=self._zenoh.Reliability.RELIABLE,
            )
        self._publishers[key].put(data, attachment=self.said)

    def ask(
        self,
        topic: str,
        neighbour: str,
        label: str,
        take: Callable[[str, str, bytes], None],
        *,
        timeout: float = _WAIT,
        longest: int = 0,
    ) -> None:
        """Ask a neighbour; every answer that comes is taken, at once or later.

        One that may have ``longest`` bytes gets the time that they take on a slow link, and is not
        asked for again meanwhile: else every further question would bring it once more.
        """
        key = _key(topic, neighbour, label)
        with self._lock:
            if key in self._under_way:
                return
            if longest:
                self._under_way.add(key)

        def answered(reply: Any) -> None:
            if reply.ok is not None and self.claims.hears(neighbour, _instance(reply.ok)):
                take(neighbour, label, reply.ok.payload.to_bytes())

        def ended() -> None:
            with self._lock:
                self._under_way.discard(key)

        self._session.get(
            key,
            self._zenoh.handlers.Callback(self._guarded(answered), ended),
            timeout=timeout + longest / _SLOWEST,
            consolidation=self._zenoh.ConsolidationMode.NONE,
        )

    def close(self) -> None:
        """Leave."""
        for part in [*self._parts, *self._publishers.values()]:
            with contextlib.suppress(self._zenoh.ZError):
                part.undeclare()
        self._parts, self._publishers = [], {}
        # At once; or, while a frozen neighbour is dialled, after ten seconds and with an error.
        with contextlib.suppress(self._zenoh.ZError):
            self._session.close()
        self._close_relays()

    def _guarded(self, callback: Callable[[Any], None]) -> Callable[[Any], None]:
        """Let nothing that a neighbour sends end in an exception in a thread of the network.

        The callback itself reports what is wrong with a message. This is for what nobody foresaw,
        and for files of this node that cannot be read. The log shows only sentences of our own.
        """

        def called(event: Any) -> None:
            try:
                callback(event)
            except Exception as error:
                self._failures += 1
                if self._failures & (self._failures - 1) == 0:
                    self._tell("no-answer", level="error", error=error, count=self._failures)

        return called

    def _liveliness(self, neighbour: str, sample: Any) -> None:
        said = str(sample.key_expr).rsplit("/", 1)[-1]
        if sample.kind == self._zenoh.SampleKind.PUT:
            self.left.discard(neighbour)
            self.claims.comes(neighbour, said)
        else:
            self.claims.goes(neighbour, said, expected=neighbour in self.left)

    def _link(self, event: Any) -> None:
        """Name whoever connects with a certificate that is no neighbour's: it is not served."""
        if event.kind == self._zenoh.SampleKind.PUT:
            name = str(event.link.auth_identifier)
            known = name in self._strangers or len(self._strangers) < _MOST_STRANGERS
            if name in self.neighbours or not known:
                return
            # A stranger must not fill the log: it has a line the 1st, 2nd, 4th... time.
            count = self._strangers[name] = self._strangers.get(name, 0) + 1
            if count & (count - 1) == 0:
                self._tell("stranger-refused", level="warning", node=name, count=count)


def _instance(sample: Any) -> str:
    """Which process sent it; nothing where it does not say."""
    said = None if sample.attachment is None else sample.attachment.to_bytes()
    return "" if said is None else said.decode("ascii", "replace")


def _key(topic: str, name: str, label: str) -> str:
    return f"dpadmm/{topic}/{name}/{label}"


def _settings(
    name: str,
    listen: str,
    neighbours: Mapping[str, str],
    security: Security | None,
    largest: int,
    lease: float,
) -> dict[str, Any]:
    protocol = "tcp" if security is None else "tls"
    settings: dict[str, Any] = {
        "mode": "peer",
        "listen/endpoints": [f"{protocol}/{listen}"],
        "connect/endpoints": [f"{protocol}/{address}" for address in neighbours.values()],
        # Neighbours start when they like: keep trying, and do not wait for them here.
        "connect/timeout_ms": -1,
        "connect/exit_on_failure": False,
        "connect/retry": {
            "period_init_ms": 100,
            "period_max_ms": 2000,
            "period_increase_factor": 2,
        },
        "scouting/delay": 1,
        "scouting/multicast/enabled": False,
        "scouting/gossip/enabled": False,
        "transport/link/protocols": [protocol],
        "transport/link/tx/lease": round(1000 * lease),
        # Zenoh drops what is longer without a word: limits are agreed on before.
        "transport/link/rx/max_message_size": max(_SMALLEST_LIMIT, 2 * largest),
        # Where a message as a whole takes longer the connection is given up.
        "transport/link/tx/queue/congestion_control/block/wait_before_close": round(
            1e6 * (_WAIT + largest / _SLOWEST)
        ),
        "transport/shared_memory/enabled": False,
    }
    if security is not None:
        certificate, key = str(security.certificate), str(security.key)
        files = {
            "root_ca_certificate": str(security.authority),
            "listen_certificate": certificate,
            "listen_private_key": key,
            "connect_certificate": certificate,
            "connect_private_key": key,
            "enable_mtls": True,
            "verify_name_on_connect": True,
            "close_link_on_expiration": True,
        }
        settings |= {f"transport/link/tls/{option}": value for option, value in files.items()}
        settings["access_control"] = _access(name, neighbours)
    return settings


def _access(name: str, neighbours: Mapping[str, str]) -> dict[str, Any]:
    """Who may do what at this node; everything else is dropped."""

    def rule(label: str, flow: str, messages: list[str], owner: str) -> dict[str, Any]:
        return {
            "id": label,
            "permission": "allow",
            "flows": [flow],
            "messages": messages,
            "key_exprs": [f"dpadmm/*/{owner}/*"],
        }

    rules = [
        rule("own-read", "ingress", _READS, name),
        rule("own-written", "egress", _WRITES, name),
    ]
    subjects, policies = [], []
    for neighbour in neighbours:
        written, read = f"{neighbour}-writes", f"{neighbour}-is-read"
        rules += [
            rule(written, "ingress", _WRITES, neighbour),
            rule(read, "egress", _READS, neighbour),
        ]
        subjects.append({"id": neighbour, "cert_common_names": [neighbour]})
        allowed = ["own-read", "own-written", written, read]
        policies.append({"rules": allowed, "subjects": [neighbour]})
    return {
        "enabled": True,
        "default_permission": "deny",
        "rules": rules,
        "subjects": subjects,
        "policies": policies,
    }


def _import_zenoh() -> Any:
    with needs_extra("federation"):
        import zenoh
    return zenoh
