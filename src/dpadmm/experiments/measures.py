r"""Measures of models, for all runs at once.

A measure takes the models ``(nodes, runs, outputs, features)``, which are the parties' messages,
and returns one number per run. "average ..." is the mean over parties, each with its own model; the
other measures use the mean of the parties' models. All of them read rows, so only simulations have
them.

**Statistics.** Intervals for means over runs.

.. math:: \bar x \pm t_{(1+q)/2,\,m-1}\, s/\sqrt{m}

Runs are independent draws of the noise, so Student's interval holds for their mean if the figures
are about normal. A verdict on a paper may look at its runs twice. Each look therefore has
q = 97.5%, and both intervals hold with a probability of at least 95%.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import combinations
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, stdtrit

from dpadmm.errors import unknown_name
from dpadmm.experiments.problems import Problem
from dpadmm.plain import Array
from dpadmm.problem.losses import LOSSES
from dpadmm.problem.rows import Rows

Measure = Callable[[Array, Problem], Array]
_LOGISTIC: Final = LOSSES["logistic"]


def _scores(rows: Rows, models: Array) -> Array:
    """Scores ``(rows, runs, outputs)`` of models ``(runs, outputs, features)``."""
    runs, outputs, features = models.shape
    return np.asarray(rows @ models.reshape(-1, features).T).reshape(-1, runs, outputs)


def _codes(scores: Array) -> NDArray[Any]:
    """The predicted class."""
    return scores[..., 0] > 0 if scores.shape[2] == 1 else scores.argmax(axis=2)


def _signs_to_codes(signs: Array) -> NDArray[Any]:
    return signs[:, 0] > 0 if signs.shape[1] == 1 else signs.argmax(axis=1)


def _losses(rows: Rows, signs: Array, models: Array) -> Array:
    """Logistic losses ``(rows, runs)``, summed over outputs."""
    margins = signs[:, None, :] * _scores(rows, models)
    if margins.shape[1] == 1:
        return _LOGISTIC.value(margins).sum(axis=2)
    from dpadmm.solvers.compiled import logistic_losses

    losses: Array = logistic_losses(margins.reshape(-1)).reshape(margins.shape)
    return losses.sum(axis=2)


def average_loss(models: Array, problem: Problem) -> Array:
    r"""Mean over parties of the loss of each on its own rows.

    .. math:: \frac1N \sum_i \frac{1}{n_i} \sum_k \ell(y_{ik}\, w_i\cdot x_{ik})
    """
    losses = [
        _losses(rows, signs, model).mean(axis=0)
        for (rows, signs), model in zip(problem.members, models, strict=True)
    ]
    return np.mean(losses, axis=0)


def pooled_loss(models: Array, problem: Problem) -> Array:
    """Loss of the mean model, averaged over all rows of all parties."""
    mean, counts = models.mean(axis=0), problem.counts
    losses = [_losses(rows, signs, mean).sum(axis=0) for rows, signs in problem.members]
    return np.sum(losses, axis=0) / sum(counts)


def training_accuracy(models: Array, problem: Problem) -> Array:
    """Accuracy of the mean model on the parties' rows."""
    mean = models.mean(axis=0)
    right = [
        (_codes(_scores(rows, mean)) == _signs_to_codes(signs)[:, None]).sum(axis=0)
        for rows, signs in problem.members
    ]
    return np.sum(right, axis=0) / sum(problem.counts)


def average_training_accuracy(models: Array, problem: Problem) -> Array:
    """Accuracy of each party's model on its own rows, averaged over parties."""
    right = [
        (_codes(_scores(rows, model)) == _signs_to_codes(signs)[:, None]).mean(axis=0)
        for (rows, signs), model in zip(problem.members, models, strict=True)
    ]
    return np.mean(right, axis=0)


def held_out_accuracy(models: Array, problem: Problem) -> Array:
    """Accuracy of the mean model on the held-out rows."""
    scores = _scores(problem.test_rows, models.mean(axis=0))
    return (_codes(scores) == problem.test_codes[:, None]).mean(axis=0)


def average_held_out_accuracy(models: Array, problem: Problem) -> Array:
    """Accuracy of each party's model on the held-out rows, averaged over parties."""
    nodes, runs, outputs, features = models.shape
    scores = _scores(problem.test_rows, models.reshape(-1, outputs, features))
    right = (_codes(scores) == problem.test_codes[:, None]).mean(axis=0)
    return right.reshape(nodes, runs).mean(axis=0)


def held_out_log_loss(models: Array, problem: Problem) -> Array:
    """Log loss of the mean model on the held-out rows."""
    scores = _scores(problem.test_rows, models.mean(axis=0))
    if scores.shape[2] == 1:
        signs = np.where(problem.test_codes > 0, 1.0, -1.0)[:, None]
        return _LOGISTIC.value(signs * scores[..., 0]).mean(axis=0)
    # One-vs-rest: normalised probabilities, as predict_proba returns them.
    chances = np.maximum(expit(scores), np.finfo(float).tiny)
    chosen = np.take_along_axis(chances, problem.test_codes[:, None, None], axis=2)[..., 0]
    return -np.log(chosen / chances.sum(axis=2)).mean(axis=0)


def held_out_auc(models: Array, problem: Problem) -> Array:
    """Area under the ROC curve on the held-out rows; with several classes one-vs-rest, averaged."""
    scores = _scores(problem.test_rows, models.mean(axis=0))
    runs, outputs = range(scores.shape[1]), scores.shape[2]
    truths = [problem.test_codes == (1 if outputs == 1 else code) for code in range(outputs)]
    areas = [
        [_area(*(scores[which, run, code] for which in (truth, ~truth))) for run in runs]
        for code, truth in enumerate(truths)
        if 0 < truth.sum() < len(truth)
    ]
    return np.mean(areas, axis=0) if areas else np.full(len(runs), np.nan)


def _area(positive: Array, negative: Array) -> float:
    """Share of pairs in which the positive row scores higher; ties count half.

    scikit-learn computes the same, but importing it takes a worker longer than training.
    """
    ranked = np.sort(negative)
    pairs = sum(np.searchsorted(ranked, positive, side).sum() for side in ("left", "right"))
    return float(pairs / (2 * positive.size * negative.size))


def average_norm(models: Array, problem: Problem) -> Array:
    """Norm of each party's model, averaged over parties."""
    return np.sqrt(np.square(models).sum(axis=(2, 3))).mean(axis=0)


def consensus_error(models: Array, problem: Problem) -> Array:
    """Largest distance of a party's model from the mean model."""
    apart = models - models.mean(axis=0)
    return np.sqrt(np.square(apart).sum(axis=(2, 3))).max(axis=0)


def largest_distance(models: Array, problem: Problem) -> Array:
    """Largest distance between the models of two parties."""
    squares = [
        np.square(models[first] - models[second]).sum(axis=(1, 2))
        for first, second in combinations(range(len(models)), 2)
    ]
    return np.sqrt(np.max(squares, axis=0))


def distance_of_norms(models: Array, problem: Problem) -> Array:
    """Largest difference between the norms of two parties' models."""
    norms = np.sqrt(np.square(models).sum(axis=(2, 3)))
    return np.asarray(np.ptp(norms, axis=0))


def average_squared_norm(models: Array, problem: Problem) -> Array:
    """Squared norm of each party's model, averaged over parties."""
    return np.square(models).sum(axis=(2, 3)).mean(axis=0)


#: Every measure by its name.
MEASURES: Final[dict[str, Measure]] = {
    "average loss": average_loss,
    "pooled loss": pooled_loss,
    "training accuracy": training_accuracy,
    "average training accuracy": average_training_accuracy,
    "test accuracy": held_out_accuracy,
    "average test accuracy": average_held_out_accuracy,
    "log loss": held_out_log_loss,
    "AUC": held_out_auc,
    "average norm": average_norm,
    "consensus error": consensus_error,
    "largest distance": largest_distance,
    "distance of norms": distance_of_norms,
    "average squared norm": average_squared_norm,
}


def get_measure(name: str) -> Measure:
    """Return a measure by name; an unknown name is refused with a list of all."""
    if name not in MEASURES:
        raise unknown_name("measure", name, MEASURES)
    return MEASURES[name]


#: The confidence level of an interval that is looked at once.
LEVEL: Final = 0.95
#: The confidence level of one of the two looks that a verdict may take.
LOOK_LEVEL: Final = 1 - (1 - LEVEL) / 2


class Interval(NamedTuple):
    """A mean and its interval."""

    mean: float
    low: float
    high: float

    def __format__(self, form: str) -> str:
        """``mean [low, high]``, each in the form given."""
        return f"{self.mean:{form}} [{self.low:{form}}, {self.high:{form}}]"


def mean_interval(values: ArrayLike, level: float = LOOK_LEVEL) -> Interval:
    """Student's interval for the mean of independent figures; a single one has no known width."""
    sample = np.asarray(values, dtype=np.float64).ravel()
    mean = float(sample.mean())
    if len(sample) < 2:
        return Interval(mean, -np.inf, np.inf)
    return interval_around(
        mean, float(sample.std(ddof=1)) / math.sqrt(len(sample)), len(sample) - 1, level
    )


def interval_around(mean: float, error: float, freedom: float, level: float) -> Interval:
    """Student's interval of ``freedom`` degrees around a mean with that standard error."""
    reach = error * float(stdtrit(freedom, (1 + level) / 2))
    return Interval(mean, mean - reach, mean + reach)


BEATS: Final = "beats"
BELOW: Final = "does not beat"
LEVEL_WITH: Final = "cannot be told from"


def standing(together: Interval, alone: float) -> str:
    """Say whether a mean over runs is above a number, below it, or neither for sure.

    Parameters
    ----------
    together
        A mean with its interval. A single run has no known width: then its value decides.
    alone
        The number to compare with.
    """
    if not (math.isfinite(together.low) and math.isfinite(together.high)):
        return BEATS if together.mean > alone else BELOW
    if together.low > alone:
        return BEATS
    return BELOW if together.high <= alone else LEVEL_WITH


def percent(share: float) -> str:
    """A share of rows as a percentage."""
    return f"{100 * share:.1f}%"
