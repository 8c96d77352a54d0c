r"""The slope of the logistic loss for many margins at once, compiled to vector instructions.

.. math:: l'(m) = -\frac{1}{1 + e^m}

Half of a pass over the rows of repeated runs goes into this exponential: numpy and scipy take it
one number at a time, except where a processor has AVX-512, and no library that is installed here
does otherwise. Written out as below, the compiler takes four or eight at a time.

**Method.** :math:`e^m = 2^k e^r` with :math:`|r| \le \tfrac12\ln 2`; ln 2 is subtracted in two
parts (Cody and Waite), and the Taylor polynomial of degree 13 is off by less than ``1e-17``. The
slope is off by about one unit in the last place of 1.
"""

from __future__ import annotations

import math
from typing import Final

import numba
import numpy as np

from dpadmm.arrays import Array

__all__ = ["logistic_slopes"]

_PER_LN2: Final = 1.0 / math.log(2.0)
# ln 2 in two parts; the first has so few digits that its product with k is exact.
_LN2_HIGH: Final = float.fromhex("0x1.62e42feep-1")
_LN2_LOW: Final = float.fromhex("0x1.a39ef35793c76p-33")
# Adding this rounds to an integer, which then stands in the lowest bits.
_ROUND: Final = 1.5 * 2.0**52
_EXPONENT_BITS: Final = 52
_EXPONENT_ZERO: Final = 1023 << 52
# Beyond this the slope is 0 or -1 to the last place.
_FAR: Final = 700.0
_TAYLOR: Final = tuple(1.0 / math.factorial(power) for power in range(14))
(_C0, _C1, _C2, _C3, _C4, _C5, _C6, _C7, _C8, _C9, _C10, _C11, _C12, _C13) = _TAYLOR


@numba.njit(cache=True, nogil=True, fastmath={"contract"}, error_model="numpy")
def logistic_slopes(margins: Array) -> Array:
    """Overwrite a flat array of margins with the slopes there; NaN stays NaN."""
    for place in range(margins.size):
        margin = margins[place]
        # Comparisons rather than min and max: these would hide NaN.
        margin = -_FAR if margin < -_FAR else margin
        margin = _FAR if margin > _FAR else margin
        shifted = margin * _PER_LN2 + _ROUND
        power = shifted - _ROUND
        rest = (margin - power * _LN2_HIGH) - power * _LN2_LOW
        series = _C13
        series = series * rest + _C12
        series = series * rest + _C11
        series = series * rest + _C10
        series = series * rest + _C9
        series = series * rest + _C8
        series = series * rest + _C7
        series = series * rest + _C6
        series = series * rest + _C5
        series = series * rest + _C4
        series = series * rest + _C3
        series = series * rest + _C2
        series = series * rest + _C1
        series = series * rest + _C0
        bits = np.float64(shifted).view(np.int64) << _EXPONENT_BITS
        scale = np.int64(bits + _EXPONENT_ZERO).view(np.float64)
        margins[place] = -1.0 / (1.0 + series * scale)
    return margins
