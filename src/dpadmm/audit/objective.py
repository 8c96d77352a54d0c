r"""The worst case of objective perturbation, with its exact privacy loss.

**Neighbours.** The public linear term holds the minimiser near R e_1. The replaced row is
(-s, q) in D and (-s, -q) in D', with s^2 + q^2 = 1 and R s large: both margins are very negative,
both slopes are nearly -L, and the gradients differ by nearly 2 L c / n. All other rows are zero;
they add nothing to a gradient and are left out, c / n being kept.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal, final

import numpy as np

from dpadmm.algorithms.objective_release import ObjectiveRelease
from dpadmm.audit.cases import Case
from dpadmm.audit.noise import SharedNoise
from dpadmm.audit.scene import Candidate, canary_rows, one_party
from dpadmm.audit.verdict import AuditSetting, Claim, EpsilonClaim
from dpadmm.errors import ParameterError
from dpadmm.plain import Array
from dpadmm.privacy.calibration import exponential_rate, objective_sigma
from dpadmm.privacy.figures import AtMost
from dpadmm.privacy.mechanisms import ObjectivePerturbation
from dpadmm.privacy.noise import SimulatedNoise
from dpadmm.privacy.sensitivity import gradient_sensitivity, jacobian_ratio
from dpadmm.problem.rows import Shard

__all__ = [
    "PerturbedObjective",
    "exp_norm_case",
    "gaussian_objective_case",
]


# The party: its rows, the strong convexity of its problem, where the minimiser is held.
_ROWS: Final = 100
_CONVEXITY: Final = 2.0
_RADIUS: Final = 1000.0
_SLANT: Final = 0.02
_SENSITIVITY: Final = float(gradient_sensitivity(_ROWS))
_KAPPA: Final = float(jacobian_ratio(_ROWS, _CONVEXITY))
# The residual of a solve: above the rounding error of a gradient, far below one row's change.
_TOLERANCE: Final = 1e-10
# Noise on the minimiser, as a share of what the gradient noise does to it.
_OUTPUT_SHARE: Final = 1e-3
# Of a pure epsilon, what is left for the exact minimiser; the rest and a tiny delta pay for the
# inexact solve.
_EXACT_SHARE: Final = 0.999
_PURE_DELTA: Final = 1e-12
# The other rows are zero and left out: c / n of the whole party is the replaced row's weight.
_SITE: Final = one_party(1, weight=1 / _ROWS)
_CANDIDATES: Final = tuple(
    Shard.from_parties([(row[None], np.ones((1, 1)))]) for row in canary_rows(_SLANT)
)
_WORST_CASE: Final = (
    f"a public linear term holds the minimiser near {_RADIUS:g} in the first direction; the "
    "replaced row points against it, and to opposite sides in the second, so that the gradients "
    "differ by nearly 2 L c / n"
)


@final
@dataclass(frozen=True)
class PerturbedObjective(Case):
    """The minimiser of a problem whose gradient carries noise.

    Parameters
    ----------
    claim, setting
        What is claimed, and of what.
    perturbation
        The noise that is really added.
    """

    claim: Claim
    setting: AuditSetting
    perturbation: ObjectivePerturbation
    # A solve holds some dozens of arrays of this length.
    batch: int = 1 << 15

    def scores(self, noise: SimulatedNoise, runs: int, *, replaced: bool) -> Array:
        """The privacy loss of the minimiser."""
        site = replace(_SITE, runs=runs)
        linear = np.broadcast_to([-_CONVEXITY * _RADIUS, 0.0], site.shape)
        release = ObjectiveRelease(linear, self.perturbation)
        plain, changed = (Candidate(shard, site) for shard in _CANDIDATES)
        held = changed if replaced else plain
        sent = release.release(held.workspace, site, SharedNoise(noise), 0).values
        return changed.log_density(release, sent) - plain.log_density(release, sent)


def _perturbation(kind: Literal["gaussian", "exp-norm"], scale: float) -> ObjectivePerturbation:
    return ObjectivePerturbation(
        kind=kind,
        sensitivity=np.array([_SENSITIVITY]),
        kappa=np.array([_KAPPA]),
        scale=np.array([scale]),
        tolerance=np.array([_TOLERANCE]),
        convexity=np.array([_CONVEXITY]),
        output_sigma=np.array([_OUTPUT_SHARE * scale / _CONVEXITY]),
    )


def _inexact_mu(scale: float) -> float:
    """What the noise of approximate minima perturbation costs."""
    return 2 * _TOLERANCE / (_OUTPUT_SHARE * scale)


def exp_norm_case(
    epsilon: float,
    delta: float = 0.0,
    *,
    noise_scale: float = 1.0,
    calibration: str = "proven",
) -> PerturbedObjective:
    r"""Gradient noise exp(-rate ||b||), as DVP and R-ADMM have it: pure epsilon.

    .. math:: \mathrm{rate} = (\epsilon - \ln(1+\kappa))\,n/(2Lc)

    "published" takes the rate :math:`(\epsilon - 2\ln(1+\kappa))\,n/c` that DVP's Algorithm 2
    prints, twice of what its proof needs. ``noise_scale`` divides the rate. What the inexact solve
    costs is paid out of epsilon and a delta of 1e-12, whatever ``delta`` is.
    """
    if calibration == "published":
        room = epsilon - 2 * np.log1p(_KAPPA)
        if not room > 0:
            raise ParameterError(
                f"epsilon must exceed {AtMost(2 * np.log1p(_KAPPA)):4} here; got {epsilon!r}."
            )
        rate = room * _ROWS
    else:
        rate = float(exponential_rate(_EXACT_SHARE * epsilon, _ROWS, _KAPPA))
    setting = AuditSetting(
        f"minimiser with gradient noise exp(-{rate / noise_scale:.4g} ||b||), {calibration} rate",
        _WORST_CASE,
        "the privacy loss of the minimiser",
    )
    perturbation = _perturbation("exp-norm", noise_scale / rate)
    return PerturbedObjective(EpsilonClaim(epsilon, _PURE_DELTA), setting, perturbation)


def gaussian_objective_case(
    epsilon: float, delta: float, *, noise_scale: float = 1.0
) -> PerturbedObjective:
    """Gaussian gradient noise, calibrated by the Renyi bound of objective perturbation."""
    # The inexact solve's share depends on the noise: pay for twice of what it costs without it.
    exact = float(objective_sigma(epsilon, delta, _SENSITIVITY, _KAPPA))
    sigma = noise_scale * float(
        objective_sigma(epsilon, delta, _SENSITIVITY, _KAPPA, inexact_mu=2 * _inexact_mu(exact))
    )
    setting = AuditSetting(
        f"minimiser with Gaussian gradient noise, sigma = {sigma / _SENSITIVITY:.4g} times the "
        "gradient's sensitivity",
        _WORST_CASE,
        "the privacy loss of the minimiser",
    )
    return PerturbedObjective(
        EpsilonClaim(epsilon, delta), setting, _perturbation("gaussian", sigma)
    )
