"""``dpadmm reproduce``: the figures and tables of the papers, rerun."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpadmm.cli.output import (
    JsonOption,
    cell_progress,
    emit,
    refusals,
    show_meaning,
    show_table,
    warn,
)

if TYPE_CHECKING:
    from dpadmm.experiments.jobs import Job
    from dpadmm_papers.experiment import Experiment


def reproduce_command(
    names: Annotated[
        list[str] | None, typer.Argument(help="Experiments; none lists all there are.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every experiment.")] = False,
    listing: Annotated[
        bool,
        typer.Option("--list", help="List experiments: what they show, need and take; run none."),
    ] = False,
    output: Annotated[
        Path, typer.Option(help="Folder for figures, data, manifests, pages.")
    ] = Path("dpadmm-reproduction"),
    jobs: Annotated[int, typer.Option(min=1, help="Processes to use.")] = 2,
    as_json: JsonOption = False,
) -> None:
    """Rerun the figures and tables of the papers, as published and as proven, side by side.

    Example: `dpadmm reproduce pr-admm-figure-2`

    Without a name it lists the experiments. Each writes `figure.svg`, `figure.csv`, `figure.npz`,
    `manifest.json`, `page.md` and `report.html` to its folder under the output folder. For each of
    the paper's conclusions it says whether the conclusion stands, does not stand or is not
    decided, by a criterion that its page states: after 10 runs, and after 60 if 10 do not
    decide. `cells/` there keeps finished work: the same command continues where it stopped.
    """
    from dpadmm_papers.experiment import get_experiment, known_experiments

    kept = f"What is finished is kept in {output / 'cells'}: the same command goes on."
    with refusals("reproduce", as_json, kept):
        known = known_experiments()
        chosen = list(known) if everything else (names or [])
        experiments = [get_experiment(name) for name in chosen]
        if listing or not experiments:
            _list(experiments or list(known.values()), as_json)
            return
        summaries = _rerun(experiments, output, jobs, quiet=as_json)
    if as_json:
        emit("reproduce", {"experiments": summaries})
        return
    for summary in summaries:
        _show(summary)


def _show(summary: dict[str, Any]) -> None:
    """What came of an experiment."""
    show_table(
        f"{summary['part']}: {summary['title']}",
        ("conclusion", "calibration", "choice", "verdict", "number"),
        [
            (
                each["conclusion"],
                {"published": "as published"}.get(each["calibration"], each["calibration"]),
                f"{each['choice']}: {each['variant']}" if "choice" in each else "",
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
    """Look once at all, again at those that need it, and write the pages."""
    import joblib

    from dpadmm.experiments.jobs import Store, compute

    store = Store(output / "cells")
    pool = joblib.Parallel(n_jobs=min(jobs, len(experiments)))
    # All cells of a look first, so that no process waits for the end of an experiment.
    first = {
        f"{experiment.name}, {label}": cell
        for experiment in experiments
        for label, cell in experiment.cells().items()
    }
    with cell_progress("first look", quiet=quiet) as on_done:
        compute(first, store, jobs=jobs, on_done=on_done)
    wanted = pool(joblib.delayed(_further)(experiment, output) for experiment in experiments)
    second = {label: cell for cells in wanted for label, cell in cells.items()}
    if second:
        with cell_progress("second look", quiet=quiet) as on_done:
            compute(second, store, jobs=jobs, on_done=on_done)
    summaries: list[dict[str, Any]] = pool(
        joblib.delayed(_page)(experiment, output) for experiment in experiments
    )
    _write_contents(output)
    return summaries


def _further(experiment: Experiment, output: Path) -> dict[str, Job]:
    """What the second look of an experiment needs, all of whose first cells are computed."""
    from dpadmm.experiments.jobs import Store, compute
    from dpadmm_papers.experiment import first_look

    results = compute(experiment.cells(), Store(output / "cells"))
    look = first_look(experiment, results)
    return {f"{experiment.name}, {label}": cell for label, cell in look.further.items()}


def _page(experiment: Experiment, output: Path) -> dict[str, Any]:
    """Write what an experiment leaves, all of whose cells are computed; and sum it up."""
    from dpadmm.experiments.jobs import Store
    from dpadmm_papers.pages import reproduce

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


def _write_contents(output: Path) -> None:
    """List every experiment that the folder has, whenever it was rerun."""
    import json

    from dpadmm.durable import write_whole
    from dpadmm_papers.experiment import known_experiments
    from dpadmm_papers.manifests import MANIFEST_VERSION
    from dpadmm_papers.pages import contents_page

    places = [output / name / "manifest.json" for name in known_experiments()]
    found = [json.loads(place.read_text()) for place in places if place.exists()]
    manifests = [manifest for manifest in found if manifest.get("version") == MANIFEST_VERSION]
    for manifest in found:
        if manifest not in manifests:
            warn(
                f"{manifest['experiment']} is left out of the index: its manifest is of another "
                "version. Rerun it."
            )
    write_whole(output / "index.md", contents_page(manifests).encode(), "index")


def _list(experiments: list[Experiment], as_json: bool) -> None:
    """What each shows, which data it needs and whether they are there, how long it takes."""
    from dpadmm.experiments.problems import missing_data

    needed = {each.name: each.datasets() for each in experiments}
    missing = missing_data(name for names in needed.values() for name in names)
    if as_json:
        emit(
            "reproduce",
            {
                "known": [
                    {
                        "experiment": each.name,
                        "part": each.part,
                        "title": each.title,
                        "citation": each.citation,
                        "datasets": {
                            name: missing.get(name, "") or "there" for name in needed[each.name]
                        },
                        "seconds_on_two_cores": each.seconds,
                    }
                    for each in experiments
                ]
            },
        )
        return
    show_table(
        "Experiments",
        ("name", "part", "shows", "data", "two cores"),
        [
            (
                each.name,
                each.part,
                each.title,
                ", ".join(
                    f"{name} (missing)" if name in missing else name for name in needed[each.name]
                ),
                f"{each.seconds / 60:.1f} min" if each.seconds else "not measured",
            )
            for each in experiments
        ],
    )
    for name, why in missing.items():
        typer.echo(f"{name} is missing: {why}")
    typer.echo("Run one with: dpadmm reproduce NAME, or all with: dpadmm reproduce --all")
