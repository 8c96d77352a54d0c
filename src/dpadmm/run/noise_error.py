r"""How far the noise of a run alone moves each weight of its classifier: a public figure.

.. math:: e^2 = \operatorname{mean}_{r, j}\bigl(w_{r,j} - \bar w_j\bigr)^2\,\frac{R}{R-1}

over R runs r of the same plan with rows of zeros and simulated noise, and features j: noise has the
same variance in every direction. The plan, its noise and its averaging over rounds and parties are
those of the run; no row has a part in it.

Rows that are told apart pull the weights back after noise has moved them, and rows of zeros do not.
So the figure is an upper one on the whole. Against the standard deviation over repeated runs (root
mean square over the weights, 5 parties, huber-hinge, epsilon 0.3 to 3) it was 1.1 to 1.4 times as
large on Adult and on image (``dp-gd`` and ``pr-admm``), and 1.5 to 2.3 times on twonorm, whose
classes are so far apart that rows pull hard. Single weights that many rows speak for are known
better than the others, up to 4 times.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from dpadmm.algorithms.base import Algorithm
from dpadmm.algorithms.dp_gd import DPGD
from dpadmm.privacy.noise import SimulatedNoise
from dpadmm.problem.rows import RowBlock, Shard
from dpadmm.run.classifier import chosen_output
from dpadmm.run.plan import Plan
from dpadmm.run.train import train

# Algorithms whose noise is in their messages and whose local work takes any rows; others draw
# batches of rows, or change labels.
_SERVED: Final = ("dp-gd", "pr-admm", "dvp", "m-admm", "r-admm", "mr-admm")
# The figure is known to about a thirtieth from so many numbers.
_NUMBERS: Final = 400
# Numbers drawn at most, a few seconds' work; larger runs are left out.
_MOST_DRAWN: Final = 2e7


def noise_error(planned: Plan, output: str = "auto", heard: Sequence[int] = ()) -> float | None:
    """The standard error that noise gives each weight; None where it is not known.

    Parameters
    ----------
    planned
        The run of all parties.
    output
        Which messages the classifier is the mean of, as the estimator has it.
    heard
        Numbers of the parties whose messages it is the mean of; all unless given.
    """
    site = planned.site
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
    outcome = train(alike, Shard((row,), site.rows), noise=SimulatedNoise(0))
    models = getattr(outcome, chosen_output(planned.algorithm, output))
    mean = models[list(heard) or slice(None)].mean(axis=0)
    return float(np.sqrt(mean.var(axis=0, ddof=1).mean()))


def _with_own_noise(planned: Plan) -> Algorithm:
    """The algorithm, with each party's share of shared noise drawn as its own: the same sum."""
    algorithm = planned.algorithm
    if not isinstance(algorithm, DPGD) or algorithm.shared is None:
        return algorithm
    honest = algorithm.shared.parties - algorithm.shared.colluders
    return replace(algorithm, shared=None, sigma=algorithm.sigma / math.sqrt(honest))
