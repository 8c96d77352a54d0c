"""Histories of algorithms whose releases are of more than one kind."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np

from dpadmm.privacy.accountant import Guarantee, History, epsilon_spent
from dpadmm.privacy.calibration import least_noise, subsampled_sigma
from dpadmm.privacy.events import Event, GaussianRelease, SubsampledGaussian
from dpadmm.privacy.gaussian import gaussian_mu


@dataclass(frozen=True)
class InnerReleases:
    """How often a stochastic algorithm releases.

    Attributes
    ----------
    outer, inner
        Messages, and gradient steps before each.
    batch, population
        Rows of a batch, and of the party.
    """

    outer: int
    inner: int
    batch: int
    population: int

    @property
    def differences(self) -> int:
        """How many batch differences there are; the first of each message is zero."""
        return self.outer * (self.inner - 1)


def split_history(
    run: InnerReleases, sigma: float, difference: float, gradient: float, share: float
) -> list[tuple[Event, int]]:
    """Return what PS-ADMM releases when one noise covers batch difference and full gradient.

    N(0, sigma^2) is the sum of N(0, share sigma^2) on the difference of batch gradients and
    N(0, (1 - share) sigma^2) on the full gradient, with their sensitivities; every share in (0, 1)
    gives a valid history.
    """
    batch = SubsampledGaussian(run.batch, run.population, difference, sigma * math.sqrt(share))
    full = GaussianRelease(gradient, sigma * math.sqrt(1 - share))
    return [(batch, run.differences), (full, run.outer * run.inner)]


def best_split(
    history: Callable[[float], History], delta: float, *, rows_per_person: int = 1
) -> tuple[float, Guarantee]:
    """Return the share with the smallest epsilon among a few, and that guarantee.

    ``history(share)`` is usually :func:`split_history` with everything else fixed. The share is a
    public number chosen without looking at rows, and every share is valid.
    """
    tried: dict[float, Guarantee] = {}
    low, high = -6.0, 6.0
    for points in (7, 5):
        for logit in np.linspace(low, high, points).tolist():
            share = 1 / (1 + math.exp(-logit))
            tried[logit] = epsilon_spent(history(share), delta, rows_per_person=rows_per_person)
        best = min(tried, key=lambda logit: tried[logit].epsilon)
        width = (high - low) / (points - 1)
        low, high = best - 0.8 * width, best + 0.8 * width
    return 1 / (1 + math.exp(-best)), tried[best]


@lru_cache(maxsize=256)
def one_release_noise(
    epsilon: float, delta: float, run: InnerReleases, *, share: float, rows_per_person: int
) -> tuple[float, float]:
    r"""Return (gradient noise, difference noise) in units of their sensitivities.

    .. math:: \sum_{k=1}^{K}\mu_u^2 = \mathrm{share}\cdot\mu^*(\epsilon, \delta)^2

    fixes the noise of the full gradients, each released once; the batch differences, whose noise
    is a multiple of their current sensitivity, get the least with which the whole stays within the
    budget, to 1e-3 in epsilon. Without batch differences (one inner step) the gradients get all
    of it.
    """
    mu = float(gaussian_mu(epsilon, delta)) / rows_per_person
    if run.differences == 0:
        return (1 + 1e-9) * math.sqrt(run.outer) / mu, 0.0
    gradient = math.sqrt(run.outer / share) / mu
    difference = subsampled_sigma(
        epsilon,
        delta,
        run.differences,
        run.batch,
        run.population,
        1.0,
        rows_per_person=rows_per_person,
        extra=[(GaussianRelease(1.0, gradient), run.outer)],
    )
    return gradient, float(difference)


@lru_cache(maxsize=256)
def split_noise(
    epsilon: float,
    delta: float,
    run: InnerReleases,
    difference: float,
    gradient: float,
    *,
    rows_per_person: int,
) -> tuple[float, float]:
    """Return (sigma, share): the least noise of :func:`split_history` within the budget.

    The share is the best one at a first sigma, found with an even split; to 1e-3 in epsilon.
    """

    def history(sigma: float, share: float) -> list[tuple[Event, int]]:
        return split_history(run, sigma, difference, gradient, share)

    def least(share: float, start: float) -> float:
        def cost(sigma: float) -> float:
            spent = epsilon_spent(history(sigma, share), delta, rows_per_person=rows_per_person)
            return spent.epsilon

        return least_noise(cost, epsilon, start=start)

    first = least(0.5, difference)
    share, _ = best_split(partial(history, first), delta, rows_per_person=rows_per_person)
    return least(share, first), share
