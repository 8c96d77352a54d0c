"""What a run leaves behind: the classifier, each party's last message, and the statement."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dpadmm.plain import Array
from dpadmm.privacy.noise import NoiseSource
from dpadmm.privacy.statement import PrivacyStatement
from dpadmm.run.engine import Outcome
from dpadmm.run.plan import Plan
from dpadmm.run.train import state_privacy

__all__ = ["Classifier"]


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
    history
        Disagreement and change per round.
    penalty
        The penalty used: in the first round, the mean over parties, where it varies.
    privacy
        The statement.
    """

    coef: Array = field(repr=False)
    intercept: Array = field(repr=False)
    node_coef: Array = field(repr=False)
    node_intercept: Array = field(repr=False)
    history: dict[str, Array] = field(repr=False)
    penalty: float
    privacy: PrivacyStatement = field(repr=False)

    @classmethod
    def of_run(
        cls,
        planned: Plan,
        outcome: Outcome,
        noise: NoiseSource,
        *,
        output: str = "auto",
        fit_intercept: bool = False,
        also_not_covered: tuple[str, ...] = (),
        caveats: tuple[str, ...] = (),
    ) -> Classifier:
        """Sum up a run.

        Parameters
        ----------
        planned, outcome, noise
            The run.
        output
            ``"last"``, ``"tail"`` or ``"mean"``; ``"auto"`` takes the last for algorithms without
            noise and the tail for those with noise.
        fit_intercept
            The last feature is the 1 that was appended to every row.
        also_not_covered
            What the statement adds to the list of what it does not cover.
        caveats
            What the statement says of how the run went.
        """
        if output == "auto":
            output = "tail" if planned.algorithm.private else "last"
        chosen = {"last": outcome.last, "tail": outcome.tail, "mean": outcome.mean}[output]
        coef, intercept = _split(chosen[:, 0].mean(axis=0), fit_intercept)
        node_coef, node_intercept = _split(outcome.last[:, 0], fit_intercept)
        return cls(
            coef=coef,
            intercept=intercept,
            node_coef=node_coef,
            node_intercept=node_intercept,
            history={
                "disagreement": outcome.history.disagreement[:, 0],
                "change": outcome.history.change[:, 0],
            },
            penalty=planned.penalty,
            privacy=state_privacy(
                planned,
                outcome.events,
                noise,
                also_not_covered=also_not_covered,
                caveats=caveats,
            ),
        )


def _split(parameters: Array, fit_intercept: bool) -> tuple[Array, Array]:
    """Weights of the features, and of the appended 1."""
    if fit_intercept:
        return parameters[..., :-1].copy(), parameters[..., -1].copy()
    return parameters.copy(), np.zeros(parameters.shape[:-1])
