"""A first schema from a PUBLIC sample.

The bounds and levels of a draft come from the sample and reveal its rows: never draft from private
rows.
"""

from __future__ import annotations

import difflib
import math
import re
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpadmm.data.encode import assemble, encode_batch
from dpadmm.data.schema import (
    DEFAULT_MISSING_VALUES,
    CategoricalColumn,
    Column,
    Label,
    NumericColumn,
    Schema,
)
from dpadmm.data.tables import Source, check_type, find_delimiter, read_table
from dpadmm.data.values import cells_as_numbers, cells_as_text
from dpadmm.errors import DataError
from dpadmm.plain import Array

MAX_LEVELS: Final = 50
DRAFT_WARNING: Final = (
    "the sample must be public: the schema is shared, and bounds and levels learnt from private "
    "rows leak them; no privacy budget covers that"
)
COMMA_HINT: Final = (
    "numbers are written with a comma in the sample, so that the schema says decimal = "
    '",": if commas stand between thousands, take them out instead'
)

# The number that each map of a schema is asked for by.
_MAPS: Final = {"fourier": "features", "polynomial": "degree"}
# Where the median of a skewed column lies between its bounds, at most, and how large the upper
# bound of a count must be for its logarithm to matter. Checked on training rows: see the guide.
_SKEWED: Final = 0.1
_LARGE: Final = 20
# The same for a column that has its lower bound in half of the rows, or nearly so.
_AT_ZERO: Final = 0.02
# Where most rows are nearly zero, a constant still has to stand out from noise.
_LEAST_CONSTANT: Final = 0.1
_MOST_NAMES: Final = 5
_FROM_ZERO: Final = (0.0, 1.0)
# Names of columns that say who a row is.
_IDENTIFIERS: Final = frozenset({"id", "ids", "identifier", "uuid", "guid", "ssn", "mrn"})
# A column may be an identifier if at least this share of its whole numbers or texts differ.
_DISTINCT_NUMBERS: Final = 0.95
_DISTINCT_TEXTS: Final = 0.5
# Where at least this share of cells are numbers, so many other words or fewer mark missing values.
_MOSTLY_NUMBERS: Final = 0.8
_MOST_MARKS: Final = 3
# With fewer rows, most values of any column occur once.
_FEWEST_ROWS: Final = 20
_MANY_ROWS: Final = 50
_DATE: Final = (
    r"^([0-9]{4}-[0-9]{1,2}-[0-9]{1,2}|[0-9]{1,2}[./-][0-9]{1,2}[./-][0-9]{2,4})([T ].*)?$"
)


class Draft(NamedTuple):
    """A schema to correct by hand, and sentences: what looks odd, and why numbers are scaled so."""

    schema: Schema
    hints: tuple[str, ...]


def draft_schema(sample: Source, label: str, **told: Any) -> Schema:
    """The schema of :func:`draft`, which has the same parameters."""
    return draft(sample, label, **told).schema


def draft(
    sample: Source,
    label: str,
    *,
    party: str | None = None,
    constant: bool | float = False,
    max_levels: int = MAX_LEVELS,
    delimiter: str | None = None,
    **maps: int | None,
) -> Draft:
    """Infer a schema from a public sample, to be read through and corrected by hand.

    A column whose known cells are all numbers is numeric, with the smallest and largest as bounds
    (widened by one where they are equal); any other is categorical, with its most frequent values
    as levels and the rest left to ``other``. A column has ``missing`` where the sample has a
    missing value. A few words without a digit among a column's numbers, such as "n/a", mark missing
    values, which a hint says. How the sample's numbers lie between their bounds decides their
    ``range``, whether they get ``transform = "log1p"``, and the constant's weight; a hint gives the
    reason for each. The classes are the label's values in order. Columns that look like identifiers
    or hold dates are left out: the schema ignores them, and a hint says so. A delimiter other than
    usual is found by the names of label and party, and told by the schema; so are commas in
    numbers.

    Parameters
    ----------
    sample
        A file, an Arrow table or a pandas frame: PUBLIC rows.
    label
        Name of the column to predict.
    party
        Name of the column with the owner of each row, if there is one.
    constant
        Whether the schema asks for a constant column, or with which weight; True leaves the weight
        to the sample: half the median norm of its rows where that is below 1, and else 1.
    max_levels
        The most levels of a categorical column.
    delimiter
        Between the cells of a CSV file; found unless given.
    **maps
        ``fourier``: how many random Fourier features rows become, with the default scale.
        ``polynomial``: 2 for products of every two encoded columns.
    """
    if max_levels < 1:
        raise DataError(f"max_levels must be 1 or more; got {max_levels}")
    delimiter = delimiter or find_delimiter(sample, [name for name in (label, party) if name])
    table = read_table(sample, delimiter=delimiter)
    _check_sample(table, label, party)
    told: dict[str, Any] = {"constant": constant, "party": party, "delimiter": delimiter}
    told |= {name: {_MAPS[name]: each} for name, each in maps.items() if each is not None}
    return _draft_of(table, label, max_levels, told)


def _draft_of(table: pa.Table, label: str, max_levels: int, told: dict[str, Any]) -> Draft:
    """Return what the cells say, beside what the caller said."""
    others = [name for name in table.schema.names if name not in (label, told["party"])]
    marks = _marks(table.select(others))
    table = _without(table, marks)
    columns = table.select(others)
    comma = any(_has_commas(_known_texts(cells)) for cells in columns.columns)
    drafted = _draft_columns(columns, max_levels, comma)
    odd = {
        column.name: why
        for column in drafted
        if (why := _why_left_out(column, _known_texts(table[column.name]))) is not None
    }
    if len(odd) == len(drafted):
        raise DataError(
            "sample must have a column besides the label that is neither an identifier nor a date; "
            f"got only {', '.join(map(repr, odd))}"
        )
    found = {
        "version": 2,
        "label": _draft_label(label, table[label], max_levels),
        "columns": tuple(column for column in drafted if column.name not in odd),
        "ignore": tuple(odd),
        "decimal": "," if comma else None,
        "missing_values": (*DEFAULT_MISSING_VALUES, *marks),
    }
    hints = [COMMA_HINT] if comma else []
    if marks:
        hints.append(
            f"{', '.join(map(repr, marks))} among numbers is taken for a missing value in all "
            "columns, under missing_values: if it says more, take it out there"
        )
    scaled, reasons = _scaled(Schema.from_dict(found | told), table)
    return Draft(scaled, (*hints, *odd.values(), *reasons))


def _scaled(schema: Schema, table: pa.Table) -> tuple[Schema, list[str]]:
    """Choose what becomes of numbers, and the constant's weight; say why. The sample is public."""
    logs: list[str] = []
    zeros: list[str] = []
    columns: list[Column] = []
    comma = schema.decimal == ","
    for column in schema.columns:
        if isinstance(column, NumericColumn):
            texts = _known_texts(table[column.name])
            values = cells_as_numbers(texts, decimal_comma=comma)
            if column.lower >= 0 and column.upper >= _LARGE and _usual(column, values) < _SKEWED:
                column = column.model_copy(update={"transform": "log1p"})
                logs.append(column.name)
            if _usual(column, values) < _AT_ZERO:
                column = column.model_copy(update={"range": _FROM_ZERO})
                zeros.append(column.name)
        columns.append(column)
    chosen = Schema.from_dict(schema.model_dump() | {"columns": tuple(columns)})
    reasons = []
    if logs:
        reasons.append(
            f'{_named(logs)} transform = "log1p": half of the sample lies in the lowest '
            f"{_SKEWED:.0%} of the range, and the logarithm tells small numbers apart"
        )
    if zeros:
        reasons.append(
            f"{_named(zeros)} range = [0, 1]: half of the sample lies at the lower bound, which "
            "becomes 0 and takes up none of the row's norm; other numbers get [-1, 1]"
        )
    if chosen.constant is True and chosen.polynomial is None:
        norm = _median_norm(chosen, table)
        # Rounding makes a row of norm 1 a little shorter.
        if norm < 1 - 1e-9:
            weight = float(f"{max(norm / 2, _LEAST_CONSTANT):.1g}")
            chosen = Schema.from_dict(chosen.model_dump() | {"constant": weight})
            reasons.append(
                f"the constant has the weight {weight:g}, about half the median norm of the "
                f"sample's rows ({norm:.2g}): one of 1 would take up most of their norm of 1"
            )
    return chosen, reasons


def _named(names: list[str]) -> str:
    shown = ", ".join(map(repr, names[:_MOST_NAMES]))
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return f"column {shown} has" if len(names) == 1 else f"columns {shown}{more} have"


def _usual(column: NumericColumn, values: Array) -> float:
    """Where the median of the sample lies between the bounds, from 0 to 1."""
    lower, upper = column.bounds
    return float((np.median(column.transformed(values)) - lower) / (upper - lower))


def _median_norm(schema: Schema, table: pa.Table) -> float:
    """The median norm of the sample's rows without the constant; 1 where it is more."""
    plain = Schema.from_dict(schema.model_dump() | {"constant": False})
    batches = [encode_batch(batch, plain) for batch in table.to_batches()]
    rows = assemble(batches, plain, layout="dense").rows
    return float(np.median(np.linalg.norm(rows, axis=1)))


def _draft_columns(table: pa.Table, max_levels: int, comma: bool) -> tuple[Column, ...]:
    if not table.num_columns:
        raise DataError("sample must have a column besides the label; got none")
    named = zip(table.schema.names, table.columns, strict=True)
    return tuple(_draft_column(name, cells, max_levels, comma) for name, cells in named)


def _marks(table: pa.Table) -> tuple[str, ...]:
    """The words that stand for a missing value in columns of numbers."""
    found: set[str] = set()
    for cells in table.columns:
        texts = _known_texts(cells)
        comma = cells_as_numbers(texts, decimal_comma=True)
        numbers = np.isfinite(cells_as_numbers(texts)) | np.isfinite(comma)
        words = texts.filter(pa.array(~numbers)).unique().to_pylist()
        few = len(words) <= _MOST_MARKS and numbers.sum() >= _MOSTLY_NUMBERS * len(numbers)
        if few and not any(re.search("[0-9]", word) for word in words):
            found.update(words)
    return tuple(sorted(found))


def _without(table: pa.Table, marks: tuple[str, ...]) -> pa.Table:
    """The table with nothing in place of the marks."""
    for place, (name, cells) in enumerate(zip(table.schema.names, table.columns, strict=True)):
        texts = cells_as_text(cells.combine_chunks())
        if marks and pc.any(marked := pc.is_in(texts, pa.array(marks, pa.string()))).as_py():
            table = table.set_column(place, name, pc.if_else(marked, None, texts))
    return table


def _has_commas(texts: pa.Array) -> bool:
    """Whether cells are numbers only if a comma in them is read as a point."""
    if not len(texts) or np.isfinite(cells_as_numbers(texts)).all():
        return False
    return bool(np.isfinite(cells_as_numbers(texts, decimal_comma=True)).all())


def _why_left_out(column: Column, texts: pa.Array) -> str | None:
    """Return the hint that a column is left out; None if it is not. The sample is public."""
    left_out = "the draft leaves it out, under ignore"
    if _are_dates(texts):
        return (
            f"column {column.name!r} holds dates, each of which would be a level of its own: "
            f"{left_out}; to learn from it, turn it into a number, such as days since a public day"
        )
    if (why := _identifier(column, texts)) is not None:
        return (
            f"column {column.name!r} looks like an identifier ({why}), which says who a row is and "
            f"predicts nothing of others: {left_out}; if it is none, describe it under [[columns]]"
        )
    return None


def _are_dates(texts: pa.Array) -> bool:
    return bool(len(texts)) and bool(pc.all(pc.match_substring_regex(texts, _DATE)).as_py())


def _identifier(column: Column, texts: pa.Array) -> str | None:
    """Return why a column may identify a person; None if nothing hints at it."""
    words = re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", column.name).lower()
    if _IDENTIFIERS & set(re.split(r"[^a-z0-9]+", words)):
        return "by its name"
    rows, distinct = len(texts), len(texts.unique())
    if rows < _FEWEST_ROWS:
        return None
    if isinstance(column, CategoricalColumn):
        return "most values differ" if distinct >= _DISTINCT_TEXTS * rows else None
    # Measurements differ from row to row, too; many whole numbers seldom do, unless they count up.
    whole = bool(pc.all(pc.match_substring_regex(texts, "^[+-]?[0-9]+$")).as_py())
    count_up = column.upper - column.lower < 2 * rows
    odd = whole and (count_up or rows >= _MANY_ROWS) and distinct >= _DISTINCT_NUMBERS * rows
    return "nearly all values differ" if odd else None


def _check_sample(table: pa.Table, label: str, party: str | None) -> None:
    names = table.schema.names
    for role, name in (("label", label), ("party", party)):
        if name is not None and name not in names:
            plain = {known.casefold(): known for known in names}
            near = difflib.get_close_matches(name.casefold(), plain, n=1)
            hint = f". Did you mean {plain[near[0]]!r}?" if near else ""
            raise DataError(
                f"{role} must be one of the columns {', '.join(names)}; got {name!r}{hint}"
            )
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


def _draft_column(name: str, cells: pa.ChunkedArray, max_levels: int, comma: bool) -> Column:
    texts = _known_texts(cells)
    values = cells_as_numbers(texts, decimal_comma=comma)
    missing = len(texts) < len(cells)
    if len(values) and np.isfinite(values).all():
        lower, upper = float(values.min()), float(values.max())
        if lower == upper:
            lower, upper = math.floor(lower) - 1.0, math.ceil(upper) + 1.0
        return NumericColumn(name=name, lower=lower, upper=upper, missing=missing)
    counted = texts.value_counts().to_pylist()
    counted.sort(key=lambda entry: (-entry["counts"], entry["values"]))
    levels = sorted(entry["values"] for entry in counted[:max_levels])
    # A column without a known cell still needs a level; rows then are `missing` or `other`.
    return CategoricalColumn(name=name, levels=tuple(levels) or ("unknown",), missing=missing)
