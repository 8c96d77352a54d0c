"""What status files of nodes say, and whether their processes live."""

from __future__ import annotations

import math
import os
import socket
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from dpadmm.durable import FileRefusal, read_json
from dpadmm.errors import ParameterError

__all__ = ["STATUS_VERSION", "NodeStatus", "process_space", "read_status", "read_statuses"]

STATUS_VERSION: Final = 1
SUFFIX: Final = ".status.json"
# A status file is written every second; a machine may be busy.
_SILENCE: Final = 10.0
_LONGEST: Final = 1_000_000
_ENDED: Final = ("finished", "stopped")


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
        """finished, stopped, alive, dead (the process is gone) or silent (frozen, or elsewhere)."""
        if self.content["state"] in _ENDED:
            return str(self.content["state"])
        if self.content["process_space"] == process_space() and not _runs(self.content["process"]):
            return "dead"
        return "alive" if self.age <= _SILENCE else "silent"

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
        _check(content)
        updated = datetime.fromisoformat(content["updated"])
        age = max(0.0, (datetime.now(UTC) - updated).total_seconds())
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
    files: list[Path] = []
    for place in places:
        if not place.is_dir():
            files.append(place)
            continue
        found = sorted(place.glob(f"*{SUFFIX}"))
        if not found:
            raise ParameterError(
                f"a folder must have status files (*{SUFFIX}); {place} has none: give the "
                "file that status names in node.toml."
            )
        files += found
    statuses = [read_status(file) for file in dict.fromkeys(files)]
    return sorted(statuses, key=lambda status: str(status.content["node"]))


def _check(content: dict[str, Any]) -> None:
    kinds = {
        "node": str, "run": str, "state": str, "process": int, "process_space": str,
        "started": str, "changed": str, "round": int, "rounds": int, "waiting": dict,
        "sent": int, "received": int, "dropped": dict,
    }  # fmt: skip
    for name, kind in kinds.items():
        value = content[name]
        if not isinstance(value, kind) or isinstance(value, bool):
            raise TypeError
        if isinstance(value, int) and not 0 <= value < 2**63:
            raise ValueError
    for seconds in content["waiting"].values():
        _require_number(seconds)
    for name in ("epsilon_spent", "epsilon_left"):
        if content[name] is not None and not isinstance(content[name], str):
            _require_number(content[name])
    for found in content.get("unreachable", {}).values():
        if not all(isinstance(found[name], str) for name in ("address", "reason", "advice")):
            raise TypeError
    last = content["last_event"] or {"event": "", "facts": {}}
    if not isinstance(last["event"], str) or not isinstance(last["facts"], dict):
        raise TypeError


def _require_number(value: Any) -> None:
    if isinstance(value, bool) or not math.isfinite(value):
        raise ValueError


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
