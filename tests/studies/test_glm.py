"""What a row moves: sensitivities of regressions over pairs of rows."""

import math

import numpy as np
import pytest

import dpadmm.studies.glm as glm
from dpadmm.run.charges import EvaluationTerms
from dpadmm.studies.families import SQUARES, Point, clipped_poisson, newton_family
from dpadmm.studies.glm import CONSTANT, RegressionFacts, plan_regression
from dpadmm.studies.study import Sums, from_triangle, upper_triangle

FAMILIES = ["binomial", "poisson", "survival"]
PERIODS, COLUMNS = 4, 3


def _facts(family):
    return RegressionFacts(family, COLUMNS, PERIODS if family == "survival" else None, 1000)


def _study(family, epsilon=1.0, **terms):
    facts = _facts(family)
    rows = {"a": 400, "b": 300, "c": 300}
    return plan_regression(facts, rows, EvaluationTerms(epsilon, 1e-5, **terms)).algorithm


def _row(random, family):
    """A row of any content: within bounds, on them, far beyond, or nothing."""
    size = random.choice([0.0, 0.3, 1.0, 1.0, 5.0, 1e3, 1e300])
    columns = random.standard_normal(COLUMNS)
    columns *= size / np.linalg.norm(columns)
    if family == "survival":
        first = random.integers(0, PERIODS)
        stop = random.integers(first, PERIODS) + 1
        return columns, np.array([first, stop, random.integers(0, 2)], float)
    response = {
        "binomial": random.integers(0, 2),
        "poisson": random.choice([0, 1, 3, 10, 1e9, -5]),
        "gaussian": random.choice([-1, 1, 0.1, 40, -1e300]),
    }[family]
    return columns, np.array([response], float)


def _reachable(random, study):
    """Sums as noise alone may make them, small or huge: any of them is a public history."""
    size = random.choice([0.1, 1.0, 30.0, 1e3])
    rounds = len(study.courses)
    sums = size * math.sqrt(study.variance) * random.standard_normal((rounds, study.numbers))
    return Sums(sums, np.full(1, float(rounds)))


def _largest_ratio(study, family, pairs, seed=0):
    random, largest = np.random.default_rng(seed), 0.0
    for _ in range(pairs):
        state, t = _reachable(random, study), int(random.integers(len(study.courses)))
        (block,) = study.courses[t]
        one, other = (
            study.add_up(state, t, x[None], y[None])
            for x, y in (_row(random, family), _row(random, family))
        )
        assert np.isfinite(one).all()
        assert np.linalg.norm(one) <= block.largest * (1 + 1e-9)
        largest = max(largest, float(np.linalg.norm(one - other)) / block.sensitivity)
    return largest


@pytest.mark.parametrize("family", [*FAMILIES, "gaussian"])
def test_no_pair_of_rows_moves_a_round_by_more_than_it_says(family):
    ratio = _largest_ratio(_study(family), family, 500)
    assert 0.4 < ratio <= 1 + 1e-9


def test_a_bound_of_the_logistic_round_is_reached():
    family, point = newton_family("binomial", None), Point(np.array([40.0, 0.0]), np.eye(2))
    vectors = []
    for sign in (1.0, -1.0):
        response = np.array([[0.0 if sign > 0 else 1.0]])
        g, h, q = family.contributions(np.array([[sign, 0.0]]), response, point)
        vectors.append(np.concatenate([g, family.curving * upper_triangle(h), [SQUARES * q]]))
    # Both push the same way: opposite rows, both of them on the wrong side.
    assert np.linalg.norm(vectors[0] - vectors[1]) <= family.sensitivity
    other = Point(-point.beta, np.eye(2))
    g, h, q = family.contributions(np.array([[1.0, 0.0]]), np.array([[1.0]]), other)
    wrong = np.concatenate([g, family.curving * upper_triangle(h), [SQUARES * q]])
    assert np.linalg.norm(wrong - vectors[0]) == pytest.approx(2.0, rel=1e-6)


def test_the_curvature_of_a_logistic_regression_is_free():
    s = np.linspace(0.5, 1, 100001)
    family = newton_family("binomial", None)
    bracket = 4 * s**2 + 2 * (family.curving * s * (1 - s)) ** 2
    assert bracket.max() <= family.joint
    worse = 4 * s**2 + 2 * (1.05 * family.curving * s * (1 - s)) ** 2
    assert worse.max() > family.joint


def test_the_bounds_of_counts_hold_between_the_points_of_a_grid():
    family = newton_family("poisson", None)
    step = 5e-5
    rate = np.arange(step, family.most + step, step)
    expected, curvature = clipped_poisson(rate, family.clip)
    # Their slopes are at most 1 in size, so half a step more is a bound everywhere.
    assert np.abs(expected).max() + step <= family.reach - family.clip
    weight = family.curvature_reach / np.maximum(family.curvature_reach, curvature)
    bracket = 4 * (weight * (family.clip + np.abs(expected)) / family.reach) ** 2
    bracket += 2 * (family.curving * weight * curvature) ** 2
    assert bracket.max() <= family.joint


@pytest.mark.parametrize("rate", [0.01, 0.5, 1.0, 2.5, 5.9, 17.3])
def test_moments_of_a_clipped_count(rate):
    y = np.arange(200)
    chance = np.exp(y * np.log(rate) - rate - np.array([math.lgamma(k + 1) for k in y]))
    psi = np.clip(y - rate, -2, 2)
    expected, curvature = clipped_poisson(np.array([rate]), 2.0)
    mean = chance @ psi
    assert expected[0] == pytest.approx(mean, abs=1e-12)
    assert curvature[0] == pytest.approx(chance @ ((psi - mean) * y), abs=1e-10)


def test_sums_add_up_over_rows():
    random = np.random.default_rng(0)
    for family in [*FAMILIES, "gaussian"]:
        study = _study(family)
        state = _reachable(random, study)
        rows = [_row(random, family) for _ in range(40)]
        x, y = (np.array(part) for part in zip(*rows, strict=True))
        for t in range(len(study.courses)):
            whole = study.add_up(state, t, x, y)
            each = sum(study.add_up(state, t, x[k : k + 1], y[k : k + 1]) for k in range(40))
            np.testing.assert_allclose(whole, each, rtol=1e-9, atol=1e-12)


def test_sums_of_persons_are_those_of_their_periods_shortened_as_a_whole():
    random, periods, columns = np.random.default_rng(3), 4, 3
    size = periods + columns
    family = newton_family("survival", periods)
    rows = np.hstack([np.full((200, 1), 0.45), random.standard_normal((200, columns))])
    rows[0, 1:] = 1e7
    told = np.column_stack(
        [random.integers(0, 3, 200), random.integers(2, 5, 200), np.arange(200) % 2]
    )
    point = Point(random.standard_normal(size), random.standard_normal((size, size)))
    gradient, matrix, squares = np.zeros(size), np.zeros((size, size)), 0.0
    for row, (first, stop, event) in zip(rows, told, strict=True):
        own = np.zeros((periods, size))
        own[:, :periods], own[:, periods:] = row[0] * np.eye(periods), row[1:]
        mapped = own @ point.map.T
        short = mapped / max(1.0, np.linalg.norm(mapped, axis=1).max())
        factor = 1 / max(1.0, np.linalg.norm(mapped, axis=1).max())
        g, h = np.zeros(size), np.zeros((size, size))
        for t in range(first, stop):
            chance = 1 / (1 + np.exp(-np.clip(own[t] @ point.beta, -500, 500)))
            g += ((t == stop - 1) * event - chance) * factor * short[t]
            h += chance * (1 - chance) * np.outer(short[t], short[t])
        g /= max(1.25, np.linalg.norm(g))
        gradient, squares = gradient + g, squares + g @ g
        matrix += h * 0.5 / max(0.5, np.linalg.norm(h))
    found = family.contributions(rows, told.astype(float), point)
    np.testing.assert_allclose(found[0], gradient, atol=1e-9)
    np.testing.assert_allclose(found[1], matrix, atol=1e-9)
    assert found[2] == pytest.approx(squares)


def test_noise_of_a_matrix_is_symmetric():
    random = np.random.default_rng(0)
    draws = np.array([from_triangle(random.standard_normal(6)) for _ in range(20000)])
    assert (draws == draws.swapaxes(1, 2)).all()
    deviation = draws.std(axis=0)
    expected = np.where(np.eye(3), 1, math.sqrt(0.5))
    np.testing.assert_allclose(deviation, expected, rtol=0.05)
    step = np.array([1.0, -2.0, 0.5])
    found = np.cov((draws @ step).T)
    np.testing.assert_allclose(found, glm._step_noise(step, math.sqrt(0.5)), atol=0.15)


def test_a_first_line_keeps_rows_on_their_plane():
    """The whole row is scaled: a plane through rows within bounds is that of longer ones, too."""
    random = np.random.default_rng(0)
    facts = RegressionFacts("gaussian", 3, None, 1)
    u = facts.rows_of(3 * random.standard_normal((500, 3)))
    beta = np.array([0.1, 0.2, -0.3, 0.1])
    moments = from_triangle(glm._moments(u, u @ beta))
    across = np.append(-beta, 1.0)
    assert across @ moments @ across == pytest.approx(0, abs=1e-9)


def _step(family, share, before=math.inf, noisy=1.0, flat=1.0):
    """The estimate of a step without length, whose scores have a share of the curvature.

    ``flat`` is the curvature of one direction beside that of the others.
    """
    facts = _facts(family)
    size, kind = facts.size, facts.newton()
    matrix = 1000.0 * np.diag([flat, *[1.0] * (size - 1)])
    squares = share * np.trace(matrix) * SQUARES / kind.reach**2
    numbers = np.concatenate([np.zeros(size), kind.curving * upper_triangle(matrix), [squares]])
    path = glm._Path(Point(np.zeros(size), np.eye(size)), ratio=before, noisy=noisy)
    return glm._newton_step(facts, path, glm._Heard(numbers, 1.0), first=False)


def test_a_last_step_that_began_badly_is_told():
    for family in ("binomial", "survival"):
        assert _step(family, 0.9).estimate.begun
        assert not _step(family, 0.7).estimate.begun
        # Rows that are shortened have a small share, too: noise says that it is not the start.
        assert _step(family, 0.7, noisy=0.1).estimate.begun
        assert not _step(family, 0.9, before=1.4).estimate.begun
        # Outcomes that are all but decided in one direction.
        assert _step(family, 0.9, flat=0.1).estimate.begun
        assert not _step(family, 0.9, flat=0.07).estimate.begun
    # Clipped counts vary less than their curvature says.
    assert _step("poisson", 0.5, before=0.1).estimate.begun


def test_a_step_tells_the_next_one_its_ratio_and_its_noise():
    path = _step("binomial", 1.0)
    assert path.ratio == path.estimate.ratio
    # One unit of noise in each of p sums whose curvature is 1000; a typical row has 1 / 1.5 p.
    assert path.noisy == pytest.approx(0.001 / math.sqrt(1.5))


def test_the_strength_counts_all_the_noise_there_is():
    own, alone = _study("binomial"), _study("binomial", epsilon=3.0)
    shared = _study("binomial", noise="shared")
    assert alone.strength > own.strength
    # Three parties: own noise is sqrt(3) times the noise of one, shared noise sqrt(3/2).
    assert shared.strength / own.strength == pytest.approx(math.sqrt(2), rel=1e-3)
    assert CONSTANT > 0
