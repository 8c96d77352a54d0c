"""What a run is expected to lose: from the code that plans runs, and consistent in itself."""

from dataclasses import replace

import pytest

from dpadmm import RunQuestion, plan_run
from dpadmm.data.schema import Schema
from dpadmm.errors import ParameterError
from dpadmm.experiments.outlook import outlook_sentence, outlook_tables
from dpadmm.experiments.rehearsal import BAND, Effort, ExpectedLoss, mean_noise
from dpadmm.privacy.noise import secure_noise
from dpadmm.run.options import TrainingParameters
from dpadmm.run.plan import announced, plan
from dpadmm.run.session import state_privacy

LITTLE = Effort(draws=1, runs=2, most_rows=150, judging=150, others=False)
PARAMETERS = TrainingParameters("auto", epsilon=1.0, delta=1e-4, rounds=8)


def asked(**changes):
    parties = changes.pop("parties", 3)
    told = replace(PARAMETERS, **changes)
    return RunQuestion(400, parties, features=4, parameters=told)


@pytest.fixture(scope="module")
def outlook():
    return plan_run(asked(), wanted_loss=5, effort=LITTLE, jobs=1)


def test_a_candidate_has_the_noise_and_the_epsilon_of_its_run(outlook):
    for candidate in outlook.candidates:
        if candidate.refused:
            continue
        told = replace(
            PARAMETERS,
            algorithm=candidate.parameters.algorithm,
            rounds=candidate.parameters.rounds,
            algorithm_options=candidate.parameters.algorithm_options,
        )
        fixed = plan(told, [400] * 3, features=4)
        events = announced(fixed)
        assert announced(candidate.plan) == events
        statement = state_privacy(fixed, events, secure_noise(), by_round=False)
        assert candidate.privacy["epsilon"] == statement.epsilon <= 1.0


def test_shared_noise_is_shown_as_what_a_party_adds(outlook):
    own, shared = outlook.candidates[:2]
    assert (own.who, shared.who) == ("dp-gd", "dp-gd:noise=shared")
    # Three parties of whom one may collude.
    assert own.noise / shared.noise == pytest.approx(2**0.5, rel=1e-3)
    assert mean_noise(own.plan) / mean_noise(shared.plan) == pytest.approx(2**0.5, rel=1e-3)


def test_the_headline_states_the_band(outlook):
    """Also where the band reaches below 0: the same run is the first line of the table."""
    low, high = -0.84, 1.26
    losses = {name: ExpectedLoss((low + high) / 2, (high - low) / 2 / BAND) for name in ("easy",)}
    gaining = replace(outlook, recommended=replace(outlook.recommended, losses=losses))
    assert "expect to lose -0.8 to 1.3 points of accuracy; less than 0 is a gain." in (
        outlook_sentence(gaining)
    )
    (table,) = (found for title, found in outlook_tables(outlook).items() if "more" in title)
    assert table.rows[0][0] == "as asked"
    assert f"expect to lose {table.rows[0][-1]} points of accuracy" in outlook_sentence(outlook)


def test_changes_are_read_off_the_curves(outlook):
    found = {(each.what, each.times): each.losses for each in outlook.changes}
    base = next(each for each in outlook.candidates if each.who == outlook.recommended.who)
    assert found["as asked", 1] == base.losses
    factor = mean_noise(base.plan) / mean_noise(outlook.candidates[0].plan)
    for name, curve in outlook.curves.items():
        assert found["rows", 4][name] == curve.at(factor / 4)
    assert {what for what, _ in found} == {"as asked", "rows", "parties", "rounds", "epsilon"}


def test_the_smallest_epsilon_loses_what_is_wanted(outlook):
    told = next(each for each in outlook.smallest if each.who == "dp-gd" and each.epsilon)
    again = asked(epsilon=told.epsilon)
    factor = mean_noise(again.planned().plan) / mean_noise(outlook.candidates[0].plan)
    assert outlook.curves[told.difficulty].at(factor).mean <= 5 + 1e-6


def test_its_run_can_be_run(outlook):
    table = outlook.run_table()
    assert table["epsilon"] == 1.0
    assert table["rounds"] == 8
    fixed = plan(TrainingParameters(**table), [400] * 3, features=4)
    assert announced(fixed) == announced(outlook.recommended.plan)


def test_what_is_asked_for_is_recommended():
    shared = asked(algorithm="dp-gd", algorithm_options={"noise": "shared"})
    found = plan_run(shared, effort=LITTLE, jobs=1)
    assert found.run_table()["algorithm_options"] == {"noise": "shared"}


def test_on_a_ring_the_rule_has_the_same_algorithm():
    found = plan_run(asked(topology="ring", parties=4, rounds=2), effort=LITTLE, jobs=1)
    assert found.recommended.parameters.algorithm == "dp-gd"
    assert "dp-gd" not in {each.who for each in found.candidates if each.refused}
    assert found.run_table()["topology"] == "ring"


def test_parties_with_names_and_budgets_of_their_own_are_planned():
    budgets = {"a": 1.0, "b": 0.5, "c": 2.0}
    told = replace(PARAMETERS, algorithm="pr-admm", epsilon=budgets, rounds=2)
    question = RunQuestion((90, 60, 70), features=3, parameters=told, names=("a", "b", "c"))
    found = plan_run(question, wanted_loss=20, effort=LITTLE, jobs=1)
    assert found.run_table()["epsilon"] == budgets
    assert found.reason == "the algorithm that was asked for"
    # Nobody knows the budgets of parties that do not exist.
    assert "parties" not in {each.what for each in found.changes}


@pytest.mark.slow
def test_every_candidate_is_rehearsed():
    found = plan_run(asked(), effort=replace(LITTLE, others=True), jobs=1)
    for each in found.candidates:
        assert bool(each.losses) == (each.who != "ps-admm")


def test_one_party_is_planned_too():
    found = plan_run(asked(parties=1), effort=LITTLE, jobs=1)
    assert found.recommended.who == "dp-gd"
    assert found.recommended.losses


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"algorithm": "admm"}, "algorithm must be a private one"),
        ({"epsilon": -1.0}, "epsilon must be a positive number"),
        ({"algorithm": "pr-admm", "calibration": "published"}, "calibration must be 'proven'"),
        ({"rounds": 0}, "rounds must be a whole number"),
    ],
)
def test_a_run_that_would_be_refused_is_refused(changes, words):
    with pytest.raises(ParameterError, match=words):
        plan_run(asked(**changes), effort=LITTLE, jobs=1)


def test_a_wanted_loss_is_a_positive_number():
    with pytest.raises(ParameterError, match="loss must be a positive number"):
        plan_run(asked(), wanted_loss=0, effort=LITTLE, jobs=1)


def test_a_schema_is_compared_with_other_encodings_of_the_same_rows():
    names = ("a", "b", "c")
    columns = [
        {"name": name, "kind": "numeric", "lower": 0, "upper": 5000, "missing": False}
        for name in names
    ]
    columns[0]["transform"] = "log1p"
    label = {"column": "y", "classes": ["no", "yes"]}
    content = {"version": 2, "label": label, "columns": columns, "constant": True}
    question = RunQuestion(
        400, 3, schema=Schema.from_dict(content), parameters=replace(PARAMETERS, rounds=4)
    )
    effort = replace(LITTLE, others=True)
    found = plan_run(question, effort=effort, jobs=1)
    encodings = dict(found.encodings)
    assert list(encodings) == [
        "as in the schema",
        "range = [0, 1] for all numbers",
        f"constant = {question.shape.typical_norm / 2:.2g}",
        "no transform",
    ]
    assert encodings["as in the schema"] == found.curves["medium"].at(1.0)
    (title,) = (name for name in outlook_tables(found) if name.startswith("Encodings"))
    assert len(outlook_tables(found)[title].rows) == 4
    assert [each["encoding"] for each in found.plain()["encodings"]] == list(encodings)


def test_without_a_schema_there_is_no_other_encoding(outlook):
    assert outlook.encodings == ()
    assert not [name for name in outlook_tables(outlook) if name.startswith("Encodings")]
