"""``infer.toml``: from files and a family to coefficients and a record, and what to expect."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Final, Literal, Self, final

import numpy as np
from pydantic import BeforeValidator, Field, model_validator

from dpadmm.data.schema import Schema
from dpadmm.data.study_rows import StudyColumns
from dpadmm.errors import ConvergenceError, ParameterError, fail, refuse_repeats, unknown_name
from dpadmm.plain import Array, Part, as_tuple
from dpadmm.run.charges import EvaluationTerms
from dpadmm.run.files import Fault
from dpadmm.run.plan import Plan
from dpadmm.studies.design import Design, Response
from dpadmm.studies.effects import RULES, Effects, check_strength, effects_of
from dpadmm.studies.glm import (
    Coefficients,
    Regression,
    RegressionFacts,
    exact_estimate,
    expected_width,
    plan_regression,
)
from dpadmm.studies.questions import StudyAnswer, StudyQuestion
from dpadmm.studies.study import StudyRun
from dpadmm.studies.study_files import StudyConfig

#: What is said of a regression without privacy.
SIMULATION_ONLY: Final = "not private: simulation only"
_ROUNDING: Final = 1e-6


class InferSection(Part):
    """``[infer]``: the regression.

    Parameters
    ----------
    family
        gaussian, binomial, poisson or survival.
    response
        The column that is explained; the schema's label unless given. The label and its second
        class for binomial, and for the event of survival; a numeric column for the others.
    columns
        What explains it: all others unless given.
    entry, exit, periods
        For survival: the numeric columns of a person's first and last time, and the public edges
        of the periods, or how many of length 1 begin at 0.
    robust
        For gaussian: errors that allow residuals to vary with the columns, in the fit without
        privacy beside a simulation. Those of a private fit always do.
    level
        Of the intervals.
    """

    family: Literal["gaussian", "binomial", "poisson", "survival"] = "binomial"
    response: str | None = None
    columns: Annotated[tuple[str, ...], BeforeValidator(as_tuple)] = ()
    entry: str | None = None
    exit: str | None = None
    periods: int | Annotated[tuple[float, ...], BeforeValidator(as_tuple)] | None = None
    robust: bool = False
    level: Annotated[float, Field(gt=0, lt=1)] = 0.95

    @model_validator(mode="after")
    def _check(self) -> Self:
        times = (self.entry, self.exit, self.periods)
        wanted = self.family == "survival"
        if any((each is not None) != wanted for each in times):
            raise fail(
                "entry, exit and periods must be given for the family 'survival', all three, and "
                "for no other"
            )
        if self.robust and self.family != "gaussian":
            raise fail("robust must be left out for families other than 'gaussian'")
        refuse_repeats(self.columns, "a column must be named once")
        return self


class InferConfig(StudyConfig):
    """``infer.toml``: a study's tables, and the regression.

    Parameters
    ----------
    infer
        The table ``[infer]``.
    """

    infer: InferSection = InferSection()

    def question(self, schema: Schema) -> FileRegression:
        """The regression."""
        return FileRegression(self.infer, schema)


@final
@dataclass(frozen=True)
class FileRegression(StudyQuestion):
    """A regression over the columns of a schema; public.

    Attributes
    ----------
    asked, schema
        The regression, and the columns.
    """

    asked: InferSection
    schema: Schema
    places: StudyColumns = field(init=False)
    design: Design = field(init=False)
    response: Response = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "places", StudyColumns(self.schema))
        object.__setattr__(self, "response", self._response())
        object.__setattr__(self, "design", self._design())

    @property
    def explained(self) -> str:
        """The column that is explained."""
        return self.asked.response or self.schema.label.column

    def _response(self) -> Response:
        asked, bounds = self.asked, None
        if asked.family in ("binomial", "survival"):
            if self.explained != self.schema.label.column or len(self.schema.classes) != 2:
                raise ParameterError(
                    f"response must be the schema's label, of two classes, for the family "
                    f"{asked.family!r}; got {self.explained!r}."
                )
        else:
            column = self.places.numeric(self.explained)
            if asked.family == "gaussian":
                bounds = (column.lower, column.upper)
        return Response.of(asked.family, False, bounds, asked.periods)

    def _design(self) -> Design:
        asked, schema = self.asked, self.schema
        apart = {self.explained, asked.entry, asked.exit}
        known = [column.name for column in schema.columns]
        names = asked.columns or tuple(
            name for name in known if name not in apart and name != schema.label.column
        )
        numeric = {column.name for column in schema.numeric}
        bounds, levels = {}, {}
        for name in names:
            if name not in known or name in apart:
                raise unknown_name("columns", name, [each for each in known if each not in apart])
            if name in numeric:
                column = self.places.numeric(name)
                bounds[name] = (column.lower, column.upper)
            else:
                levels[name] = self.places.levels(name)[:-2]
        if not names:
            raise ParameterError("columns must be at least one; got none.")
        found = Design.of(names, bounds=bounds, levels=levels).columns
        places = [self.places.places[names[column.place]] for column in found]
        columns = (replace(each, place=at) for each, at in zip(found, places, strict=True))
        # Rows have codes in place of levels.
        return Design(tuple(columns), self.places.width)

    def facts(self, rows: int) -> RegressionFacts:
        """What the regression is about."""
        return RegressionFacts(
            self.asked.family, len(self.design.columns), self.response.count, rows
        )

    @property
    def public(self) -> dict[str, Any]:
        """What decides what the numbers of a row mean."""
        times = {"entry": self.asked.entry, "exit": self.asked.exit}
        return {**self.design.public, **self.response.public, "explained": self.explained} | times

    def plan(self, rows: Mapping[str, int], terms: EvaluationTerms) -> Plan:
        """A few rounds."""
        return plan_regression(self.facts(sum(rows.values())), rows, terms)

    def checked_plan(self, rows: Mapping[str, int], terms: EvaluationTerms) -> Plan:
        """The same, refused where it would drown in its noise."""
        planned = self.plan(rows, terms)
        check_strength(_regression(planned))
        return planned

    def answer(self, done: StudyRun) -> Inference:
        """Coefficients and their intervals; warns where they say little or nothing."""
        study = _regression(done.planned)
        estimate, rows = study.estimate(done.sums), study.facts.rows
        return Inference(self, self._effects(estimate, rows, study.strength), done)

    def _effects(self, estimate: Coefficients, rows: int, strength: float = math.inf) -> Effects:
        robust = self.asked.robust
        return effects_of(
            estimate, self.design, self.response, rows, strength=strength, robust=robust
        )

    def compared(self, found: StudyAnswer, parties: Sequence[Array]) -> Inference:
        """With the regression without noise or bounds, of rows that lack nothing."""
        assert isinstance(found, Inference)
        prepared = [self.prepared(rows) for rows in parties]
        whole = [np.isfinite(np.hstack(each)).all(axis=1) for each in prepared]
        given = [(x[kept], y[kept]) for (x, y), kept in zip(prepared, whole, strict=True)]
        rows = int(sum(kept.sum() for kept in whole))
        try:
            exact = self._effects(exact_estimate(self.facts(rows), given), rows)
        except (ConvergenceError, ParameterError) as error:
            return replace(found, without=str(error))
        return replace(found, without=exact)

    def width(self, planned: Plan) -> float:
        """Relative to an interval without privacy."""
        return expected_width(_regression(planned))

    def expected(self, planned: Plan) -> dict[str, Any]:
        """How wide intervals will be, what is needed for them, and what for."""
        study = _regression(planned)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            check_strength(study)
        return {
            "strength": study.strength,
            "needed": RULES[study.facts.family].warned,
            "expected_width": expected_width(study),
            "coefficients": [*self.response.constants, *self.design.names],
            "warnings": [str(each.message) for each in said],
        }

    def prepared(self, rows: Array) -> tuple[Array, Array]:
        """Prepared columns and responses, from rows of the schema."""
        found = np.empty((len(rows), len(self.design.columns)))
        for place, column in enumerate(self.design.columns):
            cells = rows[:, column.place]
            if column.level is None:
                found[:, place] = self._in_units(column.name, cells)
                continue
            levels = self.places.levels(column.name.rpartition("[T.")[0])
            # A missing or unknown level makes the row the fixed one.
            known = np.where(cells < len(levels) - 2, cells == levels.index(column.level), np.nan)
            found[:, place] = known
        return self.design.prepared(found), self.response.response(self._responses(rows))

    def faults(self, rows: Array) -> tuple[Fault, ...]:
        """What contradicts itself or tells nothing, for the owner of the rows alone.

        Cells that are missing or outside their bounds are counted by their columns.
        """
        told = self._responses(rows)
        if self.asked.family == "survival":
            assert self.response.edges is not None
            edges = self.response.edges
            entry, stop, event = told.T
            flags = [self.places.missing_place(str(n)) for n in (self.asked.entry, self.asked.exit)]
            untimed = rows[:, [flag for flag in flags if flag is not None]].any(axis=1)
            found = {
                "leave no later than they enter, and become a fixed row": ~(entry < stop),
                "have an event without an entry or exit of their own": untimed & (event == 1),
                "are at risk in no period": (stop <= edges[0]) | (entry >= edges[-1]),
            }
        elif self.asked.family == "poisson":
            # Rows hold numbers between bounds: whole ones come back with rounding.
            found = {
                "have a count below zero, and become a fixed row": told < -_ROUNDING,
                "have a count that is no whole number": np.abs(told - told.round()) > _ROUNDING,
            }
        else:
            found = {}
        counted = (Fault(words, int(np.sum(bad)), len(rows)) for words, bad in found.items())
        return (*counted, *self._odd_columns(rows))

    def _odd_columns(self, rows: Array) -> Iterator[Fault]:
        """Columns of numbers that a regression of this party's rows alone would not bear."""
        cells, response = self.prepared(rows)
        whole = np.isfinite(np.hstack([cells, response])).all(axis=1)
        cells, response = cells[whole], response[whole, 0]
        varied: dict[str, Array] = {}
        for column, own in zip(self.design.columns, cells.T, strict=True):
            if column.level is not None or not len(own):
                continue
            name, said = column.name, []
            if np.ptp(own) == 0:
                said = [f"have one and the same {name}"]
            else:
                twins = (n for n, v in varied.items() if _straight(own, v))
                said = [f"have a {name} that only repeats {twin}" for twin in twins]
                varied[name] = own
                if self.asked.family == "binomial" and _separated(own, response):
                    said.append(f"have an outcome that {name} alone separates")
            yield from (Fault(words, len(own), len(rows), contradict=False) for words in said)

    def _responses(self, rows: Array) -> Array:
        place, asked = self.places.places, self.asked
        if asked.family == "survival":
            assert asked.entry is not None
            assert asked.exit is not None
            names = (asked.entry, asked.exit)
            times = [self._in_units(name, rows[:, place[name]]) for name in names]
            return np.column_stack([*times, rows[:, place[self.explained]]])
        cells = rows[:, place[self.explained]]
        return cells if asked.family == "binomial" else self._in_units(self.explained, cells)

    def _in_units(self, name: str, cells: Array) -> Array:
        column = self.places.numeric(name)
        found: Array = column.lower + (cells + 1) / 2 * (column.upper - column.lower)
        return found


def _straight(one: Array, other: Array) -> bool:
    """Whether two columns are on a straight line."""
    return bool(abs(np.corrcoef(one, other)[0, 1]) > 1 - _ROUNDING)


def _separated(column: Array, outcome: Array) -> bool:
    """Whether one value parts all rows of one outcome from all of the other."""
    none, some = column[outcome == 0], column[outcome == 1]
    if not len(none) or not len(some):
        return False
    return bool(none.max() < some.min() or some.max() < none.min())


def _regression(planned: Plan) -> Regression:
    study = planned.algorithm
    assert isinstance(study, Regression)
    return study


@final
@dataclass(frozen=True)
class Inference(StudyAnswer):
    """What a regression of files found.

    Attributes
    ----------
    question, effects
        What was asked, and found.
    done
        The study, and what it guarantees.
    without
        Of a simulation: the same without privacy, or why there is none.
    """

    question: FileRegression = field(repr=False)
    effects: Effects
    done: StudyRun = field(repr=False)
    without: Effects | str | None = None

    def record(self) -> dict[str, Any]:
        """The record: what was asked, found and spent."""
        asked, spans = self.question.asked, self.question.design.spans
        more = {}
        if isinstance(self.without, Effects):
            exact = _found(self.without, asked.level, spans)
            more["without_privacy"] = {"note": SIMULATION_ONLY, **exact}
        elif self.without is not None:
            more["without_privacy"] = {"note": SIMULATION_ONLY, "reason": self.without}
        return self.done.record(
            asked={**asked.model_dump(mode="json"), "response": self.question.explained},
            found=_found(self.effects, asked.level, spans),
            **more,
        )


def _found(effects: Effects, level: float, spans: Sequence[float]) -> dict[str, Any]:
    """Effects as plain data, each with the distance of the public bounds of its column."""
    found = effects.to_dict(level)
    for each, span in zip(found["coefficients"][effects.constants :], spans, strict=True):
        each["span"] = span
    return found
