"""Weights of encoded columns, told in the units of the columns of a file."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dpadmm.data.schema import Schema
from dpadmm.plain import Array


class ColumnWeights(NamedTuple):
    """A classifier for cells as they stand in a file.

    Attributes
    ----------
    coef
        ``(outputs, encoded columns)``: of a numeric column the weight of one unit of it, of a level
        or a missing value the weight of its being there, of the constant zero.
    intercept
        ``(outputs,)``.
    """

    coef: Array
    intercept: Array


def units_per_column(schema: Schema) -> Array:
    """How far one unit of its column moves each encoded column: 1 for levels and the constant."""
    units = np.ones(len(schema.feature_names))
    for place, column in enumerate(schema.numeric):
        lowest, highest = column.ends
        units[place] = (highest - lowest) / (column.upper - column.lower)
    return units


def column_weights(schema: Schema, coef: Array) -> ColumnWeights:
    r"""Turn weights of encoded columns into weights of the columns of a file.

    .. math:: w_j\,\Bigl(r_0 + (r_1-r_0)\frac{v-\ell}{u-\ell}\Bigr)
              = \frac{(r_1-r_0)\,w_j}{u-\ell}\,v
              + w_j\Bigl(r_0 - \frac{(r_1-r_0)\,\ell}{u-\ell}\Bigr)

    The first is the weight of a column with the bounds l and u, the second goes to the intercept,
    as does the constant with its weight. An encoded row is scaled down to norm 1 afterwards: the
    score of a file's row is that of its encoded row, times a positive number of its own.

    Parameters
    ----------
    schema
        How rows were encoded.
    coef
        ``(outputs, encoded columns)``.
    """
    units = units_per_column(schema)
    intercept = np.zeros(len(coef))
    for place, column in enumerate(schema.numeric):
        intercept += coef[:, place] * (column.ends[0] - units[place] * column.lower)
    weights = coef * units
    if schema.constant:
        intercept += coef[:, -1] * float(schema.constant)
        weights[:, -1] = 0.0
    return ColumnWeights(weights, intercept)
