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

The published calibration takes the sensitivity :math:`c_i L/(\eta V_i)` of Lemma 5, the totals of
Theorem 3 (with its "-1") and Theorem 4, and Lemma 3's
:math:`\epsilon = \rho + 2\sqrt{\rho\ln(1/\delta)}`:

.. math:: s_{i,1}^2 = \frac{1}{2\rho}\Bigl(\frac{c_i L}{\eta V_i}\Bigr)^2 \times
          \begin{cases} \sum_t 1/g_t - 1 & \text{periodic}\\
          R_T K(K^2-1)/3 + 1 & \text{iteration}\\ K & \text{constant} \end{cases}

The paper has no constant schedule; Lemma 2 gives its total.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, Self, final

import numpy as np
from pydantic import Field

from dpadmm.algorithms.base import (
    Algorithm,
    Budget,
    GraphOptions,
    GraphState,
    Options,
    Settings,
    graph_absorb,
    graph_convexity,
    graph_linear,
    graph_start,
    message_sensitivity,
)
from dpadmm.errors import ParameterError
from dpadmm.plain import Array
from dpadmm.privacy.events import Event
from dpadmm.privacy.figures import AtMost, Given
from dpadmm.privacy.mechanisms import (
    Released,
    gaussian_events,
    release_adaptive_gaussian,
    release_gaussian,
)
from dpadmm.privacy.noise import SAMPLER_ALLOWANCE, NoiseSource
from dpadmm.privacy.sensitivity import public_norm_factor
from dpadmm.problem.site import Site
from dpadmm.solvers.workspace import Workspace, check_reachable


def _check_rounds(rounds: int) -> None:
    if isinstance(rounds, bool) or not isinstance(rounds, int | np.integer) or rounds < 1:
        raise ValueError(f"rounds must be a positive integer; got {rounds!r}")


def _check_decay(decay: float, upper: float = 1.0) -> None:
    if not 0 < decay <= upper:
        raise ValueError(f"decay must be in (0, {upper:g}]; got {decay!r}")


def constant(rounds: int) -> Array:
    """g_t = 1."""
    _check_rounds(rounds)
    return np.ones(rounds)


def periodic(rounds: int, decay: float, period: int = 1) -> Array:
    """g_{k+1} = decay^floor(k / period) for k = 0, 1, ...; with a period of 1 PDML's variances."""
    _check_rounds(rounds)
    _check_decay(decay)
    if period < 1:
        raise ValueError(f"period must be a positive integer; got {period!r}")
    ratios: Array = np.power(decay, np.floor(np.arange(rounds) / period))
    if ratios[-1] < np.finfo(np.float64).tiny:
        raise ValueError(f"decay must keep the noise above zero for {rounds} rounds; got {decay!r}")
    return ratios


def iteration(rounds: int, decay: float) -> Array:
    """g_{k+1} = 1 / (decay k (k + 1)) for k >= 1 and g_1 = 1.

    The variance rises after the first round when decay < 1/2.
    """
    _check_rounds(rounds)
    _check_decay(decay, upper=np.inf)
    steps = np.arange(1, rounds)
    return np.concatenate([[1.0], 1.0 / (decay * steps * (steps + 1))])


def inverse_variance_sum(ratios: Array) -> float:
    """sum_t 1 / g_t: the total squared mu in units of the first round."""
    return float(np.sum(1.0 / np.asarray(ratios, dtype=np.float64)))


def largest_share(ratios: Array) -> float:
    """max_t (1/g_t) / sum_t 1/g_t: the part of the budget that a single round takes."""
    inverse = 1.0 / np.asarray(ratios, dtype=np.float64)
    return float(inverse.max() / inverse.sum())


class PRADMMOptions(GraphOptions):
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
        description="U: if the summed distance to a neighbour exceeds it, the party's own message "
        "replaces the neighbour's; by default there is no threshold",
    )
    public_norm: bool = Field(
        False, description="use the public bound on the minimiser's norm for less noise (logistic)"
    )


class PRState(NamedTuple):
    """The state of PR-ADMM: :class:`GraphState`, and distances for the threshold.

    Attributes
    ----------
    message, heard, dual
        As in :class:`GraphState`; distant neighbours are replaced in ``heard``.
    deviation
        ``(nodes, sources, runs, outputs, 1)``: summed distances; no sources if no threshold is set.
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
        Scale the noise by the public bound on the minimiser's norm, at the same mu per round.
    start
        y^0, as :func:`~dpadmm.algorithms.base.graph_start` takes it.
    claimed
        The paper's claim, in a published calibration.
    """

    name: ClassVar[str] = "pr-admm"
    paper: ClassVar[str] = "Ding, Zhang, Chen, Xue, Zhang, Pan, IEEE Big Data 2019"
    private: ClassVar[bool] = True
    needs_neighbours: ClassVar[bool] = True
    logistic_options: ClassVar[tuple[str, ...]] = ("public_norm",)
    options: ClassVar[type[Options]] = PRADMMOptions

    penalty: float
    tolerance: Array
    sensitivity: Array
    sigma: Array
    threshold: float = np.inf
    public_norm: bool = False
    start: float | Array = 0.0
    claimed: str | None = None

    @classmethod
    def configure(cls, site: Site, settings: Settings) -> Self:
        """Calibrate each party's noise to its own budget, rows and degree."""
        options, budget = cls.options_and_budget(settings)
        if options.public_norm and site.loss.name != "logistic":
            raise ParameterError(
                f"public_norm needs loss 'logistic', for which its bound is proven; "
                f"got {site.loss.name!r}."
            )
        published = settings.calibration == "published"
        if options.public_norm and published:
            raise ParameterError("public_norm must be off for a published calibration; got True.")
        convexity = graph_convexity(site, settings.penalty)
        tolerance = settings.private_tolerance(site, convexity)
        sensitivity = message_sensitivity(site, convexity, tolerance)
        ratios = {
            "constant": lambda: constant(settings.rounds),
            "periodic": lambda: periodic(settings.rounds, options.decay, options.period),
            "iteration": lambda: iteration(settings.rounds, options.decay),
        }[options.schedule]()
        claimed = None
        if published:
            first, claimed = _printed_noise(site, budget, settings.penalty, ratios, options)
        else:
            first = budget.sigma(sensitivity, ratios)
        return cls(
            settings.penalty,
            tolerance,
            sensitivity,
            sigma=np.sqrt(ratios)[:, None] * first,
            threshold=np.inf if options.threshold is None else options.threshold,
            public_norm=options.public_norm,
            start=options.starts(site),
            claimed=claimed,
        )

    def init(self, site: Site) -> PRState:
        """Start from the public y^0 and zero duals; the threshold counts the first distances."""
        message, inbox = graph_start(self.start, site)
        sources = len(inbox) if np.isfinite(self.threshold) else 0
        nothing = np.zeros((len(site.index), sources, *site.shape[1:3], 1))
        heard, deviation = self._near(message, inbox, nothing, site)
        return PRState(message, heard, np.zeros(site.shape), deviation)

    def _near(
        self, message: Array, inbox: Array, deviation: Array, site: Site
    ) -> tuple[Array, Array]:
        """``sum_j yhat_j`` with distant neighbours replaced, and the distances summed so far."""
        heard = site.neighbour_sum(inbox)
        if not np.isfinite(self.threshold):
            return heard, deviation
        apart = message[:, None] - inbox[None]
        deviation = deviation + np.linalg.norm(apart, axis=-1, keepdims=True)
        linked = site.adjacency.toarray()[..., None, None, None]
        return heard + ((deviation > self.threshold) * linked * apart).sum(axis=1), deviation

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
        """Update the dual from the messages; replace distant neighbours in the primal step only."""
        heard, deviation = self._near(message, inbox, state.deviation, site)
        updated = graph_absorb(GraphState(*state[:3]), message, inbox, site, self.penalty)
        return PRState(message, heard, updated.dual, deviation)

    def claim(self, site: Site) -> str | None:
        """The paper's claim for this run, in a published calibration."""
        return self.claimed


def printed_sensitivity(site: Site, penalty: float) -> Array:
    """Lemma 5: ``c L / (eta V_i)``, without the number of rows."""
    return site.weight * site.loss.slope_bound / (penalty * site.degree)


def printed_total(schedule: str, ratios: Array) -> float:
    """The paper's sum of 1/g_t; Theorem 3 subtracts 1, Theorem 4 and Lemma 2 do not."""
    return inverse_variance_sum(ratios) - (schedule == "periodic")


def _printed_noise(
    site: Site, budget: Budget, penalty: float, ratios: Array, options: PRADMMOptions
) -> tuple[Array, str]:
    """The first round's sigma by Lemmas 3 and 5 and Theorems 3 and 4, and their claim."""
    total = printed_total(options.schedule, ratios)
    if not total > 0:
        raise ParameterError(
            "rounds must be at least 2 for the periodic schedule in a published calibration: "
            "Theorem 3 says that one round loses nothing, whatever its noise; got 1."
        )
    reach = printed_sensitivity(site, penalty) * math.sqrt(site.outputs) * budget.rows_per_person
    # epsilon = rho + 2 sqrt(rho ln(1/delta)), solved for rho.
    log = -np.log(budget.delta)
    rho = np.square(budget.epsilon / (np.sqrt(log + budget.epsilon) + np.sqrt(log)))
    theorem = {"periodic": "Theorem 3", "iteration": "Theorem 4", "constant": "Lemma 2"}
    claimed = (
        f"rho-zCDP with rho = {AtMost(rho.max())} over all {len(ratios)} iterations, hence "
        f"epsilon = {Given(budget.epsilon.max())} at delta = {Given(budget.delta.max())} "
        f"({theorem[options.schedule]}, Lemmas 3 and 5)"
    )
    return reach * np.sqrt(total / (2 * rho)), claimed
