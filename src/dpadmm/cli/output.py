"""How commands speak: one table style, one JSON envelope, one sentence for a refusal."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from dpadmm.errors import ConvergenceError, ExchangeError, LedgerError
from dpadmm.plain import json_data, visible

#: Version of the envelope below; a field never changes its meaning within a version.
JSON_VERSION: Final = 1

# More than any sentence or cell of ours has.
_LONGEST: Final = 1 << 16

# Packages that come with an extra, for commands that cannot do without them.
_EXTRAS: Final = {
    "cryptography": "federation",
    "prometheus_client": "federation",
    "zenoh": "federation",
}

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]

console = Console()
errors = Console(stderr=True, soft_wrap=True, highlight=False)


def envelope(command: str, result: dict[str, Any]) -> str:
    """``{"version", "command", "result"}`` as JSON; numbers that are not finite become words."""
    content = {"version": JSON_VERSION, "command": command, "result": json_data(result)}
    return json.dumps(content, indent=2, allow_nan=False)


def emit(command: str, result: dict[str, Any]) -> None:
    """Print the envelope of a result."""
    typer.echo(envelope(command, result))


def print_refusal(command: str, message: str, *, as_json: bool = False) -> None:
    """Print a refusal: one sentence on standard error, and the envelope with ``error``."""
    if as_json:
        content = {"version": JSON_VERSION, "command": command, "error": message}
        typer.echo(json.dumps(content, indent=2))
    errors.print(Text(_shown(f"dpadmm: {message}")))


def _shown(text: str) -> str:
    """Words for a terminal: those of others among them do nothing but stand there."""
    return visible(text, longest=_LONGEST, keep="\n\t")


def warn(message: str) -> None:
    """Print a warning, one sentence on standard error."""
    errors.print(Text(_shown(f"Warning: {message}")))


def say(words: str) -> None:
    """Print plain words, some of which may be others'."""
    console.print(Text(_shown(words)), soft_wrap=True)


@contextmanager
def refusals(command: str, as_json: bool) -> Iterator[None]:
    """Turn a refusal inside into one sentence and exit code 2."""
    try:
        yield
    except (ValueError, OSError, ConvergenceError, ExchangeError, LedgerError) as error:
        print_refusal(command, str(error), as_json=as_json)
        raise typer.Exit(2) from None
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get(error.name or "")
        if extra is None:
            raise
        told = f"this needs the extra {extra!r}: pip install 'dpadmm[{extra}]'."
        print_refusal(command, told, as_json=as_json)
        raise typer.Exit(2) from None


_FIGURE: Final = frozenset("0123456789.+-e%")


def show_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table; what looks like a number stands on the right."""
    console.print(f"[bold]{escape(title)}[/bold]", highlight=False)
    table = Table()
    body = [[str(cell) for cell in row] for row in rows]
    for place, column in enumerate(columns):
        numbers = all(row[place][:1] in "0123456789-+." for row in body if row[place])
        # Words give way to numbers: one that is cut off would be another.
        figures = all(set(row[place]) <= _FIGURE for row in body)
        widest = max((len(row[place]) for row in body), default=0)
        table.add_column(
            column,
            justify="right" if numbers and body else "left",
            no_wrap=figures and len(column) <= widest,
            overflow="fold",
        )
    for row in body:
        table.add_row(*(Text(_shown(cell)) for cell in row))
    console.print(table)


def show_meaning(meaning: Mapping[str, Any]) -> None:
    """Print what epsilons mean: a manifest's words and small tables."""
    from dpadmm.experiments.meaning import HEADING

    console.print(f"[bold]{HEADING}[/bold]", highlight=False)
    for heading, words in meaning["facts"]:
        console.print(Text(f"{heading}: {words}."))
    for title, table in meaning["tables"].items():
        show_table(title, table["columns"], table["rows"])
