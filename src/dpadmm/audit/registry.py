"""The mechanisms that can be audited by name."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from dpadmm.audit.cases import (
    Case,
    gaussian_case,
    inexact_solve_case,
    randomized_response_case,
    subsampled_gaussian_case,
)
from dpadmm.audit.objective import exp_norm_case, gaussian_objective_case
from dpadmm.errors import ParameterError, positive_number, unknown_name
from dpadmm.run.parameters import CALIBRATIONS

__all__ = ["MECHANISMS", "Mechanism", "mechanism_case"]


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
