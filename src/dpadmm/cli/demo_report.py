"""The report of ``dpadmm demo``: that of its run with shared noise, and what the rest reached."""

from __future__ import annotations

from dataclasses import asdict

from dpadmm.cli.demo_data import DemoData
from dpadmm.cli.demo_runs import Findings, Line, ShownRun
from dpadmm.cli.demo_words import headline, when_not
from dpadmm.report import texts
from dpadmm.report.document import Report, Section, Words
from dpadmm.report.plots import Bar, BarPlot, LinePlot
from dpadmm.report.run import course, run_report
from dpadmm.run.noise_error import noise_error
from dpadmm.run.record import Learnt, RecordedRun


def demo_report(data: DemoData, found: Findings, command: str) -> Report:
    """Build the page.

    Parameters
    ----------
    data, found
        The rows, and what was measured on them.
    command
        What makes it again.
    """
    lines = tuple(
        course(name, [100 * share for share in taken["accuracy"]])
        for name, taken in found.history.items()
    )
    levels = (
        (texts.BEST_ALONE, 100 * float(found.alone.max())),
        (texts.POOLED, 100 * found.pooled),
    )
    bars = tuple(_bar(line) for line in found.lines())
    brings = Section(
        texts.ACCURACY,
        (
            Words(" ".join(headline(found))),
            BarPlot(texts.ACCURACY_TITLE, texts.ACCURACY_WHO, texts.ACCURACY_VALUE, bars),
            Words(f"{texts.WHEN_NOT} {' '.join(when_not(found))}"),
            LinePlot(
                texts.ACCURACY_COURSE, texts.ROUND, texts.ACCURACY_VALUE, lines, limits=levels
            ),
            Words(texts.ACCURACY_WORDS),
        ),
    )
    return run_report(_record(data, found.shared.shown, command), more=[brings])


def _bar(line: Line) -> Bar:
    """A bar with the interval of its mean, where there are several runs."""
    if len(line.accuracy) == 1:
        return Bar(line.who, 100 * line.mean)
    interval = line.interval
    return Bar(line.who, 100 * line.mean, low=100 * interval.low, high=100 * interval.high)


def _record(data: DemoData, shown: ShownRun, command: str) -> RecordedRun:
    site, (name, classes) = shown.planned.site, data.label
    return RecordedRun.of_classifier(
        shown.classifier,
        site.topology,
        dict(zip(site.names, site.rows.tolist(), strict=True)),
        command=command,
        config={"run": asdict(shown.parameters)},
        run_sha256="",
        rounds=shown.planned.rounds,
        features=site.features,
        learnt=Learnt.of_model(
            name,
            (),
            classes,
            data.schema,
            shown.classifier.coef,
            noise_error(shown.planned),
        ),
    )
