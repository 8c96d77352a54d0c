"""``dpadmm train``: from a configuration and files to a model file."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from dpadmm.cli.output import (
    JsonOption,
    VerboseOption,
    emit,
    errors,
    owner_at_terminal,
    refusals,
    result_places,
    rounds_bar,
    show_run,
    takes,
    warn,
)
from dpadmm.errors import BudgetError

# What a command needs is imported when it runs: help answers without loading scikit-learn.
if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.progress import Progress

    from dpadmm.run.config import RunConfig
    from dpadmm.run.files import Owner
    from dpadmm.run.result import Run


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """What ``dpadmm train`` is asked."""

    config: Annotated[Path, typer.Argument(help="The configuration, a TOML file.")]
    epsilon: Annotated[
        float | None, typer.Option(help="Epsilon of every party, instead of [run]'s.")
    ] = None
    delta: Annotated[
        float | None, typer.Option(help="Delta of every party, instead of [run]'s.")
    ] = None
    verbose: VerboseOption = False
    as_json: JsonOption = False

    @property
    def budget(self) -> dict[str, float]:
        """What was told of a budget."""
        told = {"epsilon": self.epsilon, "delta": self.delta}
        return {name: value for name, value in told.items() if value is not None}


@takes(TrainOptions)
def train_command(options: TrainOptions) -> None:
    """Train a model from a configuration; print what it cost each party's privacy.

    For example:

    * `dpadmm train run.toml`

    * `dpadmm train run.toml --epsilon 0.5` (record, model and the hash of the run have it)

    A configuration has the algorithm and its budget under `[run]`, the `schema` under `[data]`, a
    `name` and a `file` under `[[party]]` for each party, and the `model` to write under `[result]`.
    `dpadmm plan --write run.toml` makes one.

    If a run was stopped, the same command continues it, from its `checkpoint` under `[result]` or
    from its ledgers.

    Before it spends anything the command looks at the rows. Only you see what looks wrong, and it
    asks you (`preflight` under `[policy]`). A run that ends there has exit code 4.
    """
    from dpadmm.report.html import write_page
    from dpadmm.report.run import run_report
    from dpadmm.run.config import load_config
    from dpadmm.run.files import write_results

    as_json = options.as_json
    goes_on = "With a checkpoint or ledgers the same command goes on; otherwise it begins anew."
    with refusals("train", as_json, goes_on):
        told = load_config(options.config, options.budget)
        run = _trained(told, quiet=as_json)
        record = write_results(run)
        # After the results: whatever happens to the page, what was paid for is there.
        if told.result.report_file is not None:
            write_page(told.result.report_file, run_report(record))
    for sentence in run.warnings:
        warn(sentence)
    if as_json:
        emit("train", result_places(told.result) | run.summary())
        return
    show_run(run, "Spent", rounds=str(told.run.rounds), verbose=options.verbose)


def _trained(config: RunConfig, *, quiet: bool) -> Run:
    """Train, with a bar; a run over budget leaves a page that says so."""
    from dpadmm.run.files import Watch, spends_anew, train_run

    again, stages = spends_anew(config), list[str]()
    with rounds_bar(quiet=quiet) as progress:
        task = progress.add_task("checking", total=config.run.rounds)

        def on_stage(stage: str) -> None:
            # Once the first stage, the checks, is over: a run that is refused spends nothing.
            if again is not None and len(stages) == 1:
                warn(again)
            stages.append(stage)
            progress.update(task, description=stage)

        watch = Watch(
            on_stage=on_stage,
            on_round=lambda done, rounds: progress.update(task, completed=done, total=rounds),
            owner=_without_bar(progress),
        )
        try:
            return train_run(config, watch)
        except BudgetError as error:
            # Rows are read after the checks.
            _write_refusal(config, str(error), started=len(stages) > 1)
            raise


def _without_bar(progress: Progress) -> Owner | None:
    """The owner at the terminal, who reads and answers while no bar is drawn."""
    owner = owner_at_terminal()
    if owner is None:
        return None

    def tell(lines: Sequence[str], ask: bool) -> bool:
        progress.stop()
        try:
            return owner(lines, ask)
        finally:
            progress.start()

    return tell


def _write_refusal(config: RunConfig, reason: str, *, started: bool) -> None:
    """A page beside that of the run: one that an earlier run left is about its model and stays."""
    from dpadmm.report.html import write_page
    from dpadmm.report.run import refusal_report

    place = config.result.report_file
    if place is not None:
        place = place.with_name(f"{place.stem}.refused.html")
        now = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
        write_page(place, refusal_report(config, reason, now, started=started))
        errors.print(Text(f"Report: {place}"))
