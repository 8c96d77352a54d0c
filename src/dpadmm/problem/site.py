"""Public facts: who talks to whom, and what everybody may know of the parties and their problem.

A topology is an undirected graph over the parties, or a data-less server. It holds the facts that
algorithms and checks need. :attr:`Topology.graph` is a :mod:`networkx` graph for everything else; a
node never uses it, so it does not need that library.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpadmm.errors import ParameterError, positive_integer, unknown_name
from dpadmm.plain import Array
from dpadmm.problem.losses import Loss
from dpadmm.problem.rows import single_sum_error, summation_error

if TYPE_CHECKING:
    import networkx as nx

SERVER: Final = "server"


@dataclass(frozen=True)
class Topology:
    """A connected graph over the parties, or the star of all parties around a server.

    Attributes
    ----------
    name
        The name that was asked for; ``"edges"`` for an edge list.
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
        """Whether all parties talk to a server, which holds no rows and averages messages."""
        return self.name == SERVER

    @cached_property
    def graph(self) -> nx.Graph[int]:
        """The parties' graph, without a server."""
        import networkx as nx

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

    @property
    def complete(self) -> bool:
        """Whether every party is linked to every other."""
        return len(self.edges) == self.parties * (self.parties - 1) // 2

    @cached_property
    def _neighbours(self) -> list[list[int]]:
        near: list[list[int]] = [[] for _ in range(self.parties)]
        for i, j in self.edges:
            near[i].append(j)
            near[j].append(i)
        return [sorted(others) for others in near]

    @cached_property
    def _steps(self) -> list[dict[int, int]]:
        """For each connected part, the links between its first party and each other party."""
        parts: list[dict[int, int]] = []
        left = dict.fromkeys(range(self.parties))
        while left:
            start = next(iter(left))
            steps, reached = {start: 0}, [start]
            for party in reached:
                del left[party]
                for other in self._neighbours[party]:
                    if other not in steps:
                        steps[other] = steps[party] + 1
                        reached.append(other)
            parts.append(steps)
        return parts

    @cached_property
    def components(self) -> list[list[int]]:
        """The connected parts of the graph."""
        return [sorted(part) for part in self._steps]

    @cached_property
    def bipartite(self) -> bool:
        """Whether the graph is bipartite (R-ADMM's condition (iv) fails there)."""
        return all(
            (steps[i] - steps[j]) % 2 for steps in self._steps for i, j in self.edges if i in steps
        )

    def neighbours(self, party: int) -> list[int]:
        """The neighbours of one party, in increasing order."""
        return list(self._neighbours[party])


@dataclass(frozen=True)
class SpanningTree:
    """A public tree of a connected graph, along which what parties add up travels.

    Attributes
    ----------
    root
        Where sums are complete.
    parents
        Of each party: the next one towards the root; the root's own number at the root.
    depth
        Links between the root and the party that is furthest from it.
    """

    root: int
    parents: tuple[int, ...]
    depth: int

    @classmethod
    def of(cls, topology: Topology, names: Sequence[str]) -> SpanningTree:
        """The breadth-first tree of the root that makes it least deep; ties by name.

        A function of the names and of who is linked with whom: the order of the parties changes
        nothing.
        """
        # It brings much along that a run without a tree does not need.
        from scipy.sparse import csgraph

        hops = csgraph.shortest_path(topology.adjacency, unweighted=True).astype(int)
        root = min(range(topology.parties), key=lambda each: (hops[each].max(), names[each]))
        above = [
            min(
                (near for near in topology.neighbours(each) if hops[root, near] < hops[root, each]),
                key=names.__getitem__,
                default=each,
            )
            for each in range(topology.parties)
        ]
        return cls(root, tuple(above), int(hops[root].max()))

    @cached_property
    def _below(self) -> list[list[int]]:
        below: list[list[int]] = [[] for _ in self.parents]
        for party, parent in enumerate(self.parents):
            if party != parent:
                below[parent].append(party)
        return below

    def parent(self, party: int) -> int | None:
        """Whom a party tells what its part of the tree has; None at the root."""
        return None if party == self.root else self.parents[party]

    def children(self, party: int) -> list[int]:
        """Who tells a party, in their order."""
        return list(self._below[party])

    def part(self, party: int) -> list[int]:
        """A party and all that reach the root through it, in their order."""
        found = [party]
        for each in found:
            found += self._below[each]
        return sorted(found)


Pairs = Iterable[tuple[int, int]]


def _ring(parties: int, seed: int) -> Pairs:
    return [*_path(parties, seed), (parties - 1, 0)] if parties > 2 else _path(parties, seed)


def _path(parties: int, seed: int) -> Pairs:
    return zip(range(parties - 1), range(1, parties), strict=True)


def _grid(parties: int, seed: int) -> Pairs:
    columns = math.ceil(math.sqrt(parties))
    along = [(i, i + 1) for i in range(parties - 1) if (i + 1) % columns]
    return along + [(i, i + columns) for i in range(parties - columns)]


def _random(parties: int, seed: int) -> Pairs:
    # A random tree keeps it connected; the links on top bring it to 1.3 per party, the density of
    # the random graph in PDML's experiments (10 servers, 13 links).
    generator = np.random.default_rng(seed)
    order = generator.permutation(parties)
    links = {
        frozenset((int(order[place]), int(order[generator.integers(place)])))
        for place in range(1, parties)
    }
    wanted = min(round(1.3 * parties), parties * (parties - 1) // 2)
    while len(links) < wanted:
        links.add(frozenset(generator.choice(parties, size=2, replace=False).tolist()))
    return [(min(link), max(link)) for link in links]


GRAPHS: Final[dict[str, Callable[[int, int], Pairs]]] = {
    "ring": _ring,
    "path": _path,
    "star": lambda parties, seed: ((0, other) for other in range(1, parties)),
    "complete": lambda parties, seed: combinations(range(parties), 2),
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
        return Topology(topology, parties, _sorted_edges(GRAPHS[topology](parties, seed)))
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
    if len(built.components) > 1:
        raise ParameterError(
            "topology must be connected; got the components "
            f"{', '.join(str(part) for part in built.components)}. Add an edge between them."
        )
    return built


@dataclass(frozen=True)
class Site:
    """Public facts about the parties computed in this process, and about the whole problem.

    The problem is ``min_w sum_i (c_i / n_i) sum_k l(w.u_k) + regularization / 2 ||w||^2`` over
    all parties, ``u = y x``.

    Attributes
    ----------
    names, index
        The parties computed here: their names, and their numbers among all parties.
    rows, degree, weight
        n_i, V_i and c_i of each.
    adjacency
        ``(nodes, sources)``: which message in the inbox comes from a neighbour of whom. With a
        server there is one source, the mean of all parties' messages.
    parties, features, outputs, runs
        N, the dimension, columns of the classifier, repeated runs.
    least_constant
        The smallest value that the last column, a constant before rows were scaled, can have in a
        row; None where rows have no constant.
    """

    names: tuple[str, ...]
    index: NDArray[np.intp]
    rows: NDArray[np.int64]
    degree: Array
    weight: Array
    adjacency: sparse.csr_array
    topology: Topology
    features: int
    outputs: int
    runs: int
    loss: Loss
    regularization: float
    least_constant: float | None = None

    @property
    def parties(self) -> int:
        """N, the number of parties in the whole federation."""
        return self.topology.parties

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Shape of every array of parameters here."""
        return (len(self.index), self.runs, self.outputs, self.features)

    @cached_property
    def summing(self) -> Array:
        """Of each party: the relative error of a sum over its rows and of one that is made once."""
        return summation_error(self.rows, self.features) + single_sum_error(self.rows)

    def neighbour_sum(self, inbox: Array) -> Array:
        """``sum_{j in neighbours(i)} y_j`` for each party here."""
        flat = inbox.reshape(inbox.shape[0], -1)
        return np.asarray(self.adjacency @ flat).reshape(-1, *inbox.shape[1:])

    @property
    def heard_parties(self) -> list[int]:
        """Numbers of the other parties whose messages reach this site's one party."""
        party = int(self.index[0])
        if self.topology.server:
            return [other for other in range(self.parties) if other != party]
        return self.topology.neighbours(party)

    def of_party(self, party: int) -> Site:
        """The site that computes one of these parties alone, in a process of its own."""
        here = np.array([party])
        sources = [0] if self.topology.server else self.topology.neighbours(party)
        return replace(
            self,
            names=(self.names[party],),
            index=here,
            rows=self.rows[here],
            degree=self.degree[here],
            weight=self.weight[here],
            adjacency=sparse.csr_array(np.ones((1, len(sources)))),
        )

    @staticmethod
    def per_node(values: Array) -> Array:
        """Broadcast one number per party over runs, outputs and features."""
        return values[:, None, None, None]

    @classmethod
    def of_all(
        cls,
        rows: NDArray[np.int64],
        topology: Topology,
        loss: Loss,
        *,
        features: int,
        regularization: float,
        outputs: int = 1,
        runs: int = 1,
        party_weight: str = "rows",
        least_constant: float | None = None,
    ) -> Site:
        """The site that computes every party, named by its number: an in-process run."""
        parties = topology.parties
        if len(rows) != parties:
            raise ParameterError(
                f"topology must have one node per party; got {parties} nodes for {len(rows)}."
            )
        counts = np.asarray(rows, dtype=np.int64)
        weight = np.ones(parties) if party_weight == "equal" else parties * counts / counts.sum()
        mean_only = sparse.csr_array(np.ones((parties, 1)))
        return cls(
            names=tuple(str(party) for party in range(parties)),
            index=np.arange(parties),
            rows=counts,
            degree=topology.degrees,
            weight=weight,
            adjacency=mean_only if topology.server else topology.adjacency,
            topology=topology,
            features=features,
            outputs=outputs,
            runs=runs,
            loss=loss,
            regularization=regularization,
            least_constant=least_constant,
        )
