"""What a run leaves behind: the classifier, each party's last message, and the statement."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpadmm.algorithms.base import Algorithm
from dpadmm.plain import Array
from dpadmm.privacy.statement import PrivacyStatement
from dpadmm.run.engine import Outcome
from dpadmm.run.plan import Plan
from dpadmm.run.quality import Quality

__all__ = ["HISTORY", "Classifier", "chosen_output", "released_weights"]

HISTORY: Final = ("disagreement", "change")
"""What is followed over the rounds."""


@dataclass(frozen=True, eq=False)
class Classifier:
    """What was released, and what may be said about it.

    Attributes
    ----------
    coef, intercept
        The classifier, for the columns as they were given: the mean over parties of their last
        messages, of their messages in the last third of the rounds, or of all their messages.
    node_coef, node_intercept
        Each party's last message.
    classes, parties
        Names, in the order of the outputs and of ``node_coef``.
    history
        Disagreement and change per round.
    penalty
        The penalty used: in the first round, the mean over parties, where it varies.
    privacy
        The statement.
    quality
        How good it is, where a histogram was released of it; None where none was.
    """

    coef: Array = field(repr=False)
    intercept: Array = field(repr=False)
    node_coef: Array = field(repr=False)
    node_intercept: Array = field(repr=False)
    classes: NDArray[Any]
    parties: NDArray[Any]
    history: dict[str, Array] = field(repr=False)
    penalty: float
    privacy: PrivacyStatement = field(repr=False)
    quality: Quality | None = None

    @classmethod
    def of_run(
        cls,
        planned: Plan,
        outcome: Outcome,
        privacy: PrivacyStatement,
        *,
        classes: ArrayLike,
        parties: ArrayLike,
        output: str = "auto",
        data_norm: float = 1.0,
        intercept_scale: float | None = None,
        quality: Quality | None = None,
    ) -> Classifier:
        """Sum up a run.

        Parameters
        ----------
        planned, outcome, privacy
            The run, and what may be said about it.
        classes, parties
            Names, in the order of their codes and of the messages.
        output
            ``"last"``, ``"tail"`` or ``"mean"``; ``"auto"`` takes the last for algorithms without
            noise and the tail for those with noise.
        data_norm, intercept_scale
            What every row was divided by, and the number that was then appended to it as its last
            feature; None for no number.
        quality
            How good it is, if that was released.
        """
        weights = released_weights(planned, outcome, output)
        coef, intercept = _for_columns(weights, data_norm, intercept_scale)
        node_coef, node_intercept = _for_columns(outcome.last[:, 0], data_norm, intercept_scale)
        return cls(
            coef=coef,
            intercept=intercept,
            node_coef=node_coef,
            node_intercept=node_intercept,
            classes=np.asarray(classes),
            parties=np.asarray(parties),
            history={name: getattr(outcome.history, name)[:, 0] for name in HISTORY},
            penalty=planned.penalty,
            privacy=privacy,
            quality=quality,
        )

    @classmethod
    def of_estimator(cls, estimator: Any) -> Classifier:
        """Take it from a fitted estimator, which has each field with a line under its name."""
        return cls(**{item.name: getattr(estimator, f"{item.name}_") for item in fields(cls)})

    def give_to(self, estimator: Any) -> None:
        """Make an estimator a fitted one; it may change its arrays without changing these."""
        for item in fields(self):
            value = getattr(self, item.name)
            setattr(
                estimator,
                f"{item.name}_",
                value.copy() if isinstance(value, np.ndarray | dict) else value,
            )


def chosen_output(algorithm: Algorithm, output: str) -> str:
    """Which models of an :class:`~dpadmm.run.engine.Outcome` a classifier is the mean of."""
    if output == "auto":
        return "tail" if algorithm.private else "last"
    return output


def released_weights(planned: Plan, outcome: Outcome, output: str = "auto") -> Array:
    """The model for rows as they were laid out, ``(outputs, features)``."""
    weights: Array = getattr(outcome, chosen_output(planned.algorithm, output))[:, 0].mean(axis=0)
    return weights


def _for_columns(
    parameters: Array, data_norm: float, appended: float | None
) -> tuple[Array, Array]:
    """Weights of the columns as they were given, and what the appended number adds to a score."""
    if appended is None:
        return parameters / data_norm, np.zeros(parameters.shape[:-1])
    return parameters[..., :-1] / data_norm, appended * parameters[..., -1]
