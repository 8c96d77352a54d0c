"""Read-only pages and metrics for the people of this machine, and for nobody else.

A web page of somebody else's can make a browser ask any address, also on this machine. So the
server answers GET alone, and only where the Host is an address or the name that was given: it
refuses another name that leads here (DNS rebinding). Its headers keep other pages from embedding an
answer. A question changes nothing and is never shown again.

With a token (:func:`read_token`) only who shows it is answered, as a bearer (Prometheus) or as the
password of any user (a browser asks for it); the comparison takes the same time whatever is wrong.
The address has no encryption: keep it on this machine, or behind a proxy that has.

:class:`Metrics` has the numbers of a node for Prometheus (extra ``federation``), on a loopback
address. It has no numbers of the process (seconds of the processor, memory): they would tell about
the local solves, and so about rows.
"""

from __future__ import annotations

import base64
import hmac
import ipaddress
import os
import socket
import socketserver
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, final

from dpadmm.durable import Closable, FileRefusal, read_regular
from dpadmm.errors import ParameterError, is_passing, passing
from dpadmm.federation.status import WRITING
from dpadmm.federation.transport.session import (
    is_ipv6,
    joined_address,
    serving_address,
    split_address,
)

# A client that asks slowly, or many times at once, takes no more than this.
_SECONDS: Final = 10.0
_MOST_AT_ONCE: Final = 32
# Seconds until it notices that it is to end.
_LOOK: Final = 0.25
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_NOTHING: Final = "default-src 'none'"


_SHORTEST_TOKEN: Final = 16
_LONGEST_TOKEN: Final = 1000
_ASK: Final = 'Basic realm="dpadmm", charset="UTF-8"'


def read_token(path: Path | None) -> bytes | None:
    """The token in a file: one line that its owner alone may read; None without a file."""
    if path is None:
        return None
    try:
        status = os.stat(path)
        token = read_regular(path, largest=_LONGEST_TOKEN).strip()
    except (OSError, FileRefusal) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise ParameterError(
            f"token_file must be a file with a token that can be read; got {path}: {why}. Make "
            f"one: (umask 077; openssl rand -hex 32 > {path.name})."
        ) from None
    if status.st_mode & 0o077 or status.st_uid != os.geteuid():
        raise ParameterError(
            f"token_file must be its owner's, and nobody else may read it; {path} is not so: "
            f"chmod 600 {path.name}."
        )
    if len(token) < _SHORTEST_TOKEN or not all(0x21 <= byte <= 0x7E for byte in token):
        raise ParameterError(
            f"token_file must have one token of at least {_SHORTEST_TOKEN} visible ASCII "
            f"characters; {path} has none. Make one: openssl rand -hex 32."
        )
    return token


def shows_token(header: str | None, token: bytes) -> bool:
    """Whether an ``Authorization`` header has the token, as a bearer or as a password."""
    scheme, _, said = (header or "").partition(" ")
    shown = said.strip().encode("utf-8", "replace")
    if scheme.lower() == "basic":
        try:
            shown = base64.b64decode(shown, validate=True).partition(b":")[2]
        except ValueError:
            shown = b""
    elif scheme.lower() != "bearer":
        shown = b""
    return hmac.compare_digest(shown, token)


@dataclass(frozen=True)
class Page:
    """The answer at one path.

    Parameters
    ----------
    kind
        Its type, such as ``text/html``.
    make
        Makes it, anew for every question.
    policy
        Its Content-Security-Policy.
    """

    kind: str
    make: Callable[[], str]
    policy: str = _NOTHING


@final
class PageServer(Closable):
    """Serves pages until it is closed.

    Parameters
    ----------
    what
        The option that gave the address, for a refusal.
    address
        Such as ``127.0.0.1:8765``; port 0 takes a free one.
    pages
        What is there, by path.
    anywhere, consent
        Allow an address that other machines reach; and how the owner says so, for a refusal.
    any_name
        Answer by whatever name it is asked.
    token
        What whoever asks must show; None asks for nothing.
    on_error
        Called with a page that could not be made.
    """

    def __init__(
        self,
        what: str,
        address: str,
        pages: Mapping[str, Page],
        *,
        anywhere: bool,
        consent: str,
        any_name: bool = False,
        token: bytes | None = None,
        on_error: Callable[[Exception], None] = lambda error: None,
    ) -> None:
        host, port = serving_address(what, address, anywhere=anywhere, consent=consent)

        class Handler(_Handler):
            served, tell_error = dict(pages), staticmethod(on_error)
            own_name = None if any_name else host.lower()
            wanted = token

        class Server(_Server):
            address_family = socket.AF_INET6 if is_ipv6(host) else socket.AF_INET

        try:
            self._server = Server((host, port), Handler)
        except OSError as error:
            refusal = ParameterError(
                f"{what} must be an address of this machine that is free; got {address}: "
                f"{error.strerror}. Choose another port."
            )
            raise passing(refusal, when=is_passing(error)) from None
        #: Where the pages are, with the port that was taken.
        self.address = joined_address(host, self._server.server_port)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_LOOK,), name="dpadmm pages", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    """Without looking up names, and with a bound on how many are answered at once."""

    daemon_threads = True
    # Closing does not wait for slow clients.
    block_on_close = False

    def __init__(self, *given: Any) -> None:
        self._room = threading.BoundedSemaphore(_MOST_AT_ONCE)
        super().__init__(*given)

    def server_bind(self) -> None:
        """Bind, without asking any name service what this machine is called."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "", self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread of its own, or turn away."""
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, and make room."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Pass over one that went away."""


class _Handler(BaseHTTPRequestHandler):
    served: Mapping[str, Page]
    own_name: str | None
    wanted: bytes | None
    tell_error: Callable[[Exception], None]
    timeout = _SECONDS

    def do_GET(self) -> None:
        """Answer a question for a page."""
        if not self._is_meant():
            self.send_error(HTTPStatus.MISDIRECTED_REQUEST)
            return
        if not self._is_allowed():
            self.send_error(HTTPStatus.UNAUTHORIZED)
            return
        page = self.served.get(self.path.partition("?")[0])
        if page is None:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        try:
            content = page.make()
        except Exception as error:
            self.tell_error(error)
            self.send_error(HTTPStatus.INTERNAL_SERVER_ERROR)
            return
        self._answer(HTTPStatus.OK, page.kind, content, page.policy)

    def _is_meant(self) -> bool:
        """Whether it asks for this machine by its address, or by the name that was given."""
        if self.own_name is None:
            return True
        said = self.headers.get_all("Host") or []
        if len(said) != 1:
            return False
        host = said[0].strip().lower()
        try:
            host, _ = split_address(host)
        except ValueError:
            if host.startswith("[") and host.endswith("]"):
                host = host[1:-1]
        try:
            return bool(ipaddress.ip_address(host))
        except ValueError:
            return host in ("localhost", self.own_name)

    def _is_allowed(self) -> bool:
        """Whether it shows the token once, if one is wanted."""
        if self.wanted is None:
            return True
        said = self.headers.get_all("Authorization") or []
        return shows_token(said[0] if len(said) == 1 else None, self.wanted)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse with a fixed text; nothing of what was asked comes back."""
        if code == HTTPStatus.NOT_IMPLEMENTED:
            code = HTTPStatus.METHOD_NOT_ALLOWED
        status = HTTPStatus(code)
        self._answer(status, "text/plain", f"{status.phrase}.\n", f"{_NOTHING}; sandbox")

    def _answer(self, status: HTTPStatus, kind: str, content: str, policy: str) -> None:
        data = content.encode("utf-8", "backslashreplace")
        self.send_response(status)
        headers = {
            "Content-Type": f"{kind}; charset=utf-8",
            "Content-Length": str(len(data)),
            "Content-Security-Policy": f"{policy}; frame-ancestors 'none'",
            **_HEADERS,
        }
        if status == HTTPStatus.METHOD_NOT_ALLOWED:
            headers["Allow"] = "GET"
        if status == HTTPStatus.UNAUTHORIZED:
            headers["WWW-Authenticate"] = _ASK
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def version_string(self) -> str:
        """Nothing about versions."""
        return "dpadmm"

    def log_message(self, format: str, *arguments: Any) -> None:
        """Log nothing: clients must not fill a terminal."""


_TEXT: Final = "text/plain; version=0.0.4"
_DAY: Final = 86400.0
#: The states of a node, as its status file has them while it runs.
STATES: Final = ("starting", "running", WRITING, "serving", "stopped", "finished")


class Numbers(Closable):
    """Numbers for Prometheus, served until it is closed.

    Parameters
    ----------
    address
        Where, such as ``127.0.0.1:9464``; port 0 takes a free one.
    anywhere
        Allow an address that other machines reach.
    token
        What whoever asks must show.
    """

    def __init__(self, address: str, *, anywhere: bool = False, token: bytes | None = None) -> None:
        # Imported here: pages need no extra, numbers do.
        from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

        # A registry of its own: the usual one has the numbers of the process.
        registry = CollectorRegistry()
        self._gauge = partial(Gauge, registry=registry)
        self._counter = partial(Counter, registry=registry)
        self._days = self._gauge(
            "dpadmm_certificate_days_left",
            "Days until a certificate ends: this node's, its authority's (ca), and others'.",
            ["certificate"],
        )
        numbers = Page(_TEXT, lambda: generate_latest(registry).decode("utf-8"))
        self._server = PageServer(
            "metrics",
            address,
            {"/metrics": numbers, "/": numbers},
            anywhere=anywhere,
            consent="metrics_anywhere is set",
            # Other machines call this one by names that only they know.
            any_name=anywhere,
            token=token,
        )
        #: Where the numbers are.
        self.address = self._server.address

    def certificate(self, name: str, end: datetime) -> None:
        """Count the days until a certificate ends, anew whenever somebody asks."""
        self._days.labels(name).set_function(
            lambda: (end - datetime.now(UTC)).total_seconds() / _DAY
        )

    def close(self) -> None:
        """Stop serving."""
        self._server.close()


@final
class Metrics(Numbers):
    """The numbers of one node.

    Parameters
    ----------
    address
        As of :class:`Numbers`.
    node, run
        Labels of ``dpadmm_node_info``.
    **served
        ``anywhere`` and ``token`` of :class:`Numbers`.
    """

    def __init__(self, address: str, node: str, run: str, **served: Any) -> None:
        super().__init__(address, **served)
        gauge, counter = self._gauge, self._counter
        neighbour = ["neighbour"]
        self._node = node
        self._info = gauge("dpadmm_node_info", "1, with names as labels.", ["node", "run"])
        self.join(run)
        self.round = gauge("dpadmm_round", "Complete rounds.")
        self.rounds = gauge("dpadmm_rounds", "Rounds of the run.")
        self.waiting = gauge(
            "dpadmm_waiting_seconds",
            "For how long this round has waited for a neighbour; 0 when it came.",
            neighbour,
        )
        self.waited = counter("dpadmm_waited_seconds", "All waiting for a neighbour.", neighbour)
        self.unreachable = gauge(
            "dpadmm_unreachable",
            "1 for a neighbour that cannot be reached, by the node's own attempt.",
            neighbour,
        )
        self.sent = counter("dpadmm_sent_bytes", "Bytes of messages sent.")
        self.received = counter("dpadmm_received_bytes", "Bytes of messages received.")
        self.epsilon_spent = gauge("dpadmm_epsilon_spent", "Spent on the data set, by its ledger.")
        self.epsilon_left = gauge(
            "dpadmm_epsilon_left",
            "Epsilon of Gaussian releases that still fit into the data set's budget.",
        )
        self.dropped = counter("dpadmm_dropped_messages", "Messages refused.", ["reason"])
        self._state = gauge("dpadmm_node_state", "1 for the state that the node is in.", ["state"])
        self.state(STATES[0])
        self.errors = counter(
            "dpadmm_errors", "Events of the level error, a failure among them.", ["event"]
        )

    def join(self, run: str) -> None:
        """Name the run; before it has a name there is no ``dpadmm_node_info``."""
        self._info.clear()
        if run:
            self._info.labels(self._node, run).set(1)

    def state(self, now: str) -> None:
        """Say which of its states the node is in."""
        for state in STATES:
            self._state.labels(state).set(state == now)


@final
class ServiceMetrics(Numbers):
    """The numbers of a service: its queue, and how the last run went.

    Parameters
    ----------
    address
        As of :class:`Numbers`.
    **served
        ``anywhere`` and ``token`` of :class:`Numbers`.
    """

    def __init__(self, address: str, **served: Any) -> None:
        super().__init__(address, **served)
        self._runs = self._gauge("dpadmm_service_runs", "Runs of the service.", ["state"])
        self._last = self._gauge(
            "dpadmm_service_last_run_info",
            "1 for the run that was started last, with its state, and the cause of a failure.",
            ["run", "state", "cause"],
        )

    def tell(self, states: Mapping[str, int], run: str, state: str, cause: str) -> None:
        """Say how many runs are in which state, and how the last one is."""
        for each, count in states.items():
            self._runs.labels(each).set(count)
        self._last.clear()
        if run:
            self._last.labels(run, state, cause).set(1)
