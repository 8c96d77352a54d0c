"""Compiled steps of many small parties against the objective and the steps of one party."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit
from tests.helpers import oracles

from dpadmm.problem.losses import get_loss
from dpadmm.problem.rows import Shard
from dpadmm.problem.site import Site, build_topology
from dpadmm.solvers import newton
from dpadmm.solvers.compiled import SmallProblems, set_inverses, take_chord_steps
from dpadmm.solvers.workspace import Workspace

FEATURES = 3


def site_of(counts, loss="logistic"):
    return Site.of_all(
        np.array(counts),
        build_topology("path", len(counts)),
        get_loss(loss),
        features=FEATURES,
        regularization=0.1,
    )


def workspace_of(parties, site):
    return Workspace(Shard.from_parties([(rows, signs[:, None]) for rows, signs in parties]), site)


def gradient_of(point, party, site, node, convexity, linear):
    rows, signs = party
    return oracles.local_gradient(
        point.astype(np.longdouble),
        rows.astype(np.longdouble),
        signs.astype(np.longdouble),
        loss=site.loss.name,
        weight=site.weight[node],
        convexity=convexity,
        linear=linear,
    )


@settings(max_examples=10)
@given(
    seed=st.integers(0, 2**32 - 1),
    exponent=st.floats(-4, 1),
    size=st.floats(-2, 1),
    separable=st.booleans(),
)
def test_many_parties_are_solved_to_their_tolerance(seed, exponent, size, separable):
    random = np.random.default_rng(seed)
    counts = random.integers(18, 20, size=newton._MANY_PARTIES)
    parties = oracles.random_parties(seed, counts, FEATURES, noise=0.0 if separable else 0.5)
    site = site_of(counts)
    workspace = workspace_of(parties, site)
    assert [solver._compiles for solver in workspace._solvers] == [True]
    convexity = 10.0**exponent * random.uniform(1, 3, size=len(counts))
    linear = 10.0**size * random.normal(size=site.shape)
    for _ in range(3):  # warm starts too
        solved = workspace.argmin(linear, convexity, 1e-8)
        for node, party in enumerate(parties):
            exact = gradient_of(
                solved.point[node, 0, 0], party, site, node, convexity[node], linear[node, 0, 0]
            )
            norm = np.sqrt((exact**2).sum())
            assert norm <= 1e-8
            np.testing.assert_allclose(float(norm), solved.residual[node, 0, 0], atol=1e-13)
        linear = linear + 0.1 * 10.0**size * random.normal(size=site.shape)


@pytest.mark.parametrize("loss", ["huber-hinge", "squared"])
def test_other_losses_are_left_to_the_usual_steps(loss):
    counts = [5] * newton._MANY_PARTIES
    parties = oracles.random_parties(0, counts, FEATURES)
    workspace = workspace_of(parties, site_of(counts, loss))
    assert [solver._compiles for solver in workspace._solvers] == [False]


def test_they_are_the_solutions_of_the_usual_steps(monkeypatch):
    counts = [12] * newton._MANY_PARTIES
    parties, site = oracles.random_parties(3, counts, FEATURES), site_of(counts)
    steps = np.random.default_rng(1).normal(size=(6, *site.shape))

    def points():
        workspace = workspace_of(parties, site)
        return [
            workspace.argmin(linear, np.full(len(counts), 0.05), 1e-10).point for linear in steps
        ]

    many = points()
    monkeypatch.setattr(newton, "_MANY_PARTIES", 10**9)
    np.testing.assert_allclose(many, points(), atol=2e-10 / 0.05)


def test_a_restored_snapshot_continues_bit_for_bit():
    counts = [12] * newton._MANY_PARTIES
    parties, site = oracles.random_parties(3, counts, FEATURES), site_of(counts)
    steps = np.random.default_rng(1).normal(size=(20, *site.shape))
    convexity = np.full(len(counts), 0.05)
    first = workspace_of(parties, site)
    for linear in steps[:10]:
        first.argmin(linear, convexity, 1e-9)
    second = workspace_of(parties, site)
    second.restore(first.snapshot())
    for linear in steps[10:]:
        points = [each.argmin(linear, convexity, 1e-9).point for each in (first, second)]
        np.testing.assert_array_equal(*points)


# -- the steps themselves -----------------------------------------------------------------------


def one_problem(tolerance):
    """The problem of one party whose inverse is not that of its Hessian, and where it stands."""
    random = np.random.default_rng(8)
    signed = random.normal(size=(1, 9, FEATURES)) / 3
    root = random.normal(size=(FEATURES, FEATURES)) / 3
    inverse = (np.eye(FEATURES) + root @ root.T)[None]
    problem = SmallProblems(
        np.ascontiguousarray(signed.swapaxes(1, 2)),
        np.array([1 / 9]),
        0.1 * random.normal(size=(1, FEATURES)),
        random.normal(size=(1, FEATURES)),
        np.array([0.8]),
        np.array([tolerance]),
        inverse,
    )

    def loss_gradient(point):
        slopes = -1 / (1 + np.exp(signed[0] @ point))
        return slopes @ signed[0] / 9 + problem.tilt[0]

    return problem, loss_gradient


def test_a_step_is_the_inverse_times_the_gradient_and_the_next_knows_the_last():
    # A rate of 1 takes every step that shortens the gradient; the tolerance ends after the first.
    problem, loss_gradient = one_problem(0.0)
    start = np.array([[0.3, -0.2, 0.5]])
    found = loss_gradient(start[0])
    slope = found + 0.8 * start[0] + problem.linear[0]
    expected = start[0] - problem.inverse[0] @ slope
    after = loss_gradient(expected)
    reached = after + 0.8 * expected + problem.linear[0]
    length = np.linalg.norm(reached)
    assert length < np.linalg.norm(slope)

    once = problem._replace(tolerance=np.array([length * 1.0001]), inverse=problem.inverse.copy())
    point, gradient = start.copy(), found[None].copy()
    assert take_chord_steps(once, 1.0, point, gradient).tolist() == [1]
    np.testing.assert_allclose(point[0], expected, rtol=1e-13)
    np.testing.assert_allclose(gradient[0], after, rtol=1e-13)
    np.testing.assert_array_equal(once.inverse, problem.inverse)  # nothing to learn from one step

    # The second step is one of BFGS; what it used is kept: P y = s.
    move, change = expected - start[0], reached - slope
    weight = 1 / (move @ change)
    side = np.eye(FEATURES) - weight * np.outer(move, change)
    updated = side @ problem.inverse[0] @ side.T + weight * np.outer(move, move)
    second = expected - updated @ reached
    left = np.linalg.norm(loss_gradient(second) + 0.8 * second + problem.linear[0])
    twice = problem._replace(tolerance=np.array([left * 1.0001]), inverse=problem.inverse.copy())
    point, gradient = start.copy(), found[None].copy()
    assert take_chord_steps(twice, 1.0, point, gradient).tolist() == [2]
    np.testing.assert_allclose(point[0], second, rtol=1e-12)
    np.testing.assert_allclose(twice.inverse[0], updated, rtol=1e-12)


def test_a_step_that_does_not_help_is_not_taken():
    problem, loss_gradient = one_problem(1e-9)
    uphill = problem._replace(inverse=-problem.inverse)
    start = np.array([[0.3, -0.2, 0.5]])
    point, gradient = start.copy(), loss_gradient(start[0])[None]
    kept = gradient.copy()
    assert take_chord_steps(uphill, 0.5, point, gradient).tolist() == [0]
    np.testing.assert_array_equal(point, start)
    np.testing.assert_array_equal(gradient, kept)
    np.testing.assert_array_equal(uphill.inverse, -problem.inverse)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_gradient_that_is_no_number_ends_it(value):
    problem, _ = one_problem(1e-9)
    point, gradient = np.zeros((1, FEATURES)), np.full((1, FEATURES), value)
    assert take_chord_steps(problem, 0.5, point, gradient).tolist() == [0]


@pytest.mark.parametrize("convexity", [1e-300, 1e-3, 10.0])
def test_compiled_inverses_are_those_of_the_hessians(convexity):
    draw = np.random.default_rng(5)
    columns = draw.normal(size=(4, 7, 12)) / 3
    scale, bowl = draw.uniform(0.1, 1, 4) / 12, np.full(4, convexity)
    point, inverse = draw.normal(size=(4, 7)), np.full((4, 7, 7), 9.0)
    set_inverses(columns, scale, bowl, point, np.array([3, 1]), inverse)
    for node in (1, 3):
        slope = -expit(-(point[node] @ columns[node]))
        weighted = columns[node] * (-slope * (1 + slope))
        hessian = scale[node] * weighted @ columns[node].T + convexity * np.eye(7)
        np.testing.assert_allclose(inverse[node] @ hessian, np.eye(7), atol=1e-9)
    assert (inverse[[0, 2]] == 9.0).all()


def test_a_hessian_of_nothing_but_convexity_has_an_inverse():
    # Rows that are all the same, on which elimination leaves pivots of rounding alone.
    columns = np.repeat(np.random.default_rng(0).normal(size=(1, 6, 1)), 9, axis=2)
    inverse = np.empty((1, 6, 6))
    set_inverses(columns, np.ones(1), np.full(1, 1e-18), np.zeros((1, 6)), np.array([0]), inverse)
    assert np.isfinite(inverse).all()
    assert (np.diagonal(inverse[0]) > 0).all()
