"""``dpadmm model``: what a model file is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpadmm.cli.output import JsonOption, command_group, emit, refusals, say

model_app = command_group(
    "model",
    "Look at model files.\n\nExample: `dpadmm model fingerprint north.model`",
)


@model_app.callback()
def _group() -> None:
    """Look at model files."""


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
