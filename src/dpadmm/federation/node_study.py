"""What a node has of a study: the same figures as all others, and its own guarantee."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self, final

from dpadmm.data.study_rows import read_study_rows
from dpadmm.errors import DataError
from dpadmm.federation.runtime import NodeSetup
from dpadmm.privacy.statement import PrivacyStatement
from dpadmm.problem.rows import Shard
from dpadmm.report.document import Report
from dpadmm.report.studies import REPORTS
from dpadmm.run.files import file_schema, party_schema
from dpadmm.run.result import ledger_facts
from dpadmm.studies.describe_files import Description
from dpadmm.studies.questions import StudyAnswer
from dpadmm.studies.study import StudyRun


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
    def answer(self) -> StudyAnswer:
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
