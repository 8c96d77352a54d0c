"""Randomised response of the labels of a file, where they are collected."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from dpadmm.data.tables import CSV_SUFFIXES, PARQUET_SUFFIXES, check_type, own_words, read_table
from dpadmm.data.values import cells_as_numbers, cells_as_text, codes_of, holds_text, valid_text
from dpadmm.durable import check_writable, written_whole
from dpadmm.errors import DataError, ParameterError
from dpadmm.plain import canonical_text
from dpadmm.privacy.events import LabelRandomizedResponse
from dpadmm.privacy.mechanisms import randomize_labels
from dpadmm.privacy.noise import secure_noise


def randomize_label_file(
    source: Path,
    output: Path,
    label: str,
    classes: tuple[str, str | None],
    strength: float | str,
    *,
    delimiter: str | None = None,
) -> tuple[int, LabelRandomizedResponse]:
    """Flip each label with probability ``1 / (1 + e^epsilon)``; return the rows and the event.

    Parameters
    ----------
    source, output
        A CSV or Parquet file, and the new one to make.
    label
        Name of the label column.
    classes
        The positive label and the other one, which any cell that is neither counts as; without
        the other the column must hold two labels.
    strength
        Epsilon of every label, or the name of the column with each label's own.
    delimiter
        Between the cells of a CSV file.
    """
    positive, negative = classes
    _check_output(output)
    with own_words(source):
        table = read_table(source, delimiter=delimiter)
        if not table.num_rows:
            raise DataError(f"IN must have at least one row; {source} has none")
        cells = _column(table, label, source)
        both = _classes(cells, label, positive, negative)
        signs = _signs(cells, label, both, named=negative is not None)
        epsilon: Any = strength
        if isinstance(strength, str):
            epsilon = _epsilons(_column(table, strength, source), strength)
        stream = secure_noise().generator(0, 0, 0, "labels")
        flipped, event = randomize_labels(signs, epsilon, stream)
        reported = _like(cells, label, both, flipped > 0)
        place = table.column_names.index(label)
        told = _as_text(table.set_column(place, label, reported))
    _write(told, output)
    return table.num_rows, event


def _check_output(output: Path) -> None:
    known = (*CSV_SUFFIXES, *PARQUET_SUFFIXES)
    if output.suffix.lower() not in known:
        raise DataError(f"OUT must end in {', '.join(known)}; got {output.name!r}: rename it")
    check_writable(output, "OUT")
    if output.exists():
        raise DataError(f"OUT must be a new file; {output} is there: choose another name")


def _column(table: pa.Table, name: str, source: Path) -> pa.Array:
    if name not in table.column_names:
        # What it has instead is not listed: without a header that would be a row.
        raise DataError(f"{source} must have the column {name!r}; its first line does not name it")
    column = table.column(name).combine_chunks()
    check_type(name, column.type, str(source), as_number=False)
    return column


def _classes(cells: pa.Array, label: str, positive: str, negative: str | None) -> tuple[str, str]:
    """The negative and the positive label."""
    first = canonical_text(positive)
    if negative is not None:
        second = canonical_text(negative)
        if second == first:
            raise ParameterError(f"--negative must differ from --positive; got {negative!r}.")
        return second, first
    others = [cell for cell in cells_as_text(cells).unique().to_pylist() if cell is not None]
    others = [cell for cell in others if codes_of(pa.array([cell]), [first], [])[0] != 0]
    if len(others) != 1:
        raise DataError(
            f"column {label!r} must hold --positive and one other label; it holds {len(others)} "
            "others: correct it, or name the other with --negative"
        )
    return others[0], first


def _signs(
    cells: pa.Array, label: str, classes: tuple[str, str], *, named: bool
) -> NDArray[np.float64]:
    """-1 or +1 of every row; a cell that is neither is -1, or refused if nobody named the two."""
    codes = codes_of(cells, classes, [])
    if not named and not (known := np.isin(codes, (0, 1))).all():
        raise DataError(
            f"column {label!r} must hold {classes[0]!r} or {classes[1]!r} in every row; row "
            f"{int(np.argmin(known)) + 1} holds something else: correct it, or name the other "
            "label with --negative"
        )
    return np.where(codes == 1, 1.0, -1.0)


def _epsilons(cells: pa.Array, name: str) -> NDArray[np.float64]:
    values = cells_as_numbers(cells)
    if not (usable := (values > 0) & (values < np.inf)).all():
        raise DataError(
            f"column {name!r} must hold a positive number in every row; row "
            f"{int(np.argmin(usable)) + 1} does not: correct it"
        )
    return values


def _like(
    cells: pa.Array, label: str, classes: tuple[str, str], positive: NDArray[np.bool_]
) -> pa.Array:
    """The reported labels, of the type that the column has."""
    kind = cells.type.value_type if pa.types.is_dictionary(cells.type) else cells.type
    try:
        both = pa.array(classes).cast(kind)
    except pa.ArrowException:
        raise DataError(
            f"--positive and --negative must be of the type of column {label!r}, {kind}; got "
            f"{classes[1]!r} and {classes[0]!r}"
        ) from None
    return both.take(pa.array(positive.astype(np.int64)))


def _write(table: pa.Table, output: Path) -> None:
    parquet = output.suffix.lower() in PARQUET_SUFFIXES
    options = pyarrow.csv.WriteOptions(
        delimiter="\t" if output.suffix.lower() == ".tsv" else ",", quoting_style="needed"
    )
    # It has the other columns of private rows.
    with written_whole(output, "OUT", private=True) as file:
        try:
            if parquet:
                pyarrow.parquet.write_table(table, file)
            else:
                pyarrow.csv.write_csv(table, file, options)
        except pa.ArrowException:
            raise DataError(
                f"OUT must be of a kind that takes all columns of IN; {output.name} cannot: "
                f"{'convert them' if parquet else 'write Parquet'}"
            ) from None


def _as_text(table: pa.Table) -> pa.Table:
    """Columns of bytes, as the cells of a CSV file are, and of strings as valid text."""
    for place, field in enumerate(table.schema):
        if holds_text(field.type):
            cells = valid_text(table.column(place).combine_chunks())
            table = table.set_column(place, field.name, cells)
    return table
