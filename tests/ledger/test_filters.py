"""Privacy filters: what they allow, to the last digit, and what they refuse."""

import json
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpadmm.errors import BudgetError, ParameterError
from dpadmm.ledger.filters import Policy, affordable, best_order
from dpadmm.privacy.accountant import delta_spent, epsilon_spent
from dpadmm.privacy.curves import rdp, renyi_to_epsilon
from dpadmm.privacy.events import (
    NON_PRIVATE,
    Composed,
    Event,
    GaussianObjectivePerturbation,
    GaussianRelease,
    InexactSolve,
    LabelRandomizedResponse,
    PostProcessing,
    PureRelease,
    Repeated,
    SharedGaussian,
    SubsampledGaussian,
)
from dpadmm.privacy.gaussian import gaussian_delta, gaussian_mu
from dpadmm.privacy.noise import LEAST_DELTA

budgets = st.tuples(st.floats(0.01, 20), st.floats(-12, -1).map(lambda power: 10.0**power))


@given(budgets, st.integers(1, 300), st.integers(1, 5))
def test_a_run_calibrated_to_the_whole_budget_fits_and_spends_all(budget, rounds, rows):
    filter_ = Policy(*budget, rows_per_person=rows).make_filter()
    mu = float(gaussian_mu(*budget)) / rows
    event = GaussianRelease(0.7, 0.7 * math.sqrt(rounds) / mu)
    total = rounds * Fraction(filter_.cost(event))
    assert total <= Fraction(filter_.limit)
    assert float(total) == pytest.approx(filter_.limit, rel=1e-12)
    assert filter_.epsilon(float(total)) == pytest.approx(budget[0], rel=1e-9)


@given(budgets)
def test_the_limit_is_the_budget_to_nine_digits(budget):
    epsilon, delta = budget
    limit = Policy(*budget).make_filter().limit
    assert gaussian_delta(epsilon, math.sqrt(limit)) <= delta * (1 + 1e-9)
    assert gaussian_delta(epsilon, math.sqrt(limit * (1 + 1e-9))) > delta
    renyi = Policy(*budget, filter="renyi").make_filter()
    assert renyi_to_epsilon([renyi.order], [renyi.limit], delta)[0] <= epsilon
    assert renyi_to_epsilon([renyi.order], [renyi.limit * (1 + 1e-9)], delta)[0] > epsilon * (
        1 - 1e-12
    )


@given(budgets, st.sampled_from(["gaussian", "renyi"]), st.floats(0.0, 1.0))
def test_the_epsilon_that_is_said_to_fit_fits(budget, name, share):
    filter_ = Policy(*budget, filter=name).make_filter()
    left = filter_.limit * (1 - share)
    fitting = filter_.fitting_epsilon(left)
    assert 0 <= fitting <= budget[0]
    if fitting > 1e-6:
        event = GaussianRelease(float(gaussian_mu(fitting, budget[1])), 1.0)
        assert filter_.cost(event) <= left * (1 + 1e-14)


def test_gaussian_costs_add_up_over_parts_and_people():
    filter_ = Policy(1.0, 1e-5, rows_per_person=3).make_filter()
    assert filter_.cost(GaussianRelease(0.1, 2.0)) == pytest.approx(0.15**2)
    assert filter_.cost(PostProcessing()) == 0
    both = Composed((GaussianRelease(0.1, 2.0), InexactSolve(0.01, 1.0, 2.0)))
    # Each of three rows of a person, wherever they are, may move a solver by all it is off by.
    assert filter_.cost(both) == pytest.approx(0.15**2 + 0.03**2)


@pytest.mark.parametrize("name", ["gaussian", "renyi"])
def test_a_repeated_event_costs_its_count(name):
    filter_ = Policy(1.0, 1e-5, filter=name).make_filter()
    one = filter_.cost(GaussianRelease(0.1, 2.0))
    nested = Composed((Repeated(Repeated(GaussianRelease(0.1, 2.0), 3), 4), PostProcessing()))
    assert filter_.cost(nested) == pytest.approx(12 * one)
    with pytest.raises(BudgetError, match="no policy allows it"):
        filter_.cost(Repeated(NON_PRIVATE, 2))


@pytest.mark.parametrize("name", ["gaussian", "renyi"])
def test_no_policy_allows_what_is_not_private(name):
    filter_ = Policy(1.0, 1e-5, filter=name).make_filter()
    with pytest.raises(BudgetError, match="no policy allows it"):
        filter_.cost(NON_PRIVATE)
    with pytest.raises(BudgetError, match="no policy allows it"):
        filter_.cost(Composed((GaussianRelease(0.1, 1.0), NON_PRIVATE)))
    with pytest.raises(BudgetError, match="protects labels"):
        filter_.cost(LabelRandomizedResponse(1.0))


@pytest.mark.parametrize(
    "event",
    [
        PureRelease(0.1),
        GaussianObjectivePerturbation(0.05, 0.001),
        SubsampledGaussian(2, 100, 0.1, 1.0),
        Composed((GaussianRelease(0.01, 1.0), PureRelease(0.01))),
    ],
)
def test_other_events_need_the_renyi_filter(event):
    with pytest.raises(BudgetError, match="renyi filter"):
        Policy(1.0, 1e-5).make_filter().cost(event)
    renyi = Policy(1.0, 1e-5, filter="renyi").make_filter()
    assert 0 < renyi.cost(event) < math.inf
    if not isinstance(event, Composed):
        assert renyi.cost(event) == float(rdp(event, renyi.order)[0])


def test_an_order_beyond_a_theorem_is_refused():
    renyi = Policy(1.0, 1e-5, filter="renyi").make_filter()
    with pytest.raises(BudgetError, match="smaller kappa"):
        renyi.cost(GaussianObjectivePerturbation(0.05, 1 / (renyi.order - 1.5)))


def test_a_spent_budget_is_a_guarantee_of_the_accountant():
    """What a filter lets through satisfies (epsilon, delta) by composition as well."""
    filter_ = Policy(1.0, 1e-5, filter="renyi").make_filter()
    events = [PureRelease(0.03), GaussianObjectivePerturbation(0.02, 0.001)] * 500
    spent, kept = 0.0, []
    for event in events:
        if spent + filter_.cost(event) <= filter_.limit:
            spent += filter_.cost(event)
            kept.append(event)
    assert len(kept) < len(events)
    assert epsilon_spent(kept, 1e-5).epsilon <= 1.0
    assert delta_spent(kept, 1.0).delta <= 1e-5


@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-9])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0, 100.0])
def test_the_best_order_is_best_for_gaussians(epsilon, delta):
    chosen = Policy(epsilon, delta, filter="renyi")
    assert chosen.order == best_order(epsilon, delta)
    worth = chosen.make_filter().limit / chosen.order
    for order in 1 + (chosen.order - 1) * np.geomspace(0.5, 2, 21):
        try:
            other = Policy(epsilon, delta, filter="renyi", order=float(order))
        except ParameterError:
            continue
        assert other.make_filter().limit / order <= worth * (1 + 1e-9)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"epsilon": 0.0}, "epsilon must be"),
        ({"epsilon": math.inf}, "epsilon must be"),
        ({"delta": 0.0}, "delta must be"),
        ({"delta": 1.0}, "delta must be"),
        ({"delta": 0.99 * LEAST_DELTA}, "delta must be at least 1e-19"),
        ({"rows_per_person": 0}, "rows_per_person must be"),
        ({"filter": "gausian"}, "gaussian"),
        ({"order": 4.0}, "order must be left out"),
        ({"filter": "renyi", "order": 1.0}, "order must be above 1"),
        ({"filter": "renyi", "order": math.nan}, "order must be a positive number"),
        ({"filter": "renyi", "order": math.inf}, "order must be a positive number"),
        ({"filter": "renyi", "order": "20"}, "order must be a positive number"),
        ({"filter": "renyi", "order": 1.5}, "leave something to spend"),
        ({"filter": "renyi", "order": 9.0}, "leave something to spend"),
    ],
)
def test_policies_are_checked(values, words):
    with pytest.raises(ParameterError, match=words):
        Policy(**({"epsilon": 1.0, "delta": 1e-5} | values))


@pytest.mark.parametrize(
    "values",
    [
        {"filter": "renyi", "order": 10.0},
        {"filter": "renyi", "order": 1.5, "epsilon": 50.0},
        {"epsilon_alone": 1.0},
        {"colluders": 1},
    ],
)
def test_policies_at_the_border_are_taken(values):
    assert Policy(**({"epsilon": 1.0, "delta": 1e-5} | values)).make_filter().limit > 0


def test_a_policy_of_other_numbers_is_kept_as_plain_ones():
    """As they are written down and read again: whatever it was made from, it is the same."""
    policy = Policy(
        np.float32(1.0),
        Fraction(1, 1024),
        np.int64(2),
        "renyi",
        np.float32(20.0),
        np.int32(3),
        Fraction(5, 2),
    )
    plain = {
        "epsilon": 1.0,
        "delta": 1 / 1024,
        "rows_per_person": 2,
        "filter": "renyi",
        "order": 20.0,
        "colluders": 3,
        "epsilon_alone": 2.5,
    }
    assert json.dumps(policy.to_dict()) == json.dumps(plain)


@pytest.mark.parametrize("name", ["gaussian", "renyi"])
@pytest.mark.parametrize("epsilon", [0.1, 0.3, 0.5, 1.0, 1.7, 8.0, 20.0])
def test_a_budget_that_is_used_up_is_shown_as_itself(name, epsilon):
    """Its rounding is counted in the limit, and must not be shown as more."""
    rule = Policy(epsilon, 1e-5, filter=name, epsilon_alone=3 * epsilon).make_filter()
    assert epsilon * (1 - 1e-9) < rule.epsilon(rule.limit) <= epsilon
    assert 3 * epsilon * (1 - 1e-9) < rule.epsilon_alone(rule.limit_alone) <= 3 * epsilon
    beyond = math.nextafter(rule.limit, math.inf) * (1 + 1e-9)
    assert rule.epsilon(beyond) > epsilon
    assert rule.epsilon(0.0) == rule.fitting_epsilon(0.0) == 0
    assert rule.epsilon(1.0) > 0


@pytest.mark.parametrize("name", ["gaussian", "renyi"])
@pytest.mark.parametrize("share", [0.01, 0.3, 0.999])
def test_little_more_than_the_epsilon_that_is_said_to_fit_does_not(name, share):
    rule = Policy(1.0, 1e-5, filter=name).make_filter()
    left = share * rule.limit
    for factor, fits in ((1.0, True), (1 + 1e-6, False)):
        asked = rule.fitting_epsilon(left) * factor
        event = GaussianRelease(float(gaussian_mu(asked, 1e-5)), 1.0)
        assert (rule.cost(event) <= left) == fits


@pytest.mark.parametrize("power", [1, 3, 5, 7, 9])
def test_a_limit_near_order_one_is_rounded_down_where_logarithms_cancel(power):
    """There 1 / order is all that is left, and its last bit is worth 1e-16 / (order - 1)."""
    draw = np.random.default_rng(power)
    for order in (1 + 10.0 ** -draw.uniform(power, power + 0.5, 20)).tolist():
        limit = Policy(1.0, 1 / order, filter="renyi", order=order).make_filter().limit
        with mpmath.workdps(50):
            a, delta = mpmath.mpf(order), mpmath.mpf(1 / order)
            most = 1 - mpmath.log(1 - 1 / a) + mpmath.log(delta * a) / (a - 1)
            assert most * (1 - mpmath.mpf(10) ** (power - 14)) < limit <= most


def test_an_unused_budget_fits_as_a_whole():
    rule = Policy(1.0, 1e-5).make_filter()
    assert rule.fitting_epsilon(rule.limit) == 1.0
    assert rule.fitting_epsilon(math.nextafter(rule.limit, 0)) < 1.0


@pytest.mark.parametrize("name", ["gaussian", "renyi"])
def test_a_release_that_nothing_is_known_of_is_refused(name):
    class Foreign(Event):
        kind = "foreign"

    with pytest.raises(BudgetError, match="'foreign'"):
        Policy(1.0, 1e-5, filter=name).make_filter().cost(Foreign())


def test_the_smallest_delta_of_a_policy():
    assert Policy(1.0, LEAST_DELTA).make_filter().limit > 0


def test_affordable_counts_exactly():
    assert affordable(Fraction(1), 0.25) == 4
    assert affordable(Fraction(1) - Fraction(1, 10**30), 0.25) == 3
    assert affordable(Fraction(1), 0.0) is None
    assert affordable(Fraction(-1), 0.1) == 0


SHARED = SharedGaussian(1.0, 20.0, 20, 9)


@pytest.mark.parametrize("name", ["gaussian", "renyi"])
def test_shared_noise_costs_what_it_costs_against_its_colluders(name):
    rule = Policy(1.0, 1e-5, filter=name, colluders=9).make_filter()
    assert rule.cost(SHARED) == rule.cost(GaussianRelease(1.0, 20.0))
    assert math.isinf(rule.limit_alone)


@pytest.mark.parametrize("name", ["gaussian", "renyi"])
def test_an_owner_who_said_nothing_has_not_agreed_to_count_on_others(name):
    rule = Policy(1.0, 1e-5, filter=name).make_filter()
    assert rule.limit_alone == rule.limit


@pytest.mark.parametrize("name", ["gaussian", "renyi"])
def test_a_policy_can_demand_colluders(name):
    Policy(1.0, 1e-5, filter=name, colluders=9).make_filter().cost(SHARED)
    rule = Policy(1.0, 1e-5, filter=name, colluders=10).make_filter()
    for event in (SHARED, Repeated(SHARED, 2), Composed((PostProcessing(), SHARED))):
        with pytest.raises(BudgetError, match=r"at least 10 colluders .* holds against 9"):
            rule.cost(event)
    rule.cost(GaussianRelease(1.0, 20.0))


@pytest.mark.parametrize(
    ("demand", "words"),
    [
        ({"colluders": 0}, "colluders must be a whole number of at least 1"),
        ({"epsilon_alone": 0.9}, "epsilon_alone must be at least epsilon, 1.0"),
        ({"epsilon_alone": math.inf}, "epsilon_alone must be a positive number"),
    ],
)
def test_demands_that_make_no_sense_are_refused(demand, words):
    with pytest.raises(ParameterError, match=words):
        Policy(1.0, 1e-5, **demand)


def test_demands_that_are_not_made_go_unsaid():
    assert set(Policy(1.0, 1e-5).to_dict()) == {
        "epsilon",
        "delta",
        "rows_per_person",
        "filter",
        "order",
    }
    policy = Policy(1.0, 1e-5, colluders=2, epsilon_alone=4.0)
    assert Policy(**policy.to_dict()) == policy
