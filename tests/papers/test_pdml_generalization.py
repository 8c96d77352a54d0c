"""Generalisation error: rows drawn from a population, errors, bounds, and verdicts."""

from dataclasses import replace

import numpy as np
import pytest

from dpadmm.experiments.experiment import check_findings, ours
from dpadmm.experiments.job import Result
from dpadmm.experiments.problems import NamedProblem, dense
from dpadmm_papers.pdml.generalization import Generalization, OptimumJob
from dpadmm_papers.pdml.reported import ReportedProblem

WHOLE = NamedProblem("twonorm", 2, 300, 1, drawn_rows=2000)


@pytest.fixture(autouse=True)
def no_files(monkeypatch, tmp_path):
    """Draw what can be drawn, wherever the tests run."""
    monkeypatch.setenv("DPADMM_DATA", str(tmp_path))


def test_labels_are_randomised_once_for_a_seed():
    reported = ReportedProblem(WHOLE, 1.0, seed=3)
    true, one, again = WHOLE.load(), reported.load(), reported.load()
    flipped = np.concatenate(
        [(a[1] != b[1]).ravel() for a, b in zip(true.members, one.members, strict=True)]
    )
    assert flipped.mean() == pytest.approx(1 / (1 + np.e), abs=0.06)
    for first, second in zip(one.members, again.members, strict=True):
        np.testing.assert_array_equal(first[1], second[1])
    other = reported.dealt_again(1).load()
    assert not np.array_equal(other.members[0][1], one.members[0][1])


def test_servers_draw_from_all_rows_with_replacement():
    problem = ReportedProblem(WHOLE, 50.0, population=True).load()
    everyone = {tuple(row) for row in dense(problem.test_rows)}
    # One row is held back to judge by in the named set: it is no part of the population.
    assert len(everyone) == 1999
    drawn = [tuple(row) for rows, _ in problem.members for row in dense(rows)]
    assert set(drawn) <= everyone
    assert len(set(drawn)) < len(drawn)
    # At this epsilon labels are as they were: those of the population's rows.
    codes = {
        tuple(row): code for row, code in zip(problem.test_rows, problem.test_codes, strict=True)
    }
    for rows, signs in problem.members:
        assert all((codes[tuple(r)] > 0) == (s > 0) for r, s in zip(rows, signs[:, 0], strict=True))


def test_the_error_is_that_of_the_population_and_more_draws_go_on():
    job = OptimumJob(ReportedProblem(WHOLE, 1.0, population=True), 0.5, 1.0, draws=2)
    found = job.compute()
    assert (found.values["error"] > 0).all()
    more = job.further(1)
    both = replace(job, draws=4).compute()
    joined = job.join(found, more.compute())
    np.testing.assert_allclose(joined.values["error"], both.values["error"], rtol=1e-9)
    # Nothing is lost where everybody knows the population: many rows, true labels, no eta.
    rich = OptimumJob(
        ReportedProblem(replace(WHOLE, rows_per_party=950), 50.0, population=True), 0.0, 1.0, 1
    )
    assert rich.compute().values["error"][0] < found.values["error"].mean()


def made_up(experiment, error):
    draw = np.linspace(0.99, 1.01, 5)
    facts = {"radius": 1.0, "nothing": 0.1, "data": {"features": 105}}
    return {
        case.label: Result(
            {
                "error": error(case) * draw,
                "norm": np.ones(5),
                "complexity": np.full(5, 1 / np.sqrt(case.rows)),
            },
            facts,
        )
        for case in experiment._cases()
    }


def test_verdicts_go_both_ways():
    experiment = Generalization()
    good = made_up(experiment, lambda c: 1.0 / (c.rows * c.epsilon) + 0.01 * c.bound)
    findings = experiment.evaluate(good).findings
    check_findings(experiment, findings)
    found = {each.conclusion: each.verdict for each in findings}
    assert found == {
        "bound": "stands",
        "says something": "does not stand",
        "epsilon": "stands",
        "rows": "stands",
        "R": "stands",
    }
    bad = made_up(experiment, lambda c: 1e3 * c.rows * c.epsilon / (1 + c.bound))
    found = {each.conclusion: each.verdict for each in experiment.evaluate(bad).findings}
    assert set(found.values()) == {"does not stand"}


def test_a_small_version_runs(monkeypatch):
    few = {
        "data": ours("twonorm", "drawn"),
        "servers": ours(2, "few"),
        "rows of a server": ours((40, 60), "few"),
        "epsilon": ours((0.5, 1.0), "few"),
        "R": ours((0.0, 1.0), "few"),
        "draws": ours(2, "few"),
    }
    monkeypatch.setattr(Generalization, "settings", {**Generalization.settings, **few})
    experiment = Generalization()
    results = {label: cell.compute() for label, cell in experiment.cells().items()}
    evaluation = experiment.evaluate(results)
    check_findings(experiment, evaluation.findings)
    bounds = {row[:3]: float(row[4]) for row in evaluation.tables["Errors and bounds"].rows}
    assert bounds[1.0, 40, 0.0] > bounds[1.0, 60, 0.0]
    assert bounds[1.0, 60, 1.0] > bounds[1.0, 60, 0.0]
