"""The folder of a comparison or an experiment: ``manifest.json`` and the data it names.

A manifest is an object with

* ``kind``: ``"comparison"`` or ``"experiment"``;
* ``title``, and optionally ``dpadmm`` (version), ``words`` (paragraphs), ``command`` (what makes it
  again), ``config`` (a table of tables), ``simulated`` (true unless said otherwise);
* for a comparison ``data``: a CSV file (relative to the folder) whose columns are those of
  :data:`COLUMNS` and any others, which the page shows as they are;
* for an experiment ``figures``: objects with ``title``, ``data`` (a CSV file) and ``kind``:

  * ``"lines"``: ``x`` and ``y`` name columns; ``series``, ``low`` and ``high`` may name others;
    ``log_x`` and ``log_y``;
  * ``"bars"``: ``x`` names the column of names and ``y`` that of values; ``low`` and ``high``;
  * ``"table"``: every column.

  Each may have a ``caption``.
* optionally ``banners``: objects with ``tone`` (danger, caution, info), ``heading`` and ``text``.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dpadmm.errors import ParameterError
from dpadmm.report.document import Cell

__all__ = ["COLUMNS", "MANIFEST", "Figure", "Manifest", "read_manifest", "read_table"]

#: The name of the file in a folder.
MANIFEST: Final = "manifest.json"
#: The columns that a comparison must have; an epsilon is a number, or empty or "infinite" where
#: there is no noise.
COLUMNS: Final = (
    "algorithm",
    "calibration",
    "epsilon",
    "topology",
    "metric",
    "mean",
    "low",
    "high",
)


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Figure(_Part):
    """One plot or table of an experiment."""

    title: str
    data: str
    kind: Literal["lines", "bars", "table"] = "lines"
    caption: str = ""
    x: str = ""
    y: str = ""
    series: str = ""
    low: str = ""
    high: str = ""
    log_x: bool = False
    log_y: bool = False


class ManifestBanner(_Part):
    """What nobody may overlook."""

    tone: Literal["danger", "caution", "info"]
    heading: str
    text: str


class Manifest(_Part):
    """What a folder says of itself."""

    kind: Literal["comparison", "experiment"]
    title: str
    dpadmm: str = ""
    words: tuple[str, ...] = ()
    command: str = ""
    simulated: bool = True
    config: dict[str, Any] = Field(default_factory=dict)
    data: str = ""
    figures: tuple[Figure, ...] = ()
    banners: tuple[ManifestBanner, ...] = ()


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a folder."""
    path = folder / MANIFEST
    try:
        return Manifest.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ParameterError(f"manifest must be readable JSON; got {path}: {reason}.") from None
    except ValidationError as error:
        finding = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in finding["loc"]) or "the whole"
        raise ParameterError(
            f"{path} must be a manifest of dpadmm; at {place}: {finding['msg']}."
        ) from None


def read_table(folder: Path, name: str, needed: tuple[str, ...] = ()) -> list[dict[str, Cell]]:
    """Read a CSV file of the folder; what looks like a number is one."""
    path = (folder / name).resolve()
    if not name or not path.is_relative_to(folder.resolve()):
        raise ParameterError(f"data must name a file in the folder {folder}; got {name!r}.")
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file, strict=True)
            heads = list(reader.fieldnames or ())
            rows = [{head: _cell(row.get(head)) for head in heads} for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ParameterError(f"data must be a readable CSV file; got {path}: {reason}.") from None
    if missing := [column for column in needed if column and column not in heads]:
        raise ParameterError(
            f"{path} must have the columns {', '.join(needed)}; {', '.join(missing)} missing."
        )
    if not rows:
        raise ParameterError(f"{path} must have at least one row; got none.")
    return rows


def _cell(text: str | None) -> Cell:
    if not text:
        return None
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
