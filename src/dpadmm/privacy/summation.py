r"""Sums of which nothing but the sum is seen: whole multiples of a public step, exact in any order.

.. math:: m_i = \mathrm{step}\cdot k_i,\quad k_i\in\mathbb Z,\qquad
          N\max_i|m_i| \le \mathrm{bound} < 2^{52}\,\mathrm{step},\quad \mathrm{step} = 2^{-k}

A double holds every multiple of a power of two below :math:`2^{53}` of them, hence each summand
and every partial sum of them: sums of doubles are then sums of integers, exact to the last bit in
whatever order they are added. On a wire the integers travel as words modulo :math:`2^{64}`, to
which masks can be added that cancel in the sum; what comes back has the same bits.

What the step costs: rounding moves each of d numbers by at most half a step, two neighbouring
vectors apart by at most :math:`\mathrm{step}\sqrt d`, which is part of a summand's sensitivity.
What it must not cost: the noise of a summand has a standard deviation of at least :math:`2^{24}`
steps, so that sums of discrete Gaussians are as good as one
(:class:`~dpadmm.privacy.events.SharedGaussian`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from dpadmm.errors import ExchangeError, ParameterError
from dpadmm.plain import Array, Words

__all__ = ["LEAST_STEPS", "NOISE_REACH", "Summation", "finest_step", "least_steps"]

#: The standard deviation of a summand's noise is at least so many steps.
LEAST_STEPS: Final = 2.0**24
#: No noise goes further than so many standard deviations; that it does has a chance of exp(-1800).
NOISE_REACH: Final = 60.0
# What the difference between discrete and rounded noise may cost, but for a chance of 2 exp(-v).
_LOSS: Final = 1e-11
_CHANCE: Final = 100.0
# Sums stay below so many steps.
_MOST_STEPS: Final = 2.0**52


def finest_step(bound: float) -> float:
    """The smallest power of two of which sums up to ``bound`` are fewer than 2^52 multiples."""
    return math.ldexp(1.0, math.frexp(bound)[1] - 52)


def least_steps(numbers: float) -> float:
    r"""The standard deviation of a share, in steps, for so many numbers, all rounds together.

    .. math:: s \ge 2^{24},\qquad \frac{2\sqrt{Mv} + 2v}{24 s^2} \le 10^{-11},\quad v = 100

    What :class:`~dpadmm.privacy.events.SharedGaussian` needs of M numbers; up to :math:`10^7` of
    them the first decides.
    """
    spread = 2 * math.sqrt(_CHANCE * numbers) + 2 * _CHANCE
    return max(LEAST_STEPS, math.sqrt(spread / (24 * _LOSS)))


@dataclass(frozen=True)
class Summation:
    """How the parties' summands become one sum; public, and the same at every party.

    Attributes
    ----------
    step
        A power of two; every summand is a multiple of it.
    parties, colluders
        N, and tau: how many of them may work together with who sees the sum.
    bound
        No sum of honest summands is larger in any entry.
    """

    step: float
    parties: int
    colluders: int
    bound: float

    def __post_init__(self) -> None:
        if math.frexp(self.step)[0] != 0.5:
            raise ParameterError(f"step must be a power of two; got {self.step!r}.")
        if not 0 < self.bound < _MOST_STEPS * self.step:
            raise ParameterError(
                f"bound must be positive and below 2^52 steps of {self.step:g}; got {self.bound!r}."
            )

    def to_words(self, values: Array) -> Words:
        """Each value as its number of steps, in two's complement modulo 2^64.

        A summand beyond the bound, which noise makes of an honest one with a chance of exp(-1800),
        is sent all the same: a refusal would tell of it, a sum beyond the bound tells nothing more.
        """
        steps = values / self.step
        if not (steps == np.rint(steps)).all():
            raise ParameterError(f"a summand must hold multiples of {self.step:g} only.")
        return steps.astype(np.int64).view(np.uint64)

    def from_words(self, words: Words) -> Array:
        """The sum that words modulo 2^64 stand for, or a refusal of one that cannot be."""
        values: Array = words.view(np.int64).astype(np.float64) * self.step
        largest = float(np.abs(values).max(initial=0.0))
        if not largest <= self.bound:
            raise ExchangeError(
                f"a sum must be at most {self.bound:g} in every entry; got {largest:g}. Somebody "
                "sent a wrong summand, or not everybody saw the same; no further round is charged."
            )
        return values
