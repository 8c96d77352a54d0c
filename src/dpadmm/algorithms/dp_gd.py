r"""dp-gd: private gradient rounds with momentum, with noise of each party's own or shared by all.

Gradient descent with Gaussian noise (R. Bassily, A. Smith, A. Thakurta, "Private empirical risk
minimization", FOCS 2014) and a heavy ball (B. Polyak, 1964), around a server or on any connected
graph, where sums travel along a tree; with noise shared as in P. Kairouz, Z. Liu, T. Steinke, "The
distributed discrete Gaussian mechanism for federated learning with secure aggregation", ICML
2021.

.. math::
    m_i &= \tfrac{c_i}{n_i}\textstyle\sum_k s_k u_k^\top + \xi_i\quad\text{(sent)},\qquad
    s_k = l'(z\,u_k)\,\min\bigl(1, L / \|l'(z\,u_k)\|\bigr)\\
    G &= \tfrac1N\textstyle\sum_i m_i + \tfrac{\lambda}{N} z,\qquad
    v \leftarrow \beta v + G,\qquad z \leftarrow z - s\,v

z and v are functions of the sums alone, and z is the model of every party. A row has one slope for
each of K outputs (one for two classes, else each class against the rest): a vector s of norm up to
:math:`L\sqrt K`, shortened to L. With one output nothing is shortened. Replacing one row moves a
summand, computed by sums with the error :math:`\gamma_i` (:mod:`dpadmm.problem.rows`), by at most

.. math:: \Delta_i = \frac{2Lc_i}{n_i} + 2\gamma_i c_i L + g\sqrt{dK},

all outputs together:

* A row adds the matrix :math:`s u^\top`, whose Frobenius norm is :math:`\|s\|\|u\| \le L`. It is a
  function of that row and of z alone, and z may be anywhere: this needs no objective of which the
  shortened slopes are the gradient.
* The error of a sum is at most :math:`\gamma_i\sum_k|s_{k,o}|\|u_k\|` in output o; by Minkowski's
  inequality at most :math:`\gamma_i\sum_k\|s_k\|\|u_k\| \le \gamma_i n_i L` in all.
* Rounding leaves a shortened vector longer than L by :math:`(K/2 + 4)u` of itself at most, 1e-14
  with 100 outputs; the allowance for samplers, 1e-9 of :math:`\Delta_i`, has room for it.

**Centring.** Where rows have a constant, the first message of a run can be the sum of the rows
themselves, :math:`\tfrac{c_i}{n_i}\sum_k u_k + \xi_i`, in the place of the first output (the others
carry noise alone). It says where the mean row is. All later rounds train on rows around it
(:mod:`dpadmm.problem.centring`): u' = f D u in the place of u, of norm at most 1, so that the proof
above holds with the error of sums over mapped rows,

.. math:: \Delta_{i,0} = \frac{2c_i}{n_i} + 2\gamma_ic_i + g\sqrt{dK},\qquad
          \Delta_i = \frac{2Lc_i}{n_i} + 2\gamma'_ic_iL + g\sqrt{dK},\qquad
          \gamma' = (\gamma + 8u)\,\|D\|/10^{-3}

The map is a function of the sum, hence public from then on, and adaptive composition gives
:math:`\mu^2 = \mu_0^2 + \sum_t\mu_t^2` with :math:`\mu_0^2 = 0.05\,\mu^2`. The model is mapped back
into the columns as they were, :math:`w = D^\top z`, which is linear: decisions are the same.
Whether a run centres follows from public facts (``center = "auto"``): with s the noise of a
coordinate of the mean row if it had a tenth of the budget, :math:`s\sqrt d < 1` with two classes;
with more, :math:`s\sqrt d < 0.5` and a budget of 0.15-GDP at least; 10 rounds at least; and three
columns beside the constant at least. With two, rows of norm 1 lie close to a circle, and how far a
row is from the mean is lost: on five splits of banana's training rows (two columns) centring costs
3 to 4 points at epsilon 1, on titanic's (three), pima's and german's -0.2 to +0.7.

**Noise.** ``noise="own"``: :math:`\xi_i\sim N(0, (\Delta_i/\mu_{i,t})^2 I)` and g = 0, and
everything sent is seen. ``noise="shared"``: only the sum is seen, and each party adds
:math:`N_{g\mathbb Z}(0, \sigma^2/(N-\tau))` in steps of g, with
:math:`\sigma=\max_i\Delta_i/\mu_{i,t}` against the server and :math:`\tau` = ``colluders``
parties together. With T rounds :math:`\mu_{i,t} = \mu_i/\sqrt T`, less what centring takes.

**Error bars.** Rows pull weights back, and can take out all but a twentieth of the noise in them,
the more so where rows are centred. How much is read off what the run released
(:meth:`DPGD.noise_error`); nothing is charged. With a curvature h of the objective,
:math:`G_t = h z_t + \xi_t`, the model is linear in the noise,

.. math::
    z_t = \sum_{m<t} r_{t-m}(h)\,\xi_m,\qquad
    \hat q = \frac{\sum_t \tilde z_t\cdot\tilde G_t}{\sum_t \tilde z_t\cdot\tilde z_t}.

:math:`\hat q` regresses gradients on the models they were taken at, in the last half of the rounds
(~: less its mean). It is not h, since a model remembers the noise before it; the h that is taken is
that whose noise alone has the released :math:`\hat q`, as a quotient of expectations. Curvatures of
one problem differ: they are taken to be spread evenly, in logarithms, over a
factor of ten around h. A model that still moves to where it
settles looks like rows that pull little: then the figure is too large, at most that without rows.

The step is a public rule: as long as is stable, or such that noise alone does not carry z further
than about 10,

.. math:: s = \min\Bigl(\frac{1.9\,(1+\beta)}{c_1 + \lambda/N},\;\frac{10\,(1-\beta)}{a\,T}\Bigr),
          \qquad a = \sqrt{d/T}\;\mathrm{sd}(G)

with sd(G) the noise of one coordinate of G.

The 10 and T = 100 were chosen on the training rows of eleven public data sets: 60% of all rows to
train, 20% to judge by, the last 20% never looked at; three splits, ten seeds of noise each, 3 to 20
parties, epsilon from 0.1 to 3, huber-hinge, own noise. With 15 accuracy is half a point lower; 50
rounds are as good on small sets, and on Adult 0.1 to 0.2 points worse.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Literal, NamedTuple, Self, final

import numpy as np
from pydantic import Field, PositiveFloat

from dpadmm.algorithms.base import Budget, Options, Settings
from dpadmm.algorithms.summed_gaussian import (
    SummedGaussian,
    default_colluders,
    shared_noise,
    summation_for,
)
from dpadmm.errors import ParameterError
from dpadmm.plain import Array
from dpadmm.privacy.events import Event
from dpadmm.privacy.gaussian import gaussian_mu
from dpadmm.privacy.mechanisms import Released
from dpadmm.privacy.noise import SAMPLER_ALLOWANCE, NoiseSource
from dpadmm.privacy.sensitivity import Summation, gradient_sensitivity
from dpadmm.problem.centring import (
    centring_map,
    largest_stretch,
    mapped,
    mapped_back,
    mapped_sum_error,
    no_map,
)
from dpadmm.problem.rows import summation_error
from dpadmm.problem.site import Site
from dpadmm.solvers.workspace import Workspace

# How far noise alone may carry the model in a run; chosen as the beginning of this file says.
_NOISE_TRAVEL: Final = 10.0
# Centring: its share of the squared mu, and the public rule that says whether it pays (the share
# that its noise is taken at, the largest noise for one output and for several, the smallest mu for
# several, and the fewest rounds).
_CENTRING_SHARE: Final = 0.05
_GATE_SHARE: Final = 0.1
_MOST_NOISE: Final = 1.0
_MOST_NOISE_OF_SEVERAL: Final = 0.5
_LEAST_MU_OF_SEVERAL: Final = 0.15
_FEWEST_ROUNDS: Final = 10
# Rows of fewer features, the constant counted, lie on a circle once they are scaled to norm 1.
_FEWEST_FEATURES: Final = 4
# The part of the longest stable step that is taken.
_STABLE: Final = 0.95
# The largest curvature of a problem over its smallest, and how many between stand for all.
_SPREAD: Final = 10.0
_BETWEEN: Final = 7
# Curvatures that are tried, from nothing to the largest.
_TRIED: Final = 60
# Fewer models of a course do not tell how rows pull weights back.
_FEWEST_MODELS: Final = 12
# Messages within their bound lead no further in a thousand rounds.
_LARGEST: Final = 1e11


class DPGDOptions(Options):
    """Options of ``dp-gd``."""

    noise: Literal["own", "shared"] = Field(
        "own",
        description="own: every party's noise is enough by itself; shared: only the sum of all "
        "parties is seen, and their noise together is enough against the colluders",
    )
    colluders: int | None = Field(
        None,
        ge=1,
        description="tau, with shared noise: how many parties may work together with who sees the "
        "sum; all but an honest majority by default",
    )
    momentum: float = Field(0.9, ge=0, lt=1, description="beta: how much of the last step is kept")
    step: PositiveFloat | Literal["auto"] = Field(
        "auto", description="the step size; auto chooses it from public facts"
    )
    center: Literal["auto", "on", "off"] = Field(
        "auto",
        description="whether a first round releases the mean row, and the others train on rows "
        "around it; auto decides from public facts",
    )


class DPGDState(NamedTuple):
    """A function of the sums alone, the same at every party.

    Attributes
    ----------
    model
        z.
    velocity
        v.
    shift
        The map of rows, ``(nodes, runs, 1, features)``: g, and t in the place of the constant.
    """

    model: Array
    velocity: Array
    shift: Array


@final
@dataclass(frozen=True)
class DPGD(SummedGaussian):
    """Noisy gradients of all parties, summed up.

    Parameters
    ----------
    momentum, step
        beta and s.
    sensitivity
        Per party: how far one row moves its summand, all outputs together.
    sigma
        Per party: the noise that its guarantee counts on, its own or all that is shared.
    shared
        How summands are added up; None with own noise.
    first_sensitivity, first_sigma
        Sensitivity and noise of the first round where it releases the sum of the rows; None where
        rows are taken as they are.
    mean_row_noise
        s, the noise of one coordinate of the mean row; 0 without.
    """

    name: ClassVar[str] = "dp-gd"
    paper: ClassVar[str] = "Bassily, Smith, Thakurta, 2014; Kairouz, Liu, Steinke, 2021"
    default_rounds: ClassVar[int] = 100
    hears_everybody: ClassVar[bool] = True
    private: ClassVar[bool] = True
    uses_penalty: ClassVar[bool] = False
    claims_epsilon: ClassVar[bool] = False
    options: ClassVar[type[Options]] = DPGDOptions

    momentum: float
    step: float
    sensitivity: Array
    sigma: Array
    shared: Summation | None = None
    first_sensitivity: Array | None = None
    first_sigma: Array | None = None
    mean_row_noise: float = 0.0

    @classmethod
    def configure(cls, site: Site, settings: Settings) -> Self:
        """Calibrate the noise to the budgets, and the step to the noise."""
        options, budget = cls.options_and_budget(settings)
        if options.noise == "own" and options.colluders is not None:
            raise ParameterError(
                "colluders must be left out with noise = 'own', which counts "
                f"on nobody else; got {options.colluders!r}."
            )
        if _centres(site, settings, options, budget):
            return cls._centred(site, settings, options, budget)
        # Noise in units of the sensitivity: 1 / mu_t.
        relative = budget.sigma(1.0, np.ones(settings.rounds))
        shared, ((sensitivity, sigma),) = _noise_of(
            site, settings, options, (_sensitivity(site),), (relative,)
        )
        step = _step(site, settings.rounds, options, _mean_noise(sigma, shared))
        return cls(options.momentum, step, sensitivity, sigma, shared)

    @classmethod
    def _centred(cls, site: Site, settings: Settings, options: DPGDOptions, budget: Budget) -> Self:
        """The same with a first round that has its share of the budget."""
        assert site.least_constant is not None
        later = settings.rounds - 1
        # The variance of a later round over that of the first, at the same sensitivity.
        ratio = _CENTRING_SHARE * later / (1 - _CENTRING_SHARE)
        first = budget.sigma(1.0, np.array([1.0] + [ratio] * later))
        relative = (first, first * math.sqrt(ratio))
        exact = _row_sensitivity(site)
        # The map, and how it stretches errors, follows from the noise of the first round, to which
        # the grid adds little: twice that noise is more than there can be.
        bound = largest_stretch(
            site.features, 2 * float((exact * first).max()), site.least_constant
        )
        found = _sensitivity(site, bound)
        shared, (rows, gradients) = _noise_of(site, settings, options, (exact, found), relative)
        spread = _mean_noise(rows[1], shared)
        step = _step(site, later, options, _mean_noise(gradients[1], shared))
        return cls(options.momentum, step, *gradients, shared, *rows, spread)

    def of_party(self, place: int, site: Site, settings: Settings) -> Self:
        """The same at one party: step and shared noise are those of all parties together."""
        here = slice(place, place + 1)
        own = replace(self, sensitivity=self.sensitivity[here], sigma=self.sigma[here])
        if self.first_sensitivity is None or self.first_sigma is None:
            return own
        return replace(
            own, first_sensitivity=self.first_sensitivity[here], first_sigma=self.first_sigma[here]
        )

    @property
    def centres(self) -> bool:
        """Whether the first round releases the sum of the rows."""
        return self.first_sigma is not None

    @property
    def idle_fields(self) -> frozenset[str]:
        """What only rows that are centred need, where they are not."""
        if self.centres:
            return frozenset()
        return super().idle_fields | {"first_sensitivity", "first_sigma", "mean_row_noise"}

    @property
    def decided_options(self) -> dict[str, Any]:
        """Whether rows are centred: the map, or that there is none, stays after a loss."""
        return {"center": "on" if self.centres else "off"}

    def round_cost(self, t: int) -> float:
        """The share of centring, in gradients."""
        sensitivity, sigma = self.level(t)
        return float(((sensitivity / sigma) ** 2 / (self.sensitivity / self.sigma) ** 2).max())

    def level(self, t: int) -> tuple[Array, Array]:
        """Sensitivity and noise of round ``t``, per party."""
        if t == 0 and self.first_sensitivity is not None and self.first_sigma is not None:
            return self.first_sensitivity, self.first_sigma
        return self.sensitivity, self.sigma

    @property
    def mean_noise(self) -> float:
        """sd(G), the noise of one coordinate of the mean of all parties, configured for all."""
        return _mean_noise(self.sigma, self.shared)

    def init(self, site: Site) -> DPGDState:
        """Start from zero, with rows as they are."""
        zero = np.zeros(site.shape)
        nodes, runs, _, features = site.shape
        return DPGDState(zero, zero, no_map((nodes, runs, 1, features)))

    def announce(self, state: DPGDState, site: Site, t: int) -> tuple[Event, ...]:
        """Charge a sum; refuse a model at which its slopes might not be numbers."""
        _check_size(state)
        return self.noise_events(t)

    def local_step(
        self, state: DPGDState, workspace: Workspace, site: Site, noise: NoiseSource, t: int
    ) -> Released:
        """Send the gradient of the rows at z, with noise, or first their sum: one pass."""
        # Nothing is solved for: the sensitivity has the error of the sums in it.
        bound = site.loss.slope_bound
        if not self.centres:
            summand = workspace.gradient(state.model, clip=bound)
        elif t == 0:
            summand = np.zeros(site.shape)
            summand[:, :, 0] = workspace.mean_rows()[:, None]
        else:
            model = mapped_back(state.model, state.shift)
            found = workspace.gradient(model, clip=bound, shift=state.shift)
            summand = mapped(found, state.shift)
        return self.release(summand, site, noise, t)

    def absorb(
        self, state: DPGDState, message: Array, inbox: Array, site: Site, t: int
    ) -> DPGDState:
        """Take a step along the mean gradient of all parties; or learn the map of rows."""
        mean = (inbox if self.hears_mean(site) else _everybody(message, inbox, site)).mean(axis=0)
        if self.centres and t == 0:
            assert site.least_constant is not None
            shift = centring_map(mean[:, :1], self.mean_row_noise, site.least_constant)
            return state._replace(shift=np.broadcast_to(shift, state.shift.shape).copy())
        gradient = mean + site.regularization / site.parties * state.model
        velocity = self.momentum * state.velocity + gradient
        return DPGDState(state.model - self.step * velocity, velocity, state.shift)

    def output(self, state: DPGDState, message: Array, site: Site) -> Array:
        """The model of every party: z in the columns as they were."""
        return mapped_back(state.model, state.shift) if self.centres else state.model

    def noise_error(
        self, site: Site, rounds: int, course: Array | None, count: int
    ) -> float | None:
        """The standard error that noise gives each weight of a mean of the last models.

        Without enough of a course the rows are taken to pull nothing back; None where they are
        centred.

        Parameters
        ----------
        site, rounds
            Of the run.
        course
            The models of its last half, ``(models, runs, outputs, features)``, with the two before.
        count
            Of how many models it is the mean.
        """
        beta, step, moving = self.momentum, self.step, rounds - self.centres
        pull = site.regularization / site.parties
        if course is None or len(course) < _FEWEST_MODELS:
            sums, _ = _in_window(_answers(np.array([pull]), beta, step, moving), moving - count)
            alone = self.mean_noise * math.sqrt(float((sums**2).sum())) / count
            return None if self.centres else alone
        velocity = (course[:-1] - course[1:]) / step
        models = course[1:-1] - course[1:-1].mean(axis=0)
        gradients = velocity[1:] - beta * velocity[:-1]
        gradients = gradients - gradients.mean(axis=0)
        # Where rows are centred, the weight of the constant has noise of its own size.
        alike = slice(None, -1 if self.centres else None)
        square = float((models[..., alike] ** 2).sum())
        slope = float((models * gradients)[..., alike].sum()) / square if square else 0.0
        left = np.mean((gradients - slope * models) ** 2, axis=(0, 1, 2))
        larger = float(left.mean() / left[alike].mean()) if square else 1.0
        most = site.loss.curvature_bound + pull
        tried = np.concatenate([[0.0], np.geomspace(1e-5 * most, most, _TRIED)])
        around = np.geomspace(_SPREAD**-0.5, _SPREAD**0.5, _BETWEEN)
        curvature = np.minimum(tried[:, None] * around, most)
        answers = _answers(curvature, beta, step, moving)
        sums, _ = _in_window(answers, moving - count)
        variance = (sums**2).sum(axis=0).mean(axis=1) / count**2
        before = np.concatenate([np.zeros_like(answers[:1]), answers[:-1]])
        first = moving - len(models)
        sums, squares = _in_window(before, first)
        spread = (squares - sums**2 / len(models)).sum(axis=0)
        # A model has none of the noise of its own gradient, but its mean over time has.
        common = curvature * spread - sums[first:].sum(axis=0) / len(models)
        expected = np.maximum.accumulate(common.mean(axis=1) / spread.mean(axis=1))
        found = np.interp(slope, expected, variance)
        return self.mean_noise * math.sqrt(found * larger)

    def statement_details(self, site: Site, deltas: Array) -> tuple[tuple[str, str], ...]:
        """What of the budget centres the rows."""
        if not self.centres:
            return ()
        words = (
            f"{_CENTRING_SHARE:.0%} of the budget centres the rows: the first message releases "
            "their mean, and the others train on rows around it"
        )
        return (("Centring", words),)


def _answers(curvature: Array, beta: float, step: float, rounds: int) -> Array:
    """``r``: the models after so many rounds, of noise of size one in the first."""
    found = np.zeros((rounds, *curvature.shape))
    model, velocity = np.zeros(curvature.shape), np.ones(curvature.shape)
    for t in range(rounds):
        model = model - step * velocity
        found[t] = model
        velocity = beta * velocity + curvature * model
    return found


def _in_window(answers: Array, first: int) -> tuple[Array, Array]:
    """Sums over the rounds from ``first`` of what each round's noise does, and of its square."""
    last = np.arange(len(answers), 0, -1)
    begin = np.maximum(first - np.arange(len(answers)), 0)

    def added(values: Array) -> Array:
        total = np.concatenate([np.zeros_like(values[:1]), values.cumsum(axis=0)])
        return np.asarray(total[last] - total[begin])

    return added(answers), added(answers**2)


def _check_size(state: DPGDState) -> None:
    """Refuse a state that honest messages never reach: margins stay far from overflow."""
    largest = np.max([np.abs(part).max() for part in state])  # NaN, if there is one
    if not largest <= _LARGEST:
        raise ParameterError(
            f"messages must lead to a model of at most {_LARGEST:g} in every entry; it is "
            f"{largest:g}. A party is faulty."
        )


def _everybody(message: Array, inbox: Array, site: Site) -> Array:
    """The messages of all parties in their order: every party adds up in the same one."""
    if len(inbox) == site.parties:
        return inbox
    return np.insert(inbox, int(site.index[0]), message[0], axis=0)


def _sensitivity(site: Site, stretch: float | None = None) -> Array:
    """Delta_i without a grid; the allowance covers norms and slopes that are off by rounding.

    With ``stretch``, a bound on the norm of D, that of mapped rows.
    """
    slope = site.loss.slope_bound
    exact = (1 + SAMPLER_ALLOWANCE) * gradient_sensitivity(
        site.rows, weight=site.weight, slope=slope
    )
    error = summation_error(site.rows, site.features)
    if stretch is not None:
        error = mapped_sum_error(site.rows, site.features, stretch)
    summing = 2 * error * site.weight * slope
    total: Array = exact + summing
    return total


def _row_sensitivity(site: Site) -> Array:
    """Delta_{i,0} without a grid: of a sum of rows, as if every slope were 1."""
    exact = (1 + SAMPLER_ALLOWANCE) * gradient_sensitivity(site.rows, weight=site.weight)
    found: Array = exact + 2 * summation_error(site.rows, site.features) * site.weight
    return found


def _noise_of(
    site: Site,
    settings: Settings,
    options: DPGDOptions,
    exact: tuple[Array, ...],
    relative: tuple[Array, ...],
) -> tuple[Summation | None, list[tuple[Array, Array]]]:
    """How summands are added up, and sensitivity and noise of each kind of round, per party.

    Parameters
    ----------
    site, settings, options
        Public facts.
    exact, relative
        Of each kind of round: the sensitivity without a grid, and noise in units of it.
    """
    kinds = list(zip(exact, relative, strict=True))
    if options.noise == "own":
        return None, [(each, each * times) for each, times in kinds]
    largest = float(site.weight.max()) * max(1.0, site.loss.slope_bound)
    noise = max(float((each * times).max()) for each, times in kinds)
    shared = summation_for(site.parties, options.colluders, largest, noise)
    numbers = site.features * site.outputs
    return shared, [shared_noise(shared, *kind, numbers, settings.rounds) for kind in kinds]


def _centres(site: Site, settings: Settings, options: DPGDOptions, budget: Budget) -> bool:
    """Whether a run centres its rows: as it is told, or by the rule; or a refusal."""
    if options.center == "off":
        return False
    asked = options.center == "on"
    if site.least_constant is None or settings.rounds < 2 or site.features < 2:
        if asked:
            why = (
                "rounds must be at least 2" if site.least_constant else "rows must have a constant"
            )
            raise ParameterError(
                f"{why} with algorithm_options['center'] = 'on', which takes the mean row times "
                "the constant of a row from it. Use 'off' or 'auto', or add one (fit_intercept, or "
                "constant = true in a schema)."
            )
        return False
    if asked or settings.rounds < _FEWEST_ROUNDS or site.features < _FEWEST_FEATURES:
        return asked
    mu = gaussian_mu(budget.epsilon, budget.ideal_delta) / budget.rows_per_person
    level = 2 * site.weight / site.rows / (mu * math.sqrt(_GATE_SHARE))
    if options.noise == "shared" and site.parties > 2:
        tau = options.colluders or default_colluders(site.parties)
        honest = max(1, site.parties - tau)
        spread = float(level.max()) / math.sqrt(honest * site.parties)
    else:
        spread = math.sqrt(float(np.mean(level**2)) / site.parties)
    size = spread * math.sqrt(site.features)
    if site.outputs == 1:
        return size < _MOST_NOISE
    return size < _MOST_NOISE_OF_SEVERAL and float(np.min(mu)) >= _LEAST_MU_OF_SEVERAL


def _mean_noise(sigma: Array, shared: Summation | None) -> float:
    """sd(G): of noise that each of the parties adds by itself, or their shares together."""
    if shared is None:
        return math.sqrt(float(np.mean(sigma**2)) / len(sigma))
    return float(sigma[0]) / math.sqrt((shared.parties - shared.colluders) * shared.parties)


def _step(site: Site, rounds: int, options: DPGDOptions, spread: float) -> float:
    """The step asked for, if it is stable, or that of the rule; ``spread`` is sd(G)."""
    smooth = site.loss.curvature_bound + site.regularization / site.parties
    longest = 2 * (1 + options.momentum) / smooth
    if options.step != "auto":
        if not options.step < longest:
            raise ParameterError(
                f"algorithm_options['step'] must be below 2 (1 + momentum) / (c1 + lambda / N) = "
                f"{longest:.6g}, or the rounds diverge; got {options.step!r}."
            )
        return options.step
    noise = math.sqrt(site.features / rounds) * spread
    return min(_STABLE * longest, _NOISE_TRAVEL * (1 - options.momentum) / (noise * rounds))
