import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpadmm.errors import ParameterError
from dpadmm.problem.site import GRAPHS, SERVER, Topology, build_topology

SIZES = [1, 2, 3, 7, 20]


@pytest.mark.parametrize("parties", SIZES)
@pytest.mark.parametrize("name", sorted(GRAPHS))
def test_every_graph_agrees_with_networkx(name, parties):
    topology = build_topology(name, parties)
    graph = nx.Graph(topology.edges)
    graph.add_nodes_from(range(parties))
    matrix = topology.adjacency.toarray()
    assert topology.name == name
    assert topology.parties == parties
    assert sorted(graph) == list(range(parties))
    assert nx.is_connected(graph)
    assert topology.bipartite == nx.is_bipartite(graph)
    assert all(i < j for i, j in topology.edges)
    assert len(set(topology.edges)) == len(topology.edges)
    np.testing.assert_array_equal(matrix, matrix.T)
    np.testing.assert_array_equal(np.diag(matrix), 0)
    np.testing.assert_array_equal(matrix, nx.to_numpy_array(graph, nodelist=range(parties)))
    np.testing.assert_array_equal(topology.degrees, [graph.degree(i) for i in range(parties)])
    for party in range(parties):
        assert topology.neighbours(party) == sorted(graph.neighbors(party))
    assert not topology.server


@pytest.mark.parametrize("parties", SIZES)
@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("path", nx.path_graph),
        ("complete", nx.complete_graph),
        ("star", lambda n: nx.star_graph(n - 1)),
        ("ring", lambda n: nx.cycle_graph(n) if n > 2 else nx.path_graph(n)),
    ],
)
def test_named_graphs_are_what_their_names_say(name, reference, parties):
    expected = {tuple(sorted(edge)) for edge in reference(parties).edges}
    assert set(build_topology(name, parties).edges) == expected


@pytest.mark.parametrize(("parties", "shape"), [(4, (2, 2)), (9, (3, 3)), (20, (4, 5))])
def test_a_full_grid_is_a_grid(parties, shape):
    assert nx.is_isomorphic(build_topology("grid", parties).graph, nx.grid_2d_graph(*shape))


def test_star_has_party_0_as_its_hub():
    np.testing.assert_array_equal(build_topology("star", 5).degrees, [4, 1, 1, 1, 1])


@given(parties=st.integers(1, 40), seed=st.integers(0, 2**32 - 1))
def test_random_graphs_are_connected_and_repeat_with_their_seed(parties, seed):
    topology = build_topology("random", parties, seed=seed)
    assert nx.is_connected(topology.graph)
    assert topology == build_topology("random", parties, seed=seed)
    wanted = min(round(1.3 * parties), parties * (parties - 1) // 2)
    assert len(topology.edges) == max(wanted, parties - 1)


@pytest.mark.parametrize("parties", SIZES)
def test_the_server_is_no_party(parties):
    topology = build_topology(SERVER, parties)
    assert topology.server
    assert topology.edges == ()
    np.testing.assert_array_equal(topology.degrees, np.ones(parties))


def test_an_edge_list_is_taken_in_any_order_and_once():
    topology = build_topology([(2, 1), (0, 1), (1, 0), (1, 2)], 3)
    assert topology.edges == ((0, 1), (1, 2))
    assert topology.name == "edges"
    assert topology.bipartite
    assert build_topology(np.array([[0, 1], [1, 2]]), 3).edges == topology.edges
    assert build_topology([], 1).edges == ()


def test_a_disconnected_edge_list_names_its_components():
    with pytest.raises(ParameterError, match="topology must be connected") as refusal:
        build_topology([(0, 3), (1, 4)], 5)
    for component in ("[0, 3]", "[1, 4]", "[2]"):
        assert component in str(refusal.value)


@pytest.mark.parametrize("edge", [(0, 0), (0, 3), (-1, 1)])
def test_an_edge_must_join_two_known_parties(edge):
    with pytest.raises(ParameterError, match="two different parties numbered 0 to 2") as refusal:
        build_topology([(0, 1), (1, 2), edge], 3)
    assert repr(edge) in str(refusal.value)


@pytest.mark.parametrize("edge", [(0,), (0, 1, 2), 7, "ab", "01", (0, None), (0, 1.5), ("0", "1")])
def test_what_is_no_edge_is_refused_by_name(edge):
    with pytest.raises(ParameterError, match="pairs of party numbers") as refusal:
        build_topology([(0, 1), edge], 2)
    assert repr(edge) in str(refusal.value)


@pytest.mark.parametrize("topology", [5, None, 2.5])
def test_what_is_no_topology_is_refused_by_name(topology):
    with pytest.raises(ParameterError, match="topology must be a name or pairs") as refusal:
        build_topology(topology, 3)
    assert repr(topology) in str(refusal.value)


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ParameterError, match="topology must be one of") as refusal:
        build_topology("rings", 3)
    for name in [*GRAPHS, SERVER]:
        assert name in str(refusal.value)
    assert "Did you mean 'ring'?" in str(refusal.value)


@pytest.mark.parametrize("parties", [0, -2, 1.5, True, "3"])
def test_the_number_of_parties_must_be_a_positive_integer(parties):
    with pytest.raises(ParameterError, match="parties must be a whole number"):
        build_topology("ring", parties)


def test_a_ready_topology_must_fit():
    ready = build_topology("ring", 4)
    assert build_topology(ready, 4) is ready
    with pytest.raises(ParameterError, match=r"as many parties as the data \(3\); got 4"):
        build_topology(ready, 3)


def test_a_topology_is_frozen():
    with pytest.raises(AttributeError):
        Topology("edges", 2, ((0, 1),)).parties = 3
