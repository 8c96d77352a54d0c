r"""What a user would pick instead: rows pooled, each party alone, central private training.

All of them are runs of one party that holds the rows, so they are planned, drawn and accounted as
any other run: without noise one exact solve (``admm``), with it private gradient rounds (``dp-gd``,
*central gradient descent*, by the public rule of :mod:`~dpadmm.algorithms.dp_gd`) or one perturbed
objective (``dvp``, one round, nobody to agree with):

* *central AMP*: Gaussian noise in the objective (Theorem OP) and on the minimiser (approximate
  minima perturbation, Iyengar et al. 2019);
* *central objective perturbation*: noise of density :math:`\propto e^{-\|b\|/s}` (Chaudhuri,
  Monteleoni and Sarwate 2011, with the constants of lemma L3), and the same small noise on the
  minimiser, since no solver is exact.

A single noisy solve wants more regularisation the more noise there is:

.. math:: \lambda = \max\Bigl(\lambda_0,\; \frac a8,\; \frac{c_1}{n\kappa}\Bigr),
          \qquad a = \frac{2 L \sqrt d}{n \mu},

where a is the norm of Gaussian noise in the gradient: noise then moves the minimiser by at most
about 8. The 8 was chosen among 1, 2, 4, 8 and 16 on Adult (30,000 rows, 10,000 others to judge by).
The last term, for Gaussian noise, leaves the noise most of the budget
(:func:`~dpadmm.algorithms.objective.gaussian_room`).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Final

import numpy as np

from dpadmm.algorithms.base import Budget
from dpadmm.algorithms.dp_gd import DPGD
from dpadmm.algorithms.objective import gaussian_room
from dpadmm.experiments.jobs import Job, TrainingJob
from dpadmm.experiments.problems import OnePartyProblem, Problem, ProblemSource
from dpadmm.privacy.gaussian import gaussian_mu
from dpadmm.problem.losses import get_loss
from dpadmm.run.parameters import TrainingParameters, chosen_loss

POOLED: Final = "pooled, no privacy"
ALONE: Final = "each party alone, no privacy"
#: The party that is best by itself, among those of :data:`ALONE`.
BEST_ALONE: Final = "best party alone, no privacy"
#: Each party by itself within the budget (dp-gd).
PRIVATE_ALONE: Final = "each party alone, private"
#: The better of all central private training.
CURATOR: Final = "curator, same budget"
#: Central private training by gradients.
CENTRAL_GRADIENT: Final = "central gradient descent"
#: Central private training by one perturbed objective: the label and the noise.
PRIVATE_BASELINES: Final = {
    "central AMP": "gaussian",
    "central objective perturbation": "exp-norm",
}
#: Against whom central training protects: less than ADMM, where nobody holds another's rows.
CENTRAL_ADVERSARY: Final = (
    "sees what one place that holds all parties' rows releases; that place is trusted with them"
)
#: Against whom a party that trains by itself protects its rows.
ALONE_ADVERSARY: Final = "sees what the party releases; the party is trusted with its own rows"
_MOVE: Final = 8.0
# One party, one round.
_ONE_SOLVE: Final[dict[str, Any]] = {
    "topology": "path",
    "rounds": 1,
    "penalty": 1.0,
    "algorithm_options": {},
    "calibration": "proven",
    "epsilon": 1.0,
}


def pooled_cell(
    problem: ProblemSource, parameters: TrainingParameters, parties: int, finals: tuple[str, ...]
) -> Job:
    """The optimum of all rows in one place."""
    return _exact(OnePartyProblem(problem), parameters, parties, finals)


def alone_cells(
    problem: ProblemSource, parameters: TrainingParameters, parties: int, finals: tuple[str, ...]
) -> list[Job]:
    """The optimum of each party's rows."""
    return [
        _exact(OnePartyProblem(problem, party), parameters, 1, finals) for party in range(parties)
    ]


def _exact(
    problem: OnePartyProblem,
    parameters: TrainingParameters,
    parties: int,
    finals: tuple[str, ...],
) -> Job:
    # The objective counts the regulariser once and the losses once per party.
    regularization = parameters.regularization / parties
    told = replace(parameters, algorithm="admm", regularization=regularization, **_ONE_SOLVE)
    return TrainingJob(problem, told, runs=1, finals=finals)


def private_alone_cells(
    problem: ProblemSource,
    parameters: TrainingParameters,
    *,
    epsilon: float,
    runs: int,
    seed: int,
    finals: tuple[str, ...],
) -> list[Job]:
    """Each party's rows by themselves within the budget."""
    return [
        gradient_cell(
            OnePartyProblem(problem, party),
            parameters,
            1,
            epsilon=epsilon,
            runs=runs,
            seed=seed + party,
            finals=finals,
        )
        for party in range(len(problem.load().counts))
    ]


def gradient_cell(
    problem: OnePartyProblem,
    parameters: TrainingParameters,
    parties: int,
    *,
    epsilon: float,
    runs: int,
    seed: int,
    finals: tuple[str, ...],
) -> Job:
    """Private gradient rounds on rows in one hand, those of so many parties."""
    told = replace(
        parameters,
        algorithm=DPGD.name,
        topology="server",
        penalty="auto",
        regularization=parameters.regularization / parties,
        algorithm_options={},
        calibration="proven",
        epsilon=epsilon,
    )
    return TrainingJob(problem, told, runs=runs, seed=seed, finals=finals, may_refuse=True)


def private_cell(
    problem: ProblemSource,
    facts: Problem,
    parameters: TrainingParameters,
    label: str,
    *,
    epsilon: float,
    runs: int,
    seed: int,
    finals: tuple[str, ...],
) -> Job:
    """Private training on all rows in one place, at the same total budget."""
    delta = parameters.delta
    assert isinstance(delta, float)
    loss = get_loss(chosen_loss(parameters.loss, "dvp", {}))
    people = parameters.rows_per_person
    mu = float(gaussian_mu(epsilon, delta)) / people
    noise = 2 * loss.slope_bound * math.sqrt(facts.features * facts.outputs) / sum(facts.counts)
    least = parameters.regularization / len(facts.counts)
    if PRIVATE_BASELINES[label] == "gaussian":
        # Nothing but the regularization keeps the Jacobian small.
        budget = Budget(np.array([epsilon]), np.array([delta]), people)
        kappa = float(gaussian_room(budget, facts.outputs)[0])
        least = max(least, loss.curvature_bound / (sum(facts.counts) * kappa))
    told = replace(
        parameters,
        algorithm="dvp",
        regularization=max(least, noise / mu / _MOVE),
        **_ONE_SOLVE
        | {"algorithm_options": {"noise": PRIVATE_BASELINES[label]}, "epsilon": epsilon},
    )
    return TrainingJob(
        OnePartyProblem(problem), told, runs=runs, seed=seed, finals=finals, may_refuse=True
    )
