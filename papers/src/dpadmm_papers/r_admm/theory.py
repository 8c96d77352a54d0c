r"""What the paper on R-ADMM and MR-ADMM proves, computed, beside what can be proven.

X. Zhang, M. M. Khalili, M. Liu, "Recycled ADMM", IEEE Transactions on Information Forensics and
Security 2020. A figure printed by the paper and its corrected form are two functions or two fields,
never one.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dpadmm.plain import Array
from dpadmm.problem.site import Topology

# Where the search for a gamma gives up.
_LARGEST_GAMMA: Final = 1e12


class JacobianBounds(NamedTuple):
    """Upper bounds on what the Jacobian adds to the privacy loss of one odd iteration.

    Attributes
    ----------
    proven
        ``ln(1 + kappa)``, which is attained; needs no condition.
    derived
        ``-2 ln(1 - kappa)``, where the paper's proof arrives; needs kappa < 1.
    published
        ``2.8 kappa``, its bound in eq. (32); needs kappa < 1/2.
    """

    proven: float
    derived: float
    published: float


def jacobian_bounds(kappa: float) -> JacobianBounds:
    r"""Return the three bounds; those whose condition fails are infinite.

    .. math:: \ln(1+\kappa) \le -2\ln(1-\kappa) \le 2.8\,\kappa,\qquad \kappa = C c_1/(B m)

    Two neighbouring Hessians are a common part of at least m I plus one row's
    ``(C/B) l'' x x^T`` each, so that each determinant is the common one times a factor in
    ``[1, 1 + kappa]``. The paper bounds the trace of the difference instead.
    """
    if not 0 <= kappa < math.inf:
        raise ValueError(f"kappa must be a non-negative finite number; got {kappa!r}")
    return JacobianBounds(
        math.log1p(kappa),
        -2 * math.log1p(-kappa) if kappa < 1 else math.inf,
        2.8 * kappa if kappa < 0.5 else math.inf,
    )


def noise_condition(
    rows: ArrayLike, convexity: ArrayLike, *, weight: ArrayLike = 1.0, curvature: float = 0.25
) -> Array:
    r"""Return ``(B / C)(rho / N + 2 eta V) - 2 c1``, which eq. (32) needs to be positive.

    .. math:: 2c_1 < \tfrac{B_i}{C}\bigl(\tfrac{\rho}{N} + 2\eta_i(1)V_i\bigr)
              \iff \kappa_i < \tfrac12

    The proven loss needs no condition.
    """
    margin: Array = np.asarray(rows, dtype=np.float64) / np.asarray(weight) * np.asarray(
        convexity
    ) - 2 * float(curvature)
    return margin


class PrivacyLoss(NamedTuple):
    """The pure epsilon of all odd iterations, for exact minimisers.

    Attributes
    ----------
    published
        Eq. (32).
    proven
        The same with ``ln(1 + kappa)`` for the Jacobian and the loss's own slope bound.
    """

    published: float
    proven: float


def privacy_loss(
    convexity: ArrayLike,
    rate: ArrayLike,
    rows: float,
    *,
    weight: float = 1.0,
    slope: float = 1.0,
    curvature: float = 0.25,
) -> PrivacyLoss:
    r"""Return what one party's odd iterations cost together.

    .. math::
        \beta &= \sum_k \frac{2C}{B}\Bigl(\frac{1.4\,c_1}{\rho/N + 2\eta(2k-1)V} + \alpha(k)\Bigr)
        \quad\text{(32)} \\
        \epsilon &= \sum_k \frac{2LC}{B}\,\alpha(k) + \ln(1 + \kappa_k),
        \qquad \kappa_k = \frac{C c_1}{B\,(\rho/N + 2\eta(2k-1)V)}

    The paper takes the largest over the parties. Infinite where its condition fails.

    Parameters
    ----------
    convexity, rate
        ``rho / N + 2 eta V`` and alpha of each odd iteration.
    rows, weight
        B and C of the party.
    slope, curvature
        Bounds on the loss's slope (the paper assumes 1) and curvature c1.
    """
    bowls, rates = np.broadcast_arrays(
        np.atleast_1d(np.asarray(convexity, dtype=np.float64)),
        np.asarray(rate, dtype=np.float64),
    )
    kappas = weight * curvature / (rows * bowls)
    published = float(np.sum(2 * weight / rows * (1.4 * curvature / bowls + rates)))
    proven = float(np.sum(2 * slope * weight / rows * rates + np.log1p(kappas)))
    return PrivacyLoss(published if kappas.max() < 0.5 else math.inf, proven)


class ConditionMargins(NamedTuple):
    """Smallest eigenvalues of the symmetric parts; a condition holds where its margin is positive.

    Attributes
    ----------
    first
        Of condition (i), or (iii) for R-ADMM.
    second
        Of condition (ii), or (iv) for R-ADMM.
    """

    first: float
    second: float

    @property
    def hold(self) -> bool:
        """Whether both conditions hold."""
        return self.first > 0 and self.second > 0


def _smallest_symmetric(matrix: Array) -> float:
    return float(np.linalg.eigvalsh((matrix + matrix.T) / 2)[0])


def general_condition_margins(
    adjacency: ArrayLike,
    penalty: ArrayLike,
    next_penalty: ArrayLike,
    smoothness: ArrayLike,
    gamma: float,
    *,
    constant: float = 2.0,
    split: float = 2.0,
) -> ConditionMargins:
    r"""Return the margins of Theorem IV.1's conditions (i) and (ii) for MR-ADMM.

    .. math::
        \text{(i)}\quad & I + W'(D+A)\tilde D^{-1}
            \succ \frac{L\mu}{2\sigma_{\min}(\tilde D)}\,(W'(D-A))^{+} D_M \\
        \text{(ii)}\quad & W'(D+A) \succ W'(D+A)\tilde D^{-1}
            \bigl(W(D-A) + \tfrac{2}{L} W'(D+A)\bigr)
            + \frac{L\mu}{2\sigma_{\min}(\tilde D)(\mu-1)}\,D_M

    with W = diag(eta_i(t)), W' = diag(eta_i(t+1)), D~ = 2 W D + gamma I and D_M = diag(M_i^2). The
    matrices are not symmetric; the order is that of their quadratic forms.

    **On a bipartite graph (ii) is impossible**, whatever L, mu, gamma and penalties: D + A has a
    null vector v, and for u = W'^{-1} v the form of the left side and of the first term on the
    right vanishes at u, while that of the last term is positive. The paper says that (i) and (ii)
    hold for every gamma that is large enough.

    Parameters
    ----------
    adjacency
        A of the graph.
    penalty, next_penalty
        eta_i(t) and eta_i(t + 1), one for all or one for each party.
    smoothness
        M_i, one for all or one for each party.
    gamma
        Weight of the even iteration.
    constant, split
        L > 0 and mu > 1 of the theorem.
    """
    links = np.asarray(adjacency, dtype=np.float64)
    count = len(links)
    degrees = np.diag(links.sum(axis=1))
    now = np.diag(np.broadcast_to(np.asarray(penalty, dtype=np.float64), count))
    later = np.diag(np.broadcast_to(np.asarray(next_penalty, dtype=np.float64), count))
    squares = np.diag(np.broadcast_to(np.asarray(smoothness, dtype=np.float64), count) ** 2)
    steps = 2 * now @ degrees + gamma * np.eye(count)
    inverse, smallest = np.linalg.inv(steps), float(np.diag(steps).min())
    signless, laplacian = later @ (degrees + links), degrees - links
    factor = constant * split / (2 * smallest)
    first = (
        np.eye(count) + signless @ inverse - factor * np.linalg.pinv(later @ laplacian) @ squares
    )
    mixed = now @ laplacian + 2 / constant * signless
    second = signless - signless @ inverse @ mixed - factor / (split - 1) * squares
    return ConditionMargins(_smallest_symmetric(first), _smallest_symmetric(second))


def condition_margins(
    adjacency: ArrayLike, penalty: float, smoothness: ArrayLike, gamma: float
) -> ConditionMargins:
    r"""Return the margins of conditions (iii) and (iv) for R-ADMM: (i) and (ii) at L = mu = 2.

    .. math::
        \text{(iii)}\quad & I + \eta(D+A)\tilde D^{-1}
            \succ \frac{2}{\eta\,\sigma_{\min}(\tilde D)}\,(D-A)^{+} D_M \\
        \text{(iv)}\quad & \eta(D+A) \succ 2\eta(D+A)\tilde D^{-1}\eta D
            + \frac{2}{\sigma_{\min}(\tilde D)}\,D_M
    """
    return general_condition_margins(adjacency, penalty, penalty, smoothness, gamma)


def smallest_gamma(adjacency: ArrayLike, penalty: float, smoothness: ArrayLike) -> float:
    """Return the least gamma with which (iii) and (iv) hold, to six digits.

    Infinite on a bipartite graph (path, star, tree, even ring), where (iv) cannot hold.
    """
    links = np.asarray(adjacency, dtype=np.float64)
    pairs = tuple((int(i), int(j)) for i, j in np.argwhere(links))
    if Topology("edges", len(links), pairs).bipartite:
        return math.inf

    def hold(gamma: float) -> bool:
        return condition_margins(links, penalty, smoothness, gamma).hold

    if hold(0.0):
        return 0.0
    low, high = 0.0, 1e-3
    while not hold(high):
        low, high = high, 2 * high
        if high > _LARGEST_GAMMA:
            return math.inf
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if hold(middle) else (middle, high)
    return high


def sample_size(norm: float, excess: float, gap: ArrayLike, failure: float) -> float:
    r"""Return Theorem VI.1's number of rows a party needs, in units of its unknown constant w.

    .. math:: B_i \ge w\,\max_k \frac{\|f_{ref}\|^2\log(1/\delta)}{(\tau-\Delta_i(k))^2}

    Parameters
    ----------
    norm
        Norm of the reference classifier.
    excess, gap
        tau, the loss allowed beyond the reference's; Delta_i(k) < tau, how far iteration k is from
        the optimum, which the paper does not bound either.
    failure
        delta, the probability of missing it.
    """
    room = _room(excess, gap)
    return norm**2 * math.log(1 / failure) / room**2


def sample_size_private(
    norm: float,
    excess: float,
    gap: ArrayLike,
    failure: float,
    *,
    parties: int,
    features: int,
    rate: float,
    weight: float = 1.0,
    slack: float = 0.0,
) -> float:
    r"""Return Theorem VI.2's number of rows, in units of w; infinite where it asks the impossible.

    .. math:: B_i \ge w\,\max_k \frac{CN\log(1/\delta)}
        {\frac{NC(\tau-\Delta_i(k))^2}{2\|f_{ref}\|^2}
         - (1+a)\frac{Nd^2}{C\,\alpha_i(k)^2}\log^2(d/\delta)}

    ``slack`` is the theorem's other unknown constant a > 0; 0 gives the least it can ask for. The
    noise of a different iteration is frozen in the proof, so that this is no statement about the
    algorithm as it runs; and where the denominator is not positive no number of rows is enough.
    """
    room = _room(excess, gap)
    signal = parties * weight * room**2 / (2 * norm**2)
    noise = (1 + slack) * parties * features**2 / (weight * rate**2)
    left = signal - noise * math.log(features / failure) ** 2
    return weight * parties * math.log(1 / failure) / left if left > 0 else math.inf


def _room(excess: float, gap: ArrayLike) -> float:
    """Return tau - max_k Delta(k), which must be positive."""
    room = excess - float(np.max(gap))
    if not room > 0:
        raise ValueError(f"excess must exceed every gap; got {excess!r} and {gap!r}")
    return room
