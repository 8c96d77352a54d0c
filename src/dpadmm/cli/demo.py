"""``dpadmm demo``: five parties, alone, together and pooled, then within a privacy budget."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from dpadmm.cli.demo_runs import (
    accuracies,
    demo_result,
    load_data,
    show_accuracy,
    show_statement,
    together,
)
from dpadmm.cli.options import takes
from dpadmm.cli.output import JsonOption, console, emit, refusals
from dpadmm.cli.progress import rounds_bar
from dpadmm.durable import check_writable, write_whole


@dataclass(frozen=True, kw_only=True)
class DemoOptions:
    """What ``dpadmm demo`` is asked."""

    rounds: Annotated[int, typer.Option(min=2, help="Messages of each party.")] = 50
    seed: Annotated[int, typer.Option(min=0, help="Makes the simulation reproducible.")] = 0
    report: Annotated[Path, typer.Option(help="Where the report goes (HTML).")] = Path(
        "dpadmm-demo.html"
    )
    federated: Annotated[
        bool,
        typer.Option("--federated", help="Train with one process per party, over mutual TLS."),
    ] = False
    results: Annotated[
        Path, typer.Option(help="With --federated: where the nodes' models and statements go.")
    ] = Path("dpadmm-demo-nodes")
    as_json: JsonOption = False


@takes(DemoOptions)
def demo(options: DemoOptions) -> None:
    """Five parties on a ring train one classifier: what it brings, and what privacy costs.

    Uses UCI Adult where the folder `DPADMM_DATA` has it, and otherwise draws Breiman's waveform
    problem: no network is needed. Everything is a simulation in this process; with --federated
    each party is a `dpadmm node` of its own on this machine, with a certificate from a trial
    authority, a ledger, and noise that nobody can draw again.
    """
    if options.federated:
        from dpadmm.cli.federated_demo import federated_demo

        federated_demo(options.rounds, options.seed, options.results, as_json=options.as_json)
        return
    from dpadmm.cli.demo_report import demo_report
    from dpadmm.report.html import render

    rounds, seed, report = options.rounds, options.seed, options.report
    with refusals("demo", options.as_json):
        check_writable(report, "report")
    data = load_data(seed)
    with rounds_bar(quiet=options.as_json, shown=True) as progress:
        rows = accuracies(data)
        outcome, histories = together(data, rounds, seed, progress)
    rows += outcome["rows"]
    shown = outcome["shown"]
    command = f"dpadmm demo --rounds {rounds} --seed {seed}"
    page = demo_report(shown, data.label, data.features, rows, histories, command)
    write_whole(report, render(page).encode(), "report")
    privacy = shown.classifier.privacy
    if options.as_json:
        result = demo_result(data, rows, privacy)
        emit("demo", result | {"history": histories, "report": str(report)})
        return
    show_accuracy(data, rows)
    show_statement("What the budget of epsilon = 1 guarantees", privacy)
    console.print(
        "\n\nNext:\n"
        "  dpadmm account --epsilon 1 --rows 8000,4000   what a run would cost\n"
        "  dpadmm schema draft --help                    your own files\n"
        "  docs/quickstart.md                            ADMMClassifier in Python",
        highlight=False,
    )
    console.print(
        f"\nReport (open it in a browser): [bold]{escape(str(report))}[/bold]",
        highlight=False,
        soft_wrap=True,
    )
