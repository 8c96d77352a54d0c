"""``dpadmm predict``: from a model file and rows to predictions."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from dpadmm.cli.options import DelimiterOption
from dpadmm.cli.output import JsonOption, emit, refusals
from dpadmm.errors import ParameterError


def predict(
    model: Annotated[Path, typer.Argument(help="The model file.")],
    data: Annotated[Path, typer.Argument(help="CSV or Parquet file with the rows to predict.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="CSV or Parquet file to make; CSV is printed without."),
    ] = None,
    delimiter: DelimiterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Predict the rows of a file: a label and its score for each, in the order of the file."""
    # Imported here, so that help answers without loading scikit-learn.
    from dpadmm.run.model import load_model
    from dpadmm.run.predict import predict_file, prediction_columns

    with refusals("predict", as_json):
        if as_json and output is None:
            raise ParameterError("--output must be given with --json; got none")
        if output is not None:
            _refuse_overwriting(output, model, data)
        if data.exists() and not data.is_file():
            raise ParameterError(
                f"data must be a file, which is read more than once; got {data}, a folder, a pipe "
                "or a device"
            )
        loaded = load_model(model)
        printable = all(str(name).isprintable() for name in loaded.classifier.classes)
        if output is None and sys.stdout.isatty() and not printable:
            raise ParameterError(
                f"--output must be given: class names of {model} have control characters, which "
                "are not for a terminal; got none"
            )
        if output is None:
            predict_file(loaded, data, sys.stdout.buffer, delimiter=delimiter)
            return
        rows = predict_file(loaded, data, output, delimiter=delimiter)
    if as_json:
        columns = prediction_columns(loaded)
        emit("predict", {"output": str(output), "rows": rows, "columns": columns})
    else:
        typer.echo(f"Wrote {output}: {rows} rows.")


def _refuse_overwriting(output: Path, *inputs: Path) -> None:
    for path in inputs:
        if output.exists() and path.exists() and output.samefile(path):
            raise ParameterError(
                f"--output must be another file than what is read; got {output}: choose another"
            )
