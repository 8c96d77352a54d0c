"""What ``dpadmm train`` and ``dpadmm node`` say of a run: public facts, functions of messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from dpadmm.cli.output import console, show_table
from dpadmm.privacy.figures import AtMost

if TYPE_CHECKING:
    from dpadmm.run.config import ResultSection
    from dpadmm.run.result import Run


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
    for name, words in summary["ledgers"].items():
        console.print("Ledger" if own else f"Ledger of {name}", style="bold", highlight=False)
        console.print(words, markup=False, highlight=False, soft_wrap=True)
    for heading, words in run.privacy.lines():
        console.print(f"{heading}: {words}", markup=False, highlight=False, soft_wrap=True)
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
    taken = "" if run.seconds is None else f", {run.seconds:.1f} s"
    typer.echo(f"Run {run.sha256[:12]}, {rounds} rounds{taken}.")
    typer.echo(f"Model: {run.config.result.model}")
