"""Which rows are kept out: a public rule of positions."""

import pytest

from dpadmm.errors import ParameterError
from dpadmm.run.options import Split


@pytest.mark.parametrize(
    ("holdout", "rows", "kept_out"),
    [(0.2, 10, 2), (0.2, 11, 3), (0.07, 100, 7), (0.1, 3, 1), (0.5, 2, 1), (1e-9, 5, 1)],
)
def test_the_last_block_is_kept_out(holdout, rows, kept_out):
    split = Split(holdout)
    train, held_out = split.train(rows), split.held_out(rows)
    assert tuple(train) == (0, rows - kept_out)
    assert tuple(held_out) == (rows - kept_out, rows)
    assert (split.train_rows(rows), split.evaluated_rows(rows)) == (rows - kept_out, kept_out)


def test_without_a_holdout_all_rows_are_both():
    split = Split()
    assert split.train(5) is None
    assert split.held_out(5) is None
    assert (split.train_rows(5), split.evaluated_rows(5)) == (5, 5)


@pytest.mark.parametrize("holdout", [-0.1, 1.0, float("nan")])
def test_a_part_is_a_part(holdout):
    with pytest.raises(ParameterError, match="holdout must be at least 0 and below 1"):
        Split(holdout)


def test_a_row_is_left_to_train_on():
    with pytest.raises(ParameterError, match="holdout must leave every party a row"):
        Split(0.9).train(5)
