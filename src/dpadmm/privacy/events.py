"""What a release costs: frozen records, one per theorem.

An event never changes its meaning: a new theorem is a new class, a corrected one a new
``version``. The docstring of each class is the statement with its assumptions. What an event
costs is worked out in :mod:`dpadmm.privacy.curves`, and only there.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Final

__all__ = ["EVENT_KINDS", "NON_PRIVATE", "Event", "NonPrivate", "PostProcessing", "event_from_dict"]


@dataclass(frozen=True, slots=True)
class Event:
    """One release by one party, as the accountant sees it."""

    kind: ClassVar[str]
    version: ClassVar[int] = 1

    def to_dict(self) -> dict[str, Any]:
        """Plain data that :func:`event_from_dict` turns back into the same event."""
        return {"kind": self.kind, "version": self.version, **asdict(self)}


@dataclass(frozen=True, slots=True)
class PostProcessing(Event):
    """A function of what was released before: costs nothing, whatever the function.

    Assumes that the value sent depends on the party's rows only through earlier releases.
    """

    kind: ClassVar[str] = "post-processing"


@dataclass(frozen=True, slots=True)
class NonPrivate(Event):
    """A release without any guarantee: epsilon is infinite. Every policy refuses it."""

    kind: ClassVar[str] = "non-private"


#: The one instance that is ever needed.
NON_PRIVATE: Final = NonPrivate()

EVENT_KINDS: Final[dict[str, type[Event]]] = {
    event.kind: event for event in (PostProcessing, NonPrivate)
}


def event_from_dict(data: dict[str, Any]) -> Event:
    """Rebuild an event; an unknown kind, version or field is refused, never ignored."""
    record = dict(data)
    kind, version = record.pop("kind", None), record.pop("version", None)
    if kind not in EVENT_KINDS:
        raise ValueError(f"event kind must be one of {sorted(EVENT_KINDS)}; got {kind!r}")
    cls = EVENT_KINDS[kind]
    if version != cls.version:
        raise ValueError(f"event {kind!r} must have version {cls.version}; got {version!r}")
    known = {field.name for field in fields(cls)}
    if set(record) != known:
        raise ValueError(
            f"event {kind!r} must have the fields {sorted(known)}; got {sorted(record)}"
        )
    return cls(**record)
