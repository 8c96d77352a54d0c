"""What an experiment of a paper is: settings, cells, conclusions, and what they come to.

How a verdict is reached:

* **Four words.** A finding "stands", "does not stand", is "not decided" or "immaterial"
  (:mod:`~dpadmm_papers.verdicts`: ``above``, ``below``, ``within`` make a word of an interval,
  ``every``, ``some``, ``at_least`` join words, ``all_above`` and its like also say the number).
  :meth:`Finding.judged` takes a word, or a bool for what has no noise, and the number;
  :meth:`Finding.of` takes both as one ``Judged``.
* **Two looks.** ``cells()`` describes the first look, 10 runs. The harness evaluates it, and where
  a finding is not decided runs five times as many runs more (:meth:`Job.further`, 60 in all; the
  first 10 are not run again) and calls ``evaluate`` once more on all of them. Verdicts of the first
  look stay; those that it left open are taken from the second. ``evaluate`` must therefore read the
  number of runs off the arrays. A finding that names the cells it rests on (``rests_on``) has only
  those run again; without it all cells are. Cells without noise have no ``further``. A
  variant is looked at again where it rests on cells of the finding that it varies alone; where it
  needs others, these stay at 10 runs.
* **Intervals** have 97.5% by default, so that two looks are wrong at most 5% of the time; criteria
  say so in words.
* **A range over runs** is that of groups of the paper's own number of runs:
  :func:`~dpadmm_papers.statistics.ranges`, drawn by :meth:`Curve.ranged`.
* **Choices of ours.** A conclusion names what it was varied over (``choices=("alpha grid",)``); a
  finding of a variant has ``choice="alpha grid", variant="from 0.05"`` and the calibration of the
  finding that it varies, which has neither. :func:`summaries` puts them together: where one variant
  comes to another word than our settings or another variant, the conclusion depends on that choice.
* **Claims about several things** ("both", "testing/training", "all three") are split
  (:func:`split`): ``evaluate`` judges each part, and :func:`with_wholes` the claim from its parts.
* **seconds** says how long the experiment takes with two processes, for the list of all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import entry_points
from typing import Any, ClassVar, Final, Literal

from dpadmm.errors import ParameterError, unknown_name
from dpadmm.experiments.figures import Panel
from dpadmm.experiments.jobs import Job, OnDone, Result, Store, compute
from dpadmm.report.document import Table
from dpadmm_papers.jobs import join
from dpadmm_papers.verdicts import WORDS, Judged, VerdictWord, certain, every

ChosenBy = Literal["paper", "ours"]
#: Where packages name their experiments: a mapping of names to experiments each.
EXPERIMENT_GROUP: Final = "dpadmm.experiments"


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
    """A conclusion of a paper and the criterion by which it is judged.

    Attributes
    ----------
    name
        A short name, unique in its experiment.
    claim
        What the paper concludes.
    criterion
        When it stands: figures, comparison, interval.
    choices
        What the paper leaves open and we chose, over which the verdict was varied.
    parts
        Names of the conclusions that it consists of: it stands where each of them does.
    """

    name: str
    claim: str
    criterion: str
    choices: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()


def split(whole: Conclusion, *parts: str) -> tuple[Conclusion, ...]:
    """A claim about several things: the whole, and a conclusion for each part.

    The criterion is that of a part; an experiment judges the parts, by the names that
    :func:`part_name` gives, and the harness the whole.
    """
    names = tuple(part_name(whole.name, part) for part in parts)
    criterion = f"{whole.criterion} Each part is judged alone; the whole stands where all do."
    return (
        replace(whole, criterion=criterion, parts=names),
        *(
            Conclusion(name, f"Of this: {part}.", whole.criterion, whole.choices)
            for name, part in zip(names, parts, strict=True)
        ),
    )


def part_name(whole: str, part: str) -> str:
    """What the conclusion about a part is called."""
    return f"{whole}, {part}"


@dataclass(frozen=True)
class Finding:
    """What a conclusion came to in one calibration, with the number that shows it.

    Attributes
    ----------
    conclusion, calibration
        Of what, and with which noise.
    verdict, number
        The word, and what shows it.
    choice, variant
        Which choice of ours was made otherwise, and how; neither where all are as in the settings.
    rests_on
        Labels of the cells that decide it; none means all.
    look
        1 where the first look decided, 2 where the second was needed.
    """

    conclusion: str
    calibration: str
    verdict: VerdictWord
    number: str
    choice: str = ""
    variant: str = ""
    rests_on: tuple[str, ...] = ()
    look: int = 1

    def __post_init__(self) -> None:
        if self.verdict not in WORDS:
            raise ParameterError(f"verdict must be one of {WORDS}; got {self.verdict!r}.")

    @classmethod
    def judged(
        cls,
        conclusion: str,
        calibration: str,
        verdict: VerdictWord | bool,
        number: str,
        *,
        choice: str = "",
        variant: str = "",
        rests_on: Iterable[str] = (),
    ) -> Finding:
        """A finding of the first look; a bool is the verdict on what has no noise."""
        word = certain(verdict) if isinstance(verdict, bool) else verdict
        return cls(conclusion, calibration, word, number, choice, variant, tuple(rests_on))

    @classmethod
    def of(
        cls,
        conclusion: str,
        calibration: str,
        judged: Judged,
        *,
        choice: str = "",
        variant: str = "",
        rests_on: Iterable[str] = (),
    ) -> Finding:
        """What was judged, as a finding of the first look."""
        return cls.judged(
            conclusion, calibration, *judged, choice=choice, variant=variant, rests_on=rests_on
        )

    @property
    def what(self) -> tuple[str, str, str, str]:
        """What it is a finding about; an experiment has one of each."""
        return (self.conclusion, self.calibration, self.choice, self.variant)


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
    #: About how long it takes with two processes, the second look included; 0 if nobody measured.
    seconds: ClassVar[float] = 0.0

    @abstractmethod
    def cells(self) -> dict[str, Job]:
        """What must be computed, by labels for people."""

    @abstractmethod
    def evaluate(self, results: Mapping[str, Result]) -> Evaluation:
        """Figures, tables and findings from the results, by the same labels."""

    def datasets(self) -> tuple[str, ...]:
        """Named data sets that its cells read."""
        found = (_datasets(cell.description()) for cell in self.cells().values())
        return tuple(dict.fromkeys(name for names in found for name in names))

    def __getitem__(self, setting: str) -> Any:
        """The value of a setting."""
        return self.settings[setting].value


def _datasets(described: Mapping[str, Any]) -> Iterator[str]:
    """Every name of a data set in the description of a cell, however deep."""
    for name, value in described.items():
        if name == "dataset":
            yield value
        elif isinstance(value, Mapping):
            yield from _datasets(value)


@dataclass(frozen=True)
class Summary:
    """What a conclusion came to in one calibration, over all variants.

    Attributes
    ----------
    conclusion, calibration
        Of what, and with which noise.
    verdict
        With our settings; where no such finding is, that on which all variants agree.
    findings
        The finding with our settings, and the variants.
    depends_on
        Choices for which not all variants come to the same word; "not decided" is a word, too.
    """

    conclusion: str
    calibration: str
    verdict: VerdictWord
    findings: tuple[Finding, ...]
    depends_on: tuple[str, ...]

    @property
    def word(self) -> str:
        """The verdict, or what it depends on."""
        if self.depends_on:
            return f"depends on {' and '.join(self.depends_on)}"
        return self.verdict


def summaries(findings: Iterable[Finding]) -> tuple[Summary, ...]:
    """Put the variants of each conclusion and calibration together."""
    grouped: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        grouped.setdefault((finding.conclusion, finding.calibration), []).append(finding)
    return tuple(_summary(*what, tuple(group)) for what, group in grouped.items())


def _summary(conclusion: str, calibration: str, findings: tuple[Finding, ...]) -> Summary:
    main = [each for each in findings if not each.choice]
    words = {each.verdict for each in main or findings}
    depends_on = []
    for choice in dict.fromkeys(each.choice for each in findings if each.choice):
        varied = {each.verdict for each in (*main, *findings) if each.choice in ("", choice)}
        if len(varied) > 1:
            depends_on.append(choice)
    verdict: VerdictWord = words.pop() if len(words) == 1 else "not decided"
    return Summary(conclusion, calibration, verdict, findings, tuple(depends_on))


def with_wholes(experiment: Experiment, findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Findings, with those on claims of several parts: each before its first part."""
    told = list(findings)
    for whole in experiment.conclusions:
        groups: dict[tuple[str, str, str], dict[str, Finding]] = {}
        for each in told:
            if each.conclusion in whole.parts:
                groups.setdefault(each.what[1:], {})[each.conclusion] = each
        place = next(
            (at for at, each in enumerate(told) if each.conclusion in whole.parts), len(told)
        )
        told[place:place] = [
            _whole(whole, what, [own[name] for name in whole.parts if name in own])
            for what, own in groups.items()
        ]
    return tuple(told)


def _whole(whole: Conclusion, what: tuple[str, str, str], parts: Sequence[Finding]) -> Finding:
    calibration, choice, variant = what
    said = (f"{each.conclusion.removeprefix(f'{whole.name}, ')} {each.verdict}" for each in parts)
    return Finding(
        whole.name,
        calibration,
        every(each.verdict for each in parts),
        f"{'; '.join(said)}.",
        choice,
        variant,
        tuple(dict.fromkeys(label for each in parts for label in each.rests_on)),
        max(each.look for each in parts),
    )


def check_findings(experiment: Experiment, findings: Iterable[Finding]) -> None:
    """Refuse findings that the experiment does not announce, or announces twice."""
    known = {each.name: each for each in experiment.conclusions}
    found = set()
    for finding in findings:
        if finding.conclusion not in known:
            raise unknown_name("conclusion", finding.conclusion, known)
        if finding.choice and finding.choice not in known[finding.conclusion].choices:
            raise unknown_name("choice", finding.choice, known[finding.conclusion].choices)
        if finding.what in found:
            raise ParameterError(
                f"findings must differ in conclusion, calibration or variant; got {finding.what} "
                "twice. Name the choice and the variant."
            )
        found.add(finding.what)


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


#: The second look has so many times as many runs more: sixty in all where the first had ten.
MORE_RUNS: Final = 5


@dataclass(frozen=True, eq=False)
class Look:
    """What the runs so far show.

    Attributes
    ----------
    cells
        What was computed, by label.
    results
        What came of it; with the runs of the second look where a cell has them.
    evaluation
        What it shows.
    further
        Cells that the next look needs; none where everything is decided, or can not be.
    extended
        Labels of cells that have the runs of the second look.
    """

    cells: Mapping[str, Job]
    results: Mapping[str, Result]
    evaluation: Evaluation
    further: Mapping[str, Job]
    extended: frozenset[str] = frozenset()


def first_look(experiment: Experiment, results: Mapping[str, Result]) -> Look:
    """Evaluate the first runs, and name what must be run for what they do not decide.

    Cells that only variants rest on are not run again: a variant is there to show that a choice
    decides, and what ten runs do not tell apart does not show it. One that reads the very cells of
    the finding that it varies is looked at again as that finding would be.
    """
    cells, evaluation = experiment.cells(), experiment.evaluate(results)
    check_findings(experiment, evaluation.findings)
    main = {each.what[:2]: set(each.rests_on) for each in evaluation.findings if not each.choice}

    def worth_it(finding: Finding) -> bool:
        if not finding.choice or finding.what[:2] not in main:
            return True
        return bool(finding.rests_on) and set(finding.rests_on) <= main[finding.what[:2]]

    undecided = [each for each in evaluation.findings if each.verdict == "not decided"]
    open_ones = [each for each in undecided if worth_it(each)]
    wanted = dict.fromkeys(label for each in open_ones for label in each.rests_on or cells)
    further = {label: cells[label].further(MORE_RUNS) for label in wanted}
    more = {label: job for label, job in further.items() if job is not None}
    whole = replace(evaluation, findings=with_wholes(experiment, evaluation.findings))
    return Look(cells, results, whole, more)


def second_look(experiment: Experiment, first: Look, more: Mapping[str, Result]) -> Look:
    """Evaluate all runs; what the first look decided stays decided.

    Judging that again would be a third chance to be wrong.
    """
    results = {
        label: join(result, more[label]) if label in more else result
        for label, result in first.results.items()
    }
    evaluation = experiment.evaluate(results)
    again = {each.what: each for each in evaluation.findings}
    findings = tuple(
        replace(again[each.what], look=2)
        if each.verdict == "not decided" and not set(each.rests_on or more).isdisjoint(more)
        else each
        for each in first.evaluation.findings
        if each.what in again
    )
    evaluation = replace(evaluation, findings=with_wholes(experiment, findings))
    return Look(first.cells, results, evaluation, {}, frozenset(more))


def look_twice(
    experiment: Experiment, store: Store, *, jobs: int = 1, on_done: OnDone | None = None
) -> Look:
    """Compute, evaluate, and look again where something is not decided."""
    results = compute(experiment.cells(), store, jobs=jobs, on_done=on_done)
    look = first_look(experiment, results)
    if not look.further:
        return look
    return second_look(experiment, look, compute(look.further, store, jobs=jobs, on_done=on_done))
