"""What can be audited: a mechanism by its name, and a whole algorithm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Protocol

from dpadmm.algorithms import reviewed
from dpadmm.audit.algorithms import AlgorithmCase
from dpadmm.audit.cases import (
    Case,
    audit_case,
    exp_norm_case,
    gaussian_case,
    gaussian_objective_case,
    inexact_solve_case,
    randomized_response_case,
    subsampled_gaussian_case,
)
from dpadmm.audit.scene import Scene
from dpadmm.audit.verdict import Verdict
from dpadmm.audit.witness import audit_noise
from dpadmm.errors import ParameterError, positive_number, unknown_name
from dpadmm.run.parameters import CALIBRATIONS


class _Builder(Protocol):
    def __call__(self, epsilon: float, delta: float, *, noise_scale: float) -> Case: ...


@dataclass(frozen=True)
class Mechanism:
    """How the worst case of a mechanism is built from a budget.

    Attributes
    ----------
    build
        From epsilon, delta and a factor on the noise.
    pure
        The claim has delta = 0.
    published
        The same with the noise that a paper prints, where it differs.
    """

    build: _Builder
    pure: bool = False
    published: _Builder | None = None


MECHANISMS: Final[dict[str, Mechanism]] = {
    "gaussian": Mechanism(gaussian_case),
    "exp-norm": Mechanism(
        exp_norm_case, pure=True, published=partial(exp_norm_case, calibration="published")
    ),
    "gaussian-objective": Mechanism(gaussian_objective_case),
    "inexact-solve": Mechanism(inexact_solve_case),
    "randomized-response": Mechanism(randomized_response_case, pure=True),
    "subsampled-gaussian": Mechanism(subsampled_gaussian_case),
}


def mechanism_case(
    name: str,
    epsilon: float,
    delta: float,
    *,
    noise_scale: float = 1.0,
    calibration: str = "proven",
) -> Case:
    """The worst case of the mechanism of that name, calibrated to a budget.

    Parameters
    ----------
    name
        One of :data:`MECHANISMS`.
    epsilon, delta
        What is claimed; a pure mechanism claims epsilon alone.
    noise_scale
        Multiplies the noise: below 1 the claim is false.
    calibration
        "proven", or "published" where a paper prints another noise.
    """
    if name not in MECHANISMS:
        raise unknown_name("mechanism", name, MECHANISMS)
    if calibration not in CALIBRATIONS:
        raise unknown_name("calibration", calibration, CALIBRATIONS)
    mechanism = MECHANISMS[name]
    build = mechanism.build if calibration == "proven" else mechanism.published
    if build is None:
        raise ParameterError(
            f"calibration must be 'proven' for {name!r}: no paper prints another; "
            f"got {calibration!r}."
        )
    positive_number("epsilon", epsilon)
    positive_number("noise_scale", noise_scale)
    if not mechanism.pure and not 0 < delta < 1:
        raise ParameterError(f"delta must be between 0 and 1 for {name!r}; got {delta!r}.")
    return build(epsilon, delta, noise_scale=noise_scale)


# The part of the error that the test of the noise may use; the bound has the rest.
_NOISE_SHARE: Final = 0.01


def audit_algorithm(
    scene: Scene,
    *,
    samples: int,
    confidence: float = 0.99,
    noise_scale: float = 1.0,
    on_progress: Callable[[int], None] | None = None,
) -> Verdict:
    """Try to refute what an algorithm claims, in one setting.

    A claim that is right is refuted with a probability of at most 1 - confidence, by the bound and
    by the test of the noise together: the test has a hundredth of it. What noise an algorithm from
    another package needs is not known here: only the attack is made.

    Parameters
    ----------
    scene
        What to audit.
    samples
        Independent runs of each data set, for the bound.
    confidence
        The probability with which nothing false is said.
    noise_scale
        Multiplies the noise that is really added.
    on_progress
        Called with the number of runs just made.
    """
    if not 0.5 < confidence < 1:
        raise ParameterError(f"confidence must be between 0.5 and 1; got {confidence!r}.")
    case = AlgorithmCase.of(scene, noise_scale=noise_scale)
    error = 1 - confidence
    noise = None
    if reviewed(scene.algorithm):
        noise = audit_noise(scene, false_alarm=_NOISE_SHARE * error, noise_scale=noise_scale)
    verdict = audit_case(
        case,
        samples=samples,
        confidence=1 - (1 - _NOISE_SHARE) * error,
        seed=scene.seed,
        on_progress=on_progress,
    )
    return replace(verdict, confidence=confidence, noise=noise, scene=scene)
