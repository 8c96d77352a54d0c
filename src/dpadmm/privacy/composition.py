r"""Bounds for a composed history: each computes epsilon(delta) and delta(epsilon).

These are the accountant's numerical tools. :mod:`dpadmm.privacy.accountant` decides which of them
is valid for a history, and counts the events. All bounds round towards a larger cost: sums and
products of epsilons exactly (:mod:`dpadmm.privacy.gaussian`), everything else by margins.

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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Final, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln, ndtr, ndtri

from dpadmm.plain import Array
from dpadmm.privacy.curves import loss_masses, loss_reach, rdp
from dpadmm.privacy.events import Event
from dpadmm.privacy.figures import AtMost
from dpadmm.privacy.gaussian import (
    exp_up,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_mu,
    round_down,
    round_up,
    sum_up,
)
from dpadmm.privacy.noise import SAMPLER_ALLOWANCE


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
