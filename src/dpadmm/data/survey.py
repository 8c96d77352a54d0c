"""What rows look like once they are encoded: bad labels, columns that never fit, unused levels.

About private rows and covered by no budget: for the eyes of their owner alone, never for others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from dpadmm.data.encode import ColumnCounts, Counts, EncodedBatch
from dpadmm.data.schema import Schema


@dataclass(frozen=True, slots=True)
class Survey:
    """What some rows hold; private, like the rows. Those of two parts of a table add up.

    Attributes
    ----------
    counts
        Rows, bad labels, and per column what was missing, no level or outside the bounds.
    classes
        How many rows have each class by a label of their own: bad labels are not among them.
    levels
        How many rows have each level, per categorical column.
    """

    # Printing the object must not show what rows hold.
    counts: Counts = field(repr=False)
    classes: dict[str, int] = field(repr=False)
    levels: dict[str, dict[str, int]] = field(repr=False)

    def __add__(self, more: Survey) -> Survey:
        return Survey(
            self.counts + more.counts,
            _added(self.classes, more.classes),
            {name: _added(found, more.levels[name]) for name, found in self.levels.items()},
        )

    @property
    def bad_share(self) -> float:
        """The share of rows whose label is bad; 0 without rows."""
        return self.counts.bad_labels / max(1, self.counts.rows)

    @property
    def unused_classes(self) -> tuple[str, ...]:
        """Classes that no row has, where there are rows."""
        return _unused(self.classes, self.counts.rows)

    @property
    def unused_levels(self) -> dict[str, tuple[str, ...]]:
        """Per categorical column the levels that no row has; columns that use all are left out."""
        unused = {name: _unused(found, self.counts.rows) for name, found in self.levels.items()}
        return {name: levels for name, levels in unused.items() if levels}

    @property
    def all_missing(self) -> tuple[str, ...]:
        """Columns that are missing in every row."""
        return self._where(lambda found: found.missing)

    @property
    def never_fitting(self) -> tuple[str, ...]:
        """Columns without one cell that fits: all missing, no level, or outside the bounds."""
        return self._where(lambda found: found.missing + found.other + found.clipped)

    def _where(self, odd: Callable[[ColumnCounts], int]) -> tuple[str, ...]:
        rows = self.counts.rows
        return tuple(n for n, found in self.counts.columns.items() if rows and odd(found) == rows)


def survey(batches: Iterable[EncodedBatch], schema: Schema) -> Survey:
    """Count what some encoded batches hold.

    Parameters
    ----------
    batches
        Of :func:`~dpadmm.data.tables.encoded_batches`; all of a table, or one at a time, since
        surveys add up.
    schema
        What they were encoded by.
    """
    nothing = Counts(columns={column.name: ColumnCounts() for column in schema.columns})
    found = Survey(
        nothing,
        dict.fromkeys(schema.classes, 0),
        {column.name: dict.fromkeys(column.levels, 0) for column in schema.categorical},
    )
    for batch in batches:
        found += _surveyed(batch, schema)
    return found


def _surveyed(batch: EncodedBatch, schema: Schema) -> Survey:
    codes = np.zeros(0, np.int64) if batch.labels is None else batch.labels
    classes = np.bincount(codes, minlength=len(schema.classes)).tolist()
    # Bad labels were taken as the first class.
    classes[0] -= batch.counts.bad_labels
    first = sum(column.missing for column in schema.numeric)
    offset = len(schema.numeric) + first
    levels: dict[str, dict[str, int]] = {}
    for slot, column in enumerate(schema.categorical, first):
        places = batch.places[slot] - offset
        known = places[(places >= 0) & (places < len(column.levels))]
        counted = np.bincount(known, minlength=len(column.levels)).tolist()
        levels[column.name] = dict(zip(column.levels, counted, strict=True))
        offset += len(column.levels) + column.missing + column.other
    return Survey(batch.counts, dict(zip(schema.classes, classes, strict=True)), levels)


def _added(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    return {name: count + other[name] for name, count in one.items()}


def _unused(found: dict[str, int], rows: int) -> tuple[str, ...]:
    return tuple(name for name, count in found.items() if rows and not count)
