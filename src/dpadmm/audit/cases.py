r"""The worst case of each mechanism: two neighbouring data sets and a score that tells them apart.

A case draws independent runs of a mechanism on D and on D' and returns one score per run, the
privacy loss ln(Pr'[o] / Pr[o]) of the output or an increasing function of it: by Neyman and
Pearson no other function of the output tells the two apart better.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Literal, final

import numpy as np

from dpadmm.algorithms.base import ObjectiveRelease
from dpadmm.audit.scene import Candidate, canary_rows, one_party
from dpadmm.audit.verdict import (
    SMALLEST_SAMPLE,
    AuditSetting,
    Claim,
    EpsilonClaim,
    GaussianClaim,
    Verdict,
    audit_scores,
)
from dpadmm.audit.witness import SharedNoise
from dpadmm.errors import ParameterError, positive_number
from dpadmm.plain import Array
from dpadmm.privacy.calibration import (
    exponential_rate,
    gaussian_sigma,
    objective_sigma,
    subsampled_sigma,
)
from dpadmm.privacy.events import InexactSolve
from dpadmm.privacy.figures import AtMost
from dpadmm.privacy.gaussian import gaussian_mu
from dpadmm.privacy.mechanisms import ObjectivePerturbation, randomize_labels, release_gaussian
from dpadmm.privacy.noise import SimulatedNoise
from dpadmm.privacy.sensitivity import gradient_sensitivity, jacobian_ratio
from dpadmm.problem.rows import Shard

_ONE_PARTY = np.array([0], dtype=np.intp)


class Case(ABC):
    """Two neighbouring data sets, a mechanism and a score. Subclasses are final."""

    claim: Claim
    setting: AuditSetting
    #: The most runs that are drawn at once.
    batch: int = 1 << 17

    @abstractmethod
    def scores(self, noise: SimulatedNoise, runs: int, *, replaced: bool) -> Array:
        """One score for each of ``runs`` independent runs on D, or on D' where replaced."""


def audit_case(
    case: Case,
    *,
    samples: int,
    confidence: float = 0.99,
    seed: int = 0,
    on_progress: Callable[[int], None] | None = None,
) -> Verdict:
    """Run a case, and bound the privacy loss from below.

    Parameters
    ----------
    case
        What to run.
    samples
        Independent runs of each data set.
    confidence
        The probability with which the bound holds.
    seed
        The same seed gives the same verdict.
    on_progress
        Called with the number of runs just made.
    """
    if samples < SMALLEST_SAMPLE:
        raise ParameterError(f"samples must be at least {SMALLEST_SAMPLE}; got {samples}.")
    if seed < 0:
        raise ParameterError(f"seed must be a whole number of at least 0; got {seed}.")
    scores = np.empty((2, samples))
    for start in range(0, samples, case.batch):
        runs = min(case.batch, samples - start)
        for replaced in (False, True):
            # Every piece has its own key: no run of D shares a draw with a run of D'.
            words = np.random.SeedSequence([seed, start, replaced]).generate_state(4)
            noise = SimulatedNoise(int.from_bytes(words.tobytes(), "little"))
            scores[int(replaced), start : start + runs] = case.scores(
                noise, runs, replaced=replaced
            )
            if on_progress is not None:
                on_progress(runs)
    return audit_scores(
        case.claim, scores[0], scores[1], setting=case.setting, confidence=confidence
    )


@final
@dataclass(frozen=True)
class GaussianShift(Case):
    """A value that replacing a row moves by a known vector, released with Gaussian noise.

    Parameters
    ----------
    claim, setting
        What is claimed, and of what.
    shift
        How far the value moves.
    sigma
        The noise that is really added.
    residual
        The gradient norm that the value was found to.
    """

    claim: Claim
    setting: AuditSetting
    shift: float
    sigma: float
    residual: float = 0.0

    def scores(self, noise: SimulatedNoise, runs: int, *, replaced: bool) -> Array:
        """The released number: the privacy loss grows with it."""
        # Independent releases lie along the outputs, so that one stream serves them all.
        values = np.full((1, 1, runs, 1), self.shift if replaced else 0.0)
        released = release_gaussian(
            values,
            np.full(values.shape[:-1], self.residual),
            tolerance=np.array([self.residual]),
            sensitivity=np.array([abs(self.shift)]),
            sigma=np.array([self.sigma]),
            parties=_ONE_PARTY,
            noise=noise,
            t=0,
        )
        return released.values.ravel()


def gaussian_case(epsilon: float, delta: float, *, noise_scale: float = 1.0) -> GaussianShift:
    """A value that the row moves by its whole sensitivity, plus N(0, sigma^2); it attains mu.

    ``noise_scale`` multiplies the noise that the claim needs.
    """
    sigma = float(gaussian_sigma(epsilon, delta, 1.0))
    setting = AuditSetting(
        f"Gaussian release, sigma = {noise_scale * sigma:.4g} times the sensitivity",
        "replacing the row moves the value by its sensitivity",
        "the released value (its privacy loss up to scale)",
    )
    claim = GaussianClaim(float(gaussian_mu(epsilon, delta)), delta)
    return GaussianShift(claim, setting, 1.0, noise_scale * sigma)


def inexact_solve_case(epsilon: float, delta: float, *, noise_scale: float = 1.0) -> GaussianShift:
    """A solver that stops tolerance / m to one side on D and to the other on D': attains mu."""
    tolerance, convexity = 1e-6, 1.0
    mu = float(gaussian_mu(epsilon, delta))
    sigma = 2 * tolerance / (convexity * mu)
    event = InexactSolve(tolerance, convexity, sigma)
    setting = AuditSetting(
        f"inexact minimiser with tolerance {tolerance:g} and output noise "
        f"{noise_scale * sigma:.4g}",
        "both data sets have the same minimiser, given to the adversary; the solver stops at "
        "tolerance / strong convexity from it, on opposite sides",
        "the released value (its privacy loss up to scale)",
    )
    shift = 2 * event.tolerance / event.strong_convexity
    return GaussianShift(
        GaussianClaim(mu, delta), setting, shift, noise_scale * event.output_sigma, tolerance
    )


@final
@dataclass(frozen=True)
class RandomizedResponse(Case):
    """A label, randomised with the epsilon that is really used."""

    claim: Claim
    setting: AuditSetting
    epsilon: float

    def scores(self, noise: SimulatedNoise, runs: int, *, replaced: bool) -> Array:
        """The reported label; the true one is -1 in D and +1 in D'."""
        labels = np.full(runs, 1.0 if replaced else -1.0)
        return randomize_labels(labels, self.epsilon, noise.generator(0, 0, 0, "labels"))[0]


def randomized_response_case(
    epsilon: float, delta: float = 0.0, *, noise_scale: float = 1.0
) -> RandomizedResponse:
    """A label flipped with probability 1/(1 + e^epsilon): attains epsilon, with delta 0.

    ``noise_scale`` multiplies the probability of a flip.
    """
    flip = noise_scale / (1 + math.exp(positive_number("epsilon", epsilon)))
    if not flip < 0.5:
        raise ParameterError(f"noise_scale must keep flips below one half; got {noise_scale!r}.")
    setting = AuditSetting(
        f"randomised response, labels flipped with probability {flip:.4g}",
        "the label is -1 or +1",
        "the reported label",
        "the label of one row is flipped",
    )
    return RandomizedResponse(EpsilonClaim(epsilon, 0.0), setting, math.log(1 / flip - 1))


@final
@dataclass(frozen=True)
class SubsampledShift(Case):
    """The sum of a secret batch, drawn without replacement, with Gaussian noise.

    Parameters
    ----------
    claim, setting
        What is claimed, and of what.
    rate
        The probability that a row is in the batch.
    sigma
        The noise that is really added; the sensitivity is 1.
    """

    claim: Claim
    setting: AuditSetting
    rate: float
    sigma: float

    def scores(self, noise: SimulatedNoise, runs: int, *, replaced: bool) -> Array:
        """The released sum: the privacy loss grows with it."""
        values = np.zeros((1, 1, runs, 1))
        if replaced:
            values[0, 0, :, 0] = noise.generator(0, 0, 0, "batch").random(runs) < self.rate
        sigma = np.array(self.sigma)
        return noise.add_gaussian(values, sigma, _ONE_PARTY, 0, "output").ravel()


def subsampled_gaussian_case(
    epsilon: float,
    delta: float,
    *,
    noise_scale: float = 1.0,
    batch: int = 20,
    population: int = 100,
) -> SubsampledShift:
    """All rows add 0 except the one that only D' has; this attains the amplified curve."""
    sigma = float(subsampled_sigma(epsilon, delta, 1, batch, population, 1.0))
    setting = AuditSetting(
        f"Gaussian release of a batch of {batch} out of {population} rows, "
        f"sigma = {noise_scale * sigma:.4g} times the sensitivity",
        "every row adds 0 to the batch, the replaced one its sensitivity",
        "the released value (its privacy loss grows with it)",
    )
    claim = EpsilonClaim(epsilon, delta)
    return SubsampledShift(claim, setting, batch / population, noise_scale * sigma)


# Objective perturbation: the rows of the party, the strong convexity of its problem, where the
# minimiser is held.
_ROWS: Final = 100
_CONVEXITY: Final = 2.0
_RADIUS: Final = 1000.0
_SLANT: Final = 0.02
_SENSITIVITY: Final = float(gradient_sensitivity(_ROWS))
_KAPPA: Final = float(jacobian_ratio(_ROWS, _CONVEXITY))
# The residual of a solve: above the rounding error of a gradient, far below one row's change.
_TOLERANCE: Final = 1e-10
# Noise on the minimiser, as a share of what the gradient noise does to it.
_OUTPUT_SHARE: Final = 1e-3
# Of a pure epsilon, what is left for the exact minimiser; the rest and a tiny delta pay for the
# inexact solve.
_EXACT_SHARE: Final = 0.999
_PURE_DELTA: Final = 1e-12
# The other rows are zero and left out: c / n of the whole party is the replaced row's weight.
_SITE: Final = one_party(1, weight=1 / _ROWS)
_CANDIDATES: Final = tuple(
    Shard.from_parties([(row[None], np.ones((1, 1)))]) for row in canary_rows(_SLANT)
)
_WORST_CASE: Final = (
    f"a public linear term holds the minimiser near {_RADIUS:g} in the first direction; the "
    "replaced row points against it, and to opposite sides in the second, so that the gradients "
    "differ by nearly 2 L c / n"
)


@final
@dataclass(frozen=True)
class PerturbedObjective(Case):
    """The minimiser of a problem whose gradient carries noise, with its exact privacy loss.

    **Neighbours.** The public linear term holds the minimiser near R e_1. The replaced row is
    (-s, q) in D and (-s, -q) in D', with s^2 + q^2 = 1 and R s large: both margins are very
    negative, both slopes are nearly -L, and the gradients differ by nearly 2 L c / n. All other
    rows are zero; they add nothing to a gradient and are left out, c / n being kept.

    Parameters
    ----------
    claim, setting
        What is claimed, and of what.
    perturbation
        The noise that is really added.
    """

    claim: Claim
    setting: AuditSetting
    perturbation: ObjectivePerturbation
    # A solve holds some dozens of arrays of this length.
    batch: int = 1 << 15

    def scores(self, noise: SimulatedNoise, runs: int, *, replaced: bool) -> Array:
        """The privacy loss of the minimiser."""
        site = replace(_SITE, runs=runs)
        linear = np.broadcast_to([-_CONVEXITY * _RADIUS, 0.0], site.shape)
        release = ObjectiveRelease(linear, self.perturbation)
        plain, changed = (Candidate(shard, site) for shard in _CANDIDATES)
        held = changed if replaced else plain
        sent = release.release(held.workspace, site, SharedNoise(noise), 0).values
        return changed.log_density(release, sent) - plain.log_density(release, sent)


def _perturbation(kind: Literal["gaussian", "exp-norm"], scale: float) -> ObjectivePerturbation:
    return ObjectivePerturbation(
        kind=kind,
        sensitivity=np.array([_SENSITIVITY]),
        kappa=np.array([_KAPPA]),
        scale=np.array([scale]),
        tolerance=np.array([_TOLERANCE]),
        convexity=np.array([_CONVEXITY]),
        output_sigma=np.array([_OUTPUT_SHARE * scale / _CONVEXITY]),
    )


def _inexact_mu(scale: float) -> float:
    """What the noise of approximate minima perturbation costs."""
    return 2 * _TOLERANCE / (_OUTPUT_SHARE * scale)


def exp_norm_case(
    epsilon: float,
    delta: float = 0.0,
    *,
    noise_scale: float = 1.0,
    calibration: str = "proven",
) -> PerturbedObjective:
    r"""Gradient noise exp(-rate ||b||), as DVP and R-ADMM have it: pure epsilon.

    .. math:: \mathrm{rate} = (\epsilon - \ln(1+\kappa))\,n/(2Lc)

    "published" takes the rate :math:`(\epsilon - 2\ln(1+\kappa))\,n/c` that DVP's Algorithm 2
    prints, twice of what its proof needs. ``noise_scale`` divides the rate. What the inexact solve
    costs is paid out of epsilon and a delta of 1e-12, whatever ``delta`` is.
    """
    if calibration == "published":
        room = epsilon - 2 * np.log1p(_KAPPA)
        if not room > 0:
            raise ParameterError(
                f"epsilon must exceed {AtMost(2 * np.log1p(_KAPPA)):4} here; got {epsilon!r}."
            )
        rate = room * _ROWS
    else:
        rate = float(exponential_rate(_EXACT_SHARE * epsilon, _ROWS, _KAPPA))
    setting = AuditSetting(
        f"minimiser with gradient noise exp(-{rate / noise_scale:.4g} ||b||), {calibration} rate",
        _WORST_CASE,
        "the privacy loss of the minimiser",
    )
    perturbation = _perturbation("exp-norm", noise_scale / rate)
    return PerturbedObjective(EpsilonClaim(epsilon, _PURE_DELTA), setting, perturbation)


def gaussian_objective_case(
    epsilon: float, delta: float, *, noise_scale: float = 1.0
) -> PerturbedObjective:
    """Gaussian gradient noise, calibrated by the Renyi bound of objective perturbation."""
    # The inexact solve's share depends on the noise: pay for twice of what it costs without it.
    exact = float(objective_sigma(epsilon, delta, _SENSITIVITY, _KAPPA))
    sigma = noise_scale * float(
        objective_sigma(epsilon, delta, _SENSITIVITY, _KAPPA, inexact_mu=2 * _inexact_mu(exact))
    )
    setting = AuditSetting(
        f"minimiser with Gaussian gradient noise, sigma = {sigma / _SENSITIVITY:.4g} times the "
        "gradient's sensitivity",
        _WORST_CASE,
        "the privacy loss of the minimiser",
    )
    return PerturbedObjective(
        EpsilonClaim(epsilon, delta), setting, _perturbation("gaussian", sigma)
    )
