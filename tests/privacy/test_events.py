import json
import math
from dataclasses import FrozenInstanceError, dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

from dpadmm.privacy.accountant import epsilon_spent
from dpadmm.privacy.curves import rdp
from dpadmm.privacy.events import (
    EVENT_KINDS,
    NON_PRIVATE,
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
    alone,
    event_from_dict,
    parts_add_up,
    shared_events,
)

EXAMPLES = [
    PostProcessing(),
    NonPrivate(),
    GaussianRelease(0.1, 1 / 3),
    SharedGaussian(0.1, 1 / 3, 5, 2),
    PureRelease(0.1),
    GaussianObjectivePerturbation(0.05, 1e-5),
    InexactSolve(1e-10, 1.0, 1e-6),
    SubsampledGaussian(20, 1000, 2.0, 0.8),
    LabelRandomizedResponse(1.0),
    Repeated(SubsampledGaussian(2, 10, 1.0, 2.0), 49),
    Composed((PureRelease(0.1), Composed((InexactSolve(1e-10, 1.0, 1e-6), PostProcessing())))),
]


@pytest.mark.parametrize("event", EXAMPLES, ids=lambda event: event.kind)
def test_an_event_survives_json_and_is_frozen(event):
    assert event_from_dict(json.loads(json.dumps(event.to_dict()))) == event
    assert hash(event) == hash(event_from_dict(event.to_dict()))
    with pytest.raises((FrozenInstanceError, TypeError)):
        event.anything = 1


def test_every_kind_has_an_example_and_a_statement():
    assert {event.kind for event in EXAMPLES} == set(EVENT_KINDS)
    assert all(len(cls.__doc__) > 60 for cls in EVENT_KINDS.values())


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (
            lambda: GaussianRelease(-1, 1),
            "sensitivity must be a non-negative finite number; got -1",
        ),
        (lambda: GaussianRelease(1, 0), "sigma must be a positive finite number; got 0"),
        (lambda: GaussianRelease(1, float("nan")), "sigma .* got nan"),
        (lambda: GaussianRelease(True, 1), "sensitivity .* got True"),
        (lambda: GaussianRelease("1", 1), "sensitivity .* got '1'"),
        (lambda: PureRelease(float("inf")), "epsilon .* got inf"),
        (lambda: GaussianObjectivePerturbation(1, -0.1), "kappa .* got -0.1"),
        (lambda: InexactSolve(1e-9, 0, 1), "strong_convexity .* got 0"),
        (lambda: SubsampledGaussian(1.5, 10, 1, 1), "batch must be a positive integer; got 1.5"),
        (lambda: SubsampledGaussian(11, 10, 1, 1), "batch must be at most population = 10; got 11"),
        (lambda: SubsampledGaussian(True, 10, 1, 1), "batch must be a positive integer; got True"),
        (lambda: SubsampledGaussian(0, 10, 1, 1), "batch must be a positive integer; got 0"),
        (lambda: SubsampledGaussian(1, 10, -1, 1), "sensitivity .* got -1"),
        (lambda: SubsampledGaussian(1, 10, 1, 0), "sigma .* got 0"),
        (lambda: SharedGaussian(-1, 1, 5, 2), "sensitivity .* got -1"),
        (lambda: SharedGaussian(1, 0, 5, 2), "sigma .* got 0"),
        (lambda: SharedGaussian(1, 1, 5.5, 2), "parties must be a positive integer; got 5.5"),
        (lambda: GaussianObjectivePerturbation(-1, 0.1), "mu .* got -1"),
        (lambda: InexactSolve(-1e-9, 1, 1), "tolerance .* got -1e-09"),
        (lambda: InexactSolve(1e-9, 1, 0), "output_sigma .* got 0"),
        (lambda: PureRelease(-0.1), "epsilon .* got -0.1"),
        (lambda: LabelRandomizedResponse(0), "epsilon must be a positive"),
        (lambda: Composed(()), "non-empty tuple of events"),
        (lambda: Composed((1,)), "non-empty tuple of events"),
        (lambda: Composed((PureRelease(1), 1)), "non-empty tuple of events"),
        (lambda: Repeated(1, 2), "event must be an event; got 1"),
        (lambda: Repeated(PureRelease(1), 0), "count must be a positive integer; got 0"),
        (lambda: event_from_dict({"kind": "magic", "version": 1}), "kind must be one of"),
        (lambda: event_from_dict({"kind": "pure", "version": 2, "epsilon": 1}), "version 1; got 2"),
        (lambda: event_from_dict({"kind": "pure", "version": 1}), "fields"),
        (lambda: event_from_dict(["pure"]), "mapping"),
        (lambda: event_from_dict({"kind": "composed", "version": 1, "events": 3}), "list"),
        (lambda: event_from_dict({"kind": "composed", "version": 1, "events": [3]}), "mapping"),
    ],
)
def test_a_bad_event_is_refused_with_parameter_constraint_and_value(build, words):
    with pytest.raises(ValueError, match=words):
        build()


def test_numpy_numbers_become_plain_ones():
    event = SubsampledGaussian(np.int64(2), np.int32(10), np.float32(1), np.float64(0.5))
    assert [type(value) for value in event.to_dict().values()] == [str, int, int, int, float, float]
    assert event.sampling_rate == 0.2


def test_a_foreign_event_is_not_read_back():
    @dataclass(frozen=True, slots=True)
    class Foreign(Event):
        kind: ClassVar[str] = "foreign"

    with pytest.raises(ValueError, match="foreign"):
        event_from_dict(Foreign().to_dict())


def test_shared_noise_costs_more_if_all_others_collude():
    event = SharedGaussian(0.1, 2.0, 20, 9)
    assert event.alone == GaussianRelease(0.1, 2.0 / math.sqrt(11))
    history = [Composed((event, PureRelease(0.1))), Repeated(event, 3), PostProcessing()]
    assert [alone(each) for each in history] == [
        Composed((event.alone, PureRelease(0.1))),
        Repeated(event.alone, 3),
        PostProcessing(),
    ]
    assert shared_events(history) == [event, event]
    assert epsilon_spent([(event, 7)], 1e-5) == replace(
        epsilon_spent([(GaussianRelease(0.1, 2.0), 7)], 1e-5), events=("shared-gaussian",)
    )
    np.testing.assert_array_equal(
        rdp(event, [2.0, 9.0], rows=2), rdp(GaussianRelease(0.1, 2.0), [2.0, 9.0], rows=2)
    )


@pytest.mark.parametrize(("parties", "colluders"), [(2, 1), (5, 4), (5, 5), (3, 0), (1, 0)])
def test_shared_noise_needs_two_honest_parties_and_a_colluder(parties, colluders):
    with pytest.raises(ValueError, match="colluders must"):
        SharedGaussian(0.1, 1.0, parties, colluders)


def test_two_honest_parties_are_enough():
    assert SharedGaussian(0.1, 2.0, 3, 1).alone == GaussianRelease(0.1, 2.0 / math.sqrt(2))


@pytest.mark.parametrize("share", [0.6, 0.8, 1.0])
def test_a_sum_of_discrete_gaussians_is_as_near_to_one_as_the_statement_says(share):
    """Coarse enough for the distance to show: by convolution, number by number."""
    reach = np.arange(-60, 61)

    def discrete(variance):
        masses = np.exp(-(reach**2) / (2 * variance))
        return masses / masses.sum()

    one, several = discrete(share**2), discrete(share**2)
    for count in (2, 3, 4):
        several = np.convolve(several, one)[60:-60]
        bulk = np.abs(reach) <= 6
        loss = np.abs(np.log(several[bulk] / discrete(count * share**2)[bulk])).max()
        bound = 10 * sum(
            math.exp(-2 * math.pi**2 * share**2 * k / (k + 1)) for k in range(1, count)
        )
        assert 1e-3 * bound < loss <= bound


NOISY, SUMMED = GaussianRelease(0.1, 1.0), SharedGaussian(0.1, 1.0, 20, 9)
SOLVED = InexactSolve(1e-9, 1.0, 1.0)


@pytest.mark.parametrize(
    ("events", "adds"),
    [
        ([], False),
        ([NOISY, SUMMED, PostProcessing(), Repeated(Composed((NOISY, SUMMED)), 3)], False),
        ([NOISY, SOLVED], True),
        ([Composed((NOISY, Repeated(PureRelease(0.0), 2)))], True),
        ([SubsampledGaussian(2, 10, 0.0, 1.0)], True),
        ([NON_PRIVATE], True),
    ],
)
def test_parts_add_up_for_a_person_with_rows_in_each_unless_all_releases_are_gaussian(events, adds):
    assert parts_add_up(events, 2) == adds
    assert not parts_add_up(events, 1)
    # A guarantee keeps the kinds of what it covers: they say the same.
    kinds = epsilon_spent(events, 1e-5, rows_per_person=2).events
    assert parts_add_up(kinds, 2) == adds


def test_what_is_not_known_adds_up():
    class Another(GaussianRelease):
        pass

    assert parts_add_up([Another(0.1, 1.0)], 2)
    assert parts_add_up(["gaussian", "of a later version"], 2)
    assert not parts_add_up(["gaussian"], 2)
