"""The experiments of the R-ADMM paper: small versions of each, and verdicts that can fall."""

import dataclasses
import re

import numpy as np
import pytest
from tests.helpers.more_runs import with_more_runs
from tests.helpers.small_experiments import check_epsilons

from dpadmm.experiments.figures import figure_table
from dpadmm.experiments.jobs import Result, TrainingJob
from dpadmm.experiments.problems import NamedProblem
from dpadmm.problem.site import build_topology
from dpadmm.run.options import TrainingParameters
from dpadmm_papers.experiment import check_findings, summaries
from dpadmm_papers.jobs import OptimumJob, join
from dpadmm_papers.pages import experiment_meaning, page
from dpadmm_papers.r_admm import EXPERIMENTS
from dpadmm_papers.r_admm.common import GAUSSIAN, KIND, spent
from dpadmm_papers.r_admm.computation import Computation
from dpadmm_papers.r_admm.courses import NoiselessCell, alternation, even_steps, left_over, reached
from dpadmm_papers.r_admm.figure_1 import FigureOne
from dpadmm_papers.r_admm.figure_5 import PRIVATE, FigureFive
from dpadmm_papers.r_admm.theory import privacy_loss
from dpadmm_papers.r_admm.tuning import FigureFour, FigureThree, FigureTwo, slope

# Far fewer rows, and a C with which eq. (32)'s condition still holds for them.
SMALL = {
    "data": "waveform",
    "rows": 60,
    "rows tried": (40, 60),
    "test rows": 200,
    "C": 10,
    "iterations": 5,
    "runs": 2,
    "delta": 1e-3,
    "alphas": (2.0, 1.0),
    "training rows": 300,
    "networks": (5, 6),
    "draws": 2,
    "splits": 2,
}


def small(kind, **changes):
    """The experiment with small settings."""
    told = {
        name: dataclasses.replace(setting, value={**SMALL, **changes}.get(name, setting.value))
        for name, setting in kind.settings.items()
    }
    return type(f"Small{kind.__name__}", (kind,), {"settings": told})()


def verdicts(experiment, results):
    return {finding.what: finding.verdict for finding in experiment.evaluate(results).findings}


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda each: each.name)
def test_a_small_version_runs_and_judges_every_conclusion(experiment):
    tiny = small(type(experiment))
    results = {label: cell.compute() for label, cell in tiny.cells().items()}
    evaluation = tiny.evaluate(results)
    check_epsilons(evaluation, results)
    check_findings(tiny, evaluation.findings)
    assert {each for finding in evaluation.findings for each in finding.rests_on} <= set(results)
    # The harness judges a claim of several parts from these.
    names = {conclusion.name for conclusion in tiny.conclusions if not conclusion.parts}
    assert {finding.conclusion for finding in evaluation.findings} == names
    calibrations = {finding.calibration for finding in evaluation.findings}
    if isinstance(experiment, FigureThree | FigureFour | FigureFive):
        assert calibrations == {"published", "proven"}
        assert KIND in {finding.choice for finding in evaluation.findings}
    for finding in (evaluation.findings[0], evaluation.findings[-1]):
        longer = with_more_runs(results, finding.rests_on or list(results))
        again = tiny.evaluate(longer).findings
        assert [each.what for each in again] == [each.what for each in evaluation.findings]
    points = figure_table(evaluation.panels).rows
    assert points
    assert all(np.isfinite(point[4]) for point in points)
    manifest = {
        "stand_ins": [],
        "command": "",
        "dpadmm": "",
        "numpy": "",
        "python": "",
        "cell_seconds": 0,
    }
    text = page(tiny, evaluation, experiment_meaning(results), manifest)
    assert all(finding.number in text for finding in evaluation.findings)
    # The second look adds runs to every cell that has noise or draws.
    further = {label: cell.further(1) for label, cell in tiny.cells().items()}
    assert any(further.values())
    label, more = next((label, job) for label, job in further.items() if job is not None)
    joined = join(results[label], more.compute())
    assert all(
        values.shape[-1] == 2 * results[label].values[name].shape[-1]
        for name, values in joined.values.items()
        if name != "epsilon"
    )


def test_a_run_shown_in_two_figures_is_one_cell():
    third, fourth, fifth = (small(kind).cells() for kind in (FigureThree, FigureFour, FigureFive))
    label = "published, alpha = 1, "
    assert third[label + "gamma = 0.5"].key == fourth[label + "growth = 1.01"].key
    assert fourth[label + "growth = 1.04"].key == fifth[label + "MR-ADMM"].key
    assert fourth[label + "growth = 1"].key == fifth[label + "R-ADMM"].key
    noisy = [cell for cell in fifth.values() if isinstance(cell, TrainingJob) and cell.runs > 1]
    assert len({cell.seed for cell in noisy}) == len({cell.key for cell in noisy})


# -- privacy ------------------------------------------------------------------------------------


@pytest.mark.parametrize("growth", [1.0, 1.1])
def test_what_published_noise_costs_is_what_the_run_claims(growth):
    setup = small(FigureFive)
    cell = setup.recycled(2.0, "published", growth=growth)
    bound = spent(cell)
    claim = cell.compute().facts["privacy"]["claim"]
    claimed = float(re.search(r"epsilon = ([\d.]+)", claim).group(1))
    assert bound.published[-1] == pytest.approx(claimed, rel=1e-5)
    convexity = 0.22 / 5 + 2 * build_topology(setup.edges(), 5).degrees.min() * growth ** np.arange(
        1, 4
    )
    theory = privacy_loss(convexity, 2.0, 60, weight=10)
    assert bound.published[-1] == pytest.approx(theory.published, rel=1e-6)
    assert bound.proven[-1] == pytest.approx(theory.proven, rel=1e-6)
    # Odd iterations cost something, even ones nothing.
    assert (np.diff(bound.published)[::2] == 0).all()
    assert (np.diff(bound.published)[1::2] > 0).all()


def test_rivals_are_held_to_the_total_of_r_admm():
    setup = small(FigureFive)
    total = setup.total(1.0)
    assert spent(setup.rival("m-admm", 1.0, "published")).published[-1] == pytest.approx(total)
    half = setup.rival("m-admm", 1.0, "published", rounds=3)
    recycled = setup.recycled(1.0, "published")
    np.testing.assert_allclose(spent(half).published, spent(recycled).published[::2], rtol=1e-6)
    for calibration in ("proven", GAUSSIAN):
        cell = setup.recycled(1.0, calibration, growth=1.04)
        found = cell.compute().facts["privacy"]["epsilon"]
        assert 0.98 * total < found <= total * (1 + 1e-8)


# -- runs without noise -------------------------------------------------------------------------

TINY = NamedProblem("waveform", 5, 60, 100)
RING = build_topology("ring", 5).edges


def ring_course(rounds, penalties, growths, gamma=0.1):
    cell = NoiselessCell(
        TINY, 0.05, rounds=rounds, penalties=penalties, growths=growths, gamma=gamma, edges=RING
    )
    return cell.compute()


@pytest.mark.parametrize("penalties", [(0.05,), (0.02, 0.05, 0.08, 0.05, 0.03)])
def test_fixed_penalties_lead_to_the_optimum_weighted_by_their_inverses(penalties):
    found = ring_course(600, penalties, (1.0,))
    weighted = OptimumJob(
        TINY, 0.05, weights=tuple(1 / each for each in penalties * (5 // len(penalties)))
    )
    pooled = OptimumJob(TINY, 0.05).compute()
    np.testing.assert_allclose(found.values["model"], weighted.compute().values["model"], atol=1e-4)
    apart = np.linalg.norm(found.values["model"] - pooled.values["model"])
    assert (apart > 1e-2) == (len(penalties) > 1)
    if len(penalties) == 1:
        expected = pooled.values["average loss"][0]
        assert found.course("average loss")[-1, 0] == pytest.approx(expected, abs=1e-5)


def test_growing_penalties_are_those_of_mr_admm():
    grown, fixed = (ring_course(9, (0.05,), (growth,)) for growth in (1.1, 1.0))
    one, other = (each.course("average loss")[:, 0] for each in (grown, fixed))
    np.testing.assert_allclose(one[:2], other[:2], atol=1e-12)
    assert (np.abs(one[2:] - other[2:]) > 1e-6).all()


def test_without_gamma_it_is_conventional_admm():
    parameters = TrainingParameters(
        "admm",
        topology=RING,
        rounds=9,
        penalty=0.05,
        regularization=0.05,
        party_weight="equal",
        loss="logistic",
        tolerance=1e-8,
    )
    plain = TrainingJob(TINY, parameters, runs=1, courses=("average loss",), finals=())
    np.testing.assert_array_equal(
        ring_course(9, (0.05,), (1.0,), None).course("average loss"),
        plain.compute().course("average loss"),
    )


def test_more_draws_are_other_graphs_and_splits():
    few = NoiselessCell(TINY, 0.05, 2, rounds=3, penalties=(0.05,), gamma=0.1)
    whole = join(few.compute(), few.further(1).compute()).course("average loss")
    many = dataclasses.replace(few, draws=4).compute().course("average loss")
    np.testing.assert_array_equal(whole, many)
    assert len(set(whole[-1].tolist())) == 4


# -- verdicts -----------------------------------------------------------------------------------


def test_courses_are_read_as_stated():
    course = np.array([0.6, 0.65, 0.5, 0.48, 0.52, 0.55, 0.4])
    np.testing.assert_allclose(even_steps(course), [0.05, -0.02, 0.03])
    np.testing.assert_allclose(alternation(course), [0.1, -0.03, 0.09])
    # A steady fall does not oscillate.
    np.testing.assert_allclose(alternation(1 - 0.1 * np.arange(9)), 0, atol=1e-12)
    # 0.6 -> 0.65 is undone (0.5); 0.52 -> 0.55 is undone (0.4); an even step down is none.
    np.testing.assert_allclose(left_over(course), [-0.1, -0.12])
    gaps = np.array([0.5, 0.01, 0.1, 0.015, 0.01])
    assert reached(gaps, np.arange(1, 6)) == 4
    assert reached(gaps[:3], np.arange(1, 4)) == np.inf
    assert reached(gaps[3:], np.array([7, 9])) == 7


def made_up(losses, errors=None):
    """A result whose last losses (and errors) these are."""
    course = np.tile(np.asarray(losses, dtype=float), (5, 1))
    wrong = np.full(course.shape[1], 0.2) if errors is None else np.asarray(errors, dtype=float)
    return Result(
        {"average loss": course, "last/test accuracy": 1 - wrong, "epsilon": np.ones(5)},
        {"privacy": {"epsilon": 3.0}},
    )


def around(centre, width=0.001):
    return centre + width * np.array([-1.0, 1.0])


def results_of(experiment, value):
    return {label: value(label) for label in experiment.cells()}


def test_figure_1_can_stand_and_fall():
    experiment = small(FigureOne, iterations=41)
    t = np.arange(41)

    def value(label, upside_down):
        if "optimum" in label:
            return Result({"average loss": np.full(3, 0.3)}, {})
        name = label
        number = float(re.findall(r"[\d.]+", name)[-1]) if "=" in name else 0.0
        speed = {"N": 20 - number, "f": 30.0, "b": 20 - number, "c": 120 - 100 * number}[name[0]]
        if "ADMM" in name:
            speed = 19.5
        if upside_down:
            speed = {19.5: 40.0}.get(speed, 40 - 1.5 * speed)
        course = 0.3 + 0.39 * np.exp(-t * speed / 100)
        # Even iterations raise the loss, the less the larger gamma; upside down, the more, and
        # odd ones do not bring it back.
        swing = 0.1 * (1 + number) if upside_down else 0.02 / (1 + number)
        course += np.where(t % 2 == 1, swing, 0.0) + (0.0005 * t if upside_down else 0.0)
        draws = course[:, None] * (1 + 1e-5 * np.arange(3))
        return Result({"average loss": draws}, {})

    fine = verdicts(experiment, results_of(experiment, lambda label: value(label, False)))
    assert set(fine.values()) == {"stands"}
    bad = verdicts(experiment, results_of(experiment, lambda label: value(label, True)))
    assert set(bad.values()) == {"does not stand"}


@pytest.mark.parametrize(
    ("other", "verdict"), [(0.18, "stands"), (0.15, "does not stand"), (0.1605, "not decided")]
)
def test_figure_2_goes_three_ways(other, verdict):
    experiment, splits = small(FigureTwo), np.arange(4)

    def value(label):
        rate = 0.16 if label == "rho = 0.22" else other + 0.002 * (splits % 2 - 0.5)
        return made_up([0.3] * 4, rate + 0.001 * splits)

    found = verdicts(experiment, results_of(experiment, value))
    assert found["minimum", "", "", ""] == verdict
    # To what a figure shows, a rival that is better by a point is, and one by a twentieth is not.
    among = {0.18: "stands", 0.15: "does not stand", 0.1605: "stands"}[other]
    assert found["minimum", "", "what counts as least", "to 0.2% points"] == among


@pytest.mark.parametrize(("shift", "verdict"), [(0.003, "stands"), (0.02, "does not stand")])
def test_figure_3_can_stand_and_fall(shift, verdict):
    experiment = small(FigureThree)

    def value(label):
        away = 0.0 if "gamma = 0.5" in label else shift
        return made_up(around(0.4 + away, 3e-4), around(0.2 + away, 3e-4))

    assert set(verdicts(experiment, results_of(experiment, value)).values()) == {verdict}


@pytest.mark.parametrize(("sign", "verdict"), [(1, "stands"), (-1, "does not stand")])
def test_figure_4_can_stand_and_fall(sign, verdict):
    experiment = small(FigureFour)

    def value(label):
        if label == "without noise":
            return made_up([0.3])
        growth = float(re.search(r"growth = ([\d.]+)", label).group(1))
        alpha = 1 if "alpha = 1" in label else 2
        gain = sign * (growth - 1) / alpha
        width = 0.02 - 0.2 * sign * (growth - 1)
        # Sixty runs, every ten of them as wide: the range over ten is judged on six groups.
        runs = np.tile(np.repeat([-1.0, 1.0], 5), 6) * width + 1e-5 * np.arange(60)
        return made_up(0.6 - gain + 0.1 * runs, 0.2 - gain + 0.1 * runs)

    assert set(verdicts(experiment, results_of(experiment, value)).values()) == {verdict}


def test_a_slope_is_that_of_the_means():
    samples = {x: around(2 - 3 * x) for x in (1.0, 1.1, 1.3)}
    found = slope(samples)
    assert found.mean == pytest.approx(-3)
    assert found.low < -3 < found.high < 0


@pytest.mark.parametrize(("sign", "verdict"), [(1, "stands"), (-1, "does not stand")])
def test_figure_5_can_stand_and_fall(sign, verdict):
    experiment = small(FigureFive)
    gains = {"MR-ADMM": 0.2, "R-ADMM": 0.1, "M-ADMM": 0.05}

    def value(label):
        if label == "without noise":
            return made_up([0.3])
        alpha = float(re.search(r"alpha = ([\d.]+)", label + "alpha = 1").group(1))
        who = next((each for each in gains if f", {each}" in label), "")
        gain = sign * gains.get(who, 0.0) / alpha
        return made_up(around(0.8 - gain), around(0.4 - gain / 2))

    assert set(verdicts(experiment, results_of(experiment, value)).values()) == {verdict}


def test_figure_5_judges_each_of_both_alone():
    experiment = small(FigureFive)
    losses = {", MR-ADMM": 0.5, ", R-ADMM": 0.9, ", M-ADMM": 0.7, "without noise": 0.3}

    def value(label):
        return made_up(around(next((v for who, v in losses.items() if who in label), 0.8)))

    found = {
        what[0]: word for what, word in verdicts(experiment, results_of(experiment, value)).items()
    }
    assert found["R-ADMM and MR-ADMM outperform, R-ADMM"] == "does not stand"
    assert found["R-ADMM and MR-ADMM outperform, MR-ADMM"] == "stands"


def test_figure_5_says_which_choice_decides():
    experiment = small(FigureFive)

    def value(label):
        if label == "without noise":
            return made_up([0.3])
        alpha = float(re.search(r"alpha = ([\d.]+)", label + "alpha = 1").group(1))
        place = next((place for place, who in enumerate(PRIVATE) if f", {who}" in label), 0)
        # With a dual step of 0.5 M-ADMM is better than all.
        loss = 0.1 if "dual step 0.5" in label else 0.8 - 0.1 * place / alpha
        return made_up(around(loss), around(loss / 2))

    found = {
        (each.conclusion, each.calibration): each
        for each in summaries(experiment.evaluate(results_of(experiment, value)).findings)
    }
    best = found["MR-ADMM is the best", "published"]
    assert (best.verdict, best.depends_on) == ("stands", ("M-ADMM's dual step",))
    assert found["more at smaller totals", "published"].depends_on == ()


@pytest.mark.parametrize(
    ("even", "odd", "verdict"), [(0.001, 1.0, "stands"), (0.5, 2.0, "does not stand")]
)
def test_computation_can_stand_and_fall(even, odd, verdict):
    experiment = small(Computation)

    def value(label):
        costs = np.ones((6, 2)) * (1 + 0.0001 * np.arange(2))
        if "R-ADMM" in label:
            costs[::2] *= odd * (1 + 0.0001 * np.arange(2))
            costs[1::2] *= even
        passes = np.where(costs > 0.1, costs, 0.0)
        return Result({"seconds": costs, "solves": passes, "passes": passes}, {})

    assert set(verdicts(experiment, results_of(experiment, value)).values()) == {verdict}
