r"""Random Fourier features: a public map that lets a linear classifier draw curves.

.. math:: z(x) = m^{-1/2}\,\bigl(\cos(w_1 \cdot x / s), \ldots, \cos(w_m \cdot x / s),
          \sin(w_1 \cdot x / s), \ldots, \sin(w_m \cdot x / s)\bigr)

with m public frequencies :math:`w_k`, standard normal, and the scale s. Its length is 1 for every
row, since :math:`\cos^2 + \sin^2 = 1`, and :math:`z(x) \cdot z(x')` is on average
:math:`\exp(-\|x - x'\|^2 / 2 s^2)` (Rahimi and Recht, 2007): rows further apart than a few s have
nothing to do with each other. What a row becomes depends on that row and on public numbers, so a
guarantee for rows of norm 1 holds for it as it is.

The frequencies are the same for all time and everywhere. ``SHAKE-256("dpadmm-fourier/1 <seed>")``
gives 8 bytes, little-endian, for each number: the components of the first frequency, then of the
second, and so on. The upper 53 bits k of the 8 bytes make :math:`(k + 1/2)\,2^{-53}`, and the
number is where the normal distribution function has that value. The bytes are exact; the numbers,
and the cosines after them, may differ by rounding from one machine to another, which no other
party notices.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Annotated, Any, Final

import numpy as np
from pydantic import BeforeValidator, ValidationError
from scipy import sparse
from scipy.special import ndtri

from dpadmm.errors import ParameterError
from dpadmm.plain import Array
from dpadmm.problem.rows import Rows
from dpadmm.sentences import Part, fail, finding, shown_value

LARGEST_FEATURES: Final = 4096
"""The most frequencies; a message has two numbers for each of them and each output."""

_LARGEST_SEED: Final = 2**63 - 1
# Beyond these all rows are the same to the last digit, or angles have no digits left.
_SCALES: Final = (1e-9, 1e9)
_STREAM: Final = "dpadmm-fourier/1"
# Angles of so many bytes at a time stay in a processor's cache.
_BLOCK_BYTES: Final = 2**18


def _as_features(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= LARGEST_FEATURES:
        raise fail(
            f"must be a whole number from 1 to {LARGEST_FEATURES}, the number of frequencies; got "
            f"{shown_value(value)}: correct it"
        )
    return value


def _as_scale(value: Any) -> Any:
    least, most = _SCALES
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if value is not None and not (number and least <= value <= most):
        raise fail(
            f"must be a number from {least:g} to {most:g}, the distance at which rows begin to "
            f"differ; got {shown_value(value)}: correct it, or leave it out"
        )
    return None if value is None else float(value)


def _as_seed(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _LARGEST_SEED:
        raise fail(
            f"must be a whole number from 0 to 2^63 - 1; got {shown_value(value)}: correct it"
        )
    return value


class FourierMap(Part):
    """Which random Fourier features rows become: public, and the same for all parties.

    Parameters
    ----------
    features
        How many frequencies; each makes a cosine and a sine, so rows get twice as many columns.
    scale
        How far rows must be apart to be told apart, in units of the columns. None stands for
        :func:`default_scale`.
    seed
        Which frequencies; it hides nothing and is shared like the rest.
    """

    features: Annotated[int, BeforeValidator(_as_features)]
    scale: Annotated[float | None, BeforeValidator(_as_scale)] = None
    seed: Annotated[int, BeforeValidator(_as_seed)] = 0

    @property
    def outputs(self) -> int:
        """How many columns a mapped row has."""
        return 2 * self.features

    @property
    def names(self) -> tuple[str, ...]:
        """Names of these columns, in order."""
        numbers = range(1, self.features + 1)
        return (*(f"cosine {k}" for k in numbers), *(f"sine {k}" for k in numbers))

    def with_scale(self, scale: float) -> FourierMap:
        """The same map; with this scale where it has none."""
        return self if self.scale is not None else self.model_copy(update={"scale": scale})


def default_scale(widths: Iterable[float], categories: int) -> float:
    r"""A scale from the public columns alone.

    .. math:: s = \sqrt{\sum_j (r_j / 12)^2 + k}

    for numeric columns with ranges of width :math:`r_j` (2 for [-1, 1]) and k categorical ones.
    The two numbers were chosen on training rows of eight public sets and of Adult.

    Parameters
    ----------
    widths
        The widths of the numeric columns' ranges.
    categories
        The number of categorical columns.
    """
    return math.sqrt(sum((width / 12) ** 2 for width in widths) + categories)


def fourier_map(given: Any, columns: int) -> FourierMap:
    """Return the map that an estimator uses on this many numeric columns in [-1, 1].

    Parameters
    ----------
    given
        A mapping with ``features`` and, if wanted, ``scale`` and ``seed``.
    columns
        How many columns rows have before.
    """
    if not isinstance(given, Mapping):
        raise ParameterError(
            "fourier must be None or a mapping such as {'features': 150, 'scale': 0.5, 'seed': 0}; "
            f"got {shown_value(given)}."
        )
    try:
        plain = {
            name: value.item() if isinstance(value, np.generic) else value
            for name, value in given.items()
        }
        told = FourierMap.model_validate(plain)
    except ValidationError as error:
        raise ParameterError(
            "fourier: " + finding(error, lambda place: ", ".join(map(str, place))) + "."
        ) from None
    return told.with_scale(default_scale([2.0] * columns, 0))


@lru_cache(maxsize=4)
def frequencies(told: FourierMap, columns: int) -> Array:
    """What columns are multiplied by: ``(columns, features)``, divided by the scale; read-only."""
    assert told.scale is not None
    count = told.features * columns
    stream = hashlib.shake_256(f"{_STREAM} {told.seed}".encode("ascii")).digest(8 * count)
    upper = np.frombuffer(stream, "<u8") >> np.uint64(11)
    normal = ndtri((upper + 0.5) * 2.0**-53)
    scaled: Array = np.ascontiguousarray(normal.reshape(told.features, columns).T) / told.scale
    scaled.flags.writeable = False
    return scaled


def block_rows(features: int) -> int:
    """Return how many rows to map at a time to this many frequencies."""
    return max(1, _BLOCK_BYTES // (8 * features))


def map_angles(angles: Array, out: Array) -> None:
    r"""Write :math:`m^{-1/2}(\cos a, \sin a)` of ``(rows, features)`` angles.

    A row with an angle that is not finite becomes that of a row of zeros.
    """
    wrong = ~np.isfinite(angles).all(axis=1)
    if wrong.any():
        angles[wrong] = 0.0
    features = angles.shape[1]
    weight = 1.0 / math.sqrt(features)
    np.multiply(np.cos(angles), weight, out=out[:, :features])
    np.multiply(np.sin(angles), weight, out=out[:, features:])


def map_rows(rows: Rows, told: FourierMap) -> Array:
    """The Fourier features of dense or sparse rows of finite numbers, each row by itself."""
    count, columns = rows.shape
    known = frequencies(told, columns)
    mapped = np.empty((count, told.outputs))
    step = block_rows(told.features)
    # Numbers may be of any size: an overflow gives no warning.
    with np.errstate(all="ignore"):
        for start in range(0, count, step):
            part = rows[start : start + step]
            angles = part @ known if sparse.issparse(part) else _angles(part, known)
            map_angles(angles, mapped[start : start + step])
    return mapped


def _angles(rows: Array, known: Array) -> Array:
    # One column after the other: the bits of a product of matrices depend on how many rows there
    # are, and what a row becomes must not depend on the others.
    angles = np.zeros((len(rows), known.shape[1]))
    for values, row in zip(rows.T, known, strict=True):
        angles += values[:, np.newaxis] * row
    return angles
