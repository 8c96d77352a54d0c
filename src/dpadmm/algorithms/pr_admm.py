r"""PR-ADMM: output perturbation with Gaussian noise whose variance follows a schedule.

J. Ding, X. Zhang, M. Chen, K. Xue, C. Zhang, M. Pan, "Differentially private robust ADMM for
distributed machine learning", IEEE Big Data 2019; Algorithm 1, eqs. 10-15.

.. math::
    x_i &= \arg\min_w \tfrac{c_i}{n_i}\textstyle\sum_k l(w\cdot u_k)
           + \tfrac{m_i}{2}\|w\|^2
           + \langle \alpha_i - \eta(V_i y_i + \textstyle\sum_j y_j),\, w\rangle,
           \quad m_i = \tfrac{\lambda}{N} + 2\eta V_i \\
    y_i &\leftarrow x_i + N(0, s_{i,t}^2 I) \quad\text{(sent)}\\
    \alpha_i &\leftarrow \alpha_i + \eta\,(V_i y_i - \textstyle\sum_j y_j)

Replacing a row moves the minimiser, found to a residual tol, by at most
:math:`\Delta_i = 2Lc_i/(n_i m_i) + 2\,\mathrm{tol}/m_i`. With variance ratios
:math:`g_t = s_t^2/s_1^2` and :math:`\mu^*` the GDP parameter of (epsilon, delta),

.. math:: s_{i,1} = \Delta_i \sqrt{\textstyle\sum_t 1/g_t}\;/\;\mu^*_i .
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, Self, final

import numpy as np
from pydantic import Field

from dpadmm.algorithms.base import (
    Algorithm,
    GraphState,
    Options,
    Settings,
    graph_absorb,
    graph_convexity,
    graph_linear,
)
from dpadmm.arrays import Array, Site
from dpadmm.privacy.events import Event
from dpadmm.privacy.gaussian import gaussian_mu
from dpadmm.privacy.mechanisms import Released, gaussian_events, release_gaussian
from dpadmm.privacy.noise import NoiseSource
from dpadmm.schedules import constant, inverse_variance_sum
from dpadmm.solvers.newton import Workspace, check_reachable

__all__ = ["PRADMM", "PRADMMOptions"]


class PRADMMOptions(Options):
    """Options of ``pr-admm``."""

    schedule: Literal["constant"] = Field(
        "constant", description="how the noise variance changes over the rounds"
    )


@final
@dataclass(frozen=True)
class PRADMM(Algorithm):
    """ADMM whose messages carry Gaussian noise.

    Parameters
    ----------
    penalty
        eta, common to all parties.
    tolerance
        Largest gradient norm of a local solve, per party; part of the sensitivity.
    sensitivity
        Delta_i of a message, all outputs together.
    sigma
        ``(rounds, nodes)``, the standard deviation of the noise.
    """

    name: ClassVar[str] = "pr-admm"
    paper: ClassVar[str] = "Ding, Zhang, Chen, Xue, Zhang, Pan, IEEE Big Data 2019"
    private: ClassVar[bool] = True
    options: ClassVar[type[Options]] = PRADMMOptions

    penalty: float
    tolerance: Array
    sensitivity: Array
    sigma: Array

    @classmethod
    def configure(cls, site: Site, settings: Settings) -> Self:
        """Calibrate each party's noise to its own budget, rows and degree."""
        cls.parse_options(settings.options)
        budget = settings.require_budget(cls.name)
        convexity = graph_convexity(site, settings.penalty)
        tolerance = settings.private_tolerance(site)
        reach = site.loss.slope_bound * site.weight / site.rows + tolerance
        # One-vs-rest columns are sent together: their distances add up as squares.
        sensitivity = np.sqrt(site.outputs) * 2 * reach / convexity
        ratios = constant(settings.rounds)
        mu = gaussian_mu(budget.epsilon, budget.delta) / budget.rows_per_person
        first = sensitivity * np.sqrt(inverse_variance_sum(ratios)) / mu
        return cls(settings.penalty, tolerance, sensitivity, np.sqrt(ratios)[:, None] * first)

    def init(self, site: Site) -> GraphState:
        """Start from zero everywhere."""
        zero = np.zeros(site.shape)
        return GraphState(zero, zero, zero)

    def announce(self, state: GraphState, site: Site, t: int) -> tuple[Event, ...]:
        """Charge a Gaussian release; refuse messages too large to solve for."""
        linear = graph_linear(state, site, self.penalty)
        check_reachable(site, linear, graph_convexity(site, self.penalty), self.tolerance)
        return gaussian_events(self.sensitivity, self.sigma[t])

    def local_step(
        self, state: GraphState, workspace: Workspace, site: Site, noise: NoiseSource, t: int
    ) -> Released:
        """Solve the local problem and send its solution with noise."""
        linear = graph_linear(state, site, self.penalty)
        point, residual = workspace.argmin(
            linear, graph_convexity(site, self.penalty), self.tolerance
        )
        return release_gaussian(
            point,
            residual,
            tolerance=self.tolerance,
            sensitivity=self.sensitivity,
            sigma=self.sigma[t],
            parties=site.index,
            noise=noise,
            t=t,
        )

    def absorb(
        self, state: GraphState, message: Array, inbox: Array, site: Site, t: int
    ) -> GraphState:
        """Update the dual variable from the messages."""
        return graph_absorb(state, message, inbox, site, self.penalty)
