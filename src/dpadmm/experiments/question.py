r"""What is asked before anything is spent: the public facts of a run that has not happened.

**Difficulties.** Rows drawn by nothing but their public shape, at three difficulties.

Nobody knows before training how hard private rows are to tell apart. So rows are drawn that are
encoded like them (as many numbers and categories, the same constant, norm at most 1) in three ways,
and what a budget does to each of them is measured. A row of class c has

.. math:: x = m + w\,Q\,\mathrm{diag}(s)\,(e + u_c),\qquad e\sim N(0, I),\quad
          s_j\propto\mathrm{ratio}^{(j-1)/(p-1)}

in its p numeric columns, cut off at their bounds: Q is a random rotation, m is uniform in
``[-offset, offset]`` and w the mean spread of a column inside its bounds. A category has the
probabilities :math:`\propto\exp(b + u_c z)` over its levels, b and z standard normal. Two classes
are :math:`\|u_c - u_{c'}\| = 2\,\mathrm{separation}` apart, so that the best rule is wrong with
probability :math:`\Phi(-\mathrm{separation})`; more classes are so much further apart that it stays
about that.

What is hard is a difference between classes that hides in directions in which rows hardly differ
(``ratio`` is small, ``along`` is 0, columns use little of their range): weights must then be large,
and noise keeps them small. With ``along`` = 1 classes differ where rows differ most.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, final

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from dpadmm.algorithms.base import Budget
from dpadmm.data.schema import RANGES, Schema, load_schema
from dpadmm.errors import ParameterError, positive_integer
from dpadmm.experiments.problems import Problem, ProblemSource, compact
from dpadmm.plain import Array
from dpadmm.privacy.gaussian import gaussian_mu
from dpadmm.problem.rows import clip_rows, label_signs
from dpadmm.run.charges import WholePlan, plan_whole
from dpadmm.run.config import load_config, load_toml
from dpadmm.run.files import declared_rows
from dpadmm.run.options import AUTO, PrivacyWarning, TrainingParameters, Wish
from dpadmm.run.plan import Plan, plan

# More features than this in a row, all of them numbers, are for other tools.
_MOST_FEATURES: Final = 100_000
_CENTRED: Final = (-1.0, 1.0)


@final
@dataclass(frozen=True)
class RowShape:
    """How rows are encoded, and into how many classes: public facts.

    Attributes
    ----------
    ranges
        What the bounds of each numeric column become.
    levels
        Number of levels of each category, one column each.
    empty
        Columns that are zero in almost every row: those of missing and unknown values.
    constant
        The constant of a row before it is brought to norm 1; 0 for none.
    classes
        Number of classes.
    whole
        Whether every row has norm 1 exactly, as behind a map that makes it so.
    skewed
        For each numeric column the logarithm of 1 + its upper bound where the logarithm of its
        values spreads as other columns do and the column holds the values themselves, and else 0;
        empty where no column does.
    """

    ranges: tuple[tuple[float, float], ...] = ()
    levels: tuple[int, ...] = ()
    empty: int = 0
    constant: float = 1.0
    classes: int = 2
    whole: bool = False
    skewed: tuple[float, ...] = ()

    @classmethod
    def of_features(cls, features: int, classes: int = 2) -> RowShape:
        """Numbers between -1 and 1 and a constant of 1, so many columns in all."""
        if not 2 <= features <= _MOST_FEATURES:
            raise ParameterError(
                f"features must be 2 to {_MOST_FEATURES:,}, the constant among them; got "
                f"{features!r}."
            )
        if classes < 2:
            raise ParameterError(f"classes must be at least 2; got {classes!r}.")
        return cls((_CENTRED,) * (features - 1), classes=classes)

    @classmethod
    def of_schema(cls, schema: Schema) -> RowShape:
        """As a schema encodes rows."""
        categories = schema.categorical
        empty = sum(column.missing for column in schema.columns)
        shape = cls(
            ranges=tuple(column.ends for column in schema.numeric),
            levels=tuple(len(column.levels) for column in categories),
            empty=empty + sum(column.other for column in categories),
            constant=float(schema.constant),
            classes=len(schema.classes),
        )
        if schema.feature_map is None:
            return shape
        # What is known of a map's rows is how long they are.
        mapped = (_CENTRED,) * (len(schema.feature_names) - bool(schema.constant))
        return cls(mapped, constant=shape.constant, classes=shape.classes, whole=True)

    @property
    def features(self) -> int:
        """Columns of an encoded row."""
        return len(self.ranges) + sum(self.levels) + self.empty + bool(self.constant)

    @property
    def least_constant(self) -> float | None:
        """The smallest value of the constant in a row of norm 1; None without one."""
        if not self.constant:
            return None
        squares = sum(max(map(abs, ends)) ** 2 for ends in self.ranges)
        squares += len(self.levels) + self.empty + self.constant**2
        return self.constant / math.sqrt(max(1.0, squares))

    @property
    def typical_norm(self) -> float:
        """Root mean square of a row's norm without its constant, at medium difficulty."""
        medium = DIFFICULTIES[1]
        spread = medium.width**2 + medium.offset**2 / 3
        squares = [
            ((low + high) / 2) ** 2 + ((high - low) / 2) ** 2 * spread for low, high in self.ranges
        ]
        return math.sqrt(sum(squares) + len(self.levels))

    @property
    def outputs(self) -> int:
        """Columns of a classifier: 1 for two classes, else one for each."""
        return 1 if self.classes == 2 else self.classes


@final
@dataclass(frozen=True)
class Difficulty:
    """How the classes of drawn rows differ; the symbols are those of this module's formula.

    Attributes
    ----------
    name, words
        What it is called, and what it means.
    separation, ratio, along
        How far classes are apart, how unequal directions are, and how much of the difference lies
        in those in which rows differ most.
    width, offset
        Spread of a numeric column, and how far from the middle of its bounds it may lie.
    """

    name: str
    words: str
    separation: float
    ratio: float
    along: float
    width: float
    offset: float

    def among(self, classes: int) -> Difficulty:
        """The same among so many classes: real rows of several are less hard (docs/plan.md)."""
        if classes == 2 or self.ratio >= _LEAST_RATIO:
            return self
        return replace(self, ratio=_LEAST_RATIO, offset=_LARGEST_OFFSET)


# Of several classes: directions and columns of the hardest rows.
_LEAST_RATIO: Final = 0.25
_LARGEST_OFFSET: Final = 0.4

#: From the least loss to the most. How they were chosen is told in docs/plan.md.
DIFFICULTIES: Final = (
    Difficulty(
        "easy",
        "classes lie far apart (2% error), in the directions in which rows differ most",
        separation=2.0,
        ratio=0.25,
        along=1.0,
        width=0.4,
        offset=0.0,
    ),
    Difficulty(
        "medium",
        "classes overlap (16% error) and differ a little in every direction",
        separation=1.0,
        ratio=0.5,
        along=0.0,
        width=0.3,
        offset=0.25,
    ),
    Difficulty(
        "hard",
        "classes overlap (16% error), columns use little of their range, and much of the "
        "difference lies where rows hardly differ",
        separation=1.0,
        ratio=0.15,
        along=0.0,
        width=0.2,
        offset=0.5,
    ),
)


@final
@dataclass(frozen=True)
class GeneratedProblem(ProblemSource):
    """Drawn rows, dealt to parties, and others to judge by.

    Attributes
    ----------
    shape, difficulty
        What rows look like, and how their classes differ.
    counts
        Rows of each party.
    judging
        Rows to judge by.
    seed
        Decides all of it.
    names
        Of the parties; their numbers unless given.
    """

    shape: RowShape
    difficulty: Difficulty
    counts: tuple[int, ...]
    judging: int
    seed: int = 0
    names: tuple[str, ...] = ()

    def load(self) -> Problem:
        """Draw the rows."""
        return _drawn(self)

    def dealt_again(self, times: int) -> Self:
        """Other rows, whose classes differ elsewhere."""
        return replace(self, seed=self.seed + times)


@lru_cache(maxsize=4)
def _drawn(problem: GeneratedProblem) -> Problem:
    shape, training = problem.shape, sum(problem.counts)
    stream = np.random.default_rng([problem.seed, 19])
    codes = stream.integers(shape.classes, size=training + problem.judging)
    rows = compact(encoded_rows(shape, problem.difficulty, codes, stream))
    signs = label_signs(codes, shape.outputs)
    ends = np.cumsum(problem.counts)
    return Problem(
        members=tuple(
            (rows[end - count : end], signs[end - count : end])
            for count, end in zip(problem.counts, ends, strict=True)
        ),
        test_rows=rows[training:],
        test_codes=codes[training:],
        names=problem.names or tuple(str(party) for party in range(len(problem.counts))),
        facts={"dataset": f"drawn, {problem.difficulty.name}", "rows": list(problem.counts)},
        least_constant=shape.least_constant,
    )


def encoded_rows(
    shape: RowShape,
    difficulty: Difficulty,
    codes: NDArray[np.int64],
    stream: np.random.Generator,
) -> Array:
    """Draw a row of norm at most 1 for each of the classes in ``codes``."""
    centres = _centres(shape, difficulty, stream)
    numbers = len(shape.ranges)
    parts = [_numbers(shape, difficulty, centres[:, :numbers][codes], stream)]
    parts += [
        _category(levels, centres[:, numbers + place], codes, stream)
        for place, levels in enumerate(shape.levels)
    ]
    parts.append(np.zeros((len(codes), shape.empty)))
    if shape.constant:
        parts.append(np.full((len(codes), 1), shape.constant))
    rows: Array = np.concatenate(parts, axis=1)
    if shape.whole:
        rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    clipped: Array = clip_rows(rows)
    return clipped


def _centres(shape: RowShape, difficulty: Difficulty, stream: np.random.Generator) -> Array:
    """u_c of every class: ``(classes, columns)``."""
    numbers, classes = len(shape.ranges), shape.classes
    centres = stream.standard_normal((classes, numbers + len(shape.levels)))
    centres[:, :numbers] *= _scales(numbers, difficulty) ** difficulty.along
    if classes == 2:
        centres[1] = -centres[0]
    centres -= centres.mean(axis=0)
    first, second = np.triu_indices(classes, 1)
    apart = float(np.linalg.norm(centres[first] - centres[second], axis=1).mean())
    # The chances of being taken for one of the others add up.
    wanted = -float(ndtri(ndtr(-difficulty.separation) / (classes - 1)))
    return np.asarray(centres * (2 * wanted / apart))


def _scales(numbers: int, difficulty: Difficulty) -> Array:
    """s_j, with a mean square of 1."""
    scales = np.geomspace(1.0, difficulty.ratio, numbers)
    return np.asarray(scales / np.sqrt(np.mean(scales**2))) if numbers else scales


def _numbers(
    shape: RowShape,
    difficulty: Difficulty,
    shifts: Array,
    stream: np.random.Generator,
) -> Array:
    """The numeric columns of rows whose classes lie at ``shifts``."""
    count = len(shape.ranges)
    if not count:
        return np.empty((len(shifts), 0))
    rotation, _ = np.linalg.qr(stream.standard_normal((count, count)))
    drawn = (stream.standard_normal(shifts.shape) + shifts) * _scales(count, difficulty)
    middle = stream.uniform(-difficulty.offset, difficulty.offset, count)
    inside = np.clip(middle + difficulty.width * drawn @ rotation.T, -1, 1)
    low, high = np.array(shape.ranges).T
    shares = (inside + 1) / 2
    for place, largest in enumerate(shape.skewed):
        if largest:
            shares[:, place] = np.expm1(largest * shares[:, place]) / math.expm1(largest)
    return np.asarray(low + (high - low) * shares)


def _category(
    levels: int, shifts: Array, codes: NDArray[np.int64], stream: np.random.Generator
) -> Array:
    """The columns of one category: a 1 for the level of each row."""
    usual, tilt = stream.standard_normal((2, levels))
    shares = np.exp(usual) / np.exp(usual).sum()
    tilt -= shares @ tilt
    tilt /= max(np.sqrt(shares @ tilt**2), 1e-12)
    chances = np.exp(usual + shifts[:, None] * tilt)
    below = np.cumsum(chances / chances.sum(axis=1, keepdims=True), axis=1)[codes]
    level = (stream.random((len(codes), 1)) > below[:, :-1]).sum(axis=1)
    return np.eye(levels)[level]


# More parties than this are not rehearsed in a minute.
_MOST_PARTIES: Final = 10_000
_DEFAULTS: Final = TrainingParameters(AUTO)


class Planned(NamedTuple):
    """A run whose every number is fixed, and what it is warned of."""

    plan: Plan
    cautions: tuple[str, ...]


@final
@dataclass(frozen=True)
class RunQuestion:
    """The public facts of a run that has not happened: what it would bring, and what it would cost.

    :func:`~dpadmm.experiments.planner.plan_run` and ``dpadmm account`` answer from them.

    Parameters
    ----------
    rows
        Rows of each party: one number, or one for each.
    parties
        How many there are; with a list of rows it is known.
    schema
        The public description of the columns; or instead of it:
    features, classes
        Columns of an encoded row, the constant among them, and classes.
    parameters
        Budgets, graph and whatever else a run may be told; what is left to "auto" is chosen.
    names
        Of the parties; their numbers unless given.
    wish
        What is asked for beside the training.
    simulated
        Whether the noise would be reproducible.
    encoded
        Another encoding than that of the schema or of ``features``, to compare the two.

    Examples
    --------
    >>> RunQuestion(rows=1000, parties=20, features=21).counts[:3]
    (1000, 1000, 1000)
    """

    rows: int | Sequence[int]
    parties: int | None = None
    schema: Schema | None = None
    features: int | None = None
    classes: int = 2
    parameters: TrainingParameters = _DEFAULTS
    names: tuple[str, ...] | None = None
    wish: Wish = field(default_factory=Wish)
    simulated: bool = False
    encoded: RowShape | None = None

    def __post_init__(self) -> None:
        if (self.schema is None) == (self.features is None):
            got = "neither" if self.schema is None else "both"
            raise ParameterError(f"exactly one of schema and features must be given; got {got}.")
        if not 1 <= len(self.counts) <= _MOST_PARTIES:
            raise ParameterError(
                f"parties must be 1 to {_MOST_PARTIES:,}; got {len(self.counts):,}."
            )
        # Refuse here what cannot be drawn or planned.
        _ = self.shape

    @classmethod
    def from_config(cls, path: str | Path, *, settled: bool = False) -> RunQuestion:
        """What a ``run.toml`` says, whose parties declare their rows; no file of rows is opened.

        Parameters
        ----------
        path
            The file.
        settled
            Take what ``dpadmm train`` would choose where the file leaves something open; otherwise
            that is chosen anew, for every candidate by itself.
        """
        config = load_config(path)
        rows = declared_rows(config)
        told = config.parameters(tuple(rows))
        if not settled:
            asked = load_toml(path, "configuration").get("run", {})
            told = replace(
                told,
                **{name: asked.get(name, AUTO) for name in ("algorithm", "loss", "rounds")},
                algorithm_options=asked.get("algorithm_options", {}),
                algorithm_chosen=False,
            )
        return cls(
            tuple(rows.values()),
            schema=load_schema(config.data.schema_file),
            parameters=told,
            names=tuple(rows),
            wish=config.run.wish,
            simulated=config.run.simulation_key is not None,
        )

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Rows of each party."""
        if isinstance(self.rows, Sequence):
            counts = tuple(positive_integer("rows", count) for count in self.rows)
            if self.parties not in (None, len(counts)):
                raise ParameterError(
                    f"parties must be left out or be as many as rows are listed, {len(counts)}; "
                    f"got {self.parties}."
                )
            return counts
        if self.parties is None:
            raise ParameterError(
                "parties must be given where rows is one number; got none: say how many there are, "
                "or list the rows of each."
            )
        return (positive_integer("rows", self.rows),) * positive_integer("parties", self.parties)

    def encodings(self) -> dict[str, RowShape]:
        """Other public encodings of the schema's columns that are worth a look, by their names."""
        shape, schema = self.shape, self.schema
        if schema is None or schema.feature_map is not None:
            return {}
        found: dict[str, RowShape] = {}
        for ends in RANGES:
            low, high = map(int, ends)
            ranges = (ends,) * len(shape.ranges)
            found[f"range = [{low}, {high}] for all numbers"] = replace(shape, ranges=ranges)
        half = float(f"{shape.typical_norm / 2:.2g}")
        for constant in (1.0, half):
            found[f"constant = {constant:g}"] = replace(shape, constant=constant)
        logs = [0.0 if c.transform is None else c.bounds[1] for c in schema.numeric]
        if any(logs):
            found["no transform"] = replace(shape, skewed=tuple(logs))
        return {name: each for name, each in found.items() if each != shape}

    @property
    def _least_constant(self) -> float | None:
        shape = self.shape if self.schema is None else self.schema
        return shape.least_constant

    @cached_property
    def shape(self) -> RowShape:
        """How rows are encoded."""
        if self.encoded is not None:
            return self.encoded
        if self.schema is not None:
            return RowShape.of_schema(self.schema)
        return RowShape.of_features(positive_integer("features", self.features), self.classes)

    def planned(self, *, parties: int = 1, rows: int = 1, **changes: Any) -> Planned:
        """The run with these parameters changed, so many times the parties or the rows; or refuse.

        A budget or a name of one party serves only where the parties stay who they are.
        """
        told = replace(self.parameters, **changes)
        counts = tuple(rows * count for count in self.counts) * parties
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            fixed = plan(
                told,
                counts,
                features=self.shape.features,
                outputs=self.shape.outputs,
                names=self.names if parties == 1 else None,
                least_constant=self._least_constant,
            )
        # What delta is worth is told in a sentence of its own, once for all parties.
        about = (each for each in caught if not issubclass(each.category, PrivacyWarning))
        return Planned(fixed, tuple(dict.fromkeys(str(each.message) for each in about)))

    def whole(self, **changes: Any) -> WholePlan:
        """The run with these parameters changed, and the evaluation after it; or refuse."""
        names = self.names or [str(party) for party in range(len(self.counts))]
        return plan_whole(
            replace(self.parameters, **changes),
            dict(zip(names, self.counts, strict=True)),
            features=len(self.schema.feature_names) if self.schema else self.shape.features,
            least_constant=self._least_constant,
            classes=self.shape.classes,
            wish=self.wish,
        )


def budget_mu(budget: Budget) -> Array:
    """Mu of Gaussian DP that each party's budget stands for, per row of a person."""
    return np.asarray(gaussian_mu(budget.epsilon, budget.ideal_delta) / budget.rows_per_person)
