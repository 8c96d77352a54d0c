"""The sentence that a comparison opens with: does training together pay? From its lines alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from dpadmm.experiments.baselines import (
    ALONE,
    BEST_ALONE,
    CURATOR,
    POOLED,
    PRIVATE_ALONE,
)
from dpadmm.experiments.comparison import BASELINES, CHOOSES, Line
from dpadmm.experiments.standing import BEATS, BELOW, LEVEL_WITH, percent, standing
from dpadmm.privacy.figures import Given

__all__ = ["headline"]

_STANDINGS: Final = {
    BEATS: "beats every party alone",
    LEVEL_WITH: "cannot be told from the best party alone",
    BELOW: "does not beat the best party alone",
}


def headline(lines: Sequence[Line]) -> str:
    """Say what the best algorithm reaches beside each party alone and a trusted curator.

    Figures are of the budget nearest to epsilon 1; how the best algorithm stands to the best party
    alone is said of every budget. Published noise does not count: its epsilon is not proven.
    """
    judged = [line for line in lines if CHOOSES in line.figures]
    best = _best_together(judged)
    if not best:
        return f"No private algorithm with a proven guarantee and a {CHOOSES} was compared."
    epsilon = min(best, key=lambda each: abs(math.log(each)))
    name, where = best[epsilon].place.who, best[epsilon].place.topology
    words = [
        f"At epsilon {Given(epsilon)} the best of the algorithms compared ({name}, {where}; picked "
        f"by these figures) gets {_share(best[epsilon])} of the held-back rows right.",
        *_others(judged, epsilon),
    ]
    alone = _line_of(judged, BEST_ALONE)
    return " ".join([*words, *([_verdicts(best, alone)] if alone else [])])


def _best_together(lines: Sequence[Line]) -> dict[float, Line]:
    """The best proven private algorithm at each budget."""
    best: dict[float, Line] = {}
    for line in lines:
        place = line.place
        private = place.calibration == "proven" and np.isfinite(place.epsilon)
        if not private or place.who in BASELINES:
            continue
        before = best.get(place.epsilon)
        if before is None or line.figures[CHOOSES].mean > before.figures[CHOOSES].mean:
            best[place.epsilon] = line
    return best


def _line_of(lines: Sequence[Line], who: str, epsilon: float = math.inf) -> Line | None:
    wanted = (who, epsilon)
    return next((each for each in lines if (each.place.who, each.place.epsilon) == wanted), None)


def _share(line: Line) -> str:
    return percent(line.figures[CHOOSES].mean)


def _others(lines: Sequence[Line], epsilon: float) -> list[str]:
    """What parties have alone, and one trusted place."""
    alone, best = _line_of(lines, ALONE), _line_of(lines, BEST_ALONE)
    private = _line_of(lines, PRIVATE_ALONE, epsilon)
    curator, pooled = _line_of(lines, CURATOR, epsilon), _line_of(lines, POOLED)
    found = []
    if alone and best:
        within = f"; within the same budget {_share(private)} on average" if private else ""
        found.append(
            f"A party alone gets {_share(alone)} on average and {_share(best)} at best without "
            f"privacy{within}."
        )
    if curator and pooled:
        found.append(
            f"One place trusted with all rows gets {_share(curator)} within the same budget "
            f"({curator.source}) and {_share(pooled)} without privacy."
        )
    return found


def _verdicts(best: dict[float, Line], alone: Line) -> str:
    """How training together stands to the best party alone, budget by budget."""
    level = alone.figures[CHOOSES].mean
    at: dict[str, list[str]] = {}
    for epsilon in sorted(best, reverse=True):
        found = standing(best[epsilon].figures[CHOOSES], level)
        at.setdefault(_STANDINGS[found], []).append(str(Given(epsilon)))
    parts = [f"{words} at epsilon {' and '.join(budgets)}" for words, budgets in at.items()]
    return f"Training together {'; it '.join(parts)}."
