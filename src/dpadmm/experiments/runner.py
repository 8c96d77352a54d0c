"""Computes the cells that are missing, in parallel, and tells of progress.

The work goes through joblib, on the backend that is in force
(:func:`dpadmm.experiments.backends.backend`). A worker saves what it finished itself, so that a run
that is killed loses only the cells at work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import joblib

from dpadmm.errors import ParameterError, positive_integer
from dpadmm.experiments.backends import worker_died
from dpadmm.experiments.cells import Cell, Result
from dpadmm.experiments.store import Store

__all__ = ["OnDone", "WorkerError", "compute"]

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
    missing = [item for item in by_key.values() if store.get(item[1]) is None]
    done = whole - sum(cell.weight for _, cell in missing)
    tell = on_done or (lambda done, whole, label: None)
    tell(done, whole, "")
    # The heaviest first: no long cell is left for the end, when other workers have nothing to do.
    missing.sort(key=lambda item: -item[1].weight)
    calls = [joblib.delayed(_finish)(label, cell, store.folder) for label, cell in missing]
    try:
        for label, weight in _parallel(jobs)(calls) if calls else ():
            done += weight
            tell(done, whole, label)
    except Exception as error:
        if not worker_died(error):
            raise
        raise WorkerError(
            "a worker was killed, perhaps for want of memory; finished cells are kept. Run the "
            f"same command again to go on, with fewer jobs than {jobs} if memory is short."
        ) from None
    return {label: _kept(label, cell, store) for label, cell in cells.items()}


def _parallel(jobs: int) -> joblib.Parallel:
    """Results as they come, where the backend can; Ray's gives them all at the end."""
    active, _ = joblib.parallel.get_active_backend()
    as_they_come = jobs == 1 or active.supports_return_generator
    return joblib.Parallel(
        n_jobs=jobs, return_as="generator_unordered" if as_they_come else "list", batch_size=1
    )


def _finish(label: str, cell: Cell, folder: Path) -> tuple[str, float]:
    """Compute and keep one cell, in whichever process this is."""
    Store(folder).put(cell, cell.compute())
    return label, cell.weight


def _kept(label: str, cell: Cell, store: Store) -> Result:
    result = store.get(cell)
    if result is None:
        raise ParameterError(
            f"the result of {label!r} must be readable in {store.folder}; it is gone or damaged. "
            "Do the workers see the same folder?"
        )
    return result
