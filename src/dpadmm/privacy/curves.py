r"""The privacy curve of one event, and bounds for a composed history.

Every function rounds towards a larger cost, with two exceptions: the mu of Gaussian events is
within 1e-15 of its formula, and their Renyi curves are within 2e-15. The conversions leave room for
that. ``rows`` is the number of rows that one person may have: the cost is that of replacing all of
them at once (:mod:`dpadmm.privacy.events` has the theorems).

**Bounds.** Each computes epsilon(delta) and delta(epsilon) of a whole history.
:mod:`dpadmm.privacy.accountant` decides which of them is valid for a history, and counts the
events. All round towards a larger cost: sums and products of epsilons exactly
(:mod:`dpadmm.privacy.gaussian`), everything else by margins.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from typing import Any, ClassVar, Final, Protocol

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln

from dpadmm.plain import Array
from dpadmm.privacy.events import (
    Composed,
    Event,
    GaussianObjectivePerturbation,
    GaussianRelease,
    InexactSolve,
    NonPrivate,
    PostProcessing,
    PureRelease,
    Repeated,
    SharedGaussian,
    SubsampledGaussian,
)
from dpadmm.privacy.gaussian import (
    exp_up,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_log_delta,
    round_down,
    round_up,
    sum_up,
)

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)
# A smaller mu is rounded up to this, whose square a double holds with all digits.
_LEAST_MU: Final = 1e-150


# Gaussian parts --------------------------------------------------------------------------------


def _mu(sensitivity: float, sigma: float) -> float:
    return max(sensitivity / sigma, _LEAST_MU) if sensitivity else 0.0


def _mu_release(event: GaussianRelease | SharedGaussian, rows: int) -> float:
    return _mu(rows * event.sensitivity, event.sigma)


def _mu_inexact(event: InexactSolve, rows: int) -> float:
    reach = max(2 * event.tolerance / event.strong_convexity, 1e-300) if event.tolerance else 0.0
    return _mu(reach, event.output_sigma)


def _mu_post_processing(event: PostProcessing, rows: int) -> float:
    return 0.0


# The mu of exactly Gaussian events, by exact class: a subclass may mean something else.
GAUSSIAN_MU: Final[dict[type[Event], Callable[[Any, int], float]]] = {
    GaussianRelease: _mu_release,
    SharedGaussian: _mu_release,
    InexactSolve: _mu_inexact,
    PostProcessing: _mu_post_processing,
}


def gaussian_mu_squared(event: Event, rows: int = 1) -> float | None:
    """Return mu^2 of an exactly Gaussian event (they add up); None for every other event."""
    find = GAUSSIAN_MU.get(type(event))
    if find is None:
        return None
    mu = find(event, rows)
    return mu * mu


# Renyi curves ----------------------------------------------------------------------------------


def _rdp_gaussian(event: Event, orders: Array, rows: int) -> Array:
    mu_squared = gaussian_mu_squared(event, rows) or 0.0
    return orders * mu_squared / 2


def _group_epsilon(event: PureRelease, rows: int) -> float:
    return round_up(int(rows) * Fraction(event.epsilon))


def _rdp_pure(event: PureRelease, orders: Array, rows: int) -> Array:
    """Randomised response, which dominates every epsilon-DP mechanism."""
    epsilon = _group_epsilon(event, rows)
    growth = orders * epsilon < 600
    half = np.where(growth, orders, 0.0) * epsilon / 2
    bounded = min(epsilon, 600.0)
    # cosh((a - 1/2) e) / cosh(e/2) - 1, written without cancellation for small a e.
    excess = 2 * np.sinh(half) * np.sinh(np.maximum(half - epsilon / 2, 0)) / np.cosh(bounded / 2)
    divergence = np.where(
        growth,
        np.log1p(excess),
        orders * epsilon - np.logaddexp(0, epsilon),
    )
    # Near order 1 it is a small difference of two terms.
    rounding = np.maximum(1e-12, 1e-15 * orders / (orders - 1))
    divergence = np.maximum(divergence / (orders - 1) * (1 + rounding), _LEAST_MU**2)
    result: Array = np.minimum(divergence, epsilon)
    return result


#: Beyond it there is no guarantee: Theorem OP needs orders below 1 + 1 / kappa, and doubles must
#: distinguish them from 1.
LARGEST_KAPPA: Final = 1e12


def psi(orders: Array, t: Array | float) -> Array:
    """Return -ln(1 + t) - ln(1 - (a - 1) t) / (a - 1), rounded up; infinite past its pole."""
    slack = 1 - (orders - 1) * t
    inside = slack > 1e-15  # closer to the pole only rounding decides on which side it is
    safe = np.where(inside, -(orders - 1) * t, 0.0)
    value = -np.log1p(t) - np.log1p(safe) / (orders - 1)
    # A relative error of (a - 1) t, up to 6 units of 1.1e-16, counts 1 / slack times.
    rounding = np.maximum(1e-14, 9e-16 / np.where(inside, slack, 1.0)) * np.abs(t)
    result: Array = np.where(inside, np.maximum(value, 0) + rounding, np.inf)
    return result


def objective_jacobian_rdp(orders: Array, kappa: ArrayLike, rows: int = 1) -> Array:
    """Return what the Jacobian adds to the Renyi curve of objective perturbation (broadcast)."""
    everything = rows * np.asarray(kappa, dtype=np.float64)
    total = np.minimum(everything, LARGEST_KAPPA)
    negative = psi(orders, -total / (1 + total))
    if rows > 1:
        negative = np.where(total * np.sqrt(orders) > 1, orders * total**2 / 2, negative)
    return np.where(everything <= LARGEST_KAPPA, psi(orders, total) + negative, np.inf)


def _rdp_objective(event: GaussianObjectivePerturbation, orders: Array, rows: int) -> Array:
    mu = _mu(rows * event.mu, 1.0)
    return orders * (mu * mu) / 2 + objective_jacobian_rdp(orders, event.kappa, rows)


def group_sampling_rate(event: SubsampledGaussian, rows: int) -> float:
    """Return the probability that a batch holds any of ``rows`` given rows."""
    if rows >= event.population - event.batch + 1:
        return 1.0
    missed = math.fsum(math.log1p(-event.batch / (event.population - row)) for row in range(rows))
    return -math.expm1(missed)


@dataclass(frozen=True, slots=True)
class Amplified:
    """The curve q sum_j w_j delta_{mu_j}(ln(1 + (e^epsilon - 1)/q)); q = 1 is a plain Gaussian."""

    rate: float
    weights: tuple[float, ...]
    mus: tuple[float, ...]

    def log_mixture(self, inner: Array) -> Array:
        """Return ln sum_j w_j delta_{mu_j}(inner)."""
        total = np.full(np.shape(inner), -np.inf)
        for weight, mu in zip(self.weights, self.mus, strict=True):
            total = np.logaddexp(total, math.log(weight) + gaussian_log_delta(inner, mu))
        mixture: Array = np.minimum(total, 0.0)
        return mixture

    def log_delta(self, epsilon: Array) -> Array:
        """Return the logarithm of the curve at epsilon >= 0."""
        # ln(1 + (e^x - 1)/q) = x + ln(1 + (1/q - 1)(1 - e^-x)), which cannot overflow.
        inner = epsilon + np.log1p((1 / self.rate - 1) * -np.expm1(-epsilon))
        return math.log(self.rate) + self.log_mixture(inner)

    def reach(self, tail: float) -> float:
        """Return an epsilon at which the curve is at most ``tail``."""
        if self.mus[-1] == 0 or tail >= self.rate:
            return 0.0
        inner = float(gaussian_epsilon(self.mus[-1], tail / self.rate))
        return inner + math.log(self.rate + (1 - self.rate) * math.exp(-inner)) if inner else 0.0


def amplified(event: Event, rows: int = 1) -> Amplified:
    """Return the curve of a subsampled or Gaussian event.

    It leaves out hits that are too rare for doubles; all of them together are below 1e-300.
    """
    if not isinstance(event, SubsampledGaussian):
        mu_squared = gaussian_mu_squared(event, rows)
        if mu_squared is None:
            raise TypeError(f"no privacy-loss distribution is known for rows under {event!r}")
        return Amplified(1.0, (1.0,), (math.sqrt(mu_squared),))
    mu = _mu(event.sensitivity, event.sigma)
    rest = event.population - rows
    hits = range(1, min(rows, event.batch) + 1)
    if rows == 1:
        return Amplified(event.sampling_rate, (1.0,), (mu,))
    if rest < event.batch:  # every batch holds some of the rows
        return Amplified(1.0, (1.0,), (len(hits) * mu,))
    # The hypergeometric distribution, given at least one hit.
    ways = [math.comb(rows, j) * math.comb(rest, event.batch - j) for j in hits]
    weights = [(j, number / sum(ways)) for j, number in zip(hits, ways, strict=True)]
    kept = [(j, weight) for j, weight in weights if weight >= sys.float_info.min]
    return Amplified(
        group_sampling_rate(event, rows),
        tuple(weight for _, weight in kept),
        tuple(j * mu for j, _ in kept),
    )


def _rdp_subsampled(event: SubsampledGaussian, orders: Array, rows: int) -> Array:
    r"""Integrate the curve of the dominating pair; with gamma = 1 + q (e^t - 1),

    .. math:: e^{(a-1)R} = 1 + a(a-1)\int_0^\infty (\gamma^{a-2} + \gamma^{-a-1})
              q^2 e^t \delta_\mu(t)\,dt

    whose integrand is smooth on the scale min(mu, 1) and negligible 40 mu past its peak.
    """  # noqa: D400
    curve = amplified(event, rows)
    rate, mu = curve.rate, min(rows, event.batch) * _mu(event.sensitivity, event.sigma)
    result: Array = orders * (mu * mu) / 2
    if rate == 1 or mu == 0 or not math.isfinite(mu * mu):
        return result
    if curve.mus[-1] < mu:  # at a large order even the rarest hits count
        curve = Amplified(rate, (*curve.weights, 1e-300), (*curve.mus, mu))
    for index, order in enumerate(orders):
        reach = (order + 0.5) * mu * mu + 40 * mu
        panels = math.ceil(reach / min(curve.mus[0], 1.0)) * 2
        if panels > 4000:
            continue  # the curve without amplification is valid, and as good this far out
        edges = np.linspace(0, reach, panels + 1)
        t = (edges[:-1, None] + np.diff(edges)[:, None] * (0.5 + 0.5 * _NODES)).ravel()
        weights = (np.diff(edges)[:, None] * 0.5 * _WEIGHTS).ravel()
        log_gamma = np.logaddexp(math.log1p(-rate), math.log(rate) + t)
        log_terms = np.logaddexp((order - 2) * log_gamma, -(order + 1) * log_gamma)
        log_terms += 2 * math.log(rate) + t + curve.log_mixture(t)
        peak = float(log_terms.max())
        # The quadrature's error; at large orders rounding of the logarithms counts for more.
        rounding = max(1e-9, 1e-15 * (order + 2) * (reach - math.log(rate)))
        log_integral = peak + math.log(float(np.exp(log_terms - peak) @ weights) * (1 + rounding))
        total = np.logaddexp(0, math.log(order * (order - 1)) + log_integral)
        result[index] = min(result[index], float(total) / (order - 1))
    return result


def _rdp_composed(event: Composed, orders: Array, rows: int) -> Array:
    total: Array = np.sum([rdp(part, orders, rows) for part in event.events], axis=0)
    return total


def _rdp_repeated(event: Repeated, orders: Array, rows: int) -> Array:
    return event.count * rdp(event.event, orders, rows)


def _rdp_none(event: NonPrivate, orders: Array, rows: int) -> Array:
    return np.full(orders.shape, np.inf)


_RDP: Final[dict[type[Event], Callable[[Any, Array, int], Array]]] = {
    GaussianRelease: _rdp_gaussian,
    SharedGaussian: _rdp_gaussian,
    InexactSolve: _rdp_gaussian,
    PostProcessing: _rdp_gaussian,
    PureRelease: _rdp_pure,
    GaussianObjectivePerturbation: _rdp_objective,
    SubsampledGaussian: _rdp_subsampled,
    Composed: _rdp_composed,
    Repeated: _rdp_repeated,
    NonPrivate: _rdp_none,
}


def rdp(event: Event, orders: ArrayLike, rows: int = 1) -> Array:
    """Renyi divergence at the given orders > 1; infinite where the theorem says nothing.

    At fixed orders these add up even if parameters are chosen from earlier releases. A privacy
    filter needs that.
    """
    orders_ = np.atleast_1d(np.asarray(orders, dtype=np.float64))
    if np.any(~((orders_ > 1) & np.isfinite(orders_))):
        raise ValueError(f"orders must be finite and greater than 1; got {orders!r}")
    find = _RDP.get(type(event))
    if find is None:
        raise TypeError(f"no Renyi curve is known for rows under the event {event!r}")
    return find(event, orders_, rows)


# Privacy-loss distributions --------------------------------------------------------------------


def pure_log_delta(epsilon: Array, level: float) -> Array:
    """Return ln((e^level - e^epsilon) / (1 + e^level))_+: the curve of randomised response."""
    with np.errstate(divide="ignore"):
        share = np.log(-np.expm1(np.minimum(epsilon - level, 0.0)))
    log_delta: Array = share - np.logaddexp(0.0, -level)
    return log_delta


def loss_reach(event: Event, tail: float, rows: int = 1) -> float:
    """Return a privacy loss that the event exceeds with a curve of at most ``tail``."""
    if isinstance(event, PureRelease):
        return _group_epsilon(event, rows)
    return amplified(event, rows).reach(tail)


def loss_masses(event: Event, step: float, tail: float, rows: int = 1) -> tuple[int, Array, float]:
    """Return dominating privacy-loss masses on the grid: first index, masses, mass at infinity.

    Connect-the-dots: its chords in e^epsilon, which lie above it, replace the curve. All curves
    here are symmetric under exchange of the two data sets, so the mass at -x is e^-x times the mass
    at x. This keeps full relative accuracy in both tails.

    Parameters
    ----------
    event : Event
        A pure, a subsampled, or any Gaussian event; no such curve is known for the others.
    step, tail : float
        Grid step, and the largest mass that may be moved to infinity.
    rows : int
        Rows of one person.
    """
    curve: Callable[[Array], Array]
    if isinstance(event, PureRelease):
        curve = partial(pure_log_delta, level=_group_epsilon(event, rows))
    else:
        curve = amplified(event, rows).log_delta
    count = max(math.ceil(loss_reach(event, tail, rows) / step), 1)
    grid: Array = step * np.arange(count + 1, dtype=np.float64)
    deltas = np.minimum.accumulate(np.exp(curve(grid)))
    drops = -np.diff(deltas)
    positive = np.empty(count + 1)
    positive[1:] = drops / -math.expm1(-step)
    positive[1:-1] -= drops[1:] / math.expm1(step)
    positive[0] = 1 - deltas[0] - 2 * drops[0] / math.expm1(step)
    positive = np.maximum(positive, 0)
    mirrored = positive[:0:-1] * np.exp(-grid[:0:-1])
    masses = np.concatenate([mirrored, positive])
    # Negligible masses would make the composition's bounds overflow: move them up.
    skipped = min(int(np.searchsorted(np.cumsum(masses), 1e-3 * tail)), count)
    masses[skipped] += masses[:skipped].sum()
    return skipped - count, masses[skipped:], float(deltas[-1])


# Bounds for a composed history ------------------------------------------------------------------


class Bound(Protocol):
    """A valid privacy curve of a whole history."""

    @property
    def name(self) -> str:
        """The accountant's name for it."""

    @property
    def theorem(self) -> str:
        """The theorem that it rests on."""

    def epsilon(self, delta: float) -> float:
        """Return an epsilon for which (epsilon, delta)-DP holds; infinite if none is known."""

    def delta(self, epsilon: float) -> float:
        """Return a delta for which (epsilon, delta)-DP holds."""


@dataclass(frozen=True, slots=True)
class NoGuarantee:
    """Something was released without noise."""

    name: str = "none"
    theorem: str = "no guarantee: a release was not private"

    def epsilon(self, delta: float) -> float:
        """Return infinity."""
        return math.inf

    def delta(self, epsilon: float) -> float:
        """Return one."""
        return 1.0


@dataclass(frozen=True, slots=True)
class Basic:
    """Epsilons and deltas add up: the pure releases' sum beside a bound for the rest."""

    pure: float
    rest: Bound
    name: str = "basic"
    theorem: str = "basic composition: the epsilons and the deltas add up"

    def epsilon(self, delta: float) -> float:
        """Add the two."""
        return sum_up((self.pure, self.rest.epsilon(delta)))

    def delta(self, epsilon: float) -> float:
        """Evaluate the rest at the epsilon that the pure releases leave."""
        if epsilon < self.pure:
            return 1.0
        return self.rest.delta(round_down(Fraction(epsilon) - Fraction(self.pure)))


@dataclass(frozen=True)
class ExactGaussian:
    """mu^2 = sum_t mu_t^2; the bound is attained."""

    name: ClassVar[str] = "exact-gaussian"
    theorem: ClassVar[str] = "Gaussian releases compose exactly (Dong, Roth, Su 2022)"
    mu: float

    def epsilon(self, delta: float) -> float:
        """Invert the Gaussian curve."""
        if delta == 0:
            return math.inf if self.mu else 0.0
        return float(gaussian_epsilon(self.mu, delta))

    def delta(self, epsilon: float) -> float:
        """Evaluate the Gaussian curve."""
        return float(gaussian_delta(epsilon, self.mu)) if self.mu else 0.0


@dataclass(frozen=True)
class OptimalPure:
    r"""``count`` pure releases of one ``level``; the bound is attained by randomised response.

    .. math:: \delta(\epsilon) = \sum_j \binom{n}{j} p^{n-j}(1-p)^j
              \left(1 - e^{\epsilon-(n-2j)\,\mathrm{level}}\right)_+,\quad
              p = e^{\mathrm{level}}/(1+e^{\mathrm{level}})
    """

    name: ClassVar[str] = "optimal-pure"
    theorem: ClassVar[str] = "optimal composition of pure releases (Kairouz, Oh, Viswanath 2015)"
    level: float
    count: int

    @cached_property
    def _masses(self) -> tuple[Array, Array, Array]:
        """Losses in descending order and the logarithms of the cumulated masses of P and Q."""
        flips = np.arange(self.count + 1, dtype=np.float64)
        losses = (self.count - 2 * flips) * self.level
        log_binomial = (
            gammaln(self.count + 1) - gammaln(flips + 1) - gammaln(self.count - flips + 1)
        )
        log_mass = (
            log_binomial
            - (self.count - flips) * np.logaddexp(0, -self.level)
            - flips * np.logaddexp(0, self.level)
        )
        upper: Array = np.logaddexp.accumulate(log_mass)
        lower: Array = np.logaddexp.accumulate(log_mass - losses)
        return losses, upper, lower

    @cached_property
    def _total(self) -> float:
        """The largest loss."""
        return round_up(self.count * Fraction(self.level))

    @cached_property
    def _rounding(self) -> float:
        # The logarithms contain the losses, too; from 2000 on these dominate the first term.
        largest = max(1e-12, 5e-16 * self._total)
        return largest + 1e-15 * self.count * math.log(self.count + 2)

    def delta(self, epsilon: float) -> float:
        """Sum the masses whose loss exceeds epsilon."""
        if epsilon >= self._total:
            return 0.0
        losses, upper, lower = self._masses
        # The largest loss is above epsilon even if their doubles are equal.
        above = max(int(np.searchsorted(-losses, -epsilon, side="left")), 1)
        top, bottom = upper[above - 1], epsilon + lower[above - 1]
        # If the two nearly cancel, only the rounding of the first is left.
        excess = -math.expm1(min(bottom - top, 0.0)) + self._rounding
        return min(exp_up(float(top) + math.log(excess)), 1.0)

    def epsilon(self, delta: float) -> float:
        """Invert: between two losses the curve is linear in e^epsilon."""
        losses, upper, lower = self._masses
        total = self._total
        if delta == 0 or self._rounding > 0.1:
            return total
        target = delta * (1 - self._rounding)
        # The curve at each loss, from the masses above it.
        with np.errstate(divide="ignore", invalid="ignore"):
            at_losses = np.exp(upper[:-1]) * -np.expm1(losses[1:] + lower[:-1] - upper[:-1])
            index = int(np.searchsorted(np.maximum.accumulate(at_losses), target))
            room = -np.expm1(math.log(target) - upper[index])
        if not room > 0:
            return total if index == 0 else max(float(losses[index]), 0.0)
        epsilon = float(upper[index] + np.log(room) - lower[index])
        if index < self.count:
            # The line ends at the next loss; with almost no room left it has no digits.
            epsilon = max(epsilon, float(losses[index + 1]))
        return min(max(epsilon + 1e-12 * (1 + abs(epsilon)), 0.0), total)


# Relative errors: of each term of a conversion, whose rounding is up to 7e-16, and of the
# divergences, which may be 2e-15 too small.
_CONVERSION_ERROR: Final = 1e-15
_DIVERGENCE_ERROR: Final = 3e-15


def renyi_to_epsilon(
    orders: ArrayLike, divergences: ArrayLike, delta: float
) -> tuple[float, float]:
    r"""Return (epsilon, best order) of a Renyi curve given at some orders.

    .. math:: \epsilon = \min_a R(a) + \ln(1 - 1/a) - (\ln\delta + \ln a)/(a-1),

    clipped at 0 and rounded up. Every order gives a valid epsilon, so a coarse set only loses
    tightness.
    """
    a, r = np.asarray(orders, dtype=np.float64), np.asarray(divergences, dtype=np.float64)
    if delta <= 0:
        return math.inf, float(a[-1])
    # ln(1 - 1/a) as -ln(1 + 1/(a - 1)), which keeps its digits at orders near 1.
    shrink, log_delta, log_a = np.log1p(1 / (a - 1)), math.log(delta), np.log(a)
    rounding = _CONVERSION_ERROR * (shrink + (abs(log_delta) + log_a) / (a - 1))
    epsilons = r - shrink - (log_delta + log_a) / (a - 1) + (rounding + _DIVERGENCE_ERROR * r)
    best = int(np.argmin(epsilons))
    return max(float(epsilons[best]), 0.0), float(a[best])


def renyi_to_delta(
    orders: ArrayLike, divergences: ArrayLike, epsilon: float
) -> tuple[float, float]:
    r"""Return (delta, best order): :math:`\delta = \min_a e^{(a-1)(R-\epsilon)}(1-1/a)^{a-1}/a`.

    Rounded up.
    """
    a, r = np.asarray(orders, dtype=np.float64), np.asarray(divergences, dtype=np.float64)
    shrink, log_a = np.log1p(1 / (a - 1)), np.log(a)
    rounding = _CONVERSION_ERROR * ((a - 1) * (epsilon + shrink) + log_a)
    logs = (a - 1) * (r - epsilon - shrink) - log_a
    logs = logs + (rounding + _DIVERGENCE_ERROR * (a - 1) * r)
    best = int(np.argmin(logs))
    return exp_up(min(float(logs[best]), 0.0)), float(a[best])


@dataclass(frozen=True)
class Renyi:
    """The sum of the events' Renyi curves at the best order below ``largest_order``."""

    name: ClassVar[str] = "renyi"
    theorem: ClassVar[str] = (
        "Renyi composition (Mironov 2017; conversion of Canonne, Kamath, Steinke 2020)"
    )
    curve: Callable[[Array], Array]
    largest_order: float = math.inf

    def search(
        self, convert: Callable[[ArrayLike, ArrayLike, float], tuple[float, float]], at: float
    ) -> tuple[float, float]:
        """Minimise over the order: a coarse grid in ln(a - 1), refined around its minimum."""
        top = min((self.largest_order - 1) * (1 - 1e-9), 1e12)
        low, high = math.log(min(1e-4, top / 2)), math.log(top)
        best = (math.inf, 1 + top)
        for points in (96, 24, 24, 24):
            grid = np.linspace(low, high, points)
            orders = 1 + np.exp(grid)
            best = min(best, convert(orders, self.curve(orders), at))
            center, width = math.log(best[1] - 1), (high - low) / (points - 1)
            low, high = max(low, center - width), min(high, center + width)
        return best

    def epsilon(self, delta: float) -> float:
        """Convert at the best order."""
        return self.search(renyi_to_epsilon, delta)[0]

    def delta(self, epsilon: float) -> float:
        """Convert at the best order."""
        return self.search(renyi_to_delta, epsilon)[0]


# The step of the grid in standard deviations of one release's loss; the most cells of a release.
_RELATIVE_STEP: Final = 0.02
_MOST_CELLS: Final = 2**18
# On a coarser grid exponentials of the step overflow. So large a loss is no privacy at all, and the
# Renyi bound gives its figure.
_COARSEST_STEP: Final = 100.0
# Up to this length direct convolution is faster than a transform.
_SHORT: Final = 2048


@dataclass(frozen=True)
class PrivacyLoss:
    """Numerical composition of pure, subsampled and Gaussian events, rounded up.

    ``tail`` is the total mass that truncation may move to infinity.
    """

    name: ClassVar[str] = "privacy-loss"
    theorem: ClassVar[str] = (
        "composition of dominating privacy-loss distributions"
        " (Koskela et al. 2020; Zhu, Dong, Wang 2022)"
    )
    events: Sequence[tuple[Event, int]]
    rows: int
    tail: float

    @cached_property
    def _step_tail(self) -> float:
        """The tail mass of one release: half the total goes here, half to the compositions."""
        return self.tail / (2 * sum(count for _, count in self.events))

    @cached_property
    def step(self) -> float:
        """The grid's step: chords add about step^2 / 6 to the variance of each release's loss."""
        order = np.array([1.01])
        number, variance, reach = 0, 0.0, 0.0
        for event, count in self.events:
            number += count
            variance += 2 * count * float(rdp(event, order, self.rows)[0])
            reach = max(reach, loss_reach(event, self._step_tail, self.rows))
        # A short history can afford a finer grid, and needs it: fewer errors average out.
        relative = _RELATIVE_STEP * min(max(number / 200, 0.1), 1.0)
        return max(relative * math.sqrt(variance / number), reach / _MOST_CELLS)

    @cached_property
    def _composed(self) -> tuple[Any, float]:
        """The composed distribution, and a bound on the error of the Fourier transforms."""
        from dp_accounting.pld import pld_pmf

        leaves: list[Any] = []
        share = self.tail / (4 * sum(count for _, count in self.events))
        # Convolve short distributions directly, up to the length where a transform is faster.
        first, masses, infinite = 0, np.ones(1), 0.0
        for event, count in self.events:
            start, values, beyond = loss_masses(event, self.step, self._step_tail, self.rows)
            if count > 1 and count * values.size > _SHORT:
                leaf = pld_pmf.DensePLDPmf(self.step, start, values, beyond, True)
                leaves.append(leaf.self_compose(count, share))
                continue
            for _ in range(count):
                if masses.size + values.size > _SHORT:
                    leaves.append(pld_pmf.DensePLDPmf(self.step, first, masses, infinite, True))
                    first, masses, infinite = start, values, beyond
                else:
                    first, infinite = first + start, infinite + beyond
                    masses = np.convolve(masses, values)
        leaves.append(pld_pmf.DensePLDPmf(self.step, first, masses, infinite, True))
        # Pairs of similar size keep the transforms short.
        while len(leaves) > 1:
            odd = leaves[len(leaves) // 2 * 2 :]
            pairs = zip(leaves[::2], leaves[1::2], strict=False)
            leaves = [first.compose(second, share) for first, second in pairs] + odd
        # A transform of length n errs by eps log2(n) in 2-norm, a power by count times that.
        number = sum(count for _, count in self.events)
        rounding = 4 * np.finfo(float).eps * (number + 1) * math.log2(leaves[0].size + 2)
        return leaves[0], float(rounding)

    def epsilon(self, delta: float) -> float:
        """Invert the composed curve, after subtracting the transforms' error from delta."""
        if delta == 0 or not self.step < _COARSEST_STEP:
            return math.inf
        composed, rounding = self._composed
        if delta <= 2 * rounding:
            return math.inf
        return float(composed.get_epsilon_for_delta(delta - rounding))

    def delta(self, epsilon: float) -> float:
        """Evaluate the composed curve."""
        if not self.step < _COARSEST_STEP:
            return 1.0
        composed, rounding = self._composed
        return float(min(max(composed.get_delta_for_epsilon(float(epsilon)), 0.0) + rounding, 1.0))
