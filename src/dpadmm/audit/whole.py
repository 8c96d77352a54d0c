"""The audit of an algorithm: an attack on one party, and a test of the noise of all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from dpadmm.algorithms import reviewed
from dpadmm.audit.algorithms import AlgorithmCase
from dpadmm.audit.cases import audit_case
from dpadmm.audit.scene import Scene
from dpadmm.audit.verdict import Verdict
from dpadmm.audit.witness import audit_noise
from dpadmm.errors import ParameterError

__all__ = ["audit_algorithm"]

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
