"""The report of ``dpadmm demo``: that of its run at epsilon = 1, with what the others reached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from dpadmm.report import texts
from dpadmm.report.document import Report, Section, Words
from dpadmm.report.plots import Bar, BarPlot, LinePlot
from dpadmm.report.run import course, run_report
from dpadmm.run.classifier import Classifier
from dpadmm.run.parameters import TrainingParameters
from dpadmm.run.plan import Plan
from dpadmm.run.record import Learnt, RecordedRun


@dataclass(frozen=True)
class ShownRun:
    """The run that the report is about, the first of the repeated ones."""

    parameters: TrainingParameters
    planned: Plan
    classifier: Classifier


def demo_report(
    shown: ShownRun,
    label: tuple[str, tuple[str, str]],
    features: Sequence[str],
    accuracy: Sequence[tuple[str, int, float]],
    histories: Mapping[str, Mapping[str, Sequence[float]]],
    command: str,
) -> Report:
    """Build the page.

    Parameters
    ----------
    shown
        The run it is about.
    label, features
        What is predicted and its two classes; the names of the columns.
    accuracy
        Who trained, on how many rows, the share of held-out rows that were right.
    histories
        Accuracy and disagreement after each round, by budget.
    command
        What makes it again.
    """
    record = _record(shown, label, features, command)
    bars = tuple(Bar(who, 100 * share) for who, _, share in accuracy)
    lines = tuple(
        course(name, [100 * share for share in each["accuracy"]])
        for name, each in histories.items()
    )
    brings = Section(
        texts.ACCURACY,
        (
            Words(texts.ACCURACY_WORDS),
            BarPlot(texts.ACCURACY_TITLE, texts.ACCURACY_WHO, texts.ACCURACY_VALUE, bars),
            LinePlot(texts.ACCURACY_COURSE, texts.ROUND, texts.ACCURACY_VALUE, lines),
        ),
    )
    return run_report(record, more=[brings])


def _record(
    shown: ShownRun, label: tuple[str, tuple[str, str]], features: Sequence[str], command: str
) -> RecordedRun:
    site, (name, classes) = shown.planned.site, label
    return RecordedRun.of_classifier(
        shown.classifier,
        site.topology,
        dict(zip(site.names, site.rows.tolist(), strict=True)),
        command=command,
        config={"run": asdict(shown.parameters)},
        run_sha256="",
        rounds=shown.planned.rounds,
        features=site.features,
        learnt=Learnt.of_model(name, (), classes, features, shown.classifier.coef),
    )
