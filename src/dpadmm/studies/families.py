r"""What one row adds to a regression's sums, and how much at most.

A row has prepared columns z and a response y. With a constant k it is

.. math:: u = \frac{(k, z)}{\sqrt{1+k^2}},\qquad \hat u = \frac{Tu}{\max(1,\|Tu\|)},\qquad
          m = \frac1{\max(1,\|Tu\|)},

for a public matrix T, so that :math:`\|\hat u\|\le 1` whatever the row holds. At coefficients
:math:`\beta`, :math:`\eta=u\cdot\beta`, a family has a residual r with
:math:`|r|\le G(\eta)` and a curvature :math:`0\le h\le K(\eta)`; the row adds

.. math:: g = \frac{r\,m\,\hat u}{G},\qquad H = h\,\hat u\hat u^\top,\qquad q = \|g\|^2,\qquad
          G = \max_\eta G(\eta).

**Sensitivity.** Another row in its place has :math:`g', H', q'`. :math:`\langle H, H'\rangle\ge 0`
for two positive semi-definite matrices, so :math:`\|H-H'\|_F^2\le\|H\|_F^2+\|H'\|_F^2`;
:math:`\|g-g'\|^2\le 2\|g\|^2+2\|g'\|^2`; and :math:`|q-q'|\le 1`. With weights
:math:`\kappa, \nu`,

.. math:: \|g-g'\|^2 + \kappa^2\|H-H'\|_F^2 + \nu^2(q-q')^2 \;\le\;
          \max_\eta\Bigl(4\,\frac{G(\eta)^2}{G^2} + 2\kappa^2K(\eta)^2\Bigr) + \nu^2 = \Delta^2.

* *binomial*: :math:`r = y-p,\; G(\eta)=\max(p,1-p),\; h=K=p(1-p)`. With
  :math:`s=G(\eta)\in[\frac12,1]` the bracket is
  :math:`4s^2(1+\frac{\kappa^2}{2}(1-s)^2)`, at most 4 where
  :math:`\frac{\kappa^2}{2}\le\frac{1+s}{s^2(1-s)}` for all s; the right side is smallest at
  :math:`s=(\sqrt5-1)/2`, 11.09. So the curvature is *free* with :math:`\kappa=4.7`: where it is
  large, the residual is small.
* *poisson*: :math:`\lambda=e^{\min(\eta,\ln 20)}`,
  :math:`\psi=\mathrm{clip}(y-\lambda,\pm 2)`,
  :math:`a=\mathrm{Cov}_\lambda(\psi, Y)=\lambda\,E_\lambda[\psi(Y+1)-\psi(Y)]`, a weight
  :math:`w=1/\max(1,a/1.5)`, and :math:`r=w(\psi-E_\lambda\psi),\;h=wa\le 1.5`. The mean of r is
  zero at the true coefficients. :math:`|E_\lambda\psi|` is below 0.0856 in
  :math:`(0,20]`: it depends on :math:`\lambda` alone, its slope
  :math:`a/\lambda-P(|Y-\lambda|<2)` is between -1 and 1, and it was bounded on a grid. With
  :math:`\kappa=\frac12` the bracket is below :math:`4 + 2\cdot\frac14\cdot 1.5^2`.
* *survival*: a person's periods at risk :math:`t\in[a,b)` are rows
  :math:`u_t = (k e_t, z)/\sqrt{1+k^2}` of a binomial family whose response is the event. m is that
  of the longest of all periods. A person adds the sums over periods, *shortened as a whole*:
  :math:`\|g\|\le C=1.25` and :math:`\|H\|_F\le C_H=0.5`. One by one its rows could add b - a times
  as much.
* *gaussian* has two rounds of other sums (:mod:`dpadmm.studies.glm`).

**Consistent whatever the bound.** m depends on the columns alone, so E[g] = 0 at the true
coefficients however many rows are shortened: a weighted score (Mallows). A bound that is too small
costs precision; it does not bias a model that is right. A model that is wrong is fitted to the rows
as they are weighted, and maximum likelihood's answer is another. What is shortened by its response
(poisson above 20, a person's sums above C) can bias.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Final, final

import numpy as np
from scipy.special import expit, gammaln, logit, pdtr, pdtrc

from dpadmm.errors import unknown_name
from dpadmm.plain import Array

# Of rows before they are multiplied: no honest one is near, and no product overflows.
_LARGEST: Final = 1e9
# Of what a response is taken as: exp of it is a double.
_LARGEST_ETA: Final = 500.0
# Of an event in all periods together, where survival begins.
_FIRST_CHANCE: Final = 0.5
#: nu, the weight of the squared lengths of gradients.
SQUARES: Final = 0.3


@final
@dataclass(frozen=True)
class Point:
    """Where sums are asked for: public.

    Attributes
    ----------
    beta
        Of the rows u.
    map
        T.
    """

    beta: Array
    map: Array


def bounded_rows(rows: Array, bounded: bool = True) -> tuple[Array, Array]:
    r""":math:`\hat u` and m of rows :math:`Tu`; without a bound rows as they are, and ones."""
    if not bounded:
        return rows, np.ones(len(rows))
    rows = np.clip(np.nan_to_num(rows, posinf=0.0, neginf=0.0), -_LARGEST, _LARGEST)
    factor = 1.0 / np.maximum(1.0, np.sqrt(np.einsum("ij,ij->i", rows, rows)))
    return rows * factor[:, None], factor


def linear_predictor(rows: Array, beta: Array) -> Array:
    """``u.beta``, always a number."""
    with np.errstate(all="ignore"):
        eta = np.nan_to_num(rows @ beta)
    found: Array = np.clip(eta, -_LARGEST_ETA, _LARGEST_ETA)
    return found


class Family(ABC):
    """A regression whose coefficients private Newton steps find.

    Attributes
    ----------
    name, effect
        What it is called, and what the exponential of a coefficient is.
    reach
        G.
    curvature_reach
        The largest K.
    curving
        kappa.
    joint
        The maximum over eta in Delta^2.
    scattering
        Whether residuals vary as much as the curvature says.
    """

    name: ClassVar[str]
    effect: ClassVar[str]
    reach: ClassVar[float]
    curvature_reach: ClassVar[float]
    curving: ClassVar[float]
    joint: ClassVar[float]
    scattering: ClassVar[bool] = True

    @property
    def start(self) -> float:
        """The linear predictor of every row in the first round."""
        return 0.0

    @property
    def sensitivity(self) -> float:
        """Delta."""
        return math.sqrt(self.joint + SQUARES**2)

    @property
    def largest(self) -> float:
        """A bound on the length of what one row adds."""
        return math.sqrt(1 + (self.curving * self.curvature_reach) ** 2 + SQUARES**2)

    @abstractmethod
    def moments(self, eta: Array, response: Array, bounded: bool = True) -> tuple[Array, Array]:
        """The residual r and the curvature h of each row."""

    @abstractmethod
    def mean(self, eta: Array) -> Array:
        """The expected response."""

    @abstractmethod
    def ahead(self, fitted: Array, deviation: float, weights: Array) -> tuple[float, Array]:
        """What slopes of the first step are multiplied by, and the levels at the mean columns.

        Parameters
        ----------
        fitted
            What the first step adds to it at the mean columns, for each constant.
        deviation
            That of the linear predictor of the first step around it.
        weights
            How many rows each constant has.
        """

    def contributions(
        self, rows: Array, responses: Array, point: Point, bounded: bool = True
    ) -> tuple[Array, Array, float]:
        """The sums of g, H and q over rows u."""
        short, factor = bounded_rows(rows @ point.map.T, bounded)
        residual, curvature = self.moments(
            linear_predictor(rows, point.beta), responses[:, 0], bounded
        )
        slope = residual * factor / (self.reach if bounded else 1.0)
        squares = float(np.square(slope) @ np.einsum("ij,ij->i", short, short))
        return short.T @ slope, (short * curvature[:, None]).T @ short, squares


@final
class Binomial(Family):
    """Two outcomes, 0 and 1, whose log odds are linear."""

    name = "binomial"
    effect = "odds ratio"
    reach = 1.0
    curvature_reach = 0.25
    curving = 4.7
    joint = 4.0

    def moments(self, eta: Array, response: Array, bounded: bool = True) -> tuple[Array, Array]:
        """The residual y - p and p (1 - p)."""
        chance = expit(eta)
        return np.where(response > 0.5, expit(-eta), -chance), chance * expit(-eta)

    def mean(self, eta: Array) -> Array:
        """Return p."""
        return expit(eta)

    def ahead(self, fitted: Array, deviation: float, weights: Array) -> tuple[float, Array]:
        """From even odds."""
        return _logistic_ahead(0.5, fitted, deviation, weights)


def _logistic_ahead(
    chance: float, fitted: Array, deviation: float, weights: Array
) -> tuple[float, Array]:
    r"""With :math:`E\,p(1-p)\approx\bar p(1-\bar p)/\sqrt{1+\pi s^2/8}`, s of the predictor."""
    curvature = chance * (1 - chance)
    mean = np.clip(chance + curvature * fitted, chance / 10, 1 - chance / 10)
    slope = float(np.average(mean * (1 - mean), weights=weights)) / curvature
    # s / sqrt(1 + pi s^2 / 8) of what is looked for. Too long a step would do harm, too short a
    # one is made good for: no more than s = 2.5.
    reached = min(deviation / slope, 1.34)
    wider = 1 / math.sqrt(1 - math.pi / 8 * reached**2)
    return wider / slope, wider * logit(mean)


@final
class Poisson(Family):
    """Counts whose logarithm of the mean is linear."""

    name = "poisson"
    effect = "rate ratio"
    clip: ClassVar[float] = 2.0
    most: ClassVar[float] = 20.0
    reach = 2.0856
    curvature_reach = 1.5
    curving = 0.5
    joint = 4 + 2 * (0.5 * 1.5) ** 2
    scattering = False  # Var psi is below Cov(psi, Y)

    def moments(self, eta: Array, response: Array, bounded: bool = True) -> tuple[Array, Array]:
        """The residual psi - E psi, and Cov(psi, Y)."""
        if not bounded:
            rate = np.exp(eta)
            return response - rate, rate
        rate = np.exp(np.clip(eta, -30.0, math.log(self.most)))
        expected, curvature = clipped_poisson(rate, self.clip)
        psi = np.clip(np.nan_to_num(response) - rate, -self.clip, self.clip)
        weight = self.curvature_reach / np.maximum(self.curvature_reach, curvature)
        return weight * (psi - expected), weight * curvature

    def mean(self, eta: Array) -> Array:
        """Return the rate."""
        return np.exp(eta)

    def ahead(self, fitted: Array, deviation: float, weights: Array) -> tuple[float, Array]:
        r"""With :math:`E\,\mu'(\eta) = E\,\lambda = e^{\text{level}+s^2/2}`."""
        rate = np.clip(1.0 + fitted, 0.1, self.most - 1.0)
        slope = float(np.average(rate, weights=weights))
        reached = min(deviation / slope, 1.0)
        return 1 / slope, np.log(rate) - reached**2 / 2


def clipped_poisson(rate: Array, clip: float) -> tuple[Array, Array]:
    r""":math:`E\,\psi` and :math:`\mathrm{Cov}(\psi, Y)` of a count, psi = clip(Y - rate, +-clip).

    .. math:: E\,\psi = c\,P(Y>\lambda+c) - c\,P(Y<\lambda-c)
              + \sum_{|y-\lambda|\le c}(y-\lambda)\,P(Y=y),\qquad
              \mathrm{Cov}(\psi, Y) = \lambda\sum_y P(Y=y)\,(\psi(y+1)-\psi(y))
    """
    low, high = rate - clip, rate + clip
    least = np.ceil(low)
    expected = clip * pdtrc(np.floor(high), rate)
    expected -= clip * np.where(least >= 1, pdtr(np.maximum(least - 1, 0), rate), 0.0)
    curvature = np.zeros_like(rate)
    whole = np.maximum(np.floor(low), 0.0)
    chance = np.exp(whole * np.log(rate) - rate - gammaln(whole + 1))
    for step in range(math.ceil(2 * clip) + 2):
        count = np.floor(low) + step
        there = count >= 0
        within = there & (count >= low) & (count <= high)
        expected += np.where(within, (count - rate) * chance, 0.0)
        rise = np.clip(np.minimum(count + 1, high) - np.maximum(count, low), 0.0, 1.0)
        curvature += np.where(there, rate * chance * rise, 0.0)
        # P(Y = y + 1) = P(Y = y) lambda / (y + 1); the first y below zero has none.
        chance = np.where(there, chance * rate / (np.maximum(count, 0.0) + 1), chance)
    return expected, curvature


@final
@dataclass(frozen=True)
class Survival(Family):
    """A person's event in discrete time: the odds of the event in each period at risk.

    Responses are the first period at risk, the first one that is not, and 1 for an event in the
    last period at risk.

    Parameters
    ----------
    periods
        How many there are: the first columns of a row stand for their constants.
    """

    name: ClassVar[str] = "survival"
    effect: ClassVar[str] = "hazard ratio"
    reach: ClassVar[float] = 1.25
    curvature_reach: ClassVar[float] = 0.5
    # A quarter of Delta^2 is the curvature's.
    curving: ClassVar[float] = 1.6
    joint: ClassVar[float] = 4 + 2 * (1.6 * 0.5) ** 2

    periods: int

    def moments(self, eta: Array, response: Array, bounded: bool = True) -> tuple[Array, Array]:
        """Those of one period: the binomial family's."""
        return Binomial().moments(eta, response)

    def mean(self, eta: Array) -> Array:
        """The chance of the event within a period."""
        return expit(eta)

    def ahead(self, fitted: Array, deviation: float, weights: Array) -> tuple[float, Array]:
        """Over the rows of all periods."""
        return _logistic_ahead(_FIRST_CHANCE / self.periods, fitted, deviation, weights)

    @property
    def start(self) -> float:
        """So low that no person is shortened for its response in the first round."""
        return float(logit(_FIRST_CHANCE / self.periods))

    def contributions(
        self, rows: Array, responses: Array, point: Point, bounded: bool = True
    ) -> tuple[Array, Array, float]:
        """The sums over persons; rows have one constant, in the place of all periods."""
        constants, columns = rows[:, :1], rows[:, 1:]
        # Tu_t = s + k c_t: s of the person, c_t of the period. All sums follow from s.c_t.
        shared = columns @ point.map[:, self.periods :].T
        if bounded:
            shared = np.clip(np.nan_to_num(shared, posinf=0.0, neginf=0.0), -_LARGEST, _LARGEST)
        own = point.map[:, : self.periods].T
        square = np.einsum("ij,ij->i", shared, shared)[:, None]
        across, inner = constants * (shared @ own.T), own @ own.T
        factor = np.ones((len(rows), 1))
        if bounded:
            lengths = square + 2 * across + np.square(constants) * np.diag(inner)
            factor /= np.sqrt(np.maximum(1.0, lengths.max(axis=1, keepdims=True)))
        # (persons, periods)
        eta = linear_predictor(columns, point.beta[self.periods :])[:, None]
        eta = np.clip(eta + constants * point.beta[: self.periods], -_LARGEST_ETA, _LARGEST_ETA)
        first, stop, event = responses[:, :1], responses[:, 1:2], responses[:, 2:]
        period = np.arange(self.periods)
        at_risk = (period >= first) & (period < stop)
        happened = at_risk & (period == stop - 1) & (event > 0.5)
        residual, curvature = self.moments(eta, happened.astype(np.float64))
        # Of each person: the gradient, and the matrix as a weighted sum of its periods' squares.
        residual = residual * at_risk * np.square(factor)
        curvature = curvature * at_risk * np.square(factor)
        slopes = shared * residual.sum(axis=1, keepdims=True) + (constants * residual) @ own
        if bounded:
            size = np.sqrt(np.einsum("ij,ij->i", slopes, slopes))
            slopes /= np.maximum(self.reach, size)[:, None]
            products = across[:, :, None] + across[:, None, :]
            products += square[:, :, None] + np.square(constants)[:, :, None] * inner
            np.square(products, out=products)
            size = np.sqrt(
                np.einsum("it,it->i", curvature, (products @ curvature[:, :, None])[..., 0])
            )
            curvature *= self.curvature_reach / np.maximum(self.curvature_reach, size)[:, None]
        weighted = constants * curvature
        mixed = (shared.T @ weighted) @ own
        matrix = (shared * curvature.sum(axis=1, keepdims=True)).T @ shared + mixed + mixed.T
        matrix += own.T @ ((constants * weighted).sum(axis=0)[:, None] * own)
        return slopes.sum(axis=0), matrix, float(np.square(slopes).sum())


#: The families that Newton steps find, by their names.
NEWTON: Final = {"binomial": Binomial, "poisson": Poisson}


def newton_family(name: str, periods: int | None) -> Family:
    """A family by its name."""
    if name == Survival.name:
        assert periods is not None
        return Survival(periods)
    if name not in NEWTON:
        raise unknown_name("family", name, ["gaussian", *NEWTON, Survival.name])
    return NEWTON[name]()
