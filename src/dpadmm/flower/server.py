r"""What a Flower server asks, and the model that comes of the answers.

A server and a party say one thing to each other a round: a :class:`Question` and an
:class:`Answer`. Both travel as plain values of a Flower ``ConfigRecord``. Messages and means in
them have the layout of :mod:`dpadmm.federation.transport.wire`, with the run, the party and the
round inside.

The server averages what all parties answer, round by round. It has no rows, adds no noise, and
keeps nothing: started again it asks from round 0, and every party hands out what it sent before.

With shared noise the server hands on signed keys, and sees only the sum of masked vectors:

.. math:: w_i = m_i/\mathrm{step} + \mathrm{mask}_i \pmod{2^{64}}, \qquad
    \frac1N \sum_i m_i = \frac{\mathrm{step}}{N} \sum_i w_i

Keys, pins and masks are those of nodes (:mod:`dpadmm.federation.keys`). Before round 0 every party
sends its signed key, and every question brings it all of them: it believes only keys that a
certificate signed which its owner has pinned. Masks depend on all sums so far, so they vanish only
where everybody was told the same. After the last round every party signs what it was told, and
hears what all signed (:mod:`dpadmm.federation.same_sums`).

The state of an algorithm is a function of messages. So :func:`replay` goes through known rounds
again, without rows: a party that is asked for round t in a new process comes to where it was, and a
server makes the model from what it heard.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Self, final

import numpy as np

from dpadmm.data.schema import Schema, load_schema
from dpadmm.durable import check_writable, write_whole
from dpadmm.errors import ExchangeError, ParameterError
from dpadmm.federation.config import AgreedRun, load_agreed_run
from dpadmm.federation.exchange import MEAN, CarefulLedger, added_up
from dpadmm.federation.transport.mailbox import KeyRing
from dpadmm.federation.transport.wire import (
    LONGEST_UTTERANCE,
    Agreeing,
    BadMessage,
    Comparing,
    Limits,
    decode_message,
    encode_message,
    said,
)
from dpadmm.ledger.base import Ledger
from dpadmm.plain import Array, visible
from dpadmm.privacy.mechanisms import Released
from dpadmm.privacy.noise import NoiseSource, SimulatedNoise, secure_noise
from dpadmm.problem.rows import Shard
from dpadmm.run.classifier import Classifier
from dpadmm.run.config import plain_data
from dpadmm.run.engine import Exchange, MemoryLedger, Outcome, RunEnded, tail_start
from dpadmm.run.files import estimator_parameters
from dpadmm.run.model import Model, model_bytes
from dpadmm.run.plan import Plan, announced
from dpadmm.run.session import state_whole, train_party
from dpadmm.version import __version__

#: The name of the record in a Flower message.
RECORD: Final = "dpadmm"
_DIGEST: Final = 32
_LONGEST_NAME: Final = 200
_LONGEST_SENTENCE: Final = 1000
# Rounds are 4 bytes of a message.
_MOST_ROUNDS: Final = (1 << 32) - 1


@dataclass(frozen=True)
class Question:
    """What the server asks of every party.

    Attributes
    ----------
    run
        The 32 bytes of the agreed run.
    round
        The round whose message is wanted; the number of rounds once all are complete.
    mean
        The mean of the round before, as bytes of a message; empty in round 0.
    facts
        What the server was told of the run, so that a party can say where it was told otherwise.
    keys
        Where noise is shared: the keys of all parties, or nothing to ask for a party's own.
    digests
        After the last round: what every party signed, or nothing to ask for a party's own.
    """

    run: bytes
    round: int
    mean: bytes = field(repr=False)
    facts: bytes = field(repr=False)
    keys: bytes = field(default=b"", repr=False)
    digests: bytes = field(default=b"", repr=False)

    def plain(self) -> dict[str, Any]:
        """The values of the record."""
        return asdict(self)

    @classmethod
    def read(cls, content: Mapping[str, Any]) -> Self:
        """Check what a server said, before it is believed."""
        told = _read("the server's question", content, _QUESTION)
        if len(told["run"]) != _DIGEST:
            raise _bad("the server's question", f"run must be {_DIGEST} bytes")
        if not 0 <= told["round"] <= _MOST_ROUNDS:
            raise _bad("the server's question", "round must be a number of rounds")
        if len(told["facts"]) > LONGEST_UTTERANCE:
            raise _bad("the server's question", f"facts must be at most {LONGEST_UTTERANCE} bytes")
        return cls(**told)


@dataclass(frozen=True)
class Answer:
    """What a party answers.

    Attributes
    ----------
    party
        Its name.
    message
        Its message of the round; empty at the end, and with a refusal.
    key
        Its signed key, where noise is shared and it was asked for.
    digest
        After the last round: the signed digest of all that it was told.
    simulated
        Its noise can be drawn again, and protects nobody.
    refusal
        Why it does not answer, in a sentence of public facts; else empty.
    again
        What stands in the way may pass: it may be asked again.
    """

    party: str
    message: bytes = field(default=b"", repr=False)
    key: bytes = field(default=b"", repr=False)
    digest: bytes = field(default=b"", repr=False)
    simulated: bool = False
    refusal: str = ""
    again: bool = False

    def plain(self) -> dict[str, Any]:
        """The values of the record."""
        return asdict(self)

    @classmethod
    def read(cls, content: Mapping[str, Any]) -> Self:
        """Check what a party said, before it is believed or printed."""
        told = _read("a party's answer", content, _ANSWER)
        told["party"] = visible(told["party"], longest=_LONGEST_NAME)
        told["refusal"] = visible(told["refusal"], longest=_LONGEST_SENTENCE)
        return cls(**told)


_QUESTION: Final = {
    "run": bytes,
    "round": int,
    "mean": bytes,
    "facts": bytes,
    "keys": bytes,
    "digests": bytes,
}
_ANSWER: Final = {
    "party": str,
    "message": bytes,
    "key": bytes,
    "digest": bytes,
    "simulated": bool,
    "refusal": str,
    "again": bool,
}


def _read(what: str, content: Mapping[str, Any], kinds: Mapping[str, type]) -> dict[str, Any]:
    """The values by name, each of its type; nothing else."""
    if set(content) != set(kinds):
        raise _bad(what, f"it must have the values {', '.join(kinds)}, and no others")
    for name, kind in kinds.items():
        # A flag is an int, too, but no round.
        if type(content[name]) is not kind:
            raise _bad(what, f"{name} must be of the type {kind.__name__}")
    return dict(content)


def _bad(what: str, reason: str) -> BadMessage:
    return BadMessage("invalid", f"{what} must be one that can be read: {reason}.")


def check_relayed(agreed: AgreedRun, planned: Plan) -> None:
    """Refuse an agreed run that an averaging server cannot carry."""
    if agreed.server is None or not planned.site.topology.server:
        raise ParameterError(
            "server in the agreed run must name the node that averages in Flower, with topology = "
            f"'server'; got {agreed.server!r} and {planned.site.topology.name!r}. Change them at "
            "every party."
        )
    if agreed.run.wish.histogram:
        raise ParameterError(
            "evaluate and probabilities must be left out in Flower, where a run is its training "
            "alone. Train without, and evaluate on public rows with dpadmm evaluate MODEL --public "
            "FILE. Nothing more was spent."
        )


@final
class KnownMeans(Exchange):
    """Hands out the means of complete rounds, and ends the run at the first incomplete one.

    Parameters
    ----------
    mean
        The mean of a round, ``(runs, outputs, features)``.
    complete
        How many rounds have one.
    """

    def __init__(self, mean: Callable[[int], Array], complete: int) -> None:
        self._mean, self._complete = mean, complete

    def __call__(self, message: Released, t: int) -> Array:
        """The mean of round ``t``."""
        if t >= self._complete:
            raise RunEnded
        return self._mean(t)[None]


def replay(
    own: Plan,
    means: Sequence[Array],
    ledger: Ledger,
    noise: NoiseSource,
    replayed: Sequence[Array] = (),
) -> Outcome:
    """Go through all rounds of a party again, without reading a row or drawing noise.

    Parameters
    ----------
    own
        The party's share of the plan.
    means
        Of every round.
    ledger, replayed
        Where the party's messages are: its ledger, or here, ``(1, runs, outputs, features)`` each.
    noise
        Where its noise came from.

    Returns
    -------
    Outcome
        With the model that all parties have in common.
    """

    def refuse(t: int) -> None:
        raise RuntimeError(f"round {t} must have a message before the run is gone through again.")

    careful = CarefulLedger(ledger, len(replayed))
    careful.before_draw = refuse
    outcome = train_party(
        own,
        Shard((), own.site.rows),
        exchange=KnownMeans(lambda t: means[t], len(means)),
        noise=noise,
        ledger=careful,
        rounds=len(means),
        replayed=replayed,
    )
    if own.algorithm.hears_everybody:
        return outcome
    heard = np.stack(means)[:, None]
    tail = heard[tail_start(len(means)) :]
    return replace(outcome, last=heard[-1], tail=tail.mean(axis=0), mean=heard.mean(axis=0))


#: From a question to every party's answer, by its name.
Ask = Callable[[Question], Mapping[str, Answer]]
_AS_ANNOUNCED: Final = (
    "Stated by a server without rows: what the run charges every party, as announced; each party's "
    "own statement says where its noise comes from, and what else was spent on its rows."
)


@dataclass(frozen=True)
class ServerRun:
    """A server's configuration; every file and parameter checked.

    Attributes
    ----------
    agreed, schema, planned
        The run that all agreed on, how rows are encoded, and the plan of all parties.
    model
        Where the model goes; None for nowhere.
    """

    agreed: AgreedRun
    schema: Schema
    planned: Plan
    model: Path | None = None

    @property
    def run(self) -> bytes:
        """The 32 bytes of the run."""
        return self.agreed.digest(self.schema)

    def question(self, t: int, mean: bytes, keys: bytes = b"", digests: bytes = b"") -> Question:
        """What to ask in a round, with the mean of the round before and what all parties signed."""
        facts = self.agreed.told(self.schema)
        told = Agreeing(dpadmm=__version__, facts=facts, consents={}, names={})
        return Question(self.run, t, mean, told.to_bytes(), keys, digests)

    def added_up(self, answers: Mapping[str, Answer], t: int) -> tuple[bytes, Array]:
        """What parties are told of a round, its mean or the sum of masked vectors; and the mean."""
        names, summation = self.agreed.names, self.planned.algorithm.summation
        received = {number: answers[name].message for number, name in enumerate(names)}
        shape = self.planned.site.shape[1:]
        try:
            found = added_up(received, self.run, t, shape, masked=summation is not None)
        except BadMessage as error:
            raise ExchangeError(f"every party must answer with its message: {error}") from None
        mean = np.asarray(found, dtype=np.float64)
        if summation is not None:
            mean = summation.from_words(np.asarray(found, dtype=np.uint64)) / summation.parties
        return encode_message(self.run, len(names), t, found), mean

    def first_message(self, answers: Mapping[str, Answer], t: int, mean: Array) -> Array:
        """The first party's message; where vectors are masked, the mean stands for it."""
        if self.planned.algorithm.summation is not None:
            return mean
        data, shape = answers[self.agreed.names[0]].message, self.planned.site.shape[1:]
        return decode_message(data, run=self.run, party=0, t=t, shape=shape)


@dataclass(frozen=True)
class Averaged:
    """What a server heard.

    Attributes
    ----------
    first
        The first party's message of every round, ``(runs, outputs, features)`` each; where only
        sums are seen, the means.
    means
        The mean over all parties of every round.
    simulated
        Somebody's noise can be drawn again.
    """

    first: tuple[Array, ...]
    means: tuple[Array, ...]
    simulated: bool


def prepare_server(agreed_file: Path, schema_file: Path, model: Path | None = None) -> ServerRun:
    """Check all that can be checked before anybody is asked."""
    agreed, schema = load_agreed_run(agreed_file), load_schema(schema_file)
    if agreed.schema_sha256 not in (None, schema.sha256):
        raise ParameterError(
            f"schema must be the agreed one, with the sha256 {agreed.schema_sha256}; {schema_file} "
            f"has {schema.sha256}."
        )
    with warnings.catch_warnings():
        # What is doubtful about a budget its owner is told.
        warnings.simplefilter("ignore")
        planned = agreed.plan(schema)
    check_relayed(agreed, planned)
    if model is not None:
        if agreed.study is not None:
            raise ParameterError(
                "model in the run configuration must be left out of a study, which trains nothing; "
                f"got {model}."
            )
        check_writable(model, "model")
    return ServerRun(agreed, schema, planned, model)


def average_answers(
    setup: ServerRun, ask: Ask, on_round: Callable[[int, int], None] = lambda done, rounds: None
) -> Averaged:
    """Ask every party for every round, and tell all of them the last mean.

    In the end each is told what all of them signed to have heard, so that it knows that all have
    the same.

    Parameters
    ----------
    setup
        What the server was told.
    ask
        Brings the answers of all parties.
    on_round
        Called with the number of rounds that are complete, and of all.

    Raises
    ------
    ExchangeError
        If a party refuses, or answers with what is no message of the round.
    """
    names, rounds = setup.agreed.names, setup.planned.rounds
    mean = keys = b""
    first, means, simulated = [], [], False
    if setup.planned.algorithm.summation is not None:
        answers = ask(setup.question(0, b""))
        keys = gathered_keys({name: answers[name].key for name in names})
    for t in range(rounds):
        answers = ask(setup.question(t, mean, keys))
        simulated |= any(answers[name].simulated for name in names)
        mean, found = setup.added_up(answers, t)
        first.append(setup.first_message(answers, t, found))
        means.append(found)
        on_round(t + 1, rounds)
    answers = ask(setup.question(rounds, mean, keys))
    digests = gathered_digests({name: answers[name].digest for name in names})
    ask(setup.question(rounds, mean, keys, digests))
    return Averaged(tuple(first), tuple(means), simulated)


def write_model(setup: ServerRun, averaged: Averaged, place: Path) -> Model:
    """Make the model that every party has, and write it."""
    agreed, planned = setup.agreed, setup.planned
    noise: NoiseSource = SimulatedNoise(0) if averaged.simulated else secure_noise()
    outcome = replay(
        planned.of_party(0),
        averaged.means,
        MemoryLedger(),
        noise,
        replayed=[message[None] for message in averaged.first],
    )
    wish = agreed.run.wish
    classifier = Classifier.of_run(
        planned,
        outcome,
        state_whole(planned, announced(planned), noise, wish, caveats=(_AS_ANNOUNCED,)),
        classes=setup.schema.classes,
        parties=(MEAN,),
        output=agreed.run.output,
    )
    come_from = {
        "run_sha256": setup.run.hex(),
        "schema_sha256": setup.schema.sha256,
        "rows": agreed.rows,
        "config": {"run": plain_data(agreed.run.model_dump(exclude_none=True))},
    }
    model = Model(
        classifier, estimator_parameters(agreed.run, agreed.names), setup.schema, come_from
    )
    write_whole(place, model_bytes(model), "model")
    return model


def gathered_keys(told: dict[str, bytes]) -> bytes:
    """The session keys of all parties, as a server hands them on; each from its owner alone.

    Parameters
    ----------
    told
        What each party said, by its name.
    """
    ring = KeyRing(tuple(told))
    for name, data in told.items():
        ring.take(name, data)
        if name not in ring:
            raise ExchangeError(f"{name} must tell its key before round 0; it told none.")
    return ring.to_bytes()


def gathered_digests(told: dict[str, bytes]) -> bytes:
    """What all parties signed in the end, as a server hands it on; each from its owner alone.

    Parameters
    ----------
    told
        What each party said, by its name.
    """
    limits = Limits(frozenset(told))
    digests = {}
    for name, data in told.items():
        found = said(Comparing, data, name, limits).digests
        if name not in found:
            raise ExchangeError(f"{name} must tell what it heard in all rounds; it told nothing.")
        digests[name] = found[name]
    return Comparing(digests=digests).to_bytes()
