"""Where cells are computed: joblib's own processes, or a cluster of Dask or Ray."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import joblib

from dpadmm.errors import ParameterError, unknown_name

__all__ = ["BACKENDS", "backend", "worker_died"]

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
    try:
        from distributed import Client
    except ImportError:
        raise _missing("dask", "dask[distributed]") from None
    if address is not None:
        return Client(address)
    # A page to watch would open a port: nobody asked for one.
    return Client(n_workers=jobs, threads_per_worker=1, dashboard_address=None)


def _start_ray(jobs: int, address: str | None) -> None:
    try:
        import ray
        from ray.util.joblib import register_ray
    except ImportError:
        raise _missing("ray", "ray") from None
    if not ray.is_initialized():
        if address is not None:
            ray.init(address=address)
        else:
            ray.init(num_cpus=jobs, include_dashboard=False, log_to_driver=False)
    register_ray()


def _missing(name: str, package: str) -> ParameterError:
    return ParameterError(f"the backend {name} must be installed: pip install {package!r}.")
