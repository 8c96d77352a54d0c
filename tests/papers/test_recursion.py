"""(16), (17) and Proposition 1 on a small run; a formula with a wrong term is found."""

from dataclasses import replace

import numpy as np
import pytest

from dpadmm_papers.experiment import check_findings, ours
from dpadmm_papers.pr_admm import recursion
from dpadmm_papers.pr_admm.rates import Theorems5And6
from dpadmm_papers.pr_admm.recursion import Proposition1

FEW = {
    "data": ours("twonorm", "drawn"),
    "agents": ours(3, "few"),
    "rows of an agent": ours(40, "few"),
    "testing rows": ours(50, "few"),
    "iterations": ours(6, "few"),
    "runs": ours(2, "few"),
    "scale of the loss": ours(2.0, "few"),
}


@pytest.fixture(autouse=True)
def small(monkeypatch, tmp_path):
    monkeypatch.setenv("DPADMM_DATA", str(tmp_path))
    for kind in (Proposition1, Theorems5And6):
        monkeypatch.setattr(kind, "settings", {**kind.settings, **FEW})


def test_a_small_version_satisfies_the_updates_and_not_the_inverse_of_m(monkeypatch):
    experiment = Proposition1()
    results = {label: cell.compute() for label, cell in experiment.cells().items()}
    evaluation = experiment.evaluate(results)
    check_findings(experiment, evaluation.findings)
    noisy = [each for each in results if each.startswith("PR-ADMM")]
    assert len(noisy) == 2
    for name in noisy:
        values = results[name].values
        assert values["first"].max() < 1e-6
        assert values["second"].max() < 1e-12
        assert values["with M"].max() < 1e-6
        # A ring of three has two neighbours each: M is twice the identity.
        assert values["printed"].max() > 1e-4
    words = {
        (each.conclusion, each.calibration, each.variant): each for each in evaluation.findings
    }
    assert words["updates", noisy[0], ""].verdict == "stands"
    assert words["identity", noisy[0], ""].verdict == "does not stand"
    assert words["identity", noisy[0], "M for its inverse"].verdict == "stands"


def test_a_proposition_that_fails_is_said_to(monkeypatch):
    experiment = Proposition1()
    results = {label: cell.compute() for label, cell in experiment.cells().items()}
    name = next(iter(results))
    slack = np.array(results[name].values["slack"])
    slack[2, 1, 0] = -0.5
    results[name] = replace(results[name], values={**results[name].values, "slack": slack})
    found = [each for each in experiment.evaluate(results).findings if each.calibration == name]
    verdict = {each.conclusion: each.verdict for each in found}
    assert verdict["proposition"] == "does not stand"
    assert recursion._SLACK < 0.5
