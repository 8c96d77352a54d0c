"""Intervals hold and are short; a broken one would be caught."""

from dataclasses import replace

import numpy as np
import pytest
from benchmarks import evaluation_study
from benchmarks.evaluation_study import CASES, LEAST_COVERAGE, OFTEN, WIDEST, Case, study

from dpadmm.evaluation import metrics

SIMULATIONS = 120
# Three standard errors of a coverage of 95% in so many simulations.
SLACK = 3 * np.sqrt(0.05 * 0.95 / SIMULATIONS)
#: Noise and sampling matter alike here: an interval with one of them alone is caught.
BALANCED = Case(1000, 5.0, 0.3, 1.5)


def broken(monkeypatch, factor):
    """Figures that are told a wrong variance of the noise."""
    real = metrics.evaluate_histogram

    def told(histogram):
        return real(replace(histogram, noise_variance=factor * histogram.noise_variance))

    monkeypatch.setattr(evaluation_study, "evaluate_histogram", told)


@pytest.mark.parametrize("case", [BALANCED, Case(300, 2.0, 0.3, 1.5, classes=3)])
def test_a_few_simulations(case):
    for name, tally in study(case, SIMULATIONS).items():
        assert tally.coverage >= 0.95 - SLACK, name
        assert tally.width <= WIDEST, name


def test_noise_left_out_is_caught(monkeypatch):
    broken(monkeypatch, 0.0)
    tallies = study(BALANCED, SIMULATIONS)
    for name in ("accuracy, zero", "sensitivity, zero", "specificity, zero", "prevalence", "area"):
        assert tallies[name].coverage < 0.95 - SLACK, name


def test_noise_counted_often_is_caught(monkeypatch):
    # Twice the noise's variance, as resampling noisy counts and adding it again would give: with
    # as much noise as here that is beyond the width allowed.
    broken(monkeypatch, 2.0)
    tallies = study(replace(BALANCED, deviation=15.0), SIMULATIONS)
    for name in ("accuracy, zero", "prevalence"):
        assert tallies[name].width > WIDEST, name


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_whole_study(case):
    for name, tally in study(case, evaluation_study.SIMULATIONS).items():
        assert tally.coverage >= LEAST_COVERAGE, name
        if tally.share_given >= OFTEN:
            assert tally.coverage_given >= LEAST_COVERAGE, name
            assert tally.width <= WIDEST, name
