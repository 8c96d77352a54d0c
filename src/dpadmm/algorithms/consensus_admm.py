r"""Consensus ADMM around a server, without privacy: PS-ADMM's problem solved exactly.

S. Boyd et al., "Distributed optimization and statistical learning via the alternating direction
method of multipliers", 2011, section 7; the star of PS-ADMM (eqs. 4-6) with an exact local step.

.. math::
    x_i &= \arg\min_w \tfrac{c_i}{n_i}\textstyle\sum_k l(w\cdot u_k)
           + \langle\lambda_i, w\rangle + \tfrac{\rho}{2}\|w - z\|^2 \quad\text{(sent)}\\
    z &\leftarrow \frac{\rho N \bar x + \lambda z}{\lambda + N\rho},\qquad
    \lambda_i \leftarrow \lambda_i + \rho\,(x_i - z)

The server step of the paper is :math:`z = \sum_i(\rho x_i + \lambda_i)/(\lambda + N\rho)` with
:math:`\lambda = 2R`. From :math:`\lambda_i = 0, z = 0` it keeps
:math:`\sum_i\lambda_i = \lambda z`, so that the mean of the messages is all that a party needs:
the server averages and holds no state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Self, final

import numpy as np

from dpadmm.algorithms.base import Algorithm, Settings
from dpadmm.plain import Array
from dpadmm.privacy.events import NON_PRIVATE, Event
from dpadmm.privacy.mechanisms import Released, release_unprotected
from dpadmm.privacy.noise import NoiseSource
from dpadmm.problem.site import Site
from dpadmm.solvers.workspace import Workspace


class ServerState(NamedTuple):
    """The state of the algorithms around a server.

    Attributes
    ----------
    consensus
        z, the same at every party.
    dual
        lambda_i, a function of messages.
    """

    consensus: Array
    dual: Array


def server_absorb(
    state: ServerState, message: Array, inbox: Array, site: Site, penalty: float
) -> ServerState:
    """New z and lambda_i from the server's mean, which is the inbox's one entry."""
    weight = site.parties * penalty
    mean = (weight * inbox + site.regularization * state.consensus) / (site.regularization + weight)
    consensus = np.broadcast_to(mean, message.shape)
    return ServerState(consensus, state.dual + penalty * (message - consensus))


@final
@dataclass(frozen=True)
class ConsensusADMM(Algorithm):
    """ADMM around a data-less averaging server.

    Parameters
    ----------
    penalty
        rho, common to all parties.
    tolerance
        Largest gradient norm of a local solve.
    """

    name: ClassVar[str] = "consensus-admm"
    paper: ClassVar[str] = "Boyd, Parikh, Chu, Peleato, Eckstein, 2011"
    needs_server: ClassVar[bool] = True

    penalty: float
    tolerance: float

    @classmethod
    def configure(cls, site: Site, settings: Settings) -> Self:
        """Take penalty and tolerance as they are."""
        cls.parse_options(settings.options)
        return cls(settings.penalty, settings.plain_tolerance())

    def init(self, site: Site) -> ServerState:
        """Start from zero everywhere."""
        zero = np.zeros(site.shape)
        return ServerState(zero, zero)

    def announce(self, state: ServerState, site: Site, t: int) -> tuple[Event, ...]:
        """Say that nothing is protected."""
        return (NON_PRIVATE,) * len(site.index)

    def local_step(
        self, state: ServerState, workspace: Workspace, site: Site, noise: NoiseSource, t: int
    ) -> Released:
        """Solve the local problem around z and send its solution."""
        linear = state.dual - self.penalty * state.consensus
        convexity = np.full(len(site.index), self.penalty)
        return release_unprotected(workspace.argmin(linear, convexity, self.tolerance).point)

    def absorb(
        self, state: ServerState, message: Array, inbox: Array, site: Site, t: int
    ) -> ServerState:
        """Update z and the dual variable from the server's mean."""
        return server_absorb(state, message, inbox, site, self.penalty)
