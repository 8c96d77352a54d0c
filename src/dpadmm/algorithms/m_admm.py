r"""M-ADMM: noise in every round, and a penalty that grows with the rounds.

X. Zhang, M. M. Khalili, M. Liu, "Improving the privacy and accuracy of ADMM-based distributed
algorithms", ICML 2018; in the form of X. Zhang, M. M. Khalili, M. Liu, "Recycled ADMM",
2020, eqs. 14-15 and (32), without recycling.

.. math::
    b_{i,t} \sim \exp(-a_i\|b\|),\qquad \eta_t = \eta\, g^{\,t},\quad t = 0, 1, \dots

The linear term, the strong convexity and the dual step of round t all use :math:`\eta_t`, which is
the same at every party: then the duals add up to zero and a fixed point is the pooled optimum. A
round is DP with

.. math:: \epsilon_t = \frac{2 L c_i}{n_i} a_i + \ln\Bigl(1 + \frac{c_i c_1}{n_i m_{i,t}}\Bigr),
          \qquad m_{i,t} = \tfrac{\lambda}{N} + 2\eta_t V_i .

The published calibration takes a from eq. (32) over all T rounds,

.. math:: \beta = \sum_t \frac{2c_i}{n_i}\Bigl(\frac{1.4 c_1}{m_{i,t}} + a_i\Bigr),\qquad
          2c_1 < \frac{n_i}{c_i} m_{i,0} .
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, Literal, Self, final

import numpy as np
from pydantic import Field

from dpadmm.algorithms.base import Budget, Options, Settings, graph_convexity
from dpadmm.algorithms.objective import check_total, check_within_budget, plan_objective
from dpadmm.algorithms.perturbed_admm import PerturbedADMM, check_noise, noise_arrays
from dpadmm.arrays import Array, Site
from dpadmm.errors import ParameterError
from dpadmm.privacy.calibration import InfeasibleBudgetError
from dpadmm.privacy.sensitivity import jacobian_ratio
from dpadmm.privacy.shown import AtMost, Given
from dpadmm.schedules import penalty_growth

__all__ = ["MADMM", "MADMMOptions", "printed_loss"]

# Of eq. (32): -ln(1 - x) < 1.4 x for 0 < x <= 1/2.
_PRINTED: Final = 1.4


class MADMMOptions(Options):
    """Options of ``m-admm``."""

    noise: Literal["exp-norm", "gaussian"] = Field(
        "exp-norm",
        description="density proportional to exp(-rate ||b||) as in the paper, or normal",
    )
    noise_rate: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="a: the rate of exp-norm noise at every party, instead of one calibrated to "
        "epsilon; the total that results must be within epsilon",
    )
    penalty_growth: float = Field(
        1.0, ge=1, allow_inf_nan=False, description="the penalty of a round over that of the last"
    )


def printed_loss(site: Site, convexity: Array, rate: Array | float) -> Array:
    """Eq. (32) of each party: ``sum_t (2 c / n) (1.4 c1 / m_t + a)``, for one row and one output.

    ``convexity`` is m of each round and party.
    """
    curvature = _PRINTED * site.loss.curvature_bound / convexity + site.loss.slope_bound * rate
    return (2 * site.weight / site.rows * curvature).sum(axis=0)


@final
@dataclass(frozen=True)
class MADMM(PerturbedADMM):
    """ADMM with a perturbed objective and a growing penalty; see :class:`PerturbedADMM`."""

    name: ClassVar[str] = "m-admm"
    paper: ClassVar[str] = "Zhang, Khalili, Liu, ICML 2018"
    private: ClassVar[bool] = True
    options: ClassVar[type[Options]] = MADMMOptions

    @classmethod
    def configure(cls, site: Site, settings: Settings) -> Self:
        """Fix the penalty of every round and the noise of every party."""
        options = cls.parse_options(settings.options)
        budget = settings.require_budget(cls.name)
        published, rate = settings.calibration == "published", options.noise_rate
        check_noise(cls.name, options.noise, "noise_rate", rate, published=published)
        penalties = penalty_growth(settings.penalty, options.penalty_growth, settings.rounds)
        convexity = np.stack([graph_convexity(site, penalty) for penalty in penalties])
        scale, claimed = None if rate is None else np.full_like(convexity, 1 / rate), None
        if published:
            _check_condition(site, convexity)
            rates = _printed_rate(site, budget, convexity) if rate is None else rate
            scale = np.broadcast_to(1 / rates, convexity.shape)
            loss = printed_loss(site, convexity, rates) * site.outputs * budget.rows_per_person
            claimed = _claim(loss, settings.rounds)
            check_total(site, budget, loss, "noise_rate")
        planned = plan_objective(
            site, budget, options.noise, convexity, tolerance=settings.tolerance, scale=scale
        )
        if rate is not None and not published:
            check_within_budget(site, budget, planned, "noise_rate")
        return cls(penalties, **noise_arrays(planned), claimed=claimed)


def _printed_rate(site: Site, budget: Budget, convexity: Array) -> Array:
    """The rate for which eq. (32), for all outputs and rows of a person, is epsilon."""
    target = budget.epsilon / (site.outputs * budget.rows_per_person)
    fixed, slope = printed_loss(site, convexity, 0.0), site.loss.slope_bound
    if (target <= fixed).any():
        party = int(np.argmin(target - fixed))
        least = float(fixed[party] * site.outputs * budget.rows_per_person)
        raise InfeasibleBudgetError(
            f"epsilon must exceed {AtMost(least)}, what the Jacobians of {len(convexity)} rounds "
            "cost "
            f"party {site.names[party]} by eq. (32); got {Given(budget.epsilon[party])}. Fewer "
            "rounds, a larger penalty or more rows would do.",
            least,
        )
    return (target - fixed) * site.rows / (2 * slope * site.weight * len(convexity))


def _check_condition(site: Site, convexity: Array) -> None:
    """``2 c1 < (n / c) m`` in the first round, under which eq. (32) was derived."""
    curvature = site.loss.curvature_bound
    kappa = jacobian_ratio(site.rows, convexity[0], weight=site.weight, curvature=curvature)
    if (kappa >= 0.5).any():
        party = int(np.argmax(kappa))
        raise ParameterError(
            f"2 c1 must be below (n / c) (lambda / N + 2 eta V) for eq. (32) to be claimed; party "
            f"{site.names[party]} has {2 * curvature:g} against {curvature / kappa[party]:.6g}. "
            "Use a larger penalty, or calibration='proven', which needs no condition."
        )


def _claim(loss: Array, rounds: int) -> str:
    """Eq. (32) for these numbers."""
    return (
        f"beta-differential privacy with beta = {AtMost(loss.max())} over all {rounds} iterations "
        "(eq. 32 of Recycled ADMM, every iteration counted), for an exact solver"
    )
