"""``dpadmm predict``: from a model file and rows to predictions."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from dpadmm.cli.output import DelimiterOption, JsonOption, emit, errors, refusals, takes
from dpadmm.errors import ParameterError


@dataclass(frozen=True, kw_only=True)
class PredictOptions:
    """What ``dpadmm predict`` is asked."""

    model: Annotated[Path, typer.Argument(help="The model file.")]
    data: Annotated[Path, typer.Argument(help="CSV or Parquet file with the rows to predict.")]
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="CSV or Parquet file to make; CSV is printed without."),
    ] = None
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Refuse a model that has no probabilities.")
    ] = False
    identifier: Annotated[
        str | None,
        typer.Option("--id", metavar="COLUMN", help="A column of the file to copy as the first."),
    ] = None
    delimiter: DelimiterOption = None
    party: Annotated[
        str | None, typer.Option(help="Read the file as that of this party of the run.")
    ] = None
    as_json: JsonOption = False


@takes(PredictOptions)
def predict(options: PredictOptions) -> None:
    """Predict the rows of a file: a label and its score for each, in the order of the file.

    Example: `dpadmm predict my.model new.csv -o predictions.csv`

    It reads only the columns that the model uses, and the one that `--id` names. It writes
    probabilities if the model has them: trained with `probabilities = true`, or with the logistic
    loss. It uses the threshold that `dpadmm evaluate --write` chose.
    """
    # Imported here, so that help answers without loading scikit-learn.
    from dpadmm.run import predict as predictions
    from dpadmm.run.model import load_model

    output, as_json = options.output, options.as_json
    with refusals("predict", as_json):
        if as_json and output is None:
            raise ParameterError("--output must be given with --json; got none")
        _check_files(options.model, options.data, output)
        loaded = load_model(options.model)
        if options.probabilities and not predictions.offers_probabilities(loaded):
            raise _no_probabilities(options.model)
        if output is None and sys.stdout.isatty():
            _refuse_unprintable(loaded.classifier.classes, options.model, options.identifier)
        rows = predictions.predict_file(
            loaded,
            options.data,
            output or sys.stdout.buffer,
            delimiter=options.delimiter,
            party=options.party,
            keep=options.identifier,
        )
        if not as_json and predictions.has_labels(
            loaded, options.data, delimiter=options.delimiter
        ):
            _tell_how_to_evaluate(options.model, options.data)
        if output is None:
            return
    if as_json:
        columns = predictions.prediction_columns(loaded, options.identifier)
        emit("predict", {"output": str(output), "rows": rows, "columns": columns})
    else:
        typer.echo(f"Wrote {output}: {rows} rows.")


def _check_files(model: Path, data: Path, output: Path | None) -> None:
    """Refuse what cannot be read, or must not be written over."""
    if output is not None:
        _refuse_overwriting(output, model, data)
    if data.exists() and not data.is_file():
        raise ParameterError(
            f"data must be a file, which is read more than once; got {data}, a folder, a pipe "
            "or a device"
        )


def _refuse_unprintable(classes: Iterable[object], model: Path, identifier: str | None) -> None:
    if identifier is not None:
        raise ParameterError(
            f"--output must be given with --id {identifier!r} on a terminal, since cells may have "
            "control characters, which are not for one; got none"
        )
    if not all(str(name).isprintable() for name in classes):
        raise ParameterError(
            f"--output must be given: class names of {model} have control characters, which are "
            "not for a terminal; got none"
        )


def _no_probabilities(model: Path) -> ParameterError:
    return ParameterError(
        f"--probabilities must be left out for {model}, which has none. Train with probabilities = "
        "true under [run], or fit them with dpadmm evaluate RUN.toml --probabilities --write."
    )


def _tell_how_to_evaluate(model: Path, data: Path) -> None:
    """How often predictions are right tells of the rows: that has a price, or rows are public."""
    words = (
        f"{data} has labels. To evaluate: dpadmm evaluate {model} --public {data} if everybody may "
        "see its rows; dpadmm evaluate RUN.toml for private rows."
    )
    errors.print(Text(words))


def _refuse_overwriting(output: Path, *inputs: Path) -> None:
    for path in inputs:
        if output.exists() and path.exists() and output.samefile(path):
            raise ParameterError(
                f"--output must be another file than what is read; got {output}: choose another"
            )
