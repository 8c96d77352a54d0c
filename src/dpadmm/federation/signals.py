"""Ending a node in order when its owner asks: SIGTERM or SIGINT.

The signal is raised as :class:`Stopped` in whatever the main thread does, so that all that is open
is closed on the way out. Wherever that is, nothing is lost: a node that is killed goes on from its
ledger and its messages, and one that was stopped does, too. Closing has a time limit, and a second
signal ends the process at once.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Final, final

from dpadmm.durable import Closable

#: The signals that end a node in order; its exit code is 128 and the number of the signal.
SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
# Closing takes a second or two; a node that hangs on it must not outlive its service manager.
_LONGEST_CLOSING: Final = 15.0


class Stopped(BaseException):
    """The owner asked the node to end.

    Attributes
    ----------
    name, exit_code
        Of the signal, such as SIGTERM; and the exit code that stands for it.
    """

    def __init__(self, number: int) -> None:
        self.name = signal.Signals(number).name
        self.exit_code = 128 + number
        super().__init__(
            f"stopped by {self.name}; started again, this node goes on where it was, and nothing "
            "is spent twice."
        )


@final
class Stopping(Closable):
    """Raises :class:`Stopped` at the first signal, until it is closed.

    Parameters
    ----------
    on_hanging
        Called before the process is ended because closing took too long.
    """

    def __init__(self, on_hanging: Callable[[], None]) -> None:
        self._on_hanging = on_hanging
        self._ending: threading.Timer | None = None
        self._over = False
        self._before: dict[int, Any] = {}
        # Elsewhere, as in a program that runs a node in a thread, signals are that program's.
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._stop) for number in SIGNALS}

    def over(self) -> None:
        """The node has ended: a signal has nothing left to interrupt but its last words."""
        self._over = True

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if self._ending is not None:
            os._exit(128 + number)
        if self._over:
            return
        self._ending = threading.Timer(_LONGEST_CLOSING, self._give_up, [128 + number])
        self._ending.daemon = True
        self._ending.start()
        raise Stopped(number)

    def _give_up(self, exit_code: int) -> None:
        with contextlib.suppress(Exception):
            self._on_hanging()
        os._exit(exit_code)

    def close(self) -> None:
        """Leave signals to whoever had them before."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._ending is not None:
            self._ending.cancel()
