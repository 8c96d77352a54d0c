r"""A shard, its objective, and what one round's work leaves behind for the next.

Rows may lie in parts elsewhere. Then the work goes to the parts, and sums come back:

.. math:: \nabla f(w) = \frac{c}{n}\sum_{p}\sum_{k\in p} l'(u_k\cdot w)\,u_k

**The same sum.** A part gives back the sums of its pieces, a few thousand times smaller than the
rows, and they are added up here in the order of the parts, with the compensated sum of every other
pass (:func:`~dpadmm.problem.rows.summation_error` counts its error). So a pass gives the same
bits whoever worked on a part, how often and in which order; and where every part but the last has
a multiple of :func:`~dpadmm.problem.rows.piece_rows` rows, the pieces are those of the same
rows in one file, and so are the bits (unless one process keeps them sparse for being mostly
zeros, which is never done to a part).

**The same solver.** :class:`PartedSolver` is a :class:`~dpadmm.solvers.newton.BlockSolver` with
other passes: its steps, its certificate and what it keeps between solves are untouched. A Hessian
only has to lead downhill, so that a part gives back one sum of it.

**No state at the parts.** What a pass needs goes with it: points, never margins kept from before.
A part that is lost can be made again from its file at any time. A line search and a
Hessian-vector product therefore compute margins once more in every pass; both are rare.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpadmm.errors import ParameterError
from dpadmm.plain import Array
from dpadmm.privacy.calibration import InnerNoise
from dpadmm.problem.rows import PartedBlock, PartedRows, RowBlock, Rows, RunningSum, Shard
from dpadmm.problem.site import Site
from dpadmm.solvers.block import ALL, BlockLoss, Chosen
from dpadmm.solvers.inner_loop import InnerLoop, loss_code
from dpadmm.solvers.newton import BlockSolver, BlockState, Solution


@final
class PartedSolver(BlockSolver):
    """The local problem of one party whose rows lie in parts elsewhere.

    Parameters
    ----------
    block
        The private rows.
    site
        Public facts: loss, weights c_i, row counts n_i.
    use_factor
        Whether the Hessian is inverted, or only multiplied with.
    """

    def __init__(self, block: PartedBlock, site: Site, *, use_factor: bool) -> None:
        # No row is here.
        here = RowBlock(
            block.nodes, np.zeros((1, 0, site.features)), np.zeros((1, 0, site.outputs))
        )
        super().__init__(here, site, None, use_factor=use_factor)
        self._shift: Array | None = None
        self._parts, self._facts = block.rows, _facts_of(site, int(block.nodes[0]))

    def centre(self, shift: Array) -> None:
        """Keep the map, which is public: lengths of rows are worked out in every pass."""
        self._shift = shift

    def slope_sums(
        self,
        points: Array,
        chosen: Chosen = ALL,
        clip: float | None = None,
        *,
        centred: bool = False,
    ) -> Iterator[Array]:
        """``sum_k l'_k u_k`` of one piece after the other, in the order of the parts."""
        shift = self._shift if centred else None
        for sums in self._parts.map(_slope_sums, self._facts, points, clip, shift):
            yield from sums

    def row_sums(self) -> Iterator[Array]:
        """``sum_k x_k`` of one piece after the other, in the order of the parts."""
        for sums in self._parts.map(_row_sums, self._facts):
            yield from sums

    def hessian_sum(self, points: Array, chosen: Chosen = ALL) -> Array:
        """``sum_k l''_k u_k u_k'``."""
        return _total(self._parts.map(_hessian_sum, self._facts, points))

    def curvatures(self, points: Array, chosen: Chosen) -> list[Array]:
        """What :meth:`product_sum` makes second derivatives of: the points."""
        return [points]

    def product_sum(self, curvatures: list[Array], vectors: Array, chosen: Chosen = ALL) -> Array:
        """``sum_k l''_k u_k (u_k.v)``."""
        return _total(self._parts.map(_product_sum, self._facts, curvatures[0], vectors))

    def slopes_along(
        self, point: Array, direction: Array, chosen: Chosen = ALL
    ) -> Callable[[Array], Array]:
        """``a -> sum_k l'(u_k.(x + a v)) u_k.v``, a pass each time."""

        def slope(length: Array) -> Array:
            work = (_slope_along, self._facts, point, direction, length)
            return _total(self._parts.map(*work))

        return slope


def _total(sums: Iterator[Array]) -> Array:
    """Sums of parts, added up in their order."""
    total = next(sums).copy()
    for each in sums:
        total += each
    return total


def _facts_of(site: Site, place: int) -> Site:
    """Return what work on a part of one party needs, without the graph, which may be large."""
    here = np.array([place])
    return replace(
        site,
        names=(site.names[place],),
        index=site.index[here],
        rows=site.rows[here],
        degree=site.degree[here],
        weight=site.weight[here],
        adjacency=sparse.csr_array((1, 1)),
    )


# -- work on one part, wherever it lies ---------------------------------------------------------


def _loss_on(block: RowBlock, facts: Site) -> BlockLoss:
    return BlockLoss(block, facts, None, as_held=True)


def _slope_sums(
    block: RowBlock, facts: Site, points: Array, clip: float | None, shift: Array | None
) -> list[Array]:
    loss = _loss_on(block, facts)
    if shift is not None:
        loss.centre(shift)
    return list(loss.slope_sums(points, clip=clip, centred=shift is not None))


def _row_sums(block: RowBlock, facts: Site) -> list[Array]:
    return list(_loss_on(block, facts).row_sums())


def _hessian_sum(block: RowBlock, facts: Site, points: Array) -> Array:
    return _loss_on(block, facts).hessian_sum(points)


def _product_sum(block: RowBlock, facts: Site, points: Array, vectors: Array) -> Array:
    loss = _loss_on(block, facts)
    return loss.product_sum(loss.curvatures(points, ALL), vectors)


def _slope_along(
    block: RowBlock, facts: Site, point: Array, direction: Array, length: Array
) -> Array:
    return _loss_on(block, facts).slopes_along(point, direction)(length)


def part_scores(block: RowBlock, weights: Array) -> tuple[Array, NDArray[np.int64]]:
    """Scores and classes of the rows of one part."""
    rows = block.rows if sparse.issparse(block.rows) else block.rows[0]
    return scores_and_codes(rows, block.labels[0], weights)


def scores_and_codes(rows: Rows, signs: Array, weights: Array) -> tuple[Array, NDArray[np.int64]]:
    """``x.w`` of rows for each output, and the codes of their classes."""
    codes = signs.argmax(axis=1) if signs.shape[1] > 1 else signs[:, 0] > 0
    # Weights may be of any size: no warning may show how long a row is.
    with np.errstate(all="ignore"):
        return np.asarray(rows @ weights.T), codes.astype(np.int64)


#: Rows that :meth:`Workspace.totals` adds up at once.
TOTALLED_ROWS: Final = 1024


def _totals(
    block: RowBlock,
    add_up: Callable[[Array, Array], Array],
    place: int = 0,
    count: int | None = None,
) -> list[Array]:
    """Sums of one piece after the other, of one party in a block."""
    rows = block.rows if sparse.issparse(block.rows) else block.rows[place]
    height = block.labels.shape[1] if count is None else count
    found = []
    for first in range(0, height, TOTALLED_ROWS):
        part = slice(first, min(first + TOTALLED_ROWS, height))
        piece = rows[part].toarray() if sparse.issparse(rows) else rows[part]
        found.append(np.asarray(add_up(piece, block.labels[place, part]), dtype=np.float64))
    return found


def part_digest(block: RowBlock) -> bytes:
    """A hash of the rows of one part, as private as they are."""
    digest = hashlib.sha256()
    add_to_digest(digest, block)
    return digest.digest()


def add_to_digest(digest: Any, block: RowBlock) -> None:
    """Take the rows of a block into a hash."""
    rows = block.rows
    parts = [rows.data, rows.indices, rows.indptr] if sparse.issparse(rows) else [rows]
    for part in (block.nodes, *parts, block.labels):
        digest.update(np.ascontiguousarray(part).data)


def drawn_rows(parts: PartedRows, drawn: NDArray[np.int64]) -> tuple[Array, Array]:
    """Rows of these numbers and their labels, ``(rows, outputs)``, fetched in one pass."""
    order = np.argsort(drawn, kind="stable")
    ends = np.cumsum(parts.heights)
    cuts = np.split(drawn[order], np.searchsorted(drawn[order], ends[:-1]))
    starts = ends - parts.heights
    numbers = [cut - start for cut, start in zip(cuts, starts, strict=True)]
    found = list(parts.map(_rows_at, each=numbers))
    rows = np.concatenate([rows for rows, _ in found])
    signs = np.concatenate([signs for _, signs in found])
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return rows[place], signs[place]


def _rows_at(block: RowBlock, numbers: NDArray[np.int64]) -> tuple[Array, Array]:
    signs = block.labels[0, numbers]
    if sparse.issparse(block.rows):
        return block.rows[numbers].toarray(), signs
    return block.rows[0, numbers], signs


#: Features above which the factor-free form is used (``make bench`` prints both around it).
FACTOR_LIMIT: Final = 300


class Workspace:
    """A shard, its objective and what earlier solves left behind to make the next one cheap.

    Parameters
    ----------
    shard
        The private rows.
    site
        Public facts: loss, weights c_i, row counts n_i.
    factor_limit
        Features above which the factor-free form is used.
    """

    def __init__(self, shard: Shard, site: Site, *, factor_limit: int = FACTOR_LIMIT) -> None:
        if not np.array_equal(shard.counts, site.rows):
            raise ParameterError("site.rows must be the row counts of the shard.")
        if site.runs > 1 and shard.parted:
            raise ParameterError(
                f"runs must be 1 where rows lie in parts elsewhere; got {site.runs}."
            )
        self._site = site
        self._shard = shard
        self._use_factor = site.features <= factor_limit
        #: Gradient passes made so far, summed over blocks; it depends on the rows: never show it.
        self.passes = 0
        # The map of rows that solvers know the lengths for.
        self._shift: Array | None = None
        self._kept: dict[str, Array] = {}

    @cached_property
    def _solvers(self) -> list[BlockSolver]:
        """Made when they are needed: sums and scores are not about a loss."""
        site, shard, factor = self._site, self._shard, self._use_factor
        here = [BlockSolver(each, site, shard.tilt, use_factor=factor) for each in shard.blocks]
        return here + [PartedSolver(each, site, use_factor=factor) for each in shard.parted]

    def keep(self, name: str, draw: Callable[[], Array]) -> Array:
        """What an algorithm draws once for the whole run: private, and part of a snapshot."""
        if name not in self._kept:
            self._kept[name] = draw()
        return self._kept[name]

    def argmin(self, linear: Array, strong_convexity: Array, tolerance: float | Array) -> Solution:
        """Minimise every party's local problem to a gradient norm of at most ``tolerance``.

        Parameters
        ----------
        linear
            ``lin``, shaped as ``site.shape``.
        strong_convexity
            ``m_i > 0`` of each party.
        tolerance
            Largest norm of the gradient at the solution, for all or for each party.
        """
        site = self._site
        tolerances = np.broadcast_to(np.asarray(tolerance, dtype=np.float64), len(site.index))
        rounding = check_reachable(site, linear, strong_convexity, tolerances)
        point = np.empty(site.shape)
        residual = np.empty(site.shape[:-1])
        for solver in self._solvers:
            nodes = solver.nodes
            solved = solver.solve(
                linear[nodes].reshape(len(nodes), -1, site.features),
                strong_convexity[nodes, None, None],
                (tolerances - rounding)[nodes, None],
            )
            point[nodes] = solved.point.reshape(-1, *site.shape[1:])
            residual[nodes] = solved.residual.reshape(-1, *site.shape[1:-1])
        self.passes = sum(solver.passes for solver in self._solvers)
        return Solution(point, residual)

    def gradient(
        self, points: Array, *, clip: float | None = None, shift: Array | None = None
    ) -> Array:
        """Gradient of ``(c/n) sum l`` at one point per party, run and output: one pass.

        Parameters
        ----------
        points
            Shaped as ``site.shape``.
        clip
            The largest norm of a row's slopes over the outputs
            (:func:`~dpadmm.solvers.block.clip_slopes`); None leaves them as they are.
        shift
            The map of rows around their mean, ``(nodes, runs, 1, features)``: margins and rows are
            then f times as long (:mod:`dpadmm.problem.centring`). Lengths are worked out once for
            an array; None takes rows as they are.
        """
        if shift is not None and shift is not self._shift:
            for solver in self._solvers:
                solver.centre(shift[solver.nodes, :, 0])
            self._shift = shift
        site, centred = self._site, shift is not None
        found = np.empty(site.shape)
        for solver in self._solvers:
            nodes = solver.nodes
            flat = points[nodes].reshape(len(nodes), -1, site.features)
            found[nodes] = solver.loss_gradient(flat, clip=clip, centred=centred).reshape(
                -1, *site.shape[1:]
            )
        self.passes = sum(solver.passes for solver in self._solvers)
        return found

    def mean_rows(self) -> Array:
        """``(c/n) sum_k x_k`` of each party, ``(nodes, features)``: one pass."""
        found = np.empty((len(self._site.index), self._site.features))
        for solver in self._solvers:
            found[solver.nodes] = solver.mean_rows()
        self.passes = sum(solver.passes for solver in self._solvers)
        return found

    def scores(self, weights: Array) -> Iterator[tuple[int, Array, NDArray[np.int64]]]:
        """Of each party here: its place, ``x.w`` of its rows for each output, and their classes.

        A row's scores depend on that row alone, and on how many rows there are. Rows that lie in
        parts come part by part.

        Parameters
        ----------
        weights
            ``(outputs, features)``, the same for every party.
        """
        for block in self._shard.blocks:
            for place, node in enumerate(block.nodes):
                count = int(self._shard.counts[node])
                rows = block.rows if sparse.issparse(block.rows) else block.rows[place, :count]
                yield int(node), *scores_and_codes(rows, block.labels[place, :count], weights)
        for parted in self._shard.parted:
            for scores, codes in parted.rows.map(part_scores, weights):
                yield int(parted.nodes[0]), scores, codes

    def totals(self, add_up: Callable[[Array, Array], Array], numbers: int) -> Array:
        r"""``sum_k f(x_k, y_k)`` of each party, ``(nodes, numbers)``: one pass, piece by piece.

        Sums of pieces of :data:`TOTALLED_ROWS` rows are added up with compensation, so that the
        error of a sum of vectors no longer than L is :math:`\gamma n L` at most, with the
        :func:`~dpadmm.problem.rows.summation_error` of n rows, in whatever order a piece is added
        up.

        Parameters
        ----------
        add_up
            From dense rows ``(rows, features)`` and what belongs to them ``(rows, outputs)`` to the
            sum of a vector of each, which it bounds: rows may hold any finite number.
        numbers
            How long that vector is.
        """
        found = np.zeros((len(self._site.index), numbers))
        for block in self._shard.blocks:
            for place, node in enumerate(block.nodes):
                total = RunningSum()
                for sums in _totals(block, add_up, place, int(self._shard.counts[node])):
                    total.add(sums)
                found[node] = total.total
        for parted in self._shard.parted:
            total = RunningSum()
            for each in parted.rows.map(_totals, add_up):
                for sums in each:
                    total.add(sums)
            found[int(parted.nodes[0])] = total.total
        return found

    def svrg(self, start: Array, linear: Array, loop: InnerLoop, inner: InnerNoise) -> Array:
        """Run the inner loop of :mod:`dpadmm.solvers.svrg` for every party, run and output.

        Parameters
        ----------
        start, linear
            v^0 and ``lambda - rho z``, shaped as ``site.shape``.
        loop
            Steps, batches, step sizes.
        inner
            Batches, the full gradient at ``start`` and the noise.
        """
        # Loading compiled code takes half a second: only who runs it loads it.
        from dpadmm.solvers.svrg import InnerProblem, descend, descend_on_grid

        site = self._site
        loss, code = site.loss, loss_code(site.loss)
        constants = (loss.slope_bound, loss.slope_range, loss.curvature_bound)
        known = linear + inner.released
        reached = np.empty(site.shape)
        blocks: list[RowBlock | PartedBlock] = [*self._shard.blocks, *self._shard.parted]
        for block in blocks:
            for place, node in enumerate(block.nodes):
                for run, output in np.ndindex(site.runs, site.outputs):
                    at = (node, run, output)
                    rows, labels, batches = _met_rows(
                        block, place, output, inner.batches[node][run]
                    )
                    problem = InnerProblem(
                        rows,
                        labels,
                        code,
                        constants,
                        float(site.weight[node]),
                        start[at],
                        inner.carried[at],
                        known[at],
                        loop.penalty,
                        float(loop.step_size[node]),
                        float(loop.weighting[node]),
                        batches,
                        float(inner.fixed[node]),
                        float(inner.relative[node]),
                    )
                    if inner.release is None:
                        reached[at] = descend(problem, inner.draws[node, run, :, output])
                    else:
                        reached[at] = descend_on_grid(problem, partial(inner.release, int(node)))
        return reached

    def fingerprint(self) -> bytes:
        """A hash of the rows, as private as they are: what a snapshot holds is about them alone."""
        digest = hashlib.sha256()
        for block in self._shard.blocks:
            add_to_digest(digest, block)
        for parted in self._shard.parted:
            digest.update(parted.nodes.data)
            for found in parted.rows.map(part_digest):
                digest.update(found)
        if self._shard.tilt is not None:
            digest.update(np.ascontiguousarray(self._shard.tilt).data)
        return digest.digest()

    def snapshot(self) -> dict[str, Array]:
        """Everything kept between solves, as arrays: restoring it repeats the same bits."""
        saved = {f"kept.{name}": values.copy() for name, values in self._kept.items()}
        for number, solver in enumerate(self._solvers):
            state = solver.state
            if state is None:
                continue
            saved[f"{number}.point"] = state.point.copy()
            saved[f"{number}.loss_gradient"] = state.loss_gradient.copy()
            for name in ("bowl", "usual", "excess"):
                saved[f"{number}.{name}"] = getattr(state, name).copy()
            if state.inverse is not None:
                saved[f"{number}.inverse"] = state.inverse.copy()
        return saved

    def restore(self, saved: dict[str, Array]) -> None:
        """Take up a :meth:`snapshot`."""
        for name, values in saved.items():
            if name.startswith("kept."):
                self._kept[name.removeprefix("kept.")] = values.copy()
        for number, solver in enumerate(self._solvers):
            if f"{number}.point" in saved:
                inverse = saved.get(f"{number}.inverse")
                solver.state = BlockState(
                    saved[f"{number}.point"].copy(),
                    saved[f"{number}.loss_gradient"].copy(),
                    None if inverse is None else inverse.copy(),
                    bowl=saved[f"{number}.bowl"].copy(),
                    usual=saved[f"{number}.usual"].copy(),
                    excess=saved[f"{number}.excess"].copy(),
                )


def _met_rows(
    block: RowBlock | PartedBlock, place: int, output: int, batches: NDArray[np.int64]
) -> tuple[Array, Array, NDArray[np.int64]]:
    """Rows, their labels, and where in them the batches are.

    Of sparse rows, and of rows that lie elsewhere, those drawn alone.
    """
    drawn = batches.ravel()
    renumbered = np.arange(len(drawn)).reshape(batches.shape)
    if isinstance(block, PartedBlock):
        rows, signs = drawn_rows(block.rows, drawn)
        return rows, np.ascontiguousarray(signs[:, output]), renumbered
    labels = np.ascontiguousarray(block.labels[place, :, output])
    if not sparse.issparse(block.rows):
        return block.rows[place], labels, batches
    return block.rows[drawn].toarray(), labels[drawn], renumbered


def check_reachable(site: Site, linear: Array, convexity: Array, tolerance: Array) -> Array:
    r"""Bound the rounding error of a gradient near the solution; public values only.

    .. math:: 32u\,\bigl(\|\mathrm{lin}\| + c(L + c_1 r)\bigr) + c\,(\gamma_h + \gamma_{h'}) L
              + c\,\gamma_d\,c_1 r,
              \qquad r = \frac{\|\mathrm{lin}\| + c\,|l'(0)| + \mathrm{tol}}{m},\quad u = 2^{-53}

    A tolerance below twice that bound is refused. In turn:

    * The gradient at 0 is at most ``|lin| + c |l'(0)|``, and the objective is m-strongly convex, so
      that no point with a gradient of at most tol is further away from 0 than r.
    * A margin, a product of d numbers, is off by at most :math:`\gamma_d r`, and the curvature
      bound carries that into its slope: the last term.
    * A mean of n slopes times rows of norm 1 is off by at most :math:`\gamma_h L`
      (:func:`~dpadmm.problem.rows.summation_error`: h does not grow with n). There may be a
      second one, made once: the fixed part of the gradients of rows whose slopes differ.
    * A slope is off by a few u of itself and of its margin; what is left are single operations on
      vectors of the size of lin, of ``m r`` and of the loss gradient, and their norm, each off by
      a few u: the first term counts 32.
    """
    if not np.isfinite(linear).all():
        raise ParameterError("linear must be finite: a message or a noise draw is not.")
    if not (convexity > 0).all():
        raise ParameterError(f"strong_convexity must be positive; got {convexity.min()}.")
    largest = np.abs(linear).max(axis=(1, 2, 3))
    unit = np.where(largest > 0, largest, 1.0)
    scaled = linear / site.per_node(unit)
    size = unit * np.sqrt(np.einsum("nrof,nrof->nro", scaled, scaled).max(axis=(1, 2)))
    floor = _rounding_error(site, size, convexity, tolerance)
    unreachable = ~(tolerance >= 2 * floor)
    if unreachable.any():
        node = int(np.argmax(np.where(unreachable, floor, -1.0)))
        raise ParameterError(
            f"tolerance must be at least {2 * floor[node]:.3g}, twice the rounding error of a "
            f"gradient for party {site.names[node]}; got {tolerance[node]:.3g}. Raise it, the "
            "penalty or the regularization, or lower the bound on messages."
        )
    return floor


def reachable_tolerance(site: Site, convexity: Array, wanted: Array) -> Array:
    """The tolerance that is wanted, or a larger one where it would be refused without any message.

    Twice what :func:`check_reachable` then allows, as room for messages and noise.
    """
    floor = _rounding_error(site, np.zeros(len(site.index)), convexity, wanted)
    return np.where(wanted >= 2 * floor, wanted, 4 * floor)


def _rounding_error(site: Site, size: Array, convexity: Array, tolerance: Array) -> Array:
    """The bound of :func:`check_reachable` for linear terms of that norm."""
    loss = site.loss
    bounded = bool(np.isfinite(loss.slope_bound))
    start = abs(float(loss.slope(np.zeros(1))[0]))
    reach = (size + site.weight * start + tolerance) / convexity
    # A loss without a slope bound has |l'(m)| <= 1 + |m|.
    slopes = loss.slope_bound if bounded else 1.0 + reach
    spread = loss.curvature_bound * reach
    last = float(np.finfo(np.float64).eps) / 2
    products = site.features * last / (1 - site.features * last)
    floor = 32 * last * (size + site.weight * (slopes + spread))
    rounding: Array = floor + site.weight * (site.summing * slopes + products * spread)
    return rounding
