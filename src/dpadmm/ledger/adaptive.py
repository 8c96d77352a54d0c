r"""Whether releases that were chosen along the way stay within the budget of a planned run.

Where a run goes on after somebody was lost, what is left of it depends on who was lost and when,
and others may have chosen both after seeing messages. Theorems for parameters that were fixed in
advance do not cover that. What does is decided by the planned releases alone, before anything is
seen, since a choice between two rules would itself be made along the way:

* Gaussian releases: the Gaussian filter, :math:`\sum_t\mu_t^2\le\mu^2`;
* Gaussian objective perturbation: the Renyi filter at one order, that of the planned run;
* all others, for which no filter is known that a planned run would pass: in its place, each release
  costs no more than the planned one. Then the planned parameters, which were fixed in advance,
  bound every course of the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Final

from dpadmm.errors import BudgetError
from dpadmm.ledger.filters import Policy
from dpadmm.privacy.accountant import epsilon_spent
from dpadmm.privacy.curves import gaussian_mu_squared
from dpadmm.privacy.events import (
    Composed,
    Event,
    GaussianObjectivePerturbation,
    GaussianRelease,
    InexactSolve,
    PostProcessing,
    PureRelease,
    Repeated,
    SharedGaussian,
    SubsampledGaussian,
    single_events,
)
from dpadmm.privacy.figures import AtMost
from dpadmm.privacy.rounding import round_up

# Costs that are equal on paper may differ by rounding: then a release may cost so much more, if the
# budget has room for a plan whose releases all do.
_ROUNDING: Final = 1e-9


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
        most = [_scaled(event, 1 + _ROUNDING) for event in planned]
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
