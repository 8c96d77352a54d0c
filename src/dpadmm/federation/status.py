"""What a node may tell about itself, what its status file says, and the page that shows it.

*Public facts.* No privacy budget covers the people and machines that read logs, status files and
metrics. So nothing in them may depend on private rows except through charged messages. An
allow-list admits a fact by the name of its field and the type of its value: there is no field for a
loss, a residual or the seconds of a local solve, and no field takes an array, bytes or any other
object.

*Status files.* :func:`read_status` reads one, and says whether its process lives.

*The page.* :func:`status_report` shows the graph with who waits for whom, rounds, budgets and
events, all from status files. A status file may hold names and text that somebody else chose: the
page shortens them and shows them as text.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from dpadmm.durable import FileRefusal, read_json
from dpadmm.errors import ClusterError, ExchangeError, LedgerError, ParameterError
from dpadmm.plain import json_number, visible
from dpadmm.privacy.figures import AtLeast, AtMost
from dpadmm.report.document import (
    Banner,
    Bar,
    BarPlot,
    Block,
    Cell,
    Report,
    Section,
    Table,
    Tile,
    Tone,
    WaitPlot,
    Words,
    cut,
    shown_name,
)
from dpadmm.report.svg import MOST_LINKS, MOST_PARTIES

#: What a fact looks like in the log.
Fact = str | int | float | bool | list[str]

_MOST_NAMES: Final = 1000
_CODE_WORD: Final = re.compile(r"[a-z][a-z0-9-]{0,63}")
# Their sentences are about parameters, messages, machines and budgets. Those of other errors may
# speak of rows (a solve that did not converge), so only their kind is told.
_SPOKEN_ERRORS: Final = (ParameterError, ClusterError, ExchangeError, LedgerError)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError
    if not 0 <= int(value) < 2**63:
        raise ValueError
    return int(value)


def _number(value: Any) -> float | str:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError
    number = json_number(float(value))
    if number is None:
        raise ValueError
    return number


def plain_text(value: Any) -> str:
    """The text with only visible characters, cut where it is too long."""
    if isinstance(value, Path):
        value = str(value)
    if not isinstance(value, str):
        raise TypeError
    return visible(value)


def _names(value: Any) -> list[str]:
    if not isinstance(value, (list, tuple, set, frozenset)):
        raise TypeError
    if len(value) > _MOST_NAMES:
        raise ValueError
    items = sorted(value) if isinstance(value, (set, frozenset)) else value
    if not all(isinstance(item, str) for item in items):
        raise TypeError
    return [plain_text(item) for item in items]


def _error(value: Any) -> str:
    if not isinstance(value, BaseException):
        raise TypeError
    kind = type(value).__name__
    return plain_text(f"{kind}: {value}" if isinstance(value, _SPOKEN_ERRORS) else kind)


def code_word(value: Any) -> str:
    """A code, such as ``not-finite``: lower-case letters, digits and hyphens."""
    if not isinstance(value, str) or not _CODE_WORD.fullmatch(value):
        raise ParameterError(
            "the name of an event or a reason must be lower-case letters, digits and hyphens, at "
            f"most 64; got a {type(value).__name__} that is not."
        )
    return value


_KINDS: Final[Mapping[Callable[[Any], Fact], str]] = {
    _flag: "private simulated retried complete signed",
    _whole: "round rounds party parties size limit sent received attempt features outputs rows "
    "process port count version",
    _number: "seconds timeout epsilon delta epsilon_spent epsilon_left",
    plain_text: "node neighbour address algorithm topology policy choice consequence field ours "
    "theirs spec schema fingerprint release model report statement ledger record config log "
    "metrics advice state",
    _names: "neighbours nodes missing waiting",
    code_word: "reason",
    _error: "error",
}

#: Every field that may be told, with what checks its value.
FIELDS: Final[Mapping[str, Callable[[Any], Fact]]] = {
    name: check for check, names in _KINDS.items() for name in names.split()
}


def public_facts(facts: Mapping[str, Any]) -> dict[str, Fact]:
    """The facts as JSON values, each allowed by name and type.

    Raises
    ------
    ParameterError
        For a field that is not on the list or a value of the wrong type. The value is not shown.
    """
    told = {}
    for name, value in facts.items():
        check = FIELDS.get(name)
        if check is None:
            raise ParameterError(
                f"a fact must be on the list of public facts; {plain_text(name)!r} is not. Known: "
                f"{', '.join(sorted(FIELDS))}."
            )
        try:
            told[name] = check(value)
        except (TypeError, ValueError):
            raise ParameterError(
                f"the fact {name!r} must be of the kind that its field takes; got a "
                f"{type(value).__name__} that is not."
            ) from None
    return told


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
    """Exact types; fields that a later version adds are ignored."""

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
    """The fields of a status file; those with a default came later, or may be absent."""

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
    """Where a process number is valid: the machine and, in it, the container."""
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
    """Read the status file of one node, or refuse."""
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
    """Read the files that are there, and say why the others are not: a node may not have begun.

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
    """Every status file once; and folders without any."""
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


#: What the page shows, for the person who decides who may see it.
SHOWN: Final = (
    "names and addresses of nodes, their rounds, whom they wait for and why, bytes of messages, "
    "the epsilon that their ledgers state, the last events of their logs, and where their status "
    "files and processes are"
)
_ABOUT: Final = (
    f"This page shows what status files say: {SHOWN}. Nothing in it depends on rows but through "
    "charged messages, and through time: when something happened depends on how long nodes "
    "compute, which no budget covers. Keep it within your organisation."
)
_GOSSIP: Final = (
    "Neighbours whose owners set share_status say this of themselves. Nobody has checked it, and "
    "nothing depends on it: whoever lies is shown wrongly itself. Others say nothing, or are no "
    "neighbours."
)
_CAPTION: Final = (
    "A full circle is a node whose status file is shown here, a ring one that says so itself, a "
    "dashed one is not heard of. An arrow leads to whom a node waits for."
)
_TROUBLE: Final[Mapping[str, tuple[Tone, str]]] = {
    "dead": ("danger", "DEAD."),
    "failed": ("danger", "FAILED."),
    "silent": ("caution", "SILENT."),
}
_ADVICE: Final = {
    "dead": "its process is gone. Start it again: it goes on where it was.",
    "silent": "it has written nothing for a while: it is frozen, or its disk is full.",
}
# Gossip that old may be over; a neighbour speaks every two seconds.
_STALE: Final = 15.0
_MOST_NAMED: Final = 8
_MOST_BARS: Final = 24
_MOST_BANNERS: Final = 12
_MOST_ROWS: Final = 60


def status_report(nodes: Sequence[NodeStatus], absent: Mapping[Path, str]) -> Report:
    """The page of some nodes.

    Parameters
    ----------
    nodes
        What their status files say.
    absent
        Status files of which there is nothing to show, with a sentence each.
    """
    runs = sorted({str(node.content["run"]) for node in nodes})
    known = _known(nodes)
    title = f"Run {shown_name(runs[0])}" if len(runs) == 1 and runs[0] else "Nodes"
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S")
    return Report(
        title,
        f"{_count(len(nodes), 'status file')}, looked at {now} UTC",
        banners=_banners(nodes, absent),
        tiles=_tiles(nodes, known) if nodes else (),
        answers=_answers(nodes, known) if nodes else (("What is there", "Nothing yet."),),
        picture=_picture(nodes, known) if len(runs) == 1 else None,
        sections=_sections(nodes, known),
    )


@dataclass(frozen=True)
class _Seen:
    """A node, from its status file, from gossip, or from the agreed run alone."""

    kind: str
    words: str
    round: int = 0
    rounds: int = 0
    #: Whom it waits for, and for how long or why where that is known.
    waits: Mapping[str, str] = field(default_factory=dict)


def _known(nodes: Sequence[NodeStatus]) -> dict[str, _Seen]:
    """Every known node; a status file counts more than gossip."""
    known: dict[str, _Seen] = {}
    for node in nodes:
        graph = node.content.get("graph") or {"nodes": []}
        known |= {name: _Seen("unknown", "not heard of") for name in graph["nodes"]}
    spoken = [
        (seconds_since(other["heard"]), name, other, node.content["rounds"])
        for node in nodes
        for name, other in node.content.get("others", {}).items()
    ]
    # What a node told several neighbours: the newest counts.
    for age, name, other, rounds in sorted(spoken, key=lambda each: -each[0]):
        waits = dict.fromkeys(other["waiting"] if age <= _STALE else (), "")
        words = f"says {_progress(other, rounds)}"
        known[name] = _Seen("said", words, other["round"], rounds, waits)
    for node in nodes:
        content = node.content
        well = node.life in ("alive", "finished")
        words = node.life if not well else _progress(content, content["rounds"])
        waits = _waits(content) if node.life != "dead" else {}
        known[content["node"]] = _Seen(
            "well" if well else "trouble", words, content["round"], content["rounds"], waits
        )
        for name in waits:
            known.setdefault(name, _Seen("unknown", "not heard of"))
    return known


def _waits(content: Mapping[str, Any]) -> dict[str, str]:
    waits = {other: f" ({seconds:.0f} s)" for other, seconds in content["waiting"].items()}
    for other, found in content.get("unreachable", {}).items():
        waits[other] = f" ({cut(found['reason'], 64)})"
    return waits


def _progress(content: Mapping[str, Any], rounds: int) -> str:
    done = f"{content['round']}/{rounds}" if rounds else ""
    return done if content["state"] == "running" and done else f"{cut(content['state'], 20)} {done}"


def _picture(nodes: Sequence[NodeStatus], known: Mapping[str, _Seen]) -> WaitPlot | None:
    """The agreed graph; where no file has one, the links that are known of."""
    places = {name: place for place, name in enumerate(known)}
    graphs = [node.content["graph"] for node in nodes if node.content.get("graph")]
    pairs = [pair for graph in graphs[:1] for pair in graph["links"]]
    waits = [(name, other) for name, seen in known.items() for other in seen.waits]
    if not graphs:
        pairs = [list(wait) for wait in waits]
        pairs += [
            [node.content["node"], name]
            for node in nodes
            for name in node.content.get("others", {})
        ]
    edges = {
        (min(places[a], places[b]), max(places[a], places[b]))
        for a, b in pairs
        if a in places and b in places and a != b
    }
    if not known or len(known) > MOST_PARTIES or len(edges) > MOST_LINKS:
        return None
    server = places.get(graphs[0]["server"]) if graphs else None
    return WaitPlot(
        "Who waits for whom",
        tuple(known),
        tuple(seen.words for seen in known.values()),
        tuple(seen.kind for seen in known.values()),
        tuple(sorted(edges)),
        tuple((places[a], places[b]) for a, b in waits[:MOST_LINKS] if b in places),
        # Around a server there is nothing but links to it, or it is none.
        server if all(server in edge for edge in edges) else None,
        caption=_CAPTION,
    )


def _banners(nodes: Sequence[NodeStatus], absent: Mapping[Path, str]) -> tuple[Banner, ...]:
    found = [
        Banner(
            *_TROUBLE[node.life],
            f"{shown_name(node.content['node'])}: {cut(node.failure or _ADVICE[node.life], 300)}",
        )
        for node in nodes
        if node.life in _TROUBLE
    ]
    found += [Banner("info", "NOT SHOWN.", cut(words, 300)) for words in absent.values()]
    return tuple(found[:_MOST_BANNERS])


def _tiles(nodes: Sequence[NodeStatus], known: Mapping[str, _Seen]) -> tuple[Tile, ...]:
    slowest = min((node.content for node in nodes), key=lambda content: int(content["round"]))
    well = sum(node.life in ("alive", "finished") for node in nodes)
    waiting = sum(bool(seen.waits) for seen in known.values())
    return (
        Tile(
            f"{slowest['round']} of {slowest['rounds']}",
            "rounds complete, by status files",
        ),
        Tile(f"{well} of {len(nodes)}", "nodes shown here are well"),
        Tile(str(waiting), "wait for somebody" if waiting != 1 else "waits for somebody"),
    )


def _answers(
    nodes: Sequence[NodeStatus], known: Mapping[str, _Seen]
) -> tuple[tuple[str, str], ...]:
    rounds = (f"{shown_name(name)}: {seen.words}" for name, seen in known.items())
    waits = [
        f"{shown_name(name)}{' says that it' if seen.kind == 'said' else ''} waits for "
        f"{_listed((shown_name(other) + why for other, why in seen.waits.items()), ', ')}"
        for name, seen in known.items()
        if seen.waits
    ]
    budgets = [
        f"{shown_name(node.content['node'])}: epsilon "
        f"{_bound(node.content['epsilon_spent'], AtMost)} of its data set, and "
        f"{_bound(node.content['epsilon_left'], AtLeast)} of Gaussian releases still fits"
        for node in nodes
        if node.content["epsilon_spent"] is not None
    ]
    return (
        ("How far it is", _listed(rounds)),
        ("Who waits", _listed(waits) or "Nobody, for long."),
        ("What was spent", _listed(budgets) or "No ledger has said."),
    )


def _listed(words: Iterable[str], between: str = "; ") -> str:
    """The first few, and how many more there are."""
    every = list(words)
    more = len(every) - _MOST_NAMED
    return between.join([*every[:_MOST_NAMED], *([f"{more} more"] if more > 0 else [])])


def _sections(nodes: Sequence[NodeStatus], known: Mapping[str, _Seen]) -> tuple[Section, ...]:
    told: list[tuple[str, list[Block]]] = [
        ("Nodes", _node_blocks(nodes, known) if nodes else []),
        ("Not connected", _unreachable(nodes)),
        ("Others, as they say", _gossip(nodes)),
        ("Events", _events(nodes)),
        ("What is shown here", [Words(_ABOUT)]),
    ]
    return tuple(Section(title, tuple(blocks)) for title, blocks in told if blocks)


def _node_blocks(nodes: Sequence[NodeStatus], known: Mapping[str, _Seen]) -> list[Block]:
    columns = (
        *("node", "life", "state", "round", "of", "epsilon spent", "left", "bytes sent"),
        *("received", "messages refused", "seconds old"),
    )
    rows: list[tuple[Cell, ...]] = []
    for node in nodes:
        content = node.content
        rows.append(
            (
                *(shown_name(content["node"]), node.life, cut(content["state"], 20)),
                *(content["round"], content["rounds"]),
                _cell(content["epsilon_spent"], AtMost),
                _cell(content["epsilon_left"], AtLeast),
                *(content["sent"], content["received"], _refused(content), round(node.age)),
            )
        )
    bars = tuple(
        Bar(f"{shown_name(name)}{', as it says' * (seen.kind == 'said')}", seen.round, seen.rounds)
        for name, seen in known.items()
        if seen.rounds
    )
    table = Table("Nodes by their status files", columns, tuple(rows))
    if not 0 < len(bars) <= _MOST_BARS:
        return [table]
    return [table, BarPlot("Rounds", "node", "complete rounds", bars, of_label="of")]


def _refused(content: Mapping[str, Any]) -> int:
    counts = content["dropped"].values()
    return sum(count for count in counts if isinstance(count, int) and 0 <= count < 2**63)


def _unreachable(nodes: Sequence[NodeStatus]) -> list[Block]:
    rows = tuple(
        (
            *(shown_name(node.content["node"]), shown_name(name), cut(found["reason"], 64)),
            *(cut(found["advice"], 300), shown_name(found["address"])),
        )
        for node in nodes
        for name, found in node.content.get("unreachable", {}).items()
    )
    columns = ("node", "misses", "reason", "what to do", "address")
    return [Table("Neighbours that cannot be reached", columns, rows[:_MOST_ROWS])] if rows else []


def _gossip(nodes: Sequence[NodeStatus]) -> list[Block]:
    rows = tuple(
        (
            *(shown_name(name), cut(other["state"], 20), other["round"]),
            _listed(map(shown_name, other["waiting"]), ", "),
            *(shown_name(node.content["node"]), round(seconds_since(other["heard"]))),
        )
        for node in nodes
        for name, other in node.content.get("others", {}).items()
    )
    columns = ("node", "state", "round", "waits for", "said to", "seconds ago")
    return (
        [Words(_GOSSIP), Table("What neighbours say", columns, rows[:_MOST_ROWS])] if rows else []
    )


def _events(nodes: Sequence[NodeStatus]) -> list[Block]:
    found = [
        (event["time"], node, event) for node in nodes for event in node.content.get("events", [])
    ]
    rows = tuple(
        (
            *(cut(moment[:19].replace("T", " "), 19), shown_name(node.content["node"])),
            *(cut(event["level"], 10), cut(event["event"], 64), cut(event["words"], 300)),
        )
        for moment, node, event in sorted(found, key=lambda each: str(each[0]))[::-1]
    )
    columns = ("time (UTC)", "node", "level", "event", "what")
    return [Table("The last events", columns, rows[:_MOST_ROWS])] if rows else []


def _bound(value: float | str | None, kind: type[AtMost | AtLeast]) -> str:
    return "" if value is None else cut(value, 20) if isinstance(value, str) else f"{kind(value):4}"


def _cell(value: float | str | None, kind: type[AtMost | AtLeast]) -> Cell:
    return value if value is None or isinstance(value, str) else kind(value)


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"
