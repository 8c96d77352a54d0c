"""What a study asks, apart from whose rows it asks and where it runs.

A :class:`StudyQuestion` goes from public facts to a plan, from rows to what is added up, and from
what was released to an answer. The same ones are asked of files in one process and between nodes.
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
from dpadmm.run.files import Fault
from dpadmm.run.plan import Plan
from dpadmm.studies.describe import Described, StudyWish, described
from dpadmm.studies.describe_files import Description, plan_describe, split_detail
from dpadmm.studies.infer_files import FileRegression, Inference, InferSection
from dpadmm.studies.study import StudyRun


class StudyQuestion(ABC):
    """What is asked: public, and checked before a row is read."""

    @property
    def public(self) -> dict[str, Any]:
        """What decides what the numbers of a row mean, where no plan and no schema says it."""
        return {}

    @abstractmethod
    def plan(self, rows: Mapping[str, int], terms: EvaluationTerms) -> Plan:
        """The study of so many rows of each party; or a refusal."""

    @abstractmethod
    def answer(self, done: StudyRun) -> Description | Inference:
        """What was found; its record says what was asked and spent, too."""

    def prepared(self, rows: Array) -> tuple[Array, Array]:
        """What the study adds up, and the responses that belong to it.

        Parameters
        ----------
        rows
            As :class:`~dpadmm.data.study_rows.StudyColumns` has them.
        """
        return rows, np.zeros((len(rows), 1))

    def faults(self, rows: Array) -> Sequence[Fault]:
        """What contradicts itself in rows that are not prepared, for their owner alone."""
        return ()

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

    def answer(self, done: StudyRun) -> Description:
        """Every figure that was asked for."""
        return Description(self.about, done)

    def details(self, planned: Plan) -> tuple[tuple[str, str], ...]:
        """How the budget was split."""
        return split_detail(planned)


@final
@dataclass(frozen=True)
class Inferring(StudyQuestion):
    """A regression."""

    asked: FileRegression

    @classmethod
    def of(cls, schema: Schema, asked: InferSection) -> Inferring:
        """Of this regression."""
        return cls(FileRegression(asked, schema))

    @property
    def public(self) -> dict[str, Any]:
        """Which columns they are."""
        return self.asked.public

    def plan(self, rows: Mapping[str, int], terms: EvaluationTerms) -> Plan:
        """A few rounds; refused where it would drown in its noise."""
        return self.asked.checked_plan(rows, terms)

    def answer(self, done: StudyRun) -> Inference:
        """Coefficients and their intervals."""
        return Inference.of(self.asked, done)

    def prepared(self, rows: Array) -> tuple[Array, Array]:
        """Prepared columns, and responses as the family has them."""
        return self.asked.read(rows)

    def faults(self, rows: Array) -> Sequence[Fault]:
        """Responses that make no sense."""
        return self.asked.faults(rows)
