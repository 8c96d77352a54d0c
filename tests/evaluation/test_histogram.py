"""Which cell a row enters, and the saved form of what is released."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpadmm.errors import ParameterError
from dpadmm.evaluation.histogram import NoisyHistogram, ScoreGrid, class_margins

TWO = ScoreGrid(2, (-1.0, 0.0, 1.0))
THREE = ScoreGrid(3, (0.0,))


def test_two_classes_by_hand():
    scores = np.array([-2.0, -1.0, 0.0, 1e-300, 1.0, 5.0])
    labels = np.array([0, 1, 1, 1, 0, 1])
    # A score of exactly zero predicts the first class: it is at or below the edge.
    assert TWO.counts(scores, labels).tolist() == [1, 0, 1, 0, 1, 1, 1, 1]


def test_three_classes_by_hand():
    scores = np.array([[1.0, -1.0, 1.0], [1.0, -2.0, 3.0]])
    assert class_margins(scores).tolist() == [[0.0, -2.0, 0.0], [-2.0, -5.0, 2.0]]
    counts = THREE.counts(scores, np.array([0, 1]))
    assert counts[:12].tolist() == [1, 0, 1, 0, 1, 0, 1, 0, 1, 1, 0, 0]
    # The tie between the first and the third goes to the first.
    assert counts[12:].reshape(3, 3).tolist() == [[1, 0, 0], [0, 0, 1], [0, 0, 0]]


@given(
    st.lists(st.tuples(st.floats(), st.floats(), st.floats(), st.integers(-3, 5)), min_size=1),
    st.tuples(st.floats(), st.floats(), st.floats(), st.integers(-3, 5)),
    st.sampled_from([TWO, THREE, ScoreGrid(3, (-2.0, 0.0))]),
)
@settings(deadline=None)
def test_one_replaced_row_moves_the_counts_by_the_sensitivity_at_most(rows, other, grid):
    def counted(chosen):
        table = np.array([row[:3] for row in chosen], dtype=float)
        scores = table[:, 0] if grid.classes == 2 else table
        return grid.counts(scores, np.array([row[3] for row in chosen]))

    counts = counted(rows)
    assert len(counts) == grid.cells
    assert counts.sum() == len(rows) * (1 if grid.classes == 2 else grid.classes + 1)
    assert np.linalg.norm(counts - counted([other, *rows[1:]])) <= grid.sensitivity + 1e-12


def test_the_sensitivity_is_reached():
    one = TWO.counts(np.array([-3.0]), np.array([0]))
    assert np.linalg.norm(one - TWO.counts(np.array([3.0]), np.array([1]))) == math.sqrt(2)
    three = ScoreGrid(3, (-3.0, 0.0))
    here = three.counts(np.array([[1.0, -1.0, -1.0]]), np.array([0]))
    there = three.counts(np.array([[-5.0, 9.0, -5.0]]), np.array([1]))
    assert np.linalg.norm(here - there) == pytest.approx(math.sqrt(2 * 4))


def test_the_grid_of_a_model_is_symmetric_and_reaches_far():
    grid = ScoreGrid.of_model(np.array([[3.0, 4.0]]), 2)
    assert 0.0 in grid.edges
    assert grid.edges == tuple(-edge for edge in reversed(grid.edges))
    assert 0 < grid.edges[-1] < 5.0
    assert ScoreGrid.of_model(np.zeros((1, 4)), 2).edges == (0.0,)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ScoreGrid(1, (0.0,)), "classes must be"),
        (lambda: ScoreGrid(2, (0.5,)), "edges must be"),
        (lambda: ScoreGrid(2, (0.0, 0.0)), "edges must be"),
        (lambda: ScoreGrid(2, (0.0, math.inf)), "edges must be"),
        (lambda: ScoreGrid(1000, (0.0,)), "at most 200000 cells"),
        (lambda: TWO.counts(np.zeros((2, 2)), np.zeros(2)), "scores must have the shape"),
        (lambda: NoisyHistogram(TWO, np.zeros(3), 1.0, 3), "counts must be 8 finite numbers"),
        (lambda: NoisyHistogram(TWO, np.zeros(8), math.nan, 3), "noise_variance must be"),
        (lambda: NoisyHistogram(TWO, np.zeros(8), 1.0, -1), "rows must be"),
    ],
)
def test_refusals(make, words):
    with pytest.raises(ParameterError, match=words):
        make()


def test_the_saved_form_comes_back_and_is_checked():
    saved = NoisyHistogram(TWO, np.arange(8) - 3.5, 2.5, 40)
    back = NoisyHistogram.from_dict(saved.to_dict())
    assert back.grid == saved.grid
    assert (back.counts == saved.counts).all()
    assert (back.noise_variance, back.rows) == (2.5, 40)
    for change in (
        {"format": 2},
        {"counts": [1.0]},
        {"counts": [math.nan] * 8},
        {"edges": [1.0]},
        {"noise_variance": -1.0},
        {"rows": 1.5},
        # Figures of these would overflow.
        {"counts": [1e100] * 8},
        {"noise_variance": 1e300},
        {"rows": 10**400},
        {"more": 1},
        {"classes": True},
    ):
        with pytest.raises(ParameterError):
            NoisyHistogram.from_dict(saved.to_dict() | change)
    with pytest.raises(ParameterError):
        NoisyHistogram.from_dict(None)
