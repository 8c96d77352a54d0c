r"""From budget to noise: the least noise with which the accountant's epsilon meets the target.

.. math:: s_1 = \Delta\sqrt{\textstyle\sum_t 1/g_t}\,/\,\mu^*(\epsilon, \delta),\qquad
          g_t = s_t^2 / s_1^2

for Gaussian releases, and the corresponding inversions for the other events. Arguments that
belong to a party (budget, rows, strong convexity, sensitivity...) may be arrays over parties and
are broadcast. ``ratios`` holds one variance ratio g_t per round. Noise is never rounded down.

**Inner steps.** The amount and the cost of noise in every gradient of a stochastic local solve. The
history of such an algorithm has releases of more than one kind (:class:`InnerReleases`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Final, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpadmm.errors import ParameterError
from dpadmm.plain import Array
from dpadmm.privacy.accountant import Guarantee, History, epsilon_spent
from dpadmm.privacy.curves import LARGEST_KAPPA, objective_jacobian_rdp
from dpadmm.privacy.events import (
    Composed,
    Event,
    GaussianObjectivePerturbation,
    GaussianRelease,
    PureRelease,
    Repeated,
    SubsampledGaussian,
)
from dpadmm.privacy.figures import AtLeast, AtMost
from dpadmm.privacy.gaussian import gaussian_mu
from dpadmm.privacy.sensitivity import (
    check_range,
    gradient_sensitivity,
    jacobian_epsilon,
    reals,
)

# A returned noise exceeds the closed form by this factor: far below the stated accuracy of 1e-6,
# far above the rounding of the accountant that will check it.
_MARGIN: Final = 1 + 2e-7


class InfeasibleBudgetError(ParameterError):
    """No amount of noise meets the budget; ``smallest_epsilon`` is the least that could be met."""

    def __init__(self, message: str, smallest_epsilon: float) -> None:
        super().__init__(message)
        self.smallest_epsilon = smallest_epsilon

    @classmethod
    def for_floor(cls, least: float, what: str, epsilon: float, advice: str = "") -> Self:
        """Refuse an epsilon below a cost that noise cannot reduce."""
        return cls(
            f"epsilon must exceed {AtMost(least)}, what {what} cost; got {epsilon!r}{advice}", least
        )


def _inverse_sum(ratios: ArrayLike) -> tuple[int, float]:
    """Return the number of rounds and sum_t 1 / g_t."""
    values = np.atleast_1d(reals(ratios))
    check_range("ratios", values)
    return values.size, float(np.sum(1 / values))


def _over_parties(solve: Callable[..., float], *arguments: ArrayLike) -> Array:
    """Apply a scalar search to broadcast arguments, once for every distinct combination."""
    arrays = np.broadcast_arrays(*map(reals, arguments))
    table = np.stack([array.ravel() for array in arrays], axis=-1)
    different, index = np.unique(table, axis=0, return_inverse=True)
    results = np.array([solve(*row) for row in different.tolist()])
    noise: Array = results[index.ravel()].reshape(arrays[0].shape)[()]
    return noise


# Gaussian output noise -------------------------------------------------------------------------


def gaussian_sigma(
    epsilon: ArrayLike,
    delta: ArrayLike,
    sensitivity: ArrayLike,
    ratios: ArrayLike = 1.0,
    *,
    rows_per_person: int = 1,
) -> Array:
    """Return the first round's standard deviation k Delta sqrt(sum 1/g_t) / mu*."""
    _, inverse = _inverse_sum(ratios)
    sensitivity_ = reals(sensitivity)
    check_range("sensitivity", sensitivity_)
    mu = gaussian_mu(epsilon, delta)
    sigma: Array = _MARGIN * rows_per_person * sensitivity_ * math.sqrt(inverse) / mu
    return sigma


# Pure releases ---------------------------------------------------------------------------------


def _largest(cost: Callable[[float], float], target: float, low: float, accuracy: float) -> float:
    """Return the largest x with cost(x) <= target, from below; cost grows, cost(low) fits."""
    high = 2 * low
    while cost(high) <= target:
        low, high = high, 2 * high
    while high > low * (1 + accuracy):
        middle = (low + high) / 2
        low, high = (middle, high) if cost(middle) <= target else (low, middle)
    return low


def pure_level(
    epsilon: ArrayLike,
    delta: ArrayLike,
    rounds: int,
    *,
    rows_per_person: int = 1,
    extra: History = (),
) -> Array:
    """Return the largest epsilon per round whose ``rounds`` releases stay within the budget.

    This is epsilon / rounds if delta is 0, and more under optimal composition otherwise. ``extra``
    are events of the same party that the budget must cover too (such as the inexact solves).
    """
    others = list(extra)
    check_range("epsilon", reals(epsilon))
    if rounds < 1:
        raise ValueError(f"rounds must be a positive integer; got {rounds!r}")

    def solve(target: float, at: float) -> float:
        def cost(level: float) -> float:
            history: History = [(PureRelease(level), rounds), *others]
            return epsilon_spent(history, at, rows_per_person=rows_per_person).epsilon

        low = target / (rounds * rows_per_person) * (1 - 1e-15)
        if at == 0 and not others:
            return low
        spent = cost(0.0)
        if spent >= target:
            raise InfeasibleBudgetError(
                f"epsilon must exceed what the other releases cost, {AtMost(spent)}; got "
                f"{target!r}",
                spent,
            )
        while cost(low) > target:
            low /= 2
        return _largest(cost, target, low, 1e-4 if others else 1e-9)

    return _over_parties(solve, epsilon, delta)


def pure_noise(
    epsilon: float,
    delta: float,
    shares: ArrayLike,
    fixed: ArrayLike,
    *,
    rows_per_person: int = 1,
    extra: History = (),
) -> float:
    r"""Return the s for which releases of epsilon ``shares / s + fixed`` fit, to 1e-3 in epsilon.

    Parameters
    ----------
    epsilon, delta, rows_per_person
        The budget of one party.
    shares, fixed
        One number per release: its cost with noise of size 1, and the cost that noise leaves.
    extra
        Events of the same party that the budget must cover too.
    """
    shares_, fixed_ = np.broadcast_arrays(reals(shares), reals(fixed))
    check_range("shares", shares_)
    check_range("fixed", fixed_, zero=True)

    def cost(noise: float) -> float:
        levels, counts = np.unique(shares_ / noise + fixed_, return_counts=True)
        releases = zip(map(PureRelease, levels.tolist()), counts.tolist(), strict=True)
        history: History = [*releases, *extra]
        return epsilon_spent(history, delta, rows_per_person=rows_per_person).epsilon

    least = cost(math.inf)
    if least >= epsilon:
        raise InfeasibleBudgetError.for_floor(
            least,
            f"the Jacobians and the inexact solves of {shares_.size} releases",
            epsilon,
            "; fewer rounds, a larger penalty or more rows would do",
        )
    # Enough noise for basic composition; optimal composition needs less.
    room = epsilon - rows_per_person * float(fixed_.sum())
    unit = rows_per_person * float(shares_.sum()) / (room if room > 0 else epsilon - least)
    # The charge is computed in another order: leave room for its rounding.
    return (1 + 1e-12) * unit * least_noise(lambda noise: cost(unit * noise), epsilon, start=1.0)


def exponential_rate(
    level: ArrayLike,
    rows: ArrayLike,
    kappa: ArrayLike,
    *,
    weight: ArrayLike = 1.0,
    slope: float = 1.0,
) -> Array:
    """Return the rate (level - ln(1 + kappa)) n / (2 L c) of noise exp(-rate ||b||).

    ``level`` is the epsilon of one release. It must exceed ln(1 + kappa), the Jacobian's cost.
    """
    level_, kappa_ = np.broadcast_arrays(reals(level), reals(kappa))
    room = level_ - jacobian_epsilon(kappa_)
    if np.any(~(room > 0)):
        party = int(np.argmin(room))
        needed = float(jacobian_epsilon(kappa_.flat[party]))
        raise InfeasibleBudgetError(
            f"epsilon per release must exceed ln(1 + kappa) = {AtMost(needed)};"
            f" got {AtLeast(float(level_.flat[party]))}; fewer rounds, a larger penalty or more "
            "rows would do",
            needed,
        )
    rate: Array = room * (1 - 1e-12) / gradient_sensitivity(rows, weight=weight, slope=slope)
    return rate


# Gaussian objective perturbation ---------------------------------------------------------------


def _largest_mu_squared(
    epsilon: Array, delta: Array, kappas: Array, weight: int, rows: int
) -> Array:
    """Maximise over the order what objective perturbation leaves for the Gaussian parts.

    ``kappas`` has one row per party; each column counts ``weight`` times. Every order is valid, so
    the search only has to be close: a window in ln(a - 1) around the best order of a plain
    Gaussian, narrowed three times, then the vertex of a parabola.
    """
    parties = epsilon.shape[0]
    most = rows * kappas.max(axis=1)
    kappas = np.minimum(kappas, LARGEST_KAPPA / rows)
    top = np.log((1 - 1e-9) / np.clip(most, 1e-12, LARGEST_KAPPA))

    def room(grid: Array) -> Array:
        a = 1 + np.exp(np.minimum(grid, top[:, None]))
        jacobian = objective_jacobian_rdp(a[..., None], kappas[:, None, :], rows).sum(axis=-1)
        spare = epsilon[:, None] + (np.log(delta)[:, None] + np.log(a)) / (a - 1)
        value: Array = 2 / a * (spare - np.log1p(-1 / a) - weight * jacobian)
        return value

    center = np.log(np.sqrt(-2 * np.log(delta)) / gaussian_mu(epsilon, delta))
    center, every = np.minimum(center, top), np.arange(parties)
    best, width = np.full(parties, -np.inf), 6.0
    for points in (17, 9, 9, 9):
        offsets = np.linspace(-width, width, points)
        values = room(center[:, None] + offsets)
        index = np.argmax(values, axis=1)
        best = np.maximum(best, values[every, index])
        width = 2 * width / (points - 1)
        inner = index.clip(1, points - 2)
        left, middle, right = (values[every, inner + shift] for shift in (-1, 0, 1))
        bend = 2 * middle - left - right
        safe = np.where(np.isfinite(bend) & (bend > 0), bend, 1.0)
        vertex = np.where(bend > 0, 0.5 * (right - left) / safe, 0.0).clip(-1, 1) * width
        center = np.minimum(center + offsets[index], top)
    largest = np.maximum(best, room((center + vertex)[:, None])[:, 0])
    return np.where(most <= LARGEST_KAPPA, largest, -np.inf)


def _over_columns(kappa: ArrayLike, rounds: int) -> tuple[Array, int]:
    """The kappa of parties and rounds, and how many rounds each column stands for."""
    kappas = reals(kappa)
    kappas = kappas if kappas.ndim == 2 else kappas.reshape(-1, 1)
    if kappas.shape[1] not in (1, rounds):
        raise ValueError(f"kappa must have 1 or {rounds} columns; got {kappas.shape[1]}")
    check_range("kappa", kappas, zero=True)
    return kappas, rounds if kappas.shape[1] == 1 else 1


def objective_sigma(
    epsilon: ArrayLike,
    delta: ArrayLike,
    sensitivity: ArrayLike,
    kappa: ArrayLike,
    ratios: ArrayLike = 1.0,
    *,
    inexact_mu: ArrayLike = 0.0,
    rows_per_person: int = 1,
) -> Array:
    r"""Return the first round's standard deviation of the gradient noise.

    .. math:: \sum_t \mu_t^2 = \max_a \tfrac2a\Big(\epsilon + \frac{\ln\delta+\ln a}{a-1}
              - \ln(1-1/a) - \sum_t \mathrm{jacobian}_a(\kappa_t)\Big) - \sum_t\mu_{o,t}^2

    Parameters
    ----------
    epsilon, delta, sensitivity, inexact_mu : array of shape (parties,) or float
        Budget, sensitivity of the gradient (2 L c / n), and mu of one inexact solve.
    kappa : array of shape (parties,) or (parties, rounds), or float
        Jacobian ratio, the same in every round, or one for each round.
    ratios : array of shape (rounds,)
        Variance ratios.
    """
    rounds, inverse = _inverse_sum(ratios)
    kappas, weight = _over_columns(kappa, rounds)
    epsilon_, delta_, sensitivity_, inexact, _ = np.broadcast_arrays(
        reals(epsilon), reals(delta), reals(sensitivity), reals(inexact_mu), kappas[:, 0]
    )
    check_range("epsilon", epsilon_)
    check_range("sensitivity", sensitivity_)
    if np.any(~((delta_ > 0) & (delta_ < 1))):
        raise ValueError(f"delta must be in (0, 1) for Gaussian noise; got {delta!r}")
    best = _largest_mu_squared(epsilon_, delta_, kappas, weight, rows_per_person)
    available = best - rounds * inexact**2
    if np.any(~(available > 0)):
        party = int(np.argmin(available))
        columns = np.broadcast_to(kappas, (*epsilon_.shape, kappas.shape[1]))[party]
        floor: list[Event | tuple[Event, int]] = [
            (GaussianObjectivePerturbation(0.0, value), weight) for value in columns.tolist()
        ]
        floor.append((GaussianRelease(inexact[party] / rows_per_person, 1.0), rounds))
        spent = epsilon_spent(floor, float(delta_[party]), rows_per_person=rows_per_person)
        what = f"the Jacobian and the inexact solves of {rounds} rounds"
        advice = "; fewer rounds, a larger penalty or more rows would do"
        raise InfeasibleBudgetError.for_floor(spent.epsilon, what, float(epsilon_[party]), advice)
    sigma: Array = _MARGIN * rows_per_person * sensitivity_ * np.sqrt(inverse) / np.sqrt(available)
    scalar = not any(map(np.ndim, (epsilon, delta, sensitivity, inexact_mu, kappa)))
    return sigma[0] if scalar else sigma


# Subsampling -----------------------------------------------------------------------------------


def subsampled_sigma(
    epsilon: ArrayLike,
    delta: ArrayLike,
    steps: int,
    batch: ArrayLike,
    population: ArrayLike,
    sensitivity: ArrayLike,
    *,
    rows_per_person: int = 1,
    extra: History = (),
) -> Array:
    """Return the standard deviation of every step of a subsampled Gaussian, to 1e-3 in epsilon.

    ``extra`` are events of the same party that the budget must cover too.
    """
    others = list(extra)

    def solve(target: float, at: float, size: float, rows: float) -> float:
        def cost(noise: float) -> float:
            step = SubsampledGaussian(round(size), round(rows), 1.0, noise)
            history: History = [(step, steps), *others]
            return epsilon_spent(history, at, rows_per_person=rows_per_person).epsilon

        least = epsilon_spent(others, at, rows_per_person=rows_per_person).epsilon
        if least >= target:
            raise InfeasibleBudgetError(
                f"epsilon must exceed what the other releases cost, {AtMost(least)}; got "
                f"{target!r}",
                least,
            )
        return least_noise(cost, target, start=1.0)

    check_range("epsilon", reals(epsilon))
    noise: Array = reals(sensitivity) * _over_parties(solve, epsilon, delta, batch, population)
    return noise


def least_noise(cost: Callable[[float], float], target: float, start: float) -> float:
    """Return noise with 0.999 target <= cost(noise) <= target; the cost falls as noise grows.

    It uses the secant method in logarithms, inside a bracket. It seeks no noise below 1e-3.
    """
    bracket = [0.0, math.inf]
    values = [math.inf, 0.0]
    noise = start
    for _ in range(100):
        value = cost(noise)
        side = int(value <= target)
        bracket[side], values[side] = noise, value
        if side and (value >= 0.999 * target or noise <= 1e-3):
            return noise
        low, high = bracket
        if low == 0 or high == math.inf:
            # Epsilon is roughly at most proportional to 1/noise: overshoot a little.
            noise = noise * min(max(value / target, 0.1), 10.0) * (1.1 if not side else 0.9)
        elif values[1] > 0 and values[0] < math.inf:
            slope = math.log(values[1] / values[0]) / math.log(high / low)
            share = math.log(0.9995 * target / values[0]) / slope
            noise = low * math.exp(share)
            edge = 0.02 * math.log(high / low)
            noise = min(max(noise, low * math.exp(edge)), high * math.exp(-edge))
        else:
            noise = math.sqrt(low * high)
    return bracket[1]


class InnerNoise(NamedTuple):
    r"""The releases of the inner steps of a stochastic local solve, and their noise.

    Step s has a private part :math:`p_s = d_s + \mathrm{carried}`: the batch difference, and the
    part of the full gradient that every step carries. The loop sees it only as
    :math:`r_s = p_s + \sigma_s\theta_s` with
    :math:`\sigma_s = \mathrm{fixed} + \mathrm{relative}\,\Delta_s`, where :math:`\Delta_s` is the
    public bound on what one row of the batch can change in one output's difference. The path of the
    loop is a function of :math:`r_s`, of ``released`` and of public values alone.

    Attributes
    ----------
    batches
        ``(runs, steps - 1, batch)`` row numbers of each party, from the second step on. The first
        step is at the point of the full gradient, where batch differences are zero.
    carried
        The full gradient, if the noise of every step has to cover it; zeros if it was released.
    released
        The full gradient with noise that is drawn once for all steps; zeros if it is carried.
    fixed, relative
        The noise, per party; without noise nothing is protected.
    draws
        ``(nodes, runs, steps, outputs, features)`` standard normal numbers, to scale and add as
        doubles; empty if there is a ``release``.
    release
        Maps a party's place, p_s and sigma_s to r_s, both on one grid; None without a grid.
    """

    batches: list[NDArray[np.int64]]
    carried: Array
    released: Array
    fixed: Array
    relative: Array
    draws: Array
    release: Callable[[int, Array, float], Array] | None = None


@dataclass(frozen=True)
class GradientPerturbation:
    r"""Gaussian noise in every gradient of a stochastic local solve (SVRG).

    A step uses ``d_s + u``: the batch's mean of gradient differences, scaled by c, and the full
    gradient. ``"one-release"`` sends u once, with noise ``gradient_sigma``. It sends d_s, which one
    row of the batch changes by at most :math:`\Delta_s`, with noise ``difference_sigma``
    :math:`\Delta_s`:

    .. math:: \mu_u = \mathrm{sensitivity}/\mathrm{gradient\_sigma},\qquad
              \mu_d = 1/\mathrm{difference\_sigma}\quad(S - 1\text{ times, subsampled})

    ``"split"`` adds one noise of variance gradient_sigma^2 + difference_sigma^2 to the sum
    ``d_s + u`` of every step, so u is charged S times and d_s with its largest sensitivity. The
    adversary may see every inner iterate.

    Attributes
    ----------
    form
        ``"one-release"`` or ``"split"``.
    steps
        S, inner steps of a message.
    batch, rows
        Rows of a batch, and of the party.
    sensitivity
        How far one row moves the full gradient, all outputs together, per party.
    difference_sensitivity
        How far one row of a batch moves its difference at most, likewise (``"split"`` only).
    gradient_sigma, difference_sigma
        The noise, per party.
    """

    form: Literal["one-release", "split"]
    steps: int
    batch: NDArray[np.int64]
    rows: NDArray[np.int64]
    sensitivity: Array
    difference_sensitivity: Array
    gradient_sigma: Array
    difference_sigma: Array

    def events(self) -> tuple[Event, ...]:
        """The events that each party is charged for a message."""
        split = self.form == "split"
        charged: list[Event] = []
        for place in range(len(self.rows)):
            full: Event = GaussianRelease(
                float(self.sensitivity[place]), float(self.gradient_sigma[place])
            )
            parts = [Repeated(full, self.steps) if split else full]
            if self.steps > 1:
                difference = SubsampledGaussian(
                    int(self.batch[place]),
                    int(self.rows[place]),
                    float(self.difference_sensitivity[place]) if split else 1.0,
                    float(self.difference_sigma[place]),
                )
                parts.append(Repeated(difference, self.steps - 1))
            charged.append(Composed(tuple(parts)))
        return tuple(charged)


@dataclass(frozen=True)
class InnerReleases:
    """How often a stochastic algorithm releases.

    Attributes
    ----------
    outer, inner
        Messages, and gradient steps before each.
    batch, population
        Rows of a batch, and of the party.
    """

    outer: int
    inner: int
    batch: int
    population: int

    @property
    def differences(self) -> int:
        """The number of batch differences; the first of each message is zero."""
        return self.outer * (self.inner - 1)


def split_history(
    run: InnerReleases, sigma: float, difference: float, gradient: float, share: float
) -> list[tuple[Event, int]]:
    """Return the releases of PS-ADMM if one noise covers batch difference and full gradient.

    N(0, sigma^2) is the sum of N(0, share sigma^2) on the difference of batch gradients and
    N(0, (1 - share) sigma^2) on the full gradient, with their sensitivities. Every share in (0, 1)
    gives a valid history.
    """
    batch = SubsampledGaussian(run.batch, run.population, difference, sigma * math.sqrt(share))
    full = GaussianRelease(gradient, sigma * math.sqrt(1 - share))
    return [(batch, run.differences), (full, run.outer * run.inner)]


def best_split(
    history: Callable[[float], History], delta: float, *, rows_per_person: int = 1
) -> tuple[float, Guarantee]:
    """Return the share with the smallest epsilon among a few, and that guarantee.

    ``history(share)`` is usually :func:`split_history` with everything else fixed. The share is a
    public number chosen without looking at rows, and every share is valid.
    """
    tried: dict[float, Guarantee] = {}
    low, high = -6.0, 6.0
    for points in (7, 5):
        for logit in np.linspace(low, high, points).tolist():
            share = 1 / (1 + math.exp(-logit))
            tried[logit] = epsilon_spent(history(share), delta, rows_per_person=rows_per_person)
        best = min(tried, key=lambda logit: tried[logit].epsilon)
        width = (high - low) / (points - 1)
        low, high = best - 0.8 * width, best + 0.8 * width
    return 1 / (1 + math.exp(-best)), tried[best]


@lru_cache(maxsize=256)
def one_release_noise(
    epsilon: float, delta: float, run: InnerReleases, *, share: float, rows_per_person: int
) -> tuple[float, float]:
    r"""Return (gradient noise, difference noise) in units of their sensitivities.

    .. math:: \sum_{k=1}^{K}\mu_u^2 = \mathrm{share}\cdot\mu^*(\epsilon, \delta)^2

    fixes the noise of the full gradients, each released once. The noise of the batch differences is
    a multiple of their current sensitivity: the least with which the whole stays within the budget,
    to 1e-3 in epsilon. Without batch differences (one inner step) the gradients get all of it.
    """
    mu = float(gaussian_mu(epsilon, delta)) / rows_per_person
    if run.differences == 0:
        return (1 + 1e-9) * math.sqrt(run.outer) / mu, 0.0
    gradient = math.sqrt(run.outer / share) / mu
    difference = subsampled_sigma(
        epsilon,
        delta,
        run.differences,
        run.batch,
        run.population,
        1.0,
        rows_per_person=rows_per_person,
        extra=[(GaussianRelease(1.0, gradient), run.outer)],
    )
    return gradient, float(difference)


@lru_cache(maxsize=256)
def split_noise(
    epsilon: float,
    delta: float,
    run: InnerReleases,
    difference: float,
    gradient: float,
    *,
    rows_per_person: int,
) -> tuple[float, float]:
    """Return (sigma, share): the least noise of :func:`split_history` within the budget.

    The share is the best one at a first sigma, found with an even split; to 1e-3 in epsilon.
    """

    def history(sigma: float, share: float) -> list[tuple[Event, int]]:
        return split_history(run, sigma, difference, gradient, share)

    def least(share: float, start: float) -> float:
        def cost(sigma: float) -> float:
            spent = epsilon_spent(history(sigma, share), delta, rows_per_person=rows_per_person)
            return spent.epsilon

        return least_noise(cost, epsilon, start=start)

    first = least(0.5, difference)
    share, _ = best_split(partial(history, first), delta, rows_per_person=rows_per_person)
    return least(share, first), share
