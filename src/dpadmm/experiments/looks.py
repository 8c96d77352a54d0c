"""The two looks of a verdict: ten runs, and sixty where ten do not decide."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from dpadmm.experiments.experiment import Evaluation, Experiment, Finding, check_findings
from dpadmm.experiments.job import Job, Result
from dpadmm.experiments.runner import OnDone, Store, compute

__all__ = ["MORE_RUNS", "Look", "first_look", "look_twice", "second_look"]

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
    return Look(cells, results, evaluation, more)


def second_look(experiment: Experiment, first: Look, more: Mapping[str, Result]) -> Look:
    """Evaluate all runs; what the first look decided stays decided.

    Judging that again would be a third chance to be wrong.
    """
    results = {
        label: first.cells[label].join(result, more[label]) if label in more else result
        for label, result in first.results.items()
    }
    evaluation = experiment.evaluate(results)
    again = {each.what: each for each in evaluation.findings}
    findings = tuple(
        each if each.verdict != "not decided" else replace(again[each.what], look=2)
        for each in first.evaluation.findings
    )
    evaluation = replace(evaluation, findings=findings)
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
