r"""Descriptive statistics: every wish becomes tables, moments or products, released once.

**Tables.** A row enters exactly one cell of a table, so that a replaced row takes one from a cell
and adds one to another: :math:`\Delta = \sqrt2`, and :math:`\sqrt{2J}` for J of them.

**Moments** of a column x in [-1, 1]: :math:`(x, w x^2)`. For two values with sum s and difference
d, :math:`|d| \le 2 - |s|`, hence

.. math:: d^2 (1 + w^2 s^2) \le (2-|s|)^2 (1 + w^2 s^2) \le 4
          \quad\text{where}\quad w^2 \le \frac{4-|s|}{|s|(2-|s|)^2},

whose least value is above 2.77: with :math:`w^2 = 2.77` it is :math:`\Delta = 2`, and the square is
free. By group a row is in the moments of its own group and in no other; for rows of two groups the
distance is :math:`x^2 + y^2 + w^2(x^4 + y^4) \le 2 (1 + w^2)`, which is 4 with :math:`w = 1`. A row
without a value adds zeros, as x = 0 does.

**Products** of columns together, :math:`(x, xx'/(\sqrt2 C))` with :math:`|x| \le C`. For two rows,
p their inner product,

.. math:: |x|^2 + |y|^2 - 2p + \frac{|x|^4 + |y|^4 - 2p^2}{2C^2}
          \le 4C^2 - \Bigl(C + \frac pC\Bigr)^2 \le 4 C^2,

since the left side grows with both lengths at a given p: :math:`\Delta = 2C`, with the matrix as
its upper triangle (:func:`~dpadmm.studies.study.upper_triangle`), whose length is its Frobenius
norm. Without a public norm C is :math:`\sqrt J` for J columns: no row is longer.

The bounds hold for every row, whatever it has: values are moved into [-1, 1], codes to the nearest
cell, and rows beyond C are scaled to it. Blocks get parts of :math:`\mu^2` in proportion to
:math:`\Delta_b\sqrt{w_b}` (:func:`~dpadmm.studies.study.shares`). Counts of rows that have a value
at all, which means need beside their sums, weigh a quarter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Final, Literal, Self, TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, model_validator

from dpadmm.algorithms import DESCRIBE
from dpadmm.algorithms.base import Options
from dpadmm.data.schema import Schema
from dpadmm.data.study_rows import StudyColumns
from dpadmm.errors import ParameterError, fail
from dpadmm.plain import Array, Finite, Name, Names, Part, as_tuple
from dpadmm.studies.study import Block, Study, StudyOptions, Sums, shares, upper_triangle

#: Cells of one table, and groups that figures are given by.
MOST_TABLE_CELLS: Final = 4096
MOST_GROUPS: Final = 60
#: w^2 of a column's square, all rows together and by group.
SQUARE_WEIGHT: Final = 2.77
GROUPED_SQUARE_WEIGHT: Final = 1.0
# What counts of rows with a value weigh beside the sums that they divide.
_BESIDE: Final = 0.25
_QUARTILES: Final = (0.25, 0.5, 0.75)
_NUMERIC: Final = ("mean", "sd", "quantiles", "histogram", "correlation", "bounds")
# Powers of two that a first look for bounds tells apart.
_OCTAVES: Final = 40

Quantile = Annotated[float, Field(gt=0, lt=1)]
Place = Annotated[int, Field(ge=0)]
Places = Annotated[tuple[Place, ...], BeforeValidator(as_tuple)]
Weight = Annotated[float, Field(gt=0)]


class StudyWish(Part):
    """``[[wish]]``: figures that are asked for.

    Parameters
    ----------
    kind
        ``count``, ``proportion`` (of each level of categorical columns, or the label), ``mean``,
        ``sd``, ``quantiles``, ``histogram`` (of numeric columns), ``table`` (of all its columns
        together), ``correlation`` (of all pairs), ``bounds`` (proposes narrower bounds).
    columns
        Which columns.
    by
        A categorical column, or the label: figures for each of its levels.
    bins
        Of a histogram, of quantiles, of a numeric column in a table.
    levels
        Which quantiles.
    smooth
        Values are taken as spread smoothly over neighbouring bins: narrower intervals of quantiles,
        that hold where this is so. Without it they end at the edges of bins.
    norm
        C of correlations: rows whose columns, scaled to [-1, 1], are longer are scaled down.
    weight
        How much the variance of these figures counts in the split of the budget.
    """

    kind: Literal[
        "count",
        "proportion",
        "mean",
        "sd",
        "quantiles",
        "histogram",
        "table",
        "correlation",
        "bounds",
    ]
    columns: Names
    by: Name | None = None
    bins: Annotated[int, Field(ge=2, le=1024)] | None = None
    levels: Annotated[tuple[Quantile, ...], BeforeValidator(as_tuple)] = _QUARTILES
    smooth: bool = False
    norm: Annotated[float, Field(gt=0)] | None = None
    weight: Annotated[float, Field(gt=0, le=1e6)] = 1.0

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.columns:
            raise fail("columns must name at least one column; got none")
        if self.kind in ("correlation", "table") and len(set(self.columns)) < 2:
            raise fail(f"columns of a {self.kind} must be two or more; got {len(self.columns)}")
        if self.kind in ("correlation", "bounds") and self.by is not None:
            raise fail(f"by must be left out of a {self.kind}; got {self.by!r}")
        if self.by in self.columns:
            raise fail(f"by must be another column than those described; got {self.by!r}")
        if self.kind == "quantiles" and (self.bins or 32) < 16:
            raise fail(f"bins must be at least 16 for quantiles; got {self.bins}")
        if self.norm is not None and self.kind != "correlation":
            raise fail(f"norm must be left out of a {self.kind}; got {self.norm}")
        return self


class Axis(Part):
    """How a row finds its place along one side of a table.

    Attributes
    ----------
    place
        Of the column in a row; None for one of two cells: no flag is set, or one is.
    edges
        Between the bins of a numeric column, as it is scaled; none for a code.
    levels
        How many cells there are, but for that of missing values.
    flags
        Places of what says that a value is missing; such rows have a last cell of their own.
    """

    place: Place | None = None
    edges: Annotated[tuple[Finite, ...], BeforeValidator(as_tuple)] = ()
    levels: Annotated[int, Field(ge=1)]
    flags: Places = ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        # What they say together decides which cell a row is in: it must be one of these.
        bins = len(self.edges) + 1
        rising = all(low < high for low, high in pairwise(self.edges))
        if self.edges and (self.place is None or bins != self.levels or not rising):
            raise fail("edges must rise, one fewer than levels, and have a place; these do not")
        return self

    @property
    def cells(self) -> int:
        """How many there are."""
        return self.levels + bool(self.flags)

    def codes(self, rows: Array) -> NDArray[np.int64]:
        """The cell of each row; every row has one."""
        found = np.zeros(len(rows), np.int64)
        if self.edges:
            found = np.searchsorted(self.edges, rows[:, self.place], side="right")
        elif self.place is not None:
            found = np.rint(np.clip(rows[:, self.place], 0, self.levels - 1)).astype(np.int64)
        return np.where(_flagged(rows, self.flags), self.levels, found) if self.flags else found


def _flagged(rows: Array, flags: Sequence[int]) -> NDArray[np.bool_]:
    return np.asarray((rows[:, list(flags)] > 0.5).any(axis=1))


class Tally(Part):
    """Counts of rows by one axis or several; its cells in C order."""

    axes: Annotated[tuple[Axis, ...], BeforeValidator(as_tuple), Field(min_length=1)]
    weight: Weight = 1.0

    @model_validator(mode="after")
    def _check(self) -> Self:
        cells = math.prod(self.shape)
        if cells > MOST_TABLE_CELLS:
            raise fail(f"a table must have at most {MOST_TABLE_CELLS} cells; got {cells}")
        return self

    @property
    def shape(self) -> tuple[int, ...]:
        """Cells along each axis."""
        return tuple(axis.cells for axis in self.axes)

    def block(self, name: str, share: float = 1.0) -> Block:
        """Its part of the message."""
        return Block(name, math.prod(self.shape), math.sqrt(2), 1.0, share)

    def add_up(self, rows: Array) -> Array:
        """Exact counts."""
        cells = np.zeros(len(rows), np.int64)
        for axis in self.axes:
            cells = cells * axis.cells + axis.codes(rows)
        return np.bincount(cells, minlength=math.prod(self.shape)).astype(np.float64)


class Moments(Part):
    """Sums of a column and of its square; by group first the sums, then the squares."""

    place: Place
    flags: Places = ()
    group: Axis | None = None
    weight: Weight = 1.0

    @property
    def square(self) -> float:
        """``w``."""
        return math.sqrt(SQUARE_WEIGHT if self.group is None else GROUPED_SQUARE_WEIGHT)

    @property
    def groups(self) -> int:
        """How many sums there are."""
        return 1 if self.group is None else self.group.cells

    def block(self, name: str, share: float = 1.0) -> Block:
        """Its part of the message."""
        return Block(name, 2 * self.groups, 2.0, math.hypot(1.0, self.square), share)

    def add_up(self, rows: Array) -> Array:
        """Exact sums of clipped values."""
        values = np.clip(rows[:, self.place], -1.0, 1.0)
        if self.flags:
            values = np.where(_flagged(rows, self.flags), 0.0, values)
        codes = np.zeros(len(rows), np.int64) if self.group is None else self.group.codes(rows)
        each = (values, self.square * values**2)
        return np.concatenate([np.bincount(codes, some, self.groups) for some in each])


class Products(Part):
    """Sums of several columns and of their products, over rows that have all of them."""

    places: Places
    flags: Places = ()
    norm: Annotated[float, Field(gt=0)]
    weight: Weight = 1.0

    def block(self, name: str, share: float = 1.0) -> Block:
        """Its part of the message."""
        size = len(self.places)
        longest = math.sqrt(1.5) * self.norm
        return Block(name, size + size * (size + 1) // 2, 2 * self.norm, longest, share)

    def add_up(self, rows: Array) -> Array:
        """Exact sums of clipped rows."""
        values = np.clip(rows[:, list(self.places)], -1.0, 1.0)
        if self.flags:
            values = np.where(_flagged(rows, self.flags)[:, None], 0.0, values)
        lengths = np.sqrt(np.einsum("kj,kj->k", values, values))
        values = values * (self.norm / np.maximum(lengths, self.norm))[:, None]
        triangle = upper_triangle(values.T @ values) / (math.sqrt(2) * self.norm)
        return np.concatenate([values.sum(axis=0), triangle])


DescribePart: TypeAlias = Tally | Moments | Products


class DescribeOptions(StudyOptions):
    """What a describe releases; where columns are in a row is public."""

    tables: Annotated[tuple[Tally, ...], BeforeValidator(as_tuple)] = ()
    moments: Annotated[tuple[Moments, ...], BeforeValidator(as_tuple)] = ()
    products: Annotated[tuple[Products, ...], BeforeValidator(as_tuple)] = ()

    @property
    def parts(self) -> dict[str, DescribePart]:
        """All of them, by the names of their blocks."""
        families: dict[str, tuple[DescribePart, ...]] = {
            "table": self.tables,
            "moments": self.moments,
            "products": self.products,
        }
        return {
            f"{family} {number}": part
            for family, parts in families.items()
            for number, part in enumerate(parts)
        }


@final
@dataclass(frozen=True, kw_only=True)
class Describe(Study):
    """One round: tables, moments and products.

    Attributes
    ----------
    parts
        What is added up, in the order of the blocks.
    """

    name: ClassVar[str] = DESCRIBE
    paper: ClassVar[str] = "counts, sums and products with Gaussian noise"
    default_rounds: ClassVar[int] = 1
    options: ClassVar[type[Options]] = DescribeOptions

    parts: tuple[DescribePart, ...]

    @classmethod
    def told(cls, options: DescribeOptions) -> dict[str, Any]:
        """Split the budget."""
        parts = options.parts
        if not parts:
            raise ParameterError("wishes must be at least one; got none.")
        reaches = [part.block(name).sensitivity for name, part in parts.items()]
        split = shares(reaches, [part.weight for part in parts.values()])
        blocks = [
            part.block(name, share)
            for (name, part), share in zip(parts.items(), split, strict=True)
        ]
        return {"parts": tuple(parts.values()), "courses": (tuple(blocks),)}

    def add_up(self, state: Sums, t: int, rows: Array, responses: Array) -> Array:
        """Add up every part."""
        return np.concatenate([part.add_up(rows) for part in self.parts])


@dataclass(frozen=True)
class Described:
    """What wishes become under a schema: parts to release, and where each figure is read from.

    Everything is public and fixed before a row is read; what cannot be described is refused here.
    """

    schema: Schema
    wishes: tuple[StudyWish, ...]

    @cached_property
    def columns(self) -> StudyColumns:
        """Where columns are in a row."""
        return StudyColumns(self.schema)

    @cached_property
    def options(self) -> DescribeOptions:
        """The parts of all wishes, each once: what two wishes need weighs as much as both."""
        found: dict[str, dict[str, tuple[Any, float]]] = {
            "Tally": {},
            "Moments": {},
            "Products": {},
        }
        for wish in self.wishes:
            for part in self.parts_of(wish):
                seen = found[type(part).__name__]
                key = _key(part)
                weight = part.weight * wish.weight + seen.get(key, (part, 0.0))[1]
                seen[key] = (part, weight)
        parts = {
            family: tuple(
                part.model_copy(update={"weight": weight}) for part, weight in each.values()
            )
            for family, each in found.items()
        }
        families = {"tables": "Tally", "moments": "Moments", "products": "Products"}
        told = {name: parts[family] for name, family in families.items()}
        return DescribeOptions.model_validate({"rows": 1, **told})

    @property
    def plain(self) -> dict[str, Any]:
        """The options as plain data, without those of every study."""
        return self.options.model_dump(mode="json", exclude={"rows", "noise", "colluders"})

    def name_of(self, part: DescribePart) -> str:
        """The name of the block in which a part is released."""
        return self._names[_key(part)]

    @cached_property
    def _names(self) -> dict[str, str]:
        return {_key(part): name for name, part in self.options.parts.items()}

    def parts_of(self, wish: StudyWish) -> list[DescribePart]:
        """What has to be released for a wish."""
        if wish.kind in _NUMERIC:
            for name in wish.columns:
                self.columns.numeric(name)
        if wish.kind == "correlation":
            return [self.products_of(wish), *self.complete_of(wish.columns, None)]
        if wish.kind == "table":
            return [self.table_of(wish, wish.columns)]
        found: list[DescribePart] = []
        for name in wish.columns:
            if wish.kind in ("mean", "sd"):
                found += [self.moments_of(name, wish.by), *self.complete_of((name,), wish.by)]
            else:
                found.append(self.table_of(wish, (name,)))
        return found

    def table_of(self, wish: StudyWish, names: Sequence[str]) -> Tally:
        """Counts by columns, within groups where asked."""
        axes = (*self._groups(wish.by), *(self._axis(name, wish) for name in names))
        cells = math.prod(axis.cells for axis in axes)
        if cells > MOST_TABLE_CELLS:
            raise ParameterError(
                f"a table must have at most {MOST_TABLE_CELLS} cells; that of {', '.join(names)}"
                f"{'' if wish.by is None else f' by {wish.by}'} would have {cells}. Ask for fewer "
                "columns, levels or bins."
            )
        return Tally(axes=axes)

    def moments_of(self, name: str, by: str | None) -> Moments:
        """Sums of a column, within groups where asked."""
        group = next(iter(self._groups(by)), None)
        return Moments(place=self.columns.places[name], flags=self._flags((name,)), group=group)

    def products_of(self, wish: StudyWish) -> Products:
        """Sums of products of the columns of a wish."""
        names = tuple(dict.fromkeys(wish.columns))
        places = tuple(self.columns.places[name] for name in names)
        norm = min(wish.norm or math.inf, math.sqrt(len(names)))
        return Products(places=places, flags=self._flags(names), norm=norm)

    def complete_of(self, names: Sequence[str], by: str | None) -> list[Tally]:
        """How many rows have all these values; nothing where that is public."""
        flags, groups = self._flags(names), self._groups(by)
        present = (Axis(levels=1, flags=flags),) if flags else ()
        axes = (*groups, *present)
        return [Tally(axes=axes, weight=_BESIDE)] if axes else []

    def _flags(self, names: Sequence[str]) -> tuple[int, ...]:
        found = (self.columns.missing_place(name) for name in dict.fromkeys(names))
        return tuple(place for place in found if place is not None)

    def _groups(self, by: str | None) -> tuple[Axis, ...]:
        if by is None:
            return ()
        levels = len(self.columns.levels(by))
        if levels > MOST_GROUPS:
            raise ParameterError(
                f"by must be a column of at most {MOST_GROUPS} levels, missing and other counted; "
                f"{by!r} has {levels}. Join levels in the schema, or leave by out."
            )
        return (Axis(place=self.columns.places[by], levels=levels),)

    def _axis(self, name: str, wish: StudyWish) -> Axis:
        place = self.columns.places.get(name)
        if name not in {column.name for column in self.schema.numeric}:
            levels = len(self.columns.levels(name))
            return Axis(place=place, levels=levels)
        if wish.kind in ("count", "proportion"):
            self.columns.levels(name)
        if wish.kind == "table" and wish.bins is None:
            raise ParameterError(
                f"bins must be given for the numeric column {name!r} of a table; got none. Give "
                "bins = 4, say."
            )
        edges = self.edges(name, wish)
        inner, flags = tuple(edges[1:-1].tolist()), self._flags((name,))
        return Axis(place=place, edges=inner, levels=len(inner) + 1, flags=flags)

    def cuts(self, name: str, wish: StudyWish) -> Array:
        """The edges of a numeric column's bins, its bounds among them."""
        column = self.columns.numeric(name)
        if wish.kind == "bounds":
            return _octaves(column.lower, column.upper)
        # Of equal width where the schema takes logarithms, too.
        found = np.linspace(*column.bounds, (wish.bins or 32) + 1)
        return found if column.transform is None else np.expm1(found)

    def edges(self, name: str, wish: StudyWish) -> Array:
        """The same from -1 to 1, as the column is scaled."""
        column = self.columns.numeric(name)
        cuts = self.cuts(name, wish)
        scaled = 2 * (cuts - column.lower) / (column.upper - column.lower) - 1
        scaled[0], scaled[-1] = -1.0, 1.0
        return np.asarray(scaled)


def _key(part: DescribePart) -> str:
    return type(part).__name__ + part.model_dump_json(exclude={"weight"})


def _octaves(lower: float, upper: float) -> Array:
    """Edges at powers of two below a wide public bound, on both sides of zero where it has both."""
    largest = math.floor(math.log2(max(abs(lower), abs(upper))))
    steps = 2.0 ** (largest - np.arange(_OCTAVES))
    cuts = np.concatenate([-steps, [0.0], steps])
    inside = cuts[(cuts > lower) & (cuts < upper)]
    return np.unique(np.concatenate([[lower], inside, [upper]]))


def described(schema: Schema, wishes: Sequence[StudyWish | Mapping[str, Any]]) -> Described:
    """What wishes become; refuses what has no public bounds or levels, or too many."""
    told = tuple(
        wish if isinstance(wish, StudyWish) else StudyWish.model_validate(wish) for wish in wishes
    )
    found = Described(schema, told)
    # Every part is made, and refused, now.
    _ = found.options
    return found
