"""``dpadmm schema``: write a first schema from a public sample, test a file against one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpadmm.cli.output import (
    DelimiterOption,
    JsonOption,
    command_group,
    emit,
    refusals,
    say,
    show_table,
    takes,
    warn,
)
from dpadmm.durable import check_writable, write_whole
from dpadmm.errors import DataError

if TYPE_CHECKING:
    from dpadmm.data.encode import Survey
    from dpadmm.data.schema import Schema
    from dpadmm.data.values import Reading

CHECK_WARNING = (
    "These counts are about private rows and covered by no privacy budget: do not share them."
)

schema_app = command_group(
    "schema",
    "The public description of a table: draft one, check a file against one.\n\n"
    "Example: `dpadmm schema draft public.csv --label readmitted -o schema.toml`",
)


@dataclass(frozen=True, kw_only=True)
class DraftOptions:
    """What ``dpadmm schema draft`` is asked."""

    sample: Annotated[Path, typer.Argument(help="CSV or Parquet file with PUBLIC rows.")]
    label: Annotated[str, typer.Option(help="Name of the column to predict.")]
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the schema goes.")] = Path(
        "schema.toml"
    )
    party: Annotated[
        str | None, typer.Option(help="Name of the column with the owner of each row.")
    ] = None
    constant: Annotated[
        bool, typer.Option("--constant", help="Add a constant column: an intercept.")
    ] = False
    max_levels: Annotated[
        int | None, typer.Option(min=1, help="The most levels of a categorical column (50).")
    ] = None
    fourier: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Let rows become N random Fourier features (150 is a good number): a model that "
            "draws curves, where without it draws a straight line. Takes no constant.",
        ),
    ] = None
    polynomial: Annotated[
        int | None,
        typer.Option(
            metavar="2",
            help="Let rows also have the products of every two columns, for at most 16 encoded "
            "columns: a model that draws ellipses and hyperbolas.",
        ),
    ] = None
    delimiter: Annotated[
        str | None, typer.Option(help="Delimiter of a CSV file; found if not given.")
    ] = None
    force: Annotated[bool, typer.Option("--force", help="Replace a schema that is there.")] = False
    as_json: JsonOption = False


@schema_app.command()
@takes(DraftOptions)
def draft(options: DraftOptions) -> None:
    """Write a first schema from a PUBLIC sample; read it through before sharing it.

    Example: `dpadmm schema draft public.csv --label readmitted --constant -o schema.toml`
    """
    from dpadmm.data.draft import DRAFT_WARNING, MAX_LEVELS
    from dpadmm.data.draft import draft as drafted_from

    warn(f"{DRAFT_WARNING}.")
    with refusals("schema draft", options.as_json):
        schema, hints = drafted_from(
            options.sample,
            options.label,
            party=options.party,
            constant=options.constant,
            max_levels=options.max_levels or MAX_LEVELS,
            delimiter=options.delimiter,
            fourier=options.fourier,
            polynomial=options.polynomial,
        )
        _write(schema, options.output, options.force)
    for hint in hints:
        warn(f"{hint}.")
    if options.as_json:
        content = {
            "schema": str(options.output),
            "schema_sha256": schema.sha256,
            "numeric": [column.name for column in schema.numeric],
            "categorical": [column.name for column in schema.categorical],
            "classes": list(schema.classes),
            **_encoding(schema),
            "delimiter": schema.delimiter,
            "decimal": schema.decimal,
            "ignored": list(schema.ignore),
            "hints": list(hints),
        }
        emit("schema draft", content)
        return
    typer.echo(
        f"Wrote {options.output}: {len(schema.numeric)} numeric and {len(schema.categorical)} "
        f"categorical columns, {len(schema.classes)} classes, {_encoding_words(schema)}. "
        "Read it through: widen bounds and complete levels by what is commonly known. Then: "
        f"dpadmm schema check {options.output} PARTY.csv, and dpadmm plan --rows 700,500 "
        f"--schema {options.output} --write run.toml with the parties' numbers of rows."
    )


def _encoding(schema: Schema) -> dict[str, Any]:
    """Describe the encoded rows; a schema without a map has no line for one."""
    counts = {"encoded_columns": len(schema.column_names), "features": len(schema.feature_names)}
    maps = {"fourier": schema.fourier, "polynomial": schema.polynomial}
    return counts | {name: told.model_dump() for name, told in maps.items() if told is not None}


def _encoding_words(schema: Schema) -> str:
    columns, told = f"{len(schema.column_names)} encoded columns", schema.fourier
    if schema.feature_map is None:
        return columns
    become = f"{columns} that become {schema.feature_map.outputs} features"
    if told is None:
        return f"{become}: the columns and products of two of them"
    return (
        f"{become}: the cosines and sines of {told.features} frequencies, scale {told.scale:g}, "
        f"seed {told.seed}"
    )


def _write(schema: Schema, output: Path, force: bool) -> None:
    if output.exists() and not force:
        raise DataError(
            f"output must be a new file; {output} is there: choose another or add --force"
        )
    from dpadmm.data.draft import DRAFT_WARNING

    check_writable(output, "output")
    comment = f"# Drafted from a sample; {DRAFT_WARNING}.\n"
    write_whole(output, (comment + schema.to_toml()).encode(), "output")


@schema_app.command()
def check(
    schema: Annotated[Path, typer.Argument(help="The schema.toml.")],
    file: Annotated[Path, typer.Argument(help="CSV or Parquet file to test.")],
    config: Annotated[
        Path | None,
        typer.Option(help="The run.toml or node.toml that says how this file is written."),
    ] = None,
    delimiter: DelimiterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Test a file against a schema. The answer is about your rows: for your eyes only.

    Example: `dpadmm schema check schema.toml north.csv`

    It fails (exit code 1) if a label is bad, if no cell of a column fits, or if cells differ from
    a number, a class or a level only in spelling, and says what to write. It quotes spellings that
    many rows have.
    """
    with refusals("schema check", as_json):
        from dpadmm.data.encode import survey
        from dpadmm.data.misfits import misfits
        from dpadmm.data.schema import load_schema
        from dpadmm.data.tables import encoded_batches

        description = load_schema(schema)
        for reading in () if config is None else _readings(config, file):
            description = description.read_as(reading)
        found = survey(encoded_batches(file, description, delimiter=delimiter), description)
        failures = misfits(file, description, found, delimiter=delimiter)
    if as_json:
        emit("schema check", _report(description, found) | {"failures": list(failures)})
    else:
        _show(description, file, found, fits=not failures)
    for failure in failures:
        warn(failure)
    if failures:
        raise typer.Exit(1)


def _readings(config: Path, file: Path) -> Iterator[Reading]:
    """How a run.toml or node.toml says that a file is written; its other keys are not read."""
    from dpadmm.data.values import Reading
    from dpadmm.run.config import load_toml, validated

    content = load_toml(config, "configuration")
    tables = [content.get("node"), content.get("data")]
    parties = content.get("party")
    for party in parties if isinstance(parties, list) else ():
        named = party.get("file") if isinstance(party, dict) else None
        if isinstance(named, str) and (config.parent / named).resolve() == file.resolve():
            tables.append(party)
    for table in tables:
        if isinstance(table, dict):
            told = {key: table[key] for key in table if key in Reading.model_fields}
            yield validated(Reading, told, config.parent, f"configuration {config}")


def _report(schema: Schema, found: Survey) -> dict[str, Any]:
    counts = found.counts
    columns = {name: asdict(found) for name, found in counts.columns.items()}
    return {
        "schema_sha256": schema.sha256,
        **_encoding(schema),
        "rows": counts.rows,
        "ragged_rows": counts.ragged_rows,
        "bad_labels": counts.bad_labels,
        "columns": columns,
        "unused_classes": list(found.unused_classes),
        "unused_levels": {name: list(levels) for name, levels in found.unused_levels.items()},
        "private": CHECK_WARNING,
    }


def _show(schema: Schema, file: Path, found: Survey, *, fits: bool) -> None:
    counts = found.counts
    typer.echo(
        f"{file} {'fits' if fits else 'does not fit'} the schema {schema.sha256[:12]}: "
        f"{counts.rows} rows, {counts.ragged_rows} of them ragged lines, {counts.bad_labels} bad "
        f"labels (taken as {schema.classes[0]!r}), {_encoding_words(schema)}."
    )
    show_table(
        "Cells that were encoded as",
        ("column", "missing", "other", "clipped"),
        [(name, c.missing, c.other, c.clipped) for name, c in counts.columns.items()],
    )
    unused = {schema.label.column: found.unused_classes} if found.unused_classes else {}
    for name, levels in (unused | found.unused_levels).items():
        say(f"{name}: no row has {', '.join(map(repr, levels))}.")
    typer.echo(CHECK_WARNING)
