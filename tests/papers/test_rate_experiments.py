"""Rates: the averages and their objective against independent computation, and verdicts."""

from typing import ClassVar

import numpy as np
import pytest
from scipy.optimize import minimize
from tests.helpers.small_experiments import SMALL

from dpadmm.experiments.jobs import Result, TrainingJob
from dpadmm.privacy.noise import SimulatedNoise
from dpadmm.problem.losses import get_loss
from dpadmm.run.options import TrainingParameters
from dpadmm.run.session import lay_out, train
from dpadmm_papers.iterates import IterateJob, Objective, rate
from dpadmm_papers.rates import RateExperiment, looks_until, rate_conclusions


def objective(tilts=0.0, regularization=0.3):
    problem = SMALL.load()
    parties = len(problem.members)
    shape = (parties, 2, problem.features)
    noise = tilts * np.random.default_rng(0).normal(size=shape)
    weights = np.linspace(0.5, 1.5, parties)
    return Objective(problem, get_loss("logistic"), weights, regularization, noise)


def written_out(told, points):
    """sum_i f_i(x_i) of one run, row by row."""
    total = 0.0
    for i, (rows, signs) in enumerate(told.problem.members):
        losses = [
            np.log1p(np.exp(-s[0] * (row @ points[i]))) for row, s in zip(rows, signs, strict=True)
        ]
        total += told.weight[i] * np.mean(losses)
        total += told.regularization / (2 * len(points)) * points[i] @ points[i]
    return total


def test_the_objective_is_the_sum_over_parties():
    told = objective(tilts=0.1)
    points = np.random.default_rng(1).normal(size=told.tilts.shape)
    for run in range(2):
        direct = written_out(told, points[:, run])
        direct += sum(told.tilts[i, run] @ points[i, run] for i in range(len(points)))
        assert told.value(points)[run] == pytest.approx(direct, rel=1e-12)


@pytest.mark.parametrize("tilts", [0.0, 0.1])
def test_the_minimum_is_the_one_that_another_solver_finds(tilts):
    told = objective(tilts=tilts)
    points, least = told.minimum()
    for run in range(2):
        linear = told.tilts[:, run].sum(axis=0)
        found = minimize(
            lambda w, linear=linear: written_out(told, [w] * 3) + linear @ w,
            np.zeros(points.shape[1]),
            method="BFGS",
            options={"gtol": 1e-9},
        )
        assert least[run] == pytest.approx(found.fun, abs=1e-10)
        np.testing.assert_allclose(points[run], found.x, atol=1e-5)
    if not tilts:
        np.testing.assert_array_equal(points[0], points[1])


def job(algorithm, rounds=6, **options):
    parameters = TrainingParameters(
        algorithm, rounds=rounds, penalty=0.1, regularization=0.3, party_weight="equal", **options
    )
    return TrainingJob(SMALL, parameters, runs=2, seed=4)


def messages_of(told):
    """What parties send in every round, from the engine."""
    problem = told.problem.load()
    planned, _ = told.plan(problem)
    noise = SimulatedNoise(told.seed)
    sent = []
    shard = lay_out(planned, problem.members, noise=noise)
    train(planned, shard, noise=noise, on_round=lambda done, values: sent.append(values[:, :, 0]))
    return np.array(sent)


def excess_of(told, points):
    problem = told.problem.load()
    planned, _ = told.plan(problem)
    return Objective(
        problem,
        planned.site.loss,
        planned.site.weight,
        planned.site.regularization,
        np.zeros(points.shape),
    )


def test_without_noise_iterates_are_messages_and_their_averages_are_judged():
    told = job("admm")
    found = IterateJob(told, (1, 3, 6)).compute().values
    np.testing.assert_array_equal(found["excess"], found["released"])
    sent = messages_of(told)
    for place, look in enumerate((1, 3, 6)):
        average = sent[:look].mean(axis=0)
        judge = excess_of(told, average)
        expected = judge.value(average) - judge.minimum()[1]
        np.testing.assert_allclose(found["excess"][place], expected, atol=1e-12)
        apart = np.linalg.norm(average - average.mean(axis=0), axis=2).sum(axis=0)
        np.testing.assert_allclose(found["apart"][place], apart, atol=1e-12)


def test_noise_is_in_the_messages_and_not_in_the_iterates():
    told = job("pr-admm", rounds=1, epsilon=0.5, delta=1e-3)
    found = IterateJob(told, (1,)).compute().values
    # The first iterate is a function of the rows alone: the same in every run.
    assert found["excess"][0, 0] == pytest.approx(found["excess"][0, 1], abs=1e-12)
    assert abs(found["released"][0, 0] - found["released"][0, 1]) > 1e-4


def test_around_a_server_criterion_9_has_z_from_the_messages():
    told = job("scas-admm", rounds=4, algorithm_options={"inner_steps": 5, "batch_size": 2})
    found = IterateJob(told, (4,)).compute().values
    sent = messages_of(told)
    penalty, regularization, parties = 0.1, 0.3, sent.shape[1]
    dual, centres = np.zeros(sent.shape[1:]), []
    for x in sent:  # (5) and (6) of the paper.
        z = (penalty * x + dual).sum(axis=0) / (regularization + parties * penalty)
        dual = dual + penalty * (x - z)
        centres.append(z)
    average, centre = sent.mean(axis=0), np.mean(centres, axis=0)
    apart = np.linalg.norm(average - centre, axis=2).sum(axis=0)
    np.testing.assert_allclose(found["apart"][0], apart, atol=1e-10)
    judge = excess_of(told, average)
    value = judge.losses(average) + regularization / 2 * np.square(centre).sum(axis=1)
    np.testing.assert_allclose(found["excess"][0], value - judge.minimum()[1], atol=1e-10)


def test_a_slope_is_that_of_a_power():
    looks = looks_until(1000)
    assert looks == (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
    assert looks_until(300)[-2:] == (200, 300)
    powers = np.array([-0.5, -1.0, -2.0])
    values = 3.0 * np.asarray(looks, dtype=float)[:, None] ** powers
    values[:5] = 7.0
    np.testing.assert_allclose(rate(looks, values, first=100), powers, rtol=1e-12)


class MadeUp(RateExperiment):
    name, citation, part, title, shown = "made-up", "nobody", "none", "none", "excess"
    settings: ClassVar = {}
    conclusions = rate_conclusions("It falls.", "It is bounded.")

    def followed(self):
        return {"a run": job("admm", rounds=100)}

    def swept(self):
        return {}

    def bound(self, name, looks, result):
        return 10.0 / np.asarray(looks)


def made_up(course, runs, disagreement=lambda excess: 0 * excess):
    """What is found of a course whose parties are so far apart."""
    looks = np.asarray(looks_until(100), dtype=float)
    noise = 1 + 1e-4 * np.linspace(-1, 1, runs) if runs > 1 else np.ones(1)
    excess = course(looks)[:, None] * noise
    values = {
        "excess": excess,
        "apart": disagreement(excess),
        **{name: np.ones(runs) for name in ("norm", "pull")},
        "ignorant": np.full(runs, 4.0),
    }
    found = MadeUp().evaluate({"a run": Result(values, {})}).findings
    return {each.conclusion: each for each in found}


@pytest.mark.parametrize(
    ("course", "order", "bounded"),
    [
        (lambda k: 5.0 / k, "stands", "stands"),
        (lambda k: 5.0 / np.sqrt(k), "does not stand", "does not stand"),
        (lambda k: 0.01 / np.sqrt(k), "does not stand", "stands"),
        (lambda k: 0.01 * np.ones_like(k), "does not stand", "stands"),
        (lambda k: 20.0 / k, "stands", "does not stand"),
    ],
)
def test_order_and_bound_are_judged_apart(course, order, bounded):
    found = made_up(course, 5)
    assert {name: each.verdict for name, each in found.items()} == {"rate": order, "bound": bounded}
    assert "Slope" in found["rate"].number
    # More runs would not decide it: a second look is not taken.
    assert MadeUp().cells()["a run"].further(5) is None


def settled(excess):
    """A disagreement that has not changed since the start, large enough for what is below 0."""
    return np.full_like(excess, -excess.min())


def just_enough(excess):
    """The least disagreement with which the objective can be so far below its minimum."""
    return np.maximum(-excess, 0)


@pytest.mark.parametrize("runs", [1, 5])
@pytest.mark.parametrize(
    ("course", "disagreement"),
    [
        # Each ends below 0, or just above, on its way to where it is too far from 0.
        (lambda k: 5.0 / np.sqrt(k) - 0.6, settled),
        (lambda k: 5.0 / np.sqrt(k) - 0.6, just_enough),
        (lambda k: -5.0 / np.sqrt(k), just_enough),
        (lambda k: 3.0 / k - 0.1, settled),
        (lambda k: 3.0 / k - 0.1, just_enough),
    ],
)
def test_a_slow_course_does_not_stand_because_it_ends_below_the_minimum(course, disagreement, runs):
    assert made_up(course, runs, disagreement)["rate"].verdict != "stands"


@pytest.mark.parametrize("runs", [1, 5])
@pytest.mark.parametrize("turn", [5, 30])
def test_a_fast_course_stands_whatever_its_sign(turn, runs):
    # 1/K from above to below, by parties whose disagreement is of the order 1/K, too.
    course = lambda k: (turn / k - 1) / k  # noqa: E731
    looks = np.asarray(looks_until(100), dtype=float)[:, None]
    found = made_up(course, runs, lambda excess: 5 / looks * np.ones_like(excess))
    assert found["rate"].verdict == "stands"


def test_a_bound_that_says_nothing_is_called_vacuous():
    # 10 / K is below what w = 0 has, 4, from K = 5 on.
    number = made_up(lambda k: 1.0 / k, 5)["bound"].number
    assert "Vacuous up to K = 2: at K = 2 it allows 5, and w = 0 has 4." in number


@pytest.mark.parametrize(
    ("course", "order"),
    [
        (lambda k: 5.0 / k, "stands"),
        (lambda k: 5.0 / np.sqrt(k), "does not stand"),
        # Falls fast and then not at all: between the two orders, by looks that disagree.
        (lambda k: 5.0 / np.minimum(k, 20) ** 3, "not decided"),
    ],
)
def test_a_single_run_is_judged_by_its_slope_and_that_of_its_last_step(course, order):
    assert made_up(course, 1)["rate"].verdict == order


@pytest.mark.parametrize("algorithm", ["admm", "consensus-admm"])
def test_nobody_is_further_below_the_minimum_than_their_disagreement_lets_them(algorithm):
    values = IterateJob(job(algorithm, rounds=20), (1, 2, 5, 10, 20)).compute().values
    assert (values["excess"] >= -values["pull"] * values["apart"] - 1e-12).all()
    # From the start in 0 they have come closer.
    assert (values["ignorant"] > values["excess"][-1]).all()


def test_the_slopes_are_those_of_differences():
    told = objective(tilts=0.1)
    points = np.random.default_rng(2).normal(size=told.tilts.shape)
    slopes, step = told.slopes(points), 1e-6
    direction = np.random.default_rng(3).normal(size=points.shape)
    ahead, behind = (told.value(points + sign * step * direction) for sign in (1, -1))
    expected = (slopes * direction).sum(axis=(0, 2))
    np.testing.assert_allclose((ahead - behind) / (2 * step), expected, rtol=1e-6)
