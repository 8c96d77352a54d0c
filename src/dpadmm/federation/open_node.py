"""What a running node has open: its ledger, what it heard, its connections."""

from __future__ import annotations

import secrets
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final

from dpadmm.charging import check_owner
from dpadmm.errors import ParameterError
from dpadmm.exchange.mailbox import Patience
from dpadmm.exchange.message_store import MessageFile, MessageStore
from dpadmm.exchange.peer_session import PeerSession
from dpadmm.exchange.wire import message_size
from dpadmm.federation.agreement import Agreement
from dpadmm.federation.departure import Departure
from dpadmm.federation.prepared import PreparedNode
from dpadmm.federation.reach import Reach
from dpadmm.federation.segment import Segment
from dpadmm.federation.watching import Watcher
from dpadmm.privacy.noise import NoiseSource, SimulatedNoise, secure_noise
from dpadmm.privacy.sqlite_ledger import LedgerRun, SQLiteLedger
from dpadmm.training import open_runs

__all__ = ["OpenNode"]

_AGREED: Final = "agreed"
_INSTANCE: Final = "instance"


@dataclass(frozen=True)
class OpenNode:
    """What a party and a server have in common.

    Attributes
    ----------
    prepared, watcher
        What it was told, and who is told how it gets on.
    store, noise, ledger
        What it heard; where its noise comes from; its ledger, if it has one.
    stack
        Closes all of it.
    """

    prepared: PreparedNode
    watcher: Watcher
    store: MessageStore
    noise: NoiseSource
    ledger: SQLiteLedger | None
    stack: ExitStack = field(repr=False)

    @classmethod
    def open(cls, prepared: PreparedNode, watcher: Watcher, stack: ExitStack) -> OpenNode:
        """Open the ledger and what was heard before."""
        config = prepared.config
        noise: NoiseSource = secure_noise()
        store = stack.enter_context(MessageFile(config.messages))
        if config.simulation is not None:
            noise = SimulatedNoise(config.simulation.key)
            if store.note(prepared.run, _INSTANCE) is not None:
                # Without a ledger nothing keeps the message of a round that was cut short.
                raise ParameterError(
                    f"a simulation must begin anew: it cannot be continued. Remove "
                    f"{config.messages}, or change run_id at every node."
                )
        ledger = None
        if config.node.ledger is not None:
            ledger = stack.enter_context(SQLiteLedger(config.node.ledger))
            check_owner(prepared.name, ledger, prepared.schema.sha256)
        return cls(prepared, watcher, store, noise, ledger, stack)

    def open_run(self, segment: Segment) -> LedgerRun | None:
        """Lock a segment in the ledger; refused where it does not fit. None in a simulation."""
        if self.ledger is None:
            return None
        own = segment.planned.of_party(segment.agreed.names.index(self.prepared.name))
        # A stretch that ended with somebody's loss is not charged beyond what was sent.
        end = Departure.sent_before(self.store, segment.run)
        rounds = range(len(segment.replayed), segment.rounds if end is None else end)
        (opened,) = open_runs(own, [self.ledger], segment.run_id, self.noise, rounds=rounds)
        return self.stack.enter_context(opened)

    def connect(self) -> PeerSession:
        """Open the connections and agree with everybody; nothing was spent before."""
        prepared, config = self.prepared, self.prepared.config
        run = prepared.run
        instance = self.store.note(run, _INSTANCE)
        if instance is None:
            instance = secrets.token_hex(16)
            self.store.take_note(run, _INSTANCE, instance)
        known = {name: self.store.note(run, f"{_INSTANCE} of {name}") for name in config.addresses}
        session = self.stack.enter_context(
            PeerSession(
                prepared.name,
                config.node.listen,
                config.addresses,
                prepared.security,
                largest=message_size(prepared.planned.site.shape[1:]),
                lease=config.watch.lease,
                instance=instance,
                known={name: found for name, found in known.items() if found is not None},
                on_claim=lambda name, found: self.store.take_note(
                    run, f"{_INSTANCE} of {name}", found
                ),
                on_event=self.watcher.event,
            )
        )
        self.stack.enter_context(Reach(session, config.addresses, prepared.security, self.watcher))
        before = self.store.note(run, _AGREED) is not None
        agreement = Agreement(
            session,
            prepared.agreed.facts(prepared.schema),
            prepared.agreed.nodes,
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

    def departure(self, session: PeerSession, segment: Segment) -> Departure | None:
        """How to go on without a lost node; None where the owner has not chosen to."""
        if self.prepared.config.policy.when_lost != "continue":
            return None
        agreed = segment.agreed
        return Departure(session, segment.run, agreed.names, agreed.nodes, self.store)

    def mailbox_options(self, departure: Departure | None) -> dict[str, Any]:
        """How long to wait, and who is told."""
        policy, watch = self.prepared.config.policy, self.prepared.config.watch
        options: dict[str, Any] = {
            "patience": Patience(
                timeout=None if policy.when_lost == "wait" else policy.lost_after,
                report=watch.report_every,
            ),
            "on_refused": lambda name, reason, error: self.watcher.dropped(
                name, reason, error=error
            ),
            "on_waiting": self.watcher.waiting,
        }
        if departure is not None:
            options["on_pause"] = departure.listen
        return options
