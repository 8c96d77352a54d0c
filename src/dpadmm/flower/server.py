"""The averaging server: round by round it averages what all parties answer; then the model.

It has no rows, adds no noise, and keeps nothing: started again it asks from round 0, and every
party hands out what it sent before.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from dpadmm.data.schema import Schema, load_schema
from dpadmm.durable import check_writable, write_whole
from dpadmm.errors import ExchangeError, ParameterError
from dpadmm.federation.agreed_run import AgreedRun, load_agreed_run
from dpadmm.federation.node import added_up
from dpadmm.federation.transport.wire import (
    Agreeing,
    BadMessage,
    decode_message,
    encode_message,
)
from dpadmm.flower.party import MEAN, check_relayed, replay
from dpadmm.flower.questions import Answer, Question, gathered_digests, gathered_keys
from dpadmm.ledger.base import MemoryLedger
from dpadmm.plain import Array
from dpadmm.privacy.noise import NoiseSource, SimulatedNoise, secure_noise
from dpadmm.run.classifier import Classifier
from dpadmm.run.config import plain_data
from dpadmm.run.from_files import estimator_parameters
from dpadmm.run.model import Model, model_bytes
from dpadmm.run.plan import Plan, announced
from dpadmm.run.session import state_whole
from dpadmm.version import __version__

#: From a question to every party's answer, by its name.
Ask = Callable[[Question], Mapping[str, Answer]]

_AS_ANNOUNCED: Final = (
    "Stated by a server without rows: what the run charges every party, as announced. Where their "
    "noise comes from, and what else was spent on their rows, each party's own statement says."
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
        """What parties are told of a round (its mean, or the sum of masked vectors); the mean."""
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
        check_writable(model, "model")
    return ServerRun(agreed, schema, planned, model)


def average_answers(
    setup: ServerRun, ask: Ask, on_round: Callable[[int, int], None] = lambda done, rounds: None
) -> Averaged:
    """Ask every party for every round, and tell all of them the last mean.

    In the end each is told what all of them signed to have heard, so that it knows that all have
    the same model.

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


def write_model(setup: ServerRun, averaged: Averaged) -> Model:
    """Make the model that every party has, and write it where the server was told to."""
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
    if setup.model is not None:
        write_whole(setup.model, model_bytes(model), "model")
    return model
