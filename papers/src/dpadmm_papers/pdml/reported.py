"""Rows as servers get them: drawn from a population, with labels that users randomised."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self, final

import numpy as np

from dpadmm.experiments.problems import NamedProblem, Problem, ProblemSource
from dpadmm.privacy.mechanisms import randomize_labels

__all__ = ["ReportedProblem"]


@final
@dataclass(frozen=True)
class ReportedProblem(ProblemSource):
    """A named data set with randomised labels, its rows dealt out or drawn from all of it.

    Attributes
    ----------
    whole
        The data set, its rows dealt out.
    label_epsilon, seed
        Of the labels; what they and the rows are drawn from.
    population
        Whether every server draws its rows from all rows of the data set, with replacement: these
        are then the distribution that samples come from, and the rows to judge by.
    """

    whole: NamedProblem
    label_epsilon: float
    seed: int = 0
    population: bool = False

    def load(self) -> Problem:
        """Read, draw and randomise."""
        problem = self.whole.load()
        stream = np.random.default_rng(self.seed)
        members = problem.members
        if self.population:
            # The same rows in every draw: all but one, which the named set holds back.
            everyone = NamedProblem(
                self.whole.dataset, 1, test_rows=1, drawn_rows=self.whole.drawn_rows
            ).load()
            rows, signs = everyone.members[0]
            drawn = [stream.integers(len(signs), size=count) for count in problem.counts]
            members = tuple((rows[each], signs[each]) for each in drawn)
            codes = (signs[:, 0] > 0).astype(np.int64)
            problem = replace(problem, test_rows=rows, test_codes=codes)
        reported = tuple(
            (rows, randomize_labels(signs, np.full_like(signs, self.label_epsilon), stream)[0])
            for rows, signs in members
        )
        return replace(problem, members=reported)

    def dealt_again(self, times: int) -> Self:
        """Other rows and other labels."""
        return replace(self, whole=self.whole.dealt_again(times), seed=self.seed + times)
