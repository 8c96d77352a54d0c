"""A stretch of a run with the same nodes: all of it, or what is left of it without a lost one."""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import dataclass, field

from dpadmm.arrays import Array
from dpadmm.errors import ParameterError
from dpadmm.federation.agreed_run import AgreedRun
from dpadmm.federation.departure import Decision
from dpadmm.privacy.chosen import overspent
from dpadmm.privacy.events import Event
from dpadmm.privacy.shown import Given
from dpadmm.schema import Schema
from dpadmm.training import Plan, announced

__all__ = ["Segment"]


@dataclass(frozen=True)
class Segment:
    """What the nodes that are left compute.

    Attributes
    ----------
    agreed, planned
        The run of the nodes that are left.
    run
        Its 32 bytes.
    rounds
        Its rounds: those of the plan, or fewer.
    lost
        Who was lost before it.
    replayed
        This party's messages of the first rounds, released before.
    charged
        What this party was charged before.
    first
        The run as it was agreed on, before anybody was lost; None for that run itself.
    """

    agreed: AgreedRun
    planned: Plan
    run: bytes
    rounds: int
    lost: tuple[str, ...] = ()
    replayed: tuple[Array, ...] = field(default=(), repr=False)
    charged: tuple[Event, ...] = field(default=(), repr=False)
    first: Plan | None = field(default=None, repr=False)

    @classmethod
    def whole(cls, agreed: AgreedRun, planned: Plan, schema: Schema) -> Segment:
        """The run as it was agreed on."""
        return cls(agreed, planned, agreed.digest(schema), planned.rounds)

    @property
    def run_id(self) -> str:
        """How ledgers know it."""
        return str(self.agreed.run.run_id)

    def following(
        self,
        decision: Decision,
        schema: Schema,
        own: tuple[Array, ...] = (),
        charged: tuple[Event, ...] = (),
    ) -> Segment:
        """What the others do after a node is lost; refused where the links that are left do not do.

        Parameters
        ----------
        decision
            Without whom, and from where. Refused where no new round would be left.
        schema
            How rows are encoded.
        own, charged
            This party's messages of this segment, and what it was charged up to its end.
        """
        if decision.rounds(self.rounds) <= decision.kept:
            raise ParameterError(
                f"a run must have a round left to go on without {decision.lost}; it has "
                f"{self.rounds}, and one of the others has sent them all."
            )
        agreed = self.agreed.without(decision.lost, self.planned)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            planned = agreed.plan(schema)
        content = f"{decision.lost} {decision.kept} {decision.furthest}"
        digest = hashlib.sha256(self.run + agreed.digest(schema) + content.encode("ascii"))
        return Segment(
            agreed,
            planned,
            digest.digest(),
            decision.rounds(self.rounds),
            (*self.lost, decision.lost),
            own[: decision.kept],
            charged,
            self.first or self.planned,
        )

    def check_budget(self, name: str) -> None:
        """Refuse a stretch with which this party would spend more than was agreed, in all."""
        if self.first is None or self.first.budget is None:
            return
        place = self.agreed.names.index(name)
        coming = announced(self.planned.of_party(place))[0][len(self.replayed) : self.rounds]
        # Who was lost, and when, others may have chosen after seeing messages: so a filter.
        agreed = self.first.of_party(self.first.site.names.index(name))
        assert agreed.budget is not None
        epsilon = float(agreed.budget.epsilon[0])
        reason = overspent(
            announced(agreed)[0],
            (*self.charged, *coming),
            epsilon=epsilon,
            delta=float(agreed.budget.ideal_delta[0]),
            rows_per_person=agreed.budget.rows_per_person,
        )
        if reason is not None:
            raise ParameterError(
                f"epsilon of {name} must stay within the agreed {Given(epsilon)}, going on without "
                f"{self.lost[-1]}; {reason}."
            )
