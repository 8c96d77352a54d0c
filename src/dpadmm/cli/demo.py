"""``dpadmm demo``: five parties, alone, together and pooled, then within a privacy budget."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from dpadmm.cli.demo_runs import accuracies, load_data, progress_bar, together
from dpadmm.cli.output import JsonOption, console, emit, refusals, show_table

__all__ = ["demo"]


def demo(
    rounds: Annotated[int, typer.Option(min=2, help="Messages of each party.")] = 50,
    seed: Annotated[int, typer.Option(min=0, help="Makes the simulation reproducible.")] = 0,
    report: Annotated[Path, typer.Option(help="Where the report goes (HTML).")] = Path(
        "dpadmm-demo.html"
    ),
    federated: Annotated[
        bool,
        typer.Option("--federated", help="Train with one process per party, over mutual TLS."),
    ] = False,
    results: Annotated[
        Path, typer.Option(help="With --federated: where the nodes' models and statements go.")
    ] = Path("dpadmm-demo-nodes"),
    as_json: JsonOption = False,
) -> None:
    """Five parties on a ring train one classifier: what it brings, and what privacy costs.

    Uses UCI Adult where the folder `DPADMM_DATA` has it, and otherwise draws Breiman's waveform
    problem: no network is needed. Everything is a simulation in this process; with --federated
    each party is a `dpadmm node` of its own on this machine, with a certificate from a trial
    authority, a ledger, and noise that nobody can draw again.
    """
    if federated:
        from dpadmm.cli.federated_demo import federated_demo

        federated_demo(rounds, seed, results, as_json=as_json)
        return
    from dpadmm.cli.demo_report import demo_report
    from dpadmm.durable import check_writable, write_whole
    from dpadmm.report.html import render

    with refusals("demo", as_json):
        check_writable(report, "report")
    data = load_data(seed)
    with progress_bar(quiet=as_json) as progress:
        rows = accuracies(data)
        outcome, histories = together(data, rounds, seed, progress)
    rows += outcome["rows"]
    command = f"dpadmm demo --rounds {rounds} --seed {seed}"
    shown = outcome["shown"]
    page = demo_report(shown, data.label, data.features, rows, histories, command)
    write_whole(report, render(page).encode(), "report")
    if as_json:
        emit(
            "demo",
            {
                "data": data.title,
                "accuracy": [
                    dict(zip(("who", "rows", "accuracy"), row, strict=True)) for row in rows
                ],
                "privacy": shown.classifier.privacy.to_dict(),
                "history": histories,
                "report": str(report),
            },
        )
        return
    console.print(f"\n[bold]Data:[/bold] {data.title}\n", highlight=False)
    table = [(who, count, f"{100 * accuracy:.1f} %") for who, count, accuracy in rows]
    show_table("Accuracy on held-out rows", ("who", "rows", "accuracy"), table)
    console.print("\n[bold]What the budget of epsilon = 1 guarantees[/bold]")
    for heading, words in shown.classifier.privacy.lines():
        console.print(f"  [bold]{heading}:[/bold] {words}", highlight=False)
    console.print()
    console.print(
        "\nNext:\n"
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
