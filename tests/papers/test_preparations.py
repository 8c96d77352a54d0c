"""Named data sets prepared otherwise: standardised, coded, drawn and with randomised labels."""

from dataclasses import replace

import numpy as np
import pytest

from dpadmm.experiments.problems import NamedProblem, dense
from dpadmm_papers.preparations import CodedProblem, ReportedProblem, StandardizedProblem

WHOLE = NamedProblem("twonorm", 3, 60, 200, drawn_rows=400)
DRAWN = NamedProblem("twonorm", 2, 300, 1, drawn_rows=2000)


@pytest.fixture(autouse=True)
def no_files(monkeypatch, tmp_path):
    """Draw what can be drawn, wherever the tests run."""
    monkeypatch.setenv("DPADMM_DATA", str(tmp_path))


def test_standardised_rows():
    problem = StandardizedProblem(WHOLE, 9.0).load()
    rows = np.concatenate([*(rows for rows, _ in problem.members), problem.test_rows])
    # No row of twonorm is longer than nine deviations.
    assert rows[:, :-1].mean(axis=0) == pytest.approx(0, abs=1e-12)
    assert 9 * rows[:, :-1].std(axis=0) == pytest.approx(1)
    assert 9 * rows[:, -1] == pytest.approx(1)
    assert problem.counts == [60] * 3
    short = StandardizedProblem(WHOLE, 4.0).load()
    norms = np.linalg.norm(short.test_rows, axis=1)
    assert norms.max() == pytest.approx(1)
    assert (norms < 0.999).any()
    again = StandardizedProblem(WHOLE, 9.0).dealt_again(1).load()
    assert not np.array_equal(again.test_rows, problem.test_rows)


def test_a_numbering_of_levels_is_applied_before_standardising(monkeypatch):
    levels = np.array([[-1.0, 0.5], [1.0, -1.0], [-0.5, 1.0], [0.5, -0.5]])
    told = NamedProblem("twonorm", 1, 3, 1, drawn_rows=4)
    given = told.load()
    given = replace(given, members=((levels[:3], np.ones((3, 1))),), test_rows=levels[3:])
    monkeypatch.setattr(NamedProblem, "load", lambda self: given)
    problem = StandardizedProblem(told, 2.0, numbering=(3, 0, 1, 2)).load()
    ranks = np.array([[3, 1], [2, 3], [0, 2], [1, 0]], dtype=float)
    expected = (ranks - ranks.mean(axis=0)) / ranks.std(axis=0) / 2
    found = np.concatenate([problem.members[0][0], problem.test_rows])[:, :-1]
    assert found == pytest.approx(expected)


def test_codes_count_from_1_over_the_longest_row(monkeypatch):
    levels = np.array([[-1.0, 0.5], [1.0, -1.0], [-0.5, 1.0], [0.5, -0.5]])
    told = NamedProblem("twonorm", 1, 3, 1, drawn_rows=4)
    given = told.load()
    given = replace(given, members=((levels[:3], np.ones((3, 1))),), test_rows=levels[3:])
    monkeypatch.setattr(NamedProblem, "load", lambda self: given)
    problem = CodedProblem(told).load()
    codes = np.array([[1, 3], [4, 1], [2, 4], [3, 2]], dtype=float)
    found = np.concatenate([problem.members[0][0], problem.test_rows])
    np.testing.assert_allclose(found, codes / np.sqrt(20.0))


def test_labels_are_randomised_once_for_a_seed():
    reported = ReportedProblem(DRAWN, 1.0, seed=3)
    true, one, again = DRAWN.load(), reported.load(), reported.load()
    flipped = np.concatenate(
        [(a[1] != b[1]).ravel() for a, b in zip(true.members, one.members, strict=True)]
    )
    assert flipped.mean() == pytest.approx(1 / (1 + np.e), abs=0.06)
    for first, second in zip(one.members, again.members, strict=True):
        np.testing.assert_array_equal(first[1], second[1])
    other = reported.dealt_again(1).load()
    assert not np.array_equal(other.members[0][1], one.members[0][1])


def test_servers_draw_from_all_rows_with_replacement():
    problem = ReportedProblem(DRAWN, 50.0, population=True).load()
    everyone = {tuple(row) for row in dense(problem.test_rows)}
    # One row is held back to judge by in the named set: it is no part of the population.
    assert len(everyone) == 1999
    drawn = [tuple(row) for rows, _ in problem.members for row in dense(rows)]
    assert set(drawn) <= everyone
    assert len(set(drawn)) < len(drawn)
    # At this epsilon labels are as they were: those of the population's rows.
    codes = {
        tuple(row): code for row, code in zip(problem.test_rows, problem.test_codes, strict=True)
    }
    for rows, signs in problem.members:
        assert all((codes[tuple(r)] > 0) == (s > 0) for r, s in zip(rows, signs[:, 0], strict=True))
