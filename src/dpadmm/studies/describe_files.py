"""``dpadmm.describe`` and ``describe.toml``: from wishes and rows to figures, and what to expect.

**Bounds.** A wish of the kind ``bounds`` counts a column by powers of two within wide public
bounds. Where a count is clear of its noise the column has values; the outermost such bins are the
bounds that are proposed for it, and a schema that takes them says so, with what it cost. Bounds
that were proposed for some rows are theirs: a row beyond them is clipped later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any, Final, Self, final

import numpy as np
from pydantic import BeforeValidator, ValidationError, model_validator

from dpadmm.data.schema import FormerBounds, Measured, NumericColumn, Schema
from dpadmm.data.study_rows import read_study_rows, study_rows_by_party
from dpadmm.data.tables import Source, check_columns
from dpadmm.durable import written_whole
from dpadmm.errors import ParameterError, fail, finding
from dpadmm.plain import Array, as_tuple
from dpadmm.run.charges import EvaluationTerms
from dpadmm.run.options import DEFAULT, Split
from dpadmm.run.plan import Plan
from dpadmm.studies.describe import Describe, Described, StudyWish, described
from dpadmm.studies.describe_figures import ReadOff, StudyFigure, expected_release
from dpadmm.studies.questions import StudyAnswer, StudyQuestion, ask_rows
from dpadmm.studies.study import StudyRows, StudyRun, plan_study, require_named, study_noise
from dpadmm.studies.study_files import StudyConfig

# A bin has values where its count is so many deviations of its noise, and this part of all rows.
_CLEAR: Final = 4.0
_LEAST_PART: Final = 0.001
# A median this much smaller than the upper bound is better told apart by its logarithm.
_SKEWED: Final = 16.0
# What a schema says of bounds from a study that protects nobody.
_SIMULATED: Final = " (a simulation, whose noise protects nobody)"


class DescribeConfig(StudyConfig):
    """``describe.toml``: a study's tables, and the wishes.

    Parameters
    ----------
    wish
        The ``[[wish]]`` tables.
    """

    wish: Annotated[tuple[StudyWish, ...], BeforeValidator(as_tuple)] = ()

    @model_validator(mode="after")
    def _check_wishes(self) -> Self:
        if not self.wish:
            raise fail('wish must be given; got none: add [[wish]] with kind = "mean", say')
        if self.result.schema_file and not any(wish.kind == "bounds" for wish in self.wish):
            raise fail(
                'schema under [result] must be left out without a wish of kind = "bounds": nothing '
                "is proposed"
            )
        return self

    def question(self, schema: Schema) -> Describing:
        """The wishes."""
        return Describing(described(schema, self.wish))

    def write_more(self, found: StudyAnswer) -> None:
        """The schema, if asked."""
        if self.result.schema_file is not None and isinstance(found, Description):
            found.write_schema(self.result.schema_file)


@dataclass(frozen=True)
class ProposedBounds:
    """Narrower bounds of a column, from private rows; None where noise hides all of them."""

    column: str
    lower: float | None = None
    upper: float | None = None
    transform: str | None = None


@final
@dataclass(frozen=True)
class Description(StudyAnswer):
    """What a describe found.

    Attributes
    ----------
    about
        What was asked for.
    done
        The study, and what it guarantees.
    confidence
        Of each interval.
    """

    about: Described
    done: StudyRun = field(repr=False)
    confidence: float = 0.95

    @cached_property
    def figures(self) -> tuple[StudyFigure, ...]:
        """Every figure that was asked for."""
        return self._read.figures()

    @property
    def _read(self) -> ReadOff:
        rows = int(self.done.planned.site.rows.sum())
        return ReadOff(self.about, self.done.block, rows, self.confidence)

    @cached_property
    def proposed(self) -> tuple[ProposedBounds, ...]:
        """Bounds for the columns of wishes that look for them."""
        return tuple(
            self._proposed(wish, name)
            for wish in self.about.wishes
            if wish.kind == "bounds"
            for name in wish.columns
        )

    def _proposed(self, wish: StudyWish, name: str) -> ProposedBounds:
        part = self.about.table_of(wish, (name,))
        edges = self.about.cuts(name, wish)
        table = self._read.table(part)
        counts = table.counts[: len(edges) - 1]
        least = max(_CLEAR * table.noise_variance**0.5, _LEAST_PART * table.rows)
        held = np.flatnonzero(counts > least)
        if not len(held):
            return ProposedBounds(name)
        lower, upper = float(edges[held[0]]), float(edges[held[-1] + 1])
        if 0 < lower < upper / 4 and self.about.columns.numeric(name).lower <= 0:
            lower = 0.0
        middle = int(np.searchsorted(np.cumsum(counts), counts.sum() / 2))
        skewed = lower >= 0 and float(edges[min(middle, len(counts) - 1) + 1]) * _SKEWED <= upper
        return ProposedBounds(name, lower, upper, "log1p" if skewed else None)

    def schema(self) -> Schema:
        """The schema with the bounds that are proposed, which says that they were measured."""
        proposed = {each.column: each for each in self.proposed if each.lower is not None}
        if not proposed:
            raise ParameterError(
                "bounds must be clear of the noise to be proposed; none are. Spend more, or bring "
                "more rows."
            )
        content = self.about.schema.model_dump()
        content["columns"] = tuple(
            _with_bounds(column, proposed[column.name]) if column.name in proposed else column
            for column in self.about.schema.columns
        )
        privacy = self.privacy_
        former = FormerBounds.model_fields
        cost = Measured(
            columns=tuple(proposed),
            before=tuple(
                FormerBounds(**{key: getattr(column, key) for key in former})
                for column in self.about.schema.numeric
                if column.name in proposed
            ),
            epsilon=privacy.epsilon,
            delta=privacy.delta,
            study=self.done.run_id + (_SIMULATED if privacy.simulated else ""),
        )
        content["measured"] = (*self.about.schema.measured, cost)
        return Schema.from_dict(content)

    def write_schema(self, place: Path) -> None:
        """Write :meth:`schema` to a file, whole or not at all."""
        with written_whole(place, "schema") as file:
            file.write(self.schema().without_party().to_toml().encode())

    def record(self) -> dict[str, Any]:
        """The record: what was asked, found and spent."""
        found: dict[str, Any] = {
            "asked": [wish.model_dump(mode="json", exclude_defaults=True) for wish in self.wishes],
            "confidence": self.confidence,
            "split": budget_split(self.done.planned),
            "found": [figure.to_dict() for figure in self.figures],
        }
        if self.proposed:
            found["proposed"] = [vars(each) for each in self.proposed]
        return self.done.record(**found)

    @property
    def wishes(self) -> tuple[StudyWish, ...]:
        """What was asked for."""
        return self.about.wishes


def _with_bounds(column: Any, bounds: ProposedBounds) -> NumericColumn:
    told = {"lower": bounds.lower, "upper": bounds.upper, "transform": bounds.transform}
    # A fill outside the new bounds would be refused.
    return NumericColumn.model_validate(column.model_dump(exclude={*told, "fill"}) | told)


def budget_split(planned: Plan) -> dict[str, float]:
    """What part of mu^2 tables, moments and products get."""
    study = planned.algorithm
    assert isinstance(study, Describe)
    found: dict[str, float] = {}
    for block in study.courses[0]:
        family = block.name.partition(" ")[0]
        found[family] = found.get(family, 0.0) + block.share
    return found


def relative_width(about: Described, figure: StudyFigure) -> float:
    """How wide an interval is, as a part of what is possible; 1 where it says nothing."""
    if figure.low is None or figure.high is None:
        return 1.0
    possible = {"correlation": 2.0}.get(figure.kind, 1.0)
    if figure.kind in ("mean", "sd", "quantiles"):
        column = about.columns.numeric(figure.column)
        possible = (column.upper - column.lower) / (2 if figure.kind == "sd" else 1)
    return (figure.high - figure.low) / possible


@final
@dataclass(frozen=True)
class Describing(StudyQuestion):
    """A describe."""

    about: Described

    def plan(self, rows: Mapping[str, int], terms: EvaluationTerms) -> Plan:
        """One release."""
        return plan_study(Describe, self.about.plain, rows, terms)

    def answer(self, done: StudyRun) -> Description:
        """Every figure that was asked for."""
        return Description(self.about, done)

    def details(self, planned: Plan) -> tuple[tuple[str, str], ...]:
        """How the budget was split."""
        split = budget_split(planned).items()
        parts = [f"{family} {100 * share:.3g}%" for family, share in split]
        return (("Split of the budget", f"of mu^2, {', '.join(parts)}; one release"),)

    def figures(self, planned: Plan) -> tuple[StudyFigure, ...]:
        """Figures as if every column were spread evenly.

        Levels that nobody counts on, such as "missing", are spread evenly like all others.
        """
        rows = int(planned.site.rows.sum())
        return ReadOff(self.about, expected_release(self.about, planned), rows).figures()

    def width(self, planned: Plan) -> float:
        """That of the least sharp figure."""
        return max(relative_width(self.about, each) for each in self.figures(planned))

    def expected(self, planned: Plan) -> dict[str, Any]:
        """The split of the budget, and how wide each interval will be."""
        return {
            "split": budget_split(planned),
            "expected": [
                {**figure.to_dict(), "relative_width": relative_width(self.about, figure)}
                for figure in self.figures(planned)
            ],
        }


def describe(
    data: Source | Mapping[str, Source],
    wishes: Sequence[StudyWish | Mapping[str, Any]],
    *,
    schema: Schema,
    epsilon: float | Mapping[str, float] = DEFAULT.epsilon,
    delta: float | Mapping[str, float] = DEFAULT.delta,
    noise: str = "own",
    colluders: int | None = None,
    rows_per_person: int = 1,
    holdout: float = 0.0,
    ledgers: Mapping[str, Any] | None = None,
    run_id: str | None = None,
    resume: bool = False,
    confidence: float = 0.95,
    random_state: int | None = None,
) -> Description:
    r"""Figures of the rows of all parties, each with an interval, in one charged release.

    .. math:: \text{mean} = \frac{\sum_i\sum_k x_{ik} + \xi}{n},\qquad \xi \sim N(0, \sigma^2)

    Parameters
    ----------
    data
        Rows: a table of each party by its name; or one table of all, whose owners the schema's
        party column names. A table is the path of a file, an Arrow table or a pandas frame.
    wishes
        What is asked for (:class:`~dpadmm.studies.describe.StudyWish`), as such or as mappings.
    schema
        Public bounds and levels.
    epsilon, delta, rows_per_person
        The budget of each party for one person.
    noise, colluders
        "own" or "shared", as for ``dp-gd``.
    holdout
        Reads the rows that a training with this holdout reads.
    ledgers, run_id
        Each party's ledger by its name, and the name of the study in them. A study that a crash cut
        short is continued by the same call in a new process; a name whose study is complete, or was
        begun in this process, is refused.
    resume
        Take what the ledgers have of the study ``run_id``, at no further cost: rows must be the
        same.
    confidence
        Of each interval.
    random_state
        Makes the noise reproducible: a simulation, which protects nobody.

    Returns
    -------
    Description
        ``figures``, ``privacy_``, ``record()``; ``proposed`` and ``schema()`` for bounds.
    """
    if ledgers:
        require_named(run_id=run_id)
    about = described(schema, _checked(wishes))
    done = ask_rows(
        Describing(about),
        EvaluationTerms(epsilon, delta, rows_per_person, noise, colluders),
        _reader(data, schema),
        StudyRows(ledgers, run_id, schema, Split(holdout), {"reading": schema.reading}, resume),
        parties=[str(name) for name in data] if isinstance(data, Mapping) else (),
        noise=study_noise(random_state),
    )
    return Description(about, done, confidence)


def _checked(wishes: Sequence[StudyWish | Mapping[str, Any]]) -> list[StudyWish]:
    found = []
    for place, wish in enumerate(wishes):
        try:
            told = wish if isinstance(wish, StudyWish) else dict(wish)
            found.append(StudyWish.model_validate(told))
        except ValidationError as error:
            raise ParameterError(finding(error, partial(_in_wish, place))) from None
    return found


def _in_wish(number: int, place: tuple[int | str, ...]) -> str:
    return ", ".join([f"wish {number + 1}", *map(str, place)])


def _reader(data: Source | Mapping[str, Source], schema: Schema) -> Callable[[], dict[str, Array]]:
    """Check the columns of every table; rows are read later."""
    if isinstance(data, Mapping):
        own = schema.without_party()
        for table in data.values():
            check_columns(table, own)
        return lambda: {str(name): read_study_rows(table, own) for name, table in data.items()}
    check_columns(data, schema)
    if schema.party is None:
        return lambda: {"0": read_study_rows(data, schema)}
    return lambda: study_rows_by_party(data, schema)
