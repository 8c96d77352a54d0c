"""Whether a node, or a neighbour, came back with older files than it had.

A ledger that is put back to an older copy has forgotten rounds that were sent. A node that goes on
from there draws new noise for them, and whoever heard both messages knows more than was charged. A
node cannot see that of itself, if all its files are old; its neighbours can, who heard it.

So a node asks them before it draws, and draws nothing once one has heard more of it than its ledger
has, or hears a second living process of it. It also says how many rounds of this run its ledger has
and the hash of their messages. Both are functions of what its neighbours hear anyway: nothing is
said of other runs on the same rows. They remember it, and no longer hear one that went back.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Iterable
from dataclasses import replace

from dpadmm.errors import ExchangeError
from dpadmm.federation.transport.claims import instance_hash
from dpadmm.federation.transport.store import MessageStore
from dpadmm.federation.transport.wire import BadMessage
from dpadmm.federation.transport.words import Drawn, Heard, Limits, noted, said


class DrawRefused(ExchangeError):
    """A neighbour heard what this process has not said: it must not draw any noise."""


def messages_hash(messages: Iterable[bytes]) -> str:
    """The hash of a node's messages of the first rounds, in their order."""
    found = hashlib.sha256()
    for data in messages:
        found.update(data)
    return found.hexdigest()


class OwnRounds:
    """What this process has drawn, against what its neighbours heard of its node.

    Parameters
    ----------
    name, process
        The node, and what this process says who it is.
    limits
        Names and rounds that there are.

    Attributes
    ----------
    drawn
        How many rounds the ledger had when this process began; None where none is drawn.
    confirmed
        Who hears this process, and no round that it has not drawn.
    fault
        Why nothing may be drawn, if so.
    """

    def __init__(self, name: str, process: str, limits: Limits) -> None:
        self._name, self._said, self._limits = name, instance_hash(process), limits
        self._count = 0
        self._hash = hashlib.sha256()
        self.drawn: int | None = None
        self.confirmed: set[str] = set()
        self.fault: DrawRefused | None = None

    def begin(self, messages: Iterable[bytes], planned: int) -> None:
        """Take up the run with these messages drawn, of so many rounds."""
        for t, data in enumerate(messages):
            self.add(t, data)
        self.drawn, self._limits = self._count, replace(self._limits, rounds=planned)

    def add(self, t: int, data: bytes) -> None:
        """Count a round that is about to be sent."""
        if t == self._count:
            self._count += 1
            self._hash.update(data)

    def announcement(self) -> bytes | None:
        """How many rounds were drawn by now, and the hash of their messages."""
        if self.drawn is None:
            return None
        return Drawn(count=self._count, head=self._hash.hexdigest()).to_bytes()

    def take(self, name: str, data: bytes) -> None:
        """Take what a neighbour says that it heard; refused where it makes no sense."""
        content = said(Heard, data, name, self._limits)
        if self._name not in content.heard:
            raise BadMessage("invalid", f"{name} must say how far it heard {self._name}.")
        heard, start = content.heard[self._name], content.starts.get(self._name)
        if self._said in content.stopped:
            self.fault = DrawRefused(
                f"{self._name} must run once; {name} hears two living processes of it: a copy of "
                "this node, such as a restored machine, was started. Neither is heard any more, "
                "and nothing more is drawn here. Stop both, and start the one with the newest "
                "files."
            )
        # While another process of this node is heard, it is for the neighbour to judge between
        # them; once this one was confirmed, it is itself who was heard since.
        elif self.drawn is None or start != self._said or name in self.confirmed:
            return
        elif heard > self.drawn:
            self.fault = DrawRefused(
                f"ledger must have every round that was sent; {name} has heard {heard} rounds of "
                f"{self._name} in this run, and the ledger has {self.drawn}: it was put back to an "
                f"older copy, or {name} is wrong. Nothing was drawn. Restore the newest ledger and "
                "messages; if they are lost, those rounds stay spent: begin another run_id, with a "
                "ledger whose budget leaves them out, and with a new file for messages."
            )
        else:
            self.confirmed.add(name)


class NeighbourLedgers:
    """How far the neighbours' ledgers are, as they said; a ledger only goes on.

    Parameters
    ----------
    run, store, limits
        The run, where it is noted, and what names and rounds it has.
    """

    def __init__(self, run: bytes, store: MessageStore, limits: Limits) -> None:
        self._run, self._store, self._limits = run, store, limits
        self._lock = threading.Lock()
        self._known: dict[str, tuple[int, str]] = {}
        self._process: dict[str, str] = {}
        self._went_back: set[str] = set()

    def went_back(self, name: str) -> bool:
        """Whether a neighbour came back with an older ledger than it had."""
        with self._lock:
            return name in self._went_back

    def is_known(self, name: str, process: str) -> bool:
        """Whether a neighbour's process has said how far its ledger is."""
        with self._lock:
            return self._process.get(name) == process

    def take(
        self, name: str, process: str, data: bytes, heard: int, kept: tuple[int, str]
    ) -> ExchangeError | None:
        """Take what a neighbour says; return what is wrong with it, when that is new.

        Parameters
        ----------
        name, process, data
            Who, which process of it, and what it says.
        heard, kept
            How many of its rounds had been heard when it was asked; how many of them are kept, and
            the hash of those.
        """
        content = said(Drawn, data, name, self._limits)
        count, head = content.count, content.head
        with self._lock:
            known, known_head = self._known.get(name) or self._noted(name)
            least = max(known, heard)
            # The same number of rounds has the same messages.
            other = any(
                count == number and head != found
                for number, found in ((known, known_head), kept)
                if found
            )
            self._process[name] = process
            if count >= least and not other:
                self._went_back.discard(name)
                self._known[name] = (count, head)
                # What cannot be noted is still remembered by this process.
                with contextlib.suppress(ExchangeError):
                    self._store.take_note(self._run, _note(name), data.decode("ascii"))
                return None
            new = name not in self._went_back
            self._went_back.add(name)
        sentence = (
            f"the ledger of {name} must go on from its {least} rounds of this run; it has {count}"
            f"{', others than were heard' if other else ''}: it was put back to an older copy. "
            f"{name} is not heard until it comes back with the newest."
        )
        return ExchangeError(sentence) if new else None

    def _noted(self, name: str) -> tuple[int, str]:
        with contextlib.suppress(ExchangeError):
            text = self._store.note(self._run, _note(name))
            if text is not None:
                content = noted(Drawn, text, _note(name), self._limits)
                return content.count, content.head
        return 0, ""


def _note(name: str) -> str:
    return f"ledger of {name}"
