r"""Rows: what a party holds, of norm at most 1, laid out for the solvers.

Arrays of parameters have the axes ``(nodes, runs, outputs, features)``: the parties computed in
this process, repeated runs with noise of their own, the columns of a one-vs-rest classifier.

**Sums.** Sums over rows whose rounding error does not grow with the number of rows.

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

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from dpadmm.errors import ParameterError
from dpadmm.plain import Array

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

    Rows in parts (:mod:`dpadmm.solvers.workspace`) keep the bound. A part begins a piece of its
    own, so that no piece or block has more rows than here, and the sums of all pieces of all parts
    go into one compensated sum, in the order of the parts: a term meets the same roundings. There
    are at most as many pieces more as there are parts, which leaves q below 1e8.
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


#: A dense float64 array, or a ``scipy.sparse.csr_array`` (scipy is untyped).
Rows = Any


# How many rows are clipped at a time.
_CLIP_ROWS: Final = 1 << 16


# Parties with fewer numbers than this are stacked with others of nearly their size: one batched
# call then serves many of them. Larger ones are worth a call of their own.
_STACK_BELOW: Final = 1 << 15


# How much longer than the shortest the longest party of a stack may be (rows of zeros fill up).
_STACK_SLACK: Final = 1.125


# Large parties whose numbers are nonzero in at most this part are worth a sparse copy for passes:
# a nonzero number costs about two and a half times as much there. The copy is small beside rows in
# memory; for rows in a file it must be small by itself.
_THIN_PART: Final = 0.2
_THIN_BYTES: Final = 1 << 26
_NONZERO_BYTES: Final = 12


def thin_rows(rows: Array) -> Any | None:
    """A sparse copy of one party's dense rows, where passes over it are quicker; else None.

    Columns that encode categories, one for each, are zero but for one of them.
    """
    most = min(_THIN_PART * rows.size, _THIN_BYTES / _NONZERO_BYTES)
    # The first rows decide whether all are looked at: there may be very many.
    first = rows[: max(1, _STACK_BELOW // rows.shape[1])]
    if rows.size <= _STACK_BELOW or np.count_nonzero(first) > _THIN_PART * first.size:
        return None
    return sparse.csr_array(rows) if np.count_nonzero(rows) <= most else None


def prepare_rows(
    rows: Rows, *, data_norm: float, fit_intercept: bool, intercept_scale: float = 1.0
) -> Rows:
    """Divide by ``data_norm``, append a number if asked, then scale down to norm 1 where longer.

    Row by row: no row's result depends on another row. The result is a new array.
    """
    if sparse.issparse(rows):
        scaled = sparse.csr_array(rows, dtype=np.float64, copy=True)
        scaled.sum_duplicates()
        unit = _units(abs(scaled).max(axis=1).toarray().ravel(), data_norm)
        scaled.data /= np.repeat(unit, np.diff(scaled.indptr))
        if fit_intercept:
            ones = sparse.csr_array((intercept_scale * (data_norm / unit))[:, None])
            scaled = sparse.hstack([scaled, ones], format="csr")
        norms = np.sqrt(np.asarray(scaled.multiply(scaled).sum(axis=1)).ravel())
        scaled.data /= np.repeat(np.maximum(norms, 1.0), np.diff(scaled.indptr))
        return scaled
    dense: Array = np.empty((rows.shape[0], rows.shape[1] + fit_intercept))
    largest = np.maximum(rows.max(axis=1, initial=0.0), -rows.min(axis=1, initial=0.0))
    unit = _units(largest, data_norm)
    np.divide(rows, unit[:, None], out=dense[:, : rows.shape[1]])
    if fit_intercept:
        dense[:, -1] = intercept_scale * (data_norm / unit)
    norms = np.sqrt(np.einsum("ij,ij->i", dense, dense))
    dense /= np.maximum(norms, 1.0)[:, None]
    return dense


def data_norm_from_bounds(low: ArrayLike, high: ArrayLike) -> float:
    r"""The largest norm of a row within public bounds of its columns, for ``data_norm``.

    .. math:: D = \sqrt{\sum_j \max(|\ell_j|, |h_j|)^2}

    No row within the bounds is longer, and the corner furthest from zero is as long: no row is
    scaled down, and none is divided by more than it must be.

    Parameters
    ----------
    low, high
        The bounds of each column. They must be public: bounds that are read off private rows leak
        them, and no privacy budget covers that.

    Examples
    --------
    >>> data_norm_from_bounds([0, -3], [4, 2])
    5.0
    """
    try:
        ends = np.array([low, high], dtype=np.float64)
    except (TypeError, ValueError):
        raise ParameterError(
            "low and high must be lists of numbers, one for each column and equally many; got "
            "something else."
        ) from None
    if ends.ndim != 2 or not ends.shape[1] or not np.isfinite(ends).all():
        raise ParameterError(
            "low and high must have one finite number for each column; got arrays of shape "
            f"{ends.shape[1:]}, or a number that is not finite."
        )
    wrong = np.flatnonzero(ends[0] > ends[1])
    if len(wrong):
        first = int(wrong[0])
        raise ParameterError(
            f"low must not exceed high; got {ends[0, first]:g} and {ends[1, first]:g} for column "
            f"{first}: swap them."
        )
    norm = math.hypot(*np.abs(ends).max(axis=0).tolist())
    if not 0 < norm < math.inf:
        raise ParameterError(
            f"low and high must allow a row of a norm that is positive and finite; got {norm:g}. "
            "Widen or narrow them."
        )
    return norm


def scaled_margins(
    rows: Rows,
    coef: Array,
    intercept: Array,
    *,
    data_norm: float = 1.0,
    intercept_scale: float | None = None,
) -> Array:
    r"""Margins of rows as training saw them, ``(rows, outputs)``.

    .. math:: \frac{x\cdot w + b}{\max(1, \|(x/D, s)\|)}

    with D the ``data_norm`` and s the ``intercept_scale`` of :func:`prepare_rows`. They are what
    a loss is about: probabilities are functions of them, and no row's is larger than the norm of
    the parameters. Their sign is that of :math:`x\cdot w + b`.

    Parameters
    ----------
    rows
        As they were given; those that a schema encoded have norm 1 at most already, and margins
        of :math:`x\cdot w`.
    coef, intercept
        Weights of the columns as they were given, ``(outputs, features)`` and ``(outputs,)``.
    data_norm, intercept_scale
        How the rows were prepared; None where no number was appended to them.
    """
    appended = intercept_scale is not None
    prepared = prepare_rows(
        rows,
        data_norm=data_norm,
        fit_intercept=appended,
        intercept_scale=intercept_scale if intercept_scale is not None else 1.0,
    )
    weights = coef * data_norm
    if intercept_scale is not None:
        weights = np.concatenate([weights, intercept[:, None] / intercept_scale], axis=1)
    return np.asarray(prepared @ weights.T)


def _units(largest: Array, data_norm: float) -> Array:
    """What to divide each row by first: ``data_norm``, or more where a square would overflow.

    A row that is divided by more is still far longer than 1, so that scaling it down to norm 1
    makes good for it.
    """
    return np.maximum(data_norm, largest * 1e-100)


def clip_rows(rows: Rows) -> Rows:
    """Bring every row to norm <= 1, and a row that is not finite to zero, row by row.

    This is what the proofs assume of rows, so it is enforced where rows are laid out and cannot
    fail. Rows that comply are returned as they are.
    """
    if sparse.issparse(rows):
        norms = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)).ravel())
        factors = _row_factors(norms)
        if (factors == 1.0).all():
            return rows
        clipped = rows.copy()
        clipped.data = np.nan_to_num(clipped.data, posinf=0.0, neginf=0.0)
        clipped.data *= np.repeat(factors, np.diff(clipped.indptr))
        return clipped
    for start in range(0, len(rows), _CLIP_ROWS):
        piece = rows[start : start + _CLIP_ROWS]
        factors = _row_factors(np.sqrt(np.einsum("ij,ij->i", piece, piece)))
        wrong = np.flatnonzero(factors != 1.0)
        if len(wrong):
            # A file is mapped copy-on-write, so that only the pages concerned are copied; an
            # array in memory may be the caller's and is copied whole.
            if not (isinstance(rows, np.memmap) and rows.flags.writeable):
                rows = np.array(rows)
            rows[start + wrong] = factors[wrong, None] * np.nan_to_num(
                rows[start + wrong], posinf=0.0, neginf=0.0
            )
    return rows


def _row_factors(norms: Array) -> Array:
    """What each row is multiplied by: 1 where it complies, 0 where it is not finite."""
    finite = norms < np.inf
    factors = np.divide(1.0, np.maximum(norms, 1.0), out=np.zeros_like(norms), where=finite)
    # A norm within rounding of 1 counts as 1: the accounted tolerance exceeds that by far.
    return np.where(norms <= 1.0 + 1e-12, 1.0, factors)


@dataclass(frozen=True)
class RowBlock:
    """The rows of one large party, or of a stack of small ones.

    Attributes
    ----------
    nodes
        Positions of its parties in the shard.
    rows
        ``(nodes, rows, features)``, filled up with rows of zeros, which add nothing to any
        gradient; or one party's sparse ``(rows, features)``.
    labels
        ``(nodes, rows, outputs)``, each -1 or +1, and 0 where rows were filled up.
    """

    nodes: NDArray[np.intp]
    rows: Rows = field(repr=False)
    labels: Array = field(repr=False)

    def __sizeof__(self) -> int:
        """Bytes of the rows: by this a cluster knows when its memory is full, and what to move."""
        rows = self.rows
        held = [rows.data, rows.indices, rows.indptr] if sparse.issparse(rows) else [rows]
        return sum(int(array.nbytes) for array in (*held, self.labels))


Result = TypeVar("Result")


class PartedRows(Protocol):
    """The rows of one party in parts that lie elsewhere, in a fixed order."""

    @property
    def heights(self) -> tuple[int, ...]:
        """How many rows each part has."""

    def map(
        self, work: Callable[..., Result], *arguments: Any, each: Sequence[Any] | None = None
    ) -> Iterator[Result]:
        """``work(block, *arguments)`` of every part, in the order of the parts.

        With ``each``, which holds something for every part, that is the last argument. A part may
        be worked on twice, if what worked on it was lost: ``work`` leaves nothing behind but its
        result, which is the same again. Its block has the one node 0.
        """


@dataclass(frozen=True)
class PartedBlock:
    """The rows of one party that are not in this process.

    Attributes
    ----------
    nodes
        The position of the party in the shard, alone.
    rows
        Its parts.
    """

    nodes: NDArray[np.intp]
    rows: PartedRows = field(repr=False)


@dataclass(frozen=True)
class Shard:
    """The private rows of the parties in this process. Only a workspace may read them.

    Attributes
    ----------
    blocks, counts
        The rows, and how many each party has.
    parted
        The rows that are not in this process.
    tilt
        ``(nodes, outputs, features)``: a constant part of the mean loss gradient of each party,
        ``sum_k tilt_k u_k / n``; None without.
    """

    blocks: tuple[RowBlock, ...]
    counts: NDArray[np.int64]
    tilt: Array | None = None
    parted: tuple[PartedBlock, ...] = ()

    def beside(self, parted: Mapping[int, PartedRows]) -> Shard:
        """These parties and others whose rows are elsewhere, at the positions given."""
        total = len(self.counts) + len(parted)
        here = np.array([place for place in range(total) if place not in parted], dtype=np.intp)
        counts = np.empty(total, dtype=np.int64)
        counts[here] = self.counts
        for place, rows in parted.items():
            counts[place] = sum(rows.heights)
        return Shard(
            tuple(RowBlock(here[block.nodes], block.rows, block.labels) for block in self.blocks),
            counts,
            parted=tuple(PartedBlock(np.array([place]), parted[place]) for place in parted),
        )

    @classmethod
    def from_parties(
        cls, parties: Sequence[tuple[Rows, Array]], tilts: Sequence[Array] | None = None
    ) -> Shard:
        """Lay out ``(rows, labels)`` of each party; labels are ``(rows, outputs)`` in {-1, +1}.

        Rows are clipped to norm 1; a label that is neither -1 nor +1 counts by its sign.
        ``tilts`` hold a number for every row of each party, which is added to the slope of its
        loss.
        """
        counts = _row_counts(parties)
        parties = [(clip_rows(rows), np.where(labels > 0, 1.0, -1.0)) for rows, labels in parties]
        tilt = None
        if tilts is not None:
            sums = [
                row_sums(rows, labels * extra[:, None])
                for (rows, labels), extra in zip(parties, tilts, strict=True)
            ]
            tilt = np.stack(sums) / counts[:, None, None]
        return cls(_blocks_of(parties, counts), counts, tilt)

    @classmethod
    def of_values(cls, parties: Sequence[tuple[Array, Array]]) -> Shard:
        """Lay out ``(rows, responses)`` of each party, numbers of any size, to be summed up.

        Whoever sums them up (:mod:`dpadmm.solvers.workspace`) bounds what a row adds. A row with a
        number that is not finite becomes a row of zeros.
        """
        finite = [_finite_values(rows, responses) for rows, responses in parties]
        counts = _row_counts(finite)
        return cls(_blocks_of(finite, counts), counts)


def _row_counts(parties: Sequence[tuple[Rows, Array]]) -> NDArray[np.int64]:
    counts = np.array([rows.shape[0] for rows, _ in parties], dtype=np.int64)
    if counts.min(initial=1) < 1:
        empty = int(np.argmin(counts))
        raise ParameterError(f"parties must each have at least one row; party {empty} has 0.")
    return counts


def _finite_values(rows: Array, responses: Array) -> tuple[Array, Array]:
    finite = np.isfinite(np.concatenate([rows, responses], axis=1)).all(axis=1)
    if finite.all():
        return rows, responses
    return np.where(finite[:, None], rows, 0.0), np.where(finite[:, None], responses, 0.0)


def _blocks_of(
    parties: Sequence[tuple[Rows, Array]], counts: NDArray[np.int64]
) -> tuple[RowBlock, ...]:
    """Each large party by itself, small ones stacked with others of nearly their size."""
    blocks: list[RowBlock] = []
    stacked: list[int] = []
    for node in np.argsort(counts, kind="stable"):
        rows, labels = parties[node]
        if sparse.issparse(rows) or rows.size > _STACK_BELOW:
            place = np.array([node])
            blocks.append(
                RowBlock(place, rows if sparse.issparse(rows) else rows[None], labels[None])
            )
            continue
        if stacked and counts[node] > _STACK_SLACK * counts[stacked[0]]:
            blocks.append(_stack(parties, stacked))
            stacked = []
        stacked.append(int(node))
    if stacked:
        blocks.append(_stack(parties, stacked))
    return tuple(blocks)


def _stack(parties: Sequence[tuple[Rows, Array]], nodes: list[int]) -> RowBlock:
    height = max(parties[node][0].shape[0] for node in nodes)
    features, outputs = parties[nodes[0]][0].shape[1], parties[nodes[0]][1].shape[1]
    rows = np.zeros((len(nodes), height, features))
    labels = np.zeros((len(nodes), height, outputs))
    for place, node in enumerate(nodes):
        party_rows, party_labels = parties[node]
        rows[place, : len(party_rows)] = party_rows
        labels[place, : len(party_labels)] = party_labels
    return RowBlock(np.array(nodes), rows, labels)


def label_signs(codes: NDArray[np.int64], outputs: int) -> Array:
    """One column of -1 and +1 per output: the second class, or each class against the rest."""
    if outputs == 1:
        return np.where(codes == 1, 1.0, -1.0)[:, None]
    return np.where(codes[:, None] == np.arange(outputs), 1.0, -1.0)
