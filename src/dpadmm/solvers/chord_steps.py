r"""Steps of many small parties, one party after the other, compiled.

.. math:: w \leftarrow w - P g, \qquad
          g = \frac{c}{n}\sum_k l'(w\cdot u_k)\,u_k + m w + \mathrm{lin}

as :mod:`~dpadmm.solvers.newton` takes them, P improved by the steps of the solve
(:mod:`~dpadmm.solvers.secants`), for the logistic loss. A step of a thousand parties at once
touches far more numbers than a cache holds, in every one of its operations; the rows of one small
party stay in the nearest cache for its whole solve. Only a simulation has many parties in a
process: a party's own process does not load compiled code.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpadmm.plain import Array
from dpadmm.solvers.compiled import compiled, exponential

__all__ = ["SmallProblems", "take_chord_steps"]

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


class _Room(NamedTuple):
    """Room to work in, for one party after the other.

    Attributes
    ----------
    slopes
        Of the losses of its rows.
    gradient, direction, trial, loss
        Where the iteration is, where it goes, and the gradient of the loss there.
    moves, changes, weights, parts
        Of each step: s, y, ``1 / s.y``, and the products of the two loops.
    """

    slopes: Array
    gradient: Array
    direction: Array
    trial: Array
    loss: Array
    moves: Array
    changes: Array
    weights: Array
    parts: Array


# Sums may be taken in any order, which the bound on their rounding allows for.
_SUMS: Final = {"contract", "reassoc"}


@compiled(fastmath=_SUMS)
def _dot(first: Array, second: Array) -> float:
    total = 0.0
    for place in range(first.size):
        total += first[place] * second[place]
    return total


@compiled()
def _add(target: Array, factor: float, vector: Array) -> None:
    for place in range(target.size):
        target[place] += factor * vector[place]


@compiled(fastmath=_SUMS)
def _multiply(product: Array, matrix: Array, vector: Array) -> None:
    # Indices rather than slices, each of which would cost as much as its sum.
    for row in range(product.size):
        total = 0.0
        for place in range(vector.size):
            total += matrix[row, place] * vector[place]
        product[row] = total


@compiled(fastmath=_SUMS)
def _set_direction(room: _Room, inverse: Array, pairs: int) -> None:
    """``-P g``, by the two loops of limited-memory BFGS."""
    work, direction = room.trial, room.direction
    work[:] = room.gradient
    for pair in range(pairs - 1, -1, -1):
        room.parts[pair] = room.weights[pair] * _dot(room.moves[pair], work)
        _add(work, -room.parts[pair], room.changes[pair])
    _multiply(direction, inverse, work)
    for place in range(work.size):
        direction[place] = -direction[place]
    for pair in range(pairs):
        back = room.weights[pair] * _dot(room.changes[pair], direction)
        _add(direction, -room.parts[pair] - back, room.moves[pair])


@compiled(fastmath=_SUMS)
def _set_loss_sum(total: Array, slopes: Array, columns: Array, point: Array) -> None:
    """``sum_k l'(w.u_k) u_k``: one pass over a party's rows."""
    slopes[:] = 0.0
    for feature in range(point.size):
        for row in range(slopes.size):
            slopes[row] += point[feature] * columns[feature, row]
    for row in range(slopes.size):
        slopes[row] = -1.0 / (1.0 + exponential(slopes[row]))
    _multiply(total, columns, slopes)


@compiled()
def _try_step(problems: SmallProblems, node: int, room: _Room, step: int, point: Array) -> float:
    """Go to a trial point and learn from it; the norm of the gradient there."""
    bowl, direction, trial, loss = problems.convexity[node], room.direction, room.trial, room.loss
    _set_direction(room, problems.inverse[node], step)
    for place in range(trial.size):
        trial[place] = point[place] + direction[place]
    _set_loss_sum(loss, room.slopes, problems.columns[node], trial)
    move, change = room.moves[step], room.changes[step]
    for place in range(trial.size):
        loss[place] = problems.scale[node] * loss[place] + problems.tilt[node, place]
        total = loss[place] + bowl * trial[place] + problems.linear[node, place]
        move[place] = direction[place]
        change[place] = total - room.gradient[place]
        room.gradient[place] = total
    product = _dot(move, change)
    room.weights[step] = 1.0 / product if product > 0.0 else 0.0
    return math.sqrt(_dot(room.gradient, room.gradient))


@compiled(fastmath=_SUMS)
def _write_into(inverse: Array, room: _Room, pairs: int) -> None:
    """The P of the solves to come, as :meth:`~dpadmm.solvers.secants.Secants.write_into` has it."""
    work = room.trial
    for pair in range(pairs):
        weight, move, change = room.weights[pair], room.moves[pair], room.changes[pair]
        _multiply(work, inverse, change)
        half = weight * (1.0 + weight * _dot(change, work)) / 2.0
        for place in range(work.size):
            work[place] = half * move[place] - weight * work[place]
        for row in range(work.size):
            for place in range(work.size):
                inverse[row, place] += move[row] * work[place] + work[row] * move[place]


@compiled(cache=True)
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
    nodes, features, height = problems.columns.shape
    room = _Room(
        np.empty(height),
        np.empty(features),
        np.empty(features),
        np.empty(features),
        np.empty(features),
        np.empty((_MOST_STEPS, features)),
        np.empty((_MOST_STEPS, features)),
        np.empty(_MOST_STEPS),
        np.empty(_MOST_STEPS),
    )
    steps = np.zeros(nodes, np.int64)
    for node in range(nodes):
        own, bowl = point[node], problems.convexity[node]
        for place in range(features):
            known = loss_gradient[node, place] + problems.linear[node, place]
            room.gradient[place] = known + bowl * own[place]
        norm = math.sqrt(_dot(room.gradient, room.gradient))
        while steps[node] < _MOST_STEPS and not norm <= problems.tolerance[node]:
            reached = _try_step(problems, node, room, steps[node], own)
            if not reached <= rate * norm:
                break
            own[:] = room.trial
            loss_gradient[node] = room.loss
            norm = reached
            steps[node] += 1
        # The last step is as short as rounding: there is little to learn from it.
        _write_into(problems.inverse[node], room, steps[node] - 1)
    return steps
