"""What a study asks, apart from whose rows it asks and where it runs.

A :class:`StudyQuestion` goes from public facts to a plan, from rows to what is added up, and from
what was released to an answer. The same ones are asked of files in one process and between nodes.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from dpadmm.errors import DataError, ParameterError
from dpadmm.plain import Array
from dpadmm.privacy.noise import NoiseSource
from dpadmm.privacy.statement import PrivacyStatement
from dpadmm.run.charges import EvaluationTerms, ledger_accounts
from dpadmm.run.files import Fault
from dpadmm.run.options import PrivacyWarning
from dpadmm.run.plan import Plan
from dpadmm.studies.study import StudyRows, StudyRun, run_study, smallest_epsilon

# Of each party, where how many there are is not known yet.
_SOME_ROWS: Final = 1000


class StudyAnswer(ABC):
    """What a study found.

    Attributes
    ----------
    done
        The study, and what it guarantees.
    """

    done: StudyRun

    @property
    def privacy_(self) -> PrivacyStatement:
        """The guarantee."""
        return self.done.privacy

    @abstractmethod
    def record(self) -> dict[str, Any]:
        """The record: what was asked, found and spent."""


class StudyQuestion(ABC):
    """What is asked: public, and checked before a row is read."""

    @abstractmethod
    def plan(self, rows: Mapping[str, int], terms: EvaluationTerms) -> Plan:
        """Fix the study of so many rows of each party; or refuse what is asked."""

    @abstractmethod
    def answer(self, done: StudyRun) -> StudyAnswer:
        """What was found."""

    def compared(self, found: StudyAnswer, parties: Sequence[Array]) -> StudyAnswer:
        """Of a simulation: an answer beside that of the same rows without privacy."""
        return found

    @abstractmethod
    def width(self, planned: Plan) -> float:
        """How wide intervals will be, from public facts: the widest of what is asked."""

    @abstractmethod
    def expected(self, planned: Plan) -> dict[str, Any]:
        """What to expect, as plain data."""

    def checked_plan(self, rows: Mapping[str, int], terms: EvaluationTerms) -> Plan:
        """The plan, refused where it would drown in its noise."""
        return self.plan(rows, terms)

    def prepared(self, rows: Array) -> tuple[Array, Array]:
        """What the study adds up, and the responses that belong to it.

        Parameters
        ----------
        rows
            As :class:`~dpadmm.data.study_rows.StudyColumns` has them.
        """
        return rows, np.zeros((len(rows), 1))

    def faults(self, rows: Array) -> tuple[Fault, ...]:
        """What contradicts itself in some of these rows, for their owner alone."""
        return ()

    def details(self, planned: Plan) -> tuple[tuple[str, str], ...]:
        """What its statement says beside the guarantee."""
        return ()

    @property
    def public(self) -> dict[str, Any]:
        """What decides what the numbers of a row mean, where neither plan nor schema says it."""
        return {}

    def epsilon_for(self, rows: Mapping[str, int], terms: EvaluationTerms, wanted: float) -> float:
        """The smallest epsilon with which no interval is expected to be wider than wanted."""
        return smallest_epsilon(
            lambda epsilon: self.width(self.plan(rows, replace(terms, epsilon=epsilon))), wanted
        )


def ask_rows(
    question: StudyQuestion,
    terms: EvaluationTerms,
    read: Callable[[], dict[str, Array]],
    about: StudyRows,
    *,
    parties: Sequence[str] = (),
    noise: NoiseSource,
    before: Callable[[], None] = lambda: None,
) -> StudyRun:
    """Ask the rows of all parties, charged to their ledgers.

    Parameters
    ----------
    question, terms
        What is asked, and what it may cost.
    read
        The rows of every party by its name, as :class:`~dpadmm.data.study_rows.StudyColumns` has
        them.
    about
        Where they are charged.
    parties
        Their names in order, where they are known; each of them has a ledger, or none has.
    noise
        Where it comes from.
    before
        Called once nothing stands in the way of a study that was not charged anything yet.
    """
    found: dict[str, Array] = {}
    if about.ledgers:
        accounts = ledger_accounts(about.ledgers)
        missing = next((name for name in parties if name not in accounts), None)
        if missing is not None:
            raise ParameterError(f"ledgers must name every party's ledger; {missing!r} has none.")
        counts = {name: accounts[name].dataset.rows for name in parties or sorted(accounts)}
    else:
        # What is asked is fine whatever the rows; how many there are says whoever has them.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tables = (each for each in (terms.epsilon, terms.delta) if isinstance(each, Mapping))
            names = parties or list(next(tables, map(str, range(5))))
            question.plan(dict.fromkeys(names, _SOME_ROWS), terms)
        before()
        found = read()
        counts = {name: len(rows) for name, rows in found.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if about.ledgers else "default", PrivacyWarning)
        planned = question.checked_plan(about.counts(counts), terms)

    def rows() -> list[tuple[Array, Array]]:
        given = found or read()
        check_counts(given, counts)
        return [question.prepared(given[name]) for name in planned.site.names]

    details = question.details(planned)
    return run_study(planned, rows, noise=noise, about=about, before=before, details=details)


def check_counts(found: Mapping[str, Array], declared: Mapping[str, int]) -> None:
    """Refuse rows of a party that are not as many as are declared, a public number."""
    for name, count in declared.items():
        if name not in found or len(found[name]) != count:
            raise DataError(
                f"party {name!r} must have the rows that it or its ledger declares, {count}; its "
                f"file has {len(found.get(name, ()))}: correct one"
            )
