"""Parameters that depend on the round and on the party, and their input forms.

A *schedule* is a function of the round: noise variance ratios g_t = s_t^2 / s_1^2, or penalties.
Every function returns one value per round; the first ratio is 1. The privacy cost of a schedule
depends on the sum of 1/g_t alone.

A *course* is a number, a list with one number for each round, or a table with either for every
party: alpha_p(t) of DVP, alpha_i(k) and eta_i(k) of R-ADMM, alpha_i(t) and eta_i(t) of M-ADMM.

A *start* is the public y_i^0, which every neighbour knows: a number, a list with one for each
feature, or ``{"seed": 1, "spread": 0.5}`` for a separate normal vector for every party.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

import numpy as np
from pydantic import BeforeValidator

from dpadmm.errors import ParameterError, positive_number, unknown_name
from dpadmm.plain import Array
from dpadmm.problem.site import Site


def _check_rounds(rounds: int) -> None:
    if isinstance(rounds, bool) or not isinstance(rounds, int | np.integer) or rounds < 1:
        raise ValueError(f"rounds must be a positive integer; got {rounds!r}")


def _check_decay(decay: float, upper: float = 1.0) -> None:
    if not 0 < decay <= upper:
        raise ValueError(f"decay must be in (0, {upper:g}]; got {decay!r}")


def constant(rounds: int) -> Array:
    """g_t = 1."""
    _check_rounds(rounds)
    return np.ones(rounds)


def periodic(rounds: int, decay: float, period: int = 1) -> Array:
    """g_{k+1} = decay^floor(k / period) for k = 0, 1, ...: PR-ADMM's periodic schedule."""
    _check_rounds(rounds)
    _check_decay(decay)
    if period < 1:
        raise ValueError(f"period must be a positive integer; got {period!r}")
    return _all_positive(np.power(decay, np.floor(np.arange(rounds) / period)), decay)


def iteration(rounds: int, decay: float) -> Array:
    """g_{k+1} = 1 / (decay k (k + 1)) for k >= 1 and g_1 = 1: PR-ADMM's iteration schedule.

    The variance rises after the first round when decay < 1/2.
    """
    _check_rounds(rounds)
    _check_decay(decay, upper=np.inf)
    steps = np.arange(1, rounds)
    return np.concatenate([[1.0], 1.0 / (decay * steps * (steps + 1))])


def geometric(rounds: int, decay: float) -> Array:
    """g_t = decay^(t - 1): PDML's variances; the sum of 1/g_t grows exponentially in the rounds."""
    return periodic(rounds, decay, 1)


def penalty_growth(initial: float, growth: float, rounds: int) -> Array:
    """eta_t = initial growth^(t - 1), with growth >= 1."""
    _check_rounds(rounds)
    if not 0 < initial < np.inf:
        raise ValueError(f"initial must be a positive finite number; got {initial!r}")
    if not 1 <= growth < np.inf:
        raise ValueError(f"growth must be a finite number of at least 1; got {growth!r}")
    with np.errstate(over="ignore"):
        penalties: Array = initial * np.power(float(growth), np.arange(rounds))
    if not np.isfinite(penalties[-1]):
        raise ValueError(f"growth must keep the penalty finite for {rounds} rounds; got {growth!r}")
    return penalties


def _all_positive(ratios: Array, decay: float) -> Array:
    if ratios[-1] < np.finfo(np.float64).tiny:
        raise ValueError(
            f"decay must keep the noise above zero for {ratios.size} rounds; got {decay!r}"
        )
    return ratios


def inverse_variance_sum(ratios: Array) -> float:
    """sum_t 1 / g_t: the total squared mu in units of the first round."""
    return float(np.sum(1.0 / np.asarray(ratios, dtype=np.float64)))


def largest_share(ratios: Array) -> float:
    """max_t (1/g_t) / sum_t 1/g_t: the part of the budget that a single round takes."""
    inverse = 1.0 / np.asarray(ratios, dtype=np.float64)
    return float(inverse.max() / inverse.sum())


Numbers: TypeAlias = float | tuple[float, ...]
Course: TypeAlias = Numbers | dict[str, Numbers]

_WORDS = "a positive number, a list with one for each round, or a table of either for every party"


class OptimumWarning(UserWarning):
    """The run converges to another point than the optimum of the pooled objective."""


def as_course(parameter: str, value: Any) -> Course:
    """Return the value as plain data with positive finite numbers, or refuse."""
    if isinstance(value, Mapping) and value:
        return {
            str(name): _numbers(f"{parameter} of party {name}", each)
            for name, each in value.items()
        }
    return _numbers(parameter, value)


def _numbers(parameter: str, value: Any) -> Numbers:
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple) and value:
        return tuple(
            positive_number(f"number {place} of {parameter}", each)
            for place, each in enumerate(value, start=1)
        )
    try:
        return positive_number(parameter, value)
    except ParameterError:
        raise ParameterError(f"{parameter} must be {_WORDS}; got {value!r}.") from None


#: The type of an option that is a course; None leaves it to the algorithm.
CourseOption = Annotated[
    Any,
    BeforeValidator(
        lambda value, info: value if value is None else as_course(info.field_name, value)
    ),
]


def over_rounds(
    parameter: str, course: Course, site: Site, rounds: int, unit: str = "round"
) -> Array:
    """One number for each round and party, ``(rounds, parties)``; local parties come first.

    ``unit`` names what the parameter counts, if not rounds.
    """

    def column(numbers: Numbers, whose: str = "") -> Array:
        if isinstance(numbers, float):
            return np.full(rounds, numbers)
        if len(numbers) != rounds:
            raise ParameterError(
                f"{parameter}{whose} must have one number for each of the {rounds} {unit}s; "
                f"got {len(numbers)}."
            )
        return np.array(numbers)

    if not isinstance(course, dict):
        return np.repeat(column(course)[:, None], site.parties, axis=1)
    # A party alone does not know the other names; whoever made its plan has checked them.
    if len(site.names) == site.parties:
        for name in course:
            if name not in site.names:
                raise unknown_name(f"{parameter}'s parties", name, site.names)
    for name in site.names:
        if name not in course:
            raise ParameterError(
                f"{parameter} must have an entry for every party; {name} has none."
            )
    if len(course) != site.parties:
        raise ParameterError(
            f"{parameter} must have one entry for each of the {site.parties} parties; "
            f"got {len(course)}."
        )
    order = [*site.names, *(name for name in course if name not in site.names)]
    return np.stack([column(course[name], f" of party {name}") for name in order], axis=1)


def first_value(course: Course) -> float:
    """One number to show: that of the first round, averaged over parties."""
    if isinstance(course, dict):
        return float(np.mean([first_value(numbers) for numbers in course.values()]))
    return course if isinstance(course, float) else course[0]


def grown(
    course: Course,
    growth: float | Mapping[str, float],
    site: Site,
    rounds: int,
    unit: str = "round",
    *,
    chosen: bool,
) -> Array:
    """Penalties of each round and party, as listed, or growing from round to round.

    ``growth`` is one factor, or one of every party. ``chosen`` means that the user set it, which
    contradicts a list.
    """
    penalties = over_rounds("penalty", course, site, rounds, unit)
    factors = over_rounds("penalty_growth", _course_of(growth), site, 1)[0]
    every = course.values() if isinstance(course, dict) else [course]
    if all(isinstance(numbers, float) for numbers in every):
        steps = {factor: penalty_growth(1.0, factor, rounds) for factor in set(factors.tolist())}
        return penalties * np.stack([steps[factor] for factor in factors.tolist()], axis=1)
    if chosen and (factors != 1).any():
        raise ParameterError(
            f"penalty_growth must be left out if penalty lists every {unit}; got {growth}."
        )
    return penalties


def _course_of(growth: float | Mapping[str, float]) -> Course:
    return dict(growth) if isinstance(growth, Mapping) else float(growth)


def _as_growth(value: Any) -> Any:
    """Return a factor of at least 1, or one for every party, or refuse."""

    def factor(whose: str, given: Any) -> float:
        plain = isinstance(given, int | float) and not isinstance(given, bool)
        if not plain or not 1 <= given < np.inf:
            raise ParameterError(
                f"penalty_growth{whose} must be a finite number of at least 1; got {given!r}."
            )
        return float(given)

    if isinstance(value, Mapping) and value:
        return {str(name): factor(f" of party {name}", each) for name, each in value.items()}
    return factor("", value)


#: The type of an option that is a growth of the penalty: a factor, or one for every party.
GrowthOption = Annotated[Any, BeforeValidator(_as_growth)]


def check_common(name: str, penalties: Array, *, published: bool) -> None:
    r"""Refuse penalties that differ between parties; in a published calibration warn.

    With a dual step of :math:`\eta_i` the duals satisfy :math:`\sum_i\alpha_i/\eta_i = 0`, and a
    fixed point is the optimum of :math:`\sum_i f_i/\eta_i`.
    """
    if (penalties == penalties[:, :1]).all():
        return
    words = (
        f"the penalties of the parties differ: {name!r} then converges to the optimum of "
        "sum_i f_i / penalty_i, not to that of the pooled objective. Use one penalty for all "
        "parties, or 'm-admm', whose dual step is common."
    )
    if not published:
        raise ParameterError(f"{words} Only calibration='published' runs it, as the paper does.")
    warnings.warn(words, OptimumWarning, stacklevel=3)


def _as_start(value: Any) -> Any:
    """Return a number, a tuple of numbers, or seed and spread, or refuse."""
    numbers = value.tolist() if isinstance(value, np.ndarray) else value
    if isinstance(numbers, Mapping):
        if set(numbers) != {"seed", "spread"} or not isinstance(numbers["seed"], int):
            raise ParameterError(
                "start must have a whole number as seed and a positive number as spread where it "
                f"is a table; got {value!r}."
            )
        spread = positive_number("spread of start", numbers["spread"])
        return {"seed": abs(numbers["seed"]), "spread": spread}
    every = list(numbers) if isinstance(numbers, list | tuple) else [numbers]
    plain = all(isinstance(each, int | float) and not isinstance(each, bool) for each in every)
    if not every or not plain or not np.isfinite(np.array(every, dtype=np.float64)).all():
        raise ParameterError(
            "start must be a finite number, a list with one for each feature, or a table of seed "
            f"and spread; got {value!r}."
        )
    return tuple(map(float, every)) if isinstance(numbers, list | tuple) else float(numbers)


#: The type of the option ``start``.
StartOption = Annotated[Any, BeforeValidator(_as_start)]


def starts(start: Any, site: Site) -> float | Array:
    """y^0 of each party, or one y^0 to broadcast to all parties."""
    if isinstance(start, float):
        return start
    if isinstance(start, tuple):
        if len(start) != site.features:
            raise ParameterError(
                f"start must have one number for each of the {site.features} features, the "
                f"intercept included; got {len(start)}."
            )
        return np.array(start)
    drawn = [
        np.random.default_rng([start["seed"], party]).normal(size=site.features)
        for party in range(site.parties)
    ]
    return start["spread"] * np.array(drawn)
