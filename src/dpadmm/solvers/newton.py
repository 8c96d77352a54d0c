r"""The local problem of every graph algorithm, solved for all parties and runs at once.

.. math:: x_i = \arg\min_w \frac{c_i}{n_i}\sum_k l(w \cdot u_k) + \frac{m_i}{2}\|w\|^2
          + \langle \mathrm{lin}_i, w\rangle

**Method.** :math:`x \leftarrow x - P g` with a cached inverse :math:`P` of an earlier Hessian. The
steps of a solve improve it (:class:`Secants`), for that solve and, if a single run has so many rows
that this costs little beside a pass, for later solves. The solver keeps the loss gradient at the
last solution. A new linear term changes the gradient by a known amount, so the first step of every
solve needs no pass over the rows. All runs of a party share one inverse, that of their mean
Hessian, until noise has driven them too far apart; then each run keeps its own.

**Global convergence.** The solver takes a full step if it shortens the gradient enough compared
with the shortest so far. Otherwise it rebuilds P at the current point. If that does not help
either, it minimises the objective along the direction. This settles nearly every problem, but a
proof would need a number of steps proportional to ``M / m``: the objective is m-strongly convex and
M-smooth, ``M = m + c c1``, since rows have norm at most 1. So after :data:`_MAX_STEPS` steps
Nesterov's method finishes the solve. It needs about ``sqrt(M / m)`` steps per digit on every data
set, so no content of a row can make a solve fail.

**Certificate.** The returned residual is the norm of the gradient at the returned point. Together
with a public bound on the rounding error of that evaluation it is at most the tolerance, or
:class:`~dpadmm.errors.ConvergenceError` is raised.

**Wide problems.** Above :data:`~dpadmm.solvers.workspace.FACTOR_LIMIT` features the solver forms no
matrix: the Newton direction comes from conjugate gradients on Hessian-vector products.

**Secants.** Limited-memory BFGS: what the steps of one solve show about the Hessian.

.. math:: P \leftarrow (I - \rho s y^\top)\, P\, (I - \rho y s^\top) + \rho s s^\top,
          \qquad \rho = 1 / s^\top y

for the last steps s and the changes y of the gradient along them, applied to a vector by the
two-loop recursion (Nocedal 1980). P stays positive definite, since a strongly convex objective has
``s.y > 0``. The iteration evaluates these gradients anyway, so no extra pass over the rows is
needed. :meth:`Secants.write_into` writes the updates into P for later solves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from dpadmm.errors import ConvergenceError
from dpadmm.plain import Array
from dpadmm.problem.rows import SUMMED_ROWS, RowBlock
from dpadmm.problem.site import Site
from dpadmm.solvers.block import ALL, BlockLoss, Chosen

# The number of steps to remember.
_MEMORY: Final = 8
# The bytes of inverses that are updated at a time.
_WRITE_BYTES: Final = 1 << 22
# A pair counts if s.y is at least this part of |s| |y|; a smaller one may be rounding.
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
        """Remember a step of the chosen nodes; a lane at rest adds nothing. Keeps the arrays."""
        product = _dot(step, change)
        size = np.sqrt(_dot(step, step) * _dot(change, change))
        certain = product > _CERTAIN * size
        weight = np.divide(1.0, product, out=np.zeros_like(product), where=certain)
        if chosen is not ALL:
            step, change, weight = (self._all(chosen, each) for each in (step, change, weight))
        self._pairs.append((step, change, weight))

    def _all(self, chosen: Chosen, values: Array) -> Array:
        """The values of the chosen nodes, and zeros for the others."""
        every = np.zeros((self._shape[0], *values.shape[1:]))
        every[chosen] = values
        return every

    def forget(self, lanes: NDArray[np.bool_]) -> None:
        """Forget the pairs of these lanes, whose P is new."""
        for _, _, weights in self._pairs:
            weights[lanes] = 0.0

    def apply(
        self, vectors: Array, chosen: Chosen, precondition: Callable[[Array], Array]
    ) -> Array:
        """The updated P times a vector, for each chosen node and lane."""
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


_MAX_STEPS: Final = 200
# A step must shorten the gradient by these factors: with an old inverse, with a new one.
_CHORD_RATE: Final = 0.5
_NEWTON_RATE: Final = 0.9
# theta, the accuracy of conjugate gradients for a Newton direction.
_NEWTON_ACCURACY: Final = 0.05
# A line search ends when the slope along the direction has fallen to this part.
_LINE_SLOPE: Final = 0.1
# After so many rebuilds in one solve the runs of a party no longer share one inverse.
_SHARED_REBUILDS: Final = 3
# From so many rows per feature on a solve writes its updates into its inverse.
_LEARNING_ROWS: Final = 4
# From so many parties in a block on their steps are compiled; for fewer, loading takes longer.
_MANY_PARTIES: Final = 100
# Memory for the inverses of single runs; beyond it they keep sharing, and use line searches.
_OWN_BYTES: Final = 2**28


class Solution(NamedTuple):
    """Minimisers and their certificate."""

    point: Array
    residual: Array


@dataclass
class BlockState:
    """What a block keeps between solves: private to the party, never sent."""

    point: Array
    loss_gradient: Array
    #: ``(nodes, outputs, features, features)``, or one for each lane in place of each output.
    inverse: Array | None = None
    #: Of each node: the strong convexity that its inverse was made for.
    bowl: Array = field(default_factory=lambda: np.zeros(0))
    #: Of each node: steps of the first solve with its inverse (NaN before it), and the extra steps
    #: of later solves.
    usual: Array = field(default_factory=lambda: np.zeros(0))
    excess: Array = field(default_factory=lambda: np.zeros(0))
    stale: NDArray[np.bool_] = field(default_factory=lambda: np.ones((0, 0), dtype=bool))


@dataclass
class _Iteration:
    """A solve in progress: the problems and their state; arrays are per node and lane."""

    linear: Array
    convexity: Array
    tolerance: Array
    gradient: Array
    norms: Array
    best: Array
    #: Of each node: how often its inverse was renewed.
    rebuilds: NDArray[np.int_]
    secants: Secants


class BlockSolver(BlockLoss):
    """Solves the local problems of one block, and keeps their solutions."""

    def __init__(
        self, block: RowBlock, site: Site, tilt: Array | None, *, use_factor: bool
    ) -> None:
        super().__init__(block, site, tilt)
        self.state: BlockState | None = None
        self._smooth = (site.weight * site.loss.curvature_bound)[block.nodes, None, None]
        self._use_factor = use_factor
        own = len(block.nodes) * site.runs * site.outputs * 8 * site.features**2
        self._own_inverses_fit = site.runs > 1 and own <= _OWN_BYTES
        height = site.rows[block.nodes].max()
        self._learns = site.runs == 1 and bool(height >= _LEARNING_ROWS * site.features)
        self._compiles = (
            len(block.nodes) >= _MANY_PARTIES
            and site.runs == site.outputs == 1
            and site.loss.name == "logistic"
            and block.labels.shape[1] <= SUMMED_ROWS
        )
        if self._compiles:
            signed = (block.rows * block.labels).swapaxes(1, 2)
            self._signed_columns = np.ascontiguousarray(signed)
        # A Hessian and its inverse cost about this many gradient passes.
        self._rebuild_cost = 4.0 + site.features / 20.0

    # -- directions -------------------------------------------------------------------------

    def _shares(self, state: BlockState) -> bool:
        """Whether the runs of a party share their inverse."""
        return state.inverse is not None and state.inverse.shape[1] == self.lanes[1]

    def _rebuild(
        self, state: BlockState, convexity: Array, outdated: NDArray[np.bool_] | None = None
    ) -> None:
        """Invert the Hessians of the outdated lanes, or of their parties, at the current points."""
        diagonal = np.arange(self._features)
        if outdated is not None and state.inverse is not None and not self._shares(state):
            for node, lane in np.argwhere(outdated):
                hessian = self.own_hessian(state.point[node, lane], node, lane % self.lanes[1])
                hessian[diagonal, diagonal] += convexity[node, 0, 0]
                state.inverse[node, lane] = np.linalg.inv(hessian)
            state.stale &= ~outdated
            return
        chosen: Chosen = ALL
        if outdated is not None and len(self.nodes) > 1:
            chosen = np.flatnonzero(outdated.any(axis=1))
        if state.inverse is None:
            state.inverse = np.empty((len(self.nodes), self.lanes[1], *2 * (self._features,)))
        if self._compiles:
            self._compiled_inverses(state.point, convexity, chosen, state.inverse)
        else:
            hessian = self.mean_hessian(state.point[chosen], chosen)
            hessian[..., diagonal, diagonal] += convexity[chosen]
            state.inverse[chosen] = np.linalg.inv(hessian)
        state.stale[chosen] = False

    def _compiled_inverses(
        self, point: Array, convexity: Array, chosen: Chosen, inverse: Array
    ) -> None:
        """Invert the Hessians of many small parties in compiled code."""
        from dpadmm.solvers.compiled import set_inverses

        nodes = len(self.nodes)
        set_inverses(
            self._signed_columns,
            self._scale.reshape(nodes),
            convexity.reshape(nodes),
            point.reshape(nodes, -1),
            np.arange(nodes)[chosen],
            inverse.reshape(nodes, self._features, -1),
        )

    def _follow(self, state: BlockState, bowl: Array) -> None:
        """Move shared inverses to another strong convexity: ``(1/P + s)^-1 = (1 + s P)^-1 P``."""
        moved = np.flatnonzero(bowl != state.bowl)
        if len(moved) and state.inverse is not None and self._shares(state):
            old = state.inverse[moved]
            shift = (bowl - state.bowl)[moved, None, None, None]
            state.inverse[moved] = np.linalg.solve(np.eye(self._features) + shift * old, old)
        state.bowl = bowl.copy()

    def _precondition(self, state: BlockState, chosen: Chosen, vectors: Array) -> Array:
        """``P v``: the cached inverse applied to every lane."""
        assert state.inverse is not None
        # An inverse is symmetric, so vectors may be multiplied from the left.
        if self.lanes[0] == 1 or not self._shares(state):
            return np.matmul(vectors[:, :, None, :], state.inverse[chosen])[:, :, 0]
        nodes, lanes, features = vectors.shape
        by_output = vectors.reshape(nodes, *self.lanes, features).swapaxes(1, 2)
        applied = np.matmul(by_output, state.inverse[chosen]).swapaxes(1, 2)
        return applied.reshape(nodes, lanes, features)

    def _newton_direction(
        self, state: BlockState, gradient: Array, convexity: Array, chosen: Chosen
    ) -> Array:
        """Solve ``H d = -g`` in every lane by conjugate gradients.

        It stops where ``||H d + g|| <= theta ||g||``: a Newton direction up to theta.
        """
        curvatures = self.curvatures(state.point[chosen], chosen)
        target = _NEWTON_ACCURACY * _norms(gradient)
        direction = np.zeros_like(gradient)
        remainder = -gradient
        search = remainder
        size = np.square(_norms(remainder))[..., None]
        for _ in range(self._features):
            if (_norms(remainder) <= target).all():
                break
            product = self.hessian_product(curvatures, search, chosen) + convexity * search
            bend = np.einsum("nlf,nlf->nl", search, product)[..., None]
            # Solved lanes have a zero search direction and do not move.
            step = np.divide(size, bend, out=np.zeros_like(size), where=bend > 0)
            direction += step * search
            remainder = remainder - step * product
            fresh = np.square(_norms(remainder))[..., None]
            search = remainder + search * np.divide(
                fresh, size, out=np.zeros_like(fresh), where=size > 0
            )
            size = fresh
        return direction

    def _direction(
        self, state: BlockState, going: _Iteration, chosen: Chosen, active: NDArray[np.bool_]
    ) -> tuple[Array, NDArray[np.bool_]]:
        """The directions of the active lanes, and which lanes have a Newton direction."""
        slope = going.gradient[chosen]
        if state.inverse is None:
            direction = self._newton_direction(state, slope, going.convexity[chosen], chosen)
            fresh = np.ones_like(active)
        else:
            preconditioned = partial(self._precondition, state, chosen)
            direction = -going.secants.apply(slope, chosen, preconditioned)
            fresh = ~state.stale[chosen]
        if not active.all():
            direction = np.where(active[..., None], direction, 0.0)
        return direction, fresh

    def _line_search(
        self, point: Array, direction: Array, fixed: Array, convexity: Array, chosen: Chosen
    ) -> Array:
        """The length of the step along each direction at which the objective is nearly flat.

        ``fixed`` is the linear term plus ``m`` times the point. The slope along a direction grows
        with the length, so doubling brackets its zero and halving finds it.
        """
        self.passes += 1
        rows_slope = self.slopes_along(point, direction, chosen)
        bend = (convexity * np.square(direction)).sum(axis=-1)
        constant = np.einsum("nlf,nlf->nl", fixed + self._tilt[chosen], direction)
        scale = self._scale[chosen][..., 0]

        def slope(length: Array) -> Array:
            return scale * rows_slope(length) + constant + length * bend

        low, high = np.zeros_like(constant), np.ones_like(constant)
        goal = _LINE_SLOPE * np.abs(slope(low))
        length, found = high, slope(high)
        while (short := found < -goal).any():
            low, high = np.where(short, high, low), np.where(short, 2 * high, high)
            length, found = high, np.where(short, slope(high), found)
        # After a few dozen halvings no doubles are left between the ends.
        for _ in range(60):
            wide = np.abs(found) > goal
            if not wide.any():
                break
            length = np.where(wide, (low + high) / 2, length)
            found = np.where(wide, slope(length), found)
            low = np.where(wide & (found < 0), length, low)
            high = np.where(wide & (found > 0), length, high)
        return length

    # -- the iteration ----------------------------------------------------------------------

    def solve(self, linear: Array, convexity: Array, tolerance: Array) -> Solution:
        """Minimise for every node and lane; ``convexity`` and ``tolerance`` per node."""
        state = self._begin(linear, convexity)
        steps = self._compiled_steps(state, linear, convexity, tolerance)
        gradient = state.loss_gradient + convexity * state.point + linear
        norms = _norms(gradient)
        going = _Iteration(
            linear,
            convexity,
            tolerance,
            gradient,
            norms,
            best=norms.copy(),
            rebuilds=np.zeros(len(self.nodes), dtype=int),
            secants=Secants(linear.shape),
        )
        for _ in range(_MAX_STEPS):
            busy = ~(going.norms <= tolerance)
            if not busy.any():
                break
            # Solved parties leave the pass if that saves more than the copy costs.
            working = busy.any(axis=1)
            steps += working
            some = np.flatnonzero(working)
            chosen: Chosen = some if 2 * len(some) < len(self.nodes) else ALL
            self._step(state, going, chosen, busy[chosen])
        else:
            going.norms = self._accelerate(state, linear, convexity, tolerance)
        if state.inverse is not None and self._learns:
            going.secants.write_into(state.inverse)
        renewed = going.rebuilds > 0
        first = np.isnan(state.usual)
        state.excess = np.where(renewed | first, 0.0, state.excess + steps - state.usual)
        state.usual = np.where(renewed, np.nan, np.where(first, steps, state.usual))
        return Solution(state.point, going.norms)

    def _begin(self, linear: Array, convexity: Array) -> BlockState:
        """Prepare the state that earlier solves left for these problems."""
        if self.state is None:
            zero, nodes = np.zeros_like(linear), len(self.nodes)
            unknown = np.full(nodes, np.nan)
            self.state = BlockState(
                zero,
                self.loss_gradient(zero),
                bowl=convexity[:, 0, 0].copy(),
                usual=unknown,
                excess=np.zeros(nodes),
            )
        state = self.state
        state.stale = np.ones(linear.shape[:2], dtype=bool)
        if self._use_factor and state.inverse is None:
            self._rebuild(state, convexity)
        self._follow(state, convexity[:, 0, 0])
        # Small delays add up: renew an inverse once they have cost as much as a renewal.
        worn = state.excess > self._rebuild_cost
        if worn.any() and self._shares(state):
            self._rebuild(state, convexity, np.broadcast_to(worn[:, None], linear.shape[:2]))
            state.usual[worn], state.excess[worn] = np.nan, 0.0
        return state

    def _compiled_steps(
        self, state: BlockState, linear: Array, convexity: Array, tolerance: Array
    ) -> Array:
        """Take the first steps of many small parties in compiled code; return their numbers.

        :meth:`solve` takes the remaining steps and makes the certificate.
        """
        if not self._compiles or state.inverse is None:
            return np.zeros(len(self.nodes))
        from dpadmm.solvers.compiled import SmallProblems, take_chord_steps

        nodes = len(self.nodes)
        problems = SmallProblems(
            self._signed_columns,
            self._scale.reshape(nodes),
            self._tilt.reshape(nodes, -1),
            linear.reshape(nodes, -1),
            convexity.reshape(nodes),
            tolerance.reshape(nodes),
            state.inverse.reshape(nodes, self._features, -1),
        )
        # These are views: writing to them writes to the state.
        point, loss_gradient = (each[:, 0] for each in (state.point, state.loss_gradient))
        taken = take_chord_steps(problems, _CHORD_RATE, point, loss_gradient)
        self.passes += int(taken.max())
        steps: Array = taken.astype(np.float64)
        return steps

    def _step(
        self, state: BlockState, going: _Iteration, chosen: Chosen, active: NDArray[np.bool_]
    ) -> None:
        """Take one step with the chosen nodes, in the lanes that are not solved yet."""
        norm, tolerance = going.norms[chosen], going.tolerance[chosen]
        point, slope, bowl = state.point[chosen], going.gradient[chosen], going.convexity[chosen]
        linear = going.linear[chosen]
        direction, fresh = self._direction(state, going, chosen, active)

        def tried(trial: Array) -> tuple[Array, Array, Array, Array]:
            loss = self.loss_gradient(trial, chosen)
            total = loss + bowl * trial + linear
            return trial, loss, total, _norms(total)

        trial, trial_loss, trial_slope, trial_norm = tried(point + direction)
        rate = np.divide(trial_norm, going.best[chosen], out=np.zeros_like(norm), where=active)
        accepted = active & (rate <= np.where(fresh, _NEWTON_RATE, _CHORD_RATE))
        searched = active & fresh & ~accepted
        if searched.any():
            along = np.where(searched[..., None], direction, 0.0)
            length = self._line_search(point, along, linear + bowl * point, bowl, chosen)
            trial, trial_loss, trial_slope, trial_norm = tried(
                point + np.where(searched, length, 1.0)[..., None] * direction
            )
            accepted |= searched
        reached = np.where(accepted, trial_norm, norm)
        left = ~(reached <= tolerance)
        # Before the state changes, because these arrays may be views of it.
        if state.inverse is not None and left.any():
            going.secants.add(chosen, trial - point, trial_slope - slope)
        if not accepted.all():
            take = accepted[..., None]
            trial = np.where(take, trial, point)
            trial_loss = np.where(take, trial_loss, state.loss_gradient[chosen])
            trial_slope = np.where(take, trial_slope, slope)
        state.point[chosen], state.loss_gradient[chosen] = trial, trial_loss
        going.gradient[chosen], going.norms[chosen] = trial_slope, reached
        going.best = np.minimum(going.best, going.norms)
        if state.inverse is not None and left.any():
            state.stale[chosen] |= accepted
            # A rebuild pays if the passes still needed at this rate cost more.
            to_come = np.log(np.maximum(reached / tolerance, 1.0))
            pace = -np.log(np.clip(rate, 1e-9, 0.999))
            if self._shares(state):
                to_come, pace = to_come.max(axis=1)[:, None], pace.min(axis=1)[:, None]
            slow = left & ((to_come > pace * self._rebuild_cost) | ~accepted | searched)
            self._renew(state, going, chosen, slow)

    def _renew(
        self, state: BlockState, going: _Iteration, chosen: Chosen, slow: NDArray[np.bool_]
    ) -> None:
        """Invert Hessians again where steps are slow and the inverse belongs to another point."""
        outdated = np.zeros_like(state.stale)
        outdated[chosen] = slow & state.stale[chosen]
        if not outdated.any():
            return
        going.rebuilds += outdated.any(axis=1)
        apart = self._own_inverses_fit and going.rebuilds.max() > _SHARED_REBUILDS
        if apart and state.inverse is not None and self._shares(state):
            state.inverse = np.tile(state.inverse, (1, self.lanes[0], 1, 1))
        self._rebuild(state, going.convexity, outdated)
        going.secants.forget(~state.stale)

    def _accelerate(
        self, state: BlockState, linear: Array, convexity: Array, tolerance: Array
    ) -> Array:
        """Run Nesterov's method from the current points; its number of steps is proven."""
        smooth = convexity + self._smooth
        root = np.sqrt(convexity / smooth)
        momentum = (1 - root) / (1 + root)
        last, ahead = state.point.copy(), state.point.copy()
        norms = _norms(state.loss_gradient + convexity * ahead + linear)
        # F - F* starts below |g|^2 / m and shrinks by 1 - root a step; |g|^2 is at most 9 M^2 / m
        # times it.
        digits = 2 * np.log(np.maximum(norms / tolerance, 1.0)) + np.log(9 / root[..., 0] ** 4)
        steps = np.nan_to_num(digits / root[..., 0], posinf=0.0).max()
        for _ in range(2 + int(np.ceil(steps))):
            loss_gradient = self.loss_gradient(ahead)
            gradient = loss_gradient + convexity * ahead + linear
            busy = ~(norms <= tolerance)
            move = busy[..., None]
            state.point[:] = np.where(move, ahead, state.point)
            state.loss_gradient[:] = np.where(move, loss_gradient, state.loss_gradient)
            norms = np.where(busy, _norms(gradient), norms)
            if (norms <= tolerance).all():
                return norms
            following = ahead - gradient / smooth
            ahead, last = following + momentum * (following - last), following
        raise ConvergenceError(
            "a local solve missed its tolerance; nothing was released. Raise the penalty or the "
            "regularization."
        )


def _norms(vectors: Array) -> NDArray[np.float64]:
    return np.sqrt(np.einsum("nlf,nlf->nl", vectors, vectors))
