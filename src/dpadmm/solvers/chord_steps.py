r"""Steps of many small parties, one party after the other, compiled.

.. math:: w \leftarrow w - P g, \qquad
          g = \frac{c}{n}\sum_k l'(w\cdot u_k)\,u_k + m w + \mathrm{lin}

as :mod:`~dpadmm.solvers.newton` takes them, P improved by the steps of the solve
(:mod:`~dpadmm.solvers.newton`), for the logistic loss. A step of a thousand parties at once
touches far more numbers than a cache holds, in every one of its operations; the rows of one small
party stay in the nearest cache for its whole solve. Only a simulation has many parties in a
process: a party's own process does not load compiled code.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpadmm.plain import Array
from dpadmm.solvers.compiled import compiled, exponential

# Steps after which a solve is left to who can renew its inverse.
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
def _multiply(product: Array, matrices: Array, node: int, vector: Array) -> None:
    for row in range(product.size):
        total = 0.0
        for place in range(vector.size):
            total += matrices[node, row, place] * vector[place]
        product[row] = total


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
def _set_loss_sum(total: Array, slopes: Array, columns: Array, node: int, point: Array) -> None:
    """``sum_k l'(w.u_k) u_k``: one pass over a party's rows, four columns at a time."""
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
        for row in range(work.size):
            total = 0.0
            for place in range(work.size):
                total += inverse[node, row, place] * changes[pair, place]
            work[row] = total
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
