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
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple, Self, final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from dpadmm.algorithms.base import Algorithm, Options, Settings
from dpadmm.algorithms.consensus_admm import ServerState, server_absorb
from dpadmm.arrays import Array, Site
from dpadmm.errors import ParameterError
from dpadmm.privacy.events import NON_PRIVATE, Event
from dpadmm.privacy.mechanisms import InnerNoise, Released, draw_batches, release_unprotected
from dpadmm.privacy.noise import NoiseSource
from dpadmm.solvers.newton import Workspace
from dpadmm.solvers.svrg import InnerLoop, loss_code

__all__ = [
    "SCASADMM",
    "SCASOptions",
    "SVRGState",
    "inner_loop",
    "smoothness",
    "svrg_absorb",
    "svrg_init",
]

# Rows of a batch unless told otherwise.
_BATCH: Final = 20
# eta v_L unless told otherwise, and with the zeta and xi that the paper prints.
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


def inner_loop(
    site: Site,
    penalty: float,
    *,
    steps: int,
    batch_size: int | None,
    step_size: float | None,
    printed: bool = False,
) -> InnerLoop:
    """Fix batches, step sizes and the weights of the average; or refuse.

    Parameters
    ----------
    site, penalty
        Public facts and rho.
    steps, batch_size, step_size
        As the options give them.
    printed
        Take the paper's batches of one row, and its zeta and xi for eta below 1 / (2 v_L), instead
        of the repaired ones.
    """
    loss_code(site.loss)
    if batch_size is not None and batch_size > site.rows.min():
        smallest = int(np.argmin(site.rows))
        raise ParameterError(
            f"batch_size must be at most the rows of the smallest party, {site.names[smallest]} "
            f"with {site.rows[smallest]}; got {batch_size}."
        )
    batch: NDArray[np.int64] = (
        np.minimum(1 if printed else _BATCH, site.rows)
        if batch_size is None
        else np.full(len(site.rows), batch_size)
    )
    curvature = smoothness(site, penalty)
    automatic = (_PRINTED_STEP if printed else _STEP) / curvature
    eta = automatic if step_size is None else np.full(len(batch), step_size)
    product = eta * curvature
    if printed and not (product < 0.5).all():
        raise ParameterError(
            f"step_size must be below 1 / (2 (c c1 + rho)) = {0.5 / curvature.max():.6g} in the "
            f"published calibration; got {step_size}."
        )
    if not (product <= 1 + 1e-12).all():
        raise ParameterError(
            f"step_size must be at most 1 / (c c1 + rho) = {1 / curvature.max():.6g}; "
            f"got {step_size}."
        )
    weighting = 2 / (1 - 2 * product) if printed else 1 / (2 - product)
    return InnerLoop(steps, batch, eta, weighting, penalty)


def svrg_init(site: Site) -> SVRGState:
    """Start from zero everywhere."""
    zero = np.zeros(site.shape)
    return SVRGState(zero, zero, zero)


def svrg_absorb(
    state: SVRGState, message: Array, inbox: Array, site: Site, penalty: float
) -> SVRGState:
    """Keep the message; update z and the dual from the server's mean."""
    served = ServerState(state.consensus, state.dual)
    return SVRGState(message, *server_absorb(served, message, inbox, site, penalty))


@final
@dataclass(frozen=True)
class SCASADMM(Algorithm):
    """Stochastic ADMM around a data-less averaging server.

    Parameters
    ----------
    penalty
        rho, common to all parties.
    steps
        S, inner steps of a message.
    batch, step_size, weighting
        Of the inner loop, per party: rows of a batch, eta, xi / (2 eta).
    """

    name: ClassVar[str] = "scas-admm"
    paper: ClassVar[str] = "Zhao, Li, Zhou, 2015; Ding, Errapotu, Zhang, Gong, Pan, Han, 2019"
    needs_server: ClassVar[bool] = True
    options: ClassVar[type[Options]] = SCASOptions

    penalty: float
    steps: int
    batch: NDArray[np.int64]
    step_size: Array
    weighting: Array

    @classmethod
    def configure(cls, site: Site, settings: Settings) -> Self:
        """Fix the inner loop."""
        options = cls.parse_options(settings.options)
        loop = inner_loop(
            site,
            settings.penalty,
            steps=options.inner_steps,
            batch_size=options.batch_size,
            step_size=options.step_size,
        )
        return cls(settings.penalty, loop.steps, loop.batch, loop.step_size, loop.weighting)

    @property
    def loop(self) -> InnerLoop:
        """What the inner loop is run with."""
        return InnerLoop(self.steps, self.batch, self.step_size, self.weighting, self.penalty)

    def init(self, site: Site) -> SVRGState:
        """Start from zero everywhere."""
        return svrg_init(site)

    def announce(self, state: SVRGState, site: Site, t: int) -> tuple[Event, ...]:
        """Say that nothing is protected."""
        return (NON_PRIVATE,) * len(site.index)

    def local_step(
        self, state: SVRGState, workspace: Workspace, site: Site, noise: NoiseSource, t: int
    ) -> Released:
        """Descend from the last message and send where that leads."""
        loop, nodes = self.loop, len(site.index)
        none = np.zeros(nodes)
        inner = InnerNoise(
            draw_batches(noise, loop.steps, loop.batch, site.rows, site.runs, site.index, t),
            workspace.gradient(state.message),
            np.zeros((nodes, site.runs, 0, site.outputs, site.features)),
            fixed=none,
            relative=none,
        )
        linear = state.dual - self.penalty * state.consensus
        return release_unprotected(workspace.svrg(state.message, linear, loop, inner))

    def absorb(
        self, state: SVRGState, message: Array, inbox: Array, site: Site, t: int
    ) -> SVRGState:
        """Update z and the dual variable from the server's mean."""
        return svrg_absorb(state, message, inbox, site, self.penalty)
