"""DVP's figures: tiny reruns, the fit against an independent one, verdicts that can fall."""

import math
from typing import ClassVar

import numpy as np
import pytest
from scipy.optimize import curve_fit
from tests.helpers.small_experiments import check_epsilons

from dpadmm.experiments.experiment import ours
from dpadmm.experiments.job import Result
from dpadmm.experiments.problems import NamedProblem
from dpadmm_papers.dvp.figure_2 import Figure2
from dpadmm_papers.dvp.figure_3 import WHOLE_RUN, Figure3
from dpadmm_papers.dvp.setting import CALIBRATIONS, CONTROL, label
from dpadmm_papers.dvp.trade_off import LossCurve, best_alpha, fit, fit_resampled, utility

SMALL = {
    "C^R": ours(60, "small"),
    "iterations": ours(4, "small"),
    "parties": ours(3, "small"),
    "rows per party": ours(60, "small"),
    "test rows": ours(100, "small"),
    "alphas": ours((0.5, 1.0, 2.0, 4.0), "small"),
    "eta": ours(5.0, "small"),
    "runs": ours(2, "small"),
}


class Waveforms:
    def problem(self, parties, rows):
        return NamedProblem("waveform", parties, rows, self["test rows"], drawn_rows=400)


class Small2(Waveforms, Figure2):
    settings: ClassVar = {
        **Figure2.settings,
        **SMALL,
        "stated alpha": ours(4.0, "small"),
        "other etas": ours({50.0: 2}, "small"),
    }


class Small3(Waveforms, Figure3):
    settings: ClassVar = {
        **Figure3.settings,
        **SMALL,
        "range of alpha": ours((0.5, 4.0), "small"),
        "shown iterations": ours((1, 2, 4), "small"),
        "resamples": ours(20, "small"),
        "other etas": ours((50.0,), "small"),
        "other parties": ours(((4, 40),), "small"),
        "alphas elsewhere": ours((0.5, 2.0, 4.0), "small"),
        "alphas of a run": ours((2.0, 4.0), "small"),
        "runs elsewhere": ours(2, "small"),
    }


@pytest.fixture(scope="module")
def small_results():
    cells = {**Small3().cells(), **Small2().cells()}
    return {name: cell.compute() for name, cell in cells.items()}


@pytest.mark.parametrize("experiment", [Small2(), Small3()], ids=lambda each: each.name)
def test_a_small_rerun_answers_every_conclusion(experiment, small_results):
    results = {name: small_results[name] for name in experiment.cells()}
    done = experiment.evaluate(results)
    check_epsilons(done, results)
    for calibration in CALIBRATIONS:
        answered = {each.conclusion for each in done.findings if each.calibration == calibration}
        assert answered == {each.name for each in experiment.conclusions}
    assert all(math.isfinite(y) for panel in done.panels for curve in panel.curves for y in curve.y)


def test_what_is_claimed_and_what_is_provable(small_results):
    rows = {
        row[:2]: row for row in Small2().evaluate(small_results).tables["Claimed and provable"].rows
    }
    for alpha in SMALL["alphas"].value:
        _, _, claimed, total, iteration, run = rows[alpha, "published"]
        assert (claimed, total) == (alpha, pytest.approx(4 * alpha))
        # Algorithm 2's noise is too small by up to a factor of 2: what is provable is above alpha.
        assert alpha < iteration < 2.1 * alpha
        assert run > total
        # The solver's residual costs a little, too.
        assert rows[alpha, "proven"][4] <= 1.05 * alpha
        assert rows[alpha, "proven"][5] <= 1.05 * 4 * alpha


def test_the_figures_share_their_cells():
    one, three = Figure2().cells(), Figure3().cells()
    shared = set(one) & set(three)
    assert len(shared) >= 1 + 2 * 4
    assert label(0.3, "eta 5") in shared
    assert all(one[name].key == three[name].key for name in shared)
    seeds = [cell.seed for cell in three.values()]
    assert len(set(seeds)) == len(seeds)


def test_the_constant_is_absorbed():
    cell = Figure2().cells()[label(0.1, "published")]
    assert cell.parameters.regularization == pytest.approx(5 * 10**-2.5 / 1750)
    assert cell.parameters.penalty == pytest.approx(50 / 1750)
    assert cell.parameters.algorithm_options == {"epsilon_per_round": 0.1}


# -- the fit --------------------------------------------------------------------------------

ALPHAS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)


def test_the_fit_finds_what_made_the_points():
    truth = LossCurve(0.2, 25.0, 0.4)
    found = fit(ALPHAS, truth(ALPHAS))
    assert (found.height, found.rate, found.floor) == pytest.approx((0.2, 25.0, 0.4), rel=0.01)


def test_the_fit_agrees_with_scipy():
    losses = LossCurve(0.3, 40.0, 0.37)(ALPHAS) + 0.01 * np.array([1, -1, 1, 0, -1, 1, 0])
    found = fit(ALPHAS, losses)

    def curve(alpha, height, rate, floor):
        return height * np.exp(-rate * alpha) + floor

    expected, _ = curve_fit(curve, np.array(ALPHAS), losses, p0=(0.3, 40, 0.37))
    assert (found.height, found.rate, found.floor) == pytest.approx(tuple(expected), rel=0.01)


def test_constants_are_not_negative():
    rising = fit(ALPHAS, 0.3 + np.array(ALPHAS))
    assert rising.height == 0
    steep = fit((0.1, 0.2, 0.3), [1.0, 0.5, 0.0])
    assert steep.floor == 0
    assert steep.height > 0


def test_intervals_hold_the_truth_and_not_something_else():
    truth, draw = LossCurve(0.2, 25.0, 0.4), np.random.default_rng(0)
    samples = {alpha: truth(alpha) + 0.005 * draw.normal(size=20) for alpha in ALPHAS}
    fitted = fit_resampled(samples, draws=500, seed=0)
    assert fitted.holds(0.2, 25.0)
    assert not fitted.holds(0.4, 25.0)
    assert not fitted.holds(0.2, 50.0)
    assert fitted.furthest < 0.05


def test_the_alpha_chosen_is_where_the_slopes_agree():
    weights, curve = (0.02, 6.0, 9.0, 1.0), LossCurve(0.2, 25.0, 0.4)
    alpha, inside = best_alpha(curve, weights, 0.01, 0.5)
    assert inside
    slope = 0.02 * (9 + 2 * alpha) / (9 * alpha + alpha**2)
    assert slope == pytest.approx(0.2 * 25 * math.exp(-25 * alpha), rel=0.05)
    # Nothing is lost with a smaller alpha: the lower end is chosen, and said to be one.
    assert best_alpha(LossCurve(0.0, 25.0, 0.4), weights, 0.01, 0.5) == (pytest.approx(0.01), False)
    assert float(utility(0.5, weights)) == pytest.approx(0.02 * math.log(6 / 4.75))


# -- verdicts -------------------------------------------------------------------------------


def made_up(experiment, loss, error):
    """Results in which the mean loss and error of a cell are functions of alpha."""
    draw = np.random.default_rng(1)
    rounds = experiment["iterations"]
    results = {}
    for name, cell in experiment.cells().items():
        alpha = 1e6 if name.startswith(CONTROL) else float(name.split(",")[0].split()[1])
        course = loss(alpha) + 1e-3 * draw.normal(size=(rounds, cell.runs))
        wrong = error(alpha) + 1e-3 * draw.normal(size=cell.runs)
        results[name] = Result(
            {
                "average loss": course,
                "last/average loss": course[-1],
                "last/average test accuracy": 1 - wrong,
                "epsilon": np.arange(1.0, rounds + 1),
            },
            {},
        )
    return results


class Short2(Figure2):
    settings: ClassVar = {**Figure2.settings, "iterations": ours(5, "short")}


class Short3(Figure3):
    settings: ClassVar = {
        **Figure3.settings,
        "iterations": ours(5, "short"),
        "shown iterations": ours((1, 2, 5), "short"),
        "resamples": ours(200, "short"),
    }


def verdicts(experiment, loss, error=lambda alpha: 0.2):
    done = experiment.evaluate(made_up(experiment, loss, error))
    return {
        each.conclusion: each.verdict for each in done.findings if each.calibration == "published"
    }


def test_verdicts_of_figure_2_go_both_ways():
    falling = verdicts(Short2(), lambda alpha: 0.4 + 0.01 / alpha if alpha < 1 else 0.4)
    assert falling == {"better": "stands", "faster": "stands", "good": "stands"}
    level = verdicts(Short2(), lambda alpha: 0.5 if alpha < 1 else 0.4)
    assert set(level.values()) == {"does not stand"}
    # One pair that rises is enough.
    bump = verdicts(Short2(), lambda alpha: 0.4 + (0.02 if alpha == 0.05 else 0.01 / (1 + alpha)))
    assert bump["better"] == "does not stand"


def test_verdicts_of_figure_3_go_both_ways():
    as_modelled = LossCurve(0.2, 25.0, 0.4)
    every = verdicts(Short3(), as_modelled, lambda alpha: 0.2 + 0.1 * math.exp(-10 * alpha))
    assert set(every.values()) == {"stands"}
    assert len(every) == len(Figure3.conclusions)
    power = verdicts(Short3(), lambda alpha: 0.4 + 0.02 / alpha, lambda alpha: 0.2 + alpha / 1e7)
    assert power["form"] == power["constants"] == power["error"] == "does not stand"
    assert power["risk"] == "stands"
    moving = made_up(Short3(), as_modelled, lambda alpha: 0.2)
    for result in moving.values():
        result.values["average loss"][0] *= 2
    findings = Short3().evaluate(moving).findings
    assert {each.verdict for each in findings if each.conclusion == "all iterations"} == {
        "does not stand"
    }
    rising = verdicts(Short3(), lambda alpha: 0.4 + 0.1 * min(alpha, 1.0))
    assert rising["iterations"] == rising["risk"] == rising["design"] == "does not stand"


def test_every_cell_has_a_kind_that_is_shown():
    names = Figure3().cells()
    assert label(0.1, WHOLE_RUN) in names
    assert names[label(0.1, WHOLE_RUN)].parameters.epsilon == 0.1
