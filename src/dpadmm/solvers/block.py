"""Passes over the rows of one block of parties, for all their runs at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpadmm.plain import Array
from dpadmm.problem.centring import row_lengths
from dpadmm.problem.losses import Loss
from dpadmm.problem.rows import (
    RowBlock,
    Rows,
    RunningSum,
    SparseColumns,
    dense_sums,
    piece_rows,
    thin_rows,
)
from dpadmm.problem.site import Site

# Rows per feature that the Hessian of a single run is made from: it need only lead downhill.
_OWN_ROWS: Final = 10
# A sparse product takes as long for one number as a dense one for this many.
_DENSE_GAIN: Final = 64
# How many sparse rows are made dense at a time.
_DENSE_ROWS: Final = 1024

# Which parties of a block a pass is for: all of them as a view, or some by number.
Chosen = slice | NDArray[np.intp]
ALL: Final = slice(None)


class BlockLoss:
    """The losses of the parties of one block and their derivatives, with lanes = runs x outputs.

    Parameters
    ----------
    block
        The private rows.
    site
        Public facts: loss, weights c_i, row counts n_i.
    tilt
        A fixed term of each party's gradient, from rows whose slopes differ; None where there is
        none.
    as_held
        Leave rows that are mostly zeros as they are: looking at all of them costs a pass, and a
        part of rows elsewhere is taken up anew in every pass.
    """

    def __init__(
        self, block: RowBlock, site: Site, tilt: Array | None, *, as_held: bool = False
    ) -> None:
        self.nodes = block.nodes
        #: Gradient passes made so far; it depends on the rows: never show it.
        self.passes = 0
        self.lanes = (site.runs, site.outputs)
        self._rows, self._labels = block.rows, block.labels
        thin = None
        alone = len(block.nodes) == site.runs == 1 and not as_held
        if alone and not sparse.issparse(block.rows):
            thin = thin_rows(block.rows[0])
        if thin is not None:
            self._rows = thin
        self._sparse = sparse.issparse(self._rows)
        # Rows enter as y x only. Where a row has one label, sparse rows are multiplied by it once
        # here instead of twice in every pass.
        self._signed = self._sparse and site.outputs == 1
        if self._signed:
            rows = self._rows
            signed = rows.data * np.repeat(block.labels[0, :, 0], np.diff(rows.indptr))
            self._rows = sparse.csr_array((signed, rows.indices, rows.indptr), rows.shape)
            self._labels = np.ones_like(block.labels)
        # Views; making them takes as long as a pass over the rows of a small party.
        self._columns = SparseColumns(self._rows) if self._sparse else None
        self._loss: Loss = site.loss
        self._features = site.features
        self._scale = (site.weight / site.rows)[block.nodes, None, None]
        tilted = np.zeros((len(site.index), site.outputs, site.features)) if tilt is None else tilt
        weighted = site.weight[block.nodes, None, None] * tilted[block.nodes]
        self._tilt = np.tile(weighted, (1, site.runs, 1))
        self._signs = block.labels
        # Of rows around their mean: their labels times f, or f by itself.
        self._centred_labels: Array | None = None
        self._lengths: Array | None = None

    def _slopes(self, margins: Array) -> Array:
        """``l'`` of margins, which may be overwritten."""
        repeated = self.lanes[0] > 1 and self._labels.shape[1] > 1
        if not repeated or self._loss.name != "logistic":
            return self._loss.slope(margins)
        # Repeated runs on rows exist in simulations only, which pay for loading compiled code; a
        # party's process stays small without it.
        from dpadmm.solvers.compiled import logistic_slopes

        slopes: Array = logistic_slopes(margins.reshape(-1)).reshape(margins.shape)
        return slopes

    def _pieces(self, chosen: Chosen, labels: Array | None = None) -> Iterator[tuple[Rows, Array]]:
        """Rows and labels, or what stands in for them, a cacheful at a time."""
        labels = self._labels if labels is None else labels
        height = labels.shape[1]
        if self._sparse:
            yield self._rows, labels
        elif len(self.nodes) > 1:
            yield self._rows[chosen], labels[chosen]
        else:
            step = piece_rows(self._features)
            for start in range(0, height, step):
                yield self._rows[:, start : start + step], labels[:, start : start + step]

    def _margins(
        self, rows: Rows, labels: Array, points: Array, *, signed: bool | None = None
    ) -> Array:
        """``y x.w`` as ``(nodes, rows, runs, outputs)``; rows may have their sign already."""
        if self._sparse:
            scores = np.asarray(rows @ points[0].T)[None]
        else:
            scores = np.matmul(rows, points.swapaxes(1, 2))
        margins = scores.reshape(*labels.shape[:2], -1, labels.shape[2])
        if not (self._signed if signed is None else signed):
            margins *= labels[:, :, None, :]
        return margins

    def _back(self, rows: Rows, weights: Array) -> Array:
        """``sum_k weights_k x_k`` as ``(nodes, lanes, features)``."""
        flat = weights.reshape(*weights.shape[:2], -1)
        if self._columns is not None:
            return self._columns.sums(flat[0]).T[None]
        return dense_sums(rows, flat)

    def centre(self, shift: Array) -> None:
        """Work out the lengths of mapped rows (:mod:`dpadmm.problem.centring`): one pass.

        Parameters
        ----------
        shift
            The map, ``(nodes, runs, features)``.
        """
        lengths = row_lengths(self._rows, shift)
        if self.lanes == (1, 1):
            self._centred_labels, self._lengths = self._labels * lengths, None
        else:
            self._centred_labels, self._lengths = None, lengths

    def slope_sums(
        self,
        points: Array,
        chosen: Chosen = ALL,
        clip: float | None = None,
        *,
        centred: bool = False,
    ) -> Iterator[Array]:
        """``sum_k l'_k u_k`` of one piece of rows after the other, ``(nodes, lanes, features)``.

        With ``clip``, the slopes of a row are a vector of that norm at most (:func:`clip_slopes`).
        With ``centred``, after :meth:`centre`, margins and rows are f times as long.
        """
        labels = self._centred_labels if centred else self._labels
        lengths = self._lengths if centred else None
        signed = self._signed and not centred
        start = 0
        for rows, signs in self._pieces(chosen, self._labels if labels is None else labels):
            margins = self._margins(rows, signs, points, signed=signed)
            stop = start + signs.shape[1]
            scale = None if lengths is None else lengths[chosen, start:stop, :, None]
            start = stop if len(self.nodes) == 1 else 0
            if scale is not None:
                margins *= scale
            slopes = self._slopes(margins)
            if clip is not None:
                clip_slopes(slopes, clip)
            if not signed:
                slopes *= signs[:, :, None, :]
            if scale is not None:
                slopes *= scale
            yield from self._piece_sums(rows, slopes)

    def _piece_sums(self, rows: Rows, weights: Array) -> Iterator[Array]:
        """``sum_k weights_k x_k`` of a piece, in one sum or in those of its blocks."""
        if self._columns is None:
            yield self._back(rows, weights)
            return
        flat = weights.reshape(*weights.shape[:2], -1)
        for sums in self._columns.block_sums(flat[0]):
            yield sums.T[None]

    def row_sums(self) -> Iterator[Array]:
        """``sum_k x_k`` of one piece of rows after the other, ``(nodes, 1, features)``."""
        signs = self._signs[..., :1]
        # A sign takes back the one that rows were multiplied by; 0 is where they were filled up.
        for rows, present in self._pieces(ALL, signs if self._signed else np.square(signs)):
            yield from self._piece_sums(rows, present)

    def mean_rows(self) -> Array:
        """``(c/n) sum_k x_k``, ``(nodes, features)``: one pass."""
        self.passes += 1
        running = RunningSum()
        for sums in self.row_sums():
            running.add(sums)
        total = running.total
        total *= self._scale
        return total[:, 0]

    def loss_gradient(
        self,
        points: Array,
        chosen: Chosen = ALL,
        clip: float | None = None,
        *,
        centred: bool = False,
    ) -> Array:
        """Gradient of ``(c/n) sum l`` at one point per node and lane: one pass."""
        self.passes += 1
        running = RunningSum()
        for sums in self.slope_sums(points, chosen, clip, centred=centred):
            running.add(sums)
        total = running.total
        total *= self._scale[chosen]
        total += self._tilt[chosen]
        return total

    def mean_hessian(self, points: Array, chosen: Chosen) -> Array:
        """Mean over runs of the loss Hessian, ``(nodes, outputs, features, features)``."""
        total = self.hessian_sum(points, chosen)
        total *= self._scale[chosen][..., None]
        return total

    def hessian_sum(self, points: Array, chosen: Chosen = ALL) -> Array:
        """``sum_k l''_k u_k u_k'``, of which :meth:`mean_hessian` is a multiple."""
        outputs = self.lanes[1]
        total = np.zeros((len(points), outputs, self._features, self._features))
        for rows, labels in self._pieces(chosen):
            curvature = self._loss.curvature(self._margins(rows, labels, points)).mean(axis=2)
            for output in range(outputs):
                roots = np.sqrt(curvature[:, :, output, None])
                if self._sparse:
                    total[0, output] += _sparse_squares(rows, roots[0])
                else:
                    weighted = rows * roots
                    total[:, output] += np.matmul(weighted.swapaxes(1, 2), weighted)
        return total

    def own_hessian(self, point: Array, node: int, output: int) -> Array:
        """The loss Hessian of one lane, estimated from every few rows of its party."""
        labels = self._labels[node, :, output]
        step = max(1, len(labels) // (_OWN_ROWS * self._features))
        # A block of sparse rows is one party's.
        some = self._rows[::step] if self._sparse else self._rows[node, ::step]
        signs = labels[::step]
        # Rows that fill up a block have the label 0.
        curvature = np.square(signs) * self._loss.curvature(signs * (some @ point))
        roots = np.sqrt(curvature)[:, None]
        share = np.count_nonzero(labels) / np.count_nonzero(signs)
        hessian: Array
        if self._sparse:
            hessian = _sparse_squares(some, roots)
        else:
            weighted = some * roots
            hessian = weighted.T @ weighted
        return hessian * (share * self._scale[node])

    def curvatures(self, points: Array, chosen: Chosen) -> list[Array]:
        """Second derivatives of the losses, piece by piece, for :meth:`hessian_product`."""
        return [
            self._loss.curvature(self._margins(rows, labels, points))
            for rows, labels in self._pieces(chosen)
        ]

    def hessian_product(self, curvatures: list[Array], vectors: Array, chosen: Chosen) -> Array:
        """The loss Hessian times one vector per node and lane: one pass."""
        self.passes += 1
        total = self.product_sum(curvatures, vectors, chosen)
        total *= self._scale[chosen]
        return total

    def product_sum(self, curvatures: list[Array], vectors: Array, chosen: Chosen = ALL) -> Array:
        """``sum_k l''_k u_k (u_k.v)``, of which :meth:`hessian_product` is a multiple."""
        total = np.zeros_like(vectors)
        for (rows, labels), curvature in zip(self._pieces(chosen), curvatures, strict=True):
            # A label enters twice and cancels: its square is 1, and 0 where rows were filled up.
            scores = self._margins(rows, np.square(labels), vectors)
            total += self._back(rows, curvature * scores)
        return total

    def slopes_along(
        self, point: Array, direction: Array, chosen: Chosen = ALL
    ) -> Callable[[Array], Array]:
        """``a -> sum_k l'(u_k.(x + a v)) u_k.v`` of each node and lane, at the cost of a pass."""
        pieces = [
            (
                self._margins(rows, labels, point).reshape(*labels.shape[:2], -1),
                self._margins(rows, labels, direction).reshape(*labels.shape[:2], -1),
            )
            for rows, labels in self._pieces(chosen)
        ]

        def slope(length: Array) -> Array:
            total = np.zeros_like(length)
            for margins, changes in pieces:
                slopes = self._slopes(margins + length[:, None, :] * changes)
                total += np.einsum("nkl,nkl->nl", slopes, changes)
            return total

        return slope


def clip_slopes(slopes: Array, bound: float) -> None:
    r"""Shorten each row's slopes over the outputs, in place.

    .. math:: s \leftarrow s\,\min(1, C / \|s\|)

    for slopes ``(nodes, rows, runs, outputs)``; one output is left as it is, to the bit, since no
    slope of a loss exceeds its bound. What is left exceeds C by rounding only: a norm of K numbers
    is off by less than :math:`(K/2 + 2)u` of itself, the quotient and the product by u each.
    """
    if slopes.shape[-1] == 1:
        return
    norms = np.sqrt(np.einsum("nkro,nkro->nkr", slopes, slopes))
    np.maximum(norms, bound, out=norms)
    np.divide(bound, norms, out=norms)
    slopes *= norms[..., None]


def _sparse_squares(rows: Rows, roots: Array) -> Array:
    """``sum_k roots_k^2 x_k x_k'`` of sparse rows, dense."""
    count, features = rows.shape
    repeated = np.repeat(roots[:, 0], np.diff(rows.indptr))
    weighted = sparse.csr_array((rows.data * repeated, rows.indices, rows.indptr), rows.shape)
    squares: Array
    if _DENSE_GAIN * (rows.nnz / count) ** 2 < features**2:
        squares = (weighted.T @ weighted).toarray()
        return squares
    squares = np.zeros((features, features))
    for first in range(0, count, _DENSE_ROWS):
        piece = weighted[first : first + _DENSE_ROWS].toarray()
        squares += piece.T @ piece
    return squares
