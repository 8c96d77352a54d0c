r"""Privacy filters: budgets that hold even when each run is chosen after seeing the ones before.

Composition theorems assume that every parameter is fixed in advance. Over the life of a data set
that is never so: who plans the next run has seen the last one. A *filter* decides before each
release, from the costs so far, whether it may still happen; the whole sequence then satisfies the
budget whatever was chosen from what was seen. Two filters are known to lose nothing against
composition of fixed parameters in their own unit:

``gaussian``
    Releases that are each :math:`\mu_t`-GDP, given those before, are :math:`\mu`-GDP together if
    always :math:`\sum_t\mu_t^2\le\mu^2`, with :math:`\mu` fixed in advance.
``renyi``
    Releases with Renyi divergence :math:`\rho_t` at one order a, given those before, have at most
    :math:`\rho` together if always :math:`\sum_t\rho_t\le\rho`, with a and :math:`\rho` fixed in
    advance.

No filter is known for privacy-loss distributions, nor for the best of several orders chosen
afterwards. For the same reason a ledger cannot change from one filter to the other: which of the
two bounds applies would depend on what was seen, so it is fixed when the ledger is created.

The bound itself, :math:`\mu` or :math:`\rho`, is fixed in advance, too. An owner may amend it:
costs are in the same unit before and after, and releases that kept to the old bound and then to the
new one have kept to the new one throughout, if what was spent was within it. The theorems then hold
with the new bound, unless it was itself chosen from what was released.

Refusing a release, and counting one that never happened, only lower what is released. Releases of
several runs may interleave: each is made at once, from rows and earlier messages, so that runs
side by side are one sequence.

**Within one run.** Where a run goes on after somebody was lost, what is left of it depends on who
was lost and when, and others may have chosen both after seeing messages. Theorems for parameters
that were fixed in advance do not cover that. What does is decided by the planned releases alone,
before anything is seen, since a choice between two rules would itself be made along the way:

* Gaussian releases: the Gaussian filter, :math:`\sum_t\mu_t^2\le\mu^2`;
* Gaussian objective perturbation: the Renyi filter at one order, that of the planned run;
* all others, for which no filter is known that a planned run would pass: in its place, each release
  costs no more than the planned one. Then the planned parameters, which were fixed in advance,
  bound every course of the run.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar, Final, final

import numpy as np

from dpadmm.errors import (
    BudgetError,
    ParameterError,
    positive_integer,
    positive_number,
    unknown_name,
)
from dpadmm.privacy.accountant import epsilon_spent
from dpadmm.privacy.curves import gaussian_mu_squared, rdp, renyi_to_epsilon
from dpadmm.privacy.events import (
    Composed,
    Event,
    GaussianObjectivePerturbation,
    GaussianRelease,
    InexactSolve,
    LabelRandomizedResponse,
    NonPrivate,
    PostProcessing,
    PureRelease,
    Repeated,
    SharedGaussian,
    SubsampledGaussian,
    single_events,
)
from dpadmm.privacy.figures import AtMost, Given
from dpadmm.privacy.gaussian import gaussian_epsilon, gaussian_mu, round_up, steepness
from dpadmm.privacy.noise import LEAST_DELTA

# A run calibrated to exactly this budget may exceed it by the rounding of its own sum. The Gaussian
# curve is rounded up by 1e-11 in ln(delta), which is worth more than this in mu^2, beside what the
# costs are rounded by, where it is no steeper than so: 1500 (1e-14 / 2 + 1e-15) = 9e-12.
_ROUNDING: Final = 1e-14
_STEEPEST: Final = 1500.0
# A request for exactly the epsilon that fits must not fail by the rounding of the search.
_ROUNDED_DOWN: Final = 1e-8


@dataclass(frozen=True)
class Policy:
    """What may ever be spent on a data set, for one person.

    What an event costs is fixed when a ledger is created: the filter, its order and the rows per
    person. What may be spent can be amended.

    Parameters
    ----------
    epsilon, delta
        The total over all runs ever made.
    rows_per_person
        How many rows one person may have in the data set.
    filter
        "gaussian" (Gaussian releases only, tight) or "renyi" (all releases).
    order
        The order of the Renyi filter; None takes the one that allows most Gaussian noise releases.
    colluders
        Noise that parties share must hold against at least so many of them.
    epsilon_alone
        The total, at delta, if all other parties collude. Where neither is given the owner has not
        agreed to count on the noise of others: ``epsilon`` must hold in that case, too.
    """

    epsilon: float
    delta: float
    rows_per_person: int = 1
    filter: str = "gaussian"
    order: float | None = None
    colluders: int | None = None
    epsilon_alone: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", positive_number("epsilon", self.epsilon))
        delta = positive_number("delta", self.delta)
        if not LEAST_DELTA <= delta < 1:
            raise ParameterError(
                f"delta must be at least {LEAST_DELTA:g} and below 1; got {self.delta!r}."
            )
        object.__setattr__(self, "delta", delta)
        rows = positive_integer("rows_per_person", self.rows_per_person)
        object.__setattr__(self, "rows_per_person", rows)
        if self.filter not in FILTERS:
            raise unknown_name("filter", self.filter, FILTERS)
        self._check_shared()
        if self.filter == "gaussian":
            if self.order is not None:
                raise ParameterError(
                    f"order must be left out with the gaussian filter; got {self.order!r}."
                )
            return
        order = best_order(self.epsilon, delta) if self.order is None else self.order
        order = positive_number("order", order)
        if order <= 1 or _renyi_limit(order, self.epsilon, delta) <= 0:
            raise ParameterError(
                "order must be above 1 and leave something to spend at this epsilon and delta; "
                f"got {order!r}. Leave it out to have it chosen."
            )
        object.__setattr__(self, "order", order)

    def _check_shared(self) -> None:
        """Check what is demanded of noise that parties share."""
        if self.colluders is not None:
            object.__setattr__(self, "colluders", positive_integer("colluders", self.colluders))
        if self.epsilon_alone is not None:
            bound = positive_number("epsilon_alone", self.epsilon_alone)
            if bound < self.epsilon:
                raise ParameterError(
                    f"epsilon_alone must be at least epsilon, {self.epsilon!r}: against all others "
                    f"together nothing costs less; got {self.epsilon_alone!r}."
                )
            object.__setattr__(self, "epsilon_alone", bound)

    @property
    def bound_alone(self) -> float:
        """The bound on epsilon if all other parties collude; infinite without one."""
        if self.epsilon_alone is not None:
            return self.epsilon_alone
        return self.epsilon if self.colluders is None else math.inf

    @property
    def least_colluders(self) -> float:
        """Against how many colluders epsilon must hold; infinite for all others together."""
        return math.inf if self.bound_alone <= self.epsilon else self.colluders or 0

    def amended(self, **changes: Any) -> Policy:
        """Return it with another epsilon, delta, colluders or epsilon_alone; None keeps one."""
        given = {name: new for name, new in changes.items() if new is not None}
        epsilon, delta = (given.get(name, getattr(self, name)) for name in ("epsilon", "delta"))
        order = self.order
        if order is not None and epsilon > 0 < delta and _renyi_limit(order, epsilon, delta) <= 0:
            raise ParameterError(
                f"epsilon and delta must leave something to spend at the ledger's order of "
                f"{order:.6g}, which is fixed; got {epsilon!r} and {delta!r}."
            )
        return replace(self, **given)

    def looser(self, after: Policy) -> tuple[str, ...]:
        """What a later policy allows that this one does not, in words; nothing if it is tighter.

        Looser are a larger epsilon, a larger delta, noise that holds against fewer colluders, and a
        larger bound for the case that all others collude, whatever else gets tighter.
        """
        found = []
        for name in ("epsilon", "delta"):
            before, now = getattr(self, name), getattr(after, name)
            if now > before:
                found.append(f"{name} grows from {Given(before)} to {Given(now)}")
        # A bound for the case that all collude may already be below what epsilon was.
        held = after.bound_alone <= self.epsilon
        if after.least_colluders < self.least_colluders and not held:
            before_words, now_words = (
                "all others together"
                if math.isinf(policy.least_colluders)
                else f"{policy.least_colluders} colluders"
                for policy in (self, after)
            )
            found.append(
                f"epsilon need hold against {now_words} only, which held against {before_words}"
            )
        if after.bound_alone > self.bound_alone:
            now_words = (
                "has no bound"
                if math.isinf(after.bound_alone)
                else f"may be {Given(after.bound_alone)}"
            )
            found.append(
                f"if all others collude epsilon {now_words}, and was at most "
                f"{Given(self.bound_alone)}"
            )
        return tuple(found)

    def make_filter(self) -> PrivacyFilter:
        """The rule that enforces it."""
        return FILTERS[self.filter](self)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for the first row of a ledger; demands that are not made go unsaid."""
        optional = ("colluders", "epsilon_alone")
        return {
            name: value
            for name, value in asdict(self).items()
            if name not in optional or value is not None
        }


class PrivacyFilter(ABC):
    """Costs in a unit in which they add up, and how much of it there is."""

    #: The name in a policy.
    name: ClassVar[str]
    #: What it rests on.
    theorem: ClassVar[str]
    #: What ``limit`` and the costs measure.
    unit: str
    #: What may be spent in all, and what if all other parties collude.
    limit: float
    limit_alone: float = math.inf

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.limit = self._limit(policy.epsilon)
        if math.isfinite(policy.bound_alone):
            self.limit_alone = self._limit(policy.bound_alone)
        # Rounds of a run repeat the same event, and some costs are integrals.
        self._cached_cost = lru_cache(maxsize=4096)(self._cost)

    def cost(self, event: Event) -> float:
        """What the event uses of the limit; refused if that is unknown or infinite."""
        return self._cached_cost(event)

    def _cost(self, event: Event) -> float:
        for part, _ in single_events(event):
            if isinstance(part, NonPrivate):
                raise BudgetError(
                    "a release without noise must not be charged to a ledger: no policy allows it. "
                    "Use a private algorithm."
                )
            if isinstance(part, LabelRandomizedResponse):
                raise BudgetError(
                    "label-randomized-response must not be charged to a ledger: it protects "
                    "labels, and the budget is for rows."
                )
            least = self.policy.colluders
            if isinstance(part, SharedGaussian) and least is not None and part.colluders < least:
                raise BudgetError(
                    f"noise that parties share must hold against at least {least} colluders by the "
                    f"policy of this ledger; this release holds against {part.colluders}. Agree on "
                    "a run with more, or with noise = 'own'."
                )
        total = math.fsum(count * self._part_cost(part) for part, count in single_events(event))
        if not math.isfinite(total):
            raise BudgetError(self._unknown(event))
        return total

    @abstractmethod
    def _part_cost(self, event: Event) -> float:
        """The cost of an event that is not composed."""

    @abstractmethod
    def _unknown(self, event: Event) -> str:
        """Why the cost of an event is unknown or infinite, and what to do."""

    def epsilon(self, spent: float) -> float:
        """What was spent, as an epsilon at the policy's delta."""
        return self._within(spent, self.limit, self.policy.epsilon)

    def epsilon_alone(self, spent: float) -> float:
        """What was spent if all other parties collude, as an epsilon at the policy's delta."""
        return self._within(spent, self.limit_alone, self.policy.epsilon_alone or math.inf)

    def _within(self, spent: float, limit: float, bound: float) -> float:
        """Rounding must not show more than the bound where the limit is kept."""
        if spent == 0:
            return 0.0
        found = self._convert(spent)
        return min(found, bound) if spent <= limit else found

    @abstractmethod
    def _limit(self, epsilon: float) -> float:
        """What may be spent for an epsilon at the policy's delta."""

    @abstractmethod
    def _convert(self, spent: float) -> float:
        """An epsilon at the policy's delta that what was spent guarantees."""

    @abstractmethod
    def fitting_epsilon(self, left: float) -> float:
        """The largest epsilon, at the policy's delta, of a run of Gaussian releases that fits."""


@final
class GaussianFilter(PrivacyFilter):
    """The sum of mu^2 stays within that of (epsilon, delta); Gaussian releases only."""

    name = "gaussian"
    theorem = (
        "fully adaptive composition of Gaussian differential privacy "
        "(Smith, Thakurta 2022; Koskela, Tobaben, Honkela 2023)"
    )

    unit = "mu^2"

    def _limit(self, epsilon: float) -> float:
        mu = float(gaussian_mu(epsilon, self.policy.delta))
        steep = steepness(epsilon / mu - mu / 2, mu) > _STEEPEST
        return mu**2 if steep else mu**2 * (1 + _ROUNDING)

    def _part_cost(self, event: Event) -> float:
        people = self.policy.rows_per_person
        square = gaussian_mu_squared(event, people)
        if square is None:
            return math.inf
        # A person with a row in each of two parts moves both by all of it (dpadmm.ledger.balance).
        return people**2 * square if isinstance(event, InexactSolve) else square

    def _unknown(self, event: Event) -> str:
        return (
            f"a ledger with the gaussian filter must be charged with Gaussian releases only; got "
            f"{event.kind!r}. Use an algorithm with Gaussian releases. A filter is fixed for "
            "good: only a data set that was never charged may get a ledger with the renyi filter."
        )

    def _convert(self, spent: float) -> float:
        """Invert the Gaussian curve."""
        return float(gaussian_epsilon(math.sqrt(spent), self.policy.delta))

    def fitting_epsilon(self, left: float) -> float:
        """Invert the Gaussian curve, for what is left."""
        if left >= self.limit:
            return self.policy.epsilon
        return self.epsilon(left) * (1 - _ROUNDED_DOWN)


@final
class RenyiFilter(PrivacyFilter):
    """The sum of Renyi divergences at one order stays within what (epsilon, delta) allows there."""

    name = "renyi"
    theorem = (
        "Renyi filter at a fixed order (Feldman, Zrnic 2021; Lecuyer 2021; "
        "conversion of Canonne, Kamath, Steinke 2020)"
    )

    def __init__(self, policy: Policy) -> None:
        assert policy.order is not None
        self.order = policy.order
        self.unit = f"Renyi divergence of order {self.order:.6g}"
        super().__init__(policy)

    def _limit(self, epsilon: float) -> float:
        return _renyi_limit(self.order, epsilon, self.policy.delta)

    def _part_cost(self, event: Event) -> float:
        try:
            return float(rdp(event, self.order, self.policy.rows_per_person)[0])
        except TypeError:
            return math.inf

    def _unknown(self, event: Event) -> str:
        return (
            f"a release must have a finite Renyi divergence at the ledger's order "
            f"{self.order:.6g}; this {event.kind!r} has none. Use a release with a theorem at that "
            "order: more noise, or for objective perturbation a smaller kappa."
        )

    def _convert(self, spent: float) -> float:
        """Convert at the filter's order: no other is valid for choices made along the way."""
        return renyi_to_epsilon([self.order], [spent], self.policy.delta)[0]

    def fitting_epsilon(self, left: float) -> float:
        """The exact epsilon of a Gaussian whose divergence at the order is what is left."""
        mu = math.sqrt(2 * left / self.order)
        return float(gaussian_epsilon(mu, self.policy.delta)) * (1 - _ROUNDED_DOWN)


FILTERS: Final[dict[str, type[PrivacyFilter]]] = {
    filter_.name: filter_ for filter_ in (GaussianFilter, RenyiFilter)
}


def best_order(epsilon: float, delta: float) -> float:
    r"""Return the order at which the Renyi filter allows the largest total mu^2 of Gaussians.

    It maximises :math:`\rho(a)/a` for the largest :math:`\rho(a)` that converts to (epsilon,
    delta) at order a: a function of the policy alone, so that it is fixed before anything is seen.
    """
    low, high = math.log(1e-3), math.log(1e9)
    for _ in range(6):
        grid = np.linspace(low, high, 201)
        orders = 1 + np.exp(grid)
        worth = [_renyi_limit(order, epsilon, delta) / order for order in orders.tolist()]
        best = float(grid[int(np.argmax(worth))])
        width = (high - low) / 200
        low, high = best - width, best + width
    return 1 + math.exp(best)


def _renyi_limit(order: float, epsilon: float, delta: float) -> float:
    """The divergence at ``order`` that converts to exactly (epsilon, delta), rounded down."""
    terms = (epsilon, -math.log1p(-1 / order), (math.log(delta) + math.log(order)) / (order - 1))
    # Of the terms' rounding and of the costs'. Near order 1 the second has an error of its own, and
    # so has the third if its logarithms cancel.
    rounding = 1e-14 * math.fsum(abs(term) for term in terms)
    return math.fsum(terms) - max(rounding, 4e-16 * (1 - math.log(delta)) / (order - 1))


def affordable(left: Fraction, cost: float) -> int | None:
    """How many releases of this cost fit into what is left; None if they are free."""
    return None if cost == 0 else max(math.floor(left / Fraction(cost)), 0)


# Costs that are equal on paper may differ by rounding: then a release may cost so much more, if the
# budget has room for a plan whose releases all do.
_PLANNED_ROUNDING: Final = 1e-9


def overspent(
    planned: Sequence[Event],
    released: Sequence[Event],
    *,
    epsilon: float,
    delta: float,
    rows_per_person: int = 1,
) -> str | None:
    """Return why these releases do not fit into the budget of the planned ones; None if they do.

    Parameters
    ----------
    planned
        What one party was to release, fixed before the run.
    released
        What it has released and would release, in order of time.
    epsilon, delta
        The budget of the planned run.
    rows_per_person
        How many rows are replaced at once.
    """
    kinds = {type(event) for item in planned for event, _ in single_events(item)}
    if GaussianObjectivePerturbation in kinds:
        spent = epsilon_spent(planned, delta, rows_per_person=rows_per_person)
        policy = Policy(epsilon, delta, rows_per_person, "renyi", spent.order)
    elif kinds & {PureRelease, SubsampledGaussian}:
        most = [_scaled(event, 1 + _PLANNED_ROUNDING) for event in planned]
        spent = epsilon_spent(most, delta, rows_per_person=rows_per_person)
        allowed = most if spent.epsilon <= epsilon else planned
        return _dearer(allowed, released, rows_per_person)
    else:
        policy = Policy(epsilon, delta, rows_per_person, "gaussian")
    rule = policy.make_filter()
    try:
        total = sum((Fraction(rule.cost(event)) for event in released), Fraction(0))
    except BudgetError as error:
        return str(error)
    if total <= Fraction(rule.limit):
        return None
    return f"that would spend {AtMost(rule.epsilon(round_up(total)))}"


def _scaled(event: Event, factor: float) -> Event:
    """The event with all its parts costing so many times as much."""
    match event:
        case Composed():
            return Composed(tuple(_scaled(part, factor) for part in event.events))
        case Repeated():
            return replace(event, event=_scaled(event.event, factor))
        case PureRelease():
            return PureRelease(event.epsilon * factor)
        case InexactSolve():
            return replace(event, tolerance=event.tolerance * factor)
        case GaussianRelease() | SharedGaussian() | SubsampledGaussian():
            return replace(event, sensitivity=event.sensitivity * factor)
        case _:
            return event


def _dearer(planned: Sequence[Event], released: Sequence[Event], rows: int) -> str | None:
    """Name the first release that costs more than the planned one in its place."""
    allowed = [event for event in planned if not _is_free(event)]
    paid = [event for event in released if not _is_free(event)]
    if len(paid) > len(allowed):
        return f"that would be {len(paid)} releases where {len(allowed)} were planned"
    for number, (event, bound) in enumerate(zip(paid, allowed, strict=False), start=1):
        if not _costs_no_more(event, bound, rows):
            return f"release {number} would cost more than the one that was planned in its place"
    return None


def _is_free(event: Event) -> bool:
    return all(isinstance(part, PostProcessing) for part, _ in single_events(event))


def _costs_no_more(event: Event, bound: Event, rows: int) -> bool:
    """Whether every part is bounded by its counterpart."""
    parts, bounds = list(single_events(event)), list(single_events(bound))
    return len(parts) == len(bounds) and all(
        count <= most and _bounded(part, other, rows)
        for (part, count), (other, most) in zip(parts, bounds, strict=True)
    )


def _bounded(event: Event, bound: Event, rows: int) -> bool:
    if isinstance(event, PureRelease) and isinstance(bound, PureRelease):
        return event.epsilon <= bound.epsilon
    if isinstance(event, SubsampledGaussian) and isinstance(bound, SubsampledGaussian):
        same = (event.batch, event.population) == (bound.batch, bound.population)
        return same and _exact_mu(event, 1) <= _exact_mu(bound, 1)
    if any(gaussian_mu_squared(each) is None for each in (event, bound)):
        return False
    return _exact_mu(event, rows) <= _exact_mu(bound, rows)


def _exact_mu(event: Event, rows: int) -> Fraction:
    """Of a Gaussian, without rounding."""
    match event:
        case GaussianRelease() | SharedGaussian() | SubsampledGaussian():
            return rows * Fraction(event.sensitivity) / Fraction(event.sigma)
        case InexactSolve():
            reach = 2 * Fraction(event.tolerance) / Fraction(event.strong_convexity)
            return reach / Fraction(event.output_sigma)
        case _:
            return Fraction(0)
