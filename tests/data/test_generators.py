"""Breiman's problems: moments, best errors, seeds, public scaling."""

from math import erf, sqrt

import numpy as np
import pytest

from dpadmm.data.dataset import (
    NORM_BOUNDS,
    ringnorm,
    scaled,
    twonorm,
    waveform,
    waveform_classes,
)
from dpadmm.errors import DataError

ROWS = 40_000
MEAN = 2 / sqrt(20)
GENERATORS = {"twonorm": twonorm, "ringnorm": ringnorm, "waveform": waveform}


def within(found, expected, spread, rows):
    """Whether means of `rows` draws are within five standard errors."""
    return np.all(np.abs(found - expected) < 5 * spread / sqrt(rows))


def test_twonorm_has_its_moments_and_its_best_error():
    X, y = twonorm(ROWS, 1)
    assert X.shape == (ROWS, 20)
    for sign in (-1, 1):
        part = X[y == sign]
        assert within(part.mean(axis=0), sign * MEAN, 1, len(part))
        assert within(part.var(axis=0), 1, sqrt(2), len(part))
    error = np.mean(np.sign(X.sum(axis=1)) != y)
    best = (1 - erf(2 / sqrt(2))) / 2
    assert within(error, best, sqrt(best), ROWS)


def test_ringnorm_has_its_moments():
    X, y = ringnorm(ROWS, 2)
    wide, narrow = X[y == 1], X[y == -1]
    assert within(wide.mean(axis=0), 0, 2, len(wide))
    assert within(wide.var(axis=0), 4, 4 * sqrt(2), len(wide))
    assert within(narrow.mean(axis=0), MEAN, 1, len(narrow))
    assert within(narrow.var(axis=0), 1, sqrt(2), len(narrow))
    assert abs(np.mean(y)) < 5 / sqrt(ROWS)


def test_waveform_has_its_means():
    X, classes = waveform_classes(ROWS, 3)
    assert X.shape == (ROWS, 21)
    time = np.arange(1, 22)
    first, second, third = (np.maximum(6 - abs(time - c), 0) for c in (11, 15, 7))
    pairs = ((first, second), (first, third), (second, third))
    for number, (one, other) in enumerate(pairs):
        part = X[classes == number]
        assert within(len(part) / ROWS, 1 / 3, sqrt(2) / 3, ROWS)
        spread = np.sqrt(1 + (one - other) ** 2 / 12)
        assert within(part.mean(axis=0), (one + other) / 2, spread, len(part))


def test_binary_waveform_is_one_class_against_the_others():
    X, y = waveform(1000, 4)
    again, classes = waveform_classes(1000, 4)
    np.testing.assert_array_equal(X, again)
    np.testing.assert_array_equal(y, np.where(classes == 0, 1, -1))


@pytest.mark.parametrize("name", GENERATORS)
def test_a_seed_gives_the_same_rows_and_scaling_is_fixed(name):
    draw = GENERATORS[name]
    X, y = draw(2000, 5)
    again, labels = draw(2000, np.random.default_rng(5))
    np.testing.assert_array_equal(X, again)
    np.testing.assert_array_equal(y, labels)
    assert not np.array_equal(X, draw(2000, 6).X)
    assert set(y) == {-1.0, 1.0}
    rows = scaled(name, X)
    assert np.linalg.norm(rows, axis=1).max() <= 1 + 1e-12
    short = np.linalg.norm(X, axis=1) < NORM_BOUNDS[name]
    assert short.mean() > 0.999
    np.testing.assert_array_equal(rows[short], X[short] / NORM_BOUNDS[name])
    np.testing.assert_array_equal(scaled(name, X[:1]), rows[:1])
    assert draw(0, 0).X.shape == (0, X.shape[1])


@pytest.mark.parametrize("rows", [-1, 1.5, "3", True, None])
def test_a_wrong_number_of_rows_is_refused(rows):
    with pytest.raises(DataError, match="n must be"):
        twonorm(rows, 0)


def test_an_unknown_problem_cannot_be_scaled():
    with pytest.raises(DataError, match=r"twonorm.*'moons'"):
        scaled("moons", np.zeros((1, 2)))
