r"""How much privacy to ask for: the alpha that is best for a user's own costs.

.. math::
    \max_\alpha\; U(\alpha) - L(\alpha),\qquad
    L(\alpha) = c_4 e^{-c_5\alpha} + c_6,\qquad
    U(\alpha) = \omega_1 \ln\frac{\omega_2}{\omega_3\alpha + \omega_4\alpha^2}

T. Zhang and Q. Zhu (AISec 2016, section 5) choose the privacy of an iteration so: L is what a model
loses, fitted to trials, and U what privacy is worth. Any two functions of alpha can take their
places. Trials on private rows are themselves releases: fit to public rows, or to rows of a
generator that are like the private ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize_scalar

from dpadmm.errors import ParameterError, positive_number
from dpadmm.plain import Array

# c5 is searched between these. Given c5, the other two come from linear least squares.
_RATES: Final = np.geomspace(0.1, 1e4, 2001)
# Where the best alpha is looked for before it is refined.
_GRID: Final = 2001


@dataclass(frozen=True)
class LossCurve:
    r"""What a model loses at alpha: :math:`c_4 e^{-c_5\alpha} + c_6`.

    Attributes
    ----------
    height, rate, floor
        c4, c5 and c6.
    """

    height: float
    rate: float
    floor: float

    def __call__(self, alpha: ArrayLike) -> Array:
        """The loss at alpha."""
        return self.height * np.exp(-self.rate * np.asarray(alpha)) + self.floor


@dataclass(frozen=True)
class PrivacyUtility:
    r"""What privacy is worth: :math:`\omega_1 \ln(\omega_2/(\omega_3\alpha + \omega_4\alpha^2))`.

    Attributes
    ----------
    weight
        omega_1: what it is worth, in units of the loss, to divide alpha by e.
    scale
        omega_2: sets where the worth is 0, which does not move the best alpha.
    linear, quadratic
        omega_3 and omega_4: around their ratio the worth turns from falling with ln(alpha) to
        falling with 2 ln(alpha).
    """

    weight: float = 0.02
    scale: float = 6.0
    linear: float = 9.0
    quadratic: float = 1.0

    def __call__(self, alpha: ArrayLike) -> Array:
        """The worth of alpha; it grows without bound as alpha goes to 0."""
        given = np.asarray(alpha, dtype=np.float64)
        spent = self.linear * given + self.quadratic * given**2
        return np.asarray(self.weight * np.log(self.scale / spent))


class Design(NamedTuple):
    """The alpha that is chosen, what it is worth, and whether it lies inside of the range."""

    alpha: float
    value: float
    inside: bool


def design_alpha(
    loss: Callable[[Array], ArrayLike],
    utility: Callable[[Array], ArrayLike] | None = None,
    *,
    lowest: float,
    highest: float,
) -> Design:
    r"""Choose the alpha that maximises what privacy is worth minus what the model loses.

    .. math:: \alpha^* = \arg\max_{l \le \alpha \le h}\; U(\alpha) - L(\alpha)

    Parameters
    ----------
    loss
        L as a function of an array of alphas: a :class:`LossCurve`, or any other.
    utility
        U likewise; the default has the paper's weights.
    lowest, highest
        The range, l and h. A lower end is needed: U of the paper has no maximum without one.

    Returns
    -------
    Design
        Not ``inside`` means that an end of the range was chosen: the range decides, not the costs.

    Examples
    --------
    >>> chosen = design_alpha(LossCurve(0.2, 25.0, 0.4), lowest=0.01, highest=0.5)
    >>> round(chosen.alpha, 3), chosen.inside
    (0.142, True)
    """
    low, high = positive_number("lowest", lowest), positive_number("highest", highest)
    if not low < high:
        raise ParameterError(f"lowest must be below highest; got {lowest!r} and {highest!r}.")
    worth = utility or PrivacyUtility()

    def value(alphas: Array) -> Array:
        return np.asarray(worth(alphas), dtype=np.float64) - np.asarray(loss(alphas))

    alphas = np.geomspace(low, high, _GRID)
    values = value(alphas)
    if not np.isfinite(values).all():
        raise ParameterError(
            "loss and utility must be finite over the whole range; got "
            f"{values[~np.isfinite(values)][0]!r}. Raise lowest, or look at the functions."
        )
    best = int(values.argmax())
    if best in (0, _GRID - 1):
        return Design(float(alphas[best]), float(values[best]), inside=False)
    found = minimize_scalar(
        lambda alpha: -float(value(np.array([alpha]))[0]),
        bounds=(alphas[best - 1], alphas[best + 1]),
        method="bounded",
        options={"xatol": 1e-9 * low},
    )
    return Design(float(found.x), -float(found.fun), inside=True)


def fit_loss(alphas: Sequence[float], losses: ArrayLike) -> LossCurve:
    """Fit a :class:`LossCurve` to one mean loss per alpha by least squares; c4 and c6 are >= 0."""
    (curve,) = fit_losses(alphas, np.atleast_2d(np.asarray(losses, dtype=np.float64)))
    return curve


def fit_losses(alphas: Sequence[float], losses: Array) -> list[LossCurve]:
    """Fit a :class:`LossCurve` to each row of losses ``(fits, alphas)``."""
    places = np.asarray(alphas, dtype=np.float64)
    if losses.shape[1] != len(places) or len(set(alphas)) < 3:
        raise ParameterError(
            "losses must have a column for each of at least three different alphas; got "
            f"{losses.shape[1]} columns and the alphas {tuple(alphas)}."
        )
    shapes = np.exp(-np.outer(_RATES, places))
    means = losses.mean(axis=1)
    centred = shapes - shapes.mean(axis=1, keepdims=True)
    spread = np.maximum(np.square(centred).sum(axis=1), 1e-300)
    heights = np.maximum(losses @ centred.T / spread, 0.0)
    floors = means[:, None] - heights * shapes.mean(axis=1)
    # A floor below 0 is none: then the height alone is fitted.
    below = floors < 0
    alone = losses @ shapes.T / np.maximum(np.square(shapes).sum(axis=1), 1e-300)
    heights, floors = np.where(below, alone, heights), np.where(below, 0.0, floors)
    # ||y - h s - f||^2, expanded so that no array has fits x rates x alphas numbers.
    totals = losses.sum(axis=1)[:, None]
    errors = (
        np.square(losses).sum(axis=1)[:, None]
        + heights**2 * np.square(shapes).sum(axis=1)
        + len(places) * floors**2
        - 2 * heights * (losses @ shapes.T)
        - 2 * floors * totals
        + 2 * heights * floors * shapes.sum(axis=1)
    )
    best = errors.argmin(axis=1)
    rows = np.arange(len(losses))
    constants = zip(heights[rows, best], _RATES[best], floors[rows, best], strict=True)
    return [LossCurve(*map(float, each)) for each in constants]
