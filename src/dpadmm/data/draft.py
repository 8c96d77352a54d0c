"""A first schema from a PUBLIC sample.

Bounds and levels of a draft are what the sample holds, so they tell about the sample's rows:
never draft from private rows.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpadmm.data.schema import (
    DEFAULT_MISSING_VALUES,
    CategoricalColumn,
    Column,
    Label,
    NumericColumn,
    Schema,
)
from dpadmm.data.tables import Source, check_type, read_table
from dpadmm.data.values import cells_as_numbers, cells_as_text
from dpadmm.sentences import DataError

__all__ = ["DRAFT_WARNING", "MAX_LEVELS", "draft_schema"]

MAX_LEVELS: Final = 50
DRAFT_WARNING: Final = (
    "the sample must be public: the schema is shared, and bounds and levels learnt from private "
    "rows leak them; no privacy budget covers that"
)


def draft_schema(
    sample: Source,
    label: str,
    *,
    party: str | None = None,
    constant: bool | float = False,
    max_levels: int = MAX_LEVELS,
    delimiter: str | None = None,
    fourier: int | None = None,
) -> Schema:
    """Infer a schema from a public sample, to be read through and corrected by hand.

    A column whose known cells are all numbers is numeric, with the smallest and largest as
    bounds (widened by one where they are equal); any other is categorical, with its most
    frequent values as levels and the rest left to ``other``. The classes are the label's
    values in order.

    Parameters
    ----------
    sample
        A file, an Arrow table or a pandas frame: PUBLIC rows.
    label
        Name of the column to predict.
    party
        Name of the column that says whose row it is, if there is one.
    constant
        Whether the schema asks for a constant column, or with which weight.
    max_levels
        The most levels of a categorical column.
    delimiter
        Between the cells of a CSV file.
    fourier
        How many random Fourier features rows become, with the default scale; none unless given.
    """
    if max_levels < 1:
        raise DataError(f"max_levels must be 1 or more; got {max_levels}")
    table = read_table(sample, delimiter=delimiter)
    _check_sample(table, label, party)
    names = [name for name in table.schema.names if name not in (label, party)]
    columns = tuple(_draft_column(name, table[name], max_levels) for name in names)
    if not columns:
        raise DataError("sample must have a column besides the label; got none")
    drafted = _draft_label(label, table[label], max_levels)
    return Schema.from_dict(
        {"version": 2, "label": drafted, "columns": columns, "constant": constant}
        | {"party": party, "fourier": None if fourier is None else {"features": fourier}}
    )


def _check_sample(table: pa.Table, label: str, party: str | None) -> None:
    names = table.schema.names
    for role, name in (("label", label), ("party", party)):
        if name is not None and name not in names:
            raise DataError(f"{role} must be one of the columns {', '.join(names)}; got {name!r}")
    for name in names:
        check_type(name, table.schema.field(name).type, "the sample", as_number=False)
    if not table.num_rows:
        raise DataError("sample must have at least one row; got none")


def _draft_label(name: str, cells: pa.ChunkedArray, max_levels: int) -> Label:
    classes = sorted(_known_texts(cells).unique().to_pylist())
    if len(classes) < 2:
        raise DataError(
            f"label must have at least two values in the sample; {name!r} has {len(classes)}"
        )
    if len(classes) > max_levels:
        raise DataError(
            f"label must have at most max_levels = {max_levels} values; {name!r} has "
            f"{len(classes)}: choose another column or raise max_levels"
        )
    return Label(column=name, classes=tuple(classes))


def _known_texts(cells: pa.ChunkedArray) -> pa.Array:
    texts = cells_as_text(cells.combine_chunks())
    missing = pc.is_in(texts, value_set=pa.array(DEFAULT_MISSING_VALUES, pa.string()))
    return texts.filter(pc.and_not(texts.is_valid(), missing))


def _draft_column(name: str, cells: pa.ChunkedArray, max_levels: int) -> Column:
    texts = _known_texts(cells)
    values = cells_as_numbers(texts)
    if len(values) and np.isfinite(values).all():
        lower, upper = float(values.min()), float(values.max())
        if lower == upper:
            lower, upper = math.floor(lower) - 1.0, math.ceil(upper) + 1.0
        return NumericColumn(name=name, lower=lower, upper=upper)
    counted = texts.value_counts().to_pylist()
    counted.sort(key=lambda entry: (-entry["counts"], entry["values"]))
    levels = sorted(entry["values"] for entry in counted[:max_levels])
    # A column without a known cell still needs a level; rows then are `missing` or `other`.
    return CategoricalColumn(name=name, levels=tuple(levels) or ("unknown",))
