"""Who talks to whom: undirected graphs over the parties, or a data-less server.

Graphs are :mod:`networkx` graphs; a topology keeps the facts that algorithms and checks need.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import networkx as nx
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpadmm.errors import ParameterError, positive_integer, unknown_name

__all__ = ["GRAPHS", "SERVER", "Topology", "build_topology"]

SERVER: Final = "server"


@dataclass(frozen=True)
class Topology:
    """A connected graph over the parties, or the star of all parties around a server.

    Attributes
    ----------
    name
        The name it was asked for by, ``"edges"`` for an edge list.
    parties
        Number of parties; they are numbered from 0.
    edges
        Pairs ``i < j``; empty with a server, which is no party.
    """

    name: str
    parties: int
    edges: tuple[tuple[int, int], ...]

    @property
    def server(self) -> bool:
        """All parties talk to a server that holds no rows and averages what it hears."""
        return self.name == SERVER

    @cached_property
    def graph(self) -> nx.Graph[int]:
        """The parties' graph, without a server."""
        graph: nx.Graph[int] = nx.Graph()
        graph.add_nodes_from(range(self.parties))
        graph.add_edges_from(self.edges)
        return graph

    @cached_property
    def adjacency(self) -> sparse.csr_array:
        """The matrix A: 1 where two parties talk to each other."""
        pairs = np.array(self.edges, dtype=np.intp).reshape(-1, 2)
        both = np.concatenate([pairs, pairs[:, ::-1]])
        ones = np.ones(len(both))
        shape = (self.parties, self.parties)
        return sparse.csr_array((ones, (both[:, 0], both[:, 1])), shape=shape)

    @cached_property
    def degrees(self) -> NDArray[np.float64]:
        """V_i, the number of neighbours; 1 (the server) with a server."""
        if self.server:
            return np.ones(self.parties)
        return np.asarray(self.adjacency.sum(axis=1), dtype=np.float64).ravel()

    @cached_property
    def bipartite(self) -> bool:
        """Whether the graph is bipartite (R-ADMM's condition (iv) fails there)."""
        return bool(nx.is_bipartite(self.graph))

    def neighbours(self, party: int) -> list[int]:
        """The neighbours of one party, in increasing order."""
        return sorted(self.graph.neighbors(party))


def _grid(parties: int, seed: int) -> nx.Graph[Any]:
    columns = math.ceil(math.sqrt(parties))
    graph: nx.Graph[int] = nx.empty_graph(parties)
    graph.add_edges_from((i, i + 1) for i in range(parties - 1) if (i + 1) % columns)
    graph.add_edges_from((i, i + columns) for i in range(parties - columns))
    return graph


def _random(parties: int, seed: int) -> nx.Graph[Any]:
    # A random tree keeps it connected; the links on top bring it to 1.3 per party, the density of
    # the random graph in PDML's experiments (10 servers, 13 links).
    generator = np.random.default_rng(seed)
    order = generator.permutation(parties)
    graph: nx.Graph[int] = nx.empty_graph(parties)
    for place in range(1, parties):
        graph.add_edge(int(order[place]), int(order[generator.integers(place)]))
    wanted = min(round(1.3 * parties), parties * (parties - 1) // 2)
    while graph.number_of_edges() < wanted:
        first, second = generator.choice(parties, size=2, replace=False)
        graph.add_edge(int(first), int(second))
    return graph


def _ring(parties: int, seed: int) -> nx.Graph[Any]:
    graph: nx.Graph[Any] = nx.cycle_graph(parties) if parties > 2 else nx.path_graph(parties)
    return graph


GRAPHS: Final[dict[str, Callable[[int, int], nx.Graph[Any]]]] = {
    "ring": _ring,
    "path": lambda parties, seed: nx.path_graph(parties),
    "star": lambda parties, seed: nx.star_graph(parties - 1),
    "complete": lambda parties, seed: nx.complete_graph(parties),
    "grid": _grid,
    "random": _random,
}


def build_topology(
    topology: str | Iterable[tuple[int, int]] | Topology, parties: int, *, seed: int = 0
) -> Topology:
    """A topology over ``parties`` parties by name, or from pairs of party numbers.

    Parameters
    ----------
    topology
        ``"ring"``, ``"path"``, ``"star"`` (party 0 is the hub), ``"complete"``, ``"grid"``,
        ``"random"``, ``"server"``, or an iterable of pairs.
    parties
        Number of parties.
    seed
        For ``"random"`` only; public.
    """
    positive_integer("parties", parties)
    if isinstance(topology, Topology):
        if topology.parties != parties:
            raise ParameterError(
                f"topology must have as many parties as the data ({parties}); "
                f"got {topology.parties}."
            )
        return topology
    if isinstance(topology, str):
        if topology == SERVER:
            return Topology(SERVER, parties, ())
        if topology not in GRAPHS:
            raise unknown_name("topology", topology, [*GRAPHS, SERVER])
        built = GRAPHS[topology](parties, seed)
        return Topology(topology, parties, _sorted_edges(built.edges))
    return _from_edges(topology, parties)


def _sorted_edges(edges: Iterable[tuple[Any, Any]]) -> tuple[tuple[int, int], ...]:
    return tuple(sorted({(min(i, j), max(i, j)) for i, j in edges}))


def _from_edges(edges: Iterable[tuple[int, int]], parties: int) -> Topology:
    if not isinstance(edges, Iterable):
        raise ParameterError(f"topology must be a name or pairs of party numbers; got {edges!r}.")
    pairs = []
    for edge in edges:
        try:
            first, second = (operator.index(end) for end in edge)
        except (TypeError, ValueError):
            raise ParameterError(
                f"topology must be a name or pairs of party numbers; got the edge {edge!r}."
            ) from None
        if not (0 <= first < parties and 0 <= second < parties) or first == second:
            raise ParameterError(
                f"topology edges must join two different parties numbered 0 to {parties - 1}; "
                f"got {edge!r}."
            )
        pairs.append((first, second))
    built = Topology("edges", parties, _sorted_edges(pairs))
    components = [sorted(part) for part in nx.connected_components(built.graph)]
    if len(components) > 1:
        raise ParameterError(
            "topology must be connected; got the components "
            f"{', '.join(str(part) for part in components)}. Add an edge between them."
        )
    return built
