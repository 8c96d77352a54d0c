"""Histories of algorithms whose releases are of more than one kind."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from dpadmm.privacy.accountant import Guarantee, History, epsilon_spent
from dpadmm.privacy.events import Event, GaussianRelease, SubsampledGaussian

__all__ = ["best_split", "one_release_history", "split_history"]


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
