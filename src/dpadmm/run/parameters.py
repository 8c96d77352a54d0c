"""What decides a run, as the estimator and a configuration name it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from dpadmm.problem.topologies import Topology

__all__ = [
    "CALIBRATIONS",
    "PARTY_WEIGHTS",
    "ConvergenceWarning",
    "PrivacyWarning",
    "TrainingParameters",
]


CALIBRATIONS: Final = ("proven", "published")


PARTY_WEIGHTS: Final = ("rows", "equal")


class PrivacyWarning(UserWarning):
    """A budget that is valid but protects little."""


class ConvergenceWarning(UserWarning):
    """A choice that is valid but makes a run slow, noisy or wasteful."""


@dataclass(frozen=True)
class TrainingParameters:
    """What decides a run, as the estimator and a configuration name it; all of it public."""

    algorithm: str
    topology: str | Iterable[tuple[int, int]] | Topology = "auto"
    rounds: int = 50
    penalty: float | str | Sequence[float] | Mapping[Any, float | Sequence[float]] = "auto"
    regularization: float = 1e-4
    party_weight: str = "rows"
    loss: str = "logistic"
    tolerance: float | None = None
    epsilon: float | Mapping[Any, float] = 1.0
    delta: float | Mapping[Any, float] = 1e-5
    calibration: str = "proven"
    rows_per_person: int = 1
    algorithm_options: Mapping[str, Any] = field(default_factory=dict)
