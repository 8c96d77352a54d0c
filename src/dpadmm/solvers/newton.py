r"""The local problem of every graph algorithm, solved for all parties and runs at once.

.. math:: x_i = \arg\min_w \frac{c_i}{n_i}\sum_k l(w \cdot u_k) + \frac{m_i}{2}\|w\|^2
          + \langle \mathrm{lin}_i, w\rangle

**Method.** A chord (simplified Newton) iteration :math:`x \leftarrow x - P g` with a cached
inverse :math:`P` of a Hessian seen earlier. Because the loss gradient at the last solution is
kept, a new linear term changes the gradient by a known amount, and the first step of every solve
needs no pass over the rows. All runs of a party share one inverse, that of their mean Hessian. A
chord step counts only if it halves the norm of the gradient. Where that fails, or the runs have
been driven too far apart by noise, each run takes Newton directions of its own, by conjugate
gradients with P as preconditioner, and a line search.

**Global convergence.** The objective F is m-strongly convex and M-smooth, ``M = m + c c1``, since
rows have norm at most 1. Chord steps halve the gradient each time, so there are finitely many.
A Newton direction d from conjugate gradients has ``g.d = -d.H d < 0`` with ``m <= H <= M``, so
that halving the step until ``F(x + t d) <= F(x) + 1e-4 t g.d`` ends at a t of order m/M, and F
falls by a fixed factor on every data set, whatever the second derivative does in between (Huber's
jumps). A step is also taken where it halves the smallest norm of the gradient so far, which can
happen finitely often. So a solve does not fail because of what a row holds.

**Certificate.** The residual returned is the norm of the gradient evaluated at the point
returned. It is at most the tolerance, or :class:`~dpadmm.errors.ConvergenceError` is raised.

**Wide problems.** Above :data:`FACTOR_LIMIT` features (or for sparse rows) no matrix is formed:
the Newton direction comes from conjugate gradients on Hessian-vector products.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpadmm.arrays import Array, Block, Rows, Shard, Site
from dpadmm.errors import ConvergenceError, ParameterError
from dpadmm.losses import Loss

__all__ = ["FACTOR_LIMIT", "Solution", "Workspace", "check_reachable"]

#: Features above which the factor-free form is used (``make bench`` prints both around it).
FACTOR_LIMIT: Final = 1500
# A pass works on pieces of about this many bytes, so that a piece read for X w is still in the
# cache for X' r.
_PIECE_BYTES: Final = 1 << 22
# Far beyond what any solve needs; the argument below bounds them in terms of M / m.
_MAX_PASSES: Final = 20_000
# The share of the promised decrease that a Newton step must bring.
_ARMIJO: Final = 1e-4
# theta: how exactly conjugate gradients solve for a Newton direction.
_NEWTON_ACCURACY: Final = 0.05


class Solution(NamedTuple):
    """Minimisers and their certificate."""

    point: Array
    residual: Array


@dataclass
class _BlockState:
    """What is kept of a block between solves; private to the party, never sent."""

    point: Array
    loss_gradient: Array
    inverse: Array | None = None


class Workspace:
    """A shard, its objective and what earlier solves left behind to make the next one cheap.

    Parameters
    ----------
    shard
        The private rows.
    site
        Public facts: loss, weights c_i, row counts n_i.
    factor_limit
        Features above which the factor-free form is used.
    """

    def __init__(self, shard: Shard, site: Site, *, factor_limit: int = FACTOR_LIMIT) -> None:
        if not np.array_equal(shard.counts, site.rows):
            raise ParameterError("site.rows must be the row counts of the shard.")
        self._site = site
        self._objectives = [
            _Objective(block, site, use_factor=site.features <= factor_limit)
            for block in shard.blocks
        ]
        #: Gradient passes made so far, summed over blocks (a measure of work, not of rows).
        self.passes = 0

    def argmin(self, linear: Array, strong_convexity: Array, tolerance: float | Array) -> Solution:
        """Minimise every party's local problem to a gradient norm of at most ``tolerance``.

        Parameters
        ----------
        linear
            ``lin``, shaped as ``site.shape``.
        strong_convexity
            ``m_i > 0`` of each party.
        tolerance
            Largest norm of the gradient at the solution, for all or for each party.
        """
        site = self._site
        tolerances = np.broadcast_to(np.asarray(tolerance, dtype=np.float64), len(site.index))
        check_reachable(site, linear, strong_convexity, tolerances)
        point = np.empty(site.shape)
        residual = np.empty(site.shape[:-1])
        for objective in self._objectives:
            nodes = objective.nodes
            solved = objective.solve(
                linear[nodes].reshape(len(nodes), -1, site.features),
                strong_convexity[nodes, None, None],
                tolerances[nodes, None],
            )
            point[nodes] = solved.point.reshape(-1, *site.shape[1:])
            residual[nodes] = solved.residual.reshape(-1, *site.shape[1:-1])
        self.passes = sum(objective.passes for objective in self._objectives)
        return Solution(point, residual)

    def snapshot(self) -> dict[str, Array]:
        """Everything kept between solves, as arrays: restoring it repeats the same bits."""
        saved: dict[str, Array] = {}
        for number, objective in enumerate(self._objectives):
            state = objective.state
            if state is None:
                continue
            saved[f"{number}.point"] = state.point
            saved[f"{number}.loss_gradient"] = state.loss_gradient
            if state.inverse is not None:
                saved[f"{number}.inverse"] = state.inverse
        return saved

    def restore(self, saved: dict[str, Array]) -> None:
        """Take up a :meth:`snapshot`."""
        for number, objective in enumerate(self._objectives):
            if f"{number}.point" in saved:
                objective.state = _BlockState(
                    saved[f"{number}.point"],
                    saved[f"{number}.loss_gradient"],
                    saved.get(f"{number}.inverse"),
                )


def check_reachable(site: Site, linear: Array, convexity: Array, tolerance: Array) -> None:
    """Refuse a tolerance below the rounding error of the gradient; public values only."""
    if not np.isfinite(linear).all():
        raise ParameterError("linear must be finite: a message or a noise draw is not.")
    if not (convexity > 0).all():
        raise ParameterError(f"strong_convexity must be positive; got {convexity.min()}.")
    size = np.sqrt(np.einsum("nrof,nrof->nro", linear, linear)).max(axis=(1, 2))
    slope = site.loss.slope_bound
    # A loss without a slope bound has |l'(m)| <= 1 + |m|, and no norm exceeds |lin| / m + 1 / m.
    slopes = np.where(np.isfinite(slope), slope, 1.0 + (size + site.weight) / convexity)
    floor = 16 * np.finfo(np.float64).eps * (size + site.weight * slopes)
    if (tolerance < floor).any():
        node = int(np.argmax(floor / tolerance))
        raise ParameterError(
            f"tolerance must be at least {floor[node]:.3g}, the rounding error of a gradient for "
            f"party {site.names[node]}; got {tolerance[node]:.3g}. Raise it, or lower the bound "
            "on messages."
        )


# Which parties of a block a pass is for: all of them as a view, or some by number.
Chosen = slice | NDArray[np.intp]
_ALL: Final = slice(None)


class _Objective:
    """The local problems of one block, with lanes = runs x outputs."""

    def __init__(self, block: Block, site: Site, *, use_factor: bool) -> None:
        self.nodes = block.nodes
        self.state: _BlockState | None = None
        self.passes = 0
        self._rows, self._labels = block.rows, block.labels
        self._sparse = sparse.issparse(block.rows)
        self._loss: Loss = site.loss
        self._lanes = (site.runs, site.outputs)
        self._features = site.features
        self._scale = (site.weight / site.rows)[block.nodes, None, None]
        self._use_factor = use_factor and not self._sparse
        # A Hessian and its inverse cost about this many gradient passes.
        self._rebuild_cost = 4.0 + site.features / 20.0

    # -- passes over the rows ---------------------------------------------------------------

    def _pieces(self, chosen: Chosen) -> Iterator[tuple[Rows, Array]]:
        """Rows and labels, a cacheful at a time."""
        height = self._labels.shape[1]
        if self._sparse:
            yield self._rows, self._labels
        elif len(self.nodes) > 1:
            yield self._rows[chosen], self._labels[chosen]
        else:
            step = max(64, _PIECE_BYTES // (8 * self._features))
            for start in range(0, height, step):
                yield self._rows[:, start : start + step], self._labels[:, start : start + step]

    def _margins(self, rows: Rows, labels: Array, points: Array) -> Array:
        """``y x.w`` as ``(nodes, rows, runs, outputs)``."""
        if self._sparse:
            scores = np.asarray(rows @ points[0].T)[None]
        else:
            scores = np.matmul(rows, points.swapaxes(1, 2))
        margins = scores.reshape(*labels.shape[:2], -1, labels.shape[2])
        margins *= labels[:, :, None, :]
        return margins

    def _back(self, rows: Rows, weights: Array) -> Array:
        """``sum_k weights_k x_k`` as ``(nodes, lanes, features)``."""
        flat = weights.reshape(*weights.shape[:2], -1)
        if self._sparse:
            return np.asarray(rows.T @ flat[0]).T[None]
        return np.matmul(flat.swapaxes(1, 2), rows)

    def loss_gradient(self, points: Array, chosen: Chosen = _ALL) -> Array:
        """Gradient of ``(c/n) sum l`` at one point per node and lane: one pass."""
        self.passes += 1
        total = np.zeros_like(points)
        for rows, labels in self._pieces(chosen):
            slopes = self._loss.slope(self._margins(rows, labels, points))
            slopes *= labels[:, :, None, :]
            total += self._back(rows, slopes)
        total *= self._scale[chosen]
        return total

    def _value(self, points: Array, convexity: Array, linear: Array, chosen: Chosen) -> Array:
        """The objective in every lane."""
        total = np.zeros(points.shape[:2])
        for rows, labels in self._pieces(chosen):
            losses = self._loss.value(self._margins(rows, labels, points))
            losses *= np.square(labels)[:, :, None, :]
            total += losses.sum(axis=1).reshape(total.shape)
        bowl = convexity / 2 * points + linear
        return self._scale[chosen, :, 0] * total + np.einsum("nlf,nlf->nl", bowl, points)

    def _mean_hessian(self, points: Array, chosen: Chosen) -> Array:
        """Mean over runs of the loss Hessian, ``(nodes, outputs, features, features)``."""
        outputs = self._lanes[1]
        total = np.zeros((len(points), outputs, self._features, self._features))
        for rows, labels in self._pieces(chosen):
            curvature = self._loss.curvature(self._margins(rows, labels, points)).mean(axis=2)
            for output in range(outputs):
                weighted = rows * np.sqrt(curvature[:, :, output, None])
                total[:, output] += np.matmul(weighted.swapaxes(1, 2), weighted)
        total *= self._scale[chosen][..., None]
        return total

    def _curvatures(self, points: Array, chosen: Chosen) -> list[Array]:
        return [
            self._loss.curvature(self._margins(rows, labels, points))
            for rows, labels in self._pieces(chosen)
        ]

    def _hessian_product(self, curvatures: list[Array], vectors: Array, chosen: Chosen) -> Array:
        self.passes += 1
        total = np.zeros_like(vectors)
        for (rows, labels), curvature in zip(self._pieces(chosen), curvatures, strict=True):
            # A label enters twice and cancels: its square is 1, and 0 where rows were filled up.
            scores = self._margins(rows, np.square(labels), vectors)
            total += self._back(rows, curvature * scores)
        total *= self._scale[chosen]
        return total

    # -- directions -------------------------------------------------------------------------

    def _rebuild(self, state: _BlockState, convexity: Array, chosen: Chosen) -> None:
        """Invert the mean Hessian of the chosen parties at their current points."""
        hessian = self._mean_hessian(state.point[chosen], chosen)
        diagonal = np.arange(self._features)
        hessian[..., diagonal, diagonal] += convexity[chosen]
        if state.inverse is None:
            state.inverse = np.empty_like(hessian)
        state.inverse[chosen] = np.linalg.inv(hessian)

    def _precondition(self, state: _BlockState, vectors: Array, chosen: Chosen) -> Array:
        """``P v``: the cached inverse applied to every lane, or nothing where none is kept."""
        if state.inverse is None:
            return vectors
        nodes, lanes, features = vectors.shape
        by_output = vectors.reshape(nodes, *self._lanes, features).swapaxes(1, 2)
        # The inverse is symmetric, so that vectors may stand on its left.
        applied = np.matmul(by_output, state.inverse[chosen]).swapaxes(1, 2)
        return applied.reshape(nodes, lanes, features)

    def _newton_direction(
        self, state: _BlockState, gradient: Array, convexity: Array, chosen: Chosen
    ) -> Array:
        """Solve ``H d = -g`` in every lane by conjugate gradients, P being the preconditioner.

        It stops where ``||H d + g|| <= theta ||g||``: a Newton direction up to theta.
        """
        curvatures = self._curvatures(state.point[chosen], chosen)
        target = _NEWTON_ACCURACY * _norms(gradient)
        direction = np.zeros_like(gradient)
        remainder = -gradient
        towards = self._precondition(state, remainder, chosen)
        search = towards
        size = np.einsum("nlf,nlf->nl", remainder, towards)[..., None]
        for _ in range(self._features):
            if (_norms(remainder) <= target).all():
                break
            product = self._hessian_product(curvatures, search, chosen) + convexity * search
            bend = np.einsum("nlf,nlf->nl", search, product)[..., None]
            # Lanes that are solved have a zero search direction; they stay where they are.
            step = np.divide(size, bend, out=np.zeros_like(size), where=bend > 0)
            direction += step * search
            remainder = remainder - step * product
            towards = self._precondition(state, remainder, chosen)
            fresh = np.einsum("nlf,nlf->nl", remainder, towards)[..., None]
            search = towards + search * np.divide(
                fresh, size, out=np.zeros_like(fresh), where=size > 0
            )
            size = fresh
        return direction

    # -- the iteration ----------------------------------------------------------------------

    def solve(self, linear: Array, convexity: Array, tolerance: Array) -> Solution:
        """Minimise for every node and lane; ``convexity`` and ``tolerance`` per node."""
        if self.state is None:
            zero = np.zeros_like(linear)
            self.state = _BlockState(zero, self.loss_gradient(zero))
        state = self.state
        if self._use_factor and state.inverse is None:
            self._rebuild(state, convexity, _ALL)
        gradient = state.loss_gradient + convexity * state.point + linear
        norms = _norms(gradient)
        limit = self.passes + _MAX_PASSES
        chord = _Chord(len(self.nodes), self._rebuild_cost, self._lanes[0])
        # Newton's phase: steps, and the smallest gradient norm so far, which it may go by.
        steps, best = np.ones_like(norms), norms.copy()
        while (busy := norms > tolerance).any():
            if self.passes >= limit:
                raise ConvergenceError(
                    f"a local solve missed its tolerance after {_MAX_PASSES} passes; nothing was "
                    "released, and the round stays charged. Raise the penalty or the "
                    "regularization."
                )
            # Parties that are done drop out of the pass where that spares more than it copies.
            some = np.flatnonzero(busy.any(axis=1))
            chosen: Chosen = some if 2 * len(some) < len(self.nodes) else _ALL
            active, norm, slope = busy[chosen], norms[chosen], gradient[chosen]
            point, bowl, tilt = state.point[chosen], convexity[chosen], linear[chosen]
            newton = chord.given_up or not self._use_factor
            if newton:
                direction = self._newton_direction(state, slope, bowl, chosen)
                step = steps[chosen]
            else:
                direction = -self._precondition(state, slope, chosen)
                step = np.ones_like(norm)
            trial = point + np.where(active, step, 0.0)[..., None] * direction
            trial_loss = self.loss_gradient(trial, chosen)
            trial_slope = trial_loss + bowl * trial + tilt
            trial_norm = _norms(trial_slope)
            accepted = active & (trial_norm <= 0.5 * best[chosen])
            if newton:
                before = self._value(point, bowl, tilt, chosen)
                promised = _ARMIJO * step * np.einsum("nlf,nlf->nl", slope, direction)
                accepted |= active & (self._value(trial, bowl, tilt, chosen) <= before + promised)
                steps[chosen] = np.where(accepted, 1.0, step / 2)
            # Before anything is overwritten: ``norm`` and the like may be views.
            rate = np.where(active, trial_norm / norm, 0.0).max(axis=1)
            take = accepted[..., None]
            state.point[chosen] = np.where(take, trial, point)
            state.loss_gradient[chosen] = np.where(take, trial_loss, state.loss_gradient[chosen])
            gradient[chosen] = np.where(take, trial_slope, slope)
            norms[chosen] = np.where(accepted, trial_norm, norm)
            best = np.minimum(best, norms)
            if not newton:
                to_come = np.log(np.maximum(norms[chosen] / tolerance[chosen], 1.0)).max(axis=1)
                outdated = chord.judge(rate, to_come, chosen)
                if len(outdated):
                    self._rebuild(state, convexity, _ALL if len(self.nodes) == 1 else outdated)
        return Solution(state.point, norms)


class _Chord:
    """Watches a chord iteration: when to renew the inverse, and when to give the chord up."""

    def __init__(self, nodes: int, rebuild_cost: float, runs: int) -> None:
        self.given_up = False
        self._numbers = np.arange(nodes)
        self._rebuilds = np.zeros(nodes, dtype=np.intp)
        # Half of a rebuild's price is set against later solves, which profit too.
        self._price = rebuild_cost / 2
        # One inverse fits one run near its point; several runs only where they are close.
        self._allowed = 8 if runs == 1 else 1

    def judge(self, rate: Array, to_come: Array, chosen: Chosen) -> NDArray[np.intp]:
        """Which parties' inverses to renew, from the rate of the last step and what is left.

        A renewal pays where the passes still to come at this rate outweigh it.
        """
        slow = to_come > -np.log(np.clip(rate, 1e-9, 0.999)) * self._price
        outdated = self._numbers[chosen][slow]
        self._rebuilds[outdated] += 1
        self.given_up = bool((self._rebuilds > self._allowed).any())
        return outdated[:0] if self.given_up else outdated


def _norms(vectors: Array) -> NDArray[np.float64]:
    return np.sqrt(np.einsum("nlf,nlf->nl", vectors, vectors))
