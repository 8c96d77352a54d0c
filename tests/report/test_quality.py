"""How good a model is, on its page: figures of what was released, and what it cost."""

import copy

import numpy as np
import pytest

from dpadmm.evaluation.histogram import NoisyHistogram, ScoreGrid
from dpadmm.privacy.statement import PrivacyStatement
from dpadmm.report.html import render
from dpadmm.report.run import run_report
from dpadmm.run.classifier import HELD_OUT, PUBLIC, TRAINED_ON, Quality
from dpadmm.run.result import RecordedRun

QUALITY = "How good it is"


def judged(content, about, classes=("no", "yes"), noise=1.0):
    """A record with an evaluation: 80 of 100 rows are right."""
    content = copy.deepcopy(content) | {"classes": list(classes)}
    grid = ScoreGrid(len(classes), (-1.0, 0.0, 1.0))
    if len(classes) == 2:
        counts = np.array([30.0, 10, 5, 5, 2, 8, 10, 30])
    else:
        right = np.array([[30.0, 3, 2], [4, 25, 6], [1, 4, 25]])
        counts = np.concatenate([np.full(24, 100 / 8), right.ravel()])
    private = PrivacyStatement.from_dict(content["privacy"])
    quality = Quality(
        NoisyHistogram(grid, counts, 0.0 if about == PUBLIC else noise, 100),
        about,
        None if about == PUBLIC else private,
    )
    return RecordedRun.from_dict(content | {"quality": quality.to_dict()})


def blocks(run):
    (section,) = (each for each in run_report(run).sections if each.title == "How good it is")
    return {getattr(block, "title", "words"): block for block in section.blocks}


def test_the_page_says_that_rows_in_both_parts_add_up(record):
    content = record()
    assert "the larger of what" in dict(run_report(judged(content, HELD_OUT)).answers)[QUALITY]
    content["privacy"]["rows_per_person"] = 2
    for party in content["privacy"]["parties"].values():
        party["events"] = ["pure"]
    assert "spent adds up" in dict(run_report(judged(content, HELD_OUT)).answers)[QUALITY]


@pytest.mark.parametrize(
    ("about", "phrase"),
    [
        (HELD_OUT, "100 held-out rows, for (1, 0.0001)-differential privacy"),
        (TRAINED_ON, "which is optimistic"),
        (PUBLIC, "exactly, on 100 public rows, for nothing"),
    ],
)
def test_the_page_says_how_good_it_is_and_what_it_cost(record, about, phrase):
    run = judged(record(), about)
    report = run_report(run)
    answer = dict(report.answers)["How good it is"]
    assert answer.startswith("Accuracy 80.0% [")
    assert phrase in answer
    found = blocks(run)
    rows = {row[0]: row[1:] for row in found["Figures, with 95% intervals"].rows}
    assert rows["accuracy"][0] == pytest.approx(0.8, abs=0.01)
    assert rows["accuracy"][1] < 0.8 < rows["accuracy"][2]
    line, chance = found["ROC curve"].series
    assert (line.x[0], line.y[0], line.x[-1], line.y[-1]) == (0.0, 0.0, 100.0, 100.0)
    assert (np.diff(line.x) >= 0).all()
    assert 20.0 in np.round(line.x, 6)
    assert chance.dashed
    page = render(report)
    assert "Calibration" in page
    assert "True class (rows) by predicted class" in page


def test_what_not_determined_means_is_said_where_it_stands(record):
    page = render(run_report(judged(record(), HELD_OUT)))
    assert "not determined" not in page.lower()
    page = render(run_report(judged(record(), HELD_OUT, noise=1000.0)))
    assert "Not determined: the noise is too large" in page


def test_several_classes_have_figures_of_their_own(record):
    run = judged(record(), HELD_OUT, ("low", "<b>middle</b>", "high"))
    found = blocks(run)
    assert "ROC curve" not in found
    names = [row[0] for row in found["Figures, with 95% intervals"].rows]
    assert "sensitivity of high" in names
    page = render(run_report(run))
    assert "<b>middle</b>" not in page
    assert "&lt;b&gt;middle" in page


def test_a_record_without_an_evaluation_says_nothing_of_it(record):
    run = RecordedRun.from_dict(record())
    assert "quality" not in run.plain()
    assert "How good it is" not in render(run_report(run))


def test_an_evaluation_that_is_none_is_refused(record):
    from dpadmm.errors import ParameterError

    for quality in ({}, {"about": "held out"}, {"about": "elsewhere", "histogram": {}}):
        with pytest.raises(ParameterError, match="a run record of dpadmm; its field 'quality'"):
            RecordedRun.from_dict(record() | {"quality": quality})
