"""Shares of noisy counts: by hand, against exact binomial coverage, and under noise."""

import math

import numpy as np
import pytest
from scipy.stats import binom, norm

from dpadmm.errors import ParameterError
from dpadmm.evaluation.intervals import CountTable, accepted_range, normal_quantile, share_of

Z = 1.959963984540054
LEFT = np.array([[True, False], [False, False]])
TOP = np.array([[True, True], [False, False]])


def table(counts, noise_variance=0.0, rows=None):
    counts = np.array(counts, dtype=float)
    total = int(counts.sum()) if rows is None else rows
    return CountTable.of_released(counts, noise_variance, total)


def test_counts_are_moved_to_their_public_sum_and_no_other():
    moved = table([[5, 1], [1, 1]], 1.0, rows=4)
    assert moved.counts.tolist() == [[4, 0], [0, 0]]
    # Moving takes out the noise of the sum, which two cells of four share in half.
    assert moved.noise_of(np.array([[1.0, 1.0], [0.0, 0.0]])) == 1.0
    assert moved.noise_of(np.ones((2, 2))) == 0.0


def test_a_share_solves_its_equation():
    # 8 of 10 rows: (8 - 10 p)^2 = z^2 (10 p (1 - p) + 1/2).
    found = share_of(table([[8, 2], [3, 7]]), "share", LEFT, TOP & ~LEFT, Z)
    assert found.value == pytest.approx(0.8)
    for end in (found.low, found.high):
        assert (8 - 10 * end) ** 2 == pytest.approx(Z**2 * (10 * end * (1 - end) + 0.5))


def test_a_noisy_share_solves_its_equation():
    counts = table([[80, 20], [30, 70]], 4.0)
    found = share_of(counts, "share", LEFT, TOP & ~LEFT, Z)
    for end in (found.low, found.high):
        weights = np.array([[1 - end, -end], [0, 0]])
        covariance = 4.0 * (np.eye(4) - np.full((4, 4), 0.25))
        noise = weights.ravel() @ covariance @ weights.ravel()
        variance = 100 * end * (1 - end) + 0.5 + noise
        assert (80 - 100 * end) ** 2 == pytest.approx(Z**2 * variance)


@pytest.mark.parametrize("rows", [20, 50, 100, 1000])
def test_without_noise_coverage_is_near_nominal_at_every_share(rows):
    # Wilson's own interval covers 85% to 92% near 1.
    ends = []
    for count in range(rows + 1):
        found = share_of(table([[count, rows - count], [0, 0]]), "share", LEFT, ~LEFT, Z)
        ends.append((found.low, found.high))
    low, high = np.array(ends).T
    for share in (0.5, 0.7, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999):
        chances = binom.pmf(np.arange(rows + 1), rows, share)
        assert chances[(low <= share) & (share <= high)].sum() >= 0.93


def test_all_or_none_of_the_rows_leave_room():
    everything = share_of(table([[50, 0], [0, 0]]), "share", LEFT, ~LEFT, Z)
    assert everything.value == 1.0
    assert 0.85 < everything.low < 0.95
    assert everything.high == 1.0
    nothing = share_of(table([[0, 50], [0, 0]]), "share", LEFT, ~LEFT, Z)
    assert nothing.value == nothing.low == 0.0
    assert nothing.high == pytest.approx(1 - everything.low)


def test_what_noise_swamps_is_not_determined():
    hidden = share_of(table([[3, 1], [500, 496]], 25.0), "share", LEFT, TOP & ~LEFT, Z)
    assert (hidden.value, hidden.low, hidden.high) == (None, 0.0, 1.0)
    assert hidden.reason == "too few rows to be told from the noise"
    # The sum of all is public, but a share of it may be anything.
    assert share_of(table([[30, 10], [20, 40]], 1e6), "share", TOP, ~TOP, Z).value is None
    empty = share_of(table([[0, 0], [3, 4]]), "share", LEFT, TOP & ~LEFT, Z)
    assert empty.reason == "there are no such rows"
    assert empty.to_dict() == {"estimate": None, "low": 0.0, "high": 1.0, "reason": empty.reason}


def test_an_estimate_that_noise_moved_out_of_range_is_shown_within():
    found = share_of(table([[105, -5], [50, 50]], 9.0), "share", LEFT, TOP & ~LEFT, Z)
    assert found.value == 1.0
    assert 0.8 < found.low < 1.0 == found.high


def test_values_within_are_found_although_the_end_is_not_accepted():
    # T = 1.01 - p against a variance that vanishes at 1.
    found = accepted_range(lambda p: (1.01 - p) ** 2 - 0.1 * p * (1 - p), 1.01, "figure")
    assert found.high == 1.0
    assert (1.01 - found.low) ** 2 == pytest.approx(0.1 * found.low * (1 - found.low))


def test_the_quantile_is_the_normal_one_and_confidence_is_checked():
    assert normal_quantile(0.9) == pytest.approx(norm.ppf(0.95))
    for wrong in (0, 1, 95, math.nan, "0.95"):
        with pytest.raises(ParameterError, match="confidence must be a number between 0 and 1"):
            normal_quantile(wrong)
