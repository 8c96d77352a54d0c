r"""Figures of a describe, from what was released, each with an interval for the population.

An interval is for sampling and noise together: the variance of the noise is known, and that of
sampling is estimated from the same numbers.

**Shares** of rows, alone, by group and in tables, as in :mod:`dpadmm.evaluation.intervals`: values
that counts moved to their public sum do not contradict.

**Mean** of N rows with a value: :math:`\hat\theta = S/N`, whose variance is

.. math:: \frac{N s^2 + v_S + \hat\theta^2 v_N}{N^2},\qquad
          s^2 = \frac{Q}{N} - \hat\theta^2 + \frac{v_S}{N^2};

:math:`v_N` is zero where N is public. **Standard deviation**: the root of an interval for
:math:`s^2`, whose sampling variance :math:`(m_4 - s^4)/N` takes the fourth moment around the mean
from a histogram of the column where one is released, and else from its largest value,
:math:`(1+|\hat\theta|)^2 s^2`.

**Quantiles**: of a bin with edges a and b, the q-quantile is in it only if
:math:`F(a)\le q\le F(b)`. Bins for which :math:`T(e) = A_e - qD` contradicts that, by more than z
deviations of :math:`D q(1-q)` and its noise, are left out; the interval is all others. Where values
are taken as spread smoothly over neighbouring bins it is read off the lines between the edges
instead, moved by an eighth of what a bin and its neighbours differ by.

**Correlation**: the delta method for the noise, and :math:`(1-r^2)/N` for sampling, which is more
than that of normal columns.

**Not enough data.** A figure is given where its interval is no wider than half of what is possible
at all (of 0 to 1, of the public bounds, of -1 to 1) and what it divides by is clear of the noise.
Both are functions of released numbers and public facts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from dpadmm.evaluation.intervals import (
    CLEAR_OF_NOISE,
    CountTable,
    Estimate,
    Mask,
    normal_quantile,
    share_of,
)
from dpadmm.plain import Array
from dpadmm.run.plan import Plan
from dpadmm.studies.describe import Describe, Described, Moments, Products, StudyWish, Tally
from dpadmm.studies.study import from_triangle, upper_triangle

#: What is said where an interval says nothing.
NOT_ENOUGH: Final = "not enough data for this budget"
_WIDEST: Final = 0.5
# Of values spread evenly from -1 to 1.
_EVEN: Final = 1 / 3

#: From the name of a block to its released numbers and the variance of the noise in each.
ReleasedBlocks: TypeAlias = Callable[[str], tuple[Array, float]]


@dataclass(frozen=True)
class StudyFigure:
    """One figure with its interval, in the units of its column.

    Attributes
    ----------
    kind
        Of the wish.
    column
        The column, or several with "x" between.
    group, item
        The level of ``by``; the level, cell, bin or quantile. None where there is none.
    value, low, high
        The estimate and its interval; None where the data do not suffice.
    reason
        Why not.
    """

    kind: str
    column: str
    group: str | None = None
    item: str | None = None
    value: float | None = None
    low: float | None = None
    high: float | None = None
    reason: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain data, without what does not apply."""
        return {name: value for name, value in vars(self).items() if value is not None}


class _Counted(NamedTuple):
    """How many rows a sum is over, and the variance of the noise in that."""

    rows: float
    variance: float


@dataclass(frozen=True)
class ReadOff:
    """Reads figures off what was released.

    Attributes
    ----------
    about
        What was asked for.
    released
        What was released.
    rows
        The public number of rows.
    confidence
        Of each interval.
    """

    about: Described
    released: ReleasedBlocks
    rows: int
    confidence: float = 0.95

    @property
    def z(self) -> float:
        """Half an interval's width in standard deviations."""
        return normal_quantile(self.confidence)

    def figures(self) -> tuple[StudyFigure, ...]:
        """All that was asked for, in that order."""
        return tuple(each for wish in self.about.wishes for each in self.of_wish(wish))

    def of_wish(self, wish: StudyWish) -> Iterator[StudyFigure]:
        """The figures of one wish."""
        if wish.kind == "table":
            yield from self._shares(wish, wish.columns)
            return
        if wish.kind == "correlation":
            yield from self._correlations(wish)
            return
        for name in wish.columns:
            if wish.kind in ("mean", "sd"):
                yield from self._moments(wish, name)
            elif wish.kind == "quantiles":
                yield from self._quantiles(wish, name)
            elif wish.kind != "bounds":
                yield from self._shares(wish, (name,))

    # -- shares ------------------------------------------------------------------------------

    def table(self, part: Tally) -> CountTable:
        """ReleasedBlocks counts, moved to their public sum."""
        counts, variance = self.released(self.about.name_of(part))
        return CountTable.of_released(counts.reshape(part.shape), variance, self.rows)

    def _groups(self, wish: StudyWish) -> list[tuple[int | None, str | None]]:
        if wish.by is None:
            return [(None, None)]
        return [
            (code, f"{wish.by}={name}")
            for code, name in enumerate(self.about.columns.listed(wish.by))
        ]

    def _shares(self, wish: StudyWish, names: Sequence[str]) -> Iterator[StudyFigure]:
        part = self.about.table_of(wish, names)
        table, column = self.table(part), " x ".join(names)
        own = part.axes[wish.by is not None :]
        items = [self._items(wish, name) for name in names]
        for code, group in self._groups(wish):
            whole = np.ones(part.shape, bool) if code is None else _at(part.shape, code)
            for axis, place in zip(own, range(-len(own), 0), strict=True):
                if axis.flags:
                    # A row without a value is in no bin.
                    whole = whole & (_along(part.shape, place) < axis.levels)
            of_all = np.ones(part.shape, bool) if wish.kind == "count" else whole
            for cell in np.ndindex(*map(len, items)):
                mask = np.zeros(part.shape, bool)
                mask[(*(() if code is None else (code,)), *cell)] = True
                item = ", ".join(each[code] for each, code in zip(items, cell, strict=True))
                found = share_of(table, item, mask, of_all & ~mask, self.z)
                times = float(self.rows) if wish.kind == "count" else 1.0
                yield self._told(StudyFigure(wish.kind, column, group, item), found, 1.0, times)

    def _items(self, wish: StudyWish, name: str) -> list[str]:
        if name not in {column.name for column in self.about.schema.numeric}:
            columns = self.about.columns
            # Of a column by itself, what is missing or other is a figure like the rest.
            alone = wish.kind != "table"
            return list(columns.levels(name) if alone else columns.listed(name))
        edges = self.about.cuts(name, wish)
        return [f"{low:.6g} to {high:.6g}" for low, high in pairwise(edges)]

    # -- means and deviations ----------------------------------------------------------------

    def _moments(self, wish: StudyWish, name: str) -> Iterator[StudyFigure]:
        part = self.about.moments_of(name, wish.by)
        both, noise = self.released(self.about.name_of(part))
        sums, squares = np.split(both, 2)
        for code, group in self._groups(wish):
            place, empty = code or 0, StudyFigure(wish.kind, name, group)
            counted = self._complete((name,), wish.by, code)
            if counted is None:
                yield self._refused(empty)
                continue
            moments = (float(sums[place]), float(squares[place]) / part.square)
            if wish.kind == "mean":
                found = self._mean(moments, counted, noise)
                yield self._told(empty, found, 2.0, *self._scale(name, centred=True))
            else:
                fourth = self._fourth(part) if wish.by is None else None
                found = self._deviation(moments, counted, (noise, part.square), fourth)
                yield self._told(empty, found, 1.0, *self._scale(name, centred=False))

    def _complete(self, names: Sequence[str], by: str | None, code: int | None) -> _Counted | None:
        """How many rows of a group have these values; None if noise hides it."""
        parts = self.about.complete_of(names, by)
        if not parts:
            return _Counted(float(self.rows), 0.0)
        (part,) = parts
        mask = np.ones(part.shape, bool) if code is None else _at(part.shape, code)
        if part.axes[-1].flags:
            mask = mask & (_along(part.shape, -1) == 0)
        table = self.table(part)
        found = table.clear_sum(mask)
        return None if found is None else _Counted(found, table.noise_of(mask.astype(np.float64)))

    def _mean(self, moments: tuple[float, float], counted: _Counted, noise: float) -> Estimate:
        rows, variance = counted
        value = min(max(moments[0] / rows, -1.0), 1.0)
        spread = min(max(moments[1] / rows - value**2 + noise / rows**2, 0.0), 1 - value**2)
        half = self.z * math.sqrt(rows * spread + noise + value**2 * variance) / rows
        return Estimate("mean", value, max(value - half, -1.0), min(value + half, 1.0))

    def _deviation(
        self,
        moments: tuple[float, float],
        counted: _Counted,
        noise: tuple[float, float],
        fourth: Callable[[float], float] | None,
    ) -> Estimate:
        rows, variance = counted
        value = min(max(moments[0] / rows, -1.0), 1.0)
        square = moments[1] / rows
        spread = min(max(square - value**2 + noise[0] / rows**2, 0.0), 1 - value**2)
        most = (1 + abs(value)) ** 2 * spread
        around = most if fourth is None else min(max(fourth(value), spread**2), most)
        own = noise[0] / noise[1] ** 2 + 4 * value**2 * noise[0]
        own += (square - 2 * value**2) ** 2 * variance
        half = self.z * math.sqrt(max(around - spread**2, 0.0) / rows + own / rows**2)
        if 2 * half > _WIDEST**2:
            # About the noise and not the estimate: else small estimates alone would be left out.
            return Estimate("sd", None)
        low, high = max(spread - half, 0.0), min(spread + half, 1.0)
        return Estimate("sd", math.sqrt(spread), math.sqrt(low), math.sqrt(high))

    def _fourth(self, part: Moments) -> Callable[[float], float] | None:
        """The fourth moment around a mean, from a histogram that is released anyhow."""
        for table in self.about.options.tables:
            if len(table.axes) == 1 and table.axes[0].place == part.place and table.axes[0].edges:
                edges = np.concatenate([[-1.0], table.axes[0].edges, [1.0]])
                counts = self.table(table).counts[: len(edges) - 1]
                middle = (edges[1:] + edges[:-1]) / 2
                whole = max(float(counts.sum()), 1.0)
                return lambda mean: float(counts @ (middle - mean) ** 4) / whole
        return None

    def _scale(self, name: str, *, centred: bool) -> tuple[float, float]:
        """What a scaled figure is multiplied by, and what is then added."""
        column = self.about.columns.numeric(name)
        half = (column.upper - column.lower) / 2
        return half, column.lower + half if centred else 0.0

    # -- quantiles -----------------------------------------------------------------------------

    def _quantiles(self, wish: StudyWish, name: str) -> Iterator[StudyFigure]:
        part = self.about.table_of(wish, (name,))
        edges, table = self.about.edges(name, wish), self.table(part)
        scale = self._scale(name, centred=True)
        for code, group in self._groups(wish):
            bins = np.zeros(part.shape, bool)
            at = (slice(0, len(edges) - 1),)
            bins[at if code is None else (code, *at)] = True
            for level in wish.levels:
                empty = StudyFigure("quantiles", name, group, f"{100 * level:g}%")
                found = self._quantile(table, bins, edges, level, wish.smooth)
                yield (
                    self._refused(empty) if found is None else self._told(empty, found, 2.0, *scale)
                )

    def _quantile(
        self, table: CountTable, bins: Mask, edges: Array, level: float, smooth: bool
    ) -> Estimate | None:
        whole = table.clear_sum(bins)
        if whole is None:
            return None
        counts, count = table.counts[bins], len(edges) - 1
        distance = np.concatenate([[0.0], np.cumsum(counts)]) - level * whole
        weights = np.zeros((count + 1, *bins.shape))
        below = np.tri(count + 1, count, -1)
        weights[:, bins] = below - level
        noise = np.array([table.noise_of(each) for each in weights])
        band = self.z * np.sqrt(whole * level * (1 - level) + 0.5 + noise)
        # Outside the bounds is no value: these two are known.
        top, bottom = distance + band, distance - band
        top[-1], bottom[0] = math.inf, -math.inf
        accepted = np.flatnonzero((bottom[:-1] <= 0) & (top[1:] >= 0))
        if not len(accepted):
            return None
        first, last = int(accepted[0]), int(accepted[-1])
        low, high = edges[first], edges[last + 1]
        if smooth:
            # How far the rows of a bin may be from even, by how unlike its neighbours it is.
            steps = np.abs(np.diff(counts, prepend=counts[0], append=counts[-1]))
            bend = np.maximum(steps[1:], steps[:-1]) / 8
            low = _crossing(edges, np.minimum(top, whole) + bend[first], first)
            high = _crossing(edges, np.maximum(bottom, -whole) - bend[last], last)
        rising = np.maximum.accumulate(distance)
        place = min(int(np.searchsorted(rising, 0.0, side="left")), count)
        value = _crossing(edges, rising, max(place - 1, 0))
        return Estimate("quantile", float(min(max(value, low), high)), float(low), float(high))

    # -- correlations --------------------------------------------------------------------------

    def _correlations(self, wish: StudyWish) -> Iterator[StudyFigure]:
        part = self.about.products_of(wish)
        names = tuple(dict.fromkeys(wish.columns))
        both, noise = self.released(self.about.name_of(part))
        counted = self._complete(names, None, None)
        for first in range(len(names)):
            for second in range(first + 1, len(names)):
                empty = StudyFigure("correlation", f"{names[first]} x {names[second]}")
                found = None
                if counted is not None:
                    found = self._correlation(part, both, noise, counted, (first, second))
                yield self._refused(empty) if found is None else self._told(empty, found, 2.0)

    def _correlation(
        self, part: Products, both: Array, noise: float, counted: _Counted, pair: tuple[int, int]
    ) -> Estimate | None:
        size, rows = len(part.places), counted.rows
        means = both[:size] / rows
        # Of an entry beside the diagonal; those on it have twice as much.
        unit = math.sqrt(2) * part.norm
        products = from_triangle(both[size:]) * unit / rows
        beside = noise * unit**2 / 2
        (i, j), mean = pair, means
        spread = [products[k, k] - mean[k] ** 2 + noise / rows**2 for k in pair]
        for k, own in zip(pair, spread, strict=True):
            off = math.sqrt(2 * beside + 4 * mean[k] ** 2 * noise) / rows
            if own <= CLEAR_OF_NOISE * off:
                return None
        ratio = math.sqrt(spread[1] / spread[0])
        length = math.sqrt(spread[0] * spread[1])
        value = float(np.clip((products[i, j] - mean[i] * mean[j]) / length, -1.0, 1.0))
        # The delta method: what each released number moves r by, times rows * length.
        ends = (-value / 2 * ratio, -value / 2 / ratio)
        slopes = (-mean[j] - 2 * ends[0] * mean[i], -mean[i] - 2 * ends[1] * mean[j])
        by_rows = -(products[i, j] - 2 * mean[i] * mean[j])
        by_rows -= sum(
            end * (products[k, k] - 2 * mean[k] ** 2) for end, k in zip(ends, pair, strict=True)
        )
        variance = beside * (1 + 2 * (ends[0] ** 2 + ends[1] ** 2))
        variance += noise * (slopes[0] ** 2 + slopes[1] ** 2) + by_rows**2 * counted.variance
        half = self.z * math.sqrt((1 - value**2) / rows + variance / (rows * length) ** 2)
        return Estimate("correlation", value, max(value - half, -1.0), min(value + half, 1.0))

    # -- what is told --------------------------------------------------------------------------

    def _refused(self, empty: StudyFigure) -> StudyFigure:
        return replace(empty, reason=NOT_ENOUGH)

    def _told(
        self,
        empty: StudyFigure,
        found: Estimate,
        possible: float,
        times: float = 1.0,
        plus: float = 0.0,
    ) -> StudyFigure:
        """A figure in its units, unless its interval says nothing."""
        if found.value is None or found.high - found.low > _WIDEST * possible:
            return self._refused(empty)
        value, low, high = (times * each + plus for each in (found.value, found.low, found.high))
        return replace(empty, value=value, low=low, high=high)


def _at(shape: tuple[int, ...], code: int) -> Mask:
    """Cells of one group."""
    return np.asarray(_along(shape, 0) == code)


def _along(shape: tuple[int, ...], axis: int) -> Array:
    """The number of each cell along an axis."""
    size = [1] * len(shape)
    size[axis] = shape[axis]
    return np.broadcast_to(np.arange(shape[axis]).reshape(size), shape)


def _crossing(edges: Array, heights: Array, place: int) -> float:
    """Where the line over a bin is zero; its nearer edge where it is nowhere."""
    low, high = float(heights[place]), float(heights[place + 1])
    if low >= 0 or not high > low:
        return float(edges[place] if low >= 0 else edges[place + 1])
    share = min(-low / (high - low), 1.0)
    return float(edges[place] + share * (edges[place + 1] - edges[place]))


def expected_release(about: Described, planned: Plan) -> ReleasedBlocks:
    """What would be released, but for noise, if every column were spread evenly by itself.

    Public facts alone; the variances of the noise are those of the plan.
    """
    study = planned.algorithm
    assert isinstance(study, Describe)
    rows, state = float(planned.site.rows.sum()), study.init(planned.site)
    parts = dict(zip((block.name for block in study.courses[0]), study.parts, strict=True))

    def released(name: str) -> tuple[Array, float]:
        return rows * _even(parts[name]), study.block(state, 0, name)[1]

    return released


def _even(part: Tally | Moments | Products) -> Array:
    """The mean of a part over rows spread evenly."""
    if isinstance(part, Tally):
        found = np.ones(1)
        for axis in part.axes:
            edges = np.concatenate([[-1.0], axis.edges, [1.0]])
            even = np.diff(edges) / 2 if axis.edges else np.full(axis.levels, 1 / axis.levels)
            found = np.outer(found, [*even, *([0.0] * bool(axis.flags))]).ravel()
        return found
    if isinstance(part, Moments):
        group = np.full(part.groups, 1 / part.groups)
        return np.concatenate([0 * group, part.square * _EVEN * group])
    size = len(part.places)
    shorter = min(1.0, part.norm**2 / (size * _EVEN))
    triangle = upper_triangle(np.eye(size)) * _EVEN * shorter / (math.sqrt(2) * part.norm)
    return np.concatenate([np.zeros(size), triangle])
