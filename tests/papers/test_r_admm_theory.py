"""What the paper on R-ADMM proves, and what is wrong with it, in numbers."""

import math

import networkx as nx
import numpy as np
import pytest

from dpadmm_papers.r_admm.theory import (
    condition_margins,
    general_condition_margins,
    jacobian_bounds,
    noise_condition,
    privacy_loss,
    sample_size,
    sample_size_private,
    smallest_gamma,
)


def matrix(graph):
    return nx.to_numpy_array(graph)


def test_the_jacobian_costs_a_third_of_what_the_paper_counts():
    bounds = jacobian_bounds(0.4)
    assert bounds.proven == pytest.approx(0.336, abs=5e-4)
    assert bounds.derived == pytest.approx(1.022, abs=5e-4)
    assert bounds.published == pytest.approx(1.12)


@pytest.mark.parametrize("kappa", [0.0, 1e-3, 0.1, 0.4, 0.49])
def test_the_bounds_are_ordered_under_the_paper_s_condition(kappa):
    bounds = jacobian_bounds(kappa)
    assert bounds.proven <= bounds.derived <= bounds.published


def test_the_paper_s_bounds_end_where_their_conditions_do():
    assert math.isinf(jacobian_bounds(0.5).published)
    assert math.isinf(jacobian_bounds(1.0).derived)
    assert jacobian_bounds(2.5).proven == pytest.approx(math.log(3.5))
    with pytest.raises(ValueError, match="kappa"):
        jacobian_bounds(-1.0)


def test_the_proven_jacobian_bound_is_attained_and_never_exceeded():
    random = np.random.default_rng(0)
    bowl, share = 0.3, 0.12  # m and (C / B) c1
    largest = 0.0
    for _ in range(2000):
        rows = random.normal(size=(2, 3))
        rows /= np.maximum(1, np.linalg.norm(rows, axis=1))[:, None]
        bends = random.random(2)
        dets = [
            np.linalg.det(bowl * np.eye(3) + share * bend * np.outer(row, row))
            for bend, row in zip(bends, rows, strict=True)
        ]
        largest = max(largest, abs(math.log(dets[0] / dets[1])))
    bound = jacobian_bounds(share / bowl).proven
    assert largest <= bound
    unit = np.eye(3)[0]
    with_row = np.linalg.det(bowl * np.eye(3) + share * np.outer(unit, unit))
    assert math.log(with_row / bowl**3) == pytest.approx(bound)


def test_the_condition_is_kappa_below_one_half():
    rows, bowl, weight = 100, np.array([0.004, 0.006]), 1.0
    margin = noise_condition(rows, bowl, weight=weight)
    kappa = weight * 0.25 / (rows * bowl)
    np.testing.assert_array_equal(margin > 0, kappa < 0.5)


def test_equation_32_in_the_paper_s_setting():
    """N = 5, C = 1750, B = 8000, rho = .22, eta = 1, V = 2, alpha = 1, 25 odd iterations."""
    bowl = 0.22 / 5 + 2 * 2
    loss = privacy_loss(np.full(25, bowl), 1.0, 8000, weight=1750)
    each = 2 * 1750 / 8000
    assert loss.published == pytest.approx(25 * each * (1.4 * 0.25 / bowl + 1))
    assert loss.proven == pytest.approx(25 * (each + math.log1p(1750 / 4 / 8000 / bowl)))
    assert loss.proven < loss.published
    assert math.isinf(privacy_loss(0.001, 1.0, 100).published)
    assert math.isfinite(privacy_loss(0.001, 1.0, 100).proven)


# -- convergence ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("graph", "smoothness", "expected"),
    [
        (nx.cycle_graph(5), 0.26, 0.708),
        (nx.complete_graph(5), 0.26, 0.0901),
        (nx.cycle_graph(5), 437.5, 2.004e6),
        (nx.complete_graph(5), 437.5, 2.552e5),
    ],
)
def test_the_smallest_gamma(graph, smoothness, expected):
    gamma = smallest_gamma(matrix(graph), 0.5, smoothness)
    assert gamma == pytest.approx(expected, rel=2e-3)
    # On a regular graph (iv) decides, and reads gamma eta lambda_min(D + A) > 2 M^2.
    signless = np.diag(matrix(graph).sum(axis=0)) + matrix(graph)
    closed_form = 2 * smoothness**2 / (0.5 * np.linalg.eigvalsh(signless)[0])
    assert gamma == pytest.approx(closed_form, rel=1e-5)
    assert condition_margins(matrix(graph), 0.5, smoothness, 1.01 * gamma).hold
    assert not condition_margins(matrix(graph), 0.5, smoothness, 0.99 * gamma).hold


@pytest.mark.parametrize(
    "graph", [nx.path_graph(4), nx.star_graph(4), nx.cycle_graph(6), nx.balanced_tree(2, 2)]
)
def test_on_a_bipartite_graph_no_gamma_is_enough(graph):
    links = matrix(graph)
    assert math.isinf(smallest_gamma(links, 0.5, 0.26))
    random = np.random.default_rng(0)
    for gamma in (0.0, 1.0, 1e3, 1e6):
        now = random.uniform(0.1, 1.0, size=len(links))
        margins = general_condition_margins(
            links, now, 1.1 * now, 0.26, gamma, constant=random.uniform(0.5, 5), split=3.0
        )
        assert margins.second < 0
        assert not margins.hold


def test_the_special_conditions_are_the_paper_s_formulas():
    links, eta, gamma, bend = matrix(nx.wheel_graph(6)), 0.3, 2.0, 0.26
    degrees = np.diag(links.sum(axis=0))
    steps = 2 * eta * degrees + gamma * np.eye(6)
    smallest = np.diag(steps).min()
    inverse, squares = np.linalg.inv(steps), bend**2 * np.eye(6)
    third = np.eye(6) + eta * (degrees + links) @ inverse
    third = third - 2 / (eta * smallest) * np.linalg.pinv(degrees - links) @ squares
    fourth = eta * (degrees + links) - 2 * eta * (degrees + links) @ inverse @ (eta * degrees)
    fourth = fourth - 2 / smallest * squares
    margins = condition_margins(links, eta, bend, gamma)
    for margin, literal in zip(margins, (third, fourth), strict=True):
        assert margin == pytest.approx(np.linalg.eigvalsh((literal + literal.T) / 2)[0])


# -- rows needed ----------------------------------------------------------------------------------


def test_theorem_vi_1_up_to_its_constant():
    size = sample_size(2.0, 0.1, [0.05, 0.02], 0.01)
    assert size == pytest.approx(4 * math.log(100) / 0.05**2)
    with pytest.raises(ValueError, match="excess must exceed every gap"):
        sample_size(2.0, 0.1, 0.1, 0.01)


def test_theorem_vi_2_tends_to_the_first_as_noise_vanishes_and_is_vacuous_for_much_of_it():
    facts = {"parties": 5, "features": 10, "weight": 1.0}
    limit = sample_size_private(2.0, 0.1, 0.05, 0.01, rate=1e9, **facts)
    assert limit == pytest.approx(2 * sample_size(2.0, 0.1, 0.05, 0.01))
    assert math.isinf(sample_size_private(2.0, 0.1, 0.05, 0.01, rate=100.0, **facts))
    more = sample_size_private(2.0, 0.1, 0.05, 0.01, rate=1e4, slack=1.0, **facts)
    assert more > sample_size_private(2.0, 0.1, 0.05, 0.01, rate=1e4, **facts) > limit
