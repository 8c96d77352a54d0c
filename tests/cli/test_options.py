"""Options as one value: what Typer sees is what the same parameters of a function would be."""

from dataclasses import FrozenInstanceError, dataclass
from pathlib import Path
from typing import Annotated, Literal

import pytest
import typer
from typer.testing import CliRunner

from dpadmm.cli.output import named_values, read_value, takes
from dpadmm.errors import ParameterError


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What is asked."""

    file: Annotated[Path, typer.Argument(help="A file.")]
    rounds: Annotated[int, typer.Option(min=1, help="How many.")] = 3
    kind: Annotated[Literal["one", "two"] | None, typer.Option(help="Which.")] = None
    name: Annotated[list[str] | None, typer.Option(help="May be repeated.")] = None
    loud: Annotated[bool, typer.Option("--loud", help="Shout.")] = False


def plain(
    file: Annotated[Path, typer.Argument(help="A file.")],
    rounds: Annotated[int, typer.Option(min=1, help="How many.")] = 3,
    kind: Annotated[Literal["one", "two"] | None, typer.Option(help="Which.")] = None,
    name: Annotated[list[str] | None, typer.Option(help="May be repeated.")] = None,
    loud: Annotated[bool, typer.Option("--loud", help="Shout.")] = False,
) -> None:
    """Do it."""
    typer.echo(repr((file, rounds, kind, name, loud)))


@takes(Wanted)
def collected(options: Wanted) -> None:
    """Do it."""
    typer.echo(
        repr((options.file, options.rounds, options.kind, options.name, options.loud)),
    )
    with pytest.raises(FrozenInstanceError):
        options.rounds = 4


def app_of(command):
    app = typer.Typer()
    app.command("do")(command)
    return app


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        [],
        ["x.csv"],
        ["x.csv", "--rounds", "7", "--kind", "two", "--name", "a", "--name", "b", "--loud"],
        ["x.csv", "--rounds", "0"],
        ["x.csv", "--kind", "three"],
        ["x.csv", "--unknown"],
    ],
)
def test_collected_options_are_those_of_a_plain_command(words):
    found, wanted = (CliRunner().invoke(app_of(each), words) for each in (collected, plain))
    assert (found.exit_code, found.output) == (wanted.exit_code, wanted.output)


def test_a_value_is_read_as_a_number_or_json_or_stays_a_text():
    words = ("3", "0.5", "[1, 2]", '{"a": 1}', "true", "pr-admm", "1e400x")
    assert [read_value(word) for word in words] == [
        3, 0.5, [1, 2], {"a": 1}, True, "pr-admm", "1e400x",
    ]  # fmt: skip
    assert named_values(["a=1", "b=x=y"]) == {"a": 1, "b": "x=y"}
    with pytest.raises(ParameterError, match="option must be NAME=VALUE; got 'a'"):
        named_values(["a"])
