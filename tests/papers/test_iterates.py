"""What iterations cost, counted."""

import numpy as np
import pytest
from tests.helpers.small_experiments import SMALL

from dpadmm.experiments.jobs import TrainingJob
from dpadmm.run.options import TrainingParameters
from dpadmm_papers.iterates import COUNTED, CostJob
from dpadmm_papers.jobs import join


@pytest.mark.parametrize(
    ("algorithm", "solves"), [("admm", [1, 1, 1, 1]), ("r-admm", [1, 0, 1, 0])]
)
def test_solves_and_passes_of_every_iteration(algorithm, solves):
    parameters = TrainingParameters(
        algorithm, topology="ring", rounds=4, penalty=0.1, loss="logistic", epsilon=50, delta=1e-3
    )
    job = CostJob(TrainingJob(SMALL, parameters, runs=2, seed=3))
    result = job.compute()
    assert set(result.values) == set(COUNTED)
    for run in range(2):
        np.testing.assert_array_equal(result.values["solves"][:, run], solves)
    # Who solves passes over the rows, and nobody else does.
    np.testing.assert_array_equal(result.values["passes"] > 0, result.values["solves"] > 0)
    more = job.further(3)
    assert more.training.runs == 6
    whole = join(result, more.compute())
    assert whole.values["seconds"].shape == (4, 8)
