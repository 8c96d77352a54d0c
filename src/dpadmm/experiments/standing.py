"""Whether training together beats being alone, from the figures and never by hand."""

from __future__ import annotations

import math
from typing import Final

from dpadmm.experiments.statistics import Interval

__all__ = ["BEATS", "BELOW", "LEVEL_WITH", "percent", "standing"]

BEATS: Final = "beats"
BELOW: Final = "does not beat"
LEVEL_WITH: Final = "cannot be told from"


def standing(together: Interval, alone: float) -> str:
    """How a mean over runs stands to a number: above it, below it, or neither for sure.

    Parameters
    ----------
    together
        A mean with its interval; that of a single run has no width known, and its value decides.
    alone
        What it is held against.
    """
    if not (math.isfinite(together.low) and math.isfinite(together.high)):
        return BEATS if together.mean > alone else BELOW
    if together.low > alone:
        return BEATS
    return BELOW if together.high <= alone else LEVEL_WITH


def percent(share: float) -> str:
    """A share of rows in words."""
    return f"{100 * share:.1f}%"
