"""``dpadmm plan``: what to expect of a run, before anything is spent."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpadmm.cli.output import (
    AddressOption,
    BackendOption,
    JsonOption,
    cell_progress,
    console,
    emit,
    read_value,
    refusals,
    say,
    show_table,
    takes,
    whole_numbers,
)
from dpadmm.errors import ParameterError
from dpadmm.run.options import AUTO, DEFAULT, OPTIONS

if TYPE_CHECKING:
    from dpadmm.experiments.outlook import Outlook
    from dpadmm.experiments.question import RunQuestion


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """What ``dpadmm plan`` is asked."""

    config: Annotated[
        Path | None,
        typer.Argument(help="A run.toml whose parties declare their rows; it decides the run."),
    ] = None
    rows: Annotated[
        str | None, typer.Option(help="Rows of each party: one number, or several with commas.")
    ] = None
    parties: Annotated[
        int | None, typer.Option(min=1, help="How many parties, where rows is one number.")
    ] = None
    schema: Annotated[Path | None, typer.Option(help="The public schema of the columns.")] = None
    features: Annotated[
        int | None,
        typer.Option(help="Instead of a schema: columns of an encoded row, with the constant."),
    ] = None
    classes: Annotated[int, typer.Option(min=2, help="Number of classes, with --features.")] = 2
    epsilon: Annotated[float, typer.Option(help=OPTIONS["epsilon"].help)] = DEFAULT.epsilon
    delta: Annotated[float, typer.Option(help=OPTIONS["delta"].help)] = DEFAULT.delta
    topology: Annotated[str, typer.Option(help=OPTIONS["topology"].help)] = DEFAULT.topology
    algorithm: Annotated[str, typer.Option(help=OPTIONS["algorithm"].help)] = AUTO
    rounds: Annotated[str, typer.Option(help=OPTIONS["rounds"].help)] = AUTO
    rows_per_person: Annotated[int, typer.Option(min=1, help=OPTIONS["rows_per_person"].help)] = (
        DEFAULT.rows_per_person
    )
    loss: Annotated[
        float | None,
        typer.Option(help="Points of accuracy that may be lost: finds the smallest epsilon."),
    ] = None
    write: Annotated[Path | None, typer.Option(help="A new run.toml for what is recommended.")] = (
        None
    )
    output: Annotated[
        Path | None, typer.Option(help="Folder for page and figure; keeps finished work.")
    ] = None
    quick: Annotated[
        bool, typer.Option("--quick", help="Rehearse only what the rule picks, on fewer rows.")
    ] = False
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes; one per core.")] = None
    backend: BackendOption = "loky"
    address: AddressOption = None
    as_json: JsonOption = False


@takes(PlanOptions)
def plan_command(options: PlanOptions) -> None:
    """Say what a budget will cost in accuracy, before anything is spent.

    For example:

    * `dpadmm plan --rows 1000 --parties 20 --features 21 --epsilon 1`

    * `dpadmm plan --rows 4000,2500,1500 --schema schema.toml --loss 2 --write run.toml`

    * `dpadmm plan run.toml --output plan` (a configuration whose parties declare their rows)

    It uses public facts alone and opens no file of rows. It plans every candidate by the code that
    plans a run, and rehearses it on generated rows that are easy, medium or hard to separate.

    Losses are points of accuracy below pooled training without privacy, with the spread of one run.
    The exit code is 1 if the loss wanted by `--loss` is out of reach at medium difficulty.
    """
    from dpadmm.experiments.outlook import check_new, write_configuration, write_outlook
    from dpadmm.experiments.planner import plan_run
    from dpadmm.experiments.rehearsal import QUICK

    kept = "Nothing was kept; with --output FOLDER the same command would go on."
    if options.output is not None:
        kept = f"What is finished is kept in {options.output}: the same command goes on."
    with refusals("plan", options.as_json, kept):
        question = _question(options)
        if options.write is not None:
            check_new(options.write, options.config)
        with cell_progress("rehearsing", quiet=options.as_json) as on_done:
            outlook = plan_run(
                question,
                wanted_loss=options.loss,
                effort=QUICK if options.quick else None,
                folder=options.output,
                jobs=options.jobs,
                backend=options.backend,
                address=options.address,
                on_done=on_done,
            )
        if options.output is not None:
            write_outlook(outlook, options.output, "dpadmm " + " ".join(sys.argv[1:]))
        if options.write is not None:
            write_configuration(outlook, options.write, options.config, options.schema)
    if options.as_json:
        emit("plan", outlook.plain() | _places(options))
    else:
        _show(outlook, options)
    if not outlook.reachable:
        raise typer.Exit(1)


def _question(options: PlanOptions) -> RunQuestion:
    from dpadmm.data.schema import load_schema
    from dpadmm.experiments.question import RunQuestion
    from dpadmm.run.options import TrainingParameters

    if options.config is not None:
        return RunQuestion.from_config(options.config)
    if options.rows is None:
        raise ParameterError(
            "rows must be given, one number or one for each party, or a configuration; got none: "
            "see dpadmm plan --help."
        )
    counts = whole_numbers(options.rows)
    # The loss of this command is one of accuracy.
    told = ("algorithm", "topology", "epsilon", "delta", "rows_per_person")
    given = {name: getattr(options, name) for name in told}
    parameters = TrainingParameters(**given, rounds=read_value(options.rounds))
    return RunQuestion(
        counts[0] if len(counts) == 1 and options.parties is not None else counts,
        options.parties,
        None if options.schema is None else load_schema(options.schema),
        options.features,
        options.classes,
        parameters,
    )


def _places(options: PlanOptions) -> dict[str, Any]:
    """Where things were written."""
    return {
        "folder": None if options.output is None else str(options.output),
        "config": None if options.write is None else str(options.write),
    }


def _show(outlook: Outlook, options: PlanOptions) -> None:
    from dpadmm.experiments.outlook import NOTICE, outlook_sentence, outlook_tables

    console.print(outlook_sentence(outlook), style="bold", highlight=False)
    for title, table in outlook_tables(outlook).items():
        show_table(title, table.columns, table.rows)
    left_out = [each.who for each in outlook.candidates if each.plan and not each.losses]
    if left_out:
        why = "with --quick" if options.quick else "since it would take too long"
        say(f"Not rehearsed {why}: {', '.join(left_out)}.")
    for candidate in outlook.candidates:
        if candidate.refused:
            say(f"{candidate.who} was refused: {candidate.refused}")
    say(f"Recommended: {outlook.recommended.who}; {outlook.reason}.")
    for about, words in outlook.hints:
        say(f"Hint ({about}): {words}")
    for name in ("theorem", "adversary", "adjacency"):
        said = (outlook.recommended.privacy or {}).get(name)
        if said:
            say(f"{name.capitalize()}: {said}")
    say(NOTICE)
    if options.write is not None:
        say(f"Configuration: {options.write}")
    if options.output is not None:
        say(f"Report (open it in a browser): {options.output / 'report.html'}")
