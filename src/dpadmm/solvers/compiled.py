r"""The logistic loss and its slope for many margins at once, compiled to vector instructions.

.. math:: l(m) = \ln(1 + e^{-m}), \qquad l'(m) = -\frac{1}{1 + e^m}

Half of a pass over the rows of repeated runs goes into these: numpy and scipy take exponentials
one number at a time, except where a processor has AVX-512, and no library that is installed here
does otherwise. Written out as below, the compiler takes four or eight at a time.

**Method.** :math:`e^x = 2^k e^r` with :math:`|r| \le \tfrac12\ln 2`; ln 2 is subtracted in two
parts (Cody and Waite), and the Taylor polynomial of degree 13 is off by less than ``1e-17``. With
:math:`u = e^{-|m|}` and :math:`z = (u - a) / (2 + u + a)`, the loss is :math:`\max(-m, 0) +
\ln(1 + a) + 2\,\mathrm{artanh}\,z`; ``a = 0.4`` keeps z below 0.18, and the series is cut where
a term is below ``1e-17``. Slopes and losses are off by about a unit in the last place of 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numba
import numpy as np

from dpadmm.plain import Array

_PER_LN2: Final = 1.0 / math.log(2.0)
# ln 2 in two parts; the first has so few digits that its product with k is exact.
_LN2_HIGH: Final = float.fromhex("0x1.62e42feep-1")
_LN2_LOW: Final = float.fromhex("0x1.a39ef35793c76p-33")
# Adding this rounds to an integer, which then stands in the lowest bits.
_ROUND: Final = 1.5 * 2.0**52
_EXPONENT_BITS: Final = 52
_EXPONENT_ZERO: Final = 1023 << 52
# Beyond this a slope is 0 or -1 to the last place, and a loss 0 or -m.
_FAR: Final = 700.0
# Coefficients from the highest power down: of e^r, and of artanh(z) / z in z^2.
_EXPONENTIAL: Final = tuple(1.0 / math.factorial(power) for power in range(13, -1, -1))
_ARTANH: Final = tuple(1.0 / (2 * power + 1) for power in range(10, -1, -1))
_MIDDLE: Final = 0.4
_LOG_MIDDLE: Final = math.log1p(_MIDDLE)


def compiled(**options: Any) -> Callable[[Any], Any]:
    """Compile a function; a product and a sum may become one instruction.

    Nothing else is relaxed unless told, NaN least of all.
    """
    given: dict[str, Any] = {"fastmath": {"contract"}, "nogil": True, "error_model": "numpy"}
    compiler: Callable[[Any], Any] = numba.njit(**(given | options))
    return compiler


@compiled(inline="always")
def exponential(exponent: float) -> float:
    """``e^x`` for x within :data:`_FAR` of 0; beyond, that at the end."""
    # Comparisons rather than min and max: these would hide NaN.
    exponent = -_FAR if exponent < -_FAR else exponent
    exponent = _FAR if exponent > _FAR else exponent
    shifted = exponent * _PER_LN2 + _ROUND
    power = shifted - _ROUND
    rest = (exponent - power * _LN2_HIGH) - power * _LN2_LOW
    series = 0.0
    for coefficient in _EXPONENTIAL:
        series = series * rest + coefficient
    bits = np.float64(shifted).view(np.int64) << _EXPONENT_BITS
    return series * np.int64(bits + _EXPONENT_ZERO).view(np.float64)


@compiled(cache=True)
def logistic_slopes(margins: Array) -> Array:
    """Overwrite a flat array of margins with the slopes there; NaN stays NaN."""
    for place in range(margins.size):
        margins[place] = -1.0 / (1.0 + exponential(margins[place]))
    return margins


@compiled(cache=True)
def logistic_losses(margins: Array) -> Array:
    """Overwrite a flat array of margins with the losses there; NaN stays NaN."""
    for place in range(margins.size):
        margin = margins[place]
        small = exponential(-abs(margin))
        ratio = (small - _MIDDLE) / (2.0 + small + _MIDDLE)
        square = ratio * ratio
        series = 0.0
        for coefficient in _ARTANH:
            series = series * square + coefficient
        margins[place] = (-margin if margin < 0.0 else 0.0) + (_LOG_MIDDLE + 2.0 * ratio * series)
    return margins
