r"""Sums over rows whose rounding error does not grow with the number of rows.

.. math:: \Bigl\|\mathrm{fl}\Bigl(\sum_k s_k x_k\Bigr) - \sum_k s_k x_k\Bigr\|
          \le \gamma_h \sum_k |s_k|\,\|x_k\|,\qquad \gamma_h = \frac{hu}{1 - hu},\quad u = 2^{-53}

where h is the number of roundings that a term goes through at most, in whatever order a library
adds up (Higham, "Accuracy and stability of numerical algorithms", sections 3.1 and 4.2; for the
norm of the vector, Minkowski's inequality over the terms). One sum over n rows has h = n: with a
slope of at most L and rows of norm 1 the mean is off by n u L, which at 2e7 rows is more than what
a private solve may leave of a gradient. Rows are therefore added up in blocks of p rows, blocks
within a piece that fits the cache, and pieces with compensation (Ogita, Rump, Oishi 2005, "Sum2"),
whose own error is :math:`u\|\cdot\| + O(q^2u^2)` for q pieces: h does not grow with n.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from dpadmm.plain import Array

__all__ = [
    "SUMMED_ROWS",
    "RunningSum",
    "SparseColumns",
    "dense_sums",
    "piece_rows",
    "row_sums",
    "single_sum_error",
    "summation_error",
]


#: p: rows that are added up at once; dense, and sparse where features do not outnumber them (adding
# up the blocks must not take longer than the blocks).
SUMMED_ROWS: Final = 512
_SPARSE_ROWS: Final = 2048
# The same of sums that are made once in a run.
_ONCE_ROWS: Final = 128
# A pass works on pieces of about this many bytes, so that a piece read for X w is still in the
# cache for X' r.
_PIECE_BYTES: Final = 1 << 22
_UNIT: Final = float(np.finfo(np.float64).eps) / 2


def piece_rows(features: int) -> int:
    """Dense rows of one piece of a pass."""
    return max(64, _PIECE_BYTES // (8 * features))


def _sparse_rows(features: int) -> int:
    return max(_SPARSE_ROWS, features)


def summation_error(rows: ArrayLike, features: int) -> Array:
    """``gamma_h`` for sums over so many rows, dense or sparse, pieces of a pass and scale counted.

    A term is a product (1 rounding), goes into the sum of its block (at most as many as it has
    rows) and of the blocks of a piece, into the compensated sum (2, and q^2 u for q pieces, less
    than 1 below 1e8 of them), and is scaled by c / n (2). Rows of zeros, which fill up a stack of
    parties, are added without rounding.

    Rows in parts (:mod:`dpadmm.solvers.parts`) keep the bound. A part begins a piece of its own, so
    that no piece or block has more rows than here, and the sums of all pieces of all parts go into
    one compensated sum, in the order of the parts: a term meets the same roundings. There are at
    most as many pieces more as there are parts, which leaves q below 1e8.
    """
    count = np.asarray(rows, dtype=np.float64)
    dense = np.minimum(count, SUMMED_ROWS)
    dense += np.ceil(np.minimum(count, piece_rows(features)) / SUMMED_ROWS)
    roundings = (np.maximum(dense, np.minimum(count, _sparse_rows(features))) + 6) * _UNIT
    error: Array = roundings / (1 - roundings)
    return error


class RunningSum:
    """A sum of arrays that keeps what rounding takes away, and adds it at the end."""

    def __init__(self) -> None:
        self._total: Array | None = None
        self._lost: Array | float = 0.0

    def add(self, values: Array) -> None:
        """Add an array, which is kept."""
        if self._total is None:
            self._total = values
            return
        total = self._total + values
        part = total - self._total
        self._lost = self._lost + ((self._total - (total - part)) + (values - part))
        self._total = total

    @property
    def total(self) -> Array:
        """What was added so far, at least one array."""
        assert self._total is not None
        return self._total + self._lost


def single_sum_error(rows: ArrayLike) -> Array:
    """``gamma_h`` for :func:`row_sums`, counted as in :func:`summation_error`."""
    roundings = (np.minimum(np.asarray(rows, dtype=np.float64), _ONCE_ROWS) + 6) * _UNIT
    error: Array = roundings / (1 - roundings)
    return error


def dense_sums(rows: Array, weights: Array) -> Array:
    """``sum_k weights_k x_k``: from ``(nodes, rows, features)`` and ``(nodes, rows, lanes)``."""
    nodes, height, lanes = weights.shape
    if height <= SUMMED_ROWS:
        return np.asarray(np.matmul(weights.swapaxes(1, 2), rows))
    whole = height - height % SUMMED_ROWS
    # Views: an axis is split, nothing is moved.
    blocks = rows[:, :whole].reshape(nodes, -1, SUMMED_ROWS, rows.shape[2])
    parts = weights[:, :whole].reshape(nodes, -1, SUMMED_ROWS, lanes).swapaxes(2, 3)
    total: Array = np.matmul(parts, blocks).sum(axis=1)
    if whole < height:
        total += np.matmul(weights[:, whole:].swapaxes(1, 2), rows[:, whole:])
    return total


class SparseColumns:
    """The columns of sparse rows, block by block, to add up rows with.

    Parameters
    ----------
    rows
        A ``csr_array``; nothing of it is copied but the places where rows begin.
    step
        Rows of a block; chosen from the features unless given.
    """

    def __init__(self, rows: Any, step: int | None = None) -> None:
        count, features = rows.shape
        step = step or _sparse_rows(features)
        self._blocks = []
        for first in range(0, count, step):
            starts = rows.indptr[first : first + step + 1]
            held = slice(starts[0], starts[-1])
            columns = sparse.csc_array((features, len(starts) - 1), dtype=rows.dtype)
            # Given to its constructor, views of less than half an array would be copied: twice the
            # memory, and rows read for X w would not be in the cache for X' r.
            columns.data, columns.indices = rows.data[held], rows.indices[held]
            columns.indptr = starts - starts[0]
            self._blocks.append((slice(first, first + step), columns))

    def block_sums(self, weights: Array) -> Iterator[Array]:
        """``sum_k weights_k x_k`` of each block, ``(features, lanes)``, from ``(rows, lanes)``."""
        for where, columns in self._blocks:
            yield np.asarray(columns @ weights[where])

    def sums(self, weights: Array) -> Array:
        """``sum_k weights_k x_k`` as ``(features, lanes)``, from ``(rows, lanes)``."""
        running = RunningSum()
        for sums in self.block_sums(weights):
            running.add(sums)
        return running.total


def row_sums(rows: Any, weights: Array) -> Array:
    """``sum_k weights_k x_k`` of one party, ``(lanes, features)``, from ``(rows, lanes)``.

    More exact and slower than a pass: for what is made once.
    """
    if sparse.issparse(rows):
        return SparseColumns(rows, _ONCE_ROWS).sums(weights).T
    running = RunningSum()
    for first in range(0, len(rows), _ONCE_ROWS):
        piece = slice(first, first + _ONCE_ROWS)
        running.add(dense_sums(rows[None, piece], weights[None, piece])[0])
    return running.total
