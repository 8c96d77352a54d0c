r"""PS-ADMM's theorems as numbers: what they promise, what they ask for, and what holds instead.

Ding, Errapotu, Zhang, Gong, Pan, Han, SecureComm 2019, Theorems 1 to 4. Notation as there: K
messages, S inner steps, M rows of a party, G a bound on a row's gradient, p features, eta the
step, :math:`v_f` and :math:`v_L = v_f + \rho` the smoothness of a party's loss and of its local
problem, :math:`\mu_f` the strong convexity of the loss. Where a proof does not give the printed
constant, the function says which one it returns.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from dpadmm.errors import ParameterError


class Coefficients(NamedTuple):
    """The weights of two iterates in the average, times 2 eta."""

    zeta: float
    xi: float


# Privacy ---------------------------------------------------------------------------------------


def subsampled_noise(
    batch: int, rows: int, steps: int, epsilon: float, delta: float, *, constant: float = 1.0
) -> float:
    r"""Theorem 1's sigma, in units of G.

    .. math:: \sigma = c_2\,\frac{q\sqrt{K\ln(1/\delta)}}{\epsilon},\qquad q = l/M

    for :math:`\epsilon < c_1 q^2 K`. Both constants are unnamed; ``constant`` is :math:`c_2`.
    """
    return constant * batch / rows * math.sqrt(steps * math.log(1 / delta)) / epsilon


def privacy_noise(
    rows: int,
    outer: int,
    inner: int,
    epsilon: float,
    delta: float,
    *,
    slope: float = 1.0,
    constant: float = 1.0,
) -> float:
    r"""Theorem 2's sigma.

    .. math:: \sigma^2 = c\,\frac{G^2 K S\ln(1/\delta)}{M^2\epsilon^2}

    The constant c is unnamed, and the proof bounds the sensitivity of a stochastic gradient by 3G,
    which holds for added or removed rows; for a replaced one it is :math:`4G + 2G/M`, or
    :math:`2G + 2G/M` for a loss whose slope keeps its sign.
    """
    product = constant * outer * inner * math.log(1 / delta)
    return slope * math.sqrt(product) / (rows * epsilon)


def privacy_condition(rows: int, outer: int, inner: int, epsilon: float) -> float:
    r"""The least :math:`c_1` for which Theorem 2 speaks about epsilon.

    .. math:: \epsilon \le c_1 K S / M^2
    """
    return epsilon * rows**2 / (outer * inner)


def gradient_mu(epsilon: float, delta: float, *, constant: float = 1.0) -> float:
    r"""The mu-GDP that the full gradients alone cost under Theorem 2's noise.

    .. math:: \mu = \sqrt{KS}\,\frac{2G/M}{\sigma} = \frac{2\epsilon}{\sqrt{c\ln(1/\delta)}}

    The full gradient depends on every row in every step, so that no subsampling amplifies it; the
    proof leaves it out.
    """
    return 2 * epsilon / math.sqrt(constant * math.log(1 / delta))


# Convergence -----------------------------------------------------------------------------------


def printed_coefficients(step_size: float, smoothness: float) -> Coefficients:
    r"""The paper's weights, for :math:`0 < \eta < 1/(2v_L)`.

    .. math:: \xi = \frac{4\eta}{1-2\eta v_L},\qquad \zeta = 2\eta - \xi \le -2\eta

    zeta is negative for every admissible step: no convex combination, which Lemma 7 needs for
    Jensen's inequality, but an extrapolation.
    """
    _check_product(step_size, smoothness, 0.5)
    xi = 4 * step_size / (1 - 2 * step_size * smoothness)
    return Coefficients(2 * step_size - xi, xi)


def repaired_coefficients(step_size: float, smoothness: float) -> Coefficients:
    r"""Weights with which the proof goes through, for :math:`0 < \eta \le 1/v_L`.

    .. math:: \xi = \frac{2\eta}{2-\eta v_L},\qquad
              \zeta = 2\eta - \xi = \frac{2\eta(1-\eta v_L)}{2-\eta v_L} \ge 0

    They come from :math:`E\|g\|^2 = \|\nabla L\|^2 + \mathrm{Var} + p\sigma^2`, which Lemma 2
    bounds by four times as much.
    """
    _check_product(step_size, smoothness, 1.0)
    xi = 2 * step_size / (2 - step_size * smoothness)
    return Coefficients(2 * step_size - xi, xi)


def _check_product(step_size: float, smoothness: float, most: float) -> None:
    if not 0 < step_size * smoothness <= most or (most < 1 and step_size * smoothness == most):
        raise ParameterError(
            f"step_size times smoothness must be in (0, {most:g}]; got {step_size * smoothness:g}."
        )


def largest_step(smoothness: float, strong_convexity: float) -> float:
    r"""Theorem 3's bound on eta; 0 where the theorem is empty.

    .. math:: \eta \le \frac{4\mu_L - 4\rho - 3\mu_f}{8v_L^2 + 2\mu_f v_L}
              = \frac{\mu_f}{8v_L^2 + 2\mu_f v_L},\qquad \mu_L = \mu_f + \rho

    The logistic loss is not strongly convex and the regulariser is the server's: with
    :math:`\mu_f = 0`, as in the paper's experiment, no step satisfies it.
    """
    return strong_convexity / (8 * smoothness**2 + 2 * strong_convexity * smoothness)


def smallest_inner_steps(
    smoothness: float, strong_convexity: float, penalty: float, step_size: float | None = None
) -> float:
    r"""The least S that Theorem 3's last condition allows; infinite where none does.

    .. math:: 1 - \frac{\rho\xi}{2} - \frac{\mu_f\xi}{4}
              + \frac{4\eta^2v_L^2S}{1-2\eta v_L} \le \frac{S\eta\mu_f}{2}

    At the largest eta of :func:`largest_step` both factors of S are equal and no S will do. By
    default eta is half of it, which is nearly the best: S is then about
    :math:`64 v_L^2/\mu_f^2`, not the :math:`O(v_f/\mu_f)` of Theorem 4.
    """
    eta = largest_step(smoothness, strong_convexity) / 2 if step_size is None else step_size
    if eta == 0:
        return math.inf
    xi = printed_coefficients(eta, smoothness).xi
    contraction = 1 - 2 * eta * smoothness
    gain = eta * strong_convexity / 2 - 4 * (eta * smoothness) ** 2 / contraction
    return (1 - (penalty / 2 + strong_convexity / 4) * xi) / gain if gain > 0 else math.inf


def noise_growth(
    step_size: float,
    smoothness: float,
    features: int,
    sigma: float,
    *,
    parties: int = 1,
    repaired: bool = True,
) -> float:
    r"""What noise adds to the expected suboptimality.

    .. math:: N p\sigma^2\cdot\frac{\xi}{2}

    :math:`\xi/2 = 2\eta/(1-2\eta v_L)` is Theorem 3's printed factor; it is right although
    Lemma 4 prints half of the noise term that its proof gives and Lemma 7 twice what follows from
    that. N, G^2 and c, which equation (10) drops, are kept.
    """
    find = repaired_coefficients if repaired else printed_coefficients
    return parties * features * sigma**2 * find(step_size, smoothness).xi / 2


def convergence_bound(start: float, rounds: int, growth_per_round: float) -> float:
    r"""Theorem 3: expected suboptimality of the averages after K messages.

    .. math:: \frac{A}{K} + B K

    Parameters
    ----------
    start
        A: the sum over parties of :math:`\frac{\mu_f}{4}\|x_i^0-x_i^*\|^2 +
        \frac\rho2\|z^0-z^*\|^2 + \frac{1}{2\rho}(\|\lambda_i^0\|^2+\tau_i^2)`.
    rounds
        K.
    growth_per_round
        B: :func:`noise_growth` divided by K, for the sigma of :func:`privacy_noise`, whose square
        is proportional to K.
    """
    return start / rounds + growth_per_round * rounds


def optimal_rounds(start: float, growth_per_round: float) -> tuple[float, float]:
    r"""Theorem 4: the K that minimises :func:`convergence_bound`, and the bound there.

    .. math:: K = \sqrt{A/B},\qquad 2\sqrt{AB}
    """
    return math.sqrt(start / growth_per_round), 2 * math.sqrt(start * growth_per_round)


def order_of_rounds(
    rows: int,
    epsilon: float,
    delta: float,
    features: int,
    smoothness: float,
    strong_convexity: float,
    *,
    slope: float = 1.0,
) -> float:
    r"""Theorem 4's order of the optimal K, with its constant taken to be 1.

    .. math:: K = \frac{M\epsilon}{G}\sqrt{\frac{\mu_f}{v_f\,p\ln(1/\delta)}}

    ``smoothness`` is :math:`v_f` here. It rests on :math:`S = O(v_f/\mu_f)`, which
    :func:`smallest_inner_steps` contradicts.
    """
    ratio = strong_convexity / (smoothness * features * math.log(1 / delta))
    return rows * epsilon / slope * math.sqrt(ratio)
