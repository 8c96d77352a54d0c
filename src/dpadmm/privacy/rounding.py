"""Sums and products of costs as exact fractions, rounded once and never towards a smaller cost.

A double is a fraction, so that sums and products of doubles are known exactly; what a double can
hold stays as it is. Where roots and logarithms come in, margins take the place of that: each stands
beside the formula that it belongs to.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from fractions import Fraction


def round_up(value: Fraction) -> float:
    """The least double that is no less; infinite beyond the largest."""
    try:
        nearest = float(value)
    except OverflowError:
        return math.inf if value > 0 else -sys.float_info.max
    return nearest if nearest >= value else math.nextafter(nearest, math.inf)


def round_down(value: Fraction) -> float:
    """The largest double that is no more."""
    return -round_up(-value)


def sum_up(terms: Iterable[float]) -> float:
    """The sum of terms that are not negative, rounded up once; infinite if one of them is."""
    every = list(terms)
    if math.inf in every:
        return math.inf
    return round_up(sum(map(Fraction, every), Fraction(0)))


def exp_up(logarithm: float) -> float:
    """Return e to this power, rounded up: positive also where it is too small for a double.

    The library's is within one unit of the last place, or of the smallest double.
    """
    return math.nextafter(math.exp(logarithm), math.inf) if logarithm else 1.0
