"""Generalisation error: rows drawn from a population, errors, bounds, and verdicts."""

from dataclasses import replace

import numpy as np
import pytest

from dpadmm.experiments.jobs import Result
from dpadmm.experiments.problems import NamedProblem
from dpadmm.problem.losses import get_loss
from dpadmm_papers.experiment import check_findings, ours
from dpadmm_papers.iterates import Objective
from dpadmm_papers.jobs import join
from dpadmm_papers.pdml.generalization import Generalization, OptimumJob, within_ball
from dpadmm_papers.preparations import ReportedProblem

WHOLE = NamedProblem("twonorm", 2, 300, 1, drawn_rows=2000)


@pytest.fixture(autouse=True)
def no_files(monkeypatch, tmp_path):
    """Draw what can be drawn, wherever the tests run."""
    monkeypatch.setenv("DPADMM_DATA", str(tmp_path))


def test_the_error_is_that_of_the_population_and_more_draws_go_on():
    job = OptimumJob(ReportedProblem(WHOLE, 1.0, population=True), 0.5, 1.0, draws=2)
    found = job.compute()
    assert (found.values["error"] > 0).all()
    more = job.further(1)
    both = replace(job, draws=4).compute()
    joined = join(found, more.compute())
    np.testing.assert_allclose(joined.values["error"], both.values["error"], rtol=1e-9)
    # Nothing is lost where everybody knows the population: many rows, true labels, no eta.
    rich = OptimumJob(
        ReportedProblem(replace(WHOLE, rows_per_party=950), 50.0, population=True), 0.0, 1.0, 1
    )
    assert rich.compute().values["error"][0] < found.values["error"].mean()


def made_up(experiment, error):
    draw = np.linspace(0.99, 1.01, 5)
    facts = {"radius": 1.0, "nothing": 0.1, "data": {"features": 105}}

    def of(case):
        servers = [case.rows] * experiment["servers"]
        ideal = 0.5 - error(case) if case.radius else 0.5
        return facts | {"rows": [*servers, *case.newcomers], "ideal": ideal}

    return {
        case.label: Result(
            {
                "error": error(case) * draw,
                "norm": np.ones(5),
                "complexity": np.full(5, 1 / np.sqrt(case.rows)),
            },
            of(case),
        )
        for case in experiment._cases()
    }


def test_verdicts_go_both_ways():
    experiment = Generalization()

    def few(case):
        if not case.newcomers:
            return 0.0
        return 0.05 if min(case.newcomers) < 100 else -1e-4

    good = made_up(
        experiment,
        lambda c: 1.0 / (c.rows * c.epsilon) + 0.01 * c.bound + 0.01 * c.radius + few(c),
    )
    findings = experiment.evaluate(good).findings
    check_findings(experiment, findings)
    found = {each.conclusion: each.verdict for each in findings}
    assert found == {
        "bound": "stands",
        "says something": "does not stand",
        "epsilon": "stands",
        "rows": "stands",
        "R": "stands",
        "W": "stands",
        "richness": "stands",
        "few rows": "stands",
    }
    bad = made_up(
        experiment,
        lambda c: 1e3 * c.rows * c.epsilon / (1 + c.bound) / (1 + c.radius) / (1 + few(c)),
    )
    found = {each.conclusion: each.verdict for each in experiment.evaluate(bad).findings}
    assert set(found.values()) == {"does not stand"}


def test_a_small_version_runs(monkeypatch):
    few = {
        "data": ours("twonorm", "drawn"),
        "servers": ours(2, "few"),
        "rows of a server": ours((40, 60), "few"),
        "epsilon": ours((0.3, 0.6, 1.0), "few"),
        "R": ours((0.0, 1.0), "few"),
        "draws": ours(2, "few"),
        "radius of W": ours((0.1, 0.5), "few"),
        "rows beside": ours(60, "few"),
        "servers that join": ours(((), (5,), (60,)), "few"),
    }
    monkeypatch.setattr(Generalization, "settings", {**Generalization.settings, **few})
    experiment = Generalization()
    results = {label: cell.compute() for label, cell in experiment.cells().items()}
    evaluation = experiment.evaluate(results)
    check_findings(experiment, evaluation.findings)
    rows = evaluation.tables["Errors and bounds"].rows
    bounds = {row[:3]: float(row[6]) for row in rows if row[3] == "all" and not row[4]}
    assert bounds[1.0, 40, 0.0] > bounds[1.0, 60, 0.0]
    assert bounds[1.0, 60, 1.0] > bounds[1.0, 60, 0.0]


def test_the_best_in_a_ball_lies_on_its_boundary_and_no_other_point_of_it_is_better():
    problem = NamedProblem("twonorm", 2, 60, 1, drawn_rows=200).load()
    shape = (2, 1, problem.features)
    told = Objective(problem, get_loss("logistic"), np.ones(2), 0.01, np.zeros(shape))
    free, least = told.minimum()
    radius = float(np.linalg.norm(free)) / 2
    point, found = within_ball(told, radius)
    assert np.linalg.norm(point) == pytest.approx(radius, rel=1e-3)
    assert found[0] > least[0]
    stream = np.random.default_rng(0)
    for _ in range(50):
        other = point + 0.1 * stream.normal(size=point.shape)
        other *= min(1.0, np.linalg.norm(point) / np.linalg.norm(other))
        assert told.value(np.repeat(other[None], 2, axis=0))[0] >= found[0] - 1e-9
    # A ball that holds the best of all changes nothing, nor does no ball.
    for wide in (4 * radius, 0.0):
        np.testing.assert_array_equal(within_ball(told, wide)[0], free)
