"""``dpadmm node``: one organisation's node of a federation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer

from dpadmm.cli.output import (
    JsonOption,
    VerboseOption,
    emit,
    owner_at_terminal,
    print_refusal,
    refusals,
    result_places,
    say,
    show_run,
    show_statement,
    takes,
    warn,
)
from dpadmm.errors import ParameterError

if TYPE_CHECKING:
    from dpadmm.federation.node import Check
    from dpadmm.federation.node_study import NodeStudy
    from dpadmm.federation.runtime import NodeSetup
    from dpadmm.federation.watcher import Watcher
    from dpadmm.run.result import Run

Result = TypeVar("Result")

#: The exit code of a node that the others went on without.
LEFT_OUT: Final = 5


@dataclass(frozen=True, kw_only=True)
class NodeOptions:
    """What ``dpadmm node`` is asked."""

    config: Annotated[
        Path, typer.Option("--config", help="This node's configuration, a node.toml.")
    ]
    insecure_loopback: Annotated[
        bool,
        typer.Option(
            "--insecure-loopback",
            help="Go without TLS and signatures; every address must be on 127.0.0.1 or [::1].",
        ),
    ] = False
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Check files, ledger, log and port; no row is read and nothing is spent. The exit "
            "code is 1 if something is wrong.",
        ),
    ] = False
    reach: Annotated[
        bool, typer.Option("--reach", help="With --check: dial every neighbour, too.")
    ] = False
    rows: Annotated[
        bool,
        typer.Option("--rows", help="With --check: look at this node's rows, too, for you alone."),
    ] = False
    rehearse: Annotated[
        bool,
        typer.Option(
            "--rehearse",
            help="Check as --check does, agree with all, exchange keys and one round of zeros, and "
            "end: no row is read and nothing is spent. All nodes must rehearse.",
        ),
    ] = False
    into: Annotated[
        Path | None,
        typer.Option(
            "--into",
            help="Take part in the agreed.toml of this folder, and put results, log and status "
            "there; dpadmm serve starts nodes so.",
        ),
    ] = None
    verbose: VerboseOption = False
    as_json: JsonOption = False


@takes(NodeOptions)
def node_command(options: NodeOptions) -> None:
    """Train together with other organisations, each at a node of its own.

    For example:

    * `dpadmm node --config node.toml --check` (look before a start: nothing is spent)

    * `dpadmm node --config node.toml --rehearse` (try it with all others: nothing is read or spent)

    * `dpadmm node --config node.toml`

    It reads the owner's node.toml and the agreed run that it names. It refuses what the owner's
    policy or ledger does not allow, waits until all nodes agree, trains, and writes the model, the
    record and the privacy statement. If it is killed, start it again: it continues where it was,
    and spends nothing twice. SIGTERM and SIGINT end it in order, with exit code 143 or 130. If
    the others continue without it, it ends with what it has and exit code 5.

    Before it connects it looks at its rows. Only you see what looks wrong. Your own rule
    (`preflight` under `[policy]`) may end the node there, with exit code 4.
    """
    with refusals("node", options.as_json):
        from dpadmm.federation.config import load_node_config
        from dpadmm.federation.node import look_before_start, run_node
        from dpadmm.federation.queue import placed
        from dpadmm.federation.recovery import LeftOut
        from dpadmm.federation.runtime import prepare_node

        _check_options(options)
        told = load_node_config(options.config)
        if options.into is not None:
            told = placed(told, options.into)
        setup = prepare_node(told, insecure_loopback=options.insecure_loopback)
        for sentence in setup.warnings:
            warn(sentence)
        if options.check or options.rehearse:
            if not _check(setup, options):
                raise typer.Exit(1)
            return
        look_before_start(setup, owner_at_terminal())
        try:
            run = _take_part(setup, run_node, as_json=options.as_json)
        except LeftOut as left_out:
            if left_out.run is not None:
                _tell(setup, left_out.run, options)
            # Standard output has one envelope: that of what it trained, if there is any.
            as_json = options.as_json and left_out.run is None
            print_refusal("node", str(left_out), as_json=as_json)
            raise typer.Exit(LEFT_OUT) from None
        _tell(setup, run, options)


def _tell(setup: NodeSetup, run: Run | NodeStudy | None, options: NodeOptions) -> None:
    """Show what a node has trained, or what a study found."""
    from dpadmm.federation.node_study import NodeStudy

    result = setup.config.result
    if isinstance(run, NodeStudy):
        _tell_study(run, options)
    elif options.as_json:
        emit("node", _summary(run, setup.name))
    elif run is not None:
        _show(run, verbose=options.verbose)
    if not options.as_json and run is not None and result is not None and result.statement:
        typer.echo(f"Statement: {result.statement}")


def _tell_study(run: NodeStudy, options: NodeOptions) -> None:
    from dpadmm.cli.studies import show_answer

    result = run.setup.study_config().result
    places = {
        "record": str(result.record),
        "report": result.report_file and str(result.report_file),
    }
    if options.as_json:
        found = {key: value for key, value in run.record().items() if key != "ledger_checks"}
        emit("node", {"node": run.setup.name, "role": "party", **places, **found})
        return
    show_answer(run.answer)
    show_statement(run.privacy, verbose=options.verbose)
    for kind, place in places.items():
        if place is not None:
            typer.echo(f"{kind.capitalize()}: {place}")
    if run.schema_file is not None:
        say(
            f"agree on a training with the schema {run.schema_file}, the same at all nodes; the "
            "ledgers stay the same",
            "Next step",
        )


def _check_options(options: NodeOptions) -> None:
    for word in ("reach", "rows"):
        if getattr(options, word) and not options.check:
            raise ParameterError(f"--{word} must come with --check; got it alone: add --check.")
    if options.check and options.rehearse:
        raise ParameterError("--rehearse checks, too; got it with --check: leave one of them.")


def _take_part(
    setup: NodeSetup, work: Callable[[NodeSetup, Watcher], Result], *, as_json: bool
) -> Result:
    """Train or rehearse, watched; a signal ends the process in order."""
    from dpadmm.federation.page_server import read_token
    from dpadmm.federation.reach import TransportLog
    from dpadmm.federation.recovery import LeftOut
    from dpadmm.federation.watcher import Stopped, Stopping, Watcher

    watch = setup.config.watch
    watcher = Watcher(
        setup.name,
        log=watch.log,
        status=watch.status,
        metrics=watch.metrics,
        metrics_anywhere=watch.metrics_anywhere,
        metrics_token=read_token(watch.token_file),
    )
    try:
        with Stopping(watcher.give_up) as stopping, watcher:
            try:
                with TransportLog(watcher):
                    return work(setup, watcher)
            except Stopped as stopped:
                watcher.event("stopped", level="warning", reason=stopped.name.lower())
                raise
            except LeftOut as left_out:
                watcher.event("left-out", level="error", error=left_out)
                raise
            except Exception as error:
                watcher.event("failed", level="error", error=error)
                raise
            finally:
                stopping.over()
    except Stopped as stopped:
        print_refusal("node", str(stopped), as_json=as_json)
        raise typer.Exit(stopped.exit_code) from None


def _check(setup: NodeSetup, options: NodeOptions) -> bool:
    """Look at what a start needs, rehearse it if asked, and show it; whether all is well."""
    from dpadmm.federation.node import check_node, check_own_rows

    checks: list[Check] = []

    def tell(found: Check) -> None:
        checks.append(found)
        if not options.as_json:
            say(f"{'ok' if found.ok else 'NOT OK':6} {found.check}: {found.words}")

    for found in check_node(setup, reach=options.reach):
        tell(found)
    if options.rows:
        for found in check_own_rows(setup, owner_at_terminal()):
            tell(found)
    wrong = [found.check for found in checks if not found.ok]
    if options.rehearse and not wrong:
        tell(_rehearse(setup, as_json=options.as_json))
    _tell_checks(setup, checks, wrong, options)
    return not wrong


def _rehearse(setup: NodeSetup, *, as_json: bool) -> Check:
    from dpadmm.federation.node import rehearse_node

    return _take_part(setup, rehearse_node, as_json=as_json)


def _tell_checks(
    setup: NodeSetup, checks: list[Check], wrong: list[str], options: NodeOptions
) -> None:
    rehearsed = " and has rehearsed it: no row was read, and nothing was spent"
    if options.as_json:
        facts: dict[str, object] = {
            "node": setup.name,
            "nodes": list(setup.agreed.nodes),
            "run_sha256": setup.run.hex(),
            "rounds": setup.planned.rounds,
            "algorithm": setup.agreed.run.algorithm,
            "ready": not wrong,
            "checks": [found.to_dict() for found in checks],
        }
        if options.rehearse:
            facts["rehearsed"] = not wrong
        emit("node", facts)
    elif wrong:
        say(f"{setup.name} is not ready: {', '.join(wrong)}.")
    else:
        more = rehearsed if options.rehearse else ""
        say(f"{setup.name} is ready for run {setup.run.hex()[:12]}{more}.")


def _summary(run: Run | None, name: str) -> dict[str, object]:
    if run is None:
        return {"node": name, "role": "server"}
    places = result_places(run.config.result)
    return {"node": name, "role": "party", **places, **run.summary()}


def _show(run: Run, *, verbose: bool) -> None:
    summary = run.summary()
    rounds = f"{summary['federation']['rounds_complete']} of {summary['rounds']}"
    show_run(run, "Spent here", rounds=rounds, own=True, verbose=verbose)
