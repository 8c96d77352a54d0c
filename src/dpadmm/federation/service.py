"""A service that stays: it waits for agreed runs in a queue and starts one node at a time.

*The policy.* A run is started only if the node's own ``[policy]`` allows it, and the service's
(:class:`~dpadmm.federation.queue.ServicePolicy`), by the files as they are then.

*Order.* A node has one address and one ledger, so runs follow each other, a half-finished one
before all. Organisations may have submitted in different orders: a run on which not all agree is
put back (:func:`next_run`).

*A crash.* Each run is a ``dpadmm node`` in a process of its own, which holds a lock on its folder
for as long as it lives. A service that was killed and started again waits for such a node, or
starts it again: it goes on from its ledger and spends nothing twice.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, final, get_args

from dpadmm.durable import Closable, FileRefusal, read_json
from dpadmm.errors import LedgerError, ParameterError, is_passing, passing
from dpadmm.federation.config import NodeConfig, load_node_config
from dpadmm.federation.identity import AUTHORITY, read_certificate
from dpadmm.federation.page_server import ServiceMetrics, read_token
from dpadmm.federation.queue import (
    WAITING,
    QueuedRun,
    ServiceConfig,
    State,
    admit,
    clear_stale,
    locked,
    moment_text,
    now_text,
    read_runs,
)
from dpadmm.federation.status import SUFFIX, read_status
from dpadmm.ledger.sqlite import SQLiteLedger
from dpadmm.plain import visible
from dpadmm.run.charges import has_begun

# How a node ended, by its exit code; and that of a node whose start may work later.
_CODES: Final = {0: "finished", 4: "stopped-at-home", 5: "left-out"}
_TRY_LATER: Final = 75
# What the node of a run prints, and the lock that it holds.
_OUTPUT: Final = "node.json"
_ERRORS: Final = "node.errors"
_LOCK: Final = "lock"
# A node ends in order within 15 seconds.
_LONGEST_ENDING: Final = 20.0
_MOST_CRASHES: Final = 20
_CANCELLED: Final = "cancelled by its owner; what was sent stays spent"
_LOOK: Final = 0.5
_LONGEST_REASON: Final = 600


@final
class Service(Closable):
    """Starts the runs of a folder, one after the other.

    Parameters
    ----------
    config
        The owner's configuration.
    on_change
        Called with a run whenever its state has changed.
    """

    def __init__(self, config: ServiceConfig, on_change: Callable[[QueuedRun], None]) -> None:
        self._config, self._tell = config, on_change
        token = read_token(config.watch.token_file)
        self._node = load_node_config(config.node)
        config.prepare()
        self._stack = contextlib.ExitStack()
        self._process: int | None = None
        self._metrics: ServiceMetrics | None = None
        try:
            try:
                self._stack.enter_context(locked(config.folder / "service.lock", wait=False))
            except BlockingIOError:
                raise passing(
                    ParameterError(
                        f"folder must have one service at a time; another has {config.folder}. "
                        "Stop it, or name another folder."
                    )
                ) from None
            clear_stale(config)
            if config.watch.metrics is not None:
                self._metrics = ServiceMetrics(
                    config.watch.metrics, anywhere=config.watch.metrics_anywhere, token=token
                )
                self._stack.enter_context(self._metrics)
                self._tell_certificates()
        except BaseException:
            self._stack.close()
            raise

    @property
    def metrics_address(self) -> str | None:
        """Where the metrics are, with the port that was taken."""
        return None if self._metrics is None else self._metrics.address

    def _tell_certificates(self) -> None:
        """Measure the certificates as they are now: they may have been renewed."""
        files, name = self._node.certificates, self._node.node.name
        if files is not None and self._metrics is not None:
            for whose, file in ((name, files.certificate), (AUTHORITY, files.authority)):
                self._metrics.certificate(whose, read_certificate(file).not_after)

    def run(self, *, drain: bool = False) -> None:
        """Start what is due until the process is told to end, or until nothing waits."""
        while True:
            runs = self._look()
            waiting = [run for run in runs if run.state.state in WAITING]
            due = next((run for run in waiting if run.cancelled), None)
            due = due or next_run(waiting, now_text(), secrets.randbelow(4) > 0)
            if due is not None:
                self._take_on(due)
            elif drain and not waiting:
                return
            else:
                time.sleep(_LOOK)

    def close(self) -> None:
        """End the node under way in order: its run goes on when the service is started again."""
        self._end_node()
        self._stack.close()

    def _look(self) -> list[QueuedRun]:
        """The runs as they are now; those that were cancelled while they waited have ended."""
        runs = [
            self._change(run, state="cancelled", ended=now_text(), reason=_CANCELLED)
            if run.cancelled and run.state.state == "queued"
            else run
            for run in read_runs(self._config)
        ]
        if self._metrics is not None:
            counted = Counter(run.state.state for run in runs)
            self._metrics.tell({state: counted[state] for state in get_args(State)}, *_last(runs))
        return runs

    def _take_on(self, run: QueuedRun) -> None:
        """Bring one run to its end, or put it back."""
        try:
            with locked(run.folder / _LOCK, wait=False) as lock:
                self._process = None
                # Of a node whose end was seen there is no process any more.
                if run.state.process is not None and self._left_an_end(run):
                    return
                if run.cancelled:
                    self._change(run, state="cancelled", ended=now_text(), reason=_CANCELLED)
                    return
                try:
                    self._tell_certificates()
                    admit(self._config, run.folder, rehearsal=run.state.rehearsal)
                except (ValueError, OSError, LedgerError) as error:
                    self._refuse(run, error)
                    return
                self._work(run, lock)
        except BlockingIOError:
            # The node of a service that was killed still works.
            self._process = run.state.process
            if run.cancelled:
                self._end_node()
            time.sleep(_LOOK)

    def _refuse(self, run: QueuedRun, error: Exception) -> None:
        """What the policies or this node's files do not allow is not started."""
        if is_passing(error):
            self._put_back(run, str(error), type(error).__name__)
            return
        told = {"reason": _short(str(error)), "cause": type(error).__name__}
        self._change(run, state="refused", ended=now_text(), **told)

    def _work(self, run: QueuedRun, lock: int) -> None:
        """Start the node of a run and watch it to its end."""
        _status_file(run, self._node).unlink(missing_ok=True)
        run = self._change(
            run, state="running", started=now_text(), tries=run.state.tries + 1, reason="", cause=""
        )
        words = ["node", "--config", str(self._config.node), "--into", str(run.folder), "--json"]
        if run.state.rehearsal:
            words.append("--rehearse")
        with (
            open(run.folder / _OUTPUT, "wb") as output,
            open(run.folder / _ERRORS, "ab") as errors,
        ):
            process = subprocess.Popen(
                [sys.executable, "-m", "dpadmm", *words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                # It holds the lock of its run for as long as it lives.
                pass_fds=(lock,),
                start_new_session=True,
            )
        self._process = process.pid
        run = run.changed(process=process.pid)
        begin, why = time.monotonic(), ""
        while process.poll() is None:
            time.sleep(_LOOK)
            runs = self._look()
            if not why:
                why = self._why_to_end(run, runs, time.monotonic() - begin)
                if why:
                    self._end_node()
        self._process = None
        self._conclude(run, process.returncode, why)

    def _why_to_end(self, run: QueuedRun, runs: list[QueuedRun], seconds: float) -> str:
        """Why the node of a run is to end now; empty where it is to go on."""
        if run.cancelled:
            return _CANCELLED
        if seconds < self._config.wait_for or not _waits(run, self._node):
            return ""
        others = any(each.state.state == "queued" for each in runs)
        return "the others were not there, and further runs wait" if others else ""

    def _conclude(self, run: QueuedRun, code: int, why: str = "") -> None:
        """What becomes of a run whose node has ended."""
        reason, cause = _reason(run, self._node, code)
        told = {"exit_code": code, "process": None}
        if code in _CODES:
            words = {"reason": reason, "cause": cause} if code else {}
            self._change(run, state=_CODES[code], ended=now_text(), **words, **told)
        elif run.cancelled:
            self._change(run, state="cancelled", ended=now_text(), reason=_CANCELLED, **told)
        elif why or code == _TRY_LATER or (cause == "Disagreement" and not self._begun(run)):
            self._put_back(run, why or reason, cause, **told)
        elif code in (1, 2) or run.state.crashes >= _MOST_CRASHES:
            self._change(run, state="failed", ended=now_text(), reason=reason, cause=cause, **told)
        else:
            self._put_back(run, reason, cause, crashes=run.state.crashes + 1, **told)

    def _left_an_end(self, run: QueuedRun) -> bool:
        """Whether the node of a service that was killed came to an end, by its status file."""
        with contextlib.suppress(ParameterError):
            status = read_status(_status_file(run, self._node))
            last = status.content["last_event"] or {"event": ""}
            code = (
                5 if last["event"] == "left-out" else {"finished": 0, "failed": 2}.get(status.life)
            )
            if code is not None:
                self._conclude(run, code)
                return True
        return False

    def _begun(self, run: QueuedRun) -> bool:
        """Whether anything of a run was charged, or heard where there is no ledger."""
        with contextlib.suppress(ParameterError, LedgerError):
            if self._node.node.ledger is None:
                return bool(read_status(_status_file(run, self._node)).content["round"])
            with SQLiteLedger(self._node.node.ledger) as ledger:
                return has_begun(ledger.account, run.state.run_id)
        return False

    def _put_back(self, run: QueuedRun, reason: str, cause: str, **told: Any) -> None:
        """Try a run again later, or give it up."""
        now = datetime.now(UTC)
        told |= {"reason": _short(reason), "cause": cause}
        since = datetime.fromisoformat(run.state.submitted)
        if (now - since).total_seconds() > self._config.give_up_after:
            self._change(run, state="failed", ended=now_text(), **told)
            return
        later = now + timedelta(seconds=self._config.again_after)
        state = "running" if self._begun(run) else "queued"
        self._change(run, state=state, not_before=moment_text(later), **told)

    def _end_node(self) -> None:
        """End the node under way in order, or by force."""
        process, self._process = self._process, None
        if process is None:
            return
        for number, seconds in ((signal.SIGTERM, _LONGEST_ENDING), (signal.SIGKILL, 1.0)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number)
                deadline = time.monotonic() + seconds
                while time.monotonic() < deadline and _lives(process):
                    time.sleep(0.05)

    def _change(self, run: QueuedRun, **changes: Any) -> QueuedRun:
        run = run.changed(**changes)
        self._tell(run)
        return run


def next_run(waiting: Sequence[QueuedRun], now: str, by_name: bool) -> QueuedRun | None:
    """The run to start: a half-finished one, one not tried before, or one that others may try, too.

    Services of several organisations may have runs in different orders, and two that always take
    turns could miss each other for ever. So all wait until every run that was put back is due, and
    then draw: mostly the first by name, which is the same everywhere, else the one that was tried
    least.

    Parameters
    ----------
    waiting
        The runs that have not ended, in the order of their submission.
    now, by_name
        The moment, and what was drawn.
    """
    # The others wait for a half-finished run: nothing goes before it.
    begun = [run for run in waiting if run.state.state == "running"]
    fresh = [run for run in waiting if not run.state.tries]
    if not begun and fresh:
        return fresh[0]
    back = begun or waiting
    if any((run.state.not_before or "") > now for run in back):
        return None
    least = (lambda run: run.state.run_id) if by_name else (lambda run: run.state.tries)
    return min(back, key=least, default=None)


def _status_file(run: QueuedRun, node: NodeConfig) -> Path:
    return run.folder / f"{node.node.name}{SUFFIX}"


def _waits(run: QueuedRun, node: NodeConfig) -> bool:
    """Whether the node of a run waits for the others to agree, and does nothing else."""
    with contextlib.suppress(ParameterError):
        told = read_status(_status_file(run, node)).content
        events = {event["event"] for event in told.get("events", [])}
        # Rows are read before: that may take longer than anybody waits.
        busy = (told["last_event"] or {"event": ""})["event"] == "encoding"
        return told["state"] == "starting" and not busy and not events & {"agreed", "continued"}
    return False


def _reason(run: QueuedRun, node: NodeConfig, code: int) -> tuple[str, str]:
    """Why the node of a run ended, in a sentence and in a word."""
    reason, cause = f"its node ended with exit code {code}", f"exit-{code}"
    with contextlib.suppress(ParameterError):
        failure = read_status(_status_file(run, node)).failure
        if failure is not None:
            cause, _, reason = failure.partition(": ")
    with contextlib.suppress(FileRefusal, TypeError, AttributeError):
        said = read_json(run.folder / _OUTPUT)
        wrong = [each for each in said.get("result", {}).get("checks", []) if not each["ok"]]
        found = said.get("error") or "; ".join(
            f"{each['check']}: {each['words']}" for each in wrong
        )
        reason = found or reason
    return _short(reason), cause or "unknown"


def _lives(process: int) -> bool:
    """Whether a process is there and has not ended; this one may still have to wait for it."""
    with contextlib.suppress(ChildProcessError):
        return os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def _last(runs: list[QueuedRun]) -> tuple[str, str, str]:
    """The run that was started last: its name, its state, and the cause where it failed."""
    run = max(runs, key=lambda run: run.state.started or run.state.ended or "", default=None)
    return ("", "", "") if run is None else (run.state.run_id, run.state.state, run.state.cause)


def _short(words: str) -> str:
    return visible(words, longest=_LONGEST_REASON)
