"""From values to places on a drawing, and the round numbers to label."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

__all__ = ["Scale", "scale_over"]

# Beyond these, sums and ratios leave the range of doubles; nothing that is plotted is there.
_SMALLEST: Final = 1e-280
_LARGEST: Final = 1e280


@dataclass(frozen=True)
class Scale:
    """Maps [low, high] to [start, end], linearly or by logarithms."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def shows(self, value: float) -> bool:
        """Whether a value has a place."""
        return _usable(value, self.log)

    def at(self, value: float) -> float:
        """The place of a value, two digits after the point."""
        low, high, value = (
            (math.log10(self.low), math.log10(self.high), math.log10(value))
            if self.log
            else (self.low, self.high, value)
        )
        return round(self.start + (self.end - self.start) * (value - low) / (high - low), 2)

    def ticks(self, wanted: int = 5) -> tuple[float, ...]:
        """Round values between low and high."""
        if not self.log:
            return _linear_ticks(self.low, self.high, wanted)
        first, last = math.ceil(math.log10(self.low) - 1e-9), math.log10(self.high) + 1e-9
        decades = [float(f"1e{power}") for power in range(first, math.floor(last) + 1)]
        if len(decades) > wanted:
            return tuple(decades[:: math.ceil(len(decades) / wanted)])
        if len(decades) >= 3:
            return tuple(decades)
        between = (
            factor * 10.0**power
            for power in range(first - 1, math.floor(last) + 1)
            for factor in (1, 2, 5)
        )
        found = tuple(value for value in between if self.low <= value * (1 + 1e-9) <= self.high)
        return found if len(found) >= 2 else _linear_ticks(self.low, self.high, wanted)


def _linear_ticks(low: float, high: float, wanted: int) -> tuple[float, ...]:
    rough = (high - low) / wanted
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return tuple(
        round(place * step, 12) if step > 1e-9 else place * step for place in range(first, last + 1)
    )


def _usable(value: float, log: bool) -> bool:
    return abs(value) < _LARGEST and (value > _SMALLEST or not log)


def scale_over(
    values: Iterable[float], start: float, end: float, *, log: bool = False, from_zero: bool = False
) -> Scale:
    """A scale that shows all these values with a little room; some scale if there are none."""
    usable = [value for value in values if _usable(value, log)]
    if not usable:
        usable = [0.1, 1.0] if log else [0.0, 1.0]
    low, high = min(usable), max(usable)
    if log:
        if high < low * 1.2:
            low, high = low / 2, high * 2
        return Scale(low / 1.08, high * 1.08, start, end, log=True)
    if from_zero:
        low, high = min(low, 0.0), max(high, 0.0)
    size = max(abs(low), abs(high))
    if size < _SMALLEST:
        low, high = -1.0, 1.0
    elif high - low <= 1e-9 * size:
        low, high = low - 0.5 * size, high + 0.5 * size
    room = 0.05 * (high - low)
    return Scale(
        low if from_zero and low == 0 else low - room,
        high if from_zero and high == 0 else high + room,
        start,
        end,
    )
