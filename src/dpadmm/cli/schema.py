"""``dpadmm schema``: write a first schema from a public sample, test a file against one."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dpadmm.datasets.draft import DRAFT_WARNING, MAX_LEVELS, draft_schema
from dpadmm.datasets.files import read_batches
from dpadmm.encode import ColumnCounts, Counts, encode_batch
from dpadmm.schema import DataError, Schema, load_schema

__all__ = ["CHECK_WARNING", "app"]

CHECK_WARNING = (
    "These counts are about private rows and covered by no privacy budget: do not share them."
)

app = typer.Typer(
    name="schema",
    help="The public description of a table: draft one, check a file against one.",
    no_args_is_help=True,
)

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
DelimiterOption = Annotated[
    str | None, typer.Option(help="Between the cells of a CSV file (a comma; a tab for .tsv).")
]


def _fail(error: DataError, as_json: bool) -> typer.Exit:
    if as_json:
        typer.echo(json.dumps({"version": 1, "error": str(error)}))
    typer.echo(f"Error: {error}", err=True)
    return typer.Exit(1)


@app.command()
def draft(
    sample: Annotated[Path, typer.Argument(help="CSV or Parquet file with PUBLIC rows.")],
    label: Annotated[str, typer.Option(help="Name of the column to predict.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the schema goes.")] = Path(
        "schema.toml"
    ),
    party: Annotated[
        str | None, typer.Option(help="Name of the column that says whose row it is.")
    ] = None,
    constant: Annotated[bool, typer.Option(help="Ask for a constant column.")] = False,
    max_levels: Annotated[
        int, typer.Option(min=1, help="The most levels of a categorical column.")
    ] = MAX_LEVELS,
    delimiter: DelimiterOption = None,
    force: Annotated[bool, typer.Option(help="Replace a schema that is there.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Write a first schema from a PUBLIC sample; read it through before sharing it."""
    typer.echo(f"Warning: {DRAFT_WARNING}.", err=True)
    try:
        schema = draft_schema(
            sample,
            label,
            party=party,
            constant=constant,
            max_levels=max_levels,
            delimiter=delimiter,
        )
        _write(schema, output, force)
    except DataError as error:
        raise _fail(error, as_json) from None
    if as_json:
        content = {
            "version": 1,
            "schema": str(output),
            "schema_sha256": schema.sha256,
            "numeric": [column.name for column in schema.numeric],
            "categorical": [column.name for column in schema.categorical],
            "classes": list(schema.classes),
            "encoded_columns": len(schema.feature_names),
        }
        typer.echo(json.dumps(content))
        return
    typer.echo(
        f"Wrote {output}: {len(schema.numeric)} numeric and {len(schema.categorical)} "
        f"categorical columns, {len(schema.classes)} classes, {len(schema.feature_names)} "
        "encoded columns. Read it through: widen bounds and complete levels by what is commonly "
        "known."
    )


def _write(schema: Schema, output: Path, force: bool) -> None:
    comment = f"# Drafted from a sample; {DRAFT_WARNING}.\n"
    try:
        with output.open("w" if force else "x", encoding="utf-8") as file:
            file.write(comment + schema.to_toml())
    except FileExistsError:
        raise DataError(
            f"output must be a new file; {output} is there: choose another or add --force"
        ) from None
    except OSError as error:
        raise DataError(f"output must be writable; got {output}: {error.strerror}") from None


@app.command()
def check(
    schema: Annotated[Path, typer.Argument(help="The schema.toml.")],
    file: Annotated[Path, typer.Argument(help="CSV or Parquet file to test.")],
    delimiter: DelimiterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Test a file against a schema. Reports counts only, for your eyes only."""
    try:
        description = load_schema(schema)
        counts = Counts(columns={column.name: ColumnCounts() for column in description.columns})
        for batch, ragged in read_batches(file, description, delimiter=delimiter):
            counts += encode_batch(batch, description, ragged_rows=ragged).counts
    except DataError as error:
        raise _fail(error, as_json) from None
    if as_json:
        typer.echo(json.dumps(_report(description, counts)))
        return
    _show(description, file, counts)


def _report(schema: Schema, counts: Counts) -> dict[str, Any]:
    columns = {name: dataclasses.asdict(found) for name, found in counts.columns.items()}
    return {
        "version": 1,
        "schema_sha256": schema.sha256,
        "encoded_columns": len(schema.feature_names),
        "rows": counts.rows,
        "ragged_rows": counts.ragged_rows,
        "bad_labels": counts.bad_labels,
        "columns": columns,
        "private": CHECK_WARNING,
    }


def _show(schema: Schema, file: Path, counts: Counts) -> None:
    table = Table("column", "missing", "other", "clipped")
    for name, found in counts.columns.items():
        # Names come from a file: they must not be read as markup.
        cells = (name, str(found.missing), str(found.other), str(found.clipped))
        table.add_row(*(Text(cell) for cell in cells))
    typer.echo(
        f"{file} fits the schema {schema.sha256[:12]}: {counts.rows} rows, "
        f"{counts.ragged_rows} of them ragged lines, {counts.bad_labels} bad labels (taken as "
        f"{schema.classes[0]!r}), {len(schema.feature_names)} encoded columns."
    )
    Console().print(table)
    typer.echo(CHECK_WARNING)
