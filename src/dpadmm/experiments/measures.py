r"""What is measured of models, for all runs at once.

A measure takes the models ``(nodes, runs, outputs, features)``, the parties' messages, and gives
one number per run. "average ..." is the mean over parties, each with its own model; the others
judge the mean of the parties' models. All of them look at rows, so they exist in simulations only.

**Statistics.** Intervals for means over runs.

.. math:: \bar x \pm t_{(1+q)/2,\,m-1}\, s/\sqrt{m}

Runs are independent draws of the noise, so that Student's interval for their mean holds for about
normal figures; a difference between two sets of runs has Welch's. A verdict may look at its runs
twice, so that each look has q = 97.5%: that both hold is then at least 95% likely.
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
    """The class that scores choose."""
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
    """Share of the parties' rows that the mean model gets right."""
    mean = models.mean(axis=0)
    right = [
        (_codes(_scores(rows, mean)) == _signs_to_codes(signs)[:, None]).sum(axis=0)
        for rows, signs in problem.members
    ]
    return np.sum(right, axis=0) / sum(problem.counts)


def average_training_accuracy(models: Array, problem: Problem) -> Array:
    """Share of its own rows that a party's model gets right, averaged over parties."""
    right = [
        (_codes(_scores(rows, model)) == _signs_to_codes(signs)[:, None]).mean(axis=0)
        for (rows, signs), model in zip(problem.members, models, strict=True)
    ]
    return np.mean(right, axis=0)


def held_back_accuracy(models: Array, problem: Problem) -> Array:
    """Share of the held-back rows that the mean model gets right."""
    scores = _scores(problem.test_rows, models.mean(axis=0))
    return (_codes(scores) == problem.test_codes[:, None]).mean(axis=0)


def average_held_back_accuracy(models: Array, problem: Problem) -> Array:
    """Share of the held-back rows that a party's model gets right, averaged over parties."""
    nodes, runs, outputs, features = models.shape
    scores = _scores(problem.test_rows, models.reshape(-1, outputs, features))
    right = (_codes(scores) == problem.test_codes[:, None]).mean(axis=0)
    return right.reshape(nodes, runs).mean(axis=0)


def held_back_log_loss(models: Array, problem: Problem) -> Array:
    """Mean negative log probability of the held-back rows' classes under the mean model."""
    scores = _scores(problem.test_rows, models.mean(axis=0))
    if scores.shape[2] == 1:
        signs = np.where(problem.test_codes > 0, 1.0, -1.0)[:, None]
        return _LOGISTIC.value(signs * scores[..., 0]).mean(axis=0)
    # One against the rest: shares of the probabilities, as predict_proba gives them.
    chances = np.maximum(expit(scores), np.finfo(float).tiny)
    chosen = np.take_along_axis(chances, problem.test_codes[:, None, None], axis=2)[..., 0]
    return -np.log(chosen / chances.sum(axis=2)).mean(axis=0)


def held_back_auc(models: Array, problem: Problem) -> Array:
    """Area under the ROC curve on the held-back rows; the mean over classes against the rest."""
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

    scikit-learn finds the same, but a worker that imports it takes longer to start than to train.
    """
    ranked = np.sort(negative)
    pairs = sum(np.searchsorted(ranked, positive, side).sum() for side in ("left", "right"))
    return float(pairs / (2 * positive.size * negative.size))


def average_norm(models: Array, problem: Problem) -> Array:
    """Mean over parties of the norm of each one's model."""
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
    """Mean over parties of the squared norm of each one's model."""
    return np.square(models).sum(axis=(2, 3)).mean(axis=0)


#: Every measure by its name.
MEASURES: Final[dict[str, Measure]] = {
    "average loss": average_loss,
    "pooled loss": pooled_loss,
    "training accuracy": training_accuracy,
    "average training accuracy": average_training_accuracy,
    "test accuracy": held_back_accuracy,
    "average test accuracy": average_held_back_accuracy,
    "log loss": held_back_log_loss,
    "AUC": held_back_auc,
    "average norm": average_norm,
    "consensus error": consensus_error,
    "largest distance": largest_distance,
    "distance of norms": distance_of_norms,
    "average squared norm": average_squared_norm,
}


def get_measure(name: str) -> Measure:
    """A measure by name, or a refusal that lists them."""
    if name not in MEASURES:
        raise unknown_name("measure", name, MEASURES)
    return MEASURES[name]


#: How often an interval that is looked at once holds the mean it is about.
LEVEL: Final = 0.95
#: The same for one of the two looks that a verdict may take.
LOOK_LEVEL: Final = 1 - (1 - LEVEL) / 2


class Interval(NamedTuple):
    """A mean and where it lies."""

    mean: float
    low: float
    high: float

    def __format__(self, form: str) -> str:
        """``mean [low, high]``, each in the form given."""
        return f"{self.mean:{form}} [{self.low:{form}}, {self.high:{form}}]"


def mean_interval(values: ArrayLike, level: float = LOOK_LEVEL) -> Interval:
    """Student's interval for the mean of independent figures; a single one has no width known."""
    sample = np.asarray(values, dtype=np.float64).ravel()
    mean = float(sample.mean())
    if len(sample) < 2:
        return Interval(mean, -np.inf, np.inf)
    return _around(mean, float(sample.std(ddof=1)) / math.sqrt(len(sample)), len(sample) - 1, level)


def prediction_interval(values: ArrayLike, level: float = LOOK_LEVEL) -> Interval:
    r"""Where one more figure of the same kind lies, about normal ones given.

    .. math:: \bar x \pm t_{(1+q)/2,\,m-1}\, s\,\sqrt{1 + 1/m}
    """
    sample = np.asarray(values, dtype=np.float64).ravel()
    mean = float(sample.mean())
    if len(sample) < 2:
        return Interval(mean, -np.inf, np.inf)
    spread = float(sample.std(ddof=1)) * math.sqrt(1 + 1 / len(sample))
    return _around(mean, spread, len(sample) - 1, level)


def difference(first: ArrayLike, second: ArrayLike, level: float = LOOK_LEVEL) -> Interval:
    """Welch's interval for the mean of ``first`` minus that of ``second``, drawn independently.

    A ``second`` that is a number and not a sample is taken as exact.
    """
    if np.ndim(second) == 0:
        return mean_interval(np.asarray(first, dtype=np.float64) - np.asarray(second), level)
    return contrast((1.0, first), (-1.0, second), level=level)


def contrast(*terms: tuple[float, ArrayLike], level: float = LOOK_LEVEL) -> Interval:
    r"""Welch's interval for a weighted sum of the means of independent samples.

    .. math:: \sum_j a_j \bar x_j, \qquad s^2 = \sum_j a_j^2 s_j^2 / m_j, \qquad
              \nu = s^4 \Big/ \sum_j \frac{(a_j^2 s_j^2/m_j)^2}{m_j - 1}

    Parameters
    ----------
    terms
        A weight and a sample each.
    """
    samples = [(weight, np.asarray(sample, dtype=np.float64).ravel()) for weight, sample in terms]
    mean = float(sum(weight * sample.mean() for weight, sample in samples))
    sizes = np.array([len(sample) for _, sample in samples])
    if (sizes < 2).any():
        return Interval(mean, -np.inf, np.inf)
    parts = np.array([weight**2 * sample.var(ddof=1) / len(sample) for weight, sample in samples])
    if parts.sum() == 0:
        return Interval(mean, mean, mean)
    freedom = parts.sum() ** 2 / (parts**2 / (sizes - 1)).sum()
    return _around(mean, float(np.sqrt(parts.sum())), freedom, level)


def ranges(values: ArrayLike, group: int) -> Array:
    """The range of each group of so many runs, one after the other, over the last axis.

    A range grows with the number of runs: that of 60 is half as wide again as that of 10. Beside a
    paper's range over its own number of runs only groups of that size can stand. Runs that do not
    fill a group are left out; fewer than a group are one.
    """
    sample = np.asarray(values, dtype=np.float64)
    size = min(group, sample.shape[-1])
    count = sample.shape[-1] // size
    groups = sample[..., : count * size].reshape(*sample.shape[:-1], count, size)
    return np.asarray(np.ptp(groups, axis=-1))


def _around(mean: float, error: float, freedom: float, level: float) -> Interval:
    reach = error * float(stdtrit(freedom, (1 + level) / 2))
    return Interval(mean, mean - reach, mean + reach)


BEATS: Final = "beats"
BELOW: Final = "does not beat"
LEVEL_WITH: Final = "cannot be told from"


def standing(together: Interval, alone: float) -> str:
    """How a mean over runs stands to a number: above it, below it, or neither for sure.

    Parameters
    ----------
    together
        A mean with its interval; that of a single run has no width known, and its value decides.
    alone
        What it is held against.
    """
    if not (math.isfinite(together.low) and math.isfinite(together.high)):
        return BEATS if together.mean > alone else BELOW
    if together.low > alone:
        return BEATS
    return BELOW if together.high <= alone else LEVEL_WITH


def percent(share: float) -> str:
    """A share of rows in words."""
    return f"{100 * share:.1f}%"
