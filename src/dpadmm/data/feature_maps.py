r"""Public feature maps: what the columns of a row become before a classifier is trained on them.

A map uses the row and public numbers, and nothing else. What a row becomes therefore depends on
that row alone, and a guarantee for rows of norm at most 1 holds for mapped rows of such a norm.
There are two maps. A schema or an estimator names at most one of them.

**Random Fourier features** (:class:`FourierMap`) let a linear classifier draw curves.

.. math:: z(x) = m^{-1/2}\,\bigl(\cos(w_1 \cdot x / s), \ldots, \cos(w_m \cdot x / s),
          \sin(w_1 \cdot x / s), \ldots, \sin(w_m \cdot x / s)\bigr)

with m public frequencies :math:`w_k`, standard normal, and the scale s. The norm of z(x) is 1 for
every row, since :math:`\cos^2 + \sin^2 = 1`, and :math:`z(x) \cdot z(x')` is on average
:math:`\exp(-\|x - x'\|^2 / 2 s^2)` (Rahimi and Recht, 2007): rows further apart than a few s have
nothing to do with each other.

The frequencies are the same for all time and everywhere. ``SHAKE-256("dpadmm-fourier/1 <seed>")``
gives 8 bytes, little-endian, for each number: the components of the first frequency, then of the
second, and so on. The upper 53 bits k of the 8 bytes make :math:`(k + 1/2)\,2^{-53}`, and the
number is where the normal distribution function has that value. The bytes are exact; the numbers,
and the cosines after them, may differ by rounding from one machine to another, which no other
party notices.

**Degree-2 features** (:class:`PolynomialMap`) let it draw ellipses, parabolas and hyperbolas.

.. math:: z(x) = v / \max(1, \|v\|), \qquad
          v = (x_1, \ldots, x_d, \ldots, x_i x_j, \ldots, t), \quad i \le j

with the constant t, where there is one, as the last column. **The norm bound holds for every
row.** If :math:`\|v\| \le 1` then z(x) = v, whose norm is at most 1; otherwise
:math:`\|z(x)\| = \|v\| / \|v\| = 1`. No bound on x is needed for that. Arithmetic does not overflow
either: columns of a schema lie within [-1, 1], and a row of an array is first scaled down until no
number of it exceeds :data:`LARGEST_NUMBER`.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any, Final, TypeVar, final

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    BeforeValidator,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
)
from scipy import sparse
from scipy.special import ndtri

from dpadmm.errors import ParameterError, fail, finding, shown_value
from dpadmm.plain import Array, Part
from dpadmm.problem.rows import Rows

LARGEST_FEATURES: Final = 4096
"""The most frequencies; a message has two numbers for each of them and each output."""

_LARGEST_SEED: Final = 2**63 - 1
# Beyond these all rows are the same to the last digit, or angles have no digits left.
_SCALES: Final = (1e-9, 1e9)
_STREAM: Final = "dpadmm-fourier/1"
# Mapped rows of so many bytes at a time stay in a processor's cache.
_BLOCK_BYTES: Final = 2**18

PRODUCT_COLUMNS: Final = 16
"""The most columns that are multiplied with each other, unless the map says otherwise."""
LARGEST_PRODUCT_COLUMNS: Final = 64
"""The most columns that a map may ask for: with all squares they make 2,144 features."""
LARGEST_NUMBER: Final = 1e150
"""The largest number that is multiplied: its square is still far from an overflow."""


class FeatureMap(ABC):
    """A public map that is ready for rows with certain columns.

    Attributes
    ----------
    names
        Of the features of a mapped row, in order; a constant is the last.
    """

    names: tuple[str, ...]

    @property
    def outputs(self) -> int:
        """How many columns a mapped row has."""
        return len(self.names)

    @abstractmethod
    def _of_rows(self, rows: Rows) -> Array:
        """The features of a few rows of an array."""

    @abstractmethod
    def _of_entries(self, numbers: Array, places: NDArray[np.int32], entries: Array) -> Array:
        """The features of a few encoded rows, of norm at most 1."""

    @property
    def _step(self) -> int:
        return max(1, _BLOCK_BYTES // (8 * self.outputs))

    def of_rows(self, rows: Rows) -> Array:
        """Map dense or sparse rows of finite numbers, each row by itself.

        Products are not scaled down to norm 1 here: a constant is appended to them first.
        """
        mapped = np.empty((rows.shape[0], self.outputs))
        # Numbers may be of any size: an overflow gives no warning.
        with np.errstate(all="ignore"):
            for start in range(0, len(mapped), self._step):
                part = slice(start, start + self._step)
                mapped[part] = self._of_rows(rows[part])
        return mapped

    def write_entries(
        self, numbers: Array, places: NDArray[np.int32], entries: Array, out: Array
    ) -> None:
        """Write what encoded rows become, with a norm of at most 1.

        Parameters
        ----------
        numbers, places, entries
            The unscaled rows, as :class:`~dpadmm.data.encode.EncodedBatch` keeps them.
        out
            ``(rows, outputs)``.
        """
        for start in range(0, len(out), self._step):
            part = slice(start, start + self._step)
            out[part] = self._of_entries(numbers[:, part], places[:, part], entries)


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
        The number of frequencies, or a mapping with ``features`` and, if wanted, ``scale`` and
        ``seed``.
    columns
        How many columns rows have before.
    """
    if _is_whole(given):
        given = {"features": int(given)}
    elif not isinstance(given, Mapping):
        raise ParameterError(
            "fourier must be None, a whole number such as 150 or a mapping such as "
            f"{{'features': 150, 'scale': 0.5, 'seed': 0}}; got {shown_value(given)}."
        )
    told = _validated(FourierMap, given, "fourier")
    return told.with_scale(default_scale([2.0] * columns, 0))


_Told = TypeVar("_Told", bound=Part)


def _is_whole(given: Any) -> bool:
    return isinstance(given, (int, np.integer)) and not isinstance(given, bool)


def _validated(kind: type[_Told], given: Mapping[Any, Any], name: str) -> _Told:
    plain = {
        key: value.item() if isinstance(value, np.generic) else value
        for key, value in given.items()
    }
    try:
        return kind.model_validate(plain)
    except ValidationError as error:
        found = finding(error, lambda place: ", ".join(map(str, place)))
        raise ParameterError(f"{name}: {found}.") from None


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


@final
class FourierFeatures(FeatureMap):
    """Cosines and sines of rows with so many columns; a mapped row has norm 1."""

    def __init__(self, told: FourierMap, columns: int) -> None:
        self.frequencies = frequencies(told, columns)
        numbers = range(1, told.features + 1)
        self.names = (*(f"cosine {k}" for k in numbers), *(f"sine {k}" for k in numbers))

    def _of_rows(self, rows: Rows) -> Array:
        if sparse.issparse(rows):
            return _of_angles(rows @ self.frequencies)
        # One column after the other: the bits of a product of matrices depend on how many rows
        # there are, and what a row becomes must not depend on the others.
        angles = np.zeros((len(rows), self.frequencies.shape[1]))
        for values, row in zip(rows.T, self.frequencies, strict=True):
            angles += values[:, np.newaxis] * row
        return _of_angles(angles)

    def _of_entries(self, numbers: Array, places: NDArray[np.int32], entries: Array) -> Array:
        # In the order of the columns; zeros are left out. Without a constant every entry is 1.
        angles = np.zeros((numbers.shape[1], self.frequencies.shape[1]))
        for values, row in zip(numbers, self.frequencies, strict=False):
            angles += values[:, np.newaxis] * row
        for place in places:
            present = np.flatnonzero(place >= 0)
            angles[present] += self.frequencies[place[present]]
        return _of_angles(angles)


def _of_angles(angles: Array) -> Array:
    r"""Return :math:`m^{-1/2}(\cos a, \sin a)`; an angle that is not finite makes its row zeros."""
    wrong = ~np.isfinite(angles).all(axis=1)
    if wrong.any():
        angles[wrong] = 0.0
    features = angles.shape[1]
    weight = 1.0 / math.sqrt(features)
    mapped = np.empty((len(angles), 2 * features))
    np.multiply(np.cos(angles), weight, out=mapped[:, :features])
    np.multiply(np.sin(angles), weight, out=mapped[:, features:])
    return mapped


def map_rows(rows: Rows, told: FourierMap) -> Array:
    """The Fourier features of dense or sparse rows of finite numbers, each row by itself."""
    return FourierFeatures(told, rows.shape[1]).of_rows(rows)


def _as_degree(value: Any) -> Any:
    if isinstance(value, bool) or value != 2 or not isinstance(value, int):
        raise fail(
            "must be 2: products of two columns; got "
            f"{shown_value(value)}: write 2, or use Fourier features for other curves"
        )
    return value


def _as_most_columns(value: Any) -> Any:
    most = LARGEST_PRODUCT_COLUMNS
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise fail(
            f"must be a whole number from 1 to {most}, the most columns to multiply; got "
            f"{shown_value(value)}: correct it, or leave it out"
        )
    return value


class PolynomialMap(Part):
    """Products of pairs of columns beside the columns: public, and the same for all parties.

    Parameters
    ----------
    degree
        2, the largest number of columns in a product.
    most_columns
        Rows with more columns are refused, since d columns make d (d + 1) / 2 products, each with
        noise of its own. The number changes no row, and is no part of a schema's hash.
    """

    degree: Annotated[int, BeforeValidator(_as_degree)]
    most_columns: Annotated[int, BeforeValidator(_as_most_columns)] = PRODUCT_COLUMNS

    @model_serializer(mode="wrap")
    def _as_written(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {
            key: value
            for key, value in serialize(self).items()
            if key != "most_columns" or value != PRODUCT_COLUMNS
        }

    def excess(self, columns: int) -> str | None:
        """Say why this many columns are too many; None if they are not."""
        if columns <= self.most_columns:
            return None
        remedy = f"raise most_columns (up to {LARGEST_PRODUCT_COLUMNS}), "
        if columns > LARGEST_PRODUCT_COLUMNS:
            remedy = ""
        return (
            f"polynomial must have at most most_columns = {self.most_columns} encoded columns, the "
            f"constant aside; got {columns}, which make {columns * (columns + 1) // 2} products: "
            f"{remedy}leave columns out, or use fourier instead"
        )


def polynomial_map(given: Any, columns: int) -> PolynomialMap:
    """Return the map that an estimator uses on this many columns.

    Parameters
    ----------
    given
        The degree, 2, or a mapping with ``degree`` and, if wanted, ``most_columns``.
    columns
        How many columns rows have before.
    """
    if _is_whole(given):
        given = {"degree": int(given)}
    elif not isinstance(given, Mapping):
        raise ParameterError(
            "polynomial must be None, 2 or a mapping such as {'degree': 2, 'most_columns': 16}; "
            f"got {shown_value(given)}."
        )
    told = _validated(PolynomialMap, given, "polynomial")
    if (why := told.excess(columns)) is not None:
        raise ParameterError(f"{why}.")
    return told


@final
class ProductFeatures(FeatureMap):
    """Columns, their products and the constant.

    Two encoded columns of one column of a file are not multiplied, except a number with itself:
    the product of two levels is 0, and that of a level with itself is the level.

    Parameters
    ----------
    names
        Of the columns, without the constant.
    sources
        For each column, the column of a file that it encodes; the column itself unless given.
    numbers
        How many of the columns are numbers, the first ones; all unless given.
    constant
        Whether the last entry of an encoded row is a constant.
    """

    def __init__(
        self,
        names: Sequence[str],
        *,
        sources: Sequence[Hashable] | None = None,
        numbers: int | None = None,
        constant: bool = False,
    ) -> None:
        self.columns, self._constant = len(names), constant
        own = range(self.columns) if sources is None else sources
        squares = self.columns if numbers is None else numbers
        pairs = [
            (i, j)
            for i in range(self.columns)
            for j in range(i, self.columns)
            if own[i] != own[j] or (i == j and i < squares)
        ]
        self.pairs = np.array(pairs, np.intp).reshape(-1, 2).T
        products = (f"{names[i]} x {names[j]}" for i, j in pairs)
        self.names = (*names, *products, *(["constant"] * constant))

    def _products(self, columns: Array) -> Array:
        """``(columns, rows)`` with the products below; every row by itself."""
        first, second = self.pairs
        return np.concatenate([columns, columns[first] * columns[second]])

    def _of_rows(self, rows: Rows) -> Array:
        columns = (rows.toarray() if sparse.issparse(rows) else rows).T
        largest = np.abs(columns).max(axis=0)
        if largest.max(initial=0.0) > LARGEST_NUMBER:
            columns = columns / np.maximum(largest / LARGEST_NUMBER, 1.0)
        return self._products(columns).T

    def _of_entries(self, numbers: Array, places: NDArray[np.int32], entries: Array) -> Array:
        encoded = np.zeros((self.columns + self._constant, numbers.shape[1]))
        encoded[: len(numbers)] = numbers
        for place, entry in zip(places, entries, strict=True):
            present = np.flatnonzero(place >= 0)
            encoded[place[present], present] = entry
        mapped = np.concatenate([self._products(encoded[: self.columns]), encoded[self.columns :]])
        # Features are added one after the other, so that a row's norm does not depend on others.
        squares = np.zeros(mapped.shape[1])
        for values in mapped:
            squares += values * values
        mapped /= np.sqrt(np.maximum(squares, 1.0))
        return mapped.T


def asked_map(fourier: Any, polynomial: Any, columns: int) -> FeatureMap | None:
    """The map that an estimator asks for on rows with this many columns; None for none."""
    if fourier is not None and polynomial is not None:
        raise ParameterError(
            "only one of fourier and polynomial must be given; got both. Leave one out."
        )
    if fourier is not None:
        return FourierFeatures(fourier_map(fourier, columns), columns)
    if polynomial is not None:
        polynomial_map(polynomial, columns)
        return ProductFeatures([f"x{number}" for number in range(columns)])
    return None
