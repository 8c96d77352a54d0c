"""What the demo says, in words and on a page: computed, so that it can turn out either way."""

from __future__ import annotations

from dataclasses import asdict

from dpadmm.cli.demo_runs import (
    EPSILON,
    FEW,
    RUNS,
    SMALL_EPSILON,
    DemoData,
    Findings,
    Line,
    ShownRun,
)
from dpadmm.cli.output import console, show_table
from dpadmm.experiments.statistics import (
    BEATS,
    BELOW,
    LEVEL,
    LEVEL_WITH,
    Interval,
    mean_interval,
    percent,
    standing,
)
from dpadmm.privacy.figures import Given
from dpadmm.privacy.statement import PrivacyStatement
from dpadmm.report import texts
from dpadmm.report.document import Report, Section, Words
from dpadmm.report.plots import Bar, BarPlot, LinePlot
from dpadmm.report.run import course, run_report
from dpadmm.run.noise_error import noise_error
from dpadmm.run.record import Learnt, RecordedRun

_PAYS = {
    BEATS: "it pays even there",
    LEVEL_WITH: "it cannot be told whether that pays",
    BELOW: "that does not pay",
}


def verdict(who: str, together: Interval, best_alone: float) -> str:
    """How training together stands to the best party alone, in a sentence."""
    found = standing(together, best_alone)
    if found == BEATS:
        return f"{who}, training together beats every party alone."
    if found == BELOW:
        return f"{who}, training together does not beat the best party alone."
    return f"{who}, training together cannot be told from the best party alone."


def headline(found: Findings) -> tuple[str, ...]:
    """What training together brings, from the figures."""
    own, shared = (
        mean_interval(found.own.accuracy, LEVEL),
        mean_interval(found.shared.accuracy, LEVEL),
    )
    best = float(found.alone.max())
    return (
        f"Alone and without any privacy, {found.parties} parties with {found.rows} rows each get "
        f"{percent(found.alone.mean())} of the held-out rows right on average and {percent(best)} "
        f"at best; together at epsilon {Given(EPSILON)} they get {percent(shared.mean)} with "
        f"shared noise and {percent(own.mean)} with noise of each one's own.",
        verdict("With shared noise", shared, best),
        verdict("With own noise", own, best),
    )


def when_not(found: Findings) -> tuple[str, ...]:
    """When training together may not pay, from the figures."""
    small, few = mean_interval(found.small_budget, LEVEL), mean_interval(found.few, LEVEL)
    best, best_of_few = float(found.alone.max()), float(found.few_alone.max())
    return (
        f"A tiny budget: at epsilon {Given(SMALL_EPSILON)} shared noise leaves "
        f"{percent(small.mean)}; {_PAYS[standing(small, best)]}, against {percent(best)} of the "
        "best party alone.",
        f"Few parties with many rows each: the same rows at {FEW} parties give the best of them "
        f"{percent(best_of_few)} alone, and {percent(few.mean)} together at epsilon "
        f"{Given(EPSILON)}; {_PAYS[standing(few, best_of_few)]}.",
        "Whoever may not use its own rows without noise has less alone: within the same budget "
        f"{percent(found.private_alone.mean())} on average.",
    )


def show_accuracy(data: DemoData, lines: tuple[Line, ...]) -> None:
    """Print who reached what."""
    counts = data.problem.counts
    console.print(
        f"\n[bold]Data:[/bold] {data.title}, {len(counts)} parties with {counts[0]} rows each; "
        "every other one has few of the second class, the others have many\n",
        highlight=False,
    )
    table = [
        (
            line.who,
            line.rows,
            "no" if line.epsilon is None else f"epsilon {Given(line.epsilon)}",
            percent(line.mean) + ("" if line.spread is None else f" ± {100 * line.spread:.1f}"),
        )
        for line in lines
    ]
    title = f"Accuracy on held-out rows (± the standard deviation of one run, of {RUNS})"
    show_table(title, ("who", "rows", "privacy", "accuracy"), table)


def show_sentences(heading: str, sentences: tuple[str, ...]) -> None:
    """Print sentences under a heading."""
    console.print(f"\n[bold]{heading}[/bold]", highlight=False)
    for sentence in sentences:
        console.print(f"  {sentence}", highlight=False)


def show_statement(heading: str, statement: PrivacyStatement) -> None:
    """Print what is guaranteed, line by line."""
    console.print(f"\n[bold]{heading}[/bold]", highlight=False)
    for part, words in statement.lines():
        console.print(f"  [bold]{part}:[/bold] {words}", highlight=False)


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
        ("best party alone", 100 * float(found.alone.max())),
        ("pooled", 100 * found.pooled),
    )
    bars = tuple(_bar(line) for line in found.lines())
    brings = Section(
        "What it brings, and what privacy costs",
        (
            Words(" ".join(headline(found))),
            BarPlot("Accuracy on held-out rows", "who trains", texts.ACCURACY_VALUE, bars),
            Words(f"When it does not pay: {' '.join(when_not(found))}"),
            LinePlot(
                "Accuracy over the rounds", texts.ROUND, texts.ACCURACY_VALUE, lines, limits=levels
            ),
            Words(
                "Accuracy on rows that were held out. This is a simulation: a real run "
                "computes no such figure from private rows."
            ),
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
