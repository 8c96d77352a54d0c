"""The worst two rows of each release: searched for with sums written down anew, row by row."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import poisson

import dpadmm.studies.glm as glm
from dpadmm.audit.algorithms import mechanism_case
from dpadmm.audit.studies import INFERRED
from dpadmm.studies.families import Point, newton_family
from dpadmm.studies.glm import RegressionFacts
from dpadmm.studies.study import from_triangle, upper_triangle

COLUMNS, PERIODS = 2, 3
NU = 0.3


def shortened(row):
    factor = 1 / max(1.0, float(np.linalg.norm(row)))
    return factor * row, factor


def chance_of(eta):
    return 1 / (1 + math.exp(-min(max(eta, -500.0), 500.0)))


def binomial(u, y, beta, T):
    short, factor = shortened(T @ u)
    chance = chance_of(u @ beta)
    return (y[0] - chance) * factor * short, chance * (1 - chance) * np.outer(short, short), 4.7


def counts(u, y, beta, T):
    short, factor = shortened(T @ u)
    rate = math.exp(min(max(float(u @ beta), -30.0), math.log(20)))
    every = np.arange(200)
    psi, weights = np.clip(every - rate, -2, 2), poisson.pmf(every, rate)
    expected = float(weights @ psi)
    curvature = float(weights @ ((psi - expected) * every))
    weight = 1 / max(1.0, curvature / 1.5)
    residual = weight * (float(np.clip(y[0] - rate, -2, 2)) - expected)
    slope = residual * factor / 2.0856 * short
    return slope, weight * curvature * np.outer(short, short), 0.5


def person(u, y, beta, T):
    """``u`` is (k, z): the constant of each period in its own place."""
    rows = np.zeros((PERIODS, PERIODS + len(u) - 1))
    rows[:, :PERIODS], rows[:, PERIODS:] = u[0] * np.eye(PERIODS), u[1:]
    mapped = rows @ T.T
    factor = 1 / max(1.0, float(np.linalg.norm(mapped, axis=1).max()))
    slope, matrix = np.zeros(len(beta)), np.zeros((len(beta), len(beta)))
    for t in range(int(y[0]), int(y[1])):
        chance = chance_of(rows[t] @ beta)
        happened = y[2] * (t == y[1] - 1)
        slope += (happened - chance) * factor**2 * mapped[t]
        matrix += chance * (1 - chance) * factor**2 * np.outer(mapped[t], mapped[t])
    slope *= 1.25 / max(1.25, float(np.linalg.norm(slope)))
    matrix *= 0.5 / max(0.5, float(np.linalg.norm(matrix)))
    return slope / 1.25, matrix, 1.6


def newton_vector(of_row):
    def vector(u, y, beta, T):
        slope, matrix, weight = of_row(u, y, beta, T)
        return np.concatenate([slope, weight * matrix.ravel(), [NU * (slope @ slope)]])

    return vector


def moments(u, y, beta, T):
    row = np.append(u, y[0]) / max(1.0, float(np.linalg.norm(u)), abs(y[0]))
    return np.outer(row, row).ravel()


def scores(u, y, beta, T):
    short, factor = shortened(T @ u)
    residual = min(max((y[0] - float(u @ beta)) / CLIP, -1.0), 1.0)
    score = residual * factor * short
    matrices = np.outer(score, score) / math.sqrt(2), 0.5 * np.outer(short, short)
    within = [0.4 * (score @ score), 0.4 * (abs(residual) < 1)]
    return np.concatenate([score, matrices[0].ravel(), matrices[1].ravel(), within])


CLIP = 0.7
# The vector of one row, responses to pair, and how much of the claim a search must reach: bounds
# that nothing comes near would waste noise.
RELEASES = {
    "binomial": (newton_vector(binomial), [((0,), (0,)), ((1,), (0,))], 0.9),
    "poisson": (newton_vector(counts), [((1e9,), (1e9,)), ((0,), (1e9,))], 0.9),
    "survival": (newton_vector(person), [((0, 3, 0), (0, 3, 0)), ((0, 3, 1), (1, 3, 0))], 0.95),
    "moments": (moments, [((0.3,), (-0.4,)), ((2.0,), (-3.0,))], 0.999),
    "scores": (scores, [((0.3,), (-0.4,)), ((2.0,), (-0.69,))], 0.94),
}


def facts_of(name):
    family = name if name in INFERRED else "gaussian"
    return RegressionFacts(family, COLUMNS, PERIODS if name == "survival" else None, 1000)


def sensitivity_of(name):
    place = -1 if name == "scores" else 0
    return facts_of(name).courses()[place][0].sensitivity


def library(name, u, y, point):
    """The same vector by the code that releases, with matrices as they are read again."""
    y = np.array([y], float)
    if name == "moments":
        return from_triangle(glm._moments(u[None], y[:, 0])).ravel()
    if name == "scores":
        found = glm._scores(u[None], y[:, 0], glm._Path(point, CLIP))
        size = len(point.beta)
        ends = np.cumsum([size, size * (size + 1) // 2, size * (size + 1) // 2])
        slope, first, second, rest = np.split(found, ends)
        return np.concatenate(
            [slope, from_triangle(first).ravel(), from_triangle(second).ravel(), rest]
        )
    family = newton_family(name, PERIODS if name == "survival" else None)
    slope, matrix, squares = family.contributions(u[None], y, point)
    assert upper_triangle(matrix) @ upper_triangle(matrix) == pytest.approx(np.sum(matrix**2))
    return np.concatenate([slope, family.curving * matrix.ravel(), [NU * squares]])


def unpacked(name, numbers):
    """Two rows, their responses moved a little, beta and T, from numbers without bounds."""
    facts = facts_of(name)
    rows, rest = np.split(numbers, [2 * COLUMNS])
    u = facts.rows_of(rows.reshape(2, COLUMNS))
    moved, beta, T = np.split(rest, [2, 2 + facts.size])
    return u, moved, beta, T.reshape(facts.size, facts.size)


def apart(name, numbers, responses):
    vector = RELEASES[name][0]
    u, moved, beta, T = unpacked(name, numbers)
    if name in ("moments", "scores"):
        responses = [(y[0] + step,) for y, step in zip(responses, moved, strict=True)]
    one, other = (vector(row, y, beta, T) for row, y in zip(u, responses, strict=True))
    return float(np.linalg.norm(one - other))


@pytest.mark.parametrize("name", RELEASES)
def test_sums_are_those_that_are_written_down(name):
    random = np.random.default_rng(0)
    for _ in range(50):
        numbers = random.choice([0.5, 2.0, 20.0]) * random.standard_normal(_size(name))
        u, _, beta, T = unpacked(name, numbers)
        for pair in RELEASES[name][1]:
            for row, y in zip(u, pair, strict=True):
                expected = RELEASES[name][0](row, y, beta, T)
                found = library(name, row, y, Point(beta, T))
                np.testing.assert_allclose(found, expected, atol=2e-9)


def _size(name):
    size = facts_of(name).size
    return 2 * COLUMNS + 2 + size + size**2


@pytest.mark.parametrize("name", RELEASES)
def test_no_search_finds_rows_that_move_a_release_by_more(name):
    random, largest, claimed = np.random.default_rng(1), 0.0, sensitivity_of(name)
    for pair in RELEASES[name][1]:
        drawn = random.choice([0.7, 1.5, 5.0, 30.0], (200, 1)) * random.standard_normal(
            (200, _size(name))
        )
        found = np.array([apart(name, numbers, pair) for numbers in drawn])
        for start in drawn[np.argsort(found)[-3:]]:
            best = minimize(
                lambda numbers, pair=pair: -apart(name, numbers, pair),
                start,
                method="Powell",
                options={"maxfev": 4000},
            )
            largest = max(largest, -float(best.fun), float(found.max()))
    assert largest <= claimed * (1 + 1e-9)
    assert largest >= RELEASES[name][2] * claimed


SHARES = {"gaussian": 0.95, "binomial": 0.98, "poisson": 0.82, "survival": 0.9}


@pytest.mark.parametrize("family", INFERRED)
def test_the_rows_of_the_audit_are_as_bad_as_that(family):
    case = mechanism_case(f"infer-{family}", 1.0, 1e-5)
    shifts = [case.shift(t) for t in range(len(case.study.courses))]
    moved = math.sqrt(sum(float(shift @ shift) for shift in shifts)) / float(case.study.sigma[0])
    assert SHARES[family] * case.claim.mu <= moved <= case.claim.mu
