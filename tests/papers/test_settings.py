"""Runs of the papers say what the papers fix: no default of the package decides a page."""

import pytest

from dpadmm_papers import EXPERIMENTS

#: Algorithms whose noise has a kind.
KINDS_OF_NOISE = {"dvp", "m-admm", "r-admm", "mr-admm"}


def trainings(experiment):
    """Every training of an experiment, by label."""
    for label, cell in experiment.cells().items():
        while hasattr(cell, "training"):
            cell = cell.training
        if hasattr(cell, "parameters"):
            yield label, cell.parameters


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=lambda each: each.name)
def test_every_run_names_loss_noise_and_weights(experiment):
    for label, told in trainings(experiment):
        assert told.loss == "logistic", label
        assert told.party_weight == "equal", label
        assert told.penalty != "auto" or "auto" in label or "package" in label, label
        if told.algorithm in KINDS_OF_NOISE:
            assert told.algorithm_options.get("noise"), label
        if told.algorithm == "ps-admm":
            assert told.algorithm_options["form"] in ("split", "one-release"), label
