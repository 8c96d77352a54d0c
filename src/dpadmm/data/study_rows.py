"""Rows of a study: each column of a schema as one number, not scaled to norm 1.

As everywhere, what a cell becomes depends on that cell and the public schema alone, and every
content becomes something (:mod:`dpadmm.data.encode`): a number outside the bounds the nearer bound,
a missing one the schema's fill, a text that is no level "other".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpadmm.data.encode import label_codes, numbers_within
from dpadmm.data.schema import CategoricalColumn, NumericColumn, Schema
from dpadmm.data.tables import Source, read_batches
from dpadmm.data.values import MISSING, OTHER, cells_as_text, codes_of
from dpadmm.errors import DataError, unknown_name
from dpadmm.plain import Array


@dataclass(frozen=True)
class StudyColumns:
    r"""Where in a row of a study each column of a schema is.

    A row has, in this order, for every numeric column its value between public bounds,

    .. math:: x = 2\,\frac{v - \mathrm{lower}}{\mathrm{upper} - \mathrm{lower}} - 1,

    whatever its transform; for every numeric column 1 if the value is missing, else 0 (always 0
    where the schema says ``missing = false``); for every categorical column the number of its
    level, with those that are missing or other after the last; the number of the label's class.
    """

    schema: Schema

    @cached_property
    def places(self) -> dict[str, int]:
        """The place of each column by its name, the label's too."""
        numbers = [column.name for column in self.schema.numeric]
        rest = [column.name for column in self.schema.categorical]
        found = {name: place for place, name in enumerate(numbers)}
        start = 2 * len(numbers)
        return found | {
            name: start + place for place, name in enumerate([*rest, self.schema.label.column])
        }

    @property
    def width(self) -> int:
        """How long a row is."""
        return 2 * len(self.schema.numeric) + len(self.schema.categorical) + 1

    def numeric(self, name: str) -> NumericColumn:
        """The numeric column of that name; or a refusal."""
        found = next((each for each in self.schema.numeric if each.name == name), None)
        if found is None:
            known = [column.name for column in self.schema.numeric]
            raise unknown_name("a numeric column with public bounds", name, known)
        return found

    def missing_place(self, name: str) -> int | None:
        """Where a row says that the value is missing; None where the schema has no such thing."""
        column = self.numeric(name)
        return len(self.schema.numeric) + self.places[name] if column.missing else None

    def levels(self, name: str) -> tuple[str, ...]:
        """The levels of a categorical column or the label in the order of their codes."""
        if name == self.schema.label.column:
            return self.schema.classes
        for column in self.schema.categorical:
            if column.name == name:
                return (*column.levels, "missing", "other")
        known = [*(column.name for column in self.schema.categorical), self.schema.label.column]
        raise unknown_name("a categorical column with public levels", name, known)

    def listed(self, name: str) -> tuple[str, ...]:
        """The levels that the schema lists: without those that are missing or other."""
        levels = self.levels(name)
        return levels if name == self.schema.label.column else levels[:-2]

    def of_batch(self, batch: pa.RecordBatch) -> Array:
        """The rows of a batch of cells."""
        schema, rows = self.schema, np.zeros((batch.num_rows, self.width))
        for column in schema.numeric:
            inside, missing, _ = numbers_within(batch[column.name], column, schema)
            place = self.places[column.name]
            share = (inside - column.lower) / (column.upper - column.lower)
            rows[:, place] = np.clip(2 * share - 1, -1.0, 1.0)
            flag = self.missing_place(column.name)
            if flag is not None:
                rows[:, flag] = missing
        for each in schema.categorical:
            rows[:, self.places[each.name]] = self._codes(batch[each.name], each)
        codes, _ = label_codes(batch[schema.label.column], schema)
        rows[:, -1] = codes
        return rows

    def _codes(self, cells: pa.Array, column: CategoricalColumn) -> NDArray[np.int64]:
        levels = len(column.levels)
        codes = codes_of(cells, column.levels, self.schema.all_missing_values, column)
        return np.where(codes == MISSING, levels, np.where(codes == OTHER, levels + 1, codes))


def read_study_rows(source: Source, schema: Schema, *, delimiter: str | None = None) -> Array:
    """The rows of one party, from any table that :func:`~dpadmm.data.tables.encode` reads."""
    columns = StudyColumns(schema)
    found = [
        columns.of_batch(batch) for batch, _ in read_batches(source, schema, delimiter=delimiter)
    ]
    return np.concatenate([np.zeros((0, columns.width)), *found])


def study_rows_by_party(source: Source, schema: Schema) -> dict[str, Array]:
    """The rows of each party in one table with a party column, by the names of the parties."""
    columns, parts = StudyColumns(schema), dict[str, list[Array]]()
    for batch, _ in read_batches(source, schema):
        for name, rows in _by_party(columns.of_batch(batch), cells_as_text(batch[schema.party])):
            if name is None or name in schema.all_missing_values:
                raise DataError(
                    f"every row must name its party in the column {schema.party!r}; there is one "
                    "that does not: complete it"
                )
            parts.setdefault(name, []).append(rows)
    return {name: np.concatenate(parts[name]) for name in sorted(parts)}


def _by_party(rows: Array, owners: pa.StringArray) -> Iterator[tuple[str | None, Array]]:
    coded = pa.chunked_array([owners]).combine_chunks().dictionary_encode("encode")
    codes = coded.indices.to_numpy()
    for code, name in enumerate(coded.dictionary.to_pylist()):
        yield name, rows[codes == code]
