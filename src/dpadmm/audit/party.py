r"""The audited party: its public facts, and what its messages say about the rows it may hold.

A minimiser under gradient noise b,

.. math:: o = \arg\min_w \frac{c}{n}\sum_k l(w\cdot u_k) + \frac{m}{2}\|w\|^2
          + \langle\mathrm{lin} + b, w\rangle ,

tells b: with G the gradient without b, b = -G(o). This is a bijection, so that o has the density
:math:`p_b(-G(o))\,\det\nabla G(o)` and the privacy loss of an output is known in closed form.
What is sent carries the little noise of approximate minima perturbation on top, which moves the
loss by about a hundredth of its scale or less.
"""

from __future__ import annotations

from typing import Final, final

import numpy as np
from scipy import sparse

from dpadmm.algorithms.objective_release import ObjectiveRelease
from dpadmm.plain import Array
from dpadmm.problem.losses import LOSSES, Loss
from dpadmm.problem.rows import Shard
from dpadmm.problem.site import Site
from dpadmm.problem.topologies import SERVER, build_topology
from dpadmm.solvers.workspace import Workspace

__all__ = ["AUDIT_REGULARIZATION", "Candidate", "canary_rows", "one_party"]

#: lambda of every audited problem.
AUDIT_REGULARIZATION: Final = 1e-4


def one_party(
    rows: int,
    *,
    weight: float = 1.0,
    loss: Loss = LOSSES["logistic"],
    server: bool = False,
    parties: int = 2,
    features: int = 2,
    outputs: int = 1,
) -> Site:
    """The public facts of the honest party, which hears one neighbour or a server."""
    return Site(
        names=("honest",),
        index=np.array([0], dtype=np.intp),
        rows=np.array([rows], dtype=np.int64),
        degree=np.ones(1),
        weight=np.array([weight]),
        adjacency=sparse.csr_array(np.ones((1, 1))),
        topology=build_topology(SERVER if server else "path", parties),
        features=features,
        outputs=outputs,
        runs=1,
        loss=loss,
        regularization=AUDIT_REGULARIZATION,
    )


def canary_rows(slant: float, plane: Array | None = None) -> tuple[Array, Array]:
    """The replaced row (-s, q) of D, and (-s, -q) of D', of norm 1, in a plane of directions."""
    along, across = np.eye(2) if plane is None else plane
    share = float(np.sqrt(1 - slant**2))
    return -slant * along + share * across, -slant * along - share * across


@final
class Candidate:
    """A data set that the party may hold, as an adversary knows it.

    Parameters
    ----------
    shard, site
        The rows of one party, and its public facts.
    """

    def __init__(self, shard: Shard, site: Site) -> None:
        (block,) = shard.blocks
        self._rows, self._labels, self._site = block.rows[0], block.labels[0], site
        #: Solves the party's problems.
        self.workspace = Workspace(shard, site)

    def log_density(self, release: ObjectiveRelease, sent: Array) -> Array:
        """``ln p_b(-G(o)) + ln det`` of the Hessian, up to a constant; one number per run."""
        noise = release.perturbation
        convexity = self._site.per_node(noise.convexity)
        needed = self.workspace.gradient(sent) + convexity * sent + release.linear
        size = np.linalg.norm(needed, axis=-1) / noise.scale[:, None, None]
        log_noise = -np.square(size) / 2 if noise.kind == "gaussian" else -size
        hessian = self._loss_hessian(sent) + convexity[..., None] * np.eye(self._site.features)
        return (log_noise + np.linalg.slogdet(hessian).logabsdet).sum(axis=(0, 2))

    def _loss_hessian(self, points: Array) -> Array:
        """``(c / n) sum_k l''(w.u_k) x_k x_k'`` at each point."""
        margins = (points @ self._rows.T) * self._labels.T
        weighted = self._site.loss.curvature(margins)[..., None] * self._rows
        scale = self._site.per_node(self._site.weight / self._site.rows)[..., None]
        return scale * np.matmul(self._rows.T, weighted)
