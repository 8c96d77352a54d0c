r"""The inner loop of stochastic variance-reduced gradients, compiled.

.. math::
    d_s &= \tfrac{c}{b}\textstyle\sum_{k\in B_s} \bigl(l'(v^s\cdot u_k) - l'(v^0\cdot u_k)\bigr)u_k
    \\
    r_s &= d_s + \mathrm{carried} + (\sigma + z\Delta_s)\,\theta_s
    \qquad\text{(all that depends on rows)}\\
    v^{s+1} &= v^s - \eta\,\bigl(r_s + \mathrm{lin} + \rho v^s\bigr),\qquad s = 0,\dots,S-1\\
    x &= \tfrac1S\textstyle\sum_s (1-a)\,v^s + a\,v^{s+1}

for one party and one run at a time. *carried* is the full gradient at :math:`v^0`, or zero if it
was released once and is part of lin. :math:`\theta_s` is standard normal noise. :math:`B_s` is a
fresh batch without replacement. The first step needs no batch, since :math:`d_0 = 0`.

Two loops share the compiled arithmetic. :func:`descend` scales and adds noise that was drawn in
advance, in doubles. :func:`descend_on_grid` hands each private part to the mechanism, which
releases it with noise on one grid. The loop continues from the released value, so its iterates are
a function of releases.

**Sensitivity.** With :math:`w = v^s - v^0`, one row adds :math:`\frac cb A w` to :math:`d_s`, where
:math:`A = \tau uu^\top` and :math:`0\le\tau\le c_1` is a slope of l'. So :math:`0\preceq A\preceq
c_1 I`, the difference of two such matrices has norm at most :math:`c_1`, and l' has a range of
length R:

.. math:: \Delta_s = \tfrac cb\bigl(\min(2R,\; c_1\|w\|) + r\bigr)

bounds what replacing a row of the batch can change. It is a function of the iterates, which the
adversary may see. r bounds what rounding can add; the mechanism counts the rounding to the grid.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from dpadmm.plain import Array
from dpadmm.solvers.inner_loop import HUBER_HINGE, LOGISTIC

_ULP: Final = float(np.finfo(np.float64).eps)


def _compiled(function: Any) -> Any:
    # Sums may be reordered (for vector instructions); nothing else is relaxed.
    return numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})(function)


@_compiled
def _slope(loss: int, margin: float) -> float:
    if loss == LOGISTIC:
        return -1.0 / (1.0 + math.exp(margin)) if margin < 700.0 else 0.0
    if loss == HUBER_HINGE:
        return -min(max(1.5 - margin, 0.0), 1.0)
    return margin - 1.0


@_compiled
def _add_difference(
    rows: Array,
    labels: Array,
    loss: int,
    share: float,
    start: Array,
    point: Array,
    batch: NDArray[np.int64],
    private: Array,
) -> None:
    """Add d_s to ``private``; ``share`` is c / b."""
    features = start.shape[0]
    for k in range(batch.shape[0]):
        row = rows[batch[k]]
        label = labels[batch[k]]
        here = 0.0
        there = 0.0
        for j in range(features):
            here += row[j] * point[j]
            there += row[j] * start[j]
        slopes = _slope(loss, label * here) - _slope(loss, label * there)
        slopes *= share * label
        for j in range(features):
            private[j] += slopes * row[j]


@_compiled
def _reach(
    constants: tuple[float, float, float], share: float, batch: int, start: Array, point: Array
) -> float:
    """Delta_s of the module's equations, a function of the iterates."""
    slope_bound, slope_range, curvature_bound = constants
    features = start.shape[0]
    moved = 0.0
    norm = 0.0
    start_norm = 0.0
    for j in range(features):
        moved += (point[j] - start[j]) ** 2
        norm += point[j] ** 2
        start_norm += start[j] ** 2
    reach = min(2.0 * slope_range, curvature_bound * math.sqrt(moved))
    rounding = (features + 4) * (
        2.0 * slope_bound + curvature_bound * (math.sqrt(start_norm) + math.sqrt(norm))
    )
    rounding += batch * batch * reach
    return share * (reach + 4.0 * _ULP * rounding)


@_compiled
def _advance(
    released: Array,
    linear: Array,
    penalty: float,
    step_size: float,
    weighting: float,
    point: Array,
    total: Array,
) -> None:
    """Compute v^{s+1} from v^s and the release, and add its part of the average."""
    for j in range(point.shape[0]):
        later = point[j] - step_size * (released[j] + linear[j] + penalty * point[j])
        total[j] += (1.0 - weighting) * point[j] + weighting * later
        point[j] = later


class InnerProblem(NamedTuple):
    """The inner loop of one party, run and output; see the module's equations.

    Attributes
    ----------
    rows, labels
        ``(rows, features)`` and ``(rows,)``.
    loss, constants
        The number of the loss, and its bounds on slope, slope range and curvature.
    weight
        c.
    start, carried, linear
        v^0; the part of the full gradient that every step carries; the rest of the linear term.
    penalty, step_size, weighting
        rho, eta, a.
    batches
        ``(steps - 1, batch)`` row numbers.
    fixed, relative
        sigma and z, both 0 without noise.
    """

    rows: Array
    labels: Array
    loss: int
    constants: tuple[float, float, float]
    weight: float
    start: Array
    carried: Array
    linear: Array
    penalty: float
    step_size: float
    weighting: float
    batches: NDArray[np.int64]
    fixed: float
    relative: float


# Compiled code takes numbers and arrays one by one: passing a tuple is a third slower.
@_compiled
def _descend(
    rows: Array,
    labels: Array,
    loss: int,
    constants: tuple[float, float, float],
    weight: float,
    start: Array,
    carried: Array,
    linear: Array,
    penalty: float,
    step_size: float,
    weighting: float,
    batches: NDArray[np.int64],
    fixed: float,
    relative: float,
    draws: Array,
) -> Array:
    """Run all steps; the arguments are the fields of the problem."""
    steps, batch = batches.shape[0] + 1, batches.shape[1]
    features = start.shape[0]
    point = start.copy()
    total = np.zeros(features)
    private = np.empty(features)
    share = weight / batch
    for s in range(steps):
        for j in range(features):
            private[j] = carried[j]
        scale = fixed
        if s > 0:
            _add_difference(rows, labels, loss, share, start, point, batches[s - 1], private)
            if relative > 0.0:
                scale += relative * _reach(constants, share, batch, start, point)
        if scale > 0.0:
            for j in range(features):
                private[j] += scale * draws[s, j]
        _advance(private, linear, penalty, step_size, weighting, point, total)
    return total / steps


def descend(problem: InnerProblem, draws: Array) -> Array:
    """Run all steps; ``draws`` are ``(steps, features)`` normal numbers, empty without noise."""
    found: Array = _descend(*problem, draws)
    return found


def descend_on_grid(problem: InnerProblem, release: Callable[[Array, float], Array]) -> Array:
    """Run the steps of :func:`descend`; ``release(private, sigma)`` adds the noise of each."""
    rows, labels, loss, constants, weight, start, carried, *moving, batches, fixed, relative = (
        problem
    )
    steps, batch = len(batches) + 1, batches.shape[1]
    point, total = start.copy(), np.zeros_like(start)
    share = weight / batch
    for s in range(steps):
        private, scale = carried.copy(), fixed
        if s > 0:
            _add_difference(rows, labels, loss, share, start, point, batches[s - 1], private)
            if relative > 0.0:
                scale += relative * _reach(constants, share, batch, start, point)
        # A step without noise has no private part: it is the first step after a full gradient
        # that was released once.
        released = release(private, scale) if scale > 0.0 else np.zeros_like(private)
        _advance(released, *moving, point, total)
    mean: Array = total / steps
    return mean
