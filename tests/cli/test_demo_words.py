"""What the demo says is computed from its figures, whichever way they turn out."""

from types import SimpleNamespace

import numpy as np

from dpadmm.cli.demo import headline, verdict, when_not
from dpadmm.cli.demo_runs import PARTIES, ROWS, Findings, Together, load_data
from dpadmm.experiments.measures import Interval


def findings(own, shared, *, small=0.7, few=0.82, few_alone=0.83):
    """Figures with a spread of a tenth of a point; parties alone have 75 to 80 percent."""
    spread = np.array([-0.001, 0.0, 0.001])
    return Findings(
        parties=20,
        rows=300,
        alone=np.linspace(0.75, 0.80, 20),
        private_alone=np.full((20, 3), 0.6),
        own=Together(own + spread, {}, *[SimpleNamespace()] * 4),
        shared=Together(shared + spread, {}, *[SimpleNamespace()] * 4),
        pooled=0.86,
        small_budget=small + spread,
        few=few + spread,
        few_alone=np.array([0.81, few_alone]),
    )


def test_the_headline_follows_the_figures():
    told = headline(findings(0.79, 0.83))
    assert "77.5% of the held-out rows right on average and 80.0% at best" in told[0]
    assert "83.0% with shared noise and 79.0% with noise of each one's own" in told[0]
    assert told[1] == "With shared noise, training together beats every party alone."
    assert told[2] == "With own noise, training together does not beat the best party alone."
    turned = headline(findings(0.83, 0.80))
    assert "cannot be told from the best party alone" in turned[1]
    assert "beats every party alone" in turned[2]


def test_when_it_does_not_pay_follows_the_figures():
    tiny, few, private = when_not(findings(0.79, 0.83))
    assert "70.0%; that does not pay, against 80.0%" in tiny
    assert "83.0% alone, and 82.0% together at epsilon 1; that does not pay" in few
    assert "60.0% on average" in private
    tiny, few, _ = when_not(findings(0.79, 0.83, small=0.85, few=0.83))
    assert "it pays even there" in tiny
    assert "it cannot be told whether that pays" in few


def test_one_run_is_judged_by_its_value():
    assert "beats every" in verdict("So", Interval(0.81, -np.inf, np.inf), 0.8)
    assert "does not beat" in verdict("So", Interval(0.79, -np.inf, np.inf), 0.8)


def test_lines_say_the_spread_of_a_run_and_the_best_of_the_parties():
    lines = {line.who: line for line in findings(0.79, 0.83).lines()}
    assert lines["a party alone, no privacy: best"].mean == 0.8
    assert lines["a party alone, no privacy: best"].spread is None
    shared = lines["together, shared noise"].plain()
    assert shared["rows"] == 6000
    assert shared["epsilon"] == 1.0
    assert shared["runs"] == 3
    assert np.isclose(shared["spread"], 0.001)


def test_parties_are_small_and_skewed_and_judged_by_rows_of_the_whole(monkeypatch):
    monkeypatch.delenv("DPADMM_DATA", raising=False)
    data = load_data(3)
    problem = data.load()
    assert problem.counts == [ROWS] * PARTIES
    whole = problem.test_codes.mean()
    shares = np.array([(signs > 0).mean() for _, signs in problem.members])
    # A fifth and nine fifths of the share of all, but for what sampling moves.
    assert np.allclose(shares[::2], whole / 5, atol=0.02)
    assert np.allclose(shares[1::2], 9 * whole / 5, atol=0.04)
    # The union has the mix of the whole.
    assert abs(shares.mean() - whole) < 0.02
    # The files have the rows that are trained on.
    from dpadmm.data.tables import encode

    assert np.array_equal(encode(data.tables[7], data.schema).rows, problem.members[7][0])


def test_the_same_rows_can_be_dealt_to_a_few(monkeypatch):
    monkeypatch.delenv("DPADMM_DATA", raising=False)
    data = load_data(0)
    few = data.among(3, seed=0).load()
    assert few.counts == [PARTIES * ROWS // 3] * 3
    before = np.concatenate([rows for rows, _ in data.load().members])
    after = np.concatenate([rows for rows, _ in few.members])
    assert np.allclose(np.sort(before.sum(axis=1)), np.sort(after.sum(axis=1)))
    kept = data.first(5)
    assert kept.load().names == tuple(f"party-{number}" for number in range(5))
    assert len(kept.tables) == 5
