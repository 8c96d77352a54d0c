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

then the server step of :mod:`~dpadmm.algorithms.scas_admm`, which also defines
:math:`\zeta, \xi`. One row changes :math:`\nabla f_i` by at most :math:`2Lc_i/n_i`, in K messages.
If it is in the secret batch, it changes :math:`d_s` by at most
:math:`\Delta_s = \frac{c_i}{b}\min(2R, c_1\|v^s-v^0\|)`, in K(S-1) steps amplified by b/n_i. With
``form="split"`` one noise of fixed variance covers both at every step, as in the paper.

Published: :math:`\sigma^2 = C G^2 K S\ln(1/\delta)/(n_i\epsilon)^2`, ``form="split"``, b = 1, and
:math:`\xi = 4\eta/(1-2\eta v_L)`, :math:`\zeta = 2\eta - \xi`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import ClassVar, Final, Literal, Self, final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from dpadmm.algorithms.base import Budget, Options, Settings
from dpadmm.algorithms.scas_admm import (
    SCASOptions,
    StochasticADMM,
    SVRGState,
    batch_sizes,
    printed_step_sizes,
    step_sizes,
)
from dpadmm.errors import ParameterError
from dpadmm.plain import Array
from dpadmm.privacy.calibration import (
    GradientPerturbation,
    InnerNoise,
    InnerReleases,
    best_split,
    one_release_noise,
    split_history,
    split_noise,
)
from dpadmm.privacy.events import Event
from dpadmm.privacy.figures import Given
from dpadmm.privacy.mechanisms import Released, release_noisy_gradients
from dpadmm.privacy.noise import SAMPLER_ALLOWANCE, NoiseSource
from dpadmm.privacy.sensitivity import gradient_sensitivity
from dpadmm.problem.rows import summation_error
from dpadmm.problem.site import Site
from dpadmm.solvers.inner_loop import loss_code
from dpadmm.solvers.workspace import Workspace

Form = Literal["one-release", "split"]

# The part of mu^2 that the full gradients get in the one-release form.
_GRADIENT_SHARE: Final = 0.5
# The room for rounding in the sensitivities, which announce() checks.
_ROUNDING: Final = 1e-4


class PSADMMOptions(SCASOptions):
    """Options of ``ps-admm``."""

    form: Form = Field(
        "one-release",
        description="noise on the full gradient once per message, and on batch differences in "
        "proportion to their size; or one noise on their sum at every step, as in the paper",
    )
    noise_constant: float = Field(
        1.0, gt=0, description="the paper's unnamed constant in sigma^2; published calibration only"
    )


@final
@dataclass(frozen=True)
class PSADMM(StochasticADMM):
    """Stochastic ADMM around a server whose gradients carry Gaussian noise.

    Parameters
    ----------
    penalty, steps, batch, step_size, weighting
        As in :class:`~dpadmm.algorithms.scas_admm.StochasticADMM`.
    form
        "one-release" or "split".
    sensitivity, difference_sensitivity
        How far one row moves the full gradient, and at most a batch difference; all outputs.
    gradient_sigma, difference_sigma
        The noise of each; in the one-release form the second is in units of Delta_s.
    claimed
        The paper's claim, in the published calibration.
    """

    name: ClassVar[str] = "ps-admm"
    paper: ClassVar[str] = "Ding, Errapotu, Zhang, Gong, Pan, Han, SecureComm 2019"
    private: ClassVar[bool] = True
    options: ClassVar[type[Options]] = PSADMMOptions

    form: Form
    sensitivity: Array
    difference_sensitivity: Array
    gradient_sigma: Array
    difference_sigma: Array
    claimed: str | None = None

    @classmethod
    def configure(cls, site: Site, settings: Settings) -> Self:
        """Calibrate each party's noise to its own budget and rows."""
        options, budget = cls.options_and_budget(settings)
        loss_code(site.loss)
        published = settings.calibration == "published"
        form: Form = "split" if published else options.form
        batch = batch_sizes(site, options.batch_size, **({"automatic": 1} if published else {}))
        # One-vs-rest columns are sent together: the squares of their distances add up.
        together = (1 + _ROUNDING) * math.sqrt(site.outputs)
        exact = gradient_sensitivity(site.rows, weight=site.weight, slope=site.loss.slope_bound)
        steps = _Steps(
            settings.rounds,
            options.inner_steps,
            batch,
            site.rows,
            together * exact,
            together * 2 * site.weight * site.loss.slope_range / batch,
        )
        claimed = None
        if published:
            eta, weighting = printed_step_sizes(site, settings.penalty, options.step_size)
            noise = steps.given(_printed_sigma(site, settings, options), budget)
            claimed = (
                f"({Given(budget.epsilon.max())}, {Given(budget.delta.max())})-DP by Theorem 2, "
                "with its "
                f"unnamed constant c = {options.noise_constant:g} and for epsilon <= c1 K S / M^2, "
                "c1 unnamed too"
            )
        elif form == "split":
            noise = steps.split(budget)
            eta, weighting = step_sizes(site, settings.penalty, options.step_size)
        else:
            noise = steps.one_release(budget)
            longest = _longest_step(site, batch, noise[1], options.inner_steps)
            eta, weighting = step_sizes(site, settings.penalty, options.step_size, longest=longest)
        return cls(
            settings.penalty,
            options.inner_steps,
            batch,
            eta,
            weighting,
            form,
            steps.full,
            steps.difference,
            *noise,
            claimed,
        )

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

    def announce(self, state: SVRGState, site: Site, t: int) -> tuple[Event, ...]:
        """Charge the gradients of the inner loop; refuse messages too large to compute with."""
        _check_size(state, site, self)
        return self._perturbation(site).events()

    def local_step(
        self, state: SVRGState, workspace: Workspace, site: Site, noise: NoiseSource, t: int
    ) -> Released:
        """Descend from the last message along noisy gradients, and send the end point."""

        def descend(inner: InnerNoise) -> Array:
            return workspace.svrg(state.message, self.linear(state), self.loop, inner)

        return release_noisy_gradients(
            descend,
            workspace.gradient(state.message),
            self._perturbation(site),
            site.index,
            noise,
            t,
        )

    def claim(self, site: Site) -> str | None:
        """Theorem 2 of the paper, in the published calibration."""
        return self.claimed


@dataclass(frozen=True)
class _Steps:
    """The releases of a whole run, for the calibrations; arrays are per party."""

    outer: int
    inner: int
    batch: NDArray[np.int64]
    rows: NDArray[np.int64]
    full: Array
    difference: Array

    def _releases(self, place: int) -> InnerReleases:
        return InnerReleases(self.outer, self.inner, int(self.batch[place]), int(self.rows[place]))

    def one_release(self, budget: Budget) -> tuple[Array, Array]:
        """The noise of the full gradients, and of the differences in units of Delta_s."""
        noise = [
            one_release_noise(
                float(budget.epsilon[place]),
                float(budget.ideal_delta[place]),
                self._releases(place),
                share=_GRADIENT_SHARE,
                rows_per_person=budget.rows_per_person,
            )
            for place in range(len(self.rows))
        ]
        gradient, difference = np.array(noise).T
        return gradient * self.full, difference

    def split(self, budget: Budget) -> tuple[Array, Array]:
        """The two parts of the least noise on their sum that the budget allows."""
        noise = [
            split_noise(
                float(budget.epsilon[place]),
                float(budget.ideal_delta[place]),
                self._releases(place),
                float(self.difference[place]),
                float(self.full[place]),
                rows_per_person=budget.rows_per_person,
            )
            for place in range(len(self.rows))
        ]
        sigma, share = np.array(noise).T
        return sigma * np.sqrt(1 - share), sigma * np.sqrt(share)

    def given(self, sigma: Array, budget: Budget) -> tuple[Array, Array]:
        """The split of a given noise for which the smallest epsilon can be proven."""
        found = [
            _best_share(
                self._releases(place),
                *(float(each[place]) for each in (sigma, self.difference, self.full, budget.delta)),
                budget.rows_per_person,
            )
            for place in range(len(self.rows))
        ]
        share = np.array(found)
        return sigma * np.sqrt(1 - share), sigma * np.sqrt(share)


@lru_cache(maxsize=256)
def _best_share(
    releases: InnerReleases,
    sigma: float,
    difference: float,
    full: float,
    delta: float,
    rows_per_person: int,
) -> float:
    """The part of a given variance that counts for the batch differences; takes seconds."""
    history = partial(split_history, releases, sigma, difference, full)
    return best_split(history, delta, rows_per_person=rows_per_person)[0]


def _longest_step(site: Site, batch: NDArray[np.int64], multiplier: Array, steps: int) -> Array:
    r"""The longest step for which noise that grows with the distance stays bounded.

    .. math:: \eta\,\nu\sqrt S \le 1,\qquad \nu = z\,c\,c_1\sqrt{d\cdot\mathrm{outputs}}/b

    The noise of a step multiplies the expected squared distance from v^0 by at most
    :math:`1 + (\eta\nu)^2`, so S steps multiply it by at most e.
    """
    spread = site.loss.curvature_bound * math.sqrt(site.features * site.outputs * steps)
    noise = multiplier * site.weight / batch
    return 1 / np.maximum(noise * spread, 1e-300)


def _printed_sigma(site: Site, settings: Settings, options: PSADMMOptions) -> Array:
    """Theorem 2: ``sigma^2 = c G^2 K S ln(1/delta) / (M epsilon)^2``, G = c_i L.

    The paper has one output and one row per person. With several outputs the squares of the
    distances add up; with several rows the distances do.
    """
    budget = settings.require_budget(PSADMM.name)
    variance = options.noise_constant * settings.rounds * options.inner_steps
    lipschitz = site.weight * site.loss.slope_bound * math.sqrt(site.outputs)
    lipschitz = lipschitz * budget.rows_per_person
    return lipschitz * np.sqrt(variance * np.log(1 / budget.delta)) / (site.rows * budget.epsilon)


def _check_size(state: SVRGState, site: Site, algorithm: PSADMM) -> None:
    r"""Refuse a public state in which rounding could exceed its room in the sensitivities.

    Rounding moves a full gradient at x, on each of two data sets, by a few ulps of
    :math:`c(L + c_1\|x\|)`, by :math:`c\,\gamma_h L` in the sums over rows
    (:mod:`dpadmm.problem.rows`) and by :math:`c\,c_1\gamma_d\|x\|` in the margins. It moves a batch
    difference by the amount that :func:`dpadmm.solvers.svrg.descend` allows for, at iterates as far
    away as messages can drive them.
    """
    if not all(np.isfinite(part).all() for part in state):
        raise ParameterError("messages must be finite.")
    message, consensus, dual = (
        math.sqrt(site.features) * np.abs(part).max(axis=(1, 2, 3)) for part in state
    )
    loss, ulp = site.loss, float(np.finfo(np.float64).eps)
    spread = loss.curvature_bound * message
    full = 32 * ulp * (loss.slope_bound + spread) + ulp * site.features * spread
    full = site.weight * (full + 2 * summation_error(site.rows, site.features) * loss.slope_bound)
    pull = dual + algorithm.penalty * (consensus + message)
    reach = message + algorithm.steps * algorithm.step_size * pull
    slopes = 2 * loss.slope_bound + 2 * loss.curvature_bound * reach
    terms = (site.features + 4) * slopes + 2 * algorithm.batch**2 * loss.slope_range
    room = _ROUNDING / (1 + _ROUNDING) - SAMPLER_ALLOWANCE
    used = np.maximum(
        full / (room * algorithm.sensitivity),
        4 * ulp * terms / (2 * room * loss.slope_range),
    )
    if not (used <= 1).all():
        node = int(np.argmax(used))
        raise ParameterError(
            f"messages must be small enough for accurate gradients; those of party "
            f"{site.names[node]} are {used[node]:.3g} times too large. A party is faulty."
        )
