"""Budgets of runs whose rest is chosen along the way."""

import numpy as np
import pytest

from dpadmm.ledger.filters import Policy, overspent
from dpadmm.privacy.accountant import epsilon_spent
from dpadmm.privacy.calibration import gaussian_sigma, objective_sigma, pure_level
from dpadmm.privacy.events import (
    Composed,
    GaussianObjectivePerturbation,
    GaussianRelease,
    InexactSolve,
    PostProcessing,
    PureRelease,
    Repeated,
    SubsampledGaussian,
)

DELTA = 1e-5
BUDGET = {"epsilon": 1.0, "delta": DELTA}


def objective(rounds=20, kappa=0.01, epsilon=1.0):
    """Gaussian objective perturbation that makes use of the whole budget."""
    sigma = objective_sigma(epsilon, DELTA, 1.0, kappa, np.ones(rounds))
    return [GaussianObjectivePerturbation(1 / float(sigma), kappa)] * rounds


def gaussian(rounds=20, epsilon=1.0):
    return [GaussianRelease(1.0, float(gaussian_sigma(epsilon, DELTA, 1.0, np.ones(rounds))))] * (
        rounds
    )


def pure(rounds=20):
    inexact = InexactSolve(1e-6, 1.0, 1e-3)
    level = float(pure_level(1.0, DELTA, rounds, extra=[(inexact, rounds)]))
    return [Composed((PureRelease(level), inexact))] * rounds


def sampled(rounds=20):
    return [SubsampledGaussian(10, 100, 1.0, 2.0)] * rounds


KINDS = [objective, gaussian, pure, sampled]


@pytest.mark.parametrize("kind", KINDS)
def test_a_planned_run_and_every_part_of_it_fits(kind):
    planned = kind()
    for count in (0, 1, 19, 20):
        assert overspent(planned, planned[:count], **BUDGET) is None


@pytest.mark.parametrize("kind", KINDS)
def test_one_release_more_does_not(kind):
    planned = kind()
    assert overspent(planned, [*planned, planned[0]], **BUDGET) is not None


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_free_costs_nothing(kind):
    planned = kind()
    both = [event for release in planned for event in (release, PostProcessing())]
    assert overspent(both, [*both, PostProcessing()], **BUDGET) is None
    # In another rhythm: the same releases with other pauses.
    assert overspent(both, [PostProcessing(), *planned], **BUDGET) is None


def test_the_best_order_of_the_course_that_was_taken_is_no_filter():
    """At its own best order this course fits; at the order that was fixed it does not."""
    planned, delta = objective(), DELTA
    order = epsilon_spent(planned, delta).order
    taken = [*planned[:2], *objective(kappa=0.03, epsilon=0.999)[2:]]
    found = epsilon_spent(taken, delta)
    assert found.epsilon <= 1.0
    assert found.order < order - 1
    assert overspent(planned, taken, **BUDGET).startswith("that would spend ")
    # The rule is the ledger's, at that order.
    rule = Policy(1.0, delta, filter="renyi", order=order).make_filter()
    assert sum(rule.cost(event) for event in taken) > rule.limit
    assert sum(rule.cost(event) for event in planned) <= rule.limit


def test_an_order_without_a_theorem_for_a_release_refuses_it():
    assert "finite Renyi divergence" in overspent(
        objective(), [GaussianObjectivePerturbation(1e-3, 0.5)], **BUDGET
    )


def test_gaussian_releases_may_be_larger_as_long_as_the_sum_is_not():
    planned = gaussian()
    fewer = gaussian(rounds=5)
    assert overspent(planned, fewer, **BUDGET) is None
    assert overspent(planned, [*planned[:1], *fewer], **BUDGET).startswith("that would spend 1.0")


def test_without_a_filter_no_release_may_cost_more_than_the_planned_one():
    planned = pure()
    dearer = pure(rounds=19)
    assert epsilon_spent([planned[0], dearer[0]], DELTA).epsilon < 1
    assert "release 2 would cost more" in overspent(planned, [planned[0], dearer[0]], **BUDGET)
    batch = [SubsampledGaussian(10, 90, 1.0, 2.0)]
    assert "release 1 would cost more" in overspent(sampled(), batch, **BUDGET)
    # Another kind of release has no place in the plan.
    assert overspent(planned, gaussian()[:1], **BUDGET) is not None
    assert overspent(gaussian(), planned[:1], **BUDGET) is not None


def test_rows_of_a_person_count():
    planned = gaussian()
    assert overspent(planned, planned[:4], **BUDGET, rows_per_person=2) is None
    assert overspent(planned, planned[:6], **BUDGET, rows_per_person=2) is not None


# What every release costs in its place, where no filter is known ---------------------------------

GAUSSIAN, SOLVE = GaussianRelease(1.0, 20.0), InexactSolve(1e-6, 1.0, 1e-3)


@pytest.mark.parametrize("factor", [1 + 1e-10, 1 + 1e-8])
@pytest.mark.parametrize(
    ("planned", "released"),
    [
        (PureRelease(0.1), lambda factor: PureRelease(0.1 * factor)),
        (
            SubsampledGaussian(10, 100, 1.0, 20.0),
            lambda factor: SubsampledGaussian(10, 100, 3.0 * factor, 60.0),
        ),
        (
            Composed((PureRelease(0.1), GAUSSIAN)),
            lambda factor: Composed((PureRelease(0.1), GaussianRelease(2.0 * factor, 40.0))),
        ),
        (
            Composed((PureRelease(0.1), SOLVE)),
            lambda factor: Composed((PureRelease(0.1), InexactSolve(2e-6 * factor, 1.0, 2e-3))),
        ),
        (
            Composed((PureRelease(0.1), SOLVE)),
            lambda factor: Composed((PureRelease(0.1), InexactSolve(4e-6 * factor, 4.0, 1e-3))),
        ),
        (
            # The same mu, for two rows of a person and for whatever rows.
            Composed((PureRelease(0.1), SOLVE)),
            lambda factor: Composed((PureRelease(0.1), GaussianRelease(1e-3 * factor, 1.0))),
        ),
    ],
)
def test_a_release_may_be_dearer_by_rounding_alone(planned, released, factor):
    found = overspent([planned], [released(factor)], **BUDGET, rows_per_person=2)
    assert (found is None) == (factor < 1 + 1e-9)
    assert overspent([planned], [released(0.5)], **BUDGET) is None


def test_a_free_part_costs_less_than_any_and_no_part_less_than_a_free_one():
    dear = [Composed((PureRelease(0.1), GAUSSIAN))]
    free = [Composed((PureRelease(0.1), PostProcessing()))]
    assert overspent(dear, free, **BUDGET) is None
    assert overspent(free, free, **BUDGET) is None
    assert "release 1 would cost more" in overspent(free, dear, **BUDGET)


def test_a_course_may_spend_exactly_the_budget():
    most = [PureRelease(0.1 * (1 + 1e-9))] * 4
    told = {"epsilon": epsilon_spent(most, DELTA).epsilon, "delta": DELTA}
    assert overspent([PureRelease(0.1)] * 4, most, **told) is None
    # Squares of doubles are not all doubles: of two budgets about one is met to the last bit.
    for epsilon in np.linspace(1.0, 2.0, 20):
        rule, told["epsilon"] = Policy(epsilon, DELTA).make_filter(), epsilon
        sigma = 1 / rule.limit**0.5 + np.spacing(1 / rule.limit**0.5) * np.arange(-9, 10)
        costs = {rule.cost(GaussianRelease(1.0, s)): GaussianRelease(1.0, s) for s in sigma}
        if rule.limit in costs:
            break
    assert overspent(gaussian(), [costs[rule.limit]], **told) is None
    words = overspent(gaussian(), [costs[min(c for c in costs if c > rule.limit)]], **told)
    assert words.startswith("that would spend ")


@pytest.mark.parametrize("sigma", [1.0, 1.3, 1.7, 1.9])
def test_what_would_be_spent_is_rounded_up(sigma):
    words = overspent(gaussian(), [GaussianRelease(1.0, sigma)], **BUDGET)
    said = float(words.removeprefix("that would spend "))
    spent = epsilon_spent([GaussianRelease(1.0, sigma)], DELTA).epsilon
    assert spent * (1 - 1e-9) <= said < spent * (1 + 1e-4)


@pytest.mark.parametrize("rows", [1, 3])
def test_only_a_budget_with_room_lets_a_release_be_dearer(rows):
    """Else the plan bounds the course, and not by a billionth more."""
    planned = [PureRelease(0.1)] * 4
    spent = epsilon_spent(planned, DELTA, rows_per_person=rows).epsilon
    told = {"delta": DELTA, "rows_per_person": rows}
    dearer = [PureRelease(0.1 * (1 + 1e-10))] * 4
    assert overspent(planned, dearer, epsilon=spent * (1 + 1e-8), **told) is None
    assert "release 1 would cost more" in overspent(planned, dearer, epsilon=spent, **told)
    assert overspent(planned, planned, epsilon=spent, **told) is None
    # Not by the last bit, either.
    mixed = [Composed((PureRelease(0.1), GaussianRelease(1.0, 3.0)))]
    closer = [Composed((PureRelease(0.1), GaussianRelease(1.0, np.nextafter(3.0, 0))))]
    assert "release 1 would cost more" in overspent(mixed, closer, epsilon=0.1, **told)
    assert overspent(mixed, mixed, epsilon=0.1, **told) is None


@pytest.mark.parametrize(
    "other",
    [
        Composed((PureRelease(0.01), GAUSSIAN, GAUSSIAN)),
        Composed((PureRelease(0.01),)),
        Composed((GAUSSIAN, PureRelease(0.01))),
        Composed((PureRelease(0.01), SubsampledGaussian(10, 100, 1e-9, 1.0))),
        Composed((PureRelease(0.01), Repeated(GAUSSIAN, 2))),
        Composed((PureRelease(0.01), PureRelease(0.01))),
        PureRelease(0.01),
    ],
)
def test_a_release_of_other_parts_has_no_place_in_the_plan(other):
    planned = [Composed((PureRelease(0.1), GAUSSIAN))]
    assert "release 1 would cost more" in overspent(planned, [other], **BUDGET)


def test_a_release_with_a_free_part_is_not_free():
    """Else it would have no place among those that are compared, and any size."""
    dear = Composed((PureRelease(5.0), PostProcessing()))
    assert "release 1 would cost more" in overspent([PureRelease(0.1)], [dear], **BUDGET)
    free = Composed((PostProcessing(), PostProcessing()))
    assert overspent([PureRelease(0.1)], [free, free], **BUDGET) is None


@pytest.mark.parametrize("change", [(9, 100), (10, 101), (11, 100)])
def test_another_batch_has_no_place_in_the_plan(change):
    """Even a smaller one: no theorem here compares them."""
    released = [SubsampledGaussian(*change, 1e-3, 2.0)]
    assert overspent(sampled(), released, **BUDGET) is not None


def test_the_number_of_releases_is_named():
    planned = sampled(3)
    words = overspent(planned, [*planned, PostProcessing(), planned[0]], **BUDGET)
    assert words == "that would be 4 releases where 3 were planned"
