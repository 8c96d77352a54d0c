"""Values that may leave a party, and the only functions that make them.

Nothing else can build a :class:`Released`. Sending a bare array is a type error, so what is sent is
exactly what a mechanism verified and charged. A mechanism checks those assumptions of its theorem
that public values can check. The others hold by design: rows are clipped when they are laid out
(:class:`~dpadmm.problem.rows.Shard`), and the solver meets its tolerance on every data set.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal, cast

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from dpadmm.errors import ConvergenceError, ParameterError
from dpadmm.plain import Array, Words
from dpadmm.privacy.calibration import GradientPerturbation, InnerNoise
from dpadmm.privacy.events import (
    NON_PRIVATE,
    Composed,
    Event,
    GaussianObjectivePerturbation,
    GaussianRelease,
    InexactSolve,
    LabelRandomizedResponse,
    PostProcessing,
    PureRelease,
    SharedGaussian,
)
from dpadmm.privacy.gaussian import sum_up
from dpadmm.privacy.noise import GRID, SAMPLER_ALLOWANCE, NoiseSource
from dpadmm.privacy.sensitivity import LEAST_STEPS, Summation, jacobian_epsilon

#: A solve may have this part of the residual that AMP is charged for; see
#: :func:`release_objective` for the rest.
SOLVED_TO: Final = 15 / 16

_MAKER: Final = object()


class Released:
    """A message of each party of a site, with the event that each party is charged.

    Only mechanisms make it. Its values are read-only.
    """

    __slots__ = ("_events", "_values")

    def __init__(self, maker: object, values: Array, events: tuple[Event, ...]) -> None:
        if maker is not _MAKER:
            raise TypeError("Released is made by the functions of dpadmm.privacy.mechanisms only.")
        if len(events) != len(values):
            raise ParameterError(
                f"a release must have one event per party ({len(values)}); got {len(events)}."
            )
        if not np.isfinite(values).all():
            raise ConvergenceError("a release must be finite; nothing was released.")
        self._values = values.copy()
        self._values.flags.writeable = False
        self._events = events

    @property
    def values(self) -> Array:
        """``(nodes, runs, outputs, features)``; uint64 if the message was masked."""
        return self._values

    @property
    def events(self) -> tuple[Event, ...]:
        """The event that each party was charged for it."""
        return self._events


def release_unprotected(values: Array) -> Released:
    """Send values without noise: no guarantee, charged as ``NonPrivate``."""
    return Released(_MAKER, values, (NON_PRIVATE,) * len(values))


def release_post_processed(values: Array) -> Released:
    """Send a function of earlier messages: charged as ``PostProcessing``, which costs nothing.

    The caller guarantees that ``values`` are computed from earlier messages (sent and heard) and
    public parameters alone: from no row, from no state of a solver, and from no noise that was
    drawn but not sent.
    """
    return Released(_MAKER, values, (PostProcessing(),) * len(values))


def release_again(values: Array, events: tuple[Event, ...]) -> Released:
    """Send messages from a ledger again: a repeated message costs nothing.

    Parameters
    ----------
    values
        The stored messages, one per party, bit for bit.
    events
        The events that were charged when they were made.
    """
    return Released(_MAKER, values, events)


def release_covered(message: Released, words: Words) -> Released:
    """Send a masked vector in place of a message, with the same charge.

    The caller guarantees that ``words`` are computed from the message and from keys that do not
    depend on rows. They then reveal no more about a row than the message does.

    Parameters
    ----------
    message
        What was released.
    words
        The masked vector to commit and send, of the same shape.
    """
    if words.dtype != np.uint64 or words.shape != message.values.shape:
        raise ParameterError(
            f"words must be uint64 of the shape {message.values.shape}; got {words.dtype} of "
            f"{words.shape}."
        )
    # The only place where a message is not of doubles: senders and ledgers look at its dtype.
    return Released(_MAKER, cast(Array, words), message.events)


# A round announces and releases the same events, which often equal those of the round before.
_gaussian_release = lru_cache(maxsize=4096)(GaussianRelease)


def gaussian_events(sensitivity: Array, sigma: Array) -> tuple[GaussianRelease, ...]:
    """What :func:`release_gaussian` will charge each party."""
    pairs = zip(sensitivity.tolist(), sigma.tolist(), strict=True)
    return tuple(_gaussian_release(reach, scale) for reach, scale in pairs)


def release_gaussian(
    values: Array,
    residual: Array,
    *,
    tolerance: Array,
    sensitivity: Array,
    sigma: Array,
    parties: NDArray[np.intp],
    noise: NoiseSource,
    t: int,
) -> Released:
    r"""Send ``values + N(0, sigma^2 I)``.

    .. math:: \mu = \mathrm{sensitivity} / \sigma

    Parameters
    ----------
    values, residual
        Minimisers ``(nodes, runs, outputs, features)`` and the norms of their gradients.
    tolerance
        The residual that ``sensitivity`` counts with, per party.
    sensitivity, sigma
        Per party: how far replacing one row moves all outputs together, and the noise.
    parties, noise, t
        Numbers of the parties, the source of noise, the round.
    """
    _check_solved(values, residual, tolerance)
    events = gaussian_events(sensitivity, sigma)
    _check_grid(sensitivity, sigma, math.prod(values.shape[2:]))
    noisy = noise.add_gaussian(values, sigma[:, None, None, None], parties, t, "output")
    return Released(_MAKER, noisy, events)


def shared_gaussian_events(
    sensitivity: Array, sigma: float, summation: Summation
) -> tuple[SharedGaussian, ...]:
    """What :func:`release_shared_gaussian` will charge each party."""
    return tuple(
        SharedGaussian(float(reach), sigma, summation.parties, summation.colluders)
        for reach in sensitivity
    )


def release_shared_gaussian(
    values: Array,
    *,
    summation: Summation,
    sensitivity: Array,
    sigma: float,
    parties: NDArray[np.intp],
    noise: NoiseSource,
    t: int,
) -> Released:
    r"""Send each party's summand with its share of the noise, in whole steps.

    .. math:: m_i = g\Bigl\lfloor\frac{v_i}{g}\Bigr\rceil
              + N_{g\mathbb Z}\Bigl(0, \frac{\sigma^2}{N-\tau}\Bigr),\qquad
              \mu = \mathrm{sensitivity}/\sigma

    Parameters
    ----------
    values
        The summands ``(nodes, runs, outputs, features)``.
    summation
        Step g, parties N and colluders tau.
    sensitivity
        Per party: how far replacing one row moves its summand, rounding to the grid included.
    sigma
        The noise that counts against tau colluders, of the sum.
    parties, noise, t
        Numbers of the parties, the source of noise, the round.
    """
    require_exact_shares(noise)
    events = shared_gaussian_events(sensitivity, sigma, summation)
    share = sigma / math.sqrt(summation.parties - summation.colluders)
    rounding = summation.step * math.sqrt(math.prod(values.shape[2:]))
    if share < LEAST_STEPS * summation.step or not (sensitivity >= rounding).all():
        raise ParameterError(
            f"the step of a summation must be at most 2^-24 of a share's standard deviation, "
            f"{share:.3g}, and its rounding of a summand at most its sensitivity; "
            f"got {summation.step:.3g}. Use fewer rounds or a smaller epsilon, or own noise."
        )
    noisy = noise.add_gaussian_steps(values, share, summation.step, parties, t, "output")
    return Released(_MAKER, noisy, events)


def require_exact_shares(noise: NoiseSource) -> None:
    """Refuse floating-point draws as shares of the noise: no theorem covers their sum."""
    if not (noise.on_grid or noise.simulated):
        raise ParameterError(
            f"noise must be drawn exactly where parties share it; got {noise.description!r}. "
            "Install the extra 'secure', or use noise = 'own'."
        )


def release_additive(
    values: Array,
    residual: Array,
    *,
    tolerance: Array,
    events: tuple[Event, ...],
    draw: Callable[[np.random.Generator, int, tuple[int, ...]], Array],
    parties: NDArray[np.intp],
    noise: NoiseSource,
    t: int,
) -> Released:
    """Send values plus noise of any other kind, for mechanisms of other packages.

    The caller's theorem decides the cost, and nobody has reviewed it here.

    Parameters
    ----------
    values, residual, tolerance
        As in :func:`release_gaussian`.
    events
        What each party is charged.
    draw
        Maps a stream, a party's place and a shape ``(outputs, features)`` to that party's noise.
    parties, noise, t
        Numbers of the parties, the source of noise, the round.
    """
    _check_solved(values, residual, tolerance)
    noisy = values.copy()
    for place, party in enumerate(parties):
        for run in range(values.shape[1]):
            stream = noise.generator(run, int(party), t, "output")
            noisy[place, run] += draw(stream, place, values.shape[2:])
    return Released(_MAKER, noisy, events)


def release_adaptive_gaussian(
    values: Array,
    residual: Array,
    *,
    tolerance: Array,
    reach: Array,
    mu: Array,
    parties: NDArray[np.intp],
    noise: NoiseSource,
    t: int,
) -> Released:
    r"""Send ``values + N(0, (reach sqrt(outputs) / mu)^2 I)``, mu fixed in advance.

    .. math:: \mu = \Big(\sum_o \mathrm{reach}_o^2 / \sigma_o^2\Big)^{1/2},
              \qquad \sigma_o = \mathrm{reach}_o\sqrt{\mathrm{outputs}}/\mu

    ``reach`` is how far replacing one row moves a minimiser, given what was sent before: a public
    number ``(nodes, runs, outputs)`` that may change from round to round, while mu may not. The
    charge is that of a release with sensitivity mu and sigma 1.
    """
    _check_solved(values, residual, tolerance)
    _check_grid(mu, np.ones_like(mu), math.prod(values.shape[2:]))
    sigma = reach * (np.sqrt(values.shape[2]) / mu)[:, None, None]
    noisy = noise.add_gaussian(values, sigma[..., None], parties, t, "output")
    return Released(_MAKER, noisy, gaussian_events(mu, np.ones_like(mu)))


@dataclass(frozen=True)
class ObjectivePerturbation:
    r"""Noise in the gradient of every party's problem, and the little noise AMP adds to the result.

    The exact minimiser under gradient noise b is private; what a solver returns within
    ``tolerance`` of it gets ``N(0, output_sigma^2 I)`` on top (approximate minima perturbation).

    Attributes
    ----------
    kind
        ``"exp-norm"``: density proportional to exp(-||b|| / scale), pure epsilon
        ``sensitivity / scale + ln(1 + kappa)`` for each output; ``"gaussian"``: N(0, scale^2 I),
        Theorem OP with mu = ``sensitivity / scale``.
    sensitivity
        ``2 L c / n``, how far one row moves a gradient, per party.
    kappa
        ``c c1 / (n m)``, per party.
    scale
        Of the gradient noise, per party.
    tolerance, convexity, output_sigma
        Of the solve: its residual and m; the noise of AMP; per party.
    outputs
        Columns sent together; each is a release of its own.
    """

    kind: Literal["exp-norm", "gaussian"]
    sensitivity: Array
    kappa: Array
    scale: Array
    tolerance: Array
    convexity: Array
    output_sigma: Array
    outputs: int = 1

    def events(self) -> tuple[Event, ...]:
        """What :func:`release_objective` will charge each party."""
        charged: list[Event] = []
        for place in range(len(self.scale)):
            mu = float(self.sensitivity[place] / self.scale[place])
            kappa = float(self.kappa[place])
            exact: Event = (
                PureRelease(sum_up((mu, float(jacobian_epsilon(kappa)))))
                if self.kind == "exp-norm"
                else GaussianObjectivePerturbation(mu, kappa)
            )
            inexact = InexactSolve(
                float(self.tolerance[place]),
                float(self.convexity[place]),
                float(self.output_sigma[place]),
            )
            charged.append(Composed((exact, inexact) * self.outputs))
        return tuple(charged)


def release_objective(
    solve: Callable[[Array], tuple[Array, Array]],
    perturbation: ObjectivePerturbation,
    shape: tuple[int, int, int, int],
    parties: NDArray[np.intp],
    noise: NoiseSource,
    t: int,
) -> Released:
    r"""Draw gradient noise b, send ``solve(b)`` with AMP's noise.

    The theorems speak of noise b' without rounding; b is the double next to it, so that a solution
    with residual r for b has one of at most :math:`r + \|b - b'\|` for b'. Two of them are
    therefore apart from their exact minimisers, and moved by the grid g of AMP's noise, by at most

    .. math:: \frac{2r + 2\|b - b'\|}{m} + g\sqrt d \;\le\; \frac{2\,\mathrm{tol}}{m},
              \qquad r \le \tfrac{15}{16}\mathrm{tol},\quad
              \|b - b'\| \le \tfrac{1}{32}\mathrm{tol},\quad
              g\sqrt d \le \tfrac{1}{16}\mathrm{tol}/m,

    which is what is charged. The second bound holds because
    :meth:`~dpadmm.algorithms.base.ObjectiveRelease.announce` refuses a tolerance below
    64 units in the last place of the largest b; the third because
    :math:`g \le 2^{-60}\,\mathrm{output\_sigma}`, and mu is not tiny, which is checked here.

    Parameters
    ----------
    solve
        From b to minimisers and the norms of their gradients, at most ``SOLVED_TO`` of the
        tolerance.
    perturbation
        How much noise, and what it costs.
    shape, parties, noise, t
        Of the messages; numbers of the parties, the source of noise, the round.
    """
    scale = perturbation.scale[:, None, None, None]
    moved = 2 * perturbation.tolerance / perturbation.convexity
    _check_grid(moved, perturbation.output_sigma, shape[-1])
    if perturbation.kind == "exp-norm":
        drawn = scale * noise.exponential_norm(shape, parties, t, "objective")
    else:
        drawn = noise.add_gaussian(np.zeros(shape), scale, parties, t, "objective")
    values, residual = solve(drawn)
    _check_solved(values, residual, SOLVED_TO * perturbation.tolerance)
    output_sigma = perturbation.output_sigma[:, None, None, None]
    noisy = noise.add_gaussian(values, output_sigma, parties, t, "output")
    return Released(_MAKER, noisy, perturbation.events())


def release_noisy_gradients(
    descend: Callable[[InnerNoise], Array],
    gradient: Array,
    perturbation: GradientPerturbation,
    parties: NDArray[np.intp],
    noise: NoiseSource,
    t: int,
) -> Released:
    r"""Draw the secret batches and all noise, and send the end point of ``descend``.

    Every private number leaves through a release of its own: the full gradient once
    (``"one-release"``), and at every step the batch difference, or its sum with the full gradient
    (``"split"``). With noise on a grid g value and noise are on that grid, whose rounding adds
    :math:`g\sqrt{dK}` to a sensitivity, K outputs together:

    .. math:: g\sqrt{dK} \le 2^{-60}\sqrt{dK}\,\sigma \le 10^{-9}\,\mathrm{sensitivity}
              \quad\text{where}\quad \mu \ge 2^{-60}\sqrt{dK}/10^{-9},

    which is checked. The sensitivities carry that allowance: ``sensitivity`` and
    ``difference_sensitivity`` from the caller, :math:`\Delta_s` here.

    Parameters
    ----------
    descend
        The inner loop, which meets rows through the batches and the gradient given to it only, and
        whose iterates depend on them only through what :class:`InnerNoise` lets leave.
    gradient
        The full gradient ``(nodes, runs, outputs, features)`` where the loop starts.
    perturbation
        How much noise, and what it costs.
    parties, noise, t
        Numbers of the parties, the source of noise, the round.
    """
    inner = _inner_noise(gradient, perturbation, parties, noise, t)
    return Released(_MAKER, descend(inner), perturbation.events())


def _inner_noise(
    gradient: Array,
    perturbation: GradientPerturbation,
    parties: NDArray[np.intp],
    noise: NoiseSource,
    t: int,
) -> InnerNoise:
    """The draws of :func:`release_noisy_gradients`."""
    nodes, runs, outputs, features = gradient.shape
    steps = perturbation.steps
    split = perturbation.form == "split"
    full, difference = perturbation.gradient_sigma, perturbation.difference_sigma
    numbers = outputs * features
    together = np.hypot(full, difference)
    _check_grid(perturbation.sensitivity, together if split else full, numbers)
    nothing = np.zeros_like(gradient)
    if split:
        carried, released = gradient, nothing
    else:
        _check_grid(np.ones(nodes), difference, numbers)
        sigma = full[:, None, None, None]
        carried, released = nothing, noise.add_gaussian(gradient, sigma, parties, t, "gradient")

    def release(place: int, values: Array, sigma: float) -> Array:
        one, spread = values[None, None], np.full(1, sigma)
        return noise.add_gaussian(one, spread, parties[place : place + 1], t, "inner")[0, 0]

    ahead = (nodes, runs, 0 if noise.on_grid else steps, outputs, features)
    return InnerNoise(
        batches=draw_batches(noise, steps, perturbation.batch, perturbation.rows, runs, parties, t),
        carried=carried,
        released=released,
        fixed=together if split else np.zeros(nodes),
        # Outputs are sent together: the squares of their distances add up.
        relative=np.zeros(nodes)
        if split
        else (1 + SAMPLER_ALLOWANCE) * difference * math.sqrt(outputs),
        draws=noise.add_gaussian(np.zeros(ahead), np.ones(1), parties, t, "inner"),
        release=release if noise.on_grid else None,
    )


def draw_batches(
    noise: NoiseSource,
    steps: int,
    batch: NDArray[np.int64],
    rows: NDArray[np.int64],
    runs: int,
    parties: NDArray[np.intp],
    t: int,
) -> list[NDArray[np.int64]]:
    """The secret batches of steps 1 to S - 1, ``(runs, steps - 1, batch)`` for each party."""
    return [
        np.stack(
            [
                noise.batches(steps - 1, int(size), int(count), run, int(party), t)
                for run in range(runs)
            ]
        )
        for size, count, party in zip(batch, rows, parties, strict=True)
    ]


def randomize_labels(
    labels: Array, epsilon: Array | float, generator: np.random.Generator
) -> tuple[Array, LabelRandomizedResponse]:
    r"""Flip each label of -1 or +1 with probability 1 / (1 + e^epsilon), at its source.

    .. math:: \Pr[y' = y] = \frac{e^\epsilon}{1 + e^\epsilon}

    A label that is neither counts by its sign. Returns the labels to report and the event, whose
    epsilon is the largest of the given ones. The probability is rounded up, also where it is too
    small for a double, so that the odds are never more than e^epsilon: a draw is a multiple of
    2^-53, and below p at least as often as p.
    """
    strength = np.broadcast_to(np.asarray(epsilon, dtype=np.float64), labels.shape)
    if not (np.isfinite(strength).all() and (strength > 0).all()):
        raise ParameterError(f"label epsilon must be positive and finite; got {strength.min()}.")
    flipping = np.clip(expit(-strength) * (1 + 2.0**-49), math.ulp(0.0), 0.5)
    flipped = generator.random(labels.shape) < flipping
    signs = np.where(labels > 0, 1.0, -1.0)
    return np.where(flipped, -signs, signs), LabelRandomizedResponse(float(strength.max()))


def _check_grid(sensitivity: Array, sigma: Array, numbers: int) -> None:
    """Refuse so much noise that rounding this many numbers to its grid would matter."""
    least = GRID * math.sqrt(numbers) * (1 + SAMPLER_ALLOWANCE) / SAMPLER_ALLOWANCE
    if not (sensitivity >= least * sigma).all():
        raise ParameterError(
            f"the noise of a release must be at most {1 / least:.3g} sensitivities, or rounding "
            f"its {numbers} numbers to a grid would count; got "
            f"{float((sigma / sensitivity).max()):.3g}. Raise epsilon, or lower rounds."
        )


def _check_solved(values: Array, residual: Array, tolerance: Array) -> None:
    """Refuse a value that misses the tolerance that its charge assumes."""
    if values.shape[:-1] != residual.shape:
        raise ParameterError(
            f"values and residual must agree in shape; got {values.shape} and {residual.shape}."
        )
    if not (residual <= tolerance[:, None, None]).all():
        raise ConvergenceError(
            "a local solve missed the tolerance that its charge counts with; nothing was released."
        )
