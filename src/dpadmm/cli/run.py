"""``dpadmm run``: the queue of this machine's service."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpadmm.cli.output import (
    JsonOption,
    command_group,
    emit,
    refusals,
    say,
    show_table,
    takes,
    warn,
)

if TYPE_CHECKING:
    from dpadmm.federation.queue import QueuedRun, ServiceConfig

run_app = command_group(
    "run",
    "The queue of this machine's service (dpadmm serve): submit a run, list, show, cancel.\n\n"
    "Example: `dpadmm run submit agreed.toml`",
)

ConfigOption = Annotated[Path, typer.Option("--config", help="The service's configuration.")]
RunArgument = Annotated[str, typer.Argument(help="Its name or number in the queue, or its run_id.")]
_CONFIG = Path("service.toml")


def _load(path: Path) -> ServiceConfig:
    """The configuration of a service whose folder nobody else may enter."""
    from dpadmm.federation.queue import load_service_config

    config = load_service_config(path)
    config.prepare()
    return config


@dataclass(frozen=True, kw_only=True)
class SubmitOptions:
    """What ``dpadmm run submit`` is asked."""

    agreed: Annotated[Path, typer.Argument(help="The agreed run, an agreed.toml.")]
    config: ConfigOption = _CONFIG
    schema: Annotated[
        Path | None, typer.Option(help="Its schema, if it is not that of node.toml.")
    ] = None
    rehearse: Annotated[
        bool, typer.Option("--rehearse", help="Rehearse it: nothing is read and nothing is spent.")
    ] = False
    as_json: JsonOption = False


@run_app.command()
@takes(SubmitOptions)
def submit(options: SubmitOptions) -> None:
    """Check a run as its start would, and put it into the queue; or leave nothing behind.

    Example: `dpadmm run submit agreed.toml --rehearse`

    The files are copied: what is changed later does not count. The service need not run.
    """
    with refusals("run submit", options.as_json):
        from dpadmm.federation import queue

        config = _load(options.config)
        run = queue.submit(config, options.agreed, options.schema, rehearsal=options.rehearse)
        serving = queue.is_serving(config)
    if options.as_json:
        emit("run submit", run.to_dict() | {"serving": serving})
        return
    say(f"{run.name} is in the queue; what it leaves goes to {run.folder}.")
    if not serving:
        warn(f"no service has the queue now: dpadmm serve {options.config}")


@run_app.command(name="list")
def list_runs(config: ConfigOption = _CONFIG, as_json: JsonOption = False) -> None:
    """List the runs of the queue.

    Example: `dpadmm run list`
    """
    with refusals("run list", as_json):
        from dpadmm.federation.queue import is_serving, read_runs

        told = _load(config)
        runs, serving = read_runs(told), is_serving(told)
    if as_json:
        emit("run list", {"serving": serving, "runs": [run.to_dict() for run in runs]})
        return
    columns = ("run", "state", "tries", "submitted (UTC)", "why")
    show_table("Runs of the service", columns, [_line(run) for run in runs])
    if not serving:
        warn(f"no service has the queue now: dpadmm serve {config}")


def _line(run: QueuedRun) -> tuple[object, ...]:
    submitted = run.state.submitted.replace("T", " ").partition(".")[0]
    name = f"{run.name} (rehearsal)" if run.state.rehearsal else run.name
    return (name, run.shown, run.state.tries, submitted, run.state.reason.partition(". ")[0])


@run_app.command()
def show(run: RunArgument, config: ConfigOption = _CONFIG, as_json: JsonOption = False) -> None:
    """Show a run: its state, why, and what its node says now.

    Example: `dpadmm run show 1`
    """
    with refusals("run show", as_json):
        from dpadmm.federation.queue import find_run
        from dpadmm.federation.status import look_at

        found = find_run(_load(config), run)
        nodes, _ = look_at([found.folder])
    told: dict[str, Any] = found.to_dict() | {"nodes": [node.to_dict() for node in nodes]}
    if as_json:
        emit("run show", told)
        return
    for name in ("name", "run_id", "run_sha256", "state", "reason", "tries", "submitted"):
        say(str(told[name]), name)
    say(str(found.folder), "folder")
    for node in nodes:
        done, rounds = node.content["round"], node.content["rounds"]
        say(f"{node.life}, {done} of {rounds} rounds", f"node {node.content['node']}")


@run_app.command()
def cancel(run: RunArgument, config: ConfigOption = _CONFIG, as_json: JsonOption = False) -> None:
    """Cancel a run: one that waits is not started, one that works is stopped in order.

    Example: `dpadmm run cancel readmission-2`

    What was sent stays spent. The others wait for this node, or go on as their owners chose.
    """
    with refusals("run cancel", as_json):
        from dpadmm.federation import queue

        found = queue.find_run(_load(config), run)
        queue.cancel(found)
    if as_json:
        emit("run cancel", found.to_dict())
        return
    say(f"{found.name} is {found.shown}.")
