"""Sums of bounded vectors over rows: the same wherever the rows are, with the error told."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from tests.helpers.private_runs import site_of
from tests.helpers.row_parts import PartsHere, parted_shard

from dpadmm.problem.rows import Shard, summation_error
from dpadmm.solvers.workspace import TOTALLED_ROWS, Workspace

COUNTS = [5000, 40, 38, 1]


def squares(rows, labels):
    return np.array([np.sum(rows**2), np.sum(rows[:, 0] * labels[:, 0])])


@pytest.fixture
def parties():
    random = np.random.default_rng(2)
    rows = [random.normal(size=(count, 20)) for count in COUNTS]
    # Norm 1 at most, so that a shard for training holds the same.
    rows = [each / np.maximum(np.linalg.norm(each, axis=1), 1)[:, None] for each in rows]
    return [(each, random.choice([-1.0, 1.0], (len(each), 1))) for each in rows]


def totals(shard, counts=COUNTS):
    return Workspace(shard, site_of(counts, features=20)).totals(squares, 2)


def test_sums_are_those_of_all_rows_within_the_error_told(parties):
    found = totals(Shard.of_values(parties))
    for (rows, labels), own, count in zip(parties, found, COUNTS, strict=True):
        exact = math.fsum((rows**2).ravel()), math.fsum(rows[:, 0] * labels[:, 0])
        error = float(summation_error(count, 1)) * count
        assert_allclose(own, exact, atol=error, rtol=0)


def test_rows_that_lie_elsewhere_add_up_to_the_same_bits(parties):
    here = totals(Shard.of_values(parties))

    def cut(count):
        whole, rest = divmod(count, TOTALLED_ROWS)
        return [TOTALLED_ROWS] * whole + [rest] * bool(rest)

    assert_array_equal(totals(parted_shard(parties, cut)), here)


def test_sparse_rows_add_up_to_the_same(parties):
    here = totals(Shard.of_values(parties))
    thin = [(sparse.csr_array(rows), labels) for rows, labels in parties]
    assert_allclose(totals(Shard.from_parties(thin)), here)
    parts = Shard.from_parties([]).beside({0: PartsHere(*thin[0], [3000, 2000])})
    assert_allclose(totals(parts, COUNTS[:1]), here[:1])


def test_values_of_any_size_are_added_up_as_they_are():
    rows = np.full((100, 20), 50.0)
    rows[3, 4] = np.inf
    found = totals(Shard.of_values([(rows, np.full((100, 1), 7.0))]), [100])
    # The row that is not finite counts as zeros, and so does what belongs to it.
    assert_array_equal(found, [[99 * 20 * 2500.0, 99 * 350.0]])
