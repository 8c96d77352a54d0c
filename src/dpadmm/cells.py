"""Cells of any kind as text, numbers and codes; what a cell becomes depends on that cell only.

Numbers are written in decimal (``-1.5``, ``.5``, ``2e3``); texts are compared after trimming
ASCII white space, and ``1`` is ``1.0`` unless a list has both; booleans are the texts ``true``
and ``false``; bytes that are not UTF-8 are read as Latin-1.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dpadmm.schema import WHITESPACE, canonical_text

__all__ = ["MISSING", "OTHER", "cells_as_numbers", "cells_as_text", "codes_of", "valid_text"]

MISSING: Final = -1
OTHER: Final = -2
WHOLE: Final = re.compile(r"-?[0-9]+")
DECIMAL: Final = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"


def codes_of(
    cells: pa.Array, known: Sequence[str], missing_values: Sequence[str]
) -> NDArray[np.int64]:
    """Place of every cell in a list of texts; :data:`MISSING` or :data:`OTHER` if not there.

    A text in both lists is known. A whole number that is not there as it is written is looked
    for with or without ``.0``.
    """
    codes: dict[str | None, int] = {None: MISSING, **dict.fromkeys(missing_values, MISSING)}
    codes.update({text: code for code, text in enumerate(known)})
    texts, places = _distinct(cells)
    table = [codes[t] if t in codes else codes.get(_twin(t), OTHER) for t in texts]
    return np.array(table, np.int64).take(places)


def _twin(text: str | None) -> str:
    """Return the same whole number with or without ``.0``; programs that write files differ."""
    text = text or ""
    whole = text.removesuffix(".0")
    if not WHOLE.fullmatch(whole):
        return text
    return whole if whole != text else f"{text}.0"


def cells_as_text(cells: pa.Array) -> pa.StringArray:
    """Cells as they are compared with levels and classes; null stays null."""
    texts, places = _distinct(cells)
    return pa.array(texts, pa.string()).take(pa.array(places))


def _distinct(cells: pa.Array) -> tuple[list[str | None], NDArray[np.int64]]:
    """Every distinct cell once, as text, and where each cell is in that list."""
    if pa.types.is_temporal(cells.type):
        cells = cells.cast(pa.string())
    if not pa.types.is_dictionary(cells.type):
        cells = cells.dictionary_encode()
    texts = [_text(cell) for cell in cells.dictionary.to_pylist()]
    places = cells.indices
    if places.null_count:
        places = places.fill_null(len(texts))
    return [*texts, None], _to_numpy(places).astype(np.int64, copy=False)


def _text(cell: object) -> str | None:
    if cell is None or cell != cell:
        return None
    return canonical_text(_decoded(cell) if isinstance(cell, bytes) else cell)


def _decoded(cell: bytes) -> str:
    try:
        return cell.decode("utf-8")
    except UnicodeDecodeError:
        return cell.decode("latin-1")


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
        return _parsed(cells)
    return _or_nan(cells.cast(pa.float64(), safe=False))


def _parsed(cells: pa.Array) -> NDArray[np.float64]:
    # Arrow's parser stops at the first text that is no number. What it takes without stopping
    # is what the pattern takes, plus spellings of NaN and infinity, which are missing either
    # way: so the short cut changes no value. It reads bytes, whether they are UTF-8 or not.
    texts = cells.view(pa.string()) if pa.types.is_binary(cells.type) else cells.cast(pa.string())
    try:
        return _or_nan(texts.cast(pa.float64()))
    except pa.ArrowInvalid:
        texts = pc.utf8_trim(valid_text(cells), WHITESPACE)
        decimal = pc.match_substring_regex(texts, DECIMAL)
        numbers = pc.if_else(decimal, texts, pa.scalar(None, pa.string()))
        return _or_nan(numbers.cast(pa.float64()))


def valid_text(cells: pa.Array) -> pa.StringArray:
    """Cells as valid UTF-8."""
    try:
        return cells.cast(pa.string())
    except pa.ArrowInvalid:
        decoded = [None if cell is None else _decoded(cell) for cell in cells.to_pylist()]
        return pa.array(decoded, pa.string())


def _or_nan(numbers: pa.DoubleArray) -> NDArray[np.float64]:
    return _to_numpy(numbers.fill_null(math.nan) if numbers.null_count else numbers)


def _to_numpy(numbers: pa.Array) -> NDArray[Any]:
    # Not Arrow's to_numpy, which imports pandas wherever that is installed.
    return np.from_dlpack(numbers)
