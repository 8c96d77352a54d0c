"""A way to IPv6 addresses for Zenoh, which takes ``[`` for the host of ``tls/[::1]:7447``.

Zenoh dials a port of this machine, and every byte is passed on to the neighbour and back. TLS goes
through untouched: who may connect and who is heard is decided by certificates at both ends, as
everywhere. Other users of this machine reach no more through it than they do without.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Final, final

from dpadmm.durable import Closable

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
        # Closing alone does not wake up who waits for it.
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
