"""Where jobs are computed, kept and resumed: on this machine or a cluster."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, final

import joblib

from dpadmm.durable import write_whole
from dpadmm.errors import ParameterError, needs_extra, positive_integer, unknown_name
from dpadmm.experiments.job import Job, Result
from dpadmm.run.sealed import ModelError, pack, unpack
from dpadmm.version import __version__

__all__ = [
    "BACKENDS",
    "DamagedCellWarning",
    "OnDone",
    "Store",
    "WorkerError",
    "backend",
    "compute",
    "worker_died",
]

BACKENDS: Final = ("loky", "dask", "ray")

# How the three say that a process ended under a task.
_DEATHS: Final = {"TerminatedWorkerError", "KilledWorker", "WorkerCrashedError", "ActorDiedError"}


@contextmanager
def backend(name: str, jobs: int, address: str | None = None) -> Iterator[None]:
    """Let joblib use a backend inside the block.

    Parameters
    ----------
    name
        One of :data:`BACKENDS`.
    jobs
        Processes to start, where no cluster is named.
    address
        A running cluster of Dask or Ray. Its workers must see the same folders.
    """
    if name not in BACKENDS:
        raise unknown_name("backend", name, BACKENDS)
    if name == "loky":
        if address is not None:
            raise ParameterError(f"address must be left out for loky; got {address!r}.")
        with joblib.parallel_config(backend="loky", n_jobs=jobs):
            yield
    elif name == "dask":
        with _dask(jobs, address), joblib.parallel_config(backend="dask", n_jobs=jobs):
            yield
    else:
        _start_ray(jobs, address)
        with joblib.parallel_config(backend="ray", n_jobs=jobs):
            yield


def worker_died(error: BaseException) -> bool:
    """Whether an error says that a worker was killed."""
    return type(error).__name__ in _DEATHS


def _dask(jobs: int, address: str | None) -> Any:
    with needs_extra("dask"):
        from distributed import Client
    if address is not None:
        return Client(address)
    # A page to watch would open a port: nobody asked for one.
    return Client(n_workers=jobs, threads_per_worker=1, dashboard_address=None)


def _start_ray(jobs: int, address: str | None) -> None:
    with needs_extra("ray"):
        import ray
        from ray.util.joblib import register_ray
    if not ray.is_initialized():
        if address is not None:
            ray.init(address=address)
        else:
            ray.init(num_cpus=jobs, include_dashboard=False, log_to_driver=False)
    register_ray()


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


class WorkerError(RuntimeError):
    """A worker died; what was finished is kept."""


def compute(
    cells: Mapping[str, Job], store: Store, *, jobs: int = 1, on_done: OnDone | None = None
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


def _finish(label: str, cell: Job, folder: Path) -> tuple[str, float]:
    """Compute and keep one cell, in whichever process this is."""
    Store(folder).put(cell, cell.compute())
    return label, cell.weight


def _kept(label: str, cell: Job, store: Store) -> Result:
    result = store.get(cell)
    if result is None:
        raise ParameterError(
            f"the result of {label!r} must be readable in {store.folder}; it is gone or damaged. "
            "Do the workers see the same folder?"
        )
    return result
