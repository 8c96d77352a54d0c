"""A cell: everything that decides one piece of work, and what came of it.

**Runner.** Where jobs are computed, kept and resumed: on this machine or a cluster.
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
from typing import Any, Final, Self, final

import joblib
import numpy as np

from dpadmm.durable import write_whole
from dpadmm.errors import ParameterError, needs_extra, positive_integer, unknown_name
from dpadmm.experiments.measures import get_measure
from dpadmm.experiments.problems import NamedProblem, OnePartyProblem, Problem, ProblemSource, dense
from dpadmm.plain import Array
from dpadmm.privacy.noise import SimulatedNoise
from dpadmm.run.engine import Outcome
from dpadmm.run.model import ModelError, pack, unpack
from dpadmm.run.parameters import ConvergenceWarning, PrivacyWarning, TrainingParameters
from dpadmm.run.plan import Plan, chosen_rounds, plan
from dpadmm.run.train import lay_out, state_privacy, train
from dpadmm.solvers.cluster import Cluster
from dpadmm.version import __version__


@dataclass(frozen=True, eq=False)
class Result:
    """What a cell gave.

    Attributes
    ----------
    values
        Arrays by name: a measure's course ``(rounds, runs)`` under its own name, and its final
        value ``(runs,)`` under ``last/<measure>``, ``tail/<measure>`` and ``mean/<measure>``.
    facts
        Plain data: the statement of privacy, the penalty, the data, warnings, seconds.
    """

    values: dict[str, Array]
    facts: dict[str, Any]

    def final(self, measure: str, output: str = "last") -> Array:
        """One number per run: of the last messages, or of the mean over the last third."""
        return self.values[f"{output}/{measure}"]

    def course(self, measure: str) -> Array:
        """``(rounds, runs)``."""
        return self.values[measure]


@dataclass(frozen=True)
class Job(ABC):
    """One piece of work; a frozen description that crosses processes and names its result."""

    @abstractmethod
    def compute(self) -> Result:
        """Do the work: a function of the description alone."""

    @property
    @abstractmethod
    def weight(self) -> float:
        """About how much work it is, in units of any one scale."""

    def further(self, times: int) -> Job | None:
        """So many times as many runs more, with noise of their own; None where there is none."""
        return None

    def join(self, first: Result, more: Result) -> Result:
        """The result and that of :meth:`further` together, runs along the last axis."""
        shared = {
            name: np.concatenate([first.values[name], more.values[name]], -1)
            for name in first.values
            if name in more.values
        }
        seconds: dict[str, float] = {
            name: first.facts[name] + more.facts[name]
            for name in ("seconds", "training_seconds")
            if name in first.facts
        }
        return Result({**first.values, **shared}, {**first.facts, **seconds})

    def description(self) -> dict[str, Any]:
        """Plain data that decide the result."""
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
    raise TypeError(f"{type(value).__name__} must not be part of a cell")


@final
@dataclass(frozen=True)
class TrainingJob(Job):
    """Train by an algorithm of the registry, some runs together, and measure.

    Attributes
    ----------
    problem
        The data.
    parameters
        What to train; a topology is a name or a list of edges.
    runs, seed
        Repeated runs, with noise of their own, and what the noise is drawn from.
    courses
        Measures to take after every round.
    finals
        Measures to take at the end: of the last messages and of their means over the last third
        and over all rounds.
    """

    problem: ProblemSource
    parameters: TrainingParameters
    runs: int = 10
    seed: int = 0
    courses: tuple[str, ...] = ()
    finals: tuple[str, ...] = ("test accuracy",)
    #: Whether to account every round, as ``epsilon``; it can take as long as training.
    epsilon_course: bool = field(default=False, kw_only=True)
    #: How often everything is drawn anew, each time with as many runs: who gets which row, the
    #: labels where they are randomised, and the noise. Runs share the first two.
    repeats: int = field(default=1, kw_only=True)
    #: The number of the first of these draws.
    first_repeat: int = field(default=0, kw_only=True)
    #: Whether a refused plan is a result, whose facts then have only ``refused``, the reason.
    may_refuse: bool = field(default=False, kw_only=True)
    #: A word that tells cells apart that are described alike, such as two timings.
    note: str = field(default="", kw_only=True)

    @property
    def weight(self) -> float:
        """Rounds times runs; a round of a run costs a few passes over the rows."""
        told = self.parameters
        return float(chosen_rounds(told.rounds, told.algorithm) * self.runs * self.repeats)

    def plan(self, problem: Problem) -> tuple[Plan, list[str]]:
        """Check and fix the run; also what it is warned of."""
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
        """More draws where everything is drawn anew, otherwise more noise on the same rows."""
        # What is proven does not change with the runs: it is not computed again.
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
        """Train once: what came out, what was measured of it, and the seconds of training alone."""
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


@dataclass(frozen=True)
class OfTraining(Job):
    """Work that is done along with a training, and about as much.

    Attributes
    ----------
    training
        What is run.
    """

    training: TrainingJob

    @property
    def weight(self) -> float:
        """That of the training."""
        return self.training.weight


@dataclass(frozen=True)
class DrawnJob(Job):
    """Work on draws of the split of the rows and of the graph, which stand for runs.

    Attributes
    ----------
    problem
        The rows; the number of a draw decides its split, and its random graph.
    regularization
        lambda.
    draws, first_draw
        How many, and the number of the first.
    """

    problem: NamedProblem
    regularization: float
    draws: int = 1
    first_draw: int = 0

    def further(self, times: int) -> Self | None:
        """More draws; none where only one was wanted."""
        if self.draws == 1:
            return None
        return replace(self, draws=times * self.draws, first_draw=self.first_draw + self.draws)

    def compute(self) -> Result:
        """The average loss, draws along the last axis, and the mean model of the last draw."""
        start = time.monotonic()
        losses = []
        for draw in range(self.first_draw, self.first_draw + self.draws):
            problem = self.problem.dealt_again(draw).load()
            loss, model = self.one(problem, draw)
            losses.append(loss)
        values = {"average loss": np.stack(losses, axis=-1)}
        if self.draws == 1:
            values["model"] = model
        return Result(values, {"data": problem.facts, "seconds": time.monotonic() - start})

    @abstractmethod
    def one(self, problem: Problem, draw: int) -> tuple[Array, Array]:
        """The average loss and the model of one draw."""


@final
@dataclass(frozen=True)
class OptimumJob(DrawnJob):
    r"""The minimiser of :math:`\sum_i a_i f_i`, found by scikit-learn.

    Attributes
    ----------
    weights
        a_i of every party; all 1 if none are given.
    """

    weights: tuple[float, ...] = ()

    @property
    def weight(self) -> float:
        """About that of a few iterations."""
        return 5.0 * self.draws

    def one(self, problem: Problem, draw: int) -> tuple[Array, Array]:
        """The optimum's average loss, and the optimum."""
        from sklearn.linear_model import LogisticRegression

        parties, counts = len(problem.members), problem.counts
        weights = np.array(self.weights or (1.0,) * parties)
        blocks, labels = zip(*problem.members, strict=True)
        # sum_i a_i (loss_i / n_i + lambda / (2 N) |w|^2), divided by the mean of a.
        shares = np.repeat(weights / weights.mean() / np.array(counts), counts)
        fitted = LogisticRegression(
            C=1 / self.regularization,
            fit_intercept=False,
            solver="newton-cholesky",
            tol=1e-10,
            max_iter=1000,
        ).fit(
            np.concatenate([dense(block) for block in blocks]),
            np.concatenate(labels)[:, 0],
            sample_weight=shares,
        )
        models = np.broadcast_to(fitted.coef_, (parties, 1, 1, problem.features))
        return get_measure("average loss")(models, problem)[0], fitted.coef_[0]


def seed_of(text: str) -> int:
    """A seed for a cell from its label, so that cells draw their noise independently."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6])


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
