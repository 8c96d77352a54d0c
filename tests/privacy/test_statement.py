"""Statements: the words and numbers that stand wherever an epsilon stands."""

import dataclasses
import json
import math

import numpy as np
import pytest

from dpadmm import ADMMClassifier
from dpadmm.privacy import accountant
from dpadmm.privacy.accountant import epsilon_spent, spend_over_rounds
from dpadmm.privacy.events import (
    GaussianRelease,
    InexactSolve,
    NonPrivate,
    PureRelease,
    SharedGaussian,
)
from dpadmm.privacy.figures import AtMost
from dpadmm.privacy.gaussian import gaussian_epsilon
from dpadmm.privacy.noise import SAMPLER_ALLOWANCE, SIMULATED
from dpadmm.privacy.statement import Charges, PrivacyStatement, Terms, make_statement


def statement(events, names=("a", "b"), deltas=(1e-5, 1e-6), **changes):
    settings = {"algorithm": "pr-admm", "noise": "some source", "simulated": False} | changes
    return make_statement(Charges(names, events, deltas), Terms(**settings))


def test_the_network_has_the_largest_figure_never_the_sum():
    made = statement([[GaussianRelease(0.1, 1.0)] * 4, [GaussianRelease(0.2, 1.0)] * 4])
    assert made.epsilon == made.parties["b"].epsilon > made.parties["a"].epsilon
    assert made.delta == 1e-5
    assert made.rounds["a"].shape == (4,)
    assert np.all(np.diff(made.rounds["a"]) > 0)


TRAINED, COUNTED = [GaussianRelease(0.1, 1.0)] * 4, [GaussianRelease(0.25, 1.0)]


@pytest.mark.parametrize("swapped", [False, True])
def test_events_that_read_other_rows_cost_the_larger_of_both(swapped):
    first, second = (COUNTED, TRAINED) if swapped else (TRAINED, COUNTED)
    for people in (1, 3):
        charges = Charges(("a",), [first], (1e-5,), people, elsewhere=[second])
        made = make_statement(charges, Terms(algorithm="x", noise="y", simulated=False))
        ideal = 1e-5 * (1 - 1e-9)
        assert made.epsilon == epsilon_spent(COUNTED, ideal, rows_per_person=people).epsilon
        assert made.parties["a"].odds.mu is not None
        # Round by round, and in the end what is guaranteed of both.
        course = spend_over_rounds(first, ideal, rows_per_person=people)
        assert made.rounds["a"].tolist() == [*course, made.epsilon]


@pytest.mark.parametrize("people", [1, 2])
def test_a_person_with_several_rows_pays_for_both_unless_all_is_gaussian(people):
    """And of two theorems both are named, and neither's own curve is taken for that of both."""
    pure = [PureRelease(0.2)]
    charges = Charges(("a",), [pure], (1e-5,), people, elsewhere=[COUNTED])
    made = make_statement(charges, Terms(algorithm="x", noise="y", simulated=False)).parties["a"]
    ideal = 1e-5 * (1 - 1e-9)
    apart = [epsilon_spent(each, ideal, rows_per_person=people) for each in (pure, COUNTED)]
    both = epsilon_spent([*pure, *COUNTED], ideal, rows_per_person=people)
    assert made.epsilon == (max(each.epsilon for each in apart) if people == 1 else both.epsilon)
    assert all(each.theorem in made.theorem for each in apart[1:])
    assert made.odds.mu is None
    assert set(made.events) == {"gaussian", "pure"}


def test_what_a_solver_is_off_by_is_paid_for_with_any_row_and_adds_up():
    """It is the same for one row of a person as for all: the larger does not bound one in each."""
    solved, counted = [InexactSolve(0.5, 1.0, 1.0)], [GaussianRelease(0.5, 1.0)]
    charges = Charges(("a",), [solved], (1e-5,), 2, elsewhere=[counted])
    made = make_statement(charges, Terms(algorithm="x", noise="y", simulated=False))
    # One row among each: mu = 1 by the first, 1/2 by the second.
    together = gaussian_epsilon(math.hypot(1.0, 0.5), 1e-5)
    assert made.epsilon >= together > epsilon_spent(solved, 1e-5, rows_per_person=2).epsilon


def test_rows_that_were_read_elsewhere_count_against_whom_it_holds():
    shared = [SharedGaussian(0.3, 1.0, 20, 9)]
    charges = Charges(("a",), [TRAINED], (1e-5,), elsewhere=[shared])
    made = make_statement(charges, Terms(algorithm="x", noise="y", simulated=False))
    assert "at most 9 of the 20 parties" in made.adversary
    left = epsilon_spent([shared[0].alone], 1e-5 * (1 - 1e-9)).epsilon
    assert made.alone["a"].epsilon == left > made.epsilon


def test_delta_leaves_room_for_samplers_that_are_not_ideal():
    """A billionth of it: epsilon is that of a delta smaller by so much."""
    events = [GaussianRelease(0.3, 1.0)] * 3
    made = statement([events, [SharedGaussian(0.3, 1.0, 20, 9)] * 3], deltas=(0.01, 0.01))
    ideal = 0.01 * (1 - 1e-9)
    for party in made.parties.values():
        assert party.delta == 0.01
        assert party.epsilon == epsilon_spent(events, ideal).epsilon
        assert party.epsilon > epsilon_spent(events, 0.01).epsilon
    np.testing.assert_array_equal(made.rounds["a"], spend_over_rounds(events, ideal))
    left = [SharedGaussian(0.3, 1.0, 20, 9).alone] * 3
    assert made.alone["b"].epsilon == epsilon_spent(left, ideal).epsilon


def test_every_word_is_there():
    text = str(statement([[GaussianRelease(0.1, 1.0)]] * 2))
    for word in ("Adjacency", "Adversary", "Theorem", "Accountant", "Not covered", "each party"):
        assert word in text
    assert "total over the whole run" in text


@pytest.mark.parametrize(
    ("people", "words"),
    [
        (1, "one row of one party is replaced (features and label); row counts are public"),
        (2, "up to 2 rows of one party, all of one person, are replaced; row counts are public"),
    ],
)
def test_who_is_a_neighbour_is_said_in_words(people, words):
    charges = Charges(("a",), [[GaussianRelease(0.1, 1.0)]], (1e-5,), rows_per_person=people)
    made = make_statement(charges, Terms(algorithm="pr-admm", noise="some", simulated=False))
    assert dict(made.lines())["Adjacency"] == made.to_dict()["adjacency"] == words


def test_theorems_are_named_from_the_weakest_guarantee_on():
    strong, weak = [GaussianRelease(0.01, 1.0)], [PureRelease(3.0)] * 2
    for events in ([strong, weak], [weak, strong]):
        made = statement(events)
        assert made.accountant == "optimal-pure; exact-gaussian"
        assert made.theorem.index("pure releases") < made.theorem.index("Gaussian releases")


def test_without_noise_nothing_is_guaranteed():
    made = statement([[NonPrivate()], [GaussianRelease(0.1, 1.0)]])
    assert math.isinf(made.epsilon)
    assert "none" in str(made)
    assert json.loads(json.dumps(made.to_dict()))["epsilon"] == "infinite"


def test_what_is_written_is_read_again():
    made = statement(
        [[NonPrivate()], [GaussianRelease(0.1, 1.0)]],
        details=(("Label", "none"),),
        caveats=("Lost a node.",),
        claim="0.1",
    )
    written = json.loads(json.dumps(made.to_dict(), allow_nan=False))
    assert PrivacyStatement.from_dict(written) == dataclasses.replace(made, rounds={})
    # A figure that could not be worked out is never told as a finite one, nor as nothing.
    unknown = dataclasses.replace(made.parties["b"], epsilon=math.nan)
    lost = dataclasses.replace(made, epsilon=math.nan, parties={"b": unknown})
    assert lost.to_dict()["epsilon"] == lost.to_dict()["parties"]["b"]["epsilon"] == "infinite"
    assert not PrivacyStatement.from_dict(lost.to_dict()).private


def test_a_simulation_and_an_outside_theorem_are_called_so():
    made = statement([[GaussianRelease(0.1, 1.0)]] * 2, simulated=True, noise=SIMULATED)
    assert made.lines()[0][0] == "SIMULATION"
    assert "not private" in str(made)
    outside = statement([[GaussianRelease(0.1, 1.0)]] * 2, reviewed=False)
    assert "not reviewed" in str(outside)


def test_a_statement_says_what_its_figures_rest_on():
    made = statement(
        [[GaussianRelease(0.1, 1.0)]] * 2,
        noise="some dice",
        calibration="published",
        caveats=("Lost a node.", "Found it."),
        details=(("Label", "(1, 0)"),),
    )
    figure = AtMost(made.epsilon)
    assert made.lines()[:4] == [
        (
            "Guarantee",
            f"({figure}, 1e-5)-differential privacy of each party, total over the whole run; "
            "the largest of the parties' figures",
        ),
        ("Caveat", "Lost a node."),
        ("Caveat", "Found it."),
        ("Label", "(1, 0)"),
    ]
    words = dict(made.lines())
    assert (words["Noise"], words["Calibration"]) == ("some dice", "published")
    # Without privacy these words are about the details, and left out where there are none.
    for details in ((), made.details):
        none = statement([[NonPrivate()]] * 2, details=details)
        words = dict(none.lines())
        assert {"Adjacency", "Theorem", "Accountant"}.isdisjoint(words)
        for heading in ("Adversary", "Noise", "Calibration", "Not covered"):
            assert (heading in words) == bool(details)


def test_one_party_speaks_of_its_own_rows():
    made = statement([[GaussianRelease(0.1, 1.0)]], names=("south",), deltas=(1e-5,))
    (_, words), *_ = made.lines()
    assert words == (
        f"({AtMost(made.epsilon)}, 1e-5)-differential privacy of the rows of south, total over "
        "the whole run"
    )


@pytest.mark.parametrize(
    ("names", "parties", "deltas"),
    [
        (("a", "b"), 1, (1e-5, 1e-5)),
        (("a", "b"), 2, (1e-5,)),
        (("a",), 2, (1e-5, 1e-5)),
        (("a", "b"), 3, (1e-5, 1e-5)),
        (("a", "b"), 2, (1e-5, 1e-5, 1e-5)),
    ],
)
def test_no_party_is_left_out_of_a_statement(names, parties, deltas):
    with pytest.raises(ValueError, match="argument"):
        statement([[GaussianRelease(0.1, 1.0)]] * parties, names=names, deltas=deltas)


def test_a_claim_stands_beside_what_is_proven():
    made = statement([[GaussianRelease(0.1, 1.0)]] * 2, claim="0.1 per iteration")
    assert ("As published, not proven", "0.1 per iteration") in made.lines()


@pytest.mark.parametrize("state", [3, None])
def test_the_estimator_says_whether_its_noise_can_be_repeated(state):
    random = np.random.default_rng(0)
    rows = random.normal(size=(60, 3))
    model = ADMMClassifier(rounds=3, n_parties=3, random_state=state).fit(rows, rows[:, 0] > 0)
    assert model.privacy_.simulated is (state is not None)
    assert (SIMULATED in str(model.privacy_)) is (state is not None)
    assert 0.999 < model.privacy_.epsilon <= 1.0


def test_parties_have_budgets_of_their_own():
    random = np.random.default_rng(0)
    rows = random.normal(size=(90, 3))
    owners = np.repeat(["x", "y", "z"], 30)
    budget = {"x": 0.5, "y": 1.0, "z": 2.0}
    model = ADMMClassifier(rounds=3, epsilon=budget, random_state=0)
    spent = model.fit(rows, rows[:, 0] > 0, owners).privacy_.parties
    for name, epsilon in budget.items():
        assert 0.999 * epsilon < spent[name].epsilon <= epsilon


@pytest.mark.parametrize("people", [1, 3])
def test_more_rows_per_person_ask_for_more_noise_at_the_same_budget(people):
    random = np.random.default_rng(0)
    rows = random.normal(size=(60, 3))
    model = ADMMClassifier(rounds=3, n_parties=3, rows_per_person=people, random_state=0)
    statement = model.fit(rows, rows[:, 0] > 0).privacy_
    assert statement.rows_per_person == people
    assert 0.999 < statement.epsilon <= 1.0


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("epsilon", 0.0),
        ("epsilon", -1.0),
        ("epsilon", math.nan),
        ("epsilon", {"0": 1.0}),
        ("epsilon", {"0": 1.0, "1": 1.0, "2": 1.0, "9": 1.0}),
        ("delta", 0.0),
        ("delta", 1.0),
        ("rows_per_person", 0),
        ("calibration", "wishful"),
        ("loss", "squared"),
    ],
)
def test_bad_budgets_are_refused_by_name(parameter, value):
    rows = np.random.default_rng(0).normal(size=(60, 3))
    model = ADMMClassifier(rounds=3, n_parties=3, random_state=0, **{parameter: value})
    with pytest.raises(ValueError, match=parameter):
        model.fit(rows, rows[:, 0] > 0)


def test_a_delta_that_protects_little_is_warned_about():
    rows = np.random.default_rng(0).normal(size=(60, 3))
    model = ADMMClassifier(rounds=3, n_parties=3, delta=0.1, random_state=0)
    with pytest.warns(UserWarning, match="delta"):
        model.fit(rows, rows[:, 0] > 0)


def test_public_classes_leave_nothing_to_the_rows():
    rows = np.random.default_rng(0).normal(size=(60, 3))
    labels = np.where(rows[:, 0] > 0, "b", "a").astype(object)
    changed_rows, changed_labels = rows.copy(), labels.copy()
    changed_rows[3, 1], changed_labels[3] = np.nan, "rare"
    model = ADMMClassifier(rounds=3, n_parties=3, random_state=0)
    first = model.fit(rows, labels, classes=["a", "b"])
    shapes, words = first.coef_.shape, str(first.privacy_)
    second = model.fit(changed_rows, changed_labels, classes=["a", "b"])
    assert second.coef_.shape == shapes
    assert list(second.classes_) == ["a", "b"]
    assert str(second.privacy_) == words
    assert "taken from the rows" not in words
    assert "taken from the rows" in str(model.fit(rows, labels).privacy_)


def test_the_noise_says_what_it_does_not_cover():
    rows = np.random.default_rng(0).normal(size=(60, 3))
    model = ADMMClassifier(rounds=2, n_parties=3).fit(rows, rows[:, 0] > 0)
    assert "last bits" in str(model.privacy_)


def test_shared_noise_has_two_guarantees_and_a_weaker_adversary():
    # sqrt(20 - 9) = 3.3 times less noise is left alone.
    event = SharedGaussian(0.1, 1.0, 20, 9)
    made = statement([[event] * 4, [SharedGaussian(0.05, 1.0, 20, 9)] * 4])
    plain = statement([[GaussianRelease(0.1, 1.0)] * 4, [GaussianRelease(0.05, 1.0)] * 4])
    assert made.epsilon == plain.epsilon
    least = statement([[GaussianRelease(0.1 * math.sqrt(11), 1.0)] * 4] * 2)
    assert made.alone["a"].epsilon == pytest.approx(least.parties["a"].epsilon, rel=1e-9)
    words = dict(made.lines())
    assert "at most 9 of the 20 parties together" in words["Adversary"]
    assert "may control all other parties" not in str(made)
    assert f"({AtMost(made.alone['a'].epsilon)}, 1e-5)" in words["If all others collude"]
    assert {"Masks", "A party that lies"} <= set(words)
    assert "for whom their mu add up" in words["Not covered"]
    assert "at two parties" not in words["Not covered"]
    record = json.loads(json.dumps(made.to_dict()))
    assert record["alone"]["b"]["epsilon"] == made.alone["b"].epsilon
    assert "alone" not in plain.to_dict()


def test_a_composed_statement_names_the_fewest_colluders():
    before, after = SharedGaussian(0.1, 1.0, 20, 9), SharedGaussian(0.1, 1.0, 18, 7)
    made = statement([[before, after, GaussianRelease(0.1, 1.0)]] * 2)
    assert "at most 7 of the 18 to 20 parties together" in dict(made.lines())["Adversary"]


@pytest.mark.parametrize(
    ("rounds", "parties", "most"), [(100, 1, 100), (1500, 1, 6), (1500, 4, 12)]
)
def test_the_course_of_a_long_run_is_composed_a_few_times(rounds, parties, most, monkeypatch):
    """A finished run writes its results at once, whatever its noise."""
    composed = []

    def counted(events, *given, **named):
        composed.append(len(events))
        return epsilon_spent(events, *given, **named)

    monkeypatch.setattr(accountant, "epsilon_spent", counted)
    names = [f"party {number}" for number in range(parties)]
    events = [[PureRelease(1e-3 * (1 + number))] * rounds for number in range(parties)]
    courses = Charges(names, events, [1e-5] * parties).courses()
    assert len(composed) == most
    for course, history in zip(courses.values(), events, strict=True):
        assert course.shape == (rounds,)
        assert (np.diff(course) >= 0).all()
        ideal = 1e-5 * (1 - SAMPLER_ALLOWANCE)
        assert course[0] == epsilon_spent(history[:1], ideal).epsilon
        assert course[-1] == epsilon_spent(history, ideal).epsilon
