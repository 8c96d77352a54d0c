"""Numbers of rows: bounds solved for what they promise, verdicts that can fall, small reruns."""

from dataclasses import replace

import numpy as np
import pytest

from dpadmm.experiments.jobs import Result
from dpadmm.experiments.problems import dense
from dpadmm_papers.dvp.sample_size import Theorems2And3
from dpadmm_papers.experiment import check_findings, ours
from dpadmm_papers.preparations import MarginProblem
from dpadmm_papers.r_admm.sample_size import TheoremsVI
from dpadmm_papers.sample_size import promised

FEW = {
    "data": ours("twonorm", "drawn"),
    "parties": ours(2, "few"),
    "rows tried": ours((40, 80, 160), "few"),
    "draws": ours(3, "few"),
    "margins": ours((0.1, 0.4), "few"),
    "dimension, rows of margins": ours((3, 50), "few"),
    "iterations of Delta": ours((1, 40), "few"),
}
KINDS = (Theorems2And3, TheoremsVI)


@pytest.fixture(autouse=True)
def small(monkeypatch, tmp_path):
    monkeypatch.setenv("DPADMM_DATA", str(tmp_path))
    for kind in KINDS:
        few = {name: each for name, each in FEW.items() if name in kind.settings}
        monkeypatch.setattr(kind, "settings", {**kind.settings, **few})


def verdicts(findings):
    return {each.conclusion: each.verdict for each in findings}


@pytest.mark.parametrize("kind", KINDS)
def test_a_small_version_finds_for_every_conclusion(kind):
    experiment = kind()
    results = {label: cell.compute() for label, cell in experiment.cells().items()}
    # The reference is the best of the population: nobody is below it.
    for label, result in results.items():
        if label.startswith("Delta"):
            continue
        assert (result.values["excess"] >= -1e-12).all(), label
    evaluation = experiment.evaluate(results)
    check_findings(experiment, evaluation.findings)
    assert set(verdicts(evaluation.findings)) == {each.name for each in experiment.conclusions}
    for finding in evaluation.findings:
        assert set(finding.rests_on) <= set(results)


@pytest.mark.parametrize(("power", "word"), [(-1.5, "stands"), (0.0, "does not stand")])
def test_an_excess_that_falls_more_slowly_than_the_bound_refutes_every_constant(power, word):
    experiment, spread = Theorems2And3(), np.linspace(0.99, 1.01, 5)
    made = {}
    for label in experiment.cells():
        rows = float(label.split(", ")[-1].split()[0]) if "rows" in label else 1.0
        margin = float(label.split(",")[0].split()[-1]) if label.startswith("margin") else 1.0
        excess = rows**power * (2 - margin if power < 0 else margin) * spread
        looks = dict.fromkeys(("delta", "optimum"), np.ones((2, 5)))
        made[label] = Result({"excess": excess, **looks}, {"norm": 5.0, "features": 20})
    assert set(verdicts(experiment.evaluate(made).findings).values()) == {word}


def test_delta_is_the_loss_above_that_of_the_optimum_under_the_same_noise():
    job = Theorems2And3().cells()["Delta of Corollary 3.1"]
    # Nearly no noise: after some iterations nobody is far from the optimum, nor it from the best.
    options = {**job.training.parameters.algorithm_options, "epsilon_per_round": 1e5}
    quiet = replace(
        job.training.parameters, algorithm_options=options, epsilon=4e6, penalty=0.02, rounds=40
    )
    settled = replace(job, training=replace(job.training, parameters=quiet)).compute().values
    assert settled["delta"].shape == (2, 3)
    assert (np.abs(settled["delta"][1]) < 1e-3).all()
    assert (settled["delta"][0] > 10 * np.abs(settled["delta"][1])).all()
    # The optimum moves with the noise of its iteration alone, by next to nothing here.
    np.testing.assert_allclose(settled["optimum"], 0, atol=1e-4)
    loud = job.compute().values
    assert (np.abs(loud["optimum"]) > 1e-3).any()


def test_a_bound_that_asks_the_impossible_does_not_stand():
    experiment = TheoremsVI()
    excess = {"excess": np.full(5, 0.1)}
    made = {label: Result(excess, {"norm": 5.0, "features": 10**6}) for label in experiment.cells()}
    # With a million columns nothing better than w = 0 is promised.
    found = {each.conclusion: each for each in experiment.evaluate(made).findings}
    assert found["Theorem VI.2"].verdict == "does not stand"


def test_what_a_bound_promises_needs_just_these_rows():
    assert promised(lambda accuracy: 3 / accuracy**2, 1200) == pytest.approx(0.05)
    assert promised(lambda accuracy: 1e6, 1200) == np.inf


def test_rows_with_a_margin_have_it_and_length_one():
    problem = MarginProblem(3, 50, 6, 0.3).load()
    assert problem.counts == [50] * 3
    for rows, signs in problem.members:
        assert np.linalg.norm(dense(rows), axis=1) == pytest.approx(1)
        assert (signs[:, 0] * dense(rows)[:, 0] >= 0.3).all()
        assert {-1.0, 1.0} == set(signs[:, 0])
    again = MarginProblem(3, 50, 6, 0.3).dealt_again(1).load()
    assert not np.array_equal(again.members[0][0], problem.members[0][0])
    np.testing.assert_array_equal(again.test_rows, problem.test_rows)
