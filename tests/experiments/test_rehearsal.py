"""A rehearsal has the noise of the run it stands for, and its curves are read both ways."""

import math
from dataclasses import replace

import numpy as np
import pytest

from dpadmm.experiments.question import DIFFICULTIES, RunQuestion
from dpadmm.experiments.rehearsal import (
    BAND,
    FACTORS,
    Effort,
    ExpectedLoss,
    NoiseCurve,
    Rehearsal,
    band,
    mean_noise,
)
from dpadmm.privacy.gaussian import gaussian_epsilon, gaussian_mu
from dpadmm.run.options import TrainingParameters

MEDIUM = DIFFICULTIES[1]
LOSSES = (ExpectedLoss(1, 0.1), ExpectedLoss(2, 0.2), ExpectedLoss(6, 1))
CURVE = NoiseCurve((0.5, 1.0, 2.0), LOSSES)


def rehearsal(rows=(900, 300, 300), effort=None, **parameters):
    told = replace(TrainingParameters("auto"), **parameters)
    question = RunQuestion(rows, features=5, parameters=told)
    return Rehearsal(question, question.planned().plan, effort or Effort(1, 2, 400, 200))


def planned(job):
    return job.plan(job.problem.load())[0]


@pytest.mark.parametrize("factor", [FACTORS[0], 1.0, FACTORS[-1]])
@pytest.mark.parametrize("people", [1, 3])
def test_one_hand_has_the_noise_of_the_mean_of_all(factor, people):
    asked = rehearsal(rows_per_person=people)
    job = asked.at_noise(MEDIUM, factor)
    assert len(job.problem.load().members) == 1
    found = planned(job)
    # Under much noise rows are not centred, and gradients have the share that this would take.
    centred = found.algorithm.centres == asked.fixed.algorithm.centres
    rel = 1e-3 if centred else 0.025
    assert mean_noise(found) == pytest.approx(factor * mean_noise(asked.fixed), rel=rel)


@pytest.mark.parametrize("factor", [0.25, 1.0, 2.0])
def test_one_hand_centres_rows_where_the_parties_would(factor):
    # With several classes the rule looks at a party's budget, which five parties have more of.
    told = TrainingParameters("dp-gd", epsilon=1.0)
    question = RunQuestion((900,) * 5, features=5, classes=3, parameters=told)
    asked = Rehearsal(question, question.planned().plan, Effort(1, 1, 4500, 10))
    epsilon = float(gaussian_epsilon(gaussian_mu(1.0, told.delta) / factor, told.delta))
    run = replace(question, parameters=replace(told, epsilon=epsilon)).planned().plan
    found = planned(asked.at_noise(MEDIUM, factor))
    assert run.algorithm.centres == (factor < 2)
    assert found.algorithm.centres == run.algorithm.centres
    assert mean_noise(found) == pytest.approx(mean_noise(run), rel=0.03)


def test_the_hardest_rows_of_several_classes_are_less_hard():
    hard = DIFFICULTIES[2]
    two, three = (
        Rehearsal(question, question.planned().plan).pooled(hard).problem.whole
        for question in (RunQuestion(500, 5, features=5, classes=count) for count in (2, 3))
    )
    assert two.difficulty == hard
    assert three.difficulty.ratio > hard.ratio
    assert [each.among(11) for each in DIFFICULTIES[:2]] == list(DIFFICULTIES[:2])


def test_shared_noise_is_the_noise_of_the_sum():
    own = rehearsal().fixed
    shared = rehearsal(algorithm_options={"noise": "shared"}).fixed
    # Three parties of whom one may collude: two shares cover what each would add alone.
    assert mean_noise(shared) == pytest.approx(mean_noise(own) / np.sqrt(2), rel=1e-3)


@pytest.mark.parametrize("people", [1, 2])
def test_fewer_rows_have_the_same_noise(people):
    asked = rehearsal(algorithm="pr-admm", rows_per_person=people)
    job = asked.at_noise(MEDIUM, 1.0)
    assert sum(job.problem.counts) == pytest.approx(400, abs=3)
    assert planned(job).algorithm.sigma == pytest.approx(asked.fixed.algorithm.sigma, rel=0.02)


def test_more_parties_are_rehearsed_as_such():
    asked = rehearsal(algorithm="pr-admm")
    job = asked.together(MEDIUM, asked.question.parameters, "twice", parties=2)
    assert len(job.problem.counts) == 6


def test_more_rounds_spend_the_same_budget():
    asked = rehearsal()
    usual, more = (planned(asked.at_noise(MEDIUM, 1.0, times)) for times in (1, 4))
    assert more.rounds == 4 * usual.rounds
    assert usual.algorithm.centres
    assert more.algorithm.centres
    gradients = (more.rounds - 1) / (usual.rounds - 1)
    assert mean_noise(more) == pytest.approx(math.sqrt(gradients) * mean_noise(usual), rel=1e-6)


def test_one_hand_loses_what_all_parties_lose():
    asked = rehearsal((400,) * 4, Effort(4, 4, 1600, 2000), epsilon=0.5)
    pooled = asked.pooled(MEDIUM).compute()
    found = [
        asked.losses(pooled, job.compute())
        for job in (
            asked.at_noise(MEDIUM, 1.0),
            asked.together(MEDIUM, replace(asked.question.parameters, algorithm="dp-gd"), "all"),
        )
    ]
    error = np.sqrt(sum(each.var(ddof=1) / each.size for each in found))
    assert found[0].mean() > 0
    assert abs(found[0].mean() - found[1].mean()) < 3 * error


@pytest.mark.parametrize("wanted", [1.5, 2.0, 4.0])
def test_a_curve_is_read_both_ways(wanted):
    noise = CURVE.most_noise(wanted)
    assert CURVE.at(noise).mean == pytest.approx(wanted)


def test_beyond_its_ends_a_curve_says_what_is_known():
    assert CURVE.at(0.01) == CURVE.losses[0]
    assert CURVE.at(100) == CURVE.losses[-1]
    assert CURVE.most_noise(0.5) is None
    assert CURVE.most_noise(7) == 2.0


def test_a_dip_promises_nothing():
    # Where noise seems to help, it is chance: the budget is that of the dearer side.
    dip = NoiseCurve((0.5, 1.0, 2.0), (ExpectedLoss(3, 0), ExpectedLoss(1, 0), ExpectedLoss(5, 0)))
    assert dip.most_noise(2) is None


def test_a_band_holds_the_spread_of_every_difficulty():
    assert band([ExpectedLoss(1, 0.5), ExpectedLoss(2, 2)]) == (2 - 2 * BAND, 2 + 2 * BAND)
