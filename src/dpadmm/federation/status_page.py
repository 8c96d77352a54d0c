"""What nodes are doing, as a page: the graph with who waits for whom, rounds, budgets, events.

Everything on it is from status files. Names and words in them may be anybody's: on the page they
are cut, and text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from dpadmm.federation.status import NodeStatus, seconds_since
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
)
from dpadmm.report.markup import cut, shown_name
from dpadmm.report.svg import MOST_LINKS, MOST_PARTIES

#: What the page shows, for whoever decides who may see it.
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
_HEARSAY: Final = (
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
# What a neighbour said that long ago may be over; it speaks every two seconds.
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
    """A node, by its own status file, by its own words or by the agreed run alone."""

    kind: str
    words: str
    round: int = 0
    rounds: int = 0
    #: Whom it waits for, with for how long or why where that is known.
    waits: Mapping[str, str] = field(default_factory=dict)


def _known(nodes: Sequence[NodeStatus]) -> dict[str, _Seen]:
    """Every node that is heard of; a status file counts more than words."""
    known: dict[str, _Seen] = {}
    for node in nodes:
        graph = node.content.get("graph") or {"nodes": []}
        known |= {name: _Seen("unknown", "not heard of") for name in graph["nodes"]}
    spoken = [
        (seconds_since(other["heard"]), name, other, node.content["rounds"])
        for node in nodes
        for name, other in node.content.get("others", {}).items()
    ]
    # Of what one says to several the newest counts.
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
        ("Others, as they say", _hearsay(nodes)),
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


def _hearsay(nodes: Sequence[NodeStatus]) -> list[Block]:
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
        [Words(_HEARSAY), Table("What neighbours say", columns, rows[:_MOST_ROWS])] if rows else []
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
