"""What a running node has open: its ledger, what it heard, its connections."""

from __future__ import annotations

import hashlib
import json
import secrets
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final

from dpadmm.errors import ExchangeError, LedgerError, ParameterError
from dpadmm.federation.agreement import Agreement, Consents, consents_note, noted_consents
from dpadmm.federation.hearsay import Hearsay
from dpadmm.federation.reach import Reach
from dpadmm.federation.recovery import Departure, Stretch
from dpadmm.federation.same_sums import SameSums, SignedSums
from dpadmm.federation.setup import NodeSetup
from dpadmm.federation.stretch_keys import StretchKeys, check_pinned
from dpadmm.federation.transport.mailbox import Patience
from dpadmm.federation.transport.session import PeerSession
from dpadmm.federation.transport.store import MessageFile, MessageStore
from dpadmm.federation.transport.wire import encode_message, message_size
from dpadmm.federation.transport.words import Limits, agreement_limit
from dpadmm.federation.watcher import Watcher
from dpadmm.ledger.sqlite import LedgerRun, SQLiteLedger
from dpadmm.privacy.noise import NoiseSource, SimulatedNoise, secure_noise
from dpadmm.run.charges import check_evaluation, check_owner, open_runs
from dpadmm.run.evaluate import evaluation_noise

_AGREED: Final = "agreed"
_INSTANCE: Final = "instance"
# Notes that are not about one run.
_EVERY_RUN: Final = bytes(32)
_HEAD: Final = "head of ledger "
_DATA: Final = "rows of ledger "
_LEAVES_OUT: Final = "a ledger whose budget leaves that out, and with a new file for messages"


def check_known(setup: NodeSetup, ledger: SQLiteLedger, store: MessageStore) -> None:
    """Refuse a ledger that went back, or that stands in the place of another for the same rows.

    Rows are the same if the data set has the same name or lies at the same place, and where nobody
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
        # One that has its first entry alone was never charged.
        if first in (name, own) or head.startswith("0:"):
            continue
        known = notes.get(_DATA + first)
        if known is None or any(a == b for a, b in zip(json.loads(known), rows, strict=True)):
            raise LedgerError(
                f"ledger must be the one that was charged for these rows; {ledger.path} is "
                f"another, and {messages} remembers one of {int(head.partition(':')[0]) + 1} "
                f"entries ({first[:16]}): what was spent would be forgotten. Nothing was drawn. "
                "Put that one back; 'dpadmm ledger amend' changes a policy and keeps what was "
                f"spent. If it is lost, what was spent stays spent: begin with {_LEAVES_OUT}. For "
                "rows of other people name a new file for messages, too."
            )


def _rows(setup: NodeSetup, ledger: SQLiteLedger) -> list[str]:
    """What the rows of a ledger are called, and where they lie."""
    return [ledger.dataset.name, str(setup.config.node.data)]


@dataclass(frozen=True)
class NodeRuntime:
    """What a party and a server have in common.

    Attributes
    ----------
    setup, watcher
        What it was told, and who is told how it gets on.
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
            check_owner(setup.name, ledger, setup.schema.sha256)
        node = cls(setup, watcher, store, noise, ledger, stack)
        node.note_head()
        return node

    def note_head(self) -> None:
        """Note whose rows the ledger is about and how far it is, whatever run it was for.

        Refused is one that went back, and one in the place of another (:func:`check_known`).
        """
        if self.ledger is None:
            return
        check_known(self.setup, self.ledger, self.store)
        self.ledger.refresh()
        first = self.ledger.first
        self.store.take_note(_EVERY_RUN, _DATA + first, json.dumps(_rows(self.setup, self.ledger)))
        self.store.take_note(_EVERY_RUN, _HEAD + first, self.ledger.head)

    def open_run(self, stretch: Stretch) -> LedgerRun | None:
        """Lock a stretch in the ledger; refused where it does not fit. None in a simulation."""
        if self.ledger is None:
            return None
        number = stretch.agreed.names.index(self.setup.name)
        self._check_ledger(self.ledger, stretch, number)
        own = stretch.planned.of_party(number)
        # A stretch that ended with somebody's loss is not charged beyond what was sent.
        end = Departure.sent_before(self.store, stretch.run)
        rounds = range(len(stretch.replayed), stretch.rounds if end is None else end)
        if not stretch.evaluation:
            accounts = {self.setup.name: self.ledger.refresh()}
            whole = self.setup.whole(stretch.agreed)
            check_evaluation(whole, accounts, stretch.run_id, rounds=rounds)
        (opened,) = open_runs(
            own, [self.ledger], stretch.run_id, self.noise, rounds=rounds, part=stretch.part
        )
        ledger = self.stack.enter_context(opened)
        # Before anything is charged: from here on no other ledger takes this one's place.
        self.note_head()
        return ledger

    def _check_ledger(self, ledger: SQLiteLedger, stretch: Stretch, number: int) -> None:
        """Refuse a ledger that is older than what this node is known to have sent."""
        first = stretch.first_sent
        kept = first + self.store.rounds(stretch.run)
        record = ledger.refresh().runs.get(stretch.run_id)
        for t in range(len(stretch.replayed), kept):
            stored = None if record is None else record.commits.get(t)
            sent = self.store.messages(stretch.run, t - first).get(number)
            if stored is not None and sent == encode_message(
                stretch.run, number, t - first, ledger.load_message(stored)
            ):
                continue
            lacks = "lacks it" if stored is None else "has another message there"
            raise LedgerError(
                f"ledger must have every round that was sent; round {t} of run "
                f"{stretch.run_id!r} is in {self.setup.config.messages}, and {ledger.path} "
                f"{lacks}: the ledger was put back to an older copy. Nothing was drawn. Restore "
                f"the newest ledger; if it is lost, the {kept} rounds that were sent stay spent: "
                f"begin another run_id, with {_LEAVES_OUT}."
            )

    def connect(self) -> PeerSession:
        """Open the connections and agree with everybody; nothing was spent before."""
        setup, config = self.setup, self.setup.config
        run = setup.run
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
            Hearsay(
                session,
                self.watcher,
                Limits(frozenset(nodes), setup.planned.rounds),
                share=config.node.share_status,
                on_refused=self._refused,
            )
        )
        consents = Consents(setup.name, run, setup.security)
        before = noted_consents(self.store.note(run, _AGREED), nodes, signed=consents.signed)
        agreement = Agreement(
            session,
            setup.agreed.told(setup.schema),
            nodes,
            consents,
            before=before,
            on_refused=self._refused,
        )
        if before is not None:
            if setup.planned.algorithm.summation is not None:
                check_pinned(before, config.pins)
            self.watcher.event("continued", round=self.store.rounds(run), spec=run.hex())
        else:
            self.watcher.event("agreeing", neighbours=list(config.addresses))
            reached = agreement.reach(config.policy.start_within)
            if setup.planned.algorithm.summation is not None:
                check_pinned(reached, config.pins)
            self.store.take_note(run, _AGREED, consents_note(reached))
            self.watcher.event("agreed", spec=run.hex(), nodes=list(nodes), signed=consents.signed)
        return session

    def _refused(self, name: str, reason: str, error: ExchangeError) -> None:
        self.watcher.dropped(name, reason, error=error)

    def noise_of(self, stretch: Stretch) -> NoiseSource:
        """Where the noise of a stretch comes from.

        After a loss a round of sums is drawn anew: in a simulation, too, that is other noise.
        """
        simulation = self.setup.config.simulation
        if stretch.evaluation:
            return evaluation_noise(self.noise, None if simulation is None else simulation.key)
        summed = stretch.planned.algorithm.summation is not None
        if simulation is None or not (summed and stretch.lost):
            return self.noise
        found = hashlib.sha256(f"{simulation.key} {stretch.run.hex()}".encode("ascii")).digest()
        return SimulatedNoise(int.from_bytes(found[:8], "little"))

    def departure(self, session: PeerSession, stretch: Stretch) -> Departure | None:
        """How to go on without a lost node; None where the owner has not chosen to.

        Nor in an evaluation, which is one round of all who trained, or none.
        """
        if self.setup.config.policy.when_lost != "continue" or stretch.evaluation:
            return None
        agreed = stretch.agreed
        return Departure(
            session,
            stretch.run,
            agreed.names,
            agreed.nodes,
            stretch.rounds,
            self.store,
            sums=stretch.planned.algorithm.summation is not None,
            first_sent=stretch.first_sent,
            can_spare=stretch.can_spare,
            on_refused=self._refused,
        )

    def stretch_keys(self, stretch: Stretch) -> StretchKeys | None:
        """The keys of a party in a stretch; None where messages are seen one by one."""
        if stretch.planned.algorithm.summation is None:
            return None
        setup = self.setup
        assert setup.security is not None
        return StretchKeys(
            setup.name,
            stretch,
            setup.security,
            setup.config.pins,
            self.store,
            setup.config.messages.parent,
        )

    def signed_sums(self, stretch: Stretch) -> SignedSums:
        """What parties signed at the end of a stretch, checked as keys are: by pins, if any."""
        setup = self.setup
        pinned = stretch.planned.algorithm.summation is not None
        return SignedSums(
            setup.name,
            stretch.run,
            stretch.agreed.names,
            stretch.rounds,
            Consents(setup.name, stretch.run, setup.security),
            setup.config.pins if pinned else {},
            self.store,
        )

    def same_sums(self, session: PeerSession, stretch: Stretch) -> SameSums:
        """How all parties of a stretch learn whether they heard the same in it."""
        return SameSums(session, self.signed_sums(stretch), on_refused=self._refused)

    def mailbox_options(self, departure: Departure | None, stretch: Stretch) -> dict[str, Any]:
        """How long to wait, what may be said, and who is told."""
        policy, watch = self.setup.config.policy, self.setup.config.watch
        options: dict[str, Any] = {
            "patience": Patience(
                timeout=None if policy.when_lost == "wait" else policy.lost_after,
                report=watch.report_every,
            ),
            "on_refused": self._refused,
            "on_waiting": self.watcher.waiting,
            "limits": Limits(frozenset(stretch.agreed.nodes), stretch.rounds),
            "on_event": self.watcher.event,
        }
        if departure is not None:
            options["on_pause"] = departure.listen
        return options
