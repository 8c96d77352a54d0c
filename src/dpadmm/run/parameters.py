"""What decides a run, as the estimator and a configuration name it."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from dpadmm.errors import ParameterError

if TYPE_CHECKING:
    from dpadmm.problem.topologies import Topology

#: Leaves a parameter to be chosen from public facts.
AUTO: Final = "auto"
CALIBRATIONS: Final = ("proven", "published")
PARTY_WEIGHTS: Final = ("rows", "equal")

# The defaults of a run, for the estimator, configurations and commands alike.
ALGORITHM: Final = "pr-admm"
# Of that algorithm: what asks for it need not load it. A test compares the two.
ALGORITHM_ROUNDS: Final = 50
CALIBRATION: Final = "proven"
EPSILON: Final = 1.0
DELTA: Final = 1e-5
TOPOLOGY: Final = AUTO
ROUNDS: Final = AUTO
PENALTY: Final = AUTO
REGULARIZATION: Final = 1e-4
PARTY_WEIGHT: Final = "rows"
LOSS: Final = "auto"
ROWS_PER_PERSON: Final = 1
OUTPUT: Final = AUTO

_INSTEAD_OF_WEIGHTS: Final = {
    "sample_weight": "use party_weight for whole parties",
    "class_weight": "for unequal classes choose a threshold by a wanted sensitivity or specificity "
    "(dpadmm evaluate --sensitivity, or dpadmm.evaluation.metrics)",
}
#: More rounds than this are a slip of the keyboard: their noise leaves nothing of a model.
MOST_ROUNDS: Final = 10_000


def too_many_rounds(rounds: int) -> str:
    """What is wrong with so many rounds, after their name."""
    return (
        f"must be at most {MOST_ROUNDS}, since every round is a message with noise of its own and "
        "the noise of each grows with the square root of their number within the same budget; got "
        f"{rounds}: 50 to 100 serve nearly every run"
    )


def chosen_loss(
    loss: str, algorithm: str, options: Mapping[str, Any], calibration: str = CALIBRATION
) -> str:
    """The name of a loss, with "auto" replaced by what the algorithm takes it for."""
    if loss != "auto":
        return loss
    # Commands read the defaults above when they start; the algorithms take numpy and scipy.
    from dpadmm.algorithms import get_algorithm

    return get_algorithm(algorithm).automatic_loss(options, calibration)


def refuse_weights(given: Iterable[str]) -> None:
    """Refuse arguments of these names, if there are weights among them, with the reason."""
    for name, advice in _INSTEAD_OF_WEIGHTS.items():
        if name in given:
            raise ParameterError(
                f"{name} must not be given: a weighted row would move the messages further than "
                "the guarantee assumes, and the public row counts would no longer describe a "
                f"party. Repeat no rows; {advice}."
            )


class PrivacyWarning(UserWarning):
    """A budget that is valid but protects little."""


class ConvergenceWarning(UserWarning):
    """A choice that is valid but makes a run slow, noisy or wasteful."""


class ScaleWarning(UserWarning):
    """A bound on rows that may be in other units than they are; said whatever the rows are."""


class RepeatedFitWarning(UserWarning):
    """Fits that each spend a budget anew; said whatever the rows are."""


@functools.cache
def say_scale_once() -> None:
    """Tell what a ``data_norm`` of 1 does: always and once, so that it says nothing about rows."""
    warnings.warn(
        "data_norm is 1, its default: every longer row is scaled down to norm 1. Give a public "
        "bound on the norm of a row in the units of your columns, unless rows have norm 1 at most. "
        "This is said once and whatever the rows are.",
        ScaleWarning,
        stacklevel=4,
    )


@functools.cache
def say_repeated_once() -> None:
    """Tell what the fits of clones spend: once, and from the parameters alone."""
    warnings.warn(
        "several clones of one estimator are fitted, as cross_val_score and GridSearchCV do: every "
        "fit draws noise anew and spends its epsilon again, and what all fits spend adds up. "
        "privacy_ states one of them alone. Choose parameters on public rows, or by dpadmm plan, "
        "which needs none; or charge every fit to ledgers, under a run_id of its own. This is said "
        "once and whatever the rows are.",
        RepeatedFitWarning,
        stacklevel=3,
    )


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

    def settled(self) -> TrainingParameters:
        """The same run with the loss, and the kind of noise where there is one, decided."""
        from dpadmm.algorithms import get_algorithm

        options = get_algorithm(self.algorithm).settled_options(
            self.algorithm_options, self.calibration
        )
        loss = chosen_loss(self.loss, self.algorithm, options, self.calibration)
        return replace(self, loss=loss, algorithm_options=options)
