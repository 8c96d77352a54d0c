"""The messages of one node in one run: sent once, received once, handed out again on request.

A node checks an incoming message at once: sender, run, round, shape, finite, bounded. It drops and
reports a bad one. The first good one of a round stands; a second one must be the same bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, final

from dpadmm.errors import ExchangeError
from dpadmm.federation.transport.session import OnEvent, PeerSession, no_event
from dpadmm.federation.transport.store import (
    MessageStore,
    NeighbourLedgers,
    OwnRounds,
    messages_hash,
)
from dpadmm.federation.transport.wire import (
    Announcing,
    BadMessage,
    Ending,
    Heard,
    Limits,
    SessionKey,
    agreement_limit,
    decode_masked,
    decode_message,
    message_size,
    noted,
    round_of,
    said,
)

MESSAGE: Final = "message"
_DONE: Final = "done"
_DONE_BY: Final = "done by "
_HEARD: Final = "heard"
_LEDGER: Final = "ledger"
KEYS: Final = "keys"
# Rounds are numbered by 4 bytes: no label of more digits is one.
_DIGITS: Final = 10


class NeighbourLost(ExchangeError):
    """A neighbour did not send its message in the time that it was given.

    Attributes
    ----------
    name, round, ended
        Who, which message is missing, and whether it said that it sends no more.
    seconds, lost
        How long this node waited; and for whose loss the neighbour ended, if it says so.
    """

    def __init__(self, name: str, t: int, seconds: float | None = None, lost: str = "") -> None:
        when = "it ended before" if seconds is None else f"nothing came within {seconds:g} s"
        super().__init__(
            f"{name} must send round {t}; {when}. Check that it runs and can be reached; started "
            "again, this node goes on where it was."
        )
        self.name, self.round, self.ended = name, t, seconds is None
        self.seconds, self.lost = seconds or 0.0, lost


@dataclass(frozen=True)
class Patience:
    """How long a node waits for a message.

    Parameters
    ----------
    timeout
        Seconds after which a neighbour counts as lost; None waits for ever.
    first_question, longest_pause
        Seconds before the first question for what was perhaps missed, and between later ones.
    report
        Seconds between two reports that this node waits for a neighbour.
    """

    timeout: float | None = None
    first_question: float = 0.2
    longest_pause: float = 2.0
    report: float = 10.0


class Mailbox:
    """What one node says and hears in one run.

    Parameters
    ----------
    session
        Its connections.
    run
        The 32 bytes of the run.
    number
        Of this node among the parties.
    sources
        The number of every neighbour that is heard, by name.
    shape
        Of a message.
    store
        Where complete rounds are kept.
    patience
        How long to wait.
    on_refused
        Called with every message that is dropped: its sender, a code and a sentence that say why.
    on_waiting
        Called with the neighbour that this node waits for, and for how many seconds so far; 0
        when its message came.
    on_pause
        Called from time to time while waiting; what it raises ends the waiting.
    limits
        The names and rounds of the run: a message that names others is refused.
    on_event
        Called with a neighbour whose ledger went back.
    ring
        Keys of the parties, where messages are masked vectors.
    before
        The mailbox of the run before this one, after a loss or a training: a neighbour that ended
        there takes no part here.
    """

    def __init__(
        self,
        session: PeerSession,
        run: bytes,
        number: int,
        sources: Mapping[str, int],
        shape: tuple[int, ...],
        store: MessageStore,
        *,
        patience: Patience | None = None,
        on_refused: Callable[[str, str, ExchangeError], None] = lambda name, reason, error: None,
        on_waiting: Callable[[str, float], None] = lambda name, seconds: None,
        on_pause: Callable[[], None] = lambda: None,
        limits: Limits | None = None,
        on_event: OnEvent = no_event,
        ring: KeyRing | None = None,
        before: Mailbox | None = None,
    ) -> None:
        self._session = session
        self._ring, self._before = ring, before
        self._decode = decode_message if ring is None else decode_masked
        self._run = run
        self._topic = run.hex()
        self._number = number
        self._sources = dict(sources)
        self._names = {place: name for name, place in self._sources.items()}
        self._shape = shape
        #: Whose messages neighbours compare at the end, by name.
        self._compared = {session.name: number, **self._sources}
        self._store = store
        self._patience = patience or Patience()
        self._tell_refused = on_refused
        self._waiting = on_waiting
        self._pause = on_pause
        self._limits = limits or Limits()
        self._tell = on_event
        self._news = threading.Condition()
        #: The first round that is not complete; and its and the next one's messages.
        self._round = store.rounds(run)
        self._arrived: dict[tuple[int, int], bytes] = {}
        self._own: dict[int, bytes] = {}
        # A long message on its way to all: a neighbour that asks for it gets it anyway.
        self._telling: bytes | None = None
        # How this node ended, once it has; and what neighbours that ended had heard.
        self._ended: Ending | None = None
        #: For whose loss this node ends early; empty while it does not.
        self.lost = ""
        self._heard_by: dict[str, Ending] = {}
        self._done: dict[str, int] = {}
        # A neighbour that ended before a restart of this node may be gone for good.
        self._done_before = {name for name in sources if store.note(run, _DONE_BY + name)}
        self._refused: dict[tuple[str, str], int] = {}
        self._own_rounds = OwnRounds(session.name, session.said, self._limits)
        self._ledgers = NeighbourLedgers(run, store, self._limits)
        self._sent = self._received = 0
        session.hear(self._topic, self._take)
        session.serve(self._topic, self._answer)

    # -- before anything is drawn ------------------------------------------------------------

    def begin(self, messages: Iterable[bytes], planned: int) -> None:
        """Answer neighbours from now on: this node has drawn these messages, of ``planned``."""
        with self._news:
            self._own_rounds.begin(messages, planned)

    def confirm(self) -> None:
        """Wait until every neighbour hears this process, and has heard no round beyond its own.

        Raises
        ------
        DrawRefused
            If one has heard more, or hears two processes of this node.
        """
        own = self._own_rounds
        assert own.drawn is not None
        for name in self._sources:
            self._session.ask(self._topic, name, _HEARD, self._take)
            self._ask_ledger(name)
        for name in self._sources:
            self._wait(
                name,
                _HEARD,
                partial(own.confirmed.__contains__, name),
                self._patience.timeout,
                lost_round=own.drawn,
            )

    def gather(self, t: int) -> None:
        """Wait until every party's key is here; called before round ``t`` is drawn.

        Raises
        ------
        NeighbourLost
            If a neighbour does not bring its own in time, or a server not all of them.
        """
        ring, timeout = self._ring, self._patience.timeout
        assert ring is not None
        # A neighbour that hears it at once need not ask; the others ask from time to time.
        self._session.publish(self._topic, KEYS, ring.to_bytes())
        for name in self._sources:

            def settled(name: str = name) -> bool:
                return ring.brought(name) or (timeout is not None and name in self._done)

            self._wait(name, KEYS, settled, timeout, lost_round=t)
            if not ring.brought(name):
                raise NeighbourLost(name, t)
        self._session.publish(self._topic, KEYS, ring.to_bytes())

    # -- messages of a round -----------------------------------------------------------------

    def send(self, t: int, data: bytes) -> None:
        """Tell the neighbours; a round that is complete is only handed out on request."""
        with self._news:
            self._own = {t: data}
            self._own_rounds.add(t, data)
        if t >= self._round:
            self.tell(data)

    @property
    def source_names(self) -> tuple[str, ...]:
        """The neighbours that are heard."""
        return tuple(self._sources)

    @property
    def rounds(self) -> int:
        """How many rounds are complete."""
        return self._round

    def own(self, t: int) -> bytes:
        """Return this node's message of a round that it sent."""
        with self._news:
            data = self._own.get(t)
        return self._store.messages(self._run, t)[self._number] if data is None else data

    def tell(self, data: bytes) -> None:
        """Publish a message to all neighbours; a long one takes its time."""
        self._telling = data
        try:
            self._session.publish(self._topic, MESSAGE, data)
        finally:
            self._telling = None
        self._sent += len(data)

    def receive(self, number: int, t: int) -> bytes:
        """Wait for a neighbour's message; ask for it from time to time."""
        if t < self._round:
            return self._store.messages(self._run, t)[number]
        name = self._names[number]

        timeout = self._patience.timeout

        def settled() -> bool:
            # Without a timeout: wait on.
            ended = timeout is not None and self._ended_before(name, t)
            return ended or (number, t) in self._arrived

        self._wait(name, self._label(number, t), settled, timeout, lost_round=t)
        with self._news:
            if (number, t) not in self._arrived:
                raise NeighbourLost(name, t, lost=self._lost_by(name))
            return self._arrived[number, t]

    def _lost_by(self, name: str) -> str:
        """For whose loss a neighbour ended, if it says so: whoever ended is not lost itself."""
        ended = self._heard_by.get(name)
        return "" if ended is None else ended.lost

    def _ended_before(self, name: str, t: int) -> bool:
        """Whether a neighbour ended after fewer rounds, and sends no more."""
        return t > self._done.get(name, t)

    def _label(self, number: int, t: int) -> str:
        """What a neighbour is asked for to hear its message of a round."""
        return str(t)

    def _shape_of(self, number: int) -> tuple[int, ...]:
        """The shape of what a neighbour sends."""
        return self._shape

    def keep(self, t: int, messages: dict[int, bytes]) -> None:
        """Keep a complete round, durably, and make room for the next."""
        if t < self._round:
            return
        self._store.keep(self._run, t, messages)
        with self._news:
            self._round = t + 1
            for key in [key for key in self._arrived if key[1] <= t]:
                del self._arrived[key]

    def finish(self, linger: float) -> tuple[str, ...]:
        """Say that this node has all it needs; serve the others until they have, or for a while.

        Returns
        -------
        tuple of str
            The neighbours that did not say so in time.
        """
        summary = self._summary()
        with self._news:
            # Those that ended before are compared below; those that end from now on as they come.
            self._ended = summary
            early = list(self._heard_by.items())
        self._session.publish(self._topic, _DONE, summary.to_bytes())
        for name, heard in early:
            self._compare(name, heard)
        deadline = time.monotonic() + linger
        late = []
        for name in self._sources:
            if name in self._done_before:
                continue
            left = max(0.0, deadline - time.monotonic())
            try:
                self._wait(name, _DONE, partial(self._done.__contains__, name), left)
            except NeighbourLost:
                late.append(name)
        if len(self._done) > len(early):
            # A neighbour that ended later may have missed it the first time, and waits for it.
            self._session.publish(self._topic, _DONE, summary.to_bytes())
        return tuple(late)

    def _wait(
        self,
        name: str,
        label: str,
        ready: Callable[[], bool],
        timeout: float | None,
        lost_round: int = -1,
    ) -> None:
        begin = time.monotonic()
        pause, report = self._patience.first_question, self._patience.report
        # A node that has all its rounds draws nothing more, and goes on serving the others.
        draws = lost_round >= 0
        try:
            while True:
                with self._news:
                    came = self._news.wait_for(
                        lambda: ready() or self._fault(draws) is not None, timeout=pause
                    )
                    fault = self._fault(draws)
                if fault is not None:
                    raise fault
                if came:
                    return
                waited = time.monotonic() - begin
                # A neighbour that was there meanwhile is lost once it has been gone for as long.
                gone = self._session.claims.absent(name) if draws else 0.0
                left = 0.0 if timeout is None else timeout - (min(waited, gone) if gone else waited)
                if timeout is not None and left < 0:
                    raise NeighbourLost(name, lost_round, timeout, self._lost_by(name))
                if waited > report:
                    self._waiting(name, waited)
                    report += self._patience.report
                self._pause()
                if draws and self._before is not None:
                    self._before.ask_end(name)
                    if (
                        timeout is not None
                        and name in self._session.left
                        and name not in self._done
                    ):
                        raise NeighbourLost(name, lost_round)
                if label != _HEARD:
                    self._ask_again(name, label)
                # Any of them may have to say why this node must not go on.
                for source in self._sources if draws else ():
                    self._session.ask(self._topic, source, _HEARD, self._take)
                process = self._session.claims.current(name)
                if self._session.present(name) and not self._ledgers.is_known(name, process):
                    self._ask_ledger(name)
                pause = min(2 * pause, self._patience.longest_pause)
                if timeout is not None:
                    pause = min(pause, max(0.01, left))
        finally:
            # This node waits no longer, whether the neighbour came or is lost.
            if report > self._patience.report:
                self._waiting(name, 0.0)

    def _ask_again(self, name: str, label: str) -> None:
        """Ask for what did not come: it may have been missed."""
        shape = self._shape_of(self._sources[name])
        longest = message_size(shape) if label not in (_DONE, KEYS) else 0
        self._session.ask(self._topic, name, label, self._take, longest=longest)

    def ask_end(self, name: str) -> None:
        """Ask whether a neighbour ended, here or before: it sends nothing in a later run."""
        self._session.ask(self._topic, name, _DONE, self._take)
        if self._before is not None:
            self._before.ask_end(name)

    def _fault(self, draws: bool) -> ExchangeError | None:
        """Why this node must not go on, if it has anything left to draw."""
        return self._own_rounds.fault if draws else None

    # -- called by the network's threads -----------------------------------------------------

    def _take(self, name: str, label: str, data: bytes) -> None:
        """Check what came from a neighbour; keep what is due."""
        with self._news:
            self._received += len(data)
        if label == _DONE:
            self._take_end(name, data)
            return
        number = self._sources.get(name)
        if number is None:
            return
        try:
            if label == _HEARD:
                with self._news:
                    self._own_rounds.take(name, data)
                    self._news.notify_all()
                return
            if label == KEYS:
                self._take_keys(name, data)
                return
            shape = self._shape_of(number)
            t = round_of(data, shape)
            self._decode(data, run=self._run, party=number, t=t, shape=shape)
        except BadMessage as error:
            self._refuse(name, error.reason, error)
            return
        if self._ledgers.went_back(name):
            sentence = f"round {t} of {name} is not taken: its ledger went back."
            self._refuse(name, "ledger-went-back", ExchangeError(sentence))
            return
        with self._news:
            now = self._round
            if now <= t <= now + 1:
                known = self._arrived.setdefault((number, t), data)
                self._news.notify_all()
        if t < now:
            known = self._store.messages(self._run, t).get(number, data)
        elif t > now + 1:
            sentence = f"round {t} of {name} is not due: this node is in round {now}."
            self._refuse(name, "not-due", ExchangeError(sentence))
            return
        if known != data:
            sentence = f"{name} sent two different messages for round {t}; the first one stands."
            self._refuse(name, "two-messages", ExchangeError(sentence))

    def _take_keys(self, name: str, data: bytes) -> None:
        """Take keys of the parties that a neighbour hands on."""
        if self._ring is None:
            return
        for sentence in self._ring.take(name, data):
            self._refuse(name, "bad-key", ExchangeError(sentence))
        with self._news:
            self._news.notify_all()

    def _refuse(self, name: str, reason: str, error: ExchangeError) -> None:
        with self._news:
            self._refused[name, reason] = self._refused.get((name, reason), 0) + 1
        self._tell_refused(name, reason, error)

    def _answer(self, label: str) -> bytes | None:
        """Hand out a round again, as it was sent."""
        if label == _DONE:
            return None if self._ended is None else self._ended.to_bytes()
        if label == _LEDGER:
            with self._news:
                return self._own_rounds.announcement()
        if label == _HEARD:
            return self._what_was_heard().to_bytes()
        if label == KEYS:
            return None if self._ring is None else self._ring.to_bytes()
        t = self._round_of(label)
        if t is None:
            return None
        with self._news:
            data = self._own.get(t)
        if data is None:
            data = self._store.messages(self._run, t).get(self._number)
        return None if data == self._telling else data

    @staticmethod
    def _round_of(label: str) -> int | None:
        """The round that somebody asks for, if it is one."""
        known = label.isascii() and label.isdecimal() and len(label) <= _DIGITS
        return int(label) if known else None

    def _heard_of(self, number: int) -> int:
        """How many rounds of a neighbour came, up to the last one that did."""
        with self._news:
            return max([self._round, *(t + 1 for party, t in self._arrived if party == number)])

    def _what_was_heard(self) -> Heard:
        """How far every neighbour was heard, and which process of each is."""
        starts, stopped = self._session.claims.starts()
        # A node that the others went on without may still be connected: it is not of this run.
        nodes = self._limits.nodes
        starts = {name: start for name, start in starts.items() if nodes is None or name in nodes}
        heard = {name: self._heard_of(number) for name, number in self._sources.items()}
        return Heard(heard=heard, starts=starts, stopped=stopped)

    def _ask_ledger(self, name: str) -> None:
        """Ask how far a neighbour's ledger is, and name one that went back.

        What was heard before the question was drawn before the answer.
        """
        number = self._sources[name]
        heard, kept = self._heard_of(number), self._round
        head = self._hash_of(number, kept)

        def take(name: str, label: str, data: bytes) -> None:
            process = self._session.claims.current(name)
            try:
                error = self._ledgers.take(name, process, data, heard, (kept, head))
            except BadMessage as refusal:
                self._refuse(name, refusal.reason, refusal)
                return
            if error is not None:
                self._tell("ledger-went-back", level="error", neighbour=name, error=error)

        self._session.ask(self._topic, name, _LEDGER, take)

    def _hash_of(self, number: int, kept: int) -> str:
        """The hash of a neighbour's messages of the first rounds; empty where they are not kept."""
        # A store in memory forgets: then there is nothing to compare.
        whole = kept == 0 or number in self._store.messages(self._run, 0)
        found = (self._store.messages(self._run, t)[number] for t in range(kept))
        return messages_hash(found) if whole else ""

    def take_counts(self) -> tuple[int, int]:
        """Bytes of messages sent and received since the last call."""
        with self._news:
            counts = self._sent, self._received
            self._sent = self._received = 0
        return counts

    def _summary(self) -> Ending:
        """How many rounds were complete, and a hash of what everybody was heard to say in them.

        Neighbours that hear the same node compare: one that told them different things is found.
        """
        hashes = {name: hashlib.sha256() for name in self._compared}
        for t in range(self._round):
            messages = self._store.messages(self._run, t)
            for name, number in self._compared.items():
                if number not in messages:  # a store in memory forgets: nothing to compare
                    hashes.pop(name, None)
                elif name in hashes:
                    hashes[name].update(messages[number])
        heard = {name: found.hexdigest() for name, found in hashes.items()}
        return Ending(rounds=self._round, heard=heard, lost=self.lost)

    def _take_end(self, name: str, data: bytes) -> None:
        """Take note that a neighbour ended."""
        try:
            theirs = said(Ending, data, name, self._limits)
        except BadMessage as error:
            self._refuse(name, error.reason, error)
            return
        with self._news:
            new = name not in self._done
        self._session.left.add(name)
        if new:
            # Without the note this node only serves for longer after a restart.
            with contextlib.suppress(ExchangeError):
                self._store.take_note(self._run, _DONE_BY + name, str(theirs.rounds))
        with self._news:
            compare = name not in self._done and self._ended is not None
            self._done[name] = theirs.rounds
            self._heard_by[name] = theirs
            self._news.notify_all()
        if compare:
            self._compare(name, theirs)

    def _compare(self, name: str, theirs: Ending) -> None:
        """Tell that this node and a neighbour heard different things of a third."""
        ours = self._ended
        if ours is None or theirs.rounds != ours.rounds:
            return
        for source in sorted(set(ours.heard) & set(theirs.heard)):
            if ours.heard[source] != theirs.heard[source]:
                # Reported as what the neighbour says: its word alone accuses nobody else.
                sentence = (
                    f"{name} heard other messages of {source} than this node: {source} sent "
                    f"different messages, or {name} does not tell the truth."
                )
                self._refuse(name, "heard-otherwise", ExchangeError(sentence))

    @property
    def refused(self) -> dict[tuple[str, str], int]:
        """How many messages of each neighbour were refused, and why."""
        with self._news:
            return dict(self._refused)


@final
class KeyRing:
    """The keys that a node has; used by several threads.

    Parameters
    ----------
    members
        The members whose keys are expected, in their order.
    fault
        Says what is wrong with a key of a member; empty if it holds. None where keys are only
        handed on.
    """

    def __init__(
        self, members: Sequence[str], fault: Callable[[str, SessionKey], str] | None = None
    ) -> None:
        self.members = tuple(members)
        self._fault = fault
        self._limits = Limits(frozenset(members))
        self._longest = agreement_limit(len(members))
        self._lock = threading.Lock()
        self._keys: dict[str, SessionKey] = {}

    def __contains__(self, name: str) -> bool:
        with self._lock:
            return name in self._keys

    @property
    def missing(self) -> tuple[str, ...]:
        """Whose key is not there."""
        with self._lock:
            return tuple(name for name in self.members if name not in self._keys)

    @property
    def complete(self) -> bool:
        """Whether every member's key is there."""
        return not self.missing

    def brought(self, source: str) -> bool:
        """Whether a neighbour has nothing more to bring: its own key is here, or everybody's."""
        return self.complete or source in self

    @property
    def keys(self) -> dict[str, SessionKey]:
        """The keys by name."""
        with self._lock:
            return dict(self._keys)

    def add(self, name: str, key: SessionKey) -> None:
        """Take the key of this node itself."""
        with self._lock:
            self._keys[name] = key

    def to_bytes(self) -> bytes:
        """All keys that are there, as they are said and noted."""
        return Announcing(keys=self.keys).to_bytes()

    def restore(self, note: str) -> None:
        """Take the session keys as they were noted before a restart."""
        found = noted(Announcing, note, "the session keys", self._limits)
        with self._lock:
            self._keys = dict(found.keys)

    def take(self, sender: str, data: bytes) -> list[str]:
        """Take what a neighbour hands on; return what is wrong with it, a sentence for each key."""
        content = said(Announcing, data, sender, self._limits, longest=self._longest)
        wrong = []
        for name, key in content.keys.items():
            if self._fault is None and name != sender:
                continue
            with self._lock:
                known = self._keys.get(name)
            if known is not None:
                # Whoever hands a signature on can change its form, but not what was signed.
                if known.public_key != key.public_key:
                    wrong.append(
                        f"{sender} must hand on one key of {name} for a view; it has two: the "
                        "first one stands."
                    )
                continue
            fault = "" if self._fault is None else self._fault(name, key)
            if fault:
                wrong.append(f"{sender} must hand on what {name} signed; {fault}: not counted.")
                continue
            with self._lock:
                self._keys.setdefault(name, key)
        return wrong
