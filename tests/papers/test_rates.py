"""The rates of PDML and PS-ADMM: small versions find for every conclusion."""

import pytest

from dpadmm_papers.experiment import check_findings, ours
from dpadmm_papers.pdml.rates import Theorems1And2
from dpadmm_papers.ps_admm.rates import Theorems3And4

FEW = {
    "data": ours("twonorm", "drawn"),
    "runs": ours(2, "few"),
    "servers": ours(3, "few"),
    "links": ours(3, "few"),
    "rows per server": ours(40, "few"),
    "rows held back": ours(50, "few"),
    "draws": ours(2, "few"),
    "rounds followed": ours(10, "few"),
    "lengths": ours((2, 4, 6), "few"),
    "K": ours(4, "few"),
    "S": ours(5, "few"),
    "batch": ours(5, "few"),
    "budgets": ours((0.05, 0.1), "few"),
    "budgets elsewhere": ours((0.1,), "few"),
    "delta": ours(1e-2, "few"),
    "iterations followed": ours(10, "few"),
    "iterations followed, noise": ours(10, "few"),
}


@pytest.mark.parametrize("kind", [Theorems1And2, Theorems3And4])
def test_a_small_version_finds_for_every_conclusion(kind, monkeypatch, tmp_path):
    monkeypatch.setenv("DPADMM_DATA", str(tmp_path))
    few = {name: setting for name, setting in FEW.items() if name in kind.settings}
    if kind is Theorems3And4:
        few["lengths"] = ours({key: {0.1: (2, 4, 6)} for key in ("published", "proven")}, "few")
    monkeypatch.setattr(kind, "settings", {**kind.settings, **few})
    experiment = kind()
    results = {label: cell.compute() for label, cell in experiment.cells().items()}
    evaluation = experiment.evaluate(results)
    check_findings(experiment, evaluation.findings)
    assert {each.conclusion for each in evaluation.findings} == {
        each.name for each in experiment.conclusions
    }
    for finding in evaluation.findings:
        assert set(finding.rests_on) <= set(results)
