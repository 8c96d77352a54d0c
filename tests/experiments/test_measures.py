"""Measures against scikit-learn's."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from sklearn import metrics
from tests.helpers.small_experiments import SMALL

from dpadmm.errors import ParameterError
from dpadmm.experiments import problems
from dpadmm.experiments.measures import MEASURES, get_measure
from dpadmm.experiments.problems import OnePartyProblem, Problem
from dpadmm_papers.jobs import OptimumJob


def problem_of(classes, seed=0):
    generator = np.random.default_rng(seed)
    outputs = 1 if classes == 2 else classes
    members = []
    for rows in (30, 50):
        codes = generator.integers(classes, size=rows)
        signs = np.where(codes[:, None] == (1 if outputs == 1 else np.arange(outputs)), 1.0, -1.0)
        members.append((generator.normal(size=(rows, 4)), signs))
    test = generator.normal(size=(40, 4))
    codes = generator.integers(classes, size=40)
    models = generator.normal(size=(2, 3, outputs, 4))
    return Problem(tuple(members), test, codes, ("a", "b"), {}), models


@pytest.mark.parametrize("classes", [2, 3])
def test_held_back_measures_are_scikit_learn_s(classes):
    problem, models = problem_of(classes)
    for run in range(3):
        mean = models[:, run].mean(axis=0)
        scores = problem.test_rows @ mean.T
        chances = 1 / (1 + np.exp(-scores))
        if classes == 2:
            chances = np.hstack([1 - chances, chances])
            area = metrics.roc_auc_score(problem.test_codes, scores[:, 0])
        else:
            chances /= chances.sum(axis=1, keepdims=True)
            area = np.mean(
                [metrics.roc_auc_score(problem.test_codes == k, scores[:, k]) for k in range(3)]
            )
        truth = problem.test_codes
        expected = {
            "test accuracy": metrics.accuracy_score(truth, chances.argmax(axis=1)),
            "log loss": metrics.log_loss(truth, chances, labels=range(classes)),
            "AUC": area,
        }
        for name, value in expected.items():
            assert MEASURES[name](models, problem)[run] == pytest.approx(value)


def test_rows_with_one_score_count_half_in_the_area():
    problem, models = problem_of(2)
    tied = replace(problem, test_rows=problem.test_rows[np.arange(40) // 5])
    expected = metrics.roc_auc_score(tied.test_codes, tied.test_rows @ models[:, 1, 0].mean(axis=0))
    assert MEASURES["AUC"](models, tied)[1] == pytest.approx(expected)


def test_measures_on_the_parties_rows():
    problem, models = problem_of(2)
    own, pooled, right = [], [], []
    for (rows, signs), model in zip(problem.members, models[:, 1, 0], strict=True):
        own.append(np.log1p(np.exp(-signs[:, 0] * (rows @ model))).mean())
        mean = models[:, 1, 0].mean(axis=0)
        pooled += np.log1p(np.exp(-signs[:, 0] * (rows @ mean))).tolist()
        right += (np.sign(rows @ mean) == signs[:, 0]).tolist()
    assert MEASURES["average loss"](models, problem)[1] == pytest.approx(np.mean(own))
    assert MEASURES["pooled loss"](models, problem)[1] == pytest.approx(np.mean(pooled))
    assert MEASURES["training accuracy"](models, problem)[1] == pytest.approx(np.mean(right))
    each = [MEASURES["test accuracy"](models[[node]], problem)[1] for node in range(2)]
    assert MEASURES["average test accuracy"](models, problem)[1] == pytest.approx(np.mean(each))
    apart = np.linalg.norm(models[0, 1] - models[:, 1].mean(axis=0))
    assert MEASURES["consensus error"](models, problem)[1] == pytest.approx(apart)


def test_an_unknown_measure_is_refused():
    with pytest.raises(ParameterError, match="measure must be one of: AUC"):
        get_measure("beauty")


def test_rows_are_dealt_once_and_the_same_way():
    first, second = SMALL.load(), SMALL.load()
    assert first is second
    rows = np.vstack([rows for rows, _ in first.members] + [first.test_rows])
    assert rows.shape == (280, 21)
    assert len(np.unique(rows, axis=0)) == 280
    whole = OnePartyProblem(SMALL).load()
    assert whole.counts == [180]
    assert np.array_equal(OnePartyProblem(SMALL, 1).load().members[0][0], first.members[1][0])


def test_too_many_rows_are_refused():
    with pytest.raises(ParameterError, match="must fit into the 400 rows of waveform"):
        replace(SMALL, rows_per_party=200).load()


def test_distances_and_norms_of_the_parties_models():
    problem, models = problem_of(2)
    models = np.concatenate([models, models[:1] + 3.0])
    for run in range(3):
        apart = [
            np.linalg.norm(models[i, run] - models[j, run]) for i, j in ((0, 1), (0, 2), (1, 2))
        ]
        assert MEASURES["largest distance"](models, problem)[run] == pytest.approx(max(apart))
        norms = [np.linalg.norm(model[run]) for model in models]
        found = MEASURES["distance of norms"](models, problem)[run]
        assert found == pytest.approx(max(norms) - min(norms))
        square = np.mean(np.square(norms))
        assert MEASURES["average squared norm"](models, problem)[run] == pytest.approx(square)


def test_the_optimum_is_the_same_however_rows_are_kept(monkeypatch):
    kept = OptimumJob(replace(SMALL, split_seed=7), 1e-2).compute()
    # Now every row counts as mostly zero.
    monkeypatch.setattr(problems, "_MOSTLY_ZERO", 2.0)
    problems._deal.cache_clear()
    thin = OptimumJob(replace(SMALL, split_seed=7), 1e-2)
    assert sparse.issparse(thin.problem.load().test_rows)
    np.testing.assert_allclose(thin.compute().values["model"], kept.values["model"], rtol=1e-9)
    problems._deal.cache_clear()
