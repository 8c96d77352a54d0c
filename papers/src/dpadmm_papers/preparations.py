"""Named data sets with their rows prepared otherwise, or their labels randomised."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self, final

import numpy as np

from dpadmm.experiments.problems import NamedProblem, Problem, ProblemSource, dense
from dpadmm.plain import Array
from dpadmm.privacy.mechanisms import randomize_labels
from dpadmm.problem.rows import clip_rows


@final
@dataclass(frozen=True)
class StandardizedProblem(ProblemSource):
    r"""A named data set whose columns have mean 0 and deviation 1, with a constant 1 at the end.

    .. math:: x \mapsto \frac1B \Bigl(\frac{x_1 - \mu_1}{s_1}, \dots, \frac{x_d - \mu_d}{s_d},
        1\Bigr)

    The means and deviations are those of the whole public file, taken as public; a row that is
    longer than 1 after that is scaled down. A classifier :math:`\tilde w` of these rows is
    :math:`w = B \tilde w` of the rows before the division, so that training with
    :math:`a/B^2, \beta/B^2, R/B` and :math:`B V` here is training with :math:`a, \beta, R, V`
    there.

    Attributes
    ----------
    whole
        The data set, its rows dealt out.
    row_bound
        B, the length that rows are scaled down to before the division.
    numbering
        For columns of equally spaced levels: which rank each level gets instead; empty leaves them.
    """

    whole: NamedProblem
    row_bound: float
    numbering: tuple[int, ...] = ()

    def load(self) -> Problem:
        """Read, deal out and standardise the rows."""
        problem = self.whole.load()
        everything = _all_rows(problem)
        if self.numbering:
            everything = _renumbered(everything, self.numbering)
        standard = (everything - everything.mean(axis=0)) / everything.std(axis=0)
        whole = np.column_stack([standard, np.ones(len(standard))]) / self.row_bound
        longer = float((np.square(whole).sum(axis=1) > 1).mean())
        return _with_rows(
            problem,
            clip_rows(whole),
            f"columns standardised, constant appended, divided by {self.row_bound:.4g}; "
            f"{longer:.2%} of the rows were scaled down to that length",
        )

    def dealt_again(self, times: int) -> Self:
        """Deal out the whole again."""
        return replace(self, whole=self.whole.dealt_again(times))


@final
@dataclass(frozen=True)
class CodedProblem(ProblemSource):
    r"""A named data set of equally spaced levels, counted from 1, over the norm of its longest row.

    .. math:: x \mapsto c / \max_k \|c_k\|,\qquad c \in \{1, 2, \dots\}^d

    Not centred, and without a constant: "the whole feature vector normalised to a maximum norm of
    1", as PDML's paper says of Adult. The longest row is that of the whole public file.
    """

    whole: NamedProblem

    def load(self) -> Problem:
        """Read, deal out and count the levels."""
        problem = self.whole.load()
        everything = _all_rows(problem)
        levels = len(np.unique(everything.round(9)))
        codes = _renumbered(everything, tuple(range(1, levels + 1)))
        codes /= np.linalg.norm(codes, axis=1).max()
        return _with_rows(problem, codes, "levels counted from 1, over the longest row")

    def dealt_again(self, times: int) -> Self:
        """Deal out the whole again."""
        return replace(self, whole=self.whole.dealt_again(times))


@final
@dataclass(frozen=True)
class MarginProblem(ProblemSource):
    r"""Rows on the unit sphere that a plane through 0 parts with a margin, drawn by a generator.

    .. math:: y = \mathrm{sign}(u\cdot x),\qquad |u\cdot x| \ge \gamma,\qquad \|x\| = 1

    Attributes
    ----------
    parties, rows, features
        How many, of each, and the dimension.
    margin
        gamma.
    population
        How many rows there are to judge by.
    seed
        What the rows are drawn from.
    """

    parties: int
    rows: int
    features: int
    margin: float
    population: int = 20_000
    seed: int = 0

    def load(self) -> Problem:
        """Draw the rows of every party, and those to judge by, which are the same in every draw."""
        members = []
        for stream in np.random.default_rng([self.seed, 1]).spawn(self.parties):
            rows = self._rows(self.rows, stream)
            members.append((rows, np.where(rows[:, :1] > 0, 1.0, -1.0)))
        rows = self._rows(self.population, np.random.default_rng(0))
        return Problem(
            tuple(members),
            rows,
            (rows[:, 0] > 0).astype(np.int64),
            tuple(f"party {number}" for number in range(self.parties)),
            {
                "dataset": f"drawn, margin {self.margin:g}",
                "features": self.features,
                "rows": [self.rows] * self.parties,
            },
        )

    def _rows(self, count: int, stream: np.random.Generator) -> Array:
        """A first coordinate beyond the margin, the others uniform on the rest of the sphere."""
        first = stream.uniform(self.margin, 1.0, count) * stream.choice([-1.0, 1.0], count)
        others = stream.normal(size=(count, self.features - 1))
        others *= np.sqrt(1 - first**2)[:, None] / np.linalg.norm(others, axis=1)[:, None]
        return np.column_stack([first, others])

    def dealt_again(self, times: int) -> Self:
        """Other rows of the same kind."""
        return replace(self, seed=self.seed + times)


@final
@dataclass(frozen=True)
class SampledProblem(ProblemSource):
    """A named data set as a population: every party draws its rows from all, with replacement.

    Attributes
    ----------
    whole
        The data set, and how many rows each party draws.
    seed
        What they are drawn from.
    """

    whole: NamedProblem
    seed: int = 0

    def load(self) -> Problem:
        """Draw the rows; those to judge by are all of them."""
        return _sampled(self.whole, self.whole.load(), np.random.default_rng(self.seed))

    def dealt_again(self, times: int) -> Self:
        """Other rows."""
        return replace(self, seed=self.seed + times)


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
        if self.population:
            problem = _sampled(self.whole, problem, stream)
        reported = tuple(
            (rows, randomize_labels(signs, np.full_like(signs, self.label_epsilon), stream)[0])
            for rows, signs in problem.members
        )
        return replace(problem, members=reported)

    def dealt_again(self, times: int) -> Self:
        """Other rows and other labels."""
        return replace(self, whole=self.whole.dealt_again(times), seed=self.seed + times)


def _sampled(whole: NamedProblem, problem: Problem, stream: np.random.Generator) -> Problem:
    """Every party's number of rows, drawn from all of the data set, which is judged by."""
    # The same rows in every draw: all but one, which the named set holds back.
    everyone = NamedProblem(whole.dataset, 1, test_rows=1, drawn_rows=whole.drawn_rows).load()
    rows, signs = everyone.members[0]
    drawn = [stream.integers(len(signs), size=count) for count in problem.counts]
    members = tuple((rows[each], signs[each]) for each in drawn)
    codes = (signs[:, 0] > 0).astype(np.int64)
    return replace(problem, members=members, test_rows=rows, test_codes=codes)


def _all_rows(problem: Problem) -> Array:
    """The rows of all parties, one after the other, and those to judge by."""
    blocks = [*(rows for rows, _ in problem.members), problem.test_rows]
    return np.concatenate([dense(rows) for rows in blocks])


def _with_rows(problem: Problem, rows: Array, preparation: str) -> Problem:
    """The problem with all its rows, in that order, made into others."""
    *shares, test = np.split(rows, np.cumsum(problem.counts))
    signs = [each for _, each in problem.members]
    return replace(
        problem,
        members=tuple(zip(shares, signs, strict=True)),
        test_rows=test,
        facts=problem.facts | {"preparation": preparation},
    )


def _renumbered(values: Array, numbering: tuple[int, ...]) -> Array:
    """Give each of the equally spaced levels of all columns another rank."""
    levels = np.unique(values.round(9))
    ranks = np.searchsorted((levels[1:] + levels[:-1]) / 2, values)
    return np.asarray(numbering, dtype=np.float64)[ranks]
