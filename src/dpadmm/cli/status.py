"""``dpadmm status``: what nodes are doing, by their status files."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.live import Live
from rich.table import Table
from rich.text import Text

from dpadmm.cli.output import JsonOption, console, emit, refusals
from dpadmm.errors import ParameterError
from dpadmm.privacy.figures import AtLeast, AtMost

if TYPE_CHECKING:
    from dpadmm.federation.status import NodeStatus

_COLUMNS = ("node", "life", "round", "waiting for", "epsilon spent", "left", "last event", "age")
_TROUBLE = ("dead", "silent")
_STYLES = {"dead": "red", "silent": "yellow", "stopped": "yellow", "finished": "green"}


def status(
    places: Annotated[
        list[Path] | None,
        typer.Argument(help="Status files, or folders of *.status.json. [default: this folder]"),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Show it anew until all ended.")] = False,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 1.0,
    as_json: JsonOption = False,
) -> None:
    """Show what nodes are doing: rounds, waiting, budget, and whether their processes live.

    A node that names a `status` file in its node.toml writes it every second. *alive*: it did so
    lately; *silent*: it did not, so it is frozen or its disk is full; *dead*: its process is gone;
    *finished* and *stopped* are how it ended. Nothing in it depends on rows
    but through charged messages.

    The exit code is 3 if a node is dead or silent.
    """
    from dpadmm.federation.status import read_statuses

    wanted = places or [Path()]
    with refusals("status", as_json):
        if watch and as_json:
            raise ParameterError("--json prints once; got --watch too: leave one of them.")
        nodes = read_statuses(wanted)
        if as_json:
            emit("status", {"nodes": [node.to_dict() for node in nodes]})
        elif watch:
            with Live(status_table(nodes), console=console, auto_refresh=False) as live:
                while any(node.life in ("alive", *_TROUBLE) for node in nodes):
                    time.sleep(every)
                    nodes = read_statuses(wanted)
                    live.update(status_table(nodes), refresh=True)
        else:
            console.print(status_table(nodes))
    if any(node.life in _TROUBLE for node in nodes):
        raise typer.Exit(3)


def status_table(nodes: list[NodeStatus]) -> Table:
    """One line per node."""
    from dpadmm.federation.facts import plain_text

    table = Table()
    for column in _COLUMNS:
        right = column in ("round", "epsilon spent", "left", "age")
        table.add_column(column, justify="right" if right else "left", overflow="fold")
    for node in nodes:
        content = node.content
        cells = (
            content["node"],
            node.life,
            f"{content['round']}/{content['rounds']}" if content["rounds"] else content["state"],
            _waiting(content),
            _bound(content["epsilon_spent"], AtMost),
            _bound(content["epsilon_left"], AtLeast),
            _last(content["last_event"]),
            f"{node.age:.0f} s",
        )
        table.add_row(*(Text(plain_text(cell), style=_STYLES.get(cell, "")) for cell in cells))
    return table


def _waiting(content: dict[str, Any]) -> str:
    """Whom it waits for and how long, and who cannot be reached and why."""
    missing = content.get("unreachable", {})
    waiting = sorted(content["waiting"].items(), key=lambda item: -item[1])
    words = [f"{name} {seconds:.0f} s" for name, seconds in waiting if name not in missing]
    return ", ".join(words + [f"{name} ({found['reason']})" for name, found in missing.items()])


def _bound(value: float | str | None, kind: type[AtMost | AtLeast]) -> str:
    return "" if value is None else value if isinstance(value, str) else f"{kind(value):4}"


def _last(event: dict[str, Any] | None) -> str:
    if event is None:
        return ""
    whom = event["facts"].get("neighbour")
    return f"{event['event']} ({whom})" if whom else str(event["event"])
