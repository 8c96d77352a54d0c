r"""What each position of a data set has cost, where runs read some of its rows only.

A data set is an ordered list, and neighbouring ones differ in the content of one position p. A
release that reads the range R of positions has the same distribution for both unless p is in R, so
that the costs that add up for p are those of the releases whose range holds it:

.. math:: \mathrm{spent} = \max_p \sum_{r:\,p\in R_r} \mathrm{cost}_r .

For each pair of neighbours this is the sum that a filter (:mod:`dpadmm.ledger.filters`) bounds,
whatever was chosen along the way, ranges included: training on one part and evaluating on the rest
costs the larger of the two (parallel composition), a run on all rows counts for every position, and
where ranges overlap their costs add up.

A person with k rows, at positions :math:`p_1..p_k`, moves a Gaussian release by at most
:math:`c_r = \#\{i: p_i\in R_r\}` of its sensitivities, and since :math:`c_r^2 \le k\,c_r`

.. math:: \sum_r c_r^2\mu_r^2 \;\le\; k\sum_i\sum_{r:\,p_i\in R_r}\mu_r^2
          \;\le\; k^2\max_p\sum_{r:\,p\in R_r}\mu_r^2 ,

so that the maximum holds for Gaussian releases, charged for k rows each. What a solver may be off
by moves by all of it with any of the k rows, and is charged k^2 times. Of other releases no such
bound is known here: then every cost is charged to all positions.

An order that depends on what rows hold, such as a sorted table, is not covered: replacing one row
would move others to another position.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple

from dpadmm.errors import LedgerError, ParameterError


class RowRange(NamedTuple):
    """Positions ``first`` to ``stop - 1``, counted from 0."""

    first: int
    stop: int

    def __str__(self) -> str:
        return f"rows {self.first + 1} to {self.stop}"

    def meets(self, other: RowRange | None) -> bool:
        """Whether they have a position in common; None are all positions."""
        return other is None or (self.first < other.stop and other.first < self.stop)

    @classmethod
    def checked(cls, value: Any, rows: int) -> RowRange:
        """A range of a data set of that many rows, from what an entry says; or a refusal."""
        given = list(value) if isinstance(value, list | tuple) else []
        whole = len(given) == 2 and all(type(number) is int for number in given)
        if not whole or not 0 <= given[0] < given[1] <= rows:
            raise LedgerError(
                f"rows of a run must be two numbers, 0 <= first < stop <= {rows}; got {value!r}."
            )
        return cls(*given)


@dataclass(frozen=True)
class Piece:
    """Positions that were all charged the same: what they cost, and if all others collude."""

    rows: RowRange
    spent: Fraction = Fraction(0)
    spent_alone: Fraction = Fraction(0)


class PositionCosts:
    """The costs of all positions of a data set.

    Parameters
    ----------
    rows
        How many positions there are.
    """

    def __init__(self, rows: int) -> None:
        self._all = RowRange(0, rows)
        self.pieces: tuple[Piece, ...] = (Piece(self._all),)

    def add(self, cost: Fraction, cost_alone: Fraction, rows: RowRange | None = None) -> None:
        """Charge every position of a range; all positions unless given."""
        charged, found = rows or self._all, []
        for piece in self.pieces:
            first, stop = piece.rows
            edges = sorted({first, stop, *(e for e in charged if first < e < stop)})
            for start, end in pairwise(edges):
                inside = charged.first <= start < charged.stop
                spent = piece.spent + cost if inside else piece.spent
                apart = piece.spent_alone + cost_alone if inside else piece.spent_alone
                found.append(Piece(RowRange(start, end), spent, apart))
        self.pieces = tuple(found)

    def most(self, rows: RowRange | None = None) -> tuple[Fraction, Fraction]:
        """The largest cost of a position of a range, and if all others collude."""
        asked = rows or self._all
        if asked.stop > self._all.stop:
            raise ParameterError(f"rows must be within {self._all}; got {asked}.")
        met = [piece for piece in self.pieces if piece.rows.meets(asked)]
        return max(piece.spent for piece in met), max(piece.spent_alone for piece in met)
