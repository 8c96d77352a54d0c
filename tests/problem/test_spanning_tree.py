"""The tree along which sums travel: a function of names and links, as shallow as there is."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpadmm.problem.site import GRAPHS, SpanningTree, build_topology


@st.composite
def graphs(draw):
    """A connected graph and the names of its parties."""
    parties = draw(st.integers(1, 12))
    links = {(draw(st.integers(0, party - 1)), party) for party in range(1, parties)}
    if parties > 1:
        party = st.integers(0, parties - 1)
        extra = st.tuples(party, party).filter(lambda pair: pair[0] < pair[1])
        links |= set(draw(st.lists(extra, max_size=12)))
    names = draw(st.permutations([f"n{number}" for number in range(parties)]))
    return build_topology(sorted(links), parties), tuple(names)


def by_name(tree, names):
    return names[tree.root], {names[each]: names[up] for each, up in enumerate(tree.parents)}


@given(graphs())
def test_it_is_a_tree_of_the_links_and_as_shallow_as_there_is(graph):
    topology, names = graph
    tree = SpanningTree.of(topology, names)
    assert tree.depth == nx.radius(topology.graph)
    assert tree.parent(tree.root) is None
    hops = nx.single_source_shortest_path_length(topology.graph, tree.root)
    for party in range(topology.parties):
        if party != tree.root:
            parent = tree.parent(party)
            assert parent in topology.neighbours(party)
            assert hops[parent] == hops[party] - 1
            assert party in tree.children(parent)
            # The first by name of those that would do.
            near = [each for each in topology.neighbours(party) if hops[each] < hops[party]]
            assert names[parent] == min(names[each] for each in near)
    assert tree.part(tree.root) == list(range(topology.parties))
    for party in range(topology.parties):
        below = [each for child in tree.children(party) for each in tree.part(child)]
        assert sorted([party, *below]) == tree.part(party)
    centre = [names[each] for each in nx.center(topology.graph)]
    assert names[tree.root] == min(centre)


@given(graphs(), st.randoms(use_true_random=False))
def test_the_order_of_parties_and_links_changes_nothing(graph, random):
    topology, names = graph
    order = list(range(topology.parties))
    random.shuffle(order)
    place = {old: new for new, old in enumerate(order)}
    links = [(place[j], place[i]) for i, j in topology.edges]
    random.shuffle(links)
    other = build_topology(links, topology.parties)
    renamed = tuple(names[old] for old in order)
    found = by_name(SpanningTree.of(topology, names), names)
    assert by_name(SpanningTree.of(other, renamed), renamed) == found


@pytest.mark.parametrize("graph", GRAPHS)
def test_of_every_kind_of_graph(graph):
    topology = build_topology(graph, 50)
    tree = SpanningTree.of(topology, [f"n{number:02}" for number in range(50)])
    wanted = {"ring": 25, "path": 25, "star": 1, "complete": 1}
    assert tree.depth == wanted.get(graph, nx.radius(topology.graph))


def test_of_two_thousand_parties():
    topology = build_topology("random", 2000)
    tree = SpanningTree.of(topology, [str(number) for number in range(2000)])
    assert len(tree.part(tree.root)) == 2000
    assert np.bincount(tree.parents).sum() == 2000
