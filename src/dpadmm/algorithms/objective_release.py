"""What a round of objective perturbation releases, as everybody may know it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

import numpy as np
from scipy.special import gammainccinv

from dpadmm.plain import Array
from dpadmm.privacy.events import Event
from dpadmm.privacy.mechanisms import (
    SOLVED_TO,
    ObjectivePerturbation,
    Released,
    release_objective,
)
from dpadmm.privacy.noise import NoiseSource
from dpadmm.problem.site import Site
from dpadmm.solvers.workspace import Solution, Workspace, check_reachable

__all__ = ["ObjectiveRelease"]

# How likely noise may be to exceed the size that the solver was checked for: in a billion releases
# far less likely than what the smallest delta leaves for samplers, 1e-28.
_EXCESS: Final = 1e-40


@final
@dataclass(frozen=True)
class ObjectiveRelease:
    r"""The minimiser of each party's problem under noise b in its gradient, sent through AMP.

    .. math:: \arg\min_w \tfrac{c_i}{n_i}\textstyle\sum_k l(w\cdot u_k) + \tfrac{m_i}{2}\|w\|^2
              + \langle \mathrm{lin}_i + b_i,\, w\rangle

    Everything here is public: the rows come in when it is solved.

    Attributes
    ----------
    linear
        lin, a function of messages, shaped as ``site.shape``.
    perturbation
        m and the noise.
    """

    linear: Array
    perturbation: ObjectivePerturbation

    def announce(self, site: Site) -> tuple[Event, ...]:
        """What it costs; refuse messages that are too large to solve for, also with the noise.

        A solve that refuses because of its noise would cut the noise off, and the guarantee with
        it. Noise has no bound; it exceeds the size checked here with a probability of 1e-40.
        """
        noise = self.perturbation
        solved_to = SOLVED_TO * noise.tolerance
        check_reachable(site, self.linear, noise.convexity, solved_to)
        # The norm of the noise follows a gamma or a chi distribution; scipy.stats, which has both
        # by name, would double the time and memory it takes to start.
        if noise.kind == "exp-norm":
            radius = float(gammainccinv(site.features, _EXCESS))
        else:
            radius = float(np.sqrt(2 * gammainccinv(site.features / 2, _EXCESS)))
        largest = noise.scale * radius
        size = np.linalg.norm(self.linear, axis=-1, keepdims=True) + site.per_node(largest)
        check_reachable(site, size, noise.convexity, solved_to)
        return noise.events()

    def release(self, workspace: Workspace, site: Site, noise: NoiseSource, t: int) -> Released:
        """Draw the noise of round ``t``, solve and send."""
        solved_to = SOLVED_TO * self.perturbation.tolerance

        def solve(drawn: Array) -> Solution:
            return workspace.argmin(self.linear + drawn, self.perturbation.convexity, solved_to)

        return release_objective(solve, self.perturbation, site.shape, site.index, noise, t)
