"""``dpadmm demo``: many small parties, each alone, all together within a budget, and pooled."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from dpadmm.cli.output import JsonOption, console, emit, refusals, rounds_bar, takes
from dpadmm.durable import check_writable

if TYPE_CHECKING:
    from dpadmm.cli.demo_runs import DemoData, Findings


@dataclass(frozen=True, kw_only=True)
class DemoOptions:
    """What ``dpadmm demo`` is asked."""

    rounds: Annotated[int, typer.Option(min=2, help="Messages of each party.")] = 100
    seed: Annotated[int, typer.Option(min=0, help="Makes the simulation reproducible.")] = 0
    report: Annotated[Path, typer.Option(help="Where the report goes (HTML).")] = Path(
        "dpadmm-demo.html"
    )
    federated: Annotated[
        bool,
        typer.Option("--federated", help="Train with one process per party, over mutual TLS."),
    ] = False
    nodes: Annotated[
        int, typer.Option(min=3, max=20, help="With --federated: how many of the parties.")
    ] = 20
    results: Annotated[
        Path, typer.Option(help="With --federated: where the nodes' models and statements go.")
    ] = Path("dpadmm-demo-nodes")
    as_json: JsonOption = False


@takes(DemoOptions)
def demo(options: DemoOptions) -> None:
    """Does training together pay? Twenty small parties, each alone, together and pooled.

    Example: `dpadmm demo`

    It uses UCI Adult if the folder `DPADMM_DATA` contains it, and otherwise draws Breiman's
    waveform problem, without a network. Everything is a simulation in this process. With
    --federated every party is a `dpadmm node` on this machine, over mutual TLS and with a secure
    sum: each has a certificate from a trial authority, a ledger, and noise that nobody can draw
    again.
    """
    if options.federated:
        from dpadmm.cli.demo_words import federated_demo

        federated_demo(
            options.nodes, options.rounds, options.seed, options.results, options.as_json
        )
        return
    _simulated(options)


def _simulated(options: DemoOptions) -> None:
    from dpadmm.cli.demo_runs import find, load_data
    from dpadmm.cli.demo_words import demo_report, headline, when_not
    from dpadmm.report.html import write_page

    report = options.report
    with refusals("demo", options.as_json):
        check_writable(report, "report")
    data = load_data(options.seed)
    with rounds_bar(quiet=options.as_json, shown=True) as progress:
        task = progress.add_task("training", total=None)
        found = find(
            data,
            options.rounds,
            options.seed,
            lambda done, whole: progress.update(task, completed=done, total=whole),
        )
    command = f"dpadmm demo --rounds {options.rounds} --seed {options.seed}"
    write_page(report, demo_report(data, found, command))
    if not options.as_json:
        _show(data, found, report)
        return
    result = {
        "data": data.title,
        "headline": list(headline(found)),
        "when_not": list(when_not(found)),
        "accuracy": [line.plain() for line in found.lines()],
        "alone": found.alone.tolist(),
        "privacy": found.privacy.to_dict(),
        "history": found.history,
        "plot": None,
        "report": str(report),
    }
    emit("demo", result)


def _called_as() -> str:
    """The name of this program where a shell finds it, otherwise its path as it was called."""
    here, found = Path(sys.argv[0]), shutil.which("dpadmm")
    elsewhere = here.name == "dpadmm" and (not found or Path(found).resolve() != here.resolve())
    return str(here) if elsewhere else "dpadmm"


def _show(data: DemoData, found: Findings, report: Path) -> None:
    from dpadmm.cli.demo_words import (
        headline,
        show_accuracy,
        show_sentences,
        show_statement,
        when_not,
    )

    show_accuracy(data, found.lines())
    show_sentences("Does training together pay?", headline(found))
    show_sentences("When it does not", when_not(found))
    show_statement("What shared noise at epsilon = 1 guarantees", found.privacy)
    called = _called_as()
    following = {
        f"{called} demo --federated": "between real nodes",
        f"{called} plan --rows 8000,4000 --features 20": "what a budget costs",
        f"{called} schema draft --help": "your own files",
        "docs/plan-to-proof.md": "from files to a report",
    }
    width = max(len(command) for command in following)
    lines = [f"  {command.ljust(width)}  {words}" for command, words in following.items()]
    console.print("\n\nNext:\n" + "\n".join(lines), highlight=False, markup=False, soft_wrap=True)
    console.print(
        f"\nReport (open it in a browser): [bold]{escape(str(report))}[/bold]",
        highlight=False,
        soft_wrap=True,
    )
