r"""DVP: dual variable perturbation, with fresh noise in every round.

T. Zhang, Q. Zhu, "A dual perturbation approach for differential private ADMM-based distributed
empirical risk minimization", AISec 2016; Algorithm 2, eqs. 13-16. Their
:math:`\tfrac{C^R}{B_p}\epsilon_p` is our gradient noise b.

.. math::
    b_i &\sim \exp(-\zeta_i \tfrac{n_i}{c_i}\|b\|),\qquad
    m_i = \tfrac{\lambda}{N} + 2\eta_i V_i + \Phi_i,\qquad
    \kappa(m) = \frac{c_i c_1}{n_i m} \\
    \Phi_i &= \max\Bigl(0,\; \frac{c_i c_1}{n_i (e^{\alpha/2} - 1)}
             - \tfrac{\lambda}{N} - 2\eta_i V_i\Bigr),\qquad
    \zeta_i = \frac{\alpha - \ln(1 + \kappa(m_i))}{2L}

makes a round alpha-DP. Alpha may depend on the round and the party, :math:`\alpha_p(t)`. So may
eta, which depends on the party in the published calibration only. Phi keeps
:math:`\ln(1 + \kappa)` at or below alpha/2, so the Jacobian never uses up a round. Gaussian noise
needs no Phi, because its Jacobian costs :math:`O(\kappa^2)`.

The published calibration is Algorithm 2 as printed, with the fraction of the paper's proof. Its
zeta is alpha-hat; below (22) the proof of Theorem 1 has half of that, for the option ``zeta``:

.. math::
    \hat\alpha &= \alpha - 2\ln(1 + \kappa(\tfrac{\lambda}{N} + 2\eta V_i)),\qquad
    \zeta = \hat\alpha; \quad\text{if } \hat\alpha \le 0:\\
    \Phi &= \frac{c_i c_1}{n_i (e^{\alpha/4} - 1)} - \tfrac{\lambda}{N} - 2\eta V_i,
    \qquad \hat\alpha = \alpha/2 .
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, Self, final

import numpy as np
from pydantic import Field

from dpadmm.algorithms.base import (
    CourseOption,
    GraphOptions,
    Options,
    Settings,
    check_common,
    graph_convexity,
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
    release_level,
    site_kappa,
)
from dpadmm.errors import ParameterError
from dpadmm.plain import Array
from dpadmm.privacy.calibration import exponential_rate
from dpadmm.privacy.figures import AtMost
from dpadmm.privacy.noise import SAMPLER_ALLOWANCE
from dpadmm.problem.site import Site


class DVPOptions(GraphOptions):
    """Options of ``dvp``."""

    noise: Literal["auto", "exp-norm", "gaussian"] = Field(
        "auto",
        description="density proportional to exp(-rate ||b||) as in the paper, or normal; "
        '"auto" is normal in a proven calibration, unless epsilon_per_round is given',
    )
    epsilon_per_round: CourseOption = Field(
        None,
        description="alpha, the cost of a round, instead of a share of epsilon: a number, a list "
        "with one for each round, or a table of either for every party; the total must be within "
        "epsilon",
    )
    zeta: Literal["algorithm", "proof"] = Field(
        "algorithm",
        description="rate of the noise in a published calibration: alpha-hat, as Algorithm 2 "
        "prints it, or alpha-hat / 2, as the proof of Theorem 1 has it",
    )


def extra_convexity(site: Site, convexity: Array, jacobian: Array) -> Array:
    """The smallest Phi that keeps ``ln(1 + kappa)`` at or below ``jacobian``."""
    curvature = site.weight * site.loss.curvature_bound / site.rows
    return np.maximum(curvature / np.expm1(jacobian) - convexity, 0.0)


def printed_perturbation(site: Site, convexity: Array, alpha: Array) -> tuple[Array, Array]:
    """Algorithm 2's zeta and Phi, with the fraction of the proof and Phi at least 0."""
    kappa = site_kappa(site, convexity)
    spare = alpha - 2 * np.log1p(kappa)
    zeta = np.where(spare > 0, spare, alpha / 2)
    return zeta, np.where(spare > 0, 0.0, extra_convexity(site, convexity, alpha / 4))


@final
@dataclass(frozen=True)
class DVP(PerturbedADMM):
    """ADMM with a perturbed dual variable; see :class:`PerturbedADMM` for the parameters."""

    name: ClassVar[str] = "dvp"
    paper: ClassVar[str] = "Zhang, Zhu, AISec 2016"
    private: ClassVar[bool] = True
    options: ClassVar[type[Options]] = DVPOptions

    @classmethod
    def least_penalty(cls, site: Site, settings: Settings) -> float:
        """Leave room for Gaussian noise beside the Jacobians; exp-norm noise has Phi for that."""
        options, budget = cls.options_and_budget(settings)
        if settings.calibration == "published" or options.noise == "exp-norm":
            return 0.0
        return least_penalty(site, budget, options.noise, settings.rounds)

    @classmethod
    def configure(cls, site: Site, settings: Settings) -> Self:
        """Fix alpha, Phi and the noise of every party."""
        options, budget = cls.options_and_budget(settings)
        published, given = settings.calibration == "published", options.epsilon_per_round
        if options.zeta == "proof" and not published:
            raise ParameterError(
                "zeta needs calibration 'published': a proven rate follows from epsilon and delta; "
                f"got {options.zeta!r}."
            )
        check_noise(cls.name, options.noise, "epsilon_per_round", given, published=published)
        rounds, here = settings.rounds, len(site.index)
        every = over_rounds("penalty", settings.penalty_course, site, rounds)
        check_common(cls.name, every, published=published)
        penalties = every[:, :here]
        plain = graph_convexity(site, penalties)
        alpha = None
        if given is not None:
            # One-vs-rest columns are separate releases and share alpha.
            alpha = over_rounds("epsilon_per_round", given, site, rounds)[:, :here] / site.outputs
        extra, scale, claimed = np.zeros_like(plain), None, None
        if published:
            # Rounding must not carry the claimed total beyond epsilon.
            share = budget.epsilon * (1 - 1e-12) / (rounds * budget.rows_per_person * site.outputs)
            level = np.broadcast_to(share, plain.shape) if alpha is None else alpha
            zeta, extra = printed_perturbation(site, plain, level)
            if options.zeta == "proof":
                zeta = zeta / 2
            scale = site.weight / (site.rows * zeta)
            cost = level * site.outputs * budget.rows_per_person
            claimed = _claim(cost, budget.rows_per_person)
            check_total(site, budget, cost.sum(axis=0), "epsilon_per_round")
        elif options.noise == "exp-norm":
            level = release_level(site, budget, rounds) if alpha is None else alpha
            extra = extra_convexity(site, plain, level / 2)
            if alpha is not None:
                kappa, slope = site_kappa(site, plain + extra), site.loss.slope_bound
                rate = exponential_rate(level, site.rows, kappa, weight=site.weight, slope=slope)
                scale = (1 + SAMPLER_ALLOWANCE) / rate
        planned = plan_objective(
            site, budget, options.noise, plain + extra, tolerance=settings.tolerance, scale=scale
        )
        if given is not None and not published:
            check_within_budget(site, budget, planned, "epsilon_per_round")
        return cls(
            penalties,
            penalties,
            **noise_arrays(planned),
            start=options.starts(site),
            claimed=claimed,
        )


def _claim(alpha: Array, people: int) -> str:
    """Theorem 1 for these numbers, and the sum over the rounds."""
    total, least, largest = alpha.sum(axis=0).max(), alpha.min(), alpha.max()
    alike = np.isclose(least, largest)
    value = f"= {AtMost(largest)}" if alike else f"from {AtMost(least)} to {AtMost(largest)}"
    whom = "" if people == 1 else f" for the {people} rows of a person"
    return (
        f"each iteration is alpha-differentially private with alpha {value}{whom} (Theorem 1), for "
        f"an exact solver; {len(alpha)} iterations add up to {AtMost(total)}"
    )
