"""Sums over many rows: their rounding error is within the bound, which hardly grows with them."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import sparse

from dpadmm.problem.rows import (
    RunningSum,
    SparseColumns,
    dense_sums,
    row_sums,
    single_sum_error,
    summation_error,
)

UNIT = 2.0**-53


def exact_sums(rows, weights):
    return [
        float(sum(Fraction(w) * Fraction(x) for w, x in zip(weights, column, strict=True)))
        for column in rows.T.tolist()
    ]


@pytest.mark.parametrize("count", [1, 511, 512, 513, 2048, 5000])
def test_sums_are_those_of_the_rows(count):
    random = np.random.default_rng(count)
    rows, weights = random.normal(size=(2, count, 3)), random.normal(size=(2, count, 4))
    expected = np.einsum("nkl,nkf->nlf", weights, rows)
    np.testing.assert_allclose(dense_sums(rows, weights), expected, atol=1e-10)
    held = SparseColumns(sparse.csr_array(rows[0]))
    np.testing.assert_allclose(held.sums(weights[0]), expected[0].T, atol=1e-10)
    # Rows of a larger table, every fifth, are read where they are.
    wide = random.normal(size=(5 * count, 3))
    strided = dense_sums(wide[None, ::5], weights[:1])
    np.testing.assert_allclose(strided[0], weights[0].T @ wide[::5], atol=1e-10)


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("count", [700, 6000])
def test_any_sum_is_within_its_error(kind, count):
    random = np.random.default_rng(3)
    for spread in (0.0, 1e-3, 1.0):  # equal terms round in one direction, the worst there is
        rows = np.full((count, 2), math.sqrt(0.5)) + spread * random.normal(size=(count, 2))
        weights = 0.5 + 0.4999 * spread * random.random(count) + 0.123456789
        if kind == "dense":
            found = dense_sums(rows[None], weights[None, :, None])[0, 0]
        else:
            found = SparseColumns(sparse.csr_array(rows)).sums(weights[:, None])[:, 0]
        total = float(np.linalg.norm(rows, axis=1) @ np.abs(weights))
        error = np.linalg.norm(found - exact_sums(rows, weights.tolist()))
        assert error <= summation_error(count, 2) * total


def test_the_error_counts_the_rows_until_blocks_are_full():
    small = summation_error(np.array([10, 100, 500]), 5)
    np.testing.assert_allclose(small / UNIT, np.array([10, 100, 500]) + 7, rtol=1e-10)
    many = summation_error(np.array([10**4, 2 * 10**7, 10**9]), 105)
    np.testing.assert_allclose(many / UNIT, 2048 + 6, rtol=1e-10)
    wide = summation_error(np.array([10**4, 10**6]), 10**5)
    np.testing.assert_allclose(wide / UNIT, np.array([10**4, 10**5]) + 6, rtol=1e-10)


def test_a_private_solve_of_a_billion_rows_is_within_reach():
    # It stops at a thousandth of L c / n, and rounding may be half of that.
    for features in (1, 20, 105, 1000):
        error = summation_error(10**9, features) + single_sum_error(10**9)
        assert 2 * error <= 0.7 * 1e-3 / 1e9


def test_a_running_sum_keeps_what_rounding_takes_away():
    terms = [1.0, *[2.0**-53] * 1000, -1.0, 2.0**-60]
    running = RunningSum()
    for term in terms:
        running.add(np.array([term]))
    assert running.total[0] == math.fsum(terms)
    assert np.add.reduce(terms) != math.fsum(terms)


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_the_sum_of_a_party_is_that_of_its_pieces(kind, monkeypatch):
    random = np.random.default_rng(0)
    rows, weights = random.normal(size=(3000, 4)), random.normal(size=(3000, 2))
    monkeypatch.setattr("dpadmm.problem.rows._PIECE_BYTES", 1)
    found = row_sums(sparse.csr_array(rows) if kind == "sparse" else rows, weights)
    np.testing.assert_allclose(found, weights.T @ rows, atol=1e-10)
