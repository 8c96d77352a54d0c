"""PS-ADMM's figures: a tiny rerun, a run that diverges, verdicts that can fall."""

import math
from typing import ClassVar

import numpy as np
import pytest
from tests.helpers.small_experiments import check_epsilons

from dpadmm.experiments.experiment import ours, seed_of
from dpadmm.experiments.job import Result, TrainingJob
from dpadmm.experiments.problems import NamedProblem
from dpadmm_papers.ps_admm.figures_2_3 import Figure2, Figure3
from dpadmm_papers.ps_admm.section_5 import ACCURACY, LOSS
from dpadmm_papers.ps_admm.setting import CONTROL, CONTROLS, DVP, KINDS, PS, StabilityCell

SMALL = {
    "K": ours(4, "small"),
    "S": ours(5, "small"),
    "runs": ours(2, "small"),
    "runs elsewhere": ours(2, "small"),
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
        assert answered == {each.name for each in experiment.conclusions}
    assert all(math.isfinite(y) for panel in done.panels for curve in panel.curves for y in curve.y)
    # Everything computed is shown in a panel or a table.
    assert [len(table.rows) for table in done.tables.values()] == [5 * 2, 2, 2, 6 * 2]


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
    each = figure.cells()[DVP["published, DVP with epsilon for each iteration"].label(0.5)]
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
    bad = Small2().cell("bad", Small2().cells()[CONTROL].parameters, 0)
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
    done = experiment.evaluate(made_up(experiment, loss, accuracy))
    return {(each.conclusion, each.calibration): each.verdict for each in done.findings}


def test_ps_admm_is_better_only_where_it_is():
    better = verdicts(Few2(), lambda name: 0.5 if name.startswith("DVP") else 0.4)
    named = {name for conclusion, name in better if conclusion == "better"}
    assert named == set(DVP) | {
        f"{name}, each at its best penalty" for name in DVP if name != "proven"
    }
    assert all(better["better", name] == "stands" for name in named)
    # One budget at which DVP is as good is enough, in the comparison that it is part of.
    rival = DVP["proven"].label(0.2)
    one = verdicts(Few2(), lambda name: 0.5 if name.startswith("DVP") and name != rival else 0.4)
    assert {name for name in named if one["better", name] != "stands"} == {"proven"}
    # A better penalty for DVP is found in the grid.
    grid = verdicts(
        Few2(), lambda name: 0.5 if name.startswith("DVP") and "penalty" not in name else 0.4
    )
    assert {name for name in named if grid["better", name] != "stands"} == {
        name for name in named if "best penalty" in name
    }


def test_a_loss_that_rises_and_one_that_keeps_the_trend():
    falling, rising = np.linspace(0.6, 0.4, 10), np.r_[np.linspace(0.6, 0.4, 5), np.full(5, 0.45)]
    small = "epsilon 0.1"
    as_told = verdicts(Few2(), lambda name: rising if small in name else falling)
    assert as_told["not monotone", "published"] == as_told["same trend", "proven"] == "stands"
    elsewhere = verdicts(
        Few2(), lambda name: rising if small in name and "penalty 0.01" in name else falling
    )
    assert {
        name: elsewhere["not monotone", name]
        for name in ("published", "published, penalty 0.01", "published, penalty auto")
    } == {
        "published": "does not stand",
        "published, penalty 0.01": "stands",
        "published, penalty auto": "does not stand",
    }
    every = verdicts(Few2(), lambda name: falling)
    assert every["not monotone", "published"] == "does not stand"
    away = verdicts(Few2(), lambda name: falling if name in CONTROLS.values() else 1.1 * falling)
    assert away["same trend", "published"] == "does not stand"


def test_verdicts_about_accuracy_go_both_ways():
    better = verdicts(Few3(), lambda name: 0.4, lambda name: 0.75 if "DVP" in name else 0.8)
    assert set(better.values()) == {"stands"}
    worse = verdicts(Few3(), lambda name: 0.4, lambda name: 0.82 if "DVP" in name else 0.7)
    trends = [verdict for (each, _), verdict in worse.items() if each == "same trend"]
    # The control is at 0.7 here too.
    assert set(trends) == {"stands"}
    assert {verdict for (each, _), verdict in worse.items() if each == "better"} == {
        "does not stand"
    }
    away = verdicts(
        Few3(), lambda name: 0.4, lambda name: 0.82 if name in CONTROLS.values() else 0.8
    )
    assert away["same trend", "proven"] == "does not stand"


def test_every_kind_has_its_own_label():
    labels = [kind.label(0.1, penalty) for kind in KINDS for penalty in ("", 0.1, "auto")]
    assert len(set(labels)) == len(labels) == 18
