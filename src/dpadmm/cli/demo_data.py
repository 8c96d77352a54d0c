"""The rows of the demo: many parties with few rows each, and labels that differ among them."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from dpadmm.cli.output import console
from dpadmm.data.schema import Label, NumericColumn, Schema
from dpadmm.experiments.problems import Problem, ProblemSource
from dpadmm.problem.rows import label_signs
from dpadmm.sentences import DataError

if TYPE_CHECKING:
    import pyarrow as pa

PARTIES: Final = 20
ROWS: Final = 300
# Every other party has so many times the share of the second class that all rows have: nobody's
# rows look like everybody's, as with hospitals and practices.
_SKEW: Final = (1 / 5, 9 / 5)
_TEST_ROWS: Final = 10_000
# Twice what is dealt out and judged by, so that no class runs out.
_DRAWN_ROWS: Final = 2 * (PARTIES * ROWS + _TEST_ROWS)
# The waves are sums of a triangle of height 6 and noise of variance 1.
_WAVE_BOUNDS: Final = (-4.0, 10.0)
_ADULT_SECOND: Final = ">50K"

Codes = NDArray[np.int64]


class _Source(NamedTuple):
    """A whole public table, how it is encoded, and which rows have the second class."""

    title: str
    label: tuple[str, tuple[str, str]]
    schema: Schema
    table: pa.Table
    second: Codes


@final
@dataclass(frozen=True, eq=False)
class DemoData(ProblemSource):
    """Rows of the parties and rows that nobody trains on.

    Attributes
    ----------
    title
        Where the rows come from.
    label
        What is predicted, and its two classes in words.
    schema, tables
        The public encoding, and each party's rows as a file of its own would have them.
    problem
        The same rows, encoded.
    """

    title: str
    label: tuple[str, tuple[str, str]]
    schema: Schema
    tables: tuple[pa.Table, ...] = field(repr=False)
    problem: Problem = field(repr=False)

    def load(self) -> Problem:
        """The rows, which are at hand."""
        return self.problem

    def first(self, parties: int) -> DemoData:
        """The first so many parties."""
        kept = replace(
            self.problem,
            members=self.problem.members[:parties],
            names=self.problem.names[:parties],
        )
        return replace(self, tables=self.tables[:parties], problem=kept)

    def among(self, parties: int, seed: int) -> DemoData:
        """All parties' rows, mixed and dealt to a few; files are left out."""
        from dpadmm.experiments.problems import OnePartyProblem

        ((rows, signs),) = OnePartyProblem(self).load().members
        shares = np.array_split(np.random.default_rng(seed).permutation(len(signs)), parties)
        dealt = replace(
            self.problem,
            members=tuple((rows[share], signs[share]) for share in shares),
            names=tuple(f"party-{number}" for number in range(parties)),
        )
        return replace(self, tables=(), problem=dealt)


def load_data(seed: int) -> DemoData:
    """Adult where it is at hand, else waveform, dealt to parties of a few hundred rows each."""
    source = _adult() or _waveform(seed)
    judged, shares = _deal(source.second, seed)
    tables = tuple(source.table.take(share) for share in shares)
    test_rows, test_codes = _encoded(source.table.take(judged), source.schema)
    members = (_encoded(table, source.schema) for table in tables)
    problem = Problem(
        members=tuple((rows, label_signs(codes, 1)) for rows, codes in members),
        test_rows=test_rows,
        test_codes=test_codes,
        names=tuple(f"party-{number}" for number in range(PARTIES)),
        facts={"dataset": source.title},
    )
    return DemoData(source.title, source.label, source.schema, tables, problem)


def _encoded(table: pa.Table, schema: Schema) -> tuple[Any, Any]:
    from dpadmm.data.tables import encode

    found = encode(table, schema)
    return found.rows, found.labels


def _deal(second: Codes, seed: int) -> tuple[Codes, list[Codes]]:
    """Places of the rows to judge by, and of each party's; labels of the parties are skewed."""
    order = np.random.default_rng(seed).permutation(len(second))
    judged, rest = order[:_TEST_ROWS], order[_TEST_ROWS:]
    of_class = [list(rest[second[rest] == code]) for code in (0, 1)]
    share = float(second[rest].mean())
    dealt = []
    for party in range(PARTIES):
        many = round(ROWS * share * _SKEW[party % len(_SKEW)])
        places = [of_class[1].pop() for _ in range(many)]
        places += [of_class[0].pop() for _ in range(ROWS - many)]
        dealt.append(np.array(places, dtype=np.int64))
    return judged, dealt


def _adult() -> _Source | None:
    """UCI Adult by its public schema, numeric columns in [-1, 1]; None where it is not at hand."""
    import pyarrow.compute as pc

    from dpadmm.data.adult import adult_schema, adult_table

    if not os.environ.get("DPADMM_DATA"):
        return None
    try:
        table = adult_table()
    except DataError as error:
        console.print(f"Adult is not at hand: {error}", highlight=False)
        return None
    if table is None:
        return None
    schema = Schema.from_dict(adult_schema().model_dump() | {"version": 2})
    for column in table.column_names:
        table = table.filter(pc.not_equal(table[column], "?"))
    second = np.asarray(pc.equal(table["income"], _ADULT_SECOND)).astype(np.int64)
    label = ("income", ("at most 50,000 dollars a year", "more"))
    return _Source("UCI Adult (the original files)", label, schema, table, second)


def _waveform(seed: int) -> _Source:
    """Breiman's waveform, drawn from the seed."""
    import pyarrow as pa

    from dpadmm.data.generators import waveform

    rows, signs = waveform(_DRAWN_ROWS, seed)
    names = [f"x{number}" for number in range(rows.shape[1])]
    lower, upper = _WAVE_BOUNDS
    schema = Schema(
        version=2,
        label=Label(column="y", classes=("-1", "1")),
        columns=tuple(
            NumericColumn(name=name, lower=lower, upper=upper, missing=False) for name in names
        ),
        constant=True,
    )
    columns = dict(zip(names, rows.T, strict=True))
    table = pa.table(columns | {"y": signs.astype(np.int8)})
    second = (signs > 0).astype(np.int64)
    return _Source(
        "Breiman's waveform (generated)", ("waveform", ("-1", "+1")), schema, table, second
    )
