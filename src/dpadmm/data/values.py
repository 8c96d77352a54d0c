"""Cells of any kind as text, numbers and codes; what a cell becomes depends on that cell only.

Numbers are written in decimal (``-1.5``, ``.5``, ``2e3``), where a schema says so also with a comma
(``-1,5``); texts are compared after trimming ASCII white space, and ``1`` is ``1.0`` unless a list
has both; booleans are the texts ``true`` and ``false``; bytes that are not UTF-8 are read as
Latin-1.

A :class:`Spelling` says how a party's own file writes texts and numbers. It is no part of what a
row means: like the delimiter, its keys are no part of a schema's hash, so that parties whose files
are written differently train together. With every spelling, every cell becomes something.

Every column type that :func:`is_readable` takes is first brought to bytes, booleans or numbers
(nobody vouches that a column of strings holds UTF-8). A cell that a reader stops at is missing:
:func:`_read` alone decides that.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import (
    BeforeValidator,
    PlainSerializer,
    SerializerFunctionWrapHandler,
    model_serializer,
)

from dpadmm.errors import fail, shown_value
from dpadmm.plain import WHITESPACE, Name, Part, Text, Texts, as_tuple, canonical_text

WHOLE: Final = re.compile(r"-?[0-9]+")
# White space of any script, and invisible characters: byte-order marks, joiners of width zero.
_BLANK: Final = "".join(filter(str.isspace, map(chr, range(0x3001)))) + "\ufeff\u200b\u2060"


def _one_character(value: Any) -> Any:
    if not isinstance(value, str) or len(value) != 1 or value in '"\r\n\0' or not value.isascii():
        raise fail(f"must be one ASCII character; got {shown_value(value)}: correct it")
    return value


def _as_pairs(value: Any) -> Any:
    """A table of a file as pairs, none of which replaces another that is written alike."""
    if not isinstance(value, dict):
        return as_tuple(value)
    pairs = {canonical_text(alias): meant for alias, meant in value.items()}
    if len(pairs) < len(value):
        raise fail("must list each spelling once, blanks around it aside: remove one")
    return tuple(pairs.items())


Delimiter = Annotated[str, BeforeValidator(_one_character)]
"""What stands between the cells of a CSV file."""
Aliases = Annotated[
    tuple[tuple[Text, Text], ...], BeforeValidator(_as_pairs), PlainSerializer(dict)
]
"""Other spellings, and what each of them means: a table in a file, pairs here."""


def twin(text: str | None) -> str:
    """Return the same whole number with or without ``.0``; programs that write files differ."""
    text = text or ""
    whole = text.removesuffix(".0")
    if not WHOLE.fullmatch(whole):
        return text
    return whole if whole != text else f"{text}.0"


class Spelling(Part):
    """How classes or levels are spelt in files; public, and no part of a schema's hash.

    Parameters
    ----------
    aliases
        A table of other spellings, and the class or level that each means.
    trim
        Whether to take off white space of any kind around a cell, such as no-break spaces, and
        byte-order marks; blanks, tabs and line ends always go.
    ignore_case
        Whether capital and small letters are the same.
    """

    aliases: Aliases = ()
    trim: bool = False
    ignore_case: bool = False

    @model_serializer(mode="wrap")
    def _as_written(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # Without them a part is written as before there were any, to the byte.
        return {
            key: value
            for key, value in serialize(self).items()
            if key not in Spelling.model_fields or value
        }

    @property
    def folds(self) -> bool:
        """Whether texts that differ may be the same."""
        return self.trim or self.ignore_case

    def folded(self, text: str) -> str:
        """A text as it is compared."""
        if self.trim:
            text = text.strip(_BLANK)
        return text.casefold() if self.ignore_case else text

    def check_spelling(self, known: Sequence[str], what: str) -> None:
        """Refuse spellings with two meanings or with none; ``what`` is the key of ``known``."""
        meanings: dict[str, str] = {}
        for text in known:
            same = meanings.setdefault(self.folded(text), text)
            if same != text:
                key = "ignore_case" if same.casefold() == text.casefold() else "trim"
                raise fail(
                    f"{what} must differ by more than {key} lets differ; got {same!r} and "
                    f"{text!r}: remove one of them, or {key}"
                )
        for alias, meant in self.aliases:
            if meant not in known:
                raise fail(
                    f"aliases must mean one of the {what}; got {shown_value(alias)} for "
                    f"{shown_value(meant)}, which is none: correct it"
                )
            key = self.folded(alias)
            same = meanings.get(key, meanings.get(twin(key), meant))
            if same != meant:
                raise fail(
                    f"aliases must have one meaning each; {alias!r} is {same!r} and {meant!r}: "
                    "remove one"
                )
            meanings[key] = meant


class Reading(Part):
    """How one file is written; what is not given is as the schema says.

    Parameters
    ----------
    delimiter
        Between the cells of a CSV file.
    decimal
        ``","`` where numbers may be written with a comma.
    missing_marks
        Texts that mean a missing value, beside the schema's.
    aliases
        For the label or a categorical column, by its name: a table of other spellings, and the
        class or level that each means, beside the schema's.
    trim, ignore_case
        As in :class:`Spelling`, for the label and all categorical columns.
    """

    delimiter: Delimiter | None = None
    decimal: Literal[".", ","] | None = None
    missing_marks: Texts | None = None
    aliases: dict[Name, Aliases] | None = None
    trim: bool | None = None
    ignore_case: bool | None = None

    @property
    def told(self) -> dict[str, Any]:
        """The keys that were given, with their values."""
        found = {key: getattr(self, key) for key in Reading.model_fields}
        return {key: value for key, value in found.items() if value is not None}


MISSING: Final = -1
OTHER: Final = -2
DECIMAL: Final = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"


def codes_of(
    cells: pa.Array,
    known: Sequence[str],
    missing_values: Sequence[str],
    spelling: Spelling | None = None,
) -> NDArray[np.int64]:
    """Place of every cell in a list of texts; :data:`MISSING` or :data:`OTHER` if not there.

    A text in both lists is known. A whole number that is not there as it is written is looked
    for with or without ``.0``. With a spelling a cell may also be an alias of a known text, and
    all are compared as it says.
    """
    codes: dict[str | None, int] = {None: MISSING, **dict.fromkeys(missing_values, MISSING)}
    places_of = {text: code for code, text in enumerate(known)}
    texts, places = _distinct(cells)
    if spelling is not None:
        codes.update({alias: places_of[meant] for alias, meant in spelling.aliases})
    codes.update(places_of)
    if spelling is not None and spelling.folds:
        fold = _folding(spelling)
        codes = {fold(text): code for text, code in codes.items()}
        texts = [fold(text) for text in texts]
    table = [codes[t] if t in codes else codes.get(twin(t), OTHER) for t in texts]
    return np.array(table, np.int64).take(places)


def _folding(spelling: Spelling) -> Callable[[str | None], str | None]:
    return lambda text: None if text is None else spelling.folded(text)


def cells_as_text(cells: pa.Array) -> pa.StringArray:
    """Cells as they are compared with levels and classes; null stays null."""
    texts, places = _distinct(cells)
    return pa.array(texts, pa.string()).take(pa.array(places))


def is_frame(given: object) -> bool:
    """Whether something is a pandas frame, which need not be installed."""
    return hasattr(given, "columns") and hasattr(given, "iloc")


def is_table(given: object) -> bool:
    """Whether something is a table by columns: a frame of pandas or polars, or an Arrow table."""
    return is_frame(given) or hasattr(given, "__arrow_c_stream__")


def is_readable(kind: pa.DataType, *, as_number: bool) -> bool:
    """Whether cells of a type can be read at all, whatever they hold."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_temporal(kind):
        try:
            # Not with a time zone that this machine does not know.
            return not as_number and bool(pa.nulls(1, kind).cast(pa.string()))
        except pa.ArrowException:
            return False
    return kind.id in _READABLE


def holds_text(kind: pa.DataType) -> bool:
    """Whether a column holds bytes or strings, each cell by itself."""
    return kind.id in _TEXT


_TEXT: Final = {
    *(kind.id for kind in (pa.string(), pa.large_string(), pa.string_view())),
    *(kind.id for kind in (pa.binary(), pa.large_binary(), pa.binary_view())),
}
# Extension types, nested ones and bytes of one fixed size are left out.
_READABLE: Final = {
    pa.null().id,
    pa.bool_().id,
    *(pa.type_for_alias(f"{sign}int{size}").id for sign in ("", "u") for size in (8, 16, 32, 64)),
    *(pa.type_for_alias(f"float{size}").id for size in (16, 32, 64)),
    *(make(1).id for make in (pa.decimal32, pa.decimal64, pa.decimal128, pa.decimal256)),
    *_TEXT,
}


def _read(cells: pa.Array, reader: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """What a reader makes of all cells or, where one stops it, of each by itself; else null.

    The reader must make of a cell among others what it makes of the cell alone.
    """
    try:
        return reader(cells)
    except Exception:
        # Whatever the reader says is about a cell: it is dropped here.
        kind = reader(cells.slice(0, 0)).type
        return pa.concat_arrays(
            [_read_one(cells.slice(n, 1), reader, kind) for n in range(len(cells))]
        )


def _read_one(
    cell: pa.Array, reader: Callable[[pa.Array], pa.Array], kind: pa.DataType
) -> pa.Array:
    try:
        return reader(cell)
    except Exception:
        return pa.nulls(1, kind)


def _plain(cells: pa.Array) -> pa.Array:
    """Cells of one of few types: bytes, booleans, numbers, null, or a dictionary of these."""
    kind = cells.type
    if pa.types.is_dictionary(kind):
        return pa.DictionaryArray.from_arrays(cells.indices, _plain(cells.dictionary))
    if pa.types.is_temporal(kind):
        cells = _read(cells, lambda part: part.cast(pa.string()))
    elif pa.types.is_float16(kind):
        # Arrow before 26 cannot find the distinct ones of these.
        return cells.cast(pa.float32())
    elif pa.types.is_decimal(kind) and kind.bit_width < 128:
        return cells.cast(pa.decimal128(kind.precision, kind.scale))
    elif pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        return cells.cast(pa.large_binary())
    # A view does not look at the bytes, unlike a cast.
    if pa.types.is_string(cells.type):
        return cells.view(pa.binary())
    if pa.types.is_large_string(cells.type):
        return cells.view(pa.large_binary())
    return cells


def _distinct(cells: pa.Array) -> tuple[list[str | None], NDArray[np.int64]]:
    """Every distinct cell once, as text, and where each cell is in that list."""
    cells = _plain(cells)
    if not pa.types.is_dictionary(cells.type):
        cells = cells.dictionary_encode()
    texts = [text_of(cell) for cell in cells.dictionary.to_pylist()]
    places = cells.indices
    if places.null_count:
        places = places.fill_null(len(texts))
    return [*texts, None], _to_numpy(places).astype(np.int64, copy=False)


def text_of(cell: object) -> str | None:
    """Any object as it is compared with levels and classes; None if it is missing."""
    try:
        if cell is None or cell != cell:
            return None
        return canonical_text(_decoded(cell) if isinstance(cell, bytes) else cell)
    except Exception:
        # Some objects have no truth value or no text (NA of pandas, a number with too many digits).
        return None


def bytes_of(cell: object) -> bytes | None:
    """Any object as a file would hold it; None if it is missing."""
    if isinstance(cell, bytes):
        return cell
    text = text_of(cell)
    return None if text is None else text.encode("utf-8", "replace")


def _decoded(cell: bytes) -> str:
    try:
        return cell.decode("utf-8")
    except UnicodeDecodeError:
        return cell.decode("latin-1")


def cells_as_numbers(cells: pa.Array, *, decimal_comma: bool = False) -> NDArray[np.float64]:
    """Cells as numbers; NaN for what is no decimal number.

    With ``decimal_comma`` a comma in a text is read as a point; one with a point is read as ever.
    """
    cells = _plain(cells)
    if pa.types.is_dictionary(cells.type):
        cells = cells.dictionary_decode()
    kind = cells.type
    if pa.types.is_null(kind):
        return np.full(len(cells), np.nan)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        if decimal_comma:
            cells = _read(cells, lambda part: pc.replace_substring(valid_text(part), ",", "."))
            cells = _plain(cells)
        return _or_nan(_read(cells, _parsed))
    if pa.types.is_boolean(kind):
        cells = cells.cast(pa.int8())
    return _or_nan(_read(cells, lambda part: part.cast(pa.float64(), safe=False)))


def _parsed(cells: pa.Array) -> pa.DoubleArray:
    # Arrow's parser stops at the first text that is no number. What it takes without stopping
    # is what the pattern takes, plus spellings of NaN and infinity, which are missing either
    # way: so the short cut changes no value. It reads bytes, whether they are UTF-8 or not.
    texts = cells.view(pa.string() if pa.types.is_binary(cells.type) else pa.large_string())
    try:
        return texts.cast(pa.float64())
    except pa.ArrowInvalid:
        texts = pc.utf8_trim(valid_text(cells), WHITESPACE)
        decimal = pc.match_substring_regex(texts, DECIMAL)
        numbers = pc.if_else(decimal, texts, pa.scalar(None, texts.type))
        return numbers.cast(pa.float64())


def valid_text(cells: pa.Array) -> pa.Array:
    """Bytes or strings as valid UTF-8."""
    cells = _plain(cells)
    kind = pa.string() if pa.types.is_binary(cells.type) else pa.large_string()
    try:
        return cells.cast(kind)
    except pa.ArrowInvalid:
        decoded = [None if cell is None else _decoded(cell) for cell in cells.to_pylist()]
        return pa.array(decoded, kind)


def _or_nan(numbers: pa.DoubleArray) -> NDArray[np.float64]:
    return _to_numpy(numbers.fill_null(math.nan) if numbers.null_count else numbers)


def _to_numpy(numbers: pa.Array) -> NDArray[Any]:
    # Not Arrow's to_numpy, which imports pandas wherever that is installed.
    return np.from_dlpack(numbers)
