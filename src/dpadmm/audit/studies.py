r"""The worst case of a study: two rows that move every round by nearly what it is charged for.

The sum that a round is asked at is what all parties sent before, and the others send what they
like: the adversary chooses it. So its noise is in no state, and with the same noise in all rounds
the privacy loss of the messages :math:`y_t`, up to scale, is

.. math:: \sum_t \bigl\langle y_t,\, f_t(x') - f_t(x)\bigr\rangle .

Of a regression the adversary chooses the first sum, hence the coefficients and T, and sends zeros
later. The other rows are the same in D and D', and left out.

* *binomial, poisson*: T hides the column that decides on the responses: both rows are on the wrong
  side, and point to opposite sides in what T leaves.
* *survival*: persons whose columns are opposite, at risk in all periods without an event: certain
  of it in some, which makes their gradients long, and undecided in others, whose curvature T turns
  to right angles.
* *gaussian*: rows of four times the bounded length whose responses are as far beyond their bounds,
  on opposite sides.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, final

import numpy as np

from dpadmm.audit.cases import Case
from dpadmm.audit.verdict import AuditSetting, Claim, GaussianClaim
from dpadmm.plain import Array
from dpadmm.privacy.gaussian import gaussian_mu
from dpadmm.privacy.noise import SimulatedNoise
from dpadmm.problem.rows import Shard
from dpadmm.run.charges import EvaluationTerms
from dpadmm.run.plan import Plan
from dpadmm.solvers.workspace import Workspace
from dpadmm.studies.describe import Describe
from dpadmm.studies.glm import RegressionFacts, plan_regression
from dpadmm.studies.study import Study, Sums, plan_study, upper_triangle

# So many that noise alone does not decide on T.
_ROWS: Final = 10_000
# Of a diagonal of the first sum: T leaves nothing of such a column, and nothing is told of a step.
_HIDDEN: Final = 1e12


@final
@dataclass(frozen=True)
class StudyShift(Case):
    """All rounds of a study, asked at sums that the adversary chose.

    Parameters
    ----------
    claim, setting
        What is claimed, and of what.
    planned
        The study.
    rows
        What D and D' differ in: rows, and the responses that belong to them.
    state
        The sums.
    """

    claim: Claim
    setting: AuditSetting
    planned: Plan
    rows: tuple[tuple[Array, Array], tuple[Array, Array]]
    state: Sums
    batch: int = 1 << 15

    @property
    def study(self) -> Study:
        """What is audited."""
        study = self.planned.algorithm
        assert isinstance(study, Study)
        return study

    def shift(self, t: int) -> Array:
        """By how much the message of a round is moved."""
        plain, changed = (self.study.add_up(self.state, t, *rows) for rows in self.rows)
        scales = [np.full(block.size, block.scale) for block in self.study.courses[t]]
        return np.asarray(self.study.scale * np.concatenate(scales) * (changed - plain))

    def scores(self, noise: SimulatedNoise, runs: int, *, replaced: bool) -> Array:
        """The messages along the line between the two sums: the privacy loss grows with it."""
        site = replace(self.planned.site, rows=np.array([1]), runs=runs)
        workspace = Workspace(Shard.of_values([self.rows[replaced]]), site)
        evidence = np.zeros(runs)
        for t in range(len(self.study.courses)):
            sent = self.study.local_step(self.state, workspace, site, noise, t).values[0, :, 0]
            shift = self.shift(t)
            evidence += sent[:, : len(shift)] @ shift
        return evidence


def _case(
    planned: Plan,
    rows: tuple[tuple[Array, Array], tuple[Array, Array]],
    words: tuple[str, str],
    noise_scale: float,
    first: Array | None = None,
) -> StudyShift:
    """The case of a plan; ``first`` has the numbers of the first sum as they are read off it."""
    study, budget = planned.algorithm, planned.budget
    assert isinstance(study, Study)
    assert budget is not None
    state = study.init(planned.site)
    if first is not None:
        state.sums[0, : len(first)] = first * study.courses[0][0].scale * study.scale
    noisy = replace(planned, algorithm=replace(study, sigma=noise_scale * study.sigma))
    epsilon, delta = float(budget.epsilon[0]), float(budget.delta[0])
    claim = GaussianClaim(float(gaussian_mu(epsilon, delta)), delta)
    setting = AuditSetting(*words, "the messages along the line between the two sums")
    return StudyShift(claim, setting, noisy, rows, state)


def describe_case(epsilon: float, delta: float, *, noise_scale: float = 1.0) -> StudyShift:
    """A table, moments alone and by group, and products: attains mu.

    Columns are 1 in D and -1 in D': means move by 2, squares and products not at all, and by group
    and in a table the row enters another cell. ``noise_scale`` multiplies the noise that the claim
    needs.
    """
    group = {"place": 2, "levels": 2}
    options = {
        "tables": [{"axes": [group]}],
        "moments": [{"place": 0}, {"place": 1, "group": group}],
        "products": [{"places": [0, 1], "norm": math.sqrt(2)}],
    }
    plain, changed = (
        (np.array([row]), np.zeros((1, 1))) for row in ((1.0, 1.0, 0.0), (-1.0, -1.0, 1.0))
    )
    planned = plan_study(Describe, options, {"party": _ROWS}, EvaluationTerms(epsilon, delta))
    words = (
        "describe: a table, moments alone and by group, products, one release",
        "the replaced row goes from one corner to the opposite one, and to another group",
    )
    return _case(planned, (plain, changed), words, noise_scale)


class _Pair(NamedTuple):
    """Two prepared rows with their responses, and what the adversary chose.

    Attributes
    ----------
    rows, responses
        Of D and of D'.
    diagonal
        Of the first sum's matrix.
    step
        What the first step solves for.
    periods
        Of survival.
    """

    rows: tuple[tuple[float, ...], tuple[float, ...]]
    responses: tuple[tuple[float, ...], tuple[float, ...]]
    diagonal: tuple[float, ...]
    step: tuple[float, ...]
    periods: int | None = None


# Found by a search (tests/studies/test_worst_rows.py looks for worse ones).
INFERRED: Final = {
    "gaussian": _Pair(
        ((4.153, 1.581), (4.153, -1.581)), ((4.0,), (-4.0,)), (35556.0,) * 3, (0.0,) * 3
    ),
    "binomial": _Pair(
        ((0.559, 0.829), (0.559, -0.829)),
        ((0.0,), (0.0,)),
        (_HIDDEN, _HIDDEN, 305.6),
        (0.0, 1e4, 0.0),
    ),
    "poisson": _Pair(
        ((0.335, 0.942), (0.335, -0.942)),
        ((1e9,), (1e9,)),
        (_HIDDEN, _HIDDEN, 1577.8),
        (0.0, 3.33, 0.0),
    ),
    "survival": _Pair(
        ((1.0,), (-1.0,)),
        ((0.0, 6.0, 0.0), (0.0, 6.0, 0.0)),
        (*(75.0,) * 3, *(_HIDDEN,) * 3, 316.0),
        (*(11.5,) * 3, *(1e3,) * 3, 0.0),
        6,
    ),
}


def infer_case(
    family: str, epsilon: float, delta: float, *, noise_scale: float = 1.0
) -> StudyShift:
    """All rounds of a regression; ``noise_scale`` multiplies the noise that the claim needs."""
    pair = INFERRED[family]
    facts = RegressionFacts(family, len(pair.rows[0]), pair.periods, _ROWS)
    planned = plan_regression(facts, {"party": _ROWS}, EvaluationTerms(epsilon, delta))
    plain, changed = (
        (np.array([row]), np.array([response]))
        for row, response in zip(pair.rows, pair.responses, strict=True)
    )
    matrix, step = np.diag(pair.diagonal), np.array(pair.step)
    if facts.linear:
        # Residuals so large that c is the largest that there is.
        first = upper_triangle(np.diag([*pair.diagonal, 10.0 * _ROWS]))
    else:
        newton = facts.newton()
        triangle = newton.curving * upper_triangle(matrix)
        first = np.concatenate([matrix @ step / newton.reach, triangle, [0.0]])
    words = (
        f"infer: {family}, {len(facts.courses())} rounds",
        "the other parties send what makes the replaced row count for as much as it can",
    )
    return _case(planned, (plain, changed), words, noise_scale, first)
