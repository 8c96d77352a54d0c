"""Draws of the rows, and the optimum of each."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit

from dpadmm.experiments.problems import NamedProblem, dense
from dpadmm_papers.jobs import OptimumJob, join

TINY = NamedProblem("waveform", 3, 60, 100, drawn_rows=400)


@pytest.mark.parametrize("weights", [(), (1.0, 2.0, 0.5)])
def test_the_gradient_is_zero_at_the_optimum(weights):
    found = OptimumJob(TINY, 0.05, weights=weights).compute()
    model, gradient = found.values["model"], 0.0
    for (rows, labels), weight in zip(TINY.load().members, weights or (1, 1, 1), strict=True):
        signed = dense(rows) * labels
        slopes = -expit(-signed @ model)
        gradient = gradient + weight * (signed.T @ slopes / len(signed) + 0.05 / 3 * model)
    assert np.abs(gradient).max() < 1e-7


def test_more_draws_follow_the_first():
    few = OptimumJob(TINY, 0.05, 2)
    many = replace(few, draws=4).compute().values["average loss"]
    whole = join(few.compute(), few.further(1).compute()).values["average loss"]
    np.testing.assert_array_equal(whole, many)
    assert len(set(many.tolist())) == 4
    assert replace(few, draws=1).further(5) is None
