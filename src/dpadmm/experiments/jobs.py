"""Cells: complete descriptions of pieces of work, and their results.

**Runner.** It computes cells on this machine or on a cluster, keeps their results, and resumes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import socket
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, final

import joblib
import numpy as np

from dpadmm.durable import write_whole
from dpadmm.errors import ParameterError, needs_extra, positive_integer, unknown_name
from dpadmm.experiments.measures import get_measure
from dpadmm.experiments.problems import OnePartyProblem, Problem, ProblemSource
from dpadmm.plain import Array
from dpadmm.privacy.noise import SimulatedNoise
from dpadmm.run.engine import Outcome
from dpadmm.run.model import ModelError, pack, unpack
from dpadmm.run.options import ConvergenceWarning, PrivacyWarning, TrainingParameters
from dpadmm.run.plan import Plan, chosen_rounds, plan
from dpadmm.run.session import lay_out, state_privacy, train
from dpadmm.solvers.cluster import Cluster
from dpadmm.version import __version__


@dataclass(frozen=True, eq=False)
class Result:
    """The result of a cell.

    Attributes
    ----------
    values
        Arrays by name: the course of a measure ``(rounds, runs)`` under its own name, and its
        final value ``(runs,)`` under ``last/<measure>``, ``tail/<measure>`` and ``mean/<measure>``.
    facts
        Plain data: the privacy statement, the penalty, the data, warnings, seconds.
    """

    values: dict[str, Array]
    facts: dict[str, Any]

    def final(self, measure: str, output: str = "last") -> Array:
        """One number per run, for the last messages or for the mean over the last third."""
        return self.values[f"{output}/{measure}"]

    def course(self, measure: str) -> Array:
        """The measure after every round, ``(rounds, runs)``."""
        return self.values[measure]


@dataclass(frozen=True)
class Job(ABC):
    """One piece of work: a frozen description that other processes can run, and a key."""

    @abstractmethod
    def compute(self) -> Result:
        """Do the work; the result depends on the description alone."""

    @property
    @abstractmethod
    def weight(self) -> float:
        """Roughly how much work it is, in any unit that all jobs share."""

    def further(self, times: int) -> Job | None:
        """A job with so many times as many new runs; None if it has no noise to draw again."""
        return None

    def description(self) -> dict[str, Any]:
        """Plain data that determine the result."""
        return {"kind": type(self).__name__, **dataclasses.asdict(self)}

    @property
    def key(self) -> str:
        """A hash of the description and of this version of the package."""
        text = json.dumps([__version__, self.description()], sort_keys=True, default=_plain)
        return hashlib.sha256(text.encode()).hexdigest()[:32]


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a cell must not hold a {type(value).__name__}")


@final
@dataclass(frozen=True)
class TrainingJob(Job):
    """Train several runs of a registered algorithm at once, and measure the models.

    Attributes
    ----------
    problem
        The data.
    parameters
        The parameters of the run; a topology is a name or a list of edges.
    runs, seed
        The number of runs, each with its own noise, and the seed of the noise.
    courses
        Measures to take after every round.
    finals
        Measures to take at the end: of the last messages, and of their means over the last third
        and over all rounds.
    """

    problem: ProblemSource
    parameters: TrainingParameters
    runs: int = 10
    seed: int = 0
    courses: tuple[str, ...] = ()
    finals: tuple[str, ...] = ("test accuracy",)
    #: Account every round, as ``epsilon``; this can take as long as training.
    epsilon_course: bool = field(default=False, kw_only=True)
    #: How often everything is drawn again, each time with so many runs: who gets which row,
    #: randomised labels, and the noise. The runs of one draw share the first two.
    repeats: int = field(default=1, kw_only=True)
    #: The number of the first of these draws.
    first_repeat: int = field(default=0, kw_only=True)
    #: A refused plan is a result, too; its facts then hold the reason, ``refused``.
    may_refuse: bool = field(default=False, kw_only=True)
    #: A word that distinguishes two cells with the same description, such as two timings.
    note: str = field(default="", kw_only=True)

    @property
    def weight(self) -> float:
        """Rounds times runs; one round of a run costs a few passes over the rows."""
        told = self.parameters
        return float(chosen_rounds(told.rounds, told.algorithm) * self.runs * self.repeats)

    def plan(self, problem: Problem) -> tuple[Plan, list[str]]:
        """Check and plan the run; return the plan and its warnings."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", PrivacyWarning)
            warnings.simplefilter("always", ConvergenceWarning)
            planned = plan(
                self.parameters,
                problem.counts,
                features=problem.features,
                outputs=problem.outputs,
                runs=self.runs,
                names=problem.names,
                least_constant=problem.least_constant,
                one_hand=isinstance(self.problem, OnePartyProblem),
            )
        return planned, sorted({str(warning.message) for warning in caught})

    def compute(self) -> Result:
        """Train and measure."""
        repeats = positive_integer("repeats", self.repeats)
        draws = range(self.first_repeat, self.first_repeat + repeats)
        problem = self._dealt(draws[0])
        start = time.monotonic()
        try:
            planned, cautions = self.plan(problem)
        except ParameterError as error:
            if not self.may_refuse:
                raise
            return Result({}, {"refused": str(error), "data": problem.facts})
        parts, training = [], 0.0
        for draw in draws:
            problem = self._dealt(draw)
            noise = SimulatedNoise(self.seed + draw)
            outcome, part, seconds = self._train(planned, problem, noise)
            parts.append(part)
            training += seconds
        values = {name: np.concatenate([part[name] for part in parts], -1) for name in parts[0]}
        statement = state_privacy(planned, outcome.events, noise, by_round=self.epsilon_course)
        if self.epsilon_course:
            values["epsilon"] = np.max(list(statement.rounds.values()), axis=0)
        facts = {
            "privacy": statement.to_dict(),
            "penalty": planned.penalty,
            "data": problem.facts,
            "warnings": cautions,
            "training_seconds": training,
            "seconds": time.monotonic() - start,
        }
        return Result(values, facts)

    def _dealt(self, draw: int) -> Problem:
        return (self.problem.dealt_again(draw) if draw else self.problem).load()

    def further(self, times: int) -> TrainingJob | None:
        """More draws if everything is drawn again, otherwise more noise on the same rows."""
        # The proven epsilon does not depend on the number of runs: do not compute it again.
        same = replace(self, epsilon_course=False)
        if self.repeats > 1:
            drawn = self.first_repeat + self.repeats
            return replace(same, repeats=times * self.repeats, first_repeat=drawn)
        if self.runs < 2:
            return None
        seed = int.from_bytes(hashlib.sha256(f"further, {self.seed}".encode()).digest()[:6])
        return replace(same, runs=times * self.runs, seed=seed)

    def _train(
        self, planned: Plan, problem: Problem, noise: SimulatedNoise
    ) -> tuple[Outcome, dict[str, Array], float]:
        """Train once; return the outcome, its measures, and the seconds spent on training alone."""
        shard = lay_out(planned, problem.members, noise=noise)
        taken: dict[str, list[Array]] = {name: [] for name in self.courses}
        looking = 0.0

        def look(done: int, messages: Array) -> None:
            nonlocal looking
            began = time.monotonic()
            for name, course in taken.items():
                course.append(get_measure(name)(messages, problem))
            looking += time.monotonic() - began

        began = time.monotonic()
        outcome = train(planned, shard, noise=noise, on_round=look)
        training = time.monotonic() - began - looking
        values = {name: np.array(course) for name, course in taken.items()}
        for which in ("last", "tail", "mean"):
            models = getattr(outcome, which)
            values |= {
                f"{which}/{name}": get_measure(name)(models, problem) for name in self.finals
            }
        values["disagreement"] = outcome.history.disagreement
        values["change"] = outcome.history.change
        return outcome, values, training


def seed_of(text: str) -> int:
    """Derive a cell's seed from its label, so that cells draw independent noise."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6])


_FORMAT: Final = "dpadmm-cells/1"

_LABEL: Final = "store.json"


class DamagedCellWarning(UserWarning):
    """A stored result is damaged; its cell is computed again."""


@final
class Store:
    """A folder of finished cells, one file per cell, written atomically.

    Parameters
    ----------
    folder
        Created if it does not exist. A folder that another version of this package wrote is
        refused, because this version may compute other figures.
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
                unknown = "an unknown version"
                has = found.get("dpadmm", unknown) if isinstance(found, dict) else unknown
                raise ParameterError(
                    f"results in {folder} must be from this version of dpadmm, {__version__}; they "
                    f"are from {has}. Name another folder, or remove this one."
                )
            return
        if folder.exists() and any(folder.iterdir()):
            raise ParameterError(
                f"folder must be new, empty or one where dpadmm keeps results; got {folder}, "
                "which holds something else. Name another."
            )
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(label, json.dumps(wanted).encode(), "label of the results")

    def path(self, cell: Job) -> Path:
        """The file of the cell's result."""
        return self.folder / f"{cell.key}.cell"

    def get(self, cell: Job) -> Result | None:
        """The result of a finished cell; a damaged result counts as missing."""
        path = self.path(cell)
        if not path.exists():
            return None
        try:
            document, arrays = unpack(path.read_bytes(), str(path))
        except ModelError:
            warnings.warn(
                f"{path} is damaged; dpadmm computes its cell again.",
                DamagedCellWarning,
                stacklevel=2,
            )
            return None
        return Result(arrays, document["facts"])

    def put(self, cell: Job, result: Result) -> None:
        """Store a result, completely or not at all."""
        document: dict[str, Any] = {"cell": cell.description(), "facts": result.facts}
        plain = json.loads(json.dumps(document, default=dict))
        write_whole(self.path(cell), pack(plain, result.values), "result of a cell")


#: Called with the weight done so far, the whole weight, and the label of the finished cell.
OnDone = Callable[[float, float, str], None]

#: Cells to compute with their labels; results with their labels.
_Items = list[tuple[str, Job]]
_Finished = tuple[str, Result]


class WorkerError(RuntimeError):
    """A worker died; results of finished cells are kept."""


def compute(
    cells: Mapping[str, Job],
    store: Store,
    *,
    jobs: int = 1,
    backend: str = "loky",
    address: str | None = None,
    on_done: OnDone | None = None,
) -> dict[str, Result]:
    """Compute the cells that the store lacks; return the results of all of them by label.

    Parameters
    ----------
    cells
        The work, by labels for people.
    store
        Keeps the results. Only this process uses it: workers of a cluster need not see it.
    jobs
        Processes to start if no cluster is named; with loky, 1 computes in this process.
    backend
        One of :data:`BACKENDS`.
    address
        The address of a running Dask or Ray cluster. All of its workers are used, and they must
        see the files that cells read.
    on_done
        Called on progress; results that the store has count as done at the start.

    Raises
    ------
    ParameterError
        If the cluster does not answer, has no workers, or has workers of another version.
    WorkerError
        If workers died: one on this machine, several or the last one of a cluster. A cluster runs
        the cells of a single lost worker again elsewhere.
    """
    positive_integer("jobs", jobs)
    _check_backend(backend, address)
    by_key = {cell.key: (label, cell) for label, cell in cells.items()}
    whole = sum(cell.weight for _, cell in by_key.values())
    missing = [item for item in by_key.values() if store.get(item[1]) is None]
    done = whole - sum(cell.weight for _, cell in missing)
    tell = on_done or (lambda done, whole, label: None)
    tell(done, whole, "")
    # The heaviest cells first: a long cell at the end would leave the other workers idle.
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
    """Yield results as they arrive; contact no cluster if nothing is left to do."""
    try:
        yield from _RUNS[backend](items, jobs, address) if items else ()
    except Exception as error:
        if type(error).__name__ not in _DEATHS:
            raise
        raise WorkerError(
            "workers were killed, perhaps for lack of memory; finished cells are kept. Run the "
            f"same command again to continue, with fewer jobs than {jobs} if memory is short."
        ) from None


def _kept(label: str, cell: Job, store: Store) -> Result:
    result = store.get(cell)
    if result is None:
        raise ParameterError(
            f"the result of {label!r} must be readable in {store.folder}; it is missing or "
            "damaged: run the same command again."
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
            # A dashboard would open a port, and nobody asked for one.
            own = LocalCluster(n_workers=jobs, threads_per_worker=1, dashboard_address=None)
            address = stack.enter_context(own).scheduler_address
        cluster = stack.enter_context(Cluster(address))
        yield from cluster.each(_finish, [(label, cell, cell.key) for label, cell in items])


def _on_ray(items: _Items, jobs: int, address: str | None) -> Iterator[_Finished]:
    with needs_extra("ray"):
        import ray
    if ray.is_initialized() and address is not None:
        raise ParameterError(
            f"address must be left out if this process is connected to Ray; got {address!r}."
        )
    with ExitStack() as stack:
        if not ray.is_initialized():
            own = {"num_cpus": jobs, "include_dashboard": False} if address is None else {}
            try:
                # Ray itself would retry for minutes and print pages of reasons.
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
                    f"address must name a Ray cluster that answers; got {address!r}: "
                    f"{type(error).__name__}. Start it (ray start --head), correct the address, or "
                    "give this process the cluster's token (RAY_AUTH_TOKEN)."
                ) from None
            stack.callback(ray.shutdown)
        # Ray's backend for joblib returns all results at the end, and none if a process dies.
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

# Seconds to wait for the head of a Ray cluster.
_CONNECT: Final = 10.0
# How often Ray retries a cell whose process died; Dask retries as often.
_RETRIES: Final = 3
# The errors by which the three backends report that too many workers died.
_DEATHS: Final = {"TerminatedWorkerError", "KilledWorker", "WorkerCrashedError", "ClusterError"}


def _finish(item: tuple[str, Job, str]) -> _Finished:
    """Compute one cell, in any process."""
    label, cell, key = item
    if cell.key != key:
        raise ParameterError(
            f"workers must have the same version of dpadmm as the caller; this one has "
            f"{__version__}: install the same version there."
        )
    return label, cell.compute()
