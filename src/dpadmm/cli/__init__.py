"""The command ``dpadmm``, one module per subcommand."""

from __future__ import annotations

import io
import os
import sys
from typing import Annotated, Final

import typer

# Arrow's own allocator never returns memory that rows once took; the system's does, which matters
# to a node that runs for days. The variable must be set before anything imports Arrow.
os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")

import dpadmm
from dpadmm.cli.output import REFUSALS, Commands, print_refusal, refusal_code

#: Where each command lives, in the order of the help. Loaded when called: what a command does not
#: need costs it nothing.
COMMANDS: Final = {
    "demo": "dpadmm.cli.demo:demo",
    "account": "dpadmm.cli.account:account",
    "audit": "dpadmm.cli.audit:audit",
    "plan": "dpadmm.cli.plan:plan_command",
    "train": "dpadmm.cli.train:train_command",
    "evaluate": "dpadmm.cli.evaluate:evaluate",
    "describe": "dpadmm.cli.studies:describe_command",
    "infer": "dpadmm.cli.studies:infer_command",
    "predict": "dpadmm.cli.predict:predict",
    "compare": "dpadmm.cli.compare:compare",
    # The second distribution, dpadmm-papers, brings its commands.
    "reproduce": "dpadmm_papers.command:reproduce_command",
    "choose-alpha": "dpadmm_papers.choose_alpha:choose_alpha_command",
    "report": "dpadmm.cli.report:report",
    "federation": "dpadmm.cli.federation:federation_app",
    "node": "dpadmm.cli.node:node_command",
    "serve": "dpadmm.cli.serve:serve",
    "run": "dpadmm.cli.run:run_app",
    "status": "dpadmm.cli.status:status",
    "randomize-labels": "dpadmm.cli.randomize_labels:randomize_labels_command",
    "schema": "dpadmm.cli.schema:schema_app",
    "model": "dpadmm.cli.model:model_app",
    "ledger": "dpadmm.cli.ledger:ledger_app",
    "cert": "dpadmm.cli.cert:cert_app",
}


class _Dpadmm(Commands):
    """The commands of :data:`COMMANDS`."""

    places = COMMANDS


app = typer.Typer(
    name="dpadmm",
    cls=_Dpadmm,
    help="Describe, infer and train together, without sharing rows, within a privacy budget.",
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
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Describe, infer and train together, without sharing rows, within a privacy budget."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; a refusal is one sentence and a non-zero exit, never a traceback."""
    words = sys.argv[1:] if arguments is None else arguments
    command = words[0] if words else ""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal may lack a character; a run that has spent must not end in telling so.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        app(args=words)
    except KeyboardInterrupt:
        print_refusal(command, "stopped.", as_json="--json" in words)
        sys.exit(130)
    except REFUSALS as error:
        print_refusal(command, str(error), as_json="--json" in words)
        sys.exit(refusal_code(error))
