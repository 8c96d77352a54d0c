"""A stretch of a run with the same nodes: all of it, or what is left of it without a lost one."""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import dataclass, field

from dpadmm.arrays import Array
from dpadmm.errors import ParameterError
from dpadmm.federation.agreed_run import AgreedRun
from dpadmm.federation.departure import Decision
from dpadmm.privacy.accountant import epsilon_spent
from dpadmm.privacy.events import Event
from dpadmm.schema import Schema
from dpadmm.training import Plan, announced

__all__ = ["Segment"]

# Costs that are equal on paper may differ by rounding.
_ROUNDING = 1e-9


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
    """

    agreed: AgreedRun
    planned: Plan
    run: bytes
    rounds: int
    lost: tuple[str, ...] = ()
    replayed: tuple[Array, ...] = field(default=(), repr=False)
    charged: tuple[Event, ...] = field(default=(), repr=False)

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
        )

    def check_budget(self, name: str) -> None:
        """Refuse a stretch with which this party would spend more than was agreed, in all."""
        budget = self.planned.budget
        if budget is None or not self.lost:
            return
        place = self.agreed.names.index(name)
        coming = announced(self.planned.of_party(place))[0][len(self.replayed) : self.rounds]
        spent = epsilon_spent(
            (*self.charged, *coming),
            float(budget.ideal_delta[place]),
            rows_per_person=budget.rows_per_person,
        )
        agreed = float(budget.epsilon[place])
        if spent.epsilon > agreed * (1 + _ROUNDING):
            raise ParameterError(
                f"epsilon of {name} must stay within the agreed {agreed:g}; going on without "
                f"{self.lost[-1]} would spend {spent.epsilon:.6g}."
            )
