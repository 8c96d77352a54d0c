"""Plain values: one form for numbers, text and JSON, and text made safe to show, also as HTML."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer

Array = NDArray[np.float64]
# Integers modulo 2^64: the form in which a summand is sent.
Words = NDArray[np.uint64]


def json_number(value: float) -> float | str | None:
    """A number for JSON: "infinite" for an infinite one, None for NaN."""
    if math.isfinite(value):
        return value
    return None if math.isnan(value) else "infinite" if value > 0 else "-infinite"


def json_data(value: Any) -> Any:
    """Data for JSON: arrays become lists, keys text, infinite numbers words."""
    if isinstance(value, Mapping):
        return {str(key): json_data(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return json_data(value.tolist())
    if isinstance(value, (list, tuple)):
        return [json_data(item) for item in value]
    return json_number(value) if isinstance(value, float) else value


def number_of(value: Any) -> Any:
    """Turn what :func:`json_number` wrote back into a number; return anything else as it is."""
    return math.inf if value == "infinite" else -math.inf if value == "-infinite" else value


def json_bound(value: float) -> float | str:
    """An upper bound for JSON; NaN bounds nothing and becomes "infinite"."""
    return value if math.isfinite(value) else "infinite"


def _bound(value: Any) -> Any:
    return number_of(json_bound(value) if isinstance(value, float) else value)


#: An upper bound from 0 to infinity, in its saved form.
Epsilon = Annotated[
    float, BeforeValidator(_bound), Field(ge=0), PlainSerializer(json_bound, when_used="json")
]
Delta = Annotated[float, Field(ge=0, le=1)]


def canonical_json(
    value: Any, *, allow_nan: bool = False, default: Callable[[Any], Any] | None = None
) -> str:
    """The canonical JSON text of a value: a hash must not depend on how it was written.

    Parameters
    ----------
    value
        Data for JSON.
    allow_nan, default
        As in :func:`json.dumps`, for values that are hashed before they are checked.
    """
    separators = (",", ":")
    return json.dumps(
        value, sort_keys=True, separators=separators, allow_nan=allow_nan, default=default
    )


WHITESPACE: Final = " \t\n\v\f\r"
"""The characters trimmed off a cell: ASCII only, in a schema as in a file."""


def canonical_text(value: object) -> str:
    """The canonical text of a level or class: ``1``, ``1.0`` and ``" 1"`` agree."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    return str(value).strip(WHITESPACE)


def _text(value: Any) -> Any:
    return canonical_text(value) if isinstance(value, (str, bool, int, float)) else value


Text = Annotated[str, BeforeValidator(_text)]

Name = Annotated[str, BeforeValidator(_text), Field(min_length=1)]

Finite = Annotated[float, Field(allow_inf_nan=False)]


class Part(BaseModel):
    """A part of a settings file: frozen, without conversions or unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def as_tuple(value: Any) -> Any:
    """Turn a list from a TOML file into a tuple; return anything else as it is."""
    return tuple(value) if isinstance(value, list) else value


Texts = Annotated[tuple[Text, ...], BeforeValidator(as_tuple)]

Names = Annotated[tuple[Name, ...], BeforeValidator(as_tuple)]

#: Longer texts from others are cut.
LONGEST_TEXT: Final = 300

# Letters to Unicode, but invisible: fillers, a blank, joiners, variation selectors.
_BLANK: Final = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0"
    + "".join(map(chr, range(0x180B, 0x1810)))
    + "".join(map(chr, range(0xFE00, 0xFE10)))
    + "".join(map(chr, range(0xE0100, 0xE01F0)))
)


def visible(text: str, *, longest: int = LONGEST_TEXT, keep: str = "") -> str:
    r"""Escape characters that would be invisible, or would do something, when shown.

    Control characters (``\x1b``, line breaks), those that turn the direction of writing
    (``\u202e``) or have no width (``\u200b``), half characters and blanks other than the space
    become their escapes. A text that is too long is cut and ends in dots.

    Parameters
    ----------
    text
        Text from anybody.
    longest
        Characters at most.
    keep
        Characters to keep, such as the line breaks of our own text.
    """
    shown = "".join(
        letter
        if letter in keep or (letter.isprintable() and letter not in _BLANK)
        else letter.encode("unicode_escape").decode("ascii")
        for letter in text[: longest + 1]
    )
    return shown if len(shown) <= longest else shown[: longest - 3] + "..."


_LONGEST_CELL: Final = 10_000
_LEFT: Final = ' style="text-align:left;vertical-align:top"'


def html_table(
    rows: Iterable[Iterable[object]], *, columns: Iterable[str] = (), headline: str = ""
) -> str:
    """A table for notebooks, every text escaped; the first cell of a row is its heading.

    Parameters
    ----------
    rows
        Cells, which are shown as text.
    columns
        Headings of the columns.
    headline
        What stands above.
    """

    def cells(texts: Iterable[object], first: str, others: str) -> str:
        told = [html.escape(visible(str(text), longest=_LONGEST_CELL)) for text in texts]
        kinds = [first, *[others] * (len(told) - 1)]
        pairs = zip(kinds, told, strict=True)
        return f"<tr>{''.join(f'<{kind}{_LEFT}>{text}</{kind}>' for kind, text in pairs)}</tr>"

    head, named = html.escape(visible(headline, longest=_LONGEST_CELL)), tuple(columns)
    lines = [cells(named, "th", "th")] if named else []
    lines += [cells(row, "th", "td") for row in rows]
    return (f"<p><b>{head}</b></p>" if head else "") + f"<table>{''.join(lines)}</table>"
