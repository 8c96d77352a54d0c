"""Where jobs are computed, kept and resumed: on this machine or a cluster."""

from __future__ import annotations

import json
import logging
import socket
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, final

import joblib

from dpadmm.durable import write_whole
from dpadmm.errors import ParameterError, needs_extra, positive_integer, unknown_name
from dpadmm.experiments.job import Job, Result
from dpadmm.run.sealed import ModelError, pack, unpack
from dpadmm.solvers.cluster import Cluster
from dpadmm.version import __version__

__all__ = [
    "BACKENDS",
    "DamagedCellWarning",
    "OnDone",
    "Store",
    "WorkerError",
    "compute",
]

_FORMAT: Final = "dpadmm-cells/1"

_LABEL: Final = "store.json"


class DamagedCellWarning(UserWarning):
    """A kept result that is damaged; it is computed again."""


@final
class Store:
    """A folder of finished cells, one file each, written whole.

    Parameters
    ----------
    folder
        Made if it is not there. One that another version of this package wrote is refused: its
        figures may differ from what this version computes.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        label = folder / _LABEL
        wanted = {"format": _FORMAT, "dpadmm": __version__}
        if label.exists():
            try:
                found = json.loads(label.read_text())
            except ValueError:
                found = None
            if found != wanted:
                has = found.get("dpadmm", "unknown") if isinstance(found, dict) else "unknown"
                raise ParameterError(
                    f"results in {folder} must be of this version of dpadmm, {__version__}; they "
                    f"are of {has}. Name another folder, or remove this one."
                )
            return
        if folder.exists() and any(folder.iterdir()):
            raise ParameterError(
                f"folder must be new, empty or one that dpadmm keeps results in; got {folder}, "
                "which holds something else. Name another."
            )
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(label, json.dumps(wanted).encode(), "label of the results")

    def path(self, cell: Job) -> Path:
        """Where the cell's result is or will be."""
        return self.folder / f"{cell.key}.cell"

    def get(self, cell: Job) -> Result | None:
        """The result, if the cell is finished; a damaged one counts as not finished."""
        path = self.path(cell)
        if not path.exists():
            return None
        try:
            document, arrays = unpack(path.read_bytes(), str(path))
        except ModelError:
            warnings.warn(
                f"{path} is damaged: its cell is computed again.", DamagedCellWarning, stacklevel=2
            )
            return None
        return Result(arrays, document["facts"])

    def put(self, cell: Job, result: Result) -> None:
        """Keep a result, whole or not at all."""
        document: dict[str, Any] = {"cell": cell.description(), "facts": result.facts}
        plain = json.loads(json.dumps(document, default=dict))
        write_whole(self.path(cell), pack(plain, result.values), "result of a cell")


#: Called with the weight that is done, the whole weight, and what was finished.
OnDone = Callable[[float, float, str], None]

#: Cells to compute, by labels; and what comes of them.
_Items = list[tuple[str, Job]]
_Finished = tuple[str, Result]


class WorkerError(RuntimeError):
    """A worker died; what was finished is kept."""


def compute(
    cells: Mapping[str, Job],
    store: Store,
    *,
    jobs: int = 1,
    backend: str = "loky",
    address: str | None = None,
    on_done: OnDone | None = None,
) -> dict[str, Result]:
    """The result of every cell, by its label; those in the store are not computed again.

    Parameters
    ----------
    cells
        What to do, by labels for people.
    store
        Where results are kept, by this process: workers of a cluster need not see it.
    jobs
        Processes to start, where no cluster is named; 1 computes here, by loky.
    backend
        One of :data:`BACKENDS`.
    address
        A running cluster of Dask or Ray, all of whose workers are used. They must see the files
        that cells read.
    on_done
        Told of progress; what the store had counts as done at the start.

    Raises
    ------
    ParameterError
        If there is no such cluster, it has no workers or they have other versions.
    WorkerError
        If workers died, and their cells with them: on this machine one, on a cluster several, or
        the last. What one of many had in hand runs again elsewhere.
    """
    positive_integer("jobs", jobs)
    _check_backend(backend, address)
    by_key = {cell.key: (label, cell) for label, cell in cells.items()}
    whole = sum(cell.weight for _, cell in by_key.values())
    missing = [item for item in by_key.values() if store.get(item[1]) is None]
    done = whole - sum(cell.weight for _, cell in missing)
    tell = on_done or (lambda done, whole, label: None)
    tell(done, whole, "")
    # The heaviest first: no long cell is left for the end, when other workers have nothing to do.
    missing.sort(key=lambda item: -item[1].weight)
    for label, result in _finished(missing, jobs, backend, address):
        store.put(cells[label], result)
        done += cells[label].weight
        tell(done, whole, label)
    return {label: _kept(label, cell, store) for label, cell in cells.items()}


def _check_backend(backend: str, address: str | None) -> None:
    if backend not in _RUNS:
        raise unknown_name("backend", backend, BACKENDS)
    if backend == "loky" and address is not None:
        raise ParameterError(f"address must be left out for loky; got {address!r}.")


def _finished(items: _Items, jobs: int, backend: str, address: str | None) -> Iterator[_Finished]:
    """Results as they come; where nothing is left to do, no cluster is asked."""
    try:
        yield from _RUNS[backend](items, jobs, address) if items else ()
    except Exception as error:
        if type(error).__name__ not in _DEATHS:
            raise
        raise WorkerError(
            "workers were killed, perhaps for want of memory; finished cells are kept. Run the "
            f"same command again to go on, with fewer jobs than {jobs} if memory is short."
        ) from None


def _kept(label: str, cell: Job, store: Store) -> Result:
    result = store.get(cell)
    if result is None:
        raise ParameterError(
            f"the result of {label!r} must be readable in {store.folder}; it is gone or damaged: "
            "run the same command again."
        )
    return result


# -- where cells are computed -------------------------------------------------------------------


def _on_loky(items: _Items, jobs: int, address: None) -> Iterator[_Finished]:
    calls = [joblib.delayed(_finish)((label, cell, cell.key)) for label, cell in items]
    parallel = joblib.Parallel(
        n_jobs=jobs, backend="loky", return_as="generator_unordered", batch_size=1
    )
    yield from parallel(calls)


def _on_dask(items: _Items, jobs: int, address: str | None) -> Iterator[_Finished]:
    with needs_extra("dask"):
        from distributed import LocalCluster
    with ExitStack() as stack:
        if address is None:
            # A page to watch would open a port: nobody asked for one.
            own = LocalCluster(n_workers=jobs, threads_per_worker=1, dashboard_address=None)
            address = stack.enter_context(own).scheduler_address
        cluster = stack.enter_context(Cluster(address))
        yield from cluster.each(_finish, [(label, cell, cell.key) for label, cell in items])


def _on_ray(items: _Items, jobs: int, address: str | None) -> Iterator[_Finished]:
    with needs_extra("ray"):
        import ray
    if ray.is_initialized() and address is not None:
        raise ParameterError(
            f"address must be left out where this process is connected to Ray; got {address!r}."
        )
    with ExitStack() as stack:
        if not ray.is_initialized():
            own = {"num_cpus": jobs, "include_dashboard": False} if address is None else {}
            try:
                # Ray itself would try for minutes, and say why in pages.
                host, _, port = (address or "").removeprefix("ray://").rpartition(":")
                if port.isdecimal():
                    socket.create_connection((host, int(port)), timeout=_CONNECT).close()
                ray.init(
                    address=address or "local",
                    log_to_driver=False,
                    logging_level=logging.WARNING,
                    **own,
                )
            except (OSError, OverflowError, ValueError) as error:
                raise ParameterError(
                    f"address must be of a Ray cluster that answers; got {address!r}: "
                    f"{type(error).__name__}. Start it (ray start --head), correct the address, or "
                    "give this process the cluster's token (RAY_AUTH_TOKEN)."
                ) from None
            stack.callback(ray.shutdown)
        # Ray's own backend for joblib gives results all at the end, and none if a process dies.
        task = ray.remote(num_cpus=1, max_retries=_RETRIES)(_finish)
        waiting = [task.remote((label, cell, cell.key)) for label, cell in items]
        while waiting:
            done, waiting = ray.wait(waiting)
            yield from ray.get(done)


_RUNS: Final[dict[str, Callable[[_Items, int, Any], Iterator[_Finished]]]] = {
    "loky": _on_loky,
    "dask": _on_dask,
    "ray": _on_ray,
}
BACKENDS: Final = tuple(_RUNS)

# Seconds to reach the head of a Ray cluster.
_CONNECT: Final = 10.0
# How often Ray begins a cell again whose process died; Dask's own number is the same.
_RETRIES: Final = 3
# How the three say that processes ended under a task, too often or all of them.
_DEATHS: Final = {"TerminatedWorkerError", "KilledWorker", "WorkerCrashedError", "ClusterError"}


def _finish(item: tuple[str, Job, str]) -> _Finished:
    """Compute one cell, in whichever process this is."""
    label, cell, key = item
    if cell.key != key:
        raise ParameterError(
            f"workers must have the version of dpadmm that asks; this one has {__version__}: "
            "install the same there."
        )
    return label, cell.compute()
