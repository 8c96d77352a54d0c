"""A threshold from a wanted figure."""

import numpy as np
import pytest

from dpadmm.errors import ParameterError
from dpadmm.evaluation.histogram import NoisyHistogram, ScoreGrid
from dpadmm.evaluation.metrics import choose_threshold

GRID = ScoreGrid(2, (-1.0, 0.0, 1.0))
# Sensitivity at the edges: .95, .8, .4; specificity: .3, .7, .9.
COUNTS = np.array([30, 40, 20, 10, 5, 15, 40, 40]) * 10.0
HISTOGRAM = NoisyHistogram(GRID, COUNTS, 0.0, 2000)


@pytest.mark.parametrize(
    ("wish", "edge"),
    [
        ({"sensitivity": 0.4}, 1.0),
        ({"sensitivity": 0.41}, 0.0),
        ({"sensitivity": 0.8}, 0.0),
        ({"sensitivity": 0.9}, -1.0),
        ({"specificity": 0.9}, 1.0),
        ({"specificity": 0.7}, 0.0),
        ({"specificity": 0.1}, -1.0),
        ({"sensitivity": 0.79, "sure": True}, -1.0),
        ({"sensitivity": 0.7, "sure": True}, 0.0),
    ],
)
def test_the_last_edge_that_reaches_it(wish, edge):
    decision = choose_threshold(HISTOGRAM, **wish)
    assert decision.threshold == edge
    (name,) = set(wish) - {"sure"}
    figure = getattr(decision, name)
    assert (figure.low if wish.get("sure") else figure.value) >= wish[name]


def test_a_lucky_edge_beyond_one_that_fails_is_not_taken():
    # Noise makes more of the second class above 1 than above 0: .95, .8, .94.
    counts = np.array([300, 400, 200, 100, 50, 150, -140, 940]) * 1.0
    histogram = NoisyHistogram(GRID, counts, 2500.0, 2000)
    assert choose_threshold(histogram, sensitivity=0.9).threshold == -1.0


def test_sure_choices_are_seldom_wrong():
    random = np.random.default_rng(8)
    chances = COUNTS / COUNTS.sum()
    wrong = 0
    for _ in range(400):
        counts = random.multinomial(2000, chances) + 5 * random.normal(size=8)
        # The truth at 0 is .8: to take 0 is wrong.
        chosen = choose_threshold(
            NoisyHistogram(GRID, counts, 25.0, 2000), sensitivity=0.801, sure=True
        )
        wrong += chosen.threshold >= 0
    assert wrong <= 20  # expected 10 at most, of 400


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({}, "got neither"),
        ({"sensitivity": 0.5, "specificity": 0.5}, "got both"),
        ({"sensitivity": 1.0}, "sensitivity must be a number between 0 and 1"),
        ({"specificity": True}, "specificity must be a number between 0 and 1"),
        ({"sensitivity": 0.97}, r"reaches 0\.950: wish for less, or"),
        ({"specificity": 0.9, "sure": True}, "surely reaches.*leave out sure"),
    ],
)
def test_refusals(asked, words):
    with pytest.raises(ParameterError, match=words):
        choose_threshold(HISTOGRAM, **asked)


def test_noise_and_several_classes_are_refused():
    with pytest.raises(ParameterError, match="must be determined to be wished for"):
        choose_threshold(NoisyHistogram(GRID, COUNTS, 1e8, 2000), sensitivity=0.5)
    three = ScoreGrid(3, (0.0,))
    with pytest.raises(ParameterError, match="must be for 2 classes"):
        choose_threshold(NoisyHistogram(three, np.ones(three.cells), 0.0, 3), sensitivity=0.5)
