"""How commands take options and how they speak.

Options of a command are one value: a frozen dataclass whose fields are its parameters
(:func:`takes`). There is one table style, one JSON envelope, one sentence for a refusal, and one
way to show progress. What is said of a run is public: a function of messages.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from textwrap import wrap
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, TypeVar, get_type_hints

import typer
from rich.cells import cell_len
from rich.console import Console, Group
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

from dpadmm.errors import (
    ClusterError,
    ConvergenceError,
    ExchangeError,
    LedgerError,
    ParameterError,
    PreflightStop,
    is_passing,
    missing_extra,
)
from dpadmm.plain import json_data, visible
from dpadmm.privacy.figures import AtMost, pair

# What a run left is loaded by whoever shows it: help answers without scikit-learn.
if TYPE_CHECKING:
    from dpadmm.evaluation.intervals import Estimate
    from dpadmm.evaluation.metrics import ModelFigures
    from dpadmm.privacy.statement import PrivacyStatement
    from dpadmm.run.classifier import Quality
    from dpadmm.run.config import ResultSection
    from dpadmm.run.result import Run


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

#: What ends a command with one sentence.
REFUSALS: Final = (
    ValueError,
    OSError,
    ClusterError,
    ConvergenceError,
    ExchangeError,
    LedgerError,
)

#: Exit code of a refused command; and of one that may succeed later as it is (sysexits.h).
REFUSED: Final = 2
TRY_LATER: Final = 75
#: The exit code of a run that its owner's pre-flight ended before it began.
STOPPED_AT_HOME: Final = 4

VerboseOption = Annotated[
    bool, typer.Option("--verbose", help="Print the whole privacy statement, not one line of it.")
]
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
    errors.print(Text(_flowing(f"dpadmm: {message}", errors)))


def refusal_code(error: Exception) -> int:
    """The exit code of a refusal."""
    return TRY_LATER if is_passing(error) else REFUSED


def _shown(text: str) -> str:
    """Words for a terminal: those of others among them do nothing but stand there."""
    return visible(text, longest=_LONGEST, keep="\n\t")


def _flowing(text: str, screen: Console) -> str:
    """The same, broken between words on a terminal; in a file a line stays one.

    A word that is longer than a line, such as a path, is left whole.
    """
    shown = _shown(text)
    if not screen.is_terminal:
        return shown
    lines = (
        wrap(line, screen.width, subsequent_indent="  ", **_WHOLE) or [""]
        for line in shown.split("\n")
    )
    return "\n".join(line for broken in lines for line in broken)


def warn(message: str) -> None:
    """Print a warning, one sentence on standard error."""
    errors.print(Text(_flowing(f"Warning: {message}", errors)))


def owner_at_terminal() -> Callable[[Sequence[str], bool], bool] | None:
    """Return who reads what a pre-flight found; None where nobody could read it and answer.

    Anything but a terminal may be a log that others read.
    """
    return _tell_owner if sys.stdin.isatty() and sys.stderr.isatty() else None


def _tell_owner(lines: Sequence[str], ask: bool) -> bool:
    """Show lines and, where asked, have an answer: y goes on, everything else does not."""
    for line in lines:
        errors.print(Text(_flowing(f"Pre-flight: {line}", errors)))
    if not ask:
        return True
    # Standard output may be JSON for a machine: nothing of this goes there.
    errors.print(Text("Spend the budget on these rows all the same? [y/N]"), end=" ")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def say(words: str, heading: str = "") -> None:
    """Print plain words, behind a heading if there is one. Other parties may have written some."""
    text = Text(_flowing(f"{heading}: {words}" if heading else words, console))
    if heading:
        text.stylize("bold", 0, len(heading) + 1)
    console.print(text, soft_wrap=True)


@contextmanager
def refusals(command: str, as_json: bool, stopped: str = "") -> Iterator[None]:
    """Turn a refusal inside into one sentence and its exit code, Ctrl-C into one and 130.

    What a pre-flight ended has the exit code 4. ``stopped`` says what a command that was stopped
    has kept, and how it goes on.
    """
    try:
        yield
    except REFUSALS as error:
        print_refusal(command, str(error), as_json=as_json)
        raise typer.Exit(refusal_code(error)) from None
    except PreflightStop as error:
        print_refusal(command, str(error), as_json=as_json)
        raise typer.Exit(STOPPED_AT_HOME) from None
    except KeyboardInterrupt:
        print_refusal(command, " ".join(("stopped.", stopped)).strip(), as_json=as_json)
        raise typer.Exit(130) from None
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        print_refusal(command, str(missing_extra(extra)), as_json=as_json)
        raise typer.Exit(REFUSED) from None


# Words and names are never broken.
_WHOLE: Final[dict[str, Any]] = {"break_long_words": False, "break_on_hyphens": False}

# A space at which no line is broken.
_JOINED: Final = "\N{NO-BREAK SPACE}"
_FIGURE: Final = frozenset("0123456789.+-e%")


def show_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table that fits."""
    console.print(f"[bold]{escape(title)}[/bold]", highlight=False)
    print_table(fitting_table(columns, rows))


def print_table(table: Table | Group) -> None:
    """Print what :func:`fitting_table` made; a word that is longer than a line is not cut off."""
    console.print(table, soft_wrap=isinstance(table, Group))


def fitting_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    styles: Mapping[str, str] = MappingProxyType({}),
) -> Table | Group:
    """A table for the terminal; what looks like a number stands on the right.

    No word is broken: a name that is cut could be another. Where the longest words of all columns
    do not fit beside each other, the cells of a row stand below its first one. Cells that are one
    of the words in ``styles`` have that style.
    """
    body = [[_shown(str(cell)) for cell in row] for row in rows]
    widths = _column_widths([list(columns), *body], console.width)
    if widths is None:
        return _stacked(columns, body)
    table = Table()
    for place, (column, width) in enumerate(zip(columns, widths, strict=True)):
        numbers = all(row[place][:1] in "0123456789-+." for row in body if row[place])
        side: Literal["left", "right"] = "right" if numbers and body else "left"
        table.add_column(column, justify=side, width=width, overflow="fold")
    for row in body:
        table.add_row(*(Text(cell, style=styles.get(cell, "")) for cell in row))
    return table


def _column_widths(lines: Sequence[Sequence[str]], room: int) -> list[int] | None:
    """Widths in which every cell has whole words; None where the longest words do not fit.

    What is too wide is taken from the widest column that can give way.
    """
    columns = list(zip(*lines, strict=True))
    least = [max(cell_len(word) for cell in cells for word in _words(cell)) for cells in columns]
    widths = [
        max(cell_len(line) for cell in cells for line in cell.splitlines() or [""])
        for cells in columns
    ]
    spare = room - 1 - 3 * len(columns)
    # Names of several words stay on one line where there is room for them.
    if widths[0] + sum(least[1:]) <= spare:
        least[0] = widths[0]
    if sum(least) > spare:
        return None
    while sum(widths) > spare:
        places = [place for place, width in enumerate(widths) if width > least[place]]
        widths[max(places, key=lambda place: widths[place])] -= 1
    return widths


def _words(cell: str) -> Sequence[str]:
    """The parts of a cell that stay whole: its words, or all of it where it is a figure."""
    return [cell] if set(cell) <= _FIGURE else cell.split() or [""]


def _stacked(columns: Sequence[str], body: Sequence[Sequence[str]]) -> Group:
    """The cells of each row that say something, below the first as their heading."""
    lines = []
    for first, *others in body:
        lines.append(Text(first, style="bold"))
        named = zip(columns[1:], others, strict=True)
        told = "; ".join(f"{column}:{_JOINED}{cell}" for column, cell in named if cell)
        for line in wrap(told, console.width - 2, **_WHOLE):
            lines.append(Text(f"  {line.replace(_JOINED, ' ')}"))
    return Group(*lines)


def show_meaning(meaning: Mapping[str, Any]) -> None:
    """Print what epsilons mean: a manifest's words and small tables."""
    from dpadmm.experiments.meaning import HEADING

    console.print(f"[bold]{HEADING}[/bold]", highlight=False)
    for heading, words in meaning["facts"]:
        say(f"{words}.", heading)
    for title, table in meaning["tables"].items():
        show_table(title, table["columns"], table["rows"])


def rounds_bar(*, quiet: bool, shown: bool = False) -> Progress:
    """A bar of rounds: on standard error where a person watches, or among what is shown."""
    columns: list[ProgressColumn] = [
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
    ]
    if not shown:
        columns.append(TextColumn("rounds"))
    return Progress(
        *columns,
        TimeRemainingColumn(),
        console=console if shown else errors,
        transient=True,
        disable=quiet or not (shown or errors.is_terminal),
    )


@contextmanager
def cell_progress(title: str, *, quiet: bool) -> Iterator[Callable[[float, float, str], None]]:
    """A bar of cells; yields what to call with (done, whole, label).

    What was kept from before is taken off both sides, so that the time left rests on the pace of
    this run alone.
    """
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
        console=errors,
        transient=True,
        disable=quiet or not errors.is_terminal,
    ) as progress:
        task = progress.add_task(title, total=None)
        kept: list[float] = []

        def on_done(done: float, whole: float, label: str) -> None:
            if not kept:
                kept.append(done)
            words = f"{title}: {label}" if label else title
            progress.update(
                task, description=words, completed=done - kept[0], total=whole - kept[0]
            )

        yield on_done


Options = TypeVar("Options")

DelimiterOption = Annotated[
    str | None,
    typer.Option(help="Delimiter of a CSV file, if not as the schema says."),
]

#: Where a sweep's jobs are computed.
BackendOption = Annotated[
    str, typer.Option(help="Who computes: loky (this machine's processes), dask or ray.")
]
AddressOption = Annotated[
    str | None,
    typer.Option(help="Address of a running Dask or Ray cluster; default: --jobs processes."),
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


def command_group(name: str, about: str) -> typer.Typer:
    """An app for the commands ``dpadmm NAME ...``; its help opens with ``about``."""
    return typer.Typer(
        name=name,
        cls=Commands,
        help=about,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode="markdown",
    )


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


def whole_numbers(text: str) -> tuple[int, ...]:
    """Numbers of rows, separated by commas; or a refusal."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ParameterError(
            f"rows must be whole numbers separated by commas; got {text!r}."
        ) from None


def named_values(pairs: list[str]) -> dict[str, Any]:
    """``name=value`` pairs; a value that reads as JSON (a number, a list, a table) is that."""
    values: dict[str, Any] = {}
    for given in pairs:
        name, mark, value = given.partition("=")
        if not mark:
            raise ParameterError(f"option must be NAME=VALUE; got {given!r}.")
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


# How the lines of a ledger begin that the statement of a run does not have, and those that it may
# have in the same words; `dpadmm ledger show` prints all of them.
_OF_A_BUDGET: Final = ("Data set:", "Guarantee:", "Filter:")
_OF_WHAT_IS_LEFT: Final = ("Amended:", "Spent", "Accounts:", "Left:")
_OF_BOTH: Final = ("Adjacency:", "Adversary:")


def result_places(result: ResultSection) -> dict[str, str | None]:
    """Where the model is, and the record and the report if they are wanted."""
    return {
        "model": str(result.model),
        "record": None if result.record is None else str(result.record),
        "report": None if result.report_file is None else str(result.report_file),
    }


def show_statement(statement: PrivacyStatement, *, verbose: bool) -> None:
    """Print a guarantee in one line, or all that is stated of it."""
    for heading, words in statement.lines() if verbose else statement.brief():
        say(words, heading)


def show_run(
    run: Run, title: str, *, rounds: str, own: bool = False, verbose: bool = False
) -> None:
    """Print what the run guarantees and what it cost.

    Parameters
    ----------
    run
        The run.
    title
        Of the table of what was spent.
    rounds
        How many rounds there were, in words.
    own
        Whether there is only the owner's ledger, which needs no name.
    verbose
        Print all of the statement.
    """
    summary = run.summary()
    show_statement(run.privacy, verbose=verbose)
    show_table(
        title,
        ("party", "rows", "epsilon", "delta"),
        [
            (
                party["name"],
                party["rows"],
                party["epsilon"] if isinstance(party["epsilon"], str) else AtMost(party["epsilon"]),
                AtMost(party["delta"]),
            )
            for party in summary["parties"]
        ],
    )
    for name, words in summary["ledgers"].items():
        console.print("Ledger" if own else f"Ledger of {name}", style="bold", highlight=False)
        say("\n".join(_of_ledger(words, run.privacy, verbose=verbose)))
    quality = run.classifier.quality
    if quality is not None:
        show_quality(quality, quality.evaluation(), [str(name) for name in run.classifier.classes])
    taken = "" if run.seconds is None else f", {run.seconds:.1f} s"
    typer.echo(f"Run {run.sha256[:12]}, {rounds} rounds{taken}.")
    for kind, place in result_places(run.config.result).items():
        if place is not None:
            typer.echo(f"{kind.capitalize()}: {place}")


def _of_ledger(words: str, stated: PrivacyStatement, *, verbose: bool) -> Iterator[str]:
    """What a ledger says that the statement above it does not.

    Earlier runs may have counted on the noise of others: then it holds against fewer.
    """
    said = {f"{heading}: {line}" for heading, line in stated.lines()}
    told = (*_OF_A_BUDGET, *_OF_WHAT_IS_LEFT) if verbose else _OF_WHAT_IS_LEFT
    for line in words.splitlines():
        if line.startswith(told) or (line.startswith(_OF_BOTH) and line not in said):
            yield line


def about_words(quality: Quality) -> str:
    """Which rows a model was evaluated on, and what that cost."""
    from dpadmm.run.classifier import HELD_OUT, PUBLIC

    count = f"{quality.histogram.rows:,}"
    if quality.about == PUBLIC or quality.privacy is None:
        return f"{count} rows, public rows: exact counts, nothing was charged"
    spent = f"{pair(quality.privacy.epsilon, quality.privacy.delta)}-differential privacy"
    if quality.privacy.simulated:
        spent = f"SIMULATION, which protects nobody; with secret noise {spent}"
    if quality.about == HELD_OUT:
        return f"{count} held-out rows, {spent} for them alone"
    return f"{count} rows that were trained on (optimistic), {spent} beside that of the training"


def plain_quality(quality: Quality, evaluation: ModelFigures) -> dict[str, Any]:
    """What a command tells machines of an evaluation."""
    content = quality.to_dict()
    del content["histogram"]
    return {
        "about": content.pop("about"),
        "words": about_words(quality),
        "threshold": quality.threshold,
        **content,
        "evaluation": evaluation.to_dict(),
    }


def show_quality(quality: Quality, evaluation: ModelFigures, classes: Sequence[str]) -> None:
    """Print how good a model is, in tables that fit 80 columns.

    Parameters
    ----------
    quality, evaluation
        What was released, and the figures that follow from it.
    classes
        Names, in the order of their codes.
    """
    from dpadmm.run.classifier import shown_estimate

    say(f"Evaluated on {about_words(quality)}.")
    level = f"{100 * evaluation.confidence:g}% interval"
    figures = [(figure.name, shown_estimate(figure)) for figure in evaluation.estimates]
    show_table("How good it is", ("figure", level), figures)
    if evaluation.decision is None:
        for figures_of in evaluation.classes:
            lines = [(figure.name, shown_estimate(figure)) for figure in figures_of.estimates]
            show_table(f"{classes[figures_of.code]} against the rest", ("figure", level), lines)
    else:
        say(
            f"{classes[1]!r} is predicted where the score is above {quality.threshold:.6g}; "
            f"sensitivity is about {classes[1]!r}, specificity about {classes[0]!r}."
        )
    show_table(
        "Of all rows (share): true class by predicted class",
        ("true", *classes),
        [
            (classes[true], *(_share(figure) for figure in line))
            for true, line in enumerate(evaluation.confusion)
        ],
    )


def _share(figure: Estimate) -> str:
    return "?" if figure.value is None else f"{figure.share:.3f}"
