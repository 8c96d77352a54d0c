"""Computes the cells that are missing, in parallel, and says how long it will take.

The work goes through joblib, so that a backend of Dask or Ray serves too: whoever wants one calls
:func:`compute` inside ``joblib.parallel_config(backend=...)``. A worker saves what it finished
itself; a run that is killed loses only the cells at work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import joblib
from joblib.externals.loky.process_executor import TerminatedWorkerError

from dpadmm.errors import ParameterError, positive_integer
from dpadmm.experiments.cells import Cell, Result
from dpadmm.experiments.store import Store

__all__ = ["WorkerError", "compute"]

#: Called with the weight that is done, the whole weight, and what was finished.
OnDone = Callable[[float, float, str], None]


class WorkerError(RuntimeError):
    """A worker died; what was finished is kept."""


def compute(
    cells: Mapping[str, Cell], store: Store, *, jobs: int = 1, on_done: OnDone | None = None
) -> dict[str, Result]:
    """The result of every cell, by its label; those in the store are not computed again.

    Parameters
    ----------
    cells
        What to do, by labels for people.
    store
        Where results are kept.
    jobs
        Processes to use; 1 computes here.
    on_done
        Told of progress; what the store had counts as done at the start.
    """
    positive_integer("jobs", jobs)
    by_key = {cell.key: (label, cell) for label, cell in cells.items()}
    whole = sum(cell.weight for _, cell in by_key.values())
    missing = {key: item for key, item in by_key.items() if store.get(item[1]) is None}
    done = whole - sum(cell.weight for _, cell in missing.values())
    tell = on_done or (lambda done, whole, label: None)
    tell(done, whole, "")
    # The heaviest first: no long cell is left for the end, when other workers have nothing to do.
    order = sorted(missing.values(), key=lambda item: -item[1].weight)
    calls = (joblib.delayed(_finish)(label, cell, store.folder) for label, cell in order)
    try:
        for label, weight in joblib.Parallel(n_jobs=jobs, return_as="generator_unordered")(calls):
            done += weight
            tell(done, whole, label)
    except TerminatedWorkerError:
        raise WorkerError(
            "a worker was killed, perhaps for want of memory; finished cells are kept. Run the "
            f"same command again to go on, with fewer jobs than {jobs}."
        ) from None
    found = {label: store.get(cell) for label, cell in cells.items()}
    for label, result in found.items():
        if result is None:
            raise ParameterError(f"the result of {label!r} must be readable; it was damaged.")
    return {label: result for label, result in found.items() if result is not None}


def _finish(label: str, cell: Cell, folder: Path) -> tuple[str, float]:
    """Compute and keep one cell, in whichever process this is."""
    Store(folder).put(cell, cell.compute())
    return label, cell.weight
