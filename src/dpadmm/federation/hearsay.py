"""What nodes tell their neighbours about themselves, for people to see: ``share_status``.

A node whose owner wishes it says every two seconds what state it is in, how many rounds are
complete and whom it waits for. That is part of what its neighbours may ask it anyway while it runs
(how far it has heard whom, and whether it is done), at a beat that nothing moves: it tells no more
about rows, nor about the seconds of a local solve, than the messages do. It has no budget, no
address, no reason and no time in it.

What a neighbour says goes into the status file, under its name, and nowhere else. It decides
nothing: it is read by its schema, at most twice a second, given way to every message, and believed
by nobody. Who lies changes what is shown of itself. Nobody hands on what others say.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Final, final

from dpadmm.durable import Closable
from dpadmm.errors import ExchangeError
from dpadmm.federation.transport.session import PeerSession
from dpadmm.federation.transport.wire import BadMessage
from dpadmm.federation.transport.words import MOST_WAITED_FOR, Limits, Standing, said
from dpadmm.federation.watcher import Watcher

_TOPIC: Final = "status"
_NOW: Final = "now"
_SHARE_EVERY: Final = 2.0
# Of what comes faster the rest is not even read.
_TAKE_EVERY: Final = 0.5
_LONGEST: Final = 1 << 14


@final
class Hearsay(Closable):
    """Hears how neighbours say that they get on, and tells them the same if the owner wishes.

    Parameters
    ----------
    session
        The node's connections.
    watcher
        Knows how this node gets on, and is told what the others say.
    limits
        Names and rounds that there are.
    share
        Whether this node tells its neighbours, too.
    on_refused
        Told of what a neighbour should not have sent: whose, a word for why, and the sentence.
    """

    def __init__(
        self,
        session: PeerSession,
        watcher: Watcher,
        limits: Limits,
        *,
        share: bool,
        on_refused: Callable[[str, str, ExchangeError], None],
    ) -> None:
        self._session, self._watcher, self._limits = session, watcher, limits
        self._refused = on_refused
        self._taken: dict[str, float] = {}
        self._closed = threading.Event()
        session.hear(_TOPIC, self._take, decides=False)
        if share:
            threading.Thread(target=self._share, name="dpadmm hearsay", daemon=True).start()

    def _share(self) -> None:
        while not self._closed.wait(_SHARE_EVERY):
            # Whatever is wrong with telling people is no business of the run.
            with contextlib.suppress(Exception):
                state, done, waiting = self._watcher.standing()
                # Who is late at the end its neighbours cannot ask: it is not told.
                missing = [] if state == "serving" else waiting[:MOST_WAITED_FOR]
                words = Standing(state=state, round=done, waiting=missing)
                self._session.publish(_TOPIC, _NOW, words.to_bytes(), decides=False)

    def _take(self, name: str, label: str, data: bytes) -> None:
        now = time.monotonic()
        if now - self._taken.get(name, -_TAKE_EVERY) < _TAKE_EVERY:
            return
        self._taken[name] = now
        try:
            words = said(Standing, data, name, self._limits, longest=_LONGEST)
        except BadMessage as error:
            self._refused(name, "bad-status", error)
            return
        self._watcher.hearsay(name, words.state, words.round, words.waiting)

    def close(self) -> None:
        """Tell no more. A beat that is under way is not waited for: it holds nothing."""
        self._closed.set()
