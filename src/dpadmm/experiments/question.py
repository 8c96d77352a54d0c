"""What is asked before anything is spent: the public facts of a run that has not happened."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple, final

import numpy as np

from dpadmm.algorithms.base import Budget
from dpadmm.data.schema import Schema, load_schema
from dpadmm.errors import ParameterError, positive_integer
from dpadmm.experiments.difficulties import RowShape
from dpadmm.plain import Array
from dpadmm.privacy.gaussian import gaussian_mu
from dpadmm.run.config import load_config, load_toml
from dpadmm.run.from_files import declared_rows
from dpadmm.run.parameters import AUTO, LOSS, ROUNDS, PrivacyWarning, TrainingParameters
from dpadmm.run.plan import Plan, plan

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
    """The public facts of a run, from which :func:`~dpadmm.experiments.planner.plan_run` answers.

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
    def from_config(cls, path: str | Path) -> RunQuestion:
        """What a ``run.toml`` says, whose parties declare their rows; no file of rows is opened."""
        config = load_config(path)
        rows = declared_rows(config)
        names = tuple(rows)
        asked = load_toml(path, "configuration").get("run", {})
        told = replace(
            config.parameters(names),
            # What the file leaves open is chosen anew, for every candidate by itself.
            algorithm=asked.get("algorithm", AUTO),
            loss=asked.get("loss", LOSS),
            rounds=asked.get("rounds", ROUNDS),
            algorithm_options=asked.get("algorithm_options", {}),
            algorithm_chosen=False,
        )
        schema = load_schema(config.data.schema_file)
        return cls(tuple(rows.values()), schema=schema, parameters=told, names=names)

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

    @cached_property
    def shape(self) -> RowShape:
        """How rows are encoded."""
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
            )
        # What delta is worth is told in a sentence of its own, once for all parties.
        about = (each for each in caught if not issubclass(each.category, PrivacyWarning))
        return Planned(fixed, tuple(dict.fromkeys(str(each.message) for each in about)))


def budget_mu(budget: Budget) -> Array:
    """Mu of Gaussian DP that each party's budget stands for, per row of a person."""
    return np.asarray(gaussian_mu(budget.epsilon, budget.ideal_delta) / budget.rows_per_person)
