r"""From a user's columns to prepared ones, and coefficients back into the user's units.

.. math:: z_j = \frac{x_j - c_j}{w_j},\qquad
          \beta_j = \frac{\theta_j}{w_j},\qquad
          \beta_0 = \theta_0 - \sum_j \beta_j c_j

Centres c and units w are public: the middle of a column's bounds, and half of their distance times
:math:`\frac34\sqrt d` for d columns; without bounds zero and ``data_norm``. A categorical column
becomes one column of 0 and 1 for each of its levels but the first, the reference.

What a row becomes depends on that row alone. One with a cell that is no finite number, or a level
that nobody declared, becomes a fixed row (:meth:`~dpadmm.problem.rows.Shard.of_values`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

import numpy as np

from dpadmm.data.given_rows import as_array, numbers_of
from dpadmm.errors import ParameterError, positive_integer, positive_number, unknown_name
from dpadmm.plain import Array

#: Rows shorter than this part of the longest within bounds are not shortened.
ROOM: Final = 0.75


@dataclass(frozen=True)
class Column:
    """A prepared column.

    Attributes
    ----------
    name
        How its coefficient is called.
    place
        Of the user's column that it comes from.
    level
        Which level it stands for; None for a number.
    centre, unit
        c and w.
    """

    name: str
    place: int
    level: str | None = None
    centre: float = 0.0
    unit: float = 1.0


@dataclass(frozen=True)
class Design:
    """Public facts of all columns.

    Attributes
    ----------
    columns
        The prepared ones.
    width
        How many columns the user has.
    levels
        Of categorical columns by their places, the reference first.
    """

    columns: tuple[Column, ...]
    width: int
    levels: Mapping[int, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        names: Sequence[str],
        *,
        bounds: Mapping[Any, Any] | None = None,
        levels: Mapping[Any, Sequence[Any]] | None = None,
        data_norm: float = 1.0,
    ) -> Design:
        """From what is declared of columns, by their names or numbers; or a refusal."""
        if len(set(names)) < len(names):
            twice = next(name for name in names if list(names).count(name) > 1)
            raise ParameterError(f"columns must have names of their own; {twice!r} is there twice.")
        ends = {_place(key, names, "bounds"): value for key, value in (bounds or {}).items()}
        known = {
            _place(key, names, "levels"): tuple(map(str, value))
            for key, value in (levels or {}).items()
        }
        columns: list[Column] = []
        for place, name in enumerate(names):
            if place in known:
                declared = known[place]
                if len(set(declared)) < max(len(declared), 2):
                    raise ParameterError(
                        f"levels of {name} must be at least two, each of them once; got "
                        f"{list(declared)}: a column of one level is constant."
                    )
                columns += [
                    Column(f"{name}[T.{level}]", place, level, 0.5, 0.5) for level in declared[1:]
                ]
                continue
            columns.append(Column(name, place, None, *_ends(name, ends.get(place), data_norm)))
        if bounds is not None or not any(column.level is None for column in columns):
            missing = [c.name for c in columns if c.level is None and c.place not in ends]
            if missing:
                raise ParameterError(
                    f"bounds must be given for every column of numbers; {missing[0]!r} has none. "
                    "Add public ones, or use data_norm alone."
                )
            scale = ROOM * math.sqrt(len(columns))
            columns = [replace(column, unit=column.unit * scale) for column in columns]
        elif known:
            raise ParameterError(
                "bounds must be given for columns of numbers beside those with levels; got none."
            )
        return cls(tuple(columns), len(names), known)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the coefficients."""
        return tuple(column.name for column in self.columns)

    @property
    def spans(self) -> tuple[float, ...]:
        """The distance of each column's bounds, or of its two levels."""
        scale = ROOM * math.sqrt(len(self.columns))
        return tuple(2 * column.unit / scale for column in self.columns)

    @property
    def public(self) -> dict[str, Any]:
        """What decides what the numbers of a prepared row mean, as plain data."""
        return {
            "columns": [asdict(column) for column in self.columns],
            "levels": {str(place): list(known) for place, known in self.levels.items()},
        }

    def values(self, X: Any) -> Array:
        """The columns before they are prepared; not a number where a cell is of no use."""
        cells = _cells(X)
        if len(cells) != self.width:
            raise ParameterError(f"X must have {self.width} columns; got {len(cells)}.")
        found = np.empty((len(cells[0]), len(self.columns)))
        with np.errstate(all="ignore"):
            for place, column in enumerate(self.columns):
                if column.level is None:
                    found[:, place] = numbers_of(cells[column.place])
                else:
                    known = self.levels[column.place]
                    texts = np.array([_text(cell) for cell in cells[column.place].tolist()])
                    found[:, place] = np.where(
                        np.isin(texts, known), (texts == column.level).astype(float), np.nan
                    )
        return found

    def fitted_to(self, values: Array) -> Design:
        """With centres and units of the rows themselves: for a fit without privacy only."""
        spread = values.std(axis=0)
        told = zip(self.columns, values.mean(axis=0), np.where(spread > 0, spread, 1), strict=True)
        columns = [replace(each, centre=float(c), unit=float(w)) for each, c, w in told]
        return replace(self, columns=tuple(columns))

    def prepared(self, values: Array) -> Array:
        """The prepared columns."""
        centres = np.array([column.centre for column in self.columns])
        units = np.array([column.unit for column in self.columns])
        with np.errstate(all="ignore"):
            found: Array = (values - centres) / units
        return found

    def change(self, constants: int, scale: float = 1.0) -> Array:
        """The matrix from coefficients of prepared columns to those in the user's units.

        ``scale`` is that of a response which was divided by it.
        """
        count = len(self.columns)
        found = np.zeros((constants + count, constants + count))
        found[:constants, :constants] = np.eye(constants)
        for place, column in enumerate(self.columns):
            found[constants + place, constants + place] = 1 / column.unit
            found[:constants, constants + place] = -column.centre / column.unit
        return scale * found


def column_names(X: Any) -> list[str]:
    """The names of the columns of a table, or their numbers as names."""
    names = getattr(X, "columns", None)
    if names is not None:
        return [str(name) for name in names]
    return [f"x{number + 1}" for number in range(len(_cells(X)))]


def declared_levels(X: Any) -> dict[str, list[str]]:
    """The levels that a frame's categorical columns declare."""
    found = {}
    for name, kind in zip(getattr(X, "columns", ()), getattr(X, "dtypes", ()), strict=False):
        categories = getattr(kind, "categories", None)
        if categories is not None:
            found[str(name)] = [str(level) for level in categories]
    return found


def _cells(X: Any) -> list[Any]:
    """The columns of a table."""
    if hasattr(X, "iloc") and hasattr(X, "columns"):
        return [np.asarray(X.iloc[:, place].astype(object)) for place in range(X.shape[1])]
    given = as_array(X, "X")
    if given.ndim != 2 or 0 in given.shape:
        raise ParameterError(
            "X must be a table with at least one row and one column; got an array of shape "
            f"{given.shape}."
        )
    return list(given.T)


def _text(cell: Any) -> str:
    """A cell as a level is written: 1.0 is 1."""
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return str(cell)


def _place(key: Any, names: Sequence[str], what: str) -> int:
    if isinstance(key, int) and not isinstance(key, bool) and 0 <= key < len(names):
        return key
    if str(key) in names:
        return list(names).index(str(key))
    raise unknown_name(f"{what}'s columns", str(key), names)


def _ends(name: str, ends: Any, data_norm: float) -> tuple[float, float]:
    """Centre and unit of a column of numbers."""
    if ends is None:
        return 0.0, positive_number("data_norm", data_norm)
    return middle(f"bounds of {name}", ends)


def middle(what: str, ends: Any) -> tuple[float, float]:
    """The middle of public bounds, and half of their distance; or a refusal."""
    try:
        low, high = (float(end) for end in ends)
    except (TypeError, ValueError):
        low = high = math.nan
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ParameterError(
            f"{what} must be two finite numbers, the lower one first; got {ends!r}. A column of "
            "one value is constant: leave it out."
        )
    return (low + high) / 2, (high - low) / 2


class Response:
    """How responses are read: public facts only.

    Parameters
    ----------
    family, exact
        Its name, and whether there is no privacy.
    centre, unit
        Of a linear regression's response.
    edges
        Of the periods of survival.
    """

    def __init__(
        self, family: str, exact: bool, centre: float, unit: float, edges: Array | None
    ) -> None:
        self.family, self.exact, self.centre, self.unit = family, exact, centre, unit
        self.edges = edges

    @classmethod
    def of(cls, family: str, exact: bool, bounds: Any, periods: Any) -> Response:
        """From what was declared; or a refusal."""
        centre, unit = 0.0, 1.0
        if family == "gaussian":
            if bounds is not None:
                centre, unit = middle("response_bounds", bounds)
            elif not exact:
                raise ParameterError(
                    "response_bounds must be given for the family 'gaussian': two public numbers "
                    "that the response is between; got none."
                )
        elif bounds is not None:
            raise ParameterError(
                f"response_bounds must be left out for the family {family!r}; got {bounds!r}."
            )
        if (periods is None) == (family == "survival"):
            raise ParameterError(
                "periods must be given for the family 'survival' and for no other: how many there "
                f"are, or their edges; got {periods!r}."
            )
        return cls(family, exact, centre, unit, None if periods is None else _edges(periods))

    @property
    def public(self) -> dict[str, Any]:
        """What decides what a response means, as plain data."""
        edges = None if self.edges is None else self.edges.tolist()
        return {"family": self.family, "centre": self.centre, "unit": self.unit, "edges": edges}

    @property
    def count(self) -> int | None:
        """How many periods there are."""
        return None if self.edges is None else len(self.edges) - 1

    @property
    def constants(self) -> tuple[str, ...]:
        """How constants are called."""
        if self.edges is None:
            return ("const",)
        return tuple(
            f"period ({low:g}, {high:g}]"
            for low, high in zip(self.edges[:-1], self.edges[1:], strict=True)
        )

    def response(self, y: Any) -> Array:
        """Responses as the family has them; not a number where a row becomes the fixed one."""
        if self.family == "survival":
            return self._survival(y)
        given = np.asarray(y)
        if given.ndim == 2 and given.shape[1] == 1:
            given = given[:, 0]
        if given.ndim != 1:
            raise ParameterError(
                f"y must be one response for each row; got an array of shape {given.shape}."
            )
        numbers = _floats(given)
        if self.family == "binomial":
            numbers = np.where((numbers == 0) | (numbers == 1), numbers, np.nan)
        elif self.family == "poisson":
            numbers = np.where(numbers >= 0, numbers, np.nan)
        else:
            numbers = (numbers - self.centre) / self.unit
        return numbers[:, None]

    def _survival(self, y: Any) -> Array:
        assert self.edges is not None
        if hasattr(y, "columns"):
            missing = [name for name in ("entry", "exit", "event") if name not in y.columns]
            if missing:
                raise ParameterError(
                    f"y must have the columns entry, exit and event; {missing[0]!r} is missing."
                )
            times = np.column_stack([_floats(y[name]) for name in ("entry", "exit", "event")])
        else:
            times = _floats(np.asarray(y))
        if times.ndim != 2 or times.shape[1] != 3:
            raise ParameterError(
                "y must have the columns entry, exit and event for the family 'survival'; got an "
                f"array of shape {times.shape}."
            )
        entry, stop, event = times.T
        good = np.isfinite(times).all(axis=1) & (entry < stop) & ((event == 0) | (event == 1))
        last = len(self.edges) - 1
        first = np.clip(np.searchsorted(self.edges, entry, side="right") - 1, 0, last)
        end = np.clip(np.searchsorted(self.edges, stop, side="left"), 0, last)
        # An event after the last period is none within them.
        happened = np.where((stop <= self.edges[-1]) & (stop > self.edges[0]), event, 0.0)
        found = np.column_stack([first, end, happened]).astype(np.float64)
        return np.where(good[:, None], found, np.nan)


def _edges(periods: Any) -> Array:
    if np.ndim(periods) == 0:
        return np.arange(positive_integer("periods", periods) + 1, dtype=np.float64)
    edges = _floats(np.asarray(periods))
    rising = edges.ndim == 1 and len(edges) > 1 and bool((np.diff(edges) > 0).all())
    if not (rising and np.isfinite(edges).all()):
        raise ParameterError(
            f"periods must be a whole number, or at least two edges that increase; got {periods!r}."
        )
    return edges


def _floats(values: Any) -> Array:
    with np.errstate(all="ignore"):
        return numbers_of(np.asarray(values))
