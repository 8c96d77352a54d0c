"""``dpadmm node``: one organisation's node of a federation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpadmm.cli.output import (
    JsonOption,
    console,
    emit,
    print_refusal,
    refusals,
    say,
    show_table,
    warn,
)
from dpadmm.errors import ParameterError
from dpadmm.privacy.figures import AtMost

if TYPE_CHECKING:
    from dpadmm.federation.node import NodeSetup
    from dpadmm.run.result import Run

__all__ = ["node_command"]


def node_command(
    config: Annotated[
        Path, typer.Option("--config", help="This node's configuration, a node.toml.")
    ],
    insecure_loopback: Annotated[
        bool,
        typer.Option(
            "--insecure-loopback",
            help="Go without TLS and signatures; every address must be on 127.0.0.1 or [::1].",
        ),
    ] = False,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Check files, ledger, log and port; no row is read and nothing is spent. The exit "
            "code is 1 if something is wrong.",
        ),
    ] = False,
    reach: Annotated[
        bool, typer.Option("--reach", help="With --check: dial every neighbour, too.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Train together with other organisations, each at a node of its own.

    Reads the owner's node.toml and the agreed run it names. Refuses what the owner's policy or
    ledger does not allow, waits until all nodes agree, trains, and writes the model, the record
    and the privacy statement. Killed at any point and started again, it goes on where it was;
    nothing is spent twice. SIGTERM and SIGINT end it in order, with the exit code 143 or 130.
    """
    with refusals("node", as_json):
        from dpadmm.federation.log import TransportLog
        from dpadmm.federation.node import prepare_node, run_node
        from dpadmm.federation.node_config import load_node_config
        from dpadmm.federation.signals import Stopped, Stopping
        from dpadmm.federation.watcher import Watcher

        if reach and not check:
            raise ParameterError("--reach must come with --check; got it alone: add --check.")
        told = load_node_config(config)
        prepared = prepare_node(told, insecure_loopback=insecure_loopback)
        for sentence in prepared.warnings:
            warn(sentence)
        if check:
            if not _check(prepared, reach=reach, as_json=as_json):
                raise typer.Exit(1)
            return
        watch = told.watch
        watcher = Watcher(
            prepared.name,
            log=watch.log,
            status=watch.status,
            metrics=watch.metrics,
            metrics_anywhere=watch.metrics_anywhere,
        )
        try:
            with Stopping(watcher.give_up) as stopping, watcher:
                try:
                    with TransportLog(watcher):
                        run = run_node(prepared, watcher)
                except Stopped as stopped:
                    watcher.event("stopped", level="warning", reason=stopped.name.lower())
                    raise
                except Exception as error:
                    watcher.event("failed", level="error", error=error)
                    raise
                finally:
                    stopping.over()
        except Stopped as stopped:
            print_refusal("node", str(stopped), as_json=as_json)
            raise typer.Exit(stopped.exit_code) from None
        if as_json:
            emit("node", _summary(run, prepared.name))
        elif run is not None:
            _show(run)


def _check(prepared: NodeSetup, *, reach: bool, as_json: bool) -> bool:
    """Look at what a start needs and show it; whether all is well."""
    from dpadmm.federation.check import check_node

    checks = []
    for found in check_node(prepared, reach=reach):
        checks.append(found)
        if not as_json:
            say(f"{'ok' if found.ok else 'NOT OK':6} {found.check}: {found.words}")
    wrong = [found.check for found in checks if not found.ok]
    if as_json:
        facts: dict[str, object] = {
            "node": prepared.name,
            "nodes": list(prepared.agreed.nodes),
            "run_sha256": prepared.run.hex(),
            "rounds": prepared.planned.rounds,
            "algorithm": prepared.agreed.run.algorithm,
            "ready": not wrong,
            "checks": [found.to_dict() for found in checks],
        }
        emit("node", facts)
    elif wrong:
        say(f"{prepared.name} is not ready: {', '.join(wrong)}.")
    else:
        say(f"{prepared.name} is ready for run {prepared.run.hex()[:12]}.")
    return not wrong


def _summary(run: Run | None, name: str) -> dict[str, object]:
    if run is None:
        return {"node": name, "role": "server"}
    result = run.config.result
    return {
        "node": name,
        "role": "party",
        "model": str(result.model),
        "record": None if result.record is None else str(result.record),
        "report": None if result.report_file is None else str(result.report_file),
        **run.summary(),
    }


def _show(run: Run) -> None:
    """Public facts and functions of messages only."""
    summary = run.summary()
    for words in summary["ledgers"].values():
        console.print("Ledger", style="bold", highlight=False)
        console.print(words, markup=False, highlight=False, soft_wrap=True)
    for heading, words in run.privacy.lines():
        console.print(f"{heading}: {words}", markup=False, highlight=False, soft_wrap=True)
    party = summary["parties"][0]
    spent = party["epsilon"]
    show_table(
        "Spent here",
        ("party", "rows", "epsilon", "delta"),
        [
            (
                party["name"],
                party["rows"],
                spent if isinstance(spent, str) else AtMost(spent),
                AtMost(party["delta"]),
            )
        ],
    )
    federation = summary["federation"]
    taken = "" if run.seconds is None else f", {run.seconds:.1f} s"
    typer.echo(
        f"Run {run.sha256[:12]}, {federation['rounds_complete']} of {summary['rounds']} rounds"
        f"{taken}."
    )
    typer.echo(f"Model: {run.config.result.model}")
