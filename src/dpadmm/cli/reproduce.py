"""``dpadmm reproduce``: the figures and tables of the papers, rerun."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpadmm.cli.output import JsonOption, emit, refusals, show_meaning, show_table, warn
from dpadmm.cli.progress import cell_progress

if TYPE_CHECKING:
    from dpadmm.experiments.experiment import Experiment

__all__ = ["reproduce_command"]


def reproduce_command(
    names: Annotated[
        list[str] | None, typer.Argument(help="Experiments; none lists all there are.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every experiment.")] = False,
    output: Annotated[
        Path, typer.Option(help="Folder for figures, data, manifests, pages.")
    ] = Path("dpadmm-reproduction"),
    jobs: Annotated[int, typer.Option(min=1, help="Processes to use.")] = 2,
    as_json: JsonOption = False,
) -> None:
    """Rerun the figures and tables of the papers, as published and as proven, side by side.

    Without a name it lists the experiments. Each leaves `figure.svg`, `figure.csv`,
    `manifest.json`, `page.md` and `report.html` in its folder under the output folder, and says of
    each of the paper's conclusions whether it stands, by a criterion that was fixed beforehand.
    Finished work is kept in `cells/` there: the same command, run again, goes on where it stopped.
    """
    from dpadmm.experiments.experiment import get_experiment, known_experiments

    with refusals("reproduce", as_json):
        known = known_experiments()
        chosen = list(known) if everything else (names or [])
        experiments = [get_experiment(name) for name in chosen]
        if not experiments:
            _list(list(known.values()), as_json)
            return
        summaries = _rerun(experiments, output, jobs, quiet=as_json)
    if as_json:
        emit("reproduce", {"experiments": summaries})
        return
    for summary in summaries:
        show_table(
            f"{summary['part']}: {summary['title']}",
            ("conclusion", "calibration", "verdict", "number"),
            [
                (
                    each["conclusion"],
                    {"published": "as published"}.get(each["calibration"], each["calibration"]),
                    each["verdict"],
                    each["number"],
                )
                for each in summary["findings"]
            ],
        )
        show_meaning(summary["meaning"])
        typer.echo(f"{summary['folder']}, {summary['seconds']:g} s of computing\n")


def _rerun(
    experiments: list[Experiment], output: Path, jobs: int, *, quiet: bool
) -> list[dict[str, Any]]:
    import joblib

    from dpadmm.experiments.runner import Store, compute

    store = Store(output / "cells")
    # All cells first, so that no process waits for the end of an experiment.
    cells = {
        f"{experiment.name}, {label}": cell
        for experiment in experiments
        for label, cell in experiment.cells().items()
    }
    with cell_progress("computing", quiet=quiet) as on_done:
        compute(cells, store, jobs=jobs, on_done=on_done)
    pages = joblib.Parallel(n_jobs=min(jobs, len(experiments)))
    summaries: list[dict[str, Any]] = pages(
        joblib.delayed(_page)(experiment, output) for experiment in experiments
    )
    _write_index(output)
    return summaries


def _page(experiment: Experiment, output: Path) -> dict[str, Any]:
    """Write what an experiment leaves, all of whose cells are computed; and sum it up."""
    from dpadmm.experiments.pages import reproduce
    from dpadmm.experiments.runner import Store

    done = reproduce(experiment, output / experiment.name, Store(output / "cells"))
    return {
        "experiment": experiment.name,
        "part": experiment.part,
        "title": experiment.title,
        "findings": done.manifest["findings"],
        "meaning": done.manifest["meaning"],
        "stand_ins": done.manifest["stand_ins"],
        "folder": str(done.folder),
        "seconds": done.manifest["cell_seconds"],
    }


def _write_index(output: Path) -> None:
    """List every experiment that the folder has, whenever it was rerun."""
    import json

    from dpadmm.durable import write_whole
    from dpadmm.experiments.experiment import known_experiments
    from dpadmm.experiments.pages import index_page

    places = [output / name / "manifest.json" for name in known_experiments()]
    found = [json.loads(place.read_text()) for place in places if place.exists()]
    manifests = [manifest for manifest in found if "meaning" in manifest]
    for manifest in found:
        if "meaning" not in manifest:
            warn(
                f"{manifest['experiment']} is left out of the index: its page does not say what "
                "its epsilons mean. Rerun it."
            )
    write_whole(output / "index.md", index_page(manifests).encode(), "index")


def _list(experiments: list[Experiment], as_json: bool) -> None:
    if as_json:
        emit(
            "reproduce",
            {
                "known": [
                    {"experiment": each.name, "part": each.part, "title": each.title}
                    for each in experiments
                ]
            },
        )
        return
    show_table(
        "Experiments",
        ("name", "part", "shows"),
        [(each.name, each.part, each.title) for each in experiments],
    )
    typer.echo("Run one with: dpadmm reproduce NAME, or all with: dpadmm reproduce --all")
