"""Noise in every gradient of a stochastic local solve: how much, and what it costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpadmm.plain import Array
from dpadmm.privacy.events import Composed, Event, GaussianRelease, Repeated, SubsampledGaussian

__all__ = ["GradientPerturbation", "InnerNoise"]


class InnerNoise(NamedTuple):
    r"""What the inner steps of a stochastic local solve release, and with which noise.

    Step s has a private part :math:`p_s = d_s + \mathrm{carried}`, the batch difference and what
    every step carries of the full gradient. It leaves as :math:`r_s = p_s + \sigma_s\theta_s` with
    :math:`\sigma_s = \mathrm{fixed} + \mathrm{relative}\,\Delta_s`, where :math:`\Delta_s` is the
    public bound on what one row of the batch can change in one output's difference. Where the loop
    goes is a function of :math:`r_s`, of ``released`` and of what is public: of no row otherwise.

    Attributes
    ----------
    batches
        ``(runs, steps - 1, batch)`` row numbers of each party, from the second step on: the first
        step is at the point of the full gradient, where batch differences are zero.
    carried
        The full gradient where every step's noise has to cover it; zeros where it was released.
    released
        The full gradient with the noise that is drawn once for all steps; zeros where it is
        carried.
    fixed, relative
        The noise, per party; without any, nothing is protected.
    draws
        ``(nodes, runs, steps, outputs, features)`` standard normal numbers, to multiply and add as
        doubles; none where there is a ``release``.
    release
        From a party's place, p_s and sigma_s to r_s, both on one grid; None without one.
    """

    batches: list[NDArray[np.int64]]
    carried: Array
    released: Array
    fixed: Array
    relative: Array
    draws: Array
    release: Callable[[int, Array, float], Array] | None = None


@dataclass(frozen=True)
class GradientPerturbation:
    r"""Gaussian noise in every gradient of a stochastic local solve (SVRG).

    A step uses ``d_s + u``: the batch's mean of gradient differences, scaled by c, and the full
    gradient. ``"one-release"`` sends u with noise ``gradient_sigma`` once and d_s, of which one
    row of the batch changes at most :math:`\Delta_s`, with noise ``difference_sigma``
    :math:`\Delta_s`:

    .. math:: \mu_u = \mathrm{sensitivity}/\mathrm{gradient\_sigma},\qquad
              \mu_d = 1/\mathrm{difference\_sigma}\quad(S - 1\text{ times, subsampled})

    ``"split"`` adds one noise of variance gradient_sigma^2 + difference_sigma^2 to the sum
    ``d_s + u`` of every step, so that u is charged S times and d_s with its largest sensitivity.
    The adversary is granted every inner iterate.

    Attributes
    ----------
    form
        ``"one-release"`` or ``"split"``.
    steps
        S, inner steps of a message.
    batch, rows
        Rows of a batch, and of the party.
    sensitivity
        How far one row moves the full gradient, all outputs together, per party.
    difference_sensitivity
        How far one row of a batch can move its difference at most, likewise (``"split"`` only).
    gradient_sigma, difference_sigma
        The noise, per party.
    """

    form: Literal["one-release", "split"]
    steps: int
    batch: NDArray[np.int64]
    rows: NDArray[np.int64]
    sensitivity: Array
    difference_sensitivity: Array
    gradient_sigma: Array
    difference_sigma: Array

    def events(self) -> tuple[Event, ...]:
        """What each party is charged for a message."""
        split = self.form == "split"
        charged: list[Event] = []
        for place in range(len(self.rows)):
            full: Event = GaussianRelease(
                float(self.sensitivity[place]), float(self.gradient_sigma[place])
            )
            parts = [Repeated(full, self.steps) if split else full]
            if self.steps > 1:
                difference = SubsampledGaussian(
                    int(self.batch[place]),
                    int(self.rows[place]),
                    float(self.difference_sensitivity[place]) if split else 1.0,
                    float(self.difference_sigma[place]),
                )
                parts.append(Repeated(difference, self.steps - 1))
            charged.append(Composed(tuple(parts)))
        return tuple(charged)
