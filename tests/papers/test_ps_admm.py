"""PS-ADMM's figures: a tiny rerun, a run that diverges, verdicts that can fall."""

import math
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
from tests.helpers.more_runs import every_second, with_more_runs
from tests.helpers.small_experiments import check_epsilons

from dpadmm.experiments.jobs import Result, TrainingJob, seed_of
from dpadmm.experiments.problems import NamedProblem
from dpadmm_papers.experiment import check_findings, ours, with_wholes
from dpadmm_papers.ps_admm.cost import Cost
from dpadmm_papers.ps_admm.figures_2_3 import Figure2, Figure3
from dpadmm_papers.ps_admm.section_5 import ACCURACY, LOSS
from dpadmm_papers.ps_admm.setting import (
    CONTROL,
    CONTROLS,
    DVP,
    KINDS,
    OTHER_DVP,
    PS,
    StabilityCell,
)

SMALL = {
    "K": ours(4, "small"),
    "S": ours(5, "small"),
    "runs": ours(2, "small"),
    "budgets": ours((1.0, 4.0), "small"),
    "budgets elsewhere": ours((4.0,), "small"),
    "other penalties": ours({"ps-admm": ("auto",), "dvp": ("auto",)}, "small"),
    "delta": ours(1e-2, "small"),
    "batch": ours(10, "small"),
    "steps tried": ours(((0.45, 5),), "small"),
    "batches tried": ours((5,), "small"),
}


class Waveforms:
    def problem(self):
        return NamedProblem("waveform", self["parties"], 0, 0.3, drawn_rows=500)


class Small2(Waveforms, Figure2):
    settings: ClassVar = {**Figure2.settings, **SMALL}


class Small3(Waveforms, Figure3):
    settings: ClassVar = {**Figure3.settings, **SMALL}


@pytest.fixture(scope="module")
def small_results():
    return {name: cell.compute() for name, cell in Small2().cells().items()}


@pytest.mark.parametrize("experiment", [Small2(), Small3()], ids=lambda each: each.name)
def test_a_small_rerun_answers_every_conclusion(experiment, small_results):
    done = experiment.evaluate(small_results)
    check_epsilons(done, small_results)
    for calibration in ("published", "proven"):
        answered = {each.conclusion for each in done.findings if each.calibration == calibration}
        rest = {each.name for each in experiment.conclusions if "better" not in each.name}
        assert answered == rest | {"better, epsilon 1", "better, epsilon 4"}
    assert all(math.isfinite(y) for panel in done.panels for curve in panel.curves for y in curve.y)
    # Everything computed is shown in a panel or a table.
    assert [len(table.rows) for table in done.tables.values()] == [5 * 2, 2, 2, 6 * 2]


@pytest.mark.parametrize("experiment", [Small2(), Small3()], ids=lambda each: each.name)
def test_a_second_look_at_some_cells_is_evaluated(experiment, small_results):
    longer = with_more_runs(small_results, every_second(small_results))
    first, second = (experiment.evaluate(each) for each in (small_results, longer))
    assert [each.what for each in second.findings] == [each.what for each in first.findings]


def test_what_is_claimed_and_what_is_provable(small_results):
    table = Small2().evaluate(small_results).tables["Claimed and provable"]
    for algorithm, calibration, epsilon, claimed, provable in table.rows:
        if calibration == "proven":
            assert claimed == ""
            assert provable <= epsilon
        else:
            assert claimed.split()[0] == f"{epsilon:g}"
            assert provable > epsilon, algorithm


def test_both_figures_are_of_the_same_cells():
    one, other = Figure2().cells(), Figure3().cells()
    assert {name: cell.key for name, cell in one.items()} == {
        name: cell.key for name, cell in other.items()
    }
    seeds = [
        (cell.training if isinstance(cell, StabilityCell) else cell).seed for cell in one.values()
    ]
    assert len(set(seeds)) == len(seeds)


def test_the_published_cells_are_as_the_settings_say():
    figure = Figure2()
    problem = NamedProblem("waveform", 5, 0, 0.3, drawn_rows=500).load()
    cell = figure.cells()[PS["published"].label(0.5)]
    planned, _ = TrainingJob(figure.problem(), cell.parameters, runs=1).plan(problem)
    # v_L = c1 + rho; sigma^2 = c G^2 K S ln(1/delta) / (M epsilon)^2.
    assert planned.algorithm.step_size * (0.25 + 0.1) == pytest.approx(figure["eta v_L"])
    sigma = math.sqrt(50 * 50 * math.log(1e3)) / (70 * 0.5)
    parts = planned.algorithm.gradient_sigma, planned.algorithm.difference_sigma
    assert np.hypot(*parts) == pytest.approx(sigma)
    assert set(planned.algorithm.batch) == {1}
    assert planned.site.regularization == 2e-4
    reading = OTHER_DVP["DVP's epsilon", "for each iteration"]
    each = figure.cells()[reading.label(0.5)]
    assert each.parameters.epsilon == 0.5 * 50
    assert each.parameters.regularization == pytest.approx(5 * 10**-2.5 / 1750)


def test_a_run_that_diverges_says_so():
    class Long(Small2):
        settings: ClassVar = {
            **Small2.settings,
            "K": ours(60, "to diverge"),
            "steps tried": ours(((0.49, 5),), "to diverge"),
        }

    cells = Long().cells()
    published = cells["published, eta v_L 0.49, S 5"].compute()
    assert published.facts["diverged"].startswith("messages must be")
    assert "diverged" not in cells["proven, eta v_L 0.49, S 5"].compute().facts


def test_other_refusals_are_not_taken_for_divergence():
    cell = Small2().cells()["published, eta v_L 0.45, S 5"]
    assert cell.weight == 8
    bad = replace(Small2().cell("bad", Small2().cells()[CONTROL].parameters), runs=0)
    with pytest.raises(ValueError, match="runs must be"):
        StabilityCell(bad).compute()


# -- verdicts -------------------------------------------------------------------------------


class Few2(Figure2):
    settings: ClassVar = {**Figure2.settings, "K": ours(10, "short")}


class Few3(Figure3):
    settings: ClassVar = {**Figure3.settings, "K": ours(10, "short")}


def made_up(experiment, loss, accuracy):
    """Results in which the means are functions of the kind's name, its calibration and epsilon."""
    draw = np.random.default_rng(2)
    results = {}
    for name, cell in experiment.cells().items():
        runs = (cell.training if isinstance(cell, StabilityCell) else cell).runs
        shape = (experiment["K"], runs)
        values = {
            LOSS: np.asarray(loss(name)).reshape(-1, 1) + 1e-4 * draw.normal(size=shape),
            ACCURACY: accuracy(name) + 1e-4 * draw.normal(size=shape),
        }
        values |= {f"last/{each}": course[-1] for each, course in values.items()}
        values["last/test accuracy"] = values[f"last/{ACCURACY}"]
        facts = {"penalty": float(seed_of(name) % 100_003), "privacy": {"epsilon": 1.0}}
        results[name] = Result(values, facts)
    return results


def verdicts(experiment, loss, accuracy=lambda name: 0.8):
    """By conclusion and calibration, and by choice and variant where there is one."""
    findings = experiment.evaluate(made_up(experiment, loss, accuracy)).findings
    check_findings(experiment, findings)
    whole = with_wholes(experiment, findings)
    return {tuple(word for word in each.what if word): each.verdict for each in whole}


def test_ps_admm_is_better_only_where_it_is():
    better = verdicts(Few2(), lambda name: 0.5 if name.startswith("DVP") else 0.4)
    named = {what[1:] for what in better if what[0] == "better"}
    tuned = {what for what in named if "at its best" in what[-1]}
    assert len(named) == 7
    assert len(tuned) == 3
    assert all(better["better", *what] == "stands" for what in named)
    # One budget at which DVP is as good is enough, in the comparison that it is part of.
    rival = DVP["proven"].label(0.2)
    one = verdicts(Few2(), lambda name: 0.5 if name.startswith("DVP") and name != rival else 0.4)
    assert {what for what in named if one["better", *what] != "stands"} == {("proven",)}
    parts = [one[f"better, epsilon {each}", "proven"] == "stands" for each in (0.1, 0.2, 0.5)]
    assert parts == [True, False, True]
    # A better penalty for DVP is found in the grid.
    grid = verdicts(
        Few2(), lambda name: 0.5 if name.startswith("DVP") and "penalty" not in name else 0.3999
    )
    assert {what for what in named if grid["better", *what] != "stands"} == tuned


def test_a_loss_that_rises_within_runs_and_one_that_keeps_the_trend():
    falling, rising = np.linspace(0.6, 0.4, 10), np.r_[np.linspace(0.6, 0.4, 5), [0.45] * 5]
    small = "epsilon 0.1"
    as_told = verdicts(Few2(), lambda name: rising if small in name else falling)
    assert as_told["not monotone", "published"] == as_told["same trend", "proven"] == "stands"
    elsewhere = verdicts(
        Few2(), lambda name: rising if small in name and "penalty 0.01" in name else falling
    )
    assert elsewhere["not monotone", "published"] == "does not stand"
    assert elsewhere["not monotone", "published", "penalty", "0.01"] == "stands"
    assert elsewhere["not monotone", "published", "penalty", "auto"] == "does not stand"
    # As many steps rise at the largest budget: then it is not the budget.
    both = verdicts(Few2(), lambda name: rising)
    assert both["not monotone", "published"] != "stands"
    away = verdicts(Few2(), lambda name: falling if name in CONTROLS.values() else 1.1 * falling)
    assert away["same trend", "published"] == "does not stand"


def test_verdicts_about_accuracy_go_both_ways():
    better = verdicts(Few3(), lambda name: 0.4, lambda name: 0.75 if "DVP" in name else 0.8)
    assert set(better.values()) == {"stands"}
    worse = verdicts(Few3(), lambda name: 0.4, lambda name: 0.82 if "DVP" in name else 0.7)
    trends = [verdict for what, verdict in worse.items() if what[0] == "same trend"]
    # The control is at 0.7 here too.
    assert set(trends) == {"stands"}
    assert {verdict for what, verdict in worse.items() if what[0] == "better"} == {"does not stand"}
    away = verdicts(
        Few3(), lambda name: 0.4, lambda name: 0.82 if name in CONTROLS.values() else 0.8
    )
    assert away["same trend", "proven"] == "does not stand"


def test_every_kind_has_its_own_label():
    labels = [kind.label(0.1, penalty) for kind in KINDS for penalty in ("", 0.1, "auto")]
    assert len(set(labels)) == len(labels) == 18


# -- cost -----------------------------------------------------------------------------------


class SmallCost(Cost):
    settings: ClassVar = {
        **Cost.settings,
        **{name: each for name, each in SMALL.items() if name != "runs"},
        "data": ours("waveform", "small"),
        "repetitions": ours(2, "small"),
    }


def test_gradients_of_single_rows_are_counted(monkeypatch, tmp_path):
    monkeypatch.setenv("DPADMM_DATA", str(tmp_path))
    experiment = SmallCost()
    results = {name: cell.compute() for name, cell in experiment.cells().items()}
    rows = max(results["no privacy, 0"].facts["data"]["rows"])
    # The full gradient, and two for each row of each batch but the first: K M + 2 K b (S - 1).
    for name, batch in (("PS-ADMM, published", 1), ("PS-ADMM, proven", 10), ("no privacy", 10)):
        expected = 4 * (rows + 2 * batch * (5 - 1))
        assert results[f"{name}, 0"].values["gradients"][-1, 0] == expected
    exact = results["ADMM (4) to (6), exact, 0"].values["gradients"][:, 0]
    rough = results["ADMM (4) to (6), exact, rough, 0"].values["gradients"][:, 0]
    assert (exact % rows == 0).all()
    assert exact[-1] > rough[-1] >= 4 * rows
    evaluation = experiment.evaluate(results)
    check_findings(experiment, evaluation.findings)
    found = {each.what[:2]: each.verdict for each in evaluation.findings if not each.choice}
    assert found["several rows", "published"] == "does not stand"
    assert {name for name, _ in found} == {"iteration", "several rows", "same loss"}


def test_a_loss_that_is_never_reached_is_no_saving(monkeypatch):
    experiment = SmallCost()

    def made(loss):
        counts = np.arange(1.0, 5.0)[:, None]
        return {
            name: Result(
                {"gradients": counts, "loss": np.full((4, 1), loss(name))}, {"data": {"rows": [9]}}
            )
            for name in experiment.cells()
        }

    def same(loss):
        found = experiment.evaluate(made(loss)).findings
        return {each.verdict for each in found if each.conclusion == "same loss"}

    assert same(lambda name: 0.4 if name.startswith("ADMM") else 0.5) == {"does not stand"}
    # As many gradients are no saving either; fewer would be one.
    assert same(lambda name: 0.4) == {"does not stand"}
    assert same(lambda name: 0.5 if "rough" in name else 0.4) == {"does not stand", "stands"}
