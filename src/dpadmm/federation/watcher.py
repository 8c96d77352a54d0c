"""How an owner watches and stops a node: log, status file, terminal, metrics, gossip, signals.

*Log.* The log is one JSON object per line: ``time`` (UTC), ``level``, ``event``, ``node``, ``run``
and ``facts``. :mod:`dpadmm.federation.status` lists what may be a fact; nothing else gets in.

*Gossip* (``share_status``). Where its owner wishes it, a node tells its neighbours every two
seconds its state, how many rounds are complete and whom it waits for. Neighbours may ask for that
anyway while the node runs. The beat is fixed: gossip tells no more about rows, or about the
seconds of a local solve, than the messages do. It holds no budget, address, reason or time.

What a neighbour says goes into the status file, under its name, and nowhere else. It decides
nothing. A schema reads it, at most twice a second, and every message comes first. A neighbour that
lies changes only what is shown of itself. Nobody passes gossip on.

*Signals.* SIGTERM and SIGINT end a node in order. The main thread gets :class:`Stopped` wherever it
is, so that everything open is closed on the way out. Nothing is lost: a node that was stopped goes
on from its ledger and its messages, as one that was killed does. Closing has a time limit, and a
second signal ends the process at once.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from dpadmm.durable import Closable, check_writable, write_whole
from dpadmm.errors import DataError, ExchangeError, ParameterError, unknown_name
from dpadmm.federation.status import (
    MOST_EVENTS,
    STATUS_VERSION,
    WRITING,
    Fact,
    code_word,
    process_space,
    public_facts,
)
from dpadmm.federation.transport.session import PeerSession
from dpadmm.federation.transport.wire import MOST_WAITED_FOR, BadMessage, Limits, Standing, said
from dpadmm.plain import visible

if TYPE_CHECKING:
    from dpadmm.federation.page_server import Metrics


#: From the least to the most pressing.
LEVELS: Final = ("info", "warning", "error")
# The status file is also a sign of life; durable writes of the ledger must not wait for it.
_HEARTBEAT: Final = 1.0
_ROUND: Final = "round"
# On a terminal the command ends with the whole sentence; the log has it either way.
_SAID_AT_THE_END: Final = ("failed", "left-out", "stopped")
_ROUND_LINES: Final = 1.0
_MOST_SENDERS: Final = 1000
_MOST_OTHERS: Final = 300
# A neighbour can cause events, such as coming and going: so many lines, then one a second.
_BURST: Final = 20
_CROWD_LINES: Final = 1.0


@final
class Watcher(Closable):
    """Records what a node does; any thread may call any method.

    Parameters
    ----------
    node
        The name of the node.
    run
        The name or hash of the run; may be set later by :meth:`join`.
    log
        Where the JSON lines go: a file, added to at its end, and made anew when it was moved away
        (rotated). Without one they go to standard error, unless that is a terminal.
    status
        A file for ``dpadmm status``, written anew every second and whole.
    metrics
        An address for Prometheus, such as ``127.0.0.1:9464``.
    metrics_anywhere
        Allow an address that other machines reach.
    metrics_token
        What whoever asks for metrics must show.
    terminal
        Show progress on standard error; whether it is a terminal decides unless given.
    """

    def __init__(
        self,
        node: str,
        run: str = "",
        *,
        log: Path | None = None,
        status: Path | None = None,
        metrics: str | None = None,
        metrics_anywhere: bool = False,
        metrics_token: bytes | None = None,
        terminal: bool | None = None,
    ) -> None:
        self.node, self.run = node, run
        self._lock = threading.RLock()
        self._closed = threading.Event()
        self._terminal = sys.stderr.isatty() if terminal is None else terminal
        self._status = status
        if status is not None:
            check_writable(status, "status")
        self._log = log
        self._lines = self._open_log(log)
        self._dropped: dict[tuple[str, str], int] = {}
        self._crowds: dict[tuple[str, Any, Any], tuple[int, float]] = {}
        self._complaint = ""
        self._last_round_line = -_ROUND_LINES
        self._written = self._ended_well = False
        self._state = _first_status(node, run)
        self._metrics: Metrics | None = None
        if metrics is not None:
            from dpadmm.federation.page_server import Metrics

            self._metrics = Metrics(
                metrics, node, run, anywhere=metrics_anywhere, token=metrics_token
            )
            self._state["metrics"] = self._metrics.address
        self._progress = self._start_progress()
        self._beating = threading.Thread(target=self._beat, name="dpadmm status", daemon=True)
        if status is not None:
            self._write_status()
            self._beating.start()

    @property
    def metrics_address(self) -> str | None:
        """Where the metrics are, with the port that was taken."""
        return None if self._metrics is None else self._metrics.address

    def event(self, name: str, *, level: str = "info", **facts: Any) -> None:
        """Record an event.

        Parameters
        ----------
        name
            Its code, such as ``neighbour-lost``.
        level
            One of :data:`LEVELS`.
        facts
            Its facts, by the fields of :data:`dpadmm.federation.status.FIELDS`.
        """
        code_word(name)
        if level not in LEVELS:
            raise unknown_name("level", level, LEVELS)
        told = public_facts(facts)
        entry = {"time": _now(), "level": level, "event": name}
        with self._lock:
            if self._crowded(name, told.get("neighbour"), told.get("reason")):
                return
            if level == "error" and self._metrics is not None:
                self._metrics.errors.labels(name).inc()
            self._state["last_event"] = entry | {"facts": told}
            self._state["changed"] = entry["time"]
            words = ", ".join(f"{key} {_spoken(value)}" for key, value in told.items())
            if name != _ROUND:
                # Rounds would push out everything else, and are counted anyway.
                events = self._state.setdefault("events", [])
                events.append(entry | {"words": visible(words)})
                del events[:-MOST_EVENTS]
            line = entry | {"node": self.node, "run": self.run, "facts": told}
            self._write_line(json.dumps(line, allow_nan=False))
            if self._progress is not None and level != "info" and name not in _SAID_AT_THE_END:
                style = "red" if level == "error" else "yellow"
                self._progress.console.print(Text(f"{name}: {words}", style=style))

    def _crowded(self, name: str, neighbour: Any, reason: Any) -> bool:
        """Whether a neighbour causes an event too often for a line each time.

        Each reason counts by itself: a flood of one hides no other.
        """
        if neighbour is None:
            return False
        known = (name, neighbour, reason) in self._crowds or len(self._crowds) < _MOST_SENDERS
        key = (name, neighbour if known else "others", reason)
        count, last = self._crowds.get(key, (0, 0.0))
        now = time.monotonic()
        if count >= _BURST and now - last < _CROWD_LINES:
            return True
        self._crowds[key] = (count + 1, now)
        return False

    def join(self, run: str) -> None:
        """Name the run, once it is agreed on."""
        with self._lock:
            self.run = self._state["run"] = run
            if self._metrics is not None:
                self._metrics.join(run)

    def graph(
        self, nodes: Sequence[str], links: Sequence[tuple[str, str]], server: str | None
    ) -> None:
        """Record who is linked with whom in the agreed run."""
        told = public_facts({"nodes": list(nodes)})
        with self._lock:
            pairs = [sorted(pair) for pair in links]
            self._state["graph"] = told | {"links": sorted(pairs), "server": server}

    def standing(self) -> tuple[Any, int, list[str]]:
        """The state of this node, its complete rounds, and whom it waits for."""
        with self._lock:
            waiting = sorted({*self._state["waiting"], *self._state["unreachable"]})
            # Neighbours see a node that still runs.
            state = "running" if self._state["state"] == WRITING else self._state["state"]
            return state, self._state["round"], waiting

    def gossip(self, neighbour: str, state: str, done: int, waiting: list[str]) -> None:
        """Record what a neighbour says about itself; nobody has checked it."""
        told = public_facts({"state": state, "round": done, "waiting": waiting})
        with self._lock:
            others = self._state.setdefault("others", {})
            # Bound the file, so that it can be read whatever many neighbours say.
            if neighbour in others or len(others) < _MOST_OTHERS:
                others[neighbour] = told | {"heard": _now()}

    def round(self, done: int, rounds: int) -> None:
        """Record how many rounds are complete, of how many. At most one log line a second."""
        told = public_facts({"round": done, "rounds": rounds})
        with self._lock:
            self._state |= told | {"changed": _now()}
            self._enter("running")
            if self._metrics is not None:
                self._metrics.round.set(done)
                self._metrics.rounds.set(rounds)
            if self._progress is not None:
                self._progress.update(self._bar, completed=done, total=rounds)
            now = time.monotonic()
            if done == rounds or now - self._last_round_line >= _ROUND_LINES:
                self._last_round_line = now
                self.event(_ROUND, round=done, rounds=rounds)

    def _enter(self, state: str) -> None:
        self._state["state"] = state
        if self._metrics is not None:
            self._metrics.state(state)

    def certificate(self, name: str, end: datetime) -> None:
        """Record until when a certificate is valid: this node's, the authority's or another's."""
        if self._metrics is not None:
            self._metrics.certificate(name, end)

    def waiting(self, neighbour: str, seconds: float) -> None:
        """Record how long this round has waited for a neighbour so far; 0 when it came."""
        public_facts({"neighbour": neighbour, "seconds": seconds})
        with self._lock:
            now: dict[str, float] = self._state["waiting"]
            before = now.pop(neighbour, 0.0)
            if seconds > 0:
                now[neighbour] = float(seconds)
            if self._metrics is not None:
                self._metrics.waiting.labels(neighbour).set(seconds)
                # A new round's waiting starts below the last one's.
                more = seconds - before if seconds >= before else seconds
                self._metrics.waited.labels(neighbour).inc(more)
            if self._progress is not None:
                names = ", ".join(f"{name} {time:.0f} s" for name, time in sorted(now.items()))
                self._progress.update(self._bar, waiting=f"waiting for {names}" if now else "")

    def unreachable(self, neighbour: str, address: str, reason: str, advice: str) -> None:
        """Record why a neighbour is not connected, and what to do; once for each cause."""
        facts = {"neighbour": neighbour, "address": address, "reason": reason, "advice": advice}
        told = public_facts(facts)
        with self._lock:
            now: dict[str, Any] = self._state["unreachable"]
            if now.get(neighbour, {}).get("reason") == reason:
                return
            now[neighbour] = {key: told[key] for key in ("address", "reason", "advice")}
            now[neighbour]["since"] = _now()
            if self._metrics is not None:
                self._metrics.unreachable.labels(neighbour).set(1)
            self.event("neighbour-unreachable", level="warning", **facts)

    def reachable(self, neighbour: str) -> None:
        """Record that a neighbour is connected, or is not needed any more."""
        with self._lock:
            if self._state["unreachable"].pop(neighbour, None) and self._metrics is not None:
                self._metrics.unreachable.labels(neighbour).set(0)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Record that rounds are over: this block computes their cost and writes results."""
        with self._lock:
            before = self._state["state"]
            self._enter(WRITING)
            done = {name: self._state[name] for name in ("round", "rounds")}
            self.event("writing-results", **done)
        try:
            yield
        finally:
            with self._lock:
                self._enter(before)

    def serving(self, timeout: float) -> None:
        """Record that the results are written: the node only serves late neighbours."""
        with self._lock:
            self._written = True
            self._enter("serving")
            self.event("serving", timeout=timeout)

    def finished(self) -> None:
        """Record that nothing is left to do."""
        with self._lock:
            self._ended_well = True
            self.event("finished")

    def bytes(self, sent: int, received: int) -> None:
        """Add to the bytes of messages sent and received."""
        public_facts({"sent": sent, "received": received})
        with self._lock:
            self._state["sent"] += int(sent)
            self._state["received"] += int(received)
            if self._metrics is not None:
                self._metrics.sent.inc(sent)
                self._metrics.received.inc(received)

    def budget(self, spent: float, left: float) -> None:
        """Record the epsilon spent on the data set and what is left, from the ledger."""
        told = public_facts({"epsilon_spent": spent, "epsilon_left": left})
        with self._lock:
            self._state |= told
            if self._metrics is not None:
                self._metrics.epsilon_spent.set(spent)
                self._metrics.epsilon_left.set(left)

    def dropped(self, neighbour: str, reason: str, **facts: Any) -> None:
        """Record that a message was refused.

        A flood must not fill the disk: of a sender's messages with one reason, only the 1st, 2nd,
        4th, 8th... get a line.
        """
        code_word(reason)
        with self._lock:
            known = (neighbour, reason) in self._dropped or len(self._dropped) < _MOST_SENDERS
            key = (neighbour if known else "others", reason)
            count = self._dropped[key] = self._dropped.get(key, 0) + 1
            total = self._state["dropped"]
            total[reason] = total.get(reason, 0) + 1
            if self._metrics is not None:
                self._metrics.dropped.labels(reason).inc()
            if count & (count - 1) == 0:
                told = {"neighbour": neighbour, "reason": reason, "count": count, **facts}
                self.event("message-dropped", level="warning", **told)

    def give_up(self) -> None:
        """Write a last status without the lock: the process ends at once."""
        self._state["state"] = "stopped"
        if self._status is not None:
            write_whole(self._status, self._status_text().encode("ascii"), "status")

    def close(self) -> None:
        """Record how the node ended, and stop.

        It finished if it said so, with its results written and all rounds complete. Otherwise it
        was stopped.
        """
        with self._lock:
            if self._closed.is_set():
                return
            complete = 0 < self._state["rounds"] <= self._state["round"]
            well = complete and self._written and self._ended_well
            self._enter("finished" if well else "stopped")
            self._state["waiting"], self._state["unreachable"] = {}, {}
            self._closed.set()
        if self._beating.is_alive():
            self._beating.join()
        if self._status is not None:
            self._write_status()
        if self._metrics is not None:
            self._metrics.close()
        if self._progress is not None:
            self._progress.stop()
        if self._lines is not None:
            self._lines.close()

    def _open_log(self, log: Path | None) -> FileIO | None:
        if log is None:
            return None
        check_writable(log, "log")
        try:
            return FileIO(log, "a")
        except OSError as error:
            raise ParameterError(
                f"log must be a file that can be written; got {log}: {error.strerror}."
            ) from None

    def _write_line(self, line: str) -> None:
        if self._closed.is_set():
            return
        try:
            if self._lines is not None:
                self._follow_rotation()
                # Unbuffered, so that a line is there as soon as it is told, and in one piece.
                self._lines.write(f"{line}\n".encode("ascii"))
            elif not self._terminal:
                sys.stderr.write(f"{line}\n")
        except OSError as error:
            self._complain(f"the log cannot be written: {error.strerror}")

    def _follow_rotation(self) -> None:
        """Open the log anew if the open one was moved away or removed."""
        assert self._log is not None
        assert self._lines is not None
        try:
            there = os.stat(self._log)
        except OSError:
            there = None
        if there is None or not os.path.samestat(there, os.fstat(self._lines.fileno())):
            try:
                opened = FileIO(self._log, "a")
            except OSError as error:
                # The old one stays in use.
                self._complain(f"the log cannot be made anew: {error.strerror}")
                return
            self._lines.close()
            self._lines = opened

    def _start_progress(self) -> Progress | None:
        if not self._terminal:
            return None
        progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("rounds"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[waiting]}", markup=False),
            console=Console(stderr=True),
        )
        self._bar = progress.add_task(self.node, total=None, waiting="")
        progress.start()
        return progress

    def _beat(self) -> None:
        while not self._closed.wait(_HEARTBEAT):
            self._write_status()

    def _status_text(self) -> str:
        content = json.dumps(self._state | {"updated": _now()}, allow_nan=False, indent=1)
        return content + "\n"

    def _write_status(self) -> None:
        assert self._status is not None
        with self._lock:
            content = self._status_text().encode("ascii")
        try:
            write_whole(self._status, content, "status")
        except DataError as error:
            self._complain(str(error))

    def _complain(self, sentence: str) -> None:
        """Warn once about each trouble: the node goes on unwatched."""
        if sentence != self._complaint:
            self._complaint = sentence
            Console(stderr=True, soft_wrap=True).print(Text(f"Warning: {sentence}"))


def _spoken(fact: Fact) -> str:
    return " ".join(fact) if isinstance(fact, list) else str(fact)


def _first_status(node: str, run: str) -> dict[str, Any]:
    """What a status file says before anything happened."""
    now = _now()
    return {
        "version": STATUS_VERSION,
        "node": node,
        "run": run,
        "state": "starting",
        "process": os.getpid(),
        "process_space": process_space(),
        "started": now,
        "changed": now,
        "round": 0,
        "rounds": 0,
        "waiting": {},
        "unreachable": {},
        "sent": 0,
        "received": 0,
        "epsilon_spent": None,
        "epsilon_left": None,
        "dropped": {},
        "last_event": None,
        "metrics": None,
    }


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


_TOPIC: Final = "status"
_NOW: Final = "now"
_SHARE_EVERY: Final = 2.0
# What comes faster is not even read.
_TAKE_EVERY: Final = 0.5
_LONGEST: Final = 1 << 14


@final
class Gossip(Closable):
    """Takes gossip from neighbours, and shares this node's own status if the owner wishes.

    Parameters
    ----------
    session
        The node's connections.
    watcher
        Knows this node's status, and records what the others say.
    limits
        The names and rounds of the run.
    share
        Whether this node shares its status.
    on_refused
        Called with a message that should not have been sent: its sender, a code and a sentence.
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
            threading.Thread(target=self._share, name="dpadmm gossip", daemon=True).start()

    def _share(self) -> None:
        while not self._closed.wait(_SHARE_EVERY):
            # Trouble with gossip must not touch the run.
            with contextlib.suppress(Exception):
                state, done, waiting = self._watcher.standing()
                # Neighbours cannot ask who is late at the end, so gossip does not tell it.
                missing = [] if state == "serving" else waiting[:MOST_WAITED_FOR]
                told = Standing(state=state, round=done, waiting=missing)
                self._session.publish(_TOPIC, _NOW, told.to_bytes(), decides=False)

    def _take(self, name: str, label: str, data: bytes) -> None:
        now = time.monotonic()
        if now - self._taken.get(name, -_TAKE_EVERY) < _TAKE_EVERY:
            return
        self._taken[name] = now
        try:
            told = said(Standing, data, name, self._limits, longest=_LONGEST)
        except BadMessage as error:
            self._refused(name, "bad-status", error)
            return
        self._watcher.gossip(name, told.state, told.round, told.waiting)

    def close(self) -> None:
        """Stop sharing, without waiting for a beat under way: it holds nothing."""
        self._closed.set()


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
        """The node has ended: ignore signals while it prints its last lines."""
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
