"""What an experiment of a paper is: settings, cells, conclusions, and what they come to."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, ClassVar, Final, Literal

from dpadmm.errors import ParameterError, unknown_name
from dpadmm.experiments.figures import Panel
from dpadmm.experiments.job import Job, Result
from dpadmm.report.tables import Table

__all__ = [
    "Conclusion",
    "Evaluation",
    "Experiment",
    "Finding",
    "Setting",
    "get_experiment",
    "known_experiments",
    "ours",
    "paper",
    "seed_of",
]

ChosenBy = Literal["paper", "ours"]
VerdictWord = Literal["stands", "does not stand", "cannot be told"]
#: Where packages name their experiments: a mapping of names to experiments each.
EXPERIMENT_GROUP: Final = "dpadmm.experiments"
VERDICTS: Final = ("stands", "does not stand", "cannot be told")


@dataclass(frozen=True)
class Setting:
    """A value and who chose it: the paper, or we where it is silent."""

    value: Any
    source: ChosenBy
    why: str = ""


def paper(value: Any, where: str = "") -> Setting:
    """A value that the paper states, and where."""
    return Setting(value, "paper", where)


def ours(value: Any, why: str) -> Setting:
    """A value that the paper does not state, and why it is this one."""
    return Setting(value, "ours", why)


@dataclass(frozen=True)
class Conclusion:
    """A conclusion of a paper and the criterion by which it is judged, fixed before any run.

    Attributes
    ----------
    name
        A short name, unique in its experiment.
    claim
        What the paper concludes.
    criterion
        When it stands: figures, comparison, interval.
    """

    name: str
    claim: str
    criterion: str


@dataclass(frozen=True)
class Finding:
    """What a conclusion came to in one calibration, with the number that shows it."""

    conclusion: str
    calibration: str
    verdict: VerdictWord
    number: str

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise ParameterError(f"verdict must be one of {VERDICTS}; got {self.verdict!r}.")

    @classmethod
    def judged(cls, conclusion: str, calibration: str, holds: bool, number: str) -> Finding:
        """Stands or does not stand."""
        return cls(conclusion, calibration, "stands" if holds else "does not stand", number)


@dataclass(frozen=True)
class Evaluation:
    """What the cells show.

    Attributes
    ----------
    panels
        The figure, in the order of the paper's parts.
    tables
        Tables for the page, by title.
    findings
        One for every conclusion and calibration.
    remarks
        Paragraphs for the page: what was found beyond the conclusions.
    """

    panels: tuple[Panel, ...]
    tables: Mapping[str, Table]
    findings: tuple[Finding, ...]
    remarks: tuple[str, ...] = ()


class Experiment(ABC):
    """A figure or table of a paper."""

    #: How it is called on the command line, such as ``pr-admm-figure-2``.
    name: ClassVar[str]
    #: The paper, as cited.
    citation: ClassVar[str]
    #: The part of the paper, such as "Fig. 2".
    part: ClassVar[str]
    #: One line on what it shows.
    title: ClassVar[str]
    #: Every setting, with its source.
    settings: ClassVar[Mapping[str, Setting]]
    conclusions: ClassVar[tuple[Conclusion, ...]]

    @abstractmethod
    def cells(self) -> dict[str, Job]:
        """What must be computed, by labels for people."""

    @abstractmethod
    def evaluate(self, results: Mapping[str, Result]) -> Evaluation:
        """Figures, tables and findings from the results, by the same labels."""

    def __getitem__(self, setting: str) -> Any:
        """The value of a setting."""
        return self.settings[setting].value


def seed_of(text: str) -> int:
    """A seed for a cell from its label, so that cells draw their noise independently."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6])


def known_experiments() -> dict[str, Experiment]:
    """Every experiment that an installed package brings, by name.

    Raises
    ------
    ParameterError
        If there is none, or if two packages bring one of the same name.
    """
    known: dict[str, Experiment] = {}
    for entry in entry_points(group=EXPERIMENT_GROUP):
        for name, experiment in entry.load().items():
            if name in known:
                raise ParameterError(
                    f"an experiment must have one source; {entry.value!r} brings {name!r} once "
                    "more. Uninstall one of the packages."
                )
            known[name] = experiment
    if not known:
        raise ParameterError(
            "experiments must be installed to be rerun; got none. Install dpadmm-papers (in a "
            "clone of the repository: pip install -e papers)."
        )
    return known


def get_experiment(name: str) -> Experiment:
    """An experiment by name, or a refusal that lists them."""
    known = known_experiments()
    if name not in known:
        raise unknown_name("experiment", name, known)
    return known[name]
