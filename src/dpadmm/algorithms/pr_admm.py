r"""PR-ADMM: output perturbation with Gaussian noise whose variance follows a schedule.

J. Ding, X. Zhang, M. Chen, K. Xue, C. Zhang, M. Pan, "Differentially private robust ADMM for
distributed machine learning", IEEE Big Data 2019; Algorithm 1, eqs. 10-15.

.. math::
    x_i &= \arg\min_w \tfrac{c_i}{n_i}\textstyle\sum_k l(w\cdot u_k)
           + \tfrac{m_i}{2}\|w\|^2
           + \langle \alpha_i - \eta(V_i y_i + \textstyle\sum_j \hat y_j),\, w\rangle,
           \quad m_i = \tfrac{\lambda}{N} + 2\eta V_i \\
    y_i &\leftarrow x_i + N(0, s_{i,t}^2 I) \quad\text{(sent)}\\
    \alpha_i &\leftarrow \alpha_i + \eta\,(V_i y_i - \textstyle\sum_j y_j)

with :math:`\hat y_j = y_i` where :math:`\sum_t \|y_i^t - y_j^t\|` exceeds the threshold U, else
:math:`y_j`. Replacing a row moves the minimiser, found to a residual tol, by at most
:math:`\Delta_i = 2Lc_i/(n_i m_i) + 2\,\mathrm{tol}/m_i`. With variance ratios
:math:`g_t = s_t^2/s_1^2` and :math:`\mu^*` the GDP parameter of (epsilon, delta),

.. math:: s_{i,1} = \Delta_i \sqrt{\textstyle\sum_t 1/g_t}\;/\;\mu^*_i .
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, Self, final

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
from dpadmm.errors import ParameterError
from dpadmm.privacy.calibration import gaussian_sigma
from dpadmm.privacy.events import Event
from dpadmm.privacy.mechanisms import (
    Released,
    gaussian_events,
    release_adaptive_gaussian,
    release_gaussian,
)
from dpadmm.privacy.noise import SAMPLER_ALLOWANCE, NoiseSource
from dpadmm.privacy.sensitivity import argmin_sensitivity, public_norm_factor
from dpadmm.schedules import constant, iteration, periodic
from dpadmm.solvers.newton import Workspace, check_reachable

__all__ = ["PRADMM", "PRADMMOptions", "PRState"]


class PRADMMOptions(Options):
    """Options of ``pr-admm``."""

    schedule: Literal["constant", "periodic", "iteration"] = Field(
        "constant", description="how the noise variance changes over the rounds"
    )
    period: int = Field(1, ge=1, description="rounds between two steps of the periodic schedule")
    decay: float = Field(
        0.925, gt=0, description="R_P of the periodic (at most 1) or R_T of the iteration schedule"
    )
    threshold: float | None = Field(
        None,
        gt=0,
        description="U: a neighbour further away than this, summed over the rounds, is "
        "replaced by one's own message; none by default",
    )
    public_norm: bool = Field(
        False, description="use the public bound on the minimiser's norm for less noise (logistic)"
    )


class PRState(NamedTuple):
    """State of PR-ADMM: :class:`GraphState` and what the threshold needs.

    Attributes
    ----------
    message, heard, dual
        As in :class:`GraphState`, ``heard`` with far neighbours replaced.
    deviation
        ``(nodes, sources, runs, outputs, features)``: summed distances, the same number for all
        features; no sources without a threshold.
    """

    message: Array
    heard: Array
    dual: Array
    deviation: Array


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
    threshold
        U; infinite switches it off.
    public_norm
        Scale the noise by the public bound on the minimiser's norm, mu of a round staying.
    """

    name: ClassVar[str] = "pr-admm"
    paper: ClassVar[str] = "Ding, Zhang, Chen, Xue, Zhang, Pan, IEEE Big Data 2019"
    private: ClassVar[bool] = True
    options: ClassVar[type[Options]] = PRADMMOptions

    penalty: float
    tolerance: Array
    sensitivity: Array
    sigma: Array
    threshold: float = np.inf
    public_norm: bool = False

    @classmethod
    def configure(cls, site: Site, settings: Settings) -> Self:
        """Calibrate each party's noise to its own budget, rows and degree."""
        options = cls.parse_options(settings.options)
        budget = settings.require_budget(cls.name)
        if options.public_norm and site.loss.name != "logistic":
            raise ParameterError(
                f"public_norm needs loss 'logistic', for which its bound is proven; "
                f"got {site.loss.name!r}."
            )
        tolerance = settings.private_tolerance(site)
        reach = argmin_sensitivity(
            site.rows,
            graph_convexity(site, settings.penalty),
            weight=site.weight,
            slope=site.loss.slope_bound,
            tolerance=tolerance,
        )
        # One-vs-rest columns are sent together: their distances add up as squares.
        sensitivity = (1 + SAMPLER_ALLOWANCE) * np.sqrt(site.outputs) * reach
        ratios = {
            "constant": lambda: constant(settings.rounds),
            "periodic": lambda: periodic(settings.rounds, options.decay, options.period),
            "iteration": lambda: iteration(settings.rounds, options.decay),
        }[options.schedule]()
        first = gaussian_sigma(
            budget.epsilon,
            budget.ideal_delta,
            sensitivity,
            ratios,
            rows_per_person=budget.rows_per_person,
        )
        sigma = np.sqrt(ratios)[:, None] * first
        threshold = np.inf if options.threshold is None else options.threshold
        return cls(settings.penalty, tolerance, sensitivity, sigma, threshold, options.public_norm)

    def init(self, site: Site) -> PRState:
        """Start from zero everywhere."""
        zero = np.zeros(site.shape)
        sources = site.adjacency.shape[1] if np.isfinite(self.threshold) else 0
        return PRState(zero, zero, zero, np.zeros((len(site.index), sources, *site.shape[1:])))

    def _linear(self, state: PRState, site: Site) -> Array:
        return graph_linear(GraphState(*state[:3]), site, self.penalty)

    def announce(self, state: PRState, site: Site, t: int) -> tuple[Event, ...]:
        """Charge a Gaussian release; refuse messages too large to solve for."""
        convexity = graph_convexity(site, self.penalty)
        check_reachable(site, self._linear(state, site), convexity, self.tolerance)
        if self.public_norm:
            return gaussian_events(self.sensitivity / self.sigma[t], np.ones(len(site.index)))
        return gaussian_events(self.sensitivity, self.sigma[t])

    def local_step(
        self, state: PRState, workspace: Workspace, site: Site, noise: NoiseSource, t: int
    ) -> Released:
        """Solve the local problem and send its solution with noise."""
        linear, convexity = self._linear(state, site), graph_convexity(site, self.penalty)
        point, residual = workspace.argmin(linear, convexity, self.tolerance)
        if not self.public_norm:
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
        # The minimiser's norm is at most (|lin| + c L) / m, a public number.
        bowl, weight = convexity[:, None, None], site.weight[:, None, None]
        radius = (np.linalg.norm(linear, axis=-1) + weight * site.loss.slope_bound) / bowl
        slack = 2 * self.tolerance[:, None, None]
        moved = public_norm_factor(radius) * weight / site.rows[:, None, None] + slack
        return release_adaptive_gaussian(
            point,
            residual,
            tolerance=self.tolerance,
            reach=(1 + SAMPLER_ALLOWANCE) * moved / bowl,
            mu=self.sensitivity / self.sigma[t],
            parties=site.index,
            noise=noise,
            t=t,
        )

    def absorb(self, state: PRState, message: Array, inbox: Array, site: Site, t: int) -> PRState:
        """Update the dual from the messages; replace far neighbours in the primal step only."""
        heard, deviation = site.neighbour_sum(inbox), state.deviation
        updated = graph_absorb(GraphState(*state[:3]), message, inbox, site, self.penalty)
        if np.isfinite(self.threshold):
            apart = message[:, None] - inbox[None]
            deviation = deviation + np.linalg.norm(apart, axis=-1, keepdims=True)
            far = (deviation > self.threshold) * site.adjacency.toarray()[..., None, None, None]
            heard = heard + (far * apart).sum(axis=1)
        return PRState(message, heard, updated.dual, deviation)
