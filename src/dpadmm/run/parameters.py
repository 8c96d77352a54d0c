"""What decides a run, as the estimator and a configuration name it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from dpadmm.problem.topologies import Topology

__all__ = [
    "ALGORITHM",
    "AUTO",
    "CALIBRATION",
    "CALIBRATIONS",
    "DELTA",
    "EPSILON",
    "LOSS",
    "OUTPUT",
    "PARTY_WEIGHT",
    "PARTY_WEIGHTS",
    "PENALTY",
    "REGULARIZATION",
    "ROUNDS",
    "ROWS_PER_PERSON",
    "TOPOLOGY",
    "ConvergenceWarning",
    "PrivacyWarning",
    "TrainingParameters",
]

#: Leaves a parameter to be chosen from public facts.
AUTO: Final = "auto"
CALIBRATIONS: Final = ("proven", "published")
PARTY_WEIGHTS: Final = ("rows", "equal")

# The defaults of a run, for the estimator, configurations and commands alike.
ALGORITHM: Final = "pr-admm"
CALIBRATION: Final = "proven"
EPSILON: Final = 1.0
DELTA: Final = 1e-5
TOPOLOGY: Final = AUTO
ROUNDS: Final = AUTO
PENALTY: Final = AUTO
REGULARIZATION: Final = 1e-4
PARTY_WEIGHT: Final = "rows"
LOSS: Final = "logistic"
ROWS_PER_PERSON: Final = 1
OUTPUT: Final = AUTO


class PrivacyWarning(UserWarning):
    """A budget that is valid but protects little."""


class ConvergenceWarning(UserWarning):
    """A choice that is valid but makes a run slow, noisy or wasteful."""


@dataclass(frozen=True)
class TrainingParameters:
    """What decides a run, as the estimator and a configuration name it; all of it public.

    ``algorithm_chosen`` says that nobody named the algorithm: it was chosen, and is told of.
    """

    algorithm: str
    topology: str | Iterable[tuple[int, int]] | Topology = TOPOLOGY
    rounds: int | str = ROUNDS
    penalty: float | str | Sequence[float] | Mapping[Any, float | Sequence[float]] = PENALTY
    regularization: float = REGULARIZATION
    party_weight: str = PARTY_WEIGHT
    loss: str = LOSS
    tolerance: float | None = None
    epsilon: float | Mapping[Any, float] = EPSILON
    delta: float | Mapping[Any, float] = DELTA
    calibration: str = CALIBRATION
    rows_per_person: int = ROWS_PER_PERSON
    algorithm_options: Mapping[str, Any] = field(default_factory=dict)
    algorithm_chosen: bool = False
