r"""Conventional decentralised ADMM, without privacy: the baseline of every paper on a graph.

P. A. Forero, A. Cano, G. B. Giannakis, "Consensus-based distributed support vector machines",
JMLR 11, 2010; the form used by Zhang and Zhu (DVP, eqs. 9-11).

.. math::
    x_i &= \arg\min_w \tfrac{c_i}{n_i}\textstyle\sum_k l(w\cdot u_k)
           + \tfrac{m_i}{2}\|w\|^2
           + \langle \alpha_i - \eta(V_i y_i + \textstyle\sum_j y_j),\, w\rangle,
           \quad m_i = \tfrac{\lambda}{N} + 2\eta V_i \\
    y_i &\leftarrow x_i \quad\text{(sent)}\\
    \alpha_i &\leftarrow \alpha_i + \eta\,(V_i y_i - \textstyle\sum_j y_j)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self, final

from dpadmm.algorithms.base import (
    Algorithm,
    GraphOptions,
    GraphState,
    Options,
    Settings,
    graph_absorb,
    graph_convexity,
    graph_init,
    graph_linear,
)
from dpadmm.plain import Array
from dpadmm.privacy.events import NON_PRIVATE, Event
from dpadmm.privacy.mechanisms import Released, release_unprotected
from dpadmm.privacy.noise import NoiseSource
from dpadmm.problem.site import Site
from dpadmm.solvers.workspace import Workspace


@final
@dataclass(frozen=True)
class ADMM(Algorithm):
    """ADMM on any connected graph.

    Parameters
    ----------
    penalty
        eta, common to all parties.
    tolerance
        Largest gradient norm of a local solve.
    start
        y^0, as :func:`~dpadmm.algorithms.base.graph_start` takes it.
    """

    name: ClassVar[str] = "admm"
    paper: ClassVar[str] = "Forero, Cano, Giannakis, JMLR 2010"
    options: ClassVar[type[Options]] = GraphOptions

    penalty: float
    tolerance: float
    start: float | Array = 0.0

    @classmethod
    def configure(cls, site: Site, settings: Settings) -> Self:
        """Take penalty and tolerance as they are."""
        options = cls.parse_options(settings.options)
        return cls(settings.penalty, settings.plain_tolerance(), options.starts(site))

    def init(self, site: Site) -> GraphState:
        """Start from the public y^0."""
        return graph_init(self.start, site)

    def announce(self, state: GraphState, site: Site, t: int) -> tuple[Event, ...]:
        """Say that nothing is protected."""
        return (NON_PRIVATE,) * len(site.index)

    def local_step(
        self, state: GraphState, workspace: Workspace, site: Site, noise: NoiseSource, t: int
    ) -> Released:
        """Solve the local problem and send its solution."""
        convexity = graph_convexity(site, self.penalty)
        linear = graph_linear(state, site, self.penalty)
        return release_unprotected(workspace.argmin(linear, convexity, self.tolerance).point)

    def absorb(
        self, state: GraphState, message: Array, inbox: Array, site: Site, t: int
    ) -> GraphState:
        """Update the dual variable from the messages."""
        return graph_absorb(state, message, inbox, site, self.penalty)
