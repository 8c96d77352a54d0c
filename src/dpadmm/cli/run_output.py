"""What ``dpadmm train`` and ``dpadmm node`` say of a run: public facts, functions of messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import typer

from dpadmm.cli.output import console, say, show_table
from dpadmm.privacy.figures import AtMost, pair

if TYPE_CHECKING:
    from dpadmm.evaluation.intervals import Estimate
    from dpadmm.evaluation.metrics import ModelFigures
    from dpadmm.privacy.statement import PrivacyStatement
    from dpadmm.run.classifier import Quality
    from dpadmm.run.config import ResultSection
    from dpadmm.run.result import Run

# How the lines of a ledger begin that the statement of a run does not have, and those that it may
# have in the same words; `dpadmm ledger show` prints all of them.
_OF_A_BUDGET: Final = (
    "Data set:",
    "Guarantee:",
    "Amended:",
    "Filter:",
    "Spent",
    "Accounts:",
    "Left:",
)
_OF_BOTH: Final = ("Adjacency:", "Adversary:")


def result_places(result: ResultSection) -> dict[str, str | None]:
    """Where the model is, and the record and the report if they are wanted."""
    return {
        "model": str(result.model),
        "record": None if result.record is None else str(result.record),
        "report": None if result.report_file is None else str(result.report_file),
    }


def show_run(run: Run, title: str, *, rounds: str, own: bool = False) -> None:
    """Print what the run guarantees and what it cost.

    Parameters
    ----------
    run
        The run.
    title
        Of the table of what was spent.
    rounds
        How many rounds there were, in words.
    own
        Whether there is only the owner's ledger, which needs no name.
    """
    summary = run.summary()
    for heading, words in run.privacy.lines():
        say(words, heading)
    show_table(
        title,
        ("party", "rows", "epsilon", "delta"),
        [
            (
                party["name"],
                party["rows"],
                party["epsilon"] if isinstance(party["epsilon"], str) else AtMost(party["epsilon"]),
                AtMost(party["delta"]),
            )
            for party in summary["parties"]
        ],
    )
    for name, words in summary["ledgers"].items():
        console.print("Ledger" if own else f"Ledger of {name}", style="bold", highlight=False)
        say("\n".join(_of_ledger(words, run.privacy)))
    quality = run.classifier.quality
    if quality is not None:
        show_quality(quality, quality.evaluation(), [str(name) for name in run.classifier.classes])
    taken = "" if run.seconds is None else f", {run.seconds:.1f} s"
    typer.echo(f"Run {run.sha256[:12]}, {rounds} rounds{taken}.")
    for kind, place in result_places(run.config.result).items():
        if place is not None:
            typer.echo(f"{kind.capitalize()}: {place}")


def _of_ledger(words: str, stated: PrivacyStatement) -> Iterator[str]:
    """What a ledger says that the statement above it does not.

    Earlier runs may have counted on the noise of others: then it holds against fewer.
    """
    said = {f"{heading}: {line}" for heading, line in stated.lines()}
    for line in words.splitlines():
        if line.startswith(_OF_A_BUDGET) or (line.startswith(_OF_BOTH) and line not in said):
            yield line


def about_words(quality: Quality) -> str:
    """Which rows a model was evaluated on, and what that cost."""
    from dpadmm.run.classifier import HELD_OUT, PUBLIC

    count = f"{quality.histogram.rows:,}"
    if quality.about == PUBLIC or quality.privacy is None:
        return f"{count} rows, public rows: exact counts, nothing was charged"
    spent = f"{pair(quality.privacy.epsilon, quality.privacy.delta)}-differential privacy"
    if quality.privacy.simulated:
        spent = f"SIMULATION, which protects nobody; with secret noise {spent}"
    if quality.about == HELD_OUT:
        return f"{count} held-out rows, {spent} for them alone"
    return f"{count} rows that were trained on (optimistic), {spent} beside that of the training"


def plain_quality(quality: Quality, evaluation: ModelFigures) -> dict[str, Any]:
    """What a command tells machines of an evaluation."""
    content = quality.to_dict()
    del content["histogram"]
    return {
        "about": content.pop("about"),
        "words": about_words(quality),
        "threshold": quality.threshold,
        **content,
        "evaluation": evaluation.to_dict(),
    }


def show_quality(quality: Quality, evaluation: ModelFigures, classes: Sequence[str]) -> None:
    """Print how good a model is, in tables that fit 80 columns.

    Parameters
    ----------
    quality, evaluation
        What was released, and the figures that follow from it.
    classes
        Names, in the order of their codes.
    """
    from dpadmm.run.classifier import shown_estimate

    say(f"Evaluated on {about_words(quality)}.")
    level = f"{100 * evaluation.confidence:g}% interval"
    figures = [(figure.name, shown_estimate(figure)) for figure in evaluation.estimates]
    show_table("How good it is", ("figure", level), figures)
    if evaluation.decision is None:
        for figures_of in evaluation.classes:
            lines = [(figure.name, shown_estimate(figure)) for figure in figures_of.estimates]
            show_table(f"{classes[figures_of.code]} against the rest", ("figure", level), lines)
    else:
        say(
            f"{classes[1]!r} is predicted where the score is above {quality.threshold:.6g}; "
            f"sensitivity is about {classes[1]!r}, specificity about {classes[0]!r}."
        )
    show_table(
        "Of all rows (share): true class by predicted class",
        ("true", *classes),
        [
            (classes[true], *(_share(figure) for figure in line))
            for true, line in enumerate(evaluation.confusion)
        ],
    )


def _share(figure: Estimate) -> str:
    return "?" if figure.value is None else f"{figure.share:.3f}"
