"""The link from a score to a probability."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from dpadmm.errors import ParameterError
from dpadmm.evaluation.histogram import (
    Link,
    NoisyHistogram,
    ScoreGrid,
    class_probabilities,
    fit_link,
    fit_links,
    nearest_counts,
)
from dpadmm.evaluation.intervals import CountTable

GRID = ScoreGrid.of_model(np.array([[10.0]]), 2)


def rows_of(seed, rows=500, slope=2.0, offset=-0.5):
    random = np.random.default_rng(seed)
    scores = random.normal(scale=1.2, size=rows)
    labels = (random.random(rows) < 1 / (1 + np.exp(-slope * scores - offset))).astype(int)
    return scores, labels


def histogram(scores, labels, deviation=0.0, seed=0, grid=GRID):
    counts = grid.counts(scores, labels)
    noise = deviation * np.random.default_rng(seed).normal(size=counts.size)
    return NoisyHistogram(grid, counts + noise, deviation**2, len(labels))


def platt(scores, labels):
    """Platt's fit to rows, by a general minimiser."""
    members = labels.sum()
    target = np.where(labels, (members + 1) / (members + 2), 1 / (len(labels) - members + 2))

    def loss(numbers):
        margins = numbers[0] * scores + numbers[1]
        return (np.logaddexp(0, margins) - target * margins).sum()

    return minimize(loss, np.zeros(2), tol=1e-12).x


@given(st.lists(st.floats(-50, 50), min_size=1, max_size=12), st.integers(0, 100))
@settings(deadline=None)
def test_the_nearest_counts_are_nearest(values, total):
    counts = np.array(values)
    found = nearest_counts(counts, float(total))
    assert (found >= 0).all()
    assert found.sum() == pytest.approx(total, abs=1e-9)
    # The optimality conditions: one shift for all that is left, no less for what was cut.
    shift = counts - found
    kept = found > 1e-9
    if kept.any():
        assert np.ptp(shift[kept]) < 1e-9
        assert (shift[~kept] <= shift[kept].max() + 1e-9).all()


def test_bins_give_nearly_the_fit_of_the_rows():
    scores, labels = rows_of(0, rows=4000)
    (link,) = fit_links(histogram(scores, labels))
    slope, offset = platt(scores, labels)
    told = link.probability(scores)
    exact = 1 / (1 + np.exp(-slope * scores - offset))
    assert np.abs(told - exact).mean() < 0.01


def test_rows_at_the_centres_give_the_fit_itself():
    scores, labels = rows_of(1)
    centred = GRID.centres[np.searchsorted(GRID.edges, scores)]
    (link,) = fit_links(histogram(scores, labels))
    assert [link.slope, link.offset] == pytest.approx(platt(centred, labels), rel=1e-3)


def test_the_scale_of_the_scores_does_not_matter():
    scores, labels = rows_of(2)
    small = ScoreGrid(2, tuple(edge * 1e-4 for edge in GRID.edges))
    (link,) = fit_links(histogram(scores, labels))
    (scaled,) = fit_links(histogram(scores * 1e-4, labels, grid=small))
    assert scaled.slope * 1e-4 == pytest.approx(link.slope)
    assert scaled.offset == pytest.approx(link.offset)


@pytest.mark.parametrize(("deviation", "most"), [(2.0, 0.03), (10.0, 0.12)])
def test_noise_moves_probabilities_a_little(deviation, most):
    scores, labels = rows_of(3, rows=2000)
    exact = fit_links(histogram(scores, labels))[0].probability(scores)
    errors = []
    for seed in range(20):
        (link,) = fit_links(histogram(scores, labels, deviation, seed))
        errors.append(np.abs(link.probability(scores) - exact).mean())
    assert np.mean(errors) < most


@pytest.mark.parametrize("seed", range(5))
def test_a_slope_is_never_negative(seed):
    scores, labels = rows_of(seed, slope=-1.0)
    (link,) = fit_links(histogram(scores, labels, 1.0, seed))
    assert link.slope == 0.0
    assert link.probability(np.array([0.0]))[0] == pytest.approx(labels.mean(), abs=0.06)


@pytest.mark.parametrize(
    "counts",
    [
        np.zeros((2, GRID.bins)),
        np.concatenate([np.zeros((1, GRID.bins)), np.eye(GRID.bins)[3:4] * 50]),
        np.stack([np.eye(GRID.bins)[0] * 30, np.eye(GRID.bins)[-1] * 30]),
        -np.ones((2, GRID.bins)),
    ],
    ids=["nobody", "one bin", "told apart", "negative"],
)
def test_every_table_has_a_finite_link(counts):
    link = fit_link(CountTable.of_released(counts, 1.0, max(int(counts.sum()), 0)), GRID).link
    assert np.isfinite([link.slope, link.offset]).all()
    assert link.slope >= 0


def test_how_the_link_follows_a_count():
    scores, labels = rows_of(4)
    counts = GRID.counts(scores, labels).reshape(2, -1) + 1.0
    table = CountTable(counts, 0.0, int(counts.sum()))
    fit = fit_link(table, GRID)
    for cell in ((0, 3), (1, 9)):
        moved = counts.copy()
        moved[cell] += 1e-3
        near = fit_link(CountTable(moved, 0.0, table.rows), GRID).link
        change = np.array([near.slope - fit.link.slope, near.offset - fit.link.offset]) / 1e-3
        told = fit.response[:, cell[0] * GRID.bins + cell[1]]
        # The targets' own dependence on the counts is left out: it is of the order of 1 / N^2.
        assert told == pytest.approx(change, rel=0.05, abs=2e-4)


def test_probabilities_sum_to_one_and_keep_the_order_of_two_classes():
    two = class_probabilities((Link(1.5, 0.2),), np.array([-1.0, 0.0, 2.0]))
    assert two.sum(axis=1) == pytest.approx(np.ones(3))
    assert (np.diff(two[:, 1]) > 0).all()
    links = (Link(1.0, 0.0), Link(2.0, -1.0), Link(0.5, 0.5))
    several = class_probabilities(links, np.array([[1.0, 0.0, -1.0], [0.0, 3.0, -2.0]]))
    assert several.sum(axis=1) == pytest.approx(np.ones(2))
    assert several.argmax(axis=1).tolist() == [0, 1]
    nobody = class_probabilities((Link(0.0, -1e4),) * 3, np.zeros((1, 3)))
    assert nobody.tolist() == [[1 / 3] * 3]
    with pytest.raises(ParameterError, match="one column for each of 3 classes"):
        class_probabilities(links, np.zeros((4, 2)))
