"""The paper's bounds, and where its conditions fail."""

import math

import networkx
import numpy as np
import pytest

from dpadmm.problem.losses import corrected_for_label_noise, get_loss
from dpadmm.problem.site import build_topology
from dpadmm_papers.pdml import theory as pdml

# A random graph of the paper's size, 10 servers and 13 links.
THIRTEEN_LINKS = (
    *((0, 9), (1, 6), (1, 8), (2, 4), (2, 7), (3, 4), (3, 5)),
    *((3, 6), (4, 6), (4, 8), (4, 9), (6, 7), (6, 8)),
)


def test_proposition_2_is_loose_for_the_logistic_loss():
    assert pdml.lipschitz(0.4) == pytest.approx(3.03, abs=0.01)
    assert pdml.lipschitz(0.4, corrected=False) == pytest.approx(5.07, abs=0.01)
    for epsilon in (0.1, 1.0, 4.0):
        exact = corrected_for_label_noise(get_loss("logistic"), epsilon).slope_bound
        assert pdml.lipschitz(epsilon) == pytest.approx(exact)


def test_uniform_noise_leaves_a_large_delta_at_every_epsilon():
    shift = 10 * (1 + 2 / math.expm1(1)) / 4500
    assert pdml.uniform_noise_delta(1.0, shift, 105) == pytest.approx(2.4e-2, rel=0.02)
    assert pdml.uniform_noise_delta(9.0, shift, 105) == pytest.approx(2.7e-3, rel=0.02)
    row = 2 * pdml.lipschitz(1.0) * 10 / 4500
    assert pdml.uniform_noise_delta(1.0, row, 105) == pytest.approx(3.5e-2, rel=0.03)
    assert pdml.uniform_noise_delta(9.0, row, 105) == pytest.approx(4.0e-3, rel=0.03)
    assert pdml.uniform_noise_delta(1.0, 10.0, 1) == 1.0


def test_uniform_noise_delta_is_the_share_of_outputs_the_other_data_set_cannot_make():
    random = np.random.default_rng(0)
    drawn = random.uniform(-1, 1, (200_000, 3)) + 0.3
    share = (np.abs(drawn) > 1).any(axis=1).mean()
    assert pdml.uniform_noise_delta(1.0, 0.3 * math.sqrt(3), 3) == pytest.approx(share, abs=5e-3)


@pytest.mark.parametrize(
    ("decay", "rounds", "total"), [(0.8, 50, 2.8e5), (0.9, 50, 1.7e3), (0.9, 100, 3.4e5)]
)
def test_decaying_noise_costs_exponentially_many_rounds(decay, rounds, total):
    assert pdml.phase_two_mu(2.0, 4.0, decay, rounds) ** 2 == pytest.approx(total / 4, rel=0.03)


@pytest.mark.parametrize(
    ("topology", "phi", "required"),
    [("ring", 1.7e-3, 109), ("complete", 0.88, 4.06), (THIRTEEN_LINKS, 2.4e-4, 819)],
)
def test_condition_25_fails_where_the_paper_needs_it(topology, phi, required):
    found = pdml.condition(pdml.spectrum(build_topology(topology, 10)), pdml.constants(1.0, 10))
    assert found.phi == pytest.approx(phi, rel=0.02)
    assert found.required == pytest.approx(required, rel=0.01)
    assert not found.feasible


def test_condition_25_fails_on_random_graphs_of_the_paper_s_size_with_any_constants():
    graphs = (networkx.gnm_random_graph(10, 13, seed=seed) for seed in range(200))
    connected = [graph for graph in graphs if networkx.is_connected(graph)][:20]
    assert len(connected) == 20
    for graph in connected:
        values = pdml.spectrum(build_topology(list(graph.edges), 10))
        for corrected in (True, False):
            for regularization in (1e-4, 1e-2, 1.0, 100.0):
                of = pdml.constants(regularization, 10, corrected=corrected)
                found = pdml.condition(values, of)
                assert found.phi < 0.01 < 20 < found.required
                assert pdml.lemma_5(values, of) is None


def test_condition_25_holds_for_two_servers_and_for_a_hundred_that_all_talk():
    for topology, parties in (("path", 2), ("complete", 100)):
        graph = pdml.spectrum(build_topology(topology, parties))
        of = pdml.constants(1.0, parties)
        assert pdml.condition(graph, of).feasible
        found = pdml.lemma_5(graph, of)
        assert found is not None
        assert 0 < found.rate < 1
        assert found.penalty > 0
        assert found.noise_weight > 0


def test_the_constants_are_those_of_the_stacked_objective():
    corrected, printed = (pdml.constants(0.6, 6, corrected=flag) for flag in (True, False))
    assert (corrected.convexity, corrected.smoothness) == pytest.approx((0.1, 0.35))
    assert (printed.convexity, printed.smoothness) == pytest.approx((0.6, 2.1))


def test_the_bounds_fall_with_rounds_to_what_labels_and_objective_noise_cost():
    parties, graph = 2, pdml.spectrum(build_topology("path", 2))
    of = pdml.constants(1.0, parties)
    found = pdml.lemma_5(graph, of)
    data = pdml.data_term(1.0, [4500, 4500], [0.01, 0.01], failure=0.05, loss_bound=1.0)
    factor = (math.e + 1) / (math.e - 1)
    assert data == pytest.approx(8 * factor * (0.01 + 2 * math.sqrt(2 * math.log(80) / 4500)))
    known = {"decay": 0.5 * found.rate, "variance": 0.1, "bound": 0.1, "parties": 2, "data": data}
    bounds = [
        pdml.theorem_1(graph, of, found, rounds=t, features=10, **known) for t in (1, 10, 10**9)
    ]
    assert bounds[0] > bounds[1] > bounds[2]
    # eta's own terms: d R^2 / 2n and d R^2 / (n kappa).
    assert bounds[2] == pytest.approx(data + 0.1 / 4 + 0.1 / (2 * of.convexity), rel=1e-6)
    printed = pdml.theorem_1(graph, of, found, rounds=10**9, features=10, corrected=False, **known)
    assert printed == pytest.approx(data + 0.01 + 0.01 / (2 * of.convexity), rel=1e-6)
    with pytest.raises(ValueError, match="decay must be in"):
        pdml.theorem_1(graph, of, found, rounds=1, **{**known, "decay": 0.999})
    assert pdml.corollary_2(parties, data) == data / 2
    assert pdml.corollary_1(of, parties, 0.1, data, features=10) == pytest.approx(
        data / 2 + 0.1 / (2 * of.convexity)
    )
    assert pdml.theorem_2(0.5, 10, 1.0, 3.0, data) == pytest.approx(0.2 + data)
    weaker = pdml.data_term(0.1, [4500, 4500], [0.01, 0.01], failure=0.05, loss_bound=1.0)
    assert weaker > 5 * data


@pytest.mark.parametrize(("rows", "features"), [(1, 3), (2, 1), (7, 2), (200, 5)])
def test_the_rademacher_complexity_of_linear_classifiers_is_within_its_bounds(rows, features):
    random, radius = np.random.default_rng(rows), 3.0
    data = random.normal(size=(rows, features))
    data /= np.maximum(np.linalg.norm(data, axis=1, keepdims=True), 1.0)
    signs = random.choice([-1.0, 1.0], size=(20_000, rows))
    # The supremum over the ball is attained along the sum.
    draws = radius / rows * np.linalg.norm(signs @ data, axis=1)
    error = 4 * draws.std() / math.sqrt(len(draws))
    low, high = pdml.rademacher(radius, rows, data)
    assert low - error <= draws.mean() <= high + error
    assert high <= pdml.rademacher(radius, rows)[1] == pytest.approx(radius / math.sqrt(rows))
    # One vector and its negative attain the lower bound: x, x in one dimension.
    if rows == 2:
        equal = np.ones((2, 1))
        found = radius / 2 * np.abs(signs @ equal).mean()
        assert found == pytest.approx(pdml.rademacher(radius, 2, equal)[0], abs=2 * error)
