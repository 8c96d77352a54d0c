"""A node before and while it runs.

:class:`NodeSetup` has every file and parameter checked, before a row is read or a connection
opened. :class:`NodeRuntime` holds what a running node has open: its ledger, what it heard, its
connections.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import warnings
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, Final

from dpadmm.algorithms import reviewed
from dpadmm.data.schema import Schema, load_schema
from dpadmm.durable import check_writable
from dpadmm.errors import ExchangeError, LedgerError, ParameterError
from dpadmm.federation.agreed_study import question_of
from dpadmm.federation.agreement import Agreement, Consents, consents_note, noted_consents
from dpadmm.federation.config import (
    AgreedRun,
    NodeConfig,
    NodeResultSection,
    load_agreed_run,
)
from dpadmm.federation.identity import AUTHORITY, certificate_facts, from_base64, read_certificate
from dpadmm.federation.keys import SessionKeys, check_pinned, check_same
from dpadmm.federation.page_server import read_token
from dpadmm.federation.reach import Reach
from dpadmm.federation.recovery import Departure, View
from dpadmm.federation.same_sums import SameSums, SignedSums
from dpadmm.federation.transport.mailbox import Patience
from dpadmm.federation.transport.session import PeerSession, Security
from dpadmm.federation.transport.store import MessageFile, MessageStore
from dpadmm.federation.transport.wire import Limits, agreement_limit, encode_message, message_size
from dpadmm.federation.watcher import Gossip, Watcher
from dpadmm.ledger.sqlite import LedgerRun, SQLiteLedger
from dpadmm.privacy.accountant import Guarantee
from dpadmm.privacy.figures import AtMost, Given, pair
from dpadmm.privacy.noise import NoiseSource, SimulatedNoise, secure_noise
from dpadmm.privacy.statement import Charges
from dpadmm.run.charges import WholePlan, check_evaluation, check_owner, evaluation_noise, open_runs
from dpadmm.run.config import DataSection, PartySection, PolicySection, ResultSection, RunConfig
from dpadmm.run.files import check_files, check_results, file_schema, reading_word
from dpadmm.run.options import ConvergenceWarning, PrivacyWarning
from dpadmm.run.plan import Plan, announced
from dpadmm.studies.questions import StudyQuestion
from dpadmm.studies.study import StudyRows
from dpadmm.studies.study_files import StudyConfig, StudyResult, StudySection


@dataclass(frozen=True)
class NodeSetup:
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
    rehearsal
        Whether it only rehearses: then its configuration has neither rows nor a ledger.
    """

    config: NodeConfig
    agreed: AgreedRun
    schema: Schema
    planned: Plan
    security: Security | None
    warnings: tuple[str, ...]
    rehearsal: bool = False

    @property
    def name(self) -> str:
        """The node's name."""
        return self.config.node.name

    @cached_property
    def view(self) -> View:
        """The first view of the run, or of its rehearsal."""
        view = View.whole(self.agreed, self.planned, self.schema)
        return view.rehearsing() if self.rehearsal else view

    @property
    def run(self) -> bytes:
        """The 32 bytes of the run, or of its rehearsal."""
        return self.view.run

    def told(self) -> dict[str, Any]:
        """What all nodes must be told alike, as they send it; whether they rehearse included."""
        return self.agreed.told(self.schema) | ({"rehearsal": True} if self.rehearsal else {})

    def rehearsing(self, folder: Path) -> NodeSetup:
        """The same node without its rows, its ledger and its results, with notes in ``folder``.

        What is not in a configuration can be neither read nor charged nor written.
        """
        told = self.config
        kept = {"rows": "file", "messages": folder / f"{self.name}.messages"}
        nothing = dict.fromkeys(("data", "scheduler", "ledger"))
        config = told.model_copy(
            update={
                "node": told.node.model_copy(update=nothing | kept),
                "result": None,
                # One round needs no other members: whoever is lost ends it.
                "policy": told.policy.model_copy(update={"when_lost": "stop"}),
            }
        )
        return replace(self, config=config, rehearsal=True)

    def consents(self, run: bytes) -> Consents:
        """How this node agrees to a run, or to a view of it, and checks that others do."""
        return Consents(self.name, run, self.security, frozenset(self.agreed.revoked))

    def whole(self, agreed: AgreedRun | None = None) -> WholePlan:
        """The plan of the agreed run, or of a later view, with its evaluation."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return (agreed or self.agreed).whole(self.schema)

    @cached_property
    def preparation(self) -> str:
        """A word for what this node's rows become, and of a study what it asks of them."""
        told, question = self.configuration, self.question
        word = reading_word(told, file_schema(self.schema, told))
        if question is None:
            return word
        return StudyRows(question=question.public | {"reading": word}).preparation

    @cached_property
    def question(self) -> StudyQuestion | None:
        """What a study asks; None where something is trained."""
        return None if self.agreed.study is None else question_of(self.agreed, self.schema)

    @property
    def when_lost(self) -> str:
        """What to do about a neighbour that never returns.

        A study needs all its rounds with the same parties: nobody goes on without one.
        """
        chosen = self.config.policy.when_lost
        return "stop" if chosen == "continue" and self.agreed.study is not None else chosen

    @property
    def configuration(self) -> RunConfig | StudyConfig:
        """The run, or the study, as one organisation would write it down for itself."""
        return self.run_config() if self.agreed.study is None else self.study_config()

    def study_config(self) -> StudyConfig:
        """The agreed study as one organisation would write it down for itself."""
        study, config = self.agreed.study, self.config
        assert study is not None
        assert config.result is not None
        assert config.result.record is not None
        names = StudySection.model_fields
        simulation = None if config.simulation is None else config.simulation.key
        content = {name: getattr(study, name) for name in names} | {"simulation_key": simulation}
        return StudyConfig(
            study=StudySection(**content),
            result=StudyResult(
                record=config.result.record, report=config.result.report, schema=None
            ),
            **self._rows(),
        )

    def _rows(self) -> dict[str, Any]:
        """The tables that say where this party's rows are, and where they are charged."""
        config, name = self.config, self.name
        assert config.node.data is not None
        return {
            "data": DataSection(schema=config.node.schema_file, **config.node.told),
            "party": (
                PartySection(
                    name=name,
                    file=config.node.data,
                    rows=self.agreed.rows[name],
                    scheduler=config.node.scheduler,
                ),
            ),
            "ledgers": {} if config.node.ledger is None else {name: config.node.ledger},
            "policy": PolicySection(preflight=config.policy.preflight),
        }

    @property
    def calibrated(self) -> bool:
        """Whether noise is calibrated so that the proven epsilon stays within the agreed one.

        A paper's formulas, or an algorithm from outside, may spend another epsilon.
        """
        return self.agreed.run.calibration == "proven" and reviewed(self.planned.algorithm.name)

    @cached_property
    def proven(self) -> Guarantee:
        """The guarantee proven for this party's share of the agreed run, its histogram included."""
        place = self.agreed.names.index(self.name)
        own, expected = self.planned.of_party(place), self.whole().expected()
        assert own.budget is not None
        ahead = () if expected is None else announced(expected.of_party(place))
        trained = announced(own)
        if not self.agreed.run.holdout:
            trained, ahead = (tuple(chain(*trained, *ahead)),), ()
        people = own.budget.rows_per_person
        charges = Charges((self.name,), trained, own.budget.delta, people, ahead)
        return charges.guarantees()[self.name]

    def agreed_words(self) -> str:
        """What this party may rely on, however the run ended."""
        run = self.agreed.run
        epsilon, delta = (
            float(told[self.name] if isinstance(told, dict) else told)
            for told in (run.epsilon, run.delta)
        )
        # The whole budget that was asked for: the training may be only a part of it.
        if self.calibrated or self.proven.epsilon <= epsilon:
            return f"the agreed budget, ({Given(epsilon)}, {Given(delta)})"
        return f"what is proven of the agreed run, {pair(self.proven.epsilon, delta)}"

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of the longest messages of the training, and of an evaluation."""
        expected = self.whole().expected()
        plans = [self.planned] if expected is None else [self.planned, expected]
        # Along a tree messages that are not added up travel together.
        singly = self.planned.algorithm.summation is None
        parties = len(self.agreed.names) if singly and self.agreed.tree(self.planned) else 1
        return tuple((parties, *planned.site.shape[2:]) for planned in plans)

    def run_config(self) -> RunConfig:
        """The run as one organisation would write it down for itself."""
        config = self.config
        assert config.result is not None
        assert config.result.model is not None
        simulation = None if config.simulation is None else config.simulation.key
        return RunConfig(
            run=self.agreed.run.model_copy(update={"simulation_key": simulation}),
            result=ResultSection(
                model=config.result.model,
                record=config.result.record,
                report=config.result.report,
            ),
            **self._rows(),
        )


def prepare_node(
    config: NodeConfig, *, insecure_loopback: bool = False, relayed: bool = False
) -> NodeSetup:
    """Check all that can be checked before a row is read or a connection opened.

    Parameters
    ----------
    config
        The owner's configuration.
    insecure_loopback
        Go without TLS, on this machine only.
    relayed
        Whether another runtime carries its messages: then it needs no addresses, and certificates
        only where noise is shared.
    """
    if not relayed:
        security = config.security(insecure_loopback)
    else:
        security = None if config.certificates is None else config.identity()
    agreed = load_agreed_run(config.run)
    schema = load_schema(config.node.schema_file)
    if agreed.schema_sha256 not in (None, schema.sha256):
        raise ParameterError(
            f"schema must be the agreed one, with the sha256 {agreed.schema_sha256}; "
            f"{config.node.schema_file} has {schema.sha256}."
        )
    # Refuse here what could not be sent to other nodes.
    agreed.told(schema)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", PrivacyWarning)
        warnings.simplefilter("always", ConvergenceWarning)
        planned = agreed.plan(schema)
    if planned.algorithm.summation is not None and security is None:
        raise ParameterError(
            "noise must be 'own' without TLS: parties that share noise sign their keys with those "
            "of their certificates. "
            + ("Add [certificates]." if relayed else "Leave out --insecure-loopback.")
        )
    config.check(agreed, planned, relayed=relayed)
    setup = NodeSetup(
        config, agreed, schema, planned, security, tuple(str(item.message) for item in caught)
    )
    if config.node.role == "party" and config.simulation is None:
        _check_provable(setup)
    check_writable(config.messages, "messages")
    check_writable(config.preflight_file, "preflight")
    read_token(config.watch.token_file)
    if config.result is not None:
        _check_places(setup, config.result)
        told = setup.configuration
        check_files(told, file_schema(schema, told))
    return setup


def _check_places(setup: NodeSetup, result: NodeResultSection) -> None:
    """Refuse places where results cannot go, and what does not go with a study."""
    for what in ("model", "record", "statement"):
        place = getattr(result, what)
        if place is not None:
            check_writable(place, what)
    needed, without = ("model", "")
    if setup.agreed.study is not None:
        needed, without = ("record", "model")
    if getattr(result, needed) is None:
        raise ParameterError(f"{needed} under [result] must be given: where it goes; got nothing.")
    if without and getattr(result, without) is not None:
        raise ParameterError(
            "model under [result] must be left out of a study, which trains nothing; got "
            f"{result.model}."
        )
    if setup.agreed.study is not None and setup.config.node.scheduler is not None:
        raise ParameterError(
            'rows under [node] must be "file" for a study: a cluster keeps rows that were encoded '
            f"for a training; got {setup.config.node.rows!r}."
        )
    told = setup.configuration
    places = {"model": result.model, "record": told.result.record}
    places |= {"statement": result.statement, "report": told.result.report_file}
    check_results(places, setup.run.hex())


def _check_provable(setup: NodeSetup) -> None:
    """Refuse noise that is not calibrated here where what is proven of it exceeds the policy."""
    limit = setup.config.policy.epsilon
    assert limit is not None
    if setup.calibrated:
        return
    proven = setup.proven.epsilon
    if not proven <= limit:
        raise ParameterError(
            f"epsilon must be at most what [policy] allows, {Given(limit)}; what is proven of the "
            f"agreed run is {AtMost(proven)}. Nothing more was spent."
        )


_AGREED: Final = "agreed"
_INSTANCE: Final = "instance"
# Notes that are not about one run.
_EVERY_RUN: Final = bytes(32)
_HEAD: Final = "head of ledger "
_DATA: Final = "rows of ledger "
_LEAVES_OUT: Final = "a ledger whose budget leaves that out, and with a new file for messages"


def check_known(setup: NodeSetup, ledger: SQLiteLedger, store: MessageStore) -> None:
    """Refuse a ledger that was put back, or that replaces another one for the same rows.

    Rows count as the same if the data set has the same name or the same path, and where nobody
    noted what they were.
    """
    messages, notes, own = setup.config.messages, store.notes(_EVERY_RUN), ledger.first
    noted = notes.get(_HEAD + own)
    if noted is not None and not ledger.holds(noted):
        raise LedgerError(
            f"ledger must have every entry that it had; {ledger.path} lacks row "
            f"{noted.partition(':')[0]}, which {messages} remembers: it was put back to an older "
            "copy. Nothing was drawn. Restore the newest ledger; if it is lost, what was spent "
            f"stays spent: begin with {_LEAVES_OUT}."
        )
    rows = _rows(setup, ledger)
    for name, head in notes.items():
        first = name.removeprefix(_HEAD)
        # A ledger with its first entry alone was never charged.
        if first in (name, own) or head.startswith("0:"):
            continue
        known = notes.get(_DATA + first)
        if known is None or any(_same_rows(each, rows) for each in json.loads(known)):
            raise LedgerError(
                f"ledger must be the one that was charged for these rows; {ledger.path} is "
                f"another, and {messages} remembers one of {int(head.partition(':')[0]) + 1} "
                f"entries ({first[:16]}): what was spent would be forgotten. Nothing was drawn. "
                "Put that one back; 'dpadmm ledger amend' changes a policy and keeps what was "
                f"spent. If it is lost, what was spent stays spent: begin with {_LEAVES_OUT}. For "
                "rows of other people name a new file for messages, too."
            )


def _same_rows(noted: list[str], rows: list[str]) -> bool:
    """Whether two data sets have the same name or the same path."""
    return any(a == b for a, b in zip(noted, rows, strict=True))


def _rows(setup: NodeSetup, ledger: SQLiteLedger) -> list[str]:
    """The name of a ledger's rows, and their path."""
    return [ledger.dataset.name, str(setup.config.node.data)]


@dataclass(frozen=True)
class NodeRuntime:
    """What a running party or server has open.

    Attributes
    ----------
    setup, watcher
        Its checked configuration, and who watches it.
    store, noise, ledger
        What it heard; where its noise comes from; its ledger, if it has one.
    stack
        Closes all of it.
    """

    setup: NodeSetup
    watcher: Watcher
    store: MessageStore
    noise: NoiseSource
    ledger: SQLiteLedger | None
    stack: ExitStack = field(repr=False)

    @classmethod
    def open(cls, setup: NodeSetup, watcher: Watcher, stack: ExitStack) -> NodeRuntime:
        """Open the ledger and what was heard before."""
        config = setup.config
        noise: NoiseSource = secure_noise()
        store = stack.enter_context(MessageFile(config.messages))
        if config.simulation is not None:
            noise = SimulatedNoise(config.simulation.key)
            if store.note(setup.run, _INSTANCE) is not None:
                # Without a ledger nothing keeps the message of a round that was cut short.
                raise ParameterError(
                    f"a simulation must begin anew: it cannot be continued. Remove "
                    f"{config.messages}, or change run_id at every node."
                )
        ledger = None
        if config.node.ledger is not None:
            ledger = stack.enter_context(SQLiteLedger(config.node.ledger))
            check_owner(setup.name, ledger, setup.schema)
        node = cls(setup, watcher, store, noise, ledger, stack)
        node.note_head()
        return node

    def note_head(self) -> None:
        """Note whose rows the ledger is about and how far it is, in all runs.

        Refuses a ledger that was put back, or that replaces another (:func:`check_known`).
        """
        if self.ledger is None:
            return
        check_known(self.setup, self.ledger, self.store)
        self.ledger.refresh()
        first = self.ledger.first
        # Every place that its rows ever had: a file that was moved has the same people's rows.
        known = json.loads(self.store.note(_EVERY_RUN, _DATA + first) or "[]")
        rows = _rows(self.setup, self.ledger)
        if rows not in known:
            self.store.take_note(_EVERY_RUN, _DATA + first, json.dumps([*known, rows]))
        self.store.take_note(_EVERY_RUN, _HEAD + first, self.ledger.head)

    def open_run(self, view: View) -> LedgerRun | None:
        """Lock the run of a view in the ledger; refuse what does not fit. None in a simulation."""
        if self.ledger is None:
            return None
        number = view.agreed.names.index(self.setup.name)
        self._check_ledger(self.ledger, view, number)
        own = view.planned.of_party(number)
        # A view that ended with somebody's loss is not charged beyond what was sent.
        end = Departure.sent_before(self.store, view.run)
        rounds = range(len(view.replayed), view.rounds if end is None else end)
        if not view.evaluation:
            accounts = {self.setup.name: self.ledger.refresh()}
            whole = self.setup.whole(view.agreed)
            check_evaluation(whole, accounts, view.run_id, rounds=rounds)
        (opened,) = open_runs(
            own,
            [self.ledger],
            view.run_id,
            self.noise,
            rounds=rounds,
            part=view.part,
            preparation=self.setup.preparation,
        )
        ledger = self.stack.enter_context(opened)
        # Before anything is charged: from here on no other ledger can replace this one.
        self.note_head()
        return ledger

    def _check_ledger(self, ledger: SQLiteLedger, view: View, number: int) -> None:
        """Refuse a ledger that is older than what this node is known to have sent."""
        first = view.first_sent
        kept = first + self.store.rounds(view.run)
        record = ledger.refresh().runs.get(view.run_id)
        for t in range(len(view.replayed), kept):
            stored = None if record is None else record.commits.get(t)
            sent = self.store.messages(view.run, t - first).get(number)
            if stored is not None and sent == encode_message(
                view.run, number, t - first, ledger.load_message(stored)
            ):
                continue
            lacks = "lacks it" if stored is None else "has another message there"
            raise LedgerError(
                f"ledger must have every round that was sent; round {t} of run "
                f"{view.run_id!r} is in {self.setup.config.messages}, and {ledger.path} "
                f"{lacks}: the ledger was put back to an older copy. Nothing was drawn. Restore "
                f"the newest ledger; if it is lost, the {kept} rounds that were sent stay spent: "
                f"begin another run_id, with {_LEAVES_OUT}."
            )

    def connect(self) -> PeerSession:
        """Open the connections and agree with everybody; nothing was spent before."""
        setup, config = self.setup, self.setup.config
        run = setup.run
        if setup.security is not None:
            own, authority = setup.security.certificate, setup.security.authority
            for whose, file in ((setup.name, own), (AUTHORITY, authority)):
                self.watcher.certificate(whose, read_certificate(file).not_after)
        instance = self.store.note(run, _INSTANCE)
        if instance is None:
            instance = secrets.token_hex(16)
            self.store.take_note(run, _INSTANCE, instance)
        known = {name: self.store.note(run, f"{_INSTANCE} of {name}") for name in config.addresses}
        session = self.stack.enter_context(
            PeerSession(
                setup.name,
                config.listen,
                config.addresses,
                setup.security,
                largest=max(
                    *(message_size(shape) for shape in setup.shapes),
                    agreement_limit(len(setup.agreed.nodes)),
                ),
                lease=config.watch.lease,
                instance=instance,
                known={name: found for name, found in known.items() if found is not None},
                on_claim=lambda name, found: self.store.take_note(
                    run, f"{_INSTANCE} of {name}", found
                ),
                on_event=self.watcher.event,
            )
        )
        self.stack.enter_context(Reach(session, config.addresses, setup.security, self.watcher))
        nodes = setup.agreed.nodes
        self.stack.enter_context(
            Gossip(
                session,
                self.watcher,
                Limits(frozenset(nodes), setup.planned.rounds),
                share=config.node.share_status,
                on_refused=self._refused,
            )
        )
        consents = setup.consents(run)
        before = noted_consents(self.store.note(run, _AGREED), nodes, signed=consents.signed)
        agreement = Agreement(
            session,
            setup.told(),
            nodes,
            consents,
            before=before,
            on_refused=self._refused,
        )
        if before is not None:
            if setup.planned.algorithm.summation is not None:
                check_pinned(before, config.pinned.in_run(before))
                if config.node.role == "party":
                    check_same(before, setup.name, config.pinned.own)
            self.watcher.event("continued", round=self.store.rounds(run), spec=run.hex())
        else:
            self.watcher.event("agreeing", neighbours=list(config.addresses))
            reached = agreement.reach(config.policy.start_within)
            if setup.planned.algorithm.summation is not None:
                check_pinned(reached, config.pinned.in_run(reached))
            self.store.take_note(run, _AGREED, consents_note(reached))
            self.watcher.event("agreed", spec=run.hex(), nodes=list(nodes), signed=consents.signed)
            before = reached
        for name, consent in before.items():
            for shown in consent.certificates[:1]:
                facts = certificate_facts(from_base64(shown))
                self.watcher.certificate(name, facts.not_after)
        return session

    def _refused(self, name: str, reason: str, error: ExchangeError) -> None:
        self.watcher.dropped(name, reason, error=error)

    def noise_of(self, view: View) -> NoiseSource:
        """The noise source of a view.

        After a loss a round of sums is drawn anew: with other noise, in a simulation, too.
        """
        simulation = self.setup.config.simulation
        if view.evaluation:
            return evaluation_noise(self.noise, None if simulation is None else simulation.key)
        summed = view.planned.algorithm.summation is not None
        if simulation is None or not (summed and view.lost):
            return self.noise
        found = hashlib.sha256(f"{simulation.key} {view.run.hex()}".encode("ascii")).digest()
        return SimulatedNoise(int.from_bytes(found[:8], "little"))

    def departure(self, session: PeerSession, view: View) -> Departure | None:
        """How to go on without a lost node; None where the owner has not chosen to.

        None in an evaluation, too: it is one round of all who trained, or it does not happen.
        """
        if self.setup.when_lost != "continue" or view.evaluation:
            return None
        agreed = view.agreed
        return Departure(
            session,
            view.run,
            agreed.names,
            agreed.nodes,
            view.rounds,
            self.store,
            sums=view.planned.algorithm.summation is not None,
            first_sent=view.first_sent,
            can_spare=view.can_spare,
            links=view.links,
            on_refused=self._refused,
        )

    @property
    def pins(self) -> dict[str, str]:
        """The pin of each party, of two that whose certificate agreed to this run."""
        setup = self.setup
        note = self.store.note(setup.run, _AGREED)
        agreed = noted_consents(note, setup.agreed.nodes, signed=setup.security is not None)
        return setup.config.pinned.in_run(agreed or {})

    def session_keys(self, view: View) -> SessionKeys | None:
        """The session keys of a party; None where messages are not masked."""
        if view.planned.algorithm.summation is None:
            return None
        setup = self.setup
        assert setup.security is not None
        return SessionKeys(
            setup.name,
            view,
            setup.security,
            self.pins,
            self.store,
            setup.config.messages.parent,
        )

    def signed_sums(self, view: View) -> SignedSums:
        """What parties signed at the end of a view, checked by pins where keys are."""
        setup = self.setup
        pinned = view.planned.algorithm.summation is not None
        return SignedSums(
            setup.name,
            view.run,
            view.agreed.names,
            view.rounds,
            setup.consents(view.run),
            self.pins if pinned else {},
            self.store,
        )

    def same_sums(self, session: PeerSession, view: View) -> SameSums:
        """How the parties of a view learn whether all heard the same."""
        return SameSums(session, self.signed_sums(view), on_refused=self._refused)

    def mailbox_options(self, departure: Departure | None, view: View) -> dict[str, Any]:
        """How long to wait, which names and rounds are valid, and whom to call."""
        policy, watch = self.setup.config.policy, self.setup.config.watch
        options: dict[str, Any] = {
            "patience": Patience(
                timeout=None if self.setup.when_lost == "wait" else policy.lost_after,
                report=watch.report_every,
            ),
            "on_refused": self._refused,
            "on_waiting": self.watcher.waiting,
            "limits": Limits(frozenset(view.agreed.nodes), view.rounds),
            "on_event": self.watcher.event,
        }
        if departure is not None:
            options["on_pause"] = departure.listen
        return options
