r"""A joint test of noise: whether it has the covariance that is claimed, everywhere at once.

Noise is divided by what the claim needs it to be, so that under the claim every score is an
independent standard normal number, over parties, runs, rounds, outputs and coordinates. With Z the
scores, and sums over any set of n of them,

.. math:: \sum Z^2 \sim \chi^2_n,\qquad
          \frac{\langle Z_a, Z_b\rangle^2}{\|Z_a\|^2\|Z_b\|^2} \sim \mathrm{Beta}(1/2, (n-1)/2),
          \qquad \Pr[\sup|F_n - \Phi| > x] \le 2e^{-2nx^2}

exactly (the last by Massart 1990). So the limits need no calibration:

* *variance*: of every cell (party, round, output, coordinate), of every party, round and coordinate
  with the others summed up, of some pairs of them, and of all together;
* *correlation*: between any two rounds, parties, coordinates, outputs or runs, the other axes
  being lined up, between any two cells, and between noise of two kinds;
* *shape*: the distribution of all scores.

Each of these families gets the same part of one false-alarm rate, and each of its tests the same
part of that (Bonferroni): an honest mechanism is refuted with no more than the stated probability.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from scipy.special import (
    betaincc,
    chdtr,
    chdtrc,
    gammainc,
    gammaincc,
    gammainccinv,
    gammaincinv,
    ndtr,
)

from dpadmm.plain import Array

__all__ = ["AXES", "Deviation", "NoiseScores", "find_faults", "normal_scores"]

#: The axes of scores.
AXES: Final = ("party", "run", "round", "output", "coordinate")
# Sums of squares are looked at over all axes but these.
_VARIANCES: Final[tuple[tuple[str, ...], ...]] = (
    (),
    ("party",),
    ("round",),
    ("round", "coordinate"),
    ("party", "round"),
    ("party", "output", "coordinate"),
    ("party", "round", "output", "coordinate"),
)
# Correlations of single cells are looked at among this many of them, spread evenly.
_MOST_CELLS: Final = 1500


@dataclass(frozen=True)
class NoiseScores:
    """Noise over what the claim needs: standard normal numbers, if the claim is right.

    Attributes
    ----------
    name
        What the noise is for.
    values
        With :data:`AXES`; a round counts as several where it drew several times.
    rounds
        The number of each round, from 0.
    exact
        What is claimed is known exactly; else there may be more noise, never less.
    """

    name: str
    values: Array
    rounds: tuple[int, ...]
    exact: bool = True

    def words(self, names: Sequence[str], place: Sequence[Any]) -> str:
        """A place in words."""
        parts = []
        for name, index in zip(names, place, strict=True):
            number = self.rounds[int(index)] if name == "round" else int(index)
            parts.append(f"{name} {number}")
        return ", ".join(parts) or "all places together"


@dataclass(frozen=True)
class Deviation:
    """What is wrong with noise, or with what is said about it.

    Attributes
    ----------
    sentence
        In words.
    probability
        At most how likely so much is by chance, all tests counted; 0 where no chance is involved.
    """

    sentence: str
    probability: float = 0.0


@dataclass(frozen=True)
class _Family:
    """Tests that share one part of the false-alarm rate.

    Attributes
    ----------
    values
        The probability of each under the claim.
    words
        What it means that the test at a place fails.
    """

    values: Array
    words: Any


def normal_scores(drawn: Array) -> Array:
    """Turn draws of density exp(-||b||) over the last axis into standard normal vectors.

    The direction stays; the radius, Gamma(d), becomes that of a normal vector at the same
    quantile, so that more noise stays more and less less.
    """
    features = drawn.shape[-1]
    radius = np.linalg.norm(drawn, axis=-1, keepdims=True)
    inner = gammaincinv(features / 2, gammainc(features, radius))
    outer = gammainccinv(features / 2, gammaincc(features, radius))
    wanted = np.sqrt(2 * np.where(radius < features, inner, outer))
    return drawn * np.divide(wanted, radius, out=np.zeros_like(radius), where=radius > 0)


def find_faults(scores: Sequence[NoiseScores], false_alarm: float) -> tuple[list[Deviation], int]:
    """Return what contradicts the claim, and how many tests were made.

    Parameters
    ----------
    scores
        Of every kind of noise; they are tested together.
    false_alarm
        The probability of a finding where there is nothing to find.
    """
    families = [family for each in scores for family in _families(each)]
    families += _between_kinds(scores)
    found, tests = [], 0
    for family in families:
        size = family.values.size
        tests += size
        if not size:
            continue
        allowed = false_alarm / (len(families) * size)
        failed = family.values <= allowed
        if failed.any():
            place = np.unravel_index(int(np.argmin(family.values)), family.values.shape)
            worst = float(family.values[place])
            others = int(failed.sum()) - 1
            more = f", and {others} more like it" if others else ""
            chance = min(1.0, worst * size * len(families))
            found.append(Deviation(f"{family.words(place)}{more}", chance))
    return found, tests


def _families(scores: NoiseScores) -> Iterator[_Family]:
    yield from _variances(scores)
    for axis, name in enumerate(AXES):
        if scores.values.shape[axis] > 1:
            yield _correlations(scores, np.moveaxis(scores.values, axis, 0), (name,))
    # Between any two cells, over runs.
    cells = ("party", "round", "output", "coordinate")
    yield _correlations(scores, np.moveaxis(scores.values, 1, -1), cells)
    if scores.exact:
        yield _shape(scores)


def _variances(scores: NoiseScores) -> Iterator[_Family]:
    squares = np.square(scores.values)
    for names in _VARIANCES:
        summed = tuple(axis for axis, name in enumerate(AXES) if name not in names)
        total = np.asarray(squares.sum(axis=summed))
        count = squares.size // total.size

        def words(place: Any, names: Any = names, total: Any = total, count: int = count) -> str:
            share = total[place] / count
            kind = "too little" if share < 1 else "too much"
            return (
                f"{scores.name}: {kind} noise at {scores.words(names, place)}: {share:.3g} of the "
                f"variance that is claimed, over {count} draws"
            )

        chance = chdtr(count, total)
        if scores.exact:
            chance = np.minimum(2 * np.minimum(chance, chdtrc(count, total)), 1.0)
        yield _Family(chance, words)


def _correlations(scores: NoiseScores, ordered: Array, names: tuple[str, ...]) -> _Family:
    """Between any two places along the first axes, everything else lined up."""
    rows = ordered.reshape(*ordered.shape[: len(names)], -1)
    places = np.array(list(np.ndindex(rows.shape[:-1])))
    rows = rows.reshape(len(places), -1)
    chosen = np.unique(np.linspace(0, len(rows) - 1, _MOST_CELLS).astype(np.intp))
    rows, places = _unit(rows[chosen]), places[chosen]
    first, second = np.triu_indices(len(rows), 1)
    pairs, count = (rows @ rows.T)[first, second], rows.shape[1]

    def words(place: Any) -> str:
        one, two = (scores.words(names, places[side[place]]) for side in (first, second))
        return (
            f"{scores.name}: the noise of {one} is not independent of that of {two}: correlation "
            f"{pairs[place][()]:.3g} over {count} draws"
        )

    return _Family(_chances(pairs, count), words)


def _between_kinds(scores: Sequence[NoiseScores]) -> Iterator[_Family]:
    """Between noise of two kinds, party by party, everything else lined up."""
    for place, one in enumerate(scores):
        for two in scores[place + 1 :]:
            if one.values.shape == two.values.shape:
                flat = [each.values.reshape(len(each.values), -1) for each in (one, two)]
                first, second = (_unit(each) for each in flat)
                pairs = np.einsum("pn,pn->p", first, second)
                count = first.shape[1]

                def words(
                    at: Any, pairs: Any = pairs, count: int = count, names: Any = (one, two)
                ) -> str:
                    return (
                        f"{names[0].name}: not independent of {names[1].name} at party "
                        f"{int(at[0])}: correlation {pairs[at]:.3g} over {count} draws"
                    )

                yield _Family(_chances(pairs, count), words)


def _unit(rows: Array) -> Array:
    """Each row over its length; a row of zeros stays."""
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.divide(rows, length, out=np.zeros_like(rows), where=length > 0)


def _chances(correlations: Array, count: int) -> Array:
    """How likely independent vectors of so many normal numbers are to be correlated so much."""
    squares, chances = np.minimum(np.square(correlations), 1.0), np.ones_like(correlations)
    if count > 1:
        # Only what is unlikely is worth its probability: the others are far from any limit.
        unlikely = squares > 9 / count
        chances[unlikely] = betaincc(0.5, (count - 1) / 2, squares[unlikely])
    return chances


def _shape(scores: NoiseScores) -> _Family:
    ordered = np.sort(scores.values, axis=None)
    count = ordered.size
    below = ndtr(ordered)
    steps = np.arange(count + 1) / count
    gap = float(max((steps[1:] - below).max(), (below - steps[:-1]).max()))
    chance = min(1.0, 2 * float(np.exp(-2 * count * gap**2)))

    def words(place: Any) -> str:
        return (
            f"{scores.name}: the noise has another distribution than is claimed: {gap:.3g} away "
            f"over {count} draws"
        )

    return _Family(np.array([chance]), words)
