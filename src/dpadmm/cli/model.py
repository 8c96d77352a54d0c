"""``dpadmm model``: what a model file is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpadmm.cli.output import JsonOption, command_group, emit, refusals, say
from dpadmm.errors import ParameterError

model_app = command_group(
    "model",
    "Model files: fingerprints, cards, graphs for other systems.\n\n"
    "Example: `dpadmm model fingerprint north.model`",
)


@model_app.callback()
def _group() -> None:
    """Model files: fingerprints, cards, graphs for other systems."""


@model_app.command()
def fingerprint(
    file: Annotated[Path, typer.Argument(help="A model file.")], as_json: JsonOption = False
) -> None:
    """Print the sha256 of a model, which is equal at all parties that have one model.

    Example: `dpadmm model fingerprint north.model`

    It covers the classes, how rows are encoded and every bit of the weights. Files of one model
    differ: each has its owner's statement and names. Compare fingerprints by telephone.
    """
    with refusals("model fingerprint", as_json):
        from dpadmm.run.model import load_model

        found = load_model(file).fingerprint
    if as_json:
        emit("model fingerprint", {"model": str(file), "fingerprint": found})
        return
    say(found)


@model_app.command()
def card(
    file: Annotated[Path, typer.Argument(help="A model file, or the record of a study.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A Markdown file; printed without.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write the model card: what it is for, how good it is, and the privacy statement.

    Example: `dpadmm model card north.model -o north.md`

    It is Markdown, and everything in it comes from the file, which is public. The record of a
    study (`dpadmm describe`, `dpadmm infer`) gets a card of what was asked, found and spent.
    """
    with refusals("model card", as_json):
        from dpadmm.durable import write_whole

        if file.suffix == ".json":
            from dpadmm.report.studies import study_card
            from dpadmm.studies.study_files import read_study

            text = study_card(read_study(file))
        else:
            from dpadmm.run.export import model_card
            from dpadmm.run.model import load_model

            text = model_card(load_model(file), file.stem)
        if output is not None:
            write_whole(output, text.encode(), "card")
    if as_json:
        place = None if output is None else str(output)
        emit("model card", {"model": str(file), "output": place, "card": text})
    else:
        typer.echo(text if output is None else f"Wrote {output}.", nl=output is not None)


@model_app.command()
def export(
    file: Annotated[Path, typer.Argument(help="A model file.")],
    output: Annotated[Path, typer.Argument(help="The .onnx file to make.")],
    as_json: JsonOption = False,
) -> None:
    """Write the model with its preparation of rows as one ONNX graph.

    Example: `dpadmm model export north.model north.onnx`

    Every column is an input, and what `dpadmm predict` writes are the outputs. The file carries the
    privacy statement. It needs the extra `onnx`.
    """
    with refusals("model export", as_json):
        from dpadmm.durable import write_whole
        from dpadmm.run.export import onnx_bytes
        from dpadmm.run.model import load_model

        if output.suffix != ".onnx":
            raise ParameterError(f"output must end in .onnx; got {output.name!r}: rename it")
        write_whole(output, onnx_bytes(load_model(file)), "graph")
    if as_json:
        emit("model export", {"model": str(file), "output": str(output)})
    else:
        typer.echo(f"Wrote {output}.")
