"""Cells of any kind as text, numbers and codes; what a cell becomes depends on that cell only.

Numbers are written in decimal (``-1.5``, ``.5``, ``2e3``); texts are compared after trimming
ASCII white space; numbers and booleans are compared with levels and classes as the texts ``1``
and ``true``; bytes that are not UTF-8 are read as Latin-1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dpadmm.schema import WHITESPACE

__all__ = ["are_listed", "cells_as_numbers", "cells_as_text", "codes_of"]

DECIMAL: Final = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"


def _strings(cells: pa.Array) -> pa.StringArray:
    """Cells as text, untrimmed: numbers and booleans as a schema writes them."""
    kind = cells.type
    if pa.types.is_dictionary(kind):
        return _strings(cells.dictionary_decode())
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        try:
            return cells.cast(pa.string())
        except pa.ArrowInvalid:
            return pa.array(map(_decode, cells.to_pylist()), pa.string())
    if pa.types.is_floating(kind):
        numbers = cells.cast(pa.float64())
        values = numbers.fill_null(0.0).to_numpy()
        whole = (np.trunc(values) == values) & (np.abs(values) < 2.0**53)
        integers = pa.array(np.where(whole, values, 0.0).astype(np.int64)).cast(pa.string())
        texts = pc.if_else(pa.array(whole), integers, numbers.cast(pa.string()))
        return pc.if_else(numbers.is_valid(), texts, pa.scalar(None, pa.string()))
    return cells.cast(pa.string())


def _decode(cell: bytes | None) -> str | None:
    if cell is None:
        return None
    try:
        return cell.decode("utf-8")
    except UnicodeDecodeError:
        return cell.decode("latin-1")


def _trimmed(texts: pa.StringArray) -> pa.StringArray:
    return pc.utf8_trim(texts, WHITESPACE)


def cells_as_text(cells: pa.Array) -> pa.StringArray:
    """Cells as they are compared with levels and classes; null stays null."""
    return _trimmed(_strings(cells))


def cells_as_numbers(cells: pa.Array) -> NDArray[np.float64]:
    """Cells as numbers; NaN for what is no decimal number."""
    kind = cells.type
    if pa.types.is_dictionary(kind):
        return cells_as_numbers(cells.dictionary_decode())
    if pa.types.is_null(kind):
        return np.full(len(cells), np.nan)
    if pa.types.is_boolean(kind):
        cells = cells.cast(pa.int8())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        return _parsed(_strings(cells))
    return _to_numpy(cells.cast(pa.float64(), safe=False))


def _parsed(texts: pa.StringArray) -> NDArray[np.float64]:
    # Arrow's parser stops at the first text that is no number. What it takes without stopping
    # is what the pattern takes, plus spellings of NaN and infinity, which are missing either
    # way: so the short cut changes no value.
    try:
        return _to_numpy(texts.cast(pa.float64()))
    except pa.ArrowInvalid:
        texts = _trimmed(texts)
        decimal = pc.match_substring_regex(texts, DECIMAL)
        numbers = pc.if_else(decimal, texts, pa.scalar(None, pa.string()))
        return _to_numpy(numbers.cast(pa.float64()))


def _to_numpy(numbers: pa.DoubleArray) -> NDArray[np.float64]:
    values: NDArray[np.float64] = numbers.to_numpy(zero_copy_only=False)
    return values


def codes_of(cells: pa.Array, known: Sequence[str]) -> tuple[NDArray[np.int64], pa.StringArray]:
    """Place of every cell in a list of texts (-1: not there), and the cells as text."""
    texts = _strings(cells)
    values = pa.array(known, pa.string())
    places = pc.index_in(texts, value_set=values)
    if places.null_count:
        # Most files hold no white space around cells: trim only when something did not match.
        texts = _trimmed(texts)
        places = pc.index_in(texts, value_set=values)
    return places.fill_null(-1).to_numpy().astype(np.int64), texts


def are_listed(texts: pa.StringArray, known: Sequence[str]) -> NDArray[np.bool_]:
    """Which texts are null or in a list."""
    listed = pc.is_in(texts, value_set=pa.array(known, pa.string()))
    result: NDArray[np.bool_] = pc.or_(listed, texts.is_null()).to_numpy(zero_copy_only=False)
    return result
