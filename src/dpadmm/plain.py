"""Plain values: numbers and JSON in one form each, and text of others made safe to show."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, PlainSerializer

Array = NDArray[np.float64]
# Integers modulo 2^64: how a summand travels.
Words = NDArray[np.uint64]


def json_number(value: float) -> float | str | None:
    """A number as JSON has it: "infinite" for what it has no figure for, None for no number."""
    if math.isfinite(value):
        return value
    return None if math.isnan(value) else "infinite" if value > 0 else "-infinite"


def json_data(value: Any) -> Any:
    """Data that JSON has a word for: lists for arrays, text for keys, words for numbers."""
    if isinstance(value, Mapping):
        return {str(key): json_data(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return json_data(value.tolist())
    if isinstance(value, (list, tuple)):
        return [json_data(item) for item in value]
    return json_number(value) if isinstance(value, float) else value


def number_of(value: Any) -> Any:
    """What :func:`json_number` wrote, as a number again; anything else as it is."""
    return math.inf if value == "infinite" else -math.inf if value == "-infinite" else value


def json_bound(value: float) -> float | str:
    """An upper bound as JSON has it: what is no number bounds nothing, and is infinite."""
    return value if math.isfinite(value) else "infinite"


def _bound(value: Any) -> Any:
    return number_of(json_bound(value) if isinstance(value, float) else value)


#: An upper bound from 0 to infinity, as it is saved and read.
Epsilon = Annotated[
    float, BeforeValidator(_bound), Field(ge=0), PlainSerializer(json_bound, when_used="json")
]
Delta = Annotated[float, Field(ge=0, le=1)]


def canonical_json(
    value: Any, *, allow_nan: bool = False, default: Callable[[Any], Any] | None = None
) -> str:
    """The one JSON text of a value: what is hashed must not depend on how it was written.

    Parameters
    ----------
    value
        Data for JSON.
    allow_nan, default
        As :func:`json.dumps` has them, for what is hashed before it is checked.
    """
    separators = (",", ":")
    return json.dumps(
        value, sort_keys=True, separators=separators, allow_nan=allow_nan, default=default
    )


#: Longer texts are cut: they come from others.
LONGEST_TEXT: Final = 300

# Letters to Unicode, but nothing to see: fillers, a blank, joiners, selectors of variants.
_BLANK: Final = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0"
    + "".join(map(chr, range(0x180B, 0x1810)))
    + "".join(map(chr, range(0xFE00, 0xFE10)))
    + "".join(map(chr, range(0xE0100, 0xE01F0)))
)


def visible(text: str, *, longest: int = LONGEST_TEXT, keep: str = "") -> str:
    r"""Escape what would not be seen, or would do something, where the text is shown.

    Control characters (``\x1b``, line breaks), those that turn the direction of writing
    (``\u202e``) or have no width (``\u200b``), half characters and blanks other than the space
    become their escapes; what is too long is cut and ends in dots.

    Parameters
    ----------
    text
        Of anybody.
    longest
        Characters at most.
    keep
        Characters that stay, such as the line breaks of a text that is ours.
    """
    shown = "".join(
        letter
        if letter in keep or (letter.isprintable() and letter not in _BLANK)
        else letter.encode("unicode_escape").decode("ascii")
        for letter in text[: longest + 1]
    )
    return shown if len(shown) <= longest else shown[: longest - 3] + "..."
