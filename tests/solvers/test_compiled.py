"""The compiled loss and slope against numpy's and scipy's, to the last places."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit

from dpadmm.problem.losses import get_loss
from dpadmm.problem.rows import Shard
from dpadmm.problem.site import Site, build_topology
from dpadmm.solvers.compiled import logistic_losses, logistic_slopes
from dpadmm.solvers.workspace import Workspace

ULP = np.finfo(np.float64).eps


def everywhere():
    generator = np.random.default_rng(0)
    return np.concatenate(
        [
            np.linspace(-800.0, 800.0, 200_001),
            generator.normal(size=200_000),
            [0.0, -0.0, 1e300, -1e300, np.inf, 5e-324],
        ]
    )


def test_it_is_the_slope_everywhere():
    margins = np.append(everywhere(), -np.inf)
    assert np.abs(logistic_slopes(margins.copy()) + expit(-margins)).max() <= 2 * ULP


def test_it_is_the_loss_everywhere():
    margins = everywhere()
    exact = np.logaddexp(0.0, -margins)
    error = np.abs(logistic_losses(margins.copy()) - exact)
    assert (error <= 4 * ULP * np.maximum(exact, 1.0)).all()
    assert logistic_losses(np.array([-np.inf]))[0] == np.inf


@given(margin=st.floats(allow_nan=False))
def test_one_margin(margin):
    found = float(logistic_slopes(np.array([margin]))[0])
    assert found == pytest.approx(-float(expit(-margin)), abs=2 * ULP)
    assert -1.0 <= found <= 0.0


def test_small_slopes_keep_their_digits():
    margins = np.linspace(-30.0, 600.0, 100_001)
    exact = -expit(-margins)
    assert np.abs(logistic_slopes(margins.copy()) / exact - 1.0).max() <= 8 * ULP


def test_what_is_not_a_number_stays_so():
    for compiled in (logistic_slopes, logistic_losses):
        assert np.isnan(compiled(np.array([np.nan, 1.0]))).tolist() == [True, False]


def test_repeated_runs_have_the_gradient_of_single_ones():
    generator = np.random.default_rng(1)
    rows = generator.normal(size=(40, 3)) / 4
    labels = np.sign(generator.normal(size=(40, 1)))
    points = generator.normal(size=(1, 4, 1, 3))
    found = [
        Workspace(
            Shard.from_parties([(rows, labels)]),
            Site.of_all(
                np.array([40]),
                build_topology("path", 1),
                get_loss("logistic"),
                features=3,
                regularization=0.1,
                runs=runs,
            ),
        )
        for runs in (1, 4)
    ]
    together = found[1].gradient(points)
    for run in range(4):
        alone = found[0].gradient(points[:, run : run + 1])
        np.testing.assert_allclose(together[:, run : run + 1], alone, atol=8 * ULP)
