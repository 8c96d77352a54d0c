"""What Zenoh says about those it turns away, as lines of the node's own log.

Zenoh refuses at the door: a connection without a valid certificate, and a message under a name that
is not its sender's. Neither reaches Python, and Zenoh tells of it only in words on descriptor 1.
Some of these words are a neighbour's: the key that it wrote to may hold anything, line breaks too.
So descriptor 1 is a socket that keeps records apart, where one write of Zenoh's is one record,
whatever is in it; a record is understood from its beginning, which Zenoh writes, up to the first
word that somebody else may have chosen; and whoever is named is named by the certificate of its
connection. Whatever else Zenoh says goes to standard error, made visible, on one line.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import sys
import threading
from typing import Final, final

from dpadmm.durable import Closable
from dpadmm.errors import ExchangeError
from dpadmm.federation.transport.words import NAME_PATTERN
from dpadmm.federation.watcher import Watcher
from dpadmm.plain import visible

_ACCESS: Final = "zenoh::net::routing::interceptor::access_control"
_CONNECTIONS: Final = "zenoh_link_tls::unicast"
# Refused messages are told at this level only.
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
# A word for machines, by how Zenoh begins to speak about a certificate; the first that fits.
_CERTIFICATES: Final = {
    "peer sent no certificates": "no-certificate",
    "invalid peer certificate: certificate expired": "certificate-expired",
    "invalid peer certificate: certificate not valid yet": "certificate-not-valid-yet",
    "invalid peer certificate": "certificate-invalid",
}
_CLOCKS: Final = ("certificate-expired", "certificate-not-valid-yet")
# Who connects again and again under other numbers must not fill the memory.
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
        Told of every one of them; floods have few lines.
    """

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        # Which key a thread of Zenoh works out permissions for: nobody has tried anything then.
        self._caching: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._connections: dict[str, int] = {}

    def take(self, record: str) -> bool:
        """Take a record, with its line break at the end; whether it has been dealt with."""
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
        Told of refusals.
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
