"""One node of a federation: from its owner's configuration to a model.

The order is fixed: whatever can be refused is refused first, by this node's own files and its
owner's policy; then rows are read; then all nodes agree; only then is anything reserved in the
ledger. From there on the engine runs as it does everywhere, and a node that is killed at any point
goes on from its ledger and its messages when it is started again.
"""

from __future__ import annotations

import secrets
import time
import warnings
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpadmm.arrays import Array, Shard
from dpadmm.charging import check_owner
from dpadmm.config import DataSection, PartySection, ResultSection, RunConfig
from dpadmm.datasets.files import check_columns
from dpadmm.datasets.party_rows import encode_party
from dpadmm.datasets.whole_file import check_writable, write_whole
from dpadmm.engine import Outcome
from dpadmm.errors import ParameterError
from dpadmm.estimators import ADMMClassifier, label_signs
from dpadmm.exchange.mailbox import Mailbox, Patience
from dpadmm.exchange.message_store import MessageFile, MessageStore
from dpadmm.exchange.peer_session import PeerSession, Security
from dpadmm.exchange.peers import PeerExchange
from dpadmm.exchange.wire import decode, encode, message_size
from dpadmm.federation.agreed_run import AgreedRun, load_agreed_run
from dpadmm.federation.agreement import Agreement
from dpadmm.federation.listening import Listening
from dpadmm.federation.node_config import WHEN_LOST, NodeConfig
from dpadmm.federation.watching import Watcher
from dpadmm.privacy.ledger import Ledger
from dpadmm.privacy.noise import NoiseSource, SimulatedNoise, secure_noise
from dpadmm.privacy.sqlite_ledger import SQLiteLedger
from dpadmm.runs import (
    TrainedRun,
    estimator_parameters,
    file_schema,
    work_folder,
    write_results,
)
from dpadmm.schema import DataError, Schema, load_schema
from dpadmm.training import (
    ConvergenceWarning,
    Plan,
    PrivacyWarning,
    lay_out,
    open_runs,
    train_party,
)

__all__ = ["PreparedNode", "prepare_node", "run_node"]

_AGREED = "agreed"
_INSTANCE = "instance"
_BUDGET_EVERY = 1.0


@dataclass(frozen=True)
class PreparedNode:
    """A node whose every file and parameter was checked; no row was read yet.

    Attributes
    ----------
    config, agreed, schema
        What it was told by its owner, what all agreed on, how rows are encoded.
    planned
        The plan of all parties.
    security
        The files of mutual TLS; None on a loopback without.
    warnings
        Sentences about the budget.
    """

    config: NodeConfig
    agreed: AgreedRun
    schema: Schema
    planned: Plan
    security: Security | None
    warnings: tuple[str, ...]

    @property
    def name(self) -> str:
        """The node's name."""
        return self.config.node.name

    @property
    def run(self) -> bytes:
        """The 32 bytes of the run."""
        return self.agreed.digest(self.schema)


def prepare_node(config: NodeConfig, *, insecure_loopback: bool = False) -> PreparedNode:
    """Check all that can be checked before a row is read or a connection opened."""
    security = config.security(insecure_loopback)
    agreed = load_agreed_run(config.run)
    schema = load_schema(config.node.schema_file)
    if agreed.schema_sha256 not in (None, schema.sha256):
        raise ParameterError(
            f"schema must be the agreed one, with the sha256 {agreed.schema_sha256}; "
            f"{config.node.schema_file} has {schema.sha256}."
        )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", PrivacyWarning)
        warnings.simplefilter("always", ConvergenceWarning)
        planned = agreed.plan(schema)
    config.check(agreed, planned)
    prepared = PreparedNode(
        config, agreed, schema, planned, security, tuple(str(item.message) for item in caught)
    )
    check_writable(config.messages, "messages")
    if config.result is not None:
        for what in ("model", "record", "statement"):
            place = getattr(config.result, what)
            if place is not None:
                check_writable(place, what)
        told = _run_config(prepared)
        check_columns(
            told.party[0].file, file_schema(schema, told), delimiter=config.node.delimiter
        )
    return prepared


def run_node(prepared: PreparedNode, watcher: Watcher) -> TrainedRun | None:
    """Run a node to its end: the results are written, and late neighbours were served.

    Returns
    -------
    TrainedRun or None
        What was trained; nothing at a server.
    """
    config = prepared.config
    watcher.join(str(prepared.agreed.run.run_id))
    with ExitStack() as stack:
        parts = _Parts.open(prepared, watcher, stack)
        if config.node.role == "server":
            mailbox = _average(prepared, parts)
            trained = None
        else:
            mailbox, trained = _train(prepared, parts, stack)
        watcher.event("serving", timeout=config.policy.serve_for)
        late = mailbox.finish(config.policy.serve_for)
        if late:
            watcher.event("neighbours-late", level="warning", missing=late)
        watcher.event("finished")
    return trained


@dataclass(frozen=True)
class _Parts:
    """What both kinds of node have open."""

    watcher: Watcher
    store: MessageStore
    noise: NoiseSource
    ledger: SQLiteLedger | None
    ledger_run: Ledger | None
    prepared: PreparedNode
    stack: ExitStack

    @classmethod
    def open(cls, prepared: PreparedNode, watcher: Watcher, stack: ExitStack) -> _Parts:
        """Open the ledger, which locks the run, and what was heard before."""
        config = prepared.config
        noise: NoiseSource = secure_noise()
        ledger, ledger_run = None, None
        store = stack.enter_context(MessageFile(config.messages))
        if config.simulation is not None:
            noise = SimulatedNoise(config.simulation.key)
            if store.note(prepared.run, _INSTANCE) is not None:
                # Without a ledger nothing keeps the message of a round that was cut short.
                raise ParameterError(
                    f"a simulation must begin anew: it cannot be continued. Remove "
                    f"{config.messages}, or change run_id at every node."
                )
        if config.node.ledger is not None:
            ledger = stack.enter_context(SQLiteLedger(config.node.ledger))
            check_owner(prepared.name, ledger, prepared.schema.sha256)
            own = prepared.planned.of_party(prepared.agreed.names.index(prepared.name))
            run_id = str(prepared.agreed.run.run_id)
            (ledger_run,) = open_runs(own, [ledger], run_id, noise)
            stack.enter_context(ledger_run)
        return cls(watcher, store, noise, ledger, ledger_run, prepared, stack)

    def connect(self) -> PeerSession:
        """Open the connections and agree with everybody; nothing was spent before."""
        prepared, config = self.prepared, self.prepared.config
        run = prepared.run
        session = self.stack.enter_context(
            PeerSession(
                prepared.name,
                config.node.listen,
                config.addresses,
                prepared.security,
                largest=message_size(prepared.planned.site.shape[1:]),
                lease=config.watch.lease,
                on_event=self.watcher.event,
            )
        )
        instance = self.store.note(run, _INSTANCE)
        if instance is None:
            instance = secrets.token_hex(16)
            self.store.take_note(run, _INSTANCE, instance)
        before = self.store.note(run, _AGREED) is not None
        agreement = Agreement(
            session,
            prepared.agreed.facts(prepared.schema),
            prepared.agreed.nodes,
            instance,
            agreed=before,
        )
        if before:
            self.watcher.event("continued", round=self.store.rounds(run), spec=run.hex())
        else:
            self.watcher.event("agreeing", neighbours=list(config.addresses))
            agreement.reach(config.policy.start_within)
            self.store.take_note(run, _AGREED, "yes")
            self.watcher.event("agreed", spec=run.hex(), nodes=list(prepared.agreed.nodes))
        return session

    def mailbox_options(self) -> dict[str, Any]:
        """How long to wait, and who is told."""
        policy = self.prepared.config.policy
        watch = self.prepared.config.watch
        return {
            "patience": Patience(
                timeout=None if policy.when_lost == "wait" else policy.lost_after,
                report=watch.report_every,
            ),
            "on_refused": lambda name, reason, error: self.watcher.dropped(
                name, reason, error=error
            ),
            "on_waiting": self.watcher.waiting,
        }


def _run_config(prepared: PreparedNode) -> RunConfig:
    """The run as one organisation would write it down for itself."""
    config, name = prepared.config, prepared.name
    assert config.node.data is not None
    assert config.result is not None
    simulation = None if config.simulation is None else config.simulation.key
    return RunConfig(
        run=prepared.agreed.run.model_copy(update={"simulation_key": simulation}),
        data=DataSection(schema=config.node.schema_file, delimiter=config.node.delimiter),
        party=(PartySection(name=name, file=config.node.data, rows=prepared.agreed.rows[name]),),
        result=ResultSection(model=config.result.model, record=config.result.record),
        ledgers={} if config.node.ledger is None else {name: config.node.ledger},
    )


def _shard(prepared: PreparedNode, told: RunConfig, own: Plan, noise: NoiseSource) -> Shard:
    """Read and lay out this party's rows; how many there are is public."""
    schema = file_schema(prepared.schema, told)
    party = told.party[0]
    with work_folder(told.result.model) as folder:
        encoded = encode_party(party.file, schema, folder, delimiter=told.data.delimiter)
    if len(encoded.labels) != party.rows:
        raise DataError(
            f"data must have the rows that the agreed run says, {party.rows}; {party.file} has "
            f"{len(encoded.labels)}: correct one"
        )
    signs = label_signs(encoded.labels, own.site.outputs)
    return lay_out(own, [(encoded.rows, signs)], noise=noise)


def _train(prepared: PreparedNode, parts: _Parts, stack: ExitStack) -> tuple[Mailbox, TrainedRun]:
    """Train this party's share and write its results."""
    begin = time.monotonic()
    watcher, agreed = parts.watcher, prepared.agreed
    number = agreed.names.index(prepared.name)
    own = prepared.planned.of_party(number)
    told = _run_config(prepared)
    watcher.event("encoding", rows=agreed.rows[prepared.name])
    shard = _shard(prepared, told, own, parts.noise)
    session = parts.connect()
    exchange = PeerExchange(
        session,
        own.site,
        prepared.run,
        agreed.names,
        averager=agreed.server,
        store=parts.store,
        **parts.mailbox_options(),
    )
    listening = Listening(exchange, own, prepared.config.policy.when_lost, watcher)
    budget = _Budget(parts)

    def on_round(done: int, messages: Array) -> None:
        watcher.round(done, own.rounds)
        listening.count_bytes()
        budget.tell()

    outcome = train_party(
        prepared.planned,
        number,
        shard,
        exchange=listening,
        noise=parts.noise,
        ledger=parts.ledger_run,
        on_round=on_round,
    )
    budget.tell(at_once=True)
    trained = _trained(prepared, told, own, listening, outcome, parts, time.monotonic() - begin)
    _write(prepared, trained)
    watcher.event("results-written", round=listening.done, rounds=own.rounds)
    return exchange.mailbox, trained


class _Budget:
    """Tells what the ledger says, once in a while: inverting the curve takes time."""

    def __init__(self, parts: _Parts) -> None:
        self._parts = parts
        self._last = -_BUDGET_EVERY

    def tell(self, *, at_once: bool = False) -> None:
        ledger, now = self._parts.ledger, time.monotonic()
        if ledger is not None and (at_once or now - self._last >= _BUDGET_EVERY):
            self._last = now
            account = ledger.account
            self._parts.watcher.budget(account.spent_epsilon, account.fitting_epsilon)


def _trained(
    prepared: PreparedNode,
    told: RunConfig,
    own: Plan,
    listening: Listening,
    outcome: Outcome,
    parts: _Parts,
    seconds: float,
) -> TrainedRun:
    """Make the model of this node: the mean of the messages that it may hear, its own included."""
    agreed = prepared.agreed
    heard = Outcome(listening.last, listening.tail, outcome.history, outcome.events)
    estimator = ADMMClassifier.from_run(
        own,
        heard,
        parts.noise,
        classes=prepared.schema.classes,
        **estimator_parameters(told, agreed.names),
    )
    estimator.parties_ = np.array(listening.names)
    return TrainedRun(
        config=told,
        schema=prepared.schema,
        estimator=estimator,
        rows={prepared.name: agreed.rows[prepared.name]},
        sha256=prepared.run.hex(),
        warnings=prepared.warnings,
        seconds=seconds,
        federation={
            "node": prepared.name,
            "nodes": list(agreed.nodes),
            "rows": agreed.rows,
            "server": agreed.server,
            "heard": list(listening.names),
            "rounds_complete": listening.done,
            "lost": listening.lost,
            "tls": prepared.security is not None,
        },
    )


def _write(prepared: PreparedNode, trained: TrainedRun) -> None:
    """Write the statement, then the model and the record."""
    result = prepared.config.result
    assert result is not None
    if result.statement is not None:
        lines = [str(trained.estimator.privacy_)]
        for words in trained.summary()["ledgers"].values():
            lines += ["", "The ledger of this data set:", words]
        lost = (trained.federation or {}).get("lost")
        if lost:
            policy = prepared.config.policy.when_lost
            lines += ["", f"Ended early: {lost} was lost; policy {policy!r}: {WHEN_LOST[policy]}"]
        write_whole(result.statement, ("\n".join(lines) + "\n").encode(), "statement")
    write_results(trained)


def _average(prepared: PreparedNode, parts: _Parts) -> Mailbox:
    """Average what the parties send, round by round; holds no rows and adds no noise."""
    agreed, planned, run = prepared.agreed, prepared.planned, prepared.run
    session = parts.connect()
    number, shape = len(agreed.names), planned.site.shape[1:]
    sources = {name: place for place, name in enumerate(agreed.names)}
    mailbox = Mailbox(session, run, number, sources, shape, parts.store, **parts.mailbox_options())
    for t in range(parts.store.rounds(run), planned.rounds):
        received = {place: mailbox.receive(place, t) for place in sources.values()}
        heard = [
            decode(data, run=run, party=place, t=t, shape=shape) for place, data in received.items()
        ]
        mean = encode(run, number, t, np.mean(heard, axis=0))
        # Kept before it is sent: a restarted server hands out the same bytes.
        mailbox.keep(t, {number: mean, **received})
        mailbox.tell(mean)
        parts.watcher.round(t + 1, planned.rounds)
        parts.watcher.bytes(*mailbox.take_counts())
    return mailbox
