"""What a node has of a study: the same figures as all others, and its own guarantee."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self, final

import numpy as np

from dpadmm.data.study_rows import read_study_rows
from dpadmm.errors import DataError
from dpadmm.federation.runtime import NodeRuntime, NodeSetup
from dpadmm.plain import Array
from dpadmm.privacy.events import Event
from dpadmm.privacy.statement import PrivacyStatement
from dpadmm.problem.rows import Shard
from dpadmm.report.document import Report
from dpadmm.report.studies import REPORTS
from dpadmm.run.engine import Outcome
from dpadmm.run.files import file_schema, party_schema
from dpadmm.run.plan import Plan
from dpadmm.run.result import ledger_facts
from dpadmm.run.session import ORDER_NOT_COVERED, state_privacy
from dpadmm.studies.describe_files import Description
from dpadmm.studies.infer_files import Inference
from dpadmm.studies.study import StudyRun, Sums


@final
@dataclass(frozen=True)
class NodeStudy:
    """A study that is done, at one node.

    Attributes
    ----------
    setup
        The node.
    done
        What was released, and what is guaranteed to this party's people.
    federation
        Public facts about the others and how it went.
    """

    setup: NodeSetup = field(repr=False)
    done: StudyRun
    federation: Mapping[str, Any]

    @property
    def privacy(self) -> PrivacyStatement:
        """What may be said about it."""
        return self.done.privacy

    def restated(self, privacy: PrivacyStatement, facts: Mapping[str, Any]) -> Self:
        """With another statement, and more facts about the others."""
        done = replace(self.done, privacy=privacy)
        return replace(self, done=done, federation={**self.federation, **facts})

    @cached_property
    def ledgers(self) -> dict[str, Any]:
        """What the node's ledger says at the end."""
        return ledger_facts(self.setup.configuration.ledgers)

    @cached_property
    def answer(self) -> Description | Inference:
        """What was found."""
        assert self.setup.question is not None
        return self.setup.question.answer(self.done)

    @property
    def schema_file(self) -> Path | None:
        """Where a schema with proposed bounds goes: beside the record."""
        proposed = self.answer.proposed if isinstance(self.answer, Description) else ()
        if all(each.lower is None for each in proposed):
            return None
        record = self.setup.study_config().result.record
        return record.with_name(f"{record.name}.schema.toml")

    def record(self) -> dict[str, Any]:
        """The record: what was asked, found and spent, and how it went."""
        return self.answer.record() | {
            "run_sha256": self.setup.run.hex(),
            "federation": dict(self.federation),
            **self.ledgers,
        }

    def report(self) -> Report:
        """The page."""
        record = self.record()
        return REPORTS[record["kind"]](record)


def study_shard(setup: NodeSetup) -> Shard:
    """Read and lay out this party's rows for a study; how many is public."""
    told, question = setup.configuration, setup.question
    assert question is not None
    party = told.party[0]
    schema = party_schema(file_schema(setup.schema, told), party)
    rows = read_study_rows(Path(party.file), schema)
    if len(rows) != party.rows:
        raise DataError(
            f"data must have the rows that the agreed study says, {party.rows}; {party.file} has "
            f"{len(rows)}: correct one"
        )
    first, stop = setup.agreed.run.wish.split.train(len(rows)) or (0, len(rows))
    return Shard.of_values([question.prepared(rows[first:stop])])


def state_study(
    node: NodeRuntime,
    own: Plan,
    charged: tuple[tuple[Event, ...], ...],
    caveats: tuple[str, ...],
    *,
    by_round: bool = True,
) -> PrivacyStatement:
    """What a study guarantees to this party's people."""
    setup = node.setup
    assert setup.question is not None
    return state_privacy(
        own,
        charged,
        node.noise,
        also_not_covered=(ORDER_NOT_COVERED,) if setup.agreed.run.holdout else (),
        caveats=caveats,
        details=setup.question.details(setup.planned),
        by_round=by_round,
    )


def study_of(
    setup: NodeSetup, outcome: Outcome, sums: list[Array], privacy: PrivacyStatement
) -> StudyRun:
    """A study whose every round is complete.

    Parameters
    ----------
    setup
        The node.
    outcome, sums
        What came of its rounds, and the sum over all parties in each.
    privacy
        What it guarantees.
    """
    planned, run_id = setup.planned, str(setup.agreed.run.run_id)
    done = Sums(np.array(sums), np.array([float(len(sums))]))
    return StudyRun(planned, outcome, done, privacy, run_id, setup.schema.sha256)
