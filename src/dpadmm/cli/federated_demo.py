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
    DEMO_REGULARIZATION,
    DemoData,
    accuracies,
    demo_result,
    load_data,
    score,
    show_accuracy,
    show_statement,
    together,
)
from dpadmm.cli.output import console, emit, refusals
from dpadmm.cli.progress import rounds_bar
from dpadmm.cli.status import status_table
from dpadmm.errors import ParameterError
from dpadmm.privacy.figures import Given

if TYPE_CHECKING:
    import pyarrow as pa

    from dpadmm.data.schema import Schema
    from dpadmm.federation.local import LocalNode
    from dpadmm.privacy.statement import PrivacyStatement

_EPSILON = 1.0


def federated_demo(rounds: int, seed: int, results: Path, *, as_json: bool) -> None:
    """Train at five nodes within epsilon = 1, and show what their models reach."""
    with refusals("demo", as_json):
        from dpadmm.run.model import load_model

        _make_folder(results)
        raw = load_data(seed)
        data, schema = _encoded(raw)
        with rounds_bar(quiet=as_json, shown=True) as progress:
            rows = accuracies(data)
            simulated, _ = together(data, rounds, seed, progress, budgets=(_EPSILON,))
        rows += simulated["rows"]
        # Keys, ledgers and rows go with the folder; nobody else may look into it.
        with tempfile.TemporaryDirectory() as folder:
            nodes = _train(Path(folder), results, raw, schema, rounds, quiet=as_json)
        models = {node.name: load_model(node.model) for node in nodes}
    total = sum(len(labels) for _, labels in data.members)
    for name, model in models.items():
        accuracy = score(data, model.classifier.coef[0])
        rows.append((f"federated, epsilon = {Given(_EPSILON)}, model of {name}", total, accuracy))
    statement = models[nodes[0].name].privacy
    if as_json:
        places = {"plot": None, "report": None, "nodes": [_places(node) for node in nodes]}
        emit("demo", demo_result(data, rows, statement) | {"history": {}} | places)
    else:
        show_accuracy(data, rows)
        _show_nodes(nodes, statement, results)


def _show_nodes(nodes: list[LocalNode], statement: PrivacyStatement, results: Path) -> None:
    """Print what the first node states, and where everything is."""
    console.print(
        "\nThe nodes were processes of their own, over mutual TLS, each with a certificate, a "
        "ledger and noise from the operating system.\nOn a ring a node's model is the mean of its "
        "own messages and its neighbours'.",
        highlight=False,
    )
    show_statement(f"What {nodes[0].name} states for its rows", statement)
    console.print(f"\n[bold]What the nodes wrote to {results}[/bold]", highlight=False)
    for node in nodes:
        names = ", ".join(Path(file).name for file in list(_places(node).values())[1:])
        console.print(f"  {names}", highlight=False, soft_wrap=True)
    console.print(
        "\nNext:\n"
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


def _encoded(data: DemoData) -> tuple[DemoData, Schema]:
    """The demo's rows as a public schema encodes them, which is how nodes read files."""
    from dpadmm.data.schema import Label, NumericColumn, Schema
    from dpadmm.data.tables import encode

    # Adult's are between 0 and 1 already and stay as they are. The waves are sums of a triangle
    # of height 6 and noise of variance 1, divided by 16.
    adult = bool(min(rows.min() for rows, _ in data.members) >= 0)
    lower, upper = (0.0, 1.0) if adult else (-3 / 16, 9 / 16)
    columns = tuple(
        NumericColumn(name=f"x{number}", lower=lower, upper=upper, missing=False)
        for number in range(data.test_rows.shape[1])
    )
    label = Label(column="y", classes=("-1", "1"))
    schema = Schema(label=label, columns=columns, constant=not adult)

    def encoded(rows: Any, labels: Any) -> tuple[Any, Any]:
        found = encode(_table(rows, labels), schema, layout="dense")
        return np.asarray(found.rows), found.signs

    members = [encoded(rows, labels) for rows, labels in data.members]
    test_rows, test_labels = encoded(data.test_rows, data.test_labels)
    dealt = data._replace(members=members, test_rows=test_rows, test_labels=test_labels)
    return dealt, schema


def _table(rows: Any, labels: Any) -> pa.Table:
    import pyarrow as pa

    columns = {f"x{number}": column for number, column in enumerate(np.asarray(rows).T)}
    return pa.table(columns | {"y": np.asarray(labels).astype(np.int8)})


def _train(
    folder: Path, results: Path, data: DemoData, schema: Schema, rounds: int, *, quiet: bool
) -> list[LocalNode]:
    """Write the files of all nodes and run them."""
    import pyarrow.parquet

    from dpadmm.federation.local import run_nodes, write_federation
    from dpadmm.ledger.filters import Policy

    files = {}
    for number, (rows, labels) in enumerate(data.members):
        file = folder / f"party-{number}.parquet"
        pyarrow.parquet.write_table(_table(rows, labels), file)
        files[f"party-{number}"] = (file, len(labels))
    run = {
        "run_id": "demo",
        "algorithm": "pr-admm",
        "topology": "ring",
        "rounds": rounds,
        "epsilon": _EPSILON,
        "delta": DELTA,
        "regularization": DEMO_REGULARIZATION,
    }
    nodes = write_federation(folder, results, schema, files, run, Policy(_EPSILON, DELTA))
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
