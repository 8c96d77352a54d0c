r"""PS-ADMM: stochastic ADMM around a server, with Gaussian noise in every stochastic gradient.

J. Ding, S. M. Errapotu, H. Zhang, Y. Gong, M. Pan, Z. Han, "Stochastic ADMM based distributed
machine learning with differential privacy", SecureComm 2019; Algorithm 2.

.. math::
    v^0 &= x_i,\qquad \tilde u = \nabla f_i(x_i) + N(0, s_i^2 I)\quad\text{(once a message)}\\
    g_s &= d_s + N(0, (z_i\Delta_s)^2 I) + \tilde u + \lambda_i + \rho\,(v^s - z),\qquad
    d_s = \tfrac{c_i}{b}\textstyle\sum_{k\in B_s}\bigl(\nabla l_k(v^s) - \nabla l_k(v^0)\bigr)\\
    v^{s+1} &= v^s - \eta g_s,\qquad
    x_i \leftarrow \tfrac1S\textstyle\sum_{s=0}^{S-1}\frac{\zeta v^s+\xi v^{s+1}}{2\eta}
    \quad\text{(sent)}

then the server step of :mod:`~dpadmm.algorithms.scas_admm`, whose :math:`\zeta, \xi` these are.
One row changes :math:`\nabla f_i` by at most :math:`2Lc_i/n_i`, in K messages; and :math:`d_s`,
if it is in the secret batch, by at most :math:`\Delta_s = \frac{c_i}{b}\min(2R, c_1\|v^s-v^0\|)`,
in K(S-1) steps amplified by b/n_i. With ``form="split"`` one noise of fixed variance covers both
at every step, as in the paper.

Published: :math:`\sigma^2 = C G^2 K S\ln(1/\delta)/(n_i\epsilon)^2`, ``form="split"``, b = 1, and
:math:`\xi = 4\eta/(1-2\eta v_L)`, :math:`\zeta = 2\eta - \xi`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Final, Literal, Self, final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from dpadmm.algorithms.base import Algorithm, Budget, Options, Settings
from dpadmm.algorithms.scas_admm import (
    SCASOptions,
    SVRGState,
    inner_loop,
    svrg_absorb,
    svrg_init,
)
from dpadmm.arrays import Array, Site
from dpadmm.errors import ParameterError
from dpadmm.privacy.events import Event
from dpadmm.privacy.histories import best_split, one_release_noise, split_history, split_noise
from dpadmm.privacy.mechanisms import (
    GradientPerturbation,
    InnerNoise,
    Released,
    release_noisy_gradients,
)
from dpadmm.privacy.noise import NoiseSource
from dpadmm.privacy.sensitivity import gradient_sensitivity
from dpadmm.solvers.newton import Workspace
from dpadmm.solvers.svrg import InnerLoop

__all__ = ["PSADMM", "PSADMMOptions"]

Form = Literal["one-release", "split"]

# Part of mu^2 that the full gradients get in the one-release form.
_GRADIENT_SHARE: Final = 0.5
# Room in the sensitivities for rounding, which announce() checks.
_ROUNDING: Final = 1e-4


class PSADMMOptions(SCASOptions):
    """Options of ``ps-admm``."""

    form: Form = Field(
        "one-release",
        description="noise on the full gradient once a message and on batch differences as they "
        "grow; or one noise on their sum at every step, as in the paper",
    )
    noise_constant: float = Field(
        1.0, gt=0, description="the paper's unnamed constant in sigma^2; published calibration only"
    )


@final
@dataclass(frozen=True)
class PSADMM(Algorithm):
    """Stochastic ADMM around a server whose gradients carry Gaussian noise.

    Parameters
    ----------
    penalty
        rho, common to all parties.
    steps
        S, inner steps of a message.
    batch, step_size, weighting
        Of the inner loop, per party: rows of a batch, eta, xi / (2 eta).
    form
        "one-release" or "split".
    sensitivity, difference_sensitivity
        How far one row moves the full gradient, and a batch difference at most; all outputs.
    gradient_sigma, difference_sigma
        The noise of each, the second in units of Delta_s in the one-release form.
    claimed
        What the paper claims, in the published calibration.
    """

    name: ClassVar[str] = "ps-admm"
    paper: ClassVar[str] = "Ding, Errapotu, Zhang, Gong, Pan, Han, SecureComm 2019"
    needs_server: ClassVar[bool] = True
    private: ClassVar[bool] = True
    options: ClassVar[type[Options]] = PSADMMOptions

    penalty: float
    steps: int
    batch: NDArray[np.int64]
    step_size: Array
    weighting: Array
    form: Form
    sensitivity: Array
    difference_sensitivity: Array
    gradient_sigma: Array
    difference_sigma: Array
    claimed: str | None = None

    @classmethod
    def configure(cls, site: Site, settings: Settings) -> Self:
        """Calibrate each party's noise to its own budget and rows."""
        options = cls.parse_options(settings.options)
        budget = settings.require_budget(cls.name)
        published = settings.calibration == "published"
        form: Form = "split" if published else options.form
        loop = inner_loop(
            site,
            settings.penalty,
            steps=options.inner_steps,
            batch_size=options.batch_size,
            step_size=options.step_size,
            printed=published,
        )
        # One-vs-rest columns are sent together: their distances add up as squares.
        together = (1 + _ROUNDING) * math.sqrt(site.outputs)
        full = together * gradient_sensitivity(
            site.rows, weight=site.weight, slope=site.loss.slope_bound
        )
        difference = together * 2 * site.weight * site.loss.slope_range / loop.batch
        claimed = None
        if published:
            lipschitz = site.weight * site.loss.slope_bound
            variance = (
                options.noise_constant * settings.rounds * loop.steps * np.log(1 / budget.delta)
            )
            sigma = lipschitz * np.sqrt(variance) / (site.rows * budget.epsilon)
            claimed = (
                f"({budget.epsilon.max():g}, {budget.delta.max():g})-DP by Theorem 2, with its "
                f"unnamed constant c = {options.noise_constant:g} and for epsilon <= c1 K S / M^2, "
                "c1 unnamed too"
            )
            share = _shares(sigma, full, difference, loop, settings.rounds, site, budget)
            noise = sigma * np.sqrt(1 - share), sigma * np.sqrt(share)
        else:
            noise = _calibrate(form, full, difference, loop, settings.rounds, site, budget)
        return cls(
            settings.penalty,
            loop.steps,
            loop.batch,
            loop.step_size,
            loop.weighting,
            form,
            full,
            difference,
            *noise,
            claimed,
        )

    @property
    def loop(self) -> InnerLoop:
        """What the inner loop is run with."""
        return InnerLoop(self.steps, self.batch, self.step_size, self.weighting, self.penalty)

    def _perturbation(self, site: Site) -> GradientPerturbation:
        return GradientPerturbation(
            self.form,
            self.steps,
            self.batch,
            site.rows,
            self.sensitivity,
            self.difference_sensitivity,
            self.gradient_sigma,
            self.difference_sigma,
        )

    def init(self, site: Site) -> SVRGState:
        """Start from zero everywhere."""
        return svrg_init(site)

    def announce(self, state: SVRGState, site: Site, t: int) -> tuple[Event, ...]:
        """Charge the gradients of the inner loop; refuse messages too large to compute with."""
        _check_size(state, site, self.sensitivity)
        return self._perturbation(site).events()

    def local_step(
        self, state: SVRGState, workspace: Workspace, site: Site, noise: NoiseSource, t: int
    ) -> Released:
        """Descend from the last message along noisy gradients and send where that leads."""
        linear = state.dual - self.penalty * state.consensus

        def descend(inner: InnerNoise) -> Array:
            return workspace.svrg(state.message, linear, self.loop, inner)

        return release_noisy_gradients(
            descend,
            workspace.gradient(state.message),
            self._perturbation(site),
            site.index,
            noise,
            t,
        )

    def absorb(
        self, state: SVRGState, message: Array, inbox: Array, site: Site, t: int
    ) -> SVRGState:
        """Update z and the dual variable from the server's mean."""
        return svrg_absorb(state, message, inbox, site, self.penalty)

    def claim(self, site: Site) -> str | None:
        """Theorem 2 of the paper, in the published calibration."""
        return self.claimed


def _calibrate(
    form: str,
    full: Array,
    difference: Array,
    loop: InnerLoop,
    rounds: int,
    site: Site,
    budget: Budget,
) -> tuple[Array, Array]:
    """Noise of the full gradients and of the batch differences, per party."""
    found: list[tuple[float, float]] = []
    for place in range(len(site.rows)):
        target = float(budget.epsilon[place]), float(budget.ideal_delta[place])
        shape = rounds, loop.steps, int(loop.batch[place]), int(site.rows[place])
        if form == "one-release":
            gradient, multiplier = one_release_noise(
                *target, *shape, share=_GRADIENT_SHARE, rows_per_person=budget.rows_per_person
            )
            found.append((gradient * float(full[place]), multiplier))
        else:
            sigma, share = split_noise(
                *target,
                *shape,
                float(difference[place]),
                float(full[place]),
                rows_per_person=budget.rows_per_person,
            )
            found.append((sigma * math.sqrt(1 - share), sigma * math.sqrt(share)))
    gradients, differences = zip(*found, strict=True)
    return np.array(gradients), np.array(differences)


def _shares(
    sigma: Array,
    full: Array,
    difference: Array,
    loop: InnerLoop,
    rounds: int,
    site: Site,
    budget: Budget,
) -> Array:
    """How to split given noise between difference and gradient so that least can be proven."""

    def best(place: int) -> float:
        history = partial(
            split_history,
            rounds,
            loop.steps,
            int(loop.batch[place]),
            int(site.rows[place]),
            float(sigma[place]),
            float(difference[place]),
            float(full[place]),
        )
        delta = float(budget.delta[place])
        return best_split(history, delta, rows_per_person=budget.rows_per_person)[0]

    return np.array([best(place) for place in range(len(sigma))])


def _check_size(state: SVRGState, site: Site, sensitivity: Array) -> None:
    """Refuse a state in which rounding could exceed its room in the sensitivity; public values.

    Rounding moves a gradient at x by a few ulps of ``c (L + c1 |x|)``, on both of two data sets.
    """
    size = np.max([np.abs(part).max(axis=(1, 2, 3)) for part in state], axis=0)
    norm = size * math.sqrt(site.features)
    loss = site.loss
    floor = (
        16
        * np.finfo(np.float64).eps
        * site.weight
        * (loss.slope_bound + loss.curvature_bound * norm)
    )
    room = _ROUNDING / (1 + _ROUNDING) * sensitivity
    if not (2 * floor <= room).all():
        node = int(np.argmax(2 * floor / room))
        raise ParameterError(
            f"messages must be small enough for exact gradients, at most about "
            f"{size[node] * room[node] / (2 * floor[node]):.3g}; party {site.names[node]} has "
            f"{size[node]:.3g}. A party is faulty."
        )
