"""``dpadmm train``: from a configuration and files to a model file."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from dpadmm.cli.output import JsonOption, console, emit, errors, refusals, show_table, warn
from dpadmm.privacy.figures import AtMost

# What a command needs is imported when it runs: help answers without loading scikit-learn.
if TYPE_CHECKING:
    from dpadmm.report.document import Report
    from dpadmm.run.config import RunConfig
    from dpadmm.run.result import Run

__all__ = ["train_command"]


def train_command(
    config: Annotated[Path, typer.Argument(help="The configuration, a TOML file.")],
    as_json: JsonOption = False,
) -> None:
    """Train a model as a configuration says; print what it cost each party's privacy."""
    from dpadmm.errors import BudgetError
    from dpadmm.report.run import run_report
    from dpadmm.run.config import load_config
    from dpadmm.run.from_files import Watch, train_run, write_results

    with refusals("train", as_json):
        told = load_config(config)
        with _progress(quiet=as_json) as progress:
            task = progress.add_task("checking", total=told.run.rounds)
            stages: list[str] = []

            def on_stage(stage: str) -> None:
                stages.append(stage)
                progress.update(task, description=stage)

            watch = Watch(
                on_stage=on_stage,
                on_round=lambda done, rounds: progress.update(task, completed=done, total=rounds),
            )
            try:
                run = train_run(told, watch)
            except BudgetError as error:
                # Rows are read once the first stage, the checks, is over.
                _write_refusal(told, str(error), started=len(stages) > 1)
                raise
        record = write_results(run)
        # After the results: whatever happens to the page, what was paid for is there.
        if told.result.report_file is not None:
            _write(run_report(record), told.result.report_file)
    for sentence in run.warnings:
        warn(sentence)
    result = told.result
    if as_json:
        places = {
            "model": str(result.model),
            "record": None if result.record is None else str(result.record),
            "report": None if result.report_file is None else str(result.report_file),
        }
        emit("train", places | run.summary())
    else:
        _show(run)


def _write(report: Report, place: Path) -> None:
    from dpadmm.durable import write_whole
    from dpadmm.report.html import render

    write_whole(place, render(report).encode(), "report")


def _write_refusal(config: RunConfig, reason: str, *, started: bool) -> None:
    """A page beside that of the run: one that an earlier run left is about its model and stays."""
    from dpadmm.report.runs import refusal_report

    place = config.result.report_file
    if place is not None:
        place = place.with_name(f"{place.stem}.refused.html")
        now = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
        _write(refusal_report(config, reason, now, started=started), place)
        errors.print(Text(f"Report: {place}"))


def _progress(*, quiet: bool) -> Progress:
    """A bar on standard error; nothing where nobody watches."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("rounds"),
        TimeRemainingColumn(),
        console=errors,
        transient=True,
        disable=quiet or not errors.is_terminal,
    )


def _show(run: Run) -> None:
    """Public facts and functions of messages only."""
    summary = run.summary()
    for name, words in summary["ledgers"].items():
        console.print(f"Ledger of {name}", style="bold", highlight=False)
        console.print(words, markup=False, highlight=False, soft_wrap=True)
    for heading, words in run.privacy.lines():
        console.print(f"{heading}: {words}", markup=False, highlight=False, soft_wrap=True)
    show_table(
        "Spent",
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
    typer.echo(f"Run {run.sha256[:12]}, {run.config.run.rounds} rounds{taken}.")
    typer.echo(f"Model: {run.config.result.model}")
    if run.config.result.record is not None:
        typer.echo(f"Record: {run.config.result.record}")
    if run.config.result.report_file is not None:
        typer.echo(f"Report: {run.config.result.report_file}")
