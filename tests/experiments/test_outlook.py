"""Hints come where they should, and not elsewhere."""

import pytest

from dpadmm.experiments.outlook import hints_for
from dpadmm.experiments.question import RunQuestion
from dpadmm.experiments.rehearsal import ExpectedLoss
from dpadmm.run.options import TrainingParameters

SMALL, LARGE = ({"easy": ExpectedLoss(mean, 0.1)} for mean in (0.5, 12.0))


def topics(losses=SMALL, saved=None, delta=1e-6, **facts):
    question = RunQuestion(**facts, parameters=TrainingParameters("auto", delta=delta))
    return [about for about, _ in hints_for(question, question.planned().plan, losses, saved)]


LONG = {"rows": (1000, 1000, 1000), "features": 41}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({"features": 3}, ["constant", "map"]),
        ({"rows": (1000, 1000, 12)}, ["small parties"]),
        ({"losses": LARGE}, ["small parties"]),
        ({"delta": 1e-3}, ["delta"]),
        ({"saved": 3.0}, ["secure sum"]),
    ],
)
def test_a_hint_has_its_reason(changes, expected):
    assert topics(**(LONG | changes)) == expected


def test_sharing_is_praised_only_where_it_pays():
    question = RunQuestion(**LONG)
    fixed = question.planned().plan
    ((_, little),) = hints_for(question, fixed, SMALL, 0.2)
    ((_, much),) = hints_for(question, fixed, SMALL, 4.2)
    assert "hardly worth" in little
    assert "save 4.2 points" in much
    assert "hardly" not in much


@pytest.mark.parametrize(
    ("features", "rows", "words"),
    [(3, 500, "fourier = 150"), (17, 500, "polynomial = 2"), (18, 500, None), (5, 499, None)],
)
def test_a_map_suits_a_number_of_columns_and_rows(features, rows, words):
    question = RunQuestion(rows=rows, parties=1, features=features)
    found = dict(hints_for(question, question.planned().plan, SMALL, None)).get("map")
    assert (found is None) if words is None else words in found
