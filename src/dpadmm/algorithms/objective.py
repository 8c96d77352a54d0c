r"""Objective perturbation for several algorithms, calibrated over all releases of a run.

The release of a round is :math:`\arg\min F_i(w) + \langle b, w\rangle` with fresh noise b. A solver
finds it, and AMP releases it. Every release gets the same share of the budget, or noise in a given
proportion. AMP gets a small part of the budget, and its noise is negligible.

**DVP's and M-ADMM's iteration**: ADMM on a graph, the local objective perturbed in every round.

.. math::
    x_i &= \arg\min_w \tfrac{c_i}{n_i}\textstyle\sum_k l(w\cdot u_k)
           + \tfrac{m_{i,t}}{2}\|w\|^2
           + \langle \alpha_i + b_{i,t} - \eta_{i,t}(V_i y_i + \textstyle\sum_j y_j),\, w\rangle,
           \quad m_{i,t} = \tfrac{\lambda}{N} + 2\eta_{i,t} V_i + \Phi_{i,t} \\
    y_i &\leftarrow x_i + N(0, s_{i,t}^2 I) \quad\text{(sent)}\\
    \alpha_i &\leftarrow \alpha_i + \theta_{i,t}\,(V_i y_i - \textstyle\sum_j y_j)

with fresh noise b in every round. The theorems hold for the exact minimiser. The noise on the
message pays for the solver's residual (AMP); it is about a hundredth of the effect of b on the
minimiser. The algorithms differ in the amount of noise, the penalties and the dual step theta.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, ClassVar, Final, Literal

import numpy as np

from dpadmm.algorithms.base import (
    Algorithm,
    Budget,
    GraphState,
    ObjectiveRelease,
    graph_absorb,
    graph_init,
    graph_linear,
)
from dpadmm.errors import ParameterError
from dpadmm.plain import Array
from dpadmm.privacy.accountant import epsilon_spent
from dpadmm.privacy.calibration import (
    exponential_rate,
    objective_sigma,
    pure_level,
    pure_noise,
)
from dpadmm.privacy.events import Event, InexactSolve
from dpadmm.privacy.figures import AtMost, Given
from dpadmm.privacy.gaussian import gaussian_mu
from dpadmm.privacy.mechanisms import SOLVED_TO, ObjectivePerturbation, Released
from dpadmm.privacy.noise import SAMPLER_ALLOWANCE, NoiseSource
from dpadmm.privacy.sensitivity import gradient_sensitivity, jacobian_epsilon, jacobian_ratio
from dpadmm.problem.site import Site
from dpadmm.solvers.workspace import Workspace, reachable_tolerance

# The part of the budget's mu that AMP may use over a whole run.
_INEXACT_SHARE: Final = 0.02
# The residual of a solve, relative to what one row changes in the gradient. With the share above,
# AMP's noise is 1% of the effect of the gradient noise on the minimiser.
_RESIDUAL: Final = 1e-4
# kappa over mu of a release, for an automatic penalty. The Jacobians then use about twice its
# square, a fifth, of the budget's mu^2.
_JACOBIAN_SHARE: Final = 0.3


def plan_objective(
    site: Site,
    budget: Budget,
    kind: Literal["exp-norm", "gaussian"],
    convexity: Array,
    *,
    tolerance: float | None = None,
    scale: Array | None = None,
    proportions: Array | None = None,
) -> tuple[ObjectivePerturbation, ...]:
    """Calibrate one perturbation per release so that all of them together fit the budget.

    Parameters
    ----------
    site, budget
        Public facts, and what each party may spend.
    kind
        The gradient noise.
    convexity
        m of each release and party, ``(releases, nodes)``.
    tolerance
        The residual of a solve; None chooses it from public facts.
    scale
        The gradient noise, ``(releases, nodes)``; None calibrates it to the budget.
    proportions
        The relative gradient noise of a party's releases, ``(releases, nodes)``; None gives every
        release the same cost.
    """
    releases, outputs = len(convexity), site.outputs
    sensitivity, kappa = gradient_reach(site), site_kappa(site, convexity)
    residual = np.full_like(sensitivity, tolerance or 0.0)
    if tolerance is None:
        solved_to = SOLVED_TO * _RESIDUAL * sensitivity
        residual = reachable_tolerance(site, convexity.min(axis=0), solved_to) / SOLVED_TO
    inexact_mu = _inexact_mu(budget, releases * outputs)
    output_sigma = 2 * residual / (convexity * inexact_mu)
    if scale is None:
        scale = _gradient_noise(site, budget, kind, sensitivity, kappa, inexact_mu, proportions)
    return tuple(
        ObjectivePerturbation(
            kind=kind,
            sensitivity=sensitivity,
            kappa=kappa[release],
            scale=scale[release],
            tolerance=residual,
            convexity=convexity[release],
            output_sigma=output_sigma[release],
            outputs=outputs,
        )
        for release in range(releases)
    )


def gradient_reach(site: Site) -> Array:
    """Bound how far one row moves each party's gradient, with room for the sampler."""
    slope = site.loss.slope_bound
    return (1 + SAMPLER_ALLOWANCE) * gradient_sensitivity(
        site.rows, weight=site.weight, slope=slope
    )


def site_kappa(site: Site, convexity: Array) -> Array:
    """Kappa = c c_1 / (n m) of each party, for each m."""
    curvature = site.loss.curvature_bound
    return jacobian_ratio(site.rows, convexity, weight=site.weight, curvature=curvature)


def _gradient_noise(
    site: Site,
    budget: Budget,
    kind: str,
    sensitivity: Array,
    kappa: Array,
    inexact_mu: Array,
    proportions: Array | None,
) -> Array:
    """The scale of the gradient noise of every release and party."""
    count = len(kappa) * site.outputs
    if kind == "gaussian":
        sigma = objective_sigma(
            budget.epsilon,
            budget.ideal_delta,
            sensitivity,
            np.repeat(kappa.T, site.outputs, axis=1),
            np.ones(count),
            inexact_mu=inexact_mu,
            rows_per_person=budget.rows_per_person,
        )
        if proportions is None:
            return np.broadcast_to(sigma, kappa.shape)
        # Only the sum over releases of 1 / sigma^2 counts. A party alone adds it up in the same
        # order.
        inverse = np.array([np.mean(column**-2.0) for column in proportions.T.copy()])
        return sigma * proportions * np.sqrt(inverse)
    if proportions is not None:
        return proportions * _noise_in_proportion(
            budget, site.outputs, sensitivity / proportions, jacobian_epsilon(kappa), inexact_mu
        )
    level = release_level(site, budget, len(kappa))
    rates = [
        exponential_rate(level, site.rows, ratio, weight=site.weight, slope=site.loss.slope_bound)
        for ratio in kappa
    ]
    return (1 + SAMPLER_ALLOWANCE) / np.stack(rates)


def _noise_in_proportion(
    budget: Budget, outputs: int, shares: Array, jacobians: Array, inexact_mu: Array
) -> Array:
    """The factor of each party's proportions, for noise of density exp(-||b|| / scale)."""

    @cache
    def search(epsilon: float, delta: float, mu: float, shares: bytes, jacobians: bytes) -> float:
        each, fixed = (np.tile(np.frombuffer(part), outputs) for part in (shares, jacobians))
        return pure_noise(
            epsilon,
            delta,
            each,
            fixed,
            rows_per_person=budget.rows_per_person,
            extra=[(InexactSolve(mu, 2.0, 1.0), each.size)],
        )

    # Parties with the same numbers share the search.
    limits = np.stack([budget.epsilon, budget.ideal_delta, inexact_mu], axis=1).tolist()
    return np.array(
        [
            search(*limit, share.tobytes(), jacobian.tobytes())
            for limit, share, jacobian in zip(limits, shares.T, jacobians.T, strict=True)
        ]
    )


def release_level(site: Site, budget: Budget, releases: int) -> Array:
    """The epsilon of each output and release, per party, that uses up the whole budget.

    It is for noise that is not Gaussian, and it leaves room for the cost of AMP.
    """
    count = releases * site.outputs
    shares = zip(budget.epsilon, budget.ideal_delta, _inexact_mu(budget, count), strict=True)
    return np.array(
        [
            _level(float(epsilon), float(delta), float(mu), count, budget.rows_per_person)
            for epsilon, delta, mu in shares
        ]
    )


def gaussian_room(budget: Budget, count: int) -> Array:
    r"""The kappa of ``count`` Gaussian releases that leaves most of a budget to the noise.

    .. math:: \kappa = \mu\min\Bigl(\frac{0.3}{\sqrt{\mathrm{count}}},
                       \frac{1}{\sqrt{2\ln(1/\delta)}}\Bigr)

    for a budget of :math:`\mu`-GDP. By Theorem OP the Jacobians cost about
    :math:`a\,\mathrm{count}\,\kappa^2` of Renyi divergence, beside the :math:`a\mu^2/2` that there
    are, at orders a below :math:`1 + 1/\kappa`, among them the
    :math:`1 + \sqrt{2\ln(1/\delta)}/\mu` at which Gaussian releases convert best.
    """
    mu = gaussian_mu(budget.epsilon, budget.ideal_delta) / budget.rows_per_person
    share, order = _JACOBIAN_SHARE / np.sqrt(count), np.sqrt(-2 * np.log(budget.ideal_delta))
    return np.asarray(mu * np.minimum(share, 1 / order))


def least_penalty(site: Site, budget: Budget, kind: str, releases: int) -> float:
    r"""The smallest penalty with which the Jacobians of all releases leave room for noise.

    .. math:: \eta = \max_i \frac{1}{2V_i}
              \Bigl(\frac{c_i c_1}{n_i\kappa_i} - \frac{\lambda}{N}\Bigr)

    with the :math:`\kappa_i` of :func:`gaussian_room`. For noise of density exp(-rate ||b||) it is
    :math:`e^{\epsilon_i/2} - 1`, half of a release's :math:`\epsilon_i`.
    """
    if kind == "gaussian":
        ratio = gaussian_room(budget, releases * site.outputs)
    else:
        ratio = np.expm1(release_level(site, budget, releases) / 2)
    convexity = site.weight * site.loss.curvature_bound / (site.rows * ratio)
    missing = convexity - site.regularization / site.parties
    return float((missing / (2 * np.maximum(site.degree, 1))).max())


def _inexact_mu(budget: Budget, count: int) -> Array:
    """The mu that AMP costs in each of ``count`` solves."""
    total = gaussian_mu(budget.epsilon, budget.ideal_delta)
    return _INEXACT_SHARE * total / np.sqrt(count)


# Parties with the same budget share a level, which is searched once.
@lru_cache(maxsize=1024)
def _level(epsilon: float, delta: float, mu: float, count: int, rows_per_person: int) -> float:
    inexact = InexactSolve(mu, 2.0, 1.0)
    extra = [(inexact, count)]
    return float(pure_level(epsilon, delta, count, rows_per_person=rows_per_person, extra=extra))


def check_within_budget(
    site: Site,
    budget: Budget,
    perturbations: tuple[ObjectivePerturbation, ...],
    option: str,
) -> None:
    """Refuse noise that ``option`` sets if it costs more than the budget."""
    charged = zip(*(perturbation.events() for perturbation in perturbations), strict=True)
    spent = [
        epsilon_spent(events, float(delta), rows_per_person=budget.rows_per_person).epsilon
        for events, delta in zip(charged, budget.ideal_delta, strict=True)
    ]
    check_total(site, budget, np.array(spent), option)


def check_total(site: Site, budget: Budget, total: Array, option: str) -> None:
    """Refuse an ``option`` with which a party's total, proven or claimed, exceeds epsilon."""
    for name, spent, epsilon in zip(site.names, total, budget.epsilon, strict=True):
        if spent > epsilon * (1 + 1e-12):
            raise ParameterError(
                f"algorithm_options[{option!r}] must keep the total within epsilon = "
                f"{Given(epsilon)}; "
                f"party {name} would spend {AtMost(spent)} over the run. Lower it, or raise "
                "epsilon."
            )


def noise_arrays(perturbations: tuple[ObjectivePerturbation, ...]) -> dict[str, Any]:
    """The noise fields of :class:`PerturbedADMM`, from one perturbation per round."""
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
    """Refuse Gaussian noise if a paper, or an option in its terms, sets exp-norm noise."""
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
        The paper's claim, in a published calibration.
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
