"""One party: an algorithm serves it, or refuses before rows are read and says what does."""

import numpy as np
import pytest

from dpadmm import ADMMClassifier
from dpadmm.algorithms import REGISTRY
from dpadmm.errors import ParameterError
from dpadmm.run.options import TrainingParameters
from dpadmm.run.plan import plan

SERVING = [name for name in REGISTRY if not REGISTRY[name].needs_neighbours]
OTHERS = sorted(set(REGISTRY) - set(SERVING))


def rows_of(count, seed=0):
    """Two classes, 65% in one, that a line tells apart in 9 cases of 10."""
    random = np.random.default_rng(seed)
    labels = random.random(count) < 0.65
    return random.normal(size=(count, 8)) / 3 + np.where(labels, 0.25, -0.25)[:, None], labels


@pytest.mark.parametrize("name", SERVING)
def test_what_serves_one_party_beats_the_majority(name):
    rows, labels = rows_of(5000)
    others, truth = rows_of(3000, seed=1)
    for seed in range(3):
        model = ADMMClassifier(algorithm=name, n_parties=1, data_norm=2.0, random_state=seed)
        assert model.fit(rows, labels).score(others, truth) > truth.mean() + 0.1


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("topology", ["auto", "path", "complete", []])
def test_what_needs_neighbours_refuses_one_party_and_names_what_serves(name, topology):
    parameters = TrainingParameters(name, topology=topology, rounds=1)
    with pytest.raises(ParameterError, match=f"parties must be at least 2 for .*{name}") as refusal:
        plan(parameters, [5000], features=8)
    for serving in SERVING:
        assert repr(serving) in str(refusal.value)
    plan(parameters if topology != [] else TrainingParameters(name), [500, 500], features=8)


def test_there_is_a_private_algorithm_for_one_party():
    assert any(REGISTRY[name].private for name in SERVING)
    assert all(REGISTRY[name].private for name in OTHERS)
