"""Adult, in the seeds' setting, against a computation of its own."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.linalg import cho_factor, cho_solve
from scipy.special import expit

from dpadmm import ADMMClassifier
from dpadmm.privacy.noise import SimulatedNoise
from dpadmm.problem.rows import Shard
from dpadmm.run.options import TrainingParameters
from dpadmm.run.plan import plan
from dpadmm.run.session import train

FOLDER = os.environ.get("DPADMM_DATA")
pytestmark = pytest.mark.skipif(
    FOLDER is None, reason="DPADMM_DATA must name the folder with adult.data.gz"
)

COLUMNS = [
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "education-num",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital-gain",
    "capital-loss",
    "hours-per-week",
    "native-country",
    "income",
]
NUMBERS = ["age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week"]
ETA, LAM, PARTIES = 0.01, 5e-4, 5


@pytest.fixture(scope="module")
def adult():
    files = [("adult.data.gz", 0), ("adult.test.gz", 1)]
    tables = [
        pd.read_csv(
            Path(FOLDER) / name, names=COLUMNS, skiprows=skip, skipinitialspace=True, na_values="?"
        )
        for name, skip in files
    ]
    table = pd.concat(tables).dropna()
    assert len(table) == 45_222
    labels = np.where(table["income"].str.startswith(">50K"), 1.0, -1.0)
    names = [column for column in COLUMNS[:-1] if column not in NUMBERS]
    categories = pd.get_dummies(table[names], dtype=float).to_numpy()
    assert categories.shape[1] == 98
    numbers = table[NUMBERS].to_numpy(dtype=float)
    numbers = (numbers - numbers.min(axis=0)) / np.ptp(numbers, axis=0)
    rows = np.hstack([categories, numbers, np.ones((len(table), 1))])
    rows /= np.maximum(np.linalg.norm(rows, axis=1), 1.0)[:, None]
    order = np.random.default_rng(0).permutation(len(rows))
    return rows[order], labels[order]


class Node:
    """Newton's method at one node, to a gradient norm of 1e-10; an old Hessian serves a while."""

    def __init__(self, signed, convexity):
        self.signed, self.convexity, self.factor = signed, convexity, None

    def solve(self, w, linear):
        for attempt in range(200):
            chances = expit(-(self.signed @ w))
            gradient = -(chances @ self.signed) / len(self.signed) + self.convexity * w + linear
            if np.linalg.norm(gradient) < 1e-10:
                return w
            if self.factor is None or attempt % 10 == 9:
                bends = chances * (1 - chances) / len(self.signed)
                hessian = (self.signed * bends[:, None]).T @ self.signed
                self.factor = cho_factor(hessian + self.convexity * np.eye(len(w)))
            w = w - cho_solve(self.factor, gradient)
        raise AssertionError("the reference did not converge")


def reference(parties, rounds):
    """Zhang and Zhu's iteration on a ring, node by node; messages after each of ``rounds``."""
    count, dimension = len(parties), parties[0].shape[1]
    f = [np.zeros(dimension)] * count
    dual = [np.zeros(dimension)] * count
    nodes = [Node(party, LAM / count + 2 * ETA * 2) for party in parties]
    found = {}
    for t in range(1, max(rounds) + 1):
        new = []
        for p in range(count):
            linear = 2 * dual[p]
            for j in ((p - 1) % count, (p + 1) % count):
                linear = linear - ETA * (f[p] + f[j])
            new.append(nodes[p].solve(f[p], linear))
        f = new
        for p in range(count):
            for j in ((p - 1) % count, (p + 1) % count):
                dual[p] = dual[p] + ETA / 2 * (f[p] - f[j])
        if t in rounds:
            found[t] = np.array(f)
    return found


def fitted(rows, labels, owners, rounds, **changes):
    settings = {"penalty": ETA, "regularization": LAM, "party_weight": "equal", **changes}
    return ADMMClassifier(
        algorithm="admm", topology="ring", rounds=rounds, fit_intercept=False, **settings
    ).fit(rows, labels, parties=owners)


def compare(adult, per_party, rounds):
    rows, labels = (part[: PARTIES * per_party] for part in adult)
    owners = np.repeat(np.arange(PARTIES), per_party)
    signed = [rows[owners == p] * labels[owners == p, None] for p in range(PARTIES)]
    expected = reference(signed, rounds)
    for t in rounds:
        model = fitted(rows, labels, owners, t)
        assert model.node_coef_.shape == (PARTIES, 1, 105)
        assert np.abs(model.node_coef_[:, 0] - expected[t]).max() < 1e-6


def test_every_node_is_where_the_iteration_puts_it(adult):
    compare(adult, 1_500, (20, 50))


def test_every_node_is_where_the_iteration_puts_it_on_all_40000_rows(adult):
    compare(adult, 8_000, (20, 50))


@pytest.mark.parametrize("algorithm", ["admm", "consensus-admm"])
@pytest.mark.parametrize("rounds", [20, 100])
def test_the_automatic_penalty_does_better_than_the_majority(adult, algorithm, rounds):
    rows, labels = adult
    assert abs((labels[:40_000] < 0).mean() - 0.753) < 0.003
    model = ADMMClassifier(
        algorithm=algorithm, rounds=rounds, fit_intercept=False, random_state=0
    ).fit(rows[:40_000, :], labels[:40_000])
    assert model.score(rows[40_000:], labels[40_000:]) > 0.80
    assert model.score(rows[:40_000], labels[:40_000]) > 0.80


@pytest.mark.parametrize(("epsilon", "least"), [(1.0, 0.82), (0.1, 0.79)])
def test_a_private_run_keeps_most_of_the_accuracy(epsilon, least, adult):
    """Four simulated runs, 5 parties on a ring, penalty from public facts alone."""
    rows, labels = adult
    order = np.random.default_rng(1).permutation(len(labels))
    train_rows, test_rows = order[:40_000], order[40_000:]
    members = np.array_split(train_rows, 5)
    shard = Shard.from_parties([(rows[member], labels[member][:, None]) for member in members])
    parameters = TrainingParameters("pr-admm", epsilon=epsilon, delta=1e-5)
    planned = plan(parameters, shard.counts, features=rows.shape[1], runs=4)
    outcome = train(planned, shard, noise=SimulatedNoise(2))
    weights = outcome.tail.mean(axis=(0, 2))
    right = (rows[test_rows] @ weights.T) * labels[test_rows, None] > 0
    assert right.shape == (len(test_rows), 4)
    assert right.mean() >= least
