r"""The histogram as a round that parties are charged for: sums of counts and Gaussian noise.

.. math:: m_i = 2^{-k}\,h_i + \xi_i,\qquad
          H = 2^k \sum_i m_i,\qquad \Delta = 2^{-k}\,\Delta_{\text{grid}}

:math:`h_i` are the counts of party i's rows by true class and score under the released model
(:class:`~dpadmm.evaluation.histogram.ScoreGrid`). Each row is in exactly one cell of each table,
so replacing a row moves the counts by :math:`\Delta_{\text{grid}}` at most. :math:`2^k` is the next
power of two above the number of all rows: messages stay small, and scaling is exact.

``noise="own"``: :math:`\xi_i\sim N(0, (\Delta/\mu_i)^2 I)`, and everything sent is seen.
``noise="shared"``: only the sum is seen, and each party adds
:math:`N_{g\mathbb Z}(0, \sigma^2/(N-\tau))` in steps of g, with :math:`\Delta` larger by
:math:`g\sqrt{\text{cells}}` and :math:`\sigma=\max_i\Delta/\mu_i`, as in
:mod:`dpadmm.algorithms.dp_gd`. The noise of H is known in both cases:

.. math:: v = 4^k \sum_i (\Delta/\mu_i)^2 \qquad\text{or}\qquad v = 4^k\,\frac{N}{N-\tau}\,\sigma^2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, NamedTuple, Self, final

import numpy as np
from pydantic import Field

from dpadmm.algorithms import HISTOGRAM
from dpadmm.algorithms.base import Options, Settings
from dpadmm.algorithms.summed_gaussian import SummedGaussian, shared_noise, summation_for
from dpadmm.evaluation.histogram import NoisyHistogram, ScoreGrid
from dpadmm.plain import Array
from dpadmm.privacy.events import Event
from dpadmm.privacy.mechanisms import Released
from dpadmm.privacy.noise import SAMPLER_ALLOWANCE, NoiseSource
from dpadmm.privacy.sensitivity import Summation
from dpadmm.problem.site import Site
from dpadmm.solvers.workspace import Workspace


class HistogramOptions(Options):
    """The public options of a histogram: what is counted, and whose noise it gets."""

    weights: tuple[tuple[float, ...], ...]
    classes: int = Field(ge=2)
    rows: int = Field(ge=1, description="of all parties together")
    noise: Literal["own", "shared"] = "own"
    colluders: int | None = Field(None, ge=1)


class HistogramState(NamedTuple):
    """The mean of all messages."""

    mean: Array


@final
@dataclass(frozen=True)
class HistogramRelease(SummedGaussian):
    """One round: the sum of all parties' counts with noise.

    Attributes
    ----------
    weights
        Of the released model, ``(outputs, features)``, for rows as they are laid out.
    grid
        The cells.
    scale, rows
        2^-k, and the number of all rows.
    sensitivity, sigma
        For each party, how far one row moves its message, and the noise that its guarantee relies
        on: its own, or all shared noise.
    variance
        The variance of the noise in the sum of all messages.
    shared
        How messages are added up; None with own noise.
    """

    name: ClassVar[str] = HISTOGRAM
    paper: ClassVar[str] = "counts and Gaussian noise"
    default_rounds: ClassVar[int] = 1
    hears_everybody: ClassVar[bool] = True
    private: ClassVar[bool] = True
    uses_penalty: ClassVar[bool] = False
    claims_epsilon: ClassVar[bool] = False
    options: ClassVar[type[Options]] = HistogramOptions

    weights: Array = field(repr=False)
    grid: ScoreGrid
    scale: float
    rows: int
    sensitivity: Array
    sigma: Array
    variance: float
    shared: Summation | None = None

    @classmethod
    def configure(cls, site: Site, settings: Settings) -> Self:
        """Calibrate the noise to the budgets."""
        options: HistogramOptions = cls.parse_options(settings.options)
        budget = settings.require_budget(cls.name)
        weights = np.array(options.weights)
        grid = ScoreGrid.of_model(weights, options.classes)
        scale = math.ldexp(1.0, -math.frexp(options.rows)[1])
        relative = budget.sigma(1.0)
        # The root in the grid's sensitivity is rounded.
        exact = np.full(
            len(site.index), scale * (1 + SAMPLER_ALLOWANCE) * grid.sensitivity, dtype=np.float64
        )
        shared, sensitivity, sigma = None, exact, exact * relative
        variance = float(np.sum(sigma**2))
        if options.noise == "shared":
            shared = summation_for(site.parties, options.colluders, 1.0, float(sigma.max()))
            sensitivity, sigma = shared_noise(shared, exact, relative, grid.cells)
            variance = float(sigma[0]) ** 2 * shared.parties / (shared.parties - shared.colluders)
        return cls(weights, grid, scale, options.rows, sensitivity, sigma, variance, shared)

    def of_party(self, place: int, site: Site, settings: Settings) -> Self:
        """The same at one party; grid, scale and shared noise are those of all parties."""
        here = slice(place, place + 1)
        return replace(self, sensitivity=self.sensitivity[here], sigma=self.sigma[here])

    def row_site(self, site: Site) -> Site:
        """Rows are as long as the model's weights; messages have a number for each cell."""
        outputs, features = self.weights.shape
        return replace(site, outputs=outputs, features=features)

    def init(self, site: Site) -> HistogramState:
        """Start with zero counts."""
        return HistogramState(np.zeros((1, *site.shape[1:])))

    def announce(self, state: HistogramState, site: Site, t: int) -> tuple[Event, ...]:
        """Charge the counts."""
        return self.noise_events()

    def local_step(
        self, state: HistogramState, workspace: Workspace, site: Site, noise: NoiseSource, t: int
    ) -> Released:
        """Count the rows in one pass, and send the counts with noise."""
        values = np.zeros(site.shape)
        for place, scores, codes in workspace.scores(self.weights):
            each = scores[:, 0] if self.grid.classes == 2 else scores
            # Whole numbers: adding up parts of the rows rounds nothing.
            values[place, 0, 0] += self.grid.counts(each, codes)
        values *= self.scale
        # There is no solve: counts are exact.
        return self.release(values, site, noise, t)

    def absorb(
        self, state: HistogramState, message: Array, inbox: Array, site: Site, t: int
    ) -> HistogramState:
        """Take the mean of all messages."""
        return HistogramState(inbox)

    def output(self, state: HistogramState, message: Array, site: Site) -> Array:
        """The mean of all messages, at every party."""
        return np.broadcast_to(state.mean, site.shape)

    def histogram(self, mean: Array, site: Site) -> NoisyHistogram:
        """The released histogram, from the mean of all messages."""
        counts = mean.reshape(self.grid.cells) * (site.parties / self.scale)
        return NoisyHistogram(self.grid, counts, self.variance / self.scale**2, self.rows)
