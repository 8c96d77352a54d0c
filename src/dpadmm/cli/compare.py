"""``dpadmm compare``: algorithms side by side on a data set of the user's."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpadmm.cli.output import (
    AddressOption,
    BackendOption,
    JsonOption,
    cell_progress,
    console,
    emit,
    refusals,
    show_meaning,
    show_table,
    takes,
)
from dpadmm.errors import ParameterError
from dpadmm.privacy.figures import Given
from dpadmm.run.options import AUTO, DEFAULT

if TYPE_CHECKING:
    from dpadmm.experiments.comparison import Comparison
    from dpadmm.experiments.problems import ProblemSource
    from dpadmm.run.options import TrainingParameters


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """What ``dpadmm compare`` is asked."""

    data: Annotated[
        str, typer.Argument(help="A named data set such as adult, or a configuration (run.toml).")
    ]
    algorithm: Annotated[
        list[str] | None,
        typer.Option(
            help="An algorithm, with options if any: pr-admm, 'dvp:noise=gaussian'. Repeatable; "
            "a good selection unless given."
        ),
    ] = None
    epsilon: Annotated[str, typer.Option(help="Budgets, separated by commas.")] = "0.1,1,10"
    delta: Annotated[
        float | None,
        typer.Option(help=f"Of every budget; the configuration's, or {Given(DEFAULT.delta)}."),
    ] = None
    topology: Annotated[str, typer.Option(help="Graphs, separated by commas.")] = "ring"
    calibration: Annotated[str, typer.Option(help="proven, published, or both.")] = (
        DEFAULT.calibration
    )
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Messages; each algorithm has its own number.")
    ] = None
    parties: Annotated[int, typer.Option(min=2, help="Parties of a named data set.")] = 5
    rows_per_party: Annotated[
        int, typer.Option(min=0, help="Rows of each party of a named data set; 0: all.")
    ] = 0
    test_rows: Annotated[
        float, typer.Option(min=0, help="Held-out rows of a named data set, or their share.")
    ] = 0.2
    public_evaluation: Annotated[
        Path | None,
        typer.Option(
            help="With a configuration: a file of rows to judge by. By naming it you declare its "
            "rows public."
        ),
    ] = None
    runs: Annotated[int, typer.Option(min=1, help="Repeated runs of each.")] = 10
    splits: Annotated[int, typer.Option(min=1, help="Random splits of a named data set.")] = 1
    seed: Annotated[int, typer.Option(min=0, help="Seed of the noise and the splits.")] = 0
    output: Annotated[Path, typer.Option(help="Folder for table, figure, manifest.")] = Path(
        "dpadmm-comparison"
    )
    jobs: Annotated[int, typer.Option(min=1, help="Processes to use.")] = 2
    backend: BackendOption = "loky"
    address: AddressOption = None
    as_json: JsonOption = False


@takes(CompareOptions)
def compare(options: CompareOptions) -> None:
    """Compare algorithms, budgets and graphs with each other and with the alternatives.

    Example: `dpadmm compare adult --epsilon 0.1,1 --parties 20`

    The table also has the pooled optimum, each party alone without privacy and within the same
    budget, and central training (gradient descent, objective perturbation, AMP) at the same total
    budget. Its first sentence says whether training together pays. Everything is a simulation: if
    the rows are private, no budget covers the figures.

    `cells/` in the output folder keeps finished work. After a crash the same command continues
    where it stopped and gives the same table.
    """
    from dpadmm.experiments.comparison_pages import write_comparison
    from dpadmm.experiments.jobs import Store, compute

    output = options.output
    kept = f"What is finished is kept in {output / 'cells'}: the same command goes on."
    with refusals("compare", options.as_json, kept):
        told = _comparison(options)
        told.check()
        store = Store(output / "cells")
        with cell_progress("comparing", quiet=options.as_json) as on_done:
            results = compute(
                told.cells(),
                store,
                jobs=options.jobs,
                backend=options.backend,
                address=options.address,
                on_done=on_done,
            )
        command = "dpadmm " + " ".join(sys.argv[1:])
        manifest = write_comparison(told, results, output, command)
    if options.as_json:
        emit("compare", {"folder": str(output), **manifest})
    else:
        _show(manifest, output)


def _comparison(options: CompareOptions) -> Comparison:
    from dpadmm.experiments.comparison import Comparison, default_entries, parse_entry
    from dpadmm.run.options import CALIBRATIONS

    problem, parameters = _problem(options)
    parameters = replace(
        parameters,
        algorithm_options={},
        delta=parameters.delta if options.delta is None else options.delta,
        rounds=options.rounds or parameters.rounds,
    )
    entries = options.algorithm or default_entries(len(problem.load().counts))
    both = options.calibration == "both"
    return Comparison(
        problem,
        parameters,
        tuple(parse_entry(text) for text in entries),
        epsilons=_numbers("--epsilon", options.epsilon),
        topologies=tuple(options.topology.split(",")),
        calibrations=CALIBRATIONS if both else (options.calibration,),
        runs=options.runs,
        splits=options.splits,
        seed=options.seed,
    )


def _problem(options: CompareOptions) -> tuple[ProblemSource, TrainingParameters]:
    """The rows to compare on, and how to train on them."""
    from dpadmm.experiments.problems import FileProblem, NamedProblem
    from dpadmm.run.config import load_config, load_toml
    from dpadmm.run.options import TrainingParameters

    data, public = options.data, options.public_evaluation
    if data.endswith(".toml"):
        if public is None:
            raise ParameterError(
                "--public-evaluation must name a file of public rows to judge by, with a "
                f"configuration; got none with {data}."
            )
        problem = FileProblem.of(Path(data), public)
        config = load_config(data)
        # What is automatic is every algorithm's own, not that of the configuration's.
        asked = load_toml(data, "configuration").get("run", {})
        return problem, replace(
            config.parameters([party.name for party in config.party]),
            loss=asked.get("loss", DEFAULT.loss),
            rounds=asked.get("rounds", AUTO),
            algorithm_chosen=False,
        )
    if public is not None:
        raise ParameterError(
            "--public-evaluation goes with a configuration; a named data set holds rows back "
            "itself (--test-rows)."
        )
    named = NamedProblem(
        data, options.parties, options.rows_per_party, options.test_rows, split_seed=options.seed
    )
    return named, TrainingParameters(algorithm="admm")


def _numbers(option: str, text: str) -> tuple[float, ...]:
    try:
        return tuple(float(word) for word in text.split(","))
    except ValueError:
        raise ParameterError(
            f"{option} must be numbers separated by commas; got {text!r}."
        ) from None


def _show(manifest: dict[str, Any], output: Path) -> None:
    from dpadmm.experiments.comparison_pages import short_table

    console.print(manifest["headline"], style="bold", highlight=False)
    table = short_table(manifest)
    title = f"{manifest['data']['dataset']}: {manifest['data']['source']}"
    # The graph beside who trained: the columns then fit a terminal of 80.
    rows = [(f"{who}, {graph}" if graph else who, *more) for who, graph, *more in table.rows]
    show_table(title, ("who", *table.columns[2:]), rows)
    refused = {line["who"]: line["refused"] for line in manifest["lines"] if line["refused"]}
    for who, reason in refused.items():
        typer.echo(f"{who} was refused: {reason}")
    show_meaning(manifest["meaning"])
    typer.echo(f"{manifest['intervals'][0].upper()}{manifest['intervals'][1:]}.")
    console.print(manifest["notice"], style="bold", highlight=False)
    typer.echo(f"Table, figure and manifest: {output}")
    typer.echo(f"Report (open it in a browser): {output / 'report.html'}")
