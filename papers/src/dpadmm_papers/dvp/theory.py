r"""DVP's theorems: what Algorithm 2 prints, what its proof needs, and what can be proven.

With B rows, the paper's constant C, its rho at every node, degree V and target alpha,

.. math:: \hat\alpha = \alpha - 2\ln\Bigl(1 + \frac{c_1}{\tfrac{B}{C}(\rho + 2\eta V)}\Bigr),\qquad
          \Phi = \frac{c_1}{\tfrac{B}{C}(e^{\alpha/4} - 1)} - \rho - 2\eta V .

Here :math:`B/C` is :math:`n_i/c_i` and :math:`\rho + 2\eta V` is the strong convexity m without
Phi.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from scipy.optimize import minimize_scalar
from scipy.special import expit


class Perturbation(NamedTuple):
    """What a round adds: the rate zeta of the noise, and the convexity Phi."""

    alpha_hat: float
    zeta: float
    phi: float


def printed(alpha: float, ratio: float, convexity: float, curvature: float = 0.25) -> Perturbation:
    """Algorithm 2 to the letter: B/C on the wrong side of alpha_hat's fraction, zeta = alpha_hat.

    Parameters
    ----------
    alpha
        The target of a round.
    ratio
        B / C.
    convexity
        rho + 2 eta V.
    curvature
        c1.
    """
    alpha_hat = alpha - 2 * math.log1p(ratio * curvature / convexity)
    return _branch(alpha, alpha_hat, ratio, convexity, curvature, halved=False)


def proof(alpha: float, ratio: float, convexity: float, curvature: float = 0.25) -> Perturbation:
    """The appendix: the fraction the right way round, zeta = alpha_hat / 2, as Theorem 1 needs."""
    alpha_hat = alpha - 2 * math.log1p(curvature / (ratio * convexity))
    return _branch(alpha, alpha_hat, ratio, convexity, curvature, halved=True)


def _branch(
    alpha: float,
    alpha_hat: float,
    ratio: float,
    convexity: float,
    curvature: float,
    *,
    halved: bool,
) -> Perturbation:
    phi, chosen = 0.0, alpha_hat
    if alpha_hat <= 0:
        phi = curvature / (ratio * math.expm1(alpha / 4)) - convexity
        chosen = alpha / 2
    return Perturbation(alpha_hat, chosen / 2 if halved else chosen, phi)


def corrected(
    alpha: float, ratio: float, convexity: float, curvature: float = 0.25, slope: float = 1.0
) -> Perturbation:
    r"""What makes a round alpha-DP, with the Jacobian's tight cost.

    .. math:: \Phi = \max\Bigl(0, \frac{c_1}{\tfrac{B}{C}(e^{\alpha/2}-1)} - m\Bigr),\qquad
              \hat\alpha = \alpha - \ln\Bigl(1 + \frac{c_1}{\tfrac{B}{C}(m + \Phi)}\Bigr),\qquad
              \zeta = \frac{\hat\alpha}{2L}
    """
    phi = max(0.0, curvature / (ratio * math.expm1(alpha / 2)) - convexity)
    alpha_hat = alpha - math.log1p(curvature / (ratio * (convexity + phi)))
    return Perturbation(alpha_hat, alpha_hat / (2 * slope), phi)


def attained_loss(zeta: float, radius: float) -> float:
    r"""What the noise alone loses at an output of norm ``radius``, logistic loss, two features.

    .. math:: \zeta\,\max_\phi 2\sin\phi\;\sigma(r\cos\phi)

    Two rows mirrored about the output move the gradient by this much; where the noise lies along
    the difference, the densities differ by exactly this factor. It tends to 2 zeta.
    """
    found = minimize_scalar(
        lambda angle: -2 * math.sin(angle) * expit(radius * math.cos(angle)),
        bounds=(0.0, math.pi / 2),
        method="bounded",
        options={"xatol": 1e-10},
    )
    return zeta * -float(found.fun)


def rows_needed_without_noise(
    norm: float, accuracy: float, failure: float, *, scale: float = 1.0, constant: float = 1.0
) -> float:
    r"""Theorem 2: rows for which the ADMM without noise is ``accuracy``-optimal.

    .. math:: B > \beta\,\frac{C \|f^0\|^2 \ln(1/\delta)}{\alpha_{acc}^2}

    ``constant`` is the paper's unspecified beta: figures are comparable, not absolute.
    """
    return constant * scale * norm**2 * math.log(1 / failure) / accuracy**2


def rows_needed(
    norm: float,
    accuracy: float,
    failure: float,
    alpha: float,
    dimension: int,
    *,
    scale: float = 1.0,
    curvature: float = 0.25,
    constant: float = 1.0,
) -> float:
    r"""Theorem 3: rows for which DVP's fixed point is ``accuracy``-optimal at level alpha.

    .. math:: B > \beta\max\Bigl(\frac{\|f^0\| d\ln(d/\delta)}{\alpha_{acc}\alpha},\;
              \frac{C c_1\|f^0\|^2}{\alpha_{acc}\alpha},\;
              \frac{C\|f^0\|^2\ln(1/\delta)}{\alpha_{acc}^2}\Bigr)

    Corollary 3.1 needs the same number for the iterate of a round, whose distance from that
    fixed point it leaves open. ``constant`` is the unspecified beta; the reference f^0 moves with
    the rounds, so that the condition cannot be checked for a run.
    """
    noise = norm * dimension * math.log(dimension / failure) / (accuracy * alpha)
    jacobian = scale * curvature * norm**2 / (accuracy * alpha)
    plain = rows_needed_without_noise(norm, accuracy, failure, scale=scale)
    return constant * max(noise, jacobian, plain)
