"""What status files of nodes say, and whether their processes live."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from dpadmm.durable import FileRefusal, read_json
from dpadmm.errors import ParameterError

STATUS_VERSION: Final = 1
#: How many of the last events a status file has.
MOST_EVENTS: Final = 20
SUFFIX: Final = ".status.json"
# A status file is written every second; a machine may be busy.
_SILENCE: Final = 10.0
_LONGEST: Final = 1_000_000
#: The state of a node between its last round and its results.
WRITING: Final = "writing"
_ENDED: Final = ("finished", "stopped")


def seconds_since(moment: str) -> float:
    """Seconds since a moment of ISO 8601; no less than 0 whatever the clocks say."""
    return max(0.0, (datetime.now(UTC) - datetime.fromisoformat(moment)).total_seconds())


def _moment(text: str) -> str:
    seconds_since(text)
    return text


_Count = Annotated[int, Field(ge=0, lt=2**63)]
_Number = Annotated[float, Field(allow_inf_nan=False)]
_Moment = Annotated[str, AfterValidator(_moment)]


class _Part(BaseModel):
    """Exact types; what a later version adds is passed over."""

    model_config = ConfigDict(strict=True, extra="ignore")


class _Unreachable(_Part):
    address: str
    reason: str
    advice: str


class _LastEvent(_Part):
    event: str
    facts: dict[str, Any]


class _Event(_Part):
    time: _Moment
    level: str
    event: str
    words: str


class _Graph(_Part):
    nodes: list[str]
    links: list[Annotated[list[str], Field(min_length=2, max_length=2)]]
    server: str | None


class _Other(_Part):
    state: str
    round: _Count
    waiting: list[str]
    heard: _Moment


class _Content(_Part):
    """What a status file must have; what has a default came later, or is not always there."""

    node: str
    run: str
    state: str
    process: _Count
    process_space: str
    started: str
    changed: str
    updated: _Moment
    round: _Count
    rounds: _Count
    waiting: dict[str, _Number]
    sent: _Count
    received: _Count
    dropped: dict[str, Any]
    epsilon_spent: _Number | str | None
    epsilon_left: _Number | str | None
    last_event: _LastEvent | None
    unreachable: dict[str, _Unreachable] = {}
    events: list[_Event] = []
    graph: _Graph | None = None
    others: dict[str, _Other] = {}


def process_space() -> str:
    """Where the number of a process means something: the machine and, in it, the container."""
    try:
        container = os.readlink("/proc/self/ns/pid")
    except OSError:
        container = ""
    return f"{socket.gethostname()} {container}".strip()


@dataclass(frozen=True)
class NodeStatus:
    """One status file, as read at one moment.

    Parameters
    ----------
    file
        Where it is.
    content
        What it says.
    age
        Seconds since it was written; no less than 0 whatever the clocks say.
    """

    file: Path
    content: dict[str, Any]
    age: float

    @property
    def life(self) -> str:
        """finished, stopped, failed, alive, dead (the process is gone) or silent (frozen)."""
        if self.content["state"] in _ENDED:
            return str(self.content["state"]) if self.failure is None else "failed"
        if self.content["process_space"] == process_space() and not _runs(self.content["process"]):
            return "dead"
        return "alive" if self.age <= _SILENCE else "silent"

    @property
    def failure(self) -> str | None:
        """Why it failed; None where it did not, or goes on."""
        last = self.content["last_event"]
        if self.content["state"] != "stopped" or last is None or last["event"] != "failed":
            return None
        return str(last["facts"].get("error", "no reason is known"))

    def to_dict(self) -> dict[str, Any]:
        """Data for machines."""
        derived = {"file": str(self.file), "life": self.life, "age": round(self.age, 3)}
        return derived | self.content


def read_status(file: Path) -> NodeStatus:
    """Read the status file of one node, or refuse what is none."""
    try:
        content = read_json(file, largest=_LONGEST)
        if content["version"] != STATUS_VERSION:
            raise ParameterError(
                f"a status file must have version {STATUS_VERSION}; {file} has "
                f"{content['version']!r}: use the dpadmm that wrote it."
            )
        _Content.model_validate(content)
        age = seconds_since(content["updated"])
    except FileRefusal as error:
        raise ParameterError(
            f"a status file must be one that can be read; got {file}: {error}."
        ) from None
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        if isinstance(error, ParameterError):
            raise
        raise ParameterError(
            f"a status file must be one that a node wrote; {file} is not."
        ) from None
    return NodeStatus(file, content, age)


def read_statuses(places: list[Path]) -> list[NodeStatus]:
    """Read files, and all ``*.status.json`` of folders, in the order of the nodes' names."""
    files, empty = _files(places)
    for place in empty:
        raise ParameterError(
            f"a folder must have status files (*{SUFFIX}); {place} has none: give the "
            "file that status names in node.toml."
        )
    return _in_order(read_status(file) for file in files)


def look_at(places: list[Path]) -> tuple[list[NodeStatus], dict[Path, str]]:
    """Read what is there, and say of the rest why it is not: its node may not have begun.

    Returns
    -------
    tuple of (list of NodeStatus, dict)
        What was read, and a sentence for each place of which nothing was.
    """
    files, empty = _files(places)
    absent = {place: f"{place} has no status file (*{SUFFIX}) yet." for place in empty}
    found = []
    for file in files:
        try:
            found.append(read_status(file))
        except ParameterError as error:
            absent[file] = str(error) if file.exists() else f"{file} is not there yet."
    return _in_order(found), absent


def _files(places: list[Path]) -> tuple[list[Path], list[Path]]:
    """Every file that is meant, once; and folders without any."""
    files: list[Path] = []
    empty = []
    for place in places:
        found = sorted(place.glob(f"*{SUFFIX}")) if place.is_dir() else [place]
        files += found
        if not found:
            empty.append(place)
    return list(dict.fromkeys(files)), empty


def _in_order(statuses: Iterable[NodeStatus]) -> list[NodeStatus]:
    return sorted(statuses, key=lambda status: str(status.content["node"]))


def _runs(process: int) -> bool:
    if process <= 0:  # these are groups of processes, and no node
        return False
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
