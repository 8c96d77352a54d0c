"""The area under the ROC curve: against scikit-learn, and free of the noise's bias."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from dpadmm.evaluation.histogram import NoisyHistogram, ScoreGrid
from dpadmm.evaluation.intervals import CountTable, _moments, area_under_curve

Z = 1.959963984540054


def test_by_hand():
    # Pairs: the class's two rows against (1 below, 1 tied) and (2 below): 1.5 + 2 of 4.
    counts = CountTable(np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0]]), 0.0, 4)
    assert area_under_curve(counts, Z).value == pytest.approx(3.5 / 4)


def test_fine_bins_give_the_area_of_the_scores():
    random = np.random.default_rng(3)
    labels = random.integers(2, size=400)
    scores = random.normal(size=400) + labels
    fine = ScoreGrid(2, tuple(np.arange(-400, 401) / 100))
    (table,) = NoisyHistogram(fine, fine.counts(scores, labels), 0.0, 400).score_tables()
    found = area_under_curve(table, Z)
    exact = roc_auc_score(labels, scores)
    assert found.value == pytest.approx(exact, abs=2e-4)
    binned = roc_auc_score(labels, np.searchsorted(fine.edges, scores))
    assert found.value == pytest.approx(binned, abs=1e-12)
    assert found.low < exact < found.high


def test_noise_leaves_no_bias_in_distance_and_variances():
    random = np.random.default_rng(5)
    counts, variance, value = np.array([[30.0, 20.0, 5.0], [4.0, 16.0, 25.0]]), 16.0, 0.8
    exact = _moments(CountTable(counts, 0.0, 100), value)
    found = []
    for _ in range(4000):
        noisy = counts + random.normal(scale=4.0, size=counts.shape)
        found.append(_moments(CountTable.of_released(noisy, variance, 100), value))
    distances = np.array([item.distance for item in found])
    error = distances.std() / np.sqrt(len(distances))
    assert distances.mean() == pytest.approx(exact.distance, abs=4 * error)
    # The variance that is told is the one that the noise has.
    assert np.mean([item.noise for item in found]) == pytest.approx(distances.var(), rel=0.07)
    samplings = np.array([item.sampling for item in found])
    error = samplings.std() / np.sqrt(len(samplings))
    assert samplings.mean() == pytest.approx(exact.sampling, abs=4 * error)


def test_classes_told_apart_perfectly_leave_room_below():
    counts = CountTable(np.array([[40.0, 0.0], [0.0, 40.0]]), 0.0, 80)
    found = area_under_curve(counts, Z)
    assert found.value == found.high == 1.0
    assert 0.9 < found.low < 0.99


def test_one_class_alone_has_no_area():
    alone = CountTable(np.array([[4.0, 5.0], [0.0, 0.0]]), 0.0, 9)
    assert area_under_curve(alone, Z).reason == "only one class"
    hidden = CountTable(np.array([[400.0, 500.0], [7.0, 3.0]]), 25.0, 910)
    assert "told from the noise" in area_under_curve(hidden, Z).reason
