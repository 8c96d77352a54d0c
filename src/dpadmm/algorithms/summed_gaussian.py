"""Gaussian noise on a sum over parties: each party's own, or shared by all.

The adversary sees what parties send, or nothing but the sum; the algorithm knows how far one row
moves it.
"""

from __future__ import annotations

import math

import numpy as np

from dpadmm.algorithms.base import Algorithm
from dpadmm.errors import ParameterError
from dpadmm.plain import Array
from dpadmm.privacy.events import Event
from dpadmm.privacy.mechanisms import (
    Released,
    gaussian_events,
    release_gaussian,
    release_shared_gaussian,
    shared_gaussian_events,
)
from dpadmm.privacy.noise import NoiseSource
from dpadmm.privacy.sensitivity import NOISE_REACH, Summation, finest_step, least_steps
from dpadmm.problem.site import Site


class SummedGaussian(Algorithm):
    """An algorithm whose messages are added up; its fields have their place in each algorithm.

    Attributes
    ----------
    sensitivity
        Per party: how far one row moves its summand, all outputs together.
    sigma
        Per party: the noise that its guarantee counts on, its own or all that is shared.
    shared
        How summands are added up; None with own noise.
    """

    sensitivity: Array
    sigma: Array
    shared: Summation | None

    @property
    def summation(self) -> Summation | None:
        """How shared noise is added up."""
        return self.shared

    def level(self, t: int) -> tuple[Array, Array]:
        """Sensitivity and noise of round ``t``, per party: the same in all rounds by default."""
        return self.sensitivity, self.sigma

    def noise_events(self, t: int = 0) -> tuple[Event, ...]:
        """What the message of round ``t`` costs."""
        sensitivity, sigma = self.level(t)
        if self.shared is None:
            return gaussian_events(sensitivity, sigma)
        return shared_gaussian_events(sensitivity, float(sigma[0]), self.shared)

    def release(self, values: Array, site: Site, noise: NoiseSource, t: int) -> Released:
        """Send values that were computed, not solved for, with their noise."""
        sensitivity, sigma = self.level(t)
        if self.shared is not None:
            return release_shared_gaussian(
                values,
                summation=self.shared,
                sensitivity=sensitivity,
                sigma=float(sigma[0]),
                parties=site.index,
                noise=noise,
                t=t,
            )
        return release_gaussian(
            values,
            np.zeros(values.shape[:-1]),
            tolerance=np.zeros(len(values)),
            sensitivity=sensitivity,
            sigma=sigma,
            parties=site.index,
            noise=noise,
            t=t,
        )


def default_colluders(parties: int) -> int:
    """Tau that leaves an honest majority: ``max(1, ceil(N / 2) - 1)``."""
    return max(1, math.ceil(parties / 2) - 1)


def summation_for(parties: int, colluders: int | None, largest: float, sigma: float) -> Summation:
    """How summands of shared noise are added up; refuses what leaves nobody honest.

    Parameters
    ----------
    parties, colluders
        N, and tau; all but an honest majority unless given.
    largest
        No entry of a summand is larger before noise is added.
    sigma
        The noise of the sum: the step is the finest for up to twice that, which rounding to it
        must not exceed.
    """
    if parties < 3:
        raise ParameterError(
            f"parties must be at least 3 with noise = 'shared', so that two are honest beside a "
            f"colluder; got {parties}. Use noise = 'own'."
        )
    tau = default_colluders(parties) if colluders is None else colluders
    if not 1 <= tau <= parties - 2:
        raise ParameterError(
            f"colluders must be 1 to {parties - 2} with {parties} parties, so "
            f"that two are honest; got {tau}."
        )
    bound = parties * (largest + 2 * NOISE_REACH * sigma)
    return Summation(finest_step(bound), parties, tau, bound)


def shared_noise(
    shared: Summation, exact: Array, relative: Array, numbers: int, rounds: int = 1
) -> tuple[Array, Array]:
    """Sensitivity with its rounding to the grid, and the noise that all share, per party.

    Parameters
    ----------
    shared
        How summands are added up.
    exact, relative
        Per party: the sensitivity without a grid, and noise in units of it.
    numbers, rounds
        Of a message, and how many messages each party sends.
    """
    sensitivity = exact + shared.step * math.sqrt(numbers)
    sigma = np.full(len(exact), float((sensitivity * relative).max()))
    _check_steps(shared, float(sigma[0]), numbers * rounds)
    return sensitivity, sigma


def _check_steps(shared: Summation, sigma: float, numbers: int) -> None:
    """Refuse noise that a grid of doubles is too coarse for, or too fine, for so many numbers."""
    share = sigma / math.sqrt(shared.parties - shared.colluders)
    least = shared.step * least_steps(numbers)
    if share < least:
        raise ParameterError(
            f"the noise of a share must be at least {least:.3g} with noise = 'shared', so that "
            f"sums of {shared.parties} summands are exact in steps of {shared.step:.3g}; got "
            f"{share:.3g}. Use noise = 'own', or a smaller epsilon."
        )
    if shared.parties * NOISE_REACH * sigma > shared.bound:
        raise ParameterError(
            f"rounding to steps of {shared.step:.3g} must not double the noise of a round with "
            f"noise = 'shared'; it becomes {sigma:.3g}. Use fewer features, or noise = 'own'."
        )
