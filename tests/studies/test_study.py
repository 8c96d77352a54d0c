"""A study's machinery: sums of bounded vectors, in rounds that share one budget."""

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import pytest
from numpy.testing import assert_allclose

from dpadmm.errors import LedgerError, ParameterError
from dpadmm.ledger.balance import ChargedData, Policy
from dpadmm.ledger.sqlite import SQLiteLedger
from dpadmm.privacy.gaussian import gaussian_mu
from dpadmm.privacy.noise import DiscreteNoise, SimulatedNoise
from dpadmm.run.charges import EvaluationTerms
from dpadmm.run.options import Split
from dpadmm.run.plan import announced
from dpadmm.studies.study import (
    Block,
    Study,
    StudyOptions,
    StudyRows,
    from_triangle,
    plan_study,
    run_study,
    shares,
    smallest_epsilon,
    study_id,
    study_noise,
    upper_triangle,
)


class TwoRoundOptions(StudyOptions):
    parts: tuple[float, float] = (0.25, 0.75)


@final
@dataclass(frozen=True, kw_only=True)
class TwoRounds(Study):
    """Clipped sums, then squares around what the first round released."""

    name: ClassVar[str] = "two-rounds"
    paper: ClassVar[str] = "a test"
    options = TwoRoundOptions

    @classmethod
    def told(cls, options):
        first, second = options.parts
        return {
            "courses": (
                (Block("sum", 2, 2 * np.sqrt(2), np.sqrt(2), first),),
                (Block("square", 2, np.sqrt(32), np.sqrt(32), second),),
            )
        }

    def add_up(self, state, t, rows, responses):
        if t == 0:
            return np.clip(rows, -1, 1).sum(axis=0)
        centre = self.block(state, 0, "sum")[0] / 3000
        return (np.clip(np.clip(rows, -1, 1) - np.clip(centre, -1, 1), -2, 2) ** 2).sum(axis=0)


ROWS = {"a": 1000, "b": 1500, "c": 500}
TERMS = EvaluationTerms(1.0, 1e-6)


@pytest.fixture
def parties():
    random = np.random.default_rng(3)
    return [(random.normal(0.2, 1, (count, 2)), np.zeros((count, 1))) for count in ROWS.values()]


def planned(terms=TERMS, parts=(0.25, 0.75), rows=ROWS):
    return plan_study(TwoRounds, {"parts": parts}, rows, terms, rounds=2)


@pytest.mark.parametrize("noise", ["own", "shared"])
def test_sums_are_those_of_all_rows(parties, noise):
    terms = EvaluationTerms(1e7, 1e-6, noise=noise)
    done = run_study(planned(terms), lambda: parties, noise=study_noise(5))
    rows = np.clip(np.concatenate([rows for rows, _ in parties]), -1, 1)
    sums, _ = done.block("sum")
    assert_allclose(sums, rows.sum(axis=0), atol=2)
    squares, _ = done.block("square", 1)
    assert_allclose(squares, ((rows - sums / 3000) ** 2).sum(axis=0), atol=4)
    assert done.privacy.simulated
    assert done.record()["parties"][1] == {"name": "b", "rows": 1500}


@pytest.mark.parametrize("noise", ["own", "shared"])
def test_the_variance_of_the_noise_is_the_one_told(parties, noise):
    plan = planned(EvaluationTerms(1.0, 1e-6, noise=noise))
    rows = np.clip(np.concatenate([rows for rows, _ in parties]), -1, 1).sum(axis=0)
    off = []
    for seed in range(150):
        sums, variance = run_study(plan, lambda: parties, noise=study_noise(seed)).block("sum")
        off.append((sums - rows) / np.sqrt(variance))
    spread = np.mean(np.square(off))
    assert 0.8 < spread < 1.22


@pytest.mark.parametrize("noise", ["own", "shared"])
def test_all_rounds_together_cost_what_was_given(noise):
    terms = EvaluationTerms(1.0, 1e-6, noise=noise)
    plan = planned(terms)
    for history in announced(plan):
        spent = sum((event.sensitivity / event.sigma) ** 2 for event in history)
        allowed = gaussian_mu(np.array([1.0]), np.array([1e-6]))[0] ** 2
        assert 0.9 * allowed < spent <= allowed
    assert [e.sensitivity for e in announced(plan)[0]][1] == pytest.approx(
        np.sqrt(3) * announced(plan)[0][0].sensitivity
    )


def test_shares_that_add_up_to_more_than_the_budget_are_refused():
    with pytest.raises(ParameterError, match="add up to at most 1"):
        planned(parts=(0.5, 0.6))
    with pytest.raises(ParameterError, match="positive"):
        planned(parts=(0.0, 1.0))


def test_shares_are_the_best_for_the_weighted_variance():
    reach, weight = [1.0, 2.0, 3.0], [1.0, 4.0, 0.5]
    best = shares(reach, weight)

    def cost(parts):
        return float(np.sum(np.array(weight) * np.square(reach) / parts))

    assert sum(best) == pytest.approx(1)
    for move in ([0.01, -0.01, 0], [0, 0.01, -0.01], [-0.01, 0, 0.01]):
        assert cost(np.add(best, move)) > cost(np.array(best))


def test_a_triangle_has_the_length_of_its_matrix():
    random = np.random.default_rng(1)
    matrix = random.normal(size=(4, 4))
    matrix += matrix.T
    vector = upper_triangle(matrix)
    assert np.linalg.norm(vector) == pytest.approx(np.linalg.norm(matrix))
    assert_allclose(from_triangle(vector), matrix)


def test_rows_are_read_after_the_ledgers_have_room(tmp_path, parties):
    ledgers = {}
    for name, count in ROWS.items():
        ledgers[name] = tmp_path / f"{name}.ledger"
        about_rows = ChargedData("rows", name, count)
        SQLiteLedger.create(ledgers[name], about_rows, Policy(1.5, 1e-5)).close()
    about = StudyRows(ledgers)
    # Of a ledger's noise nothing may be repeatable.
    secure = DiscreteNoise()
    first = run_study(planned(), lambda: parties, noise=secure, about=about)
    again = run_study(planned(), lambda: parties, noise=secure, about=about)
    assert_allclose(first.sums.sums, again.sums.sums, atol=0)

    def never():
        raise AssertionError("rows were read")

    with pytest.raises(LedgerError):
        run_study(planned(EvaluationTerms(1.4, 1e-6)), never, noise=secure, about=about)
    with pytest.raises(ParameterError, match="simulated"):
        run_study(planned(), never, noise=study_noise(1), about=about)


def test_a_study_that_was_cut_short_goes_on_and_is_charged_once(tmp_path, parties, monkeypatch):
    ledgers = {}
    for name, count in ROWS.items():
        ledgers[name] = tmp_path / f"{name}.ledger"
        SQLiteLedger.create(
            ledgers[name], ChargedData("rows", name, count), Policy(1.0, 1e-6)
        ).close()
    about, whole = StudyRows(ledgers), TwoRounds.add_up

    def cut_short(self, state, t, rows, responses):
        if t == 1:
            raise KeyboardInterrupt
        return whole(self, state, t, rows, responses)

    monkeypatch.setattr(TwoRounds, "add_up", cut_short)
    heard = []
    with pytest.raises(KeyboardInterrupt):
        run_study(
            planned(),
            lambda: parties,
            noise=DiscreteNoise(),
            about=about,
            on_round=lambda done, sums: heard.append(sums[0, 0, 0].copy()),
        )
    monkeypatch.setattr(TwoRounds, "add_up", whole)
    done = run_study(planned(), lambda: parties, noise=DiscreteNoise(), about=about)
    # The first round says what it said: it was neither charged nor drawn again.
    assert_allclose(done.sums.sums[0], heard[0], atol=0)
    for path in ledgers.values():
        with SQLiteLedger(path, read_only=True) as ledger:
            assert ledger.verify().spent_epsilon <= 1.0


def test_a_study_reads_the_rows_that_a_training_reads(parties):
    about = StudyRows(split=Split(0.2))
    kept = about.counts(ROWS)
    assert kept == {"a": 800, "b": 1200, "c": 400}
    terms = EvaluationTerms(1e7, 1e-6)
    done = run_study(planned(terms, rows=kept), lambda: parties, noise=study_noise(0), about=about)
    rows = np.concatenate([rows[: int(len(rows) * 0.8)] for rows, _ in parties])
    assert_allclose(done.block("sum")[0], np.clip(rows, -1, 1).sum(axis=0), atol=2)


def test_a_row_that_is_not_finite_counts_as_zeros(parties):
    parties[0][0][0] = [np.nan, 5.0]
    done = run_study(planned(EvaluationTerms(1e7, 1e-6)), lambda: parties, noise=study_noise(0))
    rows = np.concatenate([rows for rows, _ in parties])
    rows[0] = 0.0
    assert_allclose(done.block("sum")[0], np.clip(rows, -1, 1).sum(axis=0), atol=2)


def test_a_party_alone_releases_what_it_does_among_all(parties):
    from dpadmm.problem.rows import Shard
    from dpadmm.run.session import train_party

    plan = planned()
    noise = SimulatedNoise(3)
    whole = run_study(plan, lambda: parties, noise=noise)
    heard = []

    class Alone:
        def cover(self, message, t):
            return message

        def __call__(self, message, t):
            heard.append(message.values)
            return whole.sums.sums[t][None, None, None] / 3

    for place in range(3):
        own = plan.of_party(place)
        train_party(own, Shard.of_values([parties[place]]), exchange=Alone(), noise=noise)
    # Two rounds of three parties, one after the other.
    first = sum(values[0, 0, 0] for values in heard[::2])
    second = sum(values[0, 0, 0] for values in heard[1::2])
    assert_allclose(first, whole.sums.sums[0])
    assert_allclose(second, whole.sums.sums[1])


def test_the_smallest_epsilon_for_a_width():
    assert smallest_epsilon(lambda epsilon: 2 / epsilon, 0.5) == pytest.approx(4, rel=0.011)
    with pytest.raises(ParameterError, match="within reach"):
        smallest_epsilon(lambda epsilon: 1.0, 0.5)


def test_the_name_of_a_study_tells_all_that_it_is_told():
    names = {
        study_id(planned()),
        study_id(planned(), "schema"),
        study_id(planned(EvaluationTerms(2.0, 1e-6))),
        study_id(planned(EvaluationTerms(1.0, 1e-6, 2))),
        study_id(planned(EvaluationTerms(1.0, 1e-6, noise="shared"))),
        study_id(planned(parts=(0.5, 0.5))),
        study_id(planned(rows={**ROWS, "c": 600})),
    }
    assert len(names) == 7
