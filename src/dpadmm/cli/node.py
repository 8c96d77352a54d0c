"""``dpadmm node``: one organisation's node of a federation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpadmm.cli.output import JsonOption, console, emit, fail, refusals, show_table, warn

if TYPE_CHECKING:
    from dpadmm.runs import TrainedRun

__all__ = ["node"]


def node(
    config: Annotated[
        Path, typer.Option("--config", help="This node's configuration, a node.toml.")
    ],
    insecure_loopback: Annotated[
        bool,
        typer.Option(
            "--insecure-loopback",
            help="Go without TLS; every address must be on 127.0.0.1 or [::1].",
        ),
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Check everything that needs no row and no neighbour.")
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
        from dpadmm.federation.node import prepare_node, run_node
        from dpadmm.federation.node_config import load_node_config
        from dpadmm.federation.stopping import Stopped, Stopping
        from dpadmm.federation.transport_log import TransportLog
        from dpadmm.federation.watching import Watcher

        told = load_node_config(config)
        prepared = prepare_node(told, insecure_loopback=insecure_loopback)
        for sentence in prepared.warnings:
            warn(sentence)
        if check:
            facts = {
                "node": prepared.name,
                "nodes": list(prepared.agreed.nodes),
                "run_sha256": prepared.run.hex(),
                "rounds": prepared.planned.rounds,
                "algorithm": prepared.agreed.run.algorithm,
            }
            if as_json:
                emit("node", facts)
            else:
                typer.echo(f"{prepared.name} is ready for run {prepared.run.hex()[:12]}.")
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
            fail("node", str(stopped), as_json=as_json)
            raise typer.Exit(stopped.exit_code) from None
        if as_json:
            emit("node", _summary(run, prepared.name))
        elif run is not None:
            _show(run)


def _summary(run: TrainedRun | None, name: str) -> dict[str, object]:
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


def _show(run: TrainedRun) -> None:
    """Public facts and functions of messages only."""
    summary = run.summary()
    for words in summary["ledgers"].values():
        console.print("Ledger", style="bold", highlight=False)
        console.print(words, markup=False, highlight=False, soft_wrap=True)
    for heading, words in run.fitted.privacy.lines():
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
                spent if isinstance(spent, str) else f"{spent:.6g}",
                f"{party['delta']:g}",
            )
        ],
    )
    federation = summary["federation"]
    typer.echo(
        f"Run {run.sha256[:12]}, {federation['rounds_complete']} of {summary['rounds']} rounds, "
        f"{run.seconds:.1f} s."
    )
    typer.echo(f"Model: {run.config.result.model}")
