r"""The cost and the noise that a release must have, computed independently of the algorithms.

From public facts alone, with L and c_1 the largest slope and curvature that the loss shows:

.. math:: m = \lambda/N + 2\eta V,\qquad \Delta = \sqrt K\,(2Lc/n + 2\,\mathrm{tol})/m,\qquad
          \kappa = c c_1/(n m)

A round that was announced as mu-GDP needs :math:`\sigma = \Delta/\mu`; one announced as
epsilon-DP under gradient noise exp(-||b|| / scale) needs
:math:`\mathrm{scale} = (2Lc/n) / (\epsilon - \ln(1+\kappa))`. Nothing here is taken from
:mod:`dpadmm.privacy.sensitivity` or from an algorithm's own numbers but its solver's tolerance.

**Covariance.** A joint test of whether the noise has the claimed covariance, everywhere at once.

The noise is divided by what the claim needs, so under the claim every score is an independent
standard normal number, over parties, runs, rounds, outputs and coordinates. With Z the
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
part of that (Bonferroni). So an honest mechanism is refuted with at most the stated probability.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from scipy.special import (
    betaincc,
    chdtr,
    chdtrc,
    expit,
    gammainc,
    gammaincc,
    gammainccinv,
    gammaincinv,
    log_ndtr,
    ndtr,
)

from dpadmm.audit.scene import Scene
from dpadmm.plain import Array
from dpadmm.privacy.accountant import epsilon_spent
from dpadmm.privacy.events import (
    Composed,
    Event,
    GaussianObjectivePerturbation,
    GaussianRelease,
    InexactSolve,
    PostProcessing,
    PureRelease,
    Repeated,
    SharedGaussian,
    SubsampledGaussian,
)
from dpadmm.problem.site import Site

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
    """Noise divided by what the claim needs: standard normal numbers if the claim is right.

    Attributes
    ----------
    name
        What the noise is for.
    values
        With :data:`AXES`; a round counts as several where it drew several times.
    rounds
        The number of each round, from 0.
    exact
        The claimed noise is known exactly; otherwise there may be more noise, never less.
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
    """A fault in the noise, or in what is charged for it.

    Attributes
    ----------
    sentence
        In words.
    probability
        The largest probability of it by chance, over all tests; 0 if chance plays no role.
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

    The direction stays. The radius, Gamma(d), becomes that of a normal vector at the same quantile,
    so more noise stays more noise.
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
    """Correlations between any two places along the first axes, all other axes aligned."""
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
    """Correlations between noise of two kinds, party by party, all other axes aligned."""
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
    """The probability that independent normal vectors of this length correlate this much."""
    squares, chances = np.minimum(np.square(correlations), 1.0), np.ones_like(correlations)
    if count > 1:
        # Compute the probability of unlikely values only: the others are far from any limit.
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


# Rounding of sums and products, far below what any claim leaves room for.
_ROUNDED: Final = 1 - 1e-12
_MARGINS: Final = np.concatenate([np.linspace(-60, 60, 24_001), [-1e3, 1e3]])


def parts_of(event: Event) -> list[Event]:
    """The events that an event is made of, one by one."""
    if isinstance(event, Composed):
        return [part for each in event.events for part in parts_of(each)]
    if isinstance(event, Repeated):
        return parts_of(event.event) * event.count
    return [event]


class Oracle:
    """Public facts of the parties, and what follows from them.

    Parameters
    ----------
    scene, site
        What is run, by whom.
    algorithm
        Asked for the tolerance of its solves, the size of its batches, and whether it uses the
        public bound on norms.
    """

    def __init__(self, scene: Scene, site: Site, algorithm: Any) -> None:
        self._scene, self._site, self._algorithm = scene, site, algorithm
        self.slope = float(np.abs(site.loss.slope(_MARGINS.copy())).max())
        curvature = float(site.loss.curvature(_MARGINS.copy()).max())
        #: c / n of each party, and how far one row moves a gradient of one output.
        self.share = site.weight / site.rows
        self.gradient = 2 * self.slope * self.share
        self._curvature = curvature * self.share
        self._tolerance = np.asarray(getattr(algorithm, "tolerance", 0.0), dtype=np.float64)
        self._batch = getattr(algorithm, "batch", None)
        self.public_norm = bool(getattr(algorithm, "public_norm", False))

    def convexity(self, t: int) -> Array:
        """``lambda / N + 2 eta_t V`` of each party in round ``t``."""
        growth = float(self._scene.options.get("penalty_growth", self._growth_by_default()))
        release = t // 2 if self._recycles else t
        penalty = self._scene.penalty * growth**release
        facts = self._site
        value: Array = facts.regularization / facts.parties + 2 * penalty * facts.degree
        return value

    @property
    def _recycles(self) -> bool:
        options = self._scene.kind.options.model_fields
        return "send_even" in options and bool(self._scene.options.get("send_even", True))

    def _growth_by_default(self) -> float:
        about = self._scene.kind.options.model_fields.get("penalty_growth")
        return 1.0 if about is None else float(about.default)

    def _tolerance_in(self, t: int) -> Array:
        """The tolerance of each party's solve in round ``t``."""
        if self._tolerance.ndim == 2:
            return np.asarray(self._tolerance[t // 2 if self._recycles else t])
        return np.broadcast_to(self._tolerance, len(self._site.rows))

    def reach(self, t: int) -> Array:
        """How far one row moves all outputs of a minimiser together."""
        moved = self.gradient + 2 * self._tolerance_in(t)
        return math.sqrt(self._site.outputs) * moved / self.convexity(t)

    def norm_reach(self, linear: Array, t: int) -> Array:
        r"""The same from the public bound r on a minimiser's norm; from below.

        .. math:: s(r) \ge \max_\phi 2\sin\phi\,\mathrm{expit}(r\cos\phi),\quad
                  r = (\|\mathrm{lin}\| + cL)/m
        """
        convexity = self.convexity(t)[:, None, None]
        weight = self._site.weight[:, None, None]
        radius = (np.linalg.norm(linear, axis=-1) + weight * self.slope) / convexity
        angles = np.linspace(0, math.pi, 401)
        factor = (2 * np.sin(angles) * expit(radius[..., None] * np.cos(angles))).max(axis=-1)
        moved = factor * self.share[:, None, None] + 2 * self._tolerance_in(t)[:, None, None]
        return math.sqrt(self._site.outputs) * moved / convexity

    def difference(self, way: Array, batch: Any, events: Sequence[Event]) -> Array:
        r"""The noise that a batch difference needs, a step of length ``way`` from the start.

        .. math:: \sqrt K\,\frac cb\min(2R,\; c_1\|v^s - v^0\|)\,/\,\mu_d
        """
        site, mu = self._site, []
        slopes = site.loss.slope(_MARGINS.copy())
        for event in events:
            parts = [part for part in parts_of(event) if isinstance(part, SubsampledGaussian)]
            mu.append(min(part.sigma / part.sensitivity for part in parts))
        curvature = (self._curvature / self.share)[:, None, None]
        moved = np.minimum(2 * float(np.ptp(slopes)), curvature * way)
        return moved * (math.sqrt(site.outputs) * site.weight / batch * np.array(mu))[:, None, None]

    def objective_scale(self, events: Sequence[Event]) -> Array:
        """The gradient noise that each party needs for what it announced."""
        scales = []
        for place, event in enumerate(events):
            parts = parts_of(event)
            inexact = next(part for part in parts if isinstance(part, InexactSolve))
            kappa = self._curvature[place] / inexact.strong_convexity
            room = math.inf
            for part in parts:
                if isinstance(part, PureRelease):
                    room = min(room, part.epsilon - math.log1p(kappa))
                elif isinstance(part, GaussianObjectivePerturbation):
                    room = min(room, part.mu)
            scales.append(self.gradient[place] / room if room > 0 else math.inf)
        return np.array(scales)

    def check(self, events: Sequence[Event], t: int) -> list[Deviation]:
        """What is wrong with the announcement of a round, party by party."""
        found = []
        for place, event in enumerate(events):
            wrong = self._wrong(parts_of(event), place, t)
            who = f"party {place}, round {t}"
            found += [Deviation(f"what is charged, {who}: {words}") for words in wrong]
        return found

    def _wrong(self, parts: list[Event], place: int, t: int) -> Iterator[str]:
        minima = [p for p in parts if isinstance(p, PureRelease | GaussianObjectivePerturbation)]
        inexact = [part for part in parts if isinstance(part, InexactSolve)]
        if minima or inexact:
            yield from self._wrong_objective(minima, inexact, place, t)
            return
        rate = 0.0 if self._batch is None else float(self._batch[place] / self._site.rows[place])
        needed = float(self.release_reach(t)[place])
        for part in parts:
            if isinstance(part, SharedGaussian) and (part.parties, part.honest) != (
                self._site.parties,
                self.honest,
            ):
                yield (
                    f"noise of {self.honest} of {self._site.parties} parties counts, counted as "
                    f"that of {part.honest} of {part.parties}"
                )
            if isinstance(part, SubsampledGaussian) and part.sampling_rate < rate * _ROUNDED:
                yield (
                    f"a row is in a batch with probability {rate:.6g}, counted as "
                    f"{part.sampling_rate:.6g}"
                )
            if (
                isinstance(part, GaussianRelease | SharedGaussian)
                and part.sensitivity < needed * _ROUNDED
            ):
                yield (
                    f"one row moves a message by up to {needed:.8g}, the sensitivity is counted "
                    f"as {part.sensitivity:.8g}"
                )

    def release_reach(self, t: int) -> Array:
        """How far one row moves what gets Gaussian noise; 0 where the noise follows the state."""
        if self.public_norm:
            return np.zeros(len(self._site.rows))
        kind = self._scene.kind
        if getattr(self._algorithm, "centres", False) and t == 0:
            # The sum of the rows themselves.
            return 2 * self.share
        if kind.hears_everybody:
            # The slopes of a row over the outputs are a vector of one slope's length.
            return self.gradient
        if kind.needs_server:
            return math.sqrt(self._site.outputs) * self.gradient
        return self.reach(t)

    @property
    def honest(self) -> int:
        """Parties whose noise must suffice: the party itself, or all but the colluders."""
        options, parties = self._scene.options, self._site.parties
        if options.get("noise") != "shared":
            return 1
        return parties - int(options.get("colluders") or max(1, -(-parties // 2) - 1))

    def _wrong_objective(
        self,
        minima: Sequence[PureRelease | GaussianObjectivePerturbation],
        inexact: Sequence[InexactSolve],
        place: int,
        t: int,
    ) -> Iterator[str]:
        outputs, tolerance = self._site.outputs, float(self._tolerance_in(t)[place])
        if len(minima) != outputs or len(inexact) != outputs:
            yield (
                f"{outputs} outputs are sent, {len(minima)} minimisers and {len(inexact)} inexact "
                "solves are counted"
            )
        for solve in inexact:
            if solve.tolerance < tolerance * _ROUNDED:
                yield f"solves stop at {tolerance:.6g}, counted as {solve.tolerance:.6g}"
        for minimum, solve in zip(minima, inexact, strict=False):
            kappa = float(self._curvature[place] / solve.strong_convexity)
            if isinstance(minimum, PureRelease):
                counted = math.expm1(minimum.epsilon)
            else:
                counted = minimum.kappa
            if counted < kappa * _ROUNDED:
                yield f"kappa is {kappa:.6g}, counted as {counted:.6g}"

    def check_total(self, charged: Sequence[Sequence[Event]]) -> list[Deviation]:
        """Whether what each party is charged over the run is within its own budget."""
        budget = self._scene.budget(len(charged))
        found = []
        for place, events in enumerate(charged):
            epsilon, delta = float(budget.epsilon[place]), float(budget.delta[place])
            parts = [part for event in events for part in parts_of(event)]
            plain = GaussianRelease | SharedGaussian
            if all(isinstance(part, plain | PostProcessing) for part in parts):
                gaussian = [part for part in parts if isinstance(part, plain)]
                squares = [(part.sensitivity / part.sigma) ** 2 for part in gaussian]
                mu = budget.rows_per_person * math.sqrt(math.fsum(squares))
                spent = _gaussian_delta(epsilon, mu)
                within, words = spent <= delta, f"delta = {spent!r} at epsilon {epsilon!r}"
            else:
                cost = epsilon_spent(list(events), delta, rows_per_person=budget.rows_per_person)
                within = cost.epsilon <= epsilon
                words = f"epsilon = {cost.epsilon!r} at delta {delta!r}"
            if not within:
                found.append(
                    Deviation(
                        f"what is charged, party {place}: the run costs {words}, more than its "
                        f"budget of ({epsilon!r}, {delta!r})"
                    )
                )
        return found


def _gaussian_delta(epsilon: float, mu: float) -> float:
    """``Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu)``."""
    if mu == 0:
        return 0.0
    lost = math.exp(epsilon + float(log_ndtr(-mu / 2 - epsilon / mu)))
    return float(ndtr(mu / 2 - epsilon / mu)) - lost
