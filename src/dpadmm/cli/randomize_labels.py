"""``dpadmm randomize-labels``: flip labels at random where they are collected."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpadmm.cli.output import JsonOption, emit, refusals, takes
from dpadmm.errors import ParameterError, positive_number
from dpadmm.privacy.figures import Given

if TYPE_CHECKING:
    from dpadmm.privacy.events import LabelRandomizedResponse


@dataclass(frozen=True, kw_only=True)
class RandomizeOptions:
    """What ``dpadmm randomize-labels`` is asked."""

    source: Annotated[Path, typer.Argument(metavar="IN", help="CSV or Parquet file.")]
    output: Annotated[
        Path, typer.Argument(metavar="OUT", help="CSV or Parquet file to make: what is reported.")
    ]
    label: Annotated[str, typer.Option(help="Name of the label column.")]
    positive: Annotated[str, typer.Option(help="The label of the positive class.")]
    negative: Annotated[
        str | None,
        typer.Option(
            help="The other label, which any cell that is neither counts as; without, the column "
            "must hold two labels."
        ),
    ] = None
    epsilon: Annotated[float | None, typer.Option(help="Epsilon of every label.")] = None
    epsilon_column: Annotated[
        str | None, typer.Option(help="Name of the column with each label's own epsilon.")
    ] = None
    delimiter: Annotated[
        str | None, typer.Option(help="Delimiter of a CSV file (a comma; a tab for .tsv).")
    ] = None
    as_json: JsonOption = False


@takes(RandomizeOptions)
def randomize_labels_command(options: RandomizeOptions) -> None:
    """Flip each label with probability 1 / (1 + e^epsilon), before anyone else sees it.

    Example: `dpadmm randomize-labels own.csv reported.csv --label ill --positive yes --epsilon 2`

    Run it once: every further run on the same labels reveals more about them.
    """
    epsilon, column = options.epsilon, options.epsilon_column
    with refusals("randomize-labels", options.as_json):
        if (epsilon is None) == (column is None):
            raise ParameterError("either --epsilon or --epsilon-column must be given.")
        if column is None:
            positive_number("--epsilon", epsilon)
        from dpadmm.run.label_file import randomize_label_file

        rows, event = randomize_label_file(
            options.source,
            options.output,
            options.label,
            (options.positive, options.negative),
            float(epsilon) if epsilon is not None else str(column),
            delimiter=options.delimiter,
        )
    _report(options, rows, event)


def _report(options: RandomizeOptions, rows: int, event: LabelRandomizedResponse) -> None:
    own = options.epsilon_column is not None
    epsilon = Given(event.epsilon)
    which = f"its own epsilon, at most {epsilon}" if own else f"epsilon = {epsilon}"
    guarantee = (
        f"local differential privacy of each label with {which}: whoever sees OUT, the server "
        "that collects it included, learns no more than that about the label that was there"
    )
    not_covered = "the other columns; a second run on the same labels, whose epsilons add up"
    if options.negative is None:
        not_covered += "; which two labels there are and that there is no other (see --negative)"
    if options.as_json:
        result = {
            "output": str(options.output),
            "rows": rows,
            "epsilon": event.epsilon,
            "guarantee": guarantee,
            "not_covered": not_covered,
        }
        emit("randomize-labels", result)
        return
    typer.echo(f"Wrote {options.output}: {rows} rows.")
    typer.echo(f"Guarantee: {guarantee}.")
    typer.echo(f"Not covered: {not_covered}.")
    typer.echo("Keep IN, or delete it; do not send it.")
