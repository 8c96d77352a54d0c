r"""ADMM on a graph whose local objective is perturbed in every round: DVP's and M-ADMM's iteration.

.. math::
    x_i &= \arg\min_w \tfrac{c_i}{n_i}\textstyle\sum_k l(w\cdot u_k)
           + \tfrac{m_{i,t}}{2}\|w\|^2
           + \langle \alpha_i + b_{i,t} - \eta_{i,t}(V_i y_i + \textstyle\sum_j y_j),\, w\rangle,
           \quad m_{i,t} = \tfrac{\lambda}{N} + 2\eta_{i,t} V_i + \Phi_{i,t} \\
    y_i &\leftarrow x_i + N(0, s_{i,t}^2 I) \quad\text{(sent)}\\
    \alpha_i &\leftarrow \alpha_i + \theta_{i,t}\,(V_i y_i - \textstyle\sum_j y_j)

with fresh noise b in every round. The theorems speak of the exact minimiser; the noise on what is
sent pays for the solver's residual (AMP) and is about a hundredth of what b does to the minimiser.
The algorithms differ in how much noise they add, in the penalties and in the dual step theta.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from dpadmm.algorithms.base import (
    Algorithm,
    GraphState,
    graph_absorb,
    graph_init,
    graph_linear,
)
from dpadmm.algorithms.objective_release import ObjectiveRelease
from dpadmm.errors import ParameterError
from dpadmm.plain import Array
from dpadmm.privacy.events import Event
from dpadmm.privacy.mechanisms import ObjectivePerturbation, Released
from dpadmm.privacy.noise import NoiseSource
from dpadmm.problem.site import Site
from dpadmm.solvers.workspace import Workspace

__all__ = ["PerturbedADMM", "check_noise", "noise_arrays"]


def noise_arrays(perturbations: tuple[ObjectivePerturbation, ...]) -> dict[str, Any]:
    """The fields of :class:`PerturbedADMM` that describe noise, from one perturbation a round."""
    first = perturbations[0]
    per_round = {
        name: np.stack([getattr(perturbation, name) for perturbation in perturbations])
        for name in ("kappa", "scale", "convexity", "output_sigma")
    }
    shared = {"sensitivity": first.sensitivity, "tolerance": first.tolerance}
    return {"noise": first.kind, **shared, **per_round}


def check_noise(
    name: str, noise: str, option: str, given: object | None, *, published: bool
) -> None:
    """Refuse Gaussian noise where a paper, or an option in its terms, sets exp-norm noise."""
    if noise == "gaussian" and (published or given is not None):
        what = "a published calibration" if published else option
        raise ParameterError(f"noise must be 'exp-norm' for {what} of {name!r}; got 'gaussian'.")


@dataclass(frozen=True)
class PerturbedADMM(Algorithm):
    """ADMM that adds noise to the gradient of every local problem.

    Parameters
    ----------
    penalty, dual_step
        ``(rounds, nodes)``: eta and theta.
    noise
        Of density proportional to exp(-||b|| / scale), or N(0, scale^2 I).
    sensitivity, tolerance
        Per party: how far one row moves a gradient, and the residual of a local solve.
    kappa, scale, convexity, output_sigma
        ``(rounds, nodes)``: the Jacobian ratio, the size of the gradient noise, m, AMP's noise.
    start
        y^0, as :func:`~dpadmm.algorithms.base.graph_start` takes it.
    claimed
        What the paper claims, for a published calibration.
    """

    varies_penalty: ClassVar[bool] = True
    needs_neighbours: ClassVar[bool] = True

    penalty: Array
    dual_step: Array
    noise: Literal["exp-norm", "gaussian"]
    sensitivity: Array
    tolerance: Array
    kappa: Array
    scale: Array
    convexity: Array
    output_sigma: Array
    start: float | Array = 0.0
    claimed: str | None = None

    def init(self, site: Site) -> GraphState:
        """Start from the public y^0."""
        return graph_init(self.start, site)

    def objective(self, state: GraphState, site: Site, t: int) -> ObjectiveRelease:
        """The local problem of round ``t`` and its noise."""
        perturbation = ObjectivePerturbation(
            kind=self.noise,
            sensitivity=self.sensitivity,
            kappa=self.kappa[t],
            scale=self.scale[t],
            tolerance=self.tolerance,
            convexity=self.convexity[t],
            output_sigma=self.output_sigma[t],
            outputs=site.outputs,
        )
        penalty = site.per_node(self.penalty[t])
        return ObjectiveRelease(graph_linear(state, site, penalty), perturbation)

    def announce(self, state: GraphState, site: Site, t: int) -> tuple[Event, ...]:
        """Charge a perturbed objective; refuse messages too large to solve for with its noise."""
        return self.objective(state, site, t).announce(site)

    def local_step(
        self, state: GraphState, workspace: Workspace, site: Site, noise: NoiseSource, t: int
    ) -> Released:
        """Solve the local problem under noise and send its solution."""
        return self.objective(state, site, t).release(workspace, site, noise, t)

    def absorb(
        self, state: GraphState, message: Array, inbox: Array, site: Site, t: int
    ) -> GraphState:
        """Update the dual variable from the messages, with the step of this round."""
        return graph_absorb(state, message, inbox, site, site.per_node(self.dual_step[t]))

    def claim(self, site: Site) -> str | None:
        """What the paper claims for this run, in a published calibration."""
        return self.claimed
