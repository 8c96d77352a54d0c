r"""The inner loop of stochastic variance-reduced gradients, compiled.

.. math::
    d_s &= \tfrac{c}{b}\textstyle\sum_{k\in B_s} \bigl(l'(v^s\cdot u_k) - l'(v^0\cdot u_k)\bigr)u_k
    \\
    v^{s+1} &= v^s - \eta\,\bigl(d_s + \tilde u + \mathrm{lin} + \rho v^s
               + (\sigma + z\Delta_s)\,\theta_s\bigr),\qquad s = 0,\dots,S-1\\
    x &= \tfrac1S\textstyle\sum_s (1-a)\,v^s + a\,v^{s+1}

for one party and one run at a time. :math:`\tilde u` is the full gradient at :math:`v^0`, maybe
with noise; :math:`\theta_s` is standard normal noise that the mechanism drew; :math:`B_s` is a
fresh batch without replacement. The first step needs no batch: :math:`d_0 = 0`.

**Sensitivity.** With :math:`w = v^s - v^0`, one row adds :math:`\frac cb A w` to :math:`d_s`, where
:math:`A = \tau uu^\top` and :math:`0\le\tau\le c_1` is a slope of l'. So :math:`0\preceq A\preceq
c_1 I`, the difference of two such matrices has norm at most :math:`c_1`, and l' has a range of
length R:

.. math:: \Delta_s = \tfrac cb\bigl(\min(2R,\; c_1\|w\|) + r\bigr)

is what replacing a row of the batch can change. It is a function of the iterates, which the
adversary is granted; r bounds what rounding can add.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numba
import numpy as np
from numpy.typing import NDArray

from dpadmm.arrays import Array
from dpadmm.solvers.inner_loop import HUBER_HINGE, LOGISTIC

__all__ = ["descend"]

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
def descend(
    rows: Array,
    labels: Array,
    loss: int,
    constants: tuple[float, float, float],
    weight: float,
    start: Array,
    gradient: Array,
    linear: Array,
    penalty: float,
    step_size: float,
    weighting: float,
    batches: NDArray[np.int64],
    draws: Array,
    fixed: float,
    relative: float,
) -> Array:
    """Run all steps for one party, run and output; see the module's equations.

    Parameters
    ----------
    rows, labels
        ``(rows, features)`` and ``(rows,)``.
    loss, constants
        The loss's number; its bounds on slope, slope range and curvature.
    weight
        c.
    start, gradient, linear
        v^0, the full gradient there, ``lambda - rho z``.
    penalty, step_size, weighting
        rho, eta, a.
    batches
        ``(steps - 1, batch)`` row numbers.
    draws, fixed, relative
        ``(steps, features)`` standard normal numbers, sigma and z; no draws without noise.
    """
    steps, batch = batches.shape[0] + 1, batches.shape[1]
    features = start.shape[0]
    slope_bound, slope_range, curvature_bound = constants
    point = start.copy()
    total = np.zeros(features)
    step = np.empty(features)
    share = weight / batch
    start_norm = 0.0
    for j in range(features):
        start_norm += start[j] * start[j]
    start_norm = math.sqrt(start_norm)
    for s in range(steps):
        for j in range(features):
            step[j] = gradient[j] + linear[j] + penalty * point[j]
        scale = fixed
        if s > 0:
            for k in range(batch):
                number = batches[s - 1, k]
                row = rows[number]
                label = labels[number]
                here = 0.0
                there = 0.0
                for j in range(features):
                    here += row[j] * point[j]
                    there += row[j] * start[j]
                slopes = _slope(loss, label * here) - _slope(loss, label * there)
                slopes *= share * label
                for j in range(features):
                    step[j] += slopes * row[j]
            if relative > 0.0:
                moved = 0.0
                norm = 0.0
                for j in range(features):
                    moved += (point[j] - start[j]) ** 2
                    norm += point[j] ** 2
                reach = min(2.0 * slope_range, curvature_bound * math.sqrt(moved))
                rounding = (features + 4) * (
                    2.0 * slope_bound + curvature_bound * (start_norm + math.sqrt(norm))
                )
                rounding += batch * batch * reach
                scale += relative * share * (reach + 4.0 * _ULP * rounding)
        if scale > 0.0:
            for j in range(features):
                step[j] += scale * draws[s, j]
        for j in range(features):
            later = point[j] - step_size * step[j]
            total[j] += (1.0 - weighting) * point[j] + weighting * later
            point[j] = later
    return total / steps
