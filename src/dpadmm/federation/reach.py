"""Why a neighbour is not connected, and whom this node turned away.

Zenoh tries to connect again and again and says little about why it cannot. So while a neighbour is
missing, the node opens a short connection of its own with its own files: it looks the name up,
connects, and both sides show and check certificates. Then it closes the connection. It sends
nothing on it, and the neighbour's log does not mention it.

Zenoh refuses a connection without a valid certificate, and a message under a name that is not its
sender's. Neither reaches Python: Zenoh only writes text to descriptor 1, and a neighbour chose some
of that text. The key that it wrote to may hold anything, line breaks too. So :class:`TransportLog`
makes descriptor 1 a socket that keeps records apart: one write of Zenoh's is one record, whatever
is in it. It reads a record from its beginning, which Zenoh writes, up to the first word that
somebody else may have chosen, and takes the sender's name from the certificate of its connection.
Whatever else Zenoh says goes to standard error, made visible, on one line.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import queue
import re
import socket
import ssl
import sys
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, final

from dpadmm.durable import Closable
from dpadmm.errors import ExchangeError
from dpadmm.federation.identity import CertificateFacts, certificate_facts, read_certificate
from dpadmm.federation.transport.session import PeerSession, Security, split_address
from dpadmm.federation.transport.wire import NAME_PATTERN
from dpadmm.federation.watcher import Watcher
from dpadmm.plain import visible

#: The reason of a finding where nothing is wrong.
REACHED: Final = "reached"
_TIMEOUT: Final = 3.0
# A listener refuses a certificate within this time.
_VERDICT: Final = 1.0
# How long a neighbour may be missing before it is dialled, and between two attempts.
_PATIENCE: Final = 3.0
_FIRST_PAUSE: Final = 2.0
_LONGEST_PAUSE: Final = 60.0
_LOOK: Final = 0.5
_NO_ROUTE: Final = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EADDRNOTAVAIL, errno.EACCES)
# OpenSSL's numbers of what is wrong with a certificate.
_NOT_YET_VALID: Final = 9
_EXPIRED: Final = 10
_UNKNOWN_ISSUER: Final = (2, 7, 18, 19, 20, 21, 27, 30)


@dataclass(frozen=True)
class Cause:
    """The result of dialling a neighbour.

    Parameters
    ----------
    reason
        Its code; :data:`REACHED` if all is well.
    advice
        The cause in words, and what to do.
    """

    reason: str
    advice: str

    @property
    def reached(self) -> bool:
        """Whether nothing is wrong."""
        return self.reason == REACHED


class _Found(Exception):
    """Carries the finding out of wherever it was found."""

    def __init__(self, reason: str, advice: str) -> None:
        super().__init__(advice)
        self.finding = Cause(reason, advice)


def probe(
    name: str,
    address: str,
    security: Security | None,
    *,
    pins: Collection[str] = (),
    timeout: float = _TIMEOUT,
) -> Cause:
    """Dial a neighbour once and say what is there.

    Parameters
    ----------
    name, address
        The neighbour, and where it should be.
    security
        This node's own files; without them only a connection is opened.
    pins
        The sha256 of the certificate that it must show, or of either, where its owner has said it.
    timeout
        Seconds for each of the steps: name, connection, certificates.
    """
    host, port = split_address(address)
    try:
        places = _look_up(name, host, port, timeout)
        with _connected(name, address, places, timeout) as connection:
            if security is not None:
                _check_tls(name, host, address, places, connection, security, pins, timeout)
    except _Found as found:
        return found.finding
    return Cause(REACHED, f"{name} answers at {address}.")


def _look_up(name: str, host: str, port: int, timeout: float) -> list[Any]:
    """The addresses of a host. A name service may take its time, and cannot be interrupted."""
    answers: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def look_up() -> None:
        try:
            answers.put(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:
            answers.put(error)

    threading.Thread(target=look_up, name="dpadmm look-up", daemon=True).start()
    with contextlib.suppress(queue.Empty):
        answer = answers.get(timeout=timeout)
        if isinstance(answer, list):
            return answer
    raise _Found(
        "name-unknown",
        f"the host name {host} has no address here: correct the address of {name} under "
        "[[neighbour]], or ask who runs the name service.",
    )


@contextlib.contextmanager
def _connected(
    name: str, address: str, places: list[Any], timeout: float
) -> Iterator[socket.socket]:
    error: OSError = OSError()
    for family, kind, protocol, _, place in places[:2]:
        connection = socket.socket(family, kind, protocol)
        with connection:
            connection.settimeout(timeout / min(2, len(places)))
            try:
                connection.connect(place)
            except OSError as refused:
                error = refused
                continue
            connection.settimeout(timeout)
            yield connection
            return
    if isinstance(error, ConnectionRefusedError):
        raise _Found(
            "nothing-listens",
            f"nobody listens at {address}: start {name} there, or correct its address or port "
            "under [[neighbour]].",
        )
    if isinstance(error, TimeoutError):
        raise _Found(
            "no-answer",
            f"nothing comes back from {address}: check that the machine is on, that the address "
            "is right and that firewalls on the way let the port through.",
        )
    if error.errno in _NO_ROUTE:
        raise _Found(
            "no-route",
            f"there is no way from this machine to {address} ({error.strerror}): check the "
            "network, the VPN and the address.",
        )
    raise _Found(
        "not-connected",
        f"no connection to {address} can be opened ({error.strerror}): check the network.",
    )


def _check_tls(
    name: str,
    host: str,
    address: str,
    places: list[Any],
    connection: socket.socket,
    security: Security,
    pins: Collection[str],
    timeout: float,
) -> None:
    """Show this node's certificate and look at the other's."""
    try:
        strict, lenient = _context(security), _context(security, verify=False)
    except OSError as error:
        raise _Found(
            "own-files",
            f"the files under [certificates] cannot be used any more ({error.strerror}): put them "
            "back.",
        ) from None
    try:
        with strict.wrap_socket(connection, server_hostname=host) as link:
            _check_certificate(name, host, address, _certificate(link), pins)
            _hear_verdict(name, link, security)
    except ssl.SSLCertVerificationError as error:
        facts = None
        # Nobody knows whose it is: say nothing to it, and believe nothing of it.
        with (
            contextlib.suppress(OSError, _Found, ValueError),
            _connected(name, address, places, timeout) as again,
            lenient.wrap_socket(again, server_hostname=host) as link,
        ):
            facts = _certificate(link)
        raise _about_certificate(name, address, error, facts, security) from None
    except TimeoutError:
        raise _Found(
            "no-handshake",
            f"something listens at {address}, but does not answer: {name} may be frozen or busy, "
            "or another program has the port.",
        ) from None
    except (ssl.SSLError, OSError) as error:
        word = getattr(error, "reason", None) or ""
        if "ALERT" in word:
            raise _about_verdict(name, word, security) from None
        raise _Found(
            "no-tls",
            f"what listens at {address} does not speak TLS: another program has the port, or "
            f"{name} was started with --insecure-loopback.",
        ) from None


def _context(security: Security, *, verify: bool = True) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Hosts are compared by hand: the sentence is better, and no alert goes to the other side.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED if verify else ssl.CERT_NONE
    context.load_verify_locations(security.authority)
    context.load_cert_chain(security.certificate, security.key)
    return context


def _certificate(link: ssl.SSLSocket) -> CertificateFacts:
    shown = link.getpeercert(binary_form=True)
    assert shown is not None
    return certificate_facts(shown)


def _check_certificate(
    name: str, host: str, address: str, facts: CertificateFacts, pins: Collection[str]
) -> None:
    if facts.name != name:
        raise _Found(
            "another-node",
            f"the node at {address} is {facts.name!r}, not {name!r}: correct the address of "
            f"{name} under [[neighbour]].",
        )
    if not any(_same_host(host, known) for known in facts.hosts):
        raise _Found(
            "host-not-in-certificate",
            f"the certificate of {name} is for {', '.join(facts.hosts) or 'no host'}, and not for "
            f"{host}: dial one of those, or have it made again with --host {host}.",
        )
    if pins and facts.fingerprint not in pins:
        raise _Found(
            "another-certificate",
            f"the certificate of {name} has the sha256 {facts.fingerprint}, and [pins] has "
            f"{' or '.join(pins)}: "
            "ask its owner by telephone which one is right.",
        )


def _same_host(dialled: str, known: str) -> bool:
    try:
        return ipaddress.ip_address(dialled) == ipaddress.ip_address(known)
    except ValueError:
        pass
    dialled, known = dialled.lower().rstrip("."), known.lower()
    first, _, rest = known.partition(".")
    return dialled == known or (first == "*" and dialled.partition(".")[2] == rest != "")


def _hear_verdict(name: str, link: ssl.SSLSocket, security: Security) -> None:
    """Wait for the verdict on this node's certificate: a listener accepts it in silence."""
    link.settimeout(_VERDICT)
    try:
        link.recv(1)
    except TimeoutError:
        return
    except ssl.SSLError as error:
        if "ALERT" in (error.reason or ""):
            raise _about_verdict(name, error.reason or "", security) from None
    except OSError:
        pass


def _about_certificate(
    name: str,
    address: str,
    error: ssl.SSLCertVerificationError,
    facts: CertificateFacts | None,
    security: Security,
) -> _Found:
    if error.verify_code in (_EXPIRED, _NOT_YET_VALID):
        expired = error.verify_code == _EXPIRED
        when = "expired" if expired else "not valid yet"
        dates = "" if facts is None else f" ({facts.not_before:%F} to {facts.not_after:%F})"
        return _Found(
            "certificate-expired" if expired else "certificate-not-valid-yet",
            f"the certificate of {name} at {address} is {when}{dates}: it must be renewed, or the "
            "clock of this machine must be set.",
        )
    if error.verify_code in _UNKNOWN_ISSUER:
        signer = "somebody else" if facts is None else f"{facts.issuer!r}"
        return _Found(
            "unknown-authority",
            f"the certificate at {address} was signed by {signer}, which {security.authority} does "
            f"not list: compare the sha256 of ca.pem with {name} (dpadmm cert show).",
        )
    return _Found(
        "certificate-invalid",
        f"the certificate at {address} is not accepted here ({error.verify_message}): {name} needs "
        "another one.",
    )


def _about_verdict(name: str, word: str, security: Security) -> _Found:
    """Why the other side refused this node's certificate."""
    said = word.partition("ALERT_")[2].replace("_", " ").lower()
    own = read_certificate(security.certificate)
    if "expired" in said:
        return _Found(
            "own-certificate-expired",
            f"{name} does not accept this node's certificate, which is valid until "
            f"{own.not_after:%F}: renew it, or ask {name} to look at its clock.",
        )
    return _Found(
        "own-certificate-refused",
        f"{name} does not accept this node's certificate ({said}), signed by {own.issuer!r}: its "
        "authority file must list that authority: compare the sha256 of ca.pem.",
    )


@final
class Reach(Closable):
    """Watches for missing neighbours and finds out why, until it is closed.

    Parameters
    ----------
    session
        Says who is connected, and who ended.
    addresses, security
        Where neighbours should be, and this node's own files.
    watcher
        Gets each cause once, and when it is over.
    """

    def __init__(
        self,
        session: PeerSession,
        addresses: Mapping[str, str],
        security: Security | None,
        watcher: Watcher,
    ) -> None:
        self._session, self._security, self._watcher = session, security, watcher
        self._missing = {name: _Missing(name, address) for name, address in addresses.items()}
        self._closed = threading.Event()
        self._looking = threading.Thread(target=self._look, name="dpadmm reach", daemon=True)
        self._looking.start()

    def _look(self) -> None:
        while not self._closed.wait(_LOOK):
            for each in self._missing.values():
                if not self._misses(each.name):
                    self._watcher.reachable(each.name)
                    each.begin()
                elif each.is_due():
                    # One that does not answer must not keep the others waiting.
                    threading.Thread(target=self._dial, args=(each,), daemon=True).start()

    def _misses(self, name: str) -> bool:
        return not self._session.present(name) and name not in self._session.left

    def _dial(self, each: _Missing) -> None:
        finding = probe(each.name, each.address, self._security)
        told = each.judge(finding)
        if told is not None and not self._closed.is_set() and self._misses(each.name):
            self._watcher.unreachable(each.name, each.address, told.reason, told.advice)

    def close(self) -> None:
        """Dial no more."""
        self._closed.set()
        self._looking.join()


class _Missing:
    """When a neighbour is dialled next, and what was found."""

    def __init__(self, name: str, address: str) -> None:
        self.name, self.address = name, address
        self._lock = threading.Lock()
        self.begin()

    def begin(self) -> None:
        """It is there, or nobody has missed it yet."""
        with self._lock:
            self._next, self._pause = time.monotonic() + _PATIENCE, _FIRST_PAUSE
            self._answered = 0

    def is_due(self) -> bool:
        """Whether to dial now; then not again until that was judged."""
        with self._lock:
            due = time.monotonic() >= self._next
            if due:
                self._next = float("inf")
            return due

    def judge(self, finding: Cause) -> Cause | None:
        """What to tell, if anything; and when to dial again."""
        with self._lock:
            self._next = time.monotonic() + self._pause
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)
            if not finding.reached:
                self._answered = 0
                return finding
            # Zenoh may be about to connect: tell only when a neighbour answered twice without that.
            self._answered += 1
            self._pause = _FIRST_PAUSE if self._answered < 2 else self._pause
        if self._answered < 2:
            return None
        return Cause(
            "not-served",
            f"{self.name} answers at {self.address}, but does not talk to this node: its "
            "[[neighbour]] list may lack it; its own log says more.",
        )


_ACCESS: Final = "zenoh::net::routing::interceptor::access_control"
_CONNECTIONS: Final = "zenoh_link_tls::unicast"
# Zenoh reports refused messages at this level only.
_LEVELS: Final = f"error,zenoh_link_tls=warn,zenoh_link_tls::utils=error,{_ACCESS}=trace"
_NAME: Final = NAME_PATTERN.strip("^$")
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")
# The time, the level, the thread and the part of Zenoh that speaks; then what it says.
_RECORD: Final = re.compile(
    r"[0-9T:.Z+-]+ +[A-Z]+ +(?:[\w-]+ +)?ThreadId\((\d+)\) ([\w:]+): (.*)\n", re.DOTALL
)
_CACHING: Final = re.compile(
    r"ACL \((ingress|egress)\): caching permissions for `(.*)` \.\.\.", re.DOTALL
)
_OTHER: Final = r"(?:(?!CertCommonName)\w+\([\w.:-]*\)\+)*"
# Who (its number in Zenoh, and its certificate's name where that is told), what, and to which key.
_DENIED: Final = re.compile(
    rf"(Using cached result: )?([0-9a-f]{{1,32}})"
    rf"(?: on {_OTHER}CertCommonName\(({_NAME})\)\+{_OTHER}\2)?"
    r" is unauthorized to "
    r"(?:Put|Delete|Reply|Declare(?:/Undeclare)? (?:Queryable|Liveliness Token))"
    r" \(ingress\) on (.*)",
    re.DOTALL,
)
_OWNER: Final = re.compile(rf"dpadmm/[^/]+/({_NAME})/[^/]+")
# A code, by how Zenoh begins to speak about a certificate; the first that fits.
_CERTIFICATES: Final = {
    "peer sent no certificates": "no-certificate",
    "invalid peer certificate: certificate expired": "certificate-expired",
    "invalid peer certificate: certificate not valid yet": "certificate-not-valid-yet",
    "invalid peer certificate": "certificate-invalid",
}
_CLOCKS: Final = ("certificate-expired", "certificate-not-valid-yet")
# A peer that connects again and again under other numbers must not fill the memory.
_MOST_NUMBERS: Final = 1000
_MOST_THREADS: Final = 1000
# Keys have at most 64 KiB.
_LONGEST_RECORD: Final = 1 << 18
_LONGEST_SHOWN: Final = 1000
_SOMEBODY: Final = "somebody"


@final
class Refusals:
    """Finds the refusals in Zenoh's records and tells a watcher of them.

    Parameters
    ----------
    watcher
        Gets every one of them; floods have few lines.
    """

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        # Which key a thread of Zenoh works out permissions for: nobody has tried anything then.
        self._caching: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._connections: dict[str, int] = {}

    def take(self, record: str) -> bool:
        """Take a record, with its line break at the end; return whether it was dealt with."""
        found = _RECORD.fullmatch(_COLOURS.sub("", record))
        if found is None:
            return False
        thread, source, words = found.groups()
        if source == _ACCESS:
            self._take_message(thread, words)
            return True
        return source == _CONNECTIONS and self._take_connection(words)

    def _take_message(self, thread: str, words: str) -> None:
        if caching := _CACHING.fullmatch(words):
            if len(self._caching) < _MOST_THREADS or thread in self._caching:
                flow, key = caching.groups()
                self._caching[thread] = key if flow == "ingress" else ""
            return
        denied = _DENIED.fullmatch(words)
        if denied is None:
            return
        cached, number, name, key = denied.groups()
        sender = self._sender(number, name)
        if not cached and key == self._caching.get(thread):
            return
        owner = _OWNER.fullmatch(key)
        tried = f"as {owner[1]}" if owner else "under a key that is nobody's"
        sentence = f"{sender} must write under its own name; it tried to {tried}: refused."
        self._watcher.dropped(sender, "another-name", error=ExchangeError(sentence))

    def _sender(self, number: str, name: str | None) -> str:
        """The name in the certificate; by a number alone, if only one has ever had that number.

        A node chooses its number in Zenoh itself, and may choose another's.
        """
        if name is None:
            return self._names.get(number, _SOMEBODY)
        if number in self._names or len(self._names) < _MOST_NUMBERS:
            known = self._names.setdefault(number, name)
            if known != name:
                self._names[number] = _SOMEBODY
        return name

    def _take_connection(self, words: str) -> bool:
        reasons = (word for begin, word in _CERTIFICATES.items() if words.startswith(begin))
        reason = next(reasons, None)
        if reason is None:
            return False
        count = self._connections[reason] = self._connections.get(reason, 0) + 1
        if count & (count - 1) == 0:
            sentence = f"a connection was refused: {words.partition('. Hint')[0]}."
            if reason in _CLOCKS:
                sentence += " Renew that certificate, or set the clock of this machine or theirs."
            self._watcher.event(
                "connection-refused",
                level="warning",
                reason=reason,
                count=count,
                error=ExchangeError(sentence),
            )
        return True


@final
class TransportLog(Closable):
    """Reads what Zenoh writes to descriptor 1, from before its first session until it is closed.

    Parameters
    ----------
    watcher
        Gets the refusals.
    """

    def __init__(self, watcher: Watcher) -> None:
        import zenoh

        zenoh.init_log_from_env_or(_LEVELS)
        self._refusals = Refusals(watcher)
        self._closed = threading.Event()
        sys.stdout.flush()
        self._before = os.dup(1)
        # Datagrams: a record of Zenoh's is one write, and arrives as one piece or not at all.
        self._read_end, self._write_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._write_end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * _LONGEST_RECORD)
        os.dup2(self._write_end.fileno(), 1)
        self._reading = threading.Thread(target=self._read, name="dpadmm zenoh", daemon=True)
        self._reading.start()

    def _read(self) -> None:
        while True:
            data = self._read_end.recv(_LONGEST_RECORD)
            # Datagrams have no end of file: an empty one says that it is time to look.
            if not data and self._closed.is_set():
                return
            # Zenoh waits for whoever reads: nothing, such as a lost terminal, may end this loop.
            with contextlib.suppress(Exception):
                self._tell(data.decode("utf-8", "backslashreplace"))

    def _tell(self, record: str) -> None:
        if not self._refusals.take(record):
            shown = visible(_COLOURS.sub("", record).rstrip("\n"), longest=_LONGEST_SHOWN)
            sys.stderr.write(f"{shown}\n")
            sys.stderr.flush()

    def close(self) -> None:
        """Give descriptor 1 back, once all records were read."""
        sys.stdout.flush()
        os.dup2(self._before, 1)
        os.close(self._before)
        self._closed.set()
        self._write_end.send(b"")
        self._reading.join()
        self._write_end.close()
        self._read_end.close()
