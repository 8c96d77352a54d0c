"""Plain values: arrays of numbers, and text of others made safe to show."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["LONGEST_TEXT", "Array", "Words", "visible"]


Array = NDArray[np.float64]


# Integers modulo 2^64: how a summand travels.
Words = NDArray[np.uint64]


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
