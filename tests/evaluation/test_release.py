"""The histogram that is released: exact counts, the noise that is charged, one cell a row."""

import math

import numpy as np
import pytest

from dpadmm.errors import ParameterError
from dpadmm.privacy.accountant import epsilon_spent
from dpadmm.privacy.events import GaussianRelease, SharedGaussian
from dpadmm.privacy.noise import SimulatedNoise, secure_noise
from dpadmm.problem.rows import Shard, label_signs
from dpadmm.run.charges import (
    HISTOGRAM_SHARE,
    EvaluationTerms,
    evaluation_id,
    plan_evaluation,
    plan_whole,
    shared_budgets,
)
from dpadmm.run.engine import MemoryLedger
from dpadmm.run.options import Split, TrainingParameters, Wish
from dpadmm.run.plan import announced, plan
from dpadmm.run.session import release_histogram, state_whole

ROWS = {"north": 60, "south": 41, "west": 30}
RANDOM = np.random.default_rng(3)


def parties(classes, sparse=False):
    """Rows of norm 1 at most, and codes of their classes."""
    from scipy.sparse import csr_array

    made = []
    for count in ROWS.values():
        rows = RANDOM.normal(size=(count, 4))
        rows /= np.maximum(np.linalg.norm(rows, axis=1), 1.0)[:, None]
        codes = RANDOM.integers(0, classes, count)
        made.append((csr_array(rows) if sparse else rows, codes))
    return made


def shard(made, classes):
    outputs = 1 if classes == 2 else classes
    return Shard.from_parties([(rows, label_signs(codes, outputs)) for rows, codes in made])


def weights(classes):
    return RANDOM.normal(size=(1 if classes == 2 else classes, 4))


def brute_counts(grid, made, model):
    """Row by row, cell by cell."""
    tables = np.zeros((grid.tables, 2, grid.bins))
    crossed = np.zeros((grid.classes, grid.classes))
    for rows, codes in made:
        dense = rows.toarray() if hasattr(rows, "toarray") else rows
        for row, code in zip(dense, codes, strict=True):
            scores = model @ row
            if grid.classes == 2:
                tables[0, int(code), sum(edge < scores[0] for edge in grid.edges)] += 1
                continue
            for k in range(grid.classes):
                margin = scores[k] - max(np.delete(scores, k))
                tables[k, int(code == k), sum(edge < margin for edge in grid.edges)] += 1
            crossed[code, int(np.argmax(scores))] += 1
    flat = tables.ravel()
    return flat if grid.classes == 2 else np.concatenate([flat, crossed.ravel()])


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("noise", ["own", "shared"])
def test_the_noise_is_what_is_charged(classes, noise):
    made, model = parties(classes, sparse=noise == "own"), weights(classes)
    terms = EvaluationTerms(1.0, 1e-5, noise=noise)
    planned = plan_evaluation(model, classes, ROWS, terms)
    exact = brute_counts(planned.algorithm.grid, made, model)
    draws = []
    for key in range(40):
        found, outcome = release_histogram(planned, shard(made, classes), noise=SimulatedNoise(key))
        draws.append(found.counts - exact)
    spread = np.array(draws)
    assert found.rows == sum(ROWS.values())
    # 40 draws of every cell: the variance is known to a few per cent, the mean to a few sd.
    cells = spread.size
    assert spread.var() / found.noise_variance == pytest.approx(1.0, abs=5 * math.sqrt(2 / cells))
    assert abs(spread.mean()) < 5 * math.sqrt(found.noise_variance / cells)
    (event,) = outcome.events[0]
    delta_counts = math.sqrt(2) if classes == 2 else math.sqrt(2 * (classes + 1))
    sigma_counts = event.sigma / event.sensitivity * delta_counts
    if noise == "own":
        assert isinstance(event, GaussianRelease)
        assert found.noise_variance == pytest.approx(3 * sigma_counts**2, rel=1e-6)
    else:
        assert isinstance(event, SharedGaussian)
        assert (event.parties, event.colluders) == (3, 1)
        assert found.noise_variance == pytest.approx(3 / 2 * sigma_counts**2, rel=1e-6)
    spent = epsilon_spent([event], 1e-5).epsilon
    assert 0.9999 < spent <= 1.0


def test_exact_draws_are_taken_where_noise_is_not_simulated():
    made, model = parties(2), weights(2)
    planned = plan_evaluation(model, 2, ROWS, EvaluationTerms(1e3, 1e-5))
    found, _ = release_histogram(planned, shard(made, 2), noise=secure_noise())
    exact = brute_counts(planned.algorithm.grid, made, model)
    assert np.abs(found.counts - exact).max() < 10 * math.sqrt(found.noise_variance) < 10


@pytest.mark.parametrize("classes", [2, 3])
def test_replacing_a_row_moves_a_message_by_its_sensitivity_at_most(classes):
    made, model = parties(classes), weights(classes)
    planned = plan_evaluation(model, classes, ROWS, EvaluationTerms(1.0, 1e-5))
    release, grid = planned.algorithm, planned.algorithm.grid
    before = brute_counts(grid, made[:1], model)
    furthest = 0.0
    for _ in range(50):
        rows, codes = made[0][0].copy(), made[0][1].copy()
        rows[0] = RANDOM.choice([-1, 1]) * np.eye(4)[RANDOM.integers(4)]
        codes[0] = RANDOM.integers(classes)
        moved = np.linalg.norm(brute_counts(grid, [(rows, codes)], model) - before)
        furthest = max(furthest, release.scale * moved)
    assert furthest <= release.sensitivity[0]
    assert furthest > 0.6 * release.sensitivity[0]


@pytest.mark.parametrize("classes", [2, 3])
def test_no_warning_tells_which_rows_a_huge_model_overflows_on(classes):
    """A warning is an error here; a model file may hold any finite weights."""
    made = [(np.full((10, 8), 0.35), np.zeros(10, dtype=int))]
    outputs = 1 if classes == 2 else classes
    model = np.full((outputs, 8), 1e308)
    planned = plan_evaluation(model, classes, {"north": 10}, EvaluationTerms(1.0, 1e-3))
    release_histogram(planned, shard(made, classes), noise=SimulatedNoise(0))


def test_several_rows_of_a_person_cost_their_square():
    once, twice = (
        plan_evaluation(weights(2), 2, ROWS, EvaluationTerms(1.0, 1e-5, people)).algorithm
        for people in (1, 2)
    )
    assert twice.sigma[0] == pytest.approx(2 * once.sigma[0])
    assert twice.sensitivity[0] == once.sensitivity[0]


def test_the_release_is_announced_before_a_row_is_read():
    planned = plan_evaluation(weights(2), 2, ROWS, EvaluationTerms(1.0, 1e-5))
    ledgers = [MemoryLedger() for _ in ROWS]
    _, outcome = release_histogram(
        planned, shard(parties(2), 2), noise=SimulatedNoise(0), ledgers=ledgers
    )
    state = planned.algorithm.init(planned.site)
    assert tuple(each[0] for each in outcome.events) == planned.algorithm.announce(
        state, planned.site, 0
    )


def test_the_name_of_an_evaluation_tells_its_terms_and_its_model():
    model = weights(2)

    def name(model=model, **changes):
        terms = {"epsilon": 1.0, "delta": 1e-5, "noise": "own"} | changes
        return evaluation_id("run", plan_evaluation(model, 2, ROWS, EvaluationTerms(**terms)))

    names = {name(), name(epsilon=2.0), name(delta=1e-6), name(noise="shared"), name(2 * model)}
    names.add(name(rows_per_person=2))
    assert len(names) == 6
    assert name() in names


def test_too_few_parties_share_no_noise():
    with pytest.raises(ParameterError, match="parties must be at least 3"):
        plan_evaluation(
            weights(2), 2, {"a": 10, "b": 10}, EvaluationTerms(1.0, 1e-5, noise="shared")
        )


def test_training_and_histogram_of_the_same_rows_fill_the_budget_together():
    told = TrainingParameters("dp-gd", epsilon=1.0, delta=1e-5, rounds=20)

    def planned(parameters):
        return plan(parameters, list(ROWS.values()), features=4, names=tuple(ROWS))

    trained, counted = shared_budgets(planned(told))
    training = planned(TrainingParameters("dp-gd", epsilon=trained, delta=1e-5, rounds=20))
    histogram = plan_evaluation(weights(2), 2, ROWS, EvaluationTerms(counted, 1e-5))
    events = [*announced(training)[0], *announced(histogram)[0]]
    spent = epsilon_spent(events, 1e-5).epsilon
    assert 0.9999 < spent <= 1.0
    share = [(event.sensitivity / event.sigma) ** 2 for event in events]
    assert share[-1] / sum(share) == pytest.approx(HISTOGRAM_SHARE, rel=1e-6)


def test_releases_that_are_not_gaussian_share_no_budget():
    told = TrainingParameters("dvp", epsilon=1.0, delta=1e-5, rounds=3)
    planned = plan(told, [5000, 5000], features=4)
    with pytest.raises(ParameterError, match="probabilities must be fitted to rows kept out"):
        shared_budgets(planned)


@pytest.mark.parametrize("people", [1, 2])
def test_a_person_with_rows_in_both_parts_spends_no_more_than_was_asked_for(people):
    """The larger of both costs is known to bound that for Gaussian releases alone."""
    rows = {"a": 5000, "b": 5000}

    def whole(algorithm):
        told = TrainingParameters(algorithm, epsilon=4.0, rounds=2, rows_per_person=people)
        wish = Wish(Split(0.2), evaluate=True)
        return plan_whole(told, rows, features=4, classes=2, wish=wish)

    def spent(planned):
        noise, ahead = SimulatedNoise(0), announced(planned.expected())
        training = planned.training
        return state_whole(training, announced(training), noise, planned.wish, ahead=ahead).epsilon

    assert spent(whole("dp-gd")) <= 4.0
    if people == 1:
        assert spent(whole("dvp")) <= 4.0
    else:
        with pytest.raises(ParameterError, match=r"rows_per_person must be 1 .* 'dvp'; got 2"):
            whole("dvp")
