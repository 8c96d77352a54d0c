"""Public facts of a run that has not happened, checked before anything is drawn."""

import pytest

from dpadmm.data.named import adult_schema
from dpadmm.errors import ParameterError
from dpadmm.experiments.question import RunQuestion

SCHEMA = """
version = 2
constant = true
label = {column = "y", classes = ["no", "yes"]}
columns = [{name = "x", kind = "numeric", lower = 0, upper = 1}]
"""
RUN = """
[run]
epsilon = {north = 1.0, south = 0.5}

[data]
schema = "schema.toml"

[[party]]
name = "north"
file = "nowhere/north.csv"
rows = 500

[[party]]
name = "south"
file = "nowhere/south.csv"
rows = 300

[result]
model = "m.model"
"""


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"rows": 10, "features": 3}, "parties must be given"),
        ({"rows": 0, "parties": 2, "features": 3}, "rows must be a whole number"),
        ({"rows": (5, -1), "features": 3}, "rows must be a whole number"),
        ({"rows": (5, 6), "parties": 3, "features": 3}, "parties must be left out"),
        ({"rows": 10, "parties": 2}, "got neither"),
        ({"rows": 10, "parties": 2, "features": 3, "schema": adult_schema()}, "got both"),
        ({"rows": 10, "parties": 20_000, "features": 3}, "parties must be 1 to"),
        ({"rows": 10, "parties": 2, "features": 1}, "features must be"),
        ({"rows": (), "features": 3}, "parties must be 1 to"),
    ],
)
def test_what_makes_no_sense_is_refused(facts, words):
    with pytest.raises(ParameterError, match=words):
        RunQuestion(**facts)


def test_a_configuration_is_asked_about_without_its_files(tmp_path):
    (tmp_path / "schema.toml").write_text(SCHEMA)
    (tmp_path / "run.toml").write_text(RUN)
    question = RunQuestion.from_config(tmp_path / "run.toml")
    assert question.counts == (500, 300)
    assert question.shape.features == 3
    assert question.parameters.algorithm == "auto"
    fixed = question.planned().plan
    assert fixed.site.names == ("north", "south")
    assert list(fixed.budget.epsilon) == [1.0, 0.5]


def test_more_rows_and_parties_are_more_of_the_same():
    question = RunQuestion((10, 20), features=3)
    assert list(question.planned(rows=2).plan.site.rows) == [20, 40]
    assert list(question.planned(parties=2).plan.site.rows) == [10, 20, 10, 20]
