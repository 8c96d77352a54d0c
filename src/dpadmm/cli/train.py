"""``dpadmm train``: from a configuration and files to a model file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from dpadmm.cli.output import JsonOption, console, emit, errors, refusals, show_table, warn

# What a command needs is imported when it runs: help answers without loading scikit-learn.
if TYPE_CHECKING:
    from dpadmm.runs import TrainedRun

__all__ = ["train"]


def train(
    config: Annotated[Path, typer.Argument(help="The configuration, a TOML file.")],
    as_json: JsonOption = False,
) -> None:
    """Train a model as a configuration says; print what it cost each party's privacy."""
    from dpadmm.config import load_config
    from dpadmm.runs import Watch, train_run, write_results

    with refusals("train", as_json):
        told = load_config(config)
        with _progress(quiet=as_json) as progress:
            task = progress.add_task("checking", total=told.run.rounds)
            run = train_run(
                told,
                Watch(
                    on_stage=lambda stage: progress.update(task, description=stage),
                    on_round=lambda done, rounds: progress.update(
                        task, completed=done, total=rounds
                    ),
                ),
            )
        write_results(run)
    for sentence in run.warnings:
        warn(sentence)
    result = told.result
    if as_json:
        places = {
            "model": str(result.model),
            "record": None if result.record is None else str(result.record),
        }
        emit("train", places | run.summary())
    else:
        _show(run)


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


def _show(run: TrainedRun) -> None:
    """Public facts and functions of messages only."""
    summary = run.summary()
    for name, words in summary["ledgers"].items():
        console.print(f"Ledger of {name}", style="bold", highlight=False)
        console.print(words, markup=False, highlight=False, soft_wrap=True)
    for heading, words in run.estimator.privacy_.lines():
        console.print(f"{heading}: {words}", markup=False, highlight=False, soft_wrap=True)
    show_table(
        "Spent",
        ("party", "rows", "epsilon", "delta"),
        [
            (
                party["name"],
                party["rows"],
                party["epsilon"]
                if isinstance(party["epsilon"], str)
                else f"{party['epsilon']:.6g}",
                f"{party['delta']:g}",
            )
            for party in summary["parties"]
        ],
    )
    typer.echo(f"Run {run.sha256[:12]}, {run.config.run.rounds} rounds, {run.seconds:.1f} s.")
    typer.echo(f"Model: {run.config.result.model}")
    if run.config.result.record is not None:
        typer.echo(f"Record: {run.config.result.record}")
