"""The options of a command as one value: a frozen dataclass whose fields are its parameters."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Mapping
from functools import wraps
from importlib import import_module
from typing import Annotated, Any, ClassVar, TypeVar, get_type_hints

import typer
from typer.core import TyperGroup

from dpadmm.cli.output import print_refusal
from dpadmm.errors import ParameterError

Options = TypeVar("Options")

DelimiterOption = Annotated[
    str | None,
    typer.Option(help="Between the cells of a CSV file, if not as the schema says."),
]

#: Where a sweep's jobs are computed.
BackendOption = Annotated[
    str, typer.Option(help="Who computes: loky (this machine's processes), dask or ray.")
]
AddressOption = Annotated[
    str | None,
    typer.Option(help="Of a running Dask or Ray cluster; without one, --jobs processes start."),
]


class Commands(TyperGroup):
    """Commands that say when they are stopped, and whose help shows no type beside flags.

    ``--json <bool>`` looks as if it took one.
    """

    #: Commands by name that are loaded when asked for, each as ``module:name``.
    places: ClassVar[Mapping[str, str]] = {}

    def list_commands(self, ctx: Any) -> list[str]:
        """Every name, in the order of the help."""
        return [*self.places, *super().list_commands(ctx)]

    def invoke(self, ctx: Any) -> Any:
        """Run a command; Ctrl-C that none of them answers, such as while it loads, is told here."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            print_refusal(str(ctx.invoked_subcommand), "stopped.", as_json="--json" in sys.argv)
            raise typer.Exit(130) from None

    def get_params(self, ctx: Any) -> Any:
        """Own options."""
        return _bare_flags(super().get_params(ctx))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command, loaded now if nobody asked for it before."""
        if cmd_name in self.places and cmd_name not in self.commands:
            self.commands[cmd_name] = _load(cmd_name, self.places[cmd_name])
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            _bare_flags(command.get_params(ctx))
        return command


def _load(name: str, place: str) -> Any:
    """The command at ``module:name``: a function with options, or a group of commands."""
    module, _, attribute = place.partition(":")
    try:
        found = getattr(import_module(module), attribute)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if error.name != package:
            raise

        def found() -> None:
            """Not installed."""
            raise ParameterError(
                f"{name} must have the package {package!r}, which is not installed. Install it "
                "(in a clone of the repository: pip install -e papers)."
            )

    if isinstance(found, typer.Typer):
        return typer.main.get_command(found)
    alone = typer.Typer(add_completion=False, rich_markup_mode="markdown")
    alone.command(name)(found)
    return typer.main.get_command(alone)


def _bare_flags(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    return parameters


def takes(options: type[Options]) -> Callable[[Callable[[Options], None]], Callable[..., None]]:
    """Declare a command whose arguments and options are the fields of a dataclass, in order.

    A field is annotated as a parameter of a command is, with ``typer.Argument`` or
    ``typer.Option``; one without a default must be given.
    """
    annotations = get_type_hints(options, include_extras=True)
    parameters = [
        parameter.replace(annotation=annotations[name])
        for name, parameter in inspect.signature(options).parameters.items()
    ]

    def declare(command: Callable[[Options], None]) -> Callable[..., None]:
        @wraps(command)
        def run(**given: Any) -> None:
            command(options(**given))

        # What Typer reads, instead of that of the command.
        vars(run)["__signature__"] = inspect.Signature(parameters)
        return run

    return declare


def named_values(pairs: list[str]) -> dict[str, Any]:
    """``name=value`` pairs; a value that reads as JSON (a number, a list, a table) is that."""
    values: dict[str, Any] = {}
    for pair in pairs:
        name, mark, value = pair.partition("=")
        if not mark:
            raise ParameterError(f"option must be NAME=VALUE; got {pair!r}.")
        values[name] = read_value(value)
    return values


def read_value(text: str) -> Any:
    """What a text says as a number or in JSON, or the text."""
    for read in (int, float, json.loads):
        try:
            return read(text)
        except ValueError:
            continue
    return text
