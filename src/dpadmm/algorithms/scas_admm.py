r"""SCAS-ADMM around a server: stochastic local steps with variance reduction, without privacy.

S.-Y. Zhao, W.-J. Li, Z.-H. Zhou, "Scalable stochastic alternating direction method of
multipliers", 2015, distributed as in PS-ADMM's Algorithm 1.

.. math::
    v^0 &= x_i,\qquad \hat u = \nabla f_i(x_i),\qquad
    f_i(w) = \tfrac{c_i}{n_i}\textstyle\sum_k l(w\cdot u_k)\\
    g_s &= \tfrac{c_i}{b}\textstyle\sum_{k\in B_s}\bigl(\nabla l_k(v^s) - \nabla l_k(v^0)\bigr)
           + \hat u + \lambda_i + \rho\,(v^s - z),\qquad v^{s+1} = v^s - \eta g_s\\
    x_i &\leftarrow \tfrac1S\textstyle\sum_{s=0}^{S-1}
           \frac{\zeta v^s + \xi v^{s+1}}{2\eta}\quad\text{(sent)}\\
    z &\leftarrow \frac{\sum_i \rho x_i + \lambda_i}{\lambda + N\rho},\qquad
    \lambda_i \leftarrow \lambda_i + \rho\,(x_i - z)

with the weights of a true average (the paper's are outside [0, 1]):

.. math:: \xi = \frac{2\eta}{2 - \eta v_L},\qquad \zeta = 2\eta - \xi \ge 0,\qquad
          v_L = c_i c_1 + \rho,\qquad \eta \le 1/v_L .

Published: PS-ADMM's Algorithm 1 as printed, the control of its figures, with b = 1 and

.. math:: \xi = \frac{4\eta}{1 - 2\eta v_L},\qquad \zeta = 2\eta - \xi < 0,
          \qquad \eta < \tfrac{1}{2 v_L} .
"""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple, Self, final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from dpadmm.algorithms.base import Algorithm, Options, Settings
from dpadmm.algorithms.consensus_admm import ServerState, server_absorb
from dpadmm.errors import ParameterError
from dpadmm.plain import Array
from dpadmm.privacy.calibration import InnerNoise
from dpadmm.privacy.events import NON_PRIVATE, Event
from dpadmm.privacy.mechanisms import Released, draw_batches, release_unprotected
from dpadmm.privacy.noise import NoiseSource
from dpadmm.problem.site import Site
from dpadmm.solvers.inner_loop import InnerLoop, loss_code
from dpadmm.solvers.workspace import Workspace

# The default number of rows of a batch.
_BATCH: Final = 20
# eta v_L by default, and as published.
_STEP: Final = 0.5
_PRINTED_STEP: Final = 0.25


class SCASOptions(Options):
    """Options of ``scas-admm``."""

    inner_steps: int = Field(50, ge=1, description="S: gradient steps before a message")
    batch_size: int | None = Field(
        None, ge=1, description="rows of a batch; 20 by default, or all where there are fewer"
    )
    step_size: float | None = Field(
        None, gt=0, description="eta, at most 1 / (c c1 + rho); chosen from that by default"
    )


class SVRGState(NamedTuple):
    """The state of the stochastic algorithms around a server.

    Attributes
    ----------
    message
        x_i, where the next inner loop starts.
    consensus
        z, the same at every party.
    dual
        lambda_i, a function of messages.
    """

    message: Array
    consensus: Array
    dual: Array


def smoothness(site: Site, penalty: float) -> Array:
    """``v_L = c_i c1 + rho``, the largest curvature of a local problem."""
    return site.weight * site.loss.curvature_bound + penalty


def batch_sizes(site: Site, given: int | None, *, automatic: int = _BATCH) -> NDArray[np.int64]:
    """Rows of a batch at each party: as given, or ``automatic``, or all rows if fewer."""
    if given is None:
        return np.minimum(automatic, site.rows)
    smallest = int(np.argmin(site.rows))
    if given > site.rows[smallest]:
        raise ParameterError(
            f"batch_size must be at most the rows of the smallest party, {site.names[smallest]} "
            f"with {site.rows[smallest]}; got {given}."
        )
    return np.full(len(site.rows), given)


def step_sizes(
    site: Site, penalty: float, given: float | None, *, longest: Array | float = np.inf
) -> tuple[Array, Array]:
    """Eta of each party and the weight ``xi / (2 eta) = 1 / (2 - eta v_L)``; or refuse.

    Without an option eta is ``0.5 / v_L``, or ``longest`` if that is shorter.
    """
    curvature = smoothness(site, penalty)
    if given is not None and not given * curvature.max() <= 1:
        raise ParameterError(
            f"step_size must be at most 1 / (c c1 + rho) = {1 / curvature.max():.6g}; got {given}."
        )
    shortest = np.minimum(_STEP / curvature, longest)
    eta = shortest if given is None else np.full(len(curvature), given)
    return eta, 1 / (2 - eta * curvature)


def printed_step_sizes(site: Site, penalty: float, given: float | None) -> tuple[Array, Array]:
    """Eta and the paper's ``xi / (2 eta) = 2 / (1 - 2 eta v_L)``; or refuse."""
    curvature = smoothness(site, penalty)
    if given is not None and not given * curvature.max() < 0.5:
        raise ParameterError(
            f"step_size must be below 1 / (2 (c c1 + rho)) = {0.5 / curvature.max():.6g} in the "
            f"published calibration; got {given}."
        )
    eta = _PRINTED_STEP / curvature if given is None else np.full(len(curvature), given)
    return eta, 2 / (1 - 2 * eta * curvature)


@dataclass(frozen=True)
class StochasticADMM(Algorithm, ABC):
    """Stochastic ADMM around a data-less averaging server: what its algorithms share.

    Parameters
    ----------
    penalty
        rho, common to all parties.
    steps
        S, inner steps of a message.
    batch, step_size, weighting
        Of the inner loop, per party: rows of a batch, eta, xi / (2 eta).
    """

    needs_server: ClassVar[bool] = True

    penalty: float
    steps: int
    batch: NDArray[np.int64]
    step_size: Array
    weighting: Array

    @property
    def loop(self) -> InnerLoop:
        """The parameters of the inner loop."""
        return InnerLoop(self.steps, self.batch, self.step_size, self.weighting, self.penalty)

    def init(self, site: Site) -> SVRGState:
        """Start from zero everywhere."""
        zero = np.zeros(site.shape)
        return SVRGState(zero, zero, zero)

    def linear(self, state: SVRGState) -> Array:
        """``lambda - rho z``, the public linear term of a local problem."""
        return state.dual - self.penalty * state.consensus

    def absorb(
        self, state: SVRGState, message: Array, inbox: Array, site: Site, t: int
    ) -> SVRGState:
        """Keep the message; update z and the dual variable from the server's mean."""
        served = ServerState(state.consensus, state.dual)
        return SVRGState(message, *server_absorb(served, message, inbox, site, self.penalty))


@final
@dataclass(frozen=True)
class SCASADMM(StochasticADMM):
    """Stochastic ADMM without noise; ``published``: PS-ADMM's Algorithm 1 as printed."""

    name: ClassVar[str] = "scas-admm"
    paper: ClassVar[str] = "Zhao, Li, Zhou, 2015; Ding, Errapotu, Zhang, Gong, Pan, Han, 2019"
    options: ClassVar[type[Options]] = SCASOptions

    published: bool = False

    @classmethod
    def configure(cls, site: Site, settings: Settings) -> Self:
        """Fix the inner loop."""
        options = cls.parse_options(settings.options)
        loss_code(site.loss)
        published = settings.calibration == "published"
        steps = printed_step_sizes if published else step_sizes
        return cls(
            settings.penalty,
            options.inner_steps,
            batch_sizes(site, options.batch_size, automatic=1 if published else _BATCH),
            *steps(site, settings.penalty, options.step_size),
            published,
        )

    def announce(self, state: SVRGState, site: Site, t: int) -> tuple[Event, ...]:
        """Say that nothing is protected."""
        return (NON_PRIVATE,) * len(site.index)

    def local_step(
        self, state: SVRGState, workspace: Workspace, site: Site, noise: NoiseSource, t: int
    ) -> Released:
        """Descend from the last message, and send the end point."""
        loop, nodes = self.loop, len(site.index)
        none = np.zeros(nodes)
        inner = InnerNoise(
            draw_batches(noise, loop.steps, loop.batch, site.rows, site.runs, site.index, t),
            carried=workspace.gradient(state.message),
            released=np.zeros(site.shape),
            fixed=none,
            relative=none,
            draws=np.zeros((nodes, site.runs, 0, site.outputs, site.features)),
        )
        sent = workspace.svrg(state.message, self.linear(state), loop, inner)
        return release_unprotected(sent)

    def claim(self, site: Site) -> str | None:
        """Say that the paper claims nothing for its Algorithm 1."""
        return "none: Algorithm 1 is not private" if self.published else None
