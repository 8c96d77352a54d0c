r"""Which rows are trained on and which are kept out: the last block of every party's rows.

.. math:: h_i = \lceil \mathrm{holdout}\cdot n_i \rceil,\qquad
          \text{train } 1..n_i-h_i,\quad \text{held out } n_i-h_i+1..n_i

Positions in a list whose order is given: an order that depends on what rows hold, such as a sorted
export, is not covered by the guarantee, and makes the last rows unlike the others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from dpadmm.errors import ParameterError
from dpadmm.ledger.positions import RowRange

__all__ = ["Split"]


@dataclass(frozen=True)
class Split:
    """A public rule, the same for every party.

    Parameters
    ----------
    holdout
        The part of every party's rows that is kept out of training; 0 keeps none.
    """

    holdout: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.holdout < 1:
            raise ParameterError(
                f"holdout must be at least 0 and below 1, a part of every party's rows; got "
                f"{self.holdout!r}."
            )

    def train(self, rows: int) -> RowRange | None:
        """The positions that are trained on, of so many; None for all."""
        return RowRange(0, self._edge(rows)) if self.holdout else None

    def held_out(self, rows: int) -> RowRange | None:
        """The positions that are evaluated on: those kept out, or None for all."""
        return RowRange(self._edge(rows), rows) if self.holdout else None

    def _edge(self, rows: int) -> int:
        # As it is written: in doubles 0.07 of 100 is a little more than 7.
        kept_out = math.ceil(Fraction(repr(float(self.holdout))) * rows)
        if kept_out >= rows:
            raise ParameterError(
                f"holdout must leave every party a row to train on; {self.holdout!r} of {rows} "
                f"rows keeps out {kept_out}. Lower it."
            )
        return rows - kept_out

    def train_rows(self, rows: int) -> int:
        """How many are trained on."""
        return self._edge(rows) if self.holdout else rows

    def evaluated_rows(self, rows: int) -> int:
        """How many are evaluated on."""
        return rows - self._edge(rows) if self.holdout else rows
