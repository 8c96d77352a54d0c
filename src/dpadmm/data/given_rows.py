"""Rows, labels and owners as a caller gives them, whatever they hold.

If the classes are public, the content of a row must neither stop a run nor show in a message. A row
with a cell that is not a finite number counts as a row of zeros, and a label that is not a class as
the first class. What a row becomes depends on that row alone. The module refuses only what it sees
without looking at cells: the shape of a table and the type of an array. The owner of a row is
public: the module refuses a missing owner before it looks at a row.
"""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from dpadmm.data.feature_maps import FeatureMap, asked_map, fourier_map, polynomial_map
from dpadmm.data.values import bytes_of, codes_of, is_frame, text_of
from dpadmm.errors import ParameterError, positive_integer
from dpadmm.plain import Array, canonical_json
from dpadmm.problem.rows import Rows, prepare_rows

_NUMBERS: Final = "biuf"
_OBJECTS: Final = "OSUT"


def finite_rows(X: Any) -> Rows:
    """Return a table as finite numbers: dense, or sparse if it was sparse."""
    # Silences overflow, and warnings of objects that are turned into numbers.
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _finite_sparse(X) if sparse.issparse(X) else _finite_dense(X)


def _finite_sparse(X: Any) -> sparse.csr_array:
    _check_type(X.dtype, _NUMBERS)
    _check_shape(X.shape)
    rows = sparse.csr_array(X, dtype=np.float64, copy=True)
    rows.sum_duplicates()
    owner = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
    wrong = np.zeros(rows.shape[0], np.bool_)
    wrong[owner[~np.isfinite(rows.data)]] = True
    rows.data[wrong[owner]] = 0.0
    return rows


def _finite_dense(X: Any) -> Array:
    if is_frame(X):
        # Column by column, since one of them may hold objects and the others numbers.
        _check_shape(X.shape)
        columns = [numbers_of(X.iloc[:, number].to_numpy()) for number in range(X.shape[1])]
        rows = np.stack(columns, axis=1)
    else:
        given = as_array(X, "X")
        _check_shape(given.shape)
        rows = np.ascontiguousarray(numbers_of(given))
    wrong = np.logical_not(np.isfinite(rows).all(axis=1, keepdims=True))
    if wrong.any():
        rows = np.where(wrong, 0.0, rows)
    return rows


def as_array(values: Any, name: str) -> NDArray[Any]:
    """Return an array. Of a list it has objects: any other type would depend on all of them."""
    try:
        if hasattr(values, "__array__"):
            return np.asarray(values)
        return np.array(values, dtype=object)
    except Exception:
        raise ParameterError(
            f"{name} must be an array or nested lists; got {type(values).__name__}."
        ) from None


def numbers_of(values: NDArray[Any]) -> Array:
    """Return the numbers of any array; NaN for what is no number."""
    _check_type(values.dtype, _NUMBERS + _OBJECTS)
    if values.dtype.kind in _OBJECTS:
        values = values.astype(object)
    try:
        return values.astype(np.float64)
    except Exception:
        flat = values.ravel()
        numbers = [_number(flat[place : place + 1]) for place in range(flat.size)]
        return np.array(numbers, np.float64).reshape(values.shape)


def _number(cell: NDArray[Any]) -> float:
    try:
        return float(cell.astype(np.float64)[0])
    except Exception:
        return np.nan


def _check_type(kind: np.dtype[Any], known: str) -> None:
    if kind.kind not in known:
        raise ParameterError(f"X must hold numbers; got an array of the type {kind}.")


def _check_shape(shape: tuple[int, ...]) -> None:
    if len(shape) != 2 or 0 in shape:
        raise ParameterError(
            "X must be a table with at least one row and one feature, each row as long as the "
            f"others; got an array of shape {shape}."
        )


def class_codes(y: Any, classes: ArrayLike, count: int) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """The classes in order, and the number of each label's class among them.

    A label is a class that it equals or, as in files, whose text it has (``"1"`` is 1).
    """
    known = _classes(classes)
    if y is None:
        raise ParameterError("y must be given; got None.")
    labels = as_array(y, "y")
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.shape != (count,):
        raise ParameterError(
            f"y must be one label for each of the {count} rows; got an array of shape "
            f"{labels.shape}."
        )
    if labels.dtype.kind in _NUMBERS and known.dtype.kind in _NUMBERS:
        place = np.searchsorted(known, labels).clip(0, len(known) - 1)
        return known, np.where(known[place] == labels, place, 0)
    values = labels.astype(object).tolist()
    codes = _equal(values, known)
    rest = np.flatnonzero(codes < 0)
    texts = pa.array([bytes_of(values[number]) for number in rest], pa.large_binary())
    codes[rest] = codes_of(texts, [str(text_of(name)) for name in known.tolist()], ())
    return known, np.maximum(codes, 0)


def _classes(classes: ArrayLike) -> NDArray[Any]:
    try:
        known = np.unique(np.asarray(classes))
        texts = {text_of(name) for name in known.tolist()}
    except (TypeError, ValueError):
        texts = {None}
    if None in texts:
        raise ParameterError(
            "classes must be a list of numbers or of texts, none of them missing; got one that "
            "cannot be put in order."
        )
    if len(known) < 2:
        raise ParameterError(f"classes must be at least two; got {known.tolist()}.")
    return known


def _equal(values: list[Any], known: NDArray[Any]) -> NDArray[np.intp]:
    """The number of the class that each value equals; -1 for none."""
    codes = {name: code for code, name in enumerate(known.tolist())}
    found = np.full(len(values), -1, np.intp)
    for number, value in enumerate(values):
        try:
            found[number] = codes.get(value, -1)
        except Exception:
            # A value that cannot be hashed or compared is no class.
            continue
    return found


@dataclass(frozen=True)
class Preparation:
    """How to prepare each row for training: a norm of at most 1, whatever the other rows are.

    Attributes
    ----------
    data_norm, appended
        The divisor of a row, and the number that is then appended to it; None for none.
    fourier, polynomial
        What an estimator asks of :mod:`dpadmm.data.feature_maps`; None for nothing. A map comes
        first: it acts on the columns as they are given.
    """

    data_norm: float
    appended: float | None
    fourier: Mapping[str, Any] | int | None = None
    polynomial: Mapping[str, Any] | int | None = None

    @property
    def scale(self) -> dict[str, Any]:
        """What to divide weights by, and the constant appended for the intercept."""
        return {"data_norm": self.data_norm, "intercept_scale": self.appended}

    @property
    def least_constant(self) -> float | None:
        """The smallest constant of a row within ``data_norm``; None where none is appended."""
        if self.appended is None or self.fourier is not None:
            return None
        return self.appended / math.hypot(1.0, self.appended)

    def feature_map(self, columns: int) -> FeatureMap | None:
        """The map of rows with this many columns; None for none."""
        return asked_map(self.fourier, self.polynomial, columns)

    def features(self, columns: int) -> int:
        """Return how many weights each output has for rows with this many columns."""
        told = self.feature_map(columns)
        return (columns if told is None else told.outputs) + (self.appended is not None)

    def mapped(self, rows: Rows) -> Rows:
        """What weights act on: the rows as they were given, or what a map makes of them."""
        told = self.feature_map(rows.shape[1])
        return rows if told is None else told.of_rows(rows)

    def rows(self, rows: Rows) -> Rows:
        """The rows, prepared."""
        mapped = self.mapped(rows)
        if self.fourier is not None:
            # They have norm 1 as they are.
            return mapped
        return prepare_rows(
            mapped,
            data_norm=self.data_norm,
            fit_intercept=self.appended is not None,
            intercept_scale=self.appended or 1.0,
        )

    def word(self, columns: int, classes: NDArray[Any]) -> str:
        """Return a digest of the preparation and the classes: beside its plan they decide a run."""
        fourier = None if self.fourier is None else fourier_map(self.fourier, columns).model_dump()
        facts = {**self.scale, "fourier": fourier, "classes": [str(name) for name in classes]}
        if self.polynomial is not None:
            facts["polynomial"] = {"degree": polynomial_map(self.polynomial, columns).degree}
        return hashlib.sha256(canonical_json(facts).encode()).hexdigest()


def row_owners(parties: ArrayLike) -> NDArray[Any]:
    """Return the owner of each row, with names that can be sorted; refuse all others."""
    # A list is read as objects: numpy would turn NaN among texts into a text.
    given = as_array(parties, "parties").ravel()
    if given.dtype.kind not in "biuSU" and any(map(_is_missing, given.tolist())):
        raise ParameterError(
            "parties must name the owner of every row; got a missing value, such as None or NaN. "
            "Name its owner, or leave the row out."
        )
    owners = np.asarray(parties)
    try:
        np.unique(owners)
    except TypeError:
        kinds = sorted({type(name).__name__ for name in given.tolist()})
        raise ParameterError(
            "parties must be numbers or texts, not both, so that they can be put in order; got "
            f"{', '.join(kinds)}. Turn all into texts."
        ) from None
    return owners


def _is_missing(name: Any) -> bool:
    try:
        return name is None or bool(name != name)
    except (TypeError, ValueError):
        # NA of pandas is neither equal to itself nor different.
        return True


def rows_of_owners(owners: NDArray[Any], count: int) -> tuple[NDArray[Any], list[NDArray[np.intp]]]:
    """Names of the owners, and the numbers of each one's rows."""
    if owners.shape != (count,):
        raise ParameterError(
            f"parties must name the owner of each of the {count} rows; "
            f"got an array of shape {owners.shape}."
        )
    names, codes = np.unique(owners, return_inverse=True)
    return names, [np.flatnonzero(codes == code) for code in range(len(names))]


def even_split(
    count: int, n_parties: int, random: np.random.RandomState
) -> tuple[NDArray[Any], list[NDArray[np.intp]]]:
    """Split rows without owners at random; return the parties' numbers and each one's rows."""
    n_parties = positive_integer("n_parties", n_parties)
    if n_parties > count:
        raise ParameterError(
            f"n_parties must be at most the number of rows; got n_parties={n_parties} "
            f"for n_samples={count}."
        )
    shuffled = np.asarray(random.permutation(count))
    return np.arange(n_parties), np.array_split(shuffled, n_parties)


def label_epsilons(label_epsilon: ArrayLike, count: int) -> Array:
    """One number for each row."""
    try:
        chosen = np.asarray(label_epsilon, dtype=np.float64)
    except (TypeError, ValueError):
        raise ParameterError(
            "label_epsilon must be one number for each row; got something else."
        ) from None
    if chosen.shape != (count,):
        raise ParameterError(
            f"label_epsilon must be one number for each of the {count} rows; got an "
            f"array of shape {chosen.shape}."
        )
    return chosen
