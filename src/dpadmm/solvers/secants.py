r"""What the steps of one solve taught about the Hessian: limited-memory BFGS.

.. math:: P \leftarrow (I - \rho s y^\top)\, P\, (I - \rho y s^\top) + \rho s s^\top,
          \qquad \rho = 1 / s^\top y

for the last steps s and the changes y of the gradient along them, applied to a vector by the
two-loop recursion (Nocedal 1980). P stays positive definite, since a strongly convex objective has
``s.y > 0``. The gradients are those that the iteration evaluates anyway: no pass over the rows is
spent on it. What was learnt can also be written into P for the solves to come
(:meth:`Secants.write_into`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from dpadmm.plain import Array
from dpadmm.solvers.block import ALL, Chosen

__all__ = ["Secants"]

# Steps that are remembered.
_MEMORY: Final = 8
# Of what is worked on at a time while pairs are written into inverses.
_WRITE_BYTES: Final = 1 << 22
# A pair counts where s.y is at least this part of |s| |y|: below, it may be rounding.
_CERTAIN: Final = 1e-8


@final
class Secants:
    """Pairs (s, y) of every node and lane.

    Parameters
    ----------
    shape
        ``(nodes, lanes, features)``.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._shape = shape
        self._pairs: deque[tuple[Array, Array, Array]] = deque(maxlen=_MEMORY)

    def add(self, chosen: Chosen, step: Array, change: Array) -> None:
        """Remember a step of the chosen nodes; a lane that rests adds nothing. Arrays are kept."""
        product = _dot(step, change)
        size = np.sqrt(_dot(step, step) * _dot(change, change))
        certain = product > _CERTAIN * size
        weight = np.divide(1.0, product, out=np.zeros_like(product), where=certain)
        if chosen is not ALL:
            step, change, weight = (self._all(chosen, each) for each in (step, change, weight))
        self._pairs.append((step, change, weight))

    def _all(self, chosen: Chosen, values: Array) -> Array:
        """Values of the chosen nodes, and zeros of the others."""
        every = np.zeros((self._shape[0], *values.shape[1:]))
        every[chosen] = values
        return every

    def forget(self, lanes: NDArray[np.bool_]) -> None:
        """Leave out what these lanes learnt: their P is new."""
        for _, _, weights in self._pairs:
            weights[lanes] = 0.0

    def apply(
        self, vectors: Array, chosen: Chosen, precondition: Callable[[Array], Array]
    ) -> Array:
        """The updated P times a vector of each of the chosen nodes and their lanes."""
        parts = []
        for steps, changes, weights in reversed(self._pairs):
            part = (weights[chosen] * _dot(steps[chosen], vectors))[..., None]
            vectors = vectors - part * changes[chosen]
            parts.append(part)
        found = precondition(vectors)
        for (steps, changes, weights), part in zip(self._pairs, reversed(parts), strict=True):
            back = (weights[chosen] * _dot(changes[chosen], found))[..., None]
            found = found + (part - back) * steps[chosen]
        return found

    def write_into(self, inverse: Array) -> None:
        """Replace the P of every node and lane, ``(nodes, lanes, d, d)``, by the updated one.

        With ``q = P y``: ``P + s u' + u s'``, ``u = (rho + rho^2 y.q) s / 2 - rho q``.
        """
        step = max(1, _WRITE_BYTES // inverse[0].nbytes)
        for first in range(0, len(inverse), step):
            some = slice(first, first + step)
            part = inverse[some]
            for every, changes, weights in self._pairs:
                steps, change, weight = every[some], changes[some], weights[some, :, None]
                product = np.matmul(part, change[..., None])[..., 0]
                bend = weight * (1 + weight * _dot(change, product)[..., None])
                half = steps[..., :, None] * (bend / 2 * steps - weight * product)[..., None, :]
                part += half + half.swapaxes(-1, -2)


def _dot(first: Array, second: Array) -> Array:
    return np.asarray(np.einsum("nlf,nlf->nl", first, second))
