r"""Regressions with intervals, from a few rounds of private sums.

**Newton families** (binomial, poisson, survival; :mod:`dpadmm.studies.families`). Four rounds with
the parts .08, .12, .25 and .55 of :math:`\mu^2`. Round t releases, at a public point
:math:`\beta_t` and in the coordinates of a public matrix T,

.. math:: \tilde g = \sum_k g_k + \xi_g,\quad \tilde H = \sum_k H_k + E,\quad
          \tilde q = \sum_k q_k + \xi_q,\qquad
          \beta_{t+1} = \beta_t + T^\top\tilde H_+^{-1}\tilde g,

E symmetric; :math:`H_+` has no eigenvalue below :math:`\omega = 2 s_H\sqrt p`, the largest that
noise alone has (:math:`s_H` its deviation beside the diagonal, p coefficients).

* :math:`T = I` in the first round. Its matrix says where the rows lie, and from then on

  .. math:: T = \alpha\,\tilde H_+^{-1/2},\qquad \text{mean of }\|Tu\|^2 = 1/1.5:

  rows have the same spread in all directions, the noise meets all coefficients alike, and columns
  that are correlated, skewed or far from the middle of their bounds cost little more than others.
* The covariance of the last step, in coordinates of T, with d the step itself:

  .. math:: V = \tilde H_+^{-1}\bigl[b\tilde H_+ + s_g^2 I + s_H^2(|d|^2 I + dd^\top)\bigr]
                \tilde H_+^{-1}.

  b is the trace of the scores' second moment, :math:`\tilde q`, over that of the curvature: one for
  a model that is right and rows of which none is shortened. Noise counts as all that there is in
  the sum, which is more than the guarantee counts on where parties collude.

**Linear regression** (gaussian) has two rounds. The response is in [-1, 1] by public bounds.

1. .35 of :math:`\mu^2`: :math:`\sum_k w_kw_k^\top` with
   :math:`w = (u, y)/\max(1,\|u\|,|y|)`. *The whole row* is scaled, so that it stays on the plane
   that is looked for; :math:`\|w\|^2\le 2` and
   :math:`\|ww^\top-w'w'^\top\|_F^2 = \|w\|^4+\|w'\|^4-2(w\cdot w')^2\le 8`. This gives a first
   :math:`\theta_1`, T, and a bound c of 2.5 deviations of the residual, noise counted.
2. .65 of :math:`\mu^2`, with :math:`\rho=\mathrm{clip}((y-u\theta_1)/c,\pm1)` and :math:`\hat u, m`
   as for the others,

   .. math:: \Bigl(\rho m\hat u,\;\tfrac1{\sqrt2}\rho^2m^2\hat u\hat u^\top,\;
             \kappa\hat u\hat u^\top,\;\nu\|\rho m\hat u\|^2,\;\nu 1_{|\rho|<1}\Bigr),\qquad
             \Delta^2 = 4 + 2\kappa^2 + 2\nu^2,\quad\kappa=\tfrac12,\;\nu=0.4.

   The first two are :math:`(x, xx^\top/\sqrt2)` of a vector with :math:`\|x\|\le1`, and with
   :math:`a=\|x\|^2, b=\|x'\|^2, v=x\cdot x'` move by
   :math:`a+b-2v+\frac12(a^2+b^2)-v^2\le 3-2v-v^2 = 4-(1+v)^2\le 4`: the second moment of the
   scores, which robust errors need, is *free*. With f the part of residuals within c,
   :math:`\theta_2=\theta_1+T^\top(f\tilde A_+)^{-1}c\,\tilde g` and

   .. math:: V = (f\tilde A_+)^{-1}\bigl[B + c^2s_g^2I + f^2s_A^2(|d|^2I+dd^\top)\bigr]
                 (f\tilde A_+)^{-1},

   B is the released second moment: errors are robust. A multiple of A would say too much of columns
   whose rows are shortened more than others, and too little of the rest.

**When it works.** Before anything is spent :math:`q = n\bar\mu/p^{1.5}` is known, :math:`\bar\mu`
being one over the noise in the sum in units of a row: too small a q is refused or warned of
(:func:`check_strength`). Afterwards the *ratio* of the smallest eigenvalue to :math:`\omega` is: an
interval whose ratio is too small is not given.

One Newton step is right to second order in what separates its beginning from its end. Begun where
coefficients are too short it ends too short, the curvature there is too large, and noise hides
both: intervals are narrow and miss. So those of chances are warned of unless the last step *began*
well. The ratio of the round before must be 1.5. And either noise moved the beginning by little
(:math:`s_g\,\|\tilde H_+^{-1}\|_F/\sqrt{1.5\,p}\le 0.15`, of the step before), or outcomes scatter
there as the curvature says, :math:`b\ge 0.8`: where chances are too even, b is too small. And no
direction may have a curvature below 0.08 of the largest: rows spread alike in all of them, so that
outcomes are all but decided there, for which a step of second order is too short.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, ClassVar, Final, Literal, NamedTuple, final

import numpy as np
from pydantic import Field, model_validator

from dpadmm.algorithms import INFER
from dpadmm.algorithms.base import Options
from dpadmm.errors import ConvergenceError, ParameterError
from dpadmm.plain import Array
from dpadmm.run.charges import EvaluationTerms
from dpadmm.run.plan import Plan
from dpadmm.studies.families import (
    SQUARES,
    Family,
    Point,
    bounded_rows,
    linear_predictor,
    newton_family,
)
from dpadmm.studies.study import (
    Block,
    Study,
    StudyOptions,
    Sums,
    from_triangle,
    plan_study,
    upper_triangle,
)

#: The constant of a row whose columns have norm 1 at most.
CONSTANT: Final = 0.5
# Parts of mu^2 of the rounds.
NEWTON_SHARES: Final = (0.08, 0.12, 0.25, 0.55)
LINEAR_SHARES: Final = (0.35, 0.65)
# Rows in coordinates of T have a mean square of one over this.
_ROOM: Final = 1.5
# Of the second round of a linear regression: kappa, nu, and the bound in residual deviations.
_CURVING: Final = 0.5
_COUNTING: Final = 0.4
_DEVIATIONS: Final = 2.5
# No Newton step changes the linear predictor of a typical row by more.
_LONGEST_STEP: Final = 4.0
# The same of a fit without privacy, which has as many steps as it needs.
_LONGEST_CHANGE: Final = 1.0
# A last step is short: as a change of the linear predictor of a typical row, or beside its noise.
# Being short beside long coefficients is not enough: at a logit deviation of 3, intervals after
# such steps cover 80 to 90%.
_SHORT_STEP: Final = 0.3
_NOISY_STEP: Final = 1.6
# A fit without privacy ends where steps are so short, and is refused after so many.
_CONVERGED: Final = 1e-11
_MOST_STEPS: Final = 100
_SINGULAR: Final = 1e-13
# A sum of squares is no less, whatever its noise.
_LEAST_SQUARES: Final = 1.0
# The scores' second moment over the curvature: beyond, noise alone says so.
_SHARES_OF_SCORES: Final = (0.1, 10.0)
# The last step began well: the ratio of the step before, and how much of what the curvature says
# outcomes scatter by, or what noise moved a typical row's predictor by.
_TOLD: Final = 1.5
_AGREEING: Final = 0.8
_QUIET: Final = 0.15
# The curvature of a direction, beside the largest: below, its outcomes are all but decided.
_UNDECIDED: Final = 0.08


class InferOptions(StudyOptions):
    """The options of a regression; all of them public."""

    family: Literal["gaussian", "binomial", "poisson", "survival"]
    columns: int = Field(ge=1, description="of a prepared row, without the constant")
    periods: int | None = Field(None, ge=1, le=200, description="of survival")

    @model_validator(mode="after")
    def _periods_are_of_survival(self) -> InferOptions:
        if (self.periods is None) == (self.family == "survival"):
            raise ValueError(
                f"periods must be given for the family 'survival' and for no other; got "
                f"{self.periods!r} for {self.family!r}."
            )
        return self


@final
@dataclass(frozen=True)
class RegressionFacts:
    """What a regression is about: public, and small.

    Attributes
    ----------
    family, columns, periods
        As in :class:`InferOptions`.
    rows
        Of all parties together.
    """

    family: str
    columns: int
    periods: int | None
    rows: int

    @property
    def constants(self) -> int:
        """How many constants there are: one of each period, or one."""
        return 1 if self.periods is None else self.periods

    @property
    def size(self) -> int:
        """P, the number of coefficients."""
        return self.constants + self.columns

    @property
    def matrix(self) -> int:
        """Numbers of a symmetric matrix."""
        return self.size * (self.size + 1) // 2

    @property
    def linear(self) -> bool:
        """Whether it is a linear regression."""
        return self.family == "gaussian"

    def newton(self) -> Family:
        """The family of Newton steps."""
        return newton_family(self.family, self.periods)

    def courses(self) -> tuple[tuple[Block, ...], ...]:
        """One block a round."""
        if not self.linear:
            family = self.newton()
            size = self.size + self.matrix + 1
            return tuple(
                (Block("newton", size, family.sensitivity, family.largest, share),)
                for share in NEWTON_SHARES
            )
        moments = (self.size + 1) * (self.size + 2) // 2
        delta = math.sqrt(4 + 2 * _CURVING**2 + 2 * _COUNTING**2)
        longest = math.sqrt(1.5 + _CURVING**2 + 2 * _COUNTING**2)
        size = self.size + 2 * self.matrix + 2
        return (
            (Block("moments", moments, math.sqrt(8), 2.0, LINEAR_SHARES[0]),),
            (Block("scores", size, delta, longest, LINEAR_SHARES[1]),),
        )

    def rows_of(self, columns: Array) -> Array:
        """``u`` of prepared columns; survival has the constant of one period in front."""
        constant = np.full((len(columns), 1), CONSTANT)
        return np.hstack([constant, columns]) / math.hypot(1.0, CONSTANT)

    def to_prepared(self) -> Array:
        """The matrix that turns coefficients of u into those of constants and columns."""
        scale = np.full(self.size, 1.0)
        scale[: self.constants] = CONSTANT
        return np.diag(scale / math.hypot(1.0, CONSTANT))


class _Heard(NamedTuple):
    """What one round released, in counts of rows, and the variance of each number."""

    numbers: Array
    variance: float


@final
@dataclass(frozen=True)
class Coefficients:
    """Coefficients of prepared columns, constants first.

    Attributes
    ----------
    coefficients, covariance
        What was found, and how well it is known: sampling and noise.
    robust
        The covariance where residuals may vary with the columns; linear regression only.
    ratio
        The smallest eigenvalue of the noisy matrix over the largest of noise alone; infinite
        without noise.
    scale
        The residual variance of a linear regression, else 1.
    settled
        Whether the last step was short, or no longer than its noise.
    begun
        Whether the last step began where it must: see *When it works*.
    """

    coefficients: Array
    covariance: Array
    ratio: float
    scale: float = 1.0
    robust: Array | None = field(default=None)
    settled: bool = True
    begun: bool = True

    def mapped(self, change: Array) -> Coefficients:
        """Of other coefficients, a linear map of these."""
        robust = None if self.robust is None else change @ self.robust @ change.T
        covariance = change @ self.covariance @ change.T
        coefficients = change @ self.coefficients
        return replace(self, coefficients=coefficients, covariance=covariance, robust=robust)


class _Root(NamedTuple):
    """A noisy symmetric matrix by its eigenvalues, none of them below the noise's."""

    values: Array
    vectors: Array
    ratio: float

    @classmethod
    def of(cls, matrix: Array, noise: float) -> _Root:
        """Of a matrix whose entries beside the diagonal have noise of this deviation."""
        values, vectors = np.linalg.eigh(matrix)
        edge = 2 * noise * math.sqrt(len(matrix))
        ratio = math.inf if edge == 0 else float(values[0]) / edge
        return cls(np.maximum(values, edge), vectors, ratio)

    def solve(self, vectors: Array) -> Array:
        """The inverse times a vector, or a matrix of them."""
        along = self.vectors.T @ vectors
        return self.vectors @ (along / (self.values if along.ndim == 1 else self.values[:, None]))

    def whole(self) -> Array:
        """The matrix."""
        return (self.vectors * self.values) @ self.vectors.T

    def whitening(self, rows: float) -> Array:
        """T: so many rows whose second moment this is get a mean square of one over _ROOM."""
        spread = self.values / rows
        return (self.vectors / np.sqrt(spread * len(spread) * _ROOM)).T

    def sandwich(self, meat: Array) -> Array:
        """The inverse around a matrix."""
        return self.solve(self.solve(meat).T)


def _step_noise(step: Array, deviation: float) -> Array:
    """The covariance of ``E d`` for symmetric noise E with that deviation beside the diagonal."""
    return deviation**2 * (step @ step * np.eye(len(step)) + np.outer(step, step))


@final
@dataclass(frozen=True)
class _Path:
    """Where a regression stands after some rounds: a function of what was released."""

    point: Point
    clip: float = math.inf
    estimate: Coefficients | None = None
    ratio: float = math.inf
    noisy: float = 0.0


def _newton_step(facts: RegressionFacts, path: _Path, heard: _Heard, first: bool) -> _Path:
    """One step; see the equations of this module."""
    family, size, point = facts.newton(), facts.size, path.point
    deviation = math.sqrt(heard.variance)
    gradient = heard.numbers[:size] * family.reach
    matrix = from_triangle(heard.numbers[size : size + facts.matrix]) / family.curving
    squares = float(heard.numbers[-1]) / SQUARES * family.reach**2
    matrix_noise = deviation / (family.curving * math.sqrt(2))
    root = _Root.of(matrix, matrix_noise)
    step = root.solve(gradient)
    if first:
        curvature = float(family.moments(np.full(1, family.start), np.zeros(1))[1][0])
        moments = root.whole() / curvature
        seen = _rows_seen(facts, moments)
        noise = (deviation * family.reach) ** 2 + (matrix_noise * np.linalg.norm(step)) ** 2
        excess = float(noise * (1 / root.values).sum()) / (curvature * seen)
        beta = _looked_ahead(facts, family, step, moments, seen, excess)
        return _Path(Point(beta, root.whitening(curvature * seen)))
    # By so much a step, and its noise, change the linear predictor of a typical row.
    typical = math.sqrt(_ROOM * size)
    moved = float(np.linalg.norm(step)) / typical
    noisy = deviation * family.reach * math.sqrt(float(np.sum(root.values**-2.0))) / typical
    step *= min(1.0, _LONGEST_STEP / max(moved, 1e-300))
    beta = point.beta + point.map.T @ step
    share = float(np.clip(squares / root.values.sum(), *_SHARES_OF_SCORES))
    meat = share * root.whole() + _step_noise(step, matrix_noise)
    meat += (deviation * family.reach) ** 2 * np.eye(size)
    begun = path.ratio >= _TOLD and (share >= _AGREEING or path.noisy <= _QUIET)
    begun = begun and bool(root.values[0] >= _UNDECIDED * root.values[-1])
    estimate = Coefficients(
        beta,
        point.map.T @ root.sandwich(meat) @ point.map,
        root.ratio,
        settled=min(moved, _LONGEST_STEP) <= max(_SHORT_STEP, _NOISY_STEP * noisy),
        begun=begun or not family.scattering,
    )
    return _Path(Point(beta, point.map), estimate=estimate, ratio=root.ratio, noisy=noisy)


def _looked_ahead(
    facts: RegressionFacts, family: Family, step: Array, moments: Array, seen: float, excess: float
) -> Array:
    r"""Where many steps from zero would lead if columns were normal, from the first one.

    The first step is that of least squares. For normal columns its slopes are
    :math:`E[\mu'(\eta)]/\mu'(0)` times those that are looked for (Stein's lemma), and its fit at
    the mean of the columns is the mean response. ``excess`` is what noise adds to the variance of
    the fit. A start only: later rounds correct it.
    """
    count = facts.constants
    slopes = step[count:]
    unit = CONSTANT / math.hypot(1.0, CONSTANT)
    weights = np.maximum(np.diag(moments)[:count] / unit**2, 1e-3 * seen)
    # Of the rows of each constant: the mean of the columns, and of the linear predictor.
    means = moments[:count, count:] / unit / weights[:, None]
    fitted = unit * step[:count] + means @ slopes
    spread = moments[count:, count:] - means.T @ (means * weights[:, None])
    square = float(slopes @ spread @ slopes) / float(weights.sum()) - excess
    deviation = math.sqrt(max(square, 0.0))
    factor, levels = family.ahead(fitted, deviation, weights)
    slopes = slopes * factor
    return np.concatenate([(levels - means @ slopes) / unit, slopes])


def _rows_seen(facts: RegressionFacts, moments: Array) -> float:
    """How many rows there are; of survival, periods at risk of all persons."""
    if facts.periods is None:
        return float(facts.rows)
    of_one = CONSTANT**2 / (1 + CONSTANT**2)
    constants = float(np.trace(moments[: facts.periods, : facts.periods]))
    return float(np.clip(constants / of_one, facts.rows / 10, facts.rows * facts.periods))


def _first_line(facts: RegressionFacts, heard: _Heard) -> _Path:
    """The first round of a linear regression."""
    size = facts.size
    deviation = math.sqrt(heard.variance)
    moments = from_triangle(heard.numbers)
    root = _Root.of(moments[:size, :size], deviation / math.sqrt(2))
    beta = root.solve(moments[:size, size])
    across = np.append(-beta, 1.0)
    left = float(across @ moments @ across) / facts.rows
    noise = deviation * float(across @ across) / facts.rows
    clip = _DEVIATIONS * math.sqrt(max(left, 0.0) + 2 * noise)
    return _Path(Point(beta, root.whitening(facts.rows)), clip=min(clip, 2.0))


def _second_line(facts: RegressionFacts, path: _Path, heard: _Heard) -> _Path:
    """The second one."""
    size, point, clip = facts.size, path.point, path.clip
    deviation = math.sqrt(heard.variance)
    ends = np.cumsum([size, facts.matrix, facts.matrix])
    gradient, scores, matrix, counts = np.split(heard.numbers, ends)
    second_moment = from_triangle(scores) * math.sqrt(2) * clip**2
    matrix_noise = deviation / (_CURVING * math.sqrt(2))
    root = _Root.of(from_triangle(matrix) / _CURVING, matrix_noise)
    squares, within = counts / _COUNTING
    part = float(np.clip(within / facts.rows, 0.5, 1.0))
    step = root.solve(gradient) * (clip / part)
    freedom = facts.rows / max(facts.rows - size, 1)
    scale = freedom * clip**2 * max(float(squares), _LEAST_SQUARES) / float(root.values.sum())
    noise = (clip * deviation) ** 2 * np.eye(size) + _step_noise(part * step, matrix_noise)

    # Noise may leave a direction without scatter; all of it is counted beside.
    values, vectors = np.linalg.eigh(freedom * second_moment)
    meat = (vectors * np.maximum(values, 0.0)) @ vectors.T + noise
    errors = point.map.T @ root.sandwich(meat) @ point.map / part**2
    beta = point.beta + point.map.T @ step
    estimate = Coefficients(beta, errors, root.ratio, scale, robust=errors)
    return _Path(Point(beta, point.map), clip, estimate)


@lru_cache(maxsize=64)
def _path_after(facts: RegressionFacts, heard: tuple[tuple[bytes, float], ...]) -> _Path:
    """Where a regression stands after what was released; asked for with every piece of rows."""
    beta = np.zeros(facts.size)
    if not facts.linear:
        beta[: facts.constants] = facts.newton().start * math.hypot(1.0, CONSTANT) / CONSTANT
    path = _Path(Point(beta, np.eye(facts.size)))
    for t, (numbers, variance) in enumerate(heard):
        released = _Heard(np.frombuffer(numbers), variance)
        if facts.linear:
            path = _second_line(facts, path, released) if t else _first_line(facts, released)
        else:
            path = _newton_step(facts, path, released, first=t == 0)
    return path


@final
@dataclass(frozen=True, kw_only=True)
class Regression(Study):
    """A regression: rows are prepared columns, and responses as their family has them.

    Attributes
    ----------
    facts
        What it is about.
    """

    name: ClassVar[str] = INFER
    paper: ClassVar[str] = "private Newton steps and two-stage least squares, from sums"
    options: ClassVar[type[Options]] = InferOptions

    facts: RegressionFacts

    @classmethod
    def told(cls, options: InferOptions) -> dict[str, Any]:
        """What it is about, and its rounds."""
        facts = RegressionFacts(options.family, options.columns, options.periods, options.rows)
        return {"facts": facts, "courses": facts.courses()}

    def path(self, state: Sums, t: int) -> _Path:
        """Where it stands before round t."""
        heard = []
        for done, course in enumerate(self.courses[:t]):
            numbers, variance = self.block(state, done, course[0].name)
            heard.append((numbers.tobytes(), variance))
        return _path_after(self.facts, tuple(heard))

    def add_up(self, state: Sums, t: int, rows: Array, responses: Array) -> Array:
        """The block of round t over some rows."""
        with np.errstate(all="ignore"):
            path, u = self.path(state, t), self.facts.rows_of(rows)
            if not self.facts.linear:
                family = self.facts.newton()
                gradient, matrix, squares = family.contributions(u, responses, path.point)
                parts = (gradient, family.curving * upper_triangle(matrix), [SQUARES * squares])
                return np.concatenate(parts)
            if t == 0:
                return _moments(u, responses[:, 0])
            return _scores(u, responses[:, 0], path)

    def estimate(self, state: Sums) -> Coefficients:
        """Coefficients of prepared columns, after the last round."""
        found = self.path(state, len(self.courses)).estimate
        assert found is not None
        return found.mapped(self.facts.to_prepared())

    @property
    def strength(self) -> float:
        r""":math:`q = n\bar\mu/p^{1.5}`, with all the noise that there is in a sum."""
        budget = self.scale / math.sqrt(self.variance)
        return float(self.facts.rows * budget / self.facts.size**1.5)


def plan_regression(
    facts: RegressionFacts, rows: Mapping[str, int], terms: EvaluationTerms
) -> Plan:
    """Fix a regression of so many rows of each party, all of those that its facts count."""
    options = {"family": facts.family, "columns": facts.columns, "periods": facts.periods}
    return plan_study(Regression, options, rows, terms, rounds=len(facts.courses()))


# Of a typical row: the curvature of each family. Of survival it is a person's chance of the event.
_TYPICAL: Final = {"binomial": 0.2, "poisson": 0.8, "survival": 0.3}


def expected_width(study: Regression) -> float:
    r"""How wide intervals will be, relative to those without privacy: a guess from public facts.

    .. math:: \sqrt{1 + s_g^2/\bar h},\qquad \bar h = \frac{n h}{1.5\,p},

    as if rows were spread evenly in the coordinates of T, with a typical curvature h.
    """
    facts, (block,) = study.facts, study.courses[-1]
    variance = study.variance / (block.scale * study.scale) ** 2
    rows = facts.rows / (_ROOM * facts.size)
    if facts.linear:
        return math.sqrt(1 + _DEVIATIONS**2 * variance / rows)
    reach = facts.newton().reach
    return math.sqrt(1 + reach**2 * variance / (rows * _TYPICAL[facts.family]))


def _moments(u: Array, response: Array) -> Array:
    """The sum of ``w w'``."""
    w = np.column_stack([u, response])
    w = np.clip(np.nan_to_num(w, posinf=0.0, neginf=0.0), -1e9, 1e9)
    longest = np.maximum(np.linalg.norm(w[:, :-1], axis=1), np.abs(w[:, -1]))
    w /= np.maximum(1.0, longest)[:, None]
    return upper_triangle(w.T @ w)


def _scores(u: Array, response: Array, path: _Path) -> Array:
    """The sum of the second round of a linear regression."""
    short, factor = bounded_rows(u @ path.point.map.T)
    residual = np.nan_to_num(response) - linear_predictor(u, path.point.beta)
    residual = np.clip(residual / path.clip, -1.0, 1.0)
    scores = short * (residual * factor)[:, None]
    return np.concatenate(
        [
            scores.sum(axis=0),
            upper_triangle(scores.T @ scores) / math.sqrt(2),
            _CURVING * upper_triangle(short.T @ short),
            _COUNTING * np.array([np.square(scores).sum(), np.count_nonzero(abs(residual) < 1)]),
        ]
    )


def exact_estimate(facts: RegressionFacts, parties: Sequence[tuple[Array, Array]]) -> Coefficients:
    """The estimate without privacy or bounds: maximum likelihood, or least squares.

    Parameters
    ----------
    facts
        What it is about.
    parties
        Prepared columns and responses of each.
    """
    given = [(facts.rows_of(rows), responses) for rows, responses in parties]
    found = _least_squares(facts, given) if facts.linear else _likeliest(facts, given)
    return found.mapped(facts.to_prepared())


def _least_squares(facts: RegressionFacts, given: Sequence[tuple[Array, Array]]) -> Coefficients:
    matrix = _total(u.T @ u for u, _ in given)
    root = _full_rank(matrix)
    beta = np.zeros(facts.size)
    # Once more for what rounding left.
    for _ in range(2):
        beta = beta + root.solve(_total(u.T @ (y[:, 0] - u @ beta) for u, y in given))
    left = [(u, y[:, 0] - u @ beta) for u, y in given]
    freedom = facts.rows - facts.size
    if freedom < 1:
        raise ParameterError(
            f"rows must be more than the {facts.size} coefficients; got {facts.rows}."
        )
    scale = float(sum(residual @ residual for _, residual in left)) / freedom
    meat = _total((u * np.square(residual)[:, None]).T @ u for u, residual in left)
    robust = root.sandwich(meat) * (facts.rows / freedom)
    return Coefficients(beta, scale * root.solve(np.eye(facts.size)), math.inf, scale, robust)


def _likeliest(facts: RegressionFacts, given: Sequence[tuple[Array, Array]]) -> Coefficients:
    family, point = facts.newton(), Point(np.zeros(facts.size), np.eye(facts.size))
    for _ in range(_MOST_STEPS):
        found = [family.contributions(u, y, point, bounded=False) for u, y in given]
        gradient, matrix = _total(each[0] for each in found), _total(each[1] for each in found)
        root = _full_rank(matrix)
        step = root.solve(gradient)
        largest = float(np.abs(step).max())
        # Far from the answer a whole step may leave the region where it means anything.
        moved = math.sqrt(sum(_change(facts, u, step) for u, _ in given) / facts.rows)
        beta = point.beta + step * min(1.0, _LONGEST_CHANGE / max(moved, 1e-300))
        point = Point(beta, point.map)
        if largest <= _CONVERGED * max(1.0, float(np.abs(beta).max())):
            return Coefficients(beta, root.solve(np.eye(facts.size)), math.inf)
    raise ConvergenceError(
        f"coefficients must settle within {_MOST_STEPS} steps; they still move by {largest:.2g}. "
        "Some columns may separate the outcomes: leave them out."
    )


def _change(facts: RegressionFacts, u: Array, step: Array) -> float:
    """The sum of squares of what a step changes the linear predictor by, over constants alike."""
    count = facts.constants
    found = (u[:, 1:] @ step[count:])[:, None] + u[:, :1] * step[:count]
    return float(np.square(found).sum()) / count


def _full_rank(matrix: Array) -> _Root:
    """A matrix that has an inverse; or a refusal."""
    root = _Root.of(matrix, 0.0)
    if not root.values[0] > _SINGULAR * root.values[-1]:
        raise ConvergenceError(
            "columns must not be constant, duplicates or sums of each other, nor separate the "
            "outcomes: their matrix has no inverse. Leave some of them out."
        )
    return root


def _total(sums: Iterable[Array]) -> Array:
    """The sum of arrays."""
    each = iter(sums)
    total = next(each)
    for further in each:
        total = total + further
    return total
