"""Every figure of a histogram, against scikit-learn where there is no noise."""

import json

import numpy as np
import pytest
from sklearn.metrics import (
    accuracy_score,
    brier_score_loss,
    confusion_matrix,
    precision_score,
    recall_score,
    roc_auc_score,
)

from dpadmm.errors import ParameterError
from dpadmm.evaluation.histogram import NoisyHistogram, ScoreGrid, class_margins
from dpadmm.evaluation.metrics import evaluate_histogram

GRID = ScoreGrid.of_model(np.array([[10.0]]), 2)


def two_classes(rows=600, deviation=0.0):
    random = np.random.default_rng(11)
    labels = (random.random(rows) < 0.3).astype(int)
    scores = random.normal(size=rows) + 1.5 * labels - 0.7
    scores[:5] = 0.0  # exactly on the threshold: the first class
    counts = GRID.counts(scores, labels)
    noisy = counts + deviation * random.normal(size=counts.size)
    return scores, labels, NoisyHistogram(GRID, noisy, deviation**2, rows)


def several_classes(rows=900, deviation=0.0):
    random = np.random.default_rng(12)
    labels = random.choice(4, rows, p=[0.1, 0.2, 0.3, 0.4])
    scores = random.normal(size=(rows, 4)) + 1.5 * np.eye(4)[labels] - 1
    grid = ScoreGrid.of_model(np.eye(4) * 10, 4)
    counts = grid.counts(scores, labels)
    noisy = counts + deviation * random.normal(size=counts.size)
    return scores, labels, NoisyHistogram(grid, noisy, deviation**2, rows)


def shares(confusion):
    return [[cell.value for cell in line] for line in confusion]


@pytest.mark.parametrize("number", [2, 7, 12])
def test_two_classes_without_noise(number):
    scores, labels, histogram = two_classes()
    threshold = GRID.edges[number]
    found = evaluate_histogram(histogram, threshold=threshold)
    told = scores > threshold
    decision = found.decision
    assert decision.threshold == threshold
    assert found.accuracy.value == pytest.approx(accuracy_score(labels, told))
    assert decision.sensitivity.value == pytest.approx(recall_score(labels, told))
    assert decision.specificity.value == pytest.approx(recall_score(labels, told, pos_label=0))
    assert decision.precision.value == pytest.approx(precision_score(labels, told))
    assert np.array(shares(found.confusion)) == pytest.approx(
        confusion_matrix(labels, told) / len(labels)
    )
    (second,) = found.classes
    assert second.prevalence.value == pytest.approx(labels.mean())
    bins = np.searchsorted(GRID.edges, scores)
    assert second.area.value == pytest.approx(roc_auc_score(labels, bins))


def test_the_brier_score_is_that_of_the_links_probabilities():
    scores, labels, histogram = two_classes()
    (second,) = evaluate_histogram(histogram).classes
    told = second.link.probability(GRID.centres[np.searchsorted(GRID.edges, scores)])
    exact = brier_score_loss(labels, told)
    # A little above that of the rows it was fitted to, as it is on other rows.
    assert exact < second.brier.value < exact + 0.005
    assert second.brier.low < exact < second.brier.high


def test_calibration_bin_by_bin():
    scores, labels, histogram = two_classes()
    (second,) = evaluate_histogram(histogram).classes
    assert len(second.calibration) == GRID.bins
    assert [entry.low for entry in second.calibration][1:] == list(GRID.edges)
    for entry in second.calibration:
        here = (scores > entry.low) & (scores <= entry.high)
        if here.any():
            assert entry.observed.value == pytest.approx(labels[here].mean())
        else:
            assert entry.observed.value is None


def test_several_classes_without_noise():
    scores, labels, histogram = several_classes()
    found = evaluate_histogram(histogram)
    told, margins = scores.argmax(axis=1), class_margins(scores)
    assert found.accuracy.value == pytest.approx(accuracy_score(labels, told))
    assert np.array(shares(found.confusion)) == pytest.approx(
        confusion_matrix(labels, told) / len(labels)
    )
    assert (found.decision, found.curve) == (None, ())
    for code, figures in enumerate(found.classes):
        mine, taken = labels == code, told == code
        assert figures.code == code
        assert figures.prevalence.value == pytest.approx(mine.mean())
        assert figures.sensitivity.value == pytest.approx(recall_score(mine, taken))
        assert figures.precision.value == pytest.approx(precision_score(mine, taken))
        bins = np.searchsorted(histogram.grid.edges, margins[:, code])
        assert figures.area.value == pytest.approx(roc_auc_score(mine, bins))
        # Bins take little from the area of the margins themselves.
        assert figures.area.value == pytest.approx(roc_auc_score(mine, margins[:, code]), abs=0.01)


@pytest.mark.parametrize("made", [two_classes, several_classes])
def test_noise_widens_every_interval_and_hides_what_it_must(made):
    exact = evaluate_histogram(made()[2])
    for deviation in (4.0, 1e5):
        noisy = evaluate_histogram(made(deviation=deviation)[2])
        pairs = [(exact.accuracy, noisy.accuracy)]
        for plain, hidden in zip(exact.classes, noisy.classes, strict=True):
            pairs += zip(plain.estimates, hidden.estimates, strict=True)
        for plain, hidden in pairs:
            assert hidden.high - hidden.low > plain.high - plain.low
            if deviation > 100 and hidden.name != "Brier":
                assert (hidden.value, hidden.low, hidden.high) == (None, 0.0, 1.0)


@pytest.mark.parametrize("made", [two_classes, several_classes])
def test_all_of_it_is_plain_data(made):
    found = evaluate_histogram(made(deviation=30.0)[2], confidence=0.9)
    kept = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert kept["rows"] == found.rows
    assert kept["confidence"] == 0.9
    assert kept["accuracy"]["low"] <= kept["accuracy"]["high"]
    assert {"prevalence", "sensitivity", "precision", "auc", "brier", "link"} <= set(
        kept["classes"][0]
    )
    assert found.estimates[0].name == "accuracy"


def test_nobody_was_evaluated():
    empty = evaluate_histogram(NoisyHistogram(GRID, np.zeros(GRID.cells), 0.0, 0))
    assert [figure.value for figure in empty.estimates] == [None] * 7
    json.dumps(empty.to_dict(), allow_nan=False)


def test_thresholds_that_no_bin_ends_at_are_refused_with_the_nearest():
    histogram = two_classes()[2]
    with pytest.raises(ParameterError, match=r"got 0\.01: the nearest is 0\.0"):
        evaluate_histogram(histogram, threshold=0.01)
    with pytest.raises(ParameterError, match="must be 0 for 4 classes"):
        evaluate_histogram(several_classes()[2], threshold=0.5)
