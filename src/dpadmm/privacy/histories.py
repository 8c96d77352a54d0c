"""Histories of algorithms whose releases are of more than one kind."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from dpadmm.privacy.accountant import Guarantee, History, epsilon_spent
from dpadmm.privacy.calibration import least_noise, subsampled_sigma
from dpadmm.privacy.events import Event, GaussianRelease, SubsampledGaussian
from dpadmm.privacy.gaussian import gaussian_mu

__all__ = [
    "best_split",
    "one_release_history",
    "one_release_noise",
    "split_history",
    "split_noise",
]


def split_history(
    outer: int,
    inner: int,
    batch: int,
    population: int,
    sigma: float,
    difference_sensitivity: float,
    gradient_sensitivity: float,
    share: float,
) -> list[tuple[Event, int]]:
    """Return what PS-ADMM releases when one noise covers batch difference and full gradient.

    N(0, sigma^2) is the sum of N(0, share sigma^2) on the difference of batch gradients (of which
    the first of each outer iteration is zero) and N(0, (1 - share) sigma^2) on the full gradient;
    every share in (0, 1) gives a valid history.
    """
    difference = SubsampledGaussian(
        batch, population, difference_sensitivity, sigma * math.sqrt(share)
    )
    full = GaussianRelease(gradient_sensitivity, sigma * math.sqrt(1 - share))
    return [(difference, outer * (inner - 1)), (full, outer * inner)]


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


def one_release_history(
    outer: int,
    inner: int,
    batch: int,
    population: int,
    noise_multiplier: float,
    gradient_sensitivity: float,
    gradient_sigma: float,
) -> list[tuple[Event, int]]:
    """Return what PS-ADMM releases when each full gradient is released once.

    The batch differences have noise of ``noise_multiplier`` times their current sensitivity.
    """
    difference = SubsampledGaussian(batch, population, 1.0, noise_multiplier)
    return [
        (difference, outer * (inner - 1)),
        (GaussianRelease(gradient_sensitivity, gradient_sigma), outer),
    ]


@lru_cache(maxsize=256)
def one_release_noise(
    epsilon: float,
    delta: float,
    outer: int,
    inner: int,
    batch: int,
    population: int,
    *,
    share: float,
    rows_per_person: int = 1,
) -> tuple[float, float]:
    r"""Return (gradient noise, difference noise) in units of their sensitivities.

    .. math:: \sum_{k=1}^{K}\mu_u^2 = \mathrm{share}\cdot\mu^*(\epsilon, \delta)^2

    fixes the noise of the full gradients; the batch differences get the least noise with which
    the whole of :func:`one_release_history` stays within the budget, to 1e-3 in epsilon. Without
    batch differences (one inner step) the gradients get all of it.
    """
    mu = float(gaussian_mu(epsilon, delta)) / rows_per_person
    steps = outer * (inner - 1)
    if steps == 0:
        return (1 + 1e-9) * math.sqrt(outer) / mu, 0.0
    gradient = math.sqrt(outer / share) / mu
    difference = subsampled_sigma(
        epsilon,
        delta,
        steps,
        batch,
        population,
        1.0,
        rows_per_person=rows_per_person,
        extra=[(GaussianRelease(1.0, gradient), outer)],
    )
    return gradient, float(difference)


@lru_cache(maxsize=256)
def split_noise(
    epsilon: float,
    delta: float,
    outer: int,
    inner: int,
    batch: int,
    population: int,
    difference_sensitivity: float,
    gradient_sensitivity: float,
    *,
    rows_per_person: int = 1,
) -> tuple[float, float]:
    """Return (sigma, share): the least noise of :func:`split_history` within the budget.

    The share is the best one at a first sigma, found with an even split; to 1e-3 in epsilon.
    """

    def history(sigma: float, share: float) -> list[tuple[Event, int]]:
        return split_history(
            outer,
            inner,
            batch,
            population,
            sigma,
            difference_sensitivity,
            gradient_sensitivity,
            share,
        )

    def least(share: float, start: float) -> float:
        def cost(sigma: float) -> float:
            spent = epsilon_spent(history(sigma, share), delta, rows_per_person=rows_per_person)
            return spent.epsilon

        return least_noise(cost, epsilon, start=start)

    first = least(0.5, difference_sensitivity)
    share, _ = best_split(
        lambda tried: history(first, tried), delta, rows_per_person=rows_per_person
    )
    return least(share, first), share
