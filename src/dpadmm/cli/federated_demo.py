"""``dpadmm demo --federated``: the demo's parties as processes of their own, over mutual TLS."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.live import Live

from dpadmm.cli.demo_runs import (
    DELTA,
    EPSILON,
    PARTIES,
    DemoData,
    Line,
    alone_accuracy,
    load_data,
    pooled_accuracy,
    private_parameters,
    together,
)
from dpadmm.cli.demo_words import (
    show_accuracy,
    show_sentences,
    show_statement,
    verdict,
)
from dpadmm.cli.output import console, emit, refusals
from dpadmm.cli.status import status_table
from dpadmm.errors import ParameterError
from dpadmm.experiments.measures import get_measure
from dpadmm.experiments.statistics import LEVEL, mean_interval
from dpadmm.plain import Array
from dpadmm.privacy.figures import Given

if TYPE_CHECKING:
    from dpadmm.federation.local import LocalNode
    from dpadmm.privacy.statement import PrivacyStatement


def federated_demo(parties: int, rounds: int, seed: int, results: Path, as_json: bool) -> None:
    """Train at real nodes with shared noise within epsilon = 1, and show what that reaches."""
    with refusals("demo", as_json):
        from dpadmm.run.model import load_model

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
