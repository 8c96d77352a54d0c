r"""How much noise the odd iterations of R-ADMM and MR-ADMM get, by our theorems and by the paper's.

The paper's Theorem V.1, for a party with B rows and a loss scaled by C:

.. math:: \beta = \sum_k \frac{2C}{B}\Bigl(\frac{1.4\,c_1}{\rho/N + 2\eta(2k-1)V}
          + \alpha(k)\Bigr)
          = \sum_k \frac{2C}{B}\alpha(k) + 2.8\,\kappa_k \tag{32}

A plan is what :class:`~dpadmm.algorithms.r_admm.RecycledADMM` takes: ``sensitivity``, ``scale``,
``kappa``, ``output_sigma`` and ``tolerance``, each ``(releases, nodes)``.
"""

from __future__ import annotations

from typing import Final, Literal

import numpy as np

from dpadmm.algorithms.base import Budget, Settings, message_sensitivity
from dpadmm.algorithms.objective import check_total, gradient_reach, plan_objective, site_kappa
from dpadmm.errors import ParameterError
from dpadmm.plain import Array
from dpadmm.privacy.figures import AtMost, Given
from dpadmm.problem.site import Site

__all__ = ["proven_noise", "published_loss", "published_noise"]

# Published calibration: the residual of a solve relative to what one row changes in the gradient,
# and the mu that AMP may use up over a whole run.
_PUBLISHED_RESIDUAL: Final = 1e-6
_PUBLISHED_INEXACT_MU: Final = 0.01
_ROUNDING: Final = 1e-12
# What eq. (32) bounds the Jacobian's part by, in units of kappa.
_PUBLISHED_JACOBIAN: Final = 2.8


def proven_noise(
    site: Site,
    settings: Settings,
    budget: Budget,
    noise: Literal["exp-norm", "gaussian", "output"],
    convexity: Array,
) -> dict[str, Array]:
    """Plan noise that fits the budget; every release gets the same share of it.

    Parameters
    ----------
    site, settings, budget
        Public facts, the residual of a solve, what each party may spend.
    noise
        In the gradient, of either kind, or on the output.
    convexity
        m of each release and party, ``(releases, nodes)``.
    """
    if noise != "output":
        plan = plan_objective(site, budget, noise, convexity, tolerance=settings.tolerance)
        names = ("sensitivity", "scale", "kappa", "output_sigma", "tolerance")
        return {name: np.stack([getattr(part, name) for part in plan]) for name in names}
    tolerance = settings.private_tolerance(site, convexity.min(axis=0))
    sensitivity = message_sensitivity(site, convexity, tolerance)
    sigma = budget.sigma(sensitivity, np.ones(len(convexity)))
    nothing = np.zeros_like(convexity)
    return {
        "sensitivity": sensitivity,
        "scale": sigma,
        "kappa": nothing,
        "output_sigma": nothing,
        "tolerance": np.broadcast_to(tolerance, convexity.shape).copy(),
    }


def published_loss(site: Site, rate: Array, kappa: Array) -> Array:
    """Return beta of eq. (32) for each party and one row; its K outputs cost K times one's."""
    loss = 2 * site.weight / site.rows * rate + _PUBLISHED_JACOBIAN * kappa
    return np.asarray(site.outputs * loss.sum(axis=0))


def published_noise(
    site: Site,
    settings: Settings,
    budget: Budget,
    noise: Literal["exp-norm", "gaussian", "output"],
    convexity: Array,
    *,
    noise_rate: Array | None,
) -> dict[str, Array]:
    """Plan noise by eq. (32) under its condition, with AMP's noise at the level of the residual.

    Parameters are those of :func:`proven_noise` and the rate of the noise, ``(releases, nodes)``,
    which otherwise follows from epsilon by eq. (32).
    """
    if noise != "exp-norm":
        raise ParameterError(f"noise must be 'exp-norm' in a published calibration; got {noise!r}.")
    curvature = site.loss.curvature_bound
    bound = site.rows / site.weight * convexity.min(axis=0)
    if not (2 * curvature < bound).all():
        party = int(np.argmin(bound))
        raise ParameterError(
            "the paper's condition 2 c1 < (B / C)(rho / N + 2 eta V) must hold at every party; at "
            f"{site.names[party]} it reads {2 * curvature:g} < {bound[party]:.6g}. Raise the "
            "penalty, or use calibration 'proven', which needs no such condition."
        )
    kappa = site_kappa(site, convexity)
    each = np.ones_like(kappa)
    if noise_rate is None:
        rate = _published_rate(site, budget, kappa)
    else:
        rate = noise_rate
        claimed = published_loss(site, each * rate, kappa) * budget.rows_per_person
        check_total(site, budget, claimed, "noise_rate")
    sensitivity = gradient_reach(site)
    tolerance = (
        _PUBLISHED_RESIDUAL * sensitivity
        if settings.tolerance is None
        else np.full_like(sensitivity, settings.tolerance)
    )
    inexact_mu = _PUBLISHED_INEXACT_MU / np.sqrt(len(convexity) * site.outputs)
    return {
        "sensitivity": each * sensitivity,
        "scale": each / rate,
        "kappa": kappa,
        "output_sigma": 2 * tolerance / (convexity * inexact_mu),
        "tolerance": each * tolerance,
    }


def _published_rate(site: Site, budget: Budget, kappa: Array) -> Array:
    """Alpha for which eq. (32) comes to each party's epsilon, the same in every release."""
    nothing, each = np.zeros_like(kappa), np.ones_like(kappa)
    jacobian = published_loss(site, nothing, kappa)
    # The paper counts one row; each further one costs as much again. Rounding must not carry the
    # claim beyond epsilon.
    share = budget.epsilon * (1 - _ROUNDING) / budget.rows_per_person
    rate = (share - jacobian) / published_loss(site, each, nothing)
    if not (rate > 0).all():
        party = int(np.argmin(rate))
        least = AtMost(jacobian[party] * budget.rows_per_person)
        raise ParameterError(
            f"epsilon of {site.names[party]} must exceed {least}, what eq. (32) "
            f"counts for the Jacobians alone; got {Given(budget.epsilon[party])}."
        )
    return np.asarray(rate)
