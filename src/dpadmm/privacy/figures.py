"""How figures of privacy are shown: a bound never tells less than it bounds.

=================  =====================================================  ======================
type               for                                                    shown
=================  =====================================================  ======================
:class:`AtMost`    what was spent, is proven, claimed or needed           rounded up
:class:`AtLeast`   what is left of a budget, what an audit has refuted    rounded down
:class:`Given`     what somebody asked for                                as it was typed
=================  =====================================================  ======================

They are numbers that have one way to be shown. A format of any other kind, which would round to
the nearest number, is refused: ``f"{AtMost(epsilon)}"`` has six digits, ``f"{AtMost(epsilon):4}"``
four, and ``f"{AtMost(epsilon):.4g}"`` is an error. Machines get all digits: ``repr`` and JSON are
those of the number.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import ClassVar, Final, final

_DIGITS: Final = 6


class _Rounded(float):
    """A number that is shown with a few digits, rounded in one direction."""

    __slots__ = ()
    _rounding: ClassVar[str]

    def __str__(self) -> str:
        return format(self, "")

    def __format__(self, digits: str) -> str:
        """Show so many significant digits, six unless told."""
        if digits and not (digits.isascii() and digits.isdigit() and int(digits) > 0):
            raise ValueError(f"a bound is shown with a number of digits alone; got {digits!r}")
        if not math.isfinite(self):
            return _infinite(self)
        wanted = int(digits) if digits else _DIGITS
        # The shortest decimal that reads as this number stands for it, so that 0.1 stays 0.1;
        # reading is monotone, hence what is shown reads as no less (no more) than the number.
        rounded = Context(prec=wanted, rounding=self._rounding).create_decimal(float.__repr__(self))
        return _written(rounded, wanted)


@final
class AtMost(_Rounded):
    """An upper bound, such as an epsilon that was spent: shown rounded up."""

    __slots__ = ()
    _rounding = ROUND_CEILING


@final
class AtLeast(_Rounded):
    """A lower bound, such as what is left of a budget: shown rounded down."""

    __slots__ = ()
    _rounding = ROUND_FLOOR


@final
class Given(float):
    """A parameter that somebody has chosen: shown as it was typed, with all its digits."""

    __slots__ = ()

    def __str__(self) -> str:
        return format(self, "")

    def __format__(self, form: str) -> str:
        """Show the shortest decimal that reads as this number."""
        if form:
            raise ValueError(f"a given number is shown as it is; got the format {form!r}")
        if not math.isfinite(self):
            return _infinite(self)
        return _written(Decimal(float.__repr__(self)), 17)


def pair(epsilon: float, delta: float) -> str:
    """Show the figures of a guarantee, ``(epsilon, delta)``; both are upper bounds."""
    return f"({AtMost(epsilon)}, {AtMost(delta)})"


def _infinite(value: float) -> str:
    if math.isnan(value):
        return "unknown"
    return "infinite" if value > 0 else "-infinite"


def _written(value: Decimal, digits: int) -> str:
    """Write all digits of a decimal, with an exponent where ``%g`` has one: 12, 0.001, 1e-5."""
    value = value.normalize(Context(prec=digits))
    if not value:
        return "0"
    if -5 < value.adjusted() < digits:
        return f"{value:f}"
    mantissa = value.scaleb(-value.adjusted())
    return f"{mantissa:f}e{value.adjusted():+d}"
