"""The round loop: one function, the same in a simulation and at a hospital.

**Exchange.** How messages travel: the only part of a round that differs between runtimes. A
simulation's is here (:class:`InProcess`), and so is its ledger (:class:`MemoryLedger`).
"""

from __future__ import annotations

import hashlib
import json
import math
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from dpadmm.algorithms.base import Algorithm
from dpadmm.durable import written_whole
from dpadmm.errors import ExchangeError, LedgerError, ParameterError, positive_integer
from dpadmm.ledger.base import Ledger
from dpadmm.plain import Array
from dpadmm.privacy.events import Event, PostProcessing, event_from_dict
from dpadmm.privacy.mechanisms import Released, release_again
from dpadmm.privacy.noise import NoiseSource
from dpadmm.problem.site import Site
from dpadmm.solvers.workspace import Workspace

#: The largest entry of a message that is let in; parameters of a model are far below.
MESSAGE_BOUND: Final = 1e6


class RunEnded(Exception):
    """Raised by an exchange or a ledger that ends a run early, with the complete rounds."""


class Exchange(ABC):
    """Sends this site's messages and brings those it may hear."""

    @abstractmethod
    def __call__(self, message: Released, t: int) -> Array:
        """Exchange round ``t``; the inbox is ``(sources, runs, outputs, features)``.

        On a graph the sources are those of ``site.adjacency``; with a server, or where messages
        are summed up, there is one, the mean of all parties' messages.
        """

    def cover(self, message: Released, t: int) -> Released:
        """What is committed and sent for what was computed: by default the same.

        Called once for a message, before it is committed. What it returns is what
        :meth:`__call__` gets, after a crash as well: it is stored, and never made again.
        """
        return message


@final
@dataclass(frozen=True)
class InProcess(Exchange):
    """Everybody hears everybody it may hear, at once.

    Parameters
    ----------
    server
        Hand on the mean of all messages, as a server or a tree would, rather than the messages.
        Summands are multiples of one step, so that their sum is the one that words give, to the
        last bit.
    """

    server: bool = False

    def __call__(self, message: Released, t: int) -> Array:
        """Return all messages, or their mean."""
        values = message.values
        return values.mean(axis=0, keepdims=True) if self.server else values


class MemoryLedger(Ledger):
    """Counts one run in memory, for simulations, which end with their process."""

    def __init__(self) -> None:
        self._events: dict[int, Event] = {}

    def reserve(self, t: int, event: Event) -> None:
        """Note the charge of round ``t``."""
        self._events[t] = event

    def commit(self, t: int, message: Array) -> None:
        """Check that the round was reserved; a simulation keeps no bytes."""
        if t not in self._events:
            raise RuntimeError(f"round {t} must be reserved before it is committed.")

    def committed(self, t: int) -> Array | None:
        """Nothing: a simulation resumes from its checkpoint instead."""
        return None

    def resume(self, events: Sequence[Event], last: Array) -> None:
        """Take over the rounds of the checkpoint."""
        self._events = dict(enumerate(events))

    @property
    def events(self) -> tuple[Event, ...]:
        """What this run was charged, in the order of its rounds."""
        return tuple(self._events[t] for t in sorted(self._events))


_CHECKPOINT_VERSION: Final = 4
# Release 0.2 wrote it: without the course of a shared model.
_WITHOUT_COURSE: Final = 3
# What reading a damaged checkpoint raises.
_DAMAGE: Final = (ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile)
# Numbers of a shared model's course that are kept at most.
_MOST_KEPT: Final = 1_000_000
# What a checkpoint holds besides the algorithm's state and the workspace.
_KEPT: Final = ("message", "last", "tail", "total", "heard", "disagreement", "change", "course")


@dataclass(frozen=True)
class RoundHistory:
    """How a run went, from messages alone; arrays are ``(rounds, runs)``.

    Where messages are not models, the models that parties computed from them take their place.

    Attributes
    ----------
    disagreement
        Largest distance of a message of this site from the mean of what it heard.
    change
        How far the mean of what was heard moved since the round before.
    """

    disagreement: Array
    change: Array


@dataclass(frozen=True)
class Outcome:
    """What a run leaves behind; all but ``events`` is a function of messages.

    Attributes
    ----------
    last
        The last model of each party, ``(nodes, runs, outputs, features)``: its message, unless
        the algorithm says otherwise (:meth:`~dpadmm.algorithms.base.Algorithm.output`).
    tail
        The mean of each party's models over the last third of the rounds.
    mean
        The mean of each party's models over all rounds.
    events
        What each party was charged, round by round.
    course
        The models after the last half of the rounds and the two before, ``(rounds, runs, outputs,
        features)``, where all parties share one; none where that is many numbers.
    state
        The algorithm's state after the last round.
    """

    last: Array
    tail: Array
    mean: Array
    history: RoundHistory
    events: tuple[tuple[Event, ...], ...]
    course: Array
    state: Any = field(repr=False)


@dataclass(frozen=True)
class Checkpoint:
    """Where and how often a long run saves itself.

    The file holds what the local solver keeps between rounds, which depends on the private rows:
    it is as private as they are. It belongs next to them and is never sent.
    """

    path: Path
    every: int = 10

    def __post_init__(self) -> None:
        positive_integer("every", self.every)


def run(
    algorithm: Algorithm,
    site: Site,
    workspace: Workspace,
    *,
    rounds: int,
    exchange: Exchange,
    ledgers: Sequence[Ledger],
    noise: NoiseSource,
    checkpoint: Checkpoint | None = None,
    on_round: Callable[[int, Array], None] | None = None,
    replayed: Sequence[Array] = (),
    absorbed_by: Sequence[tuple[Algorithm, Site]] = (),
) -> Outcome:
    """Train: announce, reserve, compute, cover, commit, exchange, absorb, ``rounds`` times.

    Parameters
    ----------
    algorithm, site, workspace
        What to run, the public facts and the private rows of the parties computed here.
    rounds
        Number of messages.
    exchange
        How messages travel; it may end the run early (:class:`~dpadmm.run.engine.RunEnded`).
    ledgers
        One per party computed here. A round is reserved there before a row is read; one that ends
        the run early (:class:`~dpadmm.run.engine.RunEnded`) has reserved nothing.
    noise
        Where randomness comes from.
    checkpoint
        Save the run there every so often, and continue from there if it exists.
    on_round
        Called with the number of rounds done and each party's model after the last one.
    replayed
        Messages of the first rounds that were released before, in a run that this one goes on
        from: they are exchanged and absorbed, neither computed nor charged again.
    absorbed_by
        What was run in the first rounds, and where, if it was something else: this run goes on
        from the state that they left.
    """
    identity = "" if checkpoint is None else _identity(algorithm, site, rounds, workspace, noise)
    progress = _Progress.start(identity, algorithm, site, rounds, workspace, checkpoint, ledgers)
    for t in range(progress.done, rounds):
        try:
            if t < len(replayed):
                message = release_again(replayed[t], (PostProcessing(),) * len(ledgers))
            else:
                message = _release(
                    algorithm, progress.state, workspace, site, exchange, ledgers, noise, t
                )
            inbox = check_inbox(exchange(message, t), algorithm, site)
        except RunEnded:
            break
        sent = message.values
        then, there = absorbed_by[t] if t < len(absorbed_by) else (algorithm, site)
        progress.state = then.absorb(progress.state, sent, inbox, there, t)
        models = then.output(progress.state, sent, there)
        # Who sends models hears models.
        progress.record(t, sent, models, inbox if models is sent else models)
        if checkpoint is not None and progress.done % checkpoint.every == 0:
            progress.save(checkpoint, workspace, ledgers)
        if on_round is not None:
            on_round(progress.done, models)
    return progress.outcome(ledgers)


def _release(
    algorithm: Algorithm,
    state: Any,
    workspace: Workspace,
    site: Site,
    exchange: Exchange,
    ledgers: Sequence[Ledger],
    noise: NoiseSource,
    t: int,
) -> Released:
    """The messages of a round: reserved, computed, covered and committed, or as committed."""
    events = algorithm.announce(state, site, t)
    for ledger, event in zip(ledgers, events, strict=True):
        ledger.reserve(t, event)
    stored = [ledger.committed(t) for ledger in ledgers]
    known = [values for values in stored if values is not None]
    if len(known) == len(stored):
        return release_again(np.stack(known), events)
    message = algorithm.local_step(state, workspace, site, noise, t)
    _check_release(algorithm, message, events, t)
    covered = exchange.cover(message, t)
    _check_release(algorithm, covered, events, t)
    return _commit(covered, stored, ledgers, t)


def check_inbox(inbox: Array, algorithm: Algorithm, site: Site) -> Array:
    """Refuse messages of a wrong shape, not finite or too large, before they meet any row.

    A local solve can be promised to succeed on every data set only for bounded messages; the
    check looks at messages alone, so that its outcome is public.
    """
    sources = 1 if algorithm.hears_mean(site) else site.adjacency.shape[1]
    shape = (sources, *site.shape[1:])
    if inbox.shape != shape:
        raise ExchangeError(f"messages must have the shape {shape}; got {inbox.shape}.")
    largest = float(np.abs(inbox).max(initial=0.0))
    if not largest <= MESSAGE_BOUND:
        raise ExchangeError(
            f"messages must be finite and at most {MESSAGE_BOUND:g} in every entry; got {largest}. "
            "A neighbour is faulty; no further round is charged."
        )
    return inbox


def _check_release(
    algorithm: Algorithm, message: Released, events: tuple[Event, ...], t: int
) -> None:
    """Refuse a message that no mechanism made, or that differs from what was announced."""
    if type(message) is not Released:
        raise TypeError(
            f"{algorithm.name} must send a Released, made by a mechanism; got "
            f"{type(message).__name__}, and nothing was sent."
        )
    if message.events != events:
        raise RuntimeError(
            f"{algorithm.name} announced {events[0]} for round {t} but released "
            f"{message.events[0]}; nothing was sent."
        )


def _commit(
    message: Released, stored: Sequence[Array | None], ledgers: Sequence[Ledger], t: int
) -> Released:
    """Store what is about to be sent; a party that had committed the round keeps its message."""
    if all(kept is None for kept in stored):
        for ledger, own in zip(ledgers, message.values, strict=True):
            ledger.commit(t, own)
        return message
    values = message.values.copy()
    for place, (ledger, kept) in enumerate(zip(ledgers, stored, strict=True)):
        if kept is None:
            ledger.commit(t, values[place])
        elif kept.dtype != values.dtype:
            raise LedgerError(
                f"round {t} has a message of {kept.dtype} in its ledger; this run sends "
                f"{values.dtype}, and the stored one must be sent. Nothing was sent."
            )
        else:
            values[place] = kept
    return release_again(values, message.events)


@dataclass
class _Progress:
    """What the loop carries from round to round."""

    fingerprint: str
    rounds: int
    done: int
    state: Any
    message: Array
    last: Array
    tail: Array
    total: Array
    heard: Array
    disagreement: Array
    change: Array
    course: Array

    @classmethod
    def start(
        cls,
        identity: str,
        algorithm: Algorithm,
        site: Site,
        rounds: int,
        workspace: Workspace,
        checkpoint: Checkpoint | None,
        ledgers: Sequence[Ledger],
    ) -> _Progress:
        """Begin, or continue from a checkpoint of the same run."""
        kept = min(rounds, rounds // 2 + 2) if algorithm.hears_everybody else 0
        if kept * math.prod(site.shape[1:]) > _MOST_KEPT:
            kept = 0
        fresh = cls(
            fingerprint=identity,
            rounds=rounds,
            done=0,
            state=algorithm.init(site),
            message=np.zeros(site.shape),
            last=np.zeros(site.shape),
            tail=np.zeros(site.shape),
            total=np.zeros(site.shape),
            heard=np.zeros(site.shape[1:]),
            disagreement=np.zeros((rounds, site.runs)),
            change=np.zeros((rounds, site.runs)),
            course=np.zeros((kept, *site.shape[1:])),
        )
        if checkpoint is not None and checkpoint.path.exists():
            fresh.load(checkpoint, workspace, ledgers)
        return fresh

    @property
    def tail_start(self) -> int:
        """The first round of the last third."""
        return tail_start(self.rounds)

    def record(self, t: int, message: Array, models: Array, heard: Array) -> None:
        """Take note of a round; functions of messages only."""
        mean = heard.mean(axis=0)
        self.disagreement[t] = _norm(models - mean).max(axis=(0, 2))
        self.change[t] = _norm(mean - self.heard).max(axis=1)
        self.message, self.last, self.heard, self.done = message, models, mean, t + 1
        self.total = self.total + models
        place = t - self.rounds + len(self.course)
        if place >= 0:
            self.course[place] = models[0]
        if t >= self.tail_start:
            self.tail = self.tail + models

    def outcome(self, ledgers: Sequence[Ledger]) -> Outcome:
        """Close the run."""
        # A run that ended before its last third has no tail but its last models.
        in_tail = self.done - self.tail_start
        return Outcome(
            last=self.last,
            tail=self.tail / in_tail if in_tail > 0 else self.last,
            mean=self.total / max(1, self.done),
            history=RoundHistory(self.disagreement[: self.done], self.change[: self.done]),
            events=tuple(ledger.events for ledger in ledgers),
            course=self.course if self.done == self.rounds else self.course[:0],
            state=self.state,
        )

    def save(self, checkpoint: Checkpoint, workspace: Workspace, ledgers: Sequence[Ledger]) -> None:
        """Write a checkpoint in place of the last one, in one step."""
        events = [[event.to_dict() for event in ledger.events] for ledger in ledgers]
        header = {
            "version": _CHECKPOINT_VERSION,
            "fingerprint": self.fingerprint,
            "done": self.done,
            "events": events,
        }
        arrays: dict[str, Any] = {"header": np.array(json.dumps(header))}
        arrays |= {f"state.{name}": value for name, value in self.state._asdict().items()}
        for name in _KEPT:
            arrays[name] = getattr(self, name)
        arrays |= {f"workspace.{name}": value for name, value in workspace.snapshot().items()}
        with written_whole(checkpoint.path, "checkpoint", private=True) as file:
            np.savez(file, **arrays)

    def load(self, checkpoint: Checkpoint, workspace: Workspace, ledgers: Sequence[Ledger]) -> None:
        """Continue a saved run, if it is the same one."""
        damaged = ParameterError(
            f"checkpoint {checkpoint.path} must be a whole file as it was saved; it is damaged. "
            "Remove it to begin again."
        )
        try:
            arrays = _read(checkpoint.path)
            header = json.loads(str(arrays.pop("header")))
            version, whose = header["version"], header["fingerprint"]
        except _DAMAGE:
            raise damaged from None
        known = version in (_CHECKPOINT_VERSION, _WITHOUT_COURSE)
        if not known or whose != self.fingerprint:
            raise ParameterError(
                f"checkpoint {checkpoint.path} must belong to this run; it is another's (other "
                "parties, rows, parameters, seed or version). Remove it or name another file."
            )
        if version == _WITHOUT_COURSE:
            arrays["course"] = self.course = self.course[:0]
        try:
            done = int(header["done"])
            spent = [[event_from_dict(event) for event in events] for events in header["events"]]
            state = {name: arrays.pop(f"state.{name}") for name in self.state._fields}
            kept = {name: arrays.pop(name) for name in _KEPT}
        except _DAMAGE:
            raise damaged from None
        expected = [*self.state, *(getattr(self, name) for name in _KEPT)]
        found = [*state.values(), *kept.values()]
        if any(old.shape != new.shape for old, new in zip(expected, found, strict=True)):
            raise damaged
        self.done = done
        self.state = type(self.state)(**state)
        for name, value in kept.items():
            setattr(self, name, value)
        workspace.restore({name.removeprefix("workspace."): arrays[name] for name in arrays})
        for ledger, events, last in zip(ledgers, spent, self.message, strict=True):
            ledger.resume(events, last)


def _read(path: Path) -> dict[str, Any]:
    """All arrays of a file written by :func:`numpy.savez`."""
    with path.open("rb") as file, zipfile.ZipFile(file) as archive:
        return {
            name.removesuffix(".npy"): np.lib.format.read_array(
                archive.open(name), allow_pickle=False
            )
            for name in archive.namelist()
        }


def tail_start(rounds: int) -> int:
    """The first round of the last third."""
    return rounds - max(1, rounds // 3)


def _norm(vectors: Array) -> NDArray[np.float64]:
    return np.sqrt(np.einsum("...f,...f->...", vectors, vectors))


def _identity(
    algorithm: Algorithm, site: Site, rounds: int, workspace: Workspace, noise: NoiseSource
) -> str:
    """A hash of everything that decides what a run computes; of the rows too, hence private."""
    public = fingerprint(algorithm, site, rounds)
    digest = hashlib.sha256(f"{public} {noise.identity}".encode())
    digest.update(workspace.fingerprint())
    return digest.hexdigest()


def fingerprint(algorithm: Algorithm, site: Site, rounds: int) -> str:
    """A hash of everything public that decides what a run computes.

    A ledger compares it, so that no run goes on with other noise, parameters or parties.
    """
    # Between nodes the wire format has changed as well: no run of 0.2 goes on there.
    idle = algorithm.idle_fields if len(site.index) == site.parties else ()
    digest = hashlib.sha256(f"{algorithm.name} {rounds} {site.shape}".encode())
    parts: tuple[Any, ...] = (algorithm, site)
    for part in parts:
        for item in fields(part):
            if item.name in idle:
                continue
            value = getattr(part, item.name)
            digest.update(item.name.encode())
            digest.update(
                value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode()
            )
    return digest.hexdigest()
