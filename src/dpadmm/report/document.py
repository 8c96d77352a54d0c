"""What a report says, without how it looks: frozen data that :mod:`~dpadmm.report.html` writes.

A report has answers on top and sections below; a section is a sequence of blocks. Anything that
can say what it found in words, tables and plots can have a report (:mod:`~dpadmm.report.run`,
:mod:`~dpadmm.report.runs`).
"""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, get_type_hints

from pydantic import TypeAdapter, ValidationError

from dpadmm.durable import FileRefusal, read_json
from dpadmm.errors import ParameterError
from dpadmm.privacy.figures import AtLeast, AtMost, Given
from dpadmm.report.plots import (
    Bar,
    BarPlot,
    GraphPlot,
    GuessPlot,
    LinePlot,
    Plot,
    Series,
    WaitPlot,
)
from dpadmm.report.tables import Table

Tone: TypeAlias = Literal["danger", "caution", "info"]


@dataclass(frozen=True)
class Words:
    """A paragraph."""

    text: str


@dataclass(frozen=True)
class Facts:
    """Pairs of a heading and its words."""

    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Code:
    """Text as it is typed, such as a command or a configuration."""

    title: str
    text: str


@dataclass(frozen=True)
class Banner:
    """What nobody may overlook, above everything else."""

    tone: Tone
    heading: str
    text: str


@dataclass(frozen=True)
class Tile:
    """A figure that is seen at once, and what it is."""

    figure: str
    label: str


Block: TypeAlias = Words | Facts | Table | Code | Banner | Plot


@dataclass(frozen=True)
class Section:
    """A heading and what stands under it; two ``narrow`` ones stand side by side on a wide page."""

    title: str
    blocks: tuple[Block, ...]
    narrow: bool = False


@dataclass(frozen=True)
class Report:
    """One page.

    Attributes
    ----------
    title, subtitle
        Its heading, and one line on where it comes from.
    banners
        What nobody may overlook.
    tiles
        Its main figures.
    answers
        Pairs of a question and its answer: what is read without scrolling.
    picture
        A plot beside the answers, if any.
    sections
        The rest.
    """

    title: str
    subtitle: str
    banners: tuple[Banner, ...] = ()
    tiles: tuple[Tile, ...] = ()
    answers: tuple[tuple[str, str], ...] = ()
    picture: Plot | None = None
    sections: tuple[Section, ...] = ()


_VERSION: Final = 1
_NUMBERS: Final = {kind.__name__: kind for kind in (float, AtMost, AtLeast, Given)}
_PARTS: Final = {
    part.__name__: part
    for part in (
        *(Words, Facts, Table, Code, Banner, Tile, Section, Report),
        *(Series, LinePlot, Bar, BarPlot, GraphPlot, GuessPlot, WaitPlot),
    )
}


def report_json(report: Report) -> str:
    """A report as JSON, from which :func:`read_report` makes the same page again."""
    return json.dumps({"version": _VERSION, "report": _plain(report)}, indent=1, allow_nan=False)


def read_report(path: Path) -> Report:
    """Read what :func:`report_json` made.

    Raises
    ------
    ParameterError
        If it is something else.
    """
    try:
        content = read_json(path)
        if content["version"] != _VERSION:
            raise ValueError
        report = _part(content["report"])
    except FileRefusal as error:
        raise ParameterError(f"report must be readable JSON; got {path}: {error}.") from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, ValidationError):
        report = None
    if not isinstance(report, Report):
        raise ParameterError(f"{path} must be a report that dpadmm saved; it is not, or damaged.")
    return report


def _plain(value: Any) -> Any:
    """Plain data; what JSON has no word for is a table with the name of its kind."""
    if dataclasses.is_dataclass(value):
        names = [item.name for item in dataclasses.fields(value)]
        return {"kind": type(value).__name__} | {n: _plain(getattr(value, n)) for n in names}
    if isinstance(value, (tuple, list, frozenset)):
        return [_plain(item) for item in (sorted(value) if isinstance(value, frozenset) else value)]
    if isinstance(value, float) and (type(value) is not float or not math.isfinite(value)):
        return {"kind": type(value).__name__, "value": repr(float(value))}
    return value


def _part(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_part(item) for item in value)
    if not isinstance(value, dict):
        return value
    inner = {name: _part(item) for name, item in value.items() if name != "kind"}
    if value["kind"] in _NUMBERS:
        return _NUMBERS[value["kind"]](inner["value"])
    part = _PARTS[value["kind"]]
    for name, wanted in _fields(part).items():
        if isinstance(inner.get(name), tuple) and isinstance(getattr(part, name, None), frozenset):
            inner[name] = frozenset(inner[name])
        if name in inner:
            # Looked at, not taken over: a bound must stay one.
            wanted.validate_python(inner[name], strict=True)
    return part(**inner)


@cache
def _fields(part: type) -> dict[str, TypeAdapter[Any]]:
    """What each field of a part may hold."""
    return {name: TypeAdapter(hint) for name, hint in get_type_hints(part).items()}
