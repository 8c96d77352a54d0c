"""``dpadmm train``: from a configuration and files to a model file."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from dpadmm.cli.options import takes
from dpadmm.cli.output import JsonOption, emit, errors, refusals, rounds_bar, warn
from dpadmm.cli.run_output import result_places, show_run
from dpadmm.errors import BudgetError

# What a command needs is imported when it runs: help answers without loading scikit-learn.
if TYPE_CHECKING:
    from dpadmm.run.config import RunConfig


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """What ``dpadmm train`` is asked."""

    config: Annotated[Path, typer.Argument(help="The configuration, a TOML file.")]
    epsilon: Annotated[
        float | None, typer.Option(help="Of every party, instead of that under [run].")
    ] = None
    delta: Annotated[
        float | None, typer.Option(help="Of every party, instead of that under [run].")
    ] = None
    as_json: JsonOption = False

    @property
    def budget(self) -> dict[str, float]:
        """What was told of a budget."""
        told = {"epsilon": self.epsilon, "delta": self.delta}
        return {name: value for name, value in told.items() if value is not None}


@takes(TrainOptions)
def train_command(options: TrainOptions) -> None:
    """Train a model as a configuration says; print what it cost each party's privacy.

    A budget on the command line counts as if the configuration said it: record, model and the hash
    of the run have it.
    """
    from dpadmm.report.html import write_page
    from dpadmm.report.run import run_report
    from dpadmm.run.config import load_config
    from dpadmm.run.from_files import Watch, spends_anew, train_run, write_results

    as_json = options.as_json
    with refusals("train", as_json):
        told = load_config(options.config, options.budget)
        again = spends_anew(told)
        if again is not None:
            warn(again)
        with rounds_bar(quiet=as_json) as progress:
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
            write_page(told.result.report_file, run_report(record))
    for sentence in run.warnings:
        warn(sentence)
    places = result_places(told.result)
    if as_json:
        emit("train", places | run.summary())
        return
    show_run(run, "Spent", rounds=str(told.run.rounds))
    for kind in ("record", "report"):
        if places[kind] is not None:
            typer.echo(f"{kind.capitalize()}: {places[kind]}")


def _write_refusal(config: RunConfig, reason: str, *, started: bool) -> None:
    """A page beside that of the run: one that an earlier run left is about its model and stays."""
    from dpadmm.report.html import write_page
    from dpadmm.report.runs import refusal_report

    place = config.result.report_file
    if place is not None:
        place = place.with_name(f"{place.stem}.refused.html")
        now = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
        write_page(place, refusal_report(config, reason, now, started=started))
        errors.print(Text(f"Report: {place}"))
