"""``dpadmm serve``: a service that holds a queue of agreed runs."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpadmm.cli.output import JsonOption, emit, errors, refusals, takes

if TYPE_CHECKING:
    from dpadmm.federation.queue import QueuedRun


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """What ``dpadmm serve`` is asked."""

    config: Annotated[Path, typer.Argument(help="The service's configuration.")] = Path(
        "service.toml"
    )
    drain: Annotated[
        bool,
        typer.Option("--drain", help="End once no run waits; exit code 3 if one did not end well."),
    ] = False
    as_json: JsonOption = False


@takes(ServeOptions)
def serve(options: ServeOptions) -> None:
    """Wait for agreed runs and start them, one after the other, within the owner's policy.

    For example:

    * `dpadmm serve service.toml`

    * `dpadmm run submit agreed.toml` (from another terminal of the same user)

    It stays in the foreground, as a service manager wants it, until SIGTERM or SIGINT (exit code
    143 or 130). Each run is a `dpadmm node` in a process and a folder of its own. It starts nothing
    that `[policy]` in service.toml or in node.toml forbids. Stopped or killed and started again, it
    goes on with its queue and with the run that was under way; nothing is spent twice.
    """
    with refusals("serve", options.as_json):
        from dpadmm.federation.queue import load_service_config, read_runs
        from dpadmm.federation.service import Service
        from dpadmm.federation.watcher import Stopped, Stopping

        config, stopped, ended = load_service_config(options.config), None, {}

        def on_change(run: QueuedRun) -> None:
            ended[run.name] = run.state.state
            _tell(run)

        try:
            with Stopping(lambda: None) as stopping, Service(config, on_change) as service:
                if service.metrics_address is not None:
                    errors.print(f"Metrics: http://{service.metrics_address}/metrics")
                service.run(drain=options.drain)
                stopping.over()
        except Stopped as signal:
            stopped = signal
        runs = read_runs(config)
    if options.as_json:
        emit("serve", {"folder": str(config.folder), "runs": [run.to_dict() for run in runs]})
    if stopped is not None:
        raise typer.Exit(stopped.exit_code)
    # Those of this service, and not of one before it.
    if not {*ended.values()} <= {"finished", "cancelled"}:
        raise typer.Exit(3)


def _tell(run: QueuedRun) -> None:
    """One line for every change, for the service's journal."""
    from dpadmm.plain import visible

    reason = f": {run.state.reason}" if run.state.reason else ""
    with contextlib.suppress(OSError):
        errors.print(visible(f"{run.name} is {run.shown}{reason}"), markup=False)
