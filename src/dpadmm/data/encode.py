"""From cells to rows of norm at most 1, each row by itself, and what such rows look like.

A cell's encoding depends on that cell and the public schema alone, and the scaling of a row on that
row alone: a row has the same bits by itself and among a million others. Every content has an
encoding:

* a number outside the bounds becomes the nearer bound (and counts as *clipped*);
* a cell of a numeric column that is empty, not a number or not finite is *missing*, and so is every
  cell with one of the schema's ``missing_values``;
* a text that is not a level, in any spelling that the schema allows, is *other*;
* a label that is missing or not a class becomes the first class (and counts as a *bad label*).

A survey counts bad labels, columns that never fit and unused levels. It describes private rows, and
no budget covers it: only the owner of the rows may see it.

:mod:`dpadmm.data.values` reads cells, and :mod:`dpadmm.data.feature_maps` maps rows if the schema
asks for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy import sparse

from dpadmm.data.feature_maps import FeatureMap
from dpadmm.data.schema import CategoricalColumn, NumericColumn, Schema
from dpadmm.data.values import MISSING, OTHER, cells_as_numbers, cells_as_text, codes_of
from dpadmm.errors import DataError

Layout = Literal["auto", "dense", "sparse"]
SPARSE_DENSITY: Final = 0.1
SPARSE_BYTES: Final = 2**26


@dataclass(frozen=True, slots=True)
class ColumnCounts:
    """How many cells of a column were missing, no level, or outside the bounds."""

    missing: int = 0
    other: int = 0
    clipped: int = 0

    def __add__(self, more: ColumnCounts) -> ColumnCounts:
        return ColumnCounts(
            self.missing + more.missing, self.other + more.other, self.clipped + more.clipped
        )


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of what the encoder found.

    They describe private rows, and no budget covers them: never share them.
    """

    rows: int = 0
    bad_labels: int = 0
    ragged_rows: int = 0
    dropped_rows: int = 0
    columns: dict[str, ColumnCounts] = field(default_factory=dict)

    def __add__(self, more: Counts) -> Counts:
        names = list(dict.fromkeys([*self.columns, *more.columns]))
        none = ColumnCounts()
        return Counts(
            self.rows + more.rows,
            self.bad_labels + more.bad_labels,
            self.ragged_rows + more.ragged_rows,
            self.dropped_rows + more.dropped_rows,
            {n: self.columns.get(n, none) + more.columns.get(n, none) for n in names},
        )


@dataclass(frozen=True, slots=True, eq=False)
class EncodedBatch:
    """Some encoded rows, without the zeros.

    Attributes
    ----------
    numbers
        Shape (numeric columns, rows): the first encoded columns.
    places
        Shape (other entries, rows): the encoded column of every other entry; -1 for none.
    entries
        Shape (other entries,): what these entries are times `unit`: 1, or the constant's weight.
    unit
        Shape (rows,): 1 divided by the norm the row had above 1; just 1 with `feature_map`.
    labels
        Codes into the schema's classes; None if the table has no label column.
    parties
        The cells of the schema's party column; None if it has none.
    counts
        What was found.
    feature_map
        What rows become when they are written; None if they stay as they are.
    """

    numbers: NDArray[np.float64] = field(repr=False)
    places: NDArray[np.int32] = field(repr=False)
    entries: NDArray[np.float64] = field(repr=False)
    unit: NDArray[np.float64] = field(repr=False)
    labels: NDArray[np.int64] | None = field(repr=False)
    parties: pa.StringArray | None = field(repr=False)
    counts: Counts = field(repr=False)
    feature_map: FeatureMap | None = field(default=None, repr=False)

    def take(self, chosen: NDArray[np.intp]) -> EncodedBatch:
        """Return the rows of these numbers, without their party and without counts of cells."""
        unit = self.unit[chosen]
        return EncodedBatch(
            self.numbers[:, chosen],
            self.places[:, chosen],
            self.entries,
            unit,
            None if self.labels is None else self.labels[chosen],
            None,
            Counts(rows=len(unit)),
            self.feature_map,
        )

    def write_into(self, out: NDArray[np.float64], start: int = 0) -> None:
        """Write the rows from `start` on into zeros of shape (rows, features)."""
        rows, features = out.shape
        part = slice(start, start + rows)
        if self.feature_map is not None:
            numbers, places = self.numbers[:, part], self.places[:, part]
            self.feature_map.write_entries(numbers, places, self.entries, out)
            return
        out[:, : len(self.numbers)] = self.numbers[:, part].T
        first = np.arange(rows, dtype=np.int64) * features
        flat, unit = out.reshape(-1), self.unit[part]
        for places, entry in zip(self.places[:, part], self.entries, strict=True):
            if places.min(initial=0) < 0:
                present = places >= 0
                flat[first[present] + places[present]] = entry * unit[present]
            else:
                flat[first + places] = entry * unit

    def to_sparse(self, features: int) -> sparse.csr_array:
        """Return the rows as a sparse array; numbers that are 0 are kept as entries."""
        count, rows = self.numbers.shape
        if self.feature_map is not None:
            dense = np.zeros((rows, features))
            self.write_into(dense)
            return sparse.csr_array(dense)
        numeric = np.broadcast_to(np.arange(count, dtype=np.int32)[:, np.newaxis], (count, rows))
        columns = np.concatenate([numeric, self.places]).T
        values = np.concatenate([self.numbers, self.entries[:, np.newaxis] * self.unit]).T
        present = columns >= 0
        start = np.concatenate([[0], np.cumsum(present.sum(axis=1))])
        shape = (rows, features)
        return sparse.csr_array((values[present], columns[present], start), shape=shape)


@dataclass(frozen=True, slots=True, eq=False)
class EncodedRows:
    """A table ready for training.

    Attributes
    ----------
    rows
        Shape (rows, encoded columns): an array, a read-only memory map or a sparse array; no
        row has a norm above 1.
    labels
        Codes into `classes`; None if the table had no label column.
    classes, feature_names
        Names of the label's values and of the encoded columns.
    counts
        What was found; about private rows, not to be shared.
    schema_sha256
        Which schema the rows were encoded by.
    party_codes, parties
        If the schema names a party column: codes into `parties`, the names in order of
        appearance.
    """

    # Printing the object must not show what rows hold.
    rows: NDArray[np.float64] | sparse.csr_array = field(repr=False)
    labels: NDArray[np.int64] | None = field(repr=False)
    classes: tuple[str, ...]
    feature_names: tuple[str, ...] = field(repr=False)
    counts: Counts = field(repr=False)
    schema_sha256: str
    party_codes: NDArray[np.int64] | None = field(default=None, repr=False)
    parties: tuple[str, ...] = field(default=(), repr=False)

    @property
    def signs(self) -> NDArray[np.float64]:
        """Labels as -1 and +1 (the second class), for two classes."""
        if self.labels is None or len(self.classes) != 2:
            raise DataError(
                "labels must be there and of two classes to be read as -1 and +1; got "
                f"{'none' if self.labels is None else f'{len(self.classes)} classes'}"
            )
        return np.where(self.labels == 1, 1.0, -1.0)


def is_sparse(schema: Schema, rows: int, layout: Layout = "auto") -> bool:
    """Whether rows are kept as a sparse array; depends on public facts only.

    "auto" is sparse when a row can fill at most a tenth of the encoded columns and the dense
    array would take more than 64 MiB.
    """
    if layout not in ("auto", "dense", "sparse"):
        raise DataError(f"layout must be 'auto', 'dense' or 'sparse'; got {layout!r}")
    if layout != "auto":
        return layout == "sparse"
    features = len(schema.feature_names)
    thin = schema.entries_per_row <= SPARSE_DENSITY * features
    return thin and 8 * rows * features > SPARSE_BYTES


def numbers_within(
    cells: pa.Array, column: NumericColumn, schema: Schema
) -> tuple[NDArray[np.float64], NDArray[np.bool_], int]:
    """Values within a column's bounds, which cells were missing, how many were outside."""
    comma = schema.decimal == ","
    marks = [text.replace(",", ".") if comma else text for text in schema.all_missing_values]
    values = cells_as_numbers(cells, decimal_comma=comma)
    missing = ~np.isfinite(values)
    for sentinel in (float(text) for text in marks if _is_finite_number(text)):
        missing |= values == sentinel
    values = np.where(missing, column.fill_value, values)
    inside = np.clip(values, column.lower, column.upper)
    return inside, missing, int(np.count_nonzero(inside != values))


def _encode_numeric(
    cells: pa.Array, column: NumericColumn, schema: Schema
) -> tuple[NDArray[np.float64], NDArray[np.bool_], int]:
    inside, missing, clipped = numbers_within(cells, column, schema)
    (lower, upper), (lowest, highest) = column.bounds, column.ends
    share = (column.transformed(inside) - lower) / (upper - lower)
    return lowest + (highest - lowest) * share, missing, clipped


def _encode_categorical(
    cells: pa.Array, column: CategoricalColumn, schema: Schema, offset: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_], int]:
    """Return the encoded column (-1: zeros), which cells are missing, how many are others."""
    codes = codes_of(cells, column.levels, schema.all_missing_values, column)
    if codes.min(initial=0) >= 0:
        return codes + offset, np.zeros(len(codes), np.bool_), 0
    missing, other = codes == MISSING, codes == OTHER
    levels = len(column.levels)
    codes += offset
    codes[missing] = offset + levels if column.missing else -1
    codes[other] = offset + levels + column.missing if column.other else -1
    return codes, missing, int(np.count_nonzero(other))


def label_codes(cells: pa.Array, schema: Schema) -> tuple[NDArray[np.int64], int]:
    """Codes of the classes, and how many labels were none."""
    label = schema.label
    if label.classes is not None:
        codes = codes_of(cells, label.classes, (), label)
        bad = codes < 0
        return np.where(bad, 0, codes), int(np.count_nonzero(bad))
    codes = codes_of(cells, label.told, schema.all_missing_values, label)
    return np.where(codes == 0, 1, 0), int(np.count_nonzero(codes == MISSING))


def encode_batch(
    batch: pa.RecordBatch,
    schema: Schema,
    *,
    ragged_rows: int = 0,
    drop_incomplete_public_rows: bool = False,
) -> EncodedBatch:
    """Encode the rows of an Arrow batch that has the schema's columns (see the module).

    Parameters
    ----------
    batch
        The cells; columns are found by name. The label may be absent.
    schema
        The public description.
    ragged_rows
        How many of the rows stand for lines that could not be split into cells; only counted.
    drop_incomplete_public_rows
        Leave out rows with a missing value. For public experiments only: the number of rows
        left depends on what the rows hold, which no budget covers.
    """
    numbers, places, incomplete, counts = _encode_columns(batch, schema)
    entries = np.ones(len(places))
    if schema.constant:
        entries[-1] = schema.constant
    norms = np.ones(batch.num_rows)
    if schema.feature_map is None:
        # A map brings rows to their norm itself.
        norms = _norms(numbers, places, entries)
    numbers /= norms
    unit = 1.0 / norms

    labels, bad_labels = None, 0
    if schema.label.column in batch.schema.names:
        labels, bad_labels = label_codes(batch[schema.label.column], schema)
    parties = None if schema.party is None else cells_as_text(batch[schema.party])
    dropped = 0
    if drop_incomplete_public_rows:
        keep = ~incomplete
        numbers, places, unit = numbers[:, keep], places[:, keep], unit[keep]
        labels = None if labels is None else labels[keep]
        parties = None if parties is None else parties.filter(pa.array(keep))
        dropped = int(np.count_nonzero(incomplete))
    found = Counts(batch.num_rows - dropped, bad_labels, ragged_rows, dropped, counts)
    return EncodedBatch(numbers, places, entries, unit, labels, parties, found, schema.feature_map)


def _norms(
    numbers: NDArray[np.float64], places: NDArray[np.int32], entries: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return what to divide each row by: its norm, where that is above 1."""
    # Entries are added one after the other, so that a row's norm does not depend on the others.
    squares = np.zeros(numbers.shape[1])
    for scaled in numbers:
        squares += scaled * scaled
    for place, entry in zip(places, entries, strict=True):
        squares += entry**2 * (place >= 0)
    norms: NDArray[np.float64] = np.sqrt(np.maximum(squares, 1.0))
    return norms


def _encode_columns(
    batch: pa.RecordBatch, schema: Schema
) -> tuple[NDArray[np.float64], NDArray[np.int32], NDArray[np.bool_], dict[str, ColumnCounts]]:
    """Numbers and places of a batch before rows are scaled, which rows miss a value, counts."""
    rows = batch.num_rows
    numbers = np.empty((len(schema.numeric), rows))
    places = np.full((schema.other_entries, rows), -1, np.int32)
    incomplete = np.zeros(rows, np.bool_)
    counts: dict[str, ColumnCounts] = {}
    slot, offset = 0, len(numbers)
    for number, column in enumerate(schema.numeric):
        cells = batch[column.name]
        numbers[number], missing, clipped = _encode_numeric(cells, column, schema)
        if column.missing:
            places[slot, missing] = offset
            slot, offset = slot + 1, offset + 1
        incomplete |= missing
        counts[column.name] = ColumnCounts(int(np.count_nonzero(missing)), 0, clipped)
    for category in schema.categorical:
        cells = batch[category.name]
        places[slot], missing, other = _encode_categorical(cells, category, schema, offset)
        slot, offset = slot + 1, offset + len(category.levels) + category.missing + category.other
        incomplete |= missing
        counts[category.name] = ColumnCounts(int(np.count_nonzero(missing)), other, 0)
    if schema.constant:
        places[slot] = offset
    return numbers, places, incomplete, counts


def _is_finite_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


class RowsStore(Protocol):
    """Where encoded rows go until all are there."""

    def write(self, batch: EncodedBatch) -> None:
        """Append the rows of a batch."""

    def finish(self, rows: int) -> Any:
        """Return all rows; `rows` says how many there are."""


@final
class RowsInMemory:
    """Collects batches, and lays their rows out at the end.

    Parameters
    ----------
    schema
        The public description they are encoded by.
    layout
        "dense", "sparse" or "auto" (see :func:`is_sparse`).
    """

    def __init__(self, schema: Schema, layout: Layout = "auto") -> None:
        is_sparse(schema, 0, layout)
        self._schema, self._layout = schema, layout
        self._batches: list[EncodedBatch] = []

    def write(self, batch: EncodedBatch) -> None:
        """Append the rows of a batch."""
        self._batches.append(batch)

    def finish(self, rows: int) -> Any:
        """All rows, as an array or a sparse one."""
        features = len(self._schema.feature_names)
        if is_sparse(self._schema, rows, self._layout):
            parts = [batch.to_sparse(features) for batch in self._batches]
            # Batches, parts and rows must not all be in memory at once.
            self._batches.clear()
            return sparse.vstack([sparse.csr_array((0, features)), *parts], format="csr")
        dense = np.zeros((rows, features))
        start = 0
        for batch in self._batches:
            batch.write_into(dense[start : start + batch.counts.rows])
            start += batch.counts.rows
        return dense


def assemble(
    batches: Iterable[EncodedBatch],
    schema: Schema,
    *,
    layout: Layout = "auto",
    store: RowsStore | None = None,
) -> EncodedRows:
    """Put encoded batches together.

    Parameters
    ----------
    batches
        In the order of the rows.
    schema
        The public description they were encoded by.
    layout
        "dense", "sparse" or "auto" (see :func:`is_sparse`).
    store
        Where the rows go instead of memory.
    """
    if store is not None and layout == "sparse":
        raise DataError(
            "layout must be 'dense' or 'auto' when rows are written to a file; got 'sparse': "
            "leave out into or layout"
        )
    store = store or RowsInMemory(schema, layout)
    labels: list[NDArray[np.int64]] = []
    parties: list[pa.StringArray] = []
    counts = Counts(columns={column.name: ColumnCounts() for column in schema.columns})
    for batch in batches:
        counts += batch.counts
        if batch.labels is not None:
            labels.append(batch.labels)
        if batch.parties is not None:
            parties.append(batch.parties)
        store.write(batch)
    codes, names = (None, ()) if schema.party is None else _coded(parties)
    unlabelled = counts.rows > 0 and not labels
    return EncodedRows(
        rows=store.finish(counts.rows),
        labels=None if unlabelled else np.concatenate([np.zeros(0, np.int64), *labels]),
        classes=schema.classes,
        feature_names=schema.feature_names,
        counts=counts,
        schema_sha256=schema.sha256,
        party_codes=codes,
        parties=names,
    )


def _coded(parties: list[pa.StringArray]) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Codes of the cells of a party column, and the names in order of appearance."""
    chunks = pa.chunked_array(parties, pa.string()).combine_chunks()
    coded = pc.fill_null(chunks, "missing").dictionary_encode()
    return coded.indices.to_numpy().astype(np.int64), tuple(coded.dictionary.to_pylist())


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
