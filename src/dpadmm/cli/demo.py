"""``dpadmm demo``: many small parties, each alone, all together within a budget, and pooled.

Its sentences are computed from its figures: they can turn out either way. With ``--federated`` the
parties are processes of their own, over mutual TLS.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.live import Live
from rich.markup import escape

from dpadmm.cli.demo_runs import (
    DELTA,
    EPSILON,
    FEW,
    PARTIES,
    RUNS,
    SMALL_EPSILON,
    DemoData,
    Findings,
    Line,
    Together,
    alone_accuracy,
    find,
    load_data,
    pooled_accuracy,
    private_parameters,
    together,
)
from dpadmm.cli.output import JsonOption, console, emit, refusals, rounds_bar, show_table, takes
from dpadmm.cli.status import status_table
from dpadmm.durable import check_writable
from dpadmm.errors import ParameterError
from dpadmm.experiments.comparison_pages import STANDINGS
from dpadmm.experiments.measures import (
    BEATS,
    BELOW,
    LEVEL,
    LEVEL_WITH,
    Interval,
    get_measure,
    mean_interval,
    percent,
    standing,
)
from dpadmm.plain import Array
from dpadmm.privacy.figures import Given
from dpadmm.privacy.statement import PrivacyStatement
from dpadmm.report.document import Bar, BarPlot, LinePlot, Report, Section, Words
from dpadmm.report.html import write_page
from dpadmm.report.run import run_report
from dpadmm.report.sections import course
from dpadmm.run.model import load_model
from dpadmm.run.result import Learnt, RecordedRun

if TYPE_CHECKING:
    from dpadmm.federation.local import LocalNode


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
        _federated(options.nodes, options.rounds, options.seed, options.results, options.as_json)
    else:
        _simulated(options)


def _simulated(options: DemoOptions) -> None:
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


_PAYS = {
    BEATS: "it pays even there",
    LEVEL_WITH: "it cannot be told whether that pays",
    BELOW: "that does not pay",
}


def verdict(who: str, together: Interval, best_alone: float) -> str:
    """How training together stands to the best party alone, in a sentence."""
    return f"{who}, training together {STANDINGS[standing(together, best_alone)]}."


def headline(found: Findings) -> tuple[str, ...]:
    """What training together brings, from the figures."""
    own, shared = (
        mean_interval(found.own.accuracy, LEVEL),
        mean_interval(found.shared.accuracy, LEVEL),
    )
    best = float(found.alone.max())
    return (
        f"Alone and without any privacy, {found.parties} parties with {found.rows} rows each get "
        f"{percent(found.alone.mean())} of the held-out rows right on average and {percent(best)} "
        f"at best; together at epsilon {Given(EPSILON)} they get {percent(shared.mean)} with "
        f"shared noise and {percent(own.mean)} with noise of each one's own.",
        verdict("With shared noise", shared, best),
        verdict("With own noise", own, best),
    )


def when_not(found: Findings) -> tuple[str, ...]:
    """When training together may not pay, from the figures."""
    small, few = mean_interval(found.small_budget, LEVEL), mean_interval(found.few, LEVEL)
    best, best_of_few = float(found.alone.max()), float(found.few_alone.max())
    return (
        f"A tiny budget: at epsilon {Given(SMALL_EPSILON)} shared noise leaves "
        f"{percent(small.mean)}; {_PAYS[standing(small, best)]}, against {percent(best)} of the "
        "best party alone.",
        f"Few parties with many rows each: the same rows at {FEW} parties give the best of them "
        f"{percent(best_of_few)} alone, and {percent(few.mean)} together at epsilon "
        f"{Given(EPSILON)}; {_PAYS[standing(few, best_of_few)]}.",
        "Whoever may not use its own rows without noise has less alone: within the same budget "
        f"{percent(found.private_alone.mean())} on average.",
    )


def show_accuracy(data: DemoData, lines: tuple[Line, ...]) -> None:
    """Print who reached what."""
    counts = data.problem.counts
    console.print(
        f"\n[bold]Data:[/bold] {data.title}, {len(counts)} parties with {counts[0]} rows each; "
        "every other one has few of the second class, the others have many\n",
        highlight=False,
    )
    table = [
        (
            line.who,
            line.rows,
            "no" if line.epsilon is None else f"epsilon {Given(line.epsilon)}",
            percent(line.mean) + ("" if line.spread is None else f" ± {100 * line.spread:.1f}"),
        )
        for line in lines
    ]
    title = f"Accuracy on held-out rows (± the standard deviation of one run, of {RUNS})"
    show_table(title, ("who", "rows", "privacy", "accuracy"), table)


def show_sentences(heading: str, sentences: tuple[str, ...]) -> None:
    """Print sentences under a heading."""
    console.print(f"\n[bold]{heading}[/bold]", highlight=False)
    for sentence in sentences:
        console.print(f"  {sentence}", highlight=False)


def show_statement(heading: str, statement: PrivacyStatement) -> None:
    """Print what is guaranteed, line by line."""
    console.print(f"\n[bold]{heading}[/bold]", highlight=False)
    for part, words in statement.lines():
        console.print(f"  [bold]{part}:[/bold] {words}", highlight=False)


def demo_report(data: DemoData, found: Findings, command: str) -> Report:
    """Build the page.

    Parameters
    ----------
    data, found
        The rows, and what was measured on them.
    command
        What makes it again.
    """
    lines = tuple(
        course(name, [100 * share for share in taken["accuracy"]])
        for name, taken in found.history.items()
    )
    levels = (
        ("best party alone", 100 * float(found.alone.max())),
        ("pooled", 100 * found.pooled),
    )
    bars = tuple(_bar(line) for line in found.lines())
    brings = Section(
        "What it brings, and what privacy costs",
        (
            BarPlot("Accuracy on held-out rows", "who trains", "accuracy, %", bars),
            Words(f"When it does not pay: {' '.join(when_not(found))}"),
            LinePlot("Accuracy over the rounds", "round", "accuracy, %", lines, limits=levels),
            Words(
                "Accuracy on rows that were held out. This is a simulation: a real run "
                "computes no such figure from private rows."
            ),
        ),
    )
    page = run_report(_record(data, found.shared, command), more=[brings])
    return replace(page, headline=" ".join(headline(found)))


def _bar(line: Line) -> Bar:
    """A bar with the interval of its mean, where there are several runs."""
    if len(line.accuracy) == 1:
        return Bar(line.who, 100 * line.mean)
    interval = line.interval
    return Bar(line.who, 100 * line.mean, low=100 * interval.low, high=100 * interval.high)


def _record(data: DemoData, shown: Together, command: str) -> RecordedRun:
    site, (name, classes) = shown.planned.site, data.label
    return RecordedRun.of_classifier(
        shown.classifier,
        site.topology,
        dict(zip(site.names, site.rows.tolist(), strict=True)),
        command=command,
        config={"run": asdict(shown.parameters)},
        run_sha256="",
        rounds=shown.planned.rounds,
        features=site.features,
        learnt=Learnt.of_model(
            name,
            (),
            classes,
            data.schema,
            shown.classifier.coef,
            shown.noise_error,
        ),
    )


def _federated(parties: int, rounds: int, seed: int, results: Path, as_json: bool) -> None:
    """Train at real nodes with shared noise within epsilon = 1, and show what that reaches."""
    with refusals("demo", as_json):
        _make_folder(results)
        data = load_data(seed).first(parties)
        # Keys, ledgers and rows go with the folder; nobody else may look into it.
        with tempfile.TemporaryDirectory() as folder:
            nodes = _train(Path(folder), results, data, rounds, quiet=as_json)
        models = [load_model(node.model) for node in nodes]
    accuracy = get_measure("test accuracy")(
        np.stack([model.classifier.coef for model in models])[:, None], data.problem
    )
    by_itself, statement = alone_accuracy(data), models[0].privacy
    lines = _lines(data, rounds, seed, by_itself, accuracy)
    sentences = (
        f"{parties} of the demo's {PARTIES} parties took part, in one run; the fewer they are, the "
        "less there is to share.",
        verdict(
            f"At epsilon {Given(EPSILON)} with shared noise and {parties} nodes",
            mean_interval(accuracy, LEVEL),
            float(by_itself.max()),
        ),
    )
    if as_json:
        found = {
            "data": data.title,
            "headline": list(sentences),
            "when_not": [],
            "accuracy": [line.plain() for line in lines],
            "alone": by_itself.tolist(),
            "privacy": statement.to_dict(),
            "history": {},
            "plot": None,
            "report": None,
            "nodes": [_places(node) for node in nodes],
        }
        emit("demo", found)
    else:
        show_accuracy(data, lines)
        show_sentences("Does training together pay?", sentences)
        _show_nodes(nodes, statement, results)


def _lines(
    data: DemoData, rounds: int, seed: int, by_itself: Array, accuracy: Array
) -> tuple[Line, ...]:
    """Each alone, the same run simulated several times, at the nodes, and pooled."""
    each, total = data.problem.counts[0], sum(data.problem.counts)
    simulated = together(data, private_parameters("shared", rounds), seed).accuracy
    own = together(data, private_parameters("own", rounds), seed).accuracy
    return (
        Line("a party alone, no privacy: mean", each, by_itself.mean()[None]),
        Line("a party alone, no privacy: best", each, by_itself.max()[None]),
        Line("together, own noise, simulated", total, own, EPSILON),
        Line("together, shared noise, simulated", total, simulated, EPSILON),
        Line("together, shared noise, over TLS", total, accuracy, EPSILON),
        Line("pooled, no privacy", total, np.array([pooled_accuracy(data)])),
    )


def _show_nodes(nodes: list[LocalNode], statement: PrivacyStatement, results: Path) -> None:
    """Print what the first node states, and where everything is."""
    console.print(
        "\nThe nodes were processes of their own, over mutual TLS, each with a certificate that "
        "all others pin, a ledger and noise from the operating system.\nEvery node added up all "
        "nodes' words, masked so that nothing but the sum can be seen; all have the same model.",
        highlight=False,
    )
    show_statement(f"What {nodes[0].name} states for its rows", statement)
    console.print(f"\n[bold]What the nodes wrote to {results}[/bold]", highlight=False)
    for node in nodes:
        names = ", ".join(Path(file).name for file in list(_places(node).values())[1:])
        console.print(f"  {names}", highlight=False, soft_wrap=True)
    console.print(
        "\nNext:\n"
        "  docs/shared-noise.md                          who sees what\n"
        "  dpadmm node --help                            a node of your own\n"
        "  dpadmm cert --help                            its certificate\n"
        f"  dpadmm predict {results / nodes[0].name}.model FILE   its predictions for other rows",
        highlight=False,
    )


def _make_folder(results: Path) -> None:
    try:
        results.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ParameterError(
            f"results must be a folder that can be made; got {results}: {error.strerror}."
        ) from None


def _train(
    folder: Path, results: Path, data: DemoData, rounds: int, *, quiet: bool
) -> list[LocalNode]:
    """Write the files of all nodes and run them."""
    import pyarrow.parquet

    from dpadmm.algorithms.summed_gaussian import default_colluders
    from dpadmm.federation.local import run_nodes, write_federation
    from dpadmm.ledger.filters import Policy

    files = {}
    for name, table in zip(data.problem.names, data.tables, strict=True):
        file = folder / f"{name}.parquet"
        pyarrow.parquet.write_table(table, file)
        files[name] = (file, len(table))
    run = {
        "run_id": "demo",
        "algorithm": "dp-gd",
        "topology": "complete",
        "rounds": rounds,
        "epsilon": EPSILON,
        "delta": DELTA,
        "algorithm_options": {"noise": "shared"},
    }
    policy = Policy(EPSILON, DELTA, colluders=default_colluders(len(files)))
    nodes = write_federation(folder, results, data.schema, files, run, policy)
    with _watching(nodes, quiet=quiet or not console.is_terminal) as look:
        run_nodes(nodes, look)
    return nodes


@contextmanager
def _watching(nodes: list[LocalNode], *, quiet: bool) -> Iterator[Any]:
    """The table of ``dpadmm status`` while the nodes run."""
    from dpadmm.federation.status import read_statuses

    if quiet:
        yield lambda: None
        return
    with Live(console=console, transient=True, auto_refresh=False) as live:

        def look() -> None:
            there = [node.status for node in nodes if node.status.exists()]
            if there:
                live.update(status_table(read_statuses(there)), refresh=True)

        yield look


def _places(node: LocalNode) -> dict[str, str]:
    kinds = ("model", "report", "statement", "record", "log")
    return {"node": node.name, **{kind: str(getattr(node, kind)) for kind in kinds}}
