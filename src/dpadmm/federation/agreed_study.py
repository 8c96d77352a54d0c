"""A study that all agree on in place of a training: the ``[study]`` of an ``agreed.toml``.

The tables are those of a ``describe.toml`` or an ``infer.toml``, without what is each owner's own:
files, ledgers and results. What is agreed on about any run, such as its budget and who may collude,
is said in ``[study]``, and :func:`run_of_study` turns it into the same facts as those of a
training: agreement, masks, policies and charges know no difference.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Protocol, Self

from pydantic import BeforeValidator, ValidationInfo, model_validator
from pydantic_core import PydanticCustomError

from dpadmm.algorithms import DESCRIBE, INFER
from dpadmm.data.schema import Schema
from dpadmm.errors import fail
from dpadmm.plain import as_tuple
from dpadmm.run.charges import EvaluationTerms, WholePlan
from dpadmm.run.config import Edges, RunSection, training_parameters
from dpadmm.studies.describe import StudyWish, described
from dpadmm.studies.describe_files import Describing
from dpadmm.studies.infer_files import FileRegression, InferSection
from dpadmm.studies.questions import StudyQuestion
from dpadmm.studies.study_files import StudySection

#: The tables of an agreed run that only a study has.
STUDY_TABLES: Final = {"study", "wish", "infer"}


def _asked_by(kind: str, asked: Any, info: ValidationInfo) -> None:
    """Refuse a study without what it asks, and what is asked by no such study."""
    study = info.data.get("study")
    table = {DESCRIBE: "[[wish]]", INFER: "[infer]"}[kind]
    if "study" in info.data and (study is not None and study.kind == kind) != (
        asked not in (None, (), [])
    ):
        raise fail(
            f'must be given with kind = "{kind}" under [study], and only with it: add {table}, or '
            "leave it out"
        )


def _wishes(asked: Any, info: ValidationInfo) -> Any:
    _asked_by(DESCRIBE, asked, info)
    return as_tuple(asked)


def _regression(asked: Any, info: ValidationInfo) -> Any:
    _asked_by(INFER, asked, info)
    return asked


Wishes = Annotated[tuple[StudyWish, ...], BeforeValidator(_wishes)]
Regressing = Annotated[InferSection | None, BeforeValidator(_regression)]


class AgreedStudy(StudySection):
    """``[study]``: which study, what it may cost, and over which links.

    Parameters
    ----------
    kind
        "describe": the figures of the ``[[wish]]`` tables; "infer": the regression of ``[infer]``.
    topology
        As for a training; everybody is heard on any connected graph.
    """

    kind: Literal["describe", "infer"]
    topology: Edges = "server"

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.run_id is None:
            raise fail("run_id under [study] must be given: ledgers know it by that; got nothing")
        if self.simulation_key is not None:
            raise fail(
                "simulation_key under [study] must not be agreed on: nobody chooses the noise of "
                "another; a node that simulates says so in its own node.toml"
            )
        return self


def run_of_study(told: Any, info: ValidationInfo) -> Any:
    """The agreed facts of a run: as told, or those of a study."""
    if "study" not in info.data:
        # It has a finding of its own.
        return RunSection(run_id="unknown")
    study: AgreedStudy | None = info.data["study"]
    if study is None:
        if told is None:
            raise PydanticCustomError("missing", "must be given")
        return told
    if told is not None:
        raise fail("must be left out with [study]: either is agreed on, not both; got both")
    options = {} if study.noise == "own" else {"noise": study.noise, "colluders": study.colluders}
    return RunSection(
        algorithm=study.kind,
        # The plan says how many there are.
        rounds=1,
        run_id=study.run_id,
        epsilon=study.epsilon,
        delta=study.delta,
        rows_per_person=study.rows_per_person,
        topology=study.topology,
        holdout=study.holdout,
        algorithm_options={name: value for name, value in options.items() if value is not None},
    )


def plan_asked(
    question: StudyQuestion, run: RunSection, rows: Mapping[str, int], classes: int
) -> WholePlan:
    """The plan of a study for all parties, from the facts of its run; or a refusal."""
    told, wish = training_parameters(run, tuple(rows)), run.wish
    options = told.algorithm_options
    terms = EvaluationTerms(
        told.epsilon,
        told.delta,
        told.rows_per_person,
        options.get("noise", "own"),
        options.get("colluders"),
        told.topology,
    )
    read = {name: wish.split.train_rows(count) for name, count in rows.items()}
    return WholePlan(question.checked_plan(read, terms), wish, classes, rows)


class AsksStudy(Protocol):
    """The tables of an agreed run that say what is asked."""

    @property
    def wish(self) -> tuple[StudyWish, ...]:
        """``[[wish]]``."""

    @property
    def infer(self) -> InferSection | None:
        """``[infer]``."""


def question_of(asked: AsksStudy, schema: Schema) -> StudyQuestion:
    """What is asked; refuses what has no public bounds or levels."""
    if asked.infer is not None:
        return FileRegression(asked.infer, schema)
    return Describing(described(schema, asked.wish))
