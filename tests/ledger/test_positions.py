"""Accounts of parts of a data set: what one person's row costs, and never less."""

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpadmm.errors import BudgetError, LedgerError, ParameterError
from dpadmm.ledger.balance import PositionCosts, RowRange, recompute
from dpadmm.ledger.base import ChargedData
from dpadmm.ledger.filters import Policy
from dpadmm.ledger.sqlite import SQLiteLedger
from dpadmm.privacy.events import GaussianRelease, InexactSolve, PureRelease

ROWS = 10
TRAIN, HELD_OUT = RowRange(0, 8), RowRange(8, 10)


@st.composite
def charges(draw):
    first = draw(st.integers(0, ROWS - 1))
    rows = RowRange(first, draw(st.integers(first + 1, ROWS)))
    return draw(st.sampled_from([rows, None])), draw(st.integers(0, 9)), draw(st.integers(0, 9))


@given(st.lists(charges(), max_size=12), charges())
def test_costs_are_the_largest_sum_of_a_position(made, asked):
    costs = PositionCosts(ROWS)
    each = np.zeros((2, ROWS), dtype=int)
    for rows, cost, apart in made:
        costs.add(Fraction(cost), Fraction(apart), rows)
        each[:, slice(*(rows or (0, ROWS)))] += np.array([[cost], [apart]])
    assert costs.most() == tuple(each.max(axis=1))
    here = each[:, slice(*(asked[0] or (0, ROWS)))]
    assert costs.most(asked[0]) == tuple(here.max(axis=1))
    edges = [piece.rows for piece in costs.pieces]
    assert [rows.first for rows in edges] == [0, *(rows.stop for rows in edges[:-1])]
    assert edges[-1].stop == ROWS


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (RowRange(0, 3), (4, 1)),
        (RowRange(2, 3), (4, 1)),
        (RowRange(3, 6), (2, 5)),
        (RowRange(6, 10), (3, 3)),
        (RowRange(2, 4), (4, 5)),
        (RowRange(5, 7), (3, 5)),
        (None, (4, 5)),
    ],
)
def test_parts_that_only_touch_do_not_meet(asked, found):
    costs = PositionCosts(ROWS)
    costs.add(Fraction(4), Fraction(1), RowRange(0, 3))
    costs.add(Fraction(2), Fraction(5), RowRange(3, 6))
    costs.add(Fraction(3), Fraction(3), RowRange(6, 10))
    assert costs.most(asked) == found


@given(st.lists(charges(), min_size=1, max_size=6), st.integers(1, 4))
def test_gaussian_releases_cover_a_person_with_several_rows(made, rows_per_person):
    # Brute force over where a person's rows are: shifts add up inside a release, squares between.
    costs = PositionCosts(ROWS)
    for rows, cost, _ in made:
        costs.add(Fraction(rows_per_person**2 * cost), Fraction(0), rows)
    worst = max(
        sum(
            cost
            * sum((rows or RowRange(0, ROWS)).first <= p < (rows or (0, ROWS))[1] for p in of) ** 2
            for rows, cost, _ in made
        )
        for of in combinations(range(ROWS), rows_per_person)
    )
    assert worst <= costs.most()[0]


def make(tmp_path, **policy):
    data = ChargedData("patients", "north", ROWS)
    return SQLiteLedger.create(
        tmp_path / "north.ledger", data, Policy(**{"epsilon": 1.0, "delta": 1e-5} | policy)
    )


def event(ledger, share):
    """A Gaussian release that costs this share of the limit."""
    return GaussianRelease(1.0, 1 / (share * ledger.account.filter.limit) ** 0.5)


def charge(ledger, run_id, share, rows=None):
    with ledger.open_run(run_id, "same", rows=rows) as run:
        run.reserve(0, event(ledger, share))


def spent(ledger):
    return float(ledger.account.spent) / ledger.account.filter.limit


def test_training_and_evaluation_of_other_rows_cost_the_larger(tmp_path):
    with make(tmp_path) as ledger:
        charge(ledger, "train", 0.9, TRAIN)
        charge(ledger, "evaluate", 0.8, HELD_OUT)
        assert spent(ledger) == pytest.approx(0.9)
        accounts = ledger.account.to_dict()["accounts"]
        assert [each["rows"] for each in accounts] == [[0, 8], [8, 10]]
        words = dict(ledger.account.lines())["Accounts"]
        assert words.startswith("rows 1 to 8: epsilon = 0.9")
        assert "rows 9 to 10: epsilon = 0.8" in words
        # Once more on the same rows adds up, and is refused with nothing charged.
        with pytest.raises(BudgetError, match="is left for rows 9 to 10"):
            charge(ledger, "again", 0.3, HELD_OUT)
        charge(ledger, "little", 0.1, HELD_OUT)
        assert spent(ledger) == pytest.approx(0.9)
        with pytest.raises(BudgetError):
            charge(ledger, "all", 0.2)


def test_a_run_on_all_rows_counts_for_every_part(tmp_path):
    with make(tmp_path) as ledger:
        charge(ledger, "before", 0.5)
        charge(ledger, "train", 0.4, TRAIN)
        charge(ledger, "evaluate", 0.3, HELD_OUT)
        assert spent(ledger) == pytest.approx(0.9)


def test_a_changed_split_adds_up_where_parts_meet(tmp_path):
    with make(tmp_path) as ledger:
        charge(ledger, "train", 0.4, TRAIN)
        charge(ledger, "evaluate", 0.1, HELD_OUT)
        charge(ledger, "other evaluation", 0.5, RowRange(6, 10))
        assert spent(ledger) == pytest.approx(0.9)
        assert [tuple(piece.rows) for piece in ledger.account.parts] == [(0, 6), (6, 8), (8, 10)]


@pytest.mark.parametrize(("rows_per_person", "maximum"), [(1, True), (2, False)])
def test_other_releases_add_up_for_a_person_with_several_rows(tmp_path, rows_per_person, maximum):
    policy = {"rows_per_person": rows_per_person, "filter": "renyi", "epsilon": 4.0}
    with make(tmp_path, **policy) as ledger:
        for run_id, rows in (("train", TRAIN), ("evaluate", HELD_OUT)):
            with ledger.open_run(run_id, "same", rows_per_person=rows_per_person, rows=rows) as run:
                run.reserve(0, PureRelease(0.1))
        once = float(Fraction(ledger.account.filter.cost(PureRelease(0.1))))
        assert float(ledger.account.spent) == pytest.approx(once if maximum else 2 * once)


def test_what_a_solver_is_off_by_counts_for_one_row_in_each_part(tmp_path):
    with make(tmp_path, rows_per_person=2, epsilon=4.0) as ledger:
        made = {"train": InexactSolve(0.05, 1.0, 1.0), "evaluate": GaussianRelease(0.05, 1.0)}
        for (run_id, each), rows in zip(made.items(), (TRAIN, HELD_OUT), strict=True):
            with ledger.open_run(run_id, "same", rows_per_person=2, rows=rows) as run:
                run.reserve(0, each)
        # The first moves by 0.1 with any of its rows, the second by 0.05 with each.
        assert ledger.account.spent >= Fraction(0.1) ** 2 + Fraction(0.05) ** 2


def test_the_rows_of_a_run_stay_and_are_checked(tmp_path):
    with make(tmp_path) as ledger:
        charge(ledger, "train", 0.2, TRAIN)
        for rows in (None, HELD_OUT):
            with pytest.raises(LedgerError, match="must continue with the parameters"):
                ledger.open_run("train", "same", rows=rows)
        with pytest.raises(LedgerError, match="0 <= first < stop <= 10"):
            ledger.open_run("beyond", "same", rows=RowRange(8, 11))


@pytest.mark.parametrize(
    "value", [[0, 1.5], [0.0, 2], [True, 2], [1], [0, 1, 2], [3, 3], [-1, 2], [0, 11], "01", None]
)
def test_an_entry_that_names_no_rows_is_refused(value):
    with pytest.raises(LedgerError, match="rows of a run must be two numbers"):
        RowRange.checked(value, 10)


def test_nobody_is_told_the_cost_of_rows_that_do_not_exist():
    with pytest.raises(ParameterError, match="within rows 1 to 10; got rows 9 to 11"):
        PositionCosts(10).most(RowRange(8, 11))


def test_the_chain_covers_the_rows_of_a_run(tmp_path):
    import json

    with make(tmp_path) as ledger:
        charge(ledger, "train", 0.2, TRAIN)
        charge(ledger, "evaluate", 0.2, HELD_OUT)
        lines = [json.dumps(row) for row in ledger.export()]
    again = recompute(lines)
    assert again.spent == ledger.account.spent
    assert again.parts == ledger.account.parts
    for written, forged in (("[8, 10]", "[0, 10]"), ("[8, 10]", "[9, 10]")):
        changed = [line.replace(written, forged) for line in lines]
        assert changed != lines
        with pytest.raises(LedgerError, match="was changed"):
            recompute(changed)
