"""Conditions on a run that can be checked before it starts, from public facts alone.

What privacy needs is refused where it is needed. What is collected here only makes a run slow,
noisy or wasteful: each finding is one line that says what, how much, how much would do, and what
to change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from dpadmm.privacy.events import (
    Event,
    GaussianRelease,
    InexactSolve,
    PureRelease,
    SharedGaussian,
    single_events,
)
from dpadmm.privacy.sensitivity import jacobian_ratio
from dpadmm.problem.site import Site

_LARGEST_KAPPA: Final = 0.1
_LARGEST_SHARE: Final = 0.5


@dataclass(frozen=True)
class Condition:
    """One condition and what was found.

    Attributes
    ----------
    what
        The quantity, and whose it is.
    measured, needed
        Its value, and the largest that is fine.
    advice
        What to do about it.
    """

    what: str
    measured: float
    needed: float
    advice: str

    @property
    def met(self) -> bool:
        """Whether the value is fine."""
        return self.measured <= self.needed

    def __str__(self) -> str:
        return (
            f"{self.what} is {self.measured:.3g}, more than {self.needed:.3g}: {self.advice}"
            if not self.met
            else f"{self.what} is {self.measured:.3g}, at most {self.needed:.3g}"
        )


def penalty_is_not_too_large(site: Site, penalty: float, rounds: int) -> list[Condition]:
    r"""``2 eta V d / (c c1)``, averaged over the parties, is at most the number of rounds.

    A round moves the parties by about :math:`h / (2\eta V)` of the way to the optimum, h being an
    eigenvalue of the pooled loss's Hessian; their mean is at most :math:`c c_1 / d`, with the mean
    of the parties' weights for c: public numbers. A party of few rows does not slow the others.
    """
    curvature = site.weight.mean() * site.loss.curvature_bound / site.features
    steps = 2 * penalty * site.topology.degrees.mean() / curvature
    return [
        Condition(
            "the number of rounds that a step to the optimum takes, 2 eta V d / (c c1),",
            float(steps),
            float(rounds),
            "the run will end far from the optimum; lower the penalty, or use 'auto'.",
        )
    ]


def jacobian_is_small(site: Site, charged: Sequence[Sequence[Event]]) -> list[Condition]:
    """The kappa = c c1 / (n m) of perturbed objectives is at most 0.1 in every round."""
    kappas = {
        (party, event.strong_convexity): float(
            jacobian_ratio(
                site.rows[party],
                event.strong_convexity,
                weight=site.weight[party],
                curvature=site.loss.curvature_bound,
            )
        )
        for party, history in enumerate(charged)
        for event in _parts(history)
        if isinstance(event, InexactSolve)
    }
    if not kappas:
        return []
    worst = max(kappas, key=lambda key: kappas[key])
    return [
        Condition(
            f"kappa = c c1 / (n m) of party {site.names[worst[0]]}",
            kappas[worst],
            _LARGEST_KAPPA,
            "the Jacobian takes much of the budget; raise the penalty, or use 'auto'.",
        )
    ]


def even_spending(site: Site, charged: Sequence[Sequence[Event]]) -> list[Condition]:
    """No round takes more than half of the budget (squared mu, or epsilon of pure releases)."""
    found = []
    for party, history in enumerate(charged):
        costs = np.array([_cost(event) for event in history])
        if len(costs) > 2 and costs.sum() > 0:
            found.append((float(costs.max() / costs.sum()), party, int(np.argmax(costs))))
    if not found:
        return []
    share, party, t = max(found, key=lambda entry: entry[0])
    return [
        Condition(
            f"the part of the budget that round {t + 1} takes of party {site.names[party]}",
            share,
            _LARGEST_SHARE,
            "the other rounds are mostly noise; use a slower decay or a constant schedule.",
        )
    ]


def findings(
    site: Site, charged: Sequence[Sequence[Event]], rounds: int, penalty: float | None
) -> list[Condition]:
    """Every condition that is not met; without ``penalty`` those on a chosen penalty are left out.

    Parameters
    ----------
    site, rounds
        Public facts.
    charged
        What each party will be charged, round by round.
    penalty
        eta where somebody chose it; None where it was chosen automatically.
    """
    conditions = even_spending(site, charged)
    if penalty is not None:
        conditions += penalty_is_not_too_large(site, penalty, rounds)
        conditions += jacobian_is_small(site, charged)
    return [condition for condition in conditions if not condition.met]


def _parts(history: Sequence[Event]) -> list[Event]:
    return [part for event in history for part, _ in single_events(event)]


def _cost(event: Event) -> float:
    """What shares are measured in: epsilon of pure releases, else squared mu."""
    parts = _parts([event])
    pure = sum(part.epsilon for part in parts if isinstance(part, PureRelease))
    normal = (part for part in parts if isinstance(part, GaussianRelease | SharedGaussian))
    return pure or sum((part.sensitivity / part.sigma) ** 2 for part in normal)
