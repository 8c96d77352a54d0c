r"""Passes over rows in parts that lie elsewhere: the work goes to the parts, sums come back.

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
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpadmm.errors import ParameterError
from dpadmm.plain import Array
from dpadmm.problem.rows import PartedBlock, PartedRows, RowBlock, Rows
from dpadmm.problem.site import Site
from dpadmm.solvers.block import ALL, BlockLoss, Chosen
from dpadmm.solvers.newton import BlockSolver


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
        if site.runs > 1:
            raise ParameterError(
                f"runs must be 1 where rows lie in parts elsewhere; got {site.runs}."
            )
        # No row is here.
        here = RowBlock(
            block.nodes, np.zeros((1, 0, site.features)), np.zeros((1, 0, site.outputs))
        )
        super().__init__(here, site, None, use_factor=use_factor)
        self._parts, self._facts = block.rows, _facts_of(site, int(block.nodes[0]))

    def slope_sums(self, points: Array, chosen: Chosen = ALL) -> Iterator[Array]:
        """``sum_k l'_k u_k`` of one piece after the other, in the order of the parts."""
        for sums in self._parts.map(_slope_sums, self._facts, points):
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
    """What work on a part of one party needs; not the graph, which may be large."""
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


def _slope_sums(block: RowBlock, facts: Site, points: Array) -> list[Array]:
    return list(_loss_on(block, facts).slope_sums(points))


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
    # Whatever the weights are, no warning tells how long a row is.
    with np.errstate(all="ignore"):
        return np.asarray(rows @ weights.T), codes.astype(np.int64)


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
