r"""The logistic loss, its slope, and steps of many small parties, compiled to vector instructions.

.. math:: l(m) = \ln(1 + e^{-m}), \qquad l'(m) = -\frac{1}{1 + e^m}

Half of a pass over the rows of repeated runs goes into these: numpy and scipy take exponentials
one number at a time, except where a processor has AVX-512, and no library that is installed here
does otherwise. Written out as below, the compiler takes four or eight at a time.

**Method.** :math:`e^x = 2^k e^r` with :math:`|r| \le \tfrac12\ln 2`; ln 2 is subtracted in two
parts (Cody and Waite), and the Taylor polynomial of degree 13 is off by less than ``1e-17``. With
:math:`u = e^{-|m|}` and :math:`z = (u - a) / (2 + u + a)`, the loss is :math:`\max(-m, 0) +
\ln(1 + a) + 2\,\mathrm{artanh}\,z`; ``a = 0.4`` keeps z below 0.18, and the series is cut where
a term is below ``1e-17``. Slopes and losses are off by about a unit in the last place of 1.

**Steps** of many small parties, one party after the other:

.. math:: w \leftarrow w - P g, \qquad
          g = \frac{c}{n}\sum_k l'(w\cdot u_k)\,u_k + m w + \mathrm{lin}

as :mod:`~dpadmm.solvers.newton` takes them, P improved by the steps of the solve, for the logistic
loss. A step of a thousand parties at once
touches far more numbers than a cache holds, in every one of its operations; the rows of one small
party stay in the nearest cache for its whole solve. Only a simulation has many parties in a
process: a party's own process does not load compiled code.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from dpadmm.plain import Array

_PER_LN2: Final = 1.0 / math.log(2.0)
# ln 2 in two parts; the first has so few digits that its product with k is exact.
_LN2_HIGH: Final = float.fromhex("0x1.62e42feep-1")
_LN2_LOW: Final = float.fromhex("0x1.a39ef35793c76p-33")
# Adding this rounds to an integer, which then stands in the lowest bits.
_ROUND: Final = 1.5 * 2.0**52
_EXPONENT_BITS: Final = 52
_EXPONENT_ZERO: Final = 1023 << 52
# Beyond this a slope is 0 or -1 to the last place, and a loss 0 or -m.
_FAR: Final = 700.0
# Coefficients from the highest power down: of e^r, and of artanh(z) / z in z^2.
_EXPONENTIAL: Final = tuple(1.0 / math.factorial(power) for power in range(13, -1, -1))
_ARTANH: Final = tuple(1.0 / (2 * power + 1) for power in range(10, -1, -1))
_MIDDLE: Final = 0.4
_LOG_MIDDLE: Final = math.log1p(_MIDDLE)


def compiled(**options: Any) -> Callable[[Any], Any]:
    """Compile a function; a product and a sum may become one instruction.

    Nothing else is relaxed unless the caller asks for it; NaN never is.
    """
    given: dict[str, Any] = {"fastmath": {"contract"}, "nogil": True, "error_model": "numpy"}
    compiler: Callable[[Any], Any] = numba.njit(**(given | options))
    return compiler


@compiled(inline="always")
def exponential(exponent: float) -> float:
    """``e^x`` for x within :data:`_FAR` of 0; beyond, that at the end."""
    # Comparisons rather than min and max: these would hide NaN.
    exponent = -_FAR if exponent < -_FAR else exponent
    exponent = _FAR if exponent > _FAR else exponent
    shifted = exponent * _PER_LN2 + _ROUND
    power = shifted - _ROUND
    rest = (exponent - power * _LN2_HIGH) - power * _LN2_LOW
    series = 0.0
    for coefficient in _EXPONENTIAL:
        series = series * rest + coefficient
    bits = np.float64(shifted).view(np.int64) << _EXPONENT_BITS
    return series * np.int64(bits + _EXPONENT_ZERO).view(np.float64)


@compiled(cache=True)
def logistic_slopes(margins: Array) -> Array:
    """Overwrite a flat array of margins with the slopes there; NaN stays NaN."""
    for place in range(margins.size):
        margins[place] = -1.0 / (1.0 + exponential(margins[place]))
    return margins


@compiled(cache=True)
def logistic_losses(margins: Array) -> Array:
    """Overwrite a flat array of margins with the losses there; NaN stays NaN."""
    for place in range(margins.size):
        margin = margins[place]
        small = exponential(-abs(margin))
        ratio = (small - _MIDDLE) / (2.0 + small + _MIDDLE)
        square = ratio * ratio
        series = 0.0
        for coefficient in _ARTANH:
            series = series * square + coefficient
        margins[place] = (-margin if margin < 0.0 else 0.0) + (_LOG_MIDDLE + 2.0 * ratio * series)
    return margins


# After this many steps the general solver goes on: it can renew the inverse.
_MOST_STEPS: Final = 8


class SmallProblems(NamedTuple):
    """Local problems of one block with one lane; arrays begin with the axis of the parties.

    Attributes
    ----------
    columns
        Of the rows times their labels, ``(nodes, features, rows)``: a loop over rows is a loop over
        neighbours in memory.
    scale, tilt
        ``c / n``, and the fixed term of the gradients of the loss.
    linear, convexity, tolerance
        lin, m and the largest norm of a gradient.
    inverse
        P, symmetric.
    """

    columns: Array
    scale: Array
    tilt: Array
    linear: Array
    convexity: Array
    tolerance: Array
    inverse: Array


# Sums may be taken in any order, which the bound on their rounding allows for.
_SUMS: Final = {"contract", "reassoc"}


def _inlined() -> Callable[[Any], Any]:
    """Compile a function into its callers: handing it arrays costs more than what it does.

    For the same reason functions here take a matrix and the number of a row, not a view of it.
    """
    return compiled(fastmath=_SUMS, forceinline=True)


@_inlined()
def _dot(rows: Array, row: int, vector: Array) -> float:
    total = 0.0
    for place in range(vector.size):
        total += rows[row, place] * vector[place]
    return total


@_inlined()
def _add(target: Array, factor: float, rows: Array, row: int) -> None:
    for place in range(target.size):
        target[place] += factor * rows[row, place]


@_inlined()
def _add_row(target: Array, factor: float, matrices: Array, node: int, row: int) -> None:
    for place in range(target.size):
        target[place] += factor * matrices[node, row, place]


@_inlined()
def _multiply(product: Array, matrices: Array, node: int, vector: Array) -> None:
    """The product with a symmetric matrix: sums of its rows, which need no sum across a vector."""
    for place in range(product.size):
        product[place] = 0.0
    for row in range(vector.size):
        _add_row(product, vector[row], matrices, node, row)


@_inlined()
def _set_direction(
    direction: Array,
    gradient: Array,
    inverse: Array,
    node: int,
    learnt: tuple[Array, Array, Array],
    pairs: int,
    work: Array,
    parts: Array,
) -> None:
    """``-P g``, by the two loops of limited-memory BFGS."""
    moves, changes, weights = learnt
    for place in range(work.size):
        work[place] = gradient[place]
    for pair in range(pairs - 1, -1, -1):
        parts[pair] = weights[pair] * _dot(moves, pair, work)
        _add(work, -parts[pair], changes, pair)
    _multiply(direction, inverse, node, work)
    for place in range(direction.size):
        direction[place] = -direction[place]
    for pair in range(pairs):
        back = weights[pair] * _dot(changes, pair, direction)
        _add(direction, -parts[pair] - back, moves, pair)


@_inlined()
def _set_slopes(slopes: Array, columns: Array, node: int, point: Array) -> None:
    """``l'(w.u_k)``, four columns at a time."""
    whole = point.size - point.size % 4
    for row in range(slopes.size):
        slopes[row] = 0.0
    for first in range(0, whole, 4):
        a, b, c, d = point[first], point[first + 1], point[first + 2], point[first + 3]
        for row in range(slopes.size):
            slopes[row] += (
                a * columns[node, first, row]
                + b * columns[node, first + 1, row]
                + c * columns[node, first + 2, row]
                + d * columns[node, first + 3, row]
            )
    for feature in range(whole, point.size):
        for row in range(slopes.size):
            slopes[row] += point[feature] * columns[node, feature, row]
    for row in range(slopes.size):
        slopes[row] = -1.0 / (1.0 + exponential(slopes[row]))


@_inlined()
def _set_loss_sum(total: Array, slopes: Array, columns: Array, node: int, point: Array) -> None:
    """``sum_k l'(w.u_k) u_k``: one pass over a party's rows, four columns at a time."""
    whole = point.size - point.size % 4
    _set_slopes(slopes, columns, node, point)
    for first in range(0, whole, 4):
        a, b, c, d = 0.0, 0.0, 0.0, 0.0
        for row in range(slopes.size):
            a += slopes[row] * columns[node, first, row]
            b += slopes[row] * columns[node, first + 1, row]
            c += slopes[row] * columns[node, first + 2, row]
            d += slopes[row] * columns[node, first + 3, row]
        total[first], total[first + 1], total[first + 2], total[first + 3] = a, b, c, d
    for feature in range(whole, point.size):
        a = 0.0
        for row in range(slopes.size):
            a += slopes[row] * columns[node, feature, row]
        total[feature] = a


@_inlined()
def _write_into(
    inverse: Array, node: int, learnt: tuple[Array, Array, Array], pairs: int, work: Array
) -> None:
    """The P of the solves to come, as :meth:`~dpadmm.solvers.newton.Secants.write_into` has it."""
    moves, changes, weights = learnt
    for pair in range(pairs):
        weight = weights[pair]
        for place in range(work.size):
            work[place] = 0.0
        for row in range(work.size):
            _add_row(work, changes[pair, row], inverse, node, row)
        half = weight * (1.0 + weight * _dot(changes, pair, work)) / 2.0
        for place in range(work.size):
            work[place] = half * moves[pair, place] - weight * work[place]
        for row in range(work.size):
            move, bend = moves[pair, row], work[row]
            for place in range(work.size):
                inverse[node, row, place] += move * work[place] + bend * moves[pair, place]


@compiled(cache=True, fastmath=_SUMS)
def take_chord_steps(
    problems: SmallProblems, rate: float, point: Array, loss_gradient: Array
) -> NDArray[np.int64]:
    """Move points and the gradients of the loss there, as long as every step is a good one.

    Parameters
    ----------
    problems
        The local problems; their inverses learn from the steps.
    rate
        What part of the norm of the gradient a step may leave; one that leaves more is not taken.
    point, loss_gradient
        ``(nodes, features)``, overwritten.

    Returns
    -------
    numpy.ndarray
        The steps that each party took.
    """
    columns, scale, tilt, linear, convexity, tolerance, inverse = problems
    nodes, features, height = columns.shape
    # Room to work in, for one party after the other.
    slopes, parts = np.empty(height), np.empty(_MOST_STEPS)
    gradient, direction, work = np.empty(features), np.empty(features), np.empty(features)
    trial, loss = np.empty(features), np.empty(features)
    # Of each step: s, y and 1 / s.y.
    moves, changes = np.empty((_MOST_STEPS, features)), np.empty((_MOST_STEPS, features))
    weights = np.empty(_MOST_STEPS)
    learnt = (moves, changes, weights)
    steps = np.zeros(nodes, np.int64)
    for node in range(nodes):
        bowl, square = convexity[node], 0.0
        for place in range(features):
            known = loss_gradient[node, place] + linear[node, place]
            gradient[place] = known + bowl * point[node, place]
            square += gradient[place] * gradient[place]
        norm, taken = math.sqrt(square), 0
        while taken < _MOST_STEPS and not norm <= tolerance[node]:
            _set_direction(direction, gradient, inverse, node, learnt, taken, work, parts)
            for place in range(features):
                trial[place] = point[node, place] + direction[place]
            _set_loss_sum(loss, slopes, columns, node, trial)
            square, product = 0.0, 0.0
            for place in range(features):
                loss[place] = scale[node] * loss[place] + tilt[node, place]
                total = loss[place] + bowl * trial[place] + linear[node, place]
                moves[taken, place] = direction[place]
                changes[taken, place] = total - gradient[place]
                gradient[place] = total
                product += direction[place] * changes[taken, place]
                square += total * total
            weights[taken] = 1.0 / product if product > 0.0 else 0.0
            reached = math.sqrt(square)
            if not reached <= rate * norm:
                break
            for place in range(features):
                point[node, place] = trial[place]
                loss_gradient[node, place] = loss[place]
            norm = reached
            taken += 1
        steps[node] = taken
        # The last step is as short as rounding: there is little to learn from it.
        _write_into(inverse, node, learnt, taken - 1, work)
    return steps


@compiled(cache=True, fastmath=_SUMS)
def set_inverses(
    columns: Array,
    scale: Array,
    convexity: Array,
    point: Array,
    chosen: NDArray[np.int64],
    inverse: Array,
) -> None:
    r"""Invert the Hessians of the chosen parties at their points.

    .. math:: P = \Bigl(\frac{c}{n}\sum_k l''(w\cdot u_k)\,u_ku_k^\top + m I\Bigr)^{-1}

    by Gauss and Jordan without exchanges: what is left of a Hessian after some of its columns is no
    smaller than m I, so that no pivot is below m but by rounding.

    Parameters
    ----------
    columns, scale, convexity
        Of all parties, as in :class:`SmallProblems`.
    point, inverse
        ``(nodes, features)``; and ``(nodes, features, features)``, overwritten.
    """
    features, height = columns.shape[1:]
    slopes, weighted = np.empty(height), np.empty(height)
    # A matrix of its own: in an array that is handed in, the compiler must expect any overlap.
    work, matrix = np.empty(features), np.empty((features, features))
    for node in chosen:
        for place in range(features):
            work[place] = point[node, place]
        _set_slopes(slopes, columns, node, work)
        for row in range(height):
            # l'' = -l' (1 + l').
            slopes[row] = -scale[node] * slopes[row] * (1.0 + slopes[row])
        for first in range(features):
            for row in range(height):
                weighted[row] = slopes[row] * columns[node, first, row]
            for second in range(first + 1):
                total = 0.0
                for row in range(height):
                    total += weighted[row] * columns[node, second, row]
                matrix[first, second] = matrix[second, first] = total
            matrix[first, first] += convexity[node]
        for step in range(features):
            pivot = matrix[step, step]
            pivot = pivot if pivot > convexity[node] else convexity[node]
            matrix[step, step] = 1.0
            for place in range(features):
                work[place] = matrix[step, place] / pivot
                matrix[step, place] = 0.0
            for first in range(features):
                factor = matrix[first, step]
                matrix[first, step] = 0.0
                for place in range(features):
                    matrix[first, place] -= factor * work[place]
            for place in range(features):
                matrix[step, place] = work[place]
        for first in range(features):
            for place in range(features):
                inverse[node, first, place] = matrix[first, place]
