"""The two drawings without axes: the graph of parties, and a hundred guesses."""

from __future__ import annotations

import math
from typing import Final

from dpadmm.report import texts
from dpadmm.report.markup import Html, cut, element
from dpadmm.report.plots import GraphPlot, GuessPlot
from dpadmm.topologies import SERVER, Topology

__all__ = ["MOST_LINKS", "MOST_PARTIES", "draw_graph", "draw_guesses"]

#: Larger graphs are told in words: nobody can read them drawn, and the page stays small.
MOST_PARTIES: Final = 150
MOST_LINKS: Final = 1500

_WIDTH: Final = 420.0
_HEIGHT: Final = 280.0
# With more parties than this the names would cover each other; the table has them.
_MOST_NAMES: Final = 24
_SERVER: Final = -1


def draw_graph(plot: GraphPlot) -> tuple[list[Html], float]:
    """Parties as circles whose area follows their rows, links as lines."""
    topology = Topology(SERVER if plot.server else "edges", len(plot.names), tuple(plot.edges))
    places = _places(topology)
    links = [*plot.edges, *((place, _SERVER) for place in places if plot.server and place >= 0)]
    drawn = [
        element(
            "line",
            x1=f"{places[a][0]:g}",
            y1=f"{places[a][1]:g}",
            x2=f"{places[b][0]:g}",
            y2=f"{places[b][1]:g}",
            class_="link",
        )
        for a, b in links
    ]
    if plot.server:
        drawn += _server(*places[_SERVER])
    most = max(plot.rows, default=1)
    small, large = (9.0, 20.0) if len(plot.names) <= _MOST_NAMES else (3.0, 7.0)
    for place, (name, rows) in enumerate(zip(plot.names, plot.rows, strict=True)):
        x, y = places[place]
        radius = max(small, large * math.sqrt(rows / most))
        hint = element("title", texts.PARTY_HINT.format(name=name, rows=rows))
        class_ = "party marked" if name in plot.marked else "party"
        drawn.append(
            element("circle", hint, cx=f"{x:g}", cy=f"{y:g}", r=f"{radius:.3g}", class_=class_)
        )
        if len(plot.names) <= _MOST_NAMES:
            drawn.append(_name(x, y + radius + 14, name))
    return drawn, _HEIGHT


def _places(topology: Topology) -> dict[int, tuple[float, float]]:
    """Where everybody stands: the same for the same graph."""
    count, edges = topology.parties, topology.edges
    if topology.server or len(edges) == count * (count - 1) // 2:
        found = _circle(list(range(count))) | ({_SERVER: (0.0, 0.0)} if topology.server else {})
    elif all(degree == 2 for degree in topology.degrees) and len(topology.components) == 1:
        found = _circle(_around(topology))
    else:
        import networkx as nx

        laid = nx.kamada_kawai_layout(topology.graph)
        found = {node: (float(place[0]), float(place[1])) for node, place in laid.items()}
    middle_x, reach_x = _middle_and_reach([x for x, _ in found.values()])
    middle_y, reach_y = _middle_and_reach([y for _, y in found.values()])
    # Room at the sides for names, and below for the name of the lowest party.
    wide, high = _WIDTH / 2 - 70, _HEIGHT / 2 - 36
    flat = reach_y < 0.05 * reach_x
    return {
        node: (
            round(_WIDTH / 2 + wide * (x - middle_x) / reach_x, 1),
            round(_HEIGHT / 2 - 10 + (0.0 if flat else high * (y - middle_y) / reach_y), 1),
        )
        for node, (x, y) in found.items()
    }


def _middle_and_reach(values: list[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    return (low + high) / 2, (high - low) / 2 or 1.0


def _around(topology: Topology) -> list[int]:
    """The parties of a ring, in the order of their links."""
    order = [0]
    while len(order) < topology.parties:
        order.append(next(x for x in topology.neighbours(order[-1]) if x not in order))
    return order


def _circle(nodes: list[int]) -> dict[int, tuple[float, float]]:
    """On a circle, the first on top."""
    turns = [2 * math.pi * place / len(nodes) for place in range(len(nodes))]
    return {
        node: (math.sin(turn), -math.cos(turn)) for node, turn in zip(nodes, turns, strict=True)
    }


def _name(x: float, y: float, name: str) -> Html:
    return element(
        "text", cut(name, 18), x=f"{x:g}", y=f"{y:g}", class_="label halo", text_anchor="middle"
    )


def _server(x: float, y: float) -> list[Html]:
    box = element(
        "rect", x=f"{x - 14:g}", y=f"{y - 14:g}", width="28", height="28", rx="4", class_="server"
    )
    return [box, _name(x, y + 29, texts.SERVER)]


def draw_guesses(plot: GuessPlot) -> tuple[list[Html], float, float]:
    """Twenty columns of five: right by chance, right by the messages at most, wrong."""
    step, radius, left, top = 18.0, 6.5, 14.0, 16.0
    drawn = []
    for guess in range(100):
        column, row = divmod(guess, 5)
        kind = "chance" if guess < 50 else "gained" if guess < plot.of_hundred else "wrong"
        x, y = left + column * step, top + row * step
        drawn.append(
            element("circle", cx=f"{x:g}", cy=f"{y:g}", r=f"{radius:g}", class_=f"guess {kind}")
        )
    bottom = top + 4 * step + 26
    gained = plot.of_hundred - 50
    keys = (
        ("chance", texts.GUESS_CHANCE),
        ("gained", texts.GUESS_GAINED.format(gained=gained)),
        ("wrong", texts.GUESS_WRONG.format(wrong=100 - plot.of_hundred)),
    )
    for place, (kind, words) in enumerate(keys):
        y = bottom + 19 * place
        drawn.append(
            element("circle", cx=f"{left:g}", cy=f"{y - 4:g}", r="5.5", class_=f"guess {kind}")
        )
        drawn.append(element("text", words, x=f"{left + 14:g}", y=f"{y:g}", class_="label key"))
    return drawn, bottom + 19 * len(keys) - 8, left * 2 + 19 * step
