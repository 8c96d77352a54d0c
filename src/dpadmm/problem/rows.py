"""Rows: what a party holds, of norm at most 1, laid out for the solvers.

Arrays of parameters have the axes ``(nodes, runs, outputs, features)``: the parties computed in
this process, repeated runs with noise of their own, the columns of a one-vs-rest classifier.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpadmm.errors import ParameterError
from dpadmm.plain import Array
from dpadmm.problem.row_sums import row_sums

__all__ = [
    "PartedBlock",
    "PartedRows",
    "RowBlock",
    "Rows",
    "Shard",
    "clip_rows",
    "label_signs",
    "prepare_rows",
    "scaled_margins",
    "thin_rows",
]


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
        counts = np.array([rows.shape[0] for rows, _ in parties], dtype=np.int64)
        if counts.min(initial=1) < 1:
            empty = int(np.argmin(counts))
            raise ParameterError(f"parties must each have at least one row; party {empty} has 0.")
        parties = [(clip_rows(rows), np.where(labels > 0, 1.0, -1.0)) for rows, labels in parties]
        tilt = None
        if tilts is not None:
            sums = [
                row_sums(rows, labels * extra[:, None])
                for (rows, labels), extra in zip(parties, tilts, strict=True)
            ]
            tilt = np.stack(sums) / counts[:, None, None]
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
        return cls(tuple(blocks), counts, tilt)


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
