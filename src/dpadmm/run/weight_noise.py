r"""What noise alone does to weights: a standard error, from public facts and released numbers.

Most algorithms repeat their rounds without rows, whose pull on weights they leave out. In gradient
rounds (``dp-gd``) that pull can take out all but a twentieth of the noise, the more so where rows
are centred. There it is read off what the run released. With a curvature h of the objective a round
is linear in the noise, and so is the model z after it:

.. math::
    v \leftarrow \beta v + h z + \xi,\qquad z \leftarrow z - s\,v,\qquad
    z_t = \sum_{m\le t} r_{t-m}(h)\,\xi_m,\qquad
    \hat q = \frac{\sum_t \tilde z_t\cdot\tilde G_t}{\sum_t \tilde z_t\cdot\tilde z_t}

:math:`\hat q` regresses the released gradients on the models that they were taken at, over the
last half of the rounds (~: less its mean). It is not h: a model remembers the noise before it. The
h that is taken is that whose noise alone has the released :math:`\hat q`, in expectation over
expectation.
Curvatures of one problem differ; they are taken to be spread evenly, in logarithms, over a factor
of ten around h. Nothing here is charged: it is computed from what was released.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from dpadmm.algorithms.base import Algorithm
from dpadmm.algorithms.dp_gd import DPGD
from dpadmm.plain import Array
from dpadmm.privacy.noise import SimulatedNoise
from dpadmm.problem.rows import RowBlock, Shard
from dpadmm.run.classifier import chosen_output
from dpadmm.run.engine import tail_start
from dpadmm.run.plan import Plan
from dpadmm.run.session import train

# Algorithms whose noise is in their messages and whose local work takes any rows; others draw
# batches of rows, or change labels.
_SERVED: Final = ("dp-gd", "pr-admm", "dvp", "m-admm", "r-admm", "mr-admm")
# The figure is known to about a thirtieth from so many numbers.
_NUMBERS: Final = 400
# Numbers drawn at most, a few seconds' work; larger runs are left out.
_MOST_DRAWN: Final = 2e7


# The largest curvature of a problem over its smallest, and how many between stand for all.
_SPREAD: Final = 10.0
_BETWEEN: Final = 7
# Curvatures that are tried, from nothing to the largest.
_TRIED: Final = 60
# Fewer models do not tell how rows pull weights back.
_FEWEST: Final = 10


def noise_error(
    planned: Plan,
    output: str = "auto",
    heard: Sequence[int] = (),
    course: Array | None = None,
) -> float | None:
    """The standard error that noise gives each weight; None where it is not known.

    Parameters
    ----------
    planned
        The run of all parties.
    output
        Which messages the classifier is the mean of, as the estimator has it.
    heard
        Numbers of the parties whose messages it is the mean of; all unless given.
    course
        Of the run, as :class:`~dpadmm.run.engine.Outcome` has it.
    """
    site, algorithm = planned.site, planned.algorithm
    if isinstance(algorithm, DPGD):
        if course is not None and len(course) >= _FEWEST + 2:
            return _of_course(algorithm, planned, course, output)
        if algorithm.centres:
            return None
    if planned.algorithm.name not in _SERVED:
        return None
    runs = max(2, math.ceil(_NUMBERS / (site.outputs * site.features)))
    if runs * planned.rounds * math.prod(site.shape) / site.runs > _MOST_DRAWN:
        return None
    alike = replace(planned, algorithm=_with_own_noise(planned), site=replace(site, runs=runs))
    parties = len(site.index)
    # One row of zeros acts as any number of them: counts enter by the public facts alone.
    row = RowBlock(
        np.arange(parties),
        np.zeros((parties, 1, site.features)),
        np.zeros((parties, 1, site.outputs)),
    )
    repeated = train(alike, Shard((row,), site.rows), noise=SimulatedNoise(0))
    models = getattr(repeated, chosen_output(planned.algorithm, output))
    mean = models[list(heard) or slice(None)].mean(axis=0)
    return float(np.sqrt(mean.var(axis=0, ddof=1).mean()))


def _with_own_noise(planned: Plan) -> Algorithm:
    """The algorithm with each share of shared noise drawn as a party's own: the sum is the same."""
    algorithm = planned.algorithm
    if not isinstance(algorithm, DPGD) or algorithm.shared is None:
        return algorithm
    honest = algorithm.shared.parties - algorithm.shared.colluders
    return replace(algorithm, shared=None, sigma=algorithm.sigma / math.sqrt(honest))


def _of_course(algorithm: DPGD, planned: Plan, course: Array, output: str) -> float:
    """The same from the models of the last half of a run, ``(rounds, runs, outputs, features)``."""
    site, beta, step = planned.site, algorithm.momentum, algorithm.step
    velocity = (course[:-1] - course[1:]) / step
    models = course[1:-1] - course[1:-1].mean(axis=0)
    gradients = velocity[1:] - beta * velocity[:-1]
    gradients = gradients - gradients.mean(axis=0)
    # Where rows are centred, the weight of the constant has noise of its own size.
    alike = slice(None, -1 if algorithm.centres else None)
    square = float((models[..., alike] ** 2).sum())
    slope = float((models * gradients)[..., alike].sum()) / square if square else 0.0
    left = np.mean((gradients - slope * models) ** 2, axis=(0, 1, 2))
    larger = float(left.mean() / left[alike].mean()) if square else 1.0
    # The first round of a run that centres moves no model.
    rounds = planned.rounds - algorithm.centres
    kind = chosen_output(algorithm, output)
    taken = {"last": 1, "tail": planned.rounds - tail_start(planned.rounds)}
    most = site.loss.curvature_bound + site.regularization / site.parties
    tried = np.concatenate([[0.0], np.geomspace(1e-5 * most, most, _TRIED)])
    around = np.geomspace(_SPREAD**-0.5, _SPREAD**0.5, _BETWEEN)
    curvature = np.minimum(tried[:, None] * around, most)
    answers = _answers(curvature, beta, step, rounds)
    count = taken.get(kind, planned.rounds)
    sums, _ = _in_window(answers, max(0, rounds - count))
    variance = (sums**2).sum(axis=0).mean(axis=1) / count**2
    before = np.concatenate([np.zeros_like(answers[:1]), answers[:-1]])
    first = rounds - len(models)
    sums, squares = _in_window(before, first)
    spread = (squares - sums**2 / len(models)).sum(axis=0)
    # A model has none of the noise of its own gradient, but its mean over time has.
    common = curvature * spread - sums[first:].sum(axis=0) / len(models)
    expected = np.maximum.accumulate(common.mean(axis=1) / spread.mean(axis=1))
    found = np.interp(slope, expected, variance)
    return algorithm.mean_noise * math.sqrt(found * larger)


def _answers(curvature: Array, beta: float, step: float, rounds: int) -> Array:
    """``r``: the models after so many rounds, of noise of size one in the first."""
    found = np.zeros((rounds, *curvature.shape))
    model, velocity = np.zeros(curvature.shape), np.ones(curvature.shape)
    for t in range(rounds):
        model = model - step * velocity
        found[t] = model
        velocity = beta * velocity + curvature * model
    return found


def _in_window(answers: Array, first: int) -> tuple[Array, Array]:
    """Sums over the rounds from ``first`` of what each round's noise does, and of its square."""
    last = np.arange(len(answers), 0, -1)
    begin = np.maximum(first - np.arange(len(answers)), 0)

    def added(values: Array) -> Array:
        total = np.concatenate([np.zeros_like(values[:1]), values.cumsum(axis=0)])
        return np.asarray(total[last] - total[begin])

    return added(answers), added(answers**2)
