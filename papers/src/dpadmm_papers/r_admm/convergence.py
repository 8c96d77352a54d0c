"""Courses of average loss over the iterations, and what they say of convergence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from dpadmm.experiments.job import Result
from dpadmm.experiments.statistics import Interval, mean_interval
from dpadmm.plain import Array

__all__ = ["REACHED", "Courses", "even_steps", "left_over", "reached"]

# The loss of a classifier that knows nothing, where every run starts.
_START: Final = float(np.log(2))
#: A course counts as there when this part of the way to the optimum's loss is left.
REACHED: Final = 0.02


def even_steps(course: Array) -> Array:
    """``L(2k) - L(2k-1)``: what each even iteration adds to the average loss."""
    pairs = course[: len(course) // 2 * 2].reshape(-1, 2)
    return pairs[:, 1] - pairs[:, 0]


def left_over(course: Array) -> Array:
    """``L(2k+1) - L(2k-1)`` where iteration 2k raised the loss: above 0 it was not undone."""
    steps, odd = even_steps(course), course[::2]
    after = odd[1:] - odd[:-1]
    return after[steps[: len(after)] > 0]


def reached(gaps: Array, iterations: Array, part: float = REACHED) -> float:
    """The iteration from which on the gap stays within ``part``; infinite if there is none."""
    within = gaps <= part
    if not within[-1]:
        return float("inf")
    outside = np.flatnonzero(~within)
    return float(iterations[outside[-1] + 1] if len(outside) else iterations[0])


@dataclass(frozen=True)
class Courses:
    """The results of Fig. 1: labels end with the number of the draw.

    Attributes
    ----------
    results
        By label.
    draws
        Graphs and splits.
    """

    results: Mapping[str, Result]
    draws: int

    def losses(self, label: str) -> Array:
        """``(draws, iterations)``."""
        return np.array(
            [
                self.results[f"{label}, {draw}"].course("average loss")[:, 0]
                for draw in range(self.draws)
            ]
        )

    def gaps(self, label: str, network: int) -> Array:
        """``(draws, iterations)``: the loss above the optimum's, as a part of the way to it."""
        best = np.array(
            [
                self.results[f"N = {network}, optimum, {draw}"].values["average loss"]
                for draw in range(self.draws)
            ]
        )
        return np.asarray((self.losses(label) - best) / (_START - best))

    def slower(self, labels: Sequence[str], network: int) -> list[Interval]:
        """By how much more is left, in odd iterations, with each label than with the one before."""
        areas = [self.gaps(label, network)[:, ::2].mean(axis=1) for label in labels]
        return [mean_interval(later - earlier) for earlier, later in pairwise(areas)]

    def oscillation(self, label: str) -> Array:
        """Mean size of the even steps, one number per draw."""
        return np.array([np.abs(even_steps(course)).mean() for course in self.losses(label)])

    def rises(self, label: str) -> Array:
        """Mean rise in an even iteration, a fall counting as 0; one number per draw."""
        return np.array([even_steps(course).clip(min=0).mean() for course in self.losses(label)])

    def calmer(self, labels: Sequence[str]) -> list[Interval]:
        """The change of the oscillation from each label to the next."""
        sizes = [self.oscillation(label) for label in labels]
        return [mean_interval(later - earlier) for earlier, later in pairwise(sizes)]

    def iterations(self, label: str, network: int, step: int) -> list[float]:
        """How many iterations it takes to get there, looking at every ``step``-th."""
        gaps = self.gaps(label, network)
        every = np.arange(1, gaps.shape[1] + 1)
        return [reached(gap[::step], every[::step]) for gap in gaps]
