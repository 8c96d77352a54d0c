"""What Zenoh says about those it turns away, as lines of the node's own log.

Zenoh refuses at the door: a connection without a valid certificate, and a message under a name that
is not its sender's. It tells so on descriptor 1 in words for people. :class:`TransportLog` reads
them there and tells the watcher; whatever else Zenoh says goes to standard error.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from typing import Final, TextIO, final

from dpadmm.closing import Closing
from dpadmm.errors import ExchangeError
from dpadmm.federation.watching import Watcher

__all__ = ["Refusals", "TransportLog"]

_ACCESS: Final = "zenoh::net::routing::interceptor::access_control"
# Refused messages are told at this level only.
_LEVELS: Final = f"error,zenoh_link_tls=warn,zenoh_link_tls::utils=error,{_ACCESS}=trace"
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")
_LINE: Final = re.compile(r"\S+ +[A-Z]+ .*?ThreadId\((\d+)\) ([\w:]+): (.*)")
_CACHING: Final = re.compile(r"ACL \((ingress|egress)\): caching permissions for `(.*)`")
_DENIED: Final = re.compile(
    r"(Using cached result: )?([0-9a-f]+)(?: on (\S+))? is unauthorized to "
    r"(Put|Delete|Reply|Declare Queryable|Declare Liveliness Token) \(ingress\) on "
    r"dpadmm/[^/]+/([^/]+)/\S+"
)
_NAMED: Final = re.compile(r"([0-9a-f]+) on \S*CertCommonName\(([^)]*)\)")
# A word for machines, by what Zenoh says about a certificate.
_CERTIFICATES: Final = {
    "peer sent no certificates": "no-certificate",
    "certificate expired": "certificate-expired",
    "certificate not valid yet": "certificate-not-valid-yet",
    "invalid peer certificate": "certificate-invalid",
}
_CLOCKS: Final = ("certificate-expired", "certificate-not-valid-yet")


@final
class Refusals:
    """Finds the refusals in Zenoh's lines and tells a watcher of them.

    Parameters
    ----------
    watcher
        Told of every one of them; floods have few lines.
    """

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        # Which key a thread of Zenoh works out permissions for: nobody has tried anything then.
        self._caching: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._connections: dict[str, int] = {}

    def take(self, line: str) -> bool:
        """Take a line; whether it has been dealt with."""
        found = _LINE.match(_COLOURS.sub("", line))
        if found is None:
            return False
        thread, source, words = found.groups()
        if source == _ACCESS:
            self._take_message(thread, words)
            return True
        return source.startswith("zenoh_link_tls") and self._take_connection(words)

    def _take_message(self, thread: str, words: str) -> None:
        if caching := _CACHING.match(words):
            flow, key = caching.groups()
            self._caching[thread] = key if flow == "ingress" else ""
            return
        if named := _NAMED.match(words):
            self._names[named[1]] = named[2]
        denied = _DENIED.match(words)
        if denied is None or (not denied[1] and words.endswith(f" {self._caching.get(thread)}")):
            return
        sender, owner = self._names.get(denied[2], "somebody"), denied[5]
        sentence = f"{sender} must write under its own name; it tried to as {owner}: refused."
        self._watcher.dropped(sender, "another-name", error=ExchangeError(sentence))

    def _take_connection(self, words: str) -> bool:
        reason = next((word for said, word in _CERTIFICATES.items() if said in words), None)
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
class TransportLog(Closing):
    """Reads what Zenoh writes to descriptor 1, from before its first session until it is closed.

    Parameters
    ----------
    watcher
        Told of refusals.
    """

    def __init__(self, watcher: Watcher) -> None:
        import zenoh

        zenoh.init_log_from_env_or(_LEVELS)
        self._refusals = Refusals(watcher)
        sys.stdout.flush()
        self._before = os.dup(1)
        read, write = os.pipe()
        os.dup2(write, 1)
        os.close(write)
        self._lines: TextIO = os.fdopen(read, encoding="utf-8", errors="replace")
        self._reading = threading.Thread(target=self._read, name="dpadmm zenoh", daemon=True)
        self._reading.start()

    def _read(self) -> None:
        for line in self._lines:
            if not self._refusals.take(line):
                sys.stderr.write(line)
                sys.stderr.flush()

    def close(self) -> None:
        """Give descriptor 1 back, once all lines were read."""
        sys.stdout.flush()
        os.dup2(self._before, 1)
        os.close(self._before)
        self._reading.join()
        self._lines.close()
