r"""Rows around their mean: a public linear map of prepared rows, and each row then of norm 1.

.. math::
    u &= (x, u_c),\qquad D u = (x - g\,u_c,\; t\,u_c),\qquad
    f_u = \frac{1}{\max(10^{-3}, \|D u\|)},\qquad u' = f_u\,D u

The constant :math:`u_c` is the last column. Where columns are mostly positive (categories, counts,
numbers from 0 to 1) rows share a large mean, which takes up norm and slows descent; without it the
same norm shows what tells rows apart.

**The map** follows from a noisy mean row m alone (:func:`centring_map`), whose noise has the
standard deviation s in each coordinate, and from public numbers. With a the part of m that is not
the constant's, :math:`m_c` the constant's, at least the smallest value :math:`b` that it can have,
and d columns:

.. math::
    \varphi &= \max\Bigl(0, 1 - \frac{s^2(d-1)}{\|a\|^2}\Bigr)\quad\text{(James-Stein)},\qquad
    g = \mathrm{clip}(\varphi a/m_c, -1, 1),\qquad t = 0.3\sqrt{v}/m_c,\\
    v &= \max\Bigl(0.02,\; 1 - m_c^2 - \textstyle\sum_j (2a_jg_jm_c - (g_jm_c)^2)
         + (d-1)s^2(2\varphi - \varphi^2)\Bigr)

v is the second moment of the rows after the shift. :math:`g_jm_c` has the sign of :math:`a_j` and
is no larger, so that the sum is not negative, :math:`v \le 1 + (d-1)s^2` (or 0.02), and

.. math:: \|g\| \le \sqrt{d-1},\qquad t \le 0.3\sqrt{1 + (d-1)s^2}/b,\qquad
          \|D\| \le 1 + \|g\| + t

whatever the messages were (:func:`largest_stretch`).

**Rows are not mapped one by one.** A margin is :math:`f_u\,(D^\top z)\cdot u`, and a sum of mapped
rows is :math:`D\sum_k s_kf_ku_k`: sparse rows stay sparse, and all that a pass needs of the map is
one number per row. :math:`w = D^\top z` is also the model in the columns as they were: a positive
factor per row changes no decision.

**One row.** A mapped row depends on its own content and on the map. Its norm is at most 1,

.. math:: f_u\|D u\| \le 1,\qquad
          f_u^{-2} = \max\bigl(10^{-6},\;\mathrm{fl}(\|x\|^2 - 2u_c\,g\cdot x
                     + u_c^2(\|g\|^2 + t^2)) + e\bigr),\qquad
          e = 2(d + 8)\,2^{-53}\,((1 + \|g\|)^2 + t^2 + 1)

since e is more than that sum is off by: its products are sums of d terms, each of which goes
through at most d + 6 roundings, and for :math:`\|u\| \le 1` their absolute values add up to at most
:math:`(1 + \|g\|)^2 + t^2 + 1`; the 2 leaves room for the higher orders. What is left are the
roundings of a root and a quotient.

**Sums.** A term :math:`s_kf_ku_k` of a sum is up to :math:`1/10^{-3}` times as long as a slope, and
D stretches the error of the sum: it is at most
:math:`\gamma\,n L\,\|D\|/10^{-3}`, where :math:`\gamma` counts the roundings of a sum over rows and
eight more, for the product with f and for D.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from dpadmm.plain import Array
from dpadmm.problem.rows import Rows, piece_rows, summation_error

#: No row is divided by less.
LEAST_LENGTH: Final = 1e-3
# The weight of the constant beside the spread of the rows, and the smallest spread.
_CONSTANT_SHARE: Final = 0.3
_LEAST_SPREAD: Final = 0.02
_UNIT: Final = float(np.finfo(np.float64).eps) / 2


def no_map(shape: tuple[int, ...]) -> Array:
    """The map that leaves every row as it is, up to its length."""
    unmoved = np.zeros(shape)
    unmoved[..., -1] = 1.0
    return unmoved


def centring_map(mean: Array, spread: float, least: float) -> Array:
    """``(g, t)`` from the mean row with its noise, along the last axis.

    Parameters
    ----------
    mean
        m, with the constant last.
    spread
        s: the standard deviation of its noise.
    least
        The smallest value that the constant of a row can have.
    """
    found, others = np.empty_like(mean), mean.shape[-1] - 1
    a, constant = mean[..., :-1], np.maximum(mean[..., -1:], least)
    noise = others * spread**2
    square = np.einsum("...f,...f->...", a, a)[..., None]
    lost = np.divide(noise, square, out=np.ones_like(square), where=square > noise)
    kept = 1.0 - lost
    shift = np.clip(kept * a / constant, -1.0, 1.0)
    moved = shift * constant
    less = (2 * a * moved - np.square(moved)).sum(axis=-1, keepdims=True)
    moment = 1.0 - np.square(constant) - less + noise * (2 * kept - np.square(kept))
    found[..., :-1] = shift
    found[..., -1:] = _CONSTANT_SHARE * np.sqrt(np.maximum(_LEAST_SPREAD, moment)) / constant
    return found


def mapped(values: Array, shift: Array) -> Array:
    """``D v``, along the last axis."""
    found: Array = values - values[..., -1:] * shift
    found[..., -1:] = shift[..., -1:] * values[..., -1:]
    return found


def mapped_back(values: Array, shift: Array) -> Array:
    """``D' z``: the weights of rows as they were, from those of mapped rows."""
    found = values.copy()
    along = (values[..., :-1] * shift[..., :-1]).sum(axis=-1)
    found[..., -1] = shift[..., -1] * values[..., -1] - along
    return found


def row_lengths(rows: Rows, shift: Array) -> Array:
    """``f_u`` of each row, ``(nodes, rows, runs)``.

    Parameters
    ----------
    rows
        ``(nodes, rows, features)``, or one party's sparse ``(rows, features)``; a row's sign does
        not matter.
    shift
        The map, ``(nodes, runs, features)``.
    """
    moves = shift.copy()
    moves[..., -1] = 0.0
    if sparse.issparse(rows):
        last = np.zeros((1, shift.shape[-1]))
        last[0, -1] = 1.0
        products = np.asarray(rows @ np.concatenate([moves[0], last]).T)[None]
        squares = np.asarray(rows.multiply(rows).sum(axis=1)).reshape(1, -1)
        return _lengths(squares, products[..., :-1], products[..., -1], shift)
    height, step = rows.shape[1], piece_rows(rows.shape[2])
    found = np.empty((rows.shape[0], height, shift.shape[1]))
    for first in range(0, height, step):
        piece = rows[:, first : first + step]
        squares = np.einsum("nkf,nkf->nk", piece, piece)
        along = np.matmul(piece, moves.swapaxes(1, 2))
        found[:, first : first + step] = _lengths(squares, along, piece[..., -1], shift)
    return found


def _lengths(squares: Array, along: Array, last: Array, shift: Array) -> Array:
    """``f_u`` from ``|u|^2``, ``g.x`` and ``u_c`` of each row."""
    features = shift.shape[-1]
    moves, scale = shift[..., :-1], shift[..., -1]
    size = np.einsum("nrf,nrf->nr", moves, moves)
    error = 2 * (features + 8) * _UNIT * (np.square(1 + np.sqrt(size)) + np.square(scale) + 1)
    # |x|^2 is |u|^2 less the square of the constant.
    constant = (size + np.square(scale) - 1.0)[:, None] * np.square(last)[..., None]
    found: Array = last[..., None] * along
    found *= -2
    found += squares[..., None]
    found += constant
    found += error[:, None]
    np.maximum(found, LEAST_LENGTH**2, out=found)
    np.sqrt(found, out=found)
    return np.divide(1.0, found, out=found)


def largest_stretch(features: int, spread: float, least: float) -> float:
    """A bound on the norm of D before the mean row is known."""
    others = features - 1
    scale = _CONSTANT_SHARE * math.sqrt(1 + others * spread**2) / least
    return 1 + math.sqrt(others) + scale


def mapped_sum_error(rows: ArrayLike, features: int, stretch: float) -> Array:
    """The error of a sum over mapped rows, relative to as many slopes of the largest size."""
    error: Array = (summation_error(rows, features) + 8 * _UNIT) * (stretch / LEAST_LENGTH)
    return error
