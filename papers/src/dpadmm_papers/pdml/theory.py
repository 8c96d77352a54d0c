r"""What Wang, Ishii, Du, Cheng and Chen (2020) bound for PDML, as printed and as it holds.

.. math:: (1-b)(1+\varphi)\,\sigma_{\min}^2(L_+) > \sigma_{\max}^2(L_+),\qquad
    \varphi < \frac{2\hat\kappa\,\sigma_{\min}^2(Q)\,\sigma_{\min}^2(L_+)}
                   {\varrho_J^2\,\sigma_{\min}^2(L_+) + 2\hat\kappa\,\sigma_{\max}^2(L_+)}

is condition (25), on which convergence (Lemma 5) and every bound on the noise's effect (Theorem 1)
rest. :func:`condition` shows that few graphs meet it. ``corrected`` stands, wherever it is a
parameter, for the constants as they follow from the definitions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpadmm.problem.site import Topology


def lipschitz(label_epsilon: float, *, slope: float = 1.0, corrected: bool = True) -> float:
    """Return a bound on the slope of the corrected loss.

    Printed, Proposition 2 (ii): ``(e^eps + 1) / (e^eps - 1)`` times the loss's. For the logistic
    loss, whose slope keeps its sign, ``e^eps / (e^eps - 1)`` is attained.
    """
    growth = math.exp(-label_epsilon)
    return slope * (1 if corrected else 1 + growth) / -math.expm1(-label_epsilon)


def uniform_noise_delta(bound: float, shift: float, features: int) -> float:
    r"""Return the delta that uniform noise in [-R, R]^d leaves at every finite epsilon.

    .. math:: \delta \ge 1 - \Big(1 - \frac{s}{2R\sqrt d}\Big)^d

    for one release whose noise is shifted by a vector of norm s with equal coordinates: outputs
    that one data set can produce and the other cannot. In units of eta_i a flipped label shifts
    by ``N (1 + 2 r) / n_i``; a replaced row by up to ``2 L N / n_i``.
    """
    missed = min(1.0, shift / (2 * bound * math.sqrt(features)))
    return 1.0 if missed == 1.0 else -math.expm1(features * math.log1p(-missed))


def phase_two_mu(sensitivity: float, initial_noise: float, decay: float, rounds: int) -> float:
    """Return mu of all rounds: (Delta / V) sqrt(sum_t rho^-(t - 1)); it grows exponentially."""
    total = float(np.sum(np.power(decay, -np.arange(rounds, dtype=np.float64))))
    return sensitivity / initial_noise * math.sqrt(total)


@dataclass(frozen=True)
class Spectrum:
    """Largest and smallest nonzero eigenvalues of the graph's matrices.

    Attributes
    ----------
    plus_max, plus_min
        Of ``L_+ = D + A``.
    minus_max, minus_min
        Of ``L_- = D - A``; those of Q squared, ``Q = (L_- / 2)^(1/2)``, are half of them.
    mean_max
        Of ``(L_+ + L_-) / 2 = D``.
    """

    plus_max: float
    plus_min: float
    minus_max: float
    minus_min: float
    mean_max: float


def spectrum(topology: Topology) -> Spectrum:
    """Compute the eigenvalues that the paper's constants are made of."""
    adjacency = np.asarray(topology.adjacency.toarray(), dtype=np.float64)
    degrees = np.diag(adjacency.sum(axis=1))
    ends = []
    for matrix in (degrees + adjacency, degrees - adjacency):
        values = np.linalg.eigvalsh(matrix)
        ends += [float(values[-1]), float(values[values > 1e-9 * values[-1]][0])]
    return Spectrum(ends[0], ends[1], ends[2], ends[3], float(degrees.max()))


@dataclass(frozen=True)
class Constants:
    """Strong convexity and smoothness of the sum of the servers' objectives."""

    convexity: float
    smoothness: float


def constants(
    regularization: float, parties: int, *, curvature: float = 0.25, corrected: bool = True
) -> Constants:
    """Return the constants of Lemmas 1 and 3 on the stacked vector of all servers' classifiers.

    Printed: a and n c_3 + a. Server i's share of the objective has a / n and c_3 + a / n, and
    so has their sum, each depending on a part of the vector of its own.
    """
    if corrected:
        return Constants(regularization / parties, curvature + regularization / parties)
    return Constants(regularization, parties * curvature + regularization)


@dataclass(frozen=True)
class Condition:
    """Condition (25): it can be met by some b and lambda_1 exactly where phi exceeds required."""

    phi: float
    required: float

    @property
    def feasible(self) -> bool:
        """Whether any b > 0 and lambda_1 meet it."""
        return self.phi > self.required


def condition(graph: Spectrum, of: Constants) -> Condition:
    """Return the supremum of phi over lambda_1 > 1, and what (25) asks of it as b goes to 0."""
    return Condition(_phi(graph, of, math.inf), (graph.plus_max / graph.plus_min) ** 2 - 1)


def _phi(graph: Spectrum, of: Constants, lambda_1: float) -> float:
    plus_min, plus_max = graph.plus_min**2, graph.plus_max**2
    share = 2 * of.convexity * (graph.minus_min / 2) * plus_min
    whole = of.smoothness**2 * plus_min + 2 * of.convexity * plus_max
    return (1 - 1 / lambda_1) * share / whole


@dataclass(frozen=True)
class Convergence:
    """Lemma 5: penalty, rate C and the weight H_2 of the noise."""

    penalty: float
    rate: float
    noise_weight: float


def lemma_5(
    graph: Spectrum,
    of: Constants,
    *,
    b: float = 1e-3,
    lambda_1: float = 1e3,
    lambda_2: float = 2.0,
    share: float = 0.5,
) -> Convergence | None:
    """Return Lemma 5's constants; None where (25) fails and it says nothing.

    Parameters
    ----------
    graph, of
        The graph's eigenvalues and the objective's constants.
    b, lambda_1, lambda_2
        Free constants, b in (0, 1) and the others above 1.
    share
        alpha as a part of the smaller of M_1 and M_2.
    """
    phi = _phi(graph, of, lambda_1)
    low, high, root = graph.plus_min**2, graph.plus_max**2, graph.minus_min / 2
    gap = (1 - b) * (1 + phi) * low - high
    if gap <= 0:
        return None
    kept = b * low * (1 - 1 / lambda_2)
    first = (1 + phi) * kept / (4 * kept + 16 * graph.mean_max**2)
    second = gap / (4 * high + 4 * (1 - b) * low)
    alpha = share * min(first, second)
    smooth = of.smoothness**2
    lambda_3 = 1 + 2 * of.convexity * high / (smooth * low)
    lambda_4 = 1 + math.sqrt(
        (smooth * low + 2 * of.convexity * high) / (alpha * lambda_3 * smooth * low)
    )
    penalty = math.sqrt(
        lambda_1 * lambda_3 * (lambda_4 - 1) * smooth / (lambda_4 * (lambda_1 - 1) * high * root)
    )
    rate = (1 + 4 * alpha) * high / ((1 - b) * (1 + phi - 4 * alpha) * low)
    inner = math.sqrt(phi) + math.sqrt(
        2 * (lambda_1 - 1) * root / (alpha * lambda_1 * lambda_3 * smooth)
    )
    spread = 4 * phi * lambda_1 * graph.mean_max**2 / root + high * inner**2
    weight = b * (lambda_2 - 1) / (1 - b) + spread / (
        (1 - b) * (1 + phi) * (1 + phi - 4 * alpha) * low
    )
    return Convergence(penalty, rate, weight)


def rademacher(
    radius: float, rows: int, data: NDArray[np.float64] | None = None
) -> tuple[float, float]:
    r"""Return bounds on Rad_i(W) of the linear classifiers of norm at most r, below and above.

    .. math:: \mathrm{Rad}_i = \frac{r}{m}\,\mathbb E\Bigl\|\sum_j\nu_j x_j\Bigr\|,\qquad
        \frac{r}{m\sqrt2}\Bigl(\sum_j\|x_j\|^2\Bigr)^{1/2} \le \mathrm{Rad}_i
        \le \frac{r}{m}\Bigl(\sum_j\|x_j\|^2\Bigr)^{1/2} \le \frac{r}{\sqrt m}

    since the supremum of :math:`w\cdot v` over the ball is :math:`r\|v\|` and
    :math:`\mathbb E\|\sum\nu_j x_j\|^2 = \sum\|x_j\|^2` (Jensen above, Khintchine and Kahane with
    Latala's and Oleszkiewicz's constant below). Without ``data`` every row counts with its largest
    norm, 1: then the first is no bound for other rows, and the second, a public number, is one for
    all. From rows, both are as private as the rows.

    Parameters
    ----------
    radius
        r. A regularised optimum has ``||w|| <= n L / a``: there the gradients add up to 0.
    rows
        m, the number of rows.
    data
        The rows, ``(m, d)``.
    """
    squares = float(rows) if data is None else float(np.sum(np.square(data)))
    above = radius * math.sqrt(squares) / rows
    return above / math.sqrt(2), above


def data_term(
    label_epsilon: float,
    rows: ArrayLike,
    complexity: ArrayLike,
    *,
    failure: float,
    loss_bound: float,
    slope: float = 1.0,
) -> float:
    """Return the sum over servers in (27) that randomised labels and few rows cost.

    Parameters
    ----------
    label_epsilon, rows
        Of the labels; rows of each server.
    complexity
        Rademacher complexity of the classifiers on each server's rows: :func:`rademacher`.
    failure
        The probability delta with which the bound may fail.
    loss_bound, slope
        c_1 and c_2, of a class of bounded classifiers.
    """
    counts: NDArray[np.float64] = np.asarray(rows, dtype=np.float64)
    deviation = 2 * loss_bound * np.sqrt(2 * math.log(4 / failure) / counts)
    factor = lipschitz(label_epsilon, corrected=False)
    return float(4 * factor * np.sum(slope * np.asarray(complexity) + deviation))


def _objective_noise(of: Constants, parties: int, bound: float, squares: float) -> float:
    """||eta||^2 / (n^2 kappa) with ||eta_i||^2 <= squares R^2: (32), the cost of eta_i."""
    return squares * bound**2 / (parties * of.convexity)


def corollary_1(
    of: Constants, parties: int, bound: float, data: float, *, features: int = 1
) -> float:
    """Return (35), for the optimum under eta_i; printed with 1 for the number of features.

    The paper takes the largest entry of eta_i for its norm; the norm is sqrt(d) times as large.
    """
    return data / parties + _objective_noise(of, parties, bound, features)


def corollary_2(parties: int, data: float) -> float:
    """Return (37), for the optimum without the noise of phase 2."""
    return data / parties


def theorem_2(penalty: float, rounds: int, start: float, auxiliary: float, data: float) -> float:
    """Return (36): the sum over servers after t rounds without the noise of phase 2.

    ``start`` is the squared distance of the first classifiers from the optimum in the norm of
    ``L_+ / 2``, and ``auxiliary`` the squared norm of r(0).
    """
    return penalty / rounds * (start + auxiliary) + data


def theorem_1(
    graph: Spectrum,
    of: Constants,
    found: Convergence,
    *,
    rounds: int,
    decay: float,
    variance: float,
    bound: float,
    parties: int,
    data: float,
    start: float = 0.0,
    auxiliary: float = 0.0,
    features: int = 1,
    corrected: bool = True,
) -> float:
    """Return (27): the sum over servers, in expectation over the noise, after t rounds.

    It is about averages of classifiers before their noise, which are never released.

    Parameters
    ----------
    graph, of, found
        The graph, the objective and what Lemma 5 says about them.
    rounds, decay
        t, and rho, which must be below the rate C.
    variance
        sum_i d V_i^2.
    bound, parties, data
        R, n, and :func:`data_term`.
    start, auxiliary
        H_1 and H_3.
    features, corrected
        d; printed, the norm of eta_i counts as its largest entry, and the last term of (24)
        lacks a factor 1 / n.
    """
    if not 0 < decay < found.rate < 1:
        raise ValueError(f"decay must be in (0, C) with C = {found.rate:g} below 1; got {decay!r}")
    squares = features if corrected else 1
    twisted = bound**2 * squares / (2 * parties) if corrected else parties / 2 * bound**2
    drift = found.rate / (1 - found.rate) / (2 * rounds)
    drift *= start + decay * found.noise_weight / (found.rate - decay) * variance
    ratio = graph.plus_max**2 / (2 * graph.minus_max**2) + graph.minus_max
    travel = found.penalty / rounds * (auxiliary + ratio * variance / (1 - decay))
    return drift + twisted + travel + _objective_noise(of, parties, bound, squares) + data
