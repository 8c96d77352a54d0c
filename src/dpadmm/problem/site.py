"""Public facts: what everybody may know about the parties, their rows and their problem."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpadmm.errors import ParameterError
from dpadmm.plain import Array
from dpadmm.problem.losses import Loss
from dpadmm.problem.rows import single_sum_error, summation_error
from dpadmm.problem.topologies import Topology


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
        )
