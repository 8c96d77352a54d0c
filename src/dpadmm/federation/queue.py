"""The queue of a service: runs that its owner submitted, each checked and whole, as files.

The folder is private to its owner (mode 0700), and everything is a file there. A run is a folder of
``runs``: its ``agreed.toml``, what the service knows of it (``run.json``), and later the log, the
status and the results of its node. Who submits a run checks it first, and moves it in whole; so the
queue holds no half of one, whether the service runs or not. Nothing that others say reaches it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import secrets
import shutil
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import BeforeValidator, Field, ValidationError

from dpadmm.data.schema import load_schema
from dpadmm.durable import FileRefusal, read_json, read_regular, write_whole
from dpadmm.errors import ParameterError
from dpadmm.federation.config import (
    Limit,
    NodeConfig,
    NodeName,
    NodePolicy,
    NodeResultSection,
    Time,
    load_agreed_run,
    load_node_config,
)
from dpadmm.federation.runtime import NodeSetup, prepare_node
from dpadmm.federation.status import SUFFIX
from dpadmm.plain import Names, Part, as_tuple
from dpadmm.run.config import File, load_toml, validated

State = Literal[
    "queued",
    "running",
    "finished",
    "left-out",
    "stopped-at-home",
    "failed",
    "refused",
    "cancelled",
]
#: The states of a run: the first two wait or work, the others are for good.
WAITING: Final = get_args(State)[:2]
ENDED: Final = get_args(State)[2:]
_RUN_VERSION: Final = 1
_AGREED: Final = "agreed.toml"
_SCHEMA: Final = "schema.toml"
_RECORD: Final = "run.json"
_CANCEL: Final = "cancel"
_INCOMING: Final = ".incoming-"
_STALE: Final = 3600.0


class ServicePolicy(Part):
    """``[policy]``: which runs this service may start; beside what ``node.toml`` allows.

    Parameters
    ----------
    algorithms
        Their names; those that ``node.toml`` allows unless given.
    epsilon, delta
        The most of one run; that of ``node.toml`` unless given.
    noise
        Whose noise: "own", "shared".
    least_parties
        The fewest parties of a run.
    parties
        Who may take part beside this node; anybody unless given.
    schemas
        The sha256 of schemas that are allowed beside that of ``node.toml``; and so are schemas
        whose bounds a study narrowed from theirs.
    rehearsals
        Whether runs may be rehearsed.
    """

    algorithms: Names | None = None
    epsilon: Limit | None = None
    delta: Limit | None = None
    noise: Annotated[tuple[Literal["own", "shared"], ...], BeforeValidator(as_tuple)] = (
        "own",
        "shared",
    )
    least_parties: Annotated[int, Field(ge=2)] = 2
    parties: Annotated[tuple[NodeName, ...], BeforeValidator(as_tuple)] | None = None
    schemas: Names = ()
    rehearsals: bool = True

    def check(self, setup: NodeSetup, own_schema: str, *, rehearsal: bool) -> None:
        """Refuse a run that this policy does not allow; nothing was read or spent."""
        agreed = setup.agreed
        for what, got, wanted in self._broken(setup, own_schema, rehearsal=rehearsal):
            raise ParameterError(
                f"{what} of a run must be what [policy] of the service allows, {wanted}; "
                f"{agreed.run.run_id} has {got}. Nothing was read or spent."
            )

    def _broken(
        self, setup: NodeSetup, own_schema: str, *, rehearsal: bool
    ) -> Iterator[tuple[str, str, str]]:
        agreed, algorithm, name = setup.agreed, setup.planned.algorithm, setup.name
        if rehearsal and not self.rehearsals:
            yield "the rehearsal", "one", "none"
        if self.algorithms is not None and algorithm.name not in self.algorithms:
            yield "the algorithm", repr(algorithm.name), ", ".join(self.algorithms)
        noise = "own" if algorithm.summation is None else "shared"
        if noise not in self.noise:
            yield "the noise", repr(noise), ", ".join(self.noise) or "none"
        if len(agreed.names) < self.least_parties:
            yield "the parties", str(len(agreed.names)), f"at least {self.least_parties}"
        known = agreed.nodes if self.parties is None else self.parties
        strangers = set(agreed.nodes) - {name, *known}
        if strangers:
            yield "the parties", ", ".join(sorted(strangers)), ", ".join(known) or "none"
        if not {own_schema, *self.schemas}.intersection(setup.schema.hashes):
            yield "the schema", setup.schema.sha256, ", ".join((own_schema, *self.schemas))

    def narrowed(self, policy: NodePolicy) -> NodePolicy:
        """What an owner's node allows, with the budget of a run that the service allows."""
        limits = {
            word: (getattr(policy, word), getattr(self, word)) for word in ("epsilon", "delta")
        }
        # Whoever allows no budget at all is not overruled here.
        return policy.model_copy(
            update={word: min(both) for word, both in limits.items() if None not in both}
        )


class ServiceWatch(Part):
    """``[watch]``: how the owner watches the service.

    Parameters
    ----------
    metrics, metrics_anywhere, token_file
        As in ``node.toml``; at another address, since nodes come and go.
    """

    metrics: str | None = None
    metrics_anywhere: bool = False
    token_file: File | None = None


class ServiceConfig(Part):
    """The owner's configuration of a service; frozen.

    Parameters
    ----------
    node, folder
        The ``node.toml``, and where the service keeps its queue; made if missing.
    wait_for
        Seconds that a run may wait for the others to agree while further runs wait.
    again_after, give_up_after
        Seconds before a run that could not begin is tried again; and after its submission until
        it is given up.
    policy, watch
        The tables of the file.
    """

    node: File
    folder: File
    wait_for: Time = 600.0
    again_after: Time = 60.0
    give_up_after: Time = 604800.0
    policy: ServicePolicy = ServicePolicy()
    watch: ServiceWatch = ServiceWatch()

    @property
    def runs(self) -> Path:
        """The folder of the runs."""
        return self.folder / "runs"

    def prepare(self) -> None:
        """Make the folder, or refuse one that others may enter."""
        try:
            self.folder.mkdir(mode=0o700, exist_ok=True)
            status = self.folder.stat()
            self.runs.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise ParameterError(
                f"folder must be a folder that can be made; got {self.folder}: {error.strerror}."
            ) from None
        if status.st_mode & 0o077 or status.st_uid != os.geteuid():
            raise ParameterError(
                f"folder must be its owner's, and nobody else may enter it: whoever writes there "
                f"starts runs; {self.folder} is not so: chmod 700 {self.folder.name}."
            )


def load_service_config(path: str | Path) -> ServiceConfig:
    """Read a ``service.toml``; paths in it are relative to its folder."""
    content = load_toml(path, "the service's configuration")
    return validated(ServiceConfig, content, Path(path).parent, "the service's configuration")


def placed(config: NodeConfig, folder: Path) -> NodeConfig:
    """The same node in the run of a folder, where it leaves everything that is about this run.

    What it remembers of all runs stays where it was, and so does its ledger. Of its neighbours it
    has those that the run links it with.
    """
    name, own_schema = config.node.name, folder / _SCHEMA
    node = config.node.model_copy(update={"messages": config.messages})
    if own_schema.exists():
        node = node.model_copy(update={"schema_file": own_schema})
    agreed, schema = load_agreed_run(folder / _AGREED), load_schema(node.schema_file)
    linked = config.neighbour
    if name in agreed.nodes:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            wanted = agreed.neighbours(name, agreed.plan(schema))
        linked = tuple(each for each in linked if each.name in wanted)
    result = NodeResultSection(
        model=None if agreed.study is not None else folder / f"{name}.model",
        record=folder / f"{name}.record.json",
        statement=folder / f"{name}.statement.txt",
    )
    watched = {"log": folder / f"{name}.log", "status": folder / f"{name}{SUFFIX}"}
    return config.model_copy(
        update={
            "run": folder / _AGREED,
            "node": node,
            "neighbour": linked,
            "result": None if node.role == "server" else result,
            "watch": config.watch.model_copy(update=watched),
        }
    )


class RunState(Part):
    """What a service knows of a run, as ``run.json`` has it.

    Parameters
    ----------
    run_id, run_sha256, rehearsal, submitted
        Which run it is, and when it was submitted.
    state, reason
        One of :data:`WAITING` and :data:`ENDED`, and why.
    cause
        One word for the reason of a failure: the kind of the error.
    tries, crashes, not_before
        How often it was tried, how often its node died, and until when it is put back.
    started, ended, process, exit_code
        When its node was started last, its process, and how it ended.
    """

    version: Literal[1] = _RUN_VERSION
    run_id: str
    run_sha256: str
    rehearsal: bool = False
    submitted: str
    state: State = "queued"
    reason: str = ""
    cause: str = ""
    tries: Annotated[int, Field(ge=0)] = 0
    crashes: Annotated[int, Field(ge=0)] = 0
    not_before: str | None = None
    started: str | None = None
    ended: str | None = None
    process: int | None = None
    exit_code: int | None = None


@dataclass(frozen=True)
class QueuedRun:
    """One run of a service: its folder, and what the service knows of it.

    Parameters
    ----------
    folder, state
        Both.
    """

    folder: Path
    state: RunState

    @property
    def name(self) -> str:
        """Its name in the queue."""
        return self.folder.name

    @property
    def cancelled(self) -> bool:
        """Whether its owner wants it to end."""
        return (self.folder / _CANCEL).exists()

    @property
    def shown(self) -> str:
        """Its state, for people."""
        if self.cancelled and self.state.state in WAITING:
            return "cancelled" if self.state.state == "queued" else "cancelling"
        return self.state.state

    def to_dict(self) -> dict[str, Any]:
        """Data for machines."""
        told = self.state.model_dump() | {"state": self.shown}
        del told["version"]
        return {"name": self.name, "folder": str(self.folder), **told}

    def changed(self, **changes: Any) -> QueuedRun:
        """The run with other facts, durably."""
        run = QueuedRun(self.folder, RunState(**self.state.model_dump() | changes))
        run.write()
        return run

    def write(self) -> None:
        """Write what is known of it."""
        content = json.dumps(self.state.model_dump(), indent=1) + "\n"
        write_whole(self.folder / _RECORD, content.encode("ascii"), "run.json")


def read_runs(config: ServiceConfig) -> list[QueuedRun]:
    """All runs of a service, in the order of their submission; other folders are no runs."""
    numbered = (path for path in sorted(config.runs.glob("[0-9]*-*")) if path.is_dir())
    return [read_run(path) for path in numbered]


def read_run(folder: Path) -> QueuedRun:
    """Read a run of a service, or refuse."""
    try:
        return QueuedRun(folder, RunState.model_validate(read_json(folder / _RECORD)))
    except (FileRefusal, ValidationError):
        raise ParameterError(
            f"a run of a service must have the {_RECORD} that it was submitted with; {folder} "
            "has none: move the folder away."
        ) from None


def find_run(config: ServiceConfig, word: str) -> QueuedRun:
    """The run of a name, a number, or a run_id that only one has."""
    runs = read_runs(config)
    for same in (
        lambda run: word == run.name,
        lambda run: word.isdecimal() and int(word) == int(run.name.partition("-")[0]),
        lambda run: word == run.state.run_id,
    ):
        found = [run for run in runs if same(run)]
        if len(found) == 1:
            return found[0]
    known = ", ".join(run.name for run in runs[-10:]) or "none"
    raise ParameterError(f"run must be one of this service; got {word!r}. The last: {known}.")


def submit(
    config: ServiceConfig, agreed: Path, schema: Path | None = None, *, rehearsal: bool = False
) -> QueuedRun:
    """Check a run as its start would, and put it into the queue; or leave nothing behind."""
    config.prepare()
    incoming = config.folder / f"{_INCOMING}{secrets.token_hex(8)}"
    incoming.mkdir(mode=0o700)
    try:
        for source, name in ((agreed, _AGREED), (schema, _SCHEMA)):
            if source is not None:
                _copy(source, incoming / name)
        setup = admit(config, incoming, rehearsal=rehearsal)
        state = RunState(
            run_id=str(setup.agreed.run.run_id),
            run_sha256=setup.run.hex(),
            rehearsal=rehearsal,
            submitted=now_text(),
        )
        same = (state.run_sha256, rehearsal)
        for run in read_runs(config):
            if run.shown in WAITING and (run.state.run_sha256, run.state.rehearsal) == same:
                raise ParameterError(
                    f"a run must be in the queue once; {state.run_id} is there as {run.name}."
                )
        QueuedRun(incoming, state).write()
        return read_run(_move_in(config, incoming, state.run_id))
    finally:
        shutil.rmtree(incoming, ignore_errors=True)


def _copy(source: Path, target: Path) -> None:
    try:
        content = read_regular(source)
    except FileRefusal as error:
        raise ParameterError(f"{target.name} must be a file; got {source}: {error}") from None
    write_whole(target, content, target.name)


def _move_in(config: ServiceConfig, incoming: Path, run_id: str) -> Path:
    """Give a run the next number; whoever else submits takes another one."""
    word = re.sub(r"[^A-Za-z0-9._-]", "-", run_id)[:40]
    with locked(config.folder / "submit.lock"):
        taken = [path.name.partition("-")[0] for path in config.runs.iterdir()]
        number = max((int(text) for text in taken if text.isdecimal()), default=0) + 1
        place = config.runs / f"{number:04d}-{word}"
        incoming.rename(place)
        return place


def admit(config: ServiceConfig, folder: Path, *, rehearsal: bool) -> NodeSetup:
    """Check a run in a folder against the node's files and both policies, as they are now."""
    node = load_node_config(config.node)
    own_schema = load_schema(node.node.schema_file).sha256
    policy = config.policy.narrowed(node.policy)
    setup = prepare_node(placed(node, folder).model_copy(update={"policy": policy}))
    config.policy.check(setup, own_schema, rehearsal=rehearsal)
    return setup


def cancel(run: QueuedRun) -> None:
    """Ask for the end of a run; the service follows, now or when it is started."""
    if run.state.state in ENDED:
        raise ParameterError(
            f"a run must be waiting or running to be cancelled; {run.name} is {run.shown}."
        )
    write_whole(run.folder / _CANCEL, b"", "cancel")


@contextlib.contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[int]:
    """Hold the lock of a file; BlockingIOError where another process has it."""
    handle = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield handle
    finally:
        os.close(handle)


def is_serving(config: ServiceConfig) -> bool:
    """Whether a service has the folder now."""
    try:
        with locked(config.folder / "service.lock", wait=False):
            return False
    except BlockingIOError:
        return True


def clear_stale(config: ServiceConfig) -> None:
    """Remove submissions that nobody will finish: their process was killed."""
    for path in config.folder.glob(f"{_INCOMING}*"):
        if time.time() - path.stat().st_mtime > _STALE:
            shutil.rmtree(path, ignore_errors=True)


def now_text() -> str:
    """The moment, as ``run.json`` has it."""
    return moment_text(datetime.now(UTC))


def moment_text(moment: datetime) -> str:
    """A moment in UTC; texts compare as the moments do."""
    return moment.isoformat(timespec="milliseconds")
