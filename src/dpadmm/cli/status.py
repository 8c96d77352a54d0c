"""``dpadmm status``: what nodes are doing, by their status files."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.live import Live
from rich.table import Table

from dpadmm.cli.output import (
    JsonOption,
    console,
    emit,
    envelope,
    fitting_table,
    print_table,
    refusals,
    say,
    takes,
    warn,
)
from dpadmm.errors import ParameterError
from dpadmm.privacy.figures import AtLeast, AtMost

if TYPE_CHECKING:
    from dpadmm.federation.status import NodeStatus

_COLUMNS = ("node", "life", "round", "waiting for", "epsilon spent", "left", "last event", "age, s")
_MAY_GO_ON = ("alive", "dead", "silent")
_TROUBLE = ("dead", "silent", "failed")
_STYLES = {
    "dead": "red",
    "failed": "red",
    "silent": "yellow",
    "stopped": "yellow",
    "finished": "green",
}


@dataclass(frozen=True, kw_only=True)
class StatusOptions:
    """What ``dpadmm status`` is asked."""

    places: Annotated[
        list[Path] | None,
        typer.Argument(help="Status files, or folders of *.status.json. [default: this folder]"),
    ] = None
    watch: Annotated[
        bool, typer.Option("--watch", help="Show it again and again until all nodes have ended.")
    ] = False
    serve: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Serve a live page there, such as 127.0.0.1:8765, until Ctrl-C; files may come "
            "later.",
        ),
    ] = None
    anywhere: Annotated[
        bool,
        typer.Option(
            "--anywhere",
            help="Allow --serve on an address that other machines reach. Whoever reaches it sees "
            "names, addresses, rounds, budgets and events; without --token-file there is no "
            "password.",
        ),
    ] = False
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            help="With --serve: answer only who shows the token in this file, as a bearer or as "
            "the password that a browser asks for.",
        ),
    ] = None
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between updates.")] = 1.0
    as_json: JsonOption = False


@takes(StatusOptions)
def status(options: StatusOptions) -> None:
    """Show what nodes are doing: rounds, waiting, budget, and whether their processes live.

    For example:

    * `dpadmm status north.status.json`

    * `dpadmm status --serve 127.0.0.1:8765` (a live page; `/status.json` is what `--json` prints)

    A node that names a `status` file in its node.toml writes it every second. *alive*: it wrote
    lately; *silent*: it did not, so it is frozen or its disk is full; *dead*: its process is gone;
    *finished*, *stopped* (it was told to) and *failed* (a line below says why) are how it ended.
    The file depends on rows only through charged messages.

    A node that has not begun has no file yet. A line says so, and the others are shown.

    The exit code is 3 if a node is dead, silent or failed, or a file cannot be read.
    """
    from dpadmm.federation.status import look_at, read_statuses

    wanted = options.places or [Path()]
    with refusals("status", options.as_json):
        _check(options)
        if options.serve is not None:
            _serve(options.serve, wanted, options)
            return
        nodes, absent = look_at(wanted)
        if not nodes:
            # Refused, with the reason, unless one has begun since.
            nodes, absent = read_statuses(wanted), {}
        if options.as_json:
            emit("status", _result(nodes, absent))
        elif options.watch:
            with Live(status_table(nodes), console=console, auto_refresh=False) as live:
                while absent or any(node.life in _MAY_GO_ON for node in nodes):
                    time.sleep(options.every)
                    nodes, absent = look_at(wanted)
                    live.update(status_table(nodes), refresh=True)
        else:
            print_table(status_table(nodes))
        if not options.as_json:
            for node in nodes:
                if node.failure is not None:
                    say(f"{node.content['node']} failed: {node.failure}")
            for words in absent.values():
                warn(words)
    if any(node.life in _TROUBLE for node in nodes) or any(place.is_file() for place in absent):
        raise typer.Exit(3)


def _check(options: StatusOptions) -> None:
    if options.watch and options.as_json:
        raise ParameterError("--json prints once; got --watch too: leave one of them.")
    if options.serve is not None and (options.watch or options.as_json):
        other = "--watch" if options.watch else "--json"
        raise ParameterError(
            f"--serve shows a page; got {other} too: leave one of them (the page's JSON is at "
            "/status.json)."
        )
    for word in ("anywhere", "token_file"):
        if getattr(options, word) and options.serve is None:
            name = f"--{word.replace('_', '-')}"
            raise ParameterError(f"{name} must come with --serve; got it alone: leave it out.")


def _result(nodes: list[NodeStatus], absent: Mapping[Path, str]) -> dict[str, Any]:
    told = {str(place): words for place, words in absent.items()}
    return {"nodes": [node.to_dict() for node in nodes], "absent": told}


def _serve(address: str, places: list[Path], options: StatusOptions) -> None:
    """Serve the page until a signal comes."""
    from dpadmm.federation.page_server import Page, PageServer, read_token
    from dpadmm.federation.status import SHOWN, look_at, status_report
    from dpadmm.federation.watcher import Stopped, Stopping
    from dpadmm.report.html import content_policy, render

    def page() -> str:
        return render(status_report(*look_at(places)), every=options.every)

    def content() -> str:
        return envelope("status", _result(*look_at(places)))

    pages = {
        "/": Page("text/html", page, content_policy(live=True)),
        "/status.json": Page("application/json", content),
    }
    server = partial(
        PageServer,
        anywhere=options.anywhere,
        consent="--anywhere is given",
        token=read_token(options.token_file),
        on_error=lambda error: warn(f"the page cannot be made: {type(error).__name__}"),
    )
    with (
        contextlib.suppress(Stopped),
        Stopping(lambda: None),
        server("--serve", address, pages) as served,
    ):
        if options.anywhere:
            who = (
                "whoever reaches" if options.token_file is None else "who has the token and reaches"
            )
            protected = "no password" if options.token_file is None else "no encryption"
            warn(f"{who} {served.address} sees {SHOWN}; there is {protected}.")
        say(f"http://{served.address}/ shows what nodes are doing; Ctrl-C ends it.")
        threading.Event().wait()


def status_table(nodes: list[NodeStatus]) -> Table | Group:
    """One line per node."""
    from dpadmm.federation.status import plain_text

    rows = []
    for node in nodes:
        content = node.content
        cells = (
            content["node"],
            node.life,
            _progress(content),
            _waiting(content),
            _bound(content["epsilon_spent"], AtMost),
            _bound(content["epsilon_left"], AtLeast),
            _last(content["last_event"]),
            f"{node.age:.0f}",
        )
        rows.append([plain_text(cell) for cell in cells])
    return fitting_table(_COLUMNS, rows, _STYLES)


def _progress(content: dict[str, Any]) -> str:
    """How many rounds are complete; its state where there are none, or results are written."""
    from dpadmm.federation.status import WRITING

    done = f"{content['round']}/{content['rounds']}" if content["rounds"] else ""
    return done if done and content["state"] != WRITING else f"{done} {content['state']}".strip()


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
