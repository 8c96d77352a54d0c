"""The command ``dpadmm``, one module per subcommand."""

from __future__ import annotations

import io
import os
import sys
from typing import Annotated

import typer

# Arrow's own allocator keeps for good what rows once took, the system's gives it back; whoever runs
# a node for days wants that. It has to be said before anything imports Arrow.
os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")

import dpadmm
from dpadmm.cli import (
    account,
    audit,
    cert,
    compare,
    demo,
    evaluate,
    ledger,
    node,
    plan,
    predict,
    randomize_labels,
    report,
    reproduce,
    schema,
    status,
    train,
)
from dpadmm.cli.options import Commands
from dpadmm.cli.output import REFUSALS, print_refusal, refusal_code

__all__ = ["app", "main"]

app = typer.Typer(
    name="dpadmm",
    cls=Commands,
    help="Train one linear classifier together, without sharing rows, within a privacy budget.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(dpadmm.__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print it."),
    ] = False,
) -> None:
    """Train one linear classifier together, without sharing rows, within a privacy budget."""


app.command()(demo.demo)
app.command()(account.account)
app.command()(audit.audit)
app.command("plan")(plan.plan_command)
app.command("train")(train.train_command)
app.command()(evaluate.evaluate)
app.command()(predict.predict)
app.command()(compare.compare)
app.command("reproduce")(reproduce.reproduce_command)
app.command()(report.report)
app.command("node")(node.node_command)
app.command()(status.status)
app.command("randomize-labels")(randomize_labels.randomize_labels_command)
app.add_typer(schema.schema_app)
app.add_typer(ledger.ledger_app)
app.add_typer(cert.cert_app)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; a refusal is one sentence and a non-zero exit, never a traceback."""
    words = sys.argv[1:] if arguments is None else arguments
    command = words[0] if words else ""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal may lack a character; a run that has spent must not end in telling so.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        app(args=words)
    except REFUSALS as error:
        print_refusal(command, str(error), as_json="--json" in words)
        sys.exit(refusal_code(error))
