r"""PR-ADMM's theorems: totals of the schedules, the threshold and the convergence bounds.

Sums are in units of the first iteration's :math:`\rho_1`; :math:`g_k = s_k^2/s_1^2`. Of each
figure that is wrong or loose in the paper there are two functions, as printed and as corrected.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from dpadmm.algorithms.pr_admm import inverse_variance_sum, iteration, periodic
from dpadmm.plain import Array
from dpadmm.problem.site import Topology

# Eigenvalues of a Laplacian below this part of the largest count as zero.
_ZERO: Final = 1e-9


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Lemma 3: ``rho + 2 sqrt(rho ln(1/delta))``."""
    return rho + 2 * math.sqrt(-rho * math.log(delta))


def zcdp_rho(epsilon: float, delta: float) -> float:
    """The rho whose Lemma 3 gives ``epsilon``."""
    log = -math.log(delta)
    return (epsilon / (math.sqrt(log + epsilon) + math.sqrt(log))) ** 2


def periodic_total_printed(rounds: int, decay: float, period: int = 1) -> float:
    r"""Theorem 3: :math:`\frac{K_p(1-R^{J})}{R^{J-1}-R^{J}} - 1`, J = K / K_p.

    The "-1" forgets an iteration: a single one would cost nothing.
    """
    whole = rounds / period
    return period * (1 - decay**whole) / (decay ** (whole - 1) - decay**whole) - 1


def periodic_total(rounds: int, decay: float, period: int = 1) -> float:
    """The sum of 1/g over the rounds; the period need not divide them."""
    return inverse_variance_sum(periodic(rounds, decay, period))


def iteration_total(rounds: int, decay: float) -> float:
    r"""Theorem 4: :math:`R_T K(K^2-1)/3 + 1`, right if the first iteration has variance s_1^2.

    Eq. (15) would divide by zero there.
    """
    return decay * rounds * (rounds**2 - 1) / 3 + 1


def laplacians(topology: Topology) -> tuple[Array, Array]:
    """L+ = D + A and L- = D - A."""
    adjacency = np.asarray(topology.adjacency.toarray(), dtype=np.float64)
    degrees = np.diag(adjacency.sum(axis=1))
    return degrees + adjacency, degrees - adjacency


def spectrum(topology: Topology) -> tuple[float, float, float]:
    """Largest eigenvalues of L+ and of Q = sqrt(L-/2); least positive one of L-."""
    plus, minus = laplacians(topology)
    signed = np.linalg.eigvalsh(minus)
    positive = signed[signed > _ZERO * signed[-1]]
    largest = float(np.linalg.eigvalsh(plus)[-1])
    return largest, math.sqrt(signed[-1] / 2), float(positive[0])


def deviation_bound(topology: Topology, penalty: float, norm: float, gradient: float) -> float:
    r"""Lemma 4: the bound U-hat on the deviation summed over a run without noise.

    .. math:: \hat U = (\phi_{max}(L_+) + 2\phi_{max}(Q)) V_1^2
              + \frac{2V_2^2}{\eta^2\phi_{min}(L_-)} + 1

    ``norm`` is V_1, ``gradient`` is V_2, both of all parties stacked. As printed: the proof uses
    ||a + b||^2 <= ||a||^2 + ||b||^2, which is false, and bounds a sum of norms by squares.
    """
    largest, root, least = spectrum(topology)
    return (largest + 2 * root) * norm**2 + 2 * gradient**2 / (penalty**2 * least) + 1


def threshold(topology: Topology, penalty: float, norm: float, gradient: float) -> float:
    """U = U-hat / (sqrt(2) E) with E edges: the threshold that Lemma 4 suggests."""
    return deviation_bound(topology, penalty, norm, gradient) / (math.sqrt(2) * len(topology.edges))


def noise_accumulated_printed(schedule: str, decay: float, period: int = 1) -> float:
    """Sum of g in Theorems 5 and 6: ``K_p / (1 - R_P)``, or ``1 / R_T``."""
    return period / (1 - decay) if schedule == "periodic" else 1 / decay


def noise_accumulated(schedule: str, rounds: int, decay: float, period: int = 1) -> float:
    """The sum of g over the rounds; Theorem 6 leaves the first one out."""
    if schedule == "periodic":
        return float(periodic(rounds, decay, period).sum())
    return float(iteration(rounds, decay).sum())


def convergence_bound(
    topology: Topology,
    penalty: float,
    rounds: int,
    *,
    first: Array,
    optimum: Array,
    deviation: float,
    first_variances: float,
    accumulated: float,
    corrected: bool = True,
) -> float:
    r"""Theorems 5 and 6: a bound on the expected excess of the objective.

    .. math:: \frac{\eta}{K}\Bigl(\|Qx^0\|^2 + \|x^0-x^*\|^2_{L_+/2} + 2\hat U^2
              + \frac{d\,\phi_{max}^2(L_+)\sum_i s_{i,1}^2}{2\phi_{min}(L_-)}\textstyle\sum_k g_k
              \Bigr)

    Printed, the second norm is that of :math:`L_-/2`, in which the parties' common optimum is 0:
    from :math:`x^0 = 0` nothing would be left of it. The proof's G has :math:`L_+/2`. The bound
    concerns the average of iterates before noise, which may not be released, and assumes a bound
    U-hat on a sum of Gaussian norms, which has none.

    Parameters
    ----------
    topology, penalty, rounds
        The graph, eta and K.
    first, optimum
        x^0 of every party, ``(parties, d)``, and the optimum, ``(d,)``.
    deviation
        U-hat.
    first_variances
        The sum over parties of the first variances.
    accumulated
        The sum of g: :func:`noise_accumulated` or :func:`noise_accumulated_printed`.
    corrected
        With the norm of the proof; False as printed.
    """
    plus, minus = laplacians(topology)
    largest, _, least = spectrum(topology)
    apart = first - optimum
    start = float(np.sum(first * (minus @ first))) / 2
    distance = float(np.sum(apart * ((plus if corrected else minus) @ apart))) / 2
    noise = first.shape[1] * largest**2 * first_variances * accumulated / (2 * least)
    return penalty / rounds * (start + distance + 2 * deviation**2 + noise)
