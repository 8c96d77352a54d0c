r"""M-ADMM: noise inside the penalty term, growing penalties, a separate dual step.

X. Zhang, M. M. Khalili, M. Liu, "Improving the privacy and accuracy of ADMM-based distributed
algorithms", ICML 2018: penalty perturbation.

.. math::
    x_i &= \arg\min_w f_i(w) + \langle\alpha_i, w\rangle
           + \eta_{i,t}\textstyle\sum_j \|w + e_{i,t} - \tfrac12(y_i + y_j)\|^2,\qquad
    e_{i,t} \sim \exp(-a_{i,t}\|e\|) \\
    y_i &\leftarrow x_i \quad\text{(sent)},\qquad
    \alpha_i \leftarrow \alpha_i + \theta\,(V_i y_i - \textstyle\sum_j y_j)

Each party has its own penalties, which grow, :math:`\eta_{i,t} = \eta_i g^t`. :math:`\theta` is
common and fixed, so :math:`\sum_i\alpha_i = 0` for any penalties, and a fixed point is the pooled
optimum. In the gradient the noise is :math:`b_{i,t} = 2\eta_{i,t}V_i e_{i,t}`, of rate
:math:`a_{i,t}/(2\eta_{i,t}V_i)`. It grows with the penalty, its effect on the minimiser stays about
e, and the round is DP with

.. math:: \epsilon_t = \frac{L c_i}{n_i}\frac{a_{i,t}}{\eta_{i,t}V_i}
          + \ln\Bigl(1 + \frac{c_i c_1}{n_i m_{i,t}}\Bigr),
          \qquad m_{i,t} = \tfrac{\lambda}{N} + 2\eta_{i,t}V_i .

A proven calibration takes the a (for Gaussian noise the standard deviation of e) with which all
rounds fit the budget. The published total, under the condition on its right, is

.. math:: \beta = \sum_t \frac{c_i(1.4 c_1 + a_{i,t})}{n_i\eta_{i,t}V_i},\qquad
          2c_1 < \frac{n_i}{c_i} m_{i,0} .
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Final, Literal, Self, final

import numpy as np
from pydantic import Field

from dpadmm.algorithms.base import (
    Budget,
    CourseOption,
    GraphOptions,
    Options,
    Settings,
    graph_convexity,
    grown,
    over_rounds,
)
from dpadmm.algorithms.objective import (
    PerturbedADMM,
    check_noise,
    check_total,
    check_within_budget,
    least_penalty,
    noise_arrays,
    plan_objective,
    site_kappa,
)
from dpadmm.errors import ParameterError
from dpadmm.plain import Array
from dpadmm.privacy.calibration import InfeasibleBudgetError
from dpadmm.privacy.figures import AtMost, Given
from dpadmm.problem.site import Site

# In the published total: -ln(1 - x) < 1.4 x for 0 < x <= 1/2.
_PRINTED: Final = 1.4


class MADMMOptions(GraphOptions):
    """Options of ``m-admm``."""

    noise: Literal["auto", "exp-norm", "gaussian"] = Field(
        "auto",
        description="e of density proportional to exp(-rate ||e||) as in the paper, or normal; "
        '"auto" is normal in a proven calibration, unless noise_rate is given',
    )
    noise_rate: CourseOption = Field(
        None,
        description="a: the rate of exp-norm noise e, instead of one calibrated to epsilon: a "
        "number, a list with one for each round, or a table of either for every party; the total "
        "must be within epsilon",
    )
    dual_step: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="theta, common and fixed; by default the smallest penalty of the first round",
    )
    penalty_growth: float | None = Field(
        None,
        ge=1,
        allow_inf_nan=False,
        description="the penalty of a round over that of the round before; by default e^(1/rounds)",
    )


@final
@dataclass(frozen=True)
class MADMM(PerturbedADMM):
    """ADMM with a perturbed penalty; see :class:`PerturbedADMM` for the parameters."""

    name: ClassVar[str] = "m-admm"
    paper: ClassVar[str] = "Zhang, Khalili, Liu, ICML 2018"
    private: ClassVar[bool] = True
    options: ClassVar[type[Options]] = MADMMOptions

    @classmethod
    def least_penalty(cls, site: Site, settings: Settings) -> float:
        """Leave room for noise beside the Jacobians, in a proven calibration to the budget."""
        options, budget = cls.options_and_budget(settings)
        if settings.calibration == "published" or options.noise_rate is not None:
            return 0.0
        return least_penalty(site, budget, options.noise, settings.rounds)

    @classmethod
    def configure(cls, site: Site, settings: Settings) -> Self:
        """Fix the penalty of every round, the dual step and the noise of every party."""
        options, budget = cls.options_and_budget(settings)
        published, given = settings.calibration == "published", options.noise_rate
        check_noise(cls.name, options.noise, "noise_rate", given, published=published)
        if not (site.degree > 0).all():
            raise ParameterError(
                "m-admm needs a neighbour for every party, because its noise is in the penalty; "
                "got a party without one."
            )
        rounds, here = settings.rounds, len(site.index)
        # Over a whole run the penalty grows by a factor of e, whatever the number of rounds.
        growth = options.penalty_growth or math.exp(1 / rounds)
        chosen = options.penalty_growth is not None
        every = grown(settings.penalty_course, growth, site, rounds, chosen=chosen)
        # At most the penalty of any party. Without growth and noise this is conventional ADMM.
        step = float(every[0].min()) if options.dual_step is None else options.dual_step
        penalties = every[:, :here]
        convexity, spread = graph_convexity(site, penalties), 2 * penalties * site.degree
        rates = claimed = None
        if given is not None:
            rates = over_rounds("noise_rate", given, site, rounds)[:, :here]
        if published:
            _check_condition(site, convexity)
            if rates is None:
                rates = np.broadcast_to(_printed_rate(site, budget, penalties), penalties.shape)
            loss = printed_loss(site, penalties, rates) * site.outputs * budget.rows_per_person
            claimed = _claim(loss, rounds)
            check_total(site, budget, loss, "noise_rate")
        planned = plan_objective(
            site,
            budget,
            options.noise,
            convexity,
            tolerance=settings.tolerance,
            scale=None if rates is None else spread / rates,
            proportions=spread,
        )
        if given is not None and not published:
            check_within_budget(site, budget, planned, "noise_rate")
        return cls(
            penalties,
            np.full_like(penalties, step),
            **noise_arrays(planned),
            start=options.starts(site),
            claimed=claimed,
        )


def printed_loss(site: Site, penalty: Array, rate: Array | float) -> Array:
    """The published total of each party, ``sum_t c (1.4 c1 + a) / (n eta V)``, for one row.

    ``penalty`` and ``rate`` are eta and a of each round and party.
    """
    noise = _PRINTED * site.loss.curvature_bound + site.loss.slope_bound * rate
    return np.asarray((site.weight * noise / (site.rows * penalty * site.degree)).sum(axis=0))


def _printed_rate(site: Site, budget: Budget, penalty: Array) -> Array:
    """The a with which the published total, for all outputs and rows of a person, is epsilon."""
    target = budget.epsilon / (site.outputs * budget.rows_per_person)
    fixed = printed_loss(site, penalty, 0.0)
    if (target <= fixed).any():
        party = int(np.argmin(target - fixed))
        least = float(fixed[party] * site.outputs * budget.rows_per_person)
        raise InfeasibleBudgetError(
            f"epsilon must exceed {AtMost(least)}, what the Jacobians of {len(penalty)} rounds "
            f"cost party {site.names[party]} by the published total; got "
            f"{Given(budget.epsilon[party])}. Use fewer rounds, a larger penalty or more rows.",
            least,
        )
    return (target - fixed) / (printed_loss(site, penalty, 1.0) - fixed)


def _check_condition(site: Site, convexity: Array) -> None:
    """``2 c1 < (n / c) m`` in every round, under which the published total was derived."""
    curvature = site.loss.curvature_bound
    kappa = site_kappa(site, convexity.min(axis=0))
    if (kappa >= 0.5).any():
        party = int(np.argmax(kappa))
        raise ParameterError(
            f"2 c1 must be below (n / c) (lambda / N + 2 eta V) for the published total; party "
            f"{site.names[party]} has {2 * curvature:g} against {curvature / kappa[party]:.6g}. "
            "Use a larger penalty, or calibration='proven', which needs no condition."
        )


def _claim(loss: Array, rounds: int) -> str:
    """The published total for these numbers."""
    return (
        f"beta-differential privacy with beta = {AtMost(loss.max())} over all {rounds} iterations "
        "(penalty perturbation), for an exact solver"
    )
