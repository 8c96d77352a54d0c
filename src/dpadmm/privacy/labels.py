"""What is proven for one row's label when labels were randomised before anything else.

Labels and rows have separate guarantees: the row's comes from the releases alone (it holds
whatever happened to the labels before), the label's from the randomisation and the releases
together. Neither is added to the other.
"""

from __future__ import annotations

import math

from dpadmm.privacy.accountant import Guarantee, History, total_mu
from dpadmm.privacy.events import LabelRandomizedResponse
from dpadmm.privacy.gaussian import gaussian_log_delta
from dpadmm.privacy.rounding import exp_up


def joint_label_delta(label_epsilon: float, mu_label: float, epsilon: float) -> float:
    r"""Return delta for one row's label, randomised once, then seen through Gaussian releases.

    .. math:: \delta(\epsilon') = (1-p-pe^{\epsilon'})\,\delta_\mu\Big(
              \ln\frac{(1-p)e^{\epsilon'}-p}{1-p-pe^{\epsilon'}}\Big),\quad p = 1/(1+e^\epsilon)

    and 0 from the label's own epsilon on. ``mu_label`` is the total over all rounds for a flip of
    the label in the *reported* data. Against the other parties only: the party that holds the
    reported labels has ``label_epsilon``.
    """
    if not (label_epsilon > 0 and mu_label >= 0 and epsilon >= 0):
        raise ValueError(
            "label_epsilon must be positive, mu_label and epsilon non-negative;"
            f" got {label_epsilon!r}, {mu_label!r}, {epsilon!r}"
        )
    if epsilon >= label_epsilon or mu_label == 0:
        return 0.0
    # 1 - p - p e^x = p (e^label - e^x), written without cancellation near the end.
    share = -math.expm1(epsilon - label_epsilon) / (1 + math.exp(-label_epsilon))
    inner = math.log1p(math.expm1(epsilon) / share)
    # The curve's own margin is cut off where delta is 1: one for the share.
    return exp_up(math.log(share) + 1e-12 + float(gaussian_log_delta(inner, mu_label)))


def joint_label_guarantee(
    randomization: LabelRandomizedResponse, releases: History, delta: float
) -> Guarantee:
    """Return epsilon for one row's label against the other parties.

    Parameters
    ----------
    randomization : LabelRandomizedResponse
        The labels' one randomisation.
    releases : history
        Gaussian events whose sensitivity is that of flipping one reported label.
    delta : float
        In [0, 1); with 0 the randomisation alone counts.
    """
    if not 0 <= delta < 1:
        raise ValueError(f"delta must be in [0, 1); got {delta!r}")
    mu = total_mu(releases)
    low, high = 0.0, randomization.epsilon
    if joint_label_delta(high, mu, 0.0) <= delta:
        high = 0.0
    while high - low > 1e-12 * high and delta > 0:
        middle = (low + high) / 2
        if joint_label_delta(randomization.epsilon, mu, middle) <= delta:
            high = middle
        else:
            low = middle
    theorem = "randomised response followed by Gaussian releases, label of one row"
    return Guarantee(high, delta, "joint-label", theorem, scope="label")
