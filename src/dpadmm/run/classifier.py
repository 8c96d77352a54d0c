"""What a run leaves behind: the classifier, each party's last message, and the statement."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpadmm.plain import Array
from dpadmm.privacy.statement import PrivacyStatement
from dpadmm.run.engine import Outcome
from dpadmm.run.plan import Plan
from dpadmm.run.quality import Quality

__all__ = ["HISTORY", "Classifier", "released_weights"]

HISTORY: Final = ("disagreement", "change")
"""What is followed over the rounds."""


@dataclass(frozen=True, eq=False)
class Classifier:
    """What was released, and what may be said about it.

    Attributes
    ----------
    coef, intercept
        The classifier: the mean over parties of their last messages, of their messages in the
        last third of the rounds, or of all their messages.
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
        fit_intercept: bool = False,
        intercept_scale: float = 1.0,
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
        fit_intercept, intercept_scale
            The last feature is the number that was appended to every row.
        quality
            How good it is, if that was released.
        """
        appended = intercept_scale if fit_intercept else None
        coef, intercept = _split(released_weights(planned, outcome, output), appended)
        node_coef, node_intercept = _split(outcome.last[:, 0], appended)
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


def released_weights(planned: Plan, outcome: Outcome, output: str = "auto") -> Array:
    """The model for rows as they were laid out, ``(outputs, features)``; ``output`` as above."""
    if output == "auto":
        output = "tail" if planned.algorithm.private else "last"
    chosen = {"last": outcome.last, "tail": outcome.tail, "mean": outcome.mean}[output]
    weights: Array = chosen[:, 0].mean(axis=0)
    return weights


def _split(parameters: Array, appended: float | None) -> tuple[Array, Array]:
    """Weights of the features, and what the number appended to every row adds to a score."""
    if appended is None:
        return parameters.copy(), np.zeros(parameters.shape[:-1])
    return parameters[..., :-1].copy(), appended * parameters[..., -1]
