"""What a study asks, apart from whose rows it asks and where it runs.

A :class:`StudyQuestion` goes from public facts to a plan, from rows to what is added up, and from what
was released to a record. The same ones are asked of files in one process and between nodes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from dpadmm.data.schema import Schema
from dpadmm.plain import Array
from dpadmm.run.charges import EvaluationTerms
from dpadmm.run.plan import Plan
from dpadmm.studies.describe import Described, StudyWish, described
from dpadmm.studies.describe_files import Description, plan_describe, split_detail
from dpadmm.studies.study import StudyRun


class StudyQuestion(ABC):
    """What is asked: public, and checked before a row is read."""

    @abstractmethod
    def plan(self, rows: Mapping[str, int], terms: EvaluationTerms) -> Plan:
        """The study of so many rows of each party; or a refusal."""

    @abstractmethod
    def record(self, done: StudyRun) -> dict[str, Any]:
        """The record: what was asked, found and spent."""

    def prepared(self, rows: Array) -> tuple[Array, Array]:
        """What the study adds up, and the responses that belong to it.

        Parameters
        ----------
        rows
            As :class:`~dpadmm.data.study_rows.StudyColumns` has them.
        """
        return rows, np.zeros((len(rows), 1))

    def details(self, planned: Plan) -> tuple[tuple[str, str], ...]:
        """What its statement says beside the guarantee."""
        return ()


@final
@dataclass(frozen=True)
class Describing(StudyQuestion):
    """A describe."""

    about: Described

    @classmethod
    def of(cls, schema: Schema, wishes: Sequence[StudyWish]) -> Describing:
        """Of these wishes."""
        return cls(described(schema, wishes))

    def plan(self, rows: Mapping[str, int], terms: EvaluationTerms) -> Plan:
        """One release."""
        return plan_describe(self.about, rows, terms)

    def record(self, done: StudyRun) -> dict[str, Any]:
        """Every figure that was asked for."""
        return Description(self.about, done).record()

    def details(self, planned: Plan) -> tuple[tuple[str, str], ...]:
        """How the budget was split."""
        return split_detail(planned)
