"""A party's answer to one question of a Flower server, from its owner's files alone.

Flower gives every message a process of its own, and forgets a node that dies. So nothing is kept in
memory: a question is answered from ``node.toml``, the agreed run, the ledger and the file of
messages. What is asked decides when this party draws, never what it draws or spends:

* the run, its rounds, budget and noise are those of the party's own ``agreed.toml`` within its
  owner's policy; a server with another run is refused, with the difference;
* a round that has a message gets the same bytes again, whoever asks and however often;
* a round is drawn after the one before it, from means that do not change any more.

A simulation has no ledger: :class:`KeptLedger` keeps what a simulated party sent beside what it
heard.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from dpadmm.errors import ExchangeError, ParameterError, PreflightStop
from dpadmm.federation.agreement import disagreement
from dpadmm.federation.config import NodeConfig, load_node_config
from dpadmm.federation.exchange import MEAN, CarefulLedger
from dpadmm.federation.keys import DecodedSums, Masks, SessionKeys
from dpadmm.federation.node import look_before_start
from dpadmm.federation.node_study import NodeStudy
from dpadmm.federation.party import read_shards
from dpadmm.federation.recovery import View
from dpadmm.federation.results import node_run, node_study, write_node_results
from dpadmm.federation.runtime import NodeRuntime, NodeSetup, prepare_node
from dpadmm.federation.same_sums import SignedSums, SumsComparison
from dpadmm.federation.transport.mailbox import KeyRing
from dpadmm.federation.transport.store import MessageStore
from dpadmm.federation.transport.wire import (
    Agreeing,
    Announcing,
    BadMessage,
    decode_masked,
    decode_message,
    encode_message,
    said,
)
from dpadmm.federation.watcher import Watcher
from dpadmm.flower.server import Answer, KnownMeans, Question, check_relayed, replay
from dpadmm.ledger.balance import STORED_TYPES
from dpadmm.ledger.base import Ledger
from dpadmm.plain import Array, Words
from dpadmm.privacy.mechanisms import Released
from dpadmm.privacy.sensitivity import Summation
from dpadmm.run.charges import OtherEvaluations
from dpadmm.run.classifier import Classifier
from dpadmm.run.engine import Exchange, MemoryLedger, RunEnded
from dpadmm.run.plan import Plan
from dpadmm.run.result import Run
from dpadmm.run.session import noise_error, state_whole, train_party


@final
class KeptLedger(MemoryLedger):
    """Counts one run in memory, and keeps its messages for the process that comes next.

    Parameters
    ----------
    store, run
        Where the messages are kept, under which run.
    """

    def __init__(self, store: MessageStore, run: bytes) -> None:
        super().__init__()
        self._store, self._run = store, run

    def commit(self, t: int, message: Array) -> None:
        """Keep the message of a reserved round."""
        super().commit(t, message)
        shape, kind = ",".join(str(size) for size in message.shape), message.dtype.name
        text = f"{kind}:{shape}:{message.astype(STORED_TYPES[kind]).tobytes().hex()}"
        self._store.take_note(self._run, f"simulated round {t}", text)

    def committed(self, t: int) -> Array | None:
        """The message of round ``t``, if it was committed."""
        note = self._store.note(self._run, f"simulated round {t}")
        if note is None:
            return None
        kind, shape, numbers = note.split(":")
        values = np.frombuffer(bytes.fromhex(numbers), dtype=STORED_TYPES[kind]).astype(kind)
        message: Array = values.reshape([int(size) for size in shape.split(",")])
        return message


@final
class KnownSums(Exchange):
    """Hands out the means of complete rounds, and masks the vector of the next one.

    Parameters
    ----------
    totals
        The sum of the masked vectors of a round.
    complete
        How many rounds have one.
    summation
        How vectors become a sum.
    masks
        This party's.
    """

    def __init__(
        self, totals: Callable[[int], Words], complete: int, summation: Summation, masks: Masks
    ) -> None:
        self._totals, self._complete = totals, complete
        self._summation, self._masks = summation, masks
        self._decoded, self._count = DecodedSums(), 0

    def __call__(self, message: Released, t: int) -> Array:
        """The mean of round ``t``."""
        if t >= self._complete:
            raise RunEnded
        total = self._totals(t)
        self._decoded.add(total)
        self._count += 1
        return self._summation.from_words(total)[None] / self._summation.parties

    def cover(self, message: Released, t: int) -> Released:
        """Mask this party's vector."""
        # Masks depend on all sums before: none may be missing, and none may count twice.
        if self._count != t:
            raise RuntimeError(f"round {t} must be covered after {t} sums; got {self._count}.")
        return self._masks.cover(message, self._summation, t, self._decoded.digest())


_SERVER: Final = "the server"
_UNSIGNED: Final = (
    "Not agreed by all: the server says that all parties heard the same, and nothing is signed. "
    "With [certificates] at every party it is."
)
# Sentences about an owner's files are for the owner.
_UNREADY: Final = "this party could not answer: its owner finds the reason in its files there."


class _Refusal(ExchangeError):
    """Why a question is refused; the sentence has public facts only, and may be sent."""


def _take_signed(known: KeyRing | SignedSums, data: bytes, what: str) -> None:
    """Take what the server hands on of all parties; refuse it unless all of it is there and holds.

    Parameters
    ----------
    known
        Where it goes.
    data, what
        What the server said, and what it should have.
    """
    try:
        faults = known.take(_SERVER, data)
    except BadMessage as error:
        raise _Refusal(str(error)) from None
    if faults:
        raise _Refusal(f"{faults[0]} Nothing more was spent.")
    if known.missing:
        raise _Refusal(
            f"the server must hand on {what}; {', '.join(known.missing)} is missing. Nothing more "
            "was spent."
        )


def prepare_party(config: NodeConfig) -> NodeSetup:
    """Check all that can be checked of a party before a row is read."""
    setup = prepare_node(config, relayed=True)
    if config.node.role != "party":
        raise ParameterError(
            "role under [node] must be 'party' at a Flower client; got 'server': the server is "
            "dpadmm.flower.server_app, which has no node.toml."
        )
    if config.policy.when_lost == "continue":
        raise ParameterError(
            "when_lost under [policy] must be 'wait' or 'stop' in Flower, where nobody goes on "
            "without a lost party; got 'continue'. Change it."
        )
    check_relayed(setup.agreed, setup.planned)
    return setup


def answer(node_file: Path, content: Mapping[str, Any]) -> Answer:
    """Answer one question; whatever is wrong becomes a refusal.

    Flower tells the server the words of every exception that it sees: none leaves this function.

    Parameters
    ----------
    node_file
        The owner's ``node.toml``.
    content
        What the server asked, not yet checked.
    """
    name = ""
    with ExitStack() as stack:
        watcher = None
        try:
            config = load_node_config(node_file)
            name = config.node.name
            watcher = stack.enter_context(Watcher(name, log=config.watch.log, terminal=False))
            setup = prepare_party(config)
            watcher.join(str(setup.agreed.run.run_id))
            question = _read(setup, content)
            return _answer(setup, question, watcher)
        except _Refusal as refusal:
            if watcher is not None:
                watcher.event("question-refused", level="warning", error=refusal)
            return Answer(name, refusal=str(refusal))
        except PreflightStop:
            # The log may have other readers: it does not say why.
            if watcher is not None:
                watcher.event("not-started", level="warning")
            return Answer(name, refusal=_UNREADY, again=True)
        except Exception as error:
            # Whatever went wrong may have to do with rows: the server learns that it did, no more.
            watcher = watcher or stack.enter_context(Watcher("unknown", terminal=False))
            watcher.event("failed", level="error", error=error)
            return Answer(name, refusal=_UNREADY, again=True)


def _read(setup: NodeSetup, content: Mapping[str, Any]) -> Question:
    """The question, if it is about this party's run."""
    try:
        question = Question.read(content)
        if question.run != setup.run:
            theirs = said(Agreeing, question.facts, _SERVER)
            ours = json.loads(json.dumps(setup.agreed.told(setup.schema)))
            raise _Refusal(
                disagreement(_SERVER, ours, theirs)
                or f"the run must be {setup.run.hex()}; the server has {question.run.hex()}. "
                "Nothing more was spent."
            )
    except _Refusal:
        raise
    except ExchangeError as error:
        raise _Refusal(str(error)) from None
    return question


def _answer(setup: NodeSetup, question: Question, watcher: Watcher) -> Answer:
    if question.round == 0:
        # Nobody sits at a terminal here.
        look_before_start(setup, None)
    with ExitStack() as stack:
        node = NodeRuntime.open(setup, watcher, stack)
        view = View.whole(setup.agreed, setup.planned, setup.schema)
        known = _Known(node.store, view)
        known.check(question)
        ledger = node.open_run(view) or KeptLedger(node.store, view.run)
        # Once more: until now another process may have had the run.
        known.check(question)
        number = setup.agreed.names.index(setup.name)
        own, keys = setup.planned.of_party(number), node.session_keys(view)
        turn = _Turn(node, view, known, ledger, number, own, keys)
        turn.take_mean(question)
        simulated = setup.config.simulation is not None
        if turn.is_asked_for_key(question):
            return Answer(setup.name, key=turn.key(), simulated=simulated)
        if question.round == view.rounds:
            return Answer(setup.name, digest=turn.finish(question), simulated=simulated)
        return Answer(setup.name, turn.message(question), simulated=simulated)


@dataclass(frozen=True)
class _Known:
    """The complete rounds of a run: those whose mean was heard."""

    store: MessageStore
    view: View

    @property
    def rounds(self) -> int:
        return self.store.rounds(self.view.run)

    @property
    def averager(self) -> int:
        """The number under which means are kept, after the last party's."""
        return len(self.view.agreed.names)

    def _facts(self, t: int) -> dict[str, Any]:
        """The run, party, round and shape that a mean must have."""
        shape = self.view.planned.site.shape[1:]
        return {"run": self.view.run, "party": self.averager, "t": t, "shape": shape}

    def decode(self, data: bytes, t: int) -> Array:
        """The mean that was told; where noise is shared, from the sum of masked vectors."""
        summation = self.view.planned.algorithm.summation
        if summation is None:
            return decode_message(data, **self._facts(t))
        return summation.from_words(decode_masked(data, **self._facts(t))) / summation.parties

    def told(self, t: int) -> bytes:
        return self.store.messages(self.view.run, t)[self.averager]

    def mean(self, t: int) -> Array:
        return self.decode(self.told(t), t)

    def total(self, t: int) -> Words:
        return decode_masked(self.told(t), **self._facts(t))

    def check(self, question: Question) -> None:
        """Refuse a round out of order, a bad mean, and a mean that changed."""
        t, rounds = question.round, self.rounds
        if t > min(rounds + 1, self.view.rounds):
            raise _Refusal(
                f"rounds must be asked for in their order, up to {self.view.rounds}; this party "
                f"has the means of {rounds} and was asked for round {t}. If its files were put "
                "back to an older copy, restore the newest. Nothing more was spent."
            )
        if t == 0:
            if question.mean:
                raise _Refusal("round 0 must be asked for without a mean. Nothing more was spent.")
            return
        try:
            self.decode(question.mean, t - 1)
        except ExchangeError as error:
            raise _Refusal(
                f"the mean must be one of this run: {error} Nothing more was spent."
            ) from None
        if t <= rounds and self.told(t - 1) != question.mean:
            raise _Refusal(
                f"the mean of round {t - 1} must be the one that this party was told before; "
                "it is another. Nothing more was spent."
            )


@dataclass(frozen=True)
class _Turn:
    """How a party answers a question that is in order."""

    node: NodeRuntime
    view: View
    known: _Known
    ledger: Ledger
    number: int
    own: Plan
    keys: SessionKeys | None

    def is_asked_for_key(self, question: Question) -> bool:
        """Whether the question asks only for this party's session key."""
        return self.keys is not None and question.round == 0 and not question.keys

    def key(self) -> bytes:
        """The signed session key of this party, the same every time."""
        assert self.keys is not None
        self._announce(self.keys)
        name = self.node.setup.name
        return Announcing(keys={name: self.keys.ring.keys[name]}).to_bytes()

    def _announce(self, keys: SessionKeys) -> None:
        released = CarefulLedger(self.ledger, 0).released
        # With all rounds drawn the private key may be gone, and is not needed any more.
        if released < self.view.rounds:
            keys.announce(released)

    def _exchange(self, question: Question) -> Exchange:
        """The exchange: it replays the rounds before, and masks the one that is drawn."""
        t, summation = question.round, self.own.algorithm.summation
        if self.keys is None or summation is None:
            return KnownMeans(self.known.mean, t)
        self._announce(self.keys)
        _take_signed(self.keys.ring, question.keys, "the key of every party")
        return KnownSums(self.known.total, t, summation, self.keys.masks())

    def _bytes(self, t: int) -> bytes | None:
        values = self.ledger.committed(t)
        return None if values is None else encode_message(self.view.run, self.number, t, values)

    def take_mean(self, question: Question) -> None:
        """Keep the mean of the round before; it does not change any more."""
        t = question.round - 1
        if t < self.known.rounds:
            return
        sent = self._bytes(t)
        if sent is None:
            raise _Refusal(
                f"round {t} must be asked for before its mean is told. Nothing more was spent."
            )
        mean = {self.number: sent, self.known.averager: question.mean}
        self.node.store.keep(self.view.run, t, mean)
        self.node.watcher.round(t + 1, self.view.rounds)

    def message(self, question: Question) -> bytes:
        """The message of a round: as it is in the ledger, or drawn now, once."""
        t = question.round
        found = self._bytes(t)
        if found is None:
            exchange = self._exchange(question)
            shard, _ = read_shards(self.node, self.own)
            train_party(
                self.own,
                shard,
                exchange=exchange,
                noise=self.node.noise,
                ledger=self.ledger,
                rounds=t + 1,
            )
            self.node.note_head()
            found = self._bytes(t)
            assert found is not None
        if self.keys is not None:
            self.keys.before_send(t)
        return found

    def finish(self, question: Question) -> bytes:
        """Write the model, or what a study found, and its cost; return the digest of all rounds.

        It is agreed by all once the server has handed on what every party signed.
        """
        rounds, watcher = self.view.rounds, self.node.watcher
        signed = self._signed()
        if question.digests:
            _take_signed(signed, question.digests, "what every party signed")
        compared = SumsComparison.to_come(signed.members)
        if not signed.missing:
            compared = signed.compare()
            if not compared.signed and compared.alike:
                compared = replace(compared, caveat=_UNSIGNED)
        with watcher.writing():
            write_node_results(self.node.setup, compared.stated(self._found()))
        if self.keys is not None:
            self.keys.destroy()
        watcher.event("results-written", round=rounds, rounds=rounds)
        if compared.refusal:
            raise _Refusal(compared.refusal)
        if not signed.missing:
            watcher.event("agreed-by-all", parties=len(signed.members), signed=compared.signed)
            watcher.finished()
        return signed.to_bytes(own=True)

    def _signed(self) -> SignedSums:
        """The known digests, with this party's own of everything that it was told."""
        signed, told = self.node.signed_sums(self.view), DecodedSums()
        for t in range(self.view.rounds):
            told.add(self.known.mean(t) if self.keys is None else self.known.total(t))
        signed.say(self.view.rounds, told.digest())
        return signed

    def _found(self) -> Run | NodeStudy:
        setup, view, noise = self.node.setup, self.view, self.node.noise
        means = [self.known.mean(t) for t in range(view.rounds)]
        outcome = replay(self.own, means, self.ledger, noise)
        how = {"heard": [MEAN], "rounds_complete": view.rounds}
        if setup.question is not None:
            return node_study(setup, self.own, outcome, how, noise=noise)
        agreed, schema, told = setup.agreed, setup.schema, setup.run_config()
        known = [] if self.node.ledger is None else [self.node.ledger.refresh()]
        others = OtherEvaluations.of(known, {view.run_id}, agreed.run.wish.split)
        classifier = Classifier.of_run(
            self.own,
            outcome,
            state_whole(self.own, outcome.events, noise, agreed.run.wish, others=others),
            classes=schema.classes,
            parties=(MEAN,),
            output=told.run.output,
        )
        # How long local work takes depends on rows.
        return node_run(
            setup,
            classifier,
            how,
            seconds=None,
            noise_error=noise_error(setup.planned, told.run.output, course=outcome.course),
        )
