r"""From events to (epsilon, delta): composition, and the only place that multiplies by a count.

A history is an iterable of events or of pairs (event, count). The guarantee belongs to one party.
It covers the replacement of ``rows_per_person`` rows of that party, against an adversary who sees
every message and may control all other parties; all parameters are fixed in advance. The accountant
reports the smallest bound that is valid for a history, with its theorem:

* ``exact-gaussian`` when every event is Gaussian;
* ``optimal-pure`` for pure releases of one size, ``privacy-loss`` for every other mixture without
  objective perturbation, ``renyi`` with it (or where the others fail);
* ``basic``: the pure epsilons added to the cost of the rest.

**Labels.** If labels were randomised first, labels and rows have separate guarantees. The row's
guarantee follows from the releases alone: it holds whatever happened to the labels before. The
label's guarantee follows from the randomisation and the releases together. The two are never added.

**Odds.** Bounds on tests between two neighbours show what a guarantee means for an attacker. The
attacker knows all rows except one person's, knows two candidates for those, sees every message and
guesses which candidate was used. By (epsilon, delta)-differential privacy (Kairouz, Oh, Viswanath
2015, Theorem 2.1) detections :math:`D` and false alarms :math:`F` of every test obey

.. math:: D \le e^\epsilon F + \delta, \qquad 1 - F \le e^\epsilon (1 - D) + \delta,

so that the share of right guesses, when a fair coin chose the candidate, is at most

.. math:: \frac{e^\epsilon + \delta}{1 + e^\epsilon}.

Where only Gaussians were released, the pair (epsilon, delta) fixes :math:`\mu`, and the exact
trade-off is stronger (Dong, Roth, Su 2022): :math:`D \le \Phi(\Phi^{-1}(F) + \mu)`, right at most
:math:`\Phi(\mu / 2)`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from dpadmm.errors import positive_integer
from dpadmm.plain import Array, Delta, Epsilon
from dpadmm.privacy.curves import (
    LARGEST_KAPPA,
    Basic,
    Bound,
    ExactGaussian,
    NoGuarantee,
    OptimalPure,
    PrivacyLoss,
    Renyi,
    gaussian_mu_squared,
    objective_jacobian_rdp,
    rdp,
    renyi_to_epsilon,
)
from dpadmm.privacy.events import (
    EVENT_KINDS,
    Event,
    GaussianObjectivePerturbation,
    GaussianRelease,
    LabelRandomizedResponse,
    NonPrivate,
    PureRelease,
    SubsampledGaussian,
    single_events,
)
from dpadmm.privacy.figures import AtMost
from dpadmm.privacy.gaussian import (
    exp_up,
    gaussian_epsilon,
    gaussian_log_delta,
    gaussian_mu,
    round_up,
)
from dpadmm.privacy.noise import SAMPLER_ALLOWANCE

History: TypeAlias = Iterable[Event | tuple[Event, int]]

# The part of delta that truncated tails may use, and the tail mass if delta is asked for.
_TAIL_SHARE: Final = 1e-4
_TAIL: Final = 1e-13
# More distinct sizes than this are rounded up to a geometric ladder before composition.
_MOST_PURE_SIZES: Final = 2048
_MOST_SAMPLED_SIZES: Final = 64
# Exact classes: a subclass may mean something else.
_KNOWN: Final = frozenset(EVENT_KINDS.values())


# gaussian_mu rounds down by less than this, relatively.
_MU_ERROR = 1e-8
# The rounding error of a share, which is at most 1, is smaller.
_ROUNDING = 1e-15
# The smallest delta for which mu is computed; below it only the pair is used.
_SMALLEST = 1e-300


@dataclass(frozen=True)
class Odds:
    """Bounds on every test between two neighbours.

    Attributes
    ----------
    epsilon, delta
        The guarantee; an infinite epsilon bounds nothing.
    mu
        The mu of the Gaussian trade-off, if it is known; None if only the pair is.
    """

    epsilon: float
    delta: float
    mu: float | None = None

    @property
    def theorem(self) -> str:
        """The theorem that the bounds rest on."""
        if not math.isfinite(self.epsilon):
            return "none"
        if self.mu is None:
            return (
                "tests under (epsilon, delta)-differential privacy "
                "(Kairouz, Oh, Viswanath 2015, Theorem 2.1)"
            )
        return (
            f"exact trade-off of Gaussian releases, mu = {AtMost(self.mu):4} (Dong, Roth, Su 2022)"
        )

    @property
    def right(self) -> float:
        """The largest share of right guesses if a fair coin chose the candidate."""
        if not math.isfinite(self.epsilon):
            return 1.0
        if self.epsilon == self.delta == 0:
            return 0.5
        # (e^epsilon + delta) / (1 + e^epsilon), without overflow.
        rest = math.exp(-self.epsilon)
        right = (1 + self.delta * rest) / (1 + rest)
        if self.mu is not None:
            right = min(right, float(ndtr(self.mu / 2)) + self._sampler)
        return min(right + _ROUNDING, 1.0)

    def detections(self, false_alarms: ArrayLike) -> NDArray[np.float64]:
        """The largest detection rates at these false-alarm rates."""
        alarms = np.asarray(false_alarms, dtype=np.float64)
        if not math.isfinite(self.epsilon):
            return np.ones_like(alarms)
        with np.errstate(over="ignore"):
            growth = np.exp(self.epsilon)
            # Avoid 0 times infinity: without false alarms only delta is left.
            grown = np.where(alarms > 0, growth * np.where(alarms > 0, alarms, 1.0), 0.0)
        few = np.where(alarms > 0, (grown + self.delta) * (1 + _ROUNDING), self.delta)
        pair = np.minimum(few, 1 - (1 - self.delta - alarms) / growth + _ROUNDING)
        pair = np.clip(pair, alarms, 1.0)
        if self.mu is None:
            return pair
        quantile = ndtri(alarms)
        # Far out a relative error of the quantile counts with its square.
        rounding = _ROUNDING * (1 + np.square(np.clip(quantile, -40, 40)))
        exact = ndtr(quantile + self.mu) * (1 + rounding) + self._sampler
        return np.minimum(pair, exact)

    @property
    def _sampler(self) -> float:
        """How far real noise may be from ideal Gaussian noise, in total variation."""
        return self.delta * SAMPLER_ALLOWANCE


@lru_cache(maxsize=4096)
def attacker_odds(epsilon: float, delta: float, accountant: str) -> Odds:
    """Return the bounds that follow from a guarantee and its accountant."""
    gaussian = (
        accountant == ExactGaussian.name and math.isfinite(epsilon) and _SMALLEST <= delta < 1
    )
    if not gaussian:
        return Odds(epsilon, delta)
    return Odds(epsilon, delta, float(gaussian_mu(epsilon, delta)) * (1 + _MU_ERROR))


@dataclass(frozen=True, slots=True)
class Guarantee:
    """(epsilon, delta)-DP of one party, and its theorem.

    ``scope`` is "row" (features and label of every row of one person) or "label" (the label
    alone; the features are known). ``events`` are the kinds of event covered; the docstring of each
    class states its theorem. ``order`` is the Renyi order, if one was used.
    """

    epsilon: Epsilon
    delta: Delta
    accountant: str
    theorem: str
    rows_per_person: int = 1
    scope: str = "row"
    order: Epsilon | None = None
    events: tuple[str, ...] = ()

    @property
    def odds(self) -> Odds:
        """What the guarantee means for an attacker who guesses."""
        return attacker_odds(self.epsilon, self.delta, self.accountant)


@dataclass(frozen=True, slots=True)
class _Parts:
    """A history sorted by kind, with counts."""

    mu_squared: float
    pure: Counter[float]
    sampled: Counter[SubsampledGaussian]
    objective: Counter[GaussianObjectivePerturbation]
    private: bool
    rows: int
    kinds: tuple[str, ...]

    def gaussian(self) -> GaussianRelease:
        """One Gaussian event with the group cost of all Gaussian events."""
        return GaussianRelease(math.sqrt(self.mu_squared) / self.rows, 1.0)

    def largest_kappa(self) -> float:
        """The most that a person can add to a Hessian, relatively; 0 without objectives."""
        return self.rows * max((event.kappa for event in self.objective), default=0.0)

    def basic_pure(self) -> float:
        total = sum(count * Fraction(epsilon) for epsilon, count in self.pure.items())
        return round_up(self.rows * Fraction(total))


def _counted(item: Event | tuple[Event, int]) -> tuple[Event, int]:
    event, count = item if isinstance(item, tuple) else (item, 1)
    if not isinstance(count, int | np.integer) or count < 0:
        raise ValueError(f"count must be a non-negative integer; got {count!r}")
    return event, int(count)


def _check_rows(rows: int) -> None:
    if isinstance(rows, bool) or not isinstance(rows, int | np.integer) or rows < 1:
        raise ValueError(f"rows_per_person must be a positive integer; got {rows!r}")


def _sum(squares: Iterable[float]) -> float:
    """Add exactly, so that the order of the rounds cannot matter.

    The sum is rounded to the nearest double: curves leave room for a mu that is 1e-15 too small.
    """
    try:
        return math.fsum(squares)
    except OverflowError:
        return math.inf


def _running_sums(squares: Iterable[float]) -> Iterator[float]:
    """Yield the running sum, compensated for what every addition loses (Neumaier 1974)."""
    total = lost = 0.0
    for square in squares:
        more = total + square
        lost += (total - more) + square if total >= square else (square - more) + total
        total = more
        yield total + lost


def _split(events: History, rows: int) -> _Parts:
    _check_rows(rows)
    squares: list[float] = []
    pure: Counter[float] = Counter()
    sampled: Counter[SubsampledGaussian] = Counter()
    objective: Counter[GaussianObjectivePerturbation] = Counter()
    private = True
    classes: set[type[Event]] = set()
    for item in events:
        if isinstance(item, Event) and (mu_squared := gaussian_mu_squared(item, rows)) is not None:
            squares.append(mu_squared)  # the common case, and the one with very many rounds
            classes.add(type(item))
            continue
        for event, count in single_events(*_counted(item)):
            if type(event) not in _KNOWN:
                raise TypeError(
                    f"no theorem is known for the event {event!r}; it cannot be accounted"
                )
            classes.add(type(event))
            mu_squared = gaussian_mu_squared(event, rows)
            match event:
                case _ if mu_squared is not None:
                    squares.append(count * mu_squared)
                case PureRelease():
                    pure[event.epsilon] += count
                case SubsampledGaussian():
                    sampled[event] += count
                case GaussianObjectivePerturbation():
                    objective[event] += count
                case NonPrivate():
                    private = private and count == 0
                case LabelRandomizedResponse():
                    raise ValueError(
                        "label-randomized-response protects labels only and is never added to a "
                        "guarantee for rows: leave it out here and use dpadmm.privacy.accountant"
                    )
                case _:
                    raise TypeError(f"the event {event!r} cannot be accounted")
    return _Parts(
        _sum(squares),
        Counter({epsilon: count for epsilon, count in pure.items() if count and epsilon}),
        Counter({event: count for event, count in sampled.items() if count and event.sensitivity}),
        Counter({event: count for event, count in objective.items() if count}),
        private,
        int(rows),
        tuple(sorted(kind.kind for kind in classes)),
    )


def _ladder(sizes: Counter[float], most: int) -> list[tuple[float, int]]:
    """Round too many distinct sizes up to a geometric ladder; a larger size never costs less."""
    if len(sizes) <= most:
        return sorted(sizes.items())
    values = np.array(sorted(sizes))
    rungs = np.geomspace(values[0], values[-1], most)
    rounded = np.maximum(rungs[np.searchsorted(rungs, values).clip(max=most - 1)], values)
    merged: Counter[float] = Counter()
    for value, size in zip(values.tolist(), rounded.tolist(), strict=True):
        merged[size] += sizes[value]
    return sorted(merged.items())


def _privacy_loss(parts: _Parts, tail: float) -> PrivacyLoss:
    events: list[tuple[Event, int]] = [(parts.gaussian(), 1)] if parts.mu_squared else []
    events += [(PureRelease(size), n) for size, n in _ladder(parts.pure, _MOST_PURE_SIZES)]
    batches: dict[tuple[int, int], Counter[float]] = {}
    for event, count in parts.sampled.items():
        ratios = batches.setdefault((event.batch, event.population), Counter())
        ratios[event.sensitivity / event.sigma] += count
    for (batch, population), ratios in sorted(batches.items()):
        events += [
            (SubsampledGaussian(batch, population, ratio, 1.0), count)
            for ratio, count in _ladder(ratios, _MOST_SAMPLED_SIZES)
        ]
    return PrivacyLoss(events, parts.rows, tail)


def _renyi(parts: _Parts) -> Renyi:
    others: list[tuple[Event, int]] = [(PureRelease(e), n) for e, n in parts.pure.items()]
    others += list(parts.sampled.items())
    scale = float(parts.rows * parts.rows)
    mu_squared = parts.mu_squared + _sum(
        count * scale * event.mu * event.mu for event, count in parts.objective.items()
    )
    jacobians: Counter[float] = Counter()
    for event, count in parts.objective.items():
        jacobians[event.kappa] += count
    kappas = np.array(list(jacobians), dtype=np.float64)
    counts = np.array(list(jacobians.values()), dtype=np.float64)

    # For the sum of so many terms; the conversion covers the rounding of each term.
    rounding = 1 + math.ulp(1.0) * (len(others) + kappas.size)

    def curve(orders: Array) -> Array:
        total: Array = orders * mu_squared / 2
        if kappas.size:
            total = total + objective_jacobian_rdp(orders[:, None], kappas, parts.rows) @ counts
        for event, count in others:
            total = total + count * rdp(event, orders, parts.rows)
        return total * rounding

    largest = parts.largest_kappa()
    return Renyi(curve, 1 + 1 / largest if largest else math.inf)


def _bounds(parts: _Parts, tail: float) -> Iterator[Bound]:
    """Yield the valid bounds, the tightest kind first."""
    exact = ExactGaussian(math.sqrt(parts.mu_squared))
    known = parts.private and parts.largest_kappa() <= LARGEST_KAPPA
    if not known or not math.isfinite(parts.mu_squared):
        yield NoGuarantee()
        return
    if not (parts.pure or parts.sampled or parts.objective):
        yield exact
        return
    if parts.objective:
        yield _renyi(parts)
    elif parts.mu_squared or parts.sampled or len(parts.pure) > 1:
        yield _privacy_loss(parts, tail)
    else:
        ((epsilon, count),) = parts.pure.items()
        yield OptimalPure(round_up(parts.rows * Fraction(epsilon)), count)
        return
    if parts.pure:
        rest = replace(parts, pure=Counter())
        yield from (Basic(parts.basic_pure(), bound) for bound in _bounds(rest, tail))


def _best(parts: _Parts, delta: float, bounds: Sequence[Bound]) -> Guarantee:
    """Return the smallest epsilon; use the Renyi bound if the others are infinite."""
    found: list[tuple[float, float | None, Bound]] = [
        (*bound.search(renyi_to_epsilon, delta), bound)
        if isinstance(bound, Renyi)
        else (bound.epsilon(delta), None, bound)
        for bound in bounds
    ]
    epsilon, order, bound = min(found, key=lambda candidate: candidate[0])
    if math.isinf(epsilon) and delta > 0 and not isinstance(bound, NoGuarantee):
        bound = _renyi(parts)
        epsilon, order = bound.search(renyi_to_epsilon, delta)
    return Guarantee(
        epsilon,
        delta,
        bound.name,
        bound.theorem,
        parts.rows,
        order=order,
        events=parts.kinds,
    )


def _check_delta(delta: float) -> None:
    if not 0 <= delta < 1:
        raise ValueError(f"delta must be in [0, 1); got {delta!r}")


def epsilon_spent(events: History, delta: float, *, rows_per_person: int = 1) -> Guarantee:
    """Return the smallest provable epsilon at ``delta`` of a whole history, with its theorem.

    Parameters
    ----------
    events : iterable of Event or (Event, count)
        What one party released, in any order.
    delta : float
        In [0, 1); with 0 only pure releases have a finite epsilon.
    rows_per_person : int
        How many of the party's rows may belong to one person.
    """
    _check_delta(delta)
    parts = _split(events, rows_per_person)
    return _best(parts, float(delta), list(_bounds(parts, _TAIL_SHARE * delta or _TAIL)))


def delta_spent(events: History, epsilon: float, *, rows_per_person: int = 1) -> Guarantee:
    """Return the smallest provable delta at ``epsilon`` of a whole history, with its theorem."""
    if not 0 <= epsilon < math.inf:
        raise ValueError(f"epsilon must be a non-negative finite number; got {epsilon!r}")
    parts = _split(events, rows_per_person)
    found = [(bound.delta(epsilon), bound) for bound in _bounds(parts, _TAIL)]
    if isinstance(found[0][1], PrivacyLoss) and found[0][0] < 1e-8:
        # The numerical composition has a floor; far below it the Renyi bound is better.
        bound: Bound = _renyi(parts)
        found.append((bound.delta(epsilon), bound))
    delta, bound = min(found, key=lambda candidate: candidate[0])
    return Guarantee(epsilon, delta, bound.name, bound.theorem, parts.rows, events=parts.kinds)


def total_mu(events: History, *, rows_per_person: int = 1) -> float:
    """Return mu = sqrt(sum mu_t^2) of a history of Gaussian events; refuse others.

    It is exact to 1e-15; the Gaussian curve leaves room for that.
    """
    parts = _split(events, rows_per_person)
    if parts.pure or parts.sampled or parts.objective:
        raise ValueError("mu is defined for Gaussian events only; this history holds others")
    return math.sqrt(parts.mu_squared) if parts.private else math.inf


def epsilon_curve(events: History, deltas: ArrayLike, *, rows_per_person: int = 1) -> Array:
    """Return epsilon at every delta; the history is composed once."""
    grid = np.atleast_1d(np.asarray(deltas, dtype=np.float64))
    for delta in grid:
        _check_delta(float(delta))
    parts = _split(events, rows_per_person)
    smallest = float(grid[grid > 0].min(initial=1.0))
    bounds = list(_bounds(parts, _TAIL_SHARE * smallest))
    return np.array([_best(parts, float(delta), bounds).epsilon for delta in grid])


def spend_over_rounds(
    events: Iterable[Event], delta: float, *, rows_per_person: int = 1, most: int | None = None
) -> Array:
    """Return epsilon after each round, one event a round (:class:`Composed` for several parts).

    Parameters
    ----------
    events, delta, rows_per_person
        As in :func:`epsilon_spent`.
    most
        Compose at most so many histories: those up to the last round, up to the first, and some at
        equal distances. Every other round takes the epsilon of the next composed round, which is
        valid for it, too. Gaussian rounds need no composition. By default every round is composed;
        the time grows with the square of their number.
    """
    _check_delta(delta)
    _check_rows(rows_per_person)
    if most is not None:
        positive_integer("most", most)
    rounds = list(events)
    squares = [gaussian_mu_squared(event, rows_per_person) for event in rounds]
    known = [square for square in squares if square is not None]
    if delta > 0 and len(known) == len(rounds) and math.isfinite(_sum(known)):
        return gaussian_epsilon(np.sqrt(np.array(list(_running_sums(known)))), delta)
    places = np.arange(len(rounds))
    if most is not None and most < len(rounds):
        places = np.unique(np.linspace(len(rounds) - 1, 0, most).astype(np.intp))
    spent = np.full(len(rounds), math.inf)
    for place in places.tolist():
        before = spent[place - 1] if place else math.inf
        if squares[place] == 0 and before < math.inf:
            spent[place] = before
        else:
            prefix = rounds[: place + 1]
            spent[place] = epsilon_spent(prefix, delta, rows_per_person=rows_per_person).epsilon
    # A bound for more releases also holds for fewer, although grids differ.
    return np.minimum.accumulate(spent[::-1])[::-1]


def larger(one: Guarantee, other: Guarantee) -> Guarantee:
    """Return a guarantee that holds whenever either of two does; it rests on both theorems.

    If the accountants differ, neither curve is known to bound the other.
    """
    most = max(one, other, key=lambda guarantee: guarantee.epsilon)
    return replace(
        most,
        delta=max(one.delta, other.delta),
        accountant="; ".join(dict.fromkeys((one.accountant, other.accountant))),
        theorem="; ".join(dict.fromkeys((one.theorem, other.theorem))),
        events=tuple(dict.fromkeys((*one.events, *other.events))),
    )


def network_guarantee(guarantees: Iterable[Guarantee]) -> Guarantee:
    """Return the network's figure, the maximum over its parties (never their sum).

    A party's messages depend on another party's rows only through that party's messages, so each
    party has its own guarantee. A person with rows at two parties is not covered.
    """
    every = list(guarantees)
    kinds = {(guarantee.scope, guarantee.rows_per_person) for guarantee in every}
    if len(kinds) != 1:
        raise ValueError(
            f"guarantees must be of one scope and one rows_per_person; got {sorted(kinds)}"
        )
    worst = max(every, key=lambda guarantee: guarantee.epsilon)
    return replace(worst, delta=max(guarantee.delta for guarantee in every))


def joint_label_delta(label_epsilon: float, mu_label: float, epsilon: float) -> float:
    r"""Return delta for one row's label, randomised once, then seen through Gaussian releases.

    .. math:: \delta(\epsilon') = (1-p-pe^{\epsilon'})\,\delta_\mu\Big(
              \ln\frac{(1-p)e^{\epsilon'}-p}{1-p-pe^{\epsilon'}}\Big),\quad p = 1/(1+e^\epsilon)

    and 0 from the label's own epsilon on. ``mu_label`` is the total over all rounds for a flip of
    the label in the *reported* data. This holds against the other parties only: against the party
    that holds the reported labels the guarantee is ``label_epsilon``.
    """
    if not (label_epsilon > 0 and mu_label >= 0 and epsilon >= 0):
        raise ValueError(
            "label_epsilon must be positive, mu_label and epsilon non-negative;"
            f" got {label_epsilon!r}, {mu_label!r}, {epsilon!r}"
        )
    if epsilon >= label_epsilon or mu_label == 0:
        return 0.0
    # 1 - p - p e^x = p (e^label - e^x), written without cancellation near the end.
    share = -math.expm1(epsilon - label_epsilon) / (1 + math.exp(-label_epsilon))
    inner = math.log1p(math.expm1(epsilon) / share)
    # The curve's own margin is cut off at delta = 1: add a margin for the share.
    return exp_up(math.log(share) + 1e-12 + float(gaussian_log_delta(inner, mu_label)))


def joint_label_guarantee(
    randomization: LabelRandomizedResponse, releases: History, delta: float
) -> Guarantee:
    """Return epsilon for one row's label against the other parties.

    Parameters
    ----------
    randomization : LabelRandomizedResponse
        The single randomisation of the labels.
    releases : history
        Gaussian events whose sensitivity is that of flipping one reported label.
    delta : float
        In [0, 1); with 0 only the randomisation counts.
    """
    if not 0 <= delta < 1:
        raise ValueError(f"delta must be in [0, 1); got {delta!r}")
    mu = total_mu(releases)
    low, high = 0.0, randomization.epsilon
    if joint_label_delta(high, mu, 0.0) <= delta:
        high = 0.0
    while high - low > 1e-12 * high and delta > 0:
        middle = (low + high) / 2
        if joint_label_delta(randomization.epsilon, mu, middle) <= delta:
            high = middle
        else:
            low = middle
    theorem = "randomised response followed by Gaussian releases, label of one row"
    return Guarantee(high, delta, "joint-label", theorem, scope="label")
